"""Memory for programs of two lengths, and CPU time of an idle device with one client.

Memory: the layered workload with 1 M and 10 M tasks, written in chunks, run with `tsctl run`
against a fresh `tsemu run`; the peak of each process's resident memory, less what is resident of
the mapped program file, sampled while it runs. Target: the same within 5 %.

Idle: for each clock mode a device with one connected client that has run one task and then does
nothing; CPU time of device and client together, over 30 s. Target: under 1 %.

    python benchmarks/memory_idle.py [--tasks 1000000] [--factor 10] [--seconds 30]
"""

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import Report, cores, cpu_seconds, device, machine, parser, program, progress
from workloads import write_program

SAMPLE_SECONDS = 0.02
CLIENT = """
import sys
from tsemu.host_driver import Device
with Device.open(sys.argv[1], name="idle") as device:
    device.create_stream().launch(cycles=1000).wait()
    print("ready", flush=True)
    sys.stdin.read()
"""


def resident(pid: int, less: Path) -> int:
    """Resident bytes of a process, without those of mappings of file `less`."""
    total, counted = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            counted = not line.endswith(str(less))
        elif name == "Rss:" and counted:
            total += int(rest.split()[0]) * 1024
    return total


def peaks(graph: Path) -> dict[str, int]:
    """Peak resident bytes of device and client while a program runs."""
    most = {"device": 0, "client": 0}
    with device(*cores(8)) as server:
        client = subprocess.Popen(
            [program("tsctl"), "run", str(graph), "--device", server.address, "--json"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        pids = {"device": server.process.pid, "client": client.pid}
        while client.poll() is None:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for name, pid in pids.items():
                    most[name] = max(most[name], resident(pid, graph))
            time.sleep(SAMPLE_SECONDS)
        if client.returncode:
            raise SystemExit(f"tsctl run ended with {client.returncode}: {client.stderr.read()}")
    return most


def memory(report: Report, tasks: int, factor: int) -> None:
    """Figures of peak memory."""
    found = []
    with tempfile.TemporaryDirectory(prefix="tsemu-bench-") as name:
        for count in (tasks, tasks * factor):
            graph = Path(name) / "graph.tsp"
            progress(f"writing {count} tasks")
            write_program(graph, "layered", count)
            found.append(peaks(graph))
            for process, peak in found[-1].items():
                report.figure(f"{process}: peak memory, {count} tasks", peak / 2**20, "MiB")
    for process in found[0]:
        ratio = found[1][process] / found[0][process]
        report.figure(f"{process}: peak memory, {factor} times the tasks", ratio, "x", most=1.05)


def idle(report: Report, seconds: float) -> None:
    """Figures of idle CPU time; all clock modes at once, as they use next to nothing."""
    modes = ("lockstep", "free", "paced:1")
    with contextlib.ExitStack() as stack:
        pids: dict[str, list[int]] = {}
        for mode in modes:
            server = stack.enter_context(device(*cores(8), "--clock", mode))
            client = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", CLIENT, server.address],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            if client.stdout is None or client.stdout.readline().strip() != "ready":
                raise SystemExit(f"the idle client of clock mode {mode} did not start")
            pids[mode] = [server.process.pid, client.pid]
        time.sleep(1.0)  # let both sides stop spinning
        before = {mode: sum(map(cpu_seconds, pids[mode])) for mode in modes}
        progress(f"idle for {seconds:g} s")
        time.sleep(seconds)
        for mode in modes:
            used = sum(map(cpu_seconds, pids[mode])) - before[mode]
            report.figure(f"idle, clock {mode}: CPU time", 100 * used / seconds, "%", most=1)


def main() -> int:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--tasks", type=int, default=1_000_000)
    arguments.add_argument("--factor", type=int, default=10)
    arguments.add_argument("--seconds", type=float, default=30.0)
    arguments.add_argument("--only", choices=("memory", "idle"))
    options = arguments.parse_args()
    progress(machine())
    report = Report()
    if options.only != "idle":
        memory(report, options.tasks, options.factor)
    if options.only != "memory":
        idle(report, options.seconds)
    return report.code


if __name__ == "__main__":
    sys.exit(main())
