"""The host side of tsemu: devices, contexts, streams, tasks, events, buffers.

    from tsemu.host_driver import Device

    with Device.open("emu:edge-2") as device:
        stream = device.create_stream(in_order=False)
        a = stream.launch("load", cycles=100)
        b = stream.launch("gemm", cycles=1000, after=[a])
        b.wait()

Times are picoseconds of the device's virtual time, as integers or text such as "5us".
"""

from tsemu.host_driver.batch import LAUNCH_DTYPE, Batch, launches
from tsemu.host_driver.buffer import Buffer
from tsemu.host_driver.completion import Completion, Completions
from tsemu.host_driver.context import Context
from tsemu.host_driver.device import Device
from tsemu.host_driver.errors import (
    AddressError,
    BusyError,
    ClosedError,
    ContextError,
    DependencyAbortedError,
    DeviceLostError,
    DeviceTimeoutError,
    DmaFaultError,
    EventTimeoutError,
    InCallbackError,
    InvalidEntryError,
    InvalidError,
    NameInUseError,
    NoResourceError,
    ProtocolError,
    QueueFullError,
    TaskCancelledError,
    TaskError,
    TaskFailedError,
    TaskNoResourceError,
    TaskResetError,
    TaskTimeoutError,
    TsemuError,
)
from tsemu.host_driver.event import Event
from tsemu.host_driver.info import ContextInfo, EngineClass
from tsemu.host_driver.program import CQE_DTYPE, ProgramResult
from tsemu.host_driver.query import query_info
from tsemu.host_driver.stream import Stream
from tsemu.host_driver.task import Task

__all__ = [
    "CQE_DTYPE",
    "LAUNCH_DTYPE",
    "AddressError",
    "Batch",
    "Buffer",
    "BusyError",
    "ClosedError",
    "Completion",
    "Completions",
    "Context",
    "ContextError",
    "ContextInfo",
    "DependencyAbortedError",
    "Device",
    "DeviceLostError",
    "DeviceTimeoutError",
    "DmaFaultError",
    "EngineClass",
    "Event",
    "EventTimeoutError",
    "InCallbackError",
    "InvalidEntryError",
    "InvalidError",
    "NameInUseError",
    "NoResourceError",
    "ProgramResult",
    "ProtocolError",
    "QueueFullError",
    "Stream",
    "Task",
    "TaskCancelledError",
    "TaskError",
    "TaskFailedError",
    "TaskNoResourceError",
    "TaskResetError",
    "TaskTimeoutError",
    "TsemuError",
    "launches",
    "query_info",
]
