"""The memory that device and host share, and the eventfds that wake them."""

import fcntl
import mmap
import os
from types import TracebackType
from typing import Self

PAGE = mmap.PAGESIZE
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class MemoryObject:
    """A memfd of fixed size, mapped here: sparse, zeroed, sealed against shrink and grow.

    Nobody who gets the file descriptor can change the size, so no access to the mapping can fault.
    `size` is in bytes, a multiple of the page size. Raises `OSError` when the system has no room.
    """

    def __init__(self, name: str, size: int) -> None:
        if size <= 0 or size % PAGE:
            raise ValueError(f"size = {size}: a multiple of {PAGE} is needed")
        self.size = size
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, size)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SEALS | fcntl.F_SEAL_SEAL)
            self.map = mmap.mmap(self.fd, size)
        except BaseException:
            os.close(self.fd)
            raise

    def close(self) -> None:
        """Unmap and close. Raises `BufferError` while a view of `map` is held."""
        self.map.close()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def new_eventfd() -> int:
    """Return a file descriptor that counts wake-ups: non-blocking, closed on exec."""
    return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
