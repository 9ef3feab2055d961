"""Asking a device about itself without a context."""

import socket
import threading

import pytest

from tsemu.host_driver import AddressError, Device, DeviceLostError, ProtocolError, query_info


def test_a_process_and_an_embedded_device_tell_the_same(served, device):
    process, embedded = query_info(served), device.info()
    assert process["classes"] == embedded["classes"]
    assert process["soc"] == embedded["soc"]
    assert set(process) <= set(embedded)
    with Device.open(served) as other:
        assert other.info()["status"]["contexts"][0]["name"] == other.context.name


def test_an_embedded_description_needs_no_context():
    assert query_info("emu:edge-2")["soc"] == "edge-2"


def test_nobody_there(short_dir):
    with pytest.raises(AddressError, match="tsemu run"):
        query_info(f"unix:{short_dir}/none")


@pytest.mark.parametrize(
    ("answer", "error"),
    [(b"", DeviceLostError), (b"x" * 64, ProtocolError), (b"HTTP/1.1 400", DeviceLostError)],
)
def test_a_peer_that_is_no_device(short_dir, answer, error):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(short_dir / "s"))
        server.listen()

        def serve():
            peer, _ = server.accept()
            with peer:
                peer.recv(64)
                peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(error) as caught:
            query_info(f"unix:{short_dir}/s")
        thread.join()
        assert caught.value.field
