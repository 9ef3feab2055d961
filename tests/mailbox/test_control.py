import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsemu.descriptors.codes import ABI_MAJOR, ABI_MINOR, ControlKind, ControlStatus
from tsemu.mailbox import control
from tsemu.mailbox.errors import RefusedError

WORD = st.integers(0, 2**32 - 1)
HALF = st.integers(0, 2**16 - 1)


@given(HALF, WORD, HALF, st.integers(0, control.TEXT_LIMIT), st.lists(WORD, max_size=10))
def test_what_is_built_is_parsed(kind, token, status, length, argument):
    data = control.build(kind, token, status=status, length=length, argument=argument)
    message = control.parse(data)
    assert (message.kind, message.token, message.status) == (kind, token, status)
    assert message.length == length
    assert message.argument == (*argument, *[0] * (10 - len(argument)))


def test_the_crc_is_crc32c_with_its_own_field_zero():
    data = control.build(1, 2, argument=[3])
    cleared = data[:20] + bytes(4) + data[24:]
    assert int.from_bytes(data[20:24], "little") == crc32c.crc32c(cleared)


@pytest.mark.parametrize("byte", range(24, 64))
def test_every_damaged_byte_is_noticed(byte):
    data = bytearray(control.build(1, 2, argument=range(10)))
    data[byte] ^= 0x40
    with pytest.raises(RefusedError) as caught:
        control.parse(bytes(data))
    assert caught.value.status == ControlStatus.BAD_CRC


def test_bad_magic_shows_found_and_expected():
    with pytest.raises(RefusedError, match="0x55455354") as caught:
        control.parse(b"GET / HTTP/1.1\r\n".ljust(64))
    assert caught.value.status == ControlStatus.BAD_MAGIC
    assert caught.value.field == "magic"


def test_another_major_version_names_both_before_anything_else_is_looked_at():
    data = bytearray(control.build(1, 2, version=(ABI_MAJOR + 1, 7)))
    data[-1] ^= 1  # a CRC that this version could not check
    with pytest.raises(RefusedError) as caught:
        control.parse(bytes(data))
    assert caught.value.status == ControlStatus.BAD_VERSION
    assert f"{ABI_MAJOR}.{ABI_MINOR}" in caught.value.message
    assert f"{ABI_MAJOR + 1}.7" in caught.value.message


def test_another_minor_version_is_taken():
    assert control.parse(control.build(1, 2, version=(ABI_MAJOR, 99))).token == 2


@pytest.mark.parametrize("length", [control.TEXT_LIMIT + 1, 2**32 - 1])
def test_a_huge_length_is_refused(length):
    with pytest.raises(RefusedError, match=str(control.TEXT_LIMIT)) as caught:
        control.parse(control.build(1, 2, length=length))
    assert caught.value.status == ControlStatus.BAD_LENGTH


def test_a_refusal_carries_field_value_message_and_hint():
    error = RefusedError(ControlStatus.BAD_VALUE, "name", "a|b", "too | long", "shorten it")
    reply = control.refusal(control.Message(ControlKind.OPEN, 77), error)
    message = control.parse(reply[:64])
    assert (message.token, message.status) == (77, ControlStatus.BAD_VALUE)
    assert len(reply) == 64 + message.length
    assert reply[64:].decode().split("|") == ["name", "a/b", "too / long", "shorten it"]
