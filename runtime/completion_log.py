"""The completion log: every completion of a run, in completion order, streamed to a file.

`.csv` files are text, all others are NumPy files (`.npy`) of the CQE type, so that `numpy.load`
reads them. A log appears under its name only when it is whole; until then, and when the run fails,
whatever had that name stays as it was.
"""

import contextlib
import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from tsemu.descriptors.codes import Status
from tsemu.descriptors.entries import CQE
from tsemu.descriptors.new_file import naming, place_for

Completions = NDArray[np.void]
CQE_DTYPE: "np.dtype[Any]" = CQE.dtype
CSV_COLUMNS = (
    "ticket", "user_tag", "stream", "status", "core", "start_ps", "end_ps", "block",
    "ancestor", "ancestor_context", "fault_address", "slot", "epoch", "flags",
)  # fmt: skip
CSV_ROWS = 1 << 16
"""Rows turned into text at once: bounds the memory."""
STATUS_NAMES = {int(status): status.name for status in Status}


class CompletionLog:
    """Writes completions to `path`; a context manager: an exception inside discards the log.

    Raises `OSError` when the file cannot be written, `IsADirectoryError` or `FileExistsError` when
    `path` is something that is not a file and must not be replaced (a directory, a device).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._target = place_for(path)
        self._csv = self._target.suffix.lower() == ".csv"
        self._rows = 0
        with naming(path):
            handle, name = tempfile.mkstemp(
                prefix=f".{self._target.name[:200]}.", suffix=".part", dir=self._target.parent
            )
        self._part = Path(name)
        self._file: BinaryIO = os.fdopen(handle, "wb")
        try:
            with naming(path):
                self._write_header()
        except BaseException:
            self._discard()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                with naming(self._path):
                    self._finish()
        finally:
            self._discard()

    @property
    def rows(self) -> int:
        """Completions written so far."""
        return self._rows

    def write(self, completions: Completions) -> None:
        """Append completions, an array of the CQE type."""
        with naming(self._path):
            if self._csv:
                for first in range(0, len(completions), CSV_ROWS):
                    self._file.write(_csv_text(completions[first : first + CSV_ROWS]))
            else:
                self._file.write(np.ascontiguousarray(completions).tobytes())
        self._rows += len(completions)

    def _write_header(self) -> None:
        if self._csv:
            self._file.write((",".join(CSV_COLUMNS) + "\n").encode())
            return
        # NumPy leaves room for the longest number of rows, so the header can be written again.
        np.lib.format.write_array_header_1_0(
            self._file,
            {
                "descr": np.lib.format.dtype_to_descr(CQE_DTYPE),
                "fortran_order": False,
                "shape": (self._rows,),
            },
        )

    def _finish(self) -> None:
        if not self._csv:
            end = self._file.tell()
            self._file.seek(0)
            self._write_header()
            self._file.seek(end)
        self._file.flush()
        umask = os.umask(0)
        os.umask(umask)
        self._part.chmod(0o666 & ~umask)
        self._file.close()
        self._part.replace(self._target)

    def _discard(self) -> None:
        with contextlib.suppress(OSError):  # what it could not write is thrown away
            self._file.close()
        self._part.unlink(missing_ok=True)


def _csv_text(completions: Completions) -> bytes:
    columns = [completions[name].tolist() for name in CSV_COLUMNS]
    status = CSV_COLUMNS.index("status")
    columns[status] = [STATUS_NAMES.get(code, str(code)) for code in columns[status]]
    return "".join(",".join(map(str, row)) + "\n" for row in zip(*columns, strict=True)).encode()
