"""A task graph in arrays, in an order in which every task follows its predecessors.

Knows nothing of files or devices: readers fill it, `rank` and `program_build` use it.
"""

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


class CycleError(ValueError):
    """The edges go round in a circle; `tasks` are the positions of one cycle, each before the next.

    The last one of `tasks` is a predecessor of the first one.
    """

    def __init__(self, tasks: list[int]) -> None:
        super().__init__(tasks)
        self.tasks = tasks

    def __str__(self) -> str:
        return "cycle through the tasks " + ", ".join(str(task) for task in self.tasks)


@dataclass(frozen=True)
class Graph:
    """Tasks in topological order. All arrays hold 64-bit integers.

    `ids`: the file's name of each task, shape (n,). `times`: processing time of each task in the
    file's time unit, shape (n,). `starts`: shape (n + 1,); the predecessors of task i are
    `predecessors[starts[i]:starts[i + 1]]`: positions below i, ascending, each once.
    """

    source: str
    ids: Numbers
    times: Numbers
    starts: Numbers
    predecessors: Numbers

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.ids)

    @property
    def edges(self) -> int:
        """Number of edges."""
        return len(self.predecessors)

    def successor_counts(self) -> Numbers:
        """Return the number of immediate successors of each task, shape (n,)."""
        return np.bincount(self.predecessors, minlength=self.tasks).astype(np.int64)


def in_order(source: str, ids: Numbers, times: Numbers, starts: Numbers, edges: Numbers) -> Graph:
    """Return the graph in topological order; among tasks that could come next, the lowest id does.

    `starts` and `edges` are predecessors as in `Graph`, but as positions in the given order, in
    any order and possibly repeated. Raises `CycleError` with positions in the given order.
    """
    count = len(ids)
    owners = np.repeat(np.arange(count, dtype=np.int64), np.diff(starts))
    order = np.argsort(ids, kind="stable").astype(np.int64)
    places = _inverse(order)
    if np.any(places[edges] >= places[owners]):
        order = _sorted_by_edges(ids, starts, edges, owners)
        places = _inverse(order)
    # A pair (task, predecessor) in one number: sorting orders both and brings repeats together.
    pairs = np.sort(places[owners] * count + places[edges])
    pairs = pairs[np.diff(pairs, prepend=-1) != 0]
    new_owners, new_edges = np.divmod(pairs, max(count, 1))
    new_starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(new_owners, minlength=count), out=new_starts[1:])
    return Graph(source, ids[order], times[order], new_starts, new_edges)


def _inverse(order: Numbers) -> Numbers:
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=np.int64)
    return places


def _sorted_by_edges(ids: Numbers, starts: Numbers, edges: Numbers, owners: Numbers) -> Numbers:
    count = len(ids)
    by_predecessor = np.argsort(edges, kind="stable")
    followers = owners[by_predecessor].tolist()
    first = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(edges, minlength=count), out=first[1:])
    first_follower = first.tolist()
    missing = np.diff(starts).tolist()
    names = ids.tolist()
    ready = [(names[task], task) for task in range(count) if not missing[task]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, task = heapq.heappop(ready)
        order.append(task)
        for follower in followers[first_follower[task] : first_follower[task + 1]]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, (names[follower], follower))
    if len(order) < count:
        raise CycleError(_one_cycle(missing, starts, edges))
    return np.array(order, np.int64)


def _one_cycle(missing: list[int], starts: Numbers, edges: Numbers) -> list[int]:
    """Walk backwards among tasks that never became ready until one comes up again."""
    task = next(task for task, count in enumerate(missing) if count)
    seen: dict[int, int] = {}
    walk: list[int] = []
    while task not in seen:
        seen[task] = len(walk)
        walk.append(task)
        candidates = edges[starts[task] : starts[task + 1]].tolist()
        task = next(candidate for candidate in candidates if missing[candidate])
    cycle = walk[seen[task] :][::-1]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]
