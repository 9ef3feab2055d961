"""YOLOv5s through the driver's API, synchronous and asynchronous: the host's point of view.

    python -m tsemu.examples.yolov5s.direct [--device emu:hybrid] [--frames 16] [--in-flight 4]

Each stage of the pipeline has an in-order stream. Between stages stands an event: the earlier
stage's stream records it after its last task of a frame, the later one's waits for it on the
device. Both forms launch the same tasks; they differ in one line only: when the host waits.
"""

import argparse
import sys
from dataclasses import dataclass
from typing import Protocol, Self

from tsemu.examples.yolov5s.pipeline import STAGES, Work, frame
from tsemu.host_driver import Device, Event, Stream, Task, TsemuError


class Session(Protocol):
    """What this example needs of a device."""

    def create_stream(self, *, name: str) -> Stream:
        """Make an in-order stream."""

    def event(self) -> Event:
        """Make an event."""


@dataclass(frozen=True)
class Pipeline:
    """Streams by stage, and the event that says that a stage has ended."""

    works: list[Work]
    streams: dict[str, Stream]
    ended: dict[str, Event]

    @classmethod
    def on(cls, device: Session, works: list[Work]) -> Self:
        """Make the streams and events."""
        streams = {stage: device.create_stream(name=stage) for stage in STAGES}
        return cls(works, streams, {stage: device.event() for stage in STAGES})

    def launch(self, before: Task | None) -> tuple[Task, Task]:
        """Launch a frame that starts after task `before`; return its first and its last task."""
        first = last = None
        stage = STAGES[0]
        for work in self.works:
            if work.stage != stage:
                self.streams[stage].record(self.ended[stage])
                self.streams[work.stage].wait(self.ended[stage])
                stage = work.stage
            last = self.streams[stage].launch(
                work.stage,
                engine=work.engine.name,
                blocks=work.blocks,
                cycles=work.cycles,
                bytes_read=work.bytes_read,
                bytes_written=work.bytes_written,
                after=() if first or before is None else (before,),
            )
            first = first or last
        if first is None or last is None:
            raise ValueError("works is empty: a frame needs a task")
        return first, last


def run(device: Session, frames: int, in_flight: int, size: int = 640) -> int:
    """Run `frames` frames, at most `in_flight` at once; return the device's time in picoseconds.

    `in_flight` 1 is the synchronous form: the host waits for a frame before it launches the next.
    """
    pipeline = Pipeline.on(device, frame(size))
    ends: list[Task] = []
    start: Task | None = None
    for _ in range(frames):
        before = ends[-in_flight] if len(ends) >= in_flight else None
        first, last = pipeline.launch(before)
        start = start or first
        ends.append(last)
        if in_flight == 1:
            last.wait()
    for last in ends:
        last.wait()
    if start is None:
        raise ValueError(f"frames is {frames}: give at least 1")
    return ends[-1].end_ps - start.start_ps


def main(arguments: list[str] | None = None) -> int:
    """Run both forms and print what the second one gains."""
    parser = argparse.ArgumentParser(description="YOLOv5s through the driver's API.")
    parser.add_argument("--device", default="emu:hybrid", help="address of the device")
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--in-flight", type=int, default=4)
    options = parser.parse_args(arguments)
    if options.frames < 1 or options.in_flight < 1:
        parser.error("--frames and --in-flight must be at least 1")
    took = []
    try:
        for form, depth in (("synchronous", 1), ("asynchronous", options.in_flight)):
            with Device.open(options.device, name=form) as device:
                took.append(run(device, options.frames, depth))
            rate = options.frames / took[-1] * 1e12
            print(
                f"{form}: {options.frames} frames in {took[-1] / 1e9:.3f} ms of virtual time, "
                f"{rate:.1f} frames/s, up to {depth} in flight"
            )
    except TsemuError as error:
        sys.stderr.write(f"direct: {error}\n")
        return 1
    print(f"gain: {took[0] / took[1]:.2f} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
