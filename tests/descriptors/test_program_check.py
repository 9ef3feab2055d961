"""The rules of program tasks: which field of which task an error names."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsemu.descriptors.codes import Opcode
from tsemu.descriptors.errors import ParseError
from tsemu.descriptors.program import Buffer, Stream, buffer_reference, task_array
from tsemu.descriptors.program_check import PROGRAM_OPCODES, TaskRules, edge_starts
from tsemu.descriptors.program_tables import Tables

TABLES = Tables(
    streams=(Stream("a"), Stream("b")),
    classes=("AICORE", "DMA"),
    kernels=("gemm", "relu", "norm"),
    buffers=(Buffer(4096), Buffer(64)),
    events=4,
)
RULES = TaskRules.of(TABLES)
NO_EDGES = np.zeros(0, np.uint32)


def refused(tasks, edges=NO_EDGES, first=0, rules=RULES):
    with pytest.raises(ParseError) as caught:
        rules.check(tasks, np.asarray(edges, np.uint32), first)
    return caught.value


def path_of(tasks):
    """Path of the error that checking raises, or None."""
    try:
        RULES.check(tasks, NO_EDGES, 0)
    except ParseError as error:
        return error.path
    return None


@pytest.mark.parametrize(
    ("fields", "name", "value", "expected"),
    [
        ({"opcode": 16}, "opcode", 16, "an opcode of a program (NOP, KERNEL"),
        ({"opcode": Opcode.SWITCH}, "opcode", 13, "an opcode of a program"),
        ({"priority": 8}, "priority", 8, "0 (highest) to 7"),
        ({"reserved": 1}, "reserved", 1, "0"),
        ({"stream": 2}, "stream", 2, "below 2, the number of streams"),
        ({"engine_class": 2}, "engine_class", 2, "below 2, the number of engine classes"),
        ({"blocks": 0}, "blocks", 0, "1 to 65535 blocks"),
        ({"kernel": 3}, "kernel", 3, "below 3, the number of kernels"),
        ({"opcode": Opcode.EVENT_WAIT, "event": 4}, "event", 4, "below 4, the number of events"),
        ({"edge_count": 1025}, "edge_count", 1025, "at most 1024 predecessors"),
        (
            {"argument": buffer_reference(2)},
            "argument",
            buffer_reference(2),
            "a buffer index (bits 40 to 62, here 2) below 2",
        ),
        (
            {"argument": buffer_reference(1, 64)},
            "argument",
            buffer_reference(1, 64),
            "an offset inside buffer 1 of 64 bytes (offset, bits 0 to 39, here 64)",
        ),
        (
            {"opcode": Opcode.MEMCPY, "argument": buffer_reference(1, 4), "length": 61},
            "argument",
            buffer_reference(1, 4),
            "61 bytes at it inside buffer 1 of 64 bytes",
        ),
        (
            {"opcode": Opcode.MEMSET, "destination": buffer_reference(0), "length": 2**64 - 1},
            "destination",
            buffer_reference(0),
            "18446744073709551615 bytes at it inside buffer 0 of 4096 bytes",
        ),
    ],
)
def test_each_rule_names_task_field_and_value(fields, name, value, expected):
    tasks = task_array(40, opcode=Opcode.KERNEL)
    for field_name, field_value in fields.items():
        tasks[field_name][17] = field_value
    error = refused(tasks)
    assert (error.path, error.value) == (f"program.tasks[17].{name}", value)
    assert expected in error.expected
    assert refused(tasks, first=100_000).path == f"program.tasks[100017].{name}"


def test_the_first_bad_task_is_named_whatever_is_wrong_with_later_ones():
    tasks = task_array(10, opcode=Opcode.KERNEL)
    tasks["opcode"][7] = 99
    tasks["kernel"][3] = 99
    tasks["argument"][5] = buffer_reference(9)
    assert refused(tasks).path == "program.tasks[3].kernel"
    tasks["argument"][2] = buffer_reference(1, 1000)
    tasks["argument"][1] = buffer_reference(70)
    assert refused(tasks).path == "program.tasks[1].argument"
    tasks["argument"][0] = buffer_reference(1, 1000)
    assert refused(tasks).path == "program.tasks[0].argument"


def test_what_an_opcode_does_not_use_is_not_looked_at():
    for opcode, fields in [
        (Opcode.NOP, {"blocks": 0, "kernel": 99, "event": 99, "argument": 2**64 - 1}),
        (Opcode.EVENT_RECORD, {"blocks": 0, "kernel": 99, "event": 3}),
        (Opcode.MEMSET, {"argument": 2**64 - 1, "destination": 0x1000, "length": 2**63}),
        (Opcode.KERNEL, {"destination": 2**64 - 1, "event": 99}),
    ]:
        RULES.check(task_array(1, opcode=opcode, **fields), NO_EDGES, 0)


def test_copies_may_fill_a_buffer_to_its_last_byte():
    tasks = task_array(
        2,
        opcode=Opcode.MEMCPY,
        argument=[buffer_reference(0, 4032), buffer_reference(0, 4096)],
        destination=[buffer_reference(1), buffer_reference(1, 64)],
        length=[64, 0],
    )
    RULES.check(tasks, NO_EDGES, 0)


def test_empty_tables():
    bare = TaskRules.of(Tables((Stream("a"),), (), (), (), 0))
    bare.check(task_array(2, opcode=Opcode.NOP), NO_EDGES, 0)
    error = refused(task_array(1, opcode=Opcode.KERNEL), rules=bare)
    assert error.path == "program.tasks[0].engine_class"
    assert error.expected == "an index below 0, the number of engine classes"
    error = refused(task_array(1, opcode=Opcode.EVENT_RESET), rules=bare)
    assert error.path == "program.tasks[0].event"
    one_class = TaskRules.of(Tables((Stream("a"),), ("AICORE",), (), (), 0))
    one_class.check(task_array(1, opcode=Opcode.KERNEL), NO_EDGES, 0)
    assert refused(task_array(1, opcode=Opcode.KERNEL, kernel=1), rules=one_class).path.endswith(
        ".kernel"
    )
    no_streams = TaskRules.of(Tables((), (), (), (), 0))
    assert refused(task_array(1), rules=no_streams).path.endswith(".stream")


@pytest.mark.parametrize("bad", [7, 8, 2**32 - 1])
def test_edges_point_backwards(bad):
    tasks = task_array(10, edge_count=[0, 1, 0, 0, 0, 0, 0, 3, 1, 0])
    RULES.check(tasks, np.array([0, 1, 2, 6, 7], np.uint32), 0)
    error = refused(tasks, [0, 1, bad, 6, 7])
    assert (error.path, error.value) == ("program.tasks[7].edges[1]", bad)
    assert error.expected == "the index of an earlier task (below 7)"


def test_edges_of_a_later_chunk_may_point_to_earlier_chunks():
    tasks = task_array(2, edge_count=[1, 1])
    RULES.check(tasks, np.array([99, 100], np.uint32), 100)
    error = refused(tasks, [100, 100], first=100)
    assert error.path == "program.tasks[100].edges[0]"


def test_edge_counts_and_edges_agree():
    error = refused(task_array(3, edge_count=[0, 1, 1]), [0], first=5)
    assert (error.path, error.value) == ("program.edges.count", 1)
    assert error.expected == "2: the sum of edge_count of tasks 5 to 7"


@given(st.lists(st.integers(0, 1024), max_size=50))
def test_edge_starts_are_running_sums(counts):
    tasks = task_array(len(counts), edge_count=np.array(counts, np.uint16))
    assert edge_starts(tasks).tolist() == [sum(counts[:index]) for index in range(len(counts))]


@given(st.data())
def test_vectorised_edge_check_agrees_with_the_obvious_one(data):
    counts = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=8))
    first = data.draw(st.integers(0, 5))
    edges = data.draw(st.lists(st.integers(0, 14), min_size=sum(counts), max_size=sum(counts)))
    expected, position = None, 0
    for index, count in enumerate(counts):
        for place in range(count):
            if edges[position] >= first + index and expected is None:
                expected = f"program.tasks[{first + index}].edges[{place}]"
            position += 1
    tasks = task_array(len(counts), edge_count=counts)
    if expected is None:
        RULES.check(tasks, np.array(edges, np.uint32), first)
    else:
        assert refused(tasks, edges, first).path == expected


@given(st.binary(min_size=72 * 4, max_size=72 * 4))
def test_random_records_are_accepted_or_refused(data):
    tasks = np.frombuffer(data, task_array(0).dtype)
    path = path_of(tasks)
    if path is None:
        assert set(tasks["opcode"].tolist()) <= set(PROGRAM_OPCODES)
    else:
        assert path.startswith(("program.tasks[", "program.edges"))
