"""`tsctl show`: what is in a graph or a program, without running it."""

from typing import Any

import numpy as np

from tsemu.descriptors.codes import Opcode
from tsemu.descriptors.program import Program
from tsemu.descriptors.program_layout import DEVICE_LIMIT, WINDOW_LIMIT
from tsemu.runtime.graph import Graph
from tsemu.runtime.rank import longest_paths
from tsemu.runtime.tsctl.graphs import Source
from tsemu.runtime.tsctl.units import count_text


def graph_document(graph: Graph) -> dict[str, Any]:
    """Return what is in a graph; times are in its own units."""
    degrees = np.diff(graph.starts)
    serial = int(graph.times.sum())
    longest = int(longest_paths(graph).max())
    return {
        "format": "stg",
        "tasks": graph.tasks,
        "tasks_without_time": int((graph.times == 0).sum()),
        "edges": graph.edges,
        "most_predecessors": int(degrees.max()),
        "most_successors": int(graph.successor_counts().max()),
        "serial_units": serial,
        "longest_path_units": longest,
        "parallelism_ratio": serial / longest if longest else None,
    }


def program_document(program: Program) -> dict[str, Any]:
    """Return what is in a program; looks at every task once."""
    opcodes = np.zeros(256, np.int64)
    cycles = [0] * len(program.classes)
    most_predecessors = most_blocks = 0
    for _, tasks, _ in program.chunks():
        opcodes += np.bincount(tasks["opcode"], minlength=256)
        most_predecessors = max(most_predecessors, int(tasks["edge_count"].max()))
        kernels = tasks[tasks["opcode"] == Opcode.KERNEL]
        if len(kernels):
            most_blocks = max(most_blocks, int(kernels["blocks"].max()))
        work = kernels["cycles"].astype(np.int64) * kernels["blocks"]
        for number in range(len(cycles)):
            cycles[number] += int(work[kernels["engine_class"] == number].sum())
    return {
        "format": "tsp",
        "tasks": program.task_count,
        "edges": program.edge_count,
        "opcodes": {code.name: int(opcodes[code]) for code in Opcode if opcodes[code]},
        "most_predecessors": most_predecessors,
        "most_blocks": most_blocks,
        "classes": [
            {"name": name, "kernel_cycles": total}
            for name, total in zip(program.classes, cycles, strict=True)
        ],
        "streams": [
            {
                "name": stream.name,
                "in_order": stream.in_order,
                "priority": stream.priority,
                "limit_tasks": _limit(stream.limit),
            }
            for stream in program.streams
        ],
        "kernels": list(program.kernels),
        "events": program.events,
        "buffers": len(program.buffers),
        "buffer_bytes": sum(buffer.size for buffer in program.buffers),
        "meta": program.meta,
    }


def _limit(tasks: int) -> int | str:
    return {DEVICE_LIMIT: "default", WINDOW_LIMIT: "window"}.get(tasks, tasks)


def document(source: Source) -> dict[str, Any]:
    """Return what is in a file, as the `--json` document."""
    if source.graph is not None:
        found = graph_document(source.graph)
    elif source.program is not None:
        found = program_document(source.program)
    else:
        raise ValueError("a source is a graph or a program")
    return {"file": str(source.path)} | found


def pairs(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the document as names and texts for a table."""
    rows = []
    for key, value in found.items():
        name = key.replace("_", " ")
        if isinstance(value, float):
            text = f"{value:.2f}"
        elif isinstance(value, int):
            text = count_text(value)
        elif isinstance(value, list):
            text = _list_text(value)
        elif isinstance(value, dict):
            text = ", ".join(f"{k} {_plain(v)}" for k, v in value.items()) or "none"
        else:
            text = str(value)
        rows.append((name, text))
    return rows


SHOWN_ITEMS = 8


def _list_text(items: list[Any]) -> str:
    shown = [
        " ".join(f"{k}={_plain(v)}" if k != "name" else str(v) for k, v in item.items())
        if isinstance(item, dict)
        else str(item)
        for item in items[:SHOWN_ITEMS]
    ]
    if len(items) > SHOWN_ITEMS:
        shown.append(f"... {len(items) - SHOWN_ITEMS} more")
    return "\n".join(shown) or "none"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | dict):
        return f"({len(value)} items)"  # `--json` has them
    return count_text(value) if isinstance(value, int) else str(value)
