"""Reading STG files: both ways of counting, and one exact error per way to be wrong."""

import contextlib
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsemu.runtime import stg
from tsemu.runtime.errors import GraphError
from tsemu.runtime.stg import DUMMY_TASKS, MAX_TASKS, parse_stg, read_stg
from tsemu.runtime.stg_bulk import MAX_NUMBER, parse_block

DATA = Path(__file__).parent / "data"


def parse(text):
    return parse_stg(io.BytesIO(text.encode()), "g.stg")


def error(text):
    with pytest.raises(GraphError) as caught:
        parse(text)
    found = caught.value
    return found.line, found.field, found.value, found.expected


def predecessors(graph, task):
    return graph.predecessors[graph.starts[task] : graph.starts[task + 1]].tolist()


def test_file_that_counts_without_the_dummy_tasks():
    graph = read_stg(DATA / "diamond.stg")
    assert graph.ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert graph.times.tolist() == [0, 3, 5, 4, 2, 0]
    assert [predecessors(graph, task) for task in range(6)] == [[], [0], [1], [1], [2, 3], [4]]
    assert graph.successor_counts().tolist() == [1, 2, 1, 1, 1, 0]


def test_file_that_counts_every_task_with_ids_in_no_order():
    graph = read_stg(DATA / "unsorted.stg")
    assert graph.ids.tolist() == [10, 20, 30, 7, 99]
    assert graph.times.tolist() == [2, 3, 4, 1, 6]
    assert [predecessors(graph, task) for task in range(5)] == [[], [0], [0, 1], [2], [2]]


def test_a_single_task_without_edges():
    graph = parse("1\n7 3 0")
    assert (graph.tasks, graph.edges) == (1, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (0, "number of tasks", "an empty file", "an STG file")),
        ("# nothing\n\n", (0, "number of tasks", "an empty file", "an STG file")),
        ("2 3\n", (1, "number of tasks", "2 numbers", "one number alone")),
        ("0\n", (1, "number of tasks", 0, f"1 to {MAX_TASKS - DUMMY_TASKS}")),
        ("99999999\n", (1, "number of tasks", 99999999, f"1 to {MAX_TASKS - DUMMY_TASKS}")),
        (
            "2\n0 0 0\n1 x 0\n",
            (3, "processing time", "x", f"a whole number from 0 to {MAX_NUMBER}"),
        ),
        (
            "2\n0 0 0\n1 -4 0\n",
            (3, "processing time", "-4", f"a whole number from 0 to {MAX_NUMBER}"),
        ),
        ("1\n1_0 1 0\n", (2, "task id", "1_0", f"a whole number from 0 to {MAX_NUMBER}")),
        ("1\n1 4294967296 0\n", (2, "processing time", "4294967296", f"at most {MAX_NUMBER}")),
        (f"1\n1 {'9' * 5000} 0\n", (2, "processing time", "9" * 5000, f"at most {MAX_NUMBER}")),
        (
            "1\n1 4\n",
            (
                2,
                "predecessor count",
                "the end of the line",
                "task id, processing time, predecessor count and the predecessors' ids",
            ),
        ),
        (
            "1\n1 4 2 0\n",
            (2, "predecessor count", 2, "1, the number of ids that follow on the line"),
        ),
        (
            "1\n1 4 0 0\n",
            (2, "predecessor count", 0, "1, the number of ids that follow on the line"),
        ),
        ("2\n1 1 0\n2 1 2 1 9\n", (3, "predecessor 2", 9, "the id of a task in this file")),
        ("2\n1 1 0\n1 1 0\n", (3, "task id", 1, "an id of its own (line 2 has this one)")),
        (
            "1\n1 1 1 1\n",
            (2, "predecessors", "the cycle 1 -> 1", "edges that never lead back to a task"),
        ),
        (
            "3\n0 0 0\n1 1 0\n",
            (3, "tasks", "the end of the file after 2", "5 (or 3, dummy tasks counted)"),
        ),
        (
            "2\n0 0 0\n1 1 1 0\n",  # an entry without its exit: two lines are lost
            (3, "tasks", "the end of the file after 2", "4 (or 2, dummy tasks counted)"),
        ),
        (
            "1\n0 0 0\n1 1 0\n2 0 0\n3 1 0\n",
            (5, "tasks", "a task after 3 tasks", "the end: line 1 says 1 (and 2 dummy tasks)"),
        ),
    ],
)  # fmt: skip
def test_error_says_line_field_value_and_what_was_expected(text, expected):
    assert error(text) == expected


def test_cycle_is_named_in_the_order_of_its_edges():
    with pytest.raises(GraphError) as caught:
        read_stg(DATA / "cycle.stg")
    assert str(caught.value) == (
        f"{DATA / 'cycle.stg'}:3: predecessors: found 'the cycle 1 -> 2 -> 3 -> 1', "
        "expected edges that never lead back to a task"
    )


def test_long_cycle_is_abbreviated():
    lines = ["100", "0 1 1 99", *(f"{task} 1 1 {task - 1}" for task in range(1, 100))]
    assert "(88 more)" in error("\n".join(lines))[2]


def test_long_value_is_abbreviated_in_the_message():
    with pytest.raises(GraphError, match=r"x{40}'\.\.\. \(5000 characters\)"):
        parse("1\n" + "x" * 5000)


def test_binary_file_is_named_as_such():
    with pytest.raises(GraphError, match=r"an STG file, or a \.tsp program"):
        parse_stg(io.BytesIO(bytes(range(128, 256))), "g.stg")


@given(st.data())
def test_what_is_written_is_read_back_in_topological_order(data):
    count = data.draw(st.integers(1, 30))
    ids = data.draw(st.permutations(range(count)))
    edges = {
        task: sorted(data.draw(st.sets(st.integers(0, task - 1), max_size=4))) if task else []
        for task in range(count)
    }
    times = data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    lines = [
        " ".join(map(str, (ids[t], times[t], len(edges[t]), *(ids[p] for p in edges[t]))))
        for t in range(count)
    ]
    graph = parse("\n".join([str(count), *data.draw(st.permutations(lines))]))
    task_of = {name: task for task, name in enumerate(ids)}
    assert sorted(graph.ids.tolist()) == sorted(ids)
    assert np.array_equal(graph.times, [times[task_of[name]] for name in graph.ids.tolist()])
    for place, name in enumerate(graph.ids.tolist()):
        found = predecessors(graph, place)
        assert found == sorted(set(found))
        assert all(before < place for before in found)
        assert {int(graph.ids[p]) for p in found} == {ids[p] for p in edges[task_of[name]]}


ODD = [
    "1 1 0", "2 3 1 1", "", "   ", "3 1 2 1 2", "# comment", "4 4 0 # more", "5 1 x", "6 1",
    "7 1 1", "8 1 0 4", "9 4294967296 0", "10 99999999999 0", "\t11  007 0\r", "12 1 0 \v",
]  # fmt: skip


@given(st.lists(st.sampled_from(ODD), max_size=8), st.booleans())
def test_blocks_and_lines_find_the_same(rows, ended):
    block = ("\n".join(rows) + "\n" * ended).encode()
    records = stg._Records("g.stg")
    try:
        for number, line in enumerate(block.split(b"\n"), 5):
            if values := stg._numbers(line, number, "g.stg"):
                records.add(number, values)
    except GraphError:
        assert parse_block(block) is None
        return
    bulk = parse_block(block)
    if bulk is None:
        assert b"#" in block
        return
    other = stg._Records("g.stg")
    other.add_bulk(5, bulk)
    for name in ("ids", "times", "starts", "edges", "lines"):
        assert getattr(other, name) == getattr(records, name), name


def test_graph_larger_than_a_block_and_an_error_in_the_last_of_them(monkeypatch):
    monkeypatch.setattr(stg, "BLOCK_BYTES", 64)
    lines = [
        "500",
        *(f"{task} 1 {min(task, 1)}{f' {task - 1}' * min(task, 1)}" for task in range(500)),
    ]
    graph = parse("\n".join(lines))
    assert (graph.tasks, graph.edges) == (500, 499)
    lines[450] = "449 1 1 777"
    assert error("\n".join(lines))[:3] == (451, "predecessor 1", 777)
    lines[450] = "449 1 1 -7"
    assert error("\n".join(lines))[:3] == (451, "predecessor 1", "-7")


@given(st.binary(max_size=200) | st.text("0123456789 \n#-", max_size=200).map(str.encode))
def test_any_bytes_are_a_graph_or_a_graph_error(content):
    with contextlib.suppress(GraphError):
        assert parse_stg(io.BytesIO(content), "g.stg").tasks > 0


def test_endless_line_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(stg, "MAX_LINE_BYTES", 1000)
    assert error("1" * 5000)[:3] == (1, "line length", "over 1000 bytes")
    assert error("3\n" + "1 1 0\n" * 2 + "1" * 2_000_000)[:2] == (4, "line length")
