"""Round trip of one task across processes, and what a slow task does to its neighbours.

Awake: launch one task and wait for it, again and again; median through the Python API. Asleep: the
same after a pause in which both processes have gone to sleep, against a bare eventfd ping-pong
between two processes with the same pause, taken in turns; medians and their ratio.

Slow task: one task a million times longer than the others, in one of 64 in-order streams on 32
cores; (a) alone in its stream, (b) with a second thread that keeps launching into that stream and
blocks at the stream limit. Figures: tasks per virtual second of the other 63 streams, over that
without the slow task; that a launch which asks not to block raises QUEUE_FULL at the stream limit;
and that one which blocks goes on when the slow task has ended.

    python benchmarks/roundtrip.py [--awake 20000] [--asleep 200] [--stream-tasks 2000]
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness import Report, cores, device, machine, median, parser, progress

from tsemu.host_driver import Device, QueueFullError, Stream, Task

PAUSE_SECONDS = 0.02
STREAMS = 64
CYCLES = 100
SLOW = 1_000_000


def microseconds(action: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter_ns()
    action()
    return (time.perf_counter_ns() - start) / 1000


@contextmanager
def eventfd_peer() -> Iterator[Callable[[], object]]:
    """Give a function that makes one round trip over two eventfds to a forked process."""
    there, back = os.eventfd(0), os.eventfd(0)
    child = os.fork()
    if not child:
        while os.eventfd_read(there) == 1:
            os.eventfd_write(back, 1)
        os._exit(0)

    def ping() -> None:
        os.eventfd_write(there, 1)
        os.eventfd_read(back)

    try:
        yield ping
    finally:
        os.eventfd_write(there, 2)
        os.waitpid(child, 0)
        os.close(there)
        os.close(back)


def round_trips(report: Report, awake: int, asleep: int) -> None:
    """Figures of single tasks."""
    with (
        eventfd_peer() as ping,
        device(*cores(1)) as server,
        Device.open(server.address, name="roundtrip") as session,
    ):
        stream = session.create_stream()

        def trip() -> None:
            stream.launch(cycles=CYCLES).wait()

        for _ in range(1000):
            trip()
        times = [microseconds(trip) for _ in range(awake)]
        report.figure("round trip, awake: median", median(times), "us", most=10)
        progress("asleep")
        bare: list[float] = []
        ours: list[float] = []
        for _ in range(asleep):
            for action, taken in ((ping, bare), (trip, ours)):
                time.sleep(PAUSE_SECONDS)
                taken.append(microseconds(action))
        report.figure("eventfd ping-pong after a pause: median", median(bare), "us")
        report.figure("round trip, asleep: median", median(ours), "us")
        ratio = median(ours) / median(bare)
        report.figure("round trip, asleep, over eventfd ping-pong", ratio, "x", most=3)


def others_rate(streams: list[Stream], per_stream: int) -> float:
    """Launch the same number of tasks in each stream; return tasks per virtual second."""
    handles: list[Task] = []
    for _ in range(per_stream):
        handles += [stream.launch(cycles=CYCLES) for stream in streams]
    for handle in handles:
        handle.wait()
    start = min(handle.start_ps for handle in handles)
    return len(handles) / (max(handle.end_ps for handle in handles) - start) * 1e12


def slow_task(report: Report, per_stream: int) -> None:
    """Figures of cases (a) and (b)."""
    with device("--soc=server-32", *cores(32)[1:]) as server:
        with Device.open(server.address, name="reference") as session:
            streams = [session.create_stream() for _ in range(STREAMS)]
            reference = others_rate(streams[1:], per_stream)
            report.figure("63 streams alone", reference / 1e6, "tasks/us")
        with Device.open(server.address, name="case-a") as session:
            streams = [session.create_stream() for _ in range(STREAMS)]
            streams[0].launch(cycles=CYCLES * SLOW)
            ratio = others_rate(streams[1:], per_stream) / reference
            report.figure(
                "slow task alone in its stream: the others", ratio, "x", least=0.9, most=1.1
            )
        with Device.open(server.address, name="case-b") as session:
            case_b(report, session, per_stream, reference)


def case_b(report: Report, session: Device, per_stream: int, reference: float) -> None:
    """A second thread keeps launching into the slow stream."""
    streams = [session.create_stream() for _ in range(STREAMS)]
    slow = streams[0]
    longest = slow.launch(cycles=CYCLES * SLOW)
    held: list[Task] = [longest]
    full = threading.Event()
    waited: list[bool] = []

    def keep_launching() -> None:
        while not full.is_set():
            try:
                held.append(slow.launch(cycles=CYCLES, block=False))
            except QueueFullError:
                full.set()
        before = longest.status is None
        slow.launch(cycles=CYCLES)
        waited.append(before and longest.status is not None)

    thread = threading.Thread(target=keep_launching)
    thread.start()
    full.wait(60)
    report.figure("QUEUE_FULL when asked not to block", full.is_set(), "raised", least=1)
    report.figure("tasks that the slow stream held", len(held), "tasks", most=slow.limit)
    ratio = others_rate(streams[1:], per_stream) / reference
    report.figure("second thread at the stream limit: the others", ratio, "x", least=0.9, most=1.1)
    session.synchronize()
    thread.join(60)
    report.figure("its launch went on after the slow task only", waited == [True], "yes", least=1)


def main() -> int:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--awake", type=int, default=20_000)
    arguments.add_argument("--asleep", type=int, default=200)
    arguments.add_argument("--stream-tasks", type=int, default=2_000)
    options = arguments.parse_args()
    progress(machine())
    report = Report()
    round_trips(report, options.awake, options.asleep)
    slow_task(report, options.stream_tasks)
    return report.code


if __name__ == "__main__":
    sys.exit(main())
