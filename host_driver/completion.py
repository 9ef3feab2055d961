"""Completions one at a time, in completion order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tsemu.descriptors.codes import WaitKind
from tsemu.host_driver._driver import ffi, lib
from tsemu.host_driver.arguments import in_range
from tsemu.host_driver.errors import DeviceTimeoutError
from tsemu.host_driver.units import NO_LIMIT, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from tsemu.host_driver.context import Context

AT_ONCE = 64
LAPS = 4
"""Completions that are kept by default: so many times the slots of the context."""


class Completion(NamedTuple):
    """A completion entry. Times in picoseconds; fields as on the wire."""

    ticket: int
    stream: int
    status: int
    start_ps: int
    end_ps: int
    core: int
    ancestor: int
    tag: int
    fault_address: int


class Completions:
    """Completions of tasks and batches from now on, in completion order.

    Made by `Context.completions`. Iterating waits for the next one and ends when nothing is in
    flight; more may be launched meanwhile. The driver keeps at most `capacity` unread completions
    (at least the number of slots; None: four times that); a launch whose completion would find no
    room raises `NoResourceError`. `close`, or the end of the iteration, stops the keeping.
    """

    def __init__(self, context: Context, capacity: int | None) -> None:
        self._context = context
        self._gate = context.gate
        self._entries = ffi.new("struct tsemu_cqe[]", AT_ONCE)
        self._at = self._count = 0
        room = LAPS * context.info.slots
        if capacity is not None:
            room = in_range("capacity", capacity, context.info.slots, 0xFFFF_FFFF)
        code = lib.handle_keep_completions(self._gate, room)
        if code < 0:
            raise context.error(code)

    def __iter__(self) -> Iterator[Completion]:
        return self

    def __next__(self) -> Completion:
        while not self._ready():
            counters = self._context.counters()
            if counters["submitted"] == counters["consumed"]:
                self.close()
                raise StopIteration
            self._wait(NO_LIMIT)
        return self._pop()

    def next(self, timeout: int | str | None = None) -> Completion:
        """The next completion; waits for it, also when nothing is in flight yet.

        Raises `DeviceTimeoutError` when the time (of the device) is over.
        """
        timeout_ps = limit(timeout)
        while not self._ready():
            self._wait(timeout_ps)
        return self._pop()

    def close(self) -> None:
        """Keep no more completions."""
        lib.handle_keep_completions(self._gate, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ready(self) -> bool:
        if self._at == self._count:
            self._at = 0
            self._count = lib.handle_take_completions(self._gate, self._entries, AT_ONCE)
        return self._at < self._count

    def _pop(self) -> Completion:
        entry = self._entries[self._at]
        self._at += 1
        return _completion(entry)

    def _wait(self, timeout_ps: int) -> None:
        code = self._context.wait(WaitKind.NEXT, 0, 0, timeout_ps, c=1)
        if code == lib.TSEMU_E_TIMEOUT:
            self._context.callbacks.finish(
                DeviceTimeoutError(
                    "no task has ended in time",
                    field="timeout",
                    value=timeout_ps,
                    hint="wait longer; context.counters() tells how many tasks are in flight",
                )
            )
        self._context.check(code)


def _completion(cqe: Any) -> Completion:  # noqa: ANN401 - a cffi struct has no type
    return Completion(
        cqe.ticket,
        cqe.stream,
        cqe.status,
        cqe.start_ps,
        cqe.end_ps,
        cqe.core,
        cqe.ancestor,
        cqe.user_tag,
        cqe.fault_address,
    )
