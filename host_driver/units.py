"""Times as callers give them.

A time is an integer number of picoseconds of the device's virtual time, or text such as "5us" or
"1.5 ms". Floating point numbers are refused: a picosecond more or less changes the order of
completions, so nothing is rounded on the way.
"""

from __future__ import annotations

import re
from fractions import Fraction

from tsemu.host_driver.errors import InvalidError

NO_LIMIT = 0xFFFF_FFFF_FFFF_FFFF
"""Picoseconds that stand for the device's own limit."""
PICOSECONDS = {"ps": 1, "ns": 10**3, "us": 10**6, "ms": 10**9, "s": 10**12}
_TEXT = re.compile(r"\s*([0-9]{1,40}(?:\.[0-9]{1,40})?)\s*(ps|ns|us|ms|s)\s*")


def picoseconds(value: int | str, field: str = "time") -> int:
    """Picoseconds of a time given as an integer (ps) or as text with a unit.

    Raises `InvalidError` naming `field` when it is negative, not a whole number of picoseconds,
    too long for 64 bits, or of another type.
    """
    given: object = value
    if isinstance(given, str):
        match = _TEXT.fullmatch(given)
        if not match:
            raise _invalid(field, value, "is not a number with one of the units ps, ns, us, ms, s")
        exact = Fraction(match[1]) * PICOSECONDS[match[2]]
        if exact.denominator != 1:
            raise _invalid(field, value, "is not a whole number of picoseconds")
        result = int(exact)
    elif isinstance(given, int) and not isinstance(given, bool):
        result = given
    else:
        raise _invalid(field, value, "is neither an integer of picoseconds nor text")
    if not 0 <= result < NO_LIMIT:
        raise _invalid(field, value, f"is not between 0 and {NO_LIMIT - 1} picoseconds")
    return result


def limit(value: int | str | None, field: str = "timeout") -> int:
    """Picoseconds of a time limit; None means the device's own limit (`NO_LIMIT`)."""
    return NO_LIMIT if value is None else picoseconds(value, field)


def microseconds(value: int | str | None, field: str = "timeout") -> int:
    """Microseconds of a time limit of a task, 0 for None.

    Raises `InvalidError` when it is not a whole number of microseconds between 1 and 2**32 - 1.
    """
    if value is None:
        return 0
    exact, rest = divmod(picoseconds(value, field), PICOSECONDS["us"])
    if rest or not 1 <= exact <= 0xFFFF_FFFF:
        raise _invalid(field, value, "is not a whole number of microseconds from 1 to 4294967295")
    return exact


def _invalid(field: str, value: object, what: str) -> InvalidError:
    return InvalidError(
        f"{field} {value!r} {what}",
        field=field,
        value=value,
        hint='give picoseconds as an integer, or text such as "5us"',
    )
