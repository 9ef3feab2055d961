"""The firmware core is freestanding: it could be flashed, whatever the host's compiler offers."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

FLAGS = [
    "-std=c11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-nostdlib",
    "-fno-builtin",
]
INCLUDES = ["descriptors/include", "mailbox/include", "ts_firmware/core"]
# The compiler may put a call of these in itself; a board's start-up code has them.
MEMORY_FUNCTIONS = {"memcpy", "memset", "memmove"}
TARGETS = {
    "host": ["cc"],
    "32 bit": ["cc", "-m32"],
    "cortex-m7": ["arm-none-eabi-gcc", "-mcpu=cortex-m7", "-mthumb"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)
HEADERS = {
    "stdarg.h",
    "stdatomic.h",
    "stdbool.h",
    "stddef.h",
    "stdint.h",
    "tsemu/abi.h",
    "tsemu/ring.h",
}


def core_files(root: Path) -> list[Path]:
    return sorted((root / "ts_firmware" / "core").glob("*.c"))


def compile_core(command: list[str], root: Path, folder: Path) -> list[Path]:
    """Compile every file of the core; skip the test where there is no such compiler."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    probe = folder / "probe.c"
    probe.write_text("int probe;\n", encoding="ascii")
    run = subprocess.run(
        [*command, "-c", str(probe), "-o", str(folder / "probe.o")],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        pytest.skip(f"{' '.join(command)} does not work here: {run.stderr.strip()}")
    include = [f"-I{root / path}" for path in INCLUDES]
    objects = []
    for source in core_files(root):
        made = folder / (source.stem + ".o")
        run = subprocess.run(
            [*command, *FLAGS, *include, "-c", str(source), "-o", str(made)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        objects.append(made)
    return objects


def undefined_symbols(
    objects: list[Path], folder: Path, prefix: str, linker: list[str]
) -> set[str]:
    """Symbols that are still undefined when all files are linked together."""
    whole = folder / "core.o"
    subprocess.run([*linker, "-r", *map(str, objects), "-o", str(whole)], check=True)
    listing = subprocess.run(
        [prefix + "nm", "--undefined-only", str(whole)], capture_output=True, text=True, check=True
    )
    return {line.split()[-1] for line in listing.stdout.splitlines() if line.strip()}


@pytest.mark.parametrize("target", TARGETS)
def test_the_core_needs_the_hal_and_nothing_else(target, root, tmp_path):
    """No libc, no 64-bit division, no atomics library, on 32 bit either."""
    objects = compile_core(TARGETS[target], root, tmp_path)
    assert len(objects) > 8
    prefix = "arm-none-eabi-" if target == "cortex-m7" else ""
    linker = [prefix + "ld", *(["-m", "elf_i386"] if target == "32 bit" else [])]
    needed = undefined_symbols(objects, tmp_path, prefix, linker)
    needed -= {"_GLOBAL_OFFSET_TABLE_"}  # position-independent code of a desktop compiler
    needed = {name for name in needed if not name.startswith("__x86.get_pc_thunk")}
    others = {name for name in needed if not name.startswith("hal_")} - MEMORY_FUNCTIONS
    assert not others, f"the core needs {sorted(others)}"
    assert "hal_core_start" in needed


def test_the_core_includes_its_own_headers_the_abi_and_the_ring_only(root):
    own = {path.name for path in (root / "ts_firmware" / "core").glob("*.h")}
    files = [*core_files(root), *(root / "ts_firmware" / "core").glob("*.h")]
    for path in files:
        for name in re.findall(
            r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE
        ):
            assert name in own | HEADERS, f"{path.name} includes {name}"


def test_the_core_has_no_floating_point(root, tmp_path):
    """Neither in the source, nor in what the compiler makes of it."""
    without = re.compile(r"/\*.*?\*/|//[^\n]*|\"[^\"\n]*\"", re.DOTALL)
    for path in [*core_files(root), *(root / "ts_firmware" / "core").glob("*.h")]:
        words = set(re.findall(r"\b\w+\b", without.sub(" ", path.read_text())))
        assert not words & {"float", "double", "_Complex"}, path.name
    # On x86-64 the compiler refuses any use of floating point without its registers.
    if (
        "x86_64"
        in subprocess.run(["cc", "-dumpmachine"], capture_output=True, text=True, check=True).stdout
    ):
        assert compile_core(["cc", "-mno-sse", "-mno-80387"], root, tmp_path)


def test_shared_words_are_32_bit(root):
    """Atomic access goes through the ring header, which knows 32-bit words only."""
    for path in [*core_files(root), *(root / "ts_firmware" / "core").glob("*.h")]:
        assert "_Atomic" not in path.read_text(), path.name
        assert "__atomic" not in path.read_text(), path.name
    ring = (root / "mailbox" / "include" / "tsemu" / "ring.h").read_text()
    assert set(re.findall(r"_Atomic (\w+)", ring)) == {"uint32_t"}
