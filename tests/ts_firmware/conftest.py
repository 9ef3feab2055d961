"""A client that writes entries by hand, for tests of what a device does with any entry."""

import numpy as np
import pytest

from tsemu.descriptors.codes import NO_SLOT, Answer, Opcode, WaitKind
from tsemu.descriptors.control import CONTROL_PAGE
from tsemu.descriptors.entries import CQE, SQE
from tsemu.mailbox.ring import Ring, Word, cqe_ok, seal_sqes

OFFSETS = {field.name: field.offset for field in CONTROL_PAGE.fields}


class RawClient:
    """A context's memory and what a driver would do with it, without any of its checks."""

    def __init__(self, memory, turn):
        """`turn` lets the device run for a while."""
        self.memory = memory
        self.turn = turn
        page = self.page()
        self.words = {}
        self.slots = page.slots
        self.sq = Ring(
            memory, page.sq_offset, page.sq_entries, OFFSETS["sq_head"], OFFSETS["sq_tail"]
        )
        self.cq = Ring(
            memory, page.cq_offset, page.cq_entries, OFFSETS["cq_head"], OFFSETS["cq_tail"]
        )
        self.submitted = 0
        self.awaited = 0

    def page(self):
        return CONTROL_PAGE.parse(self.memory[:4096])

    def word(self, name, offset=0):
        key = OFFSETS[name] + offset
        if key not in self.words:
            self.words[key] = Word(self.memory, key)
        return self.words[key]

    def sqe(self, **fields):
        """One KERNEL entry, valid unless `fields` say otherwise."""
        self.submitted += 1
        entry = np.zeros(1, SQE.dtype)
        values = {
            "version": 1,
            "opcode": Opcode.KERNEL,
            "ticket": self.submitted,
            "slot": (self.submitted - 1) % self.slots,
            "cycles": 1000,
            "blocks": 1,
            "predecessors": NO_SLOT,
        }
        for name, value in {**values, **fields}.items():
            entry[name] = value
        return entry

    def push(self, *entries, seal=True):
        together = np.concatenate([entry.view(np.uint8) for entry in entries])
        if seal:
            seal_sqes(together, self.sq.tail.load(), self.sq.entries)
        assert self.sq.push(together) == len(entries)

    def post(self, kind=WaitKind.ALL, a=None, slot=0):
        """Post a wait; returns the sequence number of its answer."""
        at = slot * 64
        sequence = self.word("answers", at).load() + 1
        operands = (self.submitted, kind, 0, self.submitted if a is None else a, 0, 0, 0)
        for index, value in enumerate(operands, start=1):
            self.word("waits", at + 4 * index).store(int(value))
        self.word("waits", at + 32).store(0xFFFFFFFF)
        self.word("waits", at + 36).store(0xFFFFFFFF)
        self.word("waits", at).store(sequence)
        self.word("wait_posts").store(self.word("wait_posts").load() + 1)
        return sequence

    def wait(self):
        """Post a wait for everything and turn the device until it is answered."""
        return self.answer(self.post())

    def answer(self, sequence):
        """Turn the device until the wait is answered; returns the reason."""
        self.awaited = sequence
        for _ in range(100):
            if self.answered(sequence):
                return Answer(self.word("answers", 4).load())
            self.turn()
        raise AssertionError(f"no answer: {self.state()}")

    def state(self):
        """What to show when something went wrong."""
        names = ("sq_tail", "sq_head", "cq_tail", "admitted", "completed", "wait_posts", "state")
        return {name: self.word(name).load() for name in names}

    def answered(self, sequence):
        return self.word("answers").load() == sequence

    def completions(self):
        raw = self.cq.pop(1000)
        assert cqe_ok(raw).all()
        return raw.view(CQE.dtype).reshape(-1)

    def mend(self, entry):
        """Write the refused entry anew, as the driver does, and say so."""
        page = self.page()
        raw = entry.view(np.uint8).copy()
        seal_sqes(raw, page.refusal_position, self.sq.entries)
        at = page.sq_offset + 64 * (page.refusal_position % page.sq_entries)
        self.memory[at : at + 64] = raw.tobytes()
        self.word("refusal_seen").store(page.refusal_sequence)

    def close(self):
        self.sq.release()
        self.cq.release()
        for word in self.words.values():
            word.release()


@pytest.fixture
def raw_client():
    """Return the class, `RawClient(memory, turn)`."""
    return RawClient
