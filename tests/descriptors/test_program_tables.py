"""The small tables of program files: round trips and refusals."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsemu.descriptors import program_layout as form
from tsemu.descriptors import program_tables as tables
from tsemu.descriptors.errors import ParseError
from tsemu.descriptors.program_tables import Buffer, Placement, Stream, Tables

NAMES = st.text(st.characters(codec="utf-8"), max_size=12).filter(
    lambda name: name and name.isprintable()
)
STREAMS = st.builds(Stream, NAMES, st.booleans(), st.integers(0, 7), st.integers(0, 2**32 - 1))


def check(**changes):
    values = {"streams": (), "classes": (), "kernels": (), "buffers": (), "events": 0}
    Tables(**(values | changes)).check()


def refused(function, *arguments, **named):
    with pytest.raises(ParseError) as caught:
        function(*arguments, **named)
    return caught.value.path, caught.value.value, caught.value.expected


@given(st.lists(STREAMS, max_size=5))
def test_streams_round_trip(streams):
    data = tables.encode_streams(streams)
    assert len(data) == 64 * len(streams)
    assert tables.decode_streams(data) == tuple(streams)


@given(st.lists(NAMES, max_size=5))
def test_kernels_round_trip(names):
    data = tables.encode_names("kernels", names)
    assert len(data) == 64 * len(names)
    assert tables.decode_names("kernels", data) == tuple(names)


def test_classes_golden():
    data = tables.encode_names("classes", ["AICORE", "DMA"])
    assert data == b"AICORE" + bytes(10) + b"DMA" + bytes(13)
    assert tables.decode_names("classes", data) == ("AICORE", "DMA")


def test_stream_golden():
    data = tables.encode_streams([Stream("s0", in_order=True, priority=3, limit=0x100)])
    assert data == b"s0" + bytes(46) + bytes.fromhex("00010000 0100 03 00") + bytes(8)


def test_buffer_golden():
    data, pieces = tables.encode_buffers(
        [Buffer(64, data=b"abc"), Buffer(4096, 256, Placement.HOST, b"de")]
    )
    assert pieces == [b"abc", b"de"]
    assert data == bytes.fromhex(
        "4000000000000000 0000000000000000 0300000000000000 40000000 0100 0100"
        "0010000000000000 0300000000000000 0200000000000000 00010000 0000 0100"
    )
    buffers, places = tables.decode_buffers(data, 5)
    assert buffers == (Buffer(64), Buffer(4096, 256, Placement.HOST))
    assert places == [(0, 3), (3, 2)]


def test_buffer_data_may_be_an_array():
    _, pieces = tables.encode_buffers([Buffer(64, data=np.arange(3, dtype="<u2"))])
    assert pieces == [b"\0\0\1\0\2\0"]
    _, pieces = tables.encode_buffers([Buffer(64, data=memoryview(b"xyz"))])
    assert pieces == [b"xyz"]


@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [
        ({"streams": (Stream(""),)}, "streams[0].name", ""),
        ({"streams": (Stream("a"), Stream("a"))}, "streams[1].name", "a"),
        ({"streams": (Stream("a\n"),)}, "streams[0].name", "a\n"),
        ({"streams": (Stream("a", priority=8),)}, "streams[0].priority", 8),
        ({"streams": (Stream("a", limit=-1),)}, "streams[0].limit", -1),
        ({"streams": (Stream("a", limit=1 << 32),)}, "streams[0].limit", 1 << 32),
        ({"classes": tuple("abcdefghi")}, "classes.count", 9),
        ({"classes": ("a", "a")}, "classes[1]", "a"),
        ({"kernels": ("",)}, "kernels[0]", ""),
        ({"events": -1}, "events.count", -1),
        ({"events": 1 << 21}, "events.count", 1 << 21),
        ({"buffers": (Buffer(0),)}, "buffers[0].size", 0),
        ({"buffers": (Buffer((1 << 40) + 1),)}, "buffers[0].size", (1 << 40) + 1),
        ({"buffers": (Buffer(1), Buffer(1, 0))}, "buffers[1].alignment", 0),
        ({"buffers": (Buffer(1, 48),)}, "buffers[0].alignment", 48),
        ({"buffers": (Buffer(1, 1, 2),)}, "buffers[0].placement", 2),
    ],
)
def test_tables_refused(changes, path, value):
    found = refused(check, **changes)
    assert found[:2] == (f"program.{path}", value)
    assert found[2]


def test_limits_themselves_are_fine():
    check(
        streams=(Stream("a", limit=2**32 - 1, priority=7),),
        classes=tuple("abcdefgh"),
        buffers=(Buffer(1 << 40, 1 << 31),),
        events=1 << 20,
    )


def test_names_that_do_not_fit():
    long = "x" * 49
    assert refused(tables.encode_streams, [Stream(long)])[:2] == ("program.streams[0].name", long)
    path, value, expected = refused(tables.encode_names, "classes", ["A", "Ä"])
    assert (path, value, expected) == ("program.classes[1]", "Ä", "ASCII text")
    assert refused(tables.encode_names, "classes", ["C" * 17])[2].startswith("at most 16 bytes")
    surrogate = refused(tables.encode_names, "kernels", ["\ud800"])
    assert surrogate == ("program.kernels[0]", "\ud800", "UTF-8 text")


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"a\0b" + bytes(13), "text, then only zero bytes"), (b"\xff" * 16, "ASCII text")],
)
def test_names_that_are_no_text(data, expected):
    found = refused(tables.decode_names, "classes", bytes(16) + data)
    assert found == ("program.classes[1]", data, expected)


@pytest.mark.parametrize(
    ("changes", "path"),
    [({"flags": 2}, "flags"), ({"reserved0": 1}, "reserved0"), ({"reserved1": 1}, "reserved1")],
)
def test_reserved_bits_of_streams(changes, path):
    data = form.PROGRAM_STREAM.build({"name": [97, *[0] * 47], **changes})
    assert refused(tables.decode_streams, data)[0] == f"program.streams[0].{path}"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"flags": 2}, "flags"),
        ({"placement": 2}, "placement"),
        ({"data_offset": 1}, "data_offset"),
        ({"data_length": 1}, "data_length"),
        ({"flags": 1}, "data_length"),
        ({"flags": 1, "data_length": 65}, "data_length"),
        ({"flags": 1, "data_length": 64, "data_offset": 1}, "data_offset"),
        ({"flags": 1, "data_length": 1, "data_offset": 2**64 - 1}, "data_offset"),
    ],
)
def test_buffers_refused(changes, path):
    data = form.PROGRAM_BUFFER.build({"size": 64, "alignment": 64, **changes})
    assert refused(tables.decode_buffers, data, 64)[0] == f"program.buffers[0].{path}"


def test_more_data_than_the_buffer_holds():
    found = refused(tables.encode_buffers, [Buffer(2, data=b"abc")])
    assert found == ("program.buffers[0].data", 3, "at most 2 bytes (size)")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_meta_round_trip(meta):
    try:
        data = tables.encode_meta(meta)
    except ParseError:
        with pytest.raises(ValueError, match="not JSON compliant"):
            json.dumps(meta, allow_nan=False).encode()
    else:
        assert tables.decode_meta(data) == meta


def test_meta_is_sorted_and_compact():
    assert tables.encode_meta({"b": [1, "x"], "a": None}) == b'{"a":null,"b":[1,"x"]}'


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[" * 100_000, b"\xff", b'{"a":' + b"1" * 10_000 + b"}", b"[]", b"1"]
)
def test_meta_that_is_no_object(data):
    assert refused(tables.decode_meta, data)[0] == "program.meta"


def test_meta_that_json_cannot_express():
    endless: dict = {}
    endless["self"] = endless
    for meta in ({"a": object()}, {"a": float("nan")}, endless):
        assert refused(tables.encode_meta, meta)[0] == "program.meta"
    assert refused(tables.encode_meta, {"a": "x" * (1 << 20)})[0] == "program.meta.length"
