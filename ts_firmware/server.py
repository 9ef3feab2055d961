"""The device as a process: runs the emulator and serves its socket, one after the other.

The loop is the one door into the model: messages, deaths of clients and stop requests are looked
at between two calls of the device, never while it runs. It sleeps whenever the device has nothing
to do; a doorbell, a message or a signal wakes it.
"""

import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from tsemu.descriptors.codes import ControlStatus
from tsemu.mailbox.address import Listener
from tsemu.mailbox.errors import RefusedError
from tsemu.mailbox.link import Link, Opened, OpenRequest
from tsemu.mailbox.poller import EDGE, READ, Poller
from tsemu.ts_firmware.contexts import named
from tsemu.ts_firmware.emulator import SLICE_NS, Emulator, Reason

POLL_EVERY_NS = 1_000_000
"""Sockets are looked at no more often than this while the device is busy, in wall time."""
LONGEST_SLEEP_S = 3600.0
"""epoll takes no longer times; the device says "for ever" with the largest 64-bit number."""
DYING_POLL_S = 0.1
"""A sleep is no longer than this while a client's last blocks have not ended."""


class Server:
    """Serves `emulator` at the socket `path` until `stop` is called or a signal arrives.

    Raises `AddressError` when the socket cannot be had. `console` gets the firmware's output.
    """

    def __init__(
        self,
        emulator: Emulator,
        path: Path,
        console: Callable[[str], None] | None = None,
    ) -> None:
        self._emulator = emulator
        self._console = console
        self._stopping = False
        self._signals = False
        self._spin_ns = emulator.config.number("link.spin_us") * 1000
        listener = Listener(path)
        self.address = emulator.address = listener.address
        self._poller = Poller()
        self._link = Link(
            listener,
            self._poller,
            self,
            emulator.config.number("limits.contexts"),
            handshake_s=emulator.config.number("link.handshake_ms") / 1000,
        )
        self._wakeup, self._woken = socket.socketpair()
        self._wakeup.settimeout(0)
        self._woken.settimeout(0)
        self._poller.watch(self._woken.fileno(), READ, lambda _: self._drain_wakeups())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def catch_signals(self) -> None:
        """End `serve` at SIGTERM and SIGINT, and at SIGHUP unless that is ignored (nohup).

        Main thread only.
        """
        self._signals = True
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._stopping = True

    def stop(self) -> None:
        """End `serve` soon; may be called from another thread."""
        self._stopping = True
        self._wakeup.send(b"\0")

    def _drain_wakeups(self) -> None:
        self._woken.recv(4096)

    def serve(self) -> None:
        """Run device and sockets until stopped. Raises `DevicePanicError`."""
        polled_ns = 0
        while not self._stopping:
            reason = self._emulator.run(SLICE_NS, self._spin_ns if self._emulator.in_use else 0)
            self._after_run()
            now_ns = time.monotonic_ns()
            if reason != Reason.SLICE:
                self._poller.poll(self._sleep_s(reason))
                polled_ns = time.monotonic_ns()
            elif now_ns - polled_ns >= POLL_EVERY_NS:
                self._link.expire()
                self._poller.poll(0)
                polled_ns = now_ns

    def _after_run(self) -> None:
        if self._emulator.dying:
            self._emulator.reap()
        self._link.retry()
        if self._console:
            text = self._emulator.console()
            if text:
                self._console(text)

    def _sleep_s(self, reason: Reason) -> float | None:
        """How long nothing but a doorbell, a message or a signal is expected to happen."""
        limits = [self._link.expire()]
        if reason != Reason.IDLE:
            limits.append(min(self._emulator.wall_wait_ns() / 1e9, LONGEST_SLEEP_S))
        if self._emulator.dying:
            limits.append(DYING_POLL_S)
        return min((limit for limit in limits if limit is not None), default=None)

    def close(self) -> None:
        """Disconnect everybody and remove the socket. The emulator is left as it is."""
        if self._signals:
            signal.set_wakeup_fd(-1)
        self._link.close()
        self._poller.close()
        self._wakeup.close()
        self._woken.close()

    # What the link asks for (`tsemu.mailbox.link.Service`).

    def open(self, request: OpenRequest) -> Opened | None:
        """Open a context for a client in another process.

        None while a context that is about to end has the name, or the last free place.
        """
        try:
            context = self._emulator.create_context(
                request.name, named(request.options), request.process, signalled=True
            )
        except RefusedError as error:
            dying = self._emulator.dying
            ends_soon = error.status == ControlStatus.NAME_IN_USE and request.name in dying
            ends_soon = ends_soon or (error.field == "limits.contexts" and bool(dying))
            if ends_soon:
                return None
            raise
        self._poller.watch(context.doorbell, EDGE, lambda _: None)  # waking up is all it does
        return Opened(context.number, (context.memory.fd, context.doorbell, context.interrupt))

    def closed(self, context: int) -> None:
        """Clean up after a client that is gone."""
        found = self._emulator.context(context)
        if found:
            self._poller.forget(found.doorbell)
            self._emulator.close_context(context)

    def info(self) -> bytes:
        """Return `Emulator.info` as JSON."""
        return json.dumps(self._emulator.info()).encode()
