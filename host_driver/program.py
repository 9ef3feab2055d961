"""Running a program file: streams, events and buffers made, chunks fed, completions handed over.

Memory stays flat: a chunk of the file is mapped, checked and submitted at a time, and completions
come through a ring of fixed size.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tsemu.descriptors.entries import CQE
from tsemu.descriptors.program import Placement, Program, resolve_references
from tsemu.descriptors.program_layout import WINDOW_LIMIT
from tsemu.host_driver._driver import ffi, lib
from tsemu.host_driver.errors import BusyError, ClosedError, InvalidError
from tsemu.host_driver.units import limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tsemu.host_driver.buffer import Buffer
    from tsemu.host_driver.context import Context
    from tsemu.host_driver.event import Event
    from tsemu.host_driver.stream import Stream

CQE_DTYPE = CQE.dtype
"""NumPy type of what `on_completions` is given: completion entries, 64 bytes each."""
SINK_ENTRIES = 16384
"""Completions between two calls of `on_completions`, at most (1 MiB: it stays in the cache)."""


@dataclass(frozen=True)
class ProgramResult:
    """How a program ended. Times in picoseconds of virtual time."""

    submitted: int
    completed: int
    failed: int
    first_start_ps: int
    last_end_ps: int

    @property
    def makespan_ps(self) -> int:
        """Time from the first start to the last end."""
        return self.last_end_ps - self.first_start_ps

    @property
    def ok(self) -> bool:
        """True when all tasks succeeded."""
        return self.failed == 0 and self.completed == self.submitted


def run(
    context: Context,
    work: Program,
    *,
    on_completions: Callable[[NDArray[np.void]], object] | None,
    progress: Callable[[int, int], object] | None,
    timeout: int | str | None,
) -> ProgramResult:
    """Run a program to its end.

    Args:
        context: where it runs; the program gets streams, events and buffers of its own there.
        work: the program. All of it is checked before the first task is submitted.
        on_completions: called with arrays of `CQE_DTYPE`, in completion order; an array is valid
            during the call only. Called between steps, outside of the device.
        progress: called with (tasks ended, tasks of the program) now and then.
        timeout: limit of the wait for the last tasks, in the device's time.

    A task that fails is counted, it raises nothing. Raises `ParseError` (of
    `tsemu.descriptors`) or `InvalidError` naming the field for a program that cannot run here,
    `NoResourceError` when the context lacks streams, events or memory, `DeviceTimeoutError`.
    An exception of `on_completions` or Ctrl-C ends the call; tasks in flight then end by
    themselves.
    """
    timeout_ps = limit(timeout)
    given: object = work
    if not isinstance(given, Program):
        raise InvalidError(
            f"work {given!r} is no program",
            field="work",
            value=given,
            hint="open one with tsemu.descriptors.program.Program.open(path)",
        )
    work.verify()
    with contextlib.ExitStack() as stack:
        runner = _Runner(context, work, stack, on_completions, progress)
        runner.check()
        try:
            runner.feed(timeout_ps)
        except BaseException:
            # Tasks in flight still use streams and buffers: those stay until the context closes.
            stack.pop_all()
            runner.abandon()
            raise
        return runner.result()


class _Runner:
    """A program at work."""

    def __init__(
        self,
        context: Context,
        work: Program,
        stack: contextlib.ExitStack,
        on_completions: Callable[[NDArray[np.void]], object] | None,
        progress: Callable[[int, int], object] | None,
    ) -> None:
        self._context = context
        self._gate = context.gate
        self._work = work
        self._on_completions = on_completions
        self._progress = progress
        classes = [context.info.class_number(name) for name in work.classes]
        owned = _Owned(context, work, stack)
        self._bases = np.array(owned.bases, np.uint64)
        entries = max(SINK_ENTRIES, context.info.slots) if on_completions else 0
        self._sink = ffi.new("struct tsemu_cqe[]", entries)
        self._entries = np.frombuffer(ffi.buffer(self._sink), CQE_DTYPE)
        self._program = context.program(
            owned.stream_numbers,
            len(owned.stream_numbers),
            owned.event_numbers,
            len(owned.event_numbers),
            classes or [0],
            max(len(classes), 1),
            self._sink if entries else ffi.NULL,
            entries,
        )
        stack.callback(context.free_program, self._program)

    def check(self) -> None:
        """Check all tasks against this device."""
        for first, tasks, edges in self._work.chunks():
            code = lib.handle_program_check(
                self._gate, self._program, *self._arrays(tasks, edges), first
            )
            if code < 0:
                raise self._context.error(code)

    def feed(self, timeout_ps: int) -> None:
        """Submit all chunks and wait for the end."""
        position = ffi.new("uint32_t *")
        for _, tasks, edges in self._work.chunks():
            position[0] = 0
            arrays = self._arrays(tasks, edges)
            self._steps(lib.handle_program_feed, self._program, *arrays, position)
        self._steps(lib.handle_program_finish, self._program, timeout_ps)

    def abandon(self) -> None:
        """Let tasks in flight end by themselves; nobody counts them any more."""
        self._context.free_program(self._program)

    def result(self) -> ProgramResult:
        """The counts at the end."""
        counts = self._counts()
        return ProgramResult(
            submitted=counts.submitted,
            completed=counts.consumed,
            failed=counts.failed,
            first_start_ps=counts.first_start_ps,
            last_end_ps=counts.last_end_ps,
        )

    def _arrays(self, tasks: NDArray[Any], edges: NDArray[Any]) -> tuple[Any, int, Any, int]:
        if len(self._bases):
            tasks = resolve_references(tasks, self._bases)
        return (
            ffi.from_buffer("driver_program_task[]", tasks),
            len(tasks),
            ffi.from_buffer("uint32_t[]", edges),
            len(edges),
        )

    def _steps(self, step: Any, *arguments: Any) -> None:  # noqa: ANN401 - what C takes
        """Like `Context.run`, taking completions out of the sink between steps."""
        operation = ffi.new("driver_operation *")
        try:
            while True:
                code = step(self._gate, *arguments, operation)
                if code == lib.TSEMU_CALLBACKS:
                    self._context.callbacks.run()
                self._drain()
                if code <= 0:
                    break
        except BaseException:
            lib.handle_abandon(self._gate, operation)
            raise
        self._context.check(code)

    def _drain(self) -> None:
        if self._on_completions is not None:
            first = ffi.new("uint32_t *")
            while count := lib.handle_program_drain(self._gate, self._program, first):
                self._on_completions(self._entries[first[0] : first[0] + count])
        if self._progress is not None:
            self._progress(int(self._counts().consumed), self._work.task_count)

    def _counts(self) -> Any:  # noqa: ANN401 - a cffi struct has no type
        counts = ffi.new("struct driver_program_counts *")
        lib.handle_program_counts(self._gate, self._program, counts)
        return counts


class _Owned:
    """Streams, events and buffers of a program in a context; given back when `stack` unwinds."""

    def __init__(self, context: Context, work: Program, stack: contextlib.ExitStack) -> None:
        self._context = context
        self._alignment = context.info.alignment
        slots = context.info.slots
        self.stream_numbers: list[int] = []
        for described in work.streams:
            # As many as there are slots is no limit: the window alone blocks, without a wait.
            most = slots if described.limit == WINDOW_LIMIT else described.limit or None
            stream = context.create_stream(
                in_order=described.in_order,
                priority=described.priority,
                limit=None if most is None else min(most, slots),
                name=described.name,
            )
            stack.callback(_give_back, stream)
            self.stream_numbers.append(stream.number)
        self.event_numbers: list[int] = []
        for _ in range(work.events):
            event = context.event()
            stack.callback(_give_back, event)
            self.event_numbers.append(event.number)
        self.bases: list[int] = []
        for index in range(len(work.buffers)):
            self.bases.append(self._load(work, index, stack))

    def _load(self, work: Program, index: int, stack: contextlib.ExitStack) -> int:
        """Allocate a buffer and put its first bytes there; return its address.

        Loading happens before time begins for the program: bytes are stored, not copied by tasks.
        """
        described = work.buffers[index]
        on_device = described.placement == Placement.DEVICE
        slack = max(described.alignment - self._alignment, 0)
        buffer = self._context.alloc(
            described.size + slack, where="device" if on_device else "host"
        )
        stack.callback(_give_back, buffer)
        address = -(-buffer.address // described.alignment) * described.alignment
        if address + described.size > buffer.address + buffer.nbytes:
            raise InvalidError(
                f"buffer {index} of the program wants an alignment of {described.alignment} bytes",
                field=f"program.buffers[{index}].alignment",
                value=described.alignment,
                limit=self._alignment,
                hint="use a smaller alignment",
            )
        view = self._context.heap.view(address, described.size, on_device=on_device)
        data = work.buffer_data(index)
        view[: len(data)] = data
        view[len(data) :] = 0
        return address


def _give_back(owned: Stream | Event | Buffer) -> None:
    """Give something back, unless tasks in flight still need it (then the context's end does)."""
    with contextlib.suppress(BusyError, ClosedError):
        owned.close()
