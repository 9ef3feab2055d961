"""Writing program files: a stream of tasks in, chunks out, nothing held but one chunk."""

import contextlib
import io
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from crc32c import crc32c
from numpy.typing import ArrayLike

from tsemu.descriptors import program_layout as form
from tsemu.descriptors import program_tables as tables_form
from tsemu.descriptors.codes import MAX_PREDECESSORS
from tsemu.descriptors.errors import ParseError
from tsemu.descriptors.new_file import naming, place_for
from tsemu.descriptors.program_check import Edges, Records, TaskRules, edge_starts
from tsemu.descriptors.program_layout import CHUNK_EDGES, CHUNK_TASKS, TASK_DTYPE, SectionKind
from tsemu.descriptors.program_tables import Buffer, Buffered, Stream, Tables

DEFAULT_STREAMS = (Stream("default"),)
"""One stream, out of order: only edges order its tasks."""


class ProgramAssembler:
    """Writes a program to an open binary file that can seek. `ProgramWriter` is for paths.

    The tables are checked and written at once. Raises `ParseError` naming the field.
    """

    def __init__(self, file: BinaryIO, tables: Tables, meta: dict[str, Any]) -> None:
        self.meta = meta
        self.task_count = 0
        self.edge_count = 0
        self._file = file
        self._rules = TaskRules.of(tables)
        self._table: list[bytes] = []
        self._position = form.PROGRAM_HEADER.size
        self._tasks = np.zeros(CHUNK_TASKS, TASK_DTYPE)
        self._edges = np.zeros(CHUNK_EDGES, np.uint32)
        self._held_tasks = 0
        self._held_edges = 0
        tables.check()
        tables_form.encode_meta(meta)
        sections = _table_sections(tables)
        file.write(bytes(form.PROGRAM_HEADER.size))
        for kind, pieces, count in sections:
            self._section(kind, pieces, count)

    def add_tasks(
        self,
        tasks: Records,
        edges: np.ndarray[Any, Any] | Sequence[int] | None = None,
        edge_counts: np.ndarray[Any, Any] | Sequence[int] | None = None,
    ) -> None:
        """Append tasks. See `ProgramWriter.add_tasks`."""
        if tasks.dtype != TASK_DTYPE or tasks.ndim != 1:
            raise ParseError(
                "program.tasks.dtype", (tasks.dtype, tasks.shape), "one dimension of TASK_DTYPE"
            )
        if self.task_count + len(tasks) > form.MAX_TASKS:
            raise ParseError(
                "program.tasks.count", self.task_count + len(tasks), f"at most {form.MAX_TASKS}"
            )
        edge_array = _edge_array(edges)
        counts = _count_array(tasks, edge_counts)
        total = int(counts.sum(dtype=np.int64))
        if total != len(edge_array):
            raise ParseError("program.edges.count", len(edge_array), f"{total}: sum of edge counts")
        # First look at everything, then take it: an error leaves the program as it was.
        for first, piece, piece_edges in _pieces(tasks, edge_array, counts):
            self._rules.check(piece, piece_edges, self.task_count + first)
        for _, piece, piece_edges in _pieces(tasks, edge_array, counts):
            self._take(piece, piece_edges)

    def finish(self) -> None:
        """Write what is held, the meta data, the section table and the header."""
        self._flush()
        self._section(SectionKind.META, [tables_form.encode_meta(self.meta)], 1)
        table = b"".join(self._table)
        header = {
            "magic": form.PROGRAM_MAGIC,
            "major": form.PROGRAM_MAJOR,
            "minor": form.PROGRAM_MINOR,
            "task_count": self.task_count,
            "edge_count": self.edge_count,
            "file_size": self._position + len(table),
            "table_offset": self._position,
            "section_count": len(self._table),
            "table_crc": crc32c(table),
        }
        header["crc"] = crc32c(form.PROGRAM_HEADER.build(header))
        self._file.write(table)
        self._file.seek(0)
        self._file.write(form.PROGRAM_HEADER.build(header))

    def _take(self, tasks: Records, edges: Edges) -> None:
        ends = np.cumsum(tasks["edge_count"], dtype=np.int64)
        start = edge_start = 0
        while start < len(tasks):
            room = CHUNK_EDGES - self._held_edges
            fitting = int(np.searchsorted(ends, edge_start + room, side="right"))
            stop = min(fitting, start + CHUNK_TASKS - self._held_tasks)
            if stop <= start:
                self._flush()
                continue
            edge_stop = int(ends[stop - 1])
            taken, taken_edges = stop - start, edge_stop - edge_start
            self._tasks[self._held_tasks : self._held_tasks + taken] = tasks[start:stop]
            self._edges[self._held_edges : self._held_edges + taken_edges] = edges[
                edge_start:edge_stop
            ]
            self._held_tasks += taken
            self._held_edges += taken_edges
            start, edge_start = stop, edge_stop
        self.task_count += len(tasks)
        self.edge_count += len(edges)

    def _flush(self) -> None:
        if not self._held_tasks:
            return
        tasks, edges = self._tasks[: self._held_tasks], self._edges[: self._held_edges]
        tasks["edge_start"] = edge_starts(tasks)
        self._section(SectionKind.TASKS, [tasks], len(tasks))
        self._section(SectionKind.EDGES, [edges], len(edges))
        self._held_tasks = self._held_edges = 0

    def _section(self, kind: SectionKind, pieces: Iterable[Buffered], count: int) -> None:
        crc, length = 0, 0
        for piece in pieces:
            data = piece.view(np.uint8).data if isinstance(piece, np.ndarray) else memoryview(piece)
            crc = crc32c(data, crc)
            length += len(data)
            self._file.write(data)
        self._table.append(
            form.PROGRAM_SECTION.build(
                {
                    "kind": int(kind),
                    "crc": crc,
                    "offset": self._position,
                    "length": length,
                    "count": count,
                }
            )
        )
        padding = -length % form.SECTION_ALIGNMENT
        self._file.write(bytes(padding))
        self._position += length + padding


class ProgramWriter:
    """Context manager that writes a program file at `path`, in chunks.

        with ProgramWriter("a.tsp", classes=["AICORE"], meta={"producer": "me"}) as writer:
            writer.add_tasks(tasks, edges)

    The file appears at `path` when the block ends without an error, in place of what was there
    (a temporary file beside it is renamed); otherwise nothing is left behind. Raises `ParseError`
    for a table that breaks a rule of the format, `OSError` when the file cannot be written, or
    when `path` is something that must not be replaced (a directory, a device). A link is followed.

    `meta` (a JSON object) may be changed until the block ends.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        streams: Sequence[Stream] = DEFAULT_STREAMS,
        classes: Sequence[str] = (),
        kernels: Sequence[str] = (),
        buffers: Sequence[Buffer] = (),
        events: int = 0,
        meta: dict[str, Any] | None = None,
    ) -> None:
        self.path = Path(path)
        self.meta = {} if meta is None else meta
        self._tables = Tables(
            tuple(streams), tuple(classes), tuple(kernels), tuple(buffers), events
        )
        self._tables.check()
        self._target = self._temporary = self.path
        self._file: BinaryIO | None = None
        self._assembler: ProgramAssembler | None = None

    @property
    def task_count(self) -> int:
        """Tasks added so far: the index of the next one."""
        return self._assembler.task_count if self._assembler else 0

    @property
    def edge_count(self) -> int:
        """Edges added so far."""
        return self._assembler.edge_count if self._assembler else 0

    def add_tasks(
        self,
        tasks: Records,
        edges: np.ndarray[Any, Any] | Sequence[int] | None = None,
        edge_counts: np.ndarray[Any, Any] | Sequence[int] | None = None,
    ) -> None:
        """Append tasks: any number at a time; large arrays are fastest.

        `tasks` is an array of `TASK_DTYPE` (see `task_array`). `edges` holds the predecessors of
        the first task, then of the second, and so on, as program-wide indices of earlier tasks.
        `edge_counts` has the number of predecessors of each task; without it, field `edge_count`
        counts. Field `edge_start` is filled in. Raises `ParseError` for the first task that
        breaks a rule; nothing is added then. Raises `RuntimeError` outside of the `with` block.
        """
        if self._assembler is None:
            raise RuntimeError("ProgramWriter: add_tasks works inside its `with` block only")
        with naming(self.path):
            self._assembler.add_tasks(tasks, edges, edge_counts)

    def __enter__(self) -> Self:
        self._target = place_for(self.path)
        name = f".{self._target.name[:200]}.{secrets.token_hex(6)}.tmp"
        self._temporary = self._target.with_name(name)
        with naming(self.path):
            self._file = self._temporary.open("xb")
            try:
                self._assembler = ProgramAssembler(self._file, self._tables, self.meta)
            except BaseException:
                self._discard()
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._assembler is None or self._file is None:
            return
        try:
            if kind is None:
                self._assembler.meta = self.meta
                with naming(self.path):
                    self._assembler.finish()
                    self._file.close()
                    self._temporary.replace(self._target)
        finally:
            self._discard()

    def _discard(self) -> None:
        self._assembler = None
        if self._file is not None:
            with contextlib.suppress(OSError):  # what it could not write is thrown away
                self._file.close()
            self._file = None
        self._temporary.unlink(missing_ok=True)


def task_array(count: int, **fields: ArrayLike) -> Records:
    """Array of `count` task records; fields that are not named are zero, `blocks` is 1.

    A field's value is one number for all tasks or an array with one per task.
    """
    tasks = np.zeros(count, TASK_DTYPE)
    tasks["blocks"] = 1
    for name, value in fields.items():
        if name not in (TASK_DTYPE.names or ()):
            raise ParseError(f"program_task.{name}", value, "a field of a task record")
        tasks[name] = value
    return tasks


def buffer_reference(buffer: int, offset: int = 0) -> int:
    """Address of byte `offset` of the program's buffer number `buffer`, for task records.

    Raises `ParseError` when one of them does not fit.
    """
    if not 0 <= buffer < form.MAX_BUFFERS:
        raise ParseError("buffer_reference.buffer", buffer, f"0 to {form.MAX_BUFFERS - 1}")
    if not 0 <= offset < form.MAX_BUFFER_BYTES:
        raise ParseError("buffer_reference.offset", offset, f"0 to {form.MAX_BUFFER_BYTES - 1}")
    return 1 << form.REFERENCE_BIT | buffer << form.REFERENCE_SHIFT | offset


def assemble(
    tasks: Records,
    edges: np.ndarray[Any, Any] | Sequence[int] | None,
    tables: Tables,
    meta: dict[str, Any],
) -> bytes:
    """Bytes of a whole program, in memory."""
    file = io.BytesIO()
    assembler = ProgramAssembler(file, tables, meta)
    assembler.add_tasks(tasks, edges)
    assembler.finish()
    return file.getvalue()


def _table_sections(tables: Tables) -> list[tuple[SectionKind, list[bytes], int]]:
    buffers, data = tables_form.encode_buffers(tables.buffers)
    data_bytes = sum(len(piece) for piece in data)
    sections = [
        (
            SectionKind.STREAMS,
            [tables_form.encode_streams(tables.streams)],
            len(tables.streams),
        ),
        (
            SectionKind.CLASSES,
            [tables_form.encode_names("classes", tables.classes)],
            len(tables.classes),
        ),
        (
            SectionKind.KERNELS,
            [tables_form.encode_names("kernels", tables.kernels)],
            len(tables.kernels),
        ),
        (SectionKind.EVENTS, [], tables.events),
        (SectionKind.BUFFERS, [buffers], len(tables.buffers)),
    ]
    if data:
        sections.append((SectionKind.DATA, data, data_bytes))
    return sections


def _edge_array(edges: np.ndarray[Any, Any] | Sequence[int] | None) -> Edges:
    if edges is None:
        return np.zeros(0, np.uint32)
    array = np.asarray(edges)
    if array.size == 0:
        return np.zeros(0, np.uint32)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise ParseError(
            "program.edges.dtype", (array.dtype, array.shape), "one dimension of integers"
        )
    if array.dtype == np.uint32:
        return array
    wrong = (array < 0) | (array >= form.MAX_TASKS)
    if wrong.any():
        at = int(wrong.argmax())
        raise ParseError(f"program.edges[{at}]", int(array[at]), "the index of an earlier task")
    return array.astype(np.uint32)


def _count_array(
    tasks: Records, edge_counts: np.ndarray[Any, Any] | Sequence[int] | None
) -> np.ndarray[Any, Any]:
    if edge_counts is None:
        return np.asarray(tasks["edge_count"])
    counts = np.asarray(edge_counts)
    if counts.shape != tasks.shape or counts.dtype.kind not in "iu":
        raise ParseError(
            "program.edge_counts", (counts.dtype, counts.shape), f"{len(tasks)} integers"
        )
    wrong = (counts < 0) | (counts > MAX_PREDECESSORS)
    if wrong.any():
        at = int(wrong.argmax())
        raise ParseError(
            f"program.edge_counts[{at}]", int(counts[at]), f"0 to {MAX_PREDECESSORS} predecessors"
        )
    return counts


def _pieces(
    tasks: Records, edges: Edges, counts: np.ndarray[Any, Any]
) -> Iterator[tuple[int, Records, Edges]]:
    """Cut tasks into pieces of a chunk's size: (index of the first, copy of the tasks, edges)."""
    edge = 0
    for start in range(0, len(tasks), CHUNK_TASKS):
        piece = tasks[start : start + CHUNK_TASKS].copy()
        piece["edge_count"] = counts[start : start + CHUNK_TASKS]
        count = int(piece["edge_count"].sum(dtype=np.int64))
        yield start, piece, edges[edge : edge + count]
        edge += count
