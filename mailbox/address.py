"""Where a device listens: paths of Unix sockets, who owns them, and how they are taken.

A path belongs to the process that holds a lock on `PATH.lock`; a socket file without such a
process is left over and is replaced. Checked in this order: length, folder, kind of file, owner.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import tempfile
from pathlib import Path

from tsemu.mailbox.errors import AddressError

SCHEME = "unix:"
PATH_LIMIT = 107
"""Bytes that a Unix socket's path can have on Linux (`sun_path` less the final zero)."""
BACKLOG = 128


def default_path() -> Path:
    """Return where a device listens when nobody says: in the user's runtime directory.

    That is `$XDG_RUNTIME_DIR/tsemu.sock`; without a usable runtime directory a private one
    (mode 0700) is made below the directory for temporary files. Raises `AddressError` when
    somebody else owns that one.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and Path(runtime).is_dir() and os.access(runtime, os.W_OK):
        return Path(runtime) / "tsemu.sock"
    folder = Path(tempfile.gettempdir()) / f"tsemu-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if (
        not stat.S_ISDIR(status.st_mode)
        or status.st_uid != os.geteuid()
        or stat.S_IMODE(status.st_mode) & 0o077
    ):
        raise AddressError(
            "listen",
            str(folder),
            "this is not a private directory of yours",
            "remove it, or give --listen PATH",
        )
    return folder / "tsemu.sock"


def parse(address: str) -> Path:
    """Return the path of `unix:PATH` or of a plain path. Raises `AddressError` for other forms."""
    text = address.removeprefix(SCHEME)
    scheme, colon, _ = text.partition(":")
    if not text or (colon and scheme.isalpha() and not Path(text).is_absolute()):
        raise AddressError(
            "listen", address, "this is not the address of a socket", "write unix:PATH or a path"
        )
    if "\0" in text:
        raise AddressError("listen", address, "a path has no zero bytes", "give another path")
    return Path(text)


class Listener:
    """A listening socket at `path` with mode 0600, non-blocking.

    Raises `AddressError` when the path is longer than 107 bytes, its folder does not exist or may
    not be written, the path is no socket, or another process listens there.
    """

    def __init__(self, path: Path) -> None:
        _check_path(path)
        self.path = path
        self.closed = False
        self._lock = _take_lock(path)
        try:
            if path.exists():
                _remove_stale(path)
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                self._bind()
            except BaseException:
                self.socket.close()
                raise
        except BaseException:
            self._release_lock()
            raise

    def _bind(self) -> None:
        # The mode must be right from the first moment, and only umask does that.
        before = os.umask(0o177)
        try:
            self.socket.bind(str(self.path))
        except OSError as error:
            raise _system_error(self.path, error) from error
        finally:
            os.umask(before)
        self._inode = self.path.lstat().st_ino
        self.socket.listen(BACKLOG)

    @property
    def address(self) -> str:
        """What clients open: `unix:PATH` with an absolute path."""
        return f"{SCHEME}{self.path.absolute()}"

    def close(self) -> None:
        """Stop listening and remove socket and lock file; a second call does nothing."""
        if self.closed:
            return
        self.closed = True
        self.socket.close()
        with contextlib.suppress(OSError):
            if self.path.lstat().st_ino == self._inode:  # nobody has put another one there
                self.path.unlink()
        self._release_lock()

    def _release_lock(self) -> None:
        with contextlib.suppress(OSError):
            _lock_path(self.path).unlink()
        os.close(self._lock)


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _check_path(path: Path) -> None:
    length = len(os.fsencode(path))
    if length > PATH_LIMIT:
        raise AddressError(
            "listen",
            str(path),
            f"the path has {length} bytes, a socket's path at most {PATH_LIMIT}",
            "give a shorter path with --listen",
        )
    if not path.parent.is_dir():
        raise AddressError(
            "listen",
            str(path),
            f"there is no directory {path.parent}",
            "create it, or give another path with --listen",
        )


def _take_lock(path: Path) -> int:
    """Return the descriptor of the locked lock file."""
    name = _lock_path(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        try:
            lock = os.open(name, flags, 0o600)
        except OSError as error:
            raise _system_error(path, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
            os.close(lock)
            raise _taken(path, owner) from error
        # The holder before us may have removed the file between our open and our lock.
        with contextlib.suppress(OSError):
            if name.lstat().st_ino == os.fstat(lock).st_ino:
                os.ftruncate(lock, 0)
                os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
                return lock
        os.close(lock)


def _remove_stale(path: Path) -> None:
    """Remove the socket that a dead process has left."""
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise AddressError(
            "listen",
            str(path),
            "there is a file here that is not a socket",
            "give another path; nothing was removed",
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        code = probe.connect_ex(str(path))
    if code in (errno.ECONNREFUSED, errno.ENOENT):
        path.unlink(missing_ok=True)
    elif code in (0, errno.EAGAIN, errno.EINPROGRESS):
        raise _taken(path, "")
    else:
        raise _system_error(path, OSError(code, os.strerror(code)))


def _taken(path: Path, owner: str) -> AddressError:
    who = f"process {owner}" if owner else "another process"
    return AddressError(
        "listen",
        str(path),
        f"{who} listens here",
        "stop it, or give another path with --listen",
    )


def _system_error(path: Path, error: OSError) -> AddressError:
    return AddressError(
        "listen",
        str(path),
        f"the socket cannot be made ({error.strerror})",
        "check the directory's permissions, or give another path with --listen",
    )
