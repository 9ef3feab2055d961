#!/usr/bin/env python3
"""The two commands of a fresh clone: `python3 dev.py demo` and `python3 dev.py test`.

Needs Python 3.11 with its headers and `venv`, and a C compiler; everything else goes into a
virtual environment of the command's own beside this file.
"""

from __future__ import annotations  # an older Python has to get as far as the check below

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent
PACKAGES = (
    "descriptors",
    "mailbox",
    "ts_firmware",
    "host_driver",
    "fault_injection",
    "runtime",
)
OLDEST = (3, 11)


def missing() -> list[str]:
    """Return what this machine lacks, each with the remedy."""
    lacks = []
    if sys.version_info < OLDEST:
        version = ".".join(str(part) for part in sys.version_info[:3])
        lacks.append(f"Python 3.11 or newer (this is {version}): run with python3.11 or newer")
    if find_spec("ensurepip") is None:
        lacks.append("the module `venv` with pip (Debian, Ubuntu: apt-get install python3-venv)")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        lacks.append("Python's C headers (Debian, Ubuntu: apt-get install python3-dev)")
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(compiler.split()[0]) is None:
        lacks.append(f"a C compiler, `{compiler}` (Debian, Ubuntu: apt-get install gcc libc6-dev)")
    return lacks


def try_run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> int:
    """Run a command, show it, and return its exit code."""
    print("+", *command, flush=True)
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=os.environ | variables, check=False
    )
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def run(*command: str | Path, **variables: str) -> None:
    """Run a command and show it; ends this program with its exit code when it fails."""
    code = try_run(*command, **variables)
    if code:
        raise SystemExit(code)


def environment(folder: str, requirement: str, **variables: str) -> Path:
    """Install the project into a virtual environment and return its folder of programs."""
    home = ROOT / folder
    programs = home / "bin"
    if not (programs / "python").exists() or not (programs / "pip").exists():
        run(sys.executable, "-m", "venv", "--clear", home)
    build = home / "build"
    shutil.rmtree(build, ignore_errors=True)  # a module that is gone must not be installed again
    settings = home / "build.cfg"
    settings.write_text(f"[build]\nbuild_base = {build}\n", encoding="utf-8")
    run(
        programs / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        requirement,
        DIST_EXTRA_CONFIG=str(settings),
        **variables,
    )
    return programs


def show(stream: IO[str], address: Path, listening: threading.Event) -> None:
    """Copy a device's output to the terminal and note when it says that it listens."""
    for line in stream:
        print(line, end="", flush=True)
        if f"unix:{address}" in line:
            listening.set()
    listening.set()  # the device has ended: nobody shall wait for it


@contextlib.contextmanager
def device(program: Path, address: Path) -> Iterator[None]:
    """Run the device as a process of its own; it is gone when this ends, however it ends."""
    command = [str(program), "run", "--soc", "hybrid", "--listen", str(address)]
    print("+", *command, "&", flush=True)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    listening = threading.Event()
    reader = threading.Thread(target=show, args=(process.stdout, address, listening))
    reader.start()
    try:
        listening.wait()
        if process.poll() is None:
            yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        reader.join()
    if code:
        raise SystemExit(f"the device ended with exit code {code}")


def demo() -> None:
    """Run a task graph: one process is the device, another one pushes the graph to it."""
    programs = environment(".venv-demo", ".")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # cleans up, too
    with tempfile.TemporaryDirectory(prefix="tsemu-") as private:
        address = Path(private) / "device.sock"
        with device(programs / "tsemu", address):
            python = programs / "python"
            run(python, "-m", "tsemu.examples.yolov5s.build", "--output", private)
            graph = Path(private) / "yolov5s-asynchronous.tsp"
            run(programs / "tsctl", "run", graph, "--device", f"unix:{address}")


def test(arguments: Sequence[str]) -> None:
    """Build with warnings as errors; then linter, type checker and tests on what is installed."""
    programs = environment(".venv-test", ".[dev]", TSEMU_DEV="1")
    names = [part for package in PACKAGES for part in ("-p", f"tsemu.{package}")]
    settings = ROOT / "pyproject.toml"
    checks = {
        "ruff check": ([programs / "ruff", "check", "."], ROOT),
        "ruff format": ([programs / "ruff", "format", "--check", "."], ROOT),
        # Not from the root: its folder `mailbox` would hide the standard library's module.
        "mypy": ([programs / "mypy", "--strict", "--config-file", settings, *names], programs),
        "pytest": ([programs / "pytest", *arguments], ROOT),
    }
    codes = {name: try_run(*command, cwd=folder) for name, (command, folder) in checks.items()}
    for name, code in codes.items():
        print(f"{name}: {f'failed, exit code {code}' if code else 'passed'}")
    raise SystemExit(max(codes.values()))


def main() -> None:
    """Check the machine, then do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help=demo.__doc__)
    commands.add_parser("test", help=f"{test.__doc__} More arguments go to pytest.")
    wanted, arguments = parser.parse_known_args()
    if arguments and wanted.command != "test":
        parser.error(f"unrecognized arguments: {' '.join(arguments)}")
    lacks = missing()
    if lacks:
        raise SystemExit("This machine lacks:\n" + "\n".join(f"  - {item}" for item in lacks))
    if wanted.command == "demo":
        demo()
    else:
        test(arguments)


if __name__ == "__main__":
    main()
