"""The obvious SimPy model of the same graphs: a process per task, a Resource for the cores.

The graph is made before the time runs; making the processes is part of the model, as SimPy
schedules their first step.

    python baseline_simpy.py [independent|streams|layered] [TASKS]
"""

import sys
import time
from collections.abc import Generator
from typing import Any

import simpy
from workloads import WORKLOADS, as_lists


def measure(workload: str, tasks: int, cores: int = 8) -> tuple[float, int]:
    """Wall time in seconds and makespan in cycles of one run."""
    cycles, predecessors = as_lists(workload, tasks)

    def task(cycles: int, before: list[Any]) -> Generator[Any, Any, None]:
        if before:
            yield before[0] if len(before) == 1 else environment.all_of(before)
        with engine.request() as core:
            yield core
            yield environment.timeout(cycles)

    start = time.perf_counter()
    environment = simpy.Environment()
    engine = simpy.Resource(environment, capacity=cores)
    processes: list[Any] = []
    for number in range(tasks):
        before = [processes[predecessor] for predecessor in predecessors[number]]
        processes.append(environment.process(task(cycles[number], before)))
    environment.run()
    return time.perf_counter() - start, int(environment.now)


if __name__ == "__main__":
    chosen = sys.argv[1:2] or list(WORKLOADS)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    for name in chosen:
        seconds, end = measure(name, count)
        sys.stdout.write(f"{name} {seconds:.6f} {end} {count / seconds:.0f} tasks/s\n")
