"""What a fixed-size layout is: a construct `Struct` that can also say its C and NumPy form.

Everything that a layout may contain is listed in `FORMATS`: unsigned little-endian integers,
arrays of them, and nested layouts. Offsets are natural, so construct, C and NumPy agree.
Declarations take construct's field types from here (`Int32ul`, `Array` ...): construct has no
type information, and this is the one module that imports it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import construct as cs
import numpy as np
from construct import Array, Int8ul, Int16ul, Int32ul, Int64ul

from tsemu.descriptors.errors import ParseError

__all__ = ["Array", "Field", "Int8ul", "Int16ul", "Int32ul", "Int64ul", "Layout", "layout"]

FORMATS = {
    "<B": ("uint8_t", "u1", 1),
    "<H": ("uint16_t", "<u2", 2),
    "<L": ("uint32_t", "<u4", 4),
    "<Q": ("uint64_t", "<u8", 8),
}


@dataclass(frozen=True)
class Field:
    """One field of a layout. `count` is 0 for a scalar; sizes and offsets are in bytes."""

    name: str
    offset: int
    c_type: str
    numpy_format: str | np.dtype[Any]
    width: int
    count: int
    doc: str

    @property
    def size(self) -> int:
        """Bytes that the field takes."""
        return self.width * max(self.count, 1)


@dataclass(frozen=True)
class Layout:
    """A named structure of fixed size, declared once for construct, C and NumPy.

    Raises `ValueError` when the fields do not add up to `size` bytes or are not naturally aligned.
    """

    name: str
    size: int
    doc: str
    struct: "cs.Struct[Any, Any]"
    fields: tuple[Field, ...] = field(init=False)

    def __post_init__(self) -> None:
        fields = tuple(_fields(self.struct))
        end = fields[-1].offset + fields[-1].size
        if end != self.size:
            raise ValueError(f"{self.name}: the fields take {end} bytes, {self.size} are declared")
        for item in fields:
            alignment = min(item.width, 8) if item.c_type.startswith("uint") else 8
            if item.offset % alignment:
                raise ValueError(f"{self.name}.{item.name}: offset {item.offset} is not aligned")
        object.__setattr__(self, "fields", fields)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy structured type of the same size and offsets."""
        formats = [(f.numpy_format, (f.count,)) if f.count else f.numpy_format for f in self.fields]
        return np.dtype(
            {
                "names": [f.name for f in self.fields],
                "formats": formats,
                "offsets": [f.offset for f in self.fields],
                "itemsize": self.size,
            }
        )

    def offset(self, name: str) -> int:
        """Offset of a field in bytes. Raises `KeyError` for an unknown name."""
        for item in self.fields:
            if item.name == name:
                return item.offset
        raise KeyError(name)

    def build(self, values: dict[str, Any]) -> bytes:
        """Bytes of `values`; fields that are not named are zero.

        Raises `ParseError` for an unknown field or a value that does not fit.
        """
        known = {f.name: f for f in self.fields}
        for name, value in values.items():
            if name not in known:
                raise ParseError(f"{self.name}.{name}", value, "a field of this layout")
        full = {f.name: _default(f) for f in self.fields} | values
        try:
            return bytes(self.struct.build(full))
        except (cs.ConstructError, TypeError, AttributeError) as error:
            for item in self.fields:
                _check_fit(f"{self.name}.{item.name}", item, full[item.name])
            raise ParseError(self.name, values, "values that fit its fields") from error

    def parse(self, data: bytes | memoryview, path: str = "") -> "cs.Container[Any]":
        """Fields of `data`, as a construct container.

        `path` is what error messages call this structure. Raises `ParseError` when `data` is
        shorter or longer than the layout.
        """
        where = path or self.name
        if len(data) != self.size:
            raise ParseError(f"{where}.length", len(data), f"{self.size} bytes")
        return self.struct.parse(bytes(data))


def _check_fit(path: str, item: Field, value: object) -> None:
    """Raise `ParseError` when `value` does not fit the integer field or integer array `item`."""
    if isinstance(item.numpy_format, np.dtype):
        return
    if not item.count:
        elements = [(path, value)]
    elif isinstance(value, Sequence | np.ndarray) and len(value) == item.count:
        elements = [(f"{path}[{index}]", element) for index, element in enumerate(value)]
    else:
        raise ParseError(path, value, f"a sequence of {item.count} numbers")
    bits = 8 * item.width
    for where, element in elements:
        if not isinstance(element, int | np.integer) or not 0 <= int(element) < 1 << bits:
            raise ParseError(where, element, f"an unsigned {bits}-bit number")


def _default(item: Field) -> object:
    zero: object = 0
    if isinstance(item.numpy_format, np.dtype):
        zero = dict.fromkeys(item.numpy_format.names or (), 0)
    return [zero] * item.count if item.count else zero


def _fields(struct: "cs.Struct[Any, Any]") -> Iterator[Field]:
    offset = 0
    for renamed in struct.subcons:
        inner, count = renamed.subcon, 0
        while isinstance(inner, cs.Renamed):  # `name / field * doc` wraps twice
            inner = inner.subcon
        if isinstance(inner, cs.Array):
            inner, count = inner.subcon, int(inner.count)
        doc = str(renamed.docs or "")
        if isinstance(inner, cs.FormatField):
            c_type, numpy_format, width = FORMATS[inner.fmtstr]
            item = Field(str(renamed.name), offset, c_type, numpy_format, width, count, doc)
        else:
            nested = getattr(inner, "tsemu_layout", None)
            if nested is None:
                raise ValueError(f"{renamed.name}: {inner!r} has no C form")
            c_type = f"struct tsemu_{nested.name}"
            item = Field(str(renamed.name), offset, c_type, nested.dtype, nested.size, count, doc)
        yield item
        offset += item.size


def layout(name: str, size: int, doc: str, *subcons: object) -> Layout:
    """Declare a layout from construct fields (`"name" / Int32ul * "what it is"`)."""
    struct: cs.Struct[Any, Any] = cs.Struct(*subcons)
    declared = Layout(name, size, doc, struct)
    struct.tsemu_layout = declared
    return declared
