"""Write YOLOv5s at 640x640 as a program for `tsctl run`, in synchronous and asynchronous form.

    python -m tsemu.examples.yolov5s.build --output . --frames 16
    tsctl run yolov5s-synchronous.tsp  --soc hybrid
    tsctl run yolov5s-asynchronous.tsp --soc hybrid

Synchronous: a frame starts when the one before it has ended, so that only the layers that do not
depend on each other overlap. Asynchronous: up to `--in-flight` frames are on their way, each in a
stream of its own; a frame waits for the one whose buffers it takes over. Where the costs come from
is said in `pipeline`, where the shapes come from in `layers`.
"""

import argparse
import sys
from pathlib import Path

from tsemu.descriptors.codes import Opcode
from tsemu.descriptors.program import ProgramWriter, Stream, task_array
from tsemu.examples.yolov5s.layers import gflops, yolov5s
from tsemu.examples.yolov5s.pipeline import Work, frame

FORMS = ("synchronous", "asynchronous")
CLASSES = ("AICORE", "GPU", "CPU")


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
    works = frame(size)
    kernels = sorted({work.stage for work in works})
    streams = [Stream(f"frame-{i}") for i in range(depth)]
    tasks = task_array(
        len(works),
        opcode=int(Opcode.KERNEL),
        engine_class=[CLASSES.index(work.engine.name) for work in works],
        kernel=[kernels.index(work.stage) for work in works],
        blocks=[work.blocks for work in works],
        cycles=[work.cycles for work in works],
        bytes_read=[work.bytes_read for work in works],
        bytes_written=[work.bytes_written for work in works],
    )
    meta = {
        "producer": "tsemu.examples.yolov5s.build",
        "model": f"YOLOv5s {size}x{size}",
        "form": form,
        "frames": frames,
        "gflops_per_frame": round(gflops(yolov5s(size)), 3),
        "tasks_per_frame": [work.name for work in works],
    }
    with ProgramWriter(
        path, streams=streams, classes=CLASSES, kernels=kernels, meta=meta
    ) as writer:
        for number in range(frames):
            base = writer.task_count
            edges, counts = _edges(works, base, base - depth * len(works) + len(works) - 1)
            tasks["stream"] = number % depth
            tasks["user_tag"] = [number * 1000 + i for i in range(len(works))]
            writer.add_tasks(tasks, edges, counts)
        return writer.task_count


def _edges(works: list[Work], base: int, before: int) -> tuple[list[int], list[int]]:
    """Predecessors of a frame's tasks; a first one waits for task `before`, if not negative."""
    edges: list[int] = []
    counts = []
    for work in works:
        needed = [base + index for index in work.inputs]
        if not needed and before >= 0:
            needed = [before]
        edges += needed
        counts.append(len(needed))
    return edges, counts


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
        print(f"YOLOv5s at {options.size}x{options.size}: {len(layers)} layers,")
        print(f"{sum(layer.parameters for layer in layers):,} parameters,")
        print(f"{gflops(layers):.2f} GFLOPs per frame; {len(works)} tasks with")
        print(f"{sum(work.blocks for work in works)} blocks per frame")
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
