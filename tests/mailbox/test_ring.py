import crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsemu.descriptors.codes import SqeFlag
from tsemu.descriptors.entries import CQE, EXTENSION, SQE
from tsemu.mailbox import ring

HEAD, TAIL, BASE = 0, 64, 128


def make(entries: int) -> tuple[ring.Ring, bytearray]:
    memory = bytearray(BASE + 64 * entries)
    return ring.Ring(memory, BASE, entries, HEAD, TAIL), memory


def numbered(first: int, count: int) -> np.ndarray:
    return np.repeat(np.arange(first, first + count, dtype=np.uint64), 8).reshape(-1, 8)


@given(
    start=st.integers(0, 2**32 - 1),
    steps=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30),
)
def test_entries_come_out_once_and_in_order_across_the_end_of_ring_and_counter(start, steps):
    tested, _ = make(8)
    tested.head.store(start)
    tested.tail.store(start)
    pushed = popped = 0
    for push, pop in steps:
        done = tested.push(numbered(pushed, push))
        assert done == min(push, 8 - (pushed - popped))
        pushed += done
        taken = tested.pop(pop)
        assert len(taken) == min(pop, pushed - popped)
        assert (taken.view(np.uint64) == numbered(popped, len(taken))).all()
        popped += len(taken)
    assert tested.tail.load() == (start + pushed) % 2**32
    assert tested.head.load() == (start + popped) % 2**32


def test_all_entries_of_a_ring_are_usable():
    tested, _ = make(4)
    assert tested.push(numbered(0, 5)) == 4
    assert tested.push(numbered(4, 1)) == 0


@pytest.mark.parametrize("entries", [0, 3, 6])
def test_a_ring_has_a_power_of_two_of_entries(entries):
    with pytest.raises(ValueError, match=f"entries = {entries}"):
        ring.Ring(bytearray(4096), BASE, entries, HEAD, TAIL)


def test_a_ring_lies_inside_its_memory():
    with pytest.raises(ValueError, match="inside"):
        ring.Ring(bytearray(BASE + 64), BASE, 2, HEAD, TAIL)
    with pytest.raises(ValueError, match="offset = 4096"):
        ring.Word(bytearray(4096), 4096)


def test_memory_can_be_unmapped_after_release():
    tested, memory = make(2)
    with pytest.raises(BufferError):
        memory.append(0)
    tested.release()
    memory.append(0)


def test_crc_of_bytes_is_the_standard_one():
    assert ring.crc32c(b"123456789") == 0xE3069283
    assert ring.crc32c(b"6789", ring.crc32c(b"12345")) == 0xE3069283


@given(st.binary(min_size=64, max_size=64), st.integers(0, 15))
def test_crc_of_an_entry_takes_its_field_as_zero(data, word):
    offset = 4 * word
    expected = crc32c.crc32c(data[:offset] + bytes(4) + data[offset + 4 :])
    assert ring.entry_crc(np.frombuffer(bytearray(data), np.uint8), offset) == expected


def test_sealed_entries_have_the_phase_of_their_lap_and_the_crc():
    entries = np.zeros(3, SQE.dtype)
    entries["flags"][0] = 1  # the second entry is its extension
    ring.seal_sqes(entries, 3, 4)  # the second one starts the second lap
    assert entries["flags"][0] == 1 | SqeFlag.PHASE
    assert entries[1:2].view(EXTENSION.dtype)["phase"][0] == 0
    assert entries["flags"][2] == 0
    assert entries["crc"][0] == ring.entry_crc(entries[:1], 12)
    assert entries[1:2].view(EXTENSION.dtype)["crc"][0] == ring.entry_crc(entries[1:2], 8)


def test_damaged_completions_are_found():
    offset = next(f.offset for f in CQE.fields if f.name == "crc")
    entries = np.zeros(3, CQE.dtype)
    for index in range(3):
        entries["crc"][index] = ring.entry_crc(entries[index : index + 1], offset)
    entries["ticket"][1] ^= 1
    assert ring.cqe_ok(entries).tolist() == [True, False, True]
