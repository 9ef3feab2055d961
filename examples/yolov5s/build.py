"""Write YOLOv5s at 640x640 as a program for `tsctl run`, in synchronous and asynchronous form.

    python -m tsemu.examples.yolov5s.build --output . --frames 16
    tsctl run yolov5s-synchronous.tsp  --soc hybrid
    tsctl run yolov5s-asynchronous.tsp --soc hybrid

Each stage of the pipeline has an in-order stream; between two stages stands an event, recorded in
the one's stream after its last task of a frame and waited for in the other's. Synchronous: a frame
starts when the one before it has ended, so that one engine works while the others wait.
Asynchronous: up to `--in-flight` frames are on their way, in different stages; a frame waits for
the one whose buffers it takes over. Where the costs come from is said in `pipeline`, where the
shapes come from in `layers`.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsemu.descriptors.codes import Opcode
from tsemu.descriptors.program import ProgramWriter, Stream, task_array
from tsemu.examples.yolov5s.layers import gflops, yolov5s
from tsemu.examples.yolov5s.pipeline import STAGES, Work, frame

if TYPE_CHECKING:
    import numpy as np

FORMS = ("synchronous", "asynchronous")
CLASSES = ("AICORE", "GPU", "CPU")
PRIORITY = 3


def write_program(path: Path, form: str, frames: int, in_flight: int, size: int = 640) -> int:
    """Write one form of the pipeline; return the number of tasks.

    `user_tag` of a task is frame number * 1000 + its index in the frame.

    Raises:
        ValueError: `form` is none of FORMS, or `frames` or `in_flight` is below 1, or `size` is
            not a positive multiple of 32.
    """
    if form not in FORMS:
        raise ValueError(f"form is {form!r}: give one of {', '.join(FORMS)}")
    if frames < 1 or in_flight < 1:
        raise ValueError(f"frames is {frames}, in_flight is {in_flight}: give at least 1")
    depth = 1 if form == "synchronous" else in_flight
    steps = _steps(frame(size))
    tasks = _records(steps)
    meta = {
        "producer": "tsemu.examples.yolov5s.build",
        "model": f"YOLOv5s {size}x{size}",
        "form": form,
        "frames": frames,
        "gflops_per_frame": round(gflops(yolov5s(size)), 3),
        "tasks_per_frame": [step.name for step in steps],
    }
    with ProgramWriter(
        path,
        streams=[Stream(stage, in_order=True, priority=PRIORITY) for stage in STAGES],
        classes=CLASSES,
        kernels=STAGES,
        events=len(STAGES) - 1,
        meta=meta,
    ) as writer:
        for number in range(frames):
            base = writer.task_count
            before = base - (depth - 1) * len(steps) - 1  # last task of frame number - depth
            edges, counts = _edges(steps, base, before)
            tasks["user_tag"] = [number * 1000 + i for i in range(len(steps))]
            writer.add_tasks(tasks, edges, counts)
        return writer.task_count


@dataclass(frozen=True)
class Step:
    """A task of a frame: work, or the record of or wait for the event of stage `event`.

    `inputs` are indices of steps of the same stage; other stages are waited for by events.
    """

    name: str
    stage: int
    opcode: Opcode
    event: int = 0
    work: Work | None = None
    inputs: tuple[int, ...] = ()


def _steps(works: list[Work]) -> list[Step]:
    """Put records and waits between the stages of a frame."""
    steps: list[Step] = []
    place: dict[int, int] = {}
    stage = 0
    for index, work in enumerate(works):
        if work.stage != STAGES[stage]:
            name = STAGES[stage]
            steps.append(Step(f"record.{name}", stage, Opcode.EVENT_RECORD, event=stage))
            steps.append(Step(f"wait.{name}", stage + 1, Opcode.EVENT_WAIT, event=stage))
            stage += 1
        inputs = [place[i] for i in work.inputs if works[i].stage == work.stage]
        place[index] = len(steps)
        steps.append(Step(work.name, stage, Opcode.KERNEL, work=work, inputs=tuple(inputs)))
    return steps


def _records(steps: list[Step]) -> "np.ndarray[Any, Any]":
    """Task records of a frame."""
    tasks = task_array(
        len(steps),
        opcode=[int(step.opcode) for step in steps],
        stream=[step.stage for step in steps],
        priority=PRIORITY,
        event=[step.event for step in steps],
    )
    for record, step in zip(tasks, steps, strict=True):
        if step.work:
            record["engine_class"] = CLASSES.index(step.work.engine.name)
            record["kernel"] = step.stage
            for name in ("blocks", "cycles", "bytes_read", "bytes_written"):
                record[name] = getattr(step.work, name)
    return tasks


def _edges(steps: list[Step], base: int, before: int) -> tuple[list[int], list[int]]:
    """Predecessors of a frame's tasks; the first one waits for task `before`, if not negative."""
    needed = [[base + index for index in step.inputs] for step in steps]
    if before >= 0:
        needed[0] = [before]
    return [edge for each in needed for edge in each], [len(each) for each in needed]


def main(arguments: list[str] | None = None) -> int:
    """Write both programs and say what is in them."""
    parser = argparse.ArgumentParser(description="Write YOLOv5s as programs for tsctl run.")
    parser.add_argument("--output", type=Path, default=Path(), help="folder for the two files")
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--in-flight", type=int, default=4, help="frames at once, asynchronous")
    parser.add_argument("--size", type=int, default=640, help="input rows and columns")
    options = parser.parse_args(arguments)
    try:
        works = frame(options.size)
        layers = yolov5s(options.size)
        parameters = sum(layer.parameters for layer in layers)
        blocks = sum(work.blocks for work in works)
        size = f"{options.size}x{options.size}"
        print(f"YOLOv5s at {size}: {len(layers)} layers, {parameters:,} parameters")
        print(f"per frame: {gflops(layers):.2f} GFLOPs, {len(works)} tasks, {blocks} blocks")
        for form in FORMS:
            path = options.output / f"yolov5s-{form}.tsp"
            count = write_program(path, form, options.frames, options.in_flight, options.size)
            print(f"{path}: {options.frames} frames, {count} tasks")
    except (ValueError, OSError) as error:
        sys.stderr.write(f"build: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
