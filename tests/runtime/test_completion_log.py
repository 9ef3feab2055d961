"""The completion log: readable by NumPy and as text, whole or not there at all."""

import csv
import errno
import os
from pathlib import Path

import numpy as np
import pytest

from tsemu.descriptors.codes import Status
from tsemu.runtime.completion_log import CQE_DTYPE, CSV_COLUMNS, CompletionLog


def completions(count, first=0):
    array = np.zeros(count, CQE_DTYPE)
    array["ticket"] = np.arange(first, first + count)
    array["user_tag"] = 2**64 - 1
    array["end_ps"] = 7
    array["status"] = Status.OK
    array["crc"] = 0xDEADBEEF
    return array


def test_npy_log_is_what_numpy_loads(tmp_path):
    path = tmp_path / "log.npy"
    with CompletionLog(path) as log:
        log.write(completions(3))
        log.write(completions(70000, first=3))
    assert log.rows == 70003
    loaded = np.load(path)
    assert loaded.dtype == CQE_DTYPE
    assert np.array_equal(loaded, completions(70003))
    assert [item.name for item in tmp_path.iterdir()] == ["log.npy"]


def test_log_of_no_completions(tmp_path):
    with CompletionLog(tmp_path / "log.npy"):
        pass
    assert np.load(tmp_path / "log.npy").shape == (0,)


def test_chunks_leave_no_trace_in_the_bytes(tmp_path):
    for suffix in ("npy", "csv"):
        with CompletionLog(tmp_path / f"a.{suffix}") as log:
            log.write(completions(100))
        with CompletionLog(tmp_path / f"b.{suffix}") as log:
            for first in range(0, 100, 7):
                log.write(completions(min(7, 100 - first), first))
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def test_csv_log_has_names_of_statuses(tmp_path):
    array = completions(2)
    array["status"] = [Status.TIMEOUT, 777]
    with CompletionLog(tmp_path / "log.CSV") as log:
        log.write(array)
    with (tmp_path / "log.CSV").open(newline="") as text:
        rows = list(csv.DictReader(text))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert [row["status"] for row in rows] == ["TIMEOUT", "777"]
    assert rows[1]["user_tag"] == str(2**64 - 1)


def test_failed_run_leaves_the_old_log_alone(tmp_path):
    path = tmp_path / "log.npy"
    path.write_text("precious")
    log = CompletionLog(path)
    log.write(completions(5))
    assert len(list(tmp_path.iterdir())) == 2
    log.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_link_is_followed_not_replaced(tmp_path):
    link = tmp_path / "link.npy"
    link.symlink_to(tmp_path / "real.npy")
    with CompletionLog(link):
        pass
    assert link.is_symlink()
    assert (tmp_path / "real.npy").is_file()


def test_directory_and_device_are_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match="name a file"):
        CompletionLog(tmp_path)
    with pytest.raises(FileExistsError, match="would be replaced"):
        CompletionLog(Path("/dev/null"))


def test_missing_folder_is_an_error_that_writes_nothing(tmp_path):
    with pytest.raises(FileNotFoundError):
        CompletionLog(tmp_path / "no" / "log.npy")


class FullDisk:
    """A file that has no room for anything."""

    def write(self, _):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_names_the_log_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "log.csv"
    log = CompletionLog(path)
    log._file.close()
    log._file = FullDisk()
    with pytest.raises(OSError, match="No space left") as caught, log:
        log.write(completions(5))
    assert caught.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []
