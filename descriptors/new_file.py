"""Files that appear under their name only when they are whole: where they go, and what went wrong.

A new file is written beside its place and then renamed. Renaming puts it in place of whatever has
the name, so what is not a regular file has to be noticed before.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def place_for(path: str | os.PathLike[str]) -> Path:
    """Return where a new file `path` has to be put: links are followed, not replaced.

    Raises `IsADirectoryError`, `FileExistsError` or `FileNotFoundError` when the path is a
    directory or a device, which must not be replaced, or when its folder does not exist.
    """
    shown = os.fspath(path)
    target = Path(path).resolve()
    if target.is_dir():
        raise IsADirectoryError(f"{shown} is a directory; name a file in it")
    if target.exists() and not target.is_file():
        raise FileExistsError(f"{shown} is not a regular file and would be replaced; name another")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{shown}: there is no directory {target.parent}; create it first")
    return target


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let a system error of the block name `path`: not a temporary file, and not nothing at all."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            error.filename, error.filename2 = os.fspath(path), None
        raise
