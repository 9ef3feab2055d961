"""Devices that the driver's tests use."""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tsemu.host_driver import Device, Stream


@pytest.fixture
def device() -> Iterator[Device]:
    """A small embedded device: 2 AI cores, 4 AI CPUs, a DMA engine; a scheduler without cost."""
    with Device.open("emu:edge-2", name="tester", settings={"scheduler.profile": "ideal"}) as made:
        yield made


@pytest.fixture
def small() -> Iterator[Device]:
    """The same with a window of 8 tasks, 16 slots and a stream limit of 4."""
    with Device.open(
        "emu:edge-2",
        name="tester",
        settings={"scheduler.profile": "ideal"},
        slots=16,
        window=8,
        stream_limit=4,
    ) as made:
        yield made


@pytest.fixture
def stream(device: Device) -> Stream:
    """An out-of-order stream of `device`."""
    return device.create_stream(in_order=False)


@dataclass
class Server:
    """A device process and its address."""

    address: str
    process: subprocess.Popen[str]


@pytest.fixture
def serve(programs: Path, short_dir: Path) -> Iterator[Callable[..., Server]]:
    """Start a device process with the same device as `device`, and more options."""
    running = []

    def start(*options: str) -> Server:
        path = short_dir / str(len(running))
        command = [
            str(programs / "tsemu"), "run", "--soc", "edge-2", "--listen", str(path),
            "--set", "scheduler.profile=ideal", *options,
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        assert str(path) in process.stdout.readline()
        return Server(f"unix:{path}", process)

    yield start
    for process in running:
        process.terminate()
        process.communicate()


@pytest.fixture
def served(serve: Callable[..., Server]) -> str:
    """Address of a device process with the same device as `device`."""
    return serve().address


@pytest.fixture(params=["embedded", "process"])
def either(request: pytest.FixtureRequest) -> Iterator[Device]:
    """The same device embedded and in a process of its own."""
    if request.param == "embedded":
        yield request.getfixturevalue("device")
        return
    with Device.open(request.getfixturevalue("served"), name="tester") as made:
        yield made
