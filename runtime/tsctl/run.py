"""`tsctl run`: a graph through the device, its completions into a log and a report."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tsemu.descriptors.codes import Opcode
from tsemu.descriptors.program import Program
from tsemu.runtime.completion_log import CompletionLog, Completions
from tsemu.runtime.occupancy import Occupancy
from tsemu.runtime.program_build import PRODUCER, build_program
from tsemu.runtime.tsctl.exits import UsageError
from tsemu.runtime.tsctl.graphs import Source, open_source
from tsemu.runtime.tsctl.progress import RunProgress
from tsemu.runtime.tsctl.report import EngineRow, RunReport
from tsemu.runtime.tsctl.session import Choice, brief, describe, engine_rows, open_device


@dataclass(frozen=True)
class Job:
    """What to run and how: the options of `tsctl run` that are not about the device."""

    path: Path
    output: Path | None = None
    engine_class: str | None = None
    cycles_per_unit: int | None = None
    quiet: bool = False


def run(job: Job, choice: Choice) -> RunReport:
    """Run the job and return its report; the completion log is in place when this returns.

    Raises `GraphError`, `UsageError`, `ConfigError`, `OSError` and the driver's errors.
    """
    facts = brief(describe(choice))  # options that contradict each other come first
    source = open_source(job.path)
    with ExitStack() as stack:
        device = stack.enter_context(open_device(choice))
        rows = engine_rows(device)
        program, cycles_per_unit = _program(source, job, rows)
        stack.enter_context(program)
        log = stack.enter_context(CompletionLog(job.output)) if job.output else None
        progress = stack.enter_context(RunProgress(program.task_count, quiet=job.quiet))
        occupancy = Occupancy(sum(row.cores for row in rows))

        def take(completions: Completions) -> None:
            if log is not None:
                log.write(completions)
            occupancy.add(completions)
            progress.advance(len(completions))

        start = time.perf_counter()
        device.run_program(program, on_completions=take)
        wall_s = time.perf_counter() - start
        return _report(source, program, facts, rows, occupancy, cycles_per_unit, wall_s, job)


def _program(source: Source, job: Job, rows: list[EngineRow]) -> tuple[Program, int | None]:
    if source.graph is None:
        assert source.program is not None
        for option, value in (
            ("--cycles-per-unit", job.cycles_per_unit),
            ("--engine-class", job.engine_class),
        ):
            if value is not None:
                raise UsageError(f"{option} is for STG graphs; {source.path} is a program already")
        found = source.program.meta.get("cycles_per_unit")
        return source.program, found if isinstance(found, int) and found > 0 else None
    row = _engine(job.engine_class, rows)
    cycles_per_unit = job.cycles_per_unit or row.frequency_mhz
    return build_program(source.graph, row.name, cycles_per_unit), cycles_per_unit


def _engine(name: str | None, rows: list[EngineRow]) -> EngineRow:
    if name is None:
        return rows[0]
    for row in rows:
        if row.name.lower() == name.lower():
            return row
    raise UsageError(
        f"--engine-class {name}: the device has no such class; "
        f"it has {', '.join(row.name for row in rows)}"
    )


def _report(
    source: Source,
    program: Program,
    facts: dict[str, Any],
    rows: list[EngineRow],
    occupancy: Occupancy,
    cycles_per_unit: int | None,
    wall_s: float,
    job: Job,
) -> RunReport:
    ours = program.meta.get("producer") == PRODUCER
    helpers = program.meta.get("helper_tasks", 0) if ours else 0
    return RunReport(
        graph=str(source.path),
        kind=source.kind,
        device=facts,
        device_text=f"{facts['soc']} at {facts['address']}: policy {facts['policy']}, "
        f"profile {facts['profile']}, clock {facts['clock_mode']}",
        edges=program.edge_count,
        helpers=helpers if isinstance(helpers, int) else 0,
        occupancy=occupancy,
        classes=rows,
        cycles_per_unit=cycles_per_unit,
        blocks_exact=_single_blocks(program),
        wall_s=wall_s,
        output=str(job.output) if job.output else None,
    )


def _single_blocks(program: Program) -> bool:
    """Return whether every task has one block, so that completions tell all that cores did."""
    for _, tasks, _ in program.chunks():
        if np.any((tasks["opcode"] == Opcode.KERNEL) & (tasks["blocks"] > 1)):
            return False
    return True
