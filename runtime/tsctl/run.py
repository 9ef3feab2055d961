"""`tsctl run`: a graph through the device, its completions into a log and a report."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tsemu.descriptors.codes import Opcode
from tsemu.descriptors.program import Program
from tsemu.host_driver import Device
from tsemu.runtime.completion_log import CompletionLog, Completions
from tsemu.runtime.occupancy import Occupancy
from tsemu.runtime.program_build import PRODUCER, build_program
from tsemu.runtime.tsctl.engines import EngineRow
from tsemu.runtime.tsctl.exits import UsageError
from tsemu.runtime.tsctl.graphs import Source, open_source
from tsemu.runtime.tsctl.progress import RunProgress
from tsemu.runtime.tsctl.report import RunReport
from tsemu.runtime.tsctl.session import Choice, brief, describe, engine_rows, open_device


@dataclass(frozen=True)
class Job:
    """What to run and how: the options of `tsctl run` that are not about the device."""

    path: Path
    output: Path | None = None
    engine_class: str | None = None
    cycles_per_unit: int | None = None


def run(job: Job, choice: Choice) -> RunReport:
    """Run the job and return its report; the completion log is in place when this returns.

    Raises `GraphError`, `UsageError`, `OSError` and the driver's errors.
    """
    facts = brief(describe(choice))  # options that contradict each other come first
    source = open_source(job.path)
    with ExitStack() as stack:
        device = stack.enter_context(open_device(choice))
        rows = engine_rows(device)
        program, cycles_per_unit = _program(source, job, rows)
        stack.enter_context(program)
        log = stack.enter_context(CompletionLog(job.output)) if job.output else None
        progress = stack.enter_context(RunProgress(program.task_count))
        occupancy = Occupancy(sum(row.cores for row in rows))

        def take(completions: Completions) -> None:
            if log is not None:
                log.write(completions)
            occupancy.add(completions)
            progress.advance(len(completions))

        counters = BlockCounters(device) if _has_wide_tasks(program) else None
        start = time.perf_counter()
        device.run_program(program, on_completions=take)
        wall_s = time.perf_counter() - start
        if counters is not None:
            occupancy.use_counters(*counters.since())
    return RunReport(
        graph=str(source.path),
        kind=source.kind,
        device=facts,
        edges=program.edge_count,
        helpers=_helpers(program),
        occupancy=occupancy,
        classes=rows,
        cycles_per_unit=cycles_per_unit,
        wall_s=wall_s,
        output=str(job.output) if job.output else None,
    )


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
    """Return the class of this name, or the first one, among those that run kernels."""
    able = [row for row in rows if not row.moves_bytes]
    for row in able:
        if name is None or row.name.lower() == name.lower():
            return row
    raise UsageError(
        f"--engine-class {name or 'missing'}: the device has no such class that runs kernels; "
        f"it has {', '.join(row.name for row in able) or 'none'}"
    )


def _helpers(program: Program) -> int:
    """Return how many tasks were not in the graph that the program was made from."""
    found = program.meta.get("helper_tasks")
    if program.meta.get("producer") != PRODUCER or not isinstance(found, int):
        return 0
    return min(max(found, 0), program.task_count)


def _has_wide_tasks(program: Program) -> bool:
    """Return whether a task has several blocks: completions then do not tell all that cores did."""
    return any(
        np.any((tasks["opcode"] == Opcode.KERNEL) & (tasks["blocks"] > 1))
        for _, tasks, _ in program.chunks()
    )


class BlockCounters:
    """The device's own counts of what each core did, from a moment on.

    They include what other clients do meanwhile; completions cannot tell blocks apart.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._busy_ps, self._blocks = self._read()

    def since(self) -> tuple[list[int], list[int]]:
        """Return busy time (ps) and blocks of each core since this object was made."""
        busy_ps, blocks = self._read()
        return (
            [now - then for now, then in zip(busy_ps, self._busy_ps, strict=True)],
            [now - then for now, then in zip(blocks, self._blocks, strict=True)],
        )

    def _read(self) -> tuple[list[int], list[int]]:
        cores = self._device.info()["status"]["cores"]
        return [core["busy_ps"] for core in cores], [core["blocks"] for core in cores]
