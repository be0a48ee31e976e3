"""Atomic writing of files: they appear whole or not at all, and never where somebody else put a
link.

A name can be reserved before the work for a file begins (:class:`ReservedName`): of two processes
that want one name, one is told at once, and none replaces what the other made.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Self

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_ROOM = 2**18  # bytes that a reserved name takes, so that a full disk is noticed at once
_LONGEST_NAME = 255  # bytes of a file's name on most file systems
_MARK = "dpconvex-reserved"
_NEW_FILE = os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


class NameReservedError(FileExistsError):
    """Another process has reserved the name of a file, or was stopped while it had."""


def write_file_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file atomically: readers see what was there before, or all of the new content.

    The content goes to a draft of a random name beside the file, is flushed, and then takes the
    file's name. A draft is only ever created (``O_EXCL``): a link that waits under its name is not
    followed. A file of this name is replaced. A link, a folder or a device is an error. An
    ``OSError`` names ``path`` and leaves no draft.
    """
    target = os.fspath(path)
    _refuse_links(target)
    with _draft_of(target, content) as draft:
        os.replace(draft, target)


def write_new_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file atomically whose name must be free; whatever is there stays.

    A ``FileExistsError`` says that something is there. An ``OSError`` names ``path``, and nothing
    is left of the file.
    """
    target = os.fspath(path)
    with _draft_of(target, content) as draft:
        name_new_file(draft, target)


def name_new_file(draft: str, target: str) -> None:
    """Give a complete draft in the same folder its name, or raise ``FileExistsError`` if the name
    is taken. The draft's own name may be left.
    """
    try:
        os.link(draft, target)
        return
    except FileExistsError:
        raise
    except OSError:
        # No hard links here: claim the name first, so that nothing is replaced.
        os.close(os.open(target, os.O_WRONLY | _NEW_FILE))
    try:
        os.replace(draft, target)
    except BaseException:
        os.unlink(target)
        raise


@contextlib.contextmanager
def _draft_of(target: str, content: bytes) -> Iterator[str]:
    """Write a draft of a file beside it for the block, which names it; errors are the file's."""
    folder = os.path.dirname(os.path.abspath(target))
    draft = os.path.join(folder, f".dpconvex-{secrets.token_hex(16)}.draft")
    made = False
    with _errors_of(target):
        try:
            # The umask applies, as to any new file.
            handle = os.open(draft, os.O_WRONLY | _NEW_FILE, 0o666)
            made = True
            with open(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            yield draft
            flush_file_folder(folder)
        finally:
            if made:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(draft)


@contextlib.contextmanager
def _errors_of(target: str) -> Iterator[None]:
    """Let errors name the file that users know, and not its draft."""
    try:
        yield
    except OSError as error:
        error.filename = target
        error.filename2 = None
        raise


def _refuse_links(target: str) -> None:
    if os.path.lexists(target) and not stat.S_ISREG(os.lstat(target).st_mode):
        raise FileExistsError(errno.EEXIST, "A link, a folder or a device is there", target)


class ReservedName:
    """The name of a file that is still to be made, reserved for one process.

    Beside the name ``model.json`` stands ``.model.json.reserved``, which is created exclusively and
    removed in the end: a second process that wants the name gets a `NameReservedError`. It says
    which process has it, and takes some room, so that a full disk is noticed now. What a process
    that was killed has left is taken over, where the system can tell.

    Parameters
    ----------
    path : str or path-like
        The name. What is there now is replaced by :meth:`write` if it is still the same then.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.json"
    >>> with ReservedName(path) as reserved:
    ...     reserved.write(b"{}")
    >>> [file.name for file in path.parent.iterdir()]
    ['model.json']
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.target = os.path.abspath(os.fspath(path))
        self.mark = reservation_of(self.target)
        self._handle: int | None = None
        self._held = False
        _refuse_links(self.target)
        with _errors_of(self.target):
            self._handle = _claim_mark(self.mark)
            self._held = True
            try:
                self._found = _identity(self.target)
                self._take_room()
            except BaseException:
                self.release()
                raise

    def write(self, content: bytes) -> None:
        """Write the file, which appears whole under its name, and give the reservation back.

        Raises
        ------
        OSError
            It names the file, of which then nothing is there; what stood there stays. A
            ``FileExistsError`` says that something took the name meanwhile, or changed.
        """
        if self._handle is None:
            raise ValueError("The name is not reserved any more.")
        with _errors_of(self.target):
            try:
                os.lseek(self._handle, 0, os.SEEK_SET)
                _write_all(self._handle, content)
                os.ftruncate(self._handle, len(content))
                os.fsync(self._handle)
                if os.name == "nt":  # where an open file cannot be renamed
                    os.close(self._handle)
                    self._handle = None
                found = _identity(self.target)
                if found is None:
                    name_new_file(self.mark, self.target)
                elif found == self._found:
                    os.replace(self.mark, self.target)
                else:
                    raise FileExistsError(errno.EEXIST, "Another file took the name meanwhile")
                flush_file_folder(os.path.dirname(self.target))
            finally:
                self.release()

    def release(self) -> None:
        """Give the name back, if it is still reserved."""
        if not self._held:
            return
        self._held = False
        handle = self._handle
        self._handle = None
        # What became the file is gone from here by now, or by a link has both names.
        if handle is None or _identity(self.mark) == _identity_of(os.fstat(handle)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.mark)
        if handle is not None:
            os.close(handle)

    def _take_room(self) -> None:
        assert self._handle is not None
        words = {
            _MARK: os.path.basename(self.target),
            "process": os.getpid(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        _write_all(self._handle, f"{json.dumps(words)}\n".encode())
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(self._handle, 0, _ROOM)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def reservation_of(path: str | os.PathLike[str]) -> str:
    """Return the file that stands beside a name while it is reserved."""
    folder, name = os.path.split(os.path.abspath(os.fspath(path)))
    mark = f".{name}.reserved"
    if len(os.fsencode(mark)) > _LONGEST_NAME:
        mark = f".{hashlib.sha256(os.fsencode(name)).hexdigest()[:32]}.reserved"
    return os.path.join(folder, mark)


def _claim_mark(mark: str) -> int:
    """Return a handle of a reservation's file that nobody else holds, or raise
    `NameReservedError`.
    """
    try:
        handle = os.open(mark, os.O_RDWR | _NEW_FILE, 0o666)
    except FileExistsError:
        handle = _open_left_mark(mark)
    try:
        _lock_mark(handle, mark)
        if _identity(mark) != _identity_of(os.fstat(handle)):
            raise _reserved_error(mark)  # given back, or taken over, before it was locked
    except BaseException:
        os.close(handle)
        raise
    os.ftruncate(handle, 0)
    return handle


def _open_left_mark(mark: str) -> int:
    """Return a handle of a reservation's file that another process has left, or raise if it is
    none, or if the system cannot tell.
    """
    try:
        found = os.lstat(mark)
        alone = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
        if fcntl is None or not alone or found.st_uid != os.getuid():
            raise _reserved_error(mark)
        handle = os.open(mark, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise _reserved_error(mark) from None
    if not os.pread(handle, 100, 0).startswith(b'{"' + _MARK.encode()):
        os.close(handle)
        raise _reserved_error(mark)
    return handle


def _lock_mark(handle: int, mark: str) -> None:
    """Hold a lock for as long as this process lives; raise if another one does."""
    if fcntl is None:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _reserved_error(mark) from None
    except OSError:  # a file system without locks: then nothing is ever taken over
        if os.fstat(handle).st_size:
            raise _reserved_error(mark) from None


def _reserved_error(mark: str) -> NameReservedError:
    who = ""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        with open(mark, "rb") as file:
            words = json.loads(file.readline(1000))
        who = f" (process {int(words['process'])}, since {str(words['since'])[:40]})"
    return NameReservedError(
        errno.EEXIST,
        f"The name is reserved{who} by a command that is running, or that was stopped before its "
        f"end. If none is running, delete the file {os.path.basename(mark)!r} beside it",
    )


def _write_all(handle: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]


def _identity(path: str) -> tuple[int, ...] | None:
    """Return what tells a file from others and from what it was; None for no file."""
    try:
        return _identity_of(os.lstat(path))
    except FileNotFoundError:
        return None


def _identity_of(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def flush_file_folder(folder: str) -> None:
    """Flush a file's folder, which makes its new name durable; Windows neither allows nor needs
    it.
    """
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
