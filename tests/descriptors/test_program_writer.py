"""Writing program files: golden bytes, chunks, replacement of files, refused input."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsemu.descriptors import program_writer
from tsemu.descriptors.codes import Opcode
from tsemu.descriptors.errors import ParseError
from tsemu.descriptors.program import (
    Program,
    ProgramWriter,
    Stream,
    buffer_reference,
    task_array,
)
from tsemu.descriptors.program_layout import CHUNK_TASKS


def crc32c_bitwise(data: bytes) -> bytes:
    """CRC-32C from its polynomial, little-endian bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "little")


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 64)


def test_golden_file(tmp_path):
    """Every byte of a file with two tasks and one edge, composed by hand."""
    path = tmp_path / "golden.tsp"
    streams, classes = [Stream("main", in_order=True)], ["AICORE"]
    with ProgramWriter(path, streams=streams, classes=classes, meta={"producer": "me"}) as writer:
        writer.add_tasks(task_array(2, opcode=Opcode.KERNEL, cycles=[7, 8], edge_count=[0, 1]), [0])
    stream = b"main" + bytes(44) + bytes.fromhex("00000000 0100 00 00") + bytes(8)
    engine_class = b"AICORE" + bytes(10)
    meta = b'{"producer":"me"}'
    tasks = bytes.fromhex(
        "0000000000000000 0000000000000000 0000000000000000 0000000000000000"
        "07000000 00000000 00000000 00000000 00000000 00000000 00000000"
        "0000 0000 0100 0000 01 00 00 00"
        "0000000000000000 0000000000000000 0000000000000000 0000000000000000"
        "08000000 00000000 00000000 00000000 00000000 00000000 00000000"
        "0100 0000 0100 0000 01 00 00 00"
    )
    edges = bytes(4)
    sections = [
        (1, stream, 1),
        (2, engine_class, 1),
        (3, b"", 0),
        (4, b"", 0),
        (5, b"", 0),
        (8, tasks, 2),
        (9, edges, 1),
        (7, meta, 1),
    ]
    body, table = b"", b""
    for kind, data, count in sections:
        table += kind.to_bytes(4, "little") + crc32c_bitwise(data)
        for number in (64 + len(body), len(data), count):
            table += number.to_bytes(8, "little")
        body += padded(data)
    offset = 64 + len(body)
    header = b"TSP1" + bytes.fromhex("0100 0000")
    for number in (2, 1, offset + len(table), offset):
        header += number.to_bytes(8, "little")
    header += (8).to_bytes(4, "little") + crc32c_bitwise(table) + bytes(12)
    header += crc32c_bitwise(header + bytes(4))
    assert path.read_bytes() == header + body + table


def write(path, pieces, **tables):
    with ProgramWriter(path, classes=["C"], **tables) as writer:
        for tasks, edges in pieces:
            writer.add_tasks(tasks, edges)
    return writer


def test_pieces_of_any_size_give_the_same_file(tmp_path):
    count = 3000
    tasks = task_array(count, opcode=Opcode.KERNEL, user_tag=np.arange(count))
    tasks["edge_count"][1:] = 1
    edges = np.arange(count - 1)
    write(tmp_path / "whole", [(tasks, edges)])
    singles = [(tasks[i : i + 1], edges[max(i - 1, 0) : i]) for i in range(count)]
    write(tmp_path / "singles", singles)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "singles").read_bytes()


@pytest.mark.parametrize("sizes", [(CHUNK_TASKS, 1), (1, CHUNK_TASKS), (2 * CHUNK_TASKS + 5,)])
def test_chunks_hold_65536_tasks(tmp_path, sizes):
    first = 0
    with ProgramWriter(tmp_path / "a.tsp", classes=["C"]) as writer:
        for size in sizes:
            index = np.arange(first, first + size)
            has_edge = index > 0
            tasks = task_array(size, opcode=1, user_tag=index, edge_count=has_edge)
            writer.add_tasks(tasks, (index - 1)[has_edge])
            first += size
            assert writer.task_count == first
            assert writer.edge_count == first - 1
    with Program.open(tmp_path / "a.tsp") as program:
        sizes_found, tags, edges = [], [], []
        for start, tasks, chunk_edges in program.chunks():
            assert start == sum(sizes_found)
            sizes_found.append(len(tasks))
            tags.append(tasks["user_tag"].copy())
            edges.append(chunk_edges.copy())
    assert all(size == CHUNK_TASKS for size in sizes_found[:-1])
    assert np.array_equal(np.concatenate(tags), np.arange(first))
    assert np.array_equal(np.concatenate(edges), np.arange(first - 1))


def test_chunks_end_early_when_they_hold_a_million_edges(tmp_path):
    count, fan_in = 3000, 1024
    tasks = task_array(count, edge_count=np.where(np.arange(count) < fan_in, 0, fan_in))
    first = np.arange(fan_in, count)[:, None]
    edges = (first - 1 - np.arange(fan_in)[None, :]).ravel()
    with ProgramWriter(tmp_path / "a.tsp") as writer:
        writer.add_tasks(tasks, edges)
    with Program.open(tmp_path / "a.tsp") as program:
        program.verify()
        assert [len(chunk) for _, chunk, _ in program.chunks()] == [2048, 952]
        assert np.array_equal(np.concatenate([e for _, _, e in program.chunks()]), edges)


def test_edge_counts_may_be_given_apart(tmp_path):
    tasks = task_array(3)
    with ProgramWriter(tmp_path / "a.tsp") as writer:
        writer.add_tasks(tasks, [0, 0, 1], [0, 1, 2])
    assert tasks["edge_count"].tolist() == [0, 0, 0]
    with Program.open(tmp_path / "a.tsp") as program:
        ((_, read, _),) = program.chunks()
        assert read["edge_count"].tolist() == [0, 1, 2]
        assert read["edge_start"].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("tasks", "edges", "counts", "path"),
    [
        (task_array(2, opcode=77), None, None, "program.tasks[5].opcode"),
        (task_array(2, edge_count=[0, 1]), [6], None, "program.tasks[6].edges[0]"),
        (task_array(2, edge_count=[0, 1]), [-1], None, "program.edges[0]"),
        (task_array(2, edge_count=[0, 1]), [1 << 32], None, "program.edges[0]"),
        (task_array(2, edge_count=[0, 1]), [0.5], None, "program.edges.dtype"),
        (task_array(2, edge_count=[0, 1]), [[1]], None, "program.edges.dtype"),
        (task_array(2, edge_count=[0, 1]), None, None, "program.edges.count"),
        (task_array(2), [1], None, "program.edges.count"),
        (task_array(2), [1], [1], "program.edge_counts"),
        (task_array(2), [1], [-1, 2], "program.edge_counts[0]"),
        (task_array(2), [1], [0, 1025], "program.edge_counts[1]"),
        (np.zeros(2, np.uint64), None, None, "program.tasks.dtype"),
        (task_array(4).reshape(2, 2), None, None, "program.tasks.dtype"),
    ],
)
def test_refused_tasks_change_nothing(tmp_path, tasks, edges, counts, path):
    first = task_array(5, user_tag=range(5))
    write(tmp_path / "good.tsp", [(first, None)])
    with ProgramWriter(tmp_path / "a.tsp", classes=["C"]) as writer:
        writer.add_tasks(first)
        with pytest.raises(ParseError) as caught:
            writer.add_tasks(tasks, edges, counts)
        assert caught.value.path == path
        assert (writer.task_count, writer.edge_count) == (5, 0)
    assert (tmp_path / "a.tsp").read_bytes() == (tmp_path / "good.tsp").read_bytes()


def test_bad_task_far_behind_a_good_chunk_adds_nothing(tmp_path):
    tasks = task_array(CHUNK_TASKS + 10)
    tasks["priority"][CHUNK_TASKS + 3] = 9
    with ProgramWriter(tmp_path / "a.tsp") as writer:
        with pytest.raises(ParseError, match=r"program\.tasks\[65539\]\.priority"):
            writer.add_tasks(tasks)
        assert writer.task_count == 0


def test_more_tasks_than_a_ticket_can_count(tmp_path, monkeypatch):
    monkeypatch.setattr(program_writer.form, "MAX_TASKS", 5)
    with ProgramWriter(tmp_path / "a.tsp") as writer:
        writer.add_tasks(task_array(5))
        with pytest.raises(ParseError) as caught:
            writer.add_tasks(task_array(1))
    assert (caught.value.path, caught.value.value) == ("program.tasks.count", 6)


class StoppedError(Exception):
    pass


def write_and_stop(path):
    with ProgramWriter(path) as writer:
        writer.add_tasks(task_array(70_000))
        raise StoppedError


def test_an_error_leaves_nothing_behind(tmp_path):
    with pytest.raises(StoppedError):
        write_and_stop(tmp_path / "a.tsp")
    assert list(tmp_path.iterdir()) == []


def test_an_error_keeps_the_file_that_was_there(tmp_path):
    path = tmp_path / "a.tsp"
    path.write_bytes(b"old")
    with pytest.raises(StoppedError):
        write_and_stop(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_success_replaces_the_file(tmp_path):
    path = tmp_path / "a.tsp"
    path.write_bytes(b"old")
    write(path, [(task_array(1), None)])
    assert path.read_bytes()[:4] == b"TSP1"
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_keeps_the_replaced_file(tmp_path):
    path = tmp_path / "a.tsp"
    write(path, [(task_array(3, value=1), None)])
    with Program.open(path) as program:
        write(path, [(task_array(5, value=2), None)])
        ((_, tasks, _),) = program.chunks()
        assert tasks["value"].tolist() == [1, 1, 1]


def test_a_directory_and_a_device_are_not_replaced(tmp_path):
    with pytest.raises(IsADirectoryError, match="name a file"), ProgramWriter(tmp_path):
        pass
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match="would be replaced"), ProgramWriter(pipe):
        pass
    assert list(tmp_path.iterdir()) == [pipe]
    assert pipe.is_fifo()


def test_a_link_is_followed_not_replaced(tmp_path):
    link = tmp_path / "link.tsp"
    link.symlink_to(tmp_path / "real.tsp")
    write(link, [(task_array(1), None)])
    assert link.is_symlink()
    assert (tmp_path / "real.tsp").is_file()


def test_a_missing_folder_is_named_as_the_caller_named_it(tmp_path):
    path = tmp_path / "no" / "a.tsp"
    with pytest.raises(FileNotFoundError, match="create it first") as caught, ProgramWriter(path):
        pass
    assert str(path) in str(caught.value)
    assert ".tmp" not in str(caught.value)


def test_the_longest_name_of_a_file_can_be_written(tmp_path):
    write(tmp_path / ("n" * 255), [(task_array(1), None)])
    assert [len(path.name) for path in tmp_path.iterdir()] == [255]


def test_meta_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    with pytest.raises(ParseError, match=r"program\.meta"), ProgramWriter(tmp_path / "a") as writer:
        writer.meta["bad"] = object()
    with pytest.raises(ParseError), ProgramWriter(tmp_path / "a", meta={"bad": object()}):
        pass
    assert list(tmp_path.iterdir()) == []


def test_meta_may_be_completed_until_the_end(tmp_path):
    with ProgramWriter(tmp_path / "a.tsp", meta={"producer": "x"}) as writer:
        writer.add_tasks(task_array(2))
        writer.meta["total"] = writer.task_count
    with Program.open(tmp_path / "a.tsp") as program:
        assert program.meta == {"producer": "x", "total": 2}


def test_bad_tables_are_refused_before_a_file_exists(tmp_path):
    with pytest.raises(ParseError, match=r"program\.classes\[1\]"):
        ProgramWriter(tmp_path / "a.tsp", classes=["A", "A"])
    with (
        pytest.raises(ParseError, match=r"at most 16 bytes"),
        ProgramWriter(tmp_path / "a.tsp", classes=["A" * 17]),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError), ProgramWriter(tmp_path / "none" / "a.tsp"):
        pass


def test_tasks_are_added_inside_the_block_only(tmp_path):
    writer = ProgramWriter(tmp_path / "a.tsp")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="inside its `with` block"):
            writer.add_tasks(task_array(1))
        with writer:
            writer.add_tasks(task_array(1))
    assert (tmp_path / "a.tsp").exists()


def test_program_without_tasks(tmp_path):
    write(tmp_path / "a.tsp", [])
    write(tmp_path / "b.tsp", [(task_array(0), [])])
    with Program.open(tmp_path / "a.tsp") as program:
        program.verify()
        assert (program.task_count, program.edge_count, program.chunk_count) == (0, 0, 0)
        assert list(program.chunks()) == []
    assert (tmp_path / "a.tsp").read_bytes() == (tmp_path / "b.tsp").read_bytes()


@given(st.integers(0, 65535), st.integers(0, (1 << 40) - 1))
def test_buffer_references(buffer, offset):
    address = buffer_reference(buffer, offset)
    assert address >> 63 == 1
    assert (address >> 40) & 0x7FFFFF == buffer
    assert address & 0xFF_FFFF_FFFF == offset


@pytest.mark.parametrize(
    ("buffer", "offset", "path"),
    [(-1, 0, "buffer"), (65536, 0, "buffer"), (0, -1, "offset"), (0, 1 << 40, "offset")],
)
def test_buffer_references_out_of_range(buffer, offset, path):
    with pytest.raises(ParseError) as caught:
        buffer_reference(buffer, offset)
    assert caught.value.path == f"buffer_reference.{path}"


def test_task_array_knows_its_fields():
    assert task_array(2)["blocks"].tolist() == [1, 1]
    with pytest.raises(ParseError, match=r"program_task\.cycle:"):
        task_array(2, cycle=3)
