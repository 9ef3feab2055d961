"""Devices: opening one, in this process or in another, and what belongs to it."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from tsemu.descriptors.codes import ABI_MAJOR, ABI_MINOR
from tsemu.host_driver import address as addresses
from tsemu.host_driver import embedded, session
from tsemu.host_driver._driver import ffi, lib
from tsemu.host_driver.context import DEFAULT_PRIORITY, Context
from tsemu.host_driver.errors import ClosedError, InvalidError, TsemuError, last_error
from tsemu.host_driver.query import query_info

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    import numpy as np
    from numpy.typing import DTypeLike, NDArray

    from tsemu.descriptors.program import Program
    from tsemu.host_driver.batch import Batch
    from tsemu.host_driver.buffer import Buffer
    from tsemu.host_driver.completion import Completions
    from tsemu.host_driver.event import Event
    from tsemu.host_driver.program import ProgramResult
    from tsemu.host_driver.stream import Stream
    from tsemu.host_driver.task import Task

OPTIONS = (
    "slots", "window", "sq_entries", "cq_entries", "batch", "stream_limit", "host_heap_mib",
    "device_heap_mib",
)  # fmt: skip
"""What a context can be opened with; 0 is the default of each (see `Device.open`)."""
LONGEST_NAME = 63
_RUN_OPTIONS = {
    "settings": "--set KEY=VALUE",
    "policy": "--policy",
    "clock": "--clock",
    "seed": "--seed",
    "clients": "--clients",
    "soc": "--soc",
}


class Device:
    """A task scheduler with its cores, and this client's contexts on it.

        with Device.open("emu:edge-2") as device:
            stream = device.create_stream()
            task = stream.launch("gemm", cycles=1000)
            task.wait()

    Methods that work on a context use the first one, `device.context`. Closing the device closes
    all its contexts; it is a context manager. A device that is forgotten without being closed
    is closed with a `ResourceWarning`.
    """

    def __init__(
        self,
        address: str,
        opener: Callable[[str, Mapping[str, int]], tuple[Any, Callable[[], None]]],
        emulator: Any = None,  # noqa: ANN401 - the emulator is not imported here
    ) -> None:
        self.address = address
        self._opener = opener
        self._emulator = emulator
        self._lock = threading.Lock()
        self._contexts: list[Context] = []
        self._open = True
        self._process = os.getpid()

    @classmethod
    def open(
        cls,
        address: str = "emu:edge-2",
        *,
        name: str | None = None,
        soc: str | None = None,
        settings: Mapping[str, object] | None = None,
        policy: str | None = None,
        clock: str | None = None,
        seed: int | None = None,
        clients: int | None = None,
        **options: int,
    ) -> Self:
        """Open a device and a first context on it.

        Args:
            address: `emu:PRESET` or `emu:FILE.toml` for a device in this process, `unix:PATH` for
                a process that `tsemu run` started.
            name: this client's name, 1 to 63 bytes; the device makes one up if None. Must differ
                from that of every other client.
            soc: preset or file, in place of the one in an `emu:` address.
            settings: over those of the SoC file, such as `{"classes.aicore.cores": 4}`.
            policy: scheduling policy: "priority", "fifo", "rank", "edf" or "fair".
            clock: "lockstep", "free" or "paced:FACTOR".
            seed: seed of the model.
            clients: clients that must be there before the clock starts.
            options: of the context: `slots` (W, 4096), `window` (V, half of them), `sq_entries`,
                `cq_entries` (powers of two), `batch` (slots - window), `stream_limit` (an eighth
                of the window), `host_heap_mib` (64), `device_heap_mib` (256).

        Raises:
            AddressError: nobody can be reached at the address, or it is none.
            InvalidError: an option that does not exist or is out of range; one of the device's
                own settings for a device that already runs (`tsemu run` has an option for it).
            NameInUseError: another client has this name.
            NoResourceError: the device has no context left.
            ProtocolError: the device speaks another protocol version.
        """
        parsed = addresses.parse(address)
        own = {
            "soc": soc, "settings": settings, "policy": policy, "clock": clock, "seed": seed,
            "clients": clients,
        }  # fmt: skip
        given: dict[str, Any] = {
            key: value for key, value in own.items() if value not in (None, {})
        }
        _check_options(options)
        _check_soc(soc, settings)
        if parsed.kind == "unix":
            for key, value in given.items():
                raise InvalidError(
                    f"{key} = {value!r} is a setting of the device, which already runs",
                    field=key,
                    value=value,
                    hint=f"give it to `tsemu run` as {_RUN_OPTIONS[key]}",
                )
            device = cls(str(parsed), _Socket(str(parsed)))
        else:
            given.pop("soc", None)
            emulator = embedded.make_emulator(
                soc or parsed.target, given.pop("settings", None), **given
            )
            device = cls(
                f"emu:{soc or parsed.target}",
                lambda wanted, chosen: embedded.open_context(emulator, wanted, chosen),
                emulator,
            )
        try:
            device.create_context(name, **options)
        except BaseException:
            device.close()
            raise
        return device

    def __repr__(self) -> str:
        return f"<Device {self.address}{'' if self._open else ', closed'}>"

    @property
    def context(self) -> Context:
        """The first context: this client."""
        with self._lock:
            if self._contexts:
                return self._contexts[0]
        raise ClosedError(
            "the device has been closed", field="device", value=self.address, hint="open it again"
        )

    @property
    def is_open(self) -> bool:
        """False once it has been closed."""
        return self._open

    def create_context(self, name: str | None = None, **options: int) -> Context:
        """Open another context: to the device, another client. Options as in `open`."""
        _check_options(options)
        if not self._open:
            raise ClosedError(
                "the device has been closed",
                field="device",
                value=self.address,
                hint="open it again",
            )
        pointer, release = self._opener(_check_name(name), options)
        made = Context(self, pointer, release)
        with self._lock:
            self._contexts.append(made)
        return made

    def close(self) -> None:
        """Close all contexts, and an embedded device with them. Always returns; twice is fine."""
        self._open = False
        with self._lock:
            held, self._contexts = self._contexts, []
        for each in reversed(held):
            each.close()
        emulator, self._emulator = self._emulator, None
        if emulator is not None and os.getpid() == self._process:
            emulator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            if os.getpid() == self._process:
                warnings.warn(
                    f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2
                )
            self.close()

    def info(self) -> dict[str, Any]:
        """What the device is and how it is: classes, cores, limits, clock, version, contexts.

        Reads at the current instant: costs no virtual time and changes nothing. The keys are those
        of `tsctl info --json`; facts about a context are in `context.info`.
        """
        if self._emulator is not None:
            found: dict[str, Any] = self._emulator.info()
        else:
            found = query_info(self.address)
        return {**found, "driver_protocol": f"{ABI_MAJOR}.{ABI_MINOR}"}

    # --- the first context's methods ------------------------------------------------------------

    @property
    def default_stream(self) -> Stream:
        """`Context.default_stream` of the first context."""
        return self.context.default_stream

    def create_stream(
        self,
        in_order: bool = True,
        priority: int = DEFAULT_PRIORITY,
        limit: int | None = None,
        name: str | None = None,
    ) -> Stream:
        """`Context.create_stream` of the first context."""
        return self.context.create_stream(in_order, priority, limit, name)

    def event(self) -> Event:
        """`Context.event` of the first context."""
        return self.context.event()

    def alloc(
        self,
        shape: int | Sequence[int],
        dtype: DTypeLike = "u1",
        where: Literal["host", "device"] = "host",
    ) -> Buffer:
        """`Context.alloc` of the first context."""
        return self.context.alloc(shape, dtype, where)

    def synchronize(self, timeout: int | str | None = None) -> None:
        """`Context.synchronize` of each context in turn."""
        self.context  # noqa: B018 - says that the device is closed
        for each in list(self._contexts):
            each.synchronize(timeout)

    async def synchronize_async(self, timeout: int | str | None = None) -> None:
        """`synchronize` as an awaitable."""
        self.context  # noqa: B018 - says that the device is closed
        for each in list(self._contexts):
            await each.synchronize_async(timeout)

    def submit_batch(
        self,
        tasks: NDArray[np.void],
        edges: tuple[NDArray[np.uint32], NDArray[np.uint32]] | None = None,
        after: Sequence[Task] = (),
        block: bool = True,
    ) -> Batch:
        """`Context.submit_batch` of the first context."""
        return self.context.submit_batch(tasks, edges, after, block)

    def run_program(
        self,
        work: Program,
        *,
        on_completions: Callable[[NDArray[np.void]], object] | None = None,
        progress: Callable[[int, int], object] | None = None,
        timeout: int | str | None = None,
    ) -> ProgramResult:
        """`Context.run_program` of the first context."""
        return self.context.run_program(
            work, on_completions=on_completions, progress=progress, timeout=timeout
        )

    def completions(self, capacity: int | None = None) -> Completions:
        """`Context.completions` of the first context."""
        return self.context.completions(capacity)


class _Socket:
    """Opens contexts of a device process: a connection each."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __call__(self, name: str, options: Mapping[str, int]) -> tuple[Any, Callable[[], None]]:
        pointer = ffi.new("tsemu_context **")
        code = lib.tsemu_open(
            os.fsencode(self._address),
            name.encode() if name else ffi.NULL,
            ffi.new("tsemu_options *", dict(options)),
            pointer,
        )
        if code < 0:
            raise _open_error(code, self._address)
        return pointer[0], _nothing


def _open_error(code: int, address: str) -> TsemuError:
    fields: dict[str, object] = {}
    if code == lib.TSEMU_E_ADDRESS:
        fields = {"field": "address", "value": address}
    return last_error(code, **fields)


def _nothing() -> None:
    """A device process cleans up behind its clients."""


def _check_name(name: str | None) -> str:
    if name is None:
        return ""
    given: object = name
    length = len(given.encode(errors="replace")) if isinstance(given, str) else 0
    if not 1 <= length <= LONGEST_NAME or not name.isprintable():
        raise InvalidError(
            f"name {name!r} is not printable text of 1 to {LONGEST_NAME} bytes",
            field="name",
            value=name,
            limit=LONGEST_NAME,
            hint="choose a shorter name, or None for one made up by the device",
        )
    return name


def _check_soc(soc: object, settings: object) -> None:
    if soc is not None and not isinstance(soc, (str, os.PathLike)):
        raise InvalidError(
            f"soc {soc!r} is neither a preset nor a file",
            field="soc",
            value=soc,
            hint='give a name such as "edge-2", or the path of a .toml file',
        )
    if settings is not None and not isinstance(settings, Mapping):
        raise InvalidError(
            f"settings {settings!r} is no mapping",
            field="settings",
            value=settings,
            hint='give a dict such as {"classes.aicore.cores": 4}',
        )


def _check_options(options: Mapping[str, object]) -> None:
    for key, value in options.items():
        if key not in OPTIONS:
            raise InvalidError(
                f"{key} is no option of a context",
                field=key,
                value=value,
                hint=f"use one of {', '.join(OPTIONS)}",
            )
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 0xFFFF_FFFF:
            raise InvalidError(
                f"{key} {value!r} is not an integer from 0 to 4294967295",
                field=key,
                value=value,
                limit=0xFFFF_FFFF,
                hint="give a number, or 0 for the default",
            )


os.register_at_fork(after_in_child=session.forget_all)
