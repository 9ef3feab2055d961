"""The small tables of a program file: streams, engine classes, kernels, buffers, meta data.

Each table has a Python form and its bytes, and is checked in both directions by the same rules.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tsemu.descriptors import program_layout as form
from tsemu.descriptors.codes import MAX_CLASSES, PRIORITY_LEVELS, StreamFlag
from tsemu.descriptors.errors import ParseError
from tsemu.descriptors.layout import Layout
from tsemu.descriptors.program_layout import BufferFlag, Placement

Buffered = bytes | bytearray | memoryview | np.ndarray[Any, Any]
"""What the bytes of a section may come from."""


@dataclass(frozen=True)
class Stream:
    """A stream of a program.

    `priority` (0 highest to 7) says what its tasks had when they did not choose; only the task
    records count. `limit` is the number of tasks that it may hold: 0 is the device's default,
    0xFFFFFFFF the whole window.
    """

    name: str
    in_order: bool = False
    priority: int = 0
    limit: int = form.DEVICE_LIMIT


@dataclass(frozen=True)
class Buffer:
    """A buffer of a program: `size` and `alignment` in bytes.

    `data` are its first bytes when the program starts; the rest is zero. A reader leaves `data`
    empty and hands the bytes out with `Program.buffer_data`.
    """

    size: int
    alignment: int = 64
    placement: Placement = Placement.DEVICE
    data: Buffered = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True)
class Tables:
    """Everything of a program except its tasks."""

    streams: tuple[Stream, ...]
    classes: tuple[str, ...]
    kernels: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    events: int

    def check(self, root: str = "program") -> None:
        """Raise `ParseError` for the first table entry that breaks a rule of the format."""
        _check_count(f"{root}.streams.count", len(self.streams), form.MAX_STREAMS)
        _check_count(f"{root}.classes.count", len(self.classes), MAX_CLASSES)
        _check_count(f"{root}.kernels.count", len(self.kernels), form.MAX_KERNELS)
        _check_count(f"{root}.buffers.count", len(self.buffers), form.MAX_BUFFERS)
        _check_count(f"{root}.events.count", self.events, form.MAX_PROGRAM_EVENTS)
        _check_names(f"{root}.streams", [stream.name for stream in self.streams], ".name")
        _check_names(f"{root}.classes", self.classes, "")
        _check_names(f"{root}.kernels", self.kernels, "")
        for index, stream in enumerate(self.streams):
            _check_stream(f"{root}.streams[{index}]", stream)
        for index, buffer in enumerate(self.buffers):
            _check_buffer(f"{root}.buffers[{index}]", buffer)


def _check_count(path: str, value: int, most: int) -> None:
    if not 0 <= value <= most:
        raise ParseError(path, value, f"0 to {most}")


def _check_names(path: str, names: Sequence[str], suffix: str) -> None:
    seen: dict[str, int] = {}
    for index, name in enumerate(names):
        where = f"{path}[{index}]{suffix}"
        if not name or not name.isprintable():
            raise ParseError(where, name, "a name of at least one printable character")
        if name in seen:
            raise ParseError(where, name, f"another name than that of {path}[{seen[name]}]")
        seen[name] = index


def _check_stream(path: str, stream: Stream) -> None:
    if not 0 <= stream.priority < PRIORITY_LEVELS:
        raise ParseError(f"{path}.priority", stream.priority, f"0 to {PRIORITY_LEVELS - 1}")
    if not 0 <= stream.limit <= form.WINDOW_LIMIT:
        raise ParseError(f"{path}.limit", stream.limit, f"0 to {form.WINDOW_LIMIT}")


def _check_buffer(path: str, buffer: Buffer) -> None:
    if not 1 <= buffer.size <= form.MAX_BUFFER_BYTES:
        raise ParseError(f"{path}.size", buffer.size, f"1 to {form.MAX_BUFFER_BYTES} bytes")
    alignment = buffer.alignment
    if not 0 < alignment <= 1 << 31 or alignment & (alignment - 1):
        raise ParseError(f"{path}.alignment", alignment, "a power of two, 1 to 2147483648")
    if buffer.placement not in tuple(Placement):
        raise ParseError(f"{path}.placement", buffer.placement, "0 (host) or 1 (device)")


def encode_name(path: str, name: str, width: int, encoding: str = "utf-8") -> bytes:
    """Zero-filled bytes of `name`. Raises `ParseError` when it does not fit or has no code."""
    try:
        data = name.encode(encoding)
    except UnicodeEncodeError as error:
        raise ParseError(path, name, f"{encoding.upper()} text") from error
    if len(data) > width:
        raise ParseError(path, name, f"at most {width} bytes of {encoding.upper()} text")
    return data.ljust(width, b"\0")


def decode_name(path: str, data: bytes, encoding: str = "utf-8") -> str:
    """The name in zero-filled `data`. Raises `ParseError` when it is no such text."""
    text = data.rstrip(b"\0")
    if b"\0" in text:
        raise ParseError(path, data, "text, then only zero bytes")
    try:
        return text.decode(encoding)
    except UnicodeDecodeError as error:
        raise ParseError(path, data, f"{encoding.upper()} text") from error


def encode_streams(streams: Sequence[Stream], root: str = "program") -> bytes:
    """Bytes of the STREAMS section."""
    return b"".join(
        form.PROGRAM_STREAM.build(
            {
                "name": encode_name(f"{root}.streams[{index}].name", stream.name, 48),
                "limit": stream.limit,
                "flags": int(StreamFlag.IN_ORDER) if stream.in_order else 0,
                "priority": stream.priority,
            }
        )
        for index, stream in enumerate(streams)
    )


def decode_streams(data: bytes, root: str = "program") -> tuple[Stream, ...]:
    """Streams of a STREAMS section."""
    streams = []
    for index, record in enumerate(_records(form.PROGRAM_STREAM, data)):
        path = f"{root}.streams[{index}]"
        if int(record["flags"]) & ~int(StreamFlag.IN_ORDER):
            raise ParseError(f"{path}.flags", int(record["flags"]), "no bit but 0 (in order)")
        for name in ("reserved0", "reserved1"):
            if record[name]:
                raise ParseError(f"{path}.{name}", int(record[name]), "0")
        streams.append(
            Stream(
                decode_name(f"{path}.name", record["name"].tobytes()),
                bool(record["flags"]),
                int(record["priority"]),
                int(record["limit"]),
            )
        )
    return tuple(streams)


def encode_names(kind: str, names: Sequence[str], root: str = "program") -> bytes:
    """Bytes of the CLASSES or KERNELS section (`kind` is "classes" or "kernels")."""
    width, encoding = _NAME_FORMS[kind]
    return b"".join(
        encode_name(f"{root}.{kind}[{index}]", name, width, encoding)
        for index, name in enumerate(names)
    )


def decode_names(kind: str, data: bytes, root: str = "program") -> tuple[str, ...]:
    """Names of a CLASSES or KERNELS section."""
    width, encoding = _NAME_FORMS[kind]
    return tuple(
        decode_name(f"{root}.{kind}[{index}]", data[start : start + width], encoding)
        for index, start in enumerate(range(0, len(data), width))
    )


_NAME_FORMS = {
    "classes": (form.PROGRAM_CLASS.size, "ascii"),
    "kernels": (form.PROGRAM_KERNEL.size, "utf-8"),
}


def encode_buffers(buffers: Sequence[Buffer], root: str = "program") -> tuple[bytes, list[bytes]]:
    """Bytes of the BUFFERS section, and the pieces of the DATA section."""
    records, pieces, offset = [], [], 0
    for index, buffer in enumerate(buffers):
        data = (
            np.ascontiguousarray(buffer.data).tobytes()
            if isinstance(buffer.data, np.ndarray)
            else bytes(buffer.data)
        )
        if len(data) > buffer.size:
            raise ParseError(
                f"{root}.buffers[{index}].data", len(data), f"at most {buffer.size} bytes (size)"
            )
        values = {
            "size": buffer.size,
            "alignment": buffer.alignment,
            "placement": int(buffer.placement),
        }
        if data:
            values |= {
                "data_offset": offset,
                "data_length": len(data),
                "flags": int(BufferFlag.DATA),
            }
            pieces.append(data)
            offset += len(data)
        records.append(form.PROGRAM_BUFFER.build(values))
    return b"".join(records), pieces


def decode_buffers(
    data: bytes, data_bytes: int, root: str = "program"
) -> tuple[tuple[Buffer, ...], list[tuple[int, int]]]:
    """Buffers of a BUFFERS section, and where each one's data is in the DATA section.

    `data_bytes` is the length of the DATA section; the places are (offset, length) in bytes.
    """
    buffers, places = [], []
    for index, record in enumerate(_records(form.PROGRAM_BUFFER, data)):
        path = f"{root}.buffers[{index}]"
        size, flags = int(record["size"]), int(record["flags"])
        offset, length = int(record["data_offset"]), int(record["data_length"])
        if flags & ~int(BufferFlag.DATA):
            raise ParseError(f"{path}.flags", flags, "no bit but 0 (data)")
        if int(record["placement"]) not in tuple(Placement):
            raise ParseError(f"{path}.placement", int(record["placement"]), "0 (host), 1 (device)")
        if not flags and (offset or length):
            field_name = "data_offset" if offset else "data_length"
            raise ParseError(f"{path}.{field_name}", offset or length, "0 (no data flag)")
        if flags and not 1 <= length <= size:
            raise ParseError(f"{path}.data_length", length, f"1 to {size} bytes (size)")
        if offset + length > data_bytes:
            raise ParseError(
                f"{path}.data_offset",
                offset,
                f"{length} bytes inside the data section of {data_bytes} bytes",
            )
        buffers.append(Buffer(size, int(record["alignment"]), Placement(int(record["placement"]))))
        places.append((offset, length))
    return tuple(buffers), places


def encode_meta(meta: dict[str, Any], root: str = "program") -> bytes:
    """Bytes of the META section: JSON with sorted keys."""
    try:
        data = json.dumps(meta, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ParseError(f"{root}.meta", str(error), "an object that JSON can express") from error
    if len(data) > form.MAX_META_BYTES:
        raise ParseError(f"{root}.meta.length", len(data), f"at most {form.MAX_META_BYTES} bytes")
    return data


def decode_meta(data: bytes, root: str = "program") -> dict[str, Any]:
    """The JSON object of a META section."""
    try:
        meta = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{root}.meta", str(error), "one JSON object in UTF-8") from error
    if not isinstance(meta, dict):
        raise ParseError(f"{root}.meta", type(meta).__name__, "a JSON object")
    return meta


def _records(declared: Layout, data: bytes) -> np.ndarray[Any, Any]:
    return np.frombuffer(data, declared.dtype)
