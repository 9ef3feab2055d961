"""Control messages: built and checked. 64 bytes each, the same in page and socket."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tsemu.descriptors.codes import (
    ABI_MAJOR,
    ABI_MINOR,
    ENTRY_BYTES,
    ControlKind,
    ControlStatus,
)
from tsemu.descriptors.control import CONTROL_MAGIC, CONTROL_MESSAGE
from tsemu.mailbox.errors import RefusedError
from tsemu.mailbox.ring import entry_crc

ARGUMENTS = 10
TEXT_LIMIT = 64 * 1024
"""Bytes of text that may follow a request on a socket."""
CRC_OFFSET = next(f.offset for f in CONTROL_MESSAGE.fields if f.name == "crc")


@dataclass(frozen=True)
class Message:
    """A control message. `length` bytes of text follow it on a socket."""

    kind: int
    token: int
    status: int = 0
    length: int = 0
    argument: tuple[int, ...] = (0,) * ARGUMENTS


def build(
    kind: int,
    token: int,
    *,
    status: int = 0,
    length: int = 0,
    argument: Sequence[int] = (),
    version: tuple[int, int] = (ABI_MAJOR, ABI_MINOR),
) -> bytes:
    """Return the 64 bytes of a message, CRC included. Missing arguments are zero."""
    data = bytearray(
        CONTROL_MESSAGE.build(
            {
                "magic": CONTROL_MAGIC,
                "major": version[0],
                "minor": version[1],
                "kind": kind,
                "status": status,
                "token": token,
                "length": length,
                "argument": [*argument, *[0] * (ARGUMENTS - len(argument))],
            }
        )
    )
    crc = entry_crc(np.frombuffer(data, np.uint8), CRC_OFFSET)
    data[CRC_OFFSET : CRC_OFFSET + 4] = crc.to_bytes(4, "little")
    return bytes(data)


def parse(data: bytes) -> Message:
    """Check 64 bytes and return the message.

    Magic and version are looked at first: a peer of another major version may lay out the rest
    differently. Raises `RefusedError` (BAD_MAGIC, BAD_VERSION, BAD_CRC, BAD_LENGTH) with the value
    found and the value expected.
    """
    if len(data) != ENTRY_BYTES:
        raise RefusedError(
            ControlStatus.BAD_LENGTH, "message", len(data), "bytes in a message", "send 64"
        )
    fields = CONTROL_MESSAGE.parse(data)
    if fields.magic != CONTROL_MAGIC:
        raise RefusedError(
            ControlStatus.BAD_MAGIC,
            "magic",
            f"{fields.magic:#010x}",
            f"expected {CONTROL_MAGIC:#010x}",
            "connect with a tsemu driver",
        )
    if fields.major != ABI_MAJOR:
        raise RefusedError(
            ControlStatus.BAD_VERSION,
            "version",
            f"{fields.major}.{fields.minor}",
            f"this device speaks protocol {ABI_MAJOR}.{ABI_MINOR},"
            f" the client {fields.major}.{fields.minor}",
            "install the same tsemu release on both sides",
        )
    crc = entry_crc(np.frombuffer(bytearray(data), np.uint8), CRC_OFFSET)
    if fields.crc != crc:
        raise RefusedError(
            ControlStatus.BAD_CRC,
            "crc",
            f"{fields.crc:#010x}",
            f"expected {crc:#010x}",
            "the message was damaged on its way, or built by hand",
        )
    if fields.length > TEXT_LIMIT:
        raise RefusedError(
            ControlStatus.BAD_LENGTH,
            "length",
            fields.length,
            "too much text follows the message",
            f"send at most {TEXT_LIMIT} bytes",
        )
    return Message(fields.kind, fields.token, fields.status, fields.length, tuple(fields.argument))


def refusal(message: Message | None, error: RefusedError) -> bytes:
    """Return the reply to a request that is refused: message and text."""
    text = error.wire_text().encode()
    kind, token = (message.kind, message.token) if message else (int(ControlKind.OPEN), 0)
    return build(kind, token, status=int(error.status), length=len(text)) + text
