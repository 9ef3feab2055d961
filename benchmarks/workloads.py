"""The three workloads of the throughput figures, as arrays and as program files.

`independent`: no edges. `streams`: 64 in-order streams, task i in stream i modulo 64. `layered`:
layers of 256 tasks, each with two random predecessors in the layer before (one, when both draws
are the same task). Cycles per task are 64 to 1023 (mean 543), from a hash of the task's number, so
that every program here, the one in C included, makes the same graph without a file. The arrays are
made in chunks of constant size: a program of any length needs the same memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tsemu.descriptors.codes import Opcode
from tsemu.descriptors.program import ProgramWriter, Stream, task_array
from tsemu.descriptors.program_layout import WINDOW_LIMIT

Words = npt.NDArray[np.uint32]

WORKLOADS = ("independent", "streams", "layered")
STREAMS = 64
LAYER = 256
CHUNK = 1 << 16
"""Tasks made at once."""


def mix(values: npt.ArrayLike) -> Words:
    """Hash an array of 32-bit numbers (same as `mix` in baseline_ring.c)."""
    x = np.asarray(values, dtype=np.uint32).copy()
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


@dataclass(frozen=True)
class Part:
    """Consecutive tasks of a workload.

    `first` is the number of the first; `cycles` (tasks), `streams` (tasks) and `edges` (tasks, 2)
    are arrays, `edges` with the number of a predecessor task or -1. The order within streams of
    `streams` is not in `edges`.
    """

    first: int
    cycles: Any
    streams: Any
    edges: Any


def parts(workload: str, tasks: int, chunk: int = CHUNK) -> Iterator[Part]:
    """Make a workload chunk by chunk."""
    for first in range(0, tasks, chunk):
        number = np.arange(first, min(first + chunk, tasks), dtype=np.int64)
        cycles = (64 + mix(number) % 960).astype(np.uint32)
        streams = np.zeros(number.size, dtype=np.uint16)
        edges = np.full((number.size, 2), -1, dtype=np.int64)
        if workload == "streams":
            streams[:] = number % STREAMS
        elif workload == "layered":
            base = (number // LAYER - 1) * LAYER
            draw = [mix(2 * number + 0x40000000 + k).astype(np.int64) % LAYER for k in (0, 1)]
            inside = number >= LAYER
            edges[inside, 0] = (base + draw[0])[inside]
            second = inside & (draw[0] != draw[1])
            edges[second, 1] = (base + draw[1])[second]
        yield Part(first, cycles, streams, edges)


def as_lists(workload: str, tasks: int) -> tuple[list[int], list[list[int]]]:
    """Cycles and list of predecessors of each task, stream order included, as Python lists."""
    cycles: list[int] = []
    predecessors: list[list[int]] = []
    for part in parts(workload, tasks):
        cycles += part.cycles.tolist()
        predecessors += [[p for p in pair if p >= 0] for pair in part.edges.tolist()]
    if workload == "streams":
        predecessors = [[i - STREAMS] if i >= STREAMS else [] for i in range(tasks)]
    return cycles, predecessors


def write_program(path: Path, workload: str, tasks: int, engine_class: str = "AICORE") -> None:
    """Write a workload as a program file, chunk by chunk."""
    ordered = workload == "streams"
    streams = [
        Stream(f"stream-{i}", in_order=ordered, limit=WINDOW_LIMIT)
        for i in range(STREAMS if ordered else 1)
    ]
    meta = {"producer": "benchmarks/workloads.py", "workload": workload}
    with ProgramWriter(path, streams=streams, classes=[engine_class], meta=meta) as writer:
        for part in parts(workload, tasks):
            count = part.cycles.size
            records = task_array(
                count,
                opcode=int(Opcode.KERNEL),
                cycles=part.cycles,
                stream=part.streams,
                user_tag=np.arange(part.first, part.first + count),
            )
            present = part.edges >= 0
            writer.add_tasks(records, part.edges[present], present.sum(axis=1))
