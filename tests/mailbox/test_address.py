import os
import socket
import stat
import subprocess
import sys

import pytest

from tsemu.mailbox.address import PATH_LIMIT, Listener, default_path, parse
from tsemu.mailbox.errors import AddressError

LEAVE_BEHIND = """
import os, sys
from pathlib import Path
from tsemu.mailbox.address import Listener
listener = Listener(Path(sys.argv[1]))
os._exit(0)
"""


def test_the_socket_is_the_users_alone_and_gone_after_close(short_dir):
    listener = Listener(short_dir / "s")
    assert stat.S_IMODE((short_dir / "s").stat().st_mode) == 0o600
    assert listener.address == f"unix:{short_dir}/s"
    listener.close()
    listener.close()
    assert list(short_dir.iterdir()) == []


def test_a_path_in_use_is_refused_and_left_alone(short_dir):
    first = Listener(short_dir / "s")
    with pytest.raises(AddressError, match=f"process {os.getpid()} listens here") as caught:
        Listener(short_dir / "s")
    assert "--listen" in caught.value.hint
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(short_dir / "s"))
    first.close()


def test_a_path_in_use_by_another_program_is_refused(short_dir):
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(short_dir / "s"))
        other.listen()
        with pytest.raises(AddressError, match="another process listens here"):
            Listener(short_dir / "s")
        assert (short_dir / "s").exists()
    assert not (short_dir / "s.lock").exists()


def test_the_socket_of_a_dead_process_is_replaced(short_dir):
    path = short_dir / "s"
    subprocess.run([sys.executable, "-c", LEAVE_BEHIND, str(path)], check=True)
    assert path.exists()
    listener = Listener(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    listener.close()
    assert list(short_dir.iterdir()) == []


def test_a_file_that_is_no_socket_is_kept(short_dir):
    (short_dir / "s").write_text("precious")
    with pytest.raises(AddressError, match="not a socket"):
        Listener(short_dir / "s")
    assert (short_dir / "s").read_text() == "precious"


def test_a_long_path_is_named_with_length_and_limit(short_dir):
    path = short_dir / ("x" * (PATH_LIMIT - len(str(short_dir))))
    assert len(str(path)) == PATH_LIMIT + 1
    with pytest.raises(AddressError, match="has 108 bytes, a socket's path at most 107"):
        Listener(path)
    Listener(path.with_name(path.name[:-1])).close()


def test_length_counts_bytes_not_characters(short_dir):
    with pytest.raises(AddressError, match="at most 107"):
        Listener(short_dir / ("é" * 50))


def test_a_missing_folder_is_named(short_dir):
    with pytest.raises(AddressError, match=f"no directory {short_dir}/a"):
        Listener(short_dir / "a" / "s")


def test_somebody_elses_socket_at_the_path_is_not_removed_at_close(short_dir):
    listener = Listener(short_dir / "s")
    (short_dir / "s").unlink()
    (short_dir / "s").write_text("new")
    listener.close()
    assert (short_dir / "s").read_text() == "new"


def test_the_default_is_in_the_runtime_directory(short_dir, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    assert default_path() == short_dir / "tsemu.sock"


def test_without_one_it_is_in_a_private_folder(short_dir, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(short_dir))
    folder = default_path().parent
    assert folder.parent == short_dir
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_others_can_enter_is_not_trusted(short_dir, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(short_dir))
    (short_dir / f"tsemu-{os.geteuid()}").mkdir()
    (short_dir / f"tsemu-{os.geteuid()}").chmod(0o755)
    with pytest.raises(AddressError, match="private"):
        default_path()


@pytest.mark.parametrize("text", ["unix:/a/b", "/a/b"])
def test_an_address_is_a_path_with_or_without_scheme(text):
    assert str(parse(text)) == "/a/b"


@pytest.mark.parametrize("text", ["", "unix:", "tcp:host:1", "emu:edge-2", "/a\0b"])
def test_other_addresses_are_refused(text):
    with pytest.raises(AddressError):
        parse(text)
