"""Programs: whole files through the driver, in chunks."""

import threading

import numpy as np
import pytest

from tsemu.descriptors.codes import Opcode
from tsemu.descriptors.program import (
    Buffer,
    Placement,
    Program,
    Stream,
    buffer_reference,
    task_array,
)
from tsemu.host_driver import ClosedError, Device, InvalidError, NoResourceError


def collect(into):
    return lambda entries: into.append(entries.copy())


def test_a_program_runs_and_hands_over_its_completions(device):
    tasks = task_array(
        4, opcode=Opcode.KERNEL, cycles=[1000, 200, 300, 400], edge_count=[0, 1, 1, 2],
        user_tag=np.arange(4),
    )  # fmt: skip
    work = Program.from_arrays(tasks, [0, 0, 1, 2], classes=("AICORE",), kernels=("gemm",))
    seen, steps = [], []
    result = device.run_program(
        work, on_completions=collect(seen), progress=lambda done, total: steps.append((done, total))
    )
    entries = np.concatenate(seen)
    assert entries["user_tag"].tolist() == [0, 1, 2, 3]
    assert (entries["status"] == 0).all()
    assert result.ok
    assert (result.submitted, result.completed, result.failed) == (4, 4, 0)
    assert result.makespan_ps == entries["end_ps"].max() - entries["start_ps"].min()
    assert steps[-1] == (4, 4)


def test_a_program_far_larger_than_window_and_sink(small):
    count = 50_000
    rng = np.random.default_rng(5)
    tasks = task_array(count, opcode=Opcode.KERNEL, cycles=rng.integers(1, 1000, count))
    tasks["edge_count"][1:] = 1
    edges = np.maximum(np.arange(1, count) - rng.integers(1, 100, count - 1), 0)
    work = Program.from_arrays(tasks, edges.astype(np.uint32), classes=("AICORE",), kernels=("k",))
    seen = []
    result = small.run_program(work, on_completions=collect(seen))
    assert result.completed == count
    assert len(np.unique(np.concatenate(seen)["ticket"])) == count


def test_buffers_are_loaded_and_references_resolved(device):
    data = np.arange(256, dtype=np.uint8)
    tasks = task_array(
        2, opcode=Opcode.MEMCPY, argument=[buffer_reference(0, 0), buffer_reference(1, 0)],
        destination=[buffer_reference(1, 0), buffer_reference(2, 64)], length=256,
        edge_count=[0, 1],
    )  # fmt: skip
    work = Program.from_arrays(
        tasks,
        [0],
        classes=("DMA",),
        buffers=(
            Buffer(256, placement=Placement.DEVICE, data=data),
            Buffer(256, placement=Placement.DEVICE),
            Buffer(512, alignment=4096, placement=Placement.HOST),
        ),
    )
    assert device.run_program(work).ok
    heap = device.context.heap.view(
        device.context.info.host_base, device.context.info.host_heap_size
    )
    at = int(np.flatnonzero(heap)[0]) - 1
    assert (at + device.context.info.host_base) % 4096 == 64
    assert (heap[at : at + 256] == data).all()


def test_streams_and_events_of_a_program_are_its_own(device):
    tasks = task_array(
        4,
        opcode=[Opcode.KERNEL, Opcode.EVENT_RECORD, Opcode.EVENT_WAIT, Opcode.KERNEL],
        cycles=[1000, 0, 0, 10],
        stream=[0, 0, 1, 1],
    )
    tasks["blocks"] = [1, 1, 1, 1]
    work = Program.from_arrays(
        tasks, streams=(Stream("a", in_order=True), Stream("b", in_order=True)),
        classes=("AICORE",), kernels=("k",), events=1,
    )  # fmt: skip
    for _ in range(3):
        seen = []
        assert device.run_program(work, on_completions=collect(seen)).ok
        entries = np.concatenate(seen)
        order = np.argsort(entries["ticket"])
        assert entries["start_ps"][order][3] >= entries["end_ps"][order][0]


def test_failures_are_counted(device):
    tasks = task_array(3, opcode=Opcode.KERNEL, cycles=[1_000_000_000, 1, 1], edge_count=[0, 1, 0])
    tasks["timeout_us"][0] = 1
    work = Program.from_arrays(tasks, [0], classes=("AICORE",), kernels=("k",))
    result = device.run_program(work)
    assert (result.completed, result.failed) == (3, 2)
    assert not result.ok


def test_a_program_for_another_device_is_refused_before_it_starts(device):
    tasks = task_array(2, opcode=Opcode.KERNEL, cycles=1)
    with pytest.raises(InvalidError, match="toaster"):
        device.run_program(Program.from_arrays(tasks, classes=("toaster",), kernels=("k",)))
    with pytest.raises(InvalidError, match=r"tasks\[0\].engine_class"):
        device.run_program(Program.from_arrays(tasks, classes=("DMA",), kernels=("k",)))
    with pytest.raises(NoResourceError):
        device.run_program(
            Program.from_arrays(
                tasks, classes=("AICORE",), kernels=("k",), buffers=(Buffer(1 << 40),)
            )
        )
    assert device.context.counters()["submitted"] == 0
    device.create_stream().launch(cycles=1).wait()


def test_an_exception_of_the_sink_ends_the_run_and_leaves_the_context_usable(device):
    tasks = task_array(50_000, opcode=Opcode.KERNEL, cycles=1)
    work = Program.from_arrays(tasks, classes=("AICORE",), kernels=("k",))

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        device.run_program(work, on_completions=stop)
    device.synchronize()
    assert device.default_stream.launch(cycles=1).wait().ok
    assert device.run_program(work).ok


def test_closing_while_a_program_runs(device):
    tasks = task_array(50_000, opcode=Opcode.KERNEL, cycles=1)
    work = Program.from_arrays(tasks, classes=("AICORE",), kernels=("k",))
    with pytest.raises(ClosedError):
        device.run_program(work, on_completions=lambda _: device.close())
    other = Device.open("emu:edge-2")
    inside = threading.Event()
    errors = []

    def run():
        try:
            other.run_program(work, on_completions=lambda _: inside.set())
        except ClosedError as error:
            errors.append(error)

    for _ in range(3):
        thread = threading.Thread(target=run)
        thread.start()
        inside.wait()
        other.close()
        thread.join()
        other = Device.open("emu:edge-2")
    other.close()
    assert len(errors) <= 3  # a program may have ended before
