"""Addresses of devices: `emu:PRESET`, `emu:FILE.toml`, `unix:PATH`."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tsemu.host_driver.errors import AddressError

LONGEST_SOCKET_PATH = 107
"""Bytes that a Unix socket's path may have on Linux (`sun_path`, less its closing zero)."""


@dataclass(frozen=True)
class Address:
    """A parsed address: `kind` is "emu" or "unix", `target` the preset, file or path."""

    kind: str
    target: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.target}"


def parse(text: str) -> Address:
    """Parse an address.

    Raises `AddressError` when it has no known scheme, names nothing, or is longer than a socket
    path may be.
    """
    if not isinstance(text, str):
        raise _error(text, f"an address is text, not {type(text).__name__}")
    kind, separator, target = text.partition(":")
    if not separator or kind not in ("emu", "unix"):
        raise _error(text, f"{text!r} has no known scheme")
    if not target:
        raise _error(text, f"{text!r} names no {'preset' if kind == 'emu' else 'path'}")
    if "\0" in target:
        raise _error(text, f"{text!r} contains a zero byte")
    if kind == "unix":
        length = len(os.fsencode(target))
        if length > LONGEST_SOCKET_PATH:
            raise _error(
                text,
                f"the path of {text!r} has {length} bytes, a socket's may have "
                f"{LONGEST_SOCKET_PATH}",
                limit=LONGEST_SOCKET_PATH,
                hint="use a shorter path, for example below $XDG_RUNTIME_DIR",
            )
    return Address(kind, target)


def _error(
    value: object,
    message: str,
    limit: int | None = None,
    hint: str = "give emu:PRESET, emu:FILE.toml or unix:PATH (`tsemu run` prints the last)",
) -> AddressError:
    return AddressError(message, field="address", value=value, limit=limit, hint=hint)
