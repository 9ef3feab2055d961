"""The errors of the driver: one tree, whose members carry fields.

    TsemuError
        InvalidError (ValueError)     an argument cannot be accepted; nothing was changed
        QueueFullError                not asked to block, and window, stream or ring is full
        NoResourceError               a limit is used up, or a blocked launch can never go on
        DeviceTimeoutError (TimeoutError)   the deadline came first
        TaskError                     a task did not succeed; a subclass per status
        DeviceLostError               the device process is gone or does not answer
        ContextError                  the context is in error: an entry could not be read
        ClosedError                   device, context, stream, event or buffer is closed
        ProtocolError                 the peer speaks another protocol
        NameInUseError                another client of the device has this name
        AddressError                  nobody can be reached at this address
        BusyError                     somebody still uses what should be destroyed
        InCallbackError               a callback may launch but not wait

Only this module turns a code of the C library into an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tsemu.descriptors.codes import Status
from tsemu.host_driver._driver import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL_STREAMS = 0xFFFF_FFFF
NO_LIMIT = 0xFFFF_FFFF_FFFF_FFFF
_PYTHON = {"tsemu_buffer_alloc": "device.alloc"}
"""What the library's remedies are called in Python."""


class TsemuError(Exception):
    """Base of every error that this package raises.

    Attributes:
        code: number of the C API (`enum tsemu_code`).
        field: argument, setting or limit that it is about, "" when there is none.
        value: what it was, or how many are in use; None when there is none.
        limit: what it may be at most, or at least; None when there is none.
        task: ticket of the task that it is about, or None.
        stream: number of the stream that it is about, or None.
        hint: what to do next.
    """

    code: ClassVar[int] = 0

    def __init__(
        self,
        message: str,
        *,
        field: str = "",
        value: object = None,
        limit: object = None,
        task: int | None = None,
        stream: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.value = value
        self.limit = limit
        self.task = task
        self.stream = stream
        self.hint = hint

    def __str__(self) -> str:
        about = [
            f"{name} {value}"
            for name, value in (("task", self.task), ("stream", self.stream))
            if value is not None
        ]
        where = f" ({', '.join(about)})" if about else ""
        what = self.message
        if self.field and self.field not in what:
            shown = "" if self.value is None else f" = {self.value!r}"
            what = f"{self.field}{shown}: {what}"
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.name}: {what}{where}{hint}"

    @property
    def name(self) -> str:
        """Name of the code, such as INVALID."""
        return _NAMES.get(self.code, "ERROR")


class InvalidError(TsemuError, ValueError):
    """An argument cannot be accepted; nothing was changed."""

    code = -1


class QueueFullError(TsemuError):
    """The call was asked not to block, and window, stream limit or ring is full."""

    code = -2


class NoResourceError(TsemuError):
    """A limit is used up, or a blocked launch can never go on."""

    code = -3


class DeviceTimeoutError(TsemuError, TimeoutError):
    """The deadline came before the condition; both in the device's time."""

    code = -4


class DeviceLostError(TsemuError):
    """The device process is gone or does not answer."""

    code = -5


class ContextError(TsemuError):
    """The context is in error: the device could not read an entry after several tries."""

    code = -6


class ClosedError(TsemuError):
    """What was used has been closed, freed or belongs to the parent process."""

    code = -7


class ProtocolError(TsemuError):
    """The peer speaks another protocol version or sent nonsense."""

    code = -8


class NameInUseError(TsemuError):
    """Another client of the device has this name."""

    code = -9


class AddressError(TsemuError):
    """Nobody can be reached at this address, or it is none."""

    code = -10


class BusyError(TsemuError):
    """Somebody still uses what should be destroyed."""

    code = -11


class InCallbackError(TsemuError):
    """A callback may launch but not wait."""

    code = -12


class TaskError(TsemuError):
    """A task did not succeed.

    Attributes:
        status: how it ended.
        ancestor: ticket of the first task that failed; its own when it failed itself.
        fault_address: device address of a memory fault, else 0.
    """

    code = -13

    def __init__(
        self,
        *,
        task: int,
        stream: int,
        status: int,
        ancestor: int,
        fault_address: int = 0,
    ) -> None:
        word = status_name(status)
        because = f" because task {ancestor} did not succeed" if ancestor not in (0, task) else ""
        at = f" at device address {fault_address:#x}" if fault_address else ""
        super().__init__(
            f"task {task} ended with status {word}{because}{at}",
            field="status",
            value=status,
            task=task,
            stream=stream,
            hint=_TASK_HINTS.get(status, "see the device's console for the cause"),
        )
        self.status = status
        self.ancestor = ancestor
        self.fault_address = fault_address


class TaskFailedError(TaskError):
    """A block raised an exception on its core."""


class DependencyAbortedError(TaskError):
    """A predecessor did not succeed; `ancestor` is the first that failed."""


class TaskCancelledError(TaskError):
    """The task was cancelled before it ended."""


class TaskTimeoutError(TaskError):
    """Blocks of the task ran for longer than its timeout."""


class EventTimeoutError(TaskError):
    """An event wait lasted longer than the device's wait limit."""


class TaskResetError(TaskError):
    """The device was reset while the task was in flight."""


class DmaFaultError(TaskError):
    """A copy left the context's memory; `fault_address` says where."""


class InvalidEntryError(TaskError):
    """The context went into error because an entry could not be read."""


class TaskNoResourceError(TaskError):
    """The device has no core that could run the task."""


_BY_CODE: dict[int, type[TsemuError]] = {
    kind.code: kind
    for kind in (
        InvalidError, QueueFullError, NoResourceError, DeviceTimeoutError, DeviceLostError,
        ContextError, ClosedError, ProtocolError, NameInUseError, AddressError, BusyError,
        InCallbackError,
    )
}  # fmt: skip
_NAMES = {
    -1: "INVALID", -2: "QUEUE_FULL", -3: "NO_RESOURCE", -4: "TIMEOUT", -5: "DEVICE_LOST",
    -6: "CONTEXT", -7: "CLOSED", -8: "PROTOCOL", -9: "NAME_IN_USE", -10: "ADDRESS", -11: "BUSY",
    -12: "IN_CALLBACK", -13: "FAILED",
}  # fmt: skip
_BY_STATUS: dict[int, type[TaskError]] = {
    Status.FAILED: TaskFailedError,
    Status.DEP_ABORTED: DependencyAbortedError,
    Status.CANCELLED: TaskCancelledError,
    Status.TIMEOUT: TaskTimeoutError,
    Status.EVENT_TIMEOUT: EventTimeoutError,
    Status.RESET: TaskResetError,
    Status.DMA_FAULT: DmaFaultError,
    Status.INVALID_ENTRY: InvalidEntryError,
    Status.NO_RESOURCE: TaskNoResourceError,
}
_TASK_HINTS: dict[int, str] = {
    Status.DEP_ABORTED: "look at the ancestor; an in-order stream goes on after stream.recover()",
    Status.CANCELLED: "launch it again if it is still wanted",
    Status.TIMEOUT: "give it a longer timeout or less work per block",
    Status.EVENT_TIMEOUT: "record the event, or raise the device's wait limit",
    Status.RESET: "launch it again",
    Status.DMA_FAULT: "check addresses and lengths against the buffers",
    Status.INVALID_ENTRY: "close the context and open a new one",
    Status.NO_RESOURCE: "use an engine class that has cores; device.info() lists them",
}


def status_name(status: int) -> str:
    """Name of a task status; a number that is not known is shown as such."""
    try:
        return Status(status).name
    except ValueError:
        return f"{status} (unknown)"


def task_error(
    *, task: int, stream: int, status: int, ancestor: int, fault_address: int = 0
) -> TaskError:
    """Return the error of a task that did not succeed, by its status."""
    kind = _BY_STATUS.get(status, TaskError)
    return kind(
        task=task, stream=stream, status=status, ancestor=ancestor, fault_address=fault_address
    )


def last_error(code: int, **fields: object) -> TsemuError:
    """Return the error that the C library described last in this thread, for its return `code`.

    `fields` replace what the library said, where the caller knows better (a name instead of a
    number).
    """
    last = lib.tsemu_last_error()
    told = last != ffi.NULL and last.code == code
    message = _text(last.message) if told else f"the call returned {code}"
    values: dict[str, object] = {
        "field": _text(last.field) if told else "",
        "value": last.value if told else None,
        "limit": last.limit if told else None,
        "task": (last.ticket or None) if told else None,
        "stream": last.stream if told and last.stream != ALL_STREAMS else None,
        "hint": _text(last.hint) if told else "",
    }
    if told and code == DeviceTimeoutError.code:
        # The library tells when it was (value) and what the caller had asked for (limit).
        given = "the device's wait limit" if last.limit == NO_LIMIT else f"{last.limit} ps"
        message = f"{message}: the limit ({given}) was over at {last.value} ps"
        values["value"] = values["limit"] = None if last.limit == NO_LIMIT else last.limit
    values.update(fields)
    kind = _BY_CODE.get(code, TsemuError)
    return kind(message, **values)  # type: ignore[arg-type]


def in_terms_of(error: TsemuError, names: Mapping[str, str]) -> TsemuError:
    """The same error with the caller's name of the field (`names`: library's to caller's)."""
    for theirs, ours in names.items():
        if error.field == theirs:
            error.field = ours
            error.message = error.message.replace(theirs, ours, 1)
            break
    return error


def _text(array: object) -> str:
    text = str(ffi.string(array).decode("utf-8", "replace"))
    for theirs, ours in _PYTHON.items():
        text = text.replace(theirs, ours)
    return text
