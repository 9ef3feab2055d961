"""The socket link, one step at a time: no thread, no second process, no waiting."""

import contextlib
import json
import os
import resource
import socket
from pathlib import Path

import pytest

from tsemu.descriptors.codes import ABI_MAJOR, ControlKind, ControlStatus
from tsemu.mailbox import control, link
from tsemu.mailbox.address import Listener
from tsemu.mailbox.errors import RefusedError
from tsemu.mailbox.memory import MemoryObject, new_eventfd
from tsemu.mailbox.poller import Poller


class Device:
    """Answers the link as a device would, and keeps what it was told."""

    def __init__(self):
        self.memory = MemoryObject("test", 4096)
        self.bells = new_eventfd(), new_eventfd()
        self.requests = []
        self.gone = []
        self.not_now = False
        self.error = None
        self.body = json.dumps({"soc": "test"}).encode()

    def open(self, request):
        if self.not_now:
            return None
        if self.error:
            raise self.error
        self.requests.append(request)
        return link.Opened(len(self.requests), (self.memory.fd, *self.bells))

    def closed(self, context):
        self.gone.append(context)

    def info(self):
        return self.body

    def close(self):
        self.memory.close()
        for fd in self.bells:
            os.close(fd)


class Bench:
    """A link with its device, a clock that is set by hand, and clients."""

    def __init__(self, path):
        self.path = path
        self.now = 0.0
        self.device = Device()
        self.poller = Poller()
        self.link = link.Link(
            Listener(path), self.poller, self.device, 2, handshake_s=5.0, clock=lambda: self.now
        )
        self.clients = []

    def connect(self, data=b""):
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(self.path))
        client.settimeout(0)
        self.clients.append(client)
        self.step()
        if data:
            client.sendall(data)
            self.step()
        return client

    def step(self):
        """Let the link do all that can be done now."""
        for _ in range(1000):
            if not self.poller.poll(0):
                return
        raise AssertionError("the link never comes to rest")

    def close(self):
        for client in self.clients:
            client.close()
        self.link.close()
        self.poller.close()
        self.device.close()


@pytest.fixture
def bench(short_dir):
    made = Bench(short_dir / "s")
    yield made
    made.close()


def receive(client):
    """Return (message, text, descriptors) of one reply."""
    data, fds, _, _ = socket.recv_fds(client, 1 << 20, 8)
    message = control.parse(data[:64])
    assert len(data) == 64 + message.length
    return message, data[64:], fds


def open_message(name=b"", token=7, **arguments):
    return control.build(ControlKind.OPEN, token, length=len(name), **arguments) + name


def assert_closed(client):
    assert client.recv(1) == b""


def test_open_hands_over_three_descriptors(bench):
    client = bench.connect(open_message(b"first", argument=[8, 4]))
    message, text, fds = receive(client)
    try:
        assert (message.kind, message.token, message.status) == (ControlKind.OPEN, 7, 0)
        assert (message.argument[0], text) == (1, b"")
        assert [os.fstat(a).st_ino for a in fds[:1]] == [os.fstat(bench.device.memory.fd).st_ino]
        os.eventfd_write(fds[1], 5)
        assert os.eventfd_read(bench.device.bells[0]) == 5
        os.eventfd_write(bench.device.bells[1], 6)
        assert os.eventfd_read(fds[2]) == 6
    finally:
        for fd in fds:
            os.close(fd)
    request = bench.device.requests[0]
    assert (request.name, request.process) == ("first", os.getpid())
    assert request.options[:3] == (8, 4, 0)


def test_a_message_may_come_in_single_bytes(bench):
    client = bench.connect()
    for byte in open_message(b"slow"):
        client.sendall(bytes([byte]))
        bench.step()
    assert receive(client)[0].status == ControlStatus.OK
    assert bench.device.requests[0].name == "slow"


def test_info_may_be_asked_again_and_again(bench):
    client = bench.connect()
    for token in range(3):
        client.sendall(control.build(ControlKind.INFO, token))
        bench.step()
        message, text, _ = receive(client)
        assert (message.token, json.loads(text)) == (token, {"soc": "test"})
    assert bench.device.requests == []


def test_the_device_is_told_when_a_client_goes(bench):
    client = bench.connect(open_message())
    bench.connect(open_message())
    client.close()
    bench.step()
    assert bench.device.gone == [1]
    assert bench.link.connections == 1


def test_a_client_that_goes_before_the_reply_is_cleaned_up(bench):
    client = bench.connect()
    client.sendall(open_message())
    client.close()
    bench.step()
    assert bench.device.gone == [1] * len(bench.device.requests)
    assert bench.link.connections == 0


BAD = {
    "magic": (b"\0" * 64, ControlStatus.BAD_MAGIC),
    "text": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".ljust(64), ControlStatus.BAD_MAGIC),
    "version": (control.build(1, 1, version=(ABI_MAJOR + 1, 0)), ControlStatus.BAD_VERSION),
    "crc": (control.build(1, 1)[:-1] + b"\1", ControlStatus.BAD_CRC),
    "kind": (control.build(ControlKind.STREAM_CREATE, 1), ControlStatus.BAD_KIND),
    "no kind": (control.build(999, 1), ControlStatus.BAD_KIND),
    "length": (control.build(1, 1, length=2**32 - 1), ControlStatus.BAD_LENGTH),
    "name": (open_message(b"x" * 64), ControlStatus.BAD_VALUE),
    "name bytes": (open_message(b"\xff\xfe"), ControlStatus.BAD_VALUE),
    "name lines": (open_message(b"a\nb"), ControlStatus.BAD_VALUE),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_answered_and_the_connection_closed(bench, case):
    data, status = BAD[case]
    good = bench.connect(open_message(b"good"))
    client = bench.connect(data)
    message, text, fds = receive(client)
    assert (message.status, fds) == (status, [])
    field, _value, explanation, hint = text.decode().split("|")
    assert field
    assert explanation
    assert hint
    assert_closed(client)
    assert bench.link.connections == 1
    assert receive(good)[0].status == ControlStatus.OK
    assert [request.name for request in bench.device.requests] == ["good"]


def test_both_versions_are_named(bench):
    client = bench.connect(control.build(1, 1, version=(ABI_MAJOR + 4, 2)))
    text = receive(client)[1].decode()
    assert f"{ABI_MAJOR + 4}.2" in text
    assert f"protocol {ABI_MAJOR}." in text


def test_what_the_device_refuses_is_passed_on(bench):
    bench.device.error = RefusedError(
        ControlStatus.NO_RESOURCE, "limits.contexts", 2, "all are in use", "close one"
    )
    client = bench.connect(open_message())
    message, text, _ = receive(client)
    assert message.status == ControlStatus.NO_RESOURCE
    assert text == b"limits.contexts|2|all are in use|close one"
    assert_closed(client)


@pytest.mark.parametrize(
    "data", [b"", b"\x54", open_message(b"name")[:63], open_message(b"name")[:66]]
)
def test_half_a_message_costs_a_time_limit_and_nothing_else(bench, data):
    client = bench.connect(data)
    other = bench.connect(open_message())
    assert receive(other)[0].status == ControlStatus.OK
    assert bench.link.expire() == 5.0
    bench.now = 4.9
    assert bench.link.expire() == pytest.approx(0.1)
    bench.now = 5.0
    assert bench.link.expire() is None
    assert_closed(client)
    assert bench.device.gone == []


def test_an_open_context_has_no_time_limit(bench):
    bench.connect(open_message())
    bench.now = 1e9
    assert bench.link.expire() is None
    assert bench.link.connections == 1


def test_a_client_that_does_not_read_is_dropped_and_nothing_piles_up(bench):
    bench.device.body = b" " * (8 << 20)
    client = bench.connect(control.build(ControlKind.INFO, 1))
    for _ in range(20):  # further requests wait in the socket
        client.sendall(control.build(ControlKind.INFO, 2))
        bench.step()
    held = next(iter(bench.link._connections.values()))
    assert len(held.unsent) <= len(bench.device.body) + 64
    assert len(held.received) == 0
    bench.now = 700.0
    bench.link.expire()
    assert bench.link.connections == 0


def test_a_slow_reader_gets_all_of_a_long_reply(bench):
    bench.device.body = bytes(range(256)) * 8192
    client = bench.connect(control.build(ControlKind.INFO, 1))
    got = b""
    while len(got) < 64 + len(bench.device.body):
        got += client.recv(100_000)
        bench.step()
    assert got[64:] == bench.device.body


def test_a_flood_is_read_one_request_at_a_time(bench):
    client = bench.connect()
    client.sendall(control.build(ControlKind.INFO, 1) * 100)
    bench.poller.poll(0)
    held = next(iter(bench.link._connections.values()))
    assert len(held.received) == 0
    assert len(client.recv(1 << 20)) == 64 + len(bench.device.body)


def test_garbage_after_open_ends_the_context(bench):
    client = bench.connect(open_message())
    for fd in receive(client)[2]:
        os.close(fd)
    client.sendall(b"?" * 64)
    bench.step()
    assert receive(client)[0].status == ControlStatus.BAD_MAGIC
    assert bench.device.gone == [1]


def test_one_connection_has_one_context(bench):
    client = bench.connect(open_message())
    for fd in receive(client)[2]:
        os.close(fd)
    client.sendall(open_message())
    bench.step()
    message, text, _ = receive(client)
    assert message.status == ControlStatus.BUSY
    assert b"context 1" in text


def test_a_request_that_cannot_be_served_yet_is_asked_again(bench):
    bench.device.not_now = True
    client = bench.connect(open_message(b"again"))
    bench.link.retry()
    assert bench.device.requests == []
    bench.device.not_now = False
    bench.link.retry()
    assert receive(client)[0].status == ControlStatus.OK
    assert bench.device.requests[0].name == "again"


def test_it_is_not_asked_again_for_ever(bench):
    bench.device.not_now = True
    client = bench.connect(open_message(b"again"))
    bench.now = 5.0
    bench.link.expire()
    assert receive(client)[0].status == ControlStatus.BUSY
    assert_closed(client)
    bench.device.not_now = False
    bench.link.retry()
    assert bench.device.requests == []


def test_more_connections_than_there_is_room_for_are_refused(bench):
    for _ in range(2 + link.SPARE_CONNECTIONS):
        bench.connect()
    client = bench.connect()
    message, text, _ = receive(client)
    assert message.status == ControlStatus.NO_RESOURCE
    assert b"limits.contexts" in text
    assert_closed(client)


def test_no_descriptor_is_left_after_200_connections(bench):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(200):
        client = bench.connect([b"", b"half", b"?" * 64, open_message()][number % 4])
        client.close()
        bench.step()
    assert bench.link.connections == 0
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_closing_the_link_closes_the_clients(bench):
    client = bench.connect()
    bench.link.close()
    assert_closed(client)
    assert not bench.path.exists()


def test_only_the_owner_and_root_may_connect(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert link.peer_allowed(1000)
    assert link.peer_allowed(0)
    assert not link.peer_allowed(1001)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_is_told_so(bench):
    """The socket's mode keeps others out; when that is changed, the peer check still does."""
    bench.path.chmod(0o666)
    bench.path.parent.chmod(0o755)
    connected, report = os.pipe()
    child = os.fork()
    if child == 0:
        status = 255
        try:
            os.setuid(65534)
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(bench.path))
            client.sendall(open_message())
            os.write(report, b"1")
            status = control.parse(client.recv(64)).status
        finally:
            os._exit(status)
    assert os.read(connected, 1) == b"1"
    bench.step()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == ControlStatus.DENIED
    os.close(connected)
    os.close(report)
    assert bench.device.requests == []


def test_without_descriptors_the_listener_rests_and_serves_later(bench):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(bench.path))
    client.settimeout(0)
    bench.clients.append(client)
    used = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208 - a pseudo folder
    fillers = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                fillers.append(os.dup(0))
        bench.step()  # it comes to rest although the listener stays readable
        assert bench.link.connections == 0
        assert bench.link.expire() == pytest.approx(link.RESUME_S)
    finally:
        for fd in fillers:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    bench.now += link.RESUME_S
    bench.link.expire()
    bench.step()
    assert bench.link.connections == 1
