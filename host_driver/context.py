"""A context: one client's session with the device.

It owns its streams, events, buffers and tasks; how it calls the C library is in `session`.
"""

from __future__ import annotations

import asyncio
import operator
import threading
import warnings
from typing import TYPE_CHECKING, Any, Literal

from tsemu.descriptors.codes import PENDING, ControlKind, StreamFlag, WaitKind
from tsemu.host_driver import batch, buffer, program
from tsemu.host_driver._driver import ffi, lib
from tsemu.host_driver.aio import Pump
from tsemu.host_driver.completion import Completions
from tsemu.host_driver.errors import (
    ALL_STREAMS,
    BusyError,
    InvalidError,
    task_error,
)
from tsemu.host_driver.event import Event
from tsemu.host_driver.session import Session
from tsemu.host_driver.stream import Stream
from tsemu.host_driver.task import Task, TaskPool
from tsemu.host_driver.units import limit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    import numpy as np
    from numpy.typing import DTypeLike, NDArray

    from tsemu.descriptors.program import Program
    from tsemu.host_driver.device import Device

DEFAULT_PRIORITY = 3


class Context(Session):
    """A session with a device. Made by `Device.open` and `Device.create_context`.

    Any method may be called from any thread. A context is a context manager; leaving it closes it.
    """

    def __init__(
        self,
        device: Device,
        pointer: Any,  # noqa: ANN401 - a cffi pointer has no type
        release: Callable[[], None],
    ) -> None:
        super().__init__(pointer, release)
        self.device = device
        self.classes = self.info.class_numbers()
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

    def __repr__(self) -> str:
        return f"<Context {self.name!r}{'' if self.is_open else ', closed'}>"

    def close(self) -> None:
        """Close the session; work in flight ends or is cancelled.

        Always returns; closing twice is no error. Other threads' calls end with `ClosedError`.
        """
        for pump in list(self._pumps.values()):
            pump.let_go()
        if not self.shut():
            return
        for pump in list(self._pumps.values()):
            pump.close(self.closed_error())
        for error in self.callbacks.left():
            warnings.warn(f"a callback raised {error!r}, and no wait followed", stacklevel=2)

    def closed(self) -> None:
        """Handles that others still hold must not look like tasks of a later context."""
        self.tasks.close()
        self._batches.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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
            limit: tasks that it may hold before a launch blocks, up to the context's slots (as
                many as slots: only the window blocks); None is the context's default.
            name: for messages.

        Raises `InvalidError` for a value out of range, `NoResourceError` when the device has no
        stream left.
        """
        Stream.check(priority=priority, limit=limit, slots=self.info.slots)
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
        return buffer.allocate(self, shape, buffer.element(dtype), where)

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
