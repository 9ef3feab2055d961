"""What the device says about itself and about a context (its control page)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tsemu.descriptors.codes import ClockMode
from tsemu.host_driver._driver import ffi, lib
from tsemu.host_driver.errors import InvalidError, last_error


@dataclass(frozen=True)
class EngineClass:
    """An engine class: `moves_bytes` ones run copies, the others kernels."""

    name: str
    number: int
    cores: int
    frequency_mhz: int
    moves_bytes: bool


@dataclass(frozen=True)
class ContextInfo:
    """Facts about a context, fixed when it is opened. Sizes in bytes, times in picoseconds."""

    name: str
    number: int
    clock: str
    abi: tuple[int, int]
    slots: int
    window: int
    batch: int
    stream_limit: int
    sq_entries: int
    cq_entries: int
    max_streams: int
    max_events: int
    edge_nodes: int
    alignment: int
    poll_cost_ps: int
    wait_limit_ps: int
    host_base: int
    host_heap_size: int
    device_base: int
    device_heap_size: int
    classes: tuple[EngineClass, ...]

    @classmethod
    def from_page(cls, page: Any) -> ContextInfo:  # noqa: ANN401 - a cffi struct has no type
        """Read the facts from a control page."""
        classes = tuple(
            EngineClass(
                name=_text(row.name),
                number=number,
                cores=row.cores,
                frequency_mhz=row.frequency_mhz,
                moves_bytes=bool(row.flags & 1),
            )
            for number, row in enumerate(page.classes[0 : page.class_count])
        )
        same = (
            "slots", "window", "batch", "stream_limit", "sq_entries", "cq_entries", "max_streams",
            "max_events", "edge_nodes", "alignment", "poll_cost_ps", "wait_limit_ps", "host_base",
            "host_heap_size", "device_base", "device_heap_size",
        )  # fmt: skip
        return cls(
            name=_text(page.name),
            number=page.context,
            clock=ClockMode(page.clock_mode).name.lower(),
            abi=(page.major, page.minor),
            classes=classes,
            **{name: int(getattr(page, name)) for name in same},
        )

    def class_numbers(self) -> dict[str, int]:
        """Number of each engine class by its name, in upper and in lower case."""
        upper = {row.name: row.number for row in self.classes}
        return upper | {name.lower(): number for name, number in upper.items()}

    def class_number(self, name: object) -> int:
        """Number of an engine class; raises `InvalidError` listing the classes that exist."""
        for row in self.classes:
            if isinstance(name, str) and row.name.lower() == name.lower():
                return row.number
        raise InvalidError(
            f"engine {name!r} is no engine class of this device",
            field="engine",
            value=name,
            hint=f"use one of {', '.join(row.name for row in self.classes)}",
        )

    def class_for(self, name: object, *, copies: bool) -> int:
        """Number of an engine class that runs copies or kernels; raises `InvalidError`."""
        number = self.class_number(name)
        if self.classes[number].moves_bytes != copies:
            other = [row.name for row in self.classes if row.moves_bytes == copies]
            raise InvalidError(
                f"engine {name!r} runs {'kernels' if copies else 'copies'} only",
                field="engine",
                value=name,
                hint=f"use one of {', '.join(other)}" if other else "use another SoC",
            )
        return number

    def copy_class(self) -> int:
        """Number of the first class that moves bytes."""
        for row in self.classes:
            if row.moves_bytes:
                return row.number
        raise InvalidError(
            "the device has no engine class that moves bytes",
            field="engine",
            hint="use an SoC with a DMA class",
        )


def read_page(gate: Any) -> Any:  # noqa: ANN401 - cffi objects have no type
    """Copy of the control page of the context behind a gate."""
    page = ffi.new("struct tsemu_control_page *")
    code = lib.handle_page(gate, page)
    if code < 0:
        raise last_error(code)
    return page


def _text(array: Any) -> str:  # noqa: ANN401 - a cffi array has no type
    return bytes(array).split(b"\0", 1)[0].decode("utf-8", "replace")
