"""Asks a running device what it is and what it does, without opening a context.

Observers are always settled: asking costs no virtual time and holds nobody up.
"""

import json
import socket
from typing import Any

from tsemu.descriptors.codes import ABI_MAJOR, ABI_MINOR, ENTRY_BYTES, ControlKind, ControlStatus
from tsemu.descriptors.control import CONTROL_MAGIC, CONTROL_MESSAGE
from tsemu.host_driver.errors import AddressError, DeviceLostError, ProtocolError
from tsemu.mailbox import control

SCHEME = "unix:"
ANSWER_LIMIT_S = 10.0
"""Wall time after which a device that does not answer is given up."""
MAX_ANSWER_BYTES = 1 << 24
TOKEN = 1


def query(address: str) -> dict[str, Any]:
    """Return the description and live status of the device at `unix:PATH`.

    Raises `AddressError` when nobody listens there, `DeviceLostError` when the device does not
    answer, and `ProtocolError` when what answers is not a device of this protocol version.
    """
    path = address.removeprefix(SCHEME)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(ANSWER_LIMIT_S)
        try:
            link.connect(path)
        except OSError as error:
            raise AddressError(
                f"cannot connect to {path}: {error.strerror or error}",
                field="address",
                value=address,
                hint="start a device with `tsemu run`; it prints its address",
            ) from error
        try:
            link.sendall(control.build(ControlKind.INFO, TOKEN))
            length = _head(_receive(link, ENTRY_BYTES, address), address)
            body = _receive(link, length, address)
        except OSError as error:
            raise _lost(address, f"no answer: {error}") from error
    try:
        found = json.loads(body)
    except ValueError as error:
        raise _nonsense(address, "body", str(error)) from error
    if not isinstance(found, dict):
        raise _nonsense(address, "body", "it is not a JSON object")
    return found


def _receive(link: socket.socket, size: int, address: str) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise _lost(address, f"closed the connection after {len(data)} of {size} bytes")
        data += part
    return bytes(data)


def _head(data: bytes, address: str) -> int:
    message = CONTROL_MESSAGE.parse(data)
    if message.magic != CONTROL_MAGIC:
        raise _nonsense(
            address, "magic", f"it is {message.magic:#010x}, expected {CONTROL_MAGIC:#010x}"
        )
    if message.major != ABI_MAJOR:
        raise _nonsense(
            address,
            "version",
            f"the device speaks {message.major}.{message.minor}, tsctl {ABI_MAJOR}.{ABI_MINOR}",
        )
    if message.status != ControlStatus.OK or message.length > MAX_ANSWER_BYTES:
        raise _nonsense(
            address, "status", f"status {message.status} with {message.length} bytes of text"
        )
    return int(message.length)


def _lost(address: str, what: str) -> DeviceLostError:
    return DeviceLostError(
        f"the device at {address}: {what}",
        field="address",
        value=address,
        hint="look whether its process is alive and what it printed",
    )


def _nonsense(address: str, field: str, what: str) -> ProtocolError:
    return ProtocolError(
        f"the answer of {address} is not understood: {field}: {what}",
        field=field,
        hint="install the same tsemu release on both sides",
    )
