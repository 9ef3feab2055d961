"""Programs made from graphs: records, edges, and what an entry cannot say."""

import io
from pathlib import Path

import numpy as np
import pytest

from tsemu.descriptors.codes import MAX_PREDECESSORS, Opcode
from tsemu.descriptors.program import Program
from tsemu.descriptors.program_layout import WINDOW_LIMIT
from tsemu.runtime.errors import GraphError
from tsemu.runtime.program_build import HELPER_TAG, build_program, compile_graph, write_program
from tsemu.runtime.rank import rank_values
from tsemu.runtime.stg import parse_stg, read_stg

DATA = Path(__file__).parent / "data"


def graph(lines):
    return parse_stg(io.BytesIO("\n".join(lines).encode()), "g.stg")


def test_records_of_a_diamond():
    source = read_stg(DATA / "diamond.stg")
    program = build_program(source, "AICORE", 500)
    program.verify()
    assert [(s.in_order, s.limit) for s in program.streams] == [(False, WINDOW_LIMIT)]
    assert program.classes == ("AICORE",)
    assert program.meta["cycles_per_unit"] == 500
    ((_, tasks, edges),) = program.chunks()
    kernel, nop = Opcode.KERNEL, Opcode.NOP
    assert tasks["opcode"].tolist() == [nop, kernel, kernel, kernel, kernel, nop]
    assert tasks["cycles"].tolist() == [0, 1500, 2500, 2000, 1000, 0]
    assert tasks["user_tag"].tolist() == [0, 1, 2, 3, 4, 5]
    assert tasks["value"].tolist() == rank_values(source).tolist()
    assert edges.tolist() == [0, 1, 1, 2, 3, 4]


def test_written_program_is_the_built_one(tmp_path):
    source = read_stg(DATA / "layers.stg")
    write_program(source, tmp_path / "g.tsp", "GPU", 1)
    with Program.open(tmp_path / "g.tsp") as program:
        program.verify()
        ((_, tasks, edges),) = program.chunks()
        compiled = compile_graph(source, "GPU", 1)
        assert np.array_equal(edges, compiled.edges)
        for name in ("user_tag", "cycles", "value", "edge_count"):
            assert np.array_equal(tasks[name], compiled.tasks[name])


def test_too_many_cycles_name_the_task_and_the_option():
    source = graph(["2", "1 9 0", "2 5000000 0"])
    with pytest.raises(GraphError, match="processing time of task 2: found 5000000") as caught:
        compile_graph(source, "AICORE", 1000)
    assert "at most 4294967: a unit has 1000 cycles (--cycles-per-unit)" in str(caught.value)


@pytest.mark.parametrize(
    ("width", "helpers"), [(MAX_PREDECESSORS, 0), (MAX_PREDECESSORS + 1, 2), (5000, 5)]
)
def test_wide_joins_get_helpers(width, helpers):
    first = [f"{task} 1 0" for task in range(width)]
    joins = [
        f"{width} 0 {width} {' '.join(map(str, range(width)))}",
        f"{width + 1} 1 1 {width}",
        f"{width + 2} 1 {width + 1} {' '.join(map(str, range(width + 1)))}",
    ]
    source = graph([str(width + 3), *first, *joins])
    more = -(-(width + 1) // MAX_PREDECESSORS)
    compiled = compile_graph(source, "AICORE", 1)
    tags = compiled.tasks["user_tag"]
    real = tags != HELPER_TAG
    assert int((~real).sum()) == helpers + (more if more > 1 else 0)
    assert tags[real].tolist() == source.ids.tolist()
    build_program(source, "AICORE", 1).verify()
    ends = np.cumsum(compiled.tasks["edge_count"].astype(np.int64))
    before = [
        set(compiled.edges[end - count : end].tolist())
        for end, count in zip(ends, compiled.tasks["edge_count"].astype(int), strict=True)
    ]

    def behind(task):
        found = set()
        for edge in before[task]:
            found |= {int(tags[edge])} if real[edge] else behind(edge)
        return found

    places = np.flatnonzero(real)
    for task, place in enumerate(places.tolist()):
        start, end = source.starts[task], source.starts[task + 1]
        assert behind(place) == set(source.predecessors[start:end].tolist())


def test_helpers_of_helpers(monkeypatch):
    monkeypatch.setattr("tsemu.runtime.program_build.MAX_PREDECESSORS", 3)
    width = 40
    lines = [f"{task} 1 0" for task in range(width)]
    lines.append(f"{width} 1 {width} {' '.join(map(str, range(width)))}")
    compiled = compile_graph(graph([str(width + 1), *lines]), "AICORE", 1)
    assert int(compiled.tasks["edge_count"].max()) <= 3
    program = Program.from_arrays(compiled.tasks, compiled.edges, **compiled.tables)
    program.verify()
    assert program.edge_count == len(compiled.tasks) - 1  # a tree with one root
