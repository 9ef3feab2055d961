"""A hand-written event loop in Python with heapq: the same graphs, no device at all.

No rings, no checks, no driver, nobody on the other side: what an engineer writes to see how a
graph runs on eight cores. Input and output are those of a run on the device: each task's cycles
and predecessors in, each task's core (the lowest-numbered idle one), start and end out, in order
of completion. Lists of cycles and predecessors are made before the time runs; resolving the edges
is part of the work, as it is on the device.

    python baseline_heapq.py [independent|streams|layered] [TASKS]
"""

import gc
import sys
import time
from collections import deque
from heapq import heappop, heappush

from workloads import WORKLOADS, as_lists

Completion = tuple[int, int, int, int]
"""Task, core, start and end in cycles."""


def simulate(cycles: list[int], predecessors: list[list[int]], cores: int) -> list[Completion]:
    """Run the graph on `cores` cores; return the completions in order."""
    waiting = [len(before) for before in predecessors]
    successors: dict[int, list[int]] = {}
    for task, before in enumerate(predecessors):
        for predecessor in before:
            if predecessor in successors:
                successors[predecessor].append(task)
            else:
                successors[predecessor] = [task]
    ready = deque(task for task, count in enumerate(waiting) if not count)
    idle = list(range(cores))
    running: list[Completion] = []  # (end, task, core, start)
    completions: list[Completion] = []
    done = completions.append
    take = ready.popleft
    find = successors.get
    now = 0
    while True:
        while ready and idle:
            task = take()
            heappush(running, (now + cycles[task], task, heappop(idle), now))
        if not running:
            return completions
        now = running[0][0]
        while running and running[0][0] == now:  # all that ends together, then one dispatch
            _, task, core, start = heappop(running)
            done((task, core, start, now))
            heappush(idle, core)
            for successor in find(task, ()):
                if waiting[successor] == 1:
                    ready.append(successor)
                else:
                    waiting[successor] -= 1


def measure(workload: str, tasks: int, cores: int = 8) -> tuple[float, int]:
    """Wall time in seconds and makespan in cycles of one run."""
    cycles, predecessors = as_lists(workload, tasks)
    gc.collect()
    gc.disable()  # nothing here is a cycle; the collector would only slow the loop down
    start = time.perf_counter()
    completions = simulate(cycles, predecessors, cores)
    elapsed = time.perf_counter() - start
    gc.enable()
    return elapsed, completions[-1][3]


if __name__ == "__main__":
    chosen = sys.argv[1:2] or list(WORKLOADS)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    for name in chosen:
        seconds, end = measure(name, count)
        sys.stdout.write(f"{name} {seconds:.6f} {end} {count / seconds:.0f} tasks/s\n")
