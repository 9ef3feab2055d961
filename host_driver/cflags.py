"""Compiler and linker flags for C programs.

`python3 -m tsemu.host_driver.cflags` prints both kinds, `--cflags` or `--libs` only one. The
program finds the library at run time by an rpath, so that it starts without LD_LIBRARY_PATH as
long as the package stays where it is.
"""

import argparse
import shlex
from importlib.resources import files
from pathlib import Path

LIBRARY_FILE = "libtsemu.so"


def cflags() -> list[str]:
    """Return `-I` flags for `tsemu.h` and the ABI header that it includes."""
    folders = [
        Path(str(files("tsemu.host_driver"))) / "include",
        Path(str(files("tsemu.descriptors"))) / "include",
    ]
    return [f"-I{folder}" for folder in folders]


def libs() -> list[str]:
    """Return the flags that link with the driver library and find it again at run time.

    Raises `FileNotFoundError` when the library has not been built.
    """
    folder = Path(str(files("tsemu.host_driver")))
    if not (folder / LIBRARY_FILE).is_file():
        raise FileNotFoundError(f"{folder / LIBRARY_FILE}: not built; install tsemu again")
    return [f"-L{folder}", f"-Wl,-rpath,{folder}", "-ltsemu"]


def main() -> None:
    """Print the flags, quoted for a shell."""
    parser = argparse.ArgumentParser(
        prog="python3 -m tsemu.host_driver.cflags", description="Flags to build a C program."
    )
    parser.add_argument("--cflags", action="store_true", help="flags for the compiler")
    parser.add_argument("--libs", action="store_true", help="flags for the linker")
    wanted = parser.parse_args()
    both = wanted.cflags == wanted.libs
    flags = cflags() if wanted.cflags or both else []
    flags += libs() if wanted.libs or both else []
    print(shlex.join(flags))  # noqa: T201 - its one purpose


if __name__ == "__main__":
    main()
