"""Makespans of standard task graphs against the optimal ones, across two processes.

For each number of cores a `tsemu run` with profile `ideal` and policy `rank`; every graph of the
folder is run on it from this process (or, with --tsctl, by a `tsctl run` each). Figures: mean and
largest ratio to the optimum, and completions that came before one of their predecessors (target
0). Optima are read from files named like Case50_8_OPT.csv beside the folder: lines
`50/rand0000.stg,8,55`; a line with four fields has bounds only and is skipped.

    python benchmarks/graphs.py PATH/stg/50 [--cores 1 2 4 8 16 32] [--tsctl] [--limit N]

With one core the optimum is the sum of the times, with more cores than the files know it is not
known: then only the order is checked, and that no makespan is below the longest path.
"""

import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from harness import Report, cores, device, machine, parser, program, progress, run

from tsemu.host_driver import Device
from tsemu.runtime.graph import Graph
from tsemu.runtime.program_build import build_program
from tsemu.runtime.rank import longest_paths
from tsemu.runtime.stg import read_stg

MEAN_LIMIT = {2: 1.0035, 4: 1.008, 8: 1.004, 16: 1.0001}
WORST = 1.09
UNIT_CYCLES = 1000
CYCLE_PS = 1000


@dataclass
class Tally:
    """What one number of cores has come to."""

    ratios: list[float] = field(default_factory=list)
    disorder: int = 0
    impossible: int = 0


def optima(folder: Path) -> dict[tuple[str, int], int]:
    """Optimal makespans by (file name, cores), from the CSV files beside `folder`."""
    found = {}
    for path in sorted(folder.parent.glob("*_OPT.csv")):
        for line in path.read_text().splitlines():
            fields = line.split(",")
            if len(fields) == 3:
                found[Path(fields[0]).name, int(fields[1])] = int(fields[2])
    return found


def by_driver(session: Device, graph: Graph) -> dict[str, Any]:
    """Completions of a graph by task, and its makespan in the graph's units."""
    taken: list[Any] = []
    with build_program(graph, "AICORE", UNIT_CYCLES) as compiled:
        result = session.run_program(
            compiled, on_completions=lambda cqes: taken.append(cqes.copy())
        )
    if result.failed:
        raise SystemExit(f"{graph.source}: {result.failed} tasks failed")
    cqes = np.concatenate(taken)
    position = {int(name): place for place, name in enumerate(graph.ids)}
    places = np.array([position[int(tag)] for tag in cqes["user_tag"]])
    order, start, end = (np.full(graph.tasks, -1, np.int64) for _ in range(3))
    order[places], start[places], end[places] = (
        np.arange(len(cqes)),
        cqes["start_ps"],
        cqes["end_ps"],
    )
    return {"order": order, "start": start, "end": end, "makespan": end.max() - start.min()}


def check(tally: Tally, graph: Graph, ran: dict[str, Any], count: int, optimum: int | None) -> None:
    """Add one graph's result."""
    after = np.repeat(np.arange(graph.tasks), np.diff(graph.starts))
    before = graph.predecessors
    early = (ran["order"][before] >= ran["order"][after]) | (
        ran["end"][before] > ran["start"][after]
    )
    tally.disorder += int(early.sum()) + int((ran["order"] < 0).sum())
    add(tally, graph, ran["makespan"] / (UNIT_CYCLES * CYCLE_PS), count, optimum)


def add(tally: Tally, graph: Graph, makespan: float, count: int, optimum: int | None) -> None:
    """Add one graph's makespan, in its own units."""
    bound = max(int(longest_paths(graph).max()), -(-int(graph.times.sum()) // count))
    tally.impossible += makespan < bound - 1e-9
    if count == 1:
        optimum = int(graph.times.sum())
    if optimum:
        tally.ratios.append(makespan / optimum)


def by_tsctl(address: str, path: Path, folder: Path) -> float:
    """Makespan in picoseconds of a graph that `tsctl run` has run."""
    log = folder / "log"
    command = [program("tsctl"), "run", str(path), "--device", address, "--json", "-o", str(log)]
    command += ["--cycles-per-unit", str(UNIT_CYCLES)]
    document = json.loads(run(command))
    return float(document["makespan_ps"])


def main() -> int:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--cores", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    arguments.add_argument("--limit", type=int, help="graphs to run, all by default")
    arguments.add_argument("--tsctl", action="store_true", help="one `tsctl run` per graph")
    options = arguments.parse_args()
    paths = sorted(options.folder.glob("*.stg"))[: options.limit]
    if not paths:
        raise SystemExit(f"{options.folder} has no *.stg files")
    progress(machine())
    known = optima(options.folder)
    report = Report()
    for count in options.cores:
        tally = Tally()
        with (
            tempfile.TemporaryDirectory(prefix="tsemu-bench-") as name,
            device(*cores(count), "--policy", "rank") as server,
        ):
            for path in paths:
                graph = read_stg(path)
                optimum = known.get((path.name, count))
                if options.tsctl:
                    makespan = by_tsctl(server.address, path, Path(name))
                    add(tally, graph, makespan / (UNIT_CYCLES * CYCLE_PS), count, optimum)
                else:
                    with Device.open(server.address, name=path.stem) as session:
                        check(tally, graph, by_driver(session, graph), count, optimum)
        show(report, count, tally, len(paths))
    return report.code


def show(report: Report, count: int, tally: Tally, graphs: int) -> None:
    """Print the figures of one number of cores."""
    name = f"{count} cores"
    report.figure(f"{name}: graphs run", graphs, "graphs")
    if tally.ratios:
        mean = sum(tally.ratios) / len(tally.ratios)
        report.figure(f"{name}: graphs with a known optimum", len(tally.ratios), "graphs")
        report.figure(f"{name}: makespan over optimum, mean", mean, "x", most=MEAN_LIMIT.get(count))
        report.figure(f"{name}: makespan over optimum, largest", max(tally.ratios), "x", most=WORST)
    report.figure(f"{name}: edges not respected", tally.disorder, "edges", most=0)
    report.figure(f"{name}: makespans below the lower bound", tally.impossible, "graphs", most=0)


if __name__ == "__main__":
    sys.exit(main())
