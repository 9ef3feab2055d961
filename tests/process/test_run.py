"""`tsemu run` as a user meets it: real processes, real sockets, real signals."""

import contextlib
import json
import mmap
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tsemu.descriptors.codes import ControlKind, ControlStatus
from tsemu.descriptors.control import CONTROL_PAGE, PAGE_MAGIC
from tsemu.mailbox import control

COMMAND = [sys.executable, "-m", "tsemu.ts_firmware.cli"]
SMALL = [16, 0, 0, 0, 0, 0, 1, 1]
LIMIT_S = 30.0
"""Longest that anything may take before a test gives up; nothing is measured with it."""


def tsemu(*arguments):
    """Run to the end. Returns the finished process."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@contextlib.contextmanager
def running(*arguments):
    """A device that listens; yields (process, its start line)."""
    process = subprocess.Popen(
        [*COMMAND, "run", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def stop(process, number=signal.SIGTERM):
    """Send a signal and return (exit code, stderr)."""
    process.send_signal(number)
    _, errors = process.communicate(timeout=LIMIT_S)
    return process.returncode, errors


def until(condition):
    """Ask until it is so."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "this never becomes true"


class Client:
    """A client that is written by hand, so that it can misbehave."""

    def __init__(self, path, data=b""):
        self.fds = []
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            self.socket.connect(str(path))  # blocking: a full backlog is no error then
        except OSError:
            self.socket.close()
            raise
        self.socket.settimeout(LIMIT_S)
        if data:
            self.socket.sendall(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    def reply(self):
        data, fds, _, _ = socket.recv_fds(self.socket, 64, 8)
        self.fds += fds
        message = control.parse(data)
        text = b""
        while len(text) < message.length:
            text += self.socket.recv(message.length - len(text))
        return message, text

    def info(self):
        self.socket.sendall(control.build(ControlKind.INFO, 1))
        return json.loads(self.reply()[1])


def open_message(name="", options=SMALL):
    text = name.encode()
    return control.build(ControlKind.OPEN, 5, length=len(text), argument=options) + text


def test_it_says_where_it_listens_and_clients_can_connect(short_dir):
    with running("--listen", short_dir / "s") as (process, line):
        assert line == f"tsemu: edge-2 (2 AICORE, 4 AICPU, 1 DMA) listening on unix:{short_dir}/s\n"
        assert stat.S_IMODE((short_dir / "s").stat().st_mode) == 0o600
        with Client(short_dir / "s", open_message("first")) as client:
            message, _ = client.reply()
            assert message.status == ControlStatus.OK
            with mmap.mmap(client.fds[0], 4096) as memory:
                page = CONTROL_PAGE.parse(memory[:4096])
            assert page.magic == PAGE_MAGIC
            assert bytes(page.name).rstrip(b"\0") == b"first"
        assert stop(process) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("clients", [0, 2])
def test_a_signal_ends_it_cleanly(short_dir, number, clients):
    with running("--listen", short_dir / "s") as (process, _):
        connected = [Client(short_dir / "s", open_message()) for _ in range(clients)]
        for client in connected:
            assert client.reply()[0].status == ControlStatus.OK
        assert stop(process, number) == (0, "")
        for client in connected:  # they are told
            assert client.socket.recv(1) == b""
            client.close()
    assert list(short_dir.iterdir()) == []


def test_json_start_line(short_dir):
    options = ["--set", "classes.aicore.cores=8", "--set", "scheduler.profile=ideal"]
    options += ["--policy", "rank", "--seed", "7", "--clock", "free", "--clients", "2", "--json"]
    with running("--listen", short_dir / "s", *options) as (_, line):
        start = json.loads(line)
        assert start["event"] == "listening"
        assert start["address"] == f"unix:{short_dir}/s"
        assert start["classes"][0]["cores"] == 8
        assert (start["profile"], start["policy"], start["seed"]) == ("ideal", "rank", 7)
        assert (start["clock_mode"], start["clients"]) == ("free", 2)


def test_the_default_address_is_in_the_runtime_directory(short_dir, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    with running() as (_, line):
        assert line.endswith(f"listening on unix:{short_dir}/tsemu.sock\n")


def test_the_socket_of_a_killed_device_is_replaced(short_dir):
    with running("--listen", short_dir / "s") as (process, _):
        process.kill()
        process.wait(LIMIT_S)
        assert (short_dir / "s").exists()
        with running("--listen", short_dir / "s") as (second, line):
            assert "listening" in line
            with Client(short_dir / "s") as client:
                assert client.info()["process"] == second.pid
            assert stop(second) == (0, "")
    assert list(short_dir.iterdir()) == []


def test_a_live_socket_is_not_taken_over(short_dir):
    with running("--listen", short_dir / "s") as (process, _):
        done = tsemu("run", "--listen", short_dir / "s")
        assert done.returncode == 3
        assert f"process {process.pid} listens here" in done.stderr
        assert "--listen" in done.stderr
        with Client(short_dir / "s") as client:
            assert client.info()["process"] == process.pid


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--listen", "/" + "x" * 107], 3, ["108 bytes", "107"]),
        (["--listen", "/no/such/folder/s"], 3, ["/no/such/folder", "create it"]),
        (["--listen", "tcp:localhost:1"], 3, ["unix:PATH"]),
        (["--soc", "edge-3"], 2, ["edge-2, hybrid, server-32"]),
        (["--soc", "./no.toml"], 2, ["./no.toml", "No such file"]),
        (["--set", "classes.aicore.core=3"], 2, ["did you mean classes.aicore.cores"]),
        (["--set", "classes.aicore.cores=many"], 2, ["'many'", "1 to 1024"]),
        (["--set", "seed"], 2, ["KEY=VALUE"]),
        (["--policy", "best"], 2, ["priority, fifo, rank"]),
        (["--clock", "slow"], 2, ["lockstep, free"]),
        (["--clients", "99"], 2, ["0 to 64"]),
        (["--seed", "x"], 2, ["--seed"]),
        (["--console", "/no/such/folder/c"], 2, ["--console"]),
        (["--sock", "x"], 2, ["--sock"]),
    ],
)
def test_what_cannot_be_started_says_why(short_dir, arguments, code, said):
    if "--listen" not in arguments:
        arguments = ["--listen", short_dir / "s", *arguments]
    done = tsemu("run", *arguments)
    assert done.returncode == code
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for text in said:
        assert text in done.stderr
    assert list(short_dir.iterdir()) == []


def test_help_shows_examples_and_exit_codes():
    done = tsemu("run", "--help")
    assert done.returncode == 0
    assert "tsemu run --soc server-32" in done.stdout
    assert "Exit codes:" in done.stdout


def test_presets_are_listed_and_shown():
    done = tsemu("presets")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "edge-2",
        "hybrid",
        "server-32",
    ]
    assert "[classes.aicore]" in tsemu("presets", "--show", "edge-2").stdout
    assert "classes.gpu.cores = 4" in tsemu("presets", "--keys", "--soc", "hybrid").stdout
    assert len(json.loads(tsemu("presets", "--json").stdout)) == 3
    assert tsemu("presets", "--show", "x").returncode == 2


def test_two_clients_with_one_name(short_dir):
    with running("--listen", short_dir / "s"), Client(short_dir / "s", open_message("me")) as first:
        assert first.reply()[0].status == ControlStatus.OK
        with Client(short_dir / "s", open_message("me")) as second:
            message, text = second.reply()
            assert message.status == ControlStatus.NAME_IN_USE
            assert text.startswith(b"name|me|")
        first.close()
        with Client(short_dir / "s", open_message("me")) as third:
            assert third.reply()[0].status == ControlStatus.OK


def test_more_clients_than_contexts(short_dir):
    with running("--listen", short_dir / "s", "--set", "limits.contexts=2"):
        clients = [Client(short_dir / "s", open_message()) for _ in range(2)]
        assert [c.reply()[0].status for c in clients] == [0, 0]
        with Client(short_dir / "s", open_message()) as third:
            message, text = third.reply()
            assert message.status == ControlStatus.NO_RESOURCE
            assert b"limits.contexts" in text
        clients[0].close()
        with Client(short_dir / "s", open_message()) as fourth:
            assert fourth.reply()[0].status == ControlStatus.OK
        clients[1].close()


def test_a_client_cannot_change_the_size_of_its_memory(short_dir):
    with running("--listen", short_dir / "s"), Client(short_dir / "s", open_message()) as client:
        client.reply()
        size = os.fstat(client.fds[0]).st_size
        for other in (0, size - 4096, size + 4096):
            with pytest.raises(PermissionError):
                os.ftruncate(client.fds[0], other)


HOSTILE = {
    "nothing": b"",
    "garbage": b"\xa5" * 64,
    "half": open_message("half")[:40],
    "no text": open_message("no text")[:64],
    "other version": control.build(ControlKind.OPEN, 1, version=(9, 0)),
    "huge": control.build(ControlKind.OPEN, 1, length=2**31),
    "bad options": open_message("x", [1, 9, 3, 0, 0, 0, 0, 0]),
}


def test_hostile_clients_cost_the_others_nothing(short_dir):
    """200 connections of all kinds, some left open: none blocks, none leaks."""
    with running("--listen", short_dir / "s") as (process, _):
        with (
            Client(short_dir / "s") as observer,
            Client(short_dir / "s", open_message("a")) as good,
        ):
            assert good.reply()[0].status == ControlStatus.OK
            observer.info()
            before = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
            kept = []
            for number in range(200):
                client = Client(short_dir / "s", list(HOSTILE.values())[number % len(HOSTILE)])
                if number % 10 == 0:
                    kept.append(client)
                else:
                    client.close()
            assert [c["name"] for c in observer.info()["status"]["contexts"]] == ["a"]
            with Client(short_dir / "s", open_message("b")) as other:
                assert other.reply()[0].status == ControlStatus.OK
            for client in kept:
                client.close()
            until(lambda: len(observer.info()["status"]["contexts"]) == 1)
            assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) <= before + 1
        assert stop(process) == (0, "")


def test_an_observer_sees_clients_come_and_go_and_time_stand_still(short_dir):
    with running("--listen", short_dir / "s"), Client(short_dir / "s") as observer:
        first = observer.info()
        assert first["status"]["contexts"] == []
        assert first["address"] == f"unix:{short_dir}/s"
        with Client(short_dir / "s", open_message("me")) as client:
            client.reply()
            assert [c["name"] for c in observer.info()["status"]["contexts"]] == ["me"]
        until(lambda: not observer.info()["status"]["contexts"])
        assert observer.info()["status"]["now_ps"] == first["status"]["now_ps"] == 0


def test_an_unfinished_message_has_a_time_limit(short_dir):
    options = ["--set", "link.handshake_ms=50"]
    with (
        running("--listen", short_dir / "s", *options),
        Client(short_dir / "s", b"half") as client,
    ):
        assert client.socket.recv(64) == b""  # ends when the device closes it
