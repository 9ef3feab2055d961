"""Where the firmware's console goes: a file, a pipe or a terminal that must never stall it."""

import contextlib
import os
import select
from pathlib import Path

HELD_BYTES = 64 * 1024
"""Output that is kept while the reader is slow; what is older is dropped and counted."""
PIPE_WRITE = 4096
"""A pipe that polls as writable takes so many bytes without blocking (PIPE_BUF)."""


class ConsoleSink:
    """Writes console text to `target`: `-` is standard output, else a path, created or appended.

    Raises `OSError` when the file cannot be opened.
    """

    def __init__(self, target: str) -> None:
        self._own = target != "-"
        # A FIFO without a reader would block the open, so it is opened for reading too.
        path = Path(target)
        flags = os.O_RDWR if self._own and path.is_fifo() else os.O_WRONLY
        flags |= os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY
        self._fd = os.open(path, flags, 0o600) if self._own else 1
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLOUT)
        self._held = bytearray()
        self.dropped = 0

    def write(self, text: str) -> None:
        """Take text and write as much as the reader takes at once."""
        self._held += text.encode("utf-8", "replace")
        self.flush()
        over = len(self._held) - HELD_BYTES
        if over > 0:
            del self._held[:over]
            self.dropped += over

    def flush(self) -> None:
        """Write what is held, without waiting for the reader."""
        while self._held and any(ready & select.POLLOUT for _, ready in self._poll.poll(0)):
            try:
                written = os.write(self._fd, self._held[:PIPE_WRITE])
            except OSError:  # the reader is gone, or the disk is full: the device goes on
                self.dropped += len(self._held)
                self._held.clear()
                return
            del self._held[:written]

    def close(self) -> None:
        """Write what can be written and close."""
        self.flush()
        if self._own and self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1
