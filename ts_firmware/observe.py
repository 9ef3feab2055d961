"""What observers see of a running device: its counters as plain values, units in the names.

Reads only, at the current instant: no virtual time passes and no client is waited for.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tsemu.descriptors.codes import ContextState
from tsemu.ts_firmware._device import ffi, lib
from tsemu.ts_firmware.config import CData, SocConfig

COUNTERS = ("now_ps", "admitted", "completed", "dispatched", "instants", "hold_limits")
STATES = {int(state): state.name for state in ContextState}


@dataclass(frozen=True)
class Client:
    """A context as the emulator knows it; `process` is the client's process number."""

    context: int
    name: str
    process: int


def status(device: CData, config: SocConfig, clients: Iterable[Client]) -> dict[str, Any]:
    """Return the counters of a `device *` and of its contexts and cores."""
    counts = ffi.new("struct device_status *")
    lib.device_status(device, counts)
    return {
        **{name: int(getattr(counts, name)) for name in COUNTERS},
        "contexts": [_context(device, client) for client in clients],
        "cores": _cores(device, config, int(counts.cores)),
    }


def _context(device: CData, client: Client) -> dict[str, Any]:
    found = ffi.new("struct device_context_status *")
    lib.device_context_status(device, client.context, found)
    return {
        "context": client.context,
        "name": client.name,
        "process": client.process,
        "state": STATES.get(int(found.state), "CLOSED"),
        "admitted": int(found.admitted),
        "completed": int(found.completed),
        "incomplete": int(found.incomplete),
        "published": int(found.published),
        "holds": bool(found.holds),
        "waits": bool(found.waits),
    }


def _cores(device: CData, config: SocConfig, count: int) -> list[dict[str, Any]]:
    cores = ffi.new("struct device_core_status[]", max(count, 1))
    found = int(lib.device_cores(device, cores, count))
    classes = [name.upper() for name in config.classes]
    return [
        {
            "core": number,
            "engine_class": classes[core.engine_class],
            "busy": bool(core.busy),
            "busy_ps": int(core.busy_ps),
            "blocks": int(core.blocks),
        }
        for number, core in enumerate(cores[0:found])
    ]
