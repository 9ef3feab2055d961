"""Work through the socket: a device process, a client that sleeps and rings, clients that die."""

import contextlib
import json
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from tsemu.descriptors.codes import Answer, ContextState, ControlKind, ControlStatus, Status
from tsemu.mailbox import control
from tsemu.ts_firmware.emulator import Emulator
from tsemu.ts_firmware.server import Server

LIMIT_S = 30.0
"""Longest that anything may take before a test gives up; nothing is measured with it."""
OPTIONS = [16, 0, 0, 0, 0, 0, 1, 1]
CLOCKS = ["lockstep", "free", "paced:1"]


def until(condition):
    """Ask until it is so."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "this never becomes true"


class Device:
    """A `tsemu run` process."""

    def __init__(self, path, *arguments):
        self.path = path
        command = [sys.executable, "-m", "tsemu.ts_firmware.cli", "run", "--listen", str(path)]
        command += ["--set", "scheduler.profile=ideal", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert "listening" in self.process.stdout.readline()

    def request(self, link, kind, text=b"", argument=()):
        link.sendall(control.build(kind, 1, length=len(text), argument=argument) + text)
        data, fds, _, _ = socket.recv_fds(link, 64, 3)
        message = control.parse(data)
        body = b""
        while len(body) < message.length:
            body += link.recv(message.length - len(body))
        return message, body, fds

    def connect(self):
        link = socket.socket(socket.AF_UNIX)
        link.connect(str(self.path))
        link.settimeout(LIMIT_S)
        return link

    def connect_elsewhere(self):
        """Return a connection that a process of its own has made: clients of one process wait
        together."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            child = os.fork()
            if child == 0:
                try:
                    link = self.connect()
                    socket.send_fds(theirs, [b"1"], [link.fileno()])
                finally:
                    os._exit(0)
            _, fds, _, _ = socket.recv_fds(ours, 1, 1)
            os.waitpid(child, 0)
        link = socket.socket(fileno=fds[0])
        link.settimeout(LIMIT_S)
        return link

    def info(self):
        with self.connect() as link:
            return json.loads(self.request(link, ControlKind.INFO)[1])

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode


class SocketClient:
    """A raw client at the other end of a socket: rings the doorbell and sleeps as a driver does."""

    def __init__(self, device, raw_client, name):
        self.link = device.connect_elsewhere()
        message, text, self.fds = device.request(
            self.link, ControlKind.OPEN, name.encode(), OPTIONS
        )
        assert message.status == ControlStatus.OK, text
        size = os.fstat(self.fds[0]).st_size
        self.memory = mmap.mmap(self.fds[0], size)
        self.raw = raw_client(self.memory, self.sleep)

    def ring(self):
        if self.raw.word("device_sleeps").load():
            os.eventfd_write(self.fds[1], 1)

    def sleep(self):
        """Sleep until the device interrupts."""
        self.ring()
        self.raw.word("host_sleeps").store(1)
        if not self.raw.answered(self.raw.awaited):
            ready, _, _ = select.select([self.fds[2]], [], [], LIMIT_S)
            assert ready, f"no interrupt: {self.raw.state()}"
            os.eventfd_read(self.fds[2])

    def vanish(self):
        """Disappear as a killed process does: everything is closed, nothing is said."""
        self.link.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    def close(self):
        self.raw.close()
        self.memory.close()
        self.vanish()


@pytest.fixture
def start(short_dir):
    """Return a function that starts a device."""
    started = []

    def start(*arguments):
        started.append(Device(short_dir / f"s{len(started)}", *arguments))
        return started[-1]

    yield start
    for device in started:
        assert device.close() == 0


@pytest.fixture
def client(raw_client):
    """Return a function that connects a client."""
    with contextlib.ExitStack() as stack:

        def connect(device, name="raw"):
            made = SocketClient(device, raw_client, name)
            stack.callback(made.close)
            return made

        yield connect


@pytest.mark.parametrize("clock", CLOCKS)
def test_tasks_go_through_two_processes_that_sleep_and_ring(start, client, clock):
    device = start("--clock", clock)
    one = client(device)
    for _ in range(20):
        one.raw.push(*[one.raw.sqe() for _ in range(4)])
        assert one.raw.wait() == Answer.MET
        assert one.raw.completions()["status"].tolist() == [Status.OK] * 4
    status = device.info()["status"]
    assert status["completed"] == status["dispatched"] == 80
    assert status["now_ps"] > 0


def test_a_client_that_dies_with_work_in_flight_is_cleaned_up(start, client):
    device = start()
    other = client(device, "other")
    for number in range(5):
        one = client(device, "mortal")
        one.raw.push(*[one.raw.sqe(cycles=10**9) for _ in range(8)])
        one.ring()
        one.vanish()
        other.raw.push(other.raw.sqe())
        assert other.raw.wait() == Answer.MET, number
    again = client(device, "mortal")  # the name is free as soon as the last block has ended
    again.raw.push(again.raw.sqe())
    assert again.raw.wait() == Answer.MET
    assert [c["name"] for c in device.info()["status"]["contexts"]] == ["other", "mortal"]


def test_a_client_that_holds_the_clock_and_dies_lets_the_others_go_on(start, client):
    device = start()
    one, other = client(device, "a"), client(device, "b")
    one.raw.push(one.raw.sqe())  # in flight and no wait posted: it holds
    one.ring()
    other.raw.push(other.raw.sqe())
    sequence = other.raw.post()
    other.ring()
    until(lambda: device.info()["status"]["admitted"] == 1)  # input of b is taken after a's
    assert not other.raw.answered(sequence)
    one.vanish()
    assert other.raw.answer(sequence) == Answer.MET
    assert device.info()["status"]["hold_limits"] == 0


def test_a_client_that_is_stuck_holds_the_others_for_the_limit_only(start, client):
    device = start("--set", "clock.hold_limit_ms=50")
    one, other = client(device, "a"), client(device, "b")
    one.raw.push(one.raw.sqe())
    one.ring()
    other.raw.push(other.raw.sqe())
    assert other.raw.wait() == Answer.MET
    assert device.info()["status"]["hold_limits"] >= 1


def test_a_damaged_entry_is_mended_across_the_socket(start, client):
    device = start()
    one = client(device)
    bad, good = one.raw.sqe(blocks=0), one.raw.sqe(ticket=1, slot=0)
    one.raw.submitted = 1
    one.raw.push(bad)
    sequence = one.raw.post()
    one.raw.word("host_sleeps").store(1)
    one.ring()
    assert select.select([one.fds[2]], [], [], LIMIT_S)[0], "a refusal raises the interrupt"
    os.eventfd_read(one.fds[2])
    assert one.raw.page().state == ContextState.REFUSED
    one.raw.mend(good)
    assert one.raw.answer(sequence) == Answer.MET
    assert one.raw.completions()["status"].tolist() == [Status.OK]


def test_a_doorbell_that_rings_for_ever_costs_the_others_nothing(start, client):
    device = start()
    one, other = client(device, "a"), client(device, "b")
    os.set_blocking(one.fds[1], False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.eventfd_write(one.fds[1], 2**63)
    for _ in range(20):
        other.raw.push(other.raw.sqe())
        assert other.raw.wait() == Answer.MET
        other.raw.completions()


def test_observers_do_not_move_time_while_a_client_holds(start, client):
    device = start()
    one = client(device)
    one.raw.push(one.raw.sqe())
    one.ring()
    seen = [device.info()["status"]["now_ps"] for _ in range(20)]
    assert set(seen) == {0}
    one.raw.word("wait_posts").load()
    assert one.raw.wait() == Answer.MET


def test_a_server_can_be_stopped_by_another_thread(short_dir):
    with Emulator("edge-2") as emulator, Server(emulator, short_dir / "s") as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        server.stop()
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def test_the_console_goes_where_it_is_told(start, client, tmp_path):
    device = start("--console", str(tmp_path / "console"))
    one = client(device, "seen")
    one.raw.push(one.raw.sqe(blocks=0))
    one.ring()
    until(lambda: "refused" in (tmp_path / "console").read_text(encoding="utf-8"))
    assert "firmware" in (tmp_path / "console").read_text(encoding="utf-8")
