import fcntl
import mmap
import os
from pathlib import Path

import pytest

from tsemu.mailbox.memory import PAGE, MemoryObject, new_eventfd


def test_memory_is_zeroed_sparse_and_of_the_size_asked_for():
    with MemoryObject("test", 1 << 30) as memory:
        status = os.fstat(memory.fd)
        assert status.st_size == memory.size == len(memory.map) == 1 << 30
        assert status.st_blocks == 0
        assert memory.map[:64] == bytes(64)


@pytest.mark.parametrize("size", [PAGE, 3 * PAGE, 0])
def test_nobody_can_change_the_size(size):
    """A peer that cut the object could make the device fault at an access."""
    with MemoryObject("test", 2 * PAGE) as memory:
        peer = os.dup(memory.fd)
        try:
            with pytest.raises(PermissionError):
                os.ftruncate(peer, size)
            with pytest.raises(PermissionError):
                fcntl.fcntl(peer, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        finally:
            os.close(peer)
        assert os.fstat(memory.fd).st_size == 2 * PAGE


def test_a_peer_sees_what_is_written():
    with MemoryObject("test", PAGE) as memory, mmap.mmap(memory.fd, PAGE) as peer:
        peer[100] = 7
        assert memory.map[100] == 7


@pytest.mark.parametrize("size", [0, -PAGE, PAGE + 1])
def test_a_size_that_is_not_whole_pages_is_refused(size):
    with pytest.raises(ValueError, match=f"size = {size}"):
        MemoryObject("test", size)


def test_close_frees_descriptor_and_mapping():
    before = len(list(Path("/proc/self/fd").iterdir()))
    memory = MemoryObject("test", PAGE)
    memory.close()
    memory.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_eventfd_never_blocks():
    fd = new_eventfd()
    try:
        with pytest.raises(BlockingIOError):
            os.eventfd_read(fd)
        os.eventfd_write(fd, 3)
        assert os.eventfd_read(fd) == 3
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)
