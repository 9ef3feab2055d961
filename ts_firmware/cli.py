"""The program `tsemu`: the device side. It starts a device and lists what can be started."""

import json
import signal
import sys
from importlib import metadata
from types import FrameType
from typing import Annotated, NoReturn

import typer

from tsemu.descriptors.codes import ABI_MAJOR, ABI_MINOR
from tsemu.mailbox import address
from tsemu.mailbox.errors import MailboxError
from tsemu.ts_firmware.config import PRESETS, SocConfig, load, preset_names
from tsemu.ts_firmware.console_sink import ConsoleSink
from tsemu.ts_firmware.emulator import DevicePanicError, Emulator, configure
from tsemu.ts_firmware.server import Server
from tsemu.ts_firmware.settings import ConfigError, all_keys, find, parse_assignment

EXIT_USAGE = 2
EXIT_ADDRESS = 3
EXIT_PANIC = 4

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="""The device: an NPU task scheduler with modelled cores, without the silicon.

    Start it in one terminal with `tsemu run`, and use it from another with `tsctl` or a driver.
    """,
)

RUN_EPILOG = """\b
Examples:
  tsemu run
  tsemu run --soc server-32 --set classes.aicore.cores=8 --policy rank
  tsemu run --soc my-soc.toml --listen /tmp/npu.sock --clock paced:0.001

\b
Exit codes:
  0  stopped by SIGTERM or SIGINT
  2  an option or the configuration cannot be used
  3  the socket cannot be had
  4  the firmware stopped itself (panic)
  1  anything else
"""

Soc = Annotated[
    str, typer.Option("--soc", metavar="PRESET|FILE", help="A preset (`tsemu presets`) or a file.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change one key of the SoC; may be given many times."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document per line.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        _print(f"tsemu {metadata.version('tsemu')}, protocol {ABI_MAJOR}.{ABI_MINOR}")
        raise typer.Exit


@app.callback()
def tsemu(
    version: Annotated[  # its callback does the work
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options that come before the command."""


@app.command(epilog=RUN_EPILOG)
def run(
    soc: Soc = "edge-2",
    assignments: Assignments = None,
    policy: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Scheduling policy: priority, fifo or rank."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Socket to listen at; default: tsemu.sock in the user's runtime directory.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Seed of all that is random.")
    ] = None,
    clock: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="Clock: lockstep (default), free or paced:FACTOR."),
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option(metavar="N", help="Lockstep: the clock starts when N clients are there."),
    ] = None,
    console: Annotated[
        str | None,
        typer.Option(metavar="FILE|-", help="Where the firmware's console goes; -: stdout."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the device as a process until it gets SIGTERM or SIGINT.

    The line that says where it listens is printed when clients can connect.
    """
    signal.signal(signal.SIGTERM, _leave)
    pairs = [parse_assignment(text) for text in assignments or []]
    config = configure(soc, pairs, policy=policy, clock=clock, seed=seed, clients=clients)
    path = address.default_path() if listen is None else address.parse(listen)
    sink = _console(console)
    try:
        with (
            Emulator(config) as emulator,
            Server(emulator, path, sink.write if sink else None) as server,
        ):
            server.catch_signals()
            _say_listening(config, server.address, emulator, as_json=as_json)
            server.serve()
    finally:
        if sink:
            sink.close()


def _leave(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """SIGTERM before the device serves: undo what has been done and leave."""
    sys.exit(0)


def _console(target: str | None) -> ConsoleSink | None:
    if target is None:
        return None
    try:
        return ConsoleSink(target)
    except OSError as error:
        raise ConfigError(
            "--console", target, f"cannot be opened ({error.strerror})", "give another file"
        ) from error


def _say_listening(config: SocConfig, where: str, emulator: Emulator, *, as_json: bool) -> None:
    if as_json:
        info = {k: v for k, v in emulator.info().items() if k != "status"}
        _print(json.dumps({"event": "listening", **info}))
    else:
        _print(f"tsemu: {config.summary()} listening on {where}")


@app.command()
def presets(
    show: Annotated[
        str | None, typer.Option("--show", metavar="NAME", help="Print the file of one preset.")
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="List every key that --set takes, with its default.")
    ] = False,
    soc: Soc = "edge-2",
    as_json: Json = False,
) -> None:
    """List the built-in SoCs, print one as a file, or list all keys."""
    if show is not None:
        load(show)
        _print((PRESETS / f"{show}.toml").read_text(encoding="utf-8").rstrip())
    elif keys:
        _print_keys(load(soc), as_json=as_json)
    elif as_json:
        _print(json.dumps([load(name).describe() for name in preset_names()]))
    else:
        for name in preset_names():
            config = load(name)
            _print(f"{config.summary()}: {config.description}")


def _print_keys(config: SocConfig, *, as_json: bool) -> None:
    names = all_keys(config.classes)
    rows = [(key, config.values[key], find(key, config.classes)) for key in names]
    if as_json:
        _print(
            json.dumps(
                [
                    {"key": key, "value": value, "expected": item.expected, "meaning": item.doc}
                    for key, value, item in rows
                ]
            )
        )
        return
    for key, value, item in rows:
        _print(f"{key} = {value}\n    {item.doc}; {item.expected}")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _fail(error: Exception, code: int) -> NoReturn:
    sys.stderr.write(f"tsemu: error: {error}\n")
    sys.exit(code)


def main() -> None:
    """Entry point of `tsemu`; see `tsemu run --help` for the exit codes."""
    try:
        app(prog_name="tsemu")
    except ConfigError as error:
        _fail(error, EXIT_USAGE)
    except MailboxError as error:
        _fail(error, EXIT_ADDRESS)
    except DevicePanicError as error:
        _fail(error, EXIT_PANIC)
    except BrokenPipeError:
        sys.exit(1)


if __name__ == "__main__":
    main()
