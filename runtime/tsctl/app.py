"""The command line of `tsctl`: options in, one command called, exit code out."""

import json
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from tsemu.descriptors.codes import ABI_MAJOR, ABI_MINOR
from tsemu.runtime.program_build import write_program
from tsemu.runtime.stg import read_stg
from tsemu.runtime.tsctl import exits
from tsemu.runtime.tsctl import info as info_command
from tsemu.runtime.tsctl import run as run_command
from tsemu.runtime.tsctl import show as show_command
from tsemu.runtime.tsctl.graphs import open_source
from tsemu.runtime.tsctl.session import Choice
from tsemu.runtime.tsctl.tables import output_console, print_pairs

COMPILE_CYCLES = 1000
EXIT_CODES = """\b
Exit codes:
  0    success
  1    the run ended, but tasks failed
  2    an option, or a file that cannot be read or written
  3    the device cannot be reached, refused or was lost
  130  interrupted (143: terminated); no file was changed
"""
RUN_EPILOG = (
    """\b
Examples:
  tsctl run graph.stg --policy rank --set classes.aicore.cores=4
  tsctl run graph.stg --set scheduler.profile=ideal --json
  tsctl run program.tsp --device unix:/tmp/npu.sock -o completions.npy

"""
    + EXIT_CODES
)

app = typer.Typer(
    name="tsctl",
    help="Host side of tsemu: describe a device, run task graphs on it, inspect programs.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tsctl {metadata.version('tsemu')}, protocol {ABI_MAJOR}.{ABI_MINOR}")
        raise typer.Exit


@app.callback()
def tsctl(
    version: Annotated[  # its callback does the work
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options that come before the command."""


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="ADDRESS",
        help="Device: unix:PATH of a running `tsemu run`, or emu:PRESET for an embedded one "
        "(default: emu:edge-2).",
    ),
]
Soc = Annotated[
    str | None,
    typer.Option("--soc", metavar="PRESET|FILE", help="SoC of the embedded device."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Setting of the embedded device, such as classes.aicore.cores=4 or "
        "scheduler.profile=ideal; may be repeated.",
    ),
]
Source = Annotated[
    Path, typer.Argument(metavar="GRAPH", help="STG text file or .tsp program.", show_default=False)
]
CYCLES_HELP = (
    "Cycles of one time unit of an STG graph. Default: as many as a core makes in one microsecond "
    "(its frequency in MHz), so that every time is a whole number of picoseconds and the makespan "
    "in units (makespan_units) is exact."
)


@app.command(epilog=RUN_EPILOG)
def run(
    graph: Source,
    device: Device = None,
    soc: Soc = None,
    settings: Settings = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="NAME", help="Scheduling: priority, fifo or rank."),
    ] = None,
    clock: Annotated[
        str | None,
        typer.Option("--clock", metavar="MODE", help="lockstep, free or paced:FACTOR."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help="Seed of the embedded device.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of this client at the device."),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            "--window", metavar="N", min=1, max=65534, help="Tasks that the scheduler looks at."
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option("--slots", metavar="N", min=2, max=65535, help="Places for tasks in flight."),
    ] = None,
    engine_class: Annotated[
        str | None,
        typer.Option(
            "--engine-class",
            metavar="NAME",
            help="Class that runs the tasks of an STG graph. Default: the first that runs kernels.",
        ),
    ] = None,
    cycles_per_unit: Annotated[
        int | None,
        typer.Option("--cycles-per-unit", metavar="N", min=1, max=(1 << 32) - 1, help=CYCLES_HELP),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="COMPLETIONS",
            help="Write every completion, in completion order: .csv is text, any other name a "
            "NumPy file (numpy.load). Replaces a file only when the run has ended.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a task graph and show what each core did.

    The makespan is the time from the first task's start to the last one's end. The device is made
    for this run unless --device names a running one; --soc, --set, --policy, --clock and --seed are
    then options of `tsemu run`.
    """
    with exits.reported():
        job = run_command.Job(graph, output, engine_class, cycles_per_unit)
        choice = Choice(
            device, soc, tuple(settings or ()), policy, clock, seed, name, slots, window
        )
        report = run_command.run(job, choice)
        if as_json:
            _print_json(report.document())
        else:
            report.show(output_console())
    if report.occupancy.failed:
        raise typer.Exit(exits.TASKS_FAILED)


@app.command()
def info(
    device: Device = None, soc: Soc = None, settings: Settings = None, as_json: Json = False
) -> None:
    """Describe a device and what it does now."""
    with exits.reported():
        found = info_command.document(Choice(device, soc, tuple(settings or ())))
        if as_json:
            _print_json(found)
        else:
            info_command.show(found, output_console())


@app.command()
def show(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help=".tsp program or STG file.", show_default=False)
    ],
    as_json: Json = False,
) -> None:
    """Check a graph or program and say what is in it."""
    with exits.reported():
        found = show_command.document(open_source(file))
        if as_json:
            _print_json(found)
        else:
            print_pairs(output_console(), show_command.pairs(found))


@app.command("compile")
def compile_(
    graph: Annotated[
        Path, typer.Argument(metavar="GRAPH.stg", help="STG text file.", show_default=False)
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE.tsp", help="Program file to write."),
    ],
    engine_class: Annotated[
        str, typer.Option("--engine-class", metavar="NAME", help="Class that runs the tasks.")
    ] = "AICORE",
    cycles_per_unit: Annotated[
        int,
        typer.Option(
            "--cycles-per-unit",
            metavar="N",
            min=1,
            max=(1 << 32) - 1,
            help="Cycles of one time unit of the graph. With the frequency of the class in MHz a "
            "unit takes one microsecond, as with `tsctl run GRAPH`.",
        ),
    ] = COMPILE_CYCLES,
    as_json: Json = False,
) -> None:
    """Turn an STG graph into a program file.

    The program has one out-of-order stream; its tasks carry scheduling values for policy rank.
    """
    with exits.reported():
        source = read_stg(graph)
        write_program(source, output, engine_class.upper(), cycles_per_unit)
        found = {
            "graph": str(graph),
            "output": str(output),
            "tasks": source.tasks,
            "edges": source.edges,
            "engine_class": engine_class.upper(),
            "cycles_per_unit": cycles_per_unit,
            "file_bytes": output.stat().st_size,
        }
        if as_json:
            _print_json(found)
        else:
            print_pairs(output_console(), show_command.pairs(found))


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=2))


def main() -> None:
    """Run the program; the exit code is one of `exits`."""
    app()
