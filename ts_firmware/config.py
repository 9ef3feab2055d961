"""A SoC configuration: read from a preset, a TOML file or Python values, and checked.

`SocConfig` says what the device is in the user's terms; `fill` writes it into the C structure
that the device model is created from.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from tsemu.descriptors.codes import MAX_CLASSES, ClockMode
from tsemu.ts_firmware.settings import (
    CLASS_SETTINGS,
    SETTINGS,
    ConfigError,
    Values,
    class_names,
    find,
    flatten,
    paced_factor,
    weights,
)

PRESETS = Path(__file__).resolve().parent / "presets"
CData = Any
"""A C structure; cffi has no type for it."""
MAX_CORES = 1024
FILE_LIMIT = 1 << 20
"""Largest configuration file that is read, in bytes."""
POLICIES = {"priority": 0, "fifo": 1, "rank": 2, "edf": 3, "fair": 4}
COSTS = {"fixed": 0, "roofline": 1}

PROFILES: Mapping[str, Mapping[str, int]] = {
    # A scheduler that costs no time: what the dependencies and the cores alone allow.
    "ideal": {"fetch": 0, "edge": 0, "dispatch": 0, "retire": 0, "interrupt": 0},
    # Task Superscalar (MICRO 2010) decodes a task in under 60 ns; a hardware HEFT decision takes
    # 9 ns. Edge and retirement are assumptions: a table access and a descriptor write at 1 GHz.
    # Interrupt of a core: assumption, a dedicated line, 10 cycles.
    "hardware": {
        "fetch": 60_000,
        "edge": 4_000,
        "dispatch": 9_000,
        "retire": 10_000,
        "interrupt": 10_000,
    },
    # Latencies on a shipping Ascend: MMIO load 95 to 105 ns, scheduler to core about 140 ns, core
    # to scheduler about 600 ns (the interrupt of a core). Edge and retirement: assumptions, 50 and
    # 100 cycles of a 1 GHz controller.
    "firmware": {
        "fetch": 100_000,
        "edge": 50_000,
        "dispatch": 140_000,
        "retire": 100_000,
        "interrupt": 600_000,
    },
    # Scheduling in software on a RISC-V system costs about 30,000 cycles a task: at 1 GHz 30 us,
    # divided equally over fetch, dispatch and retirement. Edge: assumption, 1,000 cycles.
    # Interrupt of a core: assumption, 2 us to enter the handler of an operating system.
    "software": {
        "fetch": 10_000_000,
        "edge": 1_000_000,
        "dispatch": 10_000_000,
        "retire": 10_000_000,
        "interrupt": 2_000_000,
    },
}
"""What the scheduler's work costs, in picoseconds, by `scheduler.profile`."""


@dataclass(frozen=True)
class SocConfig:
    """A checked configuration. `values` holds every key, defaults included."""

    name: str
    description: str
    values: Values = field(repr=False)

    @property
    def classes(self) -> list[str]:
        """Names of the engine classes, lower case, in the order of the class table."""
        return class_names(self.values)

    def number(self, key: str) -> int:
        """Return the integer at `key`."""
        value = self.values[key]
        if not isinstance(value, int):
            raise TypeError(key)
        return value

    def text(self, key: str) -> str:
        """Return the text at `key`."""
        return str(self.values[key])

    def cost_ps(self, part: str) -> int:
        """Return what `part` of the scheduler's work costs: its own key, else the profile's."""
        own = self.number(f"scheduler.{part}_ps")
        return PROFILES[self.text("scheduler.profile")][part] if own < 0 else own

    def weight(self, client: str) -> int:
        """Weight of a client under policy fair: 1 unless `scheduler.weights` names it."""
        return (weights(self.text("scheduler.weights")) or {}).get(client, 1)

    @property
    def clock_mode(self) -> ClockMode:
        """Clock mode as the control page shows it."""
        return ClockMode[self.text("clock.mode").partition(":")[0].upper()]

    def summary(self) -> str:
        """Return name and cores in one line: `edge-2 (2 AICORE, 1 DMA)`."""
        cores = (f"{self.number(f'classes.{c}.cores')} {c.upper()}" for c in self.classes)
        return f"{self.name} ({', '.join(cores)})"

    def describe(self) -> dict[str, Any]:
        """Return what the device is, for `info` and observers. Units are in the key names."""
        return {
            "soc": self.name,
            "description": self.description,
            "seed": self.values["seed"],
            "policy": self.values["scheduler.policy"],
            "profile": self.values["scheduler.profile"],
            "clock_mode": self.values["clock.mode"],
            "clients": self.values["clock.clients"],
            "alignment_bytes": self.values["memory.alignment"],
            "scheduler_costs_ps": {p: self.cost_ps(p) for p in PROFILES["ideal"]},
            "limits": self._section("limits."),
            "classes": [{"name": c.upper()} | self._section(f"classes.{c}.") for c in self.classes],
            "settings": dict(self.values),
        }

    def _section(self, prefix: str) -> dict[str, int | str | bool]:
        return {k.removeprefix(prefix): v for k, v in self.values.items() if k.startswith(prefix)}

    def fill(self, target: CData) -> None:
        """Write this configuration into a `struct device_config` (a cffi structure)."""
        target.class_count = len(self.classes)
        for row, name in zip(target.classes, self.classes, strict=False):
            row.name = name.upper().encode()
            for key in CLASS_SETTINGS:
                value = self.values[f"classes.{name}.{key}"]
                setattr(row, key, COSTS[str(value)] if key == "cost" else int(value))
        target.policy = POLICIES[self.text("scheduler.policy")]
        target.clock_mode = int(self.clock_mode)
        # A factor of 1 is 1000 ps of virtual time per wall ns; `free` crosses idle gaps so.
        factor = paced_factor(self.text("clock.mode")) or Fraction(1)
        rate = (1000 * factor).limit_denominator(10**6)
        target.paced_num, target.paced_den = rate.numerator, rate.denominator
        target.clients = self.number("clock.clients")
        target.max_contexts = self.number("limits.contexts")
        target.max_streams = self.number("limits.streams")
        target.max_events = self.number("limits.events")
        target.edge_nodes = self.number("limits.edge_nodes")
        target.alignment = self.number("memory.alignment")
        target.seed = self.number("seed")
        target.poll_cost_ps = self.number("host.poll_cost_ns") * 1000
        target.wait_limit_ps = self.number("limits.wait_ms") * 10**9
        target.host_task_ps = self.number("host.task_cost_ps")
        target.host_call_ps = self.number("host.call_cost_ps")
        target.ageing_ps = self.number("scheduler.ageing_us") * 10**6
        target.hold_limit_ns = self.number("clock.hold_limit_ms") * 10**6
        for part in PROFILES["ideal"]:
            setattr(target, f"{part}_ps", self.cost_ps(part))


def preset_names() -> list[str]:
    """Return the names of the built-in SoCs."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load(
    soc: str | Path = "edge-2",
    settings: Mapping[str, object] | Iterable[tuple[str, object]] = (),
) -> SocConfig:
    """Return the configuration of a preset or TOML file with `settings` put over it.

    `settings` are pairs or a mapping, nested or with dotted keys; the last of equal keys counts. A
    file may say `extends = "PRESET"` and change only some keys. Raises `ConfigError` when there is
    no such preset or file, for an unknown key, for a value of the wrong type or out of range, and
    for keys that contradict each other.
    """
    name, document = _document(soc)
    description = document.pop("description", "")
    name = str(document.pop("name", name))
    values: Values = {}
    base = document.pop("extends", None)
    if base is not None:
        if base not in preset_names():
            raise ConfigError(
                "extends", base, "there is no such preset", f"presets: {', '.join(preset_names())}"
            )
        below = load(str(base))
        values |= below.values
        description = description or below.description
    values = _with_classes(document, values)
    given = list(flatten(document))
    given += flatten(settings) if isinstance(settings, Mapping) else list(settings)
    for key, value in given:
        lowered = key.lower()
        values[lowered] = find(lowered, class_names(values)).check(lowered, value)
    _check_together(values)
    return SocConfig(name, str(description), values)


def _document(soc: str | Path) -> tuple[str, dict[str, Any]]:
    """Return the SoC's name and its parsed file."""
    path = Path(soc)
    if isinstance(soc, str) and soc in preset_names():
        path = PRESETS / f"{soc}.toml"
    elif isinstance(soc, str) and "/" not in soc and not soc.endswith(".toml"):
        raise ConfigError(
            "soc",
            soc,
            "there is no such preset",
            f"presets: {', '.join(preset_names())}; a file is named by a path that ends in .toml",
        )
    try:
        with path.open("rb") as file:
            data = file.read(FILE_LIMIT + 1)
    except OSError as error:
        raise ConfigError(
            "soc", str(soc), f"the file cannot be read ({error.strerror})", "check the path"
        ) from error
    if len(data) > FILE_LIMIT:
        raise ConfigError(
            "soc", str(soc), f"the file is longer than {FILE_LIMIT} bytes", "is it a SoC file?"
        )
    try:
        return path.stem, tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            "soc", str(soc), f"the file is not TOML ({error})", "see `tsemu presets --show edge-2`"
        ) from error


def _with_classes(document: Mapping[str, Any], values: Values) -> Values:
    """Return all defaults: those of `values`, of the classes that the document adds, the rest."""
    classes = document.get("classes", {})
    if not isinstance(classes, Mapping):
        raise ConfigError("classes", classes, "this is not a table", "write [classes.aicore]")
    full = dict(values)
    for name, table in classes.items():
        if not isinstance(table, Mapping):
            raise ConfigError(
                f"classes.{name}", table, "this is not a table", f"write [classes.{name}]"
            )
        plain = name.replace("_", "").isalnum() and name.isascii() and name == name.lower()
        if not plain or len(name) > 15:
            raise ConfigError(
                "classes",
                name,
                "this cannot be a class name",
                "use up to 15 lower-case ASCII letters, digits and underscores",
            )
        for key, setting in CLASS_SETTINGS.items():
            full.setdefault(f"classes.{name}.{key}", setting.default)
    return full | {k: s.default for k, s in SETTINGS.items() if k not in full}


def _check_together(values: Values) -> None:
    names = class_names(values)
    if not 1 <= len(names) <= MAX_CLASSES:
        raise ConfigError(
            "classes", len(names), "number of engine classes", f"describe 1 to {MAX_CLASSES}"
        )
    cores = sum(int(values[f"classes.{name}.cores"]) for name in names)
    if cores > MAX_CORES:
        raise ConfigError("classes", cores, "cores of all classes together", f"at most {MAX_CORES}")
    if not any(values[f"classes.{name}.moves_bytes"] for name in names):
        raise ConfigError(
            "classes",
            ", ".join(names),
            "no class moves bytes, so MEMCPY and MEMSET could not run",
            "set moves_bytes = true in one class",
        )
    for name in names:
        if values[f"classes.{name}.moves_bytes"] and not values[f"classes.{name}.bandwidth_mbps"]:
            raise ConfigError(
                f"classes.{name}.bandwidth_mbps",
                0,
                "a class that moves bytes needs a speed",
                "give its bandwidth in MB/s",
            )
    alignment = int(values["memory.alignment"])
    if alignment & (alignment - 1):
        raise ConfigError(
            "memory.alignment", alignment, "this is not a power of two", "give 1, 2, 4 ... 4096"
        )
    if int(values["clock.clients"]) > int(values["limits.contexts"]):
        raise ConfigError(
            "clock.clients",
            values["clock.clients"],
            f"more than limits.contexts = {values['limits.contexts']}",
            "raise limits.contexts, or the clock would never start",
        )
