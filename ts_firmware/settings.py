"""What can be set in a SoC configuration: every key with its type, range and meaning.

Knows nothing of files or devices: takes text or Python values, gives checked values, and says
what would have been right.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

U32 = 2**32 - 1
SECOND_PS = 10**12
MAX_WEIGHT = 1000
"""Largest weight of a client under policy fair."""
_FACTOR = re.compile(
    r"[0-9]{1,20}/[0-9]{1,20}|(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][+-]?[0-9]{1,2})?"
)
"""Few digits: an exact number with an exponent of nine digits would fill the memory."""


class ConfigError(ValueError):
    """A configuration cannot be used.

    `field` is the dotted key or option, `value` what was given, `hint` what to do.
    """

    def __init__(self, field: str, value: object, message: str, hint: str) -> None:
        super().__init__(field, value, message, hint)
        self.field = field
        self.value = value
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        shown = "" if self.value is None else f" = {self.value!r}"
        return f"{self.field}{shown}: {self.message}; {self.hint}"


@dataclass(frozen=True)
class Setting:
    """One key: `default` also gives its type; integers and reals lie in `low` to `high`."""

    doc: str
    default: int | str | bool
    low: int = 0
    high: int = U32
    choices: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """What may stand here, in words."""
        if isinstance(self.default, bool):
            return "true or false"
        if isinstance(self.default, int):
            return f"a whole number from {self.low} to {self.high}"
        return "one of " + ", ".join(self.choices) if self.choices else "text"

    def check(self, key: str, value: object) -> int | str | bool:
        """Return `value` in this key's type. Raises `ConfigError` when it cannot be."""
        fits: object = None
        if isinstance(self.default, bool):
            fits = _boolean(value)
        elif isinstance(self.default, int):
            number = _whole(value)
            fits = number if number is not None and self.low <= number <= self.high else None
        elif isinstance(value, str):
            fits = value if not self.choices or value in self.choices else None
        if not isinstance(fits, int | str):
            raise ConfigError(key, value, "this value cannot be used", f"give {self.expected}")
        return fits


def _boolean(value: object) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False, "1": True, "0": False}.get(value.lower())
    return bool(value) if isinstance(value, bool) or value in (0, 1) else None


def _whole(value: object) -> int | None:
    if isinstance(value, str):
        text = value.strip().replace("_", "")
        sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
        base = 16 if digits.lower().startswith("0x") else 10
        try:
            return int(sign + digits, base)
        except ValueError:
            return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def paced_factor(mode: str) -> Fraction | None:
    """Return F of `paced:F`; None for another mode or a factor that is not from 1e-6 to 1e6."""
    name, _, factor = mode.partition(":")
    if name != "paced" or not _FACTOR.fullmatch(factor or "1"):
        return None
    try:
        value = Fraction(factor or "1")
    except ZeroDivisionError:
        return None
    return value if Fraction(1, 10**6) <= value <= 10**6 else None


class ClockSetting(Setting):
    """`clock.mode`, the one key with a number inside a word."""

    @property
    def expected(self) -> str:
        """What may stand here, in words."""
        return "lockstep, free, or paced:FACTOR with a factor from 0.000001 to 1000000"

    def check(self, key: str, value: object) -> str:
        """Return the mode as text. Raises `ConfigError` when there is no such mode."""
        if isinstance(value, str) and (value in ("lockstep", "free") or paced_factor(value)):
            return value
        raise ConfigError(key, value, "there is no such clock mode", f"give {self.expected}")


def weights(text: str) -> dict[str, int] | None:
    """Return client names with their weights; None when the text is no list `NAME=WEIGHT,...`."""
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, number = part.rpartition("=")
        weight = _whole(number) if equals and name.strip() else None
        if weight is None or not 1 <= weight <= MAX_WEIGHT or name.strip() in found:
            return None
        found[name.strip()] = weight
    return found


class WeightsSetting(Setting):
    """`scheduler.weights`, a list in one text."""

    @property
    def expected(self) -> str:
        """What may stand here, in words."""
        return f"NAME=WEIGHT,... with each client once and weights from 1 to {MAX_WEIGHT}"

    def check(self, key: str, value: object) -> str:
        """Return the text. Raises `ConfigError` when it is no list of weights."""
        if isinstance(value, str) and weights(value) is not None:
            return value
        raise ConfigError(key, value, "these are no weights", f"give {self.expected}")


SETTINGS: Mapping[str, Setting] = {
    "seed": Setting("seed of everything that is drawn at random", 0, high=2**64 - 1),
    "scheduler.policy": Setting(
        "which ready task is dispatched first",
        "priority",
        choices=("priority", "fifo", "rank", "edf", "fair"),
    ),
    "scheduler.weights": WeightsSetting(
        "policy fair: weights of clients by name, as train=3,infer=1; others have 1", ""
    ),
    "scheduler.profile": Setting(
        "kind of scheduler, which sets what its work costs",
        "hardware",
        choices=("ideal", "hardware", "firmware", "software"),
    ),
    "scheduler.ageing_us": Setting(
        "policy priority: a ready task rises a level after this time, us; 0: never", 0
    ),
    "scheduler.fetch_ps": Setting(
        "cost of reading and checking an entry, ps; -1: as the profile says", -1, -1, SECOND_PS
    ),
    "scheduler.edge_ps": Setting(
        "cost of resolving an edge, ps; -1: as the profile says", -1, -1, SECOND_PS
    ),
    "scheduler.dispatch_ps": Setting(
        "cost of handing a block to a core, ps; -1: as the profile says", -1, -1, SECOND_PS
    ),
    "scheduler.retire_ps": Setting(
        "cost of ending a task, ps; -1: as the profile says", -1, -1, SECOND_PS
    ),
    "scheduler.interrupt_ps": Setting(
        "latency of a core's interrupt to the scheduler, ps; -1: as profile", -1, -1, SECOND_PS
    ),
    "clock.mode": ClockSetting("how virtual time relates to the hosts", "lockstep"),
    "clock.clients": Setting(
        "lockstep: clients with which the clock starts; they then hold it; 0: at once", 0, 0, 64
    ),
    "clock.hold_limit_ms": Setting(
        "wall time that a client may hold the clock while another waits, ms", 10_000, 1
    ),
    "limits.contexts": Setting("clients at the same time", 8, 1, 64),
    "limits.streams": Setting("streams of a context", 1024, 1, 65_535),
    "limits.events": Setting("events of a context", 1024, 0, 65_535),
    "limits.edge_nodes": Setting(
        "edges to incomplete tasks in a context; 0: four per place in the window", 0, 0, 2**24
    ),
    "limits.wait_ms": Setting("longest wait in device time, ms", 1_000_000, 1),
    "memory.alignment": Setting("of device addresses, bytes, a power of two", 64, 1, 4096),
    "memory.capacity_mib": Setting("most that the heaps of one context may take", 8192, 1, 2**20),
    "host.poll_cost_ns": Setting("device time of a poll that finds nothing, ns", 1000, 1),
    "host.task_cost_ps": Setting("host's cost of a task, ps; 0: infinitely fast", 0, 0, SECOND_PS),
    "host.call_cost_ps": Setting("host's cost of a call, ps; 0: infinitely fast", 0, 0, SECOND_PS),
    "context.slots": Setting(
        "places for tasks (default of clients that do not say)", 4096, 2, 65_535
    ),
    "context.window": Setting(
        "tasks not yet complete, at most; 0: half of the slots", 0, 0, 65_534
    ),
    "context.batch": Setting("tasks in a batch; 0: slots less window", 0, 0, 65_534),
    "context.sq_entries": Setting("submission ring; 0: from slots", 0, 0, 2**20),
    "context.cq_entries": Setting("completion ring; 0: from slots", 0, 0, 2**20),
    "context.stream_limit": Setting("tasks in a stream; 0: window / 8", 0, 0, 65_534),
    "context.host_heap_mib": Setting("host heap", 64, 1, 2**20),
    "context.device_heap_mib": Setting("device heap", 256, 1, 2**20),
    "link.spin_us": Setting(
        "wall time that an awake device spins before it sleeps, us", 50, 0, 10**6
    ),
    "link.handshake_ms": Setting("wall time that a client has for a message, ms", 5000, 10, 10**6),
}
"""Every key except those of the engine classes."""

CLASS_SETTINGS: Mapping[str, Setting] = {
    "cores": Setting("cores of the class", 1, 1, 1024),
    "frequency_mhz": Setting("clock of its cores, MHz", 1000, 1, 100_000),
    "bandwidth_mbps": Setting("memory traffic of one core, MB/s; 0: not limited", 0),
    "moves_bytes": Setting("true: runs MEMCPY and MEMSET, false: runs kernels", default=False),
    "cost": Setting(
        "fixed: cycles; roofline: the longer of cycles and memory traffic",
        "roofline",
        choices=("fixed", "roofline"),
    ),
    "setup_cycles": Setting("added to every block or copy, cycles", 0),
}
"""Keys of an engine class, below `classes.NAME`."""

Values = dict[str, int | str | bool]
"""Flat settings: dotted key to value."""


def flatten(nested: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield (dotted key, value) of nested or already dotted mappings."""
    for name, value in nested.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from flatten(value, f"{key}.")
        else:
            yield key, value


def class_names(values: Values) -> list[str]:
    """Return the engine classes of flat settings, in order of their first key."""
    return list(dict.fromkeys(key.split(".")[1] for key in values if key.startswith("classes.")))


def find(key: str, classes: list[str]) -> Setting:
    """Return the setting called `key` on a SoC with these classes.

    Raises `ConfigError` with close matches and all keys when there is none.
    """
    if key in SETTINGS:
        return SETTINGS[key]
    head, _, last = key.rpartition(".")
    section, _, name = head.partition(".")
    if section == "classes" and name in classes and last in CLASS_SETTINGS:
        return CLASS_SETTINGS[last]
    known = all_keys(classes)
    close = difflib.get_close_matches(key, known, n=3, cutoff=0.6)
    near = f"did you mean {' or '.join(close)}? " if close else ""
    hint = f"{near}`tsemu presets --keys --soc SOC` lists all keys"
    raise ConfigError(key, None, "there is no such key", hint)


def all_keys(classes: list[str]) -> list[str]:
    """Return every key that a SoC with these classes has."""
    per_class = [f"classes.{name}.{last}" for name in classes for last in CLASS_SETTINGS]
    return [*per_class, *SETTINGS]


def parse_assignment(text: str) -> tuple[str, str]:
    """Split `KEY=VALUE`. Raises `ConfigError` when there is no `=` or no key."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(
            "--set", text, "this is not KEY=VALUE", "write --set classes.aicore.cores=4"
        )
    return key.strip().lower(), value.strip()
