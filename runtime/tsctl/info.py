"""`tsctl info`: what a device is and what it does now."""

from typing import Any

from rich.console import Console

from tsemu.runtime.tsctl.session import Choice, describe
from tsemu.runtime.tsctl.tables import print_pairs, print_table
from tsemu.runtime.tsctl.units import count_text, time_text


def document(choice: Choice) -> dict[str, Any]:
    """Return the description of the device, as the `--json` document."""
    return describe(choice)


def show(found: dict[str, Any], console: Console) -> None:
    """Print the description for a person."""
    costs = ", ".join(
        f"{part} {time_text(cost)}" for part, cost in found["scheduler_costs_ps"].items() if cost
    )
    status = found["status"]
    admitted, ended = count_text(status["admitted"]), count_text(status["completed"])
    rows = [
        ("device", found["address"]),
        ("soc", f"{found['soc']}: {found['description']}"),
        (
            "scheduler",
            f"policy {found['policy']}, profile {found['profile']} ({costs or 'no cost'})",
        ),
        ("clock", f"{found['clock_mode']}, seed {found['seed']}"),
        ("limits", ", ".join(f"{k} {count_text(v)}" for k, v in found["limits"].items() if v)),
        ("alignment", f"{found['alignment_bytes']} bytes"),
        ("protocol", str(found["protocol"])),
        ("time", time_text(status["now_ps"])),
        ("tasks", f"{admitted} admitted, {ended} ended"),
        ("clients", ", ".join(c["name"] for c in status["contexts"]) or "none"),
    ]
    print_pairs(console, rows)
    console.print()
    print_table(console, _classes(found), right=(1, 2, 3, 6))


def _classes(found: dict[str, Any]) -> list[list[str]]:
    cores = found["status"]["cores"]
    table = [["class", "cores", "clock", "bandwidth per core", "runs", "cost", "busy now"]]
    for row in found["classes"]:
        bandwidth = row["bandwidth_mbps"]
        cells = [
            row["name"],
            str(row["cores"]),
            f"{row['frequency_mhz']} MHz",
            f"{bandwidth / 1000:.1f} GB/s" if bandwidth else "not limited",
            "copies" if row["moves_bytes"] else "kernels",
            row["cost"],
        ]
        cells.append(str(sum(c["busy"] for c in cores if c["engine_class"] == row["name"])))
        table.append(cells)
    return table
