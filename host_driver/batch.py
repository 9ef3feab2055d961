"""Batches: many tasks in one call, from NumPy arrays, without Python work per task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tsemu.descriptors.codes import PENDING, Opcode
from tsemu.host_driver._driver import ffi, lib
from tsemu.host_driver.arguments import addresses, in_range
from tsemu.host_driver.errors import InvalidError, task_error
from tsemu.host_driver.units import limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tsemu.host_driver.context import Context
    from tsemu.host_driver.task import Task


def _dtype() -> np.dtype[Any]:
    fields = ffi.typeof("tsemu_launch_desc").fields
    return np.dtype(
        {
            "names": [name for name, _ in fields],
            "formats": [f"<u{ffi.sizeof(field.type)}" for _, field in fields],
            "offsets": [field.offset for _, field in fields],
            "itemsize": ffi.sizeof("tsemu_launch_desc"),
        }
    )


LAUNCH_DTYPE = _dtype()
"""NumPy type of a task of a batch: `tsemu_launch_desc` of `tsemu.h`, field by field."""


MOST = 1 << 24
"""Tasks in one array; far more than one batch takes, so that it can be cut into batches."""


def launches(count: int, **fields: object) -> NDArray[np.void]:
    """Array of `count` tasks: kernels of one block at priority 3, other fields zero.

    `fields` set whole columns (numbers or arrays of `count`). Raises `InvalidError` for a field
    that does not exist, or a value that does not fit.
    """
    tasks = np.zeros(in_range("count", count, 0, MOST), LAUNCH_DTYPE)
    tasks["opcode"] = Opcode.KERNEL
    tasks["blocks"] = 1
    tasks["priority"] = 3
    for name, values in fields.items():
        if name not in (LAUNCH_DTYPE.names or ()):
            raise InvalidError(
                f"{name} is no field of a task",
                field=name,
                value=values,
                hint=f"use one of {', '.join(LAUNCH_DTYPE.names or ())}",
            )
        try:
            tasks[name] = values
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidError(
                f"{name} {values!r} cannot be a column of {count} tasks ({error})",
                field=name,
                value=values,
                hint=f"give one number that fits {LAUNCH_DTYPE[name]}, or {count} of them",
            ) from error
    return tasks


class Batch:
    """A submitted batch.

    Attributes:
        status: one 16-bit word per task: `PENDING` (0xFFFF), then its `Status`. Written by the
            driver as completions are consumed; read it, do not write it.
    """

    def __init__(
        self,
        context: Context,
        record: Any,  # noqa: ANN401 - a cffi struct has no type
        status: NDArray[np.uint16],
        streams: NDArray[np.uint16],
    ) -> None:
        self.context = context
        self.status = status
        self._record = record
        self._streams = streams
        self._first = 0

    def submitted(self, last: int) -> None:
        """Note the ticket of its last task, for messages.

        Wrong only when another thread has launched at the same time.
        """
        self._first = last - len(self.status) + 1

    def __len__(self) -> int:
        return len(self.status)

    @property
    def pending(self) -> bool:
        """True while a task of it is not known to have ended."""
        return bool((self.status == PENDING).any())

    @property
    def ok(self) -> bool:
        """True when all tasks are known to have succeeded."""
        return not self.status.any()

    def wait(self, timeout: int | str | None = None) -> Batch:
        """Wait until all tasks have ended, and return the batch.

        Raises the `TaskError` of the first task of the array that did not succeed,
        `DeviceTimeoutError` when the time (of the device) is over.
        """
        code = self.context.run(lib.handle_batch_wait_step, self._record, limit(timeout))
        if code == lib.TSEMU_E_CONTEXT and not self.pending:
            code = 0  # each task says how it ended
        self.context.check(code)
        failed = np.flatnonzero(self.status)
        if len(failed):
            index = int(failed[0])
            raise task_error(
                task=self._first + index,
                stream=int(self._streams[index]),
                status=int(self.status[index]),
                ancestor=0,
            )
        return self


def submit(
    context: Context,
    tasks: NDArray[np.void],
    edges: tuple[NDArray[np.uint32], NDArray[np.uint32]] | None,
    after: Sequence[Task],
    *,
    block: bool,
) -> Batch:
    """Submit a batch; see `Context.submit_batch`."""
    given: object = tasks
    if not isinstance(given, np.ndarray) or given.dtype != LAUNCH_DTYPE or given.ndim != 1:
        raise InvalidError(
            "tasks is no one-dimensional array of LAUNCH_DTYPE",
            field="tasks",
            value=getattr(given, "dtype", type(given).__name__),
            hint="make it with tsemu.host_driver.launches(count)",
        )
    count = len(tasks)
    most = context.info.batch
    if not 1 <= count <= most:
        raise InvalidError(
            f"tasks has {count} entries, a batch of this context has 1 to {most}",
            field="tasks",
            value=count,
            limit=most,
            hint="split it, or open the context with a larger setting `batch`",
        )
    tasks = np.ascontiguousarray(tasks)
    start, indices = (None, None) if edges is None else _edges(edges, count)
    handles = addresses(after)
    status = np.full(count, PENDING, np.uint16)
    record = ffi.new(
        "tsemu_batch *",
        {
            "tasks": ffi.from_buffer("tsemu_launch_desc[]", tasks),
            "count": count,
            "edge_start": ffi.NULL if start is None else ffi.from_buffer("uint32_t[]", start),
            "edges": ffi.NULL if indices is None else ffi.from_buffer("uint32_t[]", indices),
            "after": ffi.cast("tsemu_task *const *", handles),
            "after_count": len(handles),
            "status": ffi.from_buffer("uint16_t[]", status),
            "block": bool(block),
        },
    )
    batch = Batch(context, record, status, tasks["stream"].copy())
    context.keep(batch)  # before, because the driver may write even if Ctrl-C ends this call
    code = context.run(lib.handle_batch_step, record)
    # Only the status array has to stay: it belongs to the batch.
    record.tasks = record.edge_start = record.edges = record.after = ffi.NULL
    if code < 0:
        status.fill(0)
        context.check(code)
    batch.submitted(context.counters()["submitted"])
    return batch


def _edges(
    edges: tuple[NDArray[np.uint32], NDArray[np.uint32]], count: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Check edges as far as memory safety goes; the library checks what they say."""
    try:
        start, indices = (np.asarray(each) for each in edges)
    except (TypeError, ValueError) as error:
        raise _bad_edges("edges", edges, "is not a pair (indptr, indices)") from error
    for name, array in (("edges.indptr", start), ("edges.indices", indices)):
        whole = array.dtype.kind in "ui" or not array.size
        if array.ndim != 1 or not whole:
            raise _bad_edges(name, array.dtype, "is no one-dimensional array of integers")
        if array.size and (array.min() < 0 or array.max() > 0xFFFF_FFFF):
            raise _bad_edges(name, int(array.min()), "has values that do not fit 32 bits")
    if len(start) != count + 1:
        raise _bad_edges("edges.indptr", len(start), f"has not one entry more than {count} tasks")
    rising = start.astype(np.int64)
    lengths = rising[1:] - rising[:-1]
    if rising[0] != 0 or rising[-1] != len(indices) or (lengths < 0).any():
        raise _bad_edges(
            "edges.indptr",
            [int(rising[0]), int(rising[-1])],
            f"does not rise from 0 to the {len(indices)} indices",
        )
    owner = np.repeat(np.arange(count), lengths)
    late = np.flatnonzero(indices.astype(np.int64) >= owner)
    if len(late):
        at = int(late[0])
        raise _bad_edges(
            f"edges.indices[{at}]",
            int(indices[at]),
            f"is no task before task {int(owner[at])}, which it should wait for",
        )
    return (
        np.ascontiguousarray(start, np.uint32),
        np.ascontiguousarray(indices, np.uint32),
    )


def _bad_edges(field: str, value: object, what: str) -> InvalidError:
    return InvalidError(
        f"{field} {what}",
        field=field,
        value=value,
        hint="task i waits for indices[indptr[i]:indptr[i + 1]], each smaller than i",
    )
