"""Busy time per core, in totals and bins, against a count by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsemu.descriptors.codes import Status
from tsemu.runtime.completion_log import CQE_DTYPE
from tsemu.runtime.occupancy import BINS, KEPT_BLOCKS, NO_CORE, Occupancy


def completions(rows):
    array = np.zeros(len(rows), CQE_DTYPE)
    for place, (core, start, end) in enumerate(rows):
        array[place]["core"], array[place]["start_ps"], array[place]["end_ps"] = core, start, end
        array[place]["user_tag"] = place
    return array


def test_totals():
    found = Occupancy(2)
    found.add(
        completions([(NO_CORE, 5, 5), (0, 5, 15), (1, 5, 25), (0, 15, 25), (NO_CORE, 25, 25)])
    )
    assert (found.tasks, found.tasks_on_cores, found.failed) == (5, 3, 0)
    assert (found.makespan_ps, found.serial_ps) == (20, 40)
    assert found.busy_ps.tolist() == [20, 20]
    assert found.core_blocks.tolist() == [2, 1]
    assert found.blocks == [(0, 5, 15, 1), (1, 5, 25, 2), (0, 15, 25, 3)]


def test_failures_are_counted_by_name():
    array = completions([(0, 0, 1), (0, 1, 2), (0, 2, 3)])
    array["status"] = [Status.OK, Status.TIMEOUT, 4711]
    found = Occupancy(1)
    found.add(array)
    assert found.statuses == {"OK": 1, "TIMEOUT": 1, "STATUS_4711": 1}
    assert found.failed == 2


def test_core_that_does_not_exist():
    with pytest.raises(ValueError, match="core 2 in a completion, of 2 cores"):
        Occupancy(2).add(completions([(2, 0, 1)]))


def test_nothing_ran():
    found = Occupancy(2)
    found.add(completions([]))
    assert found.timeline(4).tolist() == [[0] * 4] * 2
    assert (found.makespan_ps, found.serial_ps) == (0, 0)


def test_timeline_of_two_cores():
    found = Occupancy(2)
    found.add(completions([(0, 100, 150), (1, 150, 200)]))
    assert found.timeline(4).tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]


def test_many_tasks_are_no_longer_kept_one_by_one():
    found = Occupancy(1)
    found.add(completions([(0, i, i + 1) for i in range(KEPT_BLOCKS + 1)]))
    assert found.blocks is None


def test_task_that_started_before_all_others_and_ended_last():
    found = Occupancy(2)
    found.add(completions([(1, 10**9, 10**9 + 10)]))
    found.add(completions([(0, 0, 2 * 10**9)]))
    assert np.allclose(found.timeline(2)[0], 1)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 50_000), st.integers(0, 5_000)), min_size=1
    ),
    st.integers(1, 5),
)
def test_no_time_is_lost_in_bins_however_the_completions_arrive(draws, step):
    rows, clock = [], [0, 0, 0]
    for core, gap, duration in draws:
        start = clock[core] + gap
        clock[core] = start + duration
        rows.append((core, start, clock[core]))
    rows.sort(key=lambda row: row[2])
    found = Occupancy(3)
    for first in range(0, len(rows), step):
        found.add(completions(rows[first : first + step]))
    busy = [sum(end - start for core, start, end in rows if core == c) for c in range(3)]
    assert found.busy_ps.tolist() == busy
    assert found._binned().sum(axis=1).tolist() == busy
    if found.makespan_ps:
        shares = found.timeline(BINS // 4).mean(axis=1)
        assert np.allclose(shares * found.makespan_ps, busy, rtol=1e-6, atol=1e-6)
