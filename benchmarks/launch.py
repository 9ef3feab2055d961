"""`stream.launch` one task at a time from Python, in tasks/s, embedded and across processes.

Each task waits for the one 64 before it (`after`), and each handle is waited for, 4096 launches
later, which raises if its task had failed. Interleaved, medians.

    python benchmarks/launch.py [--tasks 300000] [--runs 7]
"""

import sys
import time
from collections import defaultdict

from harness import Report, cores, device, machine, median, parser, progress

from tsemu.host_driver import Device, Stream

LAG = 4096
BACK = 64
SETTINGS = {
    "classes.aicore.cores": 8,
    "classes.aicore.frequency_mhz": 1000,
    "classes.aicore.setup_cycles": 0,
    "scheduler.profile": "ideal",
}


def launch_all(stream: Stream, tasks: int) -> float:
    """Launch `tasks` tasks and consume all handles; return the wall time in seconds."""
    launch = stream.launch
    start = time.perf_counter()
    handles = [launch(cycles=100) for _ in range(min(LAG, tasks))]
    for number in range(len(handles), tasks):
        place = number % LAG
        handles[place].wait()
        handles[place] = launch(cycles=100, after=(handles[(number - BACK) % LAG],))
    for handle in handles:
        handle.wait()
    return time.perf_counter() - start


def main() -> int:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--tasks", type=int, default=300_000)
    arguments.add_argument("--runs", type=int, default=7)
    options = arguments.parse_args()
    progress(machine())
    report = Report()
    rates: dict[str, list[float]] = defaultdict(list)
    with device(*cores(8)) as server:
        for number in range(options.runs):
            for name, address in (("embedded", "emu:edge-2"), ("two processes", server.address)):
                settings = SETTINGS if address.startswith("emu:") else {}
                with Device.open(address, name="launch", settings=settings) as session:
                    stream = session.create_stream(
                        in_order=False, limit=session.context.info.window
                    )
                    rates[name].append(options.tasks / launch_all(stream, options.tasks))
            progress(f"run {number + 1} of {options.runs}")
    for name, values in rates.items():
        report.figure(f"launch, {name}", median(values) / 1e3, "k tasks/s", least=600)
    return report.code


if __name__ == "__main__":
    sys.exit(main())
