"""Events: points on a timeline that tasks record and wait for, across streams."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tsemu.descriptors.codes import ControlKind, WaitKind
from tsemu.host_driver._driver import lib
from tsemu.host_driver.errors import ClosedError, InvalidError
from tsemu.host_driver.units import limit

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from tsemu.host_driver.context import Context
    from tsemu.host_driver.task import Task

LAST_LAUNCHED = 0
"""Stands for the value that was launched last, alone or in a batch; the first if there is none."""


class Event:
    """A timeline of one context. Made by `Context.event`.

    Each record raises its value by one; a wait names the value that was last launched before it,
    or the first when there is none yet. Recording again never moves an earlier wait.
    """

    __slots__ = ("__weakref__", "_last", "_lock", "_open", "context", "number")

    def __init__(self, context: Context, number: int) -> None:
        self.context = context
        self.number = number
        self._open = True
        self._last: Task | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Event {self.number} of {self.context.name!r}{'' if self._open else ', closed'}>"

    def wait(self, timeout: int | str | None = None) -> None:
        """Wait on the host until the event has its last recorded value (or else the first).

        An event that is never recorded keeps it waiting until the limit. Raises
        `DeviceTimeoutError`, and the `TaskError` of the record if that did not succeed.
        """
        last = self._wait(limit(timeout))
        if last is not None:
            last.wait()

    def query(self) -> bool:
        """Ask whether `wait` would return at once; if not, that costs 1 us of device time."""
        self._check_open()
        code = self.context.wait(
            WaitKind.EVENT, self.number, LAST_LAUNCHED, self.context.info.poll_cost_ps
        )
        self.context.check(0 if code == lib.TSEMU_E_TIMEOUT else code, field="event")
        return code == 0

    def close(self) -> None:
        """Give the event back. Raises `BusyError` naming a task while tasks wait for it."""
        with self._lock:
            if not self._open:
                return
            if self.context.is_open:
                self.context.destroy(ControlKind.EVENT_DESTROY, self.number, "event")
            self._open = False

    def number_in(self, context: Context) -> int:
        """Its number, for a task of `context`. Raises when it is closed or of another context."""
        self._check_open()
        if context is not self.context:
            raise InvalidError(
                f"event {self.number} belongs to context {self.context.name!r}",
                field="event",
                value=self.number,
                hint=f"use an event of context {context.name!r}",
            )
        return self.number

    def recorded(self, task: Task) -> None:
        """Remember the last task that records it."""
        with self._lock:
            self._last = task

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()

    def _wait(self, timeout_ps: int) -> Task | None:
        self._check_open()
        last = self._last
        code = self.context.wait(WaitKind.EVENT, self.number, LAST_LAUNCHED, timeout_ps)
        self.context.check(code, field="event", value=self.number)
        return last

    def _check_open(self) -> None:
        if not self._open:
            raise ClosedError(
                f"event {self.number} has been closed",
                field="event",
                value=self.number,
                hint="make another one with context.event()",
            )
