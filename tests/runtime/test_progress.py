"""The progress bar: only on a terminal, only for long runs."""

import io

from rich.console import Console

from tsemu.runtime.tsctl.progress import RunProgress


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def drawn(steps, *, terminal=True, total=1000):
    """Text drawn for steps of (seconds, tasks)."""
    clock = Clock()
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    with RunProgress(total, console=console, clock=clock) as progress:
        for seconds, tasks in steps:
            clock.now += seconds
            progress.advance(tasks)
    return console.file.getvalue()


def test_short_run_draws_nothing():
    assert drawn([(0.1, 500), (0.1, 500)]) == ""
    assert drawn([(0.6, 500), (0.6, 500)]) == ""  # 1.2 s are expected


def test_long_run_draws_counts_and_rate():
    text = drawn([(0.6, 10), (0.6, 10)])
    assert "running" in text
    assert "/1000" in text
    assert "tasks/s" in text


def test_no_terminal_no_bar():
    assert drawn([(5, 10), (5, 10)], terminal=False) == ""
