from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsemu.ts_firmware.settings import (
    CLASS_SETTINGS,
    SETTINGS,
    ConfigError,
    all_keys,
    find,
    flatten,
    paced_factor,
    parse_assignment,
)


@pytest.mark.parametrize("key", all_keys(["aicore"]))
def test_every_default_is_a_value_that_may_be_set(key):
    setting = find(key, ["aicore"])
    assert setting.check(key, setting.default) == setting.default
    assert setting.check(key, str(setting.default)) == setting.default
    assert setting.doc
    assert setting.expected


@given(st.integers(-(2**70), 2**70))
def test_whole_numbers_stay_in_their_range(number):
    for key, setting in {**SETTINGS, **CLASS_SETTINGS}.items():
        if isinstance(setting.default, bool) or not isinstance(setting.default, int):
            continue
        if setting.low <= number <= setting.high:
            assert setting.check(key, str(number)) == number
        else:
            with pytest.raises(ConfigError, match=f"{setting.low} to {setting.high}"):
                setting.check(key, number)


@pytest.mark.parametrize("text", ["0x10", "16", "1_6", " 16 "])
def test_numbers_may_be_written_as_in_c_and_python(text):
    assert SETTINGS["limits.contexts"].check("limits.contexts", text) == 16


@pytest.mark.parametrize("value", ["", "four", "4.5", 4.5, None, True, [4], "-", "0x"])
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(ConfigError) as caught:
        SETTINGS["limits.contexts"].check("limits.contexts", value)
    assert caught.value.field == "limits.contexts"
    assert caught.value.value == value
    assert "1 to 64" in caught.value.hint


@pytest.mark.parametrize(
    ("value", "meant"), [("true", True), ("FALSE", False), (1, True), (0, False)]
)
def test_truth_may_be_written_in_words_and_digits(value, meant):
    assert CLASS_SETTINGS["moves_bytes"].check("k", value) is meant


@pytest.mark.parametrize("value", ["yes", 2, None, 0.5])
def test_other_truths_are_refused(value):
    with pytest.raises(ConfigError, match="true or false"):
        CLASS_SETTINGS["moves_bytes"].check("k", value)


def test_a_choice_lists_what_there_is():
    with pytest.raises(ConfigError, match="priority, fifo, rank, edf, fair"):
        SETTINGS["scheduler.policy"].check("scheduler.policy", "lottery")


@pytest.mark.parametrize(
    ("text", "factor"),
    [
        ("paced:0.5", Fraction(1, 2)),
        ("paced:1e-6", Fraction(1, 10**6)),
        ("paced", 1),
        ("paced:3", 3),
        ("paced:1/3", Fraction(1, 3)),
        ("paced:.5", Fraction(1, 2)),
    ],
)
def test_a_pace_is_an_exact_factor(text, factor):
    assert paced_factor(text) == factor
    assert SETTINGS["clock.mode"].check("clock.mode", text) == text


@pytest.mark.parametrize(
    "text",
    [
        "paced:0",
        "paced:-1",
        "paced:x",
        "paced:1e7",
        "paced:1e-7",
        "paced:nan",
        "fast",
        3,
        "paced:1/0",
        "paced:1e999999999",
        "paced:1e-999999999",
        "paced:" + "9" * 5000,
    ],
)
def test_other_clock_modes_are_refused(text):
    with pytest.raises(ConfigError, match="lockstep, free"):
        SETTINGS["clock.mode"].check("clock.mode", text)


def test_an_unknown_key_shows_close_ones_and_where_all_are():
    with pytest.raises(ConfigError, match=r"did you mean classes\.aicore\.cores") as caught:
        find("classes.aicor.cores", ["aicore", "dma"])
    assert "tsemu presets --keys" in caught.value.hint
    assert caught.value.field == "classes.aicor.cores"


def test_nested_and_dotted_keys_are_the_same():
    nested = {"classes": {"aicore": {"cores": 4}}, "scheduler": {"policy": "fifo"}, "seed": 1}
    dotted = {"classes.aicore.cores": 4, "scheduler.policy": "fifo", "seed": 1}
    mixed = {"classes.aicore": {"cores": 4}, "scheduler.policy": "fifo", "seed": 1}
    assert dict(flatten(nested)) == dict(flatten(dotted)) == dict(flatten(mixed)) == dotted


def test_an_assignment_is_split_at_its_first_equals_sign():
    assert parse_assignment("Seed = a=b") == ("seed", "a=b")


@pytest.mark.parametrize("text", ["seed", "=3", ""])
def test_other_assignments_are_refused(text):
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        parse_assignment(text)
