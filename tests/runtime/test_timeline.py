"""Timelines: task by task for small graphs, shares of busy time for large ones."""

import numpy as np

from tsemu.runtime.completion_log import CQE_DTYPE
from tsemu.runtime.occupancy import Occupancy
from tsemu.runtime.tsctl.timeline import Canvas, axis_lines, busy_lines, task_by_task, task_lines


def occupancy(cores, rows):
    array = np.zeros(len(rows), CQE_DTYPE)
    for place, (core, start, end, tag) in enumerate(rows):
        array[place]["core"], array[place]["user_tag"] = core, tag
        array[place]["start_ps"], array[place]["end_ps"] = start, end
    found = Occupancy(cores)
    found.add(array)
    return found


SMALL = [(0, 100, 150, 1), (1, 150, 200, 22), (0, 160, 200, 333)]


def test_tasks_are_drawn_with_their_ids():
    lines = task_lines(occupancy(2, SMALL), Canvas(20, colour=False, unicode=True))
    assert [line.plain for line in lines] == ["│1────────  │333────", "          │22───────"]


def test_plain_ascii():
    lines = task_lines(occupancy(2, SMALL), Canvas(20, colour=False, unicode=False))
    assert lines[0].plain == "|1--------  |333----"


def test_colours_tell_neighbours_apart_and_ids_stand_in_the_middle():
    lines = task_lines(occupancy(2, SMALL), Canvas(20, colour=True, unicode=True))
    assert lines[0].plain == "    1         333   "
    assert len({str(span.style) for span in lines[0].spans}) == 2


def test_task_too_short_for_a_column_is_left_out_and_nothing_moves():
    rows = [(0, 0, 1, 1), (0, 1, 2, 2), (0, 2, 1000, 3)]
    (line,) = task_lines(occupancy(1, rows), Canvas(10, colour=False, unicode=True))
    assert line.plain == "│3────────"


def test_many_short_tasks_are_not_drawn_one_by_one():
    canvas = Canvas(20, colour=False, unicode=True)
    assert task_by_task(occupancy(2, SMALL), canvas)
    assert not task_by_task(occupancy(1, [(0, i, i + 1, i) for i in range(100)]), canvas)
    assert not task_by_task(occupancy(1, [(0, i, i + 1, i) for i in range(1000)]), canvas)
    assert not task_by_task(Occupancy(1), canvas)


def test_busy_share_per_column_and_group():
    found = occupancy(3, [(0, 0, 400, 1), (1, 0, 100, 2), (2, 398, 400, 3)])
    canvas = Canvas(4, colour=False, unicode=True)
    rows = busy_lines(found, canvas, [range(1), range(2), range(2, 3)])
    assert [row.plain for row in rows] == ["████", "█▄▄▄", "   ▁"]
    flight = busy_lines(found, canvas, [range(1, 3)], in_flight=True)
    assert flight[0].plain == "█  ▁"
    ascii_rows = busy_lines(found, Canvas(4, colour=False, unicode=False), [range(1)])
    assert ascii_rows[0].plain == "%%%%"


def test_axis_has_ends_and_quarters():
    ruler, labels = axis_lines(80_000_000, Canvas(60, colour=False, unicode=True))
    assert ruler.plain.count("┼") == 3
    assert ruler.plain[0] == "├"
    assert ruler.plain[-1] == "┤"
    assert labels.plain.split("  ")[0] == "0"
    assert labels.plain.endswith("80.00 us")
    assert "40.00 us" in labels.plain
    assert len(ruler) == len(labels) == 60


def test_narrow_axis_has_fewer_labels():
    ruler, _ = axis_lines(80_000_000, Canvas(30, colour=False, unicode=False))
    assert ruler.plain.count("+") == 1
