"""What the device answers in corner cases that a specification has to name."""

import itertools

import numpy as np
import pytest

from tsemu.host_driver import (
    BusyError,
    DependencyAbortedError,
    DeviceTimeoutError,
    EventTimeoutError,
    InvalidError,
    NoResourceError,
    TaskTimeoutError,
)

LIMIT_PS = 10**9
"""Limit of waits in scenarios that run into it: 1 ms."""


def fill_behind_a_wait(device):
    """Launch tasks that wait for an event that nobody records, until one cannot be launched."""
    event = device.event()
    wait = device.create_stream(in_order=False).wait(event)
    for _ in range(2 * device.context.info.slots):
        device.create_stream(in_order=False).launch(cycles=10, after=[wait])
    raise AssertionError("all of them were launched")


def test_a_window_full_behind_an_event_is_named(open_device):
    device = open_device(slots=16, window=4)
    with pytest.raises(NoResourceError) as caught:
        fill_behind_a_wait(device)
    assert caught.value.field == "window"
    assert caught.value.task == 1
    assert "event 0" in str(caught.value)
    assert "window" in caught.value.hint
    assert device.context.now_ps == 0  # no need to run into any limit


def test_a_window_full_behind_an_event_after_a_look(open_device):
    """More entries behind one that is stuck are no reason to look at it again."""
    device = open_device(slots=16, window=4)
    wait = device.default_stream.wait(device.event())
    streams = [device.create_stream(in_order=False) for _ in range(16)]
    for stream in streams[:6]:
        stream.launch(cycles=10, after=[wait])
    with pytest.raises(DeviceTimeoutError):
        device.synchronize("1us")
    for stream in streams[6:-1]:
        stream.launch(cycles=10, after=[wait])
    with pytest.raises(NoResourceError):
        streams[-1].launch(cycles=10, after=[wait])


def test_an_event_with_waiters_is_not_destroyed(open_device):
    device = open_device()
    event = device.event()
    first = device.default_stream.launch(cycles=10)
    waiter = device.default_stream.wait(event, after=[first])
    with pytest.raises(BusyError) as caught:
        event.close()
    assert caught.value.task == waiter.ticket
    device.create_stream().record(event)
    waiter.wait()
    event.close()


@pytest.mark.parametrize("size", [0])
def test_a_copy_of_nothing_succeeds_and_moves_nothing(open_device, size):
    device = open_device()
    source, target = device.alloc(64), device.alloc(64)
    source.array[:] = 1
    target.array[:] = 2
    stream = device.create_stream()
    copy = stream.memcpy(target, source, size)
    fill = stream.memset(target, 3, size)
    device.synchronize()
    assert copy.ok
    assert fill.ok
    assert np.all(target.array == 2)


def test_no_blocks_are_refused_before_anything_happens(open_device):
    device = open_device()
    with pytest.raises(InvalidError) as caught:
        device.default_stream.launch(cycles=10, blocks=0)
    assert caught.value.field == "blocks"
    assert device.context.counters()["submitted"] == 0
    assert device.default_stream.launch(cycles=10).wait().ticket == 1


def test_an_edge_named_twice_counts_once(open_device):
    device = open_device({"limits.edge_nodes": 1})
    first = device.default_stream.launch(cycles=10)
    second = device.default_stream.launch(cycles=10, after=[first] * 5)
    assert second.wait().start_ps == first.end_ps


def test_a_predecessor_that_has_succeeded_long_ago_is_satisfied(open_device):
    device = open_device(slots=8, window=4)
    first = device.default_stream.launch(cycles=10).wait()
    for _ in range(20):
        device.default_stream.launch(cycles=10).wait()
    now = device.context.now_ps
    assert device.default_stream.launch(cycles=10, after=[first]).wait().start_ps == now


@pytest.mark.parametrize("known", [True, False], ids=["known", "not known to the driver"])
def test_a_predecessor_that_has_failed_aborts_at_once(open_device, known):
    device = open_device()
    stream = device.default_stream
    failed = stream.launch(cycles=5000, timeout="1us")
    busy = stream.launch(cycles=100_000)
    if known:
        with pytest.raises(TaskTimeoutError):
            failed.wait()
    aborted = stream.launch(cycles=10, after=[busy, failed])
    with pytest.raises(DependencyAbortedError):
        aborted.wait()
    assert aborted.ancestor == failed.ticket
    assert aborted.end_ps == failed.end_ps == 10**6
    assert busy.wait().end_ps == 10**8


def test_waiting_for_an_event_that_is_never_recorded_ends_by_the_limit(open_device):
    device = open_device({"limits.wait_ms": LIMIT_PS // 10**9})
    event = device.event()
    stream = device.create_stream()
    wait = stream.wait(event)
    after = stream.launch(cycles=10)
    with pytest.raises(EventTimeoutError):
        wait.wait()
    assert (wait.start_ps, wait.end_ps) == (0, LIMIT_PS)
    with pytest.raises(DependencyAbortedError):
        after.wait()
    with pytest.raises(DeviceTimeoutError):
        event.wait()
    assert device.context.now_ps == 2 * LIMIT_PS


def test_closing_with_work_in_flight_returns(open_device):
    device = open_device(slots=64, window=32)
    context = device.create_context("other")
    event = context.event()
    tasks = [context.create_stream().wait(event)]
    tasks += [context.create_stream().launch(cycles=2**32 - 1, blocks=3) for _ in range(8)]
    with pytest.raises(DeviceTimeoutError):
        tasks[1].wait("1us")
    tasks += [context.create_stream().launch(cycles=10, after=tasks) for _ in range(4)]
    context.close()
    context.close()
    assert device.default_stream.launch(cycles=10, engine="aicpu").wait().ok
    for number in itertools.count():
        if len(device.info()["status"]["contexts"]) == 1:
            break
        assert number < 100
        device.default_stream.launch(cycles=2**32 - 1, engine="aicpu").wait()
