"""Completions one at a time, in completion order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tsemu.descriptors.codes import WaitKind
from tsemu.host_driver._driver import ffi, lib
from tsemu.host_driver.errors import DeviceTimeoutError
from tsemu.host_driver.units import NO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsemu.host_driver.context import Context

AT_ONCE = 64


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


def iterate(context: Context, capacity: int) -> Iterator[Completion]:
    """Completions from now on, until nothing is in flight; see `Context.completions`."""
    code = lib.handle_keep_completions(context._gate, capacity)  # noqa: SLF001 - of this package
    if code < 0:
        raise context.error(code)
    return _iterate(context)


def take(context: Context, timeout_ps: int) -> Completion:
    """The next completion; waits for it. Raises `DeviceTimeoutError` when the time is over."""
    gate = context._gate  # noqa: SLF001 - of this package
    cqe = ffi.new("struct tsemu_cqe[1]")
    while not lib.handle_take_completions(gate, cqe, 1):
        _wait(context, timeout_ps)
    return _completion(cqe[0])


def _iterate(context: Context) -> Iterator[Completion]:
    gate = context._gate  # noqa: SLF001 - of this package
    cqes = ffi.new("struct tsemu_cqe[]", AT_ONCE)
    while True:
        while count := lib.handle_take_completions(gate, cqes, AT_ONCE):
            for index in range(count):
                yield _completion(cqes[index])
        counters = context.counters()
        if counters["submitted"] == counters["consumed"]:
            return
        _wait(context, NO_LIMIT)


def _wait(context: Context, timeout_ps: int) -> None:
    consumed = context.counters()["consumed"]
    code = context.wait(WaitKind.NEXT, consumed, 0, timeout_ps)
    if code == lib.TSEMU_E_TIMEOUT:
        context.callbacks.finish(
            DeviceTimeoutError(
                "no task has ended in time",
                field="timeout",
                value=timeout_ps,
                hint="wait longer; context.counters() tells how many tasks are in flight",
            )
        )
    context.check(code)


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
