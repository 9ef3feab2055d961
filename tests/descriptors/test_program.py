"""Reading program files: round trips, laziness, damage of every kind, closing."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsemu.descriptors import program as program_module
from tsemu.descriptors.codes import Opcode
from tsemu.descriptors.errors import ParseError
from tsemu.descriptors.program import (
    TASK_DTYPE,
    Buffer,
    Placement,
    Program,
    ProgramWriter,
    Stream,
    buffer_reference,
    resolve_references,
    task_array,
)
from tsemu.descriptors.program_layout import PROGRAM_SECTION, PROGRAM_TASK

DIAMOND = task_array(4, opcode=Opcode.KERNEL, cycles=[1, 2, 3, 4], edge_count=[0, 1, 1, 2])
DIAMOND_EDGES = [0, 0, 1, 2]
TABLES = {
    "streams": [Stream("a", in_order=True, priority=2), Stream("b", limit=0xFFFFFFFF)],
    "classes": ["AICORE", "DMA"],
    "kernels": ["gemm", "größe"],
    "buffers": [
        Buffer(4096, 256, Placement.HOST, b"hello"),
        Buffer(64, data=np.arange(8, dtype=np.uint8)),
        Buffer(1 << 39),
    ],
    "events": 5,
    "meta": {"producer": "test", "options": {"x": [1, 2.5, None]}},
}


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "diamond.tsp"
    with ProgramWriter(target, **TABLES) as writer:
        writer.add_tasks(DIAMOND, DIAMOND_EDGES)
    return target


def check_diamond(program):
    program.verify()
    assert (program.task_count, program.edge_count, program.chunk_count) == (4, 4, 1)
    assert program.streams == tuple(TABLES["streams"])
    assert program.classes == ("AICORE", "DMA")
    assert program.kernels == ("gemm", "größe")
    assert program.buffers == tuple(TABLES["buffers"])
    assert program.events == 5
    assert program.meta == TABLES["meta"]
    assert [program.buffer_data(index).tobytes() for index in range(3)] == [
        b"hello",
        bytes(range(8)),
        b"",
    ]
    ((first, tasks, edges),) = program.chunks()
    assert first == 0
    assert tasks["cycles"].tolist() == [1, 2, 3, 4]
    assert tasks["edge_start"].tolist() == [0, 0, 1, 2]
    assert edges.tolist() == DIAMOND_EDGES


def test_everything_written_is_read(path):
    with Program.open(path) as program:
        check_diamond(program)
    check_diamond(Program.from_bytes(path.read_bytes()))
    check_diamond(Program.from_arrays(DIAMOND, DIAMOND_EDGES, **TABLES))
    with Program.open(str(path)) as program:
        check_diamond(program)


@given(st.data())
def test_random_programs_round_trip(data):
    count = data.draw(st.integers(0, 30))
    edges, counts = [], []
    for index in range(count):
        mine = data.draw(st.lists(st.integers(0, index - 1), max_size=4)) if index else []
        edges += mine
        counts.append(len(mine))
    numbers = {
        name: data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=count, max_size=count))
        for name, bits in [("user_tag", 64), ("cycles", 32), ("value", 32), ("timeout_us", 32)]
    }
    tasks = task_array(count, opcode=Opcode.KERNEL, edge_count=counts, **numbers)
    program = Program.from_arrays(tasks, edges, classes=["C"])
    program.verify()
    read = [chunk.copy() for _, chunk, _ in program.chunks()]
    assert [edge for _, _, chunk in program.chunks() for edge in chunk] == edges
    for name in (*numbers, "edge_count", "opcode", "blocks"):
        found = [value for chunk in read for value in chunk[name].tolist()]
        assert found == tasks[name].tolist()


def test_task_record_is_the_layout_of_the_c_driver():
    assert PROGRAM_TASK.dtype == TASK_DTYPE
    assert TASK_DTYPE.itemsize == 72
    tail = [name for name in PROGRAM_TASK.dtype.names if PROGRAM_TASK.offset(name) >= 60]
    assert tail == [
        "edge_count",
        "stream",
        "blocks",
        "kernel",
        "opcode",
        "engine_class",
        "priority",
        "reserved",
    ]


def test_chunks_are_views_of_the_file(path):
    with Program.open(path) as program:
        for _, tasks, edges in program.chunks():
            assert not tasks.flags.writeable
            assert not edges.flags.writeable
            assert not tasks.flags.owndata
            with pytest.raises(ValueError, match="read-only"):
                tasks["cycles"] = 1


def test_views_stay_valid_after_the_iterator_went_on(tmp_path):
    count = 200_000
    with ProgramWriter(tmp_path / "a.tsp") as writer:
        writer.add_tasks(task_array(count, user_tag=np.arange(count)))
    with Program.open(tmp_path / "a.tsp") as program:
        program.verify()
        kept = [tasks for _, tasks, _ in program.chunks()]
        assert np.array_equal(np.concatenate(kept)["user_tag"], np.arange(count))


def resident_pages(path):
    """Pages of a mapped file that are mapped into this process, in KiB."""
    total, inside = 0, False
    with open("/proc/self/smaps") as lines:  # noqa: PTH123  not a file on disk
        for line in lines:
            if "-" in line.split(" ", 1)[0]:
                inside = line.rstrip().endswith(str(path))
            elif inside and line.startswith("Rss:"):
                total += int(line.split()[1])
    return total


def test_resident_memory_stays_flat(tmp_path, monkeypatch):
    monkeypatch.setattr(program_module, "KEEP_MAPPED", 1 << 20)  # as if it were very large
    path = tmp_path / "a.tsp"
    with ProgramWriter(path) as writer:
        for _ in range(8):
            writer.add_tasks(task_array(65536))
    chunk_kib = 65536 * 72 // 1024
    with Program.open(path) as program:
        program.verify()
        assert resident_pages(path) <= chunk_kib
        for _, tasks, _ in program.chunks():
            tasks["cycles"].sum()
            assert resident_pages(path) <= 2 * chunk_kib
        tasks["cycles"].sum()
        assert resident_pages(path) > chunk_kib // 2  # the measure itself works


def test_a_chunk_is_checked_when_it_is_reached(tmp_path):
    path = tmp_path / "a.tsp"
    with ProgramWriter(path) as writer:
        writer.add_tasks(task_array(65536 + 10))
    damaged = bytearray(path.read_bytes())
    damaged[-32 * 8 - 64 * 3] ^= 1  # inside the last chunk
    program = Program.from_bytes(bytes(damaged))
    chunks = program.chunks()
    assert next(chunks)[0] == 0
    with pytest.raises(ParseError, match=r"program\.sections\[\d\]\.crc"):
        next(chunks)
    with pytest.raises(ParseError):
        program.verify()


def test_every_byte_of_a_file_matters_or_is_padding(path):
    data = path.read_bytes()
    offset = int.from_bytes(data[32:40], "little")
    covered = np.zeros(len(data), np.bool_)
    covered[:64] = covered[offset:] = True
    for row in np.frombuffer(data, PROGRAM_SECTION.dtype, offset=offset):
        covered[int(row["offset"]) : int(row["offset"] + row["length"])] = True
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        if covered[place]:
            with pytest.raises(ParseError) as caught:
                Program.from_bytes(bytes(damaged)).verify()
            assert caught.value.path.startswith("program.")
        else:
            check_diamond(Program.from_bytes(bytes(damaged)))


@given(st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=40)), min_size=1))
def test_random_damage_is_found_or_harmless(changes):
    data = bytearray(SAMPLE)
    for place, found in changes:
        place %= len(data)  # noqa: PLW2901
        data[place : place + len(found)] = found
    error = error_of(bytes(data))
    assert error is None or (error.path.startswith("program.") and error.expected)


def error_of(data):
    """The error of a damaged file; None when it reads as the diamond that it was."""
    try:
        program = Program.from_bytes(data)
        program.verify()
    except ParseError as error:
        return error
    assert [tasks["cycles"].tolist() for _, tasks, _ in program.chunks()] == [[1, 2, 3, 4]]
    return None


def _sample():
    tables = {name: value for name, value in TABLES.items() if name != "meta"}
    program = Program.from_arrays(DIAMOND, DIAMOND_EDGES, **tables)
    return program._bytes.tobytes()


SAMPLE = _sample()


def test_truncation_at_every_length(path, tmp_path):
    data = path.read_bytes()
    short = tmp_path / "short.tsp"
    for length in range(len(data)):
        with pytest.raises(ParseError) as caught:
            Program.from_bytes(data[:length])
        if length < 64:
            assert (caught.value.path, caught.value.value) == ("program.length", length)
        else:
            assert caught.value.path == "program.header.file_size"
            assert caught.value.expected == f"{length}: the file is truncated"
    offset = int.from_bytes(data[32:40], "little")
    rows = np.frombuffer(data, PROGRAM_SECTION.dtype, offset=offset)
    ends = rows["offset"] + rows["length"]
    for length in {0, 1, 63, 64, offset, *rows["offset"].tolist(), *ends.tolist()}:
        short.write_bytes(data[:length])
        with pytest.raises(ParseError):
            Program.open(short)


def test_bytes_after_the_end(path):
    with pytest.raises(ParseError) as caught:
        Program.from_bytes(path.read_bytes() + b"\0")
    assert caught.value.expected.endswith("the file is followed by other bytes")


def test_huge_sparse_file(tmp_path):
    path = tmp_path / "huge.tsp"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(ParseError) as caught:
        Program.open(path)
    assert (caught.value.path, caught.value.value) == ("program.header.magic", bytes(4))


def test_what_is_no_regular_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        Program.open(tmp_path / "none.tsp")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ParseError) as caught:
            Program.open(path)
        assert (caught.value.path, caught.value.value) == ("program", os.fspath(path))
        assert caught.value.expected == "a regular file"


def test_a_refused_file_is_closed(path):
    path.write_bytes(path.read_bytes()[:-1])
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        with pytest.raises(ParseError):
            Program.open(path)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_closing(path):
    program = Program.open(path)
    ((_, tasks, edges),) = program.chunks()
    program.close()
    program.close()
    assert tasks["cycles"].tolist() == [1, 2, 3, 4]  # the mapping lives as long as its views
    with pytest.raises(RuntimeError, match="it is closed"):
        program.verify()
    with pytest.raises(RuntimeError, match="it is closed"):
        list(program.chunks())
    del tasks, edges
    assert resident_pages(path) == 0


def test_closing_in_the_middle_of_an_iteration(tmp_path):
    with ProgramWriter(tmp_path / "a.tsp") as writer:
        writer.add_tasks(task_array(70_000))
    program = Program.open(tmp_path / "a.tsp")
    chunks = program.chunks()
    next(chunks)
    program.close()
    with pytest.raises(RuntimeError, match="it is closed"):
        next(chunks)


def test_references_become_addresses():
    bases = [0x10000, 0x2000_0000_0000]
    tasks = task_array(
        4,
        opcode=[Opcode.MEMCPY, Opcode.MEMSET, Opcode.KERNEL, Opcode.NOP],
        argument=[buffer_reference(1, 5), 1 << 63, buffer_reference(0), buffer_reference(1)],
        destination=[0x777, buffer_reference(1), buffer_reference(1), buffer_reference(1)],
    )
    resolved = resolve_references(tasks, bases)
    assert resolved["argument"].tolist() == [
        0x2000_0000_0005,
        1 << 63,  # the pattern of a MEMSET
        0x10000,
        buffer_reference(1),
    ]
    assert resolved["destination"].tolist() == [
        0x777,
        0x2000_0000_0000,
        buffer_reference(1),
        buffer_reference(1),
    ]
    assert tasks["argument"][0] == buffer_reference(1, 5)


def test_nothing_to_resolve_copies_nothing():
    tasks = task_array(3, opcode=Opcode.MEMCPY, argument=0x1000, destination=0x2000)
    assert resolve_references(tasks, []) is tasks
