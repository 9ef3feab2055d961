"""`tsctl` as its user starts it: embedded and against `tsemu run`, with good and bad input."""

import contextlib
import csv
import itertools
import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from tsemu.descriptors.codes import Opcode
from tsemu.descriptors.entries import CQE
from tsemu.descriptors.program import ProgramWriter, task_array

DATA = Path(__file__).parents[1] / "runtime" / "data"
WALL_LIMIT_S = 60
IDEAL = ["--set", "scheduler.profile=ideal", "--set", "classes.aicore.cores=4", "--policy", "rank"]


@pytest.fixture
def tsctl(programs):
    def run(*arguments, code=0):
        done = subprocess.run(
            [programs / "tsctl", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=WALL_LIMIT_S,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture
def running(programs, short_dir):
    """Start `tsemu run` with options; gives its address."""
    numbers = itertools.count()
    with contextlib.ExitStack() as stack:

        def start(*arguments):
            path = short_dir / f"device{next(numbers)}.sock"
            device = stack.enter_context(
                subprocess.Popen(
                    [programs / "tsemu", "run", "--listen", str(path), *arguments],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(device.terminate)
            line = device.stdout.readline()
            assert str(path) in line
            return f"unix:{path}"

        yield start


def document(done):
    return json.loads(done.stdout)


def chain(path, *, tasks=2, cycles=1000, timeout_us=0, engine="AICORE"):
    """Write a program: `tasks` kernels one after the other."""
    with ProgramWriter(path, classes=[engine]) as writer:
        records = task_array(
            tasks,
            opcode=int(Opcode.KERNEL),
            cycles=cycles,
            timeout_us=timeout_us,
            edge_count=[0] + [1] * (tasks - 1),
        )
        writer.add_tasks(records, list(range(tasks - 1)))
    return path


# --- run -----------------------------------------------------------------------------------------


def test_table_for_a_person(tsctl):
    done = tsctl("run", DATA / "diamond.stg", *IDEAL)
    assert "makespan     10.00 us  (5,000 cycles, 10 units of the graph)\n" in done.stdout
    assert "speed-up     1.40 over serial, on 2 cores\n" in done.stdout or "on 4" in done.stdout
    assert "AICORE 0 " in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_document_has_the_same_result(tsctl):
    found = document(tsctl("run", DATA / "diamond.stg", *IDEAL, "--json"))
    assert found["makespan_units"] == 10
    assert found["makespan_ps"] == 10_000_000
    assert found["makespan_cycles"] == 5000
    assert found["serial_ps"] == 14_000_000
    assert found["tasks"] == 6
    assert found["failed_tasks"] == 0
    assert found["statuses"] == {"OK": 6}
    assert found["device"]["profile"] == "ideal"
    assert sum(core["blocks"] for core in found["cores"]) == 4


def test_time_unit_can_be_chosen(tsctl):
    found = document(tsctl("run", DATA / "diamond.stg", *IDEAL, "--cycles-per-unit", "7", "--json"))
    assert (found["makespan_units"], found["makespan_cycles"]) == (10, 70)


def test_other_soc_and_class(tsctl):
    found = document(
        tsctl(
            "run", DATA / "layers.stg", "--soc", "hybrid", "--engine-class", "gpu", "--json",
            "--set", "scheduler.profile=ideal", "--clock", "free", "--seed", "3", "--name", "me",
            "--window", "16", "--slots", "64",
        )
    )  # fmt: skip
    assert found["device"]["soc"] == "hybrid"
    assert found["device"]["seed"] == 3
    assert {c["engine_class"] for c in found["cores"] if c["blocks"]} == {"GPU"}


def test_window_of_one_task_is_serial(tsctl):
    found = document(tsctl("run", DATA / "diamond.stg", *IDEAL, "--window", "1", "--json"))
    assert found["makespan_ps"] == found["serial_ps"] == 14_000_000


def test_tasks_that_fail_are_exit_code_1(tsctl, tmp_path):
    program = chain(tmp_path / "p.tsp", tasks=3, cycles=100_000, timeout_us=1)
    log = tmp_path / "log.csv"
    found = document(tsctl("run", program, *IDEAL, "-o", log, "--json", code=1))
    assert found["statuses"] == {"TIMEOUT": 1, "DEP_ABORTED": 2}
    assert found["failed_tasks"] == 3
    with log.open(newline="") as text:
        assert [row["status"] for row in csv.DictReader(text)] == [
            "TIMEOUT", "DEP_ABORTED", "DEP_ABORTED",
        ]  # fmt: skip


# --- embedded and across processes ---------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["npy", "csv"])
def test_log_is_the_same_embedded_and_across_processes(tsctl, running, tmp_path, suffix):
    here, there = tmp_path / f"here.{suffix}", tmp_path / f"there.{suffix}"
    again = tmp_path / f"again.{suffix}"
    graph = DATA / "layers.stg"
    embedded = document(tsctl("run", graph, *IDEAL, "-o", here, "--json"))
    tsctl("run", graph, *IDEAL, "-o", again)
    address = running(*IDEAL)
    across = document(tsctl("run", graph, "--device", address, "-o", there, "--json"))
    assert here.read_bytes() == there.read_bytes() == again.read_bytes()
    same = ("makespan_ps", "serial_ps", "cores", "statuses", "start_ps", "end_ps")
    assert {key: embedded[key] for key in same} == {key: across[key] for key in same}
    assert across["device"]["address"] == address


def test_two_clients_at_once_have_the_same_logs_whoever_comes_first(programs, running, tmp_path):
    # Found once: the clock started between the looks at two clients, and the one that came last
    # but is first by name was left out of the first dispatch.
    logs = []
    for order in ("ab", "ba"):
        address = running(*IDEAL, "--clients", "2")
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(
                    subprocess.Popen(
                        [
                            programs / "tsctl", "run", DATA / "layers.stg", "--device", address,
                            "--name", name, "-o", tmp_path / f"{name}.npy",
                        ],
                        stdout=subprocess.DEVNULL,
                    )
                )
                for name in order
            ]  # fmt: skip
            assert [client.wait(WALL_LIMIT_S) for client in clients] == [0, 0]
        logs.append([(tmp_path / f"{name}.npy").read_bytes() for name in "ab"])
    assert logs[0] == logs[1]
    assert logs[0][0] != logs[0][1]


def test_log_holds_every_task_and_respects_the_edges(tsctl, tmp_path):
    log = tmp_path / "log.npy"
    tsctl("run", DATA / "unsorted.stg", *IDEAL, "-o", log)
    found = np.load(log)
    assert found.dtype == CQE.dtype
    order = found["user_tag"].tolist()
    assert sorted(order) == [7, 10, 20, 30, 99]
    assert order.index(10) < order.index(20) < order.index(30) < order.index(99)


def test_several_runs_on_one_device(tsctl, running):
    address = running(*IDEAL)
    first, second = (
        document(tsctl("run", DATA / "layers.stg", "--device", address, "--json")) for _ in range(2)
    )
    assert first["makespan_ps"] == second["makespan_ps"]


def test_info_of_both(tsctl, running):
    address = running("--soc", "server-32", "--seed", "5")
    across = document(tsctl("info", "--device", address, "--json"))
    embedded = document(tsctl("info", "--device", "emu:server-32", "--json"))
    assert across["seed"] == 5
    assert across["classes"] == embedded["classes"]
    assert set(across) == set(embedded)
    text = tsctl("info", "--device", address).stdout
    assert f"device     {address}\n" in text
    assert "AICORE     32" in text


def test_device_stays_usable_after_bad_input(tsctl, running, tmp_path):
    address = running(*IDEAL)
    tsctl("run", DATA / "cycle.stg", "--device", address, code=2)
    wrong = chain(tmp_path / "p.tsp", engine="TPU")
    assert "TPU" in tsctl("run", wrong, "--device", address, code=2).stderr
    tsctl("run", DATA / "diamond.stg", "--device", address)


# --- programs ------------------------------------------------------------------------------------


def test_compiled_graph_runs_like_the_graph(tsctl, tmp_path):
    program = tmp_path / "g.tsp"
    made = document(
        tsctl("compile", DATA / "layers.stg", "-o", program, "--cycles-per-unit", 500, "--json")
    )
    assert made["file_bytes"] == program.stat().st_size
    graph = document(tsctl("run", DATA / "layers.stg", *IDEAL, "--json"))
    compiled = document(tsctl("run", program, *IDEAL, "--json"))
    assert compiled["format"] == "tsp"
    for key in ("makespan_ps", "makespan_units", "serial_ps", "cores", "tasks", "edges"):
        assert compiled[key] == graph[key]


def test_content_tells_a_program_whatever_its_name(tsctl, tmp_path):
    program = chain(tmp_path / "graph.stg")
    assert document(tsctl("run", program, "--json"))["format"] == "tsp"


def test_show_of_both(tsctl, tmp_path):
    graph = document(tsctl("show", DATA / "diamond.stg", "--json"))
    assert graph["longest_path_units"] == 10
    assert graph["serial_units"] == 14
    program = document(tsctl("show", chain(tmp_path / "p.tsp", tasks=5), "--json"))
    assert program["opcodes"] == {"KERNEL": 5}
    assert program["classes"] == [{"name": "AICORE", "kernel_cycles": 5000}]
    assert "tasks" in tsctl("show", tmp_path / "p.tsp").stdout


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.stg", "3\n0 0 0\n1 1 0\n", "a.stg:3: tasks: found 'the end of the file after 2'"),
        ("a.tsp", "TSP1" + "x" * 100, "a.tsp: program"),
    ],
    ids=["stg", "tsp"],
)
def test_bad_file_is_exit_code_2(tsctl, tmp_path, name, content, words):
    path = tmp_path / name
    path.write_text(content)
    done = tsctl("run", path, code=2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_missing_file_and_folder(tsctl, tmp_path):
    assert "No such file" in tsctl("run", tmp_path / "no.stg", code=2).stderr
    assert "directory" in tsctl("run", tmp_path, code=2).stderr.lower()


def test_options_of_the_device_belong_to_tsemu_run(tsctl, running):
    address = running()
    option = ["--set", "scheduler.profile=ideal"]
    done = tsctl("run", DATA / "diamond.stg", "--device", address, *option, code=2)
    assert "`tsemu run --set scheduler.profile=ideal`" in done.stderr


def test_bad_option_is_exit_code_2(tsctl):
    done = tsctl("run", DATA / "diamond.stg", "--policy", "magic", code=2)
    assert "magic" in done.stderr
    assert "Traceback" not in done.stderr
    assert "--what" in tsctl("run", DATA / "diamond.stg", "--what", code=2).stderr


def test_nobody_at_the_address_is_exit_code_3(tsctl, short_dir):
    for command in (["info"], ["run", DATA / "diamond.stg"]):
        done = tsctl(*command, "--device", f"unix:{short_dir / 'none.sock'}", code=3)
        assert "tsemu run" in done.stderr
    tsctl("info", "--device", "tcp:somewhere", code=3)


# --- the log's file ------------------------------------------------------------------------------


def test_log_of_a_run_that_cannot_start_leaves_the_old_file(tsctl, tmp_path):
    log = tmp_path / "log.npy"
    log.write_text("precious")
    tsctl("run", chain(tmp_path / "p.tsp", engine="TPU"), "-o", log, code=2)
    assert log.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.npy", "p.tsp"]


def test_log_that_cannot_be_written(tsctl, tmp_path):
    done = tsctl("run", DATA / "diamond.stg", "-o", tmp_path / "no" / "log.npy", code=2)
    assert "there is no directory" in done.stderr
    tsctl("run", DATA / "diamond.stg", "-o", tmp_path, code=2)
    tsctl("run", DATA / "diamond.stg", "-o", "/dev/null", code=2)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "sigterm"]
)
def test_interrupted_run_leaves_nothing_behind(programs, tmp_path, number, code):
    # Ten thousand tasks of 1 ms each, at a hundredth of wall time: far longer than the test.
    program = chain(tmp_path / "p.tsp", tasks=10_000, cycles=500_000)
    log = tmp_path / "log.npy"
    log.write_text("precious")
    with subprocess.Popen(
        [programs / "tsctl", "run", program, "--clock", "paced:0.01", "-o", log],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as client:
        pause = threading.Event()
        while not list(tmp_path.glob(".*.part")):
            assert client.poll() is None
            pause.wait(0.01)
        client.send_signal(number)
        out, _ = client.communicate(timeout=WALL_LIMIT_S)
    assert client.returncode == code
    assert out == ""
    assert log.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.npy", "p.tsp"]


@pytest.mark.parametrize("option", [[], ["--json"]], ids=["table", "json"])
def test_reader_that_stops_reading_is_no_error(programs, option):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [programs / "tsctl", "show", DATA / "layers.stg", *option],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=WALL_LIMIT_S,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_tells_the_exit_codes(tsctl):
    for command in ([], ["run"]):
        text = tsctl(*command, "--help").stdout
        assert "  1    the run ended, but tasks failed\n" in text
    assert "exact" in text
