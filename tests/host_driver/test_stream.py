"""Launching: order, arguments, limits, and what is refused."""

import itertools

import pytest

from tsemu.host_driver import (
    ClosedError,
    DependencyAbortedError,
    Device,
    DmaFaultError,
    InvalidError,
    NoResourceError,
    QueueFullError,
    TaskCancelledError,
    TaskTimeoutError,
    TsemuError,
)


def counters(device):
    return device.context.counters()["submitted"]


def test_a_diamond_runs_in_the_order_of_its_edges(stream):
    a = stream.launch("load", cycles=1000)
    b = stream.launch("gemm", cycles=5000, after=[a])
    c = stream.launch("gemm", cycles=3000, after=[a])
    d = stream.launch("store", cycles=1000, after=(b, c))
    d.wait()
    assert a.end_ps <= min(b.start_ps, c.start_ps)
    assert d.start_ps >= max(b.end_ps, c.end_ps)
    assert b.start_ps == c.start_ps
    assert {b.core, c.core} == {0, 1}
    assert [t.order for t in (a, c, b, d)] == [0, 1, 2, 3]
    assert all(t.ok for t in (a, b, c, d))


def test_an_in_order_stream_runs_one_after_the_other(device):
    stream = device.create_stream(in_order=True)
    tasks = [stream.launch(cycles=1000 - 100 * i) for i in range(8)]
    stream.synchronize()
    for first, second in itertools.pairwise(tasks):
        assert second.start_ps >= first.end_ps


def test_blocks_run_on_several_cores(stream):
    one = stream.launch(cycles=10_000, blocks=1)
    one.wait()
    two = stream.launch(cycles=10_000, blocks=2)
    two.wait()
    assert two.end_ps - two.start_ps == one.end_ps - one.start_ps


def test_many_predecessors_go_into_extensions(stream):
    tasks = [stream.launch(cycles=100 + i) for i in range(100)]
    last = stream.nop(after=tasks)
    last.wait()
    assert last.end_ps >= max(task.end_ps for task in tasks)


def test_duplicate_edges_count_once(stream):
    a = stream.launch(cycles=100)
    assert stream.launch(cycles=100, after=[a] * 900).wait().start_ps >= a.end_ps


def test_more_than_1024_predecessors_are_refused(device, stream):
    a = stream.launch(cycles=100)
    before = counters(device)
    with pytest.raises(InvalidError) as caught:
        stream.launch(cycles=100, after=[a] * 1025)
    assert (caught.value.field, caught.value.value, caught.value.limit) == ("after", 1025, 1024)
    assert "nop" in caught.value.hint
    assert counters(device) == before


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"cycles": -1}, "cycles"),
        ({"cycles": 1 << 32}, "cycles"),
        ({"cycles": "many"}, "cycles"),
        ({"cycles": 1.5}, "cycles"),
        ({"cycles": 1, "blocks": 0}, "blocks"),
        ({"cycles": 1, "blocks": 65536}, "blocks"),
        ({"cycles": 1, "bytes_read": -1}, "bytes_read"),
        ({"cycles": 1, "bytes_written": 1 << 32}, "bytes_written"),
        ({"cycles": 1, "kernel": 1 << 16}, "kernel"),
        ({"cycles": 1, "engine": "toaster"}, "engine"),
        ({"cycles": 1, "engine": "dma"}, "engine"),
        ({"cycles": 1, "priority": 8}, "priority"),
        ({"cycles": 1, "priority": -1}, "priority"),
        ({"cycles": 1, "timeout": "1ns"}, "timeout"),
        ({"cycles": 1, "value": 1 << 32}, "value"),
        ({"cycles": 1, "tag": 1 << 64}, "tag"),
        ({"cycles": 1, "after": [None]}, "after"),
        ({"cycles": 1, "after": 5}, "after"),
        ({"cycles": 1, "argument": 64}, "argument"),
        ({"cycles": 1, "argument": -64}, "argument"),
    ],
)
def test_a_refused_launch_names_the_field_and_changes_nothing(device, stream, arguments, field):
    first = stream.launch(cycles=1)
    before = counters(device)
    with pytest.raises(InvalidError) as caught:
        stream.launch(**arguments)
    assert field in caught.value.field or field in str(caught.value)
    assert caught.value.hint
    assert counters(device) == before
    assert stream.launch(cycles=1, after=[first]).wait().ok


def test_engine_errors_list_the_classes(stream):
    with pytest.raises(InvalidError, match="AICORE, AICPU, DMA"):
        stream.launch(cycles=1, engine="toaster")


def test_an_edge_to_a_task_of_another_device_is_refused(device, stream):
    with Device.open("emu:edge-2") as other:
        foreign = other.default_stream.launch(cycles=1)
        with pytest.raises(InvalidError) as caught:
            stream.launch(cycles=1, after=[foreign])
        assert "after" in caught.value.field
        foreign.wait()
        with pytest.raises(InvalidError):
            stream.launch(cycles=1, after=[foreign])
    with pytest.raises(InvalidError):
        stream.launch(cycles=1, after=[foreign])
    assert counters(device) == 0


def test_launch_after_close_is_refused():
    device = Device.open("emu:edge-2")
    context, stream = device.context, device.create_stream()
    task = stream.launch(cycles=1).wait()
    device.close()
    for call in (
        lambda: stream.launch(cycles=1),
        stream.nop,
        stream.synchronize,
        context.synchronize,
        device.create_stream,
    ):
        with pytest.raises(ClosedError):
            call()
    assert task.ok


def test_a_stream_at_its_limit_says_queue_full_when_asked_not_to_block(small):
    stream = small.create_stream()
    tasks = [stream.launch(cycles=1_000_000) for _ in range(4)]
    with pytest.raises(QueueFullError) as caught:
        stream.launch(cycles=1, block=False)
    assert caught.value.limit == 4
    assert caught.value.stream == stream.number
    other = small.create_stream()
    assert other.launch(cycles=1, block=False).wait().ok
    stream.launch(cycles=1)  # blocks until the stream holds half of its limit
    assert [task.ok for task in tasks] == [True, True, False, False]


def test_a_full_window_blocks_or_says_queue_full(small):
    streams = [small.create_stream() for _ in range(4)]
    for stream in streams:
        for _ in range(2):
            stream.launch(cycles=1_000_000)
    with pytest.raises(QueueFullError, match="window"):
        streams[0].launch(cycles=1, block=False)
    assert streams[0].launch(cycles=1).wait().ok
    small.synchronize()


def test_many_more_tasks_than_slots(small):
    streams = [small.create_stream() for _ in range(4)]
    tasks = [streams[i % 4].launch(cycles=100 + i % 7) for i in range(1000)]
    small.synchronize()
    assert all(task.ok for task in tasks)
    assert [t.order for t in sorted(tasks, key=lambda t: t.order)] == list(range(1000))


def test_a_window_full_behind_a_wait_without_record_is_no_resource(small):
    event = small.event()
    waiting = small.default_stream.wait(event)
    streams = [small.create_stream(in_order=False) for _ in range(5)]
    caught = None
    tasks = []
    while caught is None:
        try:
            tasks.append(streams[len(tasks) % 5].nop(after=[waiting]))
        except NoResourceError as error:
            caught = error
    assert len(tasks) == 15  # with the wait as many as there are slots
    assert "window" in str(caught)
    assert waiting.cancel()
    with pytest.raises(TaskCancelledError):
        waiting.wait()
    with pytest.raises(TaskCancelledError):
        small.synchronize()
    assert isinstance(tasks[-1].exception(), DependencyAbortedError)
    assert streams[0].launch(cycles=1).wait().ok


def test_a_stream_full_behind_a_wait_without_record_is_no_resource(small):
    event = small.event()
    stream = small.create_stream()
    stream.wait(event)
    for _ in range(3):
        stream.nop()
    with pytest.raises(NoResourceError) as caught:
        stream.nop()
    assert caught.value.stream == stream.number
    small.default_stream.record(event)
    assert stream.nop().wait().ok


def test_a_task_that_runs_too_long_ends_timeout_and_aborts_what_follows(stream):
    slow = stream.launch(cycles=1_000_000_000, timeout="1us")
    after = stream.launch(cycles=1, after=[slow])
    apart = stream.launch(cycles=1)
    with pytest.raises(TaskTimeoutError):
        slow.wait()
    with pytest.raises(DependencyAbortedError) as caught:
        after.wait()
    assert caught.value.ancestor == slow.ticket
    assert slow.end_ps - slow.start_ps == 1_000_000
    assert apart.wait().ok


def test_an_in_order_stream_goes_on_after_recover(device):
    stream = device.create_stream()
    bad = stream.launch(cycles=1_000_000_000, timeout="1us")
    lost = stream.launch(cycles=1)
    with pytest.raises(TaskTimeoutError) as caught:
        stream.synchronize()
    assert caught.value.task == bad.ticket
    with pytest.raises(DependencyAbortedError) as late:
        stream.launch(cycles=1).wait()
    assert late.value.ancestor == bad.ticket
    with pytest.raises(TaskTimeoutError):
        stream.synchronize()
    stream.recover()
    assert stream.launch(cycles=1).wait().ok
    stream.synchronize()
    assert isinstance(lost.exception(), DependencyAbortedError)


def test_an_edge_to_a_task_known_to_have_failed_aborts_at_once(stream):
    bad = stream.launch(cycles=1_000_000_000, timeout="1us")
    with pytest.raises(TaskTimeoutError):
        bad.wait()
    with pytest.raises(DependencyAbortedError) as caught:
        stream.launch(cycles=1, after=[bad]).wait()
    assert caught.value.ancestor == bad.ticket


def test_copies_and_fills_move_bytes(device, stream):
    with device.alloc(4096) as a, device.alloc(4096, where="device") as b, device.alloc(4096) as c:
        a.array[:] = 7
        c.array[:] = 1
        there = stream.memcpy(b, a)
        back = stream.memcpy(c, b, 2048, after=[there])
        back.wait()
        assert (c.array[:2048] == 7).all()
        assert (c.array[2048:] == 1).all()
        stream.memset(b, 0x5A).wait()
        assert (b.read() == 0x5A).all()
        assert stream.memcpy(b, a, 0).wait().ok
        assert (b.read() == 0x5A).all()
        stream.memset(a, b"\x01\x02", 100).wait()
        assert a.array[:102].tolist() == [1, 2] * 50 + [7, 7]


def test_kernels_need_a_class_that_runs_them(stream):
    with pytest.raises(InvalidError, match="runs copies only") as caught:
        stream.launch(cycles=1, engine="DMA")
    assert "AICORE, AICPU" in caught.value.hint


@pytest.mark.parametrize("engine", ["aicore", "toaster"])
def test_copies_need_a_class_that_moves_bytes(device, stream, engine):
    with device.alloc(64) as a, pytest.raises(InvalidError, match="engine"):
        stream.memset(a, 0, engine=engine)


def test_bad_addresses_are_refused(device, stream):
    page = device.context.info
    with device.alloc(4096) as a:
        for source, words in (
            (a.address + 1, "align"),
            (page.host_base - 64, "window|memory|heap|outside"),
            (page.host_base + page.host_heap_size - 64, "window|memory|heap|outside"),
            (2**64 - 64, "window|memory|heap|outside"),
        ):
            before = counters(device)
            with pytest.raises(InvalidError, match=words) as caught:
                stream.memcpy(a, source, 128)
            assert caught.value.hint
            assert counters(device) == before
        with pytest.raises(InvalidError) as caught:
            stream.memcpy(a, a, 4097)
        assert (caught.value.field, caught.value.limit) == ("size", 4096)
        with pytest.raises(InvalidError, match="neither a buffer"):
            stream.memcpy("there", a, 64)
        with pytest.raises(InvalidError, match="size"):
            stream.memcpy(a.address, a.address)
        with pytest.raises(InvalidError, match="pattern"):
            stream.memset(a, 256)
    assert issubclass(DmaFaultError, TsemuError)


def test_streams_are_checked_and_given_back(device):
    for arguments, field in (
        ({"priority": 8}, "priority"),
        ({"limit": 0}, "limit"),
        ({"limit": 1 << 20}, "limit"),
    ):
        with pytest.raises(InvalidError) as caught:
            device.create_stream(**arguments)
        assert caught.value.field == field
    stream = device.create_stream(name="mine")
    assert "mine" in repr(stream)
    stream.launch(cycles=1_000_000)
    assert stream.outstanding == 1
    with pytest.raises(TsemuError, match="BUSY"):
        stream.close()
    stream.synchronize()
    stream.close()
    with pytest.raises(InvalidError):
        stream.launch(cycles=1)
    with pytest.raises(InvalidError, match="default"):
        device.default_stream.close()


def test_the_device_has_only_so_many_streams(device):
    most = device.context.info.max_streams
    for _ in range(most - 1):  # the default stream is one of them
        device.create_stream()
    with pytest.raises(NoResourceError) as caught:
        device.create_stream()
    assert caught.value.limit == most
