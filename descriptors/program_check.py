"""The rules that every task of a program keeps, checked with NumPy a chunk at a time."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tsemu.descriptors.codes import MAX_PREDECESSORS, PRIORITY_LEVELS, Opcode
from tsemu.descriptors.errors import ParseError
from tsemu.descriptors.program_layout import REFERENCE_BIT, REFERENCE_SHIFT
from tsemu.descriptors.program_tables import Tables

Records = np.ndarray[Any, Any]
"""One-dimensional array of `TASK_DTYPE`."""
Edges = np.ndarray[Any, np.dtype[np.uint32]]
"""One-dimensional array of program-wide task indices, 32 bits."""

PROGRAM_OPCODES = (
    Opcode.NOP,
    Opcode.KERNEL,
    Opcode.MEMCPY,
    Opcode.MEMSET,
    Opcode.EVENT_RECORD,
    Opcode.EVENT_WAIT,
    Opcode.EVENT_RESET,
)
"""Opcodes that a program of this version may hold."""

_OFFSET_MASK = np.uint64((1 << REFERENCE_SHIFT) - 1)
_INDEX_MASK = np.uint64((1 << (REFERENCE_BIT - REFERENCE_SHIFT)) - 1)


def _opcode_set(*opcodes: Opcode) -> np.ndarray[Any, np.dtype[np.bool_]]:
    table = np.zeros(256, np.bool_)
    table[list(opcodes)] = True
    return table


_KNOWN = _opcode_set(*PROGRAM_OPCODES)
_EVENTS = _opcode_set(Opcode.EVENT_RECORD, Opcode.EVENT_WAIT, Opcode.EVENT_RESET)
_NO_CORE = _opcode_set(Opcode.NOP, Opcode.EVENT_RECORD, Opcode.EVENT_WAIT, Opcode.EVENT_RESET)


@dataclass
class _First:
    """The violation with the lowest task index; of one task, the first that was looked for."""

    index: int = -1
    field_name: str = ""
    expected: str = ""

    def note(self, name: str, bad: np.ndarray[Any, Any], expected: str) -> None:
        """Note the first task that `bad` (one truth value per task) marks."""
        if bad.any():
            self.note_index(name, int(bad.argmax()), expected)

    def note_index(self, name: str, index: int, expected: str) -> None:
        """Note one task."""
        if self.index < 0 or index < self.index:
            self.index, self.field_name, self.expected = index, name, expected


@dataclass(frozen=True)
class TaskRules:
    """What the tables of a program allow in its tasks."""

    streams: int
    classes: int
    kernels: int
    events: int
    buffer_sizes: np.ndarray[Any, np.dtype[np.uint64]]
    root: str = "program"

    @classmethod
    def of(cls, tables: Tables, root: str = "program") -> "TaskRules":
        """Rules that follow from `tables`; error paths start with `root`."""
        sizes = np.array([buffer.size for buffer in tables.buffers], np.uint64)
        return cls(
            len(tables.streams),
            len(tables.classes),
            len(tables.kernels),
            tables.events,
            sizes,
            root,
        )

    def check(self, tasks: Records, edges: Edges, first: int) -> None:
        """Check tasks whose program-wide indices start at `first`, and their edges.

        `edges` are those of exactly these tasks, in order; `edge_start` is not looked at. Raises
        `ParseError` for the first task that breaks a rule.
        """
        found = _First()
        opcode = np.ascontiguousarray(tasks["opcode"])
        engine_class = np.ascontiguousarray(tasks["engine_class"])
        names = ", ".join(code.name for code in PROGRAM_OPCODES)
        found.note("opcode", ~_KNOWN[opcode], f"an opcode of a program ({names})")
        found.note("priority", tasks["priority"] >= PRIORITY_LEVELS, "0 (highest) to 7")
        found.note("reserved", tasks["reserved"] != 0, "0")
        found.note("stream", tasks["stream"] >= self.streams, _below(self.streams, "streams"))
        coreless = _NO_CORE[opcode]
        found.note(
            "engine_class",
            np.where(coreless, engine_class >= max(self.classes, 1), engine_class >= self.classes),
            _below(self.classes, "engine classes"),
        )
        kernel = opcode == Opcode.KERNEL
        found.note("blocks", kernel & (tasks["blocks"] == 0), "1 to 65535 blocks")
        found.note(
            "kernel",
            kernel & (tasks["kernel"] >= max(self.kernels, 1)),
            _below(self.kernels, "kernels"),
        )
        found.note(
            "event",
            _EVENTS[opcode] & (tasks["event"] >= self.events),
            _below(self.events, "events"),
        )
        copy = opcode == Opcode.MEMCPY
        self._check_references(found, tasks, "argument", kernel, copies=False)
        self._check_references(found, tasks, "argument", copy, copies=True)
        writes = copy | (opcode == Opcode.MEMSET)
        self._check_references(found, tasks, "destination", writes, copies=True)
        found.note(
            "edge_count",
            tasks["edge_count"] > MAX_PREDECESSORS,
            f"at most {MAX_PREDECESSORS} predecessors",
        )
        if found.index >= 0:
            raise ParseError(
                f"{self.root}.tasks[{first + found.index}].{found.field_name}",
                int(tasks[found.field_name][found.index]),
                found.expected,
            )
        self._check_edges(tasks, edges, first)

    def _check_references(
        self,
        found: _First,
        tasks: Records,
        name: str,
        which: np.ndarray[Any, Any],
        *,
        copies: bool,
    ) -> None:
        address = tasks[name]
        marked = np.flatnonzero(which & (address >> np.uint64(REFERENCE_BIT) != 0))
        if not marked.size:
            return
        reference = address[marked]
        index = (reference >> np.uint64(REFERENCE_SHIFT)) & _INDEX_MASK
        offset = reference & _OFFSET_MASK
        wrong = index >= len(self.buffer_sizes)
        if wrong.any():
            at = int(wrong.argmax())
            found.note_index(
                name,
                int(marked[at]),
                f"a buffer index (bits 40 to 62, here {int(index[at])})"
                f" below {len(self.buffer_sizes)}, the number of buffers",
            )
            right = ~wrong
            marked, index, offset = marked[right], index[right], offset[right]
        size = self.buffer_sizes[index.astype(np.intp)]
        if copies:
            length = tasks["length"][marked]
            wrong = (offset > size) | (length > size - np.minimum(offset, size))
        else:
            wrong = offset >= size
        if wrong.any():
            at = int(wrong.argmax())
            what = f"{int(length[at])} bytes at it" if copies else "an offset"
            found.note_index(
                name,
                int(marked[at]),
                f"{what} inside buffer {int(index[at])} of {int(size[at])} bytes"
                f" (offset, bits 0 to 39, here {int(offset[at])})",
            )

    def _check_edges(self, tasks: Records, edges: Edges, first: int) -> None:
        counts = tasks["edge_count"].astype(np.int64)
        total = int(counts.sum())
        if total != len(edges):
            raise ParseError(
                f"{self.root}.edges.count",
                len(edges),
                f"{total}: the sum of edge_count of tasks {first} to {first + len(tasks) - 1}",
            )
        if not total:
            return
        owners = np.repeat(np.arange(len(tasks), dtype=np.int64), counts)
        forward = edges >= owners + first
        if forward.any():
            at = int(forward.argmax())
            owner = int(owners[at])
            place = at - int(counts[:owner].sum())
            raise ParseError(
                f"{self.root}.tasks[{first + owner}].edges[{place}]",
                int(edges[at]),
                f"the index of an earlier task (below {first + owner})",
            )


def _below(count: int, what: str) -> str:
    return f"an index below {count}, the number of {what}"


def edge_starts(tasks: Records) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """`edge_start` of each task of a chunk: edges are stored without gaps, in task order."""
    counts = tasks["edge_count"].astype(np.uint32)
    ends = np.cumsum(counts, dtype=np.uint32)
    return ends - counts
