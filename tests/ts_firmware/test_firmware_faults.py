"""Faults that the random programs of `test_firmware_stress.py` found, each with its own test."""

import pytest

from tsemu.descriptors.checks import build_control
from tsemu.descriptors.codes import NO_SLOT, Answer, ControlKind, Opcode, Status, WaitKind
from tsemu.descriptors.control import CONTROL_PAGE
from tsemu.host_driver import (
    DependencyAbortedError,
    Device,
    DeviceTimeoutError,
    TaskTimeoutError,
)
from tsemu.ts_firmware.emulator import Emulator, Reason

US = 10**6
OPTIONS = {"slots": 16, "host_heap_mib": 1, "device_heap_mib": 1}
OFFSETS = {field.name: field.offset for field in CONTROL_PAGE.fields}
ONE_CORE = {
    "scheduler.profile": "ideal",
    "classes.aicore.cores": 1,
    "classes.aicore.frequency_mhz": 500,
    "classes.aicpu.frequency_mhz": 500,
    "classes.aicpu.setup_cycles": 0,
}


@pytest.fixture
def emulator():
    with Emulator("edge-2", {"scheduler.profile": "ideal"}) as made:
        yield made


@pytest.fixture
def connect(emulator, raw_client):
    """Return a function that opens a context, of a process of its own, and gives its raw client."""
    opened = []

    def connect(name, **options):
        process = 1000 + len(opened)
        context = emulator.create_context(name, {**OPTIONS, **options}, process, signalled=False)
        client = raw_client(context.memory.map, emulator.run)
        opened.append(client)
        return client

    yield connect
    for client in opened:
        client.close()


@pytest.fixture
def device():
    with Device.open("emu:edge-2", settings=ONE_CORE) as opened:
        yield opened


def test_input_behind_a_client_that_holds_the_clock_is_no_reason_to_run(emulator, connect):
    """The loop span, the pump never returned, as long as the first client did nothing."""
    first, second = connect("a"), connect("b")
    first.push(first.sqe())
    second.push(second.sqe())
    awaited = second.post()
    assert emulator.run() == Reason.HELD
    assert not second.answered(awaited)
    assert first.wait() == Answer.MET
    assert second.answer(awaited) == Answer.MET


def test_a_tail_behind_a_blocked_entry_is_no_reason_to_run(emulator, connect):
    """Same loop: an entry beyond the window, then more entries, then another client holds."""
    first, second = connect("a", window=1), connect("b")
    first.push(first.sqe(), first.sqe())
    second.push(second.sqe())
    assert emulator.run() == Reason.HELD
    first.push(first.sqe())
    assert emulator.run() == Reason.HELD
    assert second.wait() == Answer.MET


def test_an_entry_may_name_the_task_that_had_its_slot_before(connect):
    """It depended on itself, for ever."""
    client = connect("raw")
    client.push(client.sqe(slot=3))
    assert client.wait() == Answer.MET
    client.push(client.sqe(slot=3, predecessors=[3, NO_SLOT, NO_SLOT]))
    assert client.wait() == Answer.MET
    assert client.completions()["status"].tolist() == [Status.OK, Status.OK]


def test_a_repeated_request_is_answered_alike_after_a_damaged_one(connect):
    """The reply to the damaged one was given."""
    client = connect("raw")
    at = OFFSETS["request"]

    def ask(raw):
        client.memory[at : at + 64] = raw
        assert client.answer(client.post(WaitKind.CONTROL)) == Answer.MET
        return bytes(client.memory[OFFSETS["reply"] : OFFSETS["reply"] + 64])

    request = build_control(kind=ControlKind.STREAM_CREATE, token=5)
    first = ask(request)
    other = ask(bytes(64))
    assert other != first
    assert ask(request) == first


def test_a_wait_is_answered_although_later_entries_are_blocked(connect):
    """It had to wait until nothing was blocked any more."""
    client = connect("raw", window=1)
    client.push(client.sqe(cycles=1000))
    awaited = client.post()
    client.push(client.sqe(cycles=5000), client.sqe(cycles=5000), client.sqe(cycles=5000))
    assert client.answer(awaited) == Answer.MET
    answers = CONTROL_PAGE.parse(client.memory[:4096]).answers
    assert answers[0].now_ps == 2 * US
    assert client.wait() == Answer.MET


def test_a_task_between_two_blocks_ends_when_its_context_is_closed(device):
    """No core was left that could have ended it."""
    stream = device.create_stream(in_order=False)
    stream.launch(cycles=1000, priority=0)
    wide = stream.launch(cycles=1000, blocks=4, priority=3)
    other = stream.launch(cycles=1500, engine="aicpu")
    urgent = stream.launch(cycles=50_000, priority=0, after=[other])
    with pytest.raises(DeviceTimeoutError):
        wide.wait(timeout="10us")
    device.close()
    assert urgent.start_ps == 4 * US
    assert (wide.start_ps, wide.status) == (2 * US, Status.CANCELLED)


def test_a_limit_used_up_between_two_blocks_does_not_hide_other_limits(device):
    """The other task ran to its end."""
    stream = device.create_stream(in_order=False)
    wide = stream.launch(cycles=1000, blocks=2, timeout="2us")
    other = stream.launch(cycles=50_000, engine="aicpu", timeout="5us")
    for task in (wide, other):
        with pytest.raises(TaskTimeoutError):
            task.wait()
    assert (wide.status, wide.end_ps) == (Status.TIMEOUT, 2 * US)
    assert (other.status, other.end_ps) == (Status.TIMEOUT, 5 * US)


def test_a_wait_without_end_ends_at_the_limit_of_waits(connect):
    """An absolute deadline was taken as it was."""
    client = connect("raw")
    client.push(client.sqe(opcode=Opcode.NOP))
    assert client.wait() == Answer.MET
    client.submitted += 1  # a task that will never be there
    sequence = client.word("answers").load() + 1
    client.word("waits", 12).store(4)  # absolute
    for offset, value in ((4, client.submitted - 1), (8, WaitKind.ROOM), (16, 1000)):
        client.word("waits", offset).store(value)
    for offset in (32, 36):
        client.word("waits", offset).store(0xFFFFFFFF)
    client.word("waits").store(sequence)
    client.word("wait_posts").store(client.word("wait_posts").load() + 1)
    assert client.answer(sequence) == Answer.TIMEOUT


def test_a_wait_that_is_about_to_end_looks_at_its_record(device):
    """Both were admitted at one instant; the wait succeeded although the record had failed."""
    stream = device.create_stream(in_order=False)
    failed = stream.launch(cycles=5000, timeout="1us")
    with pytest.raises(TaskTimeoutError):
        failed.wait()
    event = device.event()
    record = stream.record(event, after=[failed])
    wait = stream.wait(event)
    with pytest.raises(DependencyAbortedError):
        wait.wait()
    assert record.status == wait.status == Status.DEP_ABORTED
    assert record.ancestor == wait.ancestor == failed.ticket


def test_a_second_recover_does_not_loosen_what_runs(device):
    """A failure that the first recover had counted out counted again: the order was lost."""
    others = device.create_stream(in_order=False)
    event = device.event()
    slow = others.launch(cycles=50_000, engine="aicpu")
    others.record(event, after=[slow])
    stream = device.create_stream()
    failed = stream.record(event)  # cancelled, but it ends only after the record before it
    assert failed.cancel()
    stream.recover()
    first = stream.launch(cycles=1000)
    stream.recover()
    second = stream.launch(cycles=1000, engine="aicpu")
    others.synchronize()
    second.wait()
    assert failed.status == Status.CANCELLED
    assert failed.end_ps > first.end_ps
    assert second.start_ps >= first.end_ps
