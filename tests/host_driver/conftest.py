"""Devices that the driver's tests use."""

import subprocess
from collections.abc import Iterator
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


@pytest.fixture
def served(programs: Path, short_dir: Path) -> Iterator[str]:
    """Address of a device process with the same device as `device`."""
    address = f"unix:{short_dir}/d"
    command = [
        str(programs / "tsemu"), "run", "--soc", "edge-2", "--listen", f"{short_dir}/d",
        "--set", "scheduler.profile=ideal",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert address in line
        yield address
        process.terminate()
        process.communicate()


@pytest.fixture(params=["embedded", "process"])
def either(request: pytest.FixtureRequest) -> Iterator[Device]:
    """The same device embedded and in a process of its own."""
    if request.param == "embedded":
        yield request.getfixturevalue("device")
        return
    with Device.open(request.getfixturevalue("served"), name="tester") as made:
        yield made
