"""The table of cores: how busy each was, how much it did, and when.

Three forms. A small graph is drawn task by task; a large one as shares of busy time, cores in
groups when there are many. When tasks have several blocks, completions do not tell which core did
what when: then a class is drawn as a whole, with its cores' totals below.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from tsemu.runtime.occupancy import Occupancy
from tsemu.runtime.tsctl import timeline
from tsemu.runtime.tsctl.engines import EngineRow, slice_of, used
from tsemu.runtime.tsctl.tables import GAP, coloured, print_table
from tsemu.runtime.tsctl.timeline import Canvas
from tsemu.runtime.tsctl.units import count_text, percent_text, time_text

MAX_ROWS = 32
"""Rows of the table; more cores are drawn in groups."""
MIN_COLUMNS = 24
MAX_COLUMNS = 160
NUMBER_COLUMNS = 9
INDENT = "  "
Row = list[str | Text]


def show(console: Console, occupancy: Occupancy, classes: Sequence[EngineRow]) -> None:
    """Print the table for the classes that were used."""
    rows = used(occupancy, classes)
    whole = not occupancy.exact_timeline
    groups = [group for row in rows for group in _groups(row, rows, whole=whole)]
    names = [_name(group, rows) for group in groups]
    fixed = max(len(name) for name in names) + 2 * NUMBER_COLUMNS + 3 * len(GAP)
    canvas = Canvas(
        max(MIN_COLUMNS, min(MAX_COLUMNS, console.width - fixed - 1)),
        coloured(console),
        console.encoding.lower().startswith("utf"),
    )
    single = all(len(group) == 1 for group in groups)
    by_task = single and timeline.task_by_task(occupancy, canvas)
    if by_task:
        every = timeline.task_lines(occupancy, canvas)
        lines = [every[group.start] for group in groups]
    else:
        lines = timeline.busy_lines(occupancy, canvas, groups, in_flight=whole)
    done = "blocks" if whole else "tasks"
    table: list[Row] = [
        ["core", "busy".rjust(NUMBER_COLUMNS), done.rjust(NUMBER_COLUMNS), "timeline"]
    ]
    for group, name, line in zip(groups, names, lines, strict=True):
        table.append([name, *_totals(occupancy, group), line])
        if whole and len(group) > 1 and sum(row.cores for row in rows) <= MAX_ROWS:
            cores = [range(core, core + 1) for core in group]
            table += [[INDENT + _name(core, rows), *_totals(occupancy, core)] for core in cores]
    axis = timeline.axis_lines(occupancy.makespan_ps, canvas)
    table += [["", "", "", line] for line in axis]
    print_table(console, table, right=(1, 2))
    idle = [row for row in classes if row not in rows]
    for note in _notes(occupancy, canvas, idle, by_task=by_task):
        console.print(Text(note, "dim" if canvas.colour else ""), soft_wrap=True)


def _groups(row: EngineRow, rows: Sequence[EngineRow], *, whole: bool) -> list[range]:
    """Return the cores that share a line: a whole class, or as many as MAX_ROWS asks for."""
    size = row.cores if whole else -(-sum(used.cores for used in rows) // MAX_ROWS)
    end = row.numbers.stop
    return [range(core, min(core + size, end)) for core in range(row.first, end, size)]


def _name(group: range, rows: Sequence[EngineRow]) -> str:
    row = next(row for row in rows if group.start in row.numbers)
    first, last = group.start - row.first, group.stop - row.first - 1
    return f"{row.name} {first}" if first == last else f"{row.name} {first}-{last}"


def _totals(occupancy: Occupancy, group: range) -> list[str]:
    """Return the cells "busy" and "tasks" (or "blocks") of some cores."""
    busy = int(occupancy.busy_ps[slice_of(group)].sum())
    whole = occupancy.makespan_ps * len(group)
    done = int(occupancy.core_blocks[slice_of(group)].sum())
    return [percent_text(busy / whole if whole else 0.0), count_text(done)]


def _notes(
    occupancy: Occupancy, canvas: Canvas, idle: Sequence[EngineRow], *, by_task: bool
) -> list[str]:
    column = time_text(round(occupancy.makespan_ps / canvas.columns))
    if by_task:
        notes = [f"numbers: task ids; one column is {column}"]
    elif occupancy.exact_timeline:
        notes = [f"height: share of each {column} for which the core was busy"]
    else:
        notes = [f"height: share of each {column} for which a task of the class was running"]
    if idle:
        notes.append("not used: " + ", ".join(f"{row.cores} {row.name}" for row in idle))
    return notes
