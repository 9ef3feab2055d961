"""Buffers: allocation, views, staging, and use after free."""

import itertools

import numpy as np
import pytest

from tsemu.host_driver import ClosedError, Device, InvalidError, NoResourceError


def test_buffers_are_aligned_as_the_device_says(device):
    alignment = device.context.info.alignment
    buffers = [
        device.alloc(size, where=where) for size in (1, 63, 65) for where in ("host", "device")
    ]
    assert all(buffer.address % alignment == 0 for buffer in buffers)
    spans = sorted((b.address, b.address + b.nbytes) for b in buffers)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_shapes_and_dtypes(device):
    with device.alloc((3, 5), "f4") as buffer:
        assert buffer.nbytes == 60
        assert buffer.array.shape == (3, 5)
        buffer.write(np.arange(15).reshape(3, 5))
        assert (buffer.array == np.arange(15, dtype="f4").reshape(3, 5)).all()
        assert (buffer.read() == buffer.array).all()


@pytest.mark.parametrize("size", [100, 1 << 20, (1 << 20) + 4096])
def test_device_buffers_are_written_and_read_by_copies(device, size):
    data = np.random.default_rng(1).integers(0, 256, size, "u1")
    with device.alloc(size, where="device") as buffer:
        before = device.context.now_ps
        buffer.write(data)
        assert (buffer.read() == data).all()
        assert device.context.now_ps > before
        with pytest.raises(InvalidError, match="read"):
            _ = buffer.array


def test_use_after_free_is_an_error(device, stream):
    buffer = device.alloc(64)
    buffer.free()
    buffer.free()
    for call in (
        lambda: buffer.array,
        buffer.read,
        lambda: buffer.write(b"abc"),
        lambda: stream.memset(buffer, 1),
    ):
        with pytest.raises(ClosedError, match="freed"):
            call()
    assert "freed" in repr(buffer)


def test_views_outlive_the_device():
    with Device.open("emu:edge-2") as device:
        view = device.alloc(64).array
        view[:] = 5
    assert (view == 5).all()


def test_memory_comes_back(device):
    heap = device.context.info.host_heap_size
    for _ in range(3):
        with device.alloc(heap):
            with pytest.raises(NoResourceError) as caught:
                device.alloc(1)
            assert caught.value.hint
    with device.alloc(heap // 2), device.alloc(heap // 2):
        pass


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"shape": 0}, "shape"),
        ({"shape": -5}, "shape"),
        ({"shape": (3, -1)}, "shape"),
        ({"shape": "big"}, "shape"),
        ({"shape": 1 << 60}, "shape"),
        ({"shape": 4, "where": "cloud"}, "where"),
        ({"shape": 4, "dtype": object}, "dtype"),
    ],
)
def test_bad_buffers_are_refused(device, arguments, field):
    with pytest.raises(InvalidError) as caught:
        device.alloc(**arguments)
    assert caught.value.field == field
    assert caught.value.hint


def test_too_much_data_is_refused(device):
    with device.alloc(4, "f4") as buffer, pytest.raises(InvalidError) as caught:
        buffer.write(np.zeros(5))
    assert (caught.value.field, caught.value.value, caught.value.limit) == ("data", 20, 16)


def test_a_buffer_of_another_context_is_refused(device, stream):
    with device.create_context("other") as other, other.alloc(64) as foreign:
        with pytest.raises(InvalidError) as caught:
            stream.memset(foreign, 1)
        assert caught.value.field == "destination"
