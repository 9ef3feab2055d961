"""Events: timelines recorded and waited for, on the device and on the host."""

import pytest

from tsemu.host_driver import (
    BusyError,
    ClosedError,
    DependencyAbortedError,
    DeviceTimeoutError,
    InvalidError,
    TaskCancelledError,
    TaskTimeoutError,
)


def test_a_wait_orders_tasks_across_streams(device):
    one, two = device.create_stream(), device.create_stream()
    event = device.event()
    a = one.launch(cycles=100_000)
    one.record(event)
    two.wait(event)
    b = two.launch(cycles=100)
    b.wait()
    assert b.start_ps >= a.end_ps


def test_recording_again_never_moves_an_earlier_wait(device):
    one, two = device.create_stream(), device.create_stream()
    event = device.event()
    first = one.record(event)
    wait = two.wait(event)
    one.launch(cycles=1_000_000)
    second = one.record(event)
    wait.wait()
    assert wait.end_ps == first.wait().end_ps
    assert second.wait().end_ps > first.end_ps


def test_a_wait_before_the_first_record_is_for_the_first(device):
    one, two = device.create_stream(), device.create_stream()
    event = device.event()
    wait = two.wait(event)
    a = one.launch(cycles=1000)
    record = one.record(event)
    wait.wait()
    assert wait.end_ps == record.wait().end_ps >= a.end_ps


def test_the_host_waits_too(device):
    stream = device.create_stream()
    event = device.event()
    a = stream.launch(cycles=1000)
    stream.record(event)
    assert not event.query()
    event.wait()
    assert event.query()
    assert a.ok


def test_an_event_never_recorded_times_out_on_the_host(device):
    event = device.event()
    before = device.context.now_ps
    with pytest.raises(DeviceTimeoutError) as caught:
        event.wait("5us")
    assert caught.value.value == event.number
    assert device.context.now_ps - before == 5_000_000


def test_a_failed_record_poisons_its_value(device):
    one, two = device.create_stream(), device.create_stream()
    event = device.event()
    bad = one.launch(cycles=1_000_000_000, timeout="1us")
    one.record(event)
    wait = two.wait(event)
    with pytest.raises(DependencyAbortedError) as caught:
        wait.wait()
    assert caught.value.ancestor == bad.ticket
    with pytest.raises(DependencyAbortedError):
        event.wait()
    with pytest.raises(TaskTimeoutError):
        one.synchronize()


def test_reset_cancels_waits_for_values_not_submitted(device):
    one, two = device.create_stream(), device.create_stream()
    event = device.event()
    wait = two.wait(event)
    one.reset(event).wait()
    with pytest.raises(TaskCancelledError):
        wait.wait()


def test_reset_cancels_waits_whose_edges_are_open(device):
    one, two = device.create_stream(), device.create_stream()
    event = device.event()
    two.launch(cycles=100_000)
    wait = two.wait(event)  # admitted, but behind a task that runs
    reset = one.reset(event)
    later = device.create_stream().wait(event)  # launched after the reset: not its business
    with pytest.raises(TaskCancelledError):
        wait.wait()
    assert wait.end_ps >= reset.end_ps
    one.record(event).wait()
    later.wait()


def test_an_event_with_waiters_is_not_destroyed(device):
    stream = device.create_stream()
    event = device.event()
    wait = stream.wait(event)
    with pytest.raises(BusyError) as caught:
        event.close()
    assert caught.value.task == wait.ticket
    device.default_stream.record(event)
    wait.wait()
    event.close()
    event.close()
    for call in (event.query, event.wait, lambda: stream.record(event), lambda: stream.wait(event)):
        with pytest.raises(ClosedError):
            call()


def test_an_event_of_another_context_is_refused(device):
    with device.create_context("other") as other:
        event = other.event()
        with pytest.raises(InvalidError) as caught:
            device.default_stream.record(event)
        assert caught.value.field == "event"


def test_leaving_the_block_closes_the_event(device):
    with device.event() as event:
        device.default_stream.record(event).wait()
    with pytest.raises(ClosedError):
        event.query()
