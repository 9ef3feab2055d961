"""Program files (`.tsp`): what a compiler leaves on the file system and a runtime loads.

`ProgramWriter` writes one, `Program` reads one. Both handle a chunk of up to 65536 tasks at a time,
so tens of millions of tasks take no more memory than one chunk.
"""

import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from tsemu.descriptors import program_layout as form
from tsemu.descriptors import program_tables as tables_form
from tsemu.descriptors.codes import Opcode
from tsemu.descriptors.errors import ParseError
from tsemu.descriptors.program_check import Edges, Records, TaskRules, edge_starts
from tsemu.descriptors.program_layout import TASK_DTYPE, Placement, SectionKind
from tsemu.descriptors.program_sections import Chunk, Frame, Section, read_frame
from tsemu.descriptors.program_tables import Buffer, Stream, Tables
from tsemu.descriptors.program_writer import (
    DEFAULT_STREAMS,
    ProgramWriter,
    assemble,
    buffer_reference,
    task_array,
)

__all__ = [
    "TASK_DTYPE",
    "Buffer",
    "Placement",
    "Program",
    "ProgramWriter",
    "Stream",
    "buffer_reference",
    "resolve_references",
    "task_array",
]

KEEP_MAPPED = 256 << 20
"""Size of a program file in bytes up to which its pages stay mapped between two looks at them."""
_ADDRESS_FIELDS = {
    "argument": (Opcode.KERNEL, Opcode.MEMCPY),
    "destination": (Opcode.MEMCPY, Opcode.MEMSET),
}


class Program:
    """A program that is read chunk by chunk. Context manager: leaving it unmaps the file.

    `open` maps a file, `from_bytes` takes its bytes, `from_arrays` builds a small program. All
    three check header, section table and the small tables at once; the tasks are checked chunk by
    chunk when they are first handed out, or all of them by `verify`. What breaks a rule raises
    `ParseError` with the path of the field (`program.tasks[17].blocks`), the value and what was
    expected.

    A mapped file must not be changed in place while it is open (`ProgramWriter` never does: it
    replaces).
    """

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self._map = data if isinstance(data, mmap.mmap) else None
        self._bytes: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(data, np.uint8)
        self._frame: Frame = read_frame(self._bytes.data)
        self._checked = bytearray(len(self._frame.chunks))
        self._data_checked = False
        buffers, self._places = self._read_buffers()
        events = self._frame.tables.get(SectionKind.EVENTS)
        if events is not None:
            events.check_crc(memoryview(b""))
        self._tables = Tables(
            tables_form.decode_streams(self._table(SectionKind.STREAMS)),
            tables_form.decode_names("classes", self._table(SectionKind.CLASSES)),
            tables_form.decode_names("kernels", self._table(SectionKind.KERNELS)),
            buffers,
            events.count if events else 0,
        )
        self._tables.check()
        self._rules = TaskRules.of(self._tables)
        meta = self._table(SectionKind.META)
        self.meta: dict[str, Any] = tables_form.decode_meta(meta) if meta else {}
        """JSON object of the producer: who made it, from what, with which options."""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Map the program file at `path`.

        Raises `OSError` when it cannot be opened, `ParseError` when it is no program file.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ParseError("program", os.fspath(path), "a regular file")
            least = form.PROGRAM_HEADER.size
            if status.st_size < least:
                raise ParseError("program.length", status.st_size, f"at least {least} bytes")
            mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        return cls(mapped)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a program file that is in memory."""
        return cls(data)

    @classmethod
    def from_arrays(
        cls,
        tasks: Records,
        edges: np.ndarray[Any, Any] | Sequence[int] | None = None,
        *,
        streams: Sequence[Stream] = DEFAULT_STREAMS,
        classes: Sequence[str] = (),
        kernels: Sequence[str] = (),
        buffers: Sequence[Buffer] = (),
        events: int = 0,
        meta: dict[str, Any] | None = None,
    ) -> Self:
        """Build a program in memory; arguments are those of `ProgramWriter` and `add_tasks`."""
        tables = Tables(tuple(streams), tuple(classes), tuple(kernels), tuple(buffers), events)
        return cls(assemble(tasks, edges, tables, meta or {}))

    @property
    def task_count(self) -> int:
        """Tasks of the program."""
        return self._frame.task_count

    @property
    def edge_count(self) -> int:
        """Edges of the program."""
        return self._frame.edge_count

    @property
    def chunk_count(self) -> int:
        """Chunks that `chunks` yields."""
        return len(self._frame.chunks)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Streams, as field `stream` of a task counts them."""
        return self._tables.streams

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of engine classes, as field `engine_class` of a task counts them."""
        return self._tables.classes

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of kernels, as field `kernel` of a task counts them."""
        return self._tables.kernels

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Buffers, as buffer references count them; their bytes are in `buffer_data`."""
        return self._tables.buffers

    @property
    def events(self) -> int:
        """Number of events; field `event` of a task is below it."""
        return self._tables.events

    def buffer_data(self, index: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Initial bytes of a buffer (read-only view), empty when it has none.

        Raises `ParseError` when the data section's CRC is wrong.
        """
        offset, length = self._places[index]
        section = self._frame.tables.get(SectionKind.DATA)
        if section is None or not length:
            return np.zeros(0, np.uint8)
        self._check_data()
        return self._open_bytes()[section.offset + offset : section.offset + offset + length]

    def chunks(self) -> Iterator[tuple[int, Records, Edges]]:
        """Iterate over the chunks in program order, without copying.

        Yields (program-wide index of the first task, task records, edges): read-only arrays of
        `TASK_DTYPE` and of 32-bit indices. Field `edge_start` is the task's first edge in that edge
        array. The arrays stay valid while the program is open; pages of a large mapped file
        (`KEEP_MAPPED`) are given back to the system when the iterator goes on, and read again when
        touched.

        Raises `ParseError` at a chunk that breaks a rule, unless `verify` was called before.
        """
        for index, chunk in enumerate(self._frame.chunks):
            tasks, edges = self._view(chunk)
            if not self._checked[index]:
                self._check_chunk(index, chunk, tasks, edges)
            yield chunk.first, tasks, edges
            self._drop(chunk.tasks.offset, chunk.edges.end)

    def verify(self) -> None:
        """Check the whole program: CRCs, every task, every edge. Raises `ParseError`."""
        self._check_data()
        for index, chunk in enumerate(self._frame.chunks):
            if not self._checked[index]:
                tasks, edges = self._view(chunk)
                self._check_chunk(index, chunk, tasks, edges)
                self._drop(chunk.tasks.offset, chunk.edges.end)

    def close(self) -> None:
        """Unmap the file: at once, or when the last array that `chunks` gave out is gone."""
        self._bytes = np.zeros(0, np.uint8)
        mapped, self._map = self._map, None
        if mapped is not None:
            try:
                mapped.close()
            except BufferError:
                return  # arrays of the caller's still look at it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _open_bytes(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        if not len(self._bytes):
            raise RuntimeError("Program: it is closed; read it inside its `with` block")
        return self._bytes

    def _table(self, kind: SectionKind) -> bytes:
        """Bytes of a small table, CRC checked; nothing when the file has no such section."""
        section = self._frame.tables.get(kind)
        if section is None:
            return b""
        data = self._section_bytes(section)
        section.check_crc(data)
        return bytes(data)

    def _section_bytes(self, section: Section) -> memoryview:
        return self._open_bytes()[section.offset : section.end].data

    def _read_buffers(self) -> tuple[tuple[Buffer, ...], list[tuple[int, int]]]:
        data = self._frame.tables.get(SectionKind.DATA)
        table = self._table(SectionKind.BUFFERS)
        return tables_form.decode_buffers(table, data.length if data else 0)

    def _check_data(self) -> None:
        section = self._frame.tables.get(SectionKind.DATA)
        if section is None or self._data_checked:
            return
        section.check_crc(self._section_bytes(section))
        self._drop(section.offset, section.end)
        self._data_checked = True

    def _view(self, chunk: Chunk) -> tuple[Records, Edges]:
        data = self._open_bytes()
        tasks = data[chunk.tasks.offset : chunk.tasks.end].view(TASK_DTYPE)
        edges = data[chunk.edges.offset : chunk.edges.end].view(np.dtype("<u4"))
        return tasks, edges

    def _check_chunk(self, index: int, chunk: Chunk, tasks: Records, edges: Edges) -> None:
        chunk.tasks.check_crc(self._section_bytes(chunk.tasks))
        chunk.edges.check_crc(self._section_bytes(chunk.edges))
        self._rules.check(tasks, edges, chunk.first)
        starts = edge_starts(tasks)
        wrong = tasks["edge_start"] != starts
        if wrong.any():
            at = int(wrong.argmax())
            raise ParseError(
                f"program.tasks[{chunk.first + at}].edge_start",
                int(tasks["edge_start"][at]),
                f"{int(starts[at])}: edges of a chunk in task order, without gaps",
            )
        self._checked[index] = 1

    def _drop(self, start: int, end: int) -> None:
        """Give pages of a large mapped file back: resident memory does not grow with it."""
        if self._map is not None and len(self._map) > KEEP_MAPPED:
            start -= start % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, start, end - start)


def resolve_references(tasks: Records, bases: np.ndarray[Any, Any] | Sequence[int]) -> Records:
    """Task records with device addresses in place of buffer references.

    `bases` has the device address of each buffer of the program. Returns `tasks` itself when there
    is nothing to resolve, else a copy. Only `argument` and `destination` of opcodes that take
    addresses are looked at. The records must have been checked (`Program.chunks` does).
    """
    changed = tasks
    shift, mask = np.uint64(form.REFERENCE_SHIFT), np.uint64(form.MAX_BUFFER_BYTES - 1)
    top = np.uint64(1 << (form.REFERENCE_BIT - form.REFERENCE_SHIFT))
    opcode = tasks["opcode"]
    table = np.asarray(bases, np.uint64)
    for name, opcodes in _ADDRESS_FIELDS.items():
        reference = tasks[name]
        marked = np.flatnonzero(np.isin(opcode, opcodes) & (reference >> shift >= top))
        if marked.size:
            changed = tasks.copy() if changed is tasks else changed
            index = ((reference[marked] >> shift) & (top - np.uint64(1))).astype(np.intp)
            changed[name][marked] = table[index] + (reference[marked] & mask)
    return changed
