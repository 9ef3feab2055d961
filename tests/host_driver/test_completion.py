"""Completions one at a time."""

import pytest

from tsemu.host_driver import DeviceTimeoutError, InvalidError, NoResourceError


def test_the_iterator_gives_completion_order_and_ends(device, stream):
    completions = device.completions()
    tasks = [stream.launch(cycles=1000 - i, tag=i) for i in range(100)]
    seen = list(completions)
    assert [c.ticket for c in seen] == [t.ticket for t in sorted(tasks, key=lambda t: t.order)]
    assert [c.end_ps for c in seen] == sorted(c.end_ps for c in seen)
    assert sorted(c.tag for c in seen) == list(range(100))
    assert list(device.completions()) == []


def test_tasks_may_be_launched_while_iterating(device, stream):
    completions = device.completions()
    left = 50
    stream.launch(cycles=10)
    count = 0
    for completion in completions:
        count += 1
        if left:
            left -= 1
            stream.launch(cycles=10, tag=completion.ticket)
    assert count == 51


def test_next_waits_for_work_and_times_out(device, stream):
    with device.completions() as completions:
        with pytest.raises(DeviceTimeoutError):
            completions.next("1us")
        task = stream.launch(cycles=1000)
        assert completions.next().ticket == task.ticket
        assert task.ok


def test_unread_completions_have_a_bound(small):
    slots = small.context.info.slots
    with pytest.raises(InvalidError):
        small.completions(slots - 1)
    stream = small.create_stream(in_order=False)
    with small.completions(slots) as completions:
        for _ in range(slots):
            stream.launch(cycles=1)
        small.synchronize()
        with pytest.raises(NoResourceError) as caught:
            stream.launch(cycles=1)
        assert caught.value.hint
        assert completions.next().ticket == 1
        stream.launch(cycles=1).wait()
    stream.launch(cycles=1).wait()
