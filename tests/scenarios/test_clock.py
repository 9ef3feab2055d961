"""What the comparison with the clock's model has found, as programs of a few lines."""

import numpy as np
import pytest

from tsemu.descriptors.codes import Opcode
from tsemu.host_driver import (
    DependencyAbortedError,
    DeviceTimeoutError,
    TaskCancelledError,
    TaskTimeoutError,
    launches,
)

NS = 1000


def test_recover_while_the_last_task_is_going_to_fail(open_device):
    device = open_device()
    stream = device.create_stream()
    first = stream.launch(cycles=10)
    second = stream.launch(cycles=10)
    assert first.cancel()  # it has not ended yet: the clock stands
    stream.recover()
    third = stream.launch(cycles=10)
    assert third.wait().end_ps == 10 * NS
    with pytest.raises(DependencyAbortedError):
        second.wait()


def test_recover_keeps_the_order_of_what_runs(open_device):
    device = open_device()
    stream = device.create_stream()
    first = stream.launch(cycles=100)
    with pytest.raises(DeviceTimeoutError):
        first.wait(10 * NS)
    stream.recover()
    assert stream.launch(cycles=10).wait().start_ps == 100 * NS


@pytest.mark.parametrize("slots", [4, 64])
def test_the_ancestor_does_not_depend_on_the_slots(open_device, slots):
    """A last task that recover has not forgotten fails first, then another predecessor."""
    device = open_device(slots=slots, window=2, stream_limit=2)
    stream, other = device.create_stream(), device.create_stream()
    last = stream.launch(cycles=5000, timeout="1us")
    with pytest.raises(DeviceTimeoutError):
        last.wait(10 * NS)
    stream.recover()
    fails = other.launch(cycles=5000, timeout="2us")
    with pytest.raises(TaskTimeoutError):
        fails.wait()
    aborted = stream.launch(cycles=10, after=[fails])
    with pytest.raises(DependencyAbortedError):
        aborted.wait()
    assert aborted.ancestor == last.ticket


def test_cancelling_reaches_a_task_without_a_core_that_has_not_ended(open_device):
    device = open_device()
    nothing = device.default_stream.nop()
    assert nothing.cancel()
    with pytest.raises(TaskCancelledError):
        nothing.wait()


def test_cancelling_what_runs_comes_too_late(open_device):
    device = open_device()
    task = device.default_stream.launch(cycles=100)
    with pytest.raises(DeviceTimeoutError):
        task.wait(10 * NS)
    assert not task.cancel()
    assert task.wait().ok


def test_a_task_s_limit_comes_before_a_wait_s_limit_of_the_same_tick(open_device):
    device = open_device()
    task = device.default_stream.launch(cycles=5000, timeout="1us")
    with pytest.raises(TaskTimeoutError):
        task.wait("1us")
    device.default_stream.recover()
    device.default_stream.launch(cycles=5000, timeout="1us")
    with pytest.raises(TaskTimeoutError):
        device.synchronize("1us")


def test_limits_of_one_tick_end_in_order_of_tickets(open_device):
    device = open_device()
    stream = device.default_stream
    first = stream.launch(cycles=5000, timeout="1us", engine="aicpu")
    second = stream.launch(cycles=5000, timeout="1us", engine="aicore")
    with pytest.raises(TaskTimeoutError):
        device.synchronize()
    assert (first.order, second.order) == (0, 1)


def test_an_event_wait_that_pends_at_the_very_start_has_started_then(open_device):
    device = open_device()
    event = device.event()
    wait = device.create_stream().wait(event)
    before = device.default_stream.launch(cycles=100)
    device.default_stream.record(event, after=[before])
    assert wait.wait().start_ps == 0
    assert wait.end_ps == 100 * NS


def test_a_failed_record_reaches_a_wait_whose_edges_are_open(open_device):
    """The record's slot holds another task by then."""
    device = open_device(slots=8, window=4, stream_limit=4)
    event = device.event()
    busy = device.default_stream.launch(cycles=1000)
    record = device.default_stream.record(event)
    wait = device.default_stream.wait(event, after=[busy])
    assert record.cancel()
    for _ in range(16):
        device.default_stream.launch(cycles=1).wait()
    with pytest.raises(DependencyAbortedError):
        wait.wait()
    assert wait.ancestor == record.ticket
    assert wait.end_ps == busy.wait().end_ps


def test_a_record_and_a_wait_that_end_at_one_instant(open_device):
    device = open_device()
    event = device.event()
    record = device.default_stream.record(event)
    wait = device.default_stream.wait(event)
    assert record.cancel()
    with pytest.raises(DependencyAbortedError):
        wait.wait()


@pytest.mark.parametrize("slots", [4, 64])
def test_a_wait_for_a_value_that_has_failed_aborts_at_once(open_device, slots):
    """Whether the driver knows of the failure (and submits it POISONED) or not."""
    device = open_device(slots=slots, window=2, stream_limit=2)
    event = device.event()
    stream = device.default_stream
    busy = stream.launch(cycles=100_000)
    failed = stream.launch(cycles=5000, timeout="1us")
    stream.record(event, after=[failed])
    wait = stream.wait(event, after=[busy])
    with pytest.raises(DependencyAbortedError):
        wait.wait()
    assert wait.ancestor == failed.ticket
    assert wait.end_ps == failed.end_ps < busy.wait().end_ps


def test_what_aborts_at_once_needs_no_edge_nodes(open_device):
    device = open_device({"limits.edge_nodes": 1})
    stream, others = device.create_stream(), device.default_stream
    with pytest.raises(TaskTimeoutError):
        stream.launch(cycles=5000, timeout="1us").wait()
    busy = [others.launch(cycles=100_000) for _ in range(2)]
    aborted = stream.launch(cycles=10, after=busy)
    with pytest.raises(DependencyAbortedError):
        aborted.wait()
    assert aborted.end_ps < busy[0].wait().end_ps


def test_a_deadline_stays_when_callbacks_answer_the_wait_early(open_device):
    device = open_device(slots=8, window=2, stream_limit=2)
    stream = device.default_stream
    launched = []

    def more(_task):
        launched.extend(stream.launch(cycles=10) for _ in range(2))

    busy = stream.launch(cycles=100_000)
    busy.add_done_callback(launched.append)
    stream.launch(cycles=1000).add_done_callback(more)
    with pytest.raises(DeviceTimeoutError):
        busy.wait("5us")
    assert device.context.now_ps == 5000 * NS
    assert [task.ok for task in launched] == [True, True]


def test_a_host_s_wait_for_an_event_that_a_batch_records(open_device):
    device = open_device()
    event = device.event()
    device.default_stream.record(event).wait()
    tasks = launches(2, cycles=1000)
    tasks["opcode"][1] = Opcode.EVENT_RECORD
    tasks["event"] = event.number
    batch = device.submit_batch(tasks, edges=(np.array([0, 0, 1]), np.array([0])))
    event.wait()
    assert batch.ok
    assert device.context.now_ps == 1000 * NS


def test_a_cancelled_task_does_not_cost_its_stream_a_turn(open_device):
    device = open_device({"classes.aicore.cores": 1})
    one, other = (device.create_stream(in_order=False) for _ in range(2))
    busy = device.default_stream.launch(cycles=1000)
    cancelled, kept = (one.launch(cycles=10) for _ in range(2))
    last = other.launch(cycles=10)
    with pytest.raises(DeviceTimeoutError):
        busy.wait(100 * NS)
    assert cancelled.cancel()
    with pytest.raises(TaskCancelledError):
        device.synchronize()
    assert (kept.start_ps, last.start_ps) == (1000 * NS, 1010 * NS)


def test_a_chain_behind_a_failed_task_is_recovered_at_once(open_device):
    device = open_device()
    stream = device.create_stream()
    failed = stream.launch(cycles=5000, timeout="1us")
    behind = [stream.launch(cycles=10) for _ in range(5)]
    with pytest.raises(TaskTimeoutError):
        failed.wait()
    stream.recover()
    assert stream.launch(cycles=10).wait().ok
    for task in behind:
        with pytest.raises(DependencyAbortedError):
            task.wait()
