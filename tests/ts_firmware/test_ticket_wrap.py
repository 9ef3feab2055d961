"""Tickets are 32 bits and wrap after some minutes at full speed: nothing may depend on ticket 0."""

import subprocess

INCLUDES = ["descriptors/include", "mailbox/include", "ts_firmware/core", "ts_firmware/soc"]
SOURCES = ["ts_firmware/core/*.c", "ts_firmware/soc/*.c", "mailbox/csrc/crc32c.c"]


def test_a_stream_keeps_its_order_when_tickets_wrap(root, tmp_path):
    """See `wrap.c`. Ticket 0 once meant that the stream had no task before."""
    program = tmp_path / "wrap"
    sources = [str(path) for pattern in SOURCES for path in sorted(root.glob(pattern))]
    include = [f"-I{root / path}" for path in INCLUDES]
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", *include, *sources]
    command += [str(root / "tests/ts_firmware/wrap.c"), "-o", str(program), "-lpthread"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
