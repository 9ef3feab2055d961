"""Waiting for file descriptors: a callback per descriptor, over epoll.

A doorbell is watched edge-triggered (`EDGE`): a ring wakes although nobody reads the eventfd, so no
client can make the device block in a read.
"""

import select
from collections.abc import Callable

Callback = Callable[[int], None]
"""Called with the epoll events that are ready."""

READ = select.EPOLLIN | select.EPOLLRDHUP
WRITE = select.EPOLLOUT
EDGE = select.EPOLLIN | select.EPOLLET


class Poller:
    """Descriptors and what to call when they are ready. Not for several threads."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callback] = {}

    def fileno(self) -> int:
        """Return a descriptor that is readable when something is ready."""
        return self._epoll.fileno()

    def watch(self, fd: int, events: int, callback: Callback) -> None:
        """Call `callback` when one of `events` is ready; a watched `fd` gets the new values."""
        if fd in self._callbacks:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def forget(self, fd: int) -> None:
        """Watch `fd` no longer. To be called before it is closed."""
        if self._callbacks.pop(fd, None):
            self._epoll.unregister(fd)

    def poll(self, timeout_s: float | None) -> bool:
        """Wait for at most `timeout_s` seconds (None: no limit) and call what is ready.

        Returns whether something was ready.
        """
        ready = self._epoll.poll(timeout_s)
        for fd, events in ready:
            callback = self._callbacks.get(fd)  # may be gone: closed by a callback before
            if callback:
                callback(events)
        return bool(ready)

    def close(self) -> None:
        """Let go of everything."""
        self._callbacks.clear()
        self._epoll.close()
