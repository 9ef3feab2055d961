"""The reader that turns C headers into what cffi reads."""

import runpy

import pytest

from tsemu.host_driver._driver import ffi, lib


@pytest.fixture(scope="module")
def declarations(root):
    return runpy.run_path(str(root / "host_driver/build_driver.py"))["declarations"]


def test_what_cffi_does_not_read_goes(declarations):
    text = declarations(
        "#ifndef A_H\n#define A_H\n#include <x.h>\n/* a\n * comment */\n"
        "#define TSEMU_NUMBER 4u /* words */\n"
        '#ifdef __cplusplus\nextern "C" {\n#endif\n'
        "struct a { int x; };\n"
        '_Static_assert(sizeof(struct a) ==\n    4, "a");\n'
        "static inline int f(int x,\n                    int y)\n{\n    if (x) {\n"
        "        return y;\n    }\n    return x;\n}\n"
        "#ifdef __cplusplus\n}\n#endif\n#endif\n"
    )
    kept = " ".join(text.split())
    assert kept == "#define TSEMU_NUMBER ... struct a { int x; }; int f(int x, int y);"


def test_layouts_and_numbers_are_the_compilers(root):
    assert ffi.sizeof("struct tsemu_cqe") == 64
    assert ffi.sizeof("driver_program_task") == 72
    assert ffi.sizeof("struct tsemu_control_page") == 4096
    assert lib.TSEMU_NO_LIMIT == 2**64 - 1
    assert lib.TSEMU_E_FAILED == -13
