"""What a run is reported with."""

import io
import json

import numpy as np
from rich.console import Console

from tsemu.descriptors.codes import Status
from tsemu.runtime.completion_log import CQE_DTYPE
from tsemu.runtime.occupancy import NO_CORE, Occupancy
from tsemu.runtime.tsctl.core_table import MAX_ROWS
from tsemu.runtime.tsctl.engines import EngineRow
from tsemu.runtime.tsctl.report import RunReport

CLASSES = (EngineRow("AICORE", 0, 2, 500), EngineRow("DMA", 2, 1, 250))

DEVICE = {
    "soc": "edge-2", "address": "emu:edge-2", "policy": "rank", "profile": "ideal",
    "clock_mode": "lockstep", "seed": 0,
}  # fmt: skip


def report(rows, classes=CLASSES, **changes):
    array = np.zeros(len(rows), CQE_DTYPE)
    for place, (core, start, end) in enumerate(rows):
        array[place]["core"], array[place]["user_tag"] = core, place
        array[place]["start_ps"], array[place]["end_ps"] = start, end
    found = Occupancy(sum(row.cores for row in classes))
    found.add(array)
    facts = {
        "graph": "g.stg", "kind": "stg", "device": DEVICE,
        "edges": 3, "helpers": 0, "occupancy": found, "classes": classes, "cycles_per_unit": 500,
        "wall_s": 0.5, "output": None,
    }  # fmt: skip
    return RunReport(**(facts | changes))


def printed(found, width=100):
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    found.show(console)
    return console.file.getvalue()


US = 1_000_000
DIAMOND = [(NO_CORE, 0, 0), (0, 0, 3 * US), (0, 3 * US, 8 * US), (1, 3 * US, 7 * US)]


def test_document_is_json_with_units_in_the_names():
    document = json.loads(json.dumps(report(DIAMOND).document()))
    assert document["tasks"] == 4
    assert document["tasks_on_cores"] == 3
    assert document["makespan_ps"] == 8 * US
    assert document["makespan_cycles"] == 4000
    assert document["makespan_units"] == 8
    assert document["serial_ps"] == 12 * US
    assert document["speedup_ratio"] == 1.5
    assert document["utilisation_ratio"] == 0.75
    assert document["wall_tasks_per_s"] == 8
    assert [core["busy_ps"] for core in document["cores"]] == [8 * US, 4 * US, 0]
    assert [core["engine_class"] for core in document["cores"]] == ["AICORE", "AICORE", "DMA"]


def test_units_are_a_fraction_when_they_have_to_be():
    assert report([(0, 0, 1500)], cycles_per_unit=500).makespan_units == 0.0015


def test_cycles_of_different_clocks_are_not_added_up():
    found = report([*DIAMOND, (2, 0, US)])
    assert (found.makespan_cycles, found.makespan_units) == (None, None)


def test_nothing_on_any_core():
    found = report([(NO_CORE, 5, 5)])
    document = found.document()
    assert (document["makespan_ps"], document["speedup_ratio"]) == (0, None)
    assert "timeline" not in printed(found)


def test_table_for_a_person():
    text = printed(report(DIAMOND, output="log.npy", helpers=1))
    assert "makespan     8.00 us  (4,000 cycles, 8 units of the graph)\n" in text
    assert "speed-up     1.50 over serial, on 2 cores\n" in text
    assert "1 more to join many predecessors" in text
    assert "completions  log.npy\n" in text
    assert "not used: 1 DMA\n" in text
    assert all(len(line) < 100 and line == line.rstrip() for line in text.splitlines())


def test_failures_are_named():
    found = report(DIAMOND)
    found.occupancy.statuses = {"OK": 1, Status.TIMEOUT.name: 1, Status.DEP_ABORTED.name: 2}
    assert "failed       3  (2 DEP_ABORTED, 1 TIMEOUT)\n" in printed(found)


def test_many_cores_are_drawn_in_groups():
    classes = (EngineRow("AICORE", 0, 1000, 1000),)
    text = printed(report([(core, 0, US) for core in range(1000)], classes))
    rows = [line for line in text.splitlines() if line.startswith("AICORE ")]
    assert len(rows) <= MAX_ROWS
    assert rows[0].startswith("AICORE 0-31 ")
    assert rows[-1].startswith("AICORE 992-999 ")
    assert sum(int(row.split()[4]) for row in rows) == 1000


def test_tasks_of_several_blocks_are_counted_by_the_device():
    found = report(DIAMOND)
    found.occupancy.use_counters([8 * US, 8 * US, 0], [30, 20, 0])
    text = printed(found)
    assert "speed-up     2.00 over serial, on 2 cores\n" in text
    assert "core             busy     blocks  timeline\n" in text
    assert "AICORE 0-1    100.0 %         50  ██████" in text
    assert "  AICORE 1    100.0 %         20\n" in text
    assert "for which a task of the class was running\n" in text
