"""Which device a command talks to: an embedded one by default, or a running `tsemu run`."""

from dataclasses import dataclass
from typing import Any

from tsemu.host_driver import Device
from tsemu.runtime.observer import query
from tsemu.runtime.tsctl.exits import UsageError
from tsemu.runtime.tsctl.report import EngineRow
from tsemu.ts_firmware.config import SocConfig
from tsemu.ts_firmware.emulator import configure
from tsemu.ts_firmware.settings import parse_assignment

DEFAULT_SOC = "edge-2"
EMBEDDED = "emu:"
MAX_SLOTS = 65535


@dataclass(frozen=True)
class Choice:
    """The options that say which device, as they stand on the command line."""

    device: str | None = None
    soc: str | None = None
    settings: tuple[str, ...] = ()
    policy: str | None = None
    clock: str | None = None
    seed: int | None = None
    name: str | None = None
    slots: int | None = None
    window: int | None = None

    def address(self) -> str:
        """Return the address of the device.

        Raises `UsageError` for options that a running device has settled already, or that
        contradict the address.
        """
        if self.device is None:
            return EMBEDDED + (self.soc or DEFAULT_SOC)
        if self.device.startswith(EMBEDDED):
            if self.soc is not None:
                raise UsageError(
                    f"--soc {self.soc} and --device {self.device} both name an SoC; give one only"
                )
            return self.device
        given = {
            f"--soc {self.soc}": self.soc is not None,
            **{f"--set {setting}": True for setting in self.settings},
            f"--policy {self.policy}": self.policy is not None,
            f"--clock {self.clock}": self.clock is not None,
            f"--seed {self.seed}": self.seed is not None,
        }
        for option, present in given.items():
            if present:
                raise UsageError(
                    f"{option} cannot be combined with --device {self.device}: that device runs "
                    f"already; start it with `tsemu run {option}` instead"
                )
        return self.device

    def configuration(self) -> SocConfig | None:
        """Return what the embedded device is made from, None for a running device.

        Raises `UsageError` as `address` does, and `ConfigError`.
        """
        address = self.address()
        if not address.startswith(EMBEDDED):
            return None
        return configure(
            address.removeprefix(EMBEDDED),
            [parse_assignment(text) for text in self.settings],
            policy=self.policy,
            clock=self.clock,
            seed=self.seed,
        )

    def context_options(self) -> dict[str, int]:
        """Return the sizes of the context that were asked for."""
        found = {}
        if self.window is not None:
            found["window"] = self.window
        if self.slots is not None:
            found["slots"] = self.slots
        elif self.window is not None:
            # As by default: the window is half of the slots.
            found["slots"] = min(max(2 * self.window, 4096), MAX_SLOTS)
        return found


def open_device(choice: Choice) -> Device:
    """Open the device. Raises `UsageError`, `ConfigError` and the driver's errors."""
    return Device.open(
        choice.address(),
        name=choice.name,
        config=choice.configuration(),
        **choice.context_options(),
    )


def engine_rows(device: Device) -> list[EngineRow]:
    """Return the engine classes with the numbers of their cores."""
    rows, first = [], 0
    for row in device.info().classes:
        rows.append(EngineRow(row.name, first, row.cores, row.frequency_mhz))
        first += row.cores
    return rows


def describe(choice: Choice) -> dict[str, Any]:
    """Return what the device is, without opening a context.

    An embedded one is described by its configuration. Raises the errors of `open_device`.
    """
    config = choice.configuration()
    if config is None:
        return query(choice.address())
    return config.describe() | {"address": choice.address()}


def brief(found: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a description that a run's result depends on."""
    names = ("address", "soc", "policy", "profile", "clock_mode", "seed")
    return {name: found.get(name) for name in names}
