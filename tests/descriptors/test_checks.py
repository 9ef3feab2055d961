"""Every refusal of the entry parsers: path, value, what was expected; and round trips."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsemu.descriptors import checks
from tsemu.descriptors.checks import Expect
from tsemu.descriptors.codes import ControlKind, CqeFlag, Opcode, SqeFlag, Status
from tsemu.descriptors.control import CONTROL_MESSAGE
from tsemu.descriptors.entries import CQE, EXTENSION, SQE, SQE_COPY, SQE_EVENT, SQE_POISONED
from tsemu.descriptors.errors import ParseError

KERNEL = {"version": 1, "opcode": 1, "blocks": 1, "slot": 4, "predecessors": [0xFFFF] * 3}
COPY = {"version": 1, "opcode": 2, "slot": 4, "predecessors": [0xFFFF] * 3}
RECORD = {
    "version": 1,
    "opcode": 6,
    "event_value": 1,
    "slot": 4,
    "predecessors": [0xFFFF] * 3,
}
POISONED = COPY | {"opcode": 1, "flags": 0x80, "ancestor": 3}
EXTENDED = {"kind": 1, "count": 2, "ticket": 8, "predecessors": [1, 2, *[0] * 24]}
MESSAGE = {"magic": 0x55455354, "major": 1, "kind": 1, "token": 7}


def sealed(form, values, **changes):
    """Bytes of an entry, CRC right, whatever the values are."""
    data = bytearray(form.build(values | changes | {"crc": 0}))
    offset = form.offset("crc")
    data[offset : offset + 4] = checks.entry_crc(form, data).to_bytes(4, "little")
    return bytes(data)


def refused(parse, data, *arguments):
    with pytest.raises(ParseError) as caught:
        parse(data, *arguments)
    return caught.value


def error_of(parse, data):
    """The error that parsing raises; None when parsing and encoding give `data` again."""
    try:
        entry = parse(data)
    except ParseError as error:
        return error
    assert entry.encode() == data
    return None


@pytest.mark.parametrize(
    ("form", "values", "changes", "path", "value", "expected"),
    [
        (SQE, KERNEL, {"version": 2}, "version", 2, "1"),
        (SQE, KERNEL, {"opcode": 16}, "opcode", 16, "0 to 15, an opcode"),
        (SQE, KERNEL, {"opcode": 13}, "opcode", 13, "SWITCH has no layout yet"),
        (SQE, KERNEL, {"flags": 0x4000}, "flags", "0x4000", "bits 14 and 15 zero"),
        (SQE, KERNEL, {"engine_class": 8}, "engine_class", 8, "below 8"),
        (SQE, KERNEL, {"priority": 8}, "priority", 8, "below 8"),
        (SQE, KERNEL, {"blocks": 0}, "blocks", 0, "1 to 65535 blocks"),
        (SQE, KERNEL, {"slot": 0xFFFF}, "slot", 0xFFFF, "a slot below 65535"),
        (
            SQE,
            KERNEL,
            {"predecessors": [3, 4, 0xFFFF]},
            "predecessors[1]",
            4,
            "the slot of another task, not its own",
        ),
        (SQE_EVENT, RECORD, {"event_value": 0}, "event_value", 0, "1 or more"),
        (SQE_EVENT, RECORD, {"reserved0": 5}, "reserved0", 5, "0"),
        (SQE_EVENT, RECORD, {"reserved1": 5}, "reserved1", 5, "0"),
        (SQE_EVENT, RECORD, {"reserved2": 5}, "reserved2", 5, "0"),
        (SQE_POISONED, POISONED, {"reserved0": 5}, "reserved0", 5, "0"),
        (SQE_POISONED, POISONED, {"ancestor": 0}, "ancestor", 0, "a ticket, 1 or more"),
        (SQE_POISONED, POISONED, {"event": 5}, "event", 5, "0"),
        (SQE_POISONED, POISONED, {"event_context": 5}, "event_context", 5, "0"),
    ],
)
def test_submission_entries_refused(form, values, changes, path, value, expected):
    error = refused(checks.parse_sqe, sealed(form, values, **changes), "sq[5]")
    assert (error.path, error.value) == (f"sq[5].{path}", value)
    assert expected in error.expected


@pytest.mark.parametrize(
    ("expect", "path", "value", "expected"),
    [
        (Expect(phase=1), "sqe.flags", "0x0", "phase bit (0x40) 1"),
        (Expect(ticket=12), "sqe.ticket", 10, "12"),
        (Expect(classes=2), "sqe.engine_class", 2, "below 2"),
        (Expect(streams=3), "sqe.stream", 3, "below 3"),
        (Expect(slots=4), "sqe.slot", 4, "below 4"),
        (Expect(slots=5), "sqe.predecessors[2]", 77, "a slot below 5, or 65535 for none"),
    ],
)
def test_submission_entry_against_what_the_reader_knows(expect, path, value, expected):
    data = sealed(
        SQE, KERNEL, ticket=10, engine_class=2, stream=3, predecessors=[0xFFFF, 0xFFFF, 77]
    )
    assert checks.parse_sqe(data).ticket == 10
    error = refused(checks.parse_sqe, data, "sqe", expect)
    assert (error.path, error.value, error.expected) == (path, value, expected)


def test_form_follows_the_opcode_and_the_poisoned_flag():
    for opcode, form in [
        (Opcode.NOP, SQE),
        (Opcode.KERNEL, SQE),
        (Opcode.MEMCPY, SQE_COPY),
        (Opcode.MEMSET, SQE_COPY),
        (Opcode.EVENT_RECORD, SQE_EVENT),
        (Opcode.EVENT_WAIT, SQE_EVENT),
        (Opcode.EVENT_RESET, SQE_EVENT),
    ]:
        assert checks.sqe_form(opcode) is form
        assert checks.sqe_form(opcode, SqeFlag.POISONED) is SQE_POISONED


@pytest.mark.parametrize(
    ("changes", "path", "value", "expected"),
    [
        ({"kind": 0}, "kind", 0, "one of 1 PREDECESSORS"),
        ({"phase": 2}, "phase", 2, "below 2"),
        ({"count": 0}, "count", 0, "1 to 26 slots"),
        ({"count": 27}, "count", 27, "1 to 26 slots"),
        ({"count": 1}, "predecessors[1]", 2, "0: only 1 slots are used"),
        ({"predecessors": [1, 0xFFFF, *[0] * 24]}, "predecessors[1]", 0xFFFF, "a slot below"),
    ],
)
def test_extensions_refused(changes, path, value, expected):
    error = refused(checks.parse_extension, sealed(EXTENSION, EXTENDED, **changes))
    assert (error.path, error.value) == (f"extension.{path}", value)
    assert expected in error.expected


def test_extension_against_what_the_reader_knows():
    data = checks.build_extension(8, [1, 2])
    for expect, path in [
        (Expect(phase=1), "extension.phase"),
        (Expect(ticket=9), "extension.ticket"),
        (Expect(slots=2), "extension.predecessors[1]"),
    ]:
        assert refused(checks.parse_extension, data, "extension", expect).path == path


@pytest.mark.parametrize(
    ("changes", "path", "value", "expected"),
    [
        ({"status": 10}, "status", 10, "one of 0 OK"),
        ({"phase": 2}, "phase", 2, "below 2"),
        ({"flags": 2}, "flags", "0x2", "no bit outside 0x1"),
        ({"reserved": 9}, "reserved", 9, "0"),
        ({"flags": 1, "core": 3}, "core", 3, "65535: flag NO_CORE is set"),
        ({"start_ps": 5, "end_ps": 4}, "end_ps", 4, "5 (start_ps) or later"),
    ],
)
def test_completions_refused(changes, path, value, expected):
    error = refused(checks.parse_cqe, sealed(CQE, {}, **changes))
    assert (error.path, error.value) == (f"cqe.{path}", value)
    assert expected in error.expected


def test_completion_against_what_the_reader_knows():
    data = checks.build_cqe(ticket=8, stream=2, slot=3)
    for expect, path in [
        (Expect(phase=1), "cqe.phase"),
        (Expect(ticket=9), "cqe.ticket"),
        (Expect(streams=2), "cqe.stream"),
        (Expect(slots=3), "cqe.slot"),
    ]:
        assert refused(checks.parse_cqe, data, "cqe", expect).path == path


@pytest.mark.parametrize(
    ("changes", "path", "value", "expected"),
    [
        ({"magic": 0x12}, "magic", "0x12", "0x55455354"),
        ({"major": 9, "minor": 3}, "major", 9, "speaks version 1.0, the peer 9.3"),
        ({"kind": 0}, "kind", 0, "1 OPEN"),
        ({"status": 99}, "status", 99, "0 OK"),
        ({"length": 1 << 21}, "length", 1 << 21, "at most 1048576 bytes of text"),
    ],
)
def test_control_messages_refused(changes, path, value, expected):
    error = refused(checks.parse_control, sealed(CONTROL_MESSAGE, MESSAGE, **changes))
    assert (error.path, error.value) == (f"control_message.{path}", value)
    assert expected in error.expected


def test_another_protocol_version_is_named_even_when_its_crc_is_elsewhere():
    data = bytearray(checks.build_control(ControlKind.INFO, 1))
    data[4] = 2
    assert refused(checks.parse_control, data).path == "control_message.major"


def test_a_newer_minor_version_is_accepted():
    entry = checks.parse_control(sealed(CONTROL_MESSAGE, MESSAGE, minor=7))
    assert entry.minor == 7


SAMPLES = [
    (checks.parse_sqe, checks.build_sqe(Opcode.KERNEL, blocks=1, ticket=5)),
    (checks.parse_sqe, checks.build_sqe(Opcode.MEMSET, length=64, ticket=6)),
    (checks.parse_extension, checks.build_extension(5, [1])),
    (checks.parse_cqe, checks.build_cqe(ticket=5, status=Status.FAILED, ancestor=5)),
    (checks.parse_control, checks.build_control(ControlKind.INFO, 3)),
]


@pytest.mark.parametrize(("parse", "data"), SAMPLES)
def test_every_bit_flip_is_refused(parse, data):
    for bit in range(8 * 64):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        refused(parse, bytes(damaged))


@pytest.mark.parametrize(("parse", "data"), SAMPLES)
def test_wrong_lengths_are_refused(parse, data):
    for wrong in (b"", data[:63], data + b"\0"):
        error = refused(parse, wrong, "x")
        assert (error.path, error.value) == ("x.length", len(wrong))


@pytest.mark.parametrize(("parse", "data"), SAMPLES)
def test_crc_error_names_both(parse, data):
    good = parse(data)
    damaged = sealed(good.layout, good.values)
    assert damaged == data
    offset = good.layout.offset("crc")
    damaged = data[:offset] + bytes(4) + data[offset + 4 :]
    error = refused(parse, damaged, "x")
    assert (error.path, error.value) == ("x.crc", "0x0")
    assert hex(good.crc) in error.expected


@given(st.data())
def test_what_builds_parses_and_encodes_to_the_same_bytes(data):
    def number(bits):
        return data.draw(st.integers(0, (1 << bits) - 1))

    opcode = data.draw(st.sampled_from([Opcode.KERNEL, Opcode.MEMCPY, Opcode.EVENT_WAIT]))
    operands = {
        Opcode.KERNEL: {"argument": 64, "cycles": 32, "bytes_read": 32, "kernel": 16},
        Opcode.MEMCPY: {"source": 64, "destination": 64, "length": 64},
        Opcode.EVENT_WAIT: {"event": 32, "event_value": 32, "event_context": 16},
    }[opcode]
    fields = {name: number(bits) for name, bits in operands.items()}
    if opcode is Opcode.KERNEL:
        fields["blocks"] = data.draw(st.integers(1, 65535))
    fields |= {
        "flags": number(14) & ~SqeFlag.POISONED,
        "engine_class": number(3),
        "priority": number(3),
        "stream": number(16),
        "ticket": number(32),
        "user_tag": number(64),
        "slot": 40000,
    }
    predecessors = data.draw(st.lists(st.integers(0, 39999), max_size=3))
    built = checks.build_sqe(opcode, predecessors=predecessors, **fields)
    entry = checks.parse_sqe(built)
    assert entry.encode() == built
    assert [slot for slot in entry.predecessors if slot != 0xFFFF] == predecessors
    for name, value in fields.items():
        assert getattr(entry, name) == value


@given(st.binary(min_size=64, max_size=64))
def test_random_bytes_are_an_entry_or_a_parse_error(data):
    for parse in (
        checks.parse_sqe,
        checks.parse_extension,
        checks.parse_cqe,
        checks.parse_control,
    ):
        error = error_of(parse, data)
        assert error is None or (error.path and error.expected)


@given(st.binary(min_size=64, max_size=64), st.sampled_from([0, 1, 2, 3, 6, 7, 8]))
def test_random_fields_with_the_right_crc(data, opcode):
    for parse, form, start in [
        (checks.parse_sqe, SQE, bytes([1, opcode])),
        (checks.parse_extension, EXTENSION, b"\x01"),
        (checks.parse_cqe, CQE, b""),
        (checks.parse_control, CONTROL_MESSAGE, bytes.fromhex("54534555 0100 0000 0100 0000")),
    ]:
        changed = bytearray(start + data[len(start) :])
        offset = form.offset("crc")
        changed[offset : offset + 4] = checks.entry_crc(form, changed).to_bytes(4, "little")
        error = error_of(parse, bytes(changed))
        assert error is None or not error.path.endswith(".crc")


def test_builders_refuse_what_the_parsers_refuse():
    for build, path in [
        (lambda: checks.build_sqe(99), "sqe.opcode"),
        (lambda: checks.build_sqe(Opcode.KERNEL, blocks=0), "sqe.blocks"),
        (lambda: checks.build_sqe(Opcode.KERNEL, blocks=65536), "sqe.blocks"),
        (lambda: checks.build_sqe(Opcode.KERNEL, blocks=1, event=3), "sqe.event"),
        (lambda: checks.build_sqe(Opcode.NOP, predecessors=[1, 2, 3, 4]), "sqe.predecessors"),
        (lambda: checks.build_extension(1, []), "extension.count"),
        (lambda: checks.build_extension(1, range(27)), "extension.count"),
        (lambda: checks.build_cqe(status=55), "cqe.status"),
        (lambda: checks.build_cqe(flags=CqeFlag.NO_CORE), "cqe.core"),
        (lambda: checks.build_control(0, 1), "control_message.kind"),
        (lambda: checks.build_control(1, 1, range(11)), "control_message.argument"),
    ]:
        with pytest.raises(ParseError) as caught:
            build()
        assert caught.value.path == path


def test_entry_has_its_fields_as_attributes():
    entry = checks.parse_cqe(checks.build_cqe(ticket=3))
    assert entry.ticket == 3
    with pytest.raises(AttributeError):
        _ = entry.blocks
