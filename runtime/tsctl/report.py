"""The result of a run, as one JSON document or as a table with a timeline."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from tsemu.runtime.occupancy import Occupancy
from tsemu.runtime.tsctl import core_table
from tsemu.runtime.tsctl.engines import EngineRow, used, utilisation
from tsemu.runtime.tsctl.tables import print_pairs
from tsemu.runtime.tsctl.units import count_text, percent_text, rate_text, time_text


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
        return used(self.occupancy, self.classes)

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
        return utilisation(self.occupancy, rows)

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
            core_table.show(console, self.occupancy, self.classes)

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
            units = self.makespan_units
            text = count_text(units) if isinstance(units, int) else f"{units:,.2f}"
            more.append(f"{text} units of the graph")
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
