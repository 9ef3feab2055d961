"""Every number with a name that crosses the boundary: opcodes, flags, statuses, reasons.

Plain enumerations without behaviour. The C header is generated from them (see `cheader`), so a
number is written down here and nowhere else.
"""

from enum import IntEnum, IntFlag

ABI_MAJOR = 1
ABI_MINOR = 0
ENTRY_BYTES = 64
"""Size of every entry on the wire, in bytes: one cache line."""
SQE_VERSION = 1
NO_SLOT = 0xFFFF
"""Slot field that names no slot."""
OWN_CONTEXT = 0xFFFF
"""Ancestor's context when it is that of the entry. Numbers of contexts follow the order in which
clients connect, and a completion log must not depend on that."""
INLINE_PREDECESSORS = 3
MAX_PREDECESSORS = 1024
MAX_EXTENSIONS = 63
PRIORITY_LEVELS = 8
MAX_CLASSES = 8
WAIT_SLOTS = 16
"""Waits that one context can have posted at once: one per waiting thread."""
CONTROL_PAGE_BYTES = 4096
ENTRY_TRIES = 3
"""Times that firmware reads a damaged entry before the context is in error."""


class Opcode(IntEnum):
    """What a task does (SQE byte 1)."""

    NOP = 0
    KERNEL = 1
    MEMCPY = 2
    MEMSET = 3
    AICPU = 4
    HOST_CALLBACK = 5
    EVENT_RECORD = 6
    EVENT_WAIT = 7
    EVENT_RESET = 8
    NOTIFY = 9
    WAIT_NOTIFY = 10
    BARRIER = 11
    DELAY = 12
    SWITCH = 13
    MAINTENANCE = 14
    PROFILING = 15


class SqeFlag(IntFlag):
    """SQE flags, 16 bits. Bits 0 to 5 hold the number of extension entries."""

    EXTENSIONS = 0x003F
    PHASE = 0x0040
    POISONED = 0x0080
    GANG = 0x0100
    REPLAYABLE = 0x0200
    SPECULATIVE = 0x0400
    CHECKSUM = 0x0800
    REDUNDANT = 0x1000
    NEW_CALL = 0x2000
    RESERVED = 0xC000


class ExtensionKind(IntEnum):
    """Kind of an extension entry (byte 0)."""

    PREDECESSORS = 1


class CqeFlag(IntFlag):
    """CQE flags, 8 bits."""

    NO_CORE = 0x01
    """The task ended without ever holding a core; `core` is 0xFFFF."""


class Status(IntEnum):
    """How a task ended (CQE status)."""

    OK = 0
    FAILED = 1
    """A block raised an exception on its core."""
    DEP_ABORTED = 2
    """A predecessor did not succeed; `ancestor` is the first that failed."""
    CANCELLED = 3
    TIMEOUT = 4
    """Blocks ran for longer than the task's timeout."""
    EVENT_TIMEOUT = 5
    """An event wait lasted longer than the device's wait limit."""
    RESET = 6
    DMA_FAULT = 7
    INVALID_ENTRY = 8
    """The context went into error because an entry could not be read."""
    NO_RESOURCE = 9


PENDING = 0xFFFF
"""Status of a task that has not ended yet, as the driver's records show it."""


class Refusal(IntEnum):
    """Why firmware refused a submission entry (control page, refusal record)."""

    NONE = 0
    VERSION = 1
    CRC = 2
    STALE = 3
    """The phase bit is that of an earlier lap of the ring."""
    TICKET = 4
    """The ticket is not the last one plus one."""
    OPCODE = 5
    RESERVED_BITS = 6
    ENGINE_CLASS = 7
    PRIORITY = 8
    STREAM = 9
    BLOCKS = 10
    SLOT = 11
    """The slot is out of range or still holds a task."""
    EMPTY_SLOT = 12
    """An edge names a slot that holds no task."""
    PREDECESSORS = 13
    EXTENSION = 14
    ADDRESS = 15
    ALIGNMENT = 16
    EVENT = 17
    DOORBELL = 18
    """The tail is further ahead than the ring has entries."""
    UNSUPPORTED = 19
    """A defined opcode or flag that this firmware does not implement."""


class WaitKind(IntEnum):
    """Condition of a posted wait; operands a, b, c are those of the wait request."""

    TASK = 1
    """Ticket a in slot b has ended."""
    ALL = 2
    """Every task with a ticket up to a has ended."""
    STREAM = 3
    """Every task of stream a with a ticket up to b has ended."""
    STREAM_LIMIT = 4
    """Stream a holds at most b tasks, or at most c when the device looks for the first time."""
    ROOM = 5
    """At least a tasks have ended."""
    NEXT = 6
    """More than a tasks have ended."""
    EVENT = 7
    """Event a has reached value b; b = 0 means the last one admitted, or 1."""
    CONTROL = 8
    """The control request in the page has been carried out."""


class WaitFlag(IntFlag):
    """Flags of a posted wait."""

    LAUNCH = 1
    """A launch that is blocked posted it, not somebody who wants a result."""
    NEXT = 2
    """Also ends when more than `next_completed` tasks have ended."""
    ABSOLUTE = 4
    """`deadline_ps` is a time, not a duration."""


class Answer(IntEnum):
    """Why a posted wait ended."""

    MET = 1
    TIMEOUT = 2
    NEXT = 3
    CALL = 4
    STALLED = 5
    """Only an idle gap is left and the launch that waits can never go on."""
    CONTEXT_ERROR = 6


class PipeKind(IntEnum):
    """What a launch that is blocked on moving bytes waits for."""

    NONE = 0
    COMPLETIONS = 1
    """The published completion tail has reached the position needed."""
    ENTRIES = 2
    """The submission head has reached the position needed."""


class ContextState(IntEnum):
    """State of a context, as the device shows it in the control page."""

    ACTIVE = 1
    REFUSED = 2
    """Fetching stands at a refused entry until the driver rewrites it."""
    ERROR = 3
    CLOSED = 4


class ClockMode(IntEnum):
    """How virtual time relates to the clients and to wall time."""

    LOCKSTEP = 1
    FREE = 2
    PACED = 3


class ControlKind(IntEnum):
    """Kind of a control message."""

    OPEN = 1
    INFO = 2
    STREAM_CREATE = 3
    STREAM_DESTROY = 4
    EVENT_CREATE = 5
    EVENT_DESTROY = 6
    STREAM_RECOVER = 7
    CANCEL = 8
    CLOSE = 9
    STATISTICS = 10


class ControlStatus(IntEnum):
    """Result of a control request."""

    OK = 0
    BAD_MAGIC = 1
    BAD_VERSION = 2
    BAD_CRC = 3
    BAD_KIND = 4
    BAD_LENGTH = 5
    BAD_VALUE = 6
    """`argument` names the operand, `value` is what it was."""
    NO_RESOURCE = 7
    """`argument` is the limit, `value` how many are in use."""
    NAME_IN_USE = 8
    BUSY = 9
    """Somebody still uses it; `value` names a ticket."""
    DENIED = 10


class StreamFlag(IntFlag):
    """Flags of a stream."""

    IN_ORDER = 1
