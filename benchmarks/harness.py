"""What the benchmark scripts share: a device process of their own, a line per figure, medians.

A figure's line is: name, value, unit, target, pass or fail, in columns. Progress goes to stderr.
"""

import argparse
import contextlib
import os
import resource
import selectors
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

START_LIMIT = 30.0
"""Wall-clock seconds that a device process may take to say that it listens."""
STOP_LIMIT = 15.0


def program(name: str) -> str:
    """Path of an installed program (`tsemu`, `tsctl`), that of this environment first.

    Raises:
        SystemExit: it is not installed.
    """
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        raise SystemExit(f"{name} is not installed: run `pip install .` in the project's folder")
    return found


def progress(text: str) -> None:
    """Say on stderr what goes on."""
    sys.stderr.write(f"# {text}\n")
    sys.stderr.flush()


IDEAL = (
    "--set=scheduler.profile=ideal",
    "--set=classes.aicore.frequency_mhz=1000",
    "--set=classes.aicore.setup_cycles=0",
)
"""Options for a scheduler that costs no time and cores with a cycle of 1 ns."""


def cores(count: int) -> tuple[str, ...]:
    """Options for an ideal device with `count` cores."""
    return ("--soc=edge-2", f"--set=classes.aicore.cores={count}", *IDEAL)


class Report:
    """Prints figures as they come; `code` is 1 when a target was missed."""

    def __init__(self) -> None:
        self.missed = 0

    @property
    def code(self) -> int:
        """Exit code of the script."""
        return 1 if self.missed else 0

    def figure(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        least: float | None = None,
        most: float | None = None,
    ) -> None:
        """Print one figure; without a limit it is for information."""
        passed = (least is None or value >= least) and (most is None or value <= most)
        limits = {">=": least, "<=": most}
        target = (
            " ".join(f"{sign} {limit:g}" for sign, limit in limits.items() if limit is not None)
            or "-"
        )
        verdict = "-" if target == "-" else "pass" if passed else "FAIL"
        self.missed += verdict == "FAIL"
        shown = f"{value:.0f}" if abs(value) >= 10000 else f"{value:.5g}"
        print(f"{name:<52} {shown:>12} {unit:<10} {target:>11} {verdict}", flush=True)


def median(values: Sequence[float]) -> float:
    """Median, as a float."""
    return float(statistics.median(values))


@dataclass(frozen=True)
class DeviceProcess:
    """A running `tsemu run`."""

    process: subprocess.Popen[str]
    path: Path

    @property
    def address(self) -> str:
        """Address for `Device.open` and `tsctl --device`."""
        return f"unix:{self.path}"

    @property
    def cpu_seconds(self) -> float:
        """CPU time that it has used so far."""
        return cpu_seconds(self.process.pid)


@contextlib.contextmanager
def device(*options: str) -> Iterator[DeviceProcess]:
    """Start `tsemu run` with these options on a private socket; stop it in any case."""
    folder = Path(tempfile.mkdtemp(prefix="tsemu-bench-"))
    path = folder / "device.sock"
    errors = folder / "stderr"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [program("tsemu"), "run", "--listen", str(path), *options],
            stdout=subprocess.PIPE,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            text=True,
        )
    try:
        _await_start(process, errors)
        yield DeviceProcess(process, path)
        if process.poll() is not None:
            raise SystemExit(f"tsemu run ended with {process.returncode}: {errors.read_text()}")
    finally:
        _stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def _await_start(process: subprocess.Popen[str], errors: Path) -> None:
    if process.stdout is None:
        raise RuntimeError("tsemu run was started without a pipe")
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        ready = selector.select(START_LIMIT)
    line = process.stdout.readline() if ready else ""
    if "listening" not in line:
        raise SystemExit(f"tsemu run did not start: {line.strip()} {errors.read_text().strip()}")


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=STOP_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def run(command: Sequence[str], **options: object) -> str:
    """Run a program to its end; return what it printed.

    Raises:
        SystemExit: it failed; its error output is in the text.
    """
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {result.returncode}: {result.stderr}")
    return str(result.stdout)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid: int) -> int:
    """Peak resident memory of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status has no VmHWM")


def own_cpu_seconds() -> float:
    """User and system time of this process, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Keep `count` cores busy with something else while the block runs."""
    code = "while True: pass"
    loads = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for load in loads:
            load.kill()
            load.wait()


def machine() -> str:
    """The machine in one line, for records."""
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    load = os.getloadavg()[0]
    return f"{model}, {os.cpu_count()} cores, load {load:.1f}, {time.strftime('%Y-%m-%d')}"


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Argument parser with a script's docstring as its help; SIGTERM ends the script cleanly."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
