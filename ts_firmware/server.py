"""The device as a process: runs the emulator and serves its socket, one after the other.

The loop is the one door into the model: messages, deaths of clients and stop requests are looked
at between two calls of the device, never while it runs. It sleeps whenever the device has nothing
to do; a doorbell, a message or a signal wakes it, and after a doorbell Python is not needed.
"""

import json
import select
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
from tsemu.ts_firmware._device import ffi
from tsemu.ts_firmware.config import CData
from tsemu.ts_firmware.contexts import named
from tsemu.ts_firmware.emulator import SLICE_NS, Emulator, Reason

POLL_EVERY_NS = 1_000_000
"""Sockets are looked at no more often than this while the device is busy, in wall time."""
FOR_EVER = 2**64 - 1
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
        self._doorbells = select.epoll()
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
        """Run device and sockets until stopped. Raises `DevicePanicError`.

        While only doorbells ring, the loop runs in C (`device_serve`) and not here.
        """
        with_ = ffi.new("struct device_serving *")
        with_.doorbells, with_.others = self._doorbells.fileno(), self._poller.fileno()
        with_.slice_ns = SLICE_NS
        reason, polled_ns = 0, 0
        while not self._stopping:
            self._prepare(with_)
            reason = self._emulator.serve(reason, with_)
            now_ns = time.monotonic_ns()
            if reason == Reason.OUTSIDE or now_ns - polled_ns >= POLL_EVERY_NS:
                self._poller.poll(0)
                self._link.expire()
                polled_ns = now_ns
            if reason == Reason.OUTSIDE:
                reason = 0  # what came in is for the device to look at
            self._look_after()

    def _prepare(self, with_: CData) -> None:
        """Say how long nothing but doorbells is expected to happen."""
        limits = [self._link.expire(), DYING_POLL_S if self._emulator.dying else None]
        nearest = min((limit for limit in limits if limit is not None), default=None)
        with_.limit_ns = FOR_EVER if nearest is None else int(nearest * 1e9)
        with_.spin_ns = self._spin_ns if self._emulator.in_use else 0
        with_.attend = bool(self._console or self._emulator.dying)

    def _look_after(self) -> None:
        if self._emulator.dying:
            self._emulator.reap()
        self._link.retry()
        if self._console:
            text = self._emulator.console()
            if text:
                self._console(text)

    def close(self) -> None:
        """Disconnect everybody and remove the socket. The emulator is left as it is."""
        if self._signals:
            signal.set_wakeup_fd(-1)
        self._link.close()
        self._poller.close()
        self._doorbells.close()
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
        self._doorbells.register(context.doorbell, EDGE)
        return Opened(context.number, (context.memory.fd, context.doorbell, context.interrupt))

    def closed(self, context: int) -> None:
        """Clean up after a client that is gone."""
        found = self._emulator.context(context)
        if found:
            self._doorbells.unregister(found.doorbell)
            self._emulator.close_context(context)

    def info(self) -> bytes:
        """Return `Emulator.info` as JSON."""
        return json.dumps(self._emulator.info()).encode()
