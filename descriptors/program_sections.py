"""Reading what frames a program file: the header, the section table, and their rules."""

from dataclasses import dataclass

import numpy as np
from crc32c import crc32c

from tsemu.descriptors import program_layout as form
from tsemu.descriptors.errors import ParseError
from tsemu.descriptors.program_layout import SectionKind

RECORD_BYTES = {
    SectionKind.STREAMS: form.PROGRAM_STREAM.size,
    SectionKind.CLASSES: form.PROGRAM_CLASS.size,
    SectionKind.KERNELS: form.PROGRAM_KERNEL.size,
    SectionKind.EVENTS: 0,
    SectionKind.BUFFERS: form.PROGRAM_BUFFER.size,
    SectionKind.DATA: 1,
    SectionKind.TASKS: form.PROGRAM_TASK.size,
    SectionKind.EDGES: 4,
}
"""Bytes of one record; META is text."""

MOST_RECORDS = {
    SectionKind.STREAMS: form.MAX_STREAMS,
    SectionKind.KERNELS: form.MAX_KERNELS,
    SectionKind.CLASSES: 255,
    SectionKind.EVENTS: form.MAX_PROGRAM_EVENTS,
    SectionKind.BUFFERS: form.MAX_BUFFERS,
    SectionKind.TASKS: form.CHUNK_TASKS,
    SectionKind.EDGES: form.CHUNK_EDGES,
}


@dataclass(frozen=True)
class Section:
    """One row of the section table. `path` is what errors call it; sizes are in bytes."""

    path: str
    kind: SectionKind
    crc: int
    offset: int
    length: int
    count: int

    @property
    def end(self) -> int:
        """First byte after the section."""
        return self.offset + self.length

    def check_crc(self, data: memoryview) -> None:
        """Raise `ParseError` when the section's bytes have another CRC."""
        found = crc32c(data)
        if found != self.crc:
            raise ParseError(f"{self.path}.crc", hex(self.crc), f"{found:#x}, CRC of its bytes")


@dataclass(frozen=True)
class Chunk:
    """A pair of sections. `first` is the program-wide index of its first task."""

    tasks: Section
    edges: Section
    first: int


@dataclass(frozen=True)
class Frame:
    """Header and section table of a program file."""

    task_count: int
    edge_count: int
    tables: dict[SectionKind, Section]
    chunks: tuple[Chunk, ...]


def read_frame(data: memoryview, root: str = "program") -> Frame:
    """Read and check header and section table of a whole program file.

    Raises `ParseError` naming the field: wrong magic, version or CRC, a file that is shorter or
    longer than its header says, sections out of bounds, of the wrong size or in the wrong place.
    """
    header_form = form.PROGRAM_HEADER
    if len(data) < header_form.size:
        raise ParseError(f"{root}.length", len(data), f"at least {header_form.size} bytes")
    path = f"{root}.header"
    header = header_form.parse(data[: header_form.size], path)
    if header.magic != form.PROGRAM_MAGIC:
        raise ParseError(f"{path}.magic", bytes(data[:4]), "b'TSP1', a program file")
    if header.major != form.PROGRAM_MAJOR:
        raise ParseError(
            f"{path}.major",
            header.major,
            f"{form.PROGRAM_MAJOR}: this reader knows version"
            f" {form.PROGRAM_MAJOR}.{form.PROGRAM_MINOR}, the file is version"
            f" {header.major}.{header.minor}",
        )
    crc_offset = header_form.offset("crc")
    crc = crc32c(bytes(data[:crc_offset]) + bytes(4))
    if header.crc != crc:
        raise ParseError(f"{path}.crc", hex(header.crc), f"{crc:#x}, CRC of the header")
    if any(header.reserved):
        raise ParseError(f"{path}.reserved", list(header.reserved), "zeros")
    if header.file_size != len(data):
        what = "truncated" if header.file_size > len(data) else "followed by other bytes"
        raise ParseError(f"{path}.file_size", header.file_size, f"{len(data)}: the file is {what}")
    if header.task_count > form.MAX_TASKS:
        raise ParseError(f"{path}.task_count", header.task_count, f"at most {form.MAX_TASKS}")
    table_bytes = header.section_count * form.PROGRAM_SECTION.size
    if header.table_offset != len(data) - table_bytes or header.table_offset < header_form.size:
        raise ParseError(
            f"{path}.table_offset",
            header.table_offset,
            f"{len(data) - table_bytes}: {header.section_count} sections end the file",
        )
    table = data[header.table_offset :]
    crc = crc32c(table)
    if header.table_crc != crc:
        raise ParseError(f"{path}.table_crc", hex(header.table_crc), f"{crc:#x}, CRC of the table")
    sections = _sections(table, int(header.table_offset), int(header.minor), root)
    return _frame(sections, int(header.task_count), int(header.edge_count), root)


def _sections(table: memoryview, limit: int, minor: int, root: str) -> list[Section]:
    rows = np.frombuffer(table, form.PROGRAM_SECTION.dtype)
    sections = []
    position = form.PROGRAM_HEADER.size
    for index, row in enumerate(rows):
        path = f"{root}.sections[{index}]"
        kind, offset, length = int(row["kind"]), int(row["offset"]), int(row["length"])
        count = int(row["count"])
        if offset % form.SECTION_ALIGNMENT:
            raise ParseError(f"{path}.offset", offset, f"a multiple of {form.SECTION_ALIGNMENT}")
        if offset < position:
            raise ParseError(f"{path}.offset", offset, f"{position} or more: sections in order")
        if offset + length > limit:
            raise ParseError(f"{path}.length", length, f"an end at {limit} or before, the table")
        position = offset + length
        if kind not in tuple(SectionKind):
            if minor > form.PROGRAM_MINOR:
                continue  # a kind that a newer minor version has added
            raise ParseError(f"{path}.kind", kind, f"1 to {len(SectionKind)}, a section kind")
        section = Section(path, SectionKind(kind), int(row["crc"]), offset, length, count)
        _check_size(section)
        sections.append(section)
    return sections


def _check_size(section: Section) -> None:
    most = MOST_RECORDS.get(section.kind)
    if most is not None and section.count > most:
        raise ParseError(f"{section.path}.count", section.count, f"at most {most}")
    if section.kind is SectionKind.META:
        if section.length > form.MAX_META_BYTES:
            raise ParseError(
                f"{section.path}.length", section.length, f"at most {form.MAX_META_BYTES} bytes"
            )
        if section.count != 1:
            raise ParseError(f"{section.path}.count", section.count, "1")
        return
    width = RECORD_BYTES[section.kind]
    if section.length != section.count * width:
        raise ParseError(
            f"{section.path}.length",
            section.length,
            f"{section.count * width}: {section.count} records of {width} bytes",
        )


def _frame(sections: list[Section], tasks: int, edges: int, root: str) -> Frame:
    tables: dict[SectionKind, Section] = {}
    chunks: list[Chunk] = []
    first = edge_total = 0
    open_tasks: Section | None = None
    for section in sections:
        if (section.kind is SectionKind.EDGES) != (open_tasks is not None):
            raise ParseError(
                f"{section.path}.kind",
                int(section.kind),
                f"{int(SectionKind.EDGES)} (EDGES) after each TASKS section and only there",
            )
        if section.kind is SectionKind.TASKS:
            if not section.count:
                raise ParseError(f"{section.path}.count", 0, "at least 1 task")
            open_tasks = section
        elif open_tasks is not None:
            chunks.append(Chunk(open_tasks, section, first))
            first += open_tasks.count
            edge_total += section.count
            open_tasks = None
        elif section.kind in tables:
            raise ParseError(
                f"{section.path}.kind", int(section.kind), "one section of this kind in a file"
            )
        else:
            tables[section.kind] = section
    if open_tasks is not None:
        raise ParseError(f"{open_tasks.path}.kind", 8, "an EDGES section after it")
    if first != tasks:
        raise ParseError(f"{root}.header.task_count", tasks, f"{first}: tasks of all chunks")
    if edge_total != edges:
        raise ParseError(f"{root}.header.edge_count", edges, f"{edge_total}: edges of all chunks")
    return Frame(tasks, edges, tables, tuple(chunks))
