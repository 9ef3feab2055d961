"""Completion logs, to the byte: embedded, across processes, idle, under load, two clients.

Runs the layered workload with `tsctl run -o`, embedded and against a fresh `tsemu run`, and
compares every log with the first one; the same with both cores kept busy; then with
`tsemu run --clients 2` and two `tsctl run` at once. Figures: logs that differ (target 0), and how
often a client held the clock for too long (target 0).

Before that three programs that have to end, embedded and across processes: a loop that polls a
task, callbacks that launch the next task, two device handles in one thread.

    python benchmarks/determinism.py [--small-runs 100] [--large-runs 20] [--large-tasks 1000000]
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from harness import Report, busy_cores, cores, device, machine, parser, program, progress, run
from workloads import write_program

from tsemu.host_driver import Device, Task

OPTIONS = cores(8)
ENDING_SECONDS = 60


def digest(path: Path) -> str:
    """Hash of a log; the log is removed."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not path.stat().st_size:
        raise SystemExit(f"{path} is empty: tsctl wrote no completions")
    path.unlink()
    return found


def hold_limits(address: str) -> int:
    """Times that a client ran into the hold limit, as the device counts."""
    info = json.loads(run([program("tsctl"), "info", "--device", address, "--json"]))
    return int(find(info, "hold_limits"))


def find(document: object, key: str) -> int:
    """First value of `key` anywhere in a JSON document.

    Raises:
        SystemExit: it is not there.
    """
    found = _find(document, key)
    if found is None:
        raise SystemExit(f"tsctl info --json has no {key!r}")
    return found


def _find(document: object, key: str) -> int | None:
    if isinstance(document, dict):
        if key in document and isinstance(document[key], int):
            return int(document[key])
        parts = list(document.values())
    else:
        parts = document if isinstance(document, list) else []
    return next((found for part in parts if (found := _find(part, key)) is not None), None)


def embedded(graph: Path, folder: Path) -> str:
    """Hash of the log of one run without a device process."""
    log = folder / "embedded"
    run([program("tsctl"), "run", str(graph), *OPTIONS, "--json", "-o", str(log)])
    return digest(log)


def across(graph: Path, folder: Path, clients: int) -> tuple[tuple[str, ...], int]:
    """Hashes of the clients' logs of one run against a fresh device, and its hold limits."""
    with device(*OPTIONS, "--clients", str(clients)) as server:
        logs = [folder / f"client-{i}" for i in range(clients)]
        command = [program("tsctl"), "run", str(graph), "--device", server.address, "--json"]
        running = [
            subprocess.Popen(
                [*command, "--name", log.name, "-o", str(log)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for log in logs
        ]
        for client in running:
            _, errors = client.communicate(timeout=600)
            if client.returncode:
                raise SystemExit(f"tsctl run ended with {client.returncode}: {errors}")
        return tuple(digest(log) for log in logs), hold_limits(server.address)


def compare(report: Report, name: str, graph: Path, folder: Path, runs: int) -> None:
    """All figures of one graph."""
    first = embedded(graph, folder)
    first_pair: tuple[str, ...] | None = None
    held = 0
    for load in (0, os.cpu_count() or 1):
        state = "busy" if load else "idle"
        differ = {"embedded": 0, "across processes": 0, "two clients": 0}
        with busy_cores(load):
            for number in range(runs):
                differ["embedded"] += embedded(graph, folder) != first
                (single,), limits = across(graph, folder, 1)
                held += limits
                differ["across processes"] += single != first
                pair, limits = across(graph, folder, 2)
                held += limits
                first_pair = first_pair or pair
                differ["two clients"] += pair != first_pair
                if number % 10 == 9:
                    progress(f"{name}, {state}: {number + 1} of {runs} runs, {differ}")
        for where, count in differ.items():
            report.figure(f"{name}, {where}, {state}: logs that differ", count, "logs", most=0)
    report.figure(f"{name}: hold limits passed", held, "times", most=0)


def polls(address: str) -> int:
    """Polls until a task of 50 us has ended."""
    count = 0
    with Device.open(address, name="poller") as session:
        task = session.create_stream().launch(cycles=50_000)
        while not task.done():
            count += 1
    return count


def chain(address: str, length: int) -> int:
    """Tasks of a chain in which each task's callback launches the next one."""
    ended: list[Task] = []
    with Device.open(address, name="callbacks") as session:
        stream = session.create_stream()

        def go_on(task: Task) -> None:
            ended.append(task)
            if len(ended) < length:
                stream.launch(cycles=100).add_done_callback(go_on)

        stream.launch(cycles=100).add_done_callback(go_on)
        while stream.outstanding:
            session.synchronize()
    return len(ended)


def two_handles(address: str, rounds: int) -> int:
    """Tasks that ended when one thread uses two sessions in turns."""
    ended = 0
    with ExitStack() as stack:
        handles = [stack.enter_context(Device.open(address, name=each)) for each in ("one", "two")]
        streams = [handle.create_stream() for handle in handles]
        for _ in range(rounds):
            tasks = [stream.launch(cycles=100) for stream in streams]
            for task in reversed(tasks):
                task.wait()
                ended += task.ok
    return ended


def endings(report: Report) -> None:
    """Programs that have to end; one that does not is killed by SIGALRM."""
    signal.alarm(ENDING_SECONDS)
    with device(*OPTIONS) as server:
        for where, address in (("embedded", "emu:edge-2"), ("across processes", server.address)):
            report.figure(f"polling loop, {where}: polls", polls(address), "polls", most=200)
            ended = chain(address, 1000)
            report.figure(f"launching callbacks, {where}", ended, "tasks", least=1000)
            ended = two_handles(address, 1000)
            report.figure(f"two handles in one thread, {where}", ended, "tasks", least=2000)
    signal.alarm(0)


def main() -> int:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--small-tasks", type=int, default=1_000)
    arguments.add_argument("--small-runs", type=int, default=100)
    arguments.add_argument("--large-tasks", type=int, default=1_000_000)
    arguments.add_argument("--large-runs", type=int, default=20)
    options = arguments.parse_args()
    progress(machine())
    report = Report()
    endings(report)
    with tempfile.TemporaryDirectory(prefix="tsemu-bench-") as name:
        folder = Path(name)
        for tasks, runs in (
            (options.small_tasks, options.small_runs),
            (options.large_tasks, options.large_runs),
        ):
            if runs:
                graph = folder / "graph.tsp"
                write_program(graph, "layered", tasks)
                compare(report, f"{tasks} tasks", graph, folder, runs)
    return report.code


if __name__ == "__main__":
    sys.exit(main())
