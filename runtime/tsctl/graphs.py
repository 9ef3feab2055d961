"""Opens what the user names: an STG graph or a program file, told apart by their first bytes."""

from dataclasses import dataclass
from pathlib import Path

from tsemu.descriptors.program import Program
from tsemu.descriptors.program_layout import PROGRAM_MAGIC
from tsemu.runtime.graph import Graph
from tsemu.runtime.stg import parse_stg
from tsemu.runtime.tsctl.exits import naming

MAGIC = PROGRAM_MAGIC.to_bytes(4, "little")


@dataclass(frozen=True)
class Source:
    """A file that was opened: exactly one of `graph` and `program` is there."""

    path: Path
    graph: Graph | None
    program: Program | None

    @property
    def kind(self) -> str:
        """`stg` or `tsp`."""
        return "stg" if self.graph is not None else "tsp"


def open_source(path: Path) -> Source:
    """Open and check the graph or program at `path`.

    Raises `GraphError` or `UsageError` when its content is wrong, and `OSError`.
    """
    with path.open("rb") as stream:
        is_program = stream.peek(len(MAGIC))[: len(MAGIC)] == MAGIC
        if not is_program and path.suffix.lower() != ".tsp":
            return Source(path, parse_stg(stream, str(path)), None)  # a pipe is fine too
    with naming(path):
        program = Program.open(path)
        program.verify()
    return Source(path, None, program)
