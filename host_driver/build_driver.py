"""Builder of `tsemu.host_driver._driver`: the C library as Python sees it (cffi, API mode).

What cffi needs to know is read from the C headers, so that no layout is written down twice. The
headers keep to what this small reader understands: comments, `#define NAME NUMBER`, structs,
enums, typedefs and prototypes.
"""

from __future__ import annotations

import re
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parent.parent
HEADERS = (
    "descriptors/include/tsemu/abi.h",
    "host_driver/include/tsemu.h",
    "host_driver/csrc/driver.h",
    "host_driver/csrc/gate.h",
    "host_driver/csrc/handles.h",
)
SOURCE = """
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <handles.h>
"""

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_CPLUSPLUS = re.compile(r"^#ifdef __cplusplus\n.*?^#endif\n", re.DOTALL | re.MULTILINE)
_DEFINE = re.compile(r"^#define[ \t]+(TSEMU_\w+)[ \t]+\S.*$", re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*#(?!define TSEMU_\w+ \.\.\.$).*$", re.MULTILINE)
_ASSERT = re.compile(r"^(?:_Static_assert|TSEMU_STATIC_ASSERT)\(.*?\);\n", re.DOTALL | re.MULTILINE)
_BODY = re.compile(r"^static (?:inline )?([^;{}]*?\))\s*\n\{.*?^\}\n", re.DOTALL | re.MULTILINE)


def declarations(header: str) -> str:
    """Return what a C header declares, as cffi reads it.

    Numbers become `#define NAME ...` (the compiler tells them), functions with a body become
    prototypes, everything else of the preprocessor goes.
    """
    text = _COMMENT.sub("", header)
    text = _CPLUSPLUS.sub("", text)
    text = _ASSERT.sub("", text)
    text = _BODY.sub(r"\1;\n", text)
    text = _DEFINE.sub(r"#define \1 ...", text)
    return _DIRECTIVE.sub("", text)


def build() -> FFI:
    """Return the builder of the extension module."""
    ffi = FFI()
    for header in HEADERS:
        ffi.cdef(declarations((ROOT / header).read_text(encoding="utf-8")))
    # Include folders and the library to link to are setup.py's business.
    ffi.set_source("tsemu.host_driver._driver", SOURCE)
    return ffi


ffibuilder = build()
