"""The generated C header: committed text, and what a C compiler makes of it."""

import subprocess
import sysconfig

import pytest

from tsemu.descriptors import cheader
from tsemu.descriptors.program_layout import FILE_LAYOUTS


def test_committed_header_is_the_generated_one(root):
    committed = root / "descriptors" / "include" / "tsemu" / "abi.h"
    assert committed.read_text() == cheader.header()


@pytest.fixture(scope="module")
def compiler_says(tmp_path_factory):
    """What a C program compiled with the generated header prints: {name: number}."""
    folder = tmp_path_factory.mktemp("header")
    (folder / "abi.h").write_text(cheader.header())
    lines = ["#include <stddef.h>", "#include <stdio.h>", '#include "abi.h"']
    lines += [cheader.structure(declared) for declared in FILE_LAYOUTS]
    lines.append("int main(void) {")
    for declared in (*cheader.LAYOUTS, *FILE_LAYOUTS):
        name = f"struct tsemu_{declared.name}"
        lines.append(f'    printf("{declared.name} %zu\\n", sizeof({name}));')
        for item in declared.fields:
            place = f"{declared.name}.{item.name}"
            lines.append(f'    printf("{place} %zu\\n", offsetof({name}, {item.name}));')
            size = f"sizeof((({name} *)0)->{item.name})"
            lines.append(f'    printf("{place}.size %zu\\n", {size});')
    for enumeration in cheader.ENUMS:
        for member in enumeration.__members__:
            name = f"TSEMU_{cheader.prefix(enumeration)}_{member}"
            lines.append(f'    printf("{name} %u\\n", (unsigned){name});')
    lines += [f'    printf("TSEMU_{name} %u\\n", TSEMU_{name});' for name in cheader.CONSTANTS]
    lines += ["    return 0;", "}", ""]
    source, program = folder / "print.c", folder / "print"
    source.write_text("\n".join(lines))
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run([compiler, *flags, "-o", program, source], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {name: int(number) for name, number in map(str.split, printed.splitlines())}


@pytest.mark.parametrize(
    "declared", [*cheader.LAYOUTS, *FILE_LAYOUTS], ids=lambda declared: declared.name
)
def test_sizes_and_offsets_are_the_compilers(compiler_says, declared):
    assert compiler_says[declared.name] == declared.size
    for item in declared.fields:
        assert compiler_says[f"{declared.name}.{item.name}"] == item.offset
        assert compiler_says[f"{declared.name}.{item.name}.size"] == item.size


def test_numbers_are_the_compilers(compiler_says):
    for enumeration in cheader.ENUMS:
        for name, member in enumeration.__members__.items():
            assert compiler_says[f"TSEMU_{cheader.prefix(enumeration)}_{name}"] == int(member)
    for name, value in cheader.CONSTANTS.items():
        assert compiler_says[f"TSEMU_{name}"] == value
