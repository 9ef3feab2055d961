"""A view of one ring in shared memory, for tools and tests: batches of 64-byte entries.

The stores and loads are those of `ring.h` (acquire and release order), through a C module; Python
itself never stores a word that a peer polls.
"""

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

from tsemu.descriptors.codes import ENTRY_BYTES, SqeFlag
from tsemu.descriptors.entries import CQE, EXTENSION, SQE
from tsemu.mailbox._ring import ffi, lib

Entries = npt.NDArray[Any]
Memory = mmap.mmap | bytearray | memoryview | npt.NDArray[Any]
"""Writable memory that holds a ring."""


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Return the CRC-32C of `data`, continuing from `crc` (0 to start)."""
    return int(lib.ring_crc(crc, ffi.from_buffer(data), len(data)))


def entry_crc(entry: Entries, offset: int) -> int:
    """Return the CRC-32C of a 64-byte entry whose 32-bit CRC field at byte `offset` counts as 0."""
    raw = _bytes(entry)
    if raw.size != ENTRY_BYTES:
        raise ValueError(f"entry: {raw.size} bytes, {ENTRY_BYTES} are needed")
    return int(lib.ring_entry_crc(ffi.cast("void *", raw.ctypes.data), offset))


def seal_sqes(entries: Entries, position: int, ring_entries: int) -> None:
    """Give submission entries (SQEs each followed by its extensions) phase bit and CRC, in place.

    `position` is the ring position of the first one.
    """
    raw = _rows(entries)
    extensions = 0
    for index in range(len(raw)):
        row = raw[index : index + 1]
        phase = int(lib.ring_phase((position + index) & 0xFFFFFFFF, ring_entries))
        if extensions:
            extensions -= 1
            view, offset = row.view(EXTENSION.dtype).reshape(-1), 8
            view["phase"] = phase
        else:
            view, offset = row.view(SQE.dtype).reshape(-1), 12
            flags = int(view["flags"][0])
            extensions = flags & SqeFlag.EXTENSIONS
            view["flags"] = (flags & ~int(SqeFlag.PHASE)) | (int(SqeFlag.PHASE) if phase else 0)
        view["crc"] = entry_crc(row, offset)


def cqe_ok(entries: Entries) -> npt.NDArray[np.bool_]:
    """Return for each completion entry whether its CRC is right."""
    crcs = entries.view(CQE.dtype).reshape(-1)["crc"]
    rows = _rows(entries)
    offset = next(f.offset for f in CQE.fields if f.name == "crc")
    good = [entry_crc(rows[i : i + 1], offset) == int(crc) for i, crc in enumerate(crcs)]
    return np.array(good, dtype=np.bool_)


class Word:
    """One 32-bit shared word of a mapped memory object, at byte `offset`."""

    def __init__(self, memory: Memory, offset: int) -> None:
        self._buffer = ffi.from_buffer(memory, require_writable=True)
        if offset % 4 or offset < 0 or offset + 4 > len(self._buffer):
            raise ValueError(f"offset = {offset}: a multiple of 4 inside the memory is needed")
        self.pointer = ffi.cast("uint32_t *", self._buffer + offset)

    def load(self) -> int:
        """Return the word (acquire)."""
        return int(lib.ring_load(self.pointer))

    def store(self, value: int) -> None:
        """Write the word (release), then a full fence: the peer's sleep flag may be read next."""
        lib.ring_store(self.pointer, value & 0xFFFFFFFF)
        lib.ring_fence()

    def release(self) -> None:
        """Give the memory back, so that it can be unmapped."""
        ffi.release(self._buffer)


class Ring:
    """A ring of `entries` 64-byte entries at byte `offset` of `memory`.

    `head` and `tail` are the byte offsets of the two free-running positions. Raises `ValueError`
    when `entries` is not a power of two or the ring does not lie inside the memory.
    """

    def __init__(self, memory: Memory, offset: int, entries: int, head: int, tail: int) -> None:
        self._buffer = ffi.from_buffer(memory, require_writable=True)
        if entries < 1 or entries & (entries - 1):
            raise ValueError(f"entries = {entries}: a power of two is needed")
        if offset % 8 or offset < 0 or offset + entries * ENTRY_BYTES > len(self._buffer):
            raise ValueError(f"offset = {offset}: the ring does not lie inside the memory")
        self.entries = entries
        self.head = Word(memory, head)
        self.tail = Word(memory, tail)
        self._base = ffi.cast("void *", self._buffer + offset)

    def push(self, entries: Entries) -> int:
        """Copy entries in and publish them with one store. Returns how many had room."""
        rows = _rows(entries)
        return int(
            lib.ring_push(
                self._base,
                self.entries,
                self.tail.pointer,
                self.head.pointer,
                ffi.cast("void *", rows.ctypes.data),
                len(rows),
            )
        )

    def pop(self, count: int) -> Entries:
        """Take at most `count` entries out: an array of shape (n, 64), dtype uint8."""
        out = np.zeros((max(count, 0), ENTRY_BYTES), np.uint8)
        taken = lib.ring_pop(
            self._base,
            self.entries,
            self.tail.pointer,
            self.head.pointer,
            ffi.cast("void *", out.ctypes.data),
            len(out),
        )
        return out[: int(taken)]

    def release(self) -> None:
        """Give the memory back, so that it can be unmapped."""
        self.head.release()
        self.tail.release()
        ffi.release(self._buffer)


def _bytes(entries: Entries) -> npt.NDArray[np.uint8]:
    raw = entries.view(np.uint8).reshape(-1)
    if not raw.flags.c_contiguous:
        raise ValueError("entries: contiguous memory is needed")
    return raw


def _rows(entries: Entries) -> npt.NDArray[np.uint8]:
    raw = _bytes(entries)
    if raw.size % ENTRY_BYTES:
        raise ValueError(f"entries: {raw.size} bytes are not a multiple of {ENTRY_BYTES}")
    return raw.reshape(-1, ENTRY_BYTES)
