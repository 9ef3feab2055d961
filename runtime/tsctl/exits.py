"""What the exit code of `tsctl` says, and how errors become messages.

0: everything succeeded. 1: the run ended, but tasks failed. 2: a wrong option, or a file that
cannot be read or written. 3: the device cannot be reached, refused, or was lost. 130: interrupted.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer

from tsemu.descriptors.errors import DescriptorError
from tsemu.host_driver.errors import AddressError, InvalidError, TsemuError
from tsemu.runtime.errors import GraphError

OK = 0
TASKS_FAILED = 1
BAD_INPUT = 2
DEVICE_PROBLEM = 3
INTERRUPTED = 130
TERMINATED = 143


class UsageError(ValueError):
    """Options that do not go together, or a value that cannot be; the text says what to do."""


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Turn errors that only know a place inside of a program file into ones that name the file."""
    try:
        yield
    except DescriptorError as error:
        raise UsageError(f"{file}: {error}") from error


@contextmanager
def reported() -> Iterator[None]:
    """Turn the errors of the block into a message on standard error and an exit code."""
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt:
        raise _exit("interrupted; nothing was written", INTERRUPTED) from None
    except (UsageError, GraphError, DescriptorError, InvalidError) as error:
        raise _exit(str(error), BAD_INPUT) from error
    except TsemuError as error:
        wrong_soc = isinstance(error, AddressError) and error.field == "soc"
        raise _exit(str(error), BAD_INPUT if wrong_soc else DEVICE_PROBLEM) from error
    except BrokenPipeError:
        # Whoever read our output has seen enough; keep the interpreter from flushing into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(OK) from None
    except OSError as error:
        raise _exit(_os_text(error), BAD_INPUT) from error
    finally:
        signal.signal(signal.SIGTERM, previous)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)  # so that temporary files are removed on the way out


def _os_text(error: OSError) -> str:
    if error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _exit(message: str, code: int) -> typer.Exit:
    typer.echo(f"tsctl: {message}", err=True)
    return typer.Exit(code)
