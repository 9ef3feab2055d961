"""Where the time of a throughput run goes: functions of both processes, by share of samples.

Runs a workload on a device process from this process, again and again, while Linux `perf` samples
both (event cpu-clock, which also works in virtual machines without performance counters). A
process that waits for the other spins for a little before it sleeps, so time in its wait loop says
that the other one is the bottleneck. Needs `perf` (package linux-perf).

    python benchmarks/profile_throughput.py [--workload layered] [--clock lockstep] [--runs 10]
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import Report, cores, cpu_seconds, device, machine, parser, progress, run
from throughput import CORES, run_tsemu
from workloads import WORKLOADS, write_program

SAMPLES_PER_SECOND = 4000
ATTACH_SECONDS = 0.5


def functions(data: Path, pid: int, shown: int) -> list[str]:
    """Lines of the most sampled functions of one process."""
    command = ["perf", "report", "-i", str(data), "--stdio", "--no-children", "--pid", str(pid)]
    text = run([*command, "--sort", "dso,symbol", "-g", "none", "--percentage", "relative"])
    lines = [line.rstrip(" -") for line in text.splitlines() if line.strip()]
    return [line for line in lines if not line.startswith("#")][:shown]


def main() -> int:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--workload", choices=WORKLOADS, default="layered")
    arguments.add_argument("--clock", choices=("lockstep", "free"), default="lockstep")
    arguments.add_argument("--tasks", type=int, default=1_000_000)
    arguments.add_argument("--runs", type=int, default=10)
    arguments.add_argument("--functions", type=int, default=15)
    options = arguments.parse_args()
    if not shutil.which("perf"):
        raise SystemExit("perf is not installed: install the package linux-perf")
    progress(machine())
    report = Report()
    with (
        tempfile.TemporaryDirectory(prefix="tsemu-bench-") as name,
        device(*cores(CORES), "--clock", options.clock) as server,
    ):
        path, data = Path(name) / "graph.tsp", Path(name) / "perf.data"
        write_program(path, options.workload, options.tasks)
        run_tsemu(server.address, path, options.tasks)
        pids = {"device": server.process.pid, "client": os.getpid()}
        chosen = ",".join(map(str, pids.values()))
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(SAMPLES_PER_SECOND)]
        with subprocess.Popen(
            [*command, "-p", chosen, "-o", str(data)], stderr=subprocess.DEVNULL
        ) as recorder:
            time.sleep(ATTACH_SECONDS)
            before = {process: cpu_seconds(pid) for process, pid in pids.items()}
            taken = [run_tsemu(server.address, path, options.tasks)[0] for _ in range(options.runs)]
            used = {process: cpu_seconds(pid) - before[process] for process, pid in pids.items()}
            recorder.send_signal(signal.SIGINT)
        title = f"{options.workload}, {options.clock}"
        report.figure(f"{title}: best run", options.tasks / min(taken) / 1e6, "M tasks/s")
        for process, seconds in used.items():
            each = seconds / options.runs / options.tasks * 1e9
            report.figure(f"{title}: CPU time of the {process}", each, "ns/task")
        for process, pid in pids.items():
            print(f"\n{process}")
            print("\n".join(functions(data, pid, options.functions)))
    return report.code


if __name__ == "__main__":
    sys.exit(main())
