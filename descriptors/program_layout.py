"""The byte layouts of the program file (`.tsp`): header, sections, records.

    header | sections, each at a multiple of 64 | section table

All little-endian. A file holds at most one section of each kind except TASKS and EDGES, which come
in pairs, a *chunk*: up to 65536 task records and the edges of exactly these tasks, in order. An
edge is the program-wide index of an earlier task. CRCs are CRC-32C; padding is not covered.
"""

from enum import IntEnum, IntFlag

from tsemu.descriptors.layout import Array, Int8ul, Int16ul, Int32ul, Int64ul, layout

PROGRAM_MAGIC = 0x31505354  # "TSP1"
PROGRAM_MAJOR = 1
PROGRAM_MINOR = 0
SECTION_ALIGNMENT = 64
CHUNK_TASKS = 65536
"""Most tasks in one chunk."""
CHUNK_EDGES = 1 << 20
"""Most edges in one chunk: bounds what a reader has to look at in one step."""
MAX_TASKS = 0xFFFF_FFFF
MAX_STREAMS = 65535
MAX_KERNELS = 65536
MAX_PROGRAM_EVENTS = 1 << 20
MAX_BUFFERS = 65536
MAX_BUFFER_BYTES = 1 << 40
MAX_META_BYTES = 1 << 20
DEVICE_LIMIT = 0
"""Stream limit: the device's default."""
WINDOW_LIMIT = 0xFFFF_FFFF
"""Stream limit: the whole window."""
REFERENCE_BIT = 63
"""Address bit that marks a buffer reference: bits 40 to 62 buffer index, 0 to 39 byte offset."""
REFERENCE_SHIFT = 40


class SectionKind(IntEnum):
    """Kind of a section of the program file."""

    STREAMS = 1
    CLASSES = 2
    KERNELS = 3
    EVENTS = 4
    """`count` is the number of events; no bytes."""
    BUFFERS = 5
    DATA = 6
    """Initial bytes of buffers; `count` equals `length`."""
    META = 7
    """One JSON object in UTF-8; `count` is 1."""
    TASKS = 8
    EDGES = 9


class Placement(IntEnum):
    """Heap that a buffer of a program is taken from."""

    HOST = 0
    DEVICE = 1


class BufferFlag(IntFlag):
    """Flags of a buffer of a program."""

    DATA = 1
    """The DATA section holds its first bytes; the rest starts as zero."""


PROGRAM_HEADER = layout(
    "program_header",
    64,
    "First bytes of a program file.",
    "magic" / Int32ul * "PROGRAM_MAGIC",
    "major" / Int16ul * "format version; a different major is refused",
    "minor" / Int16ul * "format version; a newer minor may add section kinds",
    "task_count" / Int64ul * "tasks of all chunks",
    "edge_count" / Int64ul * "edges of all chunks",
    "file_size" / Int64ul * "bytes",
    "table_offset" / Int64ul * "of the section table; it ends the file",
    "section_count" / Int32ul * "rows of the section table",
    "table_crc" / Int32ul * "CRC-32C of the section table",
    "reserved" / Array(3, Int32ul) * "must be zero",
    "crc" / Int32ul * "CRC-32C of the header with this field zero",
)

PROGRAM_SECTION = layout(
    "program_section",
    32,
    "Row of the section table.",
    "kind" / Int32ul * "SectionKind",
    "crc" / Int32ul * "CRC-32C of the section's bytes",
    "offset" / Int64ul * "in the file, a multiple of 64",
    "length" / Int64ul * "bytes",
    "count" / Int64ul * "records",
)

PROGRAM_STREAM = layout(
    "program_stream",
    64,
    "Stream of a program.",
    "name" / Array(48, Int8ul) * "UTF-8, zero filled",
    "limit" / Int32ul * "tasks that it may hold; 0: device's default, all ones: whole window",
    "flags" / Int16ul * "StreamFlag",
    "priority" / Int8ul * "0 (highest) to 7: what its tasks had by default; the records count",
    "reserved0" / Int8ul * "must be zero",
    "reserved1" / Int64ul * "must be zero",
)

PROGRAM_CLASS = layout(
    "program_class",
    16,
    "Engine class that a program needs.",
    "name" / Array(16, Int8ul) * "ASCII, zero filled",
)

PROGRAM_KERNEL = layout(
    "program_kernel",
    64,
    "Kernel that a program names.",
    "name" / Array(64, Int8ul) * "UTF-8, zero filled",
)

PROGRAM_BUFFER = layout(
    "program_buffer",
    32,
    "Buffer that a program needs.",
    "size" / Int64ul * "bytes, 1 to 2**40",
    "data_offset" / Int64ul * "of its initial bytes in the DATA section",
    "data_length" / Int64ul * "bytes, at most `size`; 0 without BufferFlag.DATA",
    "alignment" / Int32ul * "of its first byte, a power of two",
    "placement" / Int16ul * "Placement",
    "flags" / Int16ul * "BufferFlag",
)

PROGRAM_TASK = layout(
    "program_task",
    72,
    "Task of a program file.",
    "user_tag" / Int64ul * "returned in the completion, not looked at",
    "argument" / Int64ul * "KERNEL: argument address; MEMCPY: source; MEMSET: pattern",
    "destination" / Int64ul * "MEMCPY, MEMSET: destination address",
    "length" / Int64ul * "MEMCPY, MEMSET: bytes",
    "cycles" / Int32ul * "KERNEL: per block",
    "bytes_read" / Int32ul * "KERNEL: per block",
    "bytes_written" / Int32ul * "KERNEL: per block",
    "value" / Int32ul * "scheduling value: rank or deadline",
    "timeout_us" / Int32ul * "limit on the time in which blocks run, microseconds; 0: none",
    "edge_start" / Int32ul * "first edge, in the chunk's edge array",
    "event" / Int32ul * "EVENT_*: index of the program's event",
    "edge_count" / Int16ul * "predecessors, 0 to 1024",
    "stream" / Int16ul * "index in the program's stream table",
    "blocks" / Int16ul * "KERNEL: 1 to 65535",
    "kernel" / Int16ul * "KERNEL: index in the program's kernel table",
    "opcode" / Int8ul * "Opcode",
    "engine_class" / Int8ul * "index in the program's class table",
    "priority" / Int8ul * "0 (highest) to 7",
    "reserved" / Int8ul * "must be zero",
)

TASK_DTYPE = PROGRAM_TASK.dtype
"""NumPy type of a task record: 72 bytes."""

FILE_LAYOUTS = (
    PROGRAM_HEADER,
    PROGRAM_SECTION,
    PROGRAM_STREAM,
    PROGRAM_CLASS,
    PROGRAM_KERNEL,
    PROGRAM_BUFFER,
)
"""Layouts of the file that only Python reads; C sees the task record alone."""
