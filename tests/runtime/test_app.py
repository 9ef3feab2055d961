"""The command line of `tsctl`, inside of this process: options, files, messages, exit codes."""

import json
import sys
from pathlib import Path

import pytest

from tsemu.descriptors.codes import Opcode
from tsemu.descriptors.program import ProgramWriter, task_array
from tsemu.runtime.tsctl import main

DATA = Path(__file__).parent / "data"


@pytest.fixture
def tsctl(monkeypatch, capsys):
    def run(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["tsctl", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert ended.value.code == code, captured.err
        return captured

    return run


def test_version(tsctl):
    out = tsctl("--version").out
    assert out.startswith("tsctl ")
    assert "protocol 1." in out


def program(path, *, blocks=1, engine="AICORE"):
    with ProgramWriter(path, classes=[engine]) as writer:
        writer.add_tasks(task_array(2, opcode=int(Opcode.KERNEL), cycles=1000, blocks=blocks))
    return path


@pytest.mark.parametrize("command", ["run", "show"])
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.stg", "", "number of tasks: found 'an empty file'"),
        ("a.stg", "3\n0 0 0\n1 1 0\n", "a.stg:3: tasks: found 'the end of the file after 2'"),
        ("a.stg", "1\n1 1 1 5\n", "a.stg:2: predecessor 1: found 5"),
        ("a.stg", "1\n1 1 1 1\n", "the cycle 1 -> 1"),
        ("a.stg", "99999999999\n", "found '99999999999', expected"),
        ("a.tsp", "TSP1 is not enough", "program.length"),
        ("a.tsp", "x" * 100, "magic"),
        ("a.tsp", "TSP1" + "x" * 100, "a.tsp: program"),
    ],
)
def test_bad_file_is_exit_code_2(tsctl, tmp_path, command, name, content, words):
    path = tmp_path / name
    path.write_text(content)
    done = tsctl(command, path, code=2)
    assert words in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    "option",
    [
        ["--soc", "edge-2"],
        ["--set", "scheduler.profile=ideal"],
        ["--policy", "rank"],
        ["--clock", "free"],
        ["--seed", "1"],
    ],
)
def test_options_of_the_device_belong_to_tsemu_run(tsctl, option):
    done = tsctl("run", DATA / "diamond.stg", "--device", "unix:/no/socket", *option, code=2)
    assert f"`tsemu run {' '.join(option)}`" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--soc", "no-such"], "no-such"),
        (["--set", "classes.aicore.cores=0"], "classes.aicore.cores"),
        (["--set", "nonsense"], "KEY=VALUE"),
        (["--set", "no.such.key=1"], "no.such.key"),
        (["--policy", "magic"], "magic"),
        (["--clock", "sundial"], "sundial"),
        (["--engine-class", "TPU"], "--engine-class TPU"),
        (["--window", "0"], "--window"),
        (["--window", "100", "--slots", "50"], "window"),
        (["--cycles-per-unit", "4000000000"], "--cycles-per-unit"),
        (["--device", "emu:edge-2", "--soc", "hybrid"], "give one only"),
        (["--name", ""], "name"),
        (["--what"], "--what"),
        (["--engine-class", "DMA"], "kernels"),
    ],
)
def test_bad_option_is_exit_code_2(tsctl, arguments, words):
    done = tsctl("run", DATA / "diamond.stg", *arguments, code=2)
    assert words in done.err
    assert "Traceback" not in done.err


def test_options_of_stg_graphs_do_not_go_with_programs(tsctl, tmp_path):
    path = program(tmp_path / "p.tsp")
    done = tsctl("run", path, "--cycles-per-unit", "5", code=2)
    assert "is for STG graphs" in done.err


def test_tasks_of_several_blocks_are_counted_by_the_device(tsctl, tmp_path):
    path = program(tmp_path / "p.tsp", blocks=10)
    ideal = ["--set", "scheduler.profile=ideal"]
    found = json.loads(tsctl("run", path, *ideal, "--json").out)
    assert [core["blocks"] for core in found["cores"] if core["blocks"]] == [10, 10]
    assert found["serial_ps"] == 20 * 2_000_000
    assert found["makespan_ps"] == 20_000_000
    assert found["speedup_ratio"] == 2
    assert "blocks  timeline" in tsctl("run", path, *ideal).out


def test_error_without_a_terminal_is_one_line(tsctl, tmp_path):
    found = tsctl("show", tmp_path / "none.stg", code=2)
    assert found.err == f"tsctl: {tmp_path / 'none.stg'}: No such file or directory\n"
