"""Handles: waiting, polling, what they tell, and their memory."""

import gc
import weakref

import pytest

from tsemu.descriptors.codes import Status
from tsemu.host_driver import (
    BusyError,
    ClosedError,
    Device,
    DeviceTimeoutError,
    TaskCancelledError,
)
from tsemu.host_driver.task import SLAB_TASKS


def test_a_polling_loop_ends(stream):
    task = stream.launch(cycles=100_000)
    polls = 0
    while not task.done():
        polls += 1
    assert task.ok
    assert polls > 0


def test_a_poll_costs_the_poll_time(device, stream):
    task = stream.launch(cycles=10_000_000)
    assert not task.done()
    first = device.context.now_ps
    assert not task.done()
    assert device.context.now_ps - first == device.context.info.poll_cost_ps


def test_state_is_what_the_driver_has_consumed(stream):
    task = stream.launch(cycles=1)
    assert task.status is None
    assert not task.ok
    assert "pending" in repr(task)
    for name in ("start_ps", "end_ps", "core", "ancestor", "order"):
        with pytest.raises(BusyError, match="wait for it first"):
            getattr(task, name)
    task.wait()
    assert task.status is Status.OK
    assert "OK" in repr(task)
    assert task.exception() is None


def test_wait_returns_the_task_and_may_be_repeated(stream):
    task = stream.launch(cycles=1)
    assert task.wait() is task.wait("1ps") is task


def test_a_deadline_is_in_device_time(device, stream):
    task = stream.launch(cycles=1_000_000_000)
    before = device.context.now_ps
    with pytest.raises(DeviceTimeoutError) as caught:
        task.wait("3us")
    assert caught.value.task == task.ticket
    assert device.context.now_ps - before == 3_000_000
    assert task.status is None
    assert task.wait().ok


def test_cancel(stream):
    first = stream.launch(cycles=1_000_000, blocks=2)
    queued = stream.launch(cycles=1, after=[first])
    assert queued.cancel()
    with pytest.raises(TaskCancelledError):
        queued.wait()
    assert first.wait().ok
    assert not first.cancel()


def test_dropped_handles_of_pending_tasks_are_no_harm(device, stream):
    for _ in range(3 * SLAB_TASKS):
        stream.launch(cycles=1000)
    gc.collect()
    device.synchronize()
    assert stream.outstanding == 0


def test_slabs_of_ended_tasks_are_given_back(device, stream):
    slabs = weakref.WeakSet()
    for _ in range(8):
        tasks = [stream.launch(cycles=1) for _ in range(SLAB_TASKS)]
        slabs.update(task.slab for task in tasks)
        device.synchronize()
    del tasks
    stream.launch(cycles=1)
    gc.collect()
    assert len(slabs) <= 3


def test_refused_launches_use_up_no_memory_for_good(device, stream):
    slabs = weakref.WeakSet()
    for _ in range(5 * SLAB_TASKS):
        try:
            stream.launch(cycles=1, blocks=0)
        except ValueError:
            slabs.add(device.context.tasks.current)
    gc.collect()
    assert len(slabs) <= 2


def test_results_stay_readable_after_close():
    with Device.open("emu:edge-2") as device:
        task = device.default_stream.launch(cycles=1000).wait()
        late = device.default_stream.launch(cycles=1_000_000)
    assert task.end_ps > task.start_ps
    with pytest.raises((ClosedError, TaskCancelledError)):
        late.wait()
