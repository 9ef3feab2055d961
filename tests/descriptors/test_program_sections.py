"""Header and section table: every refusal, with checksums that are right."""

import numpy as np
import pytest
from crc32c import crc32c

from tsemu.descriptors.errors import ParseError
from tsemu.descriptors.program import Buffer, Program, ProgramWriter, task_array
from tsemu.descriptors.program_layout import PROGRAM_HEADER, PROGRAM_SECTION, SectionKind

STREAMS, CLASSES, KERNELS, EVENTS, BUFFERS, DATA, TASKS, EDGES, META = range(9)
"""Rows of the section table of `small_program`."""


def small_program(tmp_path) -> bytes:
    path = tmp_path / "small.tsp"
    with ProgramWriter(path, classes=["C"], buffers=[Buffer(64, data=b"abc")], events=3) as writer:
        writer.add_tasks(task_array(4, opcode=1, edge_count=[0, 1, 1, 2]), [0, 1, 0, 2])
    return path.read_bytes()


class File:
    """A program file that can be changed and given right checksums again."""

    def __init__(self, data: bytes) -> None:
        self.header = np.frombuffer(data, PROGRAM_HEADER.dtype, 1).copy()
        offset = int(self.header["table_offset"][0])
        self.body = bytearray(data[64:offset])
        self.table = np.frombuffer(data, PROGRAM_SECTION.dtype, offset=offset).copy()

    def place(self, row: int) -> slice:
        start = int(self.table["offset"][row]) - 64
        return slice(start, start + int(self.table["length"][row]))

    def seal(self) -> bytes:
        for row in range(len(self.table)):
            data = bytes(self.body[self.place(row)])
            if len(data) == self.table["length"][row]:
                self.table["crc"][row] = crc32c(data)
        table = self.table.tobytes()
        self.header["table_crc"] = crc32c(table)
        self.header["crc"] = 0
        self.header["crc"] = crc32c(self.header.tobytes())
        return self.header.tobytes() + bytes(self.body) + table


@pytest.fixture
def file(tmp_path):
    return File(small_program(tmp_path))


def refused(data):
    with pytest.raises(ParseError) as caught:
        Program.from_bytes(data).verify()
    return caught.value


def test_sealing_an_unchanged_file_gives_its_bytes(tmp_path, file):
    assert file.seal() == small_program(tmp_path)
    Program.from_bytes(file.seal()).verify()


@pytest.mark.parametrize(
    ("name", "value", "path", "found", "expected"),
    [
        ("magic", 1, "header.magic", b"\1\0\0\0", "b'TSP1', a program file"),
        ("major", 2, "header.major", 2, "knows version 1.0, the file is version 2.0"),
        ("reserved", [0, 5, 0], "header.reserved", [0, 5, 0], "zeros"),
        ("task_count", 5, "header.task_count", 5, "4: tasks of all chunks"),
        ("task_count", 1 << 40, "header.task_count", 1 << 40, "at most 4294967295"),
        ("edge_count", 5, "header.edge_count", 5, "4: edges of all chunks"),
        ("file_size", 1 << 50, "header.file_size", 1 << 50, "the file is truncated"),
        ("file_size", 99, "header.file_size", 99, "the file is followed by other bytes"),
        ("table_offset", 0, "header.table_offset", 0, "9 sections end the file"),
        ("section_count", 2**32 - 1, "header.table_offset", None, "4294967295 sections"),
        ("section_count", 8, "header.table_offset", None, "8 sections end the file"),
    ],
)
def test_header_fields(file, name, value, path, found, expected):
    file.header[name] = value
    error = refused(file.seal())
    assert error.path == f"program.{path}"
    assert found is None or error.value == found
    assert expected in error.expected


def test_header_crc_and_table_crc(file):
    good = file.seal()
    changed = bytearray(good)
    changed[60] ^= 1
    assert refused(bytes(changed)).path == "program.header.crc"
    changed = bytearray(good)
    changed[-1] ^= 1
    assert refused(bytes(changed)).path == "program.header.table_crc"


@pytest.mark.parametrize(
    ("row", "name", "value", "path", "expected"),
    [
        (CLASSES, "kind", 10, "sections[1].kind", "1 to 9, a section kind"),
        (CLASSES, "kind", 0, "sections[1].kind", "1 to 9, a section kind"),
        (KERNELS, "kind", 2, "sections[2].kind", "one section of this kind"),
        (META, "kind", 9, "sections[8].length", "4: 1 records of 4 bytes"),
        (CLASSES, "offset", 65, "sections[1].offset", "a multiple of 64"),
        (CLASSES, "offset", 64, "sections[1].offset", "sections in order"),
        (STREAMS, "offset", 0, "sections[0].offset", "64 or more"),
        (TASKS, "offset", 1 << 63, "sections[6].length", "an end at"),
        (META, "length", 1 << 63, "sections[8].length", "an end at"),
        (META, "count", 2, "sections[8].count", "1"),
        (STREAMS, "count", 0, "sections[0].length", "0: 0 records of 64 bytes"),
        (STREAMS, "count", 1 << 60, "sections[0].count", "at most 65535"),
        (KERNELS, "count", 65537, "sections[2].count", "at most 65536"),
        (CLASSES, "count", 256, "sections[1].count", "at most 255"),
        (EVENTS, "count", 1 << 40, "sections[3].count", "at most 1048576"),
        (BUFFERS, "count", 1 << 40, "sections[4].count", "at most 65536"),
        (DATA, "count", 1, "sections[5].length", "1: 1 records of 1 bytes"),
        (TASKS, "count", 65537, "sections[6].count", "at most 65536"),
        (TASKS, "count", 3, "sections[6].length", "216: 3 records of 72 bytes"),
        (EDGES, "count", (1 << 20) + 1, "sections[7].count", "at most 1048576"),
        (EDGES, "kind", 6, "sections[7].length", "4: 4 records of 1 bytes"),
    ],
)
def test_section_fields(file, row, name, value, path, expected):
    file.table[name][row] = value
    error = refused(file.seal())
    assert error.path == f"program.{path}"
    assert expected in error.expected


def test_tasks_without_edges_section(file):
    file.table["kind"][EDGES] = SectionKind.EVENTS
    file.table["length"][EDGES] = 0
    error = refused(file.seal())
    assert (error.path, error.value) == ("program.sections[7].kind", 4)
    assert error.expected == "9 (EDGES) after each TASKS section and only there"


def test_edges_without_tasks_section(file):
    file.table["kind"][KERNELS] = SectionKind.EDGES
    assert refused(file.seal()).path == "program.sections[2].kind"


def test_tasks_as_last_section(file):
    file.table = file.table[:EDGES]
    file.header["section_count"] = len(file.table)
    file.header["file_size"] -= 64
    error = refused(file.seal())
    assert (error.path, error.value) == ("program.sections[6].kind", 8)
    assert error.expected == "an EDGES section after it"


def test_section_that_reaches_into_the_table(file):
    limit = int(file.header["table_offset"][0])
    length = limit - int(file.table["offset"][META]) + 1
    file.table["length"][META] = length
    error = refused(file.seal())
    assert (error.path, error.value) == ("program.sections[8].length", length)
    assert error.expected == f"an end at {limit} or before, the table"


def test_chunk_without_tasks(file):
    file.table["count"][TASKS] = file.table["length"][TASKS] = 0
    error = refused(file.seal())
    assert (error.path, error.expected) == ("program.sections[6].count", "at least 1 task")


def test_meta_that_is_too_long(tmp_path):
    with ProgramWriter(tmp_path / "a", meta={"x": "y" * ((1 << 20) - 10)}):
        pass
    file = File((tmp_path / "a").read_bytes())
    row = len(file.table) - 1
    file.body += bytes(64)
    file.table["length"][row] = (1 << 20) + 1
    file.header["table_offset"] += 64
    file.header["file_size"] += 64
    error = refused(file.seal())
    assert (error.path, error.value) == (f"program.sections[{row}].length", (1 << 20) + 1)


def test_a_newer_minor_version_may_add_kinds(file):
    file.table["kind"][EVENTS] = 99
    assert refused(file.seal()).path == "program.sections[3].kind"
    file.header["minor"] = 1
    program = Program.from_bytes(file.seal())
    program.verify()
    assert program.events == 0


@pytest.mark.parametrize("row", [STREAMS, CLASSES, BUFFERS, DATA, TASKS, EDGES, META])
def test_section_crc(file, row):
    good = file.seal()
    changed = bytearray(good)
    changed[int(file.table["offset"][row])] ^= 0x10
    error = refused(bytes(changed))
    assert error.path == f"program.sections[{row}].crc"
    assert error.value == hex(file.table["crc"][row])
    assert "CRC of its bytes" in error.expected


def test_crc_of_the_empty_events_section(file):
    file.seal()
    file.table["crc"][EVENTS] = 7
    file.table["length"][EVENTS] = 0
    table = file.table.tobytes()
    file.header["table_crc"] = crc32c(table)
    file.header["crc"] = 0
    file.header["crc"] = crc32c(file.header.tobytes())
    data = file.header.tobytes() + bytes(file.body) + table
    assert refused(data).path == "program.sections[3].crc"


def test_edge_start_is_checked(file):
    tasks = np.frombuffer(file.body, task_array(0).dtype, 4, file.place(TASKS).start).copy()
    tasks["edge_start"][2] = 3
    file.body[file.place(TASKS)] = tasks.tobytes()
    error = refused(file.seal())
    assert (error.path, error.value) == ("program.tasks[2].edge_start", 3)
    assert error.expected == "1: edges of a chunk in task order, without gaps"


def test_task_rules_apply_to_what_is_read(file):
    tasks = np.frombuffer(file.body, task_array(0).dtype, 4, file.place(TASKS).start).copy()
    tasks["blocks"][3] = 0
    file.body[file.place(TASKS)] = tasks.tobytes()
    data = file.seal()
    assert refused(data).path == "program.tasks[3].blocks"
    with pytest.raises(ParseError, match=r"program\.tasks\[3\]\.blocks"):
        list(Program.from_bytes(data).chunks())


def test_table_rules_apply_to_what_is_read(file):
    file.body[file.place(CLASSES)] = bytes(16)
    assert refused(file.seal()).path == "program.classes[0]"


def test_meta_is_checked(file):
    file.body[file.place(META)] = b"[]"
    assert refused(file.seal()).path == "program.meta"
