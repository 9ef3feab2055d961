"""The one place where the driver meets the emulator: devices in the same process (`emu:`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsemu.descriptors.codes import ControlStatus
from tsemu.host_driver._driver import ffi, lib
from tsemu.host_driver.errors import (
    AddressError,
    InvalidError,
    NameInUseError,
    NoResourceError,
    TsemuError,
    last_error,
)
from tsemu.mailbox.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tsemu.ts_firmware.emulator import Emulator

_REFUSALS: dict[int, type[TsemuError]] = {
    ControlStatus.NAME_IN_USE: NameInUseError,
    ControlStatus.NO_RESOURCE: NoResourceError,
}


def make_emulator(
    soc: str,
    settings: Mapping[str, object] | None,
    **options: Any,  # noqa: ANN401 - passed on
) -> Emulator:
    """Make a device in this process. Raises `InvalidError` naming the setting that is wrong."""
    # Imported here, so that a client of a device process never loads the device model.
    from tsemu.ts_firmware.emulator import ConfigError, Emulator  # noqa: PLC0415

    try:
        return Emulator(soc, dict(settings or {}), **options)
    except ConfigError as error:
        kind = AddressError if error.field == "soc" else InvalidError
        raise kind(error.message, field=error.field, value=error.value, hint=error.hint) from error


def open_context(
    emulator: Emulator, name: str, options: Mapping[str, int]
) -> tuple[Any, Callable[[], None]]:
    """Open a context of an embedded device: (context of the C library, what releases it)."""
    try:
        link = emulator.open_context(name, dict(options))
    except RefusedError as error:
        kind = _REFUSALS.get(error.status, InvalidError)
        raise kind(error.message, field=error.field, value=error.value, hint=error.hint) from error
    memory = ffi.from_buffer(link.memory, require_writable=True)
    pointer = ffi.new("tsemu_context **")
    code = lib.handle_attach(
        int(ffi.cast("uintptr_t", memory)), link.size, link.pump, link.device, pointer
    )

    def release() -> None:
        ffi.release(memory)
        link.close()

    if code < 0:
        failure = last_error(code)
        release()
        raise failure
    return pointer[0], release
