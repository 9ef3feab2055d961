"""A session: the way from Python into the C library, for one context.

Every call goes through the gate, so that closing is safe while other threads are inside, and every
call that may wait goes through `Session.run`, where Ctrl-C is noticed and callbacks run.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from tsemu.host_driver._driver import ffi, lib
from tsemu.host_driver.callbacks import Callbacks
from tsemu.host_driver.errors import ClosedError, TsemuError, last_error
from tsemu.host_driver.info import ContextInfo, read_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsemu.descriptors.codes import ControlKind, WaitKind

Step = Any
"""A function of the C library that is called until it returns no positive number."""
_STATUS_FIELDS = ffi.typeof("struct driver_status").fields


class Session:
    """A context of the C library, and what `Context` needs to call it."""

    def __init__(self, pointer: Any, release: Callable[[], None]) -> None:  # noqa: ANN401 - cffi
        self.gate = ffi.new("struct handle_gate *")
        self._pointer = int(ffi.cast("uintptr_t", pointer))
        self._release = release
        self._closing = threading.Lock()
        self._why_closed = ""
        self._programs: set[Any] = set()
        lib.handle_set(self.gate, pointer)
        self.info = ContextInfo.from_page(read_page(self.gate))
        self.name = self.info.name
        self.callbacks = Callbacks(self.gate)
        _sessions.add(self)

    @property
    def is_open(self) -> bool:
        """False once it has been closed, or in a forked child."""
        return bool(self.gate.context)

    def shut(self) -> bool:
        """Close the gate, wait until nobody is inside, and close the context; False: it was."""
        with self._closing:
            if not self.gate.context:
                return False
            lib.handle_set(self.gate, ffi.NULL)
            pause = threading.Event()
            while lib.handle_inside(self.gate):
                pause.wait(0.001)  # a step of another thread returns within a slice
            for program in self._programs:
                lib.driver_program_free(program)  # its sink may be gone before closing has ended
            self._programs.clear()
            lib.handle_close(self._pointer)  # ends handles and batches: they are still there
            self.closed()
            self._release()
        return True

    def program(self, *arguments: Any) -> Any:  # noqa: ANN401 - cffi objects have no type
        """Make a program of the library; raises what it says when it cannot."""
        with self._closing:
            made = lib.handle_program_new(self.gate, *arguments)
            if made == ffi.NULL:
                raise self.error(lib.TSEMU_E_NO_RESOURCE if self.is_open else lib.TSEMU_E_CLOSED)
            self._programs.add(made)
        return made

    def free_program(self, program: Any) -> None:  # noqa: ANN401 - same
        """Free it, unless closing has; completions of tasks in flight then go nowhere."""
        with self._closing:
            if program in self._programs:
                self._programs.remove(program)
                lib.driver_program_free(program)

    def closed(self) -> None:
        """Called when the library has let go of all memory of this side."""

    def forget(self) -> None:
        """In a forked child: drop the parent's session without a word to the device."""
        if self.gate.context:
            self._why_closed = "the context belongs to the parent process"
            self.gate.context = 0
            self.gate.inside = 0
            lib.handle_forget(self._pointer)

    def closed_error(self) -> ClosedError:
        """The error of a call that comes too late."""
        return ClosedError(
            self._why_closed or "the context has been closed",
            field="context",
            value=self.name,
            hint="open the device (again) in this process",
        )

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


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def forget_all() -> None:
    """After a fork, in the child: no session of the parent may be used."""
    for session in list(_sessions):
        session.forget()
