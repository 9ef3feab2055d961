"""The result of a run, as one JSON document or as a table with a timeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from tsemu.runtime.occupancy import Occupancy
from tsemu.runtime.tsctl import timeline
from tsemu.runtime.tsctl.tables import GAP, coloured, print_pairs, print_table
from tsemu.runtime.tsctl.timeline import Canvas
from tsemu.runtime.tsctl.units import count_text, percent_text, rate_text, time_text

MAX_ROWS = 32
"""Rows of the core table; more cores are drawn in groups."""
MIN_COLUMNS = 24
MAX_COLUMNS = 160
NUMBER_COLUMNS = 9


@dataclass(frozen=True)
class EngineRow:
    """An engine class of the device: its cores have the numbers `first` to `first + cores - 1`."""

    name: str
    first: int
    cores: int
    frequency_mhz: int


@dataclass(frozen=True)
class RunReport:
    """Everything that a run is reported with."""

    graph: str
    kind: str
    device: dict[str, Any]
    edges: int
    helpers: int
    occupancy: Occupancy
    classes: Sequence[EngineRow]
    cycles_per_unit: int | None
    wall_s: float
    output: str | None

    @property
    def used_classes(self) -> list[EngineRow]:
        """Classes of which at least one core ran something."""
        busy = self.occupancy.core_blocks
        return [row for row in self.classes if busy[row.first : row.first + row.cores].any()]

    @property
    def makespan_cycles(self) -> int | None:
        """Makespan in cycles, rounded up; None when classes with different clocks took part."""
        clocks = {row.frequency_mhz for row in self.used_classes}
        if len(clocks) != 1:
            return None
        return -(-self.occupancy.makespan_ps * clocks.pop() // 1_000_000)

    @property
    def makespan_units(self) -> int | float | None:
        """Makespan in time units of the graph; whole when it is a whole number of units."""
        clocks = {row.frequency_mhz for row in self.used_classes}
        if self.cycles_per_unit is None or len(clocks) != 1:
            return None
        product = self.occupancy.makespan_ps * clocks.pop()
        unit = self.cycles_per_unit * 1_000_000
        return product // unit if product % unit == 0 else product / unit

    @property
    def speedup(self) -> float | None:
        """Serial time over makespan."""
        makespan = self.occupancy.makespan_ps
        return self.occupancy.serial_ps / makespan if makespan else None

    def utilisation(self, rows: Sequence[EngineRow]) -> float:
        """Share of the makespan for which the cores of some classes were busy."""
        cores = sum(row.cores for row in rows)
        whole = cores * self.occupancy.makespan_ps
        busy = sum(
            int(self.occupancy.busy_ps[row.first : row.first + row.cores].sum()) for row in rows
        )
        return busy / whole if whole else 0.0

    def document(self) -> dict[str, Any]:
        """Return the report as the `--json` document."""
        found = self.occupancy
        makespan = found.makespan_ps
        return {
            "graph": self.graph,
            "format": self.kind,
            "device": self.device,
            "tasks": found.tasks - self.helpers,
            "tasks_on_cores": found.tasks_on_cores,
            "helper_tasks": self.helpers,
            "edges": self.edges,
            "failed_tasks": found.failed,
            "statuses": found.statuses,
            "start_ps": found.first_start_ps or 0,
            "end_ps": found.last_end_ps,
            "makespan_ps": makespan,
            "makespan_cycles": self.makespan_cycles,
            "makespan_units": self.makespan_units,
            "cycles_per_unit": self.cycles_per_unit,
            "serial_ps": found.serial_ps,
            "speedup_ratio": self.speedup,
            "utilisation_ratio": self.utilisation(self.used_classes),
            "classes": [
                {
                    "name": row.name,
                    "cores": row.cores,
                    "frequency_mhz": row.frequency_mhz,
                    "utilisation_ratio": self.utilisation([row]),
                }
                for row in self.classes
            ],
            "cores": [
                {
                    "core": core,
                    "engine_class": row.name,
                    "blocks": int(found.core_blocks[core]),
                    "busy_ps": int(found.busy_ps[core]),
                    "utilisation_ratio": int(found.busy_ps[core]) / makespan if makespan else 0.0,
                }
                for row in self.classes
                for core in range(row.first, row.first + row.cores)
            ],
            "wall_s": self.wall_s,
            "wall_tasks_per_s": found.tasks / self.wall_s if self.wall_s else None,
            "output": self.output,
        }

    def show(self, console: Console) -> None:
        """Print the report for a person."""
        print_pairs(console, self._summary())
        if self.used_classes:
            console.print()
            self._show_cores(console)

    def _summary(self) -> list[tuple[str, str]]:
        found = self.occupancy
        cores = sum(row.cores for row in self.used_classes)
        parts = [f"{count_text(found.tasks_on_cores)} on cores"]
        if found.tasks > found.tasks_on_cores + self.helpers:
            coreless = found.tasks - found.tasks_on_cores - self.helpers
            parts.append(f"{count_text(coreless)} that need none")
        if self.helpers:
            parts.append(f"{count_text(self.helpers)} more to join many predecessors")
        makespan = time_text(found.makespan_ps)
        more = []
        if self.makespan_cycles is not None:
            more.append(f"{count_text(self.makespan_cycles)} cycles")
        if self.makespan_units is not None:
            more.append(f"{self.makespan_units:,} units of the graph")
        if more:
            makespan += f"  ({', '.join(more)})"
        size = f"{count_text(found.tasks - self.helpers)}, {count_text(self.edges)} edges"
        rows = [
            ("graph", self.graph),
            ("device", self._device_text()),
            ("tasks", f"{size}  ({', '.join(parts)})"),
            ("failed", self._failed_text()),
            ("makespan", makespan),
            ("serial", time_text(found.serial_ps)),
        ]
        if self.speedup is not None and cores:
            word = "core" if cores == 1 else "cores"
            rows.append(("speed-up", f"{self.speedup:.2f} over serial, on {cores} {word}"))
            rows.append(("utilisation", percent_text(self.utilisation(self.used_classes))))
        rate = rate_text(found.tasks / self.wall_s) if self.wall_s else "0 "
        rows.append(("wall time", f"{self.wall_s:.3f} s  ({rate}tasks/s)"))
        if self.output:
            rows.append(("completions", self.output))
        return rows

    def _device_text(self) -> str:
        facts = self.device
        return (
            f"{facts['soc']} at {facts['address']}: policy {facts['policy']}, "
            f"profile {facts['profile']}, clock {facts['clock_mode']}"
        )

    def _failed_text(self) -> str:
        found = self.occupancy
        if not found.failed:
            return "none"
        kinds = ", ".join(
            f"{count_text(count)} {name}"
            for name, count in sorted(found.statuses.items())
            if name != "OK"
        )
        return f"{count_text(found.failed)}  ({kinds})"

    def _show_cores(self, console: Console) -> None:
        groups = [group for row in self.used_classes for group in self._groups(row)]
        names = [self._name(group) for group in groups]
        fixed = max(len(name) for name in names) + 2 * NUMBER_COLUMNS + 3 * len(GAP)
        canvas = Canvas(
            max(MIN_COLUMNS, min(MAX_COLUMNS, console.width - fixed - 1)),
            coloured(console),
            console.encoding.lower().startswith("utf"),
        )
        single = all(len(group) == 1 for group in groups)
        by_task = (
            single
            and self.occupancy.exact_timeline
            and timeline.task_by_task(self.occupancy, canvas)
        )
        lines = (
            [timeline.task_lines(self.occupancy, canvas)[group.start] for group in groups]
            if by_task
            else timeline.busy_lines(self.occupancy, canvas, groups)
        )
        done = "tasks" if self.occupancy.exact_timeline else "blocks"
        rows: list[list[str | Text]] = [
            ["core", "busy".rjust(NUMBER_COLUMNS), done.rjust(NUMBER_COLUMNS), "timeline"]
        ]
        makespan = self.occupancy.makespan_ps
        for group, name, line in zip(groups, names, lines, strict=True):
            busy = int(self.occupancy.busy_ps[group.start : group.stop].sum())
            share = busy / (makespan * len(group)) if makespan else 0.0
            blocks = int(self.occupancy.core_blocks[group.start : group.stop].sum())
            rows.append([name, percent_text(share), count_text(blocks), line])
        rows += [["", "", "", axis] for axis in timeline.axis_lines(makespan, canvas)]
        print_table(console, rows, right=(1, 2))
        for note in self._notes(canvas, by_task=by_task):
            console.print(Text(note, "dim" if canvas.colour else ""), soft_wrap=True)

    def _groups(self, row: EngineRow) -> list[range]:
        total = sum(used.cores for used in self.used_classes)
        size = -(-total // MAX_ROWS)
        end = row.first + row.cores
        return [range(core, min(core + size, end)) for core in range(row.first, end, size)]

    def _name(self, group: range) -> str:
        row = next(row for row in self.classes if row.first <= group.start < row.first + row.cores)
        first, last = group.start - row.first, group.stop - row.first - 1
        return f"{row.name} {first}" if first == last else f"{row.name} {first}-{last}"

    def _notes(self, canvas: Canvas, *, by_task: bool) -> list[str]:
        column = time_text(round(self.occupancy.makespan_ps / canvas.columns))
        notes = (
            [f"numbers: task ids; one column is {column}"]
            if by_task
            else [f"height: share of each {column} for which the core was busy"]
        )
        if not self.occupancy.exact_timeline:
            notes.append("a task of several blocks is drawn on the core of its first block")
        idle = [row for row in self.classes if row not in self.used_classes]
        if idle:
            notes.append("not used: " + ", ".join(f"{row.cores} {row.name}" for row in idle))
        return notes
