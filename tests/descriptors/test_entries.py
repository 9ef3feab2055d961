"""Golden bytes of the ring entries and the control message, written out by hand.

The CRC is computed here bit by bit, from the polynomial alone.
"""

import pytest

from tsemu.descriptors import checks
from tsemu.descriptors.codes import ControlKind, CqeFlag, Opcode, SqeFlag, Status
from tsemu.descriptors.control import CONTROL_PAGE


def crc32c_bitwise(data: bytes) -> int:
    """CRC-32C as RFC 3720 defines it: reflected polynomial 0x82F63B78."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def sealed(text: str, offset: int) -> bytes:
    """Bytes of a hex listing in which `cc cc cc cc` at `offset` stands for the CRC."""
    data = bytearray.fromhex(text)
    assert len(data) == 64
    assert data[offset : offset + 4] == b"\xcc\xcc\xcc\xcc"
    data[offset : offset + 4] = bytes(4)
    data[offset : offset + 4] = crc32c_bitwise(data).to_bytes(4, "little")
    return bytes(data)


def test_bitwise_crc_has_the_published_check_value():
    assert crc32c_bitwise(b"123456789") == 0xE3069283
    assert crc32c_bitwise(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


KERNEL = sealed(
    """
    01 01 42 20 02 03 05 00  44 33 22 11 cc cc cc cc
    88 77 66 55 44 33 22 11  00 10 00 00 00 00 00 80
    e8 03 00 00 00 02 00 00  00 01 00 00 10 00 07 00
    40 42 0f 00 2a 00 00 00  09 00 01 00 02 00 ff ff
    """,
    12,
)


def test_kernel():
    data = checks.build_sqe(
        Opcode.KERNEL,
        flags=SqeFlag.NEW_CALL | SqeFlag.PHASE | 2,
        engine_class=2,
        priority=3,
        stream=5,
        ticket=0x11223344,
        user_tag=0x1122334455667788,
        argument=0x8000000000001000,
        cycles=1000,
        bytes_read=512,
        bytes_written=256,
        blocks=16,
        kernel=7,
        timeout_us=1_000_000,
        value=42,
        slot=9,
        predecessors=[1, 2],
    )
    assert data.hex(" ") == KERNEL.hex(" ")
    assert checks.parse_sqe(data).user_tag == 0x1122334455667788


def test_memcpy():
    golden = sealed(
        """
        01 02 00 00 01 00 00 00  01 00 00 00 cc cc cc cc
        00 00 00 00 00 00 00 00  00 00 01 00 00 00 00 00
        00 00 02 00 00 00 00 00  00 04 00 00 00 00 00 00
        00 00 00 00 00 00 00 00  03 00 ff ff ff ff ff ff
        """,
        12,
    )
    data = checks.build_sqe(
        Opcode.MEMCPY,
        engine_class=1,
        ticket=1,
        source=0x10000,
        destination=0x20000,
        length=1024,
        slot=3,
    )
    assert data.hex(" ") == golden.hex(" ")


def test_event_record():
    golden = sealed(
        """
        01 06 00 00 00 00 00 00  02 00 00 00 cc cc cc cc
        00 00 00 00 00 00 00 00  04 00 00 00 05 00 00 00
        00 00 00 00 00 00 00 00  06 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00  00 00 ff ff ff ff ff ff
        """,
        12,
    )
    data = checks.build_sqe(Opcode.EVENT_RECORD, ticket=2, event=4, event_value=5, event_context=6)
    assert data.hex(" ") == golden.hex(" ")


def test_poisoned_event_keeps_event_and_value():
    golden = sealed(
        """
        01 06 80 00 00 00 00 00  02 00 00 00 cc cc cc cc
        00 00 00 00 00 00 00 00  04 00 00 00 05 00 00 00
        0b 00 00 00 0c 00 00 00  06 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00  00 00 ff ff ff ff ff ff
        """,
        12,
    )
    data = checks.build_sqe(
        Opcode.EVENT_RECORD,
        flags=SqeFlag.POISONED,
        ticket=2,
        event=4,
        event_value=5,
        event_context=6,
        ancestor=11,
        ancestor_context=12,
    )
    assert data.hex(" ") == golden.hex(" ")
    assert checks.parse_sqe(data).layout.name == "sqe_poisoned"


def test_extension():
    golden = sealed("01 01 03 00 0a 00 00 00  cc cc cc cc 04 00 05 00 06 00" + " 00 00" * 23, 8)
    data = checks.build_extension(10, [4, 5, 6], phase=1)
    assert data.hex(" ") == golden.hex(" ")


def test_completion():
    golden = sealed(
        """
        08 07 06 05 04 03 02 01  e8 03 00 00 00 00 00 00
        d0 07 00 00 00 00 00 00  00 00 00 00 00 00 00 00
        0a 00 00 00 09 00 00 00  cc cc cc cc 02 00 03 00
        02 00 ff ff 00 00 04 00  00 00 01 01 00 00 00 00
        """,
        40,
    )
    data = checks.build_cqe(
        user_tag=0x0102030405060708,
        start_ps=1000,
        end_ps=2000,
        ticket=10,
        ancestor=9,
        stream=2,
        slot=3,
        status=Status.DEP_ABORTED,
        core=0xFFFF,
        ancestor_context=4,
        phase=1,
        flags=CqeFlag.NO_CORE,
    )
    assert data.hex(" ") == golden.hex(" ")


def test_control_message():
    golden = sealed(
        """
        54 53 45 55 01 00 00 00  01 00 00 00 07 00 00 00
        05 00 00 00 cc cc cc cc  00 10 00 00 00 08 00 00
        00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00
        """,
        20,
    )
    data = checks.build_control(ControlKind.OPEN, 7, [4096, 2048], length=5)
    assert data.hex(" ") == golden.hex(" ")


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("sq_tail", 0x200),
        ("cq_head", 0x240),
        ("host_sleeps", 0x280),
        ("refusal_seen", 0x2C0),
        ("sq_head", 0x300),
        ("cq_tail", 0x340),
        ("device_sleeps", 0x380),
        ("admitted", 0x3C0),
        ("request", 0x400),
        ("waits", 0x800),
        ("answers", 0xC00),
    ],
)
def test_words_that_one_side_polls_have_their_own_line(name, offset):
    assert CONTROL_PAGE.offset(name) == offset
