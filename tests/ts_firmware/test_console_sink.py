import os

import pytest

from tsemu.ts_firmware.console_sink import HELD_BYTES, ConsoleSink


def test_a_file_is_appended_to(tmp_path):
    path = tmp_path / "console.txt"
    path.write_text("before\n")
    sink = ConsoleSink(str(path))
    sink.write("one\n")
    sink.write("zwei ü\n")
    sink.close()
    assert path.read_text(encoding="utf-8") == "before\none\nzwei ü\n"
    assert sink.dropped == 0


def test_nobody_reading_never_stalls(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    sink = ConsoleSink(str(tmp_path / "fifo"))
    for _ in range(1000):
        sink.write("x" * 1000)
    assert sink.dropped > 0
    assert sink.dropped >= 1_000_000 - HELD_BYTES - (1 << 20)
    sink.close()


def test_a_reader_that_comes_late_gets_the_rest(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    sink = ConsoleSink(str(tmp_path / "fifo"))
    text = "".join(f"line {number}\n" for number in range(10_000))
    sink.write(text)
    got = b""
    while len(got) < len(text):
        got += os.read(reader, 1 << 16)
        sink.flush()
    assert got.decode() == text
    sink.close()
    os.close(reader)


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        ConsoleSink(str(tmp_path / "a" / "b"))
