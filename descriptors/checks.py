"""Parsing and building of single 64-byte messages, with every check that needs no device.

`parse_*` takes bytes from outside and returns an `Entry` or raises `ParseError` with the field's
path, the value found and what was expected. `build_*` fills in version and CRC. Encoding what was
decoded gives the same bytes. This is the readable reference; the hot paths are written in C.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from crc32c import crc32c

from tsemu.descriptors import codes
from tsemu.descriptors.codes import NO_SLOT, CqeFlag, Opcode, SqeFlag, Status
from tsemu.descriptors.control import CONTROL_MAGIC, CONTROL_MESSAGE
from tsemu.descriptors.entries import (
    CQE,
    EXTENSION,
    EXTENSION_PREDECESSORS,
    SQE,
    SQE_COPY,
    SQE_EVENT,
    SQE_POISONED,
)
from tsemu.descriptors.errors import ParseError
from tsemu.descriptors.layout import Layout

MAX_TEXT_BYTES = 1 << 20
"""Most bytes of text that may follow a control message on a socket."""

NO_CORE = 0xFFFF
"""Completion field `core` of a task that never held one."""

_FORMS = {
    Opcode.NOP: SQE,
    Opcode.KERNEL: SQE,
    Opcode.AICPU: SQE,
    Opcode.MEMCPY: SQE_COPY,
    Opcode.MEMSET: SQE_COPY,
    Opcode.EVENT_RECORD: SQE_EVENT,
    Opcode.EVENT_WAIT: SQE_EVENT,
    Opcode.EVENT_RESET: SQE_EVENT,
}
_EVENT_OPCODES = (Opcode.EVENT_RECORD, Opcode.EVENT_WAIT, Opcode.EVENT_RESET)
_BLOCK_OPCODES = (Opcode.KERNEL, Opcode.AICPU)


@dataclass(frozen=True)
class Entry:
    """A parsed message: its layout and the value of every field.

    Fields are attributes as well: `entry.ticket`.
    """

    layout: Layout
    values: dict[str, Any]

    def encode(self) -> bytes:
        """The 64 bytes that it was parsed from."""
        return self.layout.build(self.values)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the type depends on the layout
        """Value of the field called `name`."""
        values: dict[str, Any] = object.__getattribute__(self, "values")
        if name in values:
            return values[name]
        raise AttributeError(name)


@dataclass(frozen=True)
class Expect:
    """What the reader of an entry knows about it beforehand; None: not checked.

    `phase` is the phase bit of the ring's lap, `ticket` the number that must come next (in an
    extension: that of its task); `classes`, `streams` and `slots` are numbers of things that exist.
    """

    phase: int | None = None
    ticket: int | None = None
    classes: int | None = None
    streams: int | None = None
    slots: int | None = None


_NOTHING = Expect()


def entry_crc(layout: Layout, data: bytes | memoryview) -> int:
    """CRC-32C of a message with its field `crc` taken as zero."""
    offset = layout.offset("crc")
    return crc32c(bytes(data[:offset]) + bytes(4) + bytes(data[offset + 4 :]))


def sqe_form(opcode: int, flags: int = 0, path: str = "sqe") -> Layout:
    """Layout of a submission entry with this opcode and these flags.

    Raises `ParseError` for an opcode that is unknown or has no layout in this version.
    """
    if opcode not in tuple(Opcode):
        raise ParseError(f"{path}.opcode", opcode, f"0 to {max(Opcode)}, an opcode")
    form = _FORMS.get(Opcode(opcode))
    if form is None:
        names = ", ".join(code.name for code in _FORMS)
        raise ParseError(
            f"{path}.opcode",
            opcode,
            f"an opcode of this version ({names}); {Opcode(opcode).name} has no layout yet",
        )
    return SQE_POISONED if flags & SqeFlag.POISONED else form


def parse_sqe(data: bytes | memoryview, path: str = "sqe", expect: Expect = _NOTHING) -> Entry:
    """Parse and check a submission entry; the opcode and POISONED choose its form."""
    values = SQE.parse(data, path)
    if values.version != codes.SQE_VERSION:
        raise ParseError(f"{path}.version", values.version, f"{codes.SQE_VERSION}")
    _check_crc(SQE, data, values.crc, path)
    form = sqe_form(values.opcode, values.flags, path)
    entry = _entry(form, data, path)
    _check_sqe(entry, path)
    _check_expected_sqe(entry, path, expect)
    return entry


def build_sqe(opcode: int, *, predecessors: Sequence[int] = (), **fields: int) -> bytes:
    """Bytes of a submission entry with version and CRC filled in.

    `predecessors` are up to three slots. Raises `ParseError` for what `parse_sqe` would refuse.
    """
    form = sqe_form(opcode, fields.get("flags", 0))
    if len(predecessors) > codes.INLINE_PREDECESSORS:
        raise ParseError(
            "sqe.predecessors",
            list(predecessors),
            f"at most {codes.INLINE_PREDECESSORS} slots; the others go into extension entries",
        )
    free = [NO_SLOT] * (codes.INLINE_PREDECESSORS - len(predecessors))
    values = {
        "version": codes.SQE_VERSION,
        "opcode": opcode,
        "predecessors": [*predecessors, *free],
    }
    data = _sealed(form, values | fields)
    parse_sqe(data)
    return data


def parse_extension(
    data: bytes | memoryview, path: str = "extension", expect: Expect = _NOTHING
) -> Entry:
    """Parse and check an extension entry."""
    entry = _entry(EXTENSION, data, path)
    _check_crc(EXTENSION, data, entry.crc, path)
    _member(codes.ExtensionKind, entry, "kind", path)
    _phase(entry, path, expect)
    _equal(entry, "ticket", expect.ticket, path)
    if not 1 <= entry.count <= EXTENSION_PREDECESSORS:
        raise ParseError(f"{path}.count", entry.count, f"1 to {EXTENSION_PREDECESSORS} slots")
    for index, slot in enumerate(entry.predecessors):
        where = f"{path}.predecessors[{index}]"
        if index >= entry.count:
            if slot:
                raise ParseError(where, slot, f"0: only {entry.count} slots are used")
        elif slot == NO_SLOT or (expect.slots is not None and slot >= expect.slots):
            raise ParseError(where, slot, f"a slot below {_limit(expect.slots, NO_SLOT)}")
    return entry


def build_extension(ticket: int, predecessors: Sequence[int], phase: int = 0) -> bytes:
    """Bytes of an extension entry with 1 to 26 further predecessor slots, CRC filled in."""
    if not 1 <= len(predecessors) <= EXTENSION_PREDECESSORS:
        raise ParseError(
            "extension.count", len(predecessors), f"1 to {EXTENSION_PREDECESSORS} slots"
        )
    data = _sealed(
        EXTENSION,
        {
            "kind": int(codes.ExtensionKind.PREDECESSORS),
            "phase": phase,
            "count": len(predecessors),
            "ticket": ticket,
            "predecessors": [
                *predecessors,
                *[0] * (EXTENSION_PREDECESSORS - len(predecessors)),
            ],
        },
    )
    parse_extension(data)
    return data


def parse_cqe(data: bytes | memoryview, path: str = "cqe", expect: Expect = _NOTHING) -> Entry:
    """Parse and check a completion entry."""
    entry = _entry(CQE, data, path)
    _check_crc(CQE, data, entry.crc, path)
    _member(Status, entry, "status", path)
    _phase(entry, path, expect)
    _known_bits(CqeFlag, entry, "flags", path)
    _zero(entry, "reserved", path)
    _equal(entry, "ticket", expect.ticket, path)
    _below(entry, "stream", expect.streams, path)
    _below(entry, "slot", expect.slots, path)
    if entry.flags & CqeFlag.NO_CORE and entry.core != NO_CORE:
        raise ParseError(f"{path}.core", entry.core, f"{NO_CORE}: flag NO_CORE is set")
    if entry.end_ps < entry.start_ps:
        raise ParseError(f"{path}.end_ps", entry.end_ps, f"{entry.start_ps} (start_ps) or later")
    return entry


def build_cqe(**fields: int) -> bytes:
    """Bytes of a completion entry with the CRC filled in."""
    data = _sealed(CQE, fields)
    parse_cqe(data)
    return data


def parse_control(data: bytes | memoryview, path: str = "control_message") -> Entry:
    """Parse and check a control message.

    The protocol version is looked at before the CRC, so that a peer of another version is told
    so. A different major version is refused; any minor version is accepted.
    """
    entry = _entry(CONTROL_MESSAGE, data, path)
    if entry.magic != CONTROL_MAGIC:
        raise ParseError(f"{path}.magic", hex(entry.magic), f"{CONTROL_MAGIC:#x}")
    if entry.major != codes.ABI_MAJOR:
        raise ParseError(
            f"{path}.major",
            entry.major,
            f"{codes.ABI_MAJOR}: this side speaks version {codes.ABI_MAJOR}.{codes.ABI_MINOR},"
            f" the peer {entry.major}.{entry.minor}",
        )
    _check_crc(CONTROL_MESSAGE, data, entry.crc, path)
    _member(codes.ControlKind, entry, "kind", path)
    _member(codes.ControlStatus, entry, "status", path)
    if entry.length > MAX_TEXT_BYTES:
        raise ParseError(f"{path}.length", entry.length, f"at most {MAX_TEXT_BYTES} bytes of text")
    return entry


def build_control(
    kind: int, token: int, argument: Sequence[int] = (), *, status: int = 0, length: int = 0
) -> bytes:
    """Bytes of a control message with magic, version and CRC filled in.

    `argument` has up to ten 32-bit operands; the rest is zero.
    """
    operands = 10
    if len(argument) > operands:
        raise ParseError("control_message.argument", list(argument), f"at most {operands} operands")
    data = _sealed(
        CONTROL_MESSAGE,
        {
            "magic": CONTROL_MAGIC,
            "major": codes.ABI_MAJOR,
            "minor": codes.ABI_MINOR,
            "kind": kind,
            "status": status,
            "token": token,
            "length": length,
            "argument": [*argument, *[0] * (operands - len(argument))],
        },
    )
    parse_control(data)
    return data


def _entry(form: Layout, data: bytes | memoryview, path: str) -> Entry:
    parsed = form.parse(data, path)
    return Entry(form, {item.name: parsed[item.name] for item in form.fields})


def _sealed(form: Layout, values: dict[str, Any]) -> bytes:
    unsealed = form.build(values | {"crc": 0})
    return form.build(values | {"crc": crc32c(unsealed)})


def _check_crc(form: Layout, data: bytes | memoryview, found: int, path: str) -> None:
    crc = entry_crc(form, data)
    if found != crc:
        raise ParseError(f"{path}.crc", hex(found), f"{crc:#x}, CRC of its bytes")


def _check_sqe(entry: Entry, path: str) -> None:
    if entry.flags & SqeFlag.RESERVED:
        raise ParseError(f"{path}.flags", hex(entry.flags), "bits 14 and 15 zero")
    _below(entry, "engine_class", codes.MAX_CLASSES, path)
    _below(entry, "priority", codes.PRIORITY_LEVELS, path)
    for name in entry.values:
        if name.startswith("reserved"):
            _zero(entry, name, path)
    _check_operands(entry, path)
    if entry.slot == NO_SLOT:
        raise ParseError(f"{path}.slot", entry.slot, f"a slot below {NO_SLOT}")
    for index, slot in enumerate(entry.predecessors):
        if slot == entry.slot:
            raise ParseError(
                f"{path}.predecessors[{index}]", slot, "the slot of another task, not its own"
            )


def _check_operands(entry: Entry, path: str) -> None:
    if entry.layout is SQE_POISONED and entry.opcode not in _EVENT_OPCODES:
        for name in ("event", "event_value", "event_context"):
            _zero(entry, name, path)
    if entry.layout is SQE_POISONED and not entry.ancestor:
        raise ParseError(f"{path}.ancestor", 0, "a ticket, 1 or more")
    if entry.layout is SQE and entry.opcode in _BLOCK_OPCODES and not entry.blocks:
        raise ParseError(f"{path}.blocks", 0, "1 to 65535 blocks")
    if entry.opcode == Opcode.EVENT_RECORD and not entry.event_value:
        raise ParseError(f"{path}.event_value", 0, "1 or more: the value that is recorded")


def _check_expected_sqe(entry: Entry, path: str, expect: Expect) -> None:
    phase = int(bool(entry.flags & SqeFlag.PHASE))
    if expect.phase is not None and phase != expect.phase:
        raise ParseError(f"{path}.flags", hex(entry.flags), f"phase bit (0x40) {expect.phase}")
    _equal(entry, "ticket", expect.ticket, path)
    _below(entry, "engine_class", expect.classes, path)
    _below(entry, "stream", expect.streams, path)
    _below(entry, "slot", expect.slots, path)
    for index, slot in enumerate(entry.predecessors):
        if expect.slots is not None and slot != NO_SLOT and slot >= expect.slots:
            raise ParseError(
                f"{path}.predecessors[{index}]",
                slot,
                f"a slot below {expect.slots}, or {NO_SLOT} for none",
            )


def _phase(entry: Entry, path: str, expect: Expect) -> None:
    _below(entry, "phase", 2, path)
    _equal(entry, "phase", expect.phase, path)


def _equal(entry: Entry, name: str, expected: int | None, path: str) -> None:
    if expected is not None and entry.values[name] != expected:
        raise ParseError(f"{path}.{name}", entry.values[name], str(expected))


def _below(entry: Entry, name: str, limit: int | None, path: str) -> None:
    if limit is not None and entry.values[name] >= limit:
        raise ParseError(f"{path}.{name}", entry.values[name], f"below {limit}")


def _zero(entry: Entry, name: str, path: str) -> None:
    if entry.values[name]:
        raise ParseError(f"{path}.{name}", entry.values[name], "0")


def _member(enumeration: type[IntEnum], entry: Entry, name: str, path: str) -> None:
    if entry.values[name] not in tuple(enumeration):
        known = ", ".join(f"{member.value} {member.name}" for member in enumeration)
        raise ParseError(f"{path}.{name}", entry.values[name], f"one of {known}")


def _known_bits(enumeration: type[CqeFlag], entry: Entry, name: str, path: str) -> None:
    known = 0
    for member in enumeration:
        known |= member.value
    if entry.values[name] & ~known:
        raise ParseError(f"{path}.{name}", hex(entry.values[name]), f"no bit outside {known:#x}")


def _limit(slots: int | None, otherwise: int) -> int:
    return otherwise if slots is None else slots
