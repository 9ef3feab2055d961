"""Scheduling values, and how close to optimal schedules they lead."""

import csv
import heapq
from pathlib import Path

import numpy as np
import pytest

from tsemu.runtime.rank import longest_paths, packed, rank_values
from tsemu.runtime.stg import read_stg

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[3] / "shared" / "stg"


def test_longest_path_counts_the_own_time():
    graph = read_stg(DATA / "diamond.stg")
    assert longest_paths(graph).tolist() == [10, 10, 7, 6, 2, 0]
    assert rank_values(graph).tolist() == [
        10 << 8 | 1,
        10 << 8 | 2,
        7 << 8 | 1,
        6 << 8 | 1,
        2 << 8 | 1,
        0,
    ]


def test_values_never_exceed_32_bits_and_keep_the_order_of_paths():
    paths = np.array([0, 1, 2**23, 2**24, 2**56 - 1, 2**56 - 2, 2**55], np.int64)
    values = packed(paths, np.full(7, 10**6))
    assert values.dtype == np.uint32
    assert int(values[4]) == 2**32 - 1
    order = np.argsort(paths)
    assert np.all(np.diff(values[order].astype(np.int64)) >= 0)


def test_paths_below_24_bits_are_kept_exactly():
    assert packed(np.array([2**24 - 1]), np.array([3])).tolist() == [(2**24 - 1) << 8 | 3]


def test_ties_of_paths_go_to_more_successors():
    values = packed(np.array([5, 5, 5]), np.array([0, 2, 1000]))
    assert values[0] < values[1] < values[2]


class ListScheduler:
    """All that ends at one instant is retired, then the largest values start on free cores."""

    def __init__(self, graph):
        self.values = rank_values(graph).tolist()
        self.times = graph.times.tolist()
        self.missing = np.diff(graph.starts).tolist()
        self.followers = [[] for _ in self.times]
        for task in range(graph.tasks):
            for before in graph.predecessors[graph.starts[task] : graph.starts[task + 1]].tolist():
                self.followers[before].append(task)
        self.ready = []
        for task in [task for task, count in enumerate(self.missing) if not count]:
            self.admit(task)

    def admit(self, task):
        if self.times[task]:
            heapq.heappush(self.ready, (-self.values[task], task))
        else:
            self.retire(task)  # a task without time needs no core

    def retire(self, task):
        for follower in self.followers[task]:
            self.missing[follower] -= 1
            if not self.missing[follower]:
                self.admit(follower)

    def makespan(self, cores):
        running, now = [], 0
        while self.ready or running:
            while self.ready and len(running) < cores:
                _, task = heapq.heappop(self.ready)
                heapq.heappush(running, (now + self.times[task], task))
            now = running[0][0]
            ended = [task for end, task in running if end == now]
            running = [item for item in running if item[0] != now]
            heapq.heapify(running)
            for task in ended:
                self.retire(task)
        return now


def makespan(graph, cores):
    return ListScheduler(graph).makespan(cores)


def test_makespan_of_a_diamond():
    graph = read_stg(DATA / "diamond.stg")
    assert (makespan(graph, 1), makespan(graph, 2)) == (14, 10)


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the STG set is not at {SHARED}")
@pytest.mark.parametrize(("cores", "target"), [(2, 1.0035), (4, 1.008), (8, 1.004), (16, 1.0001)])
def test_rank_is_near_the_optimum_on_the_standard_graphs(cores, target):
    with (SHARED / f"Case50_{cores}_OPT.csv").open() as table:
        rows = [row for row in csv.reader(table) if len(row) == 3]  # four fields: bounds only
    ratios = [makespan(read_stg(SHARED / row[0]), cores) / int(row[2]) for row in rows]
    assert len(ratios) > 150
    assert min(ratios) >= 1
    assert np.mean(ratios) <= target
    assert max(ratios) <= 1.09
