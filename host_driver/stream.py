"""Streams: where tasks are launched.

`Stream.launch` is the one path in this package where nanoseconds count: one call into the library
with plain integers, no allocation but that of the handle, and explanations only when it failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsemu.descriptors.codes import PRIORITY_LEVELS, ControlKind, Opcode, SqeFlag
from tsemu.host_driver._driver import ffi, lib
from tsemu.host_driver.arguments import addresses, event_number, in_range, repeated
from tsemu.host_driver.buffer import Buffer, range_of
from tsemu.host_driver.errors import InvalidError, in_terms_of
from tsemu.host_driver.task import Task
from tsemu.host_driver.units import limit as time_limit
from tsemu.host_driver.units import microseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsemu.host_driver.context import Context
    from tsemu.host_driver.event import Event

_launch = lib.handle_launch
_launch_plain = lib.handle_launch_plain
_new = object.__new__
_NAMES: dict[Opcode | None, dict[str, str]] = {
    None: {"engine_class": "engine"},
    Opcode.MEMCPY: {"engine_class": "engine", "argument": "source", "length": "size"},
    Opcode.MEMSET: {"engine_class": "engine", "argument": "pattern", "length": "size"},
}
"""What fields of a task are called in the arguments of this module."""
_FIELDS = {
    "cycles": 0xFFFF_FFFF,
    "blocks": 0xFFFF,
    "bytes_read": 0xFFFF_FFFF,
    "bytes_written": 0xFFFF_FFFF,
    "kernel": 0xFFFF,
    "priority": PRIORITY_LEVELS - 1,
    "argument": 0xFFFF_FFFF_FFFF_FFFF,
    "value": 0xFFFF_FFFF,
    "tag": 0xFFFF_FFFF_FFFF_FFFF,
}


class Stream:
    """A queue of tasks. Made by `Context.create_stream`; `Context.default_stream` always exists."""

    __slots__ = (
        "__weakref__",
        "_classes",
        "_priority",
        "_record",
        "_stream",
        "_tasks",
        "context",
        "in_order",
        "limit",
        "name",
        "number",
    )  # fmt: skip

    def __init__(
        self,
        context: Context,
        number: int,
        *,
        in_order: bool,
        priority: int,
        limit: int,
        name: str | None = None,
    ) -> None:
        self.context = context
        self.number = number
        self.in_order = in_order
        self._priority = priority
        self.limit = limit
        self.name = name or ("default" if number == 0 else f"stream-{number}")
        self._record = ffi.new(
            "struct handle_stream *",
            {"gate": context.gate, "stream": number, "priority": priority},
        )
        self._stream = int(ffi.cast("uintptr_t", self._record))
        self._tasks = context.tasks
        self._classes = context.classes

    @property
    def priority(self) -> int:
        """Priority of tasks that name none: 0 (highest) to 7."""
        return self._priority

    def __repr__(self) -> str:
        order = "in order" if self.in_order else "out of order"
        return f"<Stream {self.number} {self.name!r}, {order}>"

    @staticmethod
    def check(*, priority: int, limit: int | None, slots: int) -> None:
        """Check what a stream is made of; raises `InvalidError`."""
        in_range("priority", priority, 0, PRIORITY_LEVELS - 1)
        if limit is not None:
            in_range("limit", limit, 1, slots)

    def launch(  # noqa: C901 - no call that can be avoided
        self,
        kernel: str | int = 0,
        *,
        cycles: int,
        blocks: int = 1,
        bytes_read: int = 0,
        bytes_written: int = 0,
        engine: str = "aicore",
        priority: int | None = None,
        after: Sequence[Task] = (),
        argument: int = 0,
        timeout: int | str | None = None,
        value: int = 0,
        tag: int = 0,
        gang: bool = False,
        block: bool = True,
    ) -> Task:
        """Launch a kernel and return its handle.

        Args:
            kernel: its name, or its number.
            cycles: of a core, per block.
            blocks: 1 to 65535; each runs on one core, several at the same time.
            bytes_read: per block, for the cost model.
            bytes_written: per block, for the cost model.
            engine: name of the engine class.
            priority: 0 (highest) to 7; None is the stream's.
            after: tasks that must have succeeded before it starts, at most 1024.
            argument: device address of its arguments, in a buffer of this context; 0: none.
            timeout: limit of the time in which its blocks run, in whole microseconds.
            value: scheduling value (rank or deadline), for policies that look at it.
            tag: number that its completion carries.
            gang: True: all its blocks start at the same instant, so at most one per core of the
                class.
            block: False: raise `QueueFullError` instead of waiting for room.

        Raises:
            InvalidError: an argument is out of range; nothing was launched.
            QueueFullError: not asked to block, and window, stream limit or ring is full.
            NoResourceError: the launch waits for room that can never come.
            ClosedError: the context is closed.
        """
        first = second = third = 0
        task = None
        try:
            count = len(after)
            if count:
                if count == 1:
                    first = after[0].record
                elif count == 2:
                    first = after[0].record
                    second = after[1].record
                elif count == 3:
                    first = after[0].record
                    second = after[1].record
                    third = after[2].record
            if count > 3 or gang or not block:
                return self._launch_slowly(
                    kernel, cycles, blocks, bytes_read, bytes_written, engine, priority,
                    after, argument, timeout, value, tag, gang=gang, block=block,
                )  # fmt: skip
            tasks = self._tasks
            slab = tasks.current
            address = next(slab.fresh, 0)
            if address:
                task = _new(Task)
                task.slab = slab
                task.record = address
            else:
                task = tasks.take()
                address = task.record
            number = kernel if kernel.__class__ is int else self.context.kernel(kernel)
            if (
                blocks == 1
                and priority is None
                and bytes_read == 0
                and bytes_written == 0
                and argument == 0
                and timeout is None
                and value == 0
                and tag == 0
            ):
                code = _launch_plain(
                    self._stream,
                    address,
                    first,
                    second,
                    third,
                    cycles,
                    number,
                    self._classes[engine],
                )
            else:
                code = _launch(
                    self._stream,
                    address,
                    first,
                    second,
                    third,
                    cycles,
                    number,
                    self._classes[engine],
                    blocks,
                    bytes_read,
                    bytes_written,
                    self.priority if priority is None else priority,
                    argument,
                    0 if timeout is None else microseconds(timeout),
                    value,
                    tag,
                )
        except (TypeError, OverflowError, AttributeError, KeyError, ValueError):
            code = 1  # the slow path says which argument it was
        if code == 0 and task is not None:
            return task
        if task is not None:
            lib.handle_unused(task.record)
        return self._launch_slowly(
            kernel, cycles, blocks, bytes_read, bytes_written, engine, priority, after, argument,
            timeout, value, tag, gang=gang, block=block,
        )  # fmt: skip

    def _launch_slowly(
        self,
        kernel: str | int,
        cycles: int,
        blocks: int,
        bytes_read: int,
        bytes_written: int,
        engine: str,
        priority: int | None,
        after: Sequence[Task],
        argument: int,
        timeout: int | str | None,
        value: int,
        tag: int,
        *,
        gang: bool,
        block: bool,
    ) -> Task:
        """Launch a kernel with any number of predecessors; waits, and explains what is wrong."""
        number = self.context.kernel(kernel) if isinstance(kernel, str) else kernel
        numbers = {
            "cycles": cycles,
            "blocks": blocks,
            "bytes_read": bytes_read,
            "bytes_written": bytes_written,
            "kernel": number,
            "argument": argument,
            "value": value,
        }
        desc: dict[str, int] = {
            name: in_range(name, each, 1 if name == "blocks" else 0, _FIELDS[name])
            for name, each in numbers.items()
        }
        desc["engine_class"] = self.context.info.class_for(engine, copies=False)
        desc["timeout_us"] = microseconds(timeout)
        desc["flags"] = int(SqeFlag.GANG) if gang else 0
        return self._submit(Opcode.KERNEL, desc, after, priority, tag, block=block)

    def memcpy(
        self,
        destination: Buffer | int,
        source: Buffer | int,
        size: int | None = None,
        *,
        after: Sequence[Task] = (),
        engine: str | None = None,
        priority: int | None = None,
        tag: int = 0,
        block: bool = True,
    ) -> Task:
        """Copy bytes between buffers or device addresses of this context, as a task.

        `size` in bytes; None is the smaller of the buffers. The bytes appear at the end of the
        task, in one step. Raises as `launch` does; `InvalidError` for addresses that are not
        aligned, or ranges that leave the buffer or the context's memory.
        """
        if size is None:
            sizes = [each.nbytes for each in (destination, source) if isinstance(each, Buffer)]
            if not sizes:
                raise InvalidError(
                    "size is missing",
                    field="size",
                    hint="say how many bytes to copy between plain addresses",
                )
            size = min(sizes)
        desc = {
            "argument": range_of(self.context, source, size, "source"),
            "destination": range_of(self.context, destination, size, "destination"),
            "length": size,
            "engine_class": self._copy_class(engine),
        }
        return self._submit(Opcode.MEMCPY, desc, after, priority, tag, block=block)

    def memset(
        self,
        destination: Buffer | int,
        pattern: int | bytes = 0,
        size: int | None = None,
        *,
        after: Sequence[Task] = (),
        engine: str | None = None,
        priority: int | None = None,
        tag: int = 0,
        block: bool = True,
    ) -> Task:
        """Fill a buffer with a byte (0 to 255), or with 1, 2, 4 or 8 bytes repeated, as a task.

        `size` in bytes; None is that of the buffer. Raises as `memcpy` does.
        """
        if size is None:
            if not isinstance(destination, Buffer):
                raise InvalidError(
                    "size is missing", field="size", hint="say how many bytes to fill"
                )
            size = destination.nbytes
        desc = {
            "argument": repeated(pattern),
            "destination": range_of(self.context, destination, size, "destination"),
            "length": size,
            "engine_class": self._copy_class(engine),
        }
        return self._submit(Opcode.MEMSET, desc, after, priority, tag, block=block)

    def record(self, event: Event, *, after: Sequence[Task] = (), block: bool = True) -> Task:
        """Record an event: it reaches its next value when this task has ended."""
        number = event_number(self.context, event)
        task = self._submit(Opcode.EVENT_RECORD, {"event": number}, after, None, 0, block=block)
        event.recorded(task)
        return task

    def wait(self, event: Event, *, after: Sequence[Task] = (), block: bool = True) -> Task:
        """Wait on the device, without a core, for the value last recorded (or else the first).

        Later tasks of an in-order stream, and tasks with an edge to this one, start after it.
        """
        number = event_number(self.context, event)
        return self._submit(Opcode.EVENT_WAIT, {"event": number}, after, None, 0, block=block)

    def reset(self, event: Event, *, after: Sequence[Task] = (), block: bool = True) -> Task:
        """Cancel waits for values of the event that have not been submitted."""
        number = event_number(self.context, event)
        return self._submit(Opcode.EVENT_RESET, {"event": number}, after, None, 0, block=block)

    def nop(self, *, after: Sequence[Task] = (), tag: int = 0, block: bool = True) -> Task:
        """Launch a task that does nothing: a join of its predecessors."""
        return self._submit(Opcode.NOP, {}, after, None, tag, block=block)

    def synchronize(self, timeout: int | str | None = None) -> None:
        """Wait until every task launched in this stream so far has ended.

        Raises the `TaskError` of the stream's first task that failed, until `recover` is called;
        `DeviceTimeoutError` when the time (of the device) is over.
        """
        self.context.synchronize_stream(self.number, timeout)

    async def synchronize_async(self, timeout: int | str | None = None) -> None:
        """`synchronize` as an awaitable."""
        await self.context.pump().stream(self.number, time_limit(timeout))
        self.context.raise_failure(self.number)

    def recover(self) -> None:
        """Go on after a failure: tasks launched from now on run again."""
        code, _ = self.context.control(ControlKind.STREAM_RECOVER, self.number)
        self.context.check(code, stream=self.number)

    @property
    def outstanding(self) -> int:
        """Tasks launched in this stream that are not known to have ended."""
        return int(lib.handle_outstanding(self.context.gate, self.number))

    def close(self) -> None:
        """Give the stream back. Raises `BusyError` while tasks of it are in flight."""
        if self.number == 0:
            raise InvalidError(
                "the default stream cannot be closed",
                field="stream",
                value=0,
                hint="close the context",
            )
        self.context.destroy(ControlKind.STREAM_DESTROY, self.number, "stream")

    def _copy_class(self, engine: str | None) -> int:
        info = self.context.info
        return info.copy_class() if engine is None else info.class_for(engine, copies=True)

    def _submit(
        self,
        opcode: Opcode,
        fields: dict[str, int],
        after: Sequence[Task],
        priority: int | None,
        tag: int,
        *,
        block: bool,
    ) -> Task:
        level = self.priority if priority is None else priority
        desc = ffi.new(
            "tsemu_launch_desc *",
            {
                "opcode": opcode,
                "stream": self.number,
                "priority": in_range("priority", level, 0, PRIORITY_LEVELS - 1),
                "user_tag": in_range("tag", tag, 0, _FIELDS["tag"]),
                **fields,
            },
        )
        handles = addresses(after)
        context = self.context
        task = context.tasks.take()
        code = context.run(
            lib.handle_launch_step,
            desc,
            ffi.cast("tsemu_task *const *", handles),
            len(handles),
            task.record,
            bool(block),
        )
        if code < 0:
            lib.handle_unused(task.record)
            error = context.error(code)
            context.callbacks.finish(in_terms_of(error, _NAMES.get(opcode, _NAMES[None])))
        return task
