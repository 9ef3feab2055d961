"""What the program `tsemu` does when things end; how it starts is shown in tests/process."""

import signal
import sys

import pytest

from tsemu.ts_firmware import cli
from tsemu.ts_firmware.emulator import DevicePanicError
from tsemu.ts_firmware.server import Server


@pytest.fixture
def tsemu(monkeypatch, capsys):
    """Return a function that runs the program here: (exit code, stdout, stderr)."""
    kept = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tsemu", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    yield run
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_a_panic_has_an_exit_code_of_its_own_and_the_socket_goes(tsemu, monkeypatch, short_dir):
    def panic(_):
        raise DevicePanicError("scoreboard: slot 7 is in two lists")

    monkeypatch.setattr(Server, "serve", panic)
    code, out, err = tsemu("run", "--listen", short_dir / "s")
    assert code == cli.EXIT_PANIC
    assert "listening" in out
    assert "slot 7 is in two lists" in err
    assert list(short_dir.iterdir()) == []


def test_any_other_failure_removes_the_socket_too(monkeypatch, short_dir, tsemu):
    def fail(_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(Server, "serve", fail)
    monkeypatch.setattr(sys, "argv", ["tsemu", "run", "--listen", str(short_dir / "s")])
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main()
    assert list(short_dir.iterdir()) == []


def test_version(tsemu):
    code, out, _ = tsemu("--version")
    assert code == 0
    assert out.startswith("tsemu ")
    assert "protocol 1." in out


def test_without_a_command_there_is_help(tsemu):
    _, out, err = tsemu()
    assert "run" in out + err
    assert "presets" in out + err
