"""The device against a client that writes its entries by hand: what it refuses, and that it lives.

Entries go through the same ring code as those of the driver, but nothing checks them before.
"""

import numpy as np
import pytest

from tsemu.descriptors.codes import (
    NO_SLOT,
    Answer,
    ContextState,
    ExtensionKind,
    Opcode,
    Refusal,
    SqeFlag,
    Status,
)
from tsemu.descriptors.entries import EXTENSION, SQE_COPY
from tsemu.mailbox.ring import Word, seal_sqes
from tsemu.ts_firmware.emulator import Emulator

SLOTS = 16
OPTIONS = {"slots": SLOTS, "host_heap_mib": 1, "device_heap_mib": 1}


@pytest.fixture
def emulator():
    with Emulator("edge-2", {"scheduler.profile": "ideal"}) as made:
        yield made


@pytest.fixture
def connect(emulator, raw_client):
    """Return a function that opens a context and gives its raw client."""
    opened = []

    def connect(name):
        link = emulator.open_context(name, OPTIONS)
        client = raw_client(link.memory, emulator.run)
        opened.append((client, link))
        return client

    yield connect
    for client, link in opened:
        client.close()
        link.close()


@pytest.fixture
def client(connect):
    return connect("raw")


def test_a_task_by_hand(client):
    client.push(client.sqe(user_tag=77))
    assert client.wait() == Answer.MET
    (cqe,) = client.completions()
    assert (cqe["ticket"], cqe["user_tag"], cqe["status"]) == (1, 77, Status.OK)
    assert cqe["end_ps"] - cqe["start_ps"] == 1000 * 2000  # cycles at 500 MHz


def test_more_tasks_than_the_rings_hold_come_back_once_each(client):
    got = []
    for _ in range(20):
        client.push(*[client.sqe() for _ in range(8)])
        assert client.wait() == Answer.MET
        got += client.completions()["ticket"].tolist()
    assert sorted(got) == list(range(1, 161))


# What is wrong with the entry, and the reason and the value that the device must name.
REFUSED = {
    "version": ({"version": 9}, Refusal.VERSION, 9),
    "opcode": ({"opcode": 200}, Refusal.OPCODE, 200),
    "opcode of later": ({"opcode": Opcode.SWITCH}, Refusal.UNSUPPORTED, Opcode.SWITCH),
    "flag of later": ({"flags": SqeFlag.REDUNDANT}, Refusal.UNSUPPORTED, None),
    "reserved bits": ({"flags": 0x8000}, Refusal.RESERVED_BITS, None),
    "class": ({"engine_class": 7}, Refusal.ENGINE_CLASS, 7),
    "class that moves bytes": ({"engine_class": 2}, Refusal.ENGINE_CLASS, 2),
    "priority": ({"priority": 8}, Refusal.PRIORITY, 8),
    "stream": ({"stream": 9}, Refusal.STREAM, 9),
    "stream out of range": ({"stream": 65535}, Refusal.STREAM, 65535),
    "blocks": ({"blocks": 0}, Refusal.BLOCKS, 0),
    "ticket ahead": ({"ticket": 3}, Refusal.TICKET, 3),
    "ticket again": ({"ticket": 1}, Refusal.TICKET, 1),
    "slot": ({"slot": SLOTS}, Refusal.SLOT, SLOTS),
    "slot in use": ({"slot": 0}, Refusal.SLOT, 0),
    "empty slot": ({"predecessors": [9, NO_SLOT, NO_SLOT]}, Refusal.EMPTY_SLOT, 9),
    "slot of nobody": ({"predecessors": [999, NO_SLOT, NO_SLOT]}, Refusal.EMPTY_SLOT, 999),
    "itself": ({"predecessors": [1, NO_SLOT, NO_SLOT]}, Refusal.EMPTY_SLOT, 1),
    "argument": ({"argument": 64}, Refusal.ADDRESS, 64),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_entry_is_named_and_a_mended_one_goes_on(emulator, client, case):
    fields, reason, value = REFUSED[case]
    client.push(client.sqe(cycles=10**6))  # holds slot 0
    bad = client.sqe(**fields)
    client.submitted -= 1
    good = client.sqe()
    client.push(bad)
    sequence = client.post()
    emulator.run()
    page = client.page()
    assert page.state == ContextState.REFUSED
    assert (page.refusal_sequence, page.refusal_position) == (1, 1)
    assert page.refusal_reason == reason, Refusal(page.refusal_reason).name
    if value is not None:
        assert page.refusal_value == value
    client.mend(good)
    assert client.answer(sequence) == Answer.MET
    assert [int(c["status"]) for c in client.completions()] == [Status.OK, Status.OK]
    assert client.page().state == ContextState.ACTIVE


@pytest.mark.parametrize("byte", [0, 1, 13, 17, 40, 63])
def test_a_damaged_entry_is_found_by_its_crc(emulator, client, byte):
    entry = client.sqe()
    seal_sqes(entry, 0, client.sq.entries)
    damaged = entry.view(np.uint8).copy()
    damaged[byte] ^= 0x10
    client.push(damaged, seal=False)
    sequence = client.post()
    emulator.run()
    assert client.page().refusal_reason == Refusal.CRC
    client.mend(entry)
    assert client.answer(sequence) == Answer.MET
    assert client.completions()["status"].tolist() == [Status.OK]


def test_an_entry_of_the_lap_before_is_stale(emulator, client):
    entry = client.sqe()
    seal_sqes(entry, client.sq.entries, client.sq.entries)
    client.push(entry, seal=False)
    client.post()
    emulator.run()
    assert client.page().refusal_reason == Refusal.STALE


def test_three_bad_tries_end_the_context_and_no_other(emulator, client, connect):
    other = connect("zzz")
    client.push(client.sqe())
    bad = client.sqe(blocks=0)
    client.push(bad)
    sequence = client.post()
    for _ in range(2):
        emulator.run()
        assert client.page().state == ContextState.REFUSED
        client.mend(bad)
    for _ in range(10):
        emulator.run()
    assert client.page().state == ContextState.ERROR
    assert client.answered(sequence)
    assert client.word("answers", 4).load() == Answer.CONTEXT_ERROR
    assert len(client.completions()) == 1
    other.push(other.sqe())
    assert other.wait() == Answer.MET


@pytest.mark.parametrize("ahead", [17, 1000, 2**31, 2**32 - 1])
def test_a_tail_beyond_the_ring_is_refused(emulator, client, ahead):
    client.sq.tail.store(ahead)
    client.post()
    emulator.run()
    assert client.page().refusal_reason == Refusal.DOORBELL


COPIES = {
    "outside": ((0, 0, 64), Refusal.ADDRESS),
    "end": ((None, -64, 128), Refusal.ADDRESS),
    "overflow": ((None, -64, 2**64 - 32), Refusal.ADDRESS),
    "all": ((None, 0, 2**64 - 1), Refusal.ADDRESS),
    "misaligned": ((None, 4, 64), Refusal.ALIGNMENT),
}


@pytest.mark.parametrize("case", COPIES)
@pytest.mark.parametrize("side", ["source", "destination"])
def test_addresses_outside_the_window_are_refused(emulator, client, case, side):
    (base, shift, length), reason = COPIES[case]
    page = client.page()
    start = page.device_base if base is None else base
    end = page.device_base + page.device_heap_size
    entry = client.sqe(opcode=Opcode.MEMCPY, engine_class=2, blocks=0)
    copy = entry.view(SQE_COPY.dtype)
    copy["source"] = copy["destination"] = page.host_base
    copy["length"] = length
    copy[side] = end + shift if shift < 0 else start + shift
    client.push(entry)
    client.post()
    emulator.run()
    assert client.page().refusal_reason == reason


def extension(owner, slots, **fields):
    entry = np.zeros(1, EXTENSION.dtype)
    entry["kind"], entry["count"], entry["ticket"] = ExtensionKind.PREDECESSORS, len(slots), owner
    entry["predecessors"][0, : len(slots)] = slots
    for name, value in fields.items():
        entry[name] = value
    return entry


def test_predecessors_in_an_extension(client):
    client.push(*[client.sqe() for _ in range(6)])
    entry = client.sqe(flags=1, predecessors=[0, 1, 2])
    client.push(entry, extension(7, [3, 4, 5]))
    assert client.wait() == Answer.MET
    ends = {int(c["ticket"]): (int(c["start_ps"]), int(c["end_ps"])) for c in client.completions()}
    assert ends[7][0] >= max(end for ticket, (_, end) in ends.items() if ticket < 7)


@pytest.mark.parametrize(
    "fields", [{"kind": 9}, {"count": 27}, {"count": 0}, {"ticket": 5}], ids=str
)
def test_a_bad_extension_is_refused(emulator, client, fields):
    client.push(client.sqe(cycles=10**6))
    client.push(client.sqe(flags=1, predecessors=[0, 0, 0]), extension(2, [0], **fields))
    client.post()
    emulator.run()
    assert client.page().refusal_reason in (Refusal.EXTENSION, Refusal.TICKET)


def test_an_extension_that_was_never_written_is_refused(emulator, client):
    client.push(client.sqe(flags=1))
    client.post()
    emulator.run()
    assert client.page().refusal_reason == Refusal.EXTENSION
    assert client.page().admitted == 0


def test_the_slot_of_a_completion_that_is_still_parked_is_in_use(emulator, raw_client):
    """It is linked with the others that wait for room: a new task in it would cut them off."""
    link = emulator.open_context("raw", {**OPTIONS, "cq_entries": 2})
    client = raw_client(link.memory, emulator.run)
    client.push(*[client.sqe() for _ in range(6)])
    assert client.wait() == Answer.MET
    entry = client.sqe(slot=2)  # 0 and 1 fill the ring, 2 is the first that is parked
    client.push(entry)
    sequence = client.post()
    emulator.run()
    page = client.page()
    assert (page.refusal_reason, page.refusal_value) == (Refusal.SLOT, 2)
    entry["slot"] = 6
    client.mend(entry)
    got = []
    for _ in range(10):
        got += client.completions()["ticket"].tolist()
        emulator.run()
    assert client.answered(sequence)
    assert got == [1, 2, 3, 4, 5, 6, 7]
    client.close()
    link.close()


@pytest.mark.parametrize("head", [7, 0x8000_0000, 0xFFFF_FFFF])
def test_a_completion_head_that_cannot_be_is_no_news(emulator, raw_client, head):
    """The device comes to rest, and goes on when the head is right again."""
    link = emulator.open_context("raw", {**OPTIONS, "cq_entries": 2})
    client = raw_client(link.memory, emulator.run)
    client.push(*[client.sqe() for _ in range(6)])
    assert client.wait() == Answer.MET
    client.word("cq_head").store(head)
    emulator.run()  # returns
    assert client.word("cq_tail").load() == 2
    client.word("cq_head").store(0)
    got = []
    for _ in range(6):
        got += client.completions()["ticket"].tolist()
        emulator.run()
    assert got == [1, 2, 3, 4, 5, 6]
    client.close()
    link.close()


def hostile_step(random, mad, ends_at):
    """Some tasks that may be wrong, a wait now and then, and random words over page and rings."""
    room = mad.sq.entries - (mad.sq.tail.load() - mad.sq.head.load()) % 2**32
    for _ in range(min(int(random.integers(0, 4)), max(room, 0))):
        edges = [
            int(slot) if random.random() < 0.3 else NO_SLOT for slot in random.integers(0, 16, 3)
        ]
        entry = mad.sqe(
            cycles=int(random.integers(1, 10**6)),
            slot=int(random.integers(0, SLOTS + 1)),
            predecessors=edges,
        )
        seal_sqes(entry, mad.sq.tail.load(), mad.sq.entries)
        mad.sq.push(entry)
    if random.random() < 0.3:
        mad.post()
    for _ in range(int(random.integers(0, 6))):
        first = 0x200 if random.random() < 0.7 else 0  # where most words are that the host writes
        at = int(random.integers(first // 4, ends_at // 4)) * 4
        values = [0, 1, 2, 7, 16, 2**31, 2**32 - 1, int(random.integers(2**32))]
        word = Word(mad.memory, at)
        word.store(int(random.choice(values)))
        word.release()


@pytest.mark.parametrize("clock", ["lockstep", "free", "paced:1000"])
@pytest.mark.parametrize("name", ["a", "z"])
@pytest.mark.parametrize("seed", range(8))
def test_a_client_that_writes_anything_anywhere_hurts_only_itself(raw_client, clock, name, seed):
    """The other client's tasks end in order, each once, and the mad one can be got rid of."""
    random = np.random.default_rng(seed)
    settings = {
        "scheduler.profile": ["ideal", "firmware"][seed % 2],
        "clock.mode": clock,
        "clock.hold_limit_ms": 1,
    }
    with Emulator("edge-2", settings) as emulator:
        links = [emulator.open_context(each, OPTIONS) for each in (name, "good")]
        mad, good = (raw_client(link.memory, emulator.run) for link in links)
        ends_at = mad.page().host_heap_offset
        for ticket in range(1, 21):
            hostile_step(random, mad, ends_at)
            good.push(good.sqe())
            assert good.wait() == Answer.MET
            done = good.completions()
            assert (done["ticket"].tolist(), done["status"].tolist()) == ([ticket], [Status.OK])
        mad.close()
        links[0].close()
        for _ in range(100):
            if [c["name"] for c in emulator.status()["contexts"]] == ["good"]:
                break
            emulator.run()
            emulator.reap()
        else:
            raise AssertionError(emulator.status()["contexts"])
        good.close()
        links[1].close()
