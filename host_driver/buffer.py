"""Buffers in the memory of a context: allocation, views, staging.

Host buffers lie in the host heap, which both sides map: `Buffer.array` is a view of it. Device
buffers are reached by copy tasks through the host heap.
"""

from __future__ import annotations

import math
import operator
import threading
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tsemu.host_driver._driver import ffi, lib
from tsemu.host_driver.errors import ClosedError, InvalidError, NoResourceError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from tsemu.host_driver.context import Context
    from tsemu.host_driver.info import ContextInfo
    from tsemu.host_driver.stream import Stream

STAGING_BYTES = 1 << 20
"""Most bytes that one copy of the staging takes."""
LONGEST = 1 << 48


class HostHeap:
    """The host heap as NumPy sees it: mapped again, so that views outlive the context."""

    def __init__(self, gate: Any, info: ContextInfo) -> None:  # noqa: ANN401 - a cffi pointer
        self._gate = gate
        self._info = info
        self._lock = threading.Lock()
        self._maps: dict[bool, NDArray[np.uint8]] = {}

    def view(self, address: int, size: int, *, on_device: bool = False) -> NDArray[np.uint8]:
        """Bytes at a device address; `on_device` looks into the device heap (loading only)."""
        base = self._info.device_base if on_device else self._info.host_base
        with self._lock:
            heap = self._maps.get(on_device)
            if heap is None:
                heap = self._maps[on_device] = self._map(on_device=on_device)
        return heap[address - base : address - base + size]

    def _map(self, *, on_device: bool) -> NDArray[np.uint8]:
        size = self._info.device_heap_size if on_device else self._info.host_heap_size
        start = lib.handle_heap(self._gate, on_device)
        if not start:
            raise ClosedError("the context has been closed", hint="open a device first")
        pointer = lib.handle_map_again(start, size)
        if pointer == ffi.NULL:
            raise NoResourceError(
                f"the system does not map {size} bytes",
                field="device_heap_mib" if on_device else "host_heap_mib",
                value=size >> 20,
                hint="open the context with smaller heaps",
            )
        owned = ffi.gc(pointer, lambda mapped: lib.handle_unmap(mapped, size))
        return np.frombuffer(ffi.buffer(owned, size), np.uint8)


class Buffer:
    """A piece of a context's memory. Made by `Context.alloc`; a context manager that frees it.

    Attributes:
        address: its device address, aligned as the device says (`info.alignment`).
        nbytes: its size in bytes, as asked for.
        shape: of the array that it holds.
        dtype: of its elements.
        where: "host" or "device".
    """

    __slots__ = ("_free", "address", "context", "dtype", "nbytes", "shape", "where")

    def __init__(
        self,
        context: Context,
        address: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        where: Literal["host", "device"],
    ) -> None:
        self.context = context
        self.address = address
        self.shape = shape
        self.dtype = dtype
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.where = where
        self._free = False

    def __repr__(self) -> str:
        state = ", freed" if self._free else ""
        return f"<Buffer {self.nbytes} bytes at {self.address:#x} ({self.where}){state}>"

    @property
    def array(self) -> NDArray[Any]:
        """A NumPy view of a host buffer: what a task reads and writes.

        It stays readable after the buffer has been freed, but then shows what comes next. Raises
        `InvalidError` for a device buffer, `ClosedError` after it has been freed.
        """
        self.check()
        if self.where != "host":
            raise InvalidError(
                "the host cannot look into a device buffer",
                field="where",
                value=self.where,
                hint="use read() and write(), which copy",
            )
        view = self.context.heap.view(self.address, self.nbytes)
        return view.view(self.dtype).reshape(self.shape)

    def write(self, data: ArrayLike, stream: Stream | None = None) -> None:
        """Put an array into the buffer, from its start; converted to its dtype.

        For a device buffer that takes copy tasks in `stream` (None: the default one) and waits
        for them. Raises `InvalidError` when the data is larger than the buffer, or cannot be
        converted.
        """
        self.check()
        try:
            flat = np.ascontiguousarray(data, self.dtype).reshape(-1).view(np.uint8)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidError(
                f"data cannot be an array of {self.dtype} ({error})",
                field="data",
                value=type(data).__name__,
                hint="convert it first, or allocate a buffer of another dtype",
            ) from error
        if flat.nbytes > self.nbytes:
            raise InvalidError(
                f"data has {flat.nbytes} bytes, the buffer {self.nbytes}",
                field="data",
                value=flat.nbytes,
                limit=self.nbytes,
                hint="allocate a larger buffer",
            )
        if self.where == "host":
            self.context.heap.view(self.address, flat.nbytes)[:] = flat
            return
        self._stage(flat, stream, to_device=True)

    def read(self, stream: Stream | None = None) -> NDArray[Any]:
        """Return a copy of the buffer as an array; a device buffer is read by copy tasks."""
        self.check()
        if self.where == "host":
            return self.array.copy()
        flat = np.empty(self.nbytes, np.uint8)
        self._stage(flat, stream, to_device=False)
        return flat.view(self.dtype).reshape(self.shape)

    def free(self) -> None:
        """Give the memory back; freeing twice is no error.

        Tasks in flight may still write to the address: wait for them first.
        """
        if self._free:
            return
        if self.context.is_open:
            code = lib.handle_free(self.context.gate, self.address)
            if code < 0 and code != lib.TSEMU_E_CLOSED:
                raise self.context.error(code)
        self._free = True

    def close(self) -> None:
        """The same as `free`."""
        self.free()

    def check(self) -> None:
        """Raise `ClosedError` when the buffer or its context is gone."""
        if not self.context.is_open:
            raise self.context.closed_error()
        if self._free:
            raise ClosedError(
                f"the buffer at {self.address:#x} has been freed",
                field="buffer",
                value=self.address,
                hint="allocate another one",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()

    def _stage(self, flat: NDArray[np.uint8], stream: Stream | None, *, to_device: bool) -> None:
        use = stream or self.context.default_stream
        if not flat.nbytes:
            return
        with self.context.alloc(min(flat.nbytes, STAGING_BYTES)) as staging:
            for start in range(0, flat.nbytes, STAGING_BYTES):
                size = min(STAGING_BYTES, flat.nbytes - start)
                there = self.address + start
                if to_device:
                    staging.array[:size] = flat[start : start + size]
                    use.memcpy(there, staging, size).wait()
                else:
                    use.memcpy(staging, there, size).wait()
                    flat[start : start + size] = staging.array[:size]


def element(dtype: DTypeLike) -> np.dtype[Any]:
    """The dtype of a buffer's elements; raises `InvalidError` for what is none."""
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise InvalidError(
            f"dtype {dtype!r} is no NumPy type ({error})",
            field="dtype",
            value=dtype,
            hint='use a dtype of plain numbers, such as "u1" or "float32"',
        ) from error


def allocate(
    context: Context,
    shape: int | Sequence[int],
    dtype: np.dtype[Any],
    where: Literal["host", "device"],
) -> Buffer:
    """Allocate a buffer; see `Context.alloc`."""
    try:
        lengths = (
            tuple(operator.index(each) for each in shape)
            if isinstance(shape, (tuple, list))
            else (operator.index(shape),)  # type: ignore[arg-type]
        )
    except TypeError:
        lengths = (-1,)
    size = math.prod(lengths) * dtype.itemsize if min(lengths, default=1) >= 0 else -1
    if not 1 <= size <= LONGEST:
        raise InvalidError(
            f"shape {shape!r} of {dtype} is no size between 1 byte and {LONGEST} bytes",
            field="shape",
            value=shape,
            limit=LONGEST,
            hint="give a number of elements, or a tuple of them",
        )
    if where not in ("host", "device"):
        raise InvalidError(
            f"where {where!r} is no memory",
            field="where",
            value=where,
            hint='use "host" or "device"',
        )
    if dtype.hasobject:
        raise InvalidError(
            f"dtype {dtype} holds Python objects",
            field="dtype",
            value=dtype,
            hint="use a dtype of plain numbers",
        )
    address = ffi.new("uint64_t *")
    code = lib.handle_alloc(context.gate, where == "device", size, address)
    if code < 0:
        raise context.error(code)
    return Buffer(context, address[0], lengths, dtype, where)


def range_of(context: Context, place: Buffer | int, size: int, field: str) -> int:
    """Device address of `size` bytes at a buffer or address; the library checks plain addresses."""
    length: object = size
    if not isinstance(length, int) or isinstance(length, bool) or not 0 <= length <= LONGEST:
        raise InvalidError(
            f"size {size!r} is not a number of bytes from 0 to {LONGEST}",
            field="size",
            value=size,
            limit=LONGEST,
            hint="give the number of bytes",
        )
    if isinstance(place, Buffer):
        place.check()
        if place.context is not context:
            raise InvalidError(
                f"{field} {place!r} belongs to context {place.context.name!r}",
                field=field,
                value=place.address,
                hint=f"use a buffer of context {context.name!r}",
            )
        if size > place.nbytes:
            raise InvalidError(
                f"size {size} is larger than the {place.nbytes} bytes of {field}",
                field="size",
                value=size,
                limit=place.nbytes,
                hint="copy less, or allocate a larger buffer",
            )
        return place.address
    try:
        address = operator.index(place)
    except TypeError:
        address = -1
    if not 0 <= address < 1 << 64:
        raise InvalidError(
            f"{field} {place!r} is neither a buffer nor a device address",
            field=field,
            value=place,
            hint="give a Buffer, or buffer.address plus an offset",
        )
    return address
