"""A progress bar on standard error, for runs that take long enough to wonder."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from tsemu.runtime.tsctl.units import rate_text

LONG_RUN_S = 2.0
FIRST_LOOK_S = 0.5
"""Time after which the whole duration is estimated."""


class RateColumn(ProgressColumn):
    """Shows tasks per second."""

    def render(self, task: Task) -> Text:
        """Return the rate of `task`."""
        return Text(f"{rate_text(task.speed or 0)}tasks/s", style="progress.data.speed")


class RunProgress:
    """Counts tasks; shows a bar once the run is expected to take over two seconds.

    Shows nothing when standard error is not a terminal.
    """

    def __init__(
        self,
        total: int,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console or Console(stderr=True)
        self._clock = clock
        self._total = total
        self._done = 0
        self._start = clock()
        self._wanted = self._console.is_terminal and total > 0
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, tasks: int) -> None:
        """Say that so many more tasks have ended."""
        self._done += tasks
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done)
        elif self._wanted:
            elapsed = self._clock() - self._start
            if elapsed > FIRST_LOOK_S and elapsed * self._total > LONG_RUN_S * self._done:
                self._show()

    def _show(self) -> None:
        self._bar = Progress(
            TextColumn("running"),
            BarColumn(),
            MofNCompleteColumn(),
            RateColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        self._bar.start()
        self._bar.add_task("run", total=self._total, completed=self._done)
