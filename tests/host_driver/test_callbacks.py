"""Callbacks: inside waits, in completion order; they may launch, not wait."""

import pytest

from tsemu.descriptors.codes import Status
from tsemu.host_driver import (
    Device,
    DeviceLostError,
    DeviceTimeoutError,
    InCallbackError,
    QueueFullError,
    TaskResetError,
    callbacks,
    launches,
)


def test_callbacks_run_inside_waits_in_completion_order(device, stream):
    order = []
    for cycles in (3000, 1000, 2000):
        task = stream.launch(cycles=cycles)
        task.add_done_callback(lambda task, cycles=cycles: order.append((cycles, task.ok)))
    assert order == []
    device.synchronize()
    # two cores: the third task starts when the second has ended, and ends with the first
    assert next(cycles for cycles, _ in order) == 1000
    assert all(ok for _, ok in order)
    assert sorted(cycles for cycles, _ in order) == [1000, 2000, 3000]


def test_a_callback_may_launch_and_the_time_stands_meanwhile(device, stream):
    launched = []

    def follow(task):
        if len(launched) < 5:
            launched.append(stream.launch(cycles=1000, after=[task]))
            launched[-1].add_done_callback(follow)

    first = stream.launch(cycles=1000)
    first.add_done_callback(follow)
    device.synchronize()
    while not all(task.done() for task in launched) or len(launched) < 5:
        device.synchronize()
    before = first
    for task in launched:
        assert task.start_ps == before.end_ps
        before = task


def test_a_callback_may_not_wait(device, stream):
    refused = []
    other = stream.launch(cycles=1_000_000)

    def wait(task):
        for call in (other.wait, other.done, device.synchronize, device.create_stream):
            with pytest.raises(InCallbackError):
                call()
            refused.append(task)

    stream.launch(cycles=1).add_done_callback(wait)
    device.synchronize()
    assert len(refused) == 4
    assert other.ok


def test_a_callback_of_a_task_known_to_have_ended_runs_at_once(stream):
    task = stream.launch(cycles=1).wait()
    seen = []
    task.add_done_callback(seen.append)
    assert seen == [task]


def test_several_callbacks_of_one_task(device, stream):
    seen = []
    task = stream.launch(cycles=1)
    for name in "abc":
        task.add_done_callback(lambda _, name=name: seen.append(name))
    device.synchronize()
    assert seen == ["a", "b", "c"]


def test_one_exception_of_a_callback_is_raised_by_the_wait(device, stream):
    task = stream.launch(cycles=1)
    task.add_done_callback(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        device.synchronize()
    device.synchronize()
    assert task.ok


def test_several_exceptions_are_a_group(device, stream):
    task = stream.launch(cycles=1)
    task.add_done_callback(lambda _: 1 / 0)
    task.add_done_callback(lambda _: {}[1])
    with pytest.raises(ExceptionGroup) as caught:
        device.synchronize()
    assert [type(each) for each in caught.value.exceptions] == [ZeroDivisionError, KeyError]


def test_the_waits_own_error_names_those_of_callbacks(device, stream):
    stream.launch(cycles=1).add_done_callback(lambda _: 1 / 0)
    slow = stream.launch(cycles=1_000_000_000)
    with pytest.raises(DeviceTimeoutError) as caught:
        slow.wait("10us")
    assert "ZeroDivisionError" in caught.value.__notes__[0]
    assert isinstance(caught.value.__context__, ZeroDivisionError)


def test_a_launch_in_a_callback_never_blocks(small):
    stream = small.create_stream(in_order=False)
    results = []

    def flood(_):
        for _ in range(100):
            results.append(stream.launch(cycles=1))  # noqa: PERF401 - what was launched counts

    stream.launch(cycles=1).add_done_callback(flood)
    with pytest.raises(QueueFullError):
        small.synchronize()
    assert 8 <= len(results) < 100
    small.synchronize()
    assert all(task.ok for task in results)


def test_handles_may_be_dropped_by_the_caller(device, stream):
    seen = []
    for _ in range(3000):
        stream.launch(cycles=10).add_done_callback(seen.append)
    device.synchronize()
    assert len(seen) == 3000
    assert [task.order for task in seen] == list(range(3000))


@pytest.mark.parametrize("call", ["wait", "synchronize", "launch", "control", "batch"])
def test_callbacks_of_tasks_that_a_lost_device_has_ended_run_before_the_error(serve, call):
    server = serve("--clock", "paced:0.000001")
    seen = []
    with Device.open(server.address) as device:
        stream = device.create_stream(in_order=False)
        batch = device.submit_batch(launches(2, cycles=1_000_000_000))
        tasks = [stream.launch(cycles=1_000_000_000) for _ in range(3)]
        for task in tasks:
            task.add_done_callback(seen.append)

        def launch_again(_):  # in a callback, too, the error is the device's
            with pytest.raises(DeviceLostError):
                stream.launch(cycles=1)

        tasks[0].add_done_callback(launch_again)
        server.process.kill()
        server.process.wait()
        calls = {
            "wait": tasks[0].wait,
            "synchronize": device.synchronize,
            "launch": lambda: launch_until_it_raises(stream),
            "control": device.event,
            "batch": batch.wait,
        }
        with pytest.raises((DeviceLostError, TaskResetError)):
            calls[call]()
        assert seen == tasks
        assert {task.status for task in tasks} == {Status.RESET}


def launch_until_it_raises(stream):
    while True:
        stream.launch(cycles=1)


def test_a_callback_that_exits_loses_no_other_callback(device, stream):
    seen = []

    def leave(_):
        raise SystemExit(3)

    first, second = stream.launch(cycles=1), stream.launch(cycles=1000)
    for task in (first, second):
        task.add_done_callback(seen.append)
    first.add_done_callback(leave)
    first.add_done_callback(seen.append)
    with pytest.raises(SystemExit):
        device.synchronize()
    assert seen == [first]
    device.synchronize()
    assert seen == [first, first, second]


@pytest.mark.parametrize("name", ["handle_watch", "handle_take_callback", "handle_in_callback"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_ctrl_c_when_the_library_returns_loses_no_callback(device, stream, monkeypatch, name, call):
    library = InterruptedOnce(callbacks.lib, name, call)
    monkeypatch.setattr(callbacks, "lib", library)
    seen = []
    first, second = stream.launch(cycles=1), stream.launch(cycles=1000)
    for task in (first, second):
        until_not_interrupted(lambda task=task: task.add_done_callback(seen.append))
    until_not_interrupted(device.synchronize)
    device.synchronize()
    assert seen == [first, second]


class InterruptedOnce:
    """The library, but Ctrl-C is noticed when one call of one function returns."""

    def __init__(self, library, name, call):
        self._library = library
        self._name = name
        self._left = call

    def __getattr__(self, name):
        function = getattr(self._library, name)
        if name != self._name:
            return function

        def interrupted(*arguments):
            result = function(*arguments)
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
            return result

        return interrupted


def until_not_interrupted(function):
    while True:
        try:
            return function()
        except KeyboardInterrupt:
            continue
