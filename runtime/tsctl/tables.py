"""Aligned columns of text for the terminal, without trailing spaces."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

PLAIN_WIDTH = 100
"""Columns when the output is not a terminal."""
GAP = "  "


class OutputConsole(Console):
    """A console that leaves it to the program what a closed output means."""

    def on_broken_pipe(self) -> None:
        """Raise `BrokenPipeError`."""
        raise BrokenPipeError


def output_console() -> Console:
    """Return the console of standard output: colours and its real width only on a terminal."""
    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    return OutputConsole(highlight=False, markup=False, emoji=False, width=width)


def coloured(console: Console) -> bool:
    """Return whether colours can be used."""
    return console.is_terminal and console.color_system is not None and not console.no_color


def print_pairs(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values; further lines of a value stand below its first."""
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        line = Text(name.ljust(width), "bold" if coloured(console) else "")
        line.append(GAP + value.replace("\n", "\n" + " " * width + GAP), "not bold")
        console.print(line, soft_wrap=True)


def print_table(
    console: Console, rows: Sequence[Sequence[str | Text]], *, right: Sequence[int] = ()
) -> None:
    """Print rows of cells in columns; the first row is the heading, `right` aligns to the right."""
    columns = range(max(len(row) for row in rows))
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in columns]
    for number, row in enumerate(rows):
        line = Text(no_wrap=True)
        for column, cell in enumerate(row):
            space = " " * (widths[column] - len(cell))
            line.append(GAP if column else "")
            line.append(space if column in right else "")
            line.append(cell if isinstance(cell, Text) else Text(cell))
            line.append("" if column in right or column == len(row) - 1 else space)
        if number == 0 and coloured(console):
            line.stylize("bold")
        line.rstrip()
        console.print(line, soft_wrap=True)
