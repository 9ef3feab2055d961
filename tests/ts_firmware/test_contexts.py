import pytest

from tsemu.descriptors.codes import ControlStatus
from tsemu.mailbox.errors import RefusedError
from tsemu.ts_firmware import contexts
from tsemu.ts_firmware.config import load

SOC = load("edge-2")


def test_defaults():
    assert contexts.resolve(SOC, {}) == {
        "slots": 4096,
        "window": 2048,
        "sq_entries": 4096,
        "cq_entries": 4096,
        "batch": 2048,
        "stream_limit": 256,
        "host_heap_mib": 64,
        "device_heap_mib": 256,
    }


def test_what_is_not_given_follows_from_what_is():
    values = contexts.resolve(SOC, {"slots": 100, "window": 90})
    assert (values["batch"], values["sq_entries"], values["stream_limit"]) == (10, 128, 11)


def test_the_smallest_context():
    values = contexts.resolve(SOC, {"slots": 2})
    assert (values["window"], values["batch"], values["stream_limit"]) == (1, 1, 1)
    assert (values["sq_entries"], values["cq_entries"]) == (2, 2)


def test_the_configuration_gives_defaults():
    config = load("edge-2", {"context": {"slots": 64, "stream_limit": 3, "host_heap_mib": 1}})
    values = contexts.resolve(config, {"window": 16})
    assert (values["slots"], values["batch"], values["stream_limit"]) == (64, 48, 3)
    assert values["host_heap_mib"] == 1


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"slots": 1}, "slots"),
        ({"slots": 65_536}, "slots"),
        ({"slots": 8, "window": 8}, "window"),
        ({"window": 4000, "batch": 97}, "batch"),
        ({"sq_entries": 3}, "sq_entries"),
        ({"sq_entries": 1}, "sq_entries"),
        ({"cq_entries": 1 << 21}, "cq_entries"),
        ({"stream_limit": 2049}, "stream_limit"),
        ({"device_heap_mib": 1 << 14}, "device_heap_mib"),
        ({"host_heap_mib": 2**32 - 1}, "host_heap_mib"),
        ({"slots": -4}, "slots"),
        ({"colour": 1}, "colour"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_field(options, field):
    with pytest.raises(RefusedError) as caught:
        contexts.resolve(SOC, options)
    assert caught.value.status == ControlStatus.BAD_VALUE
    assert caught.value.field == field
    assert caught.value.hint


@pytest.mark.parametrize("name", ["", "x" * 64, "a\nb", "a\0b", "é" * 32])
def test_bad_names(name):
    with pytest.raises(RefusedError, match="63 bytes"):
        contexts.check_name(name)
