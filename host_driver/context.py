"""A context: one client's session with the device.

It owns its streams, events, buffers and tasks. Every call into the C library goes through its
gate, so that closing is safe while other threads are inside, and every call that may wait goes
through `Context.run`, where Ctrl-C is noticed and callbacks run.
"""

from __future__ import annotations

import asyncio
import operator
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tsemu.descriptors.codes import PENDING, ControlKind, StreamFlag, WaitKind
from tsemu.host_driver import batch, buffer, program
from tsemu.host_driver._driver import ffi, lib
from tsemu.host_driver.aio import Pump
from tsemu.host_driver.callbacks import Callbacks
from tsemu.host_driver.completion import Completions
from tsemu.host_driver.errors import (
    ALL_STREAMS,
    BusyError,
    ClosedError,
    InvalidError,
    TsemuError,
    last_error,
    task_error,
)
from tsemu.host_driver.event import Event
from tsemu.host_driver.info import ContextInfo, read_page
from tsemu.host_driver.stream import Stream
from tsemu.host_driver.task import Task, TaskPool
from tsemu.host_driver.units import limit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from numpy.typing import DTypeLike, NDArray

    from tsemu.descriptors.program import Program
    from tsemu.host_driver.device import Device

DEFAULT_PRIORITY = 3
Step = Any  # a function of the C library


class Context:
    """A session with a device. Made by `Device.open` and `Device.create_context`.

    Any method may be called from any thread. A context is a context manager; leaving it closes it.
    """

    def __init__(
        self,
        device: Device,
        pointer: Any,  # noqa: ANN401 - a cffi pointer has no type
        release: Callable[[], None],
    ) -> None:
        self.device = device
        self.gate = ffi.new("struct handle_gate *")
        self._pointer = pointer
        self._release = release
        self._closing = threading.Lock()
        self._why_closed = ""
        lib.handle_set(self.gate, pointer)
        page = read_page(self.gate)
        self.info = ContextInfo.from_page(page)
        self.name = self.info.name
        self.classes = self.info.class_numbers()
        self.callbacks = Callbacks(self.gate)
        self.tasks = TaskPool(self)
        self._kernels: dict[str, int] = {}
        self._kernel_lock = threading.Lock()
        self._batches: list[batch.Batch] = []
        self._most_batches = 16
        self._pumps: dict[asyncio.AbstractEventLoop, Pump] = {}
        self.heap = buffer.HostHeap(self.gate, self.info)
        self.default_stream = Stream(
            self, 0, in_order=False, priority=DEFAULT_PRIORITY, limit=self.info.stream_limit
        )
        _contexts.add(self)

    def __repr__(self) -> str:
        return f"<Context {self.name!r}{'' if self.is_open else ', closed'}>"

    # --- life ----------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """False once it has been closed, or in a forked child."""
        return bool(self.gate.context)

    def close(self) -> None:
        """Close the session; tasks in flight are cancelled or end, nothing is waited for by hand.

        Always returns; closing twice is no error. Other threads' calls end with `ClosedError`.
        """
        self._close("the context has been closed")

    def _close(self, why: str) -> None:
        with self._closing:
            if not self.gate.context:
                return
            self._why_closed = why
            lib.handle_set(self.gate, ffi.NULL)
            wake = threading.Event()
            while lib.handle_inside(self.gate):
                wake.wait(0.001)  # a step of another thread returns within a slice
            self.tasks.close()
            lib.handle_close(int(ffi.cast("uintptr_t", self._pointer)))
            self._release()
            for pump in list(self._pumps.values()):
                pump.close(self.closed_error())
            self._batches.clear()
            for error in self.callbacks.left():
                warnings.warn(f"a callback raised {error!r}, and no wait followed", stacklevel=3)

    def forget(self) -> None:
        """In a forked child: drop the parent's session without a word to the device."""
        if self.gate.context:
            self._why_closed = "the context belongs to the parent process"
            self.gate.context = 0
            self.gate.inside = 0
            lib.handle_forget(int(ffi.cast("uintptr_t", self._pointer)))

    def closed_error(self) -> ClosedError:
        """The error of a call that comes too late."""
        return ClosedError(
            self._why_closed or "the context has been closed",
            field="context",
            value=self.name,
            hint="open the device (again) in this process",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- calls into the library ----------------------------------------------------------------

    def run(self, step: Step, *arguments: Any) -> int:  # noqa: ANN401 - what C takes
        """Call a step of the library until it ends; return its code without raising for it.

        Callbacks run in between. Ctrl-C gives the operation up and leaves the context usable.
        """
        operation = ffi.new("driver_operation *")
        gate = self.gate
        try:
            while (code := step(gate, *arguments, operation)) > 0:
                if code == lib.TSEMU_CALLBACKS:
                    self.callbacks.run()
        except BaseException:
            lib.handle_abandon(gate, operation)
            raise
        return int(code)

    def check(self, code: int, **fields: object) -> None:
        """End of a call: raise its error and what callbacks have raised meanwhile."""
        self.callbacks.finish(self.error(code, **fields) if code < 0 else None)

    def error(self, code: int, **fields: object) -> TsemuError:
        """The error that a code of the library stands for; `fields` say more about it."""
        if code == lib.TSEMU_E_CLOSED and not self.is_open:
            return self.closed_error()
        return last_error(code, **fields)

    def wait(self, kind: WaitKind, a: int, b: int, timeout: int, c: int = 0) -> int:
        """Wait for a condition (`timeout` in ps); return the library's code."""
        return self.run(lib.handle_wait_step, ffi.new("driver_wait *", [kind, a, b, c, timeout]))

    def control(self, kind: ControlKind, *operands: int) -> tuple[int, list[int]]:
        """Make a control request; return the library's code and the reply's arguments."""
        argument = ffi.new("uint32_t[10]", list(operands))
        reply = ffi.new("struct tsemu_control_message *")
        code = self.run(lib.handle_control_step, kind, argument, reply)
        return code, list(reply.argument)

    # --- tasks ---------------------------------------------------------------------------------

    def wait_task(self, task: Task, timeout: int | str | None) -> None:
        """Wait until a task has been consumed; see `Task.wait`."""
        code = self.run(lib.handle_wait_task, task.record, limit(timeout))
        if code < 0 and lib.handle_status(task.record) == PENDING:
            self.check(code, task=task.ticket, stream=task.stream)
        # Otherwise it was ended by the same event that ended the wait.
        self.callbacks.finish()

    def poll_task(self, task: Task) -> bool:
        """Ask whether a task has ended; see `Task.done`."""
        code = self.run(lib.handle_wait_task, task.record, self.info.poll_cost_ps)
        ended = bool(lib.handle_status(task.record) != PENDING)
        if code < 0 and not ended and code != lib.TSEMU_E_TIMEOUT:
            self.check(code, task=task.ticket, stream=task.stream)
        self.callbacks.finish()
        return ended

    def cancel_task(self, task: Task) -> bool:
        """Ask the device to cancel a task; see `Task.cancel`."""
        record = ffi.cast("tsemu_task *", task.record)
        if record.status != lib.TSEMU_PENDING:
            return False
        code, _ = self.control(ControlKind.CANCEL, record.ticket, record.slot)
        self.check(0 if code == lib.TSEMU_E_BUSY else code, task=record.ticket)
        return code == 0

    def synchronize(self, timeout: int | str | None = None) -> None:
        """Wait until every task launched so far has ended.

        Raises the `TaskError` of the first task that failed, in any stream, since its stream was
        made or recovered; `DeviceTimeoutError` when the time is over.
        """
        self.synchronize_stream(ALL_STREAMS, timeout)

    def synchronize_stream(self, stream: int, timeout: int | str | None) -> None:
        """Wait until all tasks of a stream have ended; see `Stream.synchronize`."""
        kind = WaitKind.ALL if stream == ALL_STREAMS else WaitKind.STREAM
        first = 0 if stream == ALL_STREAMS else stream
        self.check(self.wait(kind, first, 0, limit(timeout), c=1))  # 1: all launched so far
        self.raise_failure(stream)

    def stream_wait(self, stream: int) -> tuple[WaitKind, int, int]:
        """Condition that all tasks launched so far in a stream (or in all) have ended."""
        submitted = self.counters()["submitted"]
        if stream == ALL_STREAMS:
            return WaitKind.ALL, submitted, 0
        return WaitKind.STREAM, stream, submitted

    def raise_failure(self, stream: int) -> None:
        """Raise the first failure that a stream (or any) keeps, if there is one."""
        record = ffi.new("tsemu_task *")
        if lib.handle_stream_failure(self.gate, stream, record) > 0:
            raise task_error(
                task=record.ticket,
                stream=record.stream,
                status=record.status,
                ancestor=record.ancestor,
                fault_address=record.fault_address,
            )

    def counters(self) -> dict[str, int]:
        """The driver's own counters: submitted, consumed, answered, waits_posted, now_ps ..."""
        status = ffi.new("struct driver_status *")
        code = lib.handle_driver_status(self.gate, status)
        if code < 0:
            raise self.error(code)
        return {name: int(getattr(status, name)) for name, _ in _STATUS_FIELDS}

    @property
    def now_ps(self) -> int:
        """Virtual time of the last answer of the device, in picoseconds."""
        return self.counters()["now_ps"]

    def kernel(self, name: str | int) -> int:
        """Number of a kernel's name in this context; names are numbered in order of first use.

        A number is returned as it is.
        """
        if not isinstance(name, str):
            return operator.index(name)
        with self._kernel_lock:
            number = self._kernels.setdefault(name, len(self._kernels))
        if number > 0xFFFF:
            raise InvalidError(
                f"kernel {name!r} would be number {number}",
                field="kernel",
                value=name,
                limit=0xFFFF,
                hint="use fewer different kernel names in one context",
            )
        return number

    # --- what a context owns --------------------------------------------------------------------

    def create_stream(
        self,
        in_order: bool = True,
        priority: int = DEFAULT_PRIORITY,
        limit: int | None = None,
        name: str | None = None,
    ) -> Stream:
        """Make a stream.

        Args:
            in_order: each task waits for the one before it; otherwise only edges order tasks.
            priority: 0 (highest) to 7, for tasks that name none.
            limit: tasks that it may hold before a launch blocks; None is the context's default.
            name: for messages.

        Raises `InvalidError` for a value out of range, `NoResourceError` when the device has no
        stream left.
        """
        Stream.check(priority=priority, limit=limit, window=self.info.window)
        flags = StreamFlag.IN_ORDER if in_order else 0
        code, reply = self.control(ControlKind.STREAM_CREATE, int(flags), limit or 0)
        self.check(code)
        return Stream(
            self,
            reply[0],
            in_order=in_order,
            priority=priority,
            limit=limit or self.info.stream_limit,
            name=name,
        )

    def event(self) -> Event:
        """Make an event. Raises `NoResourceError` when the device has none left."""
        code, reply = self.control(ControlKind.EVENT_CREATE)
        self.check(code)
        return Event(self, reply[0])

    def alloc(
        self,
        shape: int | Sequence[int],
        dtype: DTypeLike = "u1",
        where: Literal["host", "device"] = "host",
    ) -> buffer.Buffer:
        """Allocate a buffer of `shape` elements of `dtype` (an int alone: bytes), aligned.

        Raises `InvalidError` for a shape that makes no sense, `NoResourceError` naming the heap
        when it has no room.
        """
        return buffer.allocate(self, shape, np.dtype(dtype), where)

    def submit_batch(
        self,
        tasks: NDArray[np.void],
        edges: tuple[NDArray[np.uint32], NDArray[np.uint32]] | None = None,
        after: Sequence[Task] = (),
        block: bool = True,
    ) -> batch.Batch:
        """Submit many tasks in one call, accepted or refused as a whole.

        Args:
            tasks: array of `LAUNCH_DTYPE` (see `batch.launches`), at most `info.batch` long.
            edges: `(indptr, indices)`: task i waits for the tasks
                `indices[indptr[i]:indptr[i + 1]]`, each smaller than i.
            after: tasks that every task of the batch waits for.
            block: False: raise `QueueFullError` instead of waiting for room.

        Raises `InvalidError` naming the field of the first task that cannot be accepted.
        """
        return batch.submit(self, tasks, edges, after, block=block)

    def keep(self, submitted: batch.Batch) -> None:
        """Keep a batch whose status array the driver is going to write."""
        if len(self._batches) >= self._most_batches:
            self._batches = [each for each in self._batches if each.pending]
            self._most_batches = max(16, 2 * len(self._batches))
        self._batches.append(submitted)

    def run_program(
        self,
        work: Program,
        *,
        on_completions: Callable[[NDArray[np.void]], object] | None = None,
        progress: Callable[[int, int], object] | None = None,
        timeout: int | str | None = None,
    ) -> program.ProgramResult:
        """Run a program file to its end; see `program.run`."""
        return program.run(
            self, work, on_completions=on_completions, progress=progress, timeout=timeout
        )

    def completions(self, capacity: int | None = None) -> Completions:
        """Completions from now on, in completion order; see `Completions`.

        Raises `InvalidError` when `capacity` is less than the number of slots.
        """
        return Completions(self, capacity)

    def pump(self) -> Pump:
        """What turns waits into awaitables, for the running event loop."""
        loop = asyncio.get_running_loop()
        pump = self._pumps.get(loop)
        if pump is None:
            for other in [each for each in self._pumps if each.is_closed()]:
                del self._pumps[other]
            pump = self._pumps[loop] = Pump(self, self.gate, loop)
        return pump

    async def synchronize_async(self, timeout: int | str | None = None) -> None:
        """`synchronize` as an awaitable."""
        await self.pump().stream(ALL_STREAMS, limit(timeout))
        self.raise_failure(ALL_STREAMS)

    def destroy(self, kind: ControlKind, number: int, what: str) -> None:
        """Give a stream or an event back; raises `BusyError` while somebody needs it."""
        code, _ = self.control(kind, number)
        if code == lib.TSEMU_E_BUSY:
            error = self.error(code)
            self.callbacks.finish(
                BusyError(
                    f"{what} {number} is still used",
                    field=what,
                    value=number,
                    task=error.task or (int(str(error.value)) if error.value else None),
                    hint="wait for its tasks first",
                )
            )
        self.check(code)


_STATUS_FIELDS = ffi.typeof("struct driver_status").fields
_contexts: weakref.WeakSet[Context] = weakref.WeakSet()


def forget_all() -> None:
    """After a fork, in the child: no context of the parent may be used."""
    for context in list(_contexts):
        context.forget()
