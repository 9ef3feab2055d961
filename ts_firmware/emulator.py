"""The emulator: one device, its contexts, and what observers may know about it.

Embedded, the host's thread is the device's: `open_context` gives the host shared memory and the
function that runs the device. As a process, `server` adds sockets and a loop.
"""

import itertools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tsemu.descriptors.codes import ABI_MAJOR, ABI_MINOR, ControlStatus
from tsemu.mailbox.errors import RefusedError
from tsemu.mailbox.inprocess import InProcessLink
from tsemu.mailbox.memory import MemoryObject, new_eventfd
from tsemu.ts_firmware import contexts, observe
from tsemu.ts_firmware._device import ffi, lib
from tsemu.ts_firmware.config import CData, SocConfig, load
from tsemu.ts_firmware.settings import ConfigError, flatten

__all__ = ["ConfigError", "Context", "DevicePanicError", "Emulator", "Reason", "configure"]

DETAIL_BYTES = 256
CONSOLE_BYTES = 4096
CLOSE_SLICES = 50
"""Slices that closing an embedded context may take before its memory is given up later."""
SLICE_NS = 20_000_000
"""Longest stretch of wall time in C: signals and sockets are looked at in between."""


class Reason(IntEnum):
    """Why the device stopped running (`enum device_reason`)."""

    SLICE = 1
    IDLE = 2
    HELD = 3
    TIMER = 4
    PANIC = 5
    OUTSIDE = 6


class DevicePanicError(RuntimeError):
    """The firmware found its own state damaged and stopped. The text is its last message."""


@dataclass
class Context:
    """A context's memory and descriptors, as the emulator keeps them."""

    number: int
    name: str
    process: int
    memory: MemoryObject
    buffer: CData
    doorbell: int = -1
    interrupt: int = -1
    closing: bool = False

    def release(self) -> None:
        """Unmap and close everything."""
        ffi.release(self.buffer)
        for fd in (self.doorbell, self.interrupt):
            if fd >= 0:
                os.close(fd)
        self.doorbell = self.interrupt = -1
        self.memory.close()


class Emulator:
    """A device made from a SoC configuration.

    `soc` is a preset's name, the path of a TOML file, or a `SocConfig`; `settings` are put over
    it (nested or with dotted keys), and `policy`, `clock`, `seed`, `clients` over those. Raises
    `ConfigError` when they cannot be used.

    One thread at a time may call it; the pump of its contexts may be called by several.
    """

    def __init__(
        self,
        soc: str | Path | SocConfig = "edge-2",
        settings: Mapping[str, object] | Iterable[tuple[str, object]] = (),
        *,
        policy: str | None = None,
        clock: str | None = None,
        seed: int | None = None,
        clients: int | None = None,
    ) -> None:
        self.config = configure(
            soc, settings, policy=policy, clock=clock, seed=seed, clients=clients
        )
        self._contexts: dict[int, Context] = {}
        self._unnamed = itertools.count(1)
        self._late: list[Context] = []
        self._closing = 0
        self.address = "emu:" + self.config.name
        self._structure = ffi.new("struct device_config *")
        self.config.fill(self._structure)
        detail = ffi.new("char[]", DETAIL_BYTES)
        self._device = lib.device_create(self._structure, detail, DETAIL_BYTES)
        if self._device == ffi.NULL:
            raise ConfigError(*_detail(_text(detail)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return bool(self._device == ffi.NULL)

    def run(self, slice_ns: int = SLICE_NS, spin_ns: int = 0) -> Reason:
        """Turn virtual time for at most `slice_ns` of wall time and say why it stopped.

        Raises `DevicePanicError` when the firmware has stopped itself.
        """
        self._check_open()
        return self._checked(lib.device_run(self._device, slice_ns, spin_ns))

    def serve(self, reason: int, serving: CData) -> Reason:
        """Sleep and run by turns, as `device_serve` in `device.h` says.

        Raises `DevicePanicError` when the firmware has stopped itself.
        """
        self._check_open()
        return self._checked(lib.device_serve(self._device, reason, serving))

    def _checked(self, reason: int) -> Reason:
        if reason == Reason.PANIC:
            raise DevicePanicError(_text(lib.device_panic_text(self._device)))
        return Reason(reason)

    def create_context(
        self, name: str, options: Mapping[str, int], process: int, *, signalled: bool
    ) -> Context:
        """Open a context; `signalled`: with eventfds, for a host in another process.

        Raises `RefusedError`: BAD_VALUE (an option), NAME_IN_USE, NO_RESOURCE (limits.contexts,
        memory).
        """
        self._check_open()
        self.reap()
        values = contexts.resolve(self.config, options)
        name = contexts.check_name(name or self._free_name())
        if name in (context.name for context in self._contexts.values()):
            raise _name_in_use(name)
        limit = self.config.number("limits.contexts")
        if len(self._contexts) >= limit:
            raise _no_context(len(self._contexts), limit)
        structure = ffi.new("struct device_context_options *")
        contexts.fill(structure, values, name, process, -1)
        structure.weight = self.config.weight(name)
        detail = ffi.new("char[]", DETAIL_BYTES)
        size = lib.device_memory_size(self._structure, structure, detail, DETAIL_BYTES)
        if not size:
            raise _bad_options(_text(detail))
        context = _allocate(name, process, size, signalled=signalled)
        structure.interrupt_fd = context.interrupt
        number = lib.device_context_open(
            self._device, structure, ffi.cast("void *", ffi.addressof(context.buffer)), size
        )
        if number < 0:
            context.release()
            raise self._open_error(number, name, limit)
        context.number = number
        self._contexts[number] = context
        return context

    def _open_error(self, number: int, name: str, limit: int) -> RefusedError:
        if number == lib.DEVICE_E_NAME:
            return _name_in_use(name)
        if number == lib.DEVICE_E_CONTEXTS:
            return _no_context(len(self._contexts), limit)
        if number == lib.DEVICE_E_OPTIONS:
            return _bad_options("options||the device does not take these options|")
        return RefusedError(
            ControlStatus.NO_RESOURCE, "memory", name, "no memory left", "ask for fewer slots"
        )

    def _free_name(self) -> str:
        used = {context.name for context in self._contexts.values()}
        return next(n for n in (f"client-{k}" for k in self._unnamed) if n not in used)

    def open_context(
        self, name: str = "", options: Mapping[str, int] | None = None
    ) -> InProcessLink:
        """Open a context for a host in this process.

        `options` are slots, window, sq_entries, cq_entries, batch, stream_limit (tasks, entries),
        host_heap_mib and device_heap_mib; 0 or missing: the default. Raises `RefusedError`.
        """
        context = self.create_context(name, options or {}, os.getpid(), signalled=False)
        return InProcessLink(
            context=context.number,
            name=context.name,
            memory=context.memory.map,
            size=context.memory.size,
            pump=int(ffi.cast("uintptr_t", ffi.addressof(lib, "device_pump"))),
            device=int(ffi.cast("uintptr_t", self._device)),
            closer=self._close_embedded,
        )

    def _close_embedded(self, number: int) -> None:
        if self.closed:
            return
        self.close_context(number)
        for _ in range(CLOSE_SLICES):
            self.reap()
            if number not in self._contexts or self.run() != Reason.SLICE:
                break
        self.reap()

    def close_context(self, number: int) -> None:
        """The client is gone: unstarted work is cancelled; `reap` frees the memory later."""
        context = self._contexts.get(number)
        if context and not context.closing:
            context.closing = True
            self._closing += 1
            lib.device_context_close(self._device, number)

    def context(self, number: int) -> Context | None:
        """Return an open context by its number."""
        return self._contexts.get(number)

    @property
    def in_use(self) -> bool:
        """Whether there is any context."""
        return bool(self._contexts)

    @property
    def dying(self) -> set[str]:
        """Names of contexts whose client is gone and whose blocks still run."""
        if not self._closing:
            return set()
        return {context.name for context in self._contexts.values() if context.closing}

    def reap(self) -> list[Context]:
        """Free what the device has let go of; returns those contexts."""
        gone = [
            context
            for context in self._contexts.values()
            if context.closing and lib.device_context_gone(self._device, context.number)
        ]
        for context in gone:
            del self._contexts[context.number]
            self._closing -= 1
        self._release([*self._late, *gone])
        return gone

    def _release(self, items: list[Context]) -> None:
        """Unmap; what somebody still looks at is tried again at the next call."""
        late = []
        for context in items:
            try:
                context.release()
            except BufferError:  # a view of the memory is held
                late.append(context)
        self._late = late

    def console(self) -> str:
        """Take what the firmware has written to its console since the last call."""
        self._check_open()
        buffer = ffi.new("char[]", CONSOLE_BYTES)
        parts = []
        while taken := lib.device_console(self._device, buffer, CONSOLE_BYTES):
            parts.append(bytes(ffi.buffer(buffer, taken)))
        return b"".join(parts).decode("utf-8", "replace")

    def status(self) -> dict[str, Any]:
        """Return live counters: time, contexts, cores. Costs no virtual time."""
        self._check_open()
        clients = [
            observe.Client(context.number, context.name, context.process)
            for context in self._contexts.values()
        ]
        return observe.status(self._device, self.config, clients)

    def info(self) -> dict[str, Any]:
        """Return what the device is (`SocConfig.describe`) and, as `status`, what it does now."""
        return {
            **self.config.describe(),
            "protocol": f"{ABI_MAJOR}.{ABI_MINOR}",
            "address": self.address,
            "process": os.getpid(),
            "status": self.status(),
        }

    def close(self) -> None:
        """Destroy the device and free all memory; a second call does nothing."""
        if self.closed:
            return
        lib.device_destroy(self._device)
        self._device = ffi.NULL
        items = [*self._late, *self._contexts.values()]
        self._contexts.clear()
        self._release(items)

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("this emulator is closed; make another one")


def configure(
    soc: str | Path | SocConfig,
    settings: Mapping[str, object] | Iterable[tuple[str, object]] = (),
    *,
    policy: str | None = None,
    clock: str | None = None,
    seed: int | None = None,
    clients: int | None = None,
) -> SocConfig:
    """Return the configuration with the four short options put over the settings."""
    if isinstance(soc, SocConfig):
        return soc
    pairs = list(flatten(settings) if isinstance(settings, Mapping) else settings)
    short = {
        "scheduler.policy": policy,
        "clock.mode": clock,
        "seed": seed,
        "clock.clients": clients,
    }
    return load(soc, [*pairs, *((key, value) for key, value in short.items() if value is not None)])


def _allocate(name: str, process: int, size: int, *, signalled: bool) -> Context:
    try:
        memory = MemoryObject(f"tsemu:{name}", size)
    except OSError as error:
        raise RefusedError(
            ControlStatus.NO_RESOURCE,
            "memory",
            size,
            f"no memory object of this size ({error.strerror})",
            "ask for smaller heaps",
        ) from error
    context = Context(-1, name, process, memory, ffi.from_buffer(memory.map, require_writable=True))
    if signalled:
        try:
            context.doorbell = new_eventfd()
            context.interrupt = new_eventfd()
        except OSError as error:
            context.release()
            raise RefusedError(
                ControlStatus.NO_RESOURCE,
                "descriptors",
                len(list(Path("/proc/self/fd").iterdir())),
                f"no eventfd left ({error.strerror})",
                "raise the limit of open files (ulimit -n) of the device",
            ) from error
    return context


def _name_in_use(name: str) -> RefusedError:
    return RefusedError(
        ControlStatus.NAME_IN_USE,
        "name",
        name,
        "another client has this name",
        "give this client another one (Device.open(name=), --name)",
    )


def _no_context(used: int, limit: int) -> RefusedError:
    return RefusedError(
        ControlStatus.NO_RESOURCE,
        "limits.contexts",
        used,
        f"the device has {limit} contexts and all are in use",
        "close a client, or start the device with --set limits.contexts=N",
    )


def _bad_options(detail: str) -> RefusedError:
    field, value, message, hint = _detail(detail)
    return RefusedError(ControlStatus.BAD_VALUE, field, value, message, hint)


def _detail(text: str) -> tuple[str, str, str, str]:
    """Split the device's `field|value|message|hint`."""
    field, value, message, hint = (*text.split("|"), "", "", "", "")[:4]
    return field or "options", value, message or "cannot be used", hint or "change this value"


def _text(characters: CData) -> str:
    return bytes(ffi.string(characters)).decode("utf-8", "replace")
