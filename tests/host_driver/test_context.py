"""Contexts: threads, kernels, counters, synchronisation."""

import threading

import numpy as np
import pytest

from tsemu.host_driver import DeviceTimeoutError, InvalidError, TaskTimeoutError, launches


def test_several_threads_launch_and_wait(either):
    stream = either.create_stream(in_order=False)
    results = {}

    def work(number):
        task = None
        for i in range(500):
            task = stream.launch(cycles=100 + i % 13, after=[task] if task else ())
            if i % 50 == 0:
                task.wait()
        results[number] = task.wait()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert either.context.counters()["submitted"] == 2000
    either.synchronize()
    assert either.context.counters()["consumed"] == 2000


def test_a_thread_blocked_at_its_stream_limit_stops_nobody_else(small):
    slow, fast = small.create_stream(), small.create_stream()
    launched = threading.Event()

    def flood():
        for _ in range(4):
            slow.launch(cycles=10_000_000)
        launched.set()
        for _ in range(8):
            slow.launch(cycles=10_000_000)

    thread = threading.Thread(target=flood)
    thread.start()
    launched.wait()
    for _ in range(100):
        fast.launch(cycles=100).wait()
    thread.join()
    small.synchronize()


def test_kernel_names_are_numbered_in_order_of_first_use(device, stream):
    context = device.context
    assert [context.kernel(name) for name in ("a", "b", "a", "c")] == [0, 1, 0, 2]
    assert stream.launch("b", cycles=1).wait().ok
    assert context.kernel(5) == 5
    with pytest.raises(InvalidError, match="kernel"):
        stream.launch(3.5, cycles=1)
    for i in range(3, 1 << 16):
        context.kernel(f"k{i}")
    with pytest.raises(InvalidError, match="65536"):
        context.kernel("one too many")


def test_synchronize_waits_for_all_streams_and_raises_the_first_failure(device):
    one, two = device.create_stream(), device.create_stream()
    fine = one.launch(cycles=1_000_000)
    bad = two.launch(cycles=1_000_000_000, timeout="1us")
    with pytest.raises(DeviceTimeoutError):
        device.synchronize("500ns")
    with pytest.raises(TaskTimeoutError) as caught:
        device.synchronize()
    assert caught.value.task == bad.ticket
    assert caught.value.stream == two.number
    assert fine.ok
    one.synchronize()
    two.recover()
    device.synchronize()


def test_an_empty_context_synchronizes_at_once(device):
    device.synchronize()
    device.synchronize("1us")
    device.default_stream.synchronize()
    assert device.context.now_ps == 0


def test_times_of_waits_are_checked(device, stream):
    task = stream.launch(cycles=1)
    for bad in (-1, "soon", 1.5):
        for call in (device.synchronize, stream.synchronize, task.wait):
            with pytest.raises(InvalidError) as caught:
                call(bad)
            assert caught.value.field == "timeout"
    task.wait()


def test_the_context_is_a_context_manager(device):
    with device.create_context("inner") as inner:
        assert inner.is_open
        assert "inner" in repr(inner)
    assert not inner.is_open
    assert "closed" in repr(inner)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda device: device.default_stream.record(None), "event"),
        (lambda device: device.default_stream.wait(3), "event"),
        (lambda device: device.default_stream.reset("e"), "event"),
        (lambda device: device.default_stream.launch(cycles=1, blocks=np.array([1, 2])), "blocks"),
        (lambda device: device.run_program("graph.tsp"), "work"),
        (lambda device: device.completions("many"), "capacity"),
        (lambda device: device.completions(-1), "capacity"),
        (lambda device: device.alloc(4, dtype="nonsense"), "dtype"),
        (lambda device: device.alloc(4).write("text"), "data"),
        (lambda device: device.alloc(4).write(-1), "data"),
        (lambda _: launches(-1), "count"),
        (lambda _: launches(None), "count"),
        (lambda _: launches(2, cycles=-1), "cycles"),
        (lambda _: launches(2, cycles=[1, 2, 3]), "cycles"),
    ],
)
def test_arguments_of_a_wrong_type_are_named(device, call, field):
    with pytest.raises(InvalidError) as caught:
        call(device)
    assert caught.value.field == field
    assert caught.value.hint


@pytest.mark.parametrize("block", [None, 0, False, [], np.False_])
def test_whether_to_block_is_what_is_true_in_python(small, block):
    assert small.default_stream.nop(block=block).wait().ok
    assert small.submit_batch(launches(2, cycles=1), block=block).wait().ok
