"""Numbers for people: times, counts and rates with a unit that suits their size."""

_TIMES = ((10**12, "s"), (10**9, "ms"), (10**6, "us"), (10**3, "ns"))
_RATES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def time_text(picoseconds: int) -> str:
    """Return a time in the largest unit that leaves at least 1: `66.00 us`."""
    for size, unit in _TIMES:
        if picoseconds >= size:
            return f"{picoseconds / size:.2f} {unit}"
    return f"{picoseconds} ps"


def count_text(count: int) -> str:
    """Return a number with its digits in groups: `1,048,576`."""
    return f"{count:,}"


def rate_text(per_second: float) -> str:
    """Return a rate with three digits and a prefix: `1.25 M`."""
    for size, prefix in _RATES:
        if per_second >= size:
            return f"{per_second / size:.3g} {prefix}"
    return f"{per_second:.3g} "


def percent_text(share: float) -> str:
    """Return a share of 1 as `98.5 %`."""
    return f"{100 * share:.1f} %"
