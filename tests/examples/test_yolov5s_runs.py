"""The YOLOv5s example on the hybrid SoC: frames in flight are faster than one at a time."""

import pytest

from tsemu.descriptors.program import Program
from tsemu.examples.yolov5s import build, direct, pipeline
from tsemu.host_driver import Device

FRAMES = 6


def program_time(path):
    with Device.open("emu:hybrid") as device, Program.open(path) as program:
        result = device.run_program(program)
    assert result.ok
    assert result.completed > FRAMES * len(pipeline.frame())
    return result.last_end_ps - result.first_start_ps


def test_asynchronous_program_takes_less_virtual_time(tmp_path):
    times = []
    for form in build.FORMS:
        path = tmp_path / f"{form}.tsp"
        build.write_program(path, form, FRAMES, in_flight=4)
        times.append(program_time(path))
    assert times[0] > 1.2 * times[1]


def test_gpu_is_what_limits_frames_in_flight(tmp_path):
    path = tmp_path / "a.tsp"
    build.write_program(path, "asynchronous", FRAMES, in_flight=4)
    taken = program_time(path)
    gpu = [work for work in pipeline.frame() if work.engine is pipeline.GPU]
    cycles = FRAMES * sum(work.blocks * work.cycles for work in gpu) / pipeline.GPU.cores
    assert taken > cycles / 900e6 * 1e12


def test_direct_form_gains_too_and_says_so(capsys):
    assert direct.main(["--frames", str(FRAMES)]) == 0
    text = capsys.readouterr().out
    assert float(text.rpartition("gain: ")[2].split()[0]) > 1.2


def test_direct_form_launches_every_task_of_every_frame():
    with Device.open("emu:hybrid") as device:
        direct.run(device, 2, 1)
        launched = device.context.counters()["submitted"]
    boundaries = len(pipeline.STAGES) - 1
    changes = sum(
        a.stage != b.stage for a, b in zip(pipeline.frame(), pipeline.frame()[1:], strict=False)
    )
    assert changes == boundaries
    assert launched == 2 * (len(pipeline.frame()) + 2 * boundaries)


def test_direct_form_names_a_device_that_is_not_there(capsys):
    assert direct.main(["--device", "unix:/nonexistent/tsemu.sock", "--frames", "1"]) == 1
    assert "/nonexistent/tsemu.sock" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--frames", "--in-flight"])
def test_direct_form_refuses_zero(option, capsys):
    with pytest.raises(SystemExit):
        direct.main([option, "0"])
    assert "must be at least 1" in capsys.readouterr().err


def test_program_and_direct_form_take_the_same_virtual_time(tmp_path):
    path = tmp_path / "a.tsp"
    for form, depth in (("synchronous", 1), ("asynchronous", 3)):
        build.write_program(path, form, FRAMES, in_flight=3)
        with Device.open("emu:hybrid", settings={"scheduler.profile": "ideal"}) as device:
            launched = direct.run(device, FRAMES, depth)
        with (
            Device.open("emu:hybrid", settings={"scheduler.profile": "ideal"}) as device,
            Program.open(path) as program,
        ):
            assert device.run_program(program).makespan_ps == launched
