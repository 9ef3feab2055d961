"""Devices of scenarios: the same one embedded and in a process of its own."""

import subprocess
from contextlib import ExitStack

import pytest

from tsemu.host_driver import Device

SETTINGS = {
    "scheduler.profile": "ideal",
    "classes.aicore.frequency_mhz": 1000,
    "classes.aicpu.frequency_mhz": 1000,
    "classes.aicpu.setup_cycles": 0,
}
"""A scheduler without cost; a cycle of a core takes 1 ns."""


@pytest.fixture(params=["embedded", "process"])
def open_device(request, programs, short_dir):
    """A function that opens edge-2 with a context's options and the device's settings."""
    with ExitStack() as stack:

        def open_embedded(settings=(), **options):
            chosen = {**SETTINGS, **dict(settings)}
            device = Device.open("emu:edge-2", name="tester", settings=chosen, **options)
            return stack.enter_context(device)

        def open_process(settings=(), **options):
            command = [str(programs / "tsemu"), "run", "--soc", "edge-2"]
            command += ["--listen", f"{short_dir}/d"]
            for key, value in {**SETTINGS, **dict(settings)}.items():
                command += ["--set", f"{key}={value}"]
            process = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.terminate)
            assert f"unix:{short_dir}/d" in process.stdout.readline()
            return stack.enter_context(Device.open(f"unix:{short_dir}/d", name="tester", **options))

        yield open_embedded if request.param == "embedded" else open_process
