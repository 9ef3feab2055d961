"""Asking a device process about itself, without a context: an observer's request (INFO)."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

from tsemu.descriptors.codes import ENTRY_BYTES, ControlKind, ControlStatus
from tsemu.host_driver import address as addresses
from tsemu.host_driver.errors import AddressError, DeviceLostError, InvalidError, ProtocolError
from tsemu.mailbox import control
from tsemu.mailbox.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

WALL_LIMIT_S = 10.0
"""Wall time after which a device process that does not answer counts as stuck."""
LONGEST_TEXT = 16 << 20


def query_info(
    address: str,
    *,
    settings: Mapping[str, object] | None = None,
    policy: str | None = None,
    clock: str | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """Ask a device what it is and how it is (keys with units; see `tsctl info --json`).

    `address` is `unix:PATH`, or `emu:` for a fresh embedded device made as `Device.open` makes it.
    Does not disturb the device: no context, no virtual time. Raises `AddressError` when nobody
    listens there, `InvalidError` for a wrong setting, `DeviceLostError` when there is no answer,
    `ProtocolError` when it speaks another protocol.
    """
    parsed = addresses.parse(address)
    if parsed.kind == "emu":
        from tsemu.host_driver.embedded import make_emulator  # noqa: PLC0415 - loads the device

        options = {"policy": policy, "clock": clock, "seed": seed}
        with make_emulator(parsed.target, settings, **options) as emulator:
            return dict(emulator.info()) | {"address": address}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(WALL_LIMIT_S)
        try:
            link.connect(parsed.target)
        except OSError as error:
            raise unreachable(address, error) from error
        try:
            link.sendall(control.build(ControlKind.INFO, 1))
            reply = _receive(link, ENTRY_BYTES)
            message = control.parse(reply)
            if message.length > LONGEST_TEXT:
                raise ProtocolError(
                    "the reply is too long",
                    field="length",
                    value=message.length,
                    limit=LONGEST_TEXT,
                    hint="is this a tsemu device?",
                )
            text = _receive(link, message.length)
        except RefusedError as error:
            raise ProtocolError(
                error.message, field=error.field, value=error.value, hint=error.hint
            ) from error
        except OSError as error:
            raise DeviceLostError(
                f"no answer: {error}",
                field="address",
                value=address,
                hint="is the device process alive?",
            ) from error
    if message.status != ControlStatus.OK:
        field, value, what, hint = (text.decode("utf-8", "replace").split("|") + [""] * 4)[:4]
        kind = ProtocolError if message.status <= ControlStatus.BAD_LENGTH else InvalidError
        raise kind(what, field=field, value=value, hint=hint)
    found: dict[str, Any] = json.loads(text)
    return found


def unreachable(address: str, error: OSError) -> AddressError:
    """The error of a socket that nobody can be reached at."""
    return AddressError(
        f"cannot connect to {address}: {error.strerror or error}",
        field="address",
        value=address,
        hint="start the device with `tsemu run`, which prints its address",
    )


def _receive(link: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = link.recv(min(length - len(data), 1 << 16))
        if not piece:
            raise ConnectionResetError("the connection was closed before the reply was complete")
        data += piece
    return bytes(data)
