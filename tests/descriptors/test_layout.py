"""Layouts: declaration errors, building, parsing, and the NumPy form against construct's."""

import numpy as np
import pytest
from construct import GreedyBytes
from hypothesis import given
from hypothesis import strategies as st

from tsemu.descriptors import cheader
from tsemu.descriptors.errors import ParseError
from tsemu.descriptors.layout import Array, Int8ul, Int16ul, Int32ul, Int64ul, Layout, layout
from tsemu.descriptors.program_layout import FILE_LAYOUTS

ALL = (*cheader.LAYOUTS, *FILE_LAYOUTS)


def any_layout(subject):
    return pytest.mark.parametrize("declared", ALL, ids=lambda declared: declared.name)(subject)


def random_bytes(size: int):
    """Strategy: `size` bytes; large ones from a seed."""
    if size <= 128:
        return st.binary(min_size=size, max_size=size)
    return st.integers(0, 1 << 32).map(lambda seed: np.random.default_rng(seed).bytes(size))


def values_of(declared: Layout):
    """Strategy: a value for every field of a layout."""
    fields = {}
    for item in declared.fields:
        if isinstance(item.numpy_format, np.dtype):
            nested = next(other for other in ALL if f"struct tsemu_{other.name}" == item.c_type)
            one = values_of(nested)
        else:
            one = st.integers(0, (1 << 8 * item.width) - 1)
        count = item.count
        fields[item.name] = st.lists(one, min_size=count, max_size=count) if count else one
    return st.fixed_dictionaries(fields)


def filled(record: np.void, values: dict) -> None:
    """Store `values` in a NumPy record field by field."""
    for name, value in values.items():
        if isinstance(value, dict):
            filled(record[name], value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for index, element in enumerate(value):
                filled(record[name][index], element)
        else:
            record[name] = value


@any_layout
def test_random_bytes_survive_parse_and_build(declared):
    @given(random_bytes(declared.size))
    def check(data):
        assert declared.struct.build(declared.parse(data)) == data

    check()


@pytest.mark.parametrize(
    "declared",
    [declared for declared in ALL if declared.size < 4096],
    ids=lambda declared: declared.name,
)
def test_numpy_and_construct_give_the_same_bytes(declared):
    @given(values_of(declared))
    def check(values):
        record = np.zeros(1, declared.dtype)
        filled(record[0], values)
        data = declared.build(values)
        assert record.tobytes() == data
        parsed = declared.parse(data)
        for name, value in values.items():
            found = parsed[name]
            assert (list(found) if isinstance(value, list) else found) == value

    check()


def test_control_page_in_numpy_and_construct():
    declared = cheader.control.CONTROL_PAGE
    data = bytes(np.random.default_rng(7).integers(0, 256, declared.size, np.uint8))
    record = np.frombuffer(data, declared.dtype)[0]
    parsed = declared.parse(data)
    assert record["sq_tail"] == parsed.sq_tail
    assert record["classes"]["cores"].tolist() == [row.cores for row in parsed.classes]
    assert record["answers"]["now_ps"].tolist() == [row.now_ps for row in parsed.answers]
    assert record["reply"]["argument"].tolist() == list(parsed.reply.argument)


@any_layout
def test_dtype_has_no_gaps_and_the_declared_size(declared):
    assert declared.dtype.itemsize == declared.size
    assert sum(item.size for item in declared.fields) == declared.size
    for item in declared.fields:
        assert declared.dtype.fields[item.name][1] == item.offset == declared.offset(item.name)


@any_layout
def test_wrong_length_names_the_path(declared):
    for size in (0, declared.size - 1, declared.size + 1):
        with pytest.raises(ParseError) as caught:
            declared.parse(bytes(size), "ring[3]")
        assert (caught.value.path, caught.value.value) == ("ring[3].length", size)
        assert caught.value.expected == f"{declared.size} bytes"


SMALL = layout(
    "small", 16, "For tests.", "a" / Int32ul, "b" / Array(2, Int16ul), "c" / Int64ul * "last"
)


def test_fields_not_named_are_zero():
    assert SMALL.build({"b": [1, 2]}).hex(" ") == "00 00 00 00 01 00 02 00 00 00 00 00 00 00 00 00"


@pytest.mark.parametrize(
    ("values", "path", "expected"),
    [
        ({"a": -1}, "small.a", "an unsigned 32-bit number"),
        ({"a": 1 << 32}, "small.a", "an unsigned 32-bit number"),
        ({"a": "1"}, "small.a", "an unsigned 32-bit number"),
        ({"c": None}, "small.c", "an unsigned 64-bit number"),
        ({"b": [1]}, "small.b", "a sequence of 2 numbers"),
        ({"b": 7}, "small.b", "a sequence of 2 numbers"),
        ({"b": [1, 65536]}, "small.b[1]", "an unsigned 16-bit number"),
        ({"d": 1}, "small.d", "a field of this layout"),
    ],
)
def test_values_that_do_not_fit(values, path, expected):
    with pytest.raises(ParseError) as caught:
        SMALL.build(values)
    assert (caught.value.path, caught.value.expected) == (path, expected)


def test_unknown_field_has_no_offset():
    with pytest.raises(KeyError):
        SMALL.offset("d")


def test_declared_size_must_match():
    with pytest.raises(ValueError, match="take 4 bytes, 8 are declared"):
        layout("wrong", 8, "For tests.", "a" / Int32ul)


def test_fields_must_be_naturally_aligned():
    with pytest.raises(ValueError, match=r"wrong\.b: offset 1 is not aligned"):
        layout("wrong", 5, "For tests.", "a" / Int8ul, "b" / Int32ul)


def test_only_fields_with_a_c_form():
    with pytest.raises(ValueError, match="has no C form"):
        layout("wrong", 4, "For tests.", "a" / GreedyBytes)


def test_error_says_path_value_and_expected():
    error = ParseError("program.tasks[17].blocks", 0, "1 to 65535 blocks")
    assert str(error) == "program.tasks[17].blocks: found 0, expected 1 to 65535 blocks"
    assert isinstance(error, ValueError)
