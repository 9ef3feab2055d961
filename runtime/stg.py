"""Reader of Standard Task Graph files (the set without communication costs).

A file is lines of whole numbers; `#` starts a comment. The first line is the number of tasks, each
further line one task: id, processing time, number of predecessors, their ids. Files of the set
count without their two dummy tasks (entry and exit, of time 0), others count every line: both are
read. Plain blocks of lines go through NumPy, everything else line by line, which also finds the
place of an error; nothing of the file is kept but the numbers.
"""

from array import array
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tsemu.runtime.errors import GraphError
from tsemu.runtime.graph import CycleError, Graph, Numbers, in_order
from tsemu.runtime.stg_bulk import MAX_NUMBER, Bulk, parse_block

MAX_TASKS = 1 << 24
MAX_EDGES = 1 << 26
MAX_LINE_BYTES = 1 << 26
BLOCK_BYTES = 1 << 20
"""Bytes that are turned into numbers at once."""
DUMMY_TASKS = 2
SHOWN_CYCLE = 12
"""Tasks of a cycle that the error names."""
_ALLOWED = b"0123456789 \t\r\n\v\f"


def read_stg(path: Path) -> Graph:
    """Read the graph of the STG file at `path`.

    Raises `GraphError` when the content is not an STG graph, and `OSError` when it cannot be read.
    """
    with path.open("rb") as stream:
        return parse_stg(stream, str(path))


def parse_stg(stream: BinaryIO, source: str) -> Graph:
    """Read a graph from an open STG file; `source` is its name in errors.

    Raises `GraphError`: a field is not a whole number or too large, the predecessor count is not
    that of the line, a predecessor is unknown, an id is there twice, the file ends early or goes
    on after its last task, or the edges form a cycle.
    """
    records = _Records(source)
    lines = _Lines(stream, source)
    declared = _declared_count(lines, source)
    last = declared + DUMMY_TASKS
    while block := lines.block():
        first = lines.taken + 1
        lines.taken += block.count(b"\n")
        bulk = parse_block(block)
        if bulk is not None and len(records.ids) + len(bulk.ids) <= last:
            records.add_bulk(first, bulk)
            continue
        # Something is unusual, perhaps only a comment: line by line finds out what and where.
        for number, line in enumerate(block.split(b"\n"), first):
            values = _numbers(line, number, source)
            if values and len(records.ids) == last:
                raise GraphError(
                    source, number, "tasks", f"a task after {last} tasks",
                    f"the end: line 1 says {declared} (and {DUMMY_TASKS} dummy tasks)",
                )  # fmt: skip
            if values:
                records.add(number, values)
    records.check_count(declared)
    return records.graph()


class _Lines:
    """The file, in whole lines; `taken` counts those handed out."""

    def __init__(self, stream: BinaryIO, source: str) -> None:
        self._stream = stream
        self._source = source
        self.taken = 0

    def line(self) -> bytes:
        """Return the next line, nothing at the end."""
        line = self._rest(0)
        self.taken += 1
        return line

    def block(self) -> bytes:
        """Return many lines at once, nothing at the end."""
        block = self._stream.read(BLOCK_BYTES)
        if block and not block.endswith(b"\n"):
            block += self._rest(block.count(b"\n"))
        return block

    def _rest(self, lines_before: int) -> bytes:
        line = self._stream.readline(MAX_LINE_BYTES)
        if len(line) == MAX_LINE_BYTES:
            raise GraphError(
                self._source,
                self.taken + lines_before + 1,
                "line length",
                f"over {MAX_LINE_BYTES} bytes",
                "shorter lines",
            )
        return line


def _numbers(line: bytes, number: int, source: str) -> list[int]:
    """Return the numbers of a line, none for an empty line or a comment."""
    if b"#" in line:
        line = line[: line.index(b"#")]
    texts = line.split()
    if line.translate(None, _ALLOWED):
        place, text = next((place, text) for place, text in enumerate(texts) if not text.isdigit())
        shown = text.decode("ascii", "backslashreplace")
        raise GraphError(
            source, number, _field(place), shown, f"a whole number from 0 to {MAX_NUMBER}"
        )
    try:
        values = list(map(int, texts))
    except ValueError:  # more digits than int() converts
        values = [MAX_NUMBER + 1 if len(text) > len(str(MAX_NUMBER)) else 0 for text in texts]
    if values and max(values) > MAX_NUMBER:
        place = next(place for place, value in enumerate(values) if value > MAX_NUMBER)
        raise GraphError(
            source, number, _field(place), texts[place].decode("ascii"), f"at most {MAX_NUMBER}"
        )
    return values


def _field(place: int) -> str:
    names = ("task id", "processing time", "predecessor count")
    return names[place] if place < len(names) else f"predecessor {place - len(names) + 1}"


def _declared_count(lines: _Lines, source: str) -> int:
    while line := lines.line():
        number = lines.taken
        try:
            values = _numbers(line, number, source)
        except GraphError as error:
            raise GraphError(
                source, number, "number of tasks", error.value,
                "a whole number alone on the first line (an STG file, or a .tsp program)",
            ) from None  # fmt: skip
        if not values:
            continue
        if len(values) != 1:
            raise GraphError(
                source, number, "number of tasks", f"{len(values)} numbers", "one number alone"
            )
        if not 1 <= values[0] <= MAX_TASKS - DUMMY_TASKS:
            raise GraphError(
                source, number, "number of tasks", values[0], f"1 to {MAX_TASKS - DUMMY_TASKS}"
            )
        return values[0]
    raise GraphError(source, 0, "number of tasks", "an empty file", "an STG file")


class _Records:
    """The tasks read so far, as flat arrays of numbers."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.ids = array("q")
        self.times = array("q")
        self.starts = array("q", [0])
        self.edges = array("q")
        self.lines = array("q")

    def add(self, number: int, values: list[int]) -> None:
        """Take the task of line `number`."""
        fixed = 3
        if len(values) < fixed:
            raise GraphError(
                self.source, number, _field(len(values)), "the end of the line",
                "task id, processing time, predecessor count and the predecessors' ids",
            )  # fmt: skip
        if values[2] != len(values) - fixed:
            raise GraphError(
                self.source, number, "predecessor count", values[2],
                f"{len(values) - fixed}, the number of ids that follow on the line",
            )  # fmt: skip
        if len(self.edges) + values[2] > MAX_EDGES:
            raise GraphError(
                self.source, number, "edges", f"over {MAX_EDGES}", "a graph with fewer edges"
            )
        self.ids.append(values[0])
        self.times.append(values[1])
        self.edges.extend(values[fixed:])
        self.starts.append(len(self.edges))
        self.lines.append(number)

    def add_bulk(self, first: int, bulk: Bulk) -> None:
        """Take the tasks of a block of lines whose first has the number `first`."""
        if len(self.edges) + len(bulk.edges) > MAX_EDGES:
            raise GraphError(
                self.source, first, "edges", f"over {MAX_EDGES}", "a graph with fewer edges"
            )
        ends = np.cumsum(bulk.counts) + len(self.edges)
        for numbers, added in (
            (self.ids, bulk.ids),
            (self.times, bulk.times),
            (self.starts, ends),
            (self.edges, bulk.edges),
            (self.lines, bulk.lines + first),
        ):
            numbers.frombytes(added.astype(np.int64).tobytes())

    def check_count(self, declared: int) -> None:
        """Compare the number of tasks with the one on the first line."""
        found = len(self.ids)
        if found == declared + DUMMY_TASKS:
            return
        # As many lines as counted is right too, unless an entry task without its exit task shows
        # that the file has lost its last lines.
        has_entry = found > 0 and not self.times[0] and self.starts[1] == 0
        if found == declared and not (has_entry and self.times[-1]):
            return
        line = self.lines[-1] if found else 0
        expected = f"{declared + DUMMY_TASKS} (or {declared}, dummy tasks counted)"
        raise GraphError(self.source, line, "tasks", f"the end of the file after {found}", expected)

    def graph(self) -> Graph:
        """Resolve ids to positions and sort."""
        ids, times, starts, edges, lines = (
            np.frombuffer(numbers, np.int64) if len(numbers) else np.zeros(0, np.int64)
            for numbers in (self.ids, self.times, self.starts, self.edges, self.lines)
        )
        places = self._places(ids, starts, edges, lines)
        try:
            return in_order(self.source, ids, times, starts, places)
        except CycleError as error:
            tasks = error.tasks[:SHOWN_CYCLE]
            names = " -> ".join(str(ids[task]) for task in [*tasks, error.tasks[0]])
            more = len(error.tasks) - len(tasks)
            if more:
                names = " -> ".join(str(ids[task]) for task in tasks) + f" -> ... ({more} more)"
            raise GraphError(
                self.source, int(lines[error.tasks[0]]), "predecessors",
                f"the cycle {names}", "edges that never lead back to a task",
            ) from None  # fmt: skip

    def _places(self, ids: Numbers, starts: Numbers, edges: Numbers, lines: Numbers) -> Numbers:
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        repeats = np.flatnonzero(ordered[1:] == ordered[:-1])
        if len(repeats):
            second = int(order[repeats + 1].min())
            earlier = int(lines[int(np.flatnonzero(ids == ids[second])[0])])
            raise GraphError(
                self.source, int(lines[second]), "task id", int(ids[second]),
                f"an id of its own (line {earlier} has this one)",
            )  # fmt: skip
        found = np.minimum(np.searchsorted(ordered, edges), len(ids) - 1)
        unknown = np.flatnonzero(ordered[found] != edges)
        if len(unknown):
            edge = int(unknown[0])
            task = int(np.searchsorted(starts, edge, side="right")) - 1
            raise GraphError(
                self.source, int(lines[task]), f"predecessor {edge - int(starts[task]) + 1}",
                int(edges[edge]), "the id of a task in this file",
            )  # fmt: skip
        return order[found].astype(np.int64)
