"""Addresses of devices."""

import pytest

from tsemu.host_driver import address
from tsemu.host_driver.errors import AddressError


def test_addresses_are_taken_apart():
    assert address.parse("emu:edge-2") == address.Address("emu", "edge-2")
    assert str(address.parse("unix:/run/a:b.sock")) == "unix:/run/a:b.sock"
    assert address.parse("emu:./my.toml").target == "./my.toml"


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("", "scheme"),
        ("edge-2", "scheme"),
        ("tcp:host", "scheme"),
        ("unix:", "no path"),
        ("emu:", "no preset"),
        ("unix:a\0b", "zero byte"),
        (7, "not int"),
    ],
)
def test_bad_addresses_say_what_is_possible(bad, words):
    with pytest.raises(AddressError, match=words) as caught:
        address.parse(bad)
    assert caught.value.field == "address"
    assert caught.value.value == bad
    assert "unix:PATH" in caught.value.hint


def test_a_path_longer_than_a_sockets_is_refused_with_its_length():
    path = "/tmp/" + "x" * 103
    with pytest.raises(AddressError) as caught:
        address.parse("unix:" + path)
    assert caught.value.limit == 107
    assert "108 bytes" in str(caught.value)
    assert "shorter" in caught.value.hint
    assert address.parse("unix:" + path[:-1]).target == path[:-1]
