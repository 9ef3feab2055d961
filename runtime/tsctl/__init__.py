"""`tsctl`: the host side's program. It describes devices, runs graphs and inspects programs."""

from tsemu.runtime.tsctl.app import main

__all__ = ["main"]
