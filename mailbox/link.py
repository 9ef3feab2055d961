"""The device's side of the socket link: accepts clients, checks who they are, answers requests.

Never blocks: every connection has its own bounded buffers and time limit, so a client that sends
garbage, half a message or nothing, or does not read, costs the others nothing. What a request
means is decided by a `Service`; this module moves messages and descriptors only.
"""

import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from tsemu.descriptors.codes import ENTRY_BYTES, ControlKind, ControlStatus
from tsemu.mailbox import control
from tsemu.mailbox.address import Listener
from tsemu.mailbox.errors import RefusedError
from tsemu.mailbox.poller import READ, WRITE, Poller

CHUNK = 16 * 1024
SPARE_CONNECTIONS = 64
"""Connections beyond one per context: observers, and clients in the handshake."""
RESUME_S = 1.0
"""Time after which the link listens again when it had no file descriptors left, in seconds."""
IDLE_OBSERVER_S = 600.0


@dataclass(frozen=True)
class OpenRequest:
    """What a client asks for: context options as on the wire (0: default), name, process."""

    options: tuple[int, ...]
    name: str
    process: int


@dataclass(frozen=True)
class Opened:
    """What it gets: context number, and the descriptors of memory, doorbell and interrupt."""

    context: int
    descriptors: tuple[int, int, int]


class Service(Protocol):
    """The device, as the link sees it."""

    def open(self, request: OpenRequest) -> Opened | None:
        """Open a context. None: not now, ask again after the device has run (`Link.retry`).

        Raises `RefusedError`.
        """

    def closed(self, context: int) -> None:
        """Clean up: the client of `context` is gone."""

    def info(self) -> bytes:
        """Return the device's description and state as JSON."""


@dataclass(eq=False)
class Connection:
    """One client: its socket, what has come in and what has to go out."""

    socket: socket.socket
    process: int
    deadline: float
    received: bytearray = field(default_factory=bytearray)
    unsent: bytes = b""
    descriptors: tuple[int, ...] = ()
    context: int | None = None
    message: control.Message | None = None
    parked: OpenRequest | None = None
    closing: bool = False


class Link:
    """Listens at `listener` and serves `service`; `poller` says when a socket is ready.

    `handshake_s` is the wall time in which a message must be complete and a reply be taken;
    `contexts` is the most contexts that the device has.
    """

    def __init__(
        self,
        listener: Listener,
        poller: Poller,
        service: Service,
        contexts: int,
        *,
        handshake_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listener = listener
        self._poller = poller
        self._service = service
        self._room = contexts + SPARE_CONNECTIONS
        self._handshake_s = handshake_s
        self._clock = clock
        self._connections: dict[int, Connection] = {}
        self._parked: list[Connection] = []
        self._resume_at: float | None = None
        self._listen()

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._connections)

    def close(self) -> None:
        """Close every connection and stop listening. The service is not told."""
        if self._resume_at is None:
            self._poller.forget(self._listener.socket.fileno())
        self._listener.close()
        for connection in list(self._connections.values()):
            connection.context = None
            self._drop(connection)

    def retry(self) -> None:
        """Ask again for the contexts that could not be opened at once."""
        parked, self._parked = self._parked, []
        for connection in parked:
            request, connection.parked = connection.parked, None
            if request and connection.socket.fileno() >= 0:
                self._guard(connection, partial(self._try_open, connection, request))

    def expire(self) -> float | None:
        """Close what has run out of time. Returns the seconds until the next limit, or None."""
        now = self._clock()
        nearest: float | None = None
        if self._resume_at is not None:
            if self._resume_at <= now:
                self._resume_at = None
                self._listen()
            else:
                nearest = self._resume_at - now
        for connection in list(self._connections.values()):
            if connection.context is not None and not connection.received and not connection.unsent:
                continue  # an open context has no time limit
            left = connection.deadline - now
            if left > 0:
                nearest = left if nearest is None else min(nearest, left)
            elif connection.parked:
                self._give_up_parked(connection)
            else:
                self._drop(connection)
        return nearest

    def _give_up_parked(self, connection: Connection) -> None:
        connection.parked = None
        busy = RefusedError(
            ControlStatus.BUSY, "name", "", "the client before has not ended yet", "try again later"
        )
        self._refuse(connection, busy)

    def _listen(self) -> None:
        self._poller.watch(self._listener.socket.fileno(), READ, lambda _: self._accept())

    def _accept(self) -> None:
        for _ in range(16):  # others want to be served too
            try:
                accepted, _ = self._listener.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Out of descriptors: clients wait in the backlog, and the listener, which stays
                # readable, is not looked at for a while.
                self._poller.forget(self._listener.socket.fileno())
                self._resume_at = self._clock() + RESUME_S
                return
            accepted.settimeout(0)
            process, user = _peer(accepted)
            connection = Connection(accepted, process, self._clock() + self._handshake_s)
            self._connections[accepted.fileno()] = connection
            self._watch(connection)
            if not peer_allowed(user):
                denied = RefusedError(
                    ControlStatus.DENIED,
                    "uid",
                    user,
                    f"this device belongs to user {os.geteuid()}",
                    "run the client as the same user",
                )
                self._refuse(connection, denied)
            elif len(self._connections) > self._room:
                full = RefusedError(
                    ControlStatus.NO_RESOURCE,
                    "connections",
                    len(self._connections),
                    f"the device takes at most {self._room}",
                    "close some, or raise limits.contexts with `tsemu run --set`",
                )
                self._refuse(connection, full)

    def _watch(self, connection: Connection) -> None:
        # Nothing more is read while a reply waits or a request is parked: this bounds the buffers.
        reading = not (connection.unsent or connection.parked or connection.closing)
        events = (READ if reading else 0) | (WRITE if connection.unsent else 0)
        self._poller.watch(
            connection.socket.fileno(), events, lambda ready: self._ready(connection, ready)
        )

    def _ready(self, connection: Connection, ready: int) -> None:
        if ready & WRITE:
            self._guard(connection, partial(self._flush, connection))
        if ready & ~WRITE and connection.socket.fileno() >= 0:
            self._guard(connection, partial(self._receive, connection))

    def _guard(self, connection: Connection, action: Callable[[], None]) -> None:
        """Run `action`; what goes wrong ends this connection and no other."""
        try:
            action()
        except RefusedError as error:
            self._refuse(connection, error)
        except OSError:
            self._drop(connection)

    def _receive(self, connection: Connection) -> None:
        if connection.unsent or connection.parked or connection.closing:
            self._drop(connection)  # only an error or a hang-up wakes it in this state
            return
        # Exactly one request is read at a time: the rest of a flood waits in the kernel.
        size = ENTRY_BYTES + (connection.message.length if connection.message else 0)
        try:
            data = connection.socket.recv(min(CHUNK, size - len(connection.received)))
        except (BlockingIOError, InterruptedError):
            return
        if not data:
            self._drop(connection)
            return
        if not connection.received:
            connection.deadline = self._clock() + self._handshake_s
        connection.received += data
        self._serve(connection)

    def _serve(self, connection: Connection) -> None:
        """Answer the request once it has arrived in full."""
        if connection.message is None and len(connection.received) == ENTRY_BYTES:
            connection.message = self._head(connection)
        message = connection.message
        if message and len(connection.received) == ENTRY_BYTES + message.length:
            text = bytes(connection.received[ENTRY_BYTES:])
            connection.received.clear()
            self._answer(connection, message, text)

    def _head(self, connection: Connection) -> control.Message:
        message = control.parse(bytes(connection.received[:ENTRY_BYTES]))
        if message.kind not in (ControlKind.OPEN, ControlKind.INFO):
            connection.message = message
            raise RefusedError(
                ControlStatus.BAD_KIND,
                "kind",
                message.kind,
                "a socket carries OPEN (1) and INFO (2) only",
                "send other requests through the control page",
            )
        return message

    def _answer(self, connection: Connection, message: control.Message, text: bytes) -> None:
        if message.kind == ControlKind.INFO:
            body = self._service.info()
            reply = control.build(message.kind, message.token, length=len(body)) + body
            connection.message = None
            connection.deadline = self._clock() + IDLE_OBSERVER_S
            self._send(connection, reply, ())
            return
        if connection.context is not None:
            raise RefusedError(
                ControlStatus.BUSY,
                "kind",
                message.kind,
                f"this connection has context {connection.context} already",
                "open another connection for another context",
            )
        name = _name(text)
        self._try_open(connection, OpenRequest(message.argument, name, connection.process))

    def _try_open(self, connection: Connection, request: OpenRequest) -> None:
        opened = self._service.open(request)
        if opened is None:
            connection.parked = request
            self._parked.append(connection)
            self._watch(connection)
            return
        message, connection.message = connection.message, None
        assert message is not None
        connection.context = opened.context
        reply = control.build(message.kind, message.token, argument=(opened.context,))
        self._send(connection, reply, opened.descriptors)

    def _refuse(self, connection: Connection, error: RefusedError) -> None:
        """Reply with the error, then close once the reply is out."""
        connection.closing = True
        connection.received.clear()
        if connection.socket.fileno() < 0:
            return
        try:
            self._send(connection, control.refusal(connection.message, error), ())
        except OSError:
            self._drop(connection)

    def _send(self, connection: Connection, data: bytes, descriptors: tuple[int, ...]) -> None:
        connection.unsent, connection.descriptors = data, descriptors
        self._flush(connection)

    def _flush(self, connection: Connection) -> None:
        try:
            if connection.descriptors:  # they travel with the first byte
                sent = socket.send_fds(
                    connection.socket, [connection.unsent], list(connection.descriptors)
                )
                connection.descriptors = ()
            else:
                sent = connection.socket.send(connection.unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        connection.unsent = connection.unsent[sent:]
        if connection.closing and not connection.unsent:
            self._drop(connection)
            return
        self._watch(connection)

    def _drop(self, connection: Connection) -> None:
        fd = connection.socket.fileno()
        if fd < 0:
            return
        self._poller.forget(fd)
        del self._connections[fd]
        connection.socket.close()
        if connection in self._parked:
            self._parked.remove(connection)
        if connection.context is not None:
            context, connection.context = connection.context, None
            self._service.closed(context)


def peer_allowed(user: int) -> bool:
    """Return whether a client of this user may connect: the device's own user, and root."""
    return user in (os.geteuid(), 0)


def _peer(accepted: socket.socket) -> tuple[int, int]:
    """Return process and user of the other side, as the kernel saw them at its connect."""
    raw = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process, user, _ = struct.unpack("3i", raw)
    return process, user


def _name(text: bytes) -> str:
    """Return the client's name. Raises `RefusedError` when it cannot be one."""
    try:
        name = text.decode("utf-8")
    except UnicodeDecodeError:
        name = ""
        bad = True
    else:
        bad = len(text) > 63 or not (name.isprintable())
    if bad:
        shown = text[:16].hex()
        raise RefusedError(
            ControlStatus.BAD_VALUE,
            "name",
            f"{len(text)} bytes {shown}",
            "this cannot be a client's name",
            "use at most 63 bytes of printable UTF-8",
        )
    return name
