"""Builder of `tsemu.ts_firmware._device`: binds `soc/device.h`, the C API of the device model.

The declarations are taken from the header itself, so there is no second list of fields: comments
and directives are removed, and the values of its own and the ABI's `#define`s are put in.
"""

import re
import sys
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "ts_firmware" / "soc" / "device.h"
ABI = ROOT / "descriptors" / "include" / "tsemu" / "abi.h"
INCLUDE = ["descriptors/include", "mailbox/include", "ts_firmware/core", "ts_firmware/soc"]
SOURCES = ("mailbox/csrc/crc32c.c", "ts_firmware/core/*.c", "ts_firmware/soc/*.c")


def declarations() -> str:
    """Return the declarations of `device.h` in the form that cffi reads."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)
    define = re.compile(r"^#define\s+(\w+)\s+(\d+)u?\s*$", re.MULTILINE)
    constants = dict(define.findall(ABI.read_text(encoding="utf-8")))
    constants |= dict(define.findall(text))
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    return re.sub(r"\b[A-Z]\w+\b", lambda word: constants.get(word[0], word[0]), text)


def sources() -> list[str]:
    """Return the C files of the device, relative to the repository's root."""
    return sorted(str(path.relative_to(ROOT)) for glob in SOURCES for path in ROOT.glob(glob))


ffibuilder = FFI()
ffibuilder.cdef(declarations())
ffibuilder.set_source("tsemu.ts_firmware._device", '#include "device.h"\n')

if __name__ == "__main__":
    sys.stdout.write(declarations())
