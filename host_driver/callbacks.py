"""Callbacks on tasks: run inside waits of their context, in completion order.

The C library hands out handles that ended and have callbacks; Python runs them between two steps
of the wait. A callback may launch but not wait. What callbacks raise is collected and raised by
the wait that ran them, so that nothing is lost.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tsemu.host_driver._driver import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsemu.host_driver.task import Task


class _Raised(threading.local):
    """What callbacks have raised in waits of this thread, and no wait has raised yet."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []


class Callbacks:
    """Callbacks of one context that have not run yet, and what those that ran have raised."""

    def __init__(self, gate: Any) -> None:  # noqa: ANN401 - a cffi pointer has no type
        self._gate = gate
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._waiting: dict[int, tuple[Task, list[Callable[[Task], object]]]] = {}
        self._taken = ffi.new("uintptr_t *")  # the task whose callbacks run; Ctrl-C leaves it there
        self._raised = _Raised()

    def add(self, task: Task, function: Callable[[Task], object]) -> None:
        """Call `function(task)` once the task has ended; now, if that is known already."""
        address = task.record
        with self._lock:
            # In this order, so that Ctrl-C in between leaves at most an entry without functions.
            new = address not in self._waiting
            _, functions = self._waiting.setdefault(address, (task, []))
            if lib.handle_watch(self._gate, address) > 0 or functions:
                functions.append(function)
                return
            if new:
                del self._waiting[address]
        function(task)

    def discard(self, task: Task, function: Callable[[Task], object]) -> None:
        """Take a callback back that has not run; it is no error if it has."""
        with self._lock:
            entry = self._waiting.get(task.record)
            if entry is not None and function in entry[1]:
                entry[1].remove(function)

    def run(self) -> None:
        """Run the callbacks of all tasks that have ended, in completion order.

        Ctrl-C, or a callback that exits, stops it; the next call goes on with what is left.
        """
        with self._turn:
            try:
                lib.handle_in_callback(self._gate, 1)
                while lib.handle_take_callback(self._gate, self._taken):
                    while (next_ := self._next(self._taken[0])) is not None:
                        task, function = next_
                        try:
                            function(task)
                        except Exception as error:  # noqa: BLE001 - raised by the wait
                            self._raised.errors.append(error)
                    self._taken[0] = 0
            finally:
                lib.handle_in_callback(self._gate, 0)

    def _next(self, address: int) -> tuple[Task, Callable[[Task], object]] | None:
        """The task at `address` and its next callback; None, and the task is forgotten: no more."""
        with self._lock:
            entry = self._waiting.get(address)
            if entry is not None and entry[1]:
                return entry[0], entry[1].pop(0)
            self._waiting.pop(address, None)
            return None

    def left(self) -> list[Exception]:
        """What no wait of this thread has raised."""
        return self._raised.errors

    def finish(self, error: Exception | None = None) -> None:
        """End of a wait: raise its own `error`, or else what callbacks have raised.

        A launch that blocked ran callbacks too, but has a task to return: what they raised then
        is raised by the next wait of this thread. One error of a callback is raised as it is,
        several as an `ExceptionGroup`. If the wait has an error of its own, theirs are its
        `__context__` and are named in its notes.
        """
        if self._taken[0] and not self._turn.locked():
            self.run()  # what an earlier wait was interrupted in
        errors = self._raised.errors
        if not errors:
            if error is not None:
                raise error
            return
        self._raised.errors = []
        raised = errors[0] if len(errors) == 1 else ExceptionGroup("callbacks failed", errors)
        if error is None:
            raise raised
        for each in errors:
            error.add_note(f"a callback raised {each!r} during this wait")
        error.__context__ = raised
        raise error
