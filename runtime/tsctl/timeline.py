"""Draws who was busy when, one line of characters per core or group of cores.

A small graph is drawn task by task, with ids where they fit; a large one as the share of time that
a core was busy in each column. Colours and characters beyond ASCII are the caller's choice.
"""

from dataclasses import dataclass

import numpy as np
from rich.text import Text

from tsemu.runtime.occupancy import Occupancy
from tsemu.runtime.tsctl.units import time_text

LEVELS = " ▁▂▃▄▅▆▇█"
ASCII_LEVELS = " .:-=+*#%"
TASK_STYLES = ("black on green", "black on cyan")
BUSY_STYLE = "green"
READABLE_TASK_COLUMNS = 2.0
"""Columns that the mean task must have for a drawing task by task."""


@dataclass(frozen=True)
class Canvas:
    """How lines may look: `columns` characters wide, with or without colour and Unicode."""

    columns: int
    colour: bool
    unicode: bool


def task_by_task(occupancy: Occupancy, canvas: Canvas) -> bool:
    """Return whether the run is small enough for a drawing task by task."""
    if not occupancy.blocks or not occupancy.makespan_ps or not occupancy.exact_timeline:
        return False
    mean = occupancy.serial_ps / len(occupancy.blocks) / occupancy.makespan_ps
    return mean * canvas.columns >= READABLE_TASK_COLUMNS


def task_lines(occupancy: Occupancy, canvas: Canvas) -> list[Text]:
    """Return one line per core with its tasks. For runs of which `task_by_task` is true."""
    scale = canvas.columns / occupancy.makespan_ps
    origin = occupancy.first_start_ps or 0
    rows: list[list[tuple[int, int, str]]] = [[] for _ in range(occupancy.cores)]
    for core, start, end, tag in sorted(occupancy.blocks or []):
        left, right = round((start - origin) * scale), round((end - origin) * scale)
        rows[core].append((left, right, str(tag)))
    return [_task_line(row, canvas) for row in rows]


def _task_line(tasks: list[tuple[int, int, str]], canvas: Canvas) -> Text:
    line = Text(no_wrap=True)
    for number, (left, right, name) in enumerate(tasks):
        width = right - max(left, len(line))
        if width <= 0:
            continue
        line.append(" " * (left - len(line)))
        if canvas.colour:
            label = name if len(name) <= width - 1 else ""
            line.append(label.center(width), TASK_STYLES[number % 2])
        else:
            edge, fill = ("│", "─") if canvas.unicode else ("|", "-")
            label = name if len(name) < width else ""
            line.append(edge + label + fill * (width - 1 - len(label)))
    line.append(" " * (canvas.columns - len(line)))
    return line


def busy_lines(
    occupancy: Occupancy, canvas: Canvas, groups: list[range], *, in_flight: bool = False
) -> list[Text]:
    """Return one line per group of cores: the share of time for which they were busy.

    With `in_flight` the share is that of times with any task of the group, not the cores' mean.
    """
    levels = LEVELS if canvas.unicode else ASCII_LEVELS
    shares = occupancy.timeline(canvas.columns)
    lines = []
    for group in groups:
        rows = shares[group.start : group.stop]
        share = np.minimum(rows.sum(axis=0), 1.0) if in_flight else rows.mean(axis=0)
        steps = np.rint(share * (len(levels) - 1)).astype(int)
        steps[(steps == 0) & (share > 0)] = 1  # a little is not nothing
        text = "".join(levels[step] for step in steps.tolist())
        lines.append(Text(text, BUSY_STYLE if canvas.colour else "", no_wrap=True))
    return lines


def axis_lines(makespan_ps: int, canvas: Canvas) -> list[Text]:
    """Return the time axis: a ruler and its labels."""
    left, middle, right, line = "├┼┤─" if canvas.unicode else "|+|-"
    parts = 4 if canvas.columns >= 48 else 2
    places = [round(part * (canvas.columns - 1) / parts) for part in range(parts + 1)]
    ruler = [line] * canvas.columns
    labels = [" "] * canvas.columns
    for part, place in enumerate(places):
        ruler[place] = left if part == 0 else right if part == parts else middle
        text = time_text(makespan_ps * part // parts) if part else "0"
        first = place - len(text) + 1 if part == parts else max(0, place - len(text) // 2)
        labels[first : first + len(text)] = text
    style = "dim" if canvas.colour else ""
    return [Text("".join(row), style, no_wrap=True) for row in (ruler, labels)]
