"""Waits as awaitables: the pump between an event loop and a context.

The rule of the clock: while an awaitable is pending, the client's hold ends after one turn of the
loop without a call into the device. So the pump looks on while coroutines launch; when a whole
turn has passed in which nobody did, it posts what is waited for and polls: on the interrupt's
eventfd for a device in another process, in slices for an embedded one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tsemu.descriptors.codes import WaitKind
from tsemu.host_driver._driver import ffi, lib

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tsemu.host_driver.context import Context
    from tsemu.host_driver.task import Task

LOOK_AGAIN_S = 0.1
"""Another thread may have taken the interrupt that the loop sleeps on: look now and then."""
EMBEDDED_IDLE_S = 0.001
"""Pause of an embedded device that has nothing to do until time passes."""
EMBEDDED_EAGER = 100
"""Slices that an embedded device gets one after the other before the loop pauses in between."""
POSTED_AT_ONCE = 8
"""Waits that one loop posts at once: half of what a context has, so that threads find some."""


@dataclass
class _Posted:
    """A wait of its own: stream or context synchronisation."""

    wait: Any
    operation: Any
    future: asyncio.Future[int]


class Pump:
    """What one event loop waits for in one context."""

    def __init__(self, context: Context, gate: Any, loop: asyncio.AbstractEventLoop) -> None:  # noqa: ANN401 - cffi
        self._context = context
        self._gate = gate
        self._loop = loop
        self._tasks: set[asyncio.Future[None]] = set()
        self._waits: list[_Posted] = []
        self._next: Any = None
        self._next_wait = ffi.new("driver_wait *", [WaitKind.NEXT, 0, 0, 1, lib.TSEMU_NO_LIMIT])
        self._seen: tuple[int, int] | None = None
        self._timer: asyncio.Handle | None = None
        self._fd = lib.handle_interrupt_fd(gate)
        self._link = lib.handle_link_fd(gate)
        self._thread = threading.get_ident()
        self._reading = False
        self._misses = 0

    async def task(self, task: Task) -> None:
        """Wait until a task is known to have ended."""
        future: asyncio.Future[None] = self._loop.create_future()
        loop, thread = self._loop, self._thread

        def ended(_: Task) -> None:
            if threading.get_ident() == thread:
                _set(future)
            elif not loop.is_closed():
                loop.call_soon_threadsafe(_set, future)

        self._tasks.add(future)
        self._context.callbacks.add(task, ended)
        self._watch()
        try:
            await future
        finally:
            self._tasks.discard(future)
            self._context.callbacks.discard(task, ended)
            self._rest()
        self._context.callbacks.finish()

    async def stream(self, stream: int, timeout_ps: int) -> None:
        """Wait until everything launched so far in a stream (or all) has ended."""
        kind, a, b = self._context.stream_wait(stream)
        posted = _Posted(
            ffi.new("driver_wait *", [kind, a, b, 0, timeout_ps]),
            ffi.new("driver_operation *"),
            self._loop.create_future(),
        )
        self._waits.append(posted)
        self._watch()
        try:
            code = await posted.future
        finally:
            if posted in self._waits:
                self._waits.remove(posted)
                lib.handle_abandon(self._gate, posted.operation)
            self._rest()
        fields = {} if stream == 0xFFFF_FFFF else {"stream": stream}
        self._context.check(code, **fields)

    def let_go(self) -> None:
        """The descriptors are about to be closed: the loop must not look at them any more."""
        if threading.get_ident() == self._thread:
            self._stop()

    def close(self, error: Exception) -> None:
        """The context is closed: everybody who waits gets `error`."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: Exception) -> None:
        futures: list[asyncio.Future[Any]] = [*self._tasks, *(each.future for each in self._waits)]
        for future in futures:
            if not future.done():
                future.set_exception(error)
        self._waits.clear()
        self._next = None
        self._stop()

    # --- turns of the loop ----------------------------------------------------------------------

    def _watch(self) -> None:
        """Look at each turn of the loop from now on."""
        self._seen = None
        self._schedule(self._loop.call_soon, self._turn)

    def _turn(self) -> None:
        self._timer = None
        if not self._tasks and not self._waits:
            return
        if not self._context.is_open:
            self._fail(self._context.closed_error())
            return
        counters = self._context.counters()
        calls = (counters["submitted"], counters["waits_posted"])
        if calls == self._seen:
            self._poll()
            return
        self._seen = calls
        self._schedule(self._loop.call_soon, self._turn)

    def _poll(self) -> None:
        """Post what is waited for, or look for answers."""
        self._timer = None
        moved = False
        for posted in list(self._waits[:POSTED_AT_ONCE]):
            code = self._step(posted.wait, posted.operation)
            if code <= 0:
                self._waits.remove(posted)
                if not posted.future.done():
                    posted.future.set_result(code)
                moved = True
        if any(not future.done() for future in self._tasks):
            if self._next is None:
                self._next = ffi.new("driver_operation *")
            code = self._step(self._next_wait, self._next)
            if code <= 0:
                self._next = None
                moved = True
                if code < 0 and code != lib.TSEMU_E_TIMEOUT:
                    self._fail(self._context.error(code))
                    return
        self._misses = 0 if moved else self._misses + 1
        if moved:
            self._stop()
            self._watch()
        else:
            self._sleep()

    def _step(self, wait: Any, operation: Any) -> int:  # noqa: ANN401 - cffi
        """One poll of a wait; callbacks run in between."""
        while True:
            code = int(lib.handle_wait_poll(self._gate, wait, operation))
            if code != lib.TSEMU_CALLBACKS:
                return code
            self._context.callbacks.run()

    # --- sleeping -------------------------------------------------------------------------------

    def _sleep(self) -> None:
        if self._fd >= 0:
            if not self._reading:
                self._loop.add_reader(self._fd, self._interrupt)
                self._loop.add_reader(self._link, self._lost)
                self._reading = True
            self._schedule(self._loop.call_later, LOOK_AGAIN_S, self._poll)
        elif self._misses < EMBEDDED_EAGER:
            self._schedule(self._loop.call_soon, self._poll)
        else:
            self._schedule(self._loop.call_later, EMBEDDED_IDLE_S, self._poll)

    def _interrupt(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._poll()

    def _lost(self) -> None:
        """The device has closed the connection: a step that may sleep finds that out at once."""
        operation = ffi.new("driver_operation *")
        code = int(lib.handle_wait_step(self._gate, self._next_wait, operation))
        if code < 0:
            self._fail(self._context.error(code))
        else:
            lib.handle_abandon(self._gate, operation)

    def _stop(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._fd)
            self._loop.remove_reader(self._link)
            self._reading = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rest(self) -> None:
        """Give up the posted wait when nobody is left who wants its answer."""
        if self._tasks or self._waits:
            return
        self._stop()
        if self._next is not None:
            lib.handle_abandon(self._gate, self._next)
            self._next = None

    def _schedule(self, how: Callable[..., asyncio.Handle], *arguments: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = how(*arguments)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
