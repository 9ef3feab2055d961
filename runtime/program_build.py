"""From a graph to a program: one out-of-order stream, in which only the edges order the tasks.

A task with a processing time becomes a kernel of one block; one without (the dummy tasks of the
Standard Task Graph set) becomes a NOP, which needs no core. The user tag is the task's id. A task
with more predecessors than an entry can name waits for helper NOPs that stand before it and share
its predecessors; their user tag is `HELPER_TAG`.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsemu.descriptors.codes import MAX_PREDECESSORS, Opcode
from tsemu.descriptors.program import Program, ProgramWriter, Stream, task_array
from tsemu.descriptors.program_layout import WINDOW_LIMIT
from tsemu.runtime.errors import GraphError
from tsemu.runtime.graph import Graph, Numbers
from tsemu.runtime.rank import rank_values

HELPER_TAG = (1 << 64) - 1
MAX_CYCLES = (1 << 32) - 1
PRIORITY = 3
"""Level of all tasks: the default of the driver's streams."""
PRODUCER = "tsctl"


@dataclass(frozen=True)
class Compiled:
    """Tables and tasks of a program: `tasks` has `TASK_DTYPE`, `edges` program-wide indices."""

    tasks: NDArray[np.void]
    edges: NDArray[np.uint32]
    tables: dict[str, Any]


def build_program(graph: Graph, engine_class: str, cycles_per_unit: int) -> Program:
    """Return the program of a graph, in memory. Errors are those of `compile_graph`."""
    compiled = compile_graph(graph, engine_class, cycles_per_unit)
    return Program.from_arrays(compiled.tasks, compiled.edges, **compiled.tables)


def write_program(graph: Graph, path: Path, engine_class: str, cycles_per_unit: int) -> None:
    """Write the program of a graph to `path`. Errors are those of `compile_graph`, and `OSError`.

    What was at `path` is replaced only when the program is whole.
    """
    compiled = compile_graph(graph, engine_class, cycles_per_unit)
    with ProgramWriter(path, **compiled.tables) as writer:
        writer.add_tasks(compiled.tasks, compiled.edges)


def compile_graph(graph: Graph, engine_class: str, cycles_per_unit: int) -> Compiled:
    """Turn a graph into task records and edges.

    A time unit of the graph takes `cycles_per_unit` cycles of a core of `engine_class`. Raises
    `GraphError` when a task then has more cycles than an entry can say.
    """
    longest = int(graph.times.max()) if graph.tasks else 0
    if longest * cycles_per_unit > MAX_CYCLES:
        task = int(graph.ids[int(graph.times.argmax())])
        raise GraphError(
            graph.source,
            0,
            f"processing time of task {task}",
            longest,
            f"at most {MAX_CYCLES // cycles_per_unit}: a unit has {cycles_per_unit} cycles "
            f"(--cycles-per-unit) and a task at most {MAX_CYCLES} cycles",
        )
    counts = np.diff(graph.starts)
    tasks = task_array(
        graph.tasks,
        user_tag=graph.ids.astype(np.uint64),
        opcode=np.where(graph.times > 0, int(Opcode.KERNEL), int(Opcode.NOP)),
        cycles=graph.times * cycles_per_unit,
        value=rank_values(graph),
        priority=PRIORITY,
        edge_count=np.minimum(counts, MAX_PREDECESSORS),
    )
    edges = graph.predecessors.astype(np.uint32)
    helpers = 0
    if graph.tasks and int(counts.max()) > MAX_PREDECESSORS:
        tasks, edges = _with_helpers(tasks, graph.starts, graph.predecessors)
        helpers = len(tasks) - graph.tasks
    tables = {
        "streams": [Stream("graph", priority=PRIORITY, limit=WINDOW_LIMIT)],
        "classes": [engine_class],
        "meta": {
            "producer": PRODUCER,
            "source": os.fsencode(Path(graph.source).name).decode("utf-8", "replace"),
            "cycles_per_unit": cycles_per_unit,
            "helper_tasks": helpers,
        },
    }
    return Compiled(tasks, edges, tables)


def _with_helpers(
    tasks: NDArray[np.void], starts: Numbers, predecessors: Numbers
) -> tuple[NDArray[np.void], NDArray[np.uint32]]:
    """Put helpers before each task with too many predecessors, in as many layers as it takes."""
    groups: list[tuple[int, Numbers]] = []  # (task before which it stands, its edges)
    needed = np.flatnonzero(np.diff(starts) > MAX_PREDECESSORS).tolist()
    last_edges: dict[int, tuple[int, int]] = {}  # task: helpers that it waits for itself
    for task in needed:
        waiting = predecessors[starts[task] : starts[task + 1]]
        layer = _split(waiting)
        while True:
            first = len(groups)
            groups += [(task, part) for part in layer]
            if len(layer) <= MAX_PREDECESSORS:
                break
            layer = _split(np.arange(first, len(groups)) + len(tasks))
        last_edges[task] = (first, len(groups))
    # Numbers from len(tasks) on mean helpers; `moved` has the place of everything.
    owners = np.array([task for task, _ in groups], np.int64)
    count = len(tasks) + len(groups)
    moved = np.empty(count, np.int64)
    moved[: len(tasks)] = np.arange(len(tasks)) + np.searchsorted(
        owners, np.arange(len(tasks)), side="right"
    )
    moved[len(tasks) :] = owners + np.arange(len(groups))
    result = task_array(count, user_tag=HELPER_TAG, opcode=int(Opcode.NOP), priority=PRIORITY)
    result[moved[: len(tasks)]] = tasks
    pieces: list[Numbers] = [np.zeros(0, np.int64)] * count
    for task in range(len(tasks)):
        pieces[moved[task]] = predecessors[starts[task] : starts[task + 1]]
    for task, (first, end) in last_edges.items():
        pieces[moved[task]] = np.arange(first, end) + len(tasks)
    for helper, (_, part) in enumerate(groups):
        pieces[moved[len(tasks) + helper]] = part
    result["edge_count"] = [len(piece) for piece in pieces]
    return result, moved[np.concatenate(pieces)].astype(np.uint32)


def _split(waiting: Numbers) -> list[Numbers]:
    parts = -(-len(waiting) // MAX_PREDECESSORS)
    return [np.asarray(part, np.int64) for part in np.array_split(waiting, parts)]
