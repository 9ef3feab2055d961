"""Throughput in tasks/s: two processes, batch submission, 8 cores, profile `ideal`.

For each workload (independent; 64 in-order streams; layered random graph with two predecessors),
interleaved in one run, medians: tsemu in lockstep and in free mode, apart; the heapq loop; the
SimPy model; the bare C ring in one thread (host and device take turns) and in two. Figures: tasks/s
of each, and the ratios. As the baselines get their graph made, so tsemu gets its program opened and
verified before the time runs (a figure of its own says how fast that is); tsemu's time is that of
`run_program`: checks against the device, both rings with CRC, all completions consumed.

    python benchmarks/throughput.py [--tasks 1000000] [--runs 7] [--simpy-tasks 100000]
"""

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from harness import Report, cores, device, machine, median, parser, progress, run
from workloads import WORKLOADS, write_program

from tsemu.descriptors.program import Program
from tsemu.host_driver import Device

HERE = Path(__file__).resolve().parent
CORES = 8
LEAST = {"heapq": 5.0, "simpy": 30.0, "C ring, 1 thread": 0.4, "C ring, 2 threads": 0.4}
MODES = ("lockstep", "free")


def compile_ring(folder: Path) -> Path:
    """Build the C baseline for this machine."""
    target = folder / "baseline_ring"
    command = ["cc", "-O2", "-pthread", str(HERE / "baseline_ring.c"), "-o", str(target)]
    native = subprocess.run([*command, "-march=native"], check=False, capture_output=True)
    if native.returncode:
        run([*command, "-msse4.2"])
    return target


def verify(path: Path) -> float:
    """Wall time in seconds of verifying a program file."""
    with Program.open(path) as program:
        start = time.perf_counter()
        program.verify()
        return time.perf_counter() - start


def run_tsemu(address: str, path: Path, tasks: int) -> tuple[float, int]:
    """Wall time in seconds and makespan in cycles of one program on a device process."""
    with Device.open(address, name="throughput") as session, Program.open(path) as program:
        program.verify()
        start = time.perf_counter()
        result = session.run_program(program)
        elapsed = time.perf_counter() - start
    if result.failed or result.completed != tasks:
        raise SystemExit(f"{result.completed} of {tasks} tasks ended, {result.failed} failed")
    return elapsed, (result.last_end_ps - result.first_start_ps) // 1000


def run_baseline(command: list[str]) -> tuple[float, int]:
    """Wall time in seconds and makespan in cycles of a baseline program."""
    words = run(command).split()
    numbers = words[1:] if words[0] in WORKLOADS else words
    return float(numbers[0]), int(numbers[1])


@dataclass(frozen=True)
class Bench:
    """What is measured: programs and how often."""

    ring: Path
    addresses: dict[str, str]
    tasks: int
    simpy_tasks: int
    runs: int

    def baselines(self, workload: str) -> dict[str, tuple[list[str], int]]:
        """Command and number of tasks of each baseline."""
        heapq = [sys.executable, str(HERE / "baseline_heapq.py"), workload, str(self.tasks)]
        simpy = [sys.executable, str(HERE / "baseline_simpy.py"), workload, str(self.simpy_tasks)]
        ring = [str(self.ring), workload, str(self.tasks)]
        return {
            "heapq": (heapq, self.tasks),
            "simpy": (simpy, self.simpy_tasks),
            "C ring, 1 thread": ([*ring, "1"], self.tasks),
            "C ring, 2 threads": ([*ring, "2"], self.tasks),
        }

    def measure(self, report: Report, workload: str, path: Path) -> None:
        """All figures of one workload."""
        rates: dict[str, list[float]] = defaultdict(list)
        ends: dict[str, int] = {}
        for mode in MODES:
            run_tsemu(self.addresses[mode], path, self.tasks)  # brings the file into memory
        for number in range(self.runs):
            for mode in MODES:
                elapsed, ends[mode] = run_tsemu(self.addresses[mode], path, self.tasks)
                rates[mode].append(self.tasks / elapsed)
            rates["verify the program"].append(self.tasks / verify(path))
            for name, (command, count) in self.baselines(workload).items():
                elapsed, ends[name] = run_baseline(command)
                rates[name].append(count / elapsed)
            progress(f"{workload}: run {number + 1} of {self.runs}")
        for name, values in rates.items():
            report.figure(f"{workload}, {name}", median(values) / 1e6, "M tasks/s")
        for mode in MODES:
            for name, least in LEAST.items():
                ratio = median(rates[mode]) / median(rates[name])
                report.figure(f"{workload}, {mode} over {name}", ratio, "x", least=least)
            ratio = ends[mode] / ends["heapq"]
            report.figure(f"{workload}, {mode}: makespan over heapq's", ratio, "x", most=1.01)


def main() -> int:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--tasks", type=int, default=1_000_000)
    arguments.add_argument("--simpy-tasks", type=int, default=100_000)
    arguments.add_argument("--runs", type=int, default=7)
    arguments.add_argument("--workload", choices=WORKLOADS, action="append")
    options = arguments.parse_args()
    progress(machine())
    report = Report()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tsemu-bench-")))
        ring = compile_ring(folder)
        servers = {
            mode: stack.enter_context(device(*cores(CORES), "--clock", mode)) for mode in MODES
        }
        addresses = {mode: server.address for mode, server in servers.items()}
        bench = Bench(ring, addresses, options.tasks, options.simpy_tasks, options.runs)
        for workload in options.workload or WORKLOADS:
            path = folder / f"{workload}.tsp"
            write_program(path, workload, options.tasks)
            bench.measure(report, workload, path)
    return report.code


if __name__ == "__main__":
    sys.exit(main())
