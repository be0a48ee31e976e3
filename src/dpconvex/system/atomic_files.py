"""Atomic writing of files: they appear whole or not at all, and never where somebody else put a
link.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat


def write_file_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file atomically: readers see what was there before, or all of the new content.

    The content goes to a draft of a random name beside the file, is flushed, and then takes the
    file's name. A draft is only ever created (``O_EXCL``): a link that waits under its name is not
    followed. A file of this name is replaced. A link, a folder or a device is an error. An
    ``OSError`` names ``path`` and leaves no draft.
    """
    target = os.fspath(path)
    if os.path.lexists(target) and not stat.S_ISREG(os.lstat(target).st_mode):
        raise FileExistsError(errno.EEXIST, "A link, a folder or a device is there", target)
    folder = os.path.dirname(os.path.abspath(target))
    draft = os.path.join(folder, f".dpconvex-{secrets.token_hex(16)}.draft")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    made = False
    try:
        handle = os.open(draft, flags, 0o666)  # the umask applies, as to any new file
        made = True
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
        made = False
        flush_file_folder(folder)
    except OSError as error:
        # Users know the file, not its draft.
        error.filename = target
        error.filename2 = None
        raise
    finally:
        if made:
            os.unlink(draft)


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
