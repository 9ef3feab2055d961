"""Numbers as people read them."""

import pytest

from tsemu.runtime.tsctl.units import count_text, percent_text, rate_text, time_text


@pytest.mark.parametrize(
    ("picoseconds", "text"),
    [
        (0, "0 ps"),
        (999, "999 ps"),
        (1000, "1.00 ns"),
        (1_500_000, "1.50 us"),
        (66_000_000, "66.00 us"),
        (2_340_000_000, "2.34 ms"),
        (171_902_000_000_000, "171.90 s"),
    ],
)
def test_time(picoseconds, text):
    assert time_text(picoseconds) == text


def test_counts_rates_and_shares():
    assert count_text(1_048_576) == "1,048,576"
    assert [rate_text(rate) for rate in (0.5, 999, 1250, 5.25e6, 2e9)] == [
        "0.5 ", "999 ", "1.25 k", "5.25 M", "2 G",
    ]  # fmt: skip
    assert percent_text(0.985) == "98.5 %"
