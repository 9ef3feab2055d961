"""Which device a command talks to: an embedded one by default, or a running `tsemu run`."""

from dataclasses import dataclass
from typing import Any

from tsemu.host_driver import Device, query_info
from tsemu.runtime.tsctl.engines import EngineRow
from tsemu.runtime.tsctl.exits import UsageError

DEFAULT_SOC = "edge-2"
EMBEDDED = "emu:"
DEFAULT_SLOTS = 4096
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

    def pairs(self) -> dict[str, str]:
        """Return the settings by key. Raises `UsageError` for one that is not KEY=VALUE."""
        found = {}
        for text in self.settings:
            key, equals, value = text.partition("=")
            if not equals or not key.strip():
                raise UsageError(
                    f"--set {text}: this is not KEY=VALUE; write --set classes.aicore.cores=4"
                )
            found[key.strip().lower()] = value.strip()
        return found

    def wanted_slots(self) -> int:
        """Return the slots to ask for, 0 for the default: by default the window is half of them."""
        if self.slots is not None:
            return self.slots
        if self.window is None or 2 * self.window <= DEFAULT_SLOTS:
            return 0
        return min(2 * self.window, MAX_SLOTS)


def open_device(choice: Choice) -> Device:
    """Open the device. Raises `UsageError` and the driver's errors."""
    return Device.open(
        choice.address(),
        name=choice.name,
        settings=choice.pairs(),
        policy=choice.policy,
        clock=choice.clock,
        seed=choice.seed,
        window=choice.window or 0,
        slots=choice.wanted_slots(),
    )


def engine_rows(device: Device) -> list[EngineRow]:
    """Return the engine classes with the numbers of their cores."""
    rows, first = [], 0
    for row in device.context.info.classes:
        rows.append(EngineRow(row.name, first, row.cores, row.frequency_mhz, row.moves_bytes))
        first += row.cores
    return rows


def describe(choice: Choice) -> dict[str, Any]:
    """Return what the device is and, as `status`, what it does now, without opening a context.

    Raises the errors of `open_device`.
    """
    return query_info(
        choice.address(),
        settings=choice.pairs(),
        policy=choice.policy,
        clock=choice.clock,
        seed=choice.seed,
    )


def brief(found: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a description that a run's result depends on."""
    names = ("address", "soc", "policy", "profile", "clock_mode", "seed")
    return {name: found.get(name) for name in names}
