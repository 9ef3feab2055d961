"""Options of a context: defaults, checks, and the C structure that the device takes."""

from collections.abc import Mapping, Sequence

from tsemu.descriptors.codes import ControlStatus
from tsemu.mailbox.errors import RefusedError
from tsemu.ts_firmware.config import CData, SocConfig

OPTIONS = (
    "slots",
    "window",
    "sq_entries",
    "cq_entries",
    "batch",
    "stream_limit",
    "host_heap_mib",
    "device_heap_mib",
)
"""Context options in the order of the OPEN request's arguments. 0 means the default."""
MIB = 1 << 20
NAME_BYTES = 63
MAX_SLOTS = 65_535
MAX_RING = 1 << 20


def named(arguments: Sequence[int]) -> dict[str, int]:
    """Return the options of an OPEN request by name."""
    return dict(zip(OPTIONS, arguments, strict=False))


def resolve(config: SocConfig, given: Mapping[str, int]) -> dict[str, int]:
    """Return all options, with defaults for those that are 0 or missing.

    A default is the `context.*` setting of the SoC; where that is 0 too it follows from the other
    options: window = slots / 2, batch = slots - window, rings hold all slots, a stream may hold an
    eighth of the window. Raises `RefusedError` (BAD_VALUE) for an unknown option, one out of range,
    or options that contradict each other.
    """
    for name in given:
        if name not in OPTIONS:
            raise _bad(name, given[name], "there is no such option", ", ".join(OPTIONS))
    values = {n: given.get(n) or config.number(f"context.{n}") for n in OPTIONS}
    slots = values["slots"]
    if not 2 <= slots <= MAX_SLOTS:
        raise _bad("slots", slots, "places for tasks", f"give 2 to {MAX_SLOTS}")
    values["window"] = window = values["window"] or slots // 2
    if not 1 <= window < slots:
        raise _bad("window", window, f"of {slots} slots", f"give 1 to {slots - 1}, or more slots")
    values["batch"] = batch = values["batch"] or slots - window
    if not 1 <= batch <= slots - window:
        raise _bad(
            "batch",
            batch,
            f"slots - window is {slots - window}",
            f"give 1 to {slots - window}, or a smaller window",
        )
    for name in ("sq_entries", "cq_entries"):
        values[name] = entries = values[name] or 1 << (slots - 1).bit_length()
        if not 2 <= entries <= MAX_RING or entries & (entries - 1):
            raise _bad(name, entries, "entries of a ring", f"give a power of two, 2 to {MAX_RING}")
    values["stream_limit"] = limit = values["stream_limit"] or max(1, window // 8)
    if not 1 <= limit <= window:
        raise _bad("stream_limit", limit, f"with a window of {window}", f"give 1 to {window}")
    capacity = config.number("memory.capacity_mib")
    heaps = values["host_heap_mib"] + values["device_heap_mib"]
    if heaps > capacity:
        name = max(("host_heap_mib", "device_heap_mib"), key=lambda n: values[n])
        raise _bad(
            name,
            values[name],
            f"both heaps together have {heaps} MiB, memory.capacity_mib is {capacity}",
            "ask for less, or raise memory.capacity_mib",
        )
    return values


def fill(target: CData, values: Mapping[str, int], name: str, process: int, interrupt: int) -> None:
    """Write resolved options into a `struct device_context_options` (a cffi structure)."""
    target.name = name.encode()
    target.process = process
    for option in OPTIONS[:6]:
        setattr(target, option, values[option])
    target.host_heap_size = values["host_heap_mib"] * MIB
    target.device_heap_size = values["device_heap_mib"] * MIB
    target.interrupt_fd = interrupt


def check_name(name: str) -> str:
    """Return a client's name. Raises `RefusedError` when it cannot be one."""
    if not name or len(name.encode()) > NAME_BYTES or not name.isprintable():
        raise _bad(
            "name",
            name[:80],
            "this cannot be a client's name",
            f"use 1 to {NAME_BYTES} bytes of printable UTF-8",
        )
    return name


def _bad(field: str, value: object, message: str, hint: str) -> RefusedError:
    return RefusedError(ControlStatus.BAD_VALUE, field, value, message, hint)
