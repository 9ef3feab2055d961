"""Opening, closing, names, several contexts, forks, Ctrl-C."""

import contextlib
import gc
import os
import signal
import threading
import warnings

import pytest

from tsemu.host_driver import (
    AddressError,
    ClosedError,
    Device,
    DeviceLostError,
    InvalidError,
    NameInUseError,
    TaskResetError,
)


def test_the_default_is_an_embedded_device():
    with Device.open() as device:
        assert device.address == "emu:edge-2"
        assert device.default_stream.launch(cycles=1).wait().ok


def test_info_says_what_the_device_is(device):
    info = device.info()
    assert {row["name"]: row["cores"] for row in info["classes"]}["AICORE"] == 2
    facts = device.context.info
    assert facts.name == "tester"
    assert facts.clock == "lockstep"
    assert facts.alignment == 64
    assert (facts.slots, facts.window, facts.batch, facts.stream_limit) == (4096, 2048, 2048, 256)
    assert [row.name for row in facts.classes] == ["AICORE", "AICPU", "DMA"]


def test_settings_reach_the_device():
    with Device.open("emu:edge-2", settings={"classes.aicore.cores": 7}, policy="rank") as device:
        assert device.context.info.classes[0].cores == 7
        assert device.info()["policy"] == "rank"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"settings": {"classes.aicore.cores": 0}}, "classes.aicore.cores"),
        ({"settings": {"classes.toaster.cores": 1}}, "classes.toaster"),
        ({"policy": "magic"}, "policy"),
        ({"clock": "sundial"}, "clock"),
        ({"window": 5000}, "window"),
        ({"slots": 1}, "slots"),
        ({"slots": 1 << 17}, "slots"),
        ({"batch": 4096}, "window"),
        ({"sq_entries": 100}, "sq_entries"),
        ({"windows": 5}, "windows"),
        ({"window": -1}, "window"),
        ({"window": 1.5}, "window"),
        ({"name": ""}, "name"),
        ({"name": "x" * 64}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"name": "\ud800"}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"soc": 3}, "soc"),
        ({"settings": 3}, "settings"),
        ({"settings": "a=b"}, "settings"),
    ],
)
def test_bad_options_are_named(arguments, field):
    with pytest.raises(InvalidError) as caught:
        Device.open("emu:edge-2", **arguments)
    assert field in caught.value.field or field in str(caught.value)
    assert caught.value.hint


def test_unknown_presets_and_missing_files_are_addresses_that_lead_nowhere(tmp_path):
    for target in ("toaster", str(tmp_path / "missing.toml")):
        with pytest.raises(AddressError):
            Device.open(f"emu:{target}")


def test_settings_of_a_running_device_belong_to_tsemu_run():
    for key, value in (("policy", "rank"), ("settings", {"a": 1}), ("seed", 3), ("clients", 2)):
        with pytest.raises(InvalidError, match="tsemu run") as caught:
            Device.open("unix:/nowhere", **{key: value})
        assert caught.value.field == key


def test_a_missing_socket_is_an_address_error(short_dir):
    with pytest.raises(AddressError) as caught:
        Device.open(f"unix:{short_dir}/none.sock")
    assert caught.value.value == f"unix:{short_dir}/none.sock"
    assert "tsemu run" in str(caught.value)


def test_a_name_in_use_is_refused(device):
    with pytest.raises(NameInUseError):
        device.create_context("tester")
    with device.create_context("another") as other:
        assert other.default_stream.launch(cycles=1).wait().ok
        assert device.default_stream.launch(cycles=1).wait().ok


def test_two_devices_in_one_thread():
    with Device.open("emu:edge-2") as one, Device.open("emu:server-32") as two:
        a = one.default_stream.launch(cycles=1000)
        b = two.default_stream.launch(cycles=1000)
        b.wait()
        a.wait()
        assert a.ok
        assert b.ok


def test_two_handles_to_one_process_in_one_thread(served):
    with Device.open(served, name="one") as one, Device.open(served, name="two") as two:
        for _ in range(20):
            a = [one.default_stream.launch(cycles=1000 + i) for i in range(5)]
            b = [two.default_stream.launch(cycles=700 + i) for i in range(5)]
            b[-1].wait()
            a[0].wait()
            one.synchronize()
            while not all(task.done() for task in b):
                pass
        assert all(task.ok for task in (*a, *b))


def test_two_contexts_of_one_device_in_one_thread(device):
    with device.create_context("second") as other:
        a = [device.default_stream.launch(cycles=1000) for _ in range(10)]
        b = [other.default_stream.launch(cycles=1000) for _ in range(10)]
        for first, second in zip(a, b, strict=True):
            first.wait()
            second.wait()


def test_closing_with_work_in_flight_returns():
    device = Device.open("emu:edge-2")
    stream = device.create_stream(in_order=False)
    event = device.event()
    waiting = stream.wait(event)
    for _ in range(100):
        stream.launch(cycles=4_000_000_000, after=[waiting])
    for _ in range(100):
        stream.launch(cycles=4_000_000_000)
    device.close()
    device.close()
    assert not device.is_open
    with pytest.raises(ClosedError):
        _ = device.context


def test_a_forgotten_device_is_closed_with_a_warning():
    device = Device.open("emu:edge-2")
    device.default_stream.launch(cycles=1000)
    context = device.context
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del device
        context.device = None  # what is left is a cycle of the device with its context
        gc.collect()
    assert [w.category for w in caught] == [ResourceWarning]
    assert not context.is_open


def test_a_forked_child_gets_a_clear_error(either):
    stream = either.create_stream()
    stream.launch(cycles=1).wait()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        text = b"no error"
        try:
            stream.launch(cycles=1)
        except ClosedError as error:
            text = str(error).encode()
        with contextlib.suppress(BaseException):
            either.close()
            os.write(writer, text)
        os._exit(0)
    os.waitpid(child, 0)
    text = os.read(reader, 4096)
    os.close(reader)
    os.close(writer)
    assert b"parent process" in text
    assert stream.launch(cycles=1).wait().ok


@pytest.mark.parametrize("where", ["embedded", "process"])
@pytest.mark.parametrize("call", ["task", "stream", "event", "launch"])
def test_ctrl_c_in_a_wait_leaves_the_context_usable(serve, where, call):
    # A clock that nearly stands still: the wait cannot end before the signal comes.
    clock = "paced:0.000001"
    server = serve("--clock", clock) if where == "process" else None
    address = server.address if server else "emu:edge-2"
    options = {} if server else {"clock": clock}
    with Device.open(address, stream_limit=1, **options) as device:
        stream, event = device.create_stream(), device.event()
        task = stream.launch(cycles=10_000)
        calls = {
            "task": task.wait,
            "stream": stream.synchronize,
            "event": event.wait,
            "launch": lambda: stream.launch(cycles=1),
        }
        started = threading.Event()

        def interrupt():
            started.wait()
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            _after(started, calls[call])
        thread.join()
        assert task.status is None
        assert device.default_stream.launch(cycles=1).status is None
        assert task.cancel() in (True, False)
        if server:
            server.process.kill()  # closing would wait for the task, which takes ages here


def _after(started, call):
    started.set()
    call()


def test_a_device_process_that_dies_is_noticed(serve):
    server = serve()
    with Device.open(server.address) as device:
        stream = device.create_stream()
        fine = stream.launch(cycles=1).wait()
        task = stream.launch(cycles=1_000_000)
        server.process.kill()
        server.process.wait()
        with pytest.raises((DeviceLostError, TaskResetError)):
            task.wait()
        with pytest.raises(DeviceLostError) as caught:
            stream.launch(cycles=1).wait()
        assert caught.value.hint
        with pytest.raises(DeviceLostError):
            device.synchronize()
        assert fine.ok
        with pytest.raises((AddressError, DeviceLostError)):
            device.info()


def test_other_threads_are_told_when_the_context_is_closed():
    device = Device.open("emu:edge-2", clock="paced:0.000001")
    task = device.default_stream.launch(cycles=1_000_000_000)
    errors = []
    inside = threading.Event()

    def wait():
        inside.set()
        try:
            task.wait()
        except ClosedError as error:
            errors.append(error)
        except Exception as error:  # noqa: BLE001 - shown by the assertion
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    inside.wait()
    device.close()
    thread.join()
    assert len(errors) == 1
