"""Checks of what launches are given; each refusal names field, value and remedy."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from tsemu.descriptors.codes import MAX_PREDECESSORS
from tsemu.host_driver._driver import ffi
from tsemu.host_driver.errors import InvalidError
from tsemu.host_driver.event import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsemu.host_driver.context import Context
    from tsemu.host_driver.task import Task


def addresses(after: Sequence[Task]) -> Any:  # noqa: ANN401 - a cffi array has no type
    """Return the record addresses of predecessors as a C array.

    Raises `InvalidError` naming `after` when one is no task, or when there are more than 1024.
    """
    try:
        found = [task.record for task in after]
    except (AttributeError, TypeError) as error:
        raise InvalidError(
            f"after = {after!r} holds something that is no task",
            field="after",
            value=after,
            hint="give a list of what launch(), memcpy(), record() and so on returned",
        ) from error
    if len(found) > MAX_PREDECESSORS:
        raise InvalidError(
            f"after names {len(found)} tasks, at most {MAX_PREDECESSORS} are possible",
            field="after",
            value=len(found),
            limit=MAX_PREDECESSORS,
            hint="join them in groups with stream.nop(after=...) first",
        )
    return ffi.new("uintptr_t[]", found)


def event_number(context: Context, event: object) -> int:
    """Number of an event for a task of `context`; raises `InvalidError` when it is no event."""
    if not isinstance(event, Event):
        raise InvalidError(
            f"event {event!r} is no event",
            field="event",
            value=event,
            hint="give what context.event() returned",
        )
    return event.number_in(context)


def repeated(pattern: int | bytes) -> int:
    """The eight bytes that a fill repeats, as the task carries them."""
    unit: bytes = pattern if isinstance(pattern, bytes) else b""
    if not isinstance(pattern, bytes):
        unit = bytes([in_range("pattern", pattern, 0, 0xFF)])
    if len(unit) not in (1, 2, 4, 8):
        raise InvalidError(
            f"pattern {pattern!r} has {len(unit)} bytes",
            field="pattern",
            value=pattern,
            hint="give a number from 0 to 255, or 1, 2, 4 or 8 bytes",
        )
    return int.from_bytes(unit * (8 // len(unit)), "little")


def in_range(field: str, value: object, low: int, high: int) -> int:
    """The value as an integer; raises `InvalidError` unless it is one from `low` to `high`."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or not low <= number <= high:
        raise InvalidError(
            f"{field} {value!r} is not an integer from {low} to {high}",
            field=field,
            value=value,
            limit=high if number is None or number > high else low,
            hint=f"give {field} between {low} and {high}",
        )
    return number
