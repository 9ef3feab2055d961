"""Ring entries: SQE in its operand forms, extension entries, CQE. 64 bytes each.

Offsets are those of the specification ("The wire"). All forms of an SQE share the bytes 0 to 31
and 48 to 63; the opcode (or the POISONED flag) says which form bytes 24 to 47 have.
"""

from tsemu.descriptors.codes import ENTRY_BYTES
from tsemu.descriptors.layout import Array, Int8ul, Int16ul, Int32ul, Int64ul, Layout, layout


def _sqe(name: str, doc: str, *operands: object) -> Layout:
    return layout(
        name,
        ENTRY_BYTES,
        doc,
        "version" / Int8ul * "SQE_VERSION",
        "opcode" / Int8ul * "Opcode",
        "flags" / Int16ul * "SqeFlag; bits 0 to 5: number of extension entries",
        "engine_class" / Int8ul * "index in the class table of the control page",
        "priority" / Int8ul * "0 (highest) to 7",
        "stream" / Int16ul * "stream of the task",
        "ticket" / Int32ul * "last ticket of the context plus one",
        "crc" / Int32ul * "CRC-32C of the entry with this field zero",
        "user_tag" / Int64ul * "returned in the completion, not looked at",
        *operands,
        "timeout_us" / Int32ul * "limit on the time in which blocks run, microseconds; 0: none",
        "value" / Int32ul * "scheduling value: rank or deadline",
        "slot" / Int16ul * "place of the task in the scoreboard",
        "predecessors" / Array(3, Int16ul) * "slots of predecessors; NO_SLOT: none",
    )


SQE = _sqe(
    "sqe",
    "Submission entry of a task that runs blocks on cores (KERNEL), and of NOP.",
    "argument" / Int64ul * "device address of the kernel's arguments",
    "cycles" / Int32ul * "per block",
    "bytes_read" / Int32ul * "per block",
    "bytes_written" / Int32ul * "per block",
    "blocks" / Int16ul * "1 to 65535",
    "kernel" / Int16ul * "index in the program's kernel table",
)
SQE_COPY = _sqe(
    "sqe_copy",
    "Submission entry of MEMCPY and MEMSET.",
    "source" / Int64ul * "device address of the source (MEMCPY), or the byte pattern (MEMSET)",
    "destination" / Int64ul * "device address of the destination",
    "length" / Int64ul * "bytes; 0 moves nothing and succeeds",
)
SQE_EVENT = _sqe(
    "sqe_event",
    "Submission entry of EVENT_RECORD, EVENT_WAIT and EVENT_RESET.",
    "event" / Int32ul * "event id in its recording context",
    "event_value" / Int32ul * "value recorded or waited for; 0 in a wait: the last admitted, or 1",
    "reserved0" / Int64ul * "must be zero (the ancestor in a poisoned entry)",
    "event_context" / Int16ul * "context that records the event",
    "reserved1" / Int16ul * "must be zero",
    "reserved2" / Int32ul * "must be zero",
)
SQE_POISONED = _sqe(
    "sqe_poisoned",
    "Submission entry of any opcode whose predecessor is known to have failed.",
    "event" / Int32ul * "EVENT opcodes: as in their own form; else zero",
    "event_value" / Int32ul * "EVENT opcodes: as in their own form; else zero",
    "ancestor" / Int32ul * "ticket of the first task that failed",
    "ancestor_context" / Int16ul * "context of that task; OWN_CONTEXT: this one",
    "reserved0" / Int16ul * "must be zero",
    "event_context" / Int16ul * "EVENT opcodes: as in their own form; else zero",
    "reserved1" / Int16ul * "must be zero",
    "reserved2" / Int32ul * "must be zero",
)
EXTENSION = layout(
    "extension",
    ENTRY_BYTES,
    "Extension entry: further predecessors (kind PREDECESSORS).",
    "kind" / Int8ul * "ExtensionKind",
    "phase" / Int8ul * "phase bit of the ring's lap, 0 or 1",
    "count" / Int16ul * "slots used, 1 to 26",
    "ticket" / Int32ul * "ticket of the task that it belongs to",
    "crc" / Int32ul * "CRC-32C of the entry with this field zero",
    "predecessors" / Array(26, Int16ul) * "slots of predecessors; the rest must be zero",
)
EXTENSION_PREDECESSORS = 26
"""Predecessor slots in one extension entry."""
CQE = layout(
    "cqe",
    ENTRY_BYTES,
    "Completion entry: one per task, written when it has ended.",
    "user_tag" / Int64ul * "that of the SQE",
    "start_ps" / Int64ul * "virtual time at which its first block started",
    "end_ps" / Int64ul * "virtual time at which it ended",
    "fault_address" / Int64ul * "device address of a memory fault, else 0",
    "ticket" / Int32ul * "that of the SQE",
    "ancestor" / Int32ul * "first failed ancestor's ticket; own ticket if it failed itself; else 0",
    "crc" / Int32ul * "CRC-32C of the entry with this field zero",
    "stream" / Int16ul * "that of the SQE",
    "slot" / Int16ul * "that of the SQE",
    "status" / Int16ul * "Status",
    "core" / Int16ul * "core of its first block; 0xFFFF: none",
    "block" / Int16ul * "block that failed, else 0",
    "ancestor_context" / Int16ul * "context of the ancestor; OWN_CONTEXT: this one; 0: no ancestor",
    "epoch" / Int16ul * "number of resets before it",
    "phase" / Int8ul * "phase bit of the ring's lap, 0 or 1",
    "flags" / Int8ul * "CqeFlag",
    "reserved" / Int32ul * "zero",
)

SQE_FORMS = (SQE, SQE_COPY, SQE_EVENT, SQE_POISONED)
