"""The YOLOv5s example: shapes against public figures, costs, and both programs."""

import pytest

from tsemu.descriptors.program import Program
from tsemu.examples.yolov5s import build, layers, pipeline

PER_FRAME = len(pipeline.frame()) + 2 * (len(pipeline.STAGES) - 1)
"""Tasks of a frame in a program: a record and a wait between stages."""


def test_parameters_are_those_that_the_model_publishes():
    assert sum(layer.parameters for layer in layers.yolov5s()) == 7_235_389


def test_operations_are_near_the_public_figure():
    assert layers.gflops(layers.yolov5s(640)) == pytest.approx(16.5, rel=0.01)


def test_detection_outputs_have_the_three_strides():
    heads = [layer for layer in layers.yolov5s(640) if layer.stage == "head"]
    assert [(layer.channels, layer.rows, layer.columns) for layer in heads] == [
        (255, 80, 80),
        (255, 40, 40),
        (255, 20, 20),
    ]


@pytest.mark.parametrize("size", [0, -32, 100])
def test_size_must_be_a_multiple_of_32(size):
    with pytest.raises(ValueError, match=f"size is {size}.*multiple of 32"):
        layers.yolov5s(size)


def test_blocks_of_a_convolution_cover_its_multiply_accumulates():
    shapes = {layer.name: layer for layer in layers.yolov5s()}
    for work in pipeline.frame():
        layer = shapes.get(work.name)
        if layer is None or layer.kind != "conv":
            continue
        done = work.blocks * work.cycles * work.engine.macs_per_cycle
        assert layer.macs <= done <= 1.6 * layer.macs, work.name


def test_every_block_fits_into_its_fields():
    for work in pipeline.frame():
        assert 1 <= work.blocks <= 0xFFFF
        for value in (work.cycles, work.bytes_read, work.bytes_written):
            assert 0 < value < 1 << 32


def test_inputs_of_a_task_come_before_it_and_only_the_first_has_none():
    works = pipeline.frame()
    for index, work in enumerate(works):
        assert bool(work.inputs) == (index > 0)
        assert all(source < index for source in work.inputs)


def test_each_stage_runs_where_the_pipeline_says():
    engines = {}
    for work in pipeline.frame():
        engines.setdefault(work.stage, []).append(work.engine.name)
    assert engines["pre"] == ["CPU", "GPU"]
    assert set(engines["backbone"]) == set(engines["head"]) == {"AICORE"}
    assert set(engines["neck"]) == set(engines["post"]) == {"GPU"}


@pytest.mark.parametrize("form", build.FORMS)
def test_program_is_valid(tmp_path, form):
    path = tmp_path / "a.tsp"
    count = build.write_program(path, form, frames=5, in_flight=3)
    with Program.open(path) as program:
        program.verify()
        assert program.task_count == count == 5 * PER_FRAME
        assert program.classes == build.CLASSES
        assert program.meta["form"] == form


def test_a_frame_waits_for_the_one_whose_buffers_it_takes_over(tmp_path):
    for form, depth in (("synchronous", 1), ("asynchronous", 2)):
        path = tmp_path / "a.tsp"
        build.write_program(path, form, frames=4, in_flight=2)
        with Program.open(path) as program:
            _, tasks, edges = next(iter(program.chunks()))
            first = tasks[::PER_FRAME]
            waits = [edges[t["edge_start"] :][: t["edge_count"]].tolist() for t in first]
        assert waits == [
            [] if frame < depth else [(frame - depth + 1) * PER_FRAME - 1] for frame in range(4)
        ]


def test_wrong_form_is_named(tmp_path):
    with pytest.raises(ValueError, match="form is 'parallel': give one of synchronous"):
        build.write_program(tmp_path / "a.tsp", "parallel", 1, 1)


def test_command_writes_both_programs_and_says_what_is_in_them(tmp_path, capsys):
    assert build.main(["--output", str(tmp_path), "--frames", "2"]) == 0
    assert "16.43 GFLOPs" in capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "yolov5s-asynchronous.tsp",
        "yolov5s-synchronous.tsp",
    ]


def test_command_names_the_bad_argument(tmp_path, capsys):
    assert build.main(["--output", str(tmp_path), "--frames", "0"]) == 2
    assert "frames is 0" in capsys.readouterr().err
