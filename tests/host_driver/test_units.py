"""Times as callers give them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsemu.host_driver.errors import InvalidError
from tsemu.host_driver.units import NO_LIMIT, PICOSECONDS, limit, microseconds, picoseconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5us", 5_000_000),
        ("1.5 ms", 1_500_000_000),
        (" 7ps ", 7),
        ("0s", 0),
        ("0.001ns", 1),
        (12, 12),
        (0, 0),
    ],
)
def test_times_are_exact(text, expected):
    assert picoseconds(text) == expected


@given(st.integers(0, 10**6), st.sampled_from(sorted(PICOSECONDS)))
def test_text_and_integer_agree(number, unit):
    assert picoseconds(f"{number}{unit}") == number * PICOSECONDS[unit]


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "5",
        "5 parsecs",
        "us",
        "-1us",
        "0.5ps",
        "1e3us",
        1.5,
        True,
        "9" * 5000 + "us",
        "\u0663us",
    ],
)
def test_bad_times_name_field_value_and_remedy(bad):
    with pytest.raises(InvalidError) as caught:
        picoseconds(bad, "deadline")
    assert caught.value.field == "deadline"
    assert caught.value.value == bad
    assert '"5us"' in caught.value.hint


@pytest.mark.parametrize("bad", [-1, NO_LIMIT, 1 << 64, f"{1 << 64}ps"])
def test_times_that_do_not_fit_are_refused(bad):
    with pytest.raises(InvalidError, match="between 0 and"):
        picoseconds(bad)


def test_no_limit_is_the_devices():
    assert limit(None) == NO_LIMIT
    assert limit("1ns") == 1000


def test_task_timeouts_are_whole_microseconds():
    assert microseconds(None) == 0
    assert microseconds("3us") == 3
    assert microseconds(2_000_000) == 2
    for bad in ("1ns", 0, f"{1 << 32}us"):
        with pytest.raises(InvalidError, match="whole number of microseconds"):
            microseconds(bad)
