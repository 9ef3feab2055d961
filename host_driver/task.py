"""Tasks: handles of what was launched, and the memory that the C library writes them to.

A handle's record lies in a *slab* of 1024 records, allocated at once: the library writes the
outcome there when it consumes the completion, and properties read it from there, so nothing is
copied and nothing is allocated per task. A slab stays as long as a task of it is alive or pending.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from tsemu.descriptors.codes import PENDING, Status
from tsemu.host_driver._driver import ffi, lib
from tsemu.host_driver.errors import BusyError, TaskError, task_error

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tsemu.host_driver.context import Context

SLAB_TASKS = 1024
RECORD_BYTES = ffi.sizeof("tsemu_task")
NO_CORE = 0xFFFF
_status = lib.handle_status


class Task:
    """Handle of a launched task.

    Its state is what the driver has *consumed*: it changes inside waits and launches of its
    context, never by itself, so that programs are deterministic. Ask with `done` or wait with
    `wait`; `await task` works in a coroutine. (`slab` and `record`, the memory that holds it and
    its address there, are for this package.)
    """

    __slots__ = ("record", "slab")

    slab: Slab
    record: int

    @classmethod
    def of(cls, slab: Slab, address: int) -> Task:
        """The handle whose record is at `address` of a slab. `Stream.launch` has a copy of this."""
        task = cls.__new__(cls)
        task.slab = slab
        task.record = address
        return task

    def __repr__(self) -> str:
        status = self.status
        word = "pending" if status is None else getattr(status, "name", str(status))
        return f"<Task {self.ticket} of stream {self.stream}: {word}>"

    def wait(self, timeout: int | str | None = None) -> Task:
        """Wait until the task has ended and return it.

        `timeout` is in the device's time (picoseconds, or text such as "5us"); None is the
        device's limit. Raises the `TaskError` of its status when it did not succeed,
        `DeviceTimeoutError` when the time is over, `InCallbackError` inside a callback.
        """
        status = _status(self.record)
        if status == PENDING:
            self.slab.context.wait_task(self, timeout)
            status = _status(self.record)
        if status:
            raise self._error(status)
        return self

    def done(self) -> bool:
        """Ask whether the task has ended.

        Finding that it has not costs 1 us of the device's time (the poll cost), so that a loop of
        polls ends. Raises `InCallbackError` inside a callback if it is not known to have ended.
        """
        if _status(self.record) != PENDING:
            return True
        return self.slab.context.poll_task(self)

    def exception(self) -> TaskError | None:
        """The error that `wait` would raise; None if it succeeded or is not known to have ended."""
        status = _status(self.record)
        return None if status in (0, PENDING) else self._error(status)

    def cancel(self) -> bool:
        """Ask the device to cancel the task; False when it was too late for that.

        A task that runs is not stopped. Costs no virtual time.
        """
        return self.slab.context.cancel_task(self)

    def add_done_callback(self, function: Callable[[Task], object]) -> None:
        """Call `function(task)` when the task has ended.

        Callbacks run inside waits of this context, in completion order; they may launch, not wait.
        If the task is known to have ended, the call happens at once. What a callback raises is
        raised by the wait that ran it.
        """
        self.slab.context.callbacks.add(self, function)

    def __await__(self) -> Generator[Any, None, Task]:
        if _status(self.record) == PENDING:
            yield from self.slab.context.pump().task(self).__await__()
        return self.wait()

    @property
    def status(self) -> Status | int | None:
        """How the task ended; None while it is not known to have ended.

        A number that is no `Status` is shown as it is.
        """
        status: int = _status(self.record)
        if status == PENDING:
            return None
        try:
            return Status(status)
        except ValueError:
            return status

    @property
    def ok(self) -> bool:
        """True when the task is known to have succeeded."""
        return bool(_status(self.record) == 0)

    @property
    def ticket(self) -> int:
        """Number of the task within its context, counted from 1."""
        return int(self._fields().ticket)

    @property
    def stream(self) -> int:
        """Number of the stream that it was launched in."""
        return int(self._fields().stream)

    @property
    def start_ps(self) -> int:
        """Virtual time at which its first block started, in picoseconds."""
        return int(self._ended().start_ps)

    @property
    def end_ps(self) -> int:
        """Virtual time at which it ended, in picoseconds."""
        return int(self._ended().end_ps)

    @property
    def core(self) -> int | None:
        """Core of its first block; None if it never held one."""
        core = int(self._ended().core)
        return None if core == NO_CORE else core

    @property
    def ancestor(self) -> int:
        """Ticket of the first task that failed, its own if it failed itself; 0 if it succeeded."""
        return int(self._ended().ancestor)

    @property
    def order(self) -> int:
        """Place in the context's order of completion, counted from 0."""
        return int(self._ended().order)

    @property
    def context(self) -> Context:
        """The context that it was launched in."""
        return self.slab.context

    def _fields(self) -> Any:  # noqa: ANN401 - a cffi struct has no type
        return ffi.cast("tsemu_task *", self.record)

    def _ended(self) -> Any:  # noqa: ANN401 - same
        record = self._fields()
        if record.status == PENDING:
            raise BusyError(
                f"task {record.ticket} is not known to have ended",
                task=record.ticket,
                stream=record.stream,
                hint="wait for it first",
            )
        return record

    def _error(self, status: int) -> TaskError:
        record = self._fields()
        return task_error(
            task=record.ticket,
            stream=record.stream,
            status=status,
            ancestor=record.ancestor,
            fault_address=record.fault_address,
        )


class Slab:
    """Memory of 1024 handles of one context; `next(slab.fresh, 0)` takes one's address."""

    __slots__ = ("__weakref__", "_memory", "_seen", "address", "context", "fresh")

    def __init__(self, context: Context) -> None:
        self.context = context
        self._memory = ffi.new("tsemu_task[]", SLAB_TASKS)
        self.address = int(ffi.cast("uintptr_t", self._memory))
        lib.handle_prepare(self.address, SLAB_TASKS)
        self.fresh = iter(
            range(self.address, self.address + SLAB_TASKS * RECORD_BYTES, RECORD_BYTES)
        )
        self._seen = 0

    def pending(self) -> bool:
        """True while a record is not launched yet, or the library may still write it."""
        self._seen = lib.handle_first_pending(self.address, self._seen, SLAB_TASKS)
        return self._seen < SLAB_TASKS

    def orphan(self) -> None:
        """Say in each record that its context is gone."""
        lib.handle_orphan(self.address, SLAB_TASKS)


class TaskPool:
    """Fresh handles of a context, taken from the `current` slab.

    Whoever takes one reads `current` once and keeps that slab, so that no lock is needed. The
    pool holds on to slabs with pending records, because the library writes to them even if the
    caller drops its tasks.
    """

    __slots__ = ("_alive", "_context", "_held", "_lock", "current")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._held: list[Slab] = []
        self._alive: weakref.WeakSet[Slab] = weakref.WeakSet()
        self.current = self._add()

    def take(self) -> Task:
        """Take a handle, making a new slab when the current one is used up."""
        while True:
            slab = self.current
            address = next(slab.fresh, 0)
            if address:
                return Task.of(slab, address)
            with self._lock:
                if self.current is slab:
                    self._held = [each for each in self._held if each.pending()]
                    self.current = self._add()

    def close(self) -> None:
        """Forget everything: the library writes no more."""
        with self._lock:
            for slab in list(self._alive):
                slab.orphan()
            self._held.clear()

    def _add(self) -> Slab:
        slab = Slab(self._context)
        self._held.append(slab)
        self._alive.add(slab)
        return slab
