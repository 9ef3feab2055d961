"""The control page of a context, and the 64-byte control messages.

The page is the first 4096 bytes of the context's memory object. Each word has one writer. Words
that one side polls while the other writes stand on cache lines of their own. Shared words are
32 bits wide; 64-bit values are published by the sequence number of their record.
"""

from tsemu.descriptors.codes import CONTROL_PAGE_BYTES, ENTRY_BYTES, MAX_CLASSES, WAIT_SLOTS
from tsemu.descriptors.layout import Array, Int8ul, Int16ul, Int32ul, Int64ul, layout

CONTROL_MAGIC = 0x55455354  # "TSEU"
PAGE_MAGIC = 0x47505354  # "TSPG"

CONTROL_MESSAGE = layout(
    "control_message",
    ENTRY_BYTES,
    "Request or reply of the control channel.",
    "magic" / Int32ul * "CONTROL_MAGIC",
    "major" / Int16ul * "protocol version; a different major is refused",
    "minor" / Int16ul * "protocol version",
    "kind" / Int16ul * "ControlKind",
    "status" / Int16ul * "ControlStatus; 0 in a request",
    "token"
    / Int32ul
    * "chosen by the requester, returned in the reply; a repeat is answered alike",
    "length" / Int32ul * "bytes of text that follow on a socket; 0 in the control page",
    "crc" / Int32ul * "CRC-32C of the message with this field zero",
    "argument" / Array(10, Int32ul) * "operands, by kind",
)

ENGINE_CLASS = layout(
    "engine_class",
    32,
    "One row of the class table.",
    "name" / Array(16, Int8ul) * "ASCII, zero filled",
    "cores" / Int32ul * "cores in service",
    "flags" / Int32ul * "1: moves bytes (MEMCPY and MEMSET), 0: runs kernels",
    "frequency_mhz" / Int32ul * "clock of its cores",
    "reserved" / Int32ul * "zero",
)

WAIT_REQUEST = layout(
    "wait_request",
    64,
    "A posted wait. The driver stores `sequence` last (release).",
    "sequence" / Int32ul * "one more at each post",
    "submitted" / Int32ul * "N: tasks that the client had published",
    "kind" / Int32ul * "WaitKind",
    "flags" / Int32ul * "WaitFlag",
    "a" / Int32ul * "operand",
    "b" / Int32ul * "operand",
    "c" / Int32ul * "operand",
    "next_completed" / Int32ul * "with WaitFlag.NEXT: ends when more tasks have ended",
    "deadline_ps" / Int64ul * "duration, or time with WaitFlag.ABSOLUTE; all ones: device's limit",
    "reserved" / Array(3, Int64ul) * "zero",
)

WAIT_ANSWER = layout(
    "wait_answer",
    64,
    "The answer to a posted wait. The device stores `sequence` last (release).",
    "sequence" / Int32ul * "that of the request",
    "reason" / Int32ul * "Answer",
    "completed" / Int32ul * "C: tasks that have ended; the completion tail has got there",
    "sq_head" / Int32ul * "submission entries fetched",
    "now_ps" / Int64ul * "virtual time",
    "deadline_ps" / Int64ul * "the deadline once it runs; all ones: it does not run yet",
    "argument" / Int32ul * "CALL: the ticket",
    "value" / Int32ul * "EVENT: the value that was waited for",
    "reserved" / Array(3, Int64ul) * "zero",
)

CONTROL_PAGE = layout(
    "control_page",
    CONTROL_PAGE_BYTES,
    "First page of a context's memory object.",
    # 0x000: written once by the device
    "magic" / Int32ul * "PAGE_MAGIC",
    "major" / Int16ul * "ABI_MAJOR",
    "minor" / Int16ul * "ABI_MINOR",
    "context" / Int32ul * "number of the context",
    "clock_mode" / Int32ul * "ClockMode",
    "slots" / Int32ul * "W: physical slots of the window",
    "window" / Int32ul * "V: modelled window",
    "sq_entries" / Int32ul * "power of two",
    "cq_entries" / Int32ul * "power of two",
    "batch" / Int32ul * "most tasks in one batch",
    "stream_limit" / Int32ul * "tasks that a stream may hold, by default",
    "max_streams" / Int32ul * "streams of a context",
    "max_events" / Int32ul * "events of a context",
    "alignment" / Int32ul * "of device addresses, bytes",
    "class_count" / Int32ul * "rows used in the class table",
    "poll_cost_ps" / Int64ul * "virtual time that a poll which finds nothing costs",
    "wait_limit_ps" / Int64ul * "longest wait",
    "memory_size" / Int64ul * "bytes of the memory object",
    "sq_offset" / Int64ul * "of the submission ring in the memory object",
    "cq_offset" / Int64ul * "of the completion ring",
    "status_offset" / Int64ul * "of the status table: a 32-bit word per slot",
    "host_heap_offset" / Int64ul * "of the host heap",
    "host_heap_size" / Int64ul * "bytes",
    "host_base" / Int64ul * "device address of the host heap's first byte",
    "device_heap_offset" / Int64ul * "of the device heap",
    "device_heap_size" / Int64ul * "bytes",
    "device_base" / Int64ul * "device address of the device heap's first byte",
    "edge_nodes" / Int32ul * "edges to incomplete predecessors that a context can hold",
    "wait_slots" / Int32ul * "WAIT_SLOTS",
    "name" / Array(64, Int8ul) * "name of the client, zero filled",
    "reserved0" / Array(4, Int64ul) * "zero",
    "classes" / Array(MAX_CLASSES, ENGINE_CLASS.struct) * "class table",
    # 0x200: written by the host
    "sq_tail" / Int32ul * "doorbell: entries published (release)",
    "wait_posts" / Int32ul * "waits posted (release), after the request's sequence",
    "launching" / Int32ul * "threads that launched since their last wait",
    "closing" / Int32ul * "1: the client launches no more",
    "host_line0" / Array(12, Int32ul) * "zero",
    "cq_head" / Int32ul * "completions whose ring entries may be used again (release)",
    "host_line1" / Array(15, Int32ul) * "zero",
    "host_sleeps" / Int32ul * "1: raise the interrupt at the next answer, pipe move or refusal",
    "pipe_kind" / Int32ul * "PipeKind of a launch that is blocked on moving bytes",
    "pipe_need" / Int32ul * "position that it needs",
    "pipe_sequence" / Int32ul * "one more at each such block (release)",
    "host_line2" / Array(12, Int32ul) * "zero",
    "refusal_seen" / Int32ul * "last refusal that the driver has mended (release)",
    "host_line3" / Array(15, Int32ul) * "zero",
    # 0x300: written by the device
    "sq_head" / Int32ul * "entries fetched: their places may be used again (release)",
    "device_line0" / Array(15, Int32ul) * "zero",
    "cq_tail" / Int32ul * "completions published (release)",
    "device_line1" / Array(15, Int32ul) * "zero",
    "device_sleeps" / Int32ul * "1: ring the doorbell's eventfd after publishing",
    "device_line2" / Array(15, Int32ul) * "zero",
    "admitted" / Int32ul * "A: tasks admitted, for observers",
    "completed" / Int32ul * "C: tasks that have ended, for observers",
    "state" / Int32ul * "ContextState",
    "epoch" / Int32ul * "resets of the device",
    "pipe_stalled" / Int32ul * "pipe_sequence that is answered STALLED (release)",
    "refusal_sequence" / Int32ul * "one more at each refusal (release)",
    "refusal_position" / Int32ul * "ring position of the refused entry",
    "refusal_reason" / Int32ul * "Refusal",
    "refusal_value" / Int64ul * "the value found",
    "refusal_expected" / Int64ul * "the value or limit expected",
    "hold_limits" / Int32ul * "times that the hold's wall-clock limit passed",
    "device_line3" / Array(3, Int32ul) * "zero",
    # 0x400
    "request" / CONTROL_MESSAGE.struct * "control request (host writes)",
    "reply" / CONTROL_MESSAGE.struct * "reply to it (device writes)",
    "reserved1" / Array(112, Int64ul) * "zero",
    "waits" / Array(WAIT_SLOTS, WAIT_REQUEST.struct) * "posted waits (host writes)",
    "answers" / Array(WAIT_SLOTS, WAIT_ANSWER.struct) * "their answers (device writes)",
)
