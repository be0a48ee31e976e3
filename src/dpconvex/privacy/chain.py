"""An append-only log in one SQLite file, each record chained to the one before by its hash.

Records are committed and flushed before :meth:`ChainedLog.append` ends, writers wait for each
other, and whatever breaks the chain (truncation, flipped bits, a hand edit, an empty or foreign
file) is a :class:`LedgerError`, never an empty log.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

_APPLICATION_ID = 0x64704C67  # "dpLg"
_VERSION = 1
_GENESIS = "0" * 64
_BUSY_SECONDS = 120.0

Record = dict[str, Any]


class LedgerError(RuntimeError):
    """The ledger cannot be opened, read or charged: nothing may be released."""


class ChainedLog:
    """The log in the file at ``path``, opened anew for every call so that a fork shares nothing.

    Parameters
    ----------
    path : str
        Absolute path of the file.
    seen : (int, str) or None
        Number and hash of the newest record known: a file without it was replaced or rolled back.
    """

    def __init__(self, path: str, seen: tuple[int, str] | None = None) -> None:
        self.path = path
        self.seen = seen

    def create(self, record: Record) -> None:
        """Write a new file beside its place and link it in, so that it is never seen half made.

        If another process was faster, its file stays.
        """
        folder, name = os.path.split(self.path)
        try:
            handle, draft = tempfile.mkstemp(prefix=f".{name}.", suffix=".new", dir=folder)
        except OSError as error:
            raise LedgerError(f"A ledger cannot be created at '{self.path}': {error}.") from error
        os.close(handle)
        try:
            _write_draft(draft, record)
            try:
                os.link(draft, self.path)
            except FileExistsError:
                return
            except OSError:
                # No hard links here: claim the name first, so that nothing is replaced.
                try:
                    os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return
                os.replace(draft, self.path)
            _flush_folder(folder)
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"A ledger cannot be created at '{self.path}': {error}.") from error
        finally:
            if os.path.exists(draft):
                os.unlink(draft)

    def read(self) -> list[Record]:
        """Return all records, oldest first, after checking every link of the chain."""
        with self._open() as connection, _transaction(connection, "DEFERRED"):
            records, head = self._verified(connection)
        self.seen = (len(records), head)
        return records

    @contextmanager
    def append(self) -> Iterator[tuple[list[Record], list[Record]]]:
        """Hold the write lock over a block that gets all records and an empty list.

        What the block puts into the list is written and committed when it ends, before the caller
        goes on; an exception in the block leaves the file as it was.
        """
        with self._open() as connection:
            with _transaction(connection, "IMMEDIATE"):
                records, head = self._verified(connection)
                added: list[Record] = []
                yield records, added
                for number, record in enumerate(added, start=len(records) + 1):
                    head = _insert(connection, number, head, record)
            self.seen = (len(records) + len(added), head)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            if os.path.getsize(self.path) == 0:
                # SQLite takes an empty file for a new database.
                raise LedgerError(self._damaged("the file is empty"))
            uri = Path(self.path).as_uri() + "?mode=rw"
            with closing(
                sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
            ) as connection:
                # EXTRA also flushes the removal of the journal: otherwise a power cut just after
                # the commit could bring the journal back and undo a charge already granted.
                connection.execute("PRAGMA synchronous = EXTRA")
                yield connection
        except FileNotFoundError:
            raise LedgerError(
                f"The ledger at '{self.path}' is gone. Put the file back: a new one would forget "
                "what was spent."
            ) from None
        except sqlite3.DatabaseError as error:
            if any(word in str(error) for word in ("locked", "readonly", "unable")):
                raise LedgerError(
                    f"The ledger at '{self.path}' cannot be used now: {error}. Check that its "
                    "folder is writable and that no process holds the file."
                ) from error
            raise LedgerError(self._damaged(str(error))) from error
        except OSError as error:
            raise LedgerError(f"The ledger at '{self.path}' cannot be read: {error}.") from error

    def _verified(self, connection: sqlite3.Connection) -> tuple[list[Record], str]:
        """Return the records and the newest hash, or raise if any link is broken."""

        def check(holds: bool, reason: str) -> None:
            if not holds:
                raise LedgerError(self._damaged(reason))

        def single(statement: str) -> Any:
            return connection.execute(statement).fetchone()[0]

        # Taken before the file is read: another thread may append and move it meanwhile.
        seen = self.seen
        check(single("PRAGMA application_id") == _APPLICATION_ID, "it was not made by dpconvex")
        version = single("PRAGMA user_version")
        check(version == _VERSION, f"its format is {version}, this dpconvex reads {_VERSION}")
        check(single("PRAGMA quick_check(1)") == "ok", "its pages are damaged")
        rows = connection.execute("SELECT number, record, hash FROM log ORDER BY number").fetchall()
        heads = connection.execute("SELECT number, hash FROM head").fetchall()
        link = _GENESIS
        for position, (number, record, digest) in enumerate(rows, start=1):
            check(number == position and isinstance(record, str), f"record {position} is missing")
            link = _hash(link, record)
            check(link == digest, f"record {position} was changed")
        check(bool(rows) and heads == [(len(rows), link)], "its last records are missing")
        if seen is not None:
            number, digest = seen
            check(
                len(rows) >= number and rows[number - 1][2] == digest,
                "it was replaced by another or an older ledger",
            )
        return [json.loads(record) for _, record, _ in rows], link

    def _damaged(self, reason: str) -> str:
        return (
            f"The file at '{self.path}' is not an intact ledger: {reason}. Nothing may be released "
            "until it is restored from a copy that holds every charge."
        )


def _hash(link: str, record: str) -> str:
    return hashlib.sha256(f"{link}\n{record}".encode()).hexdigest()


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    """See one state of the file, with the write lock if IMMEDIATE; undo everything on any error."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _insert(connection: sqlite3.Connection, number: int, head: str, record: Record) -> str:
    """Write one record and move the head, inside the caller's transaction; return its hash."""
    text = json.dumps(record, sort_keys=True)
    digest = _hash(head, text)
    connection.execute("INSERT INTO log VALUES (?, ?, ?)", (number, text, digest))
    connection.execute("DELETE FROM head")
    connection.execute("INSERT INTO head VALUES (?, ?)", (number, digest))
    return digest


def _write_draft(draft: str, record: Record) -> None:
    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = EXTRA")
        # One file and no side files at rest: a write-ahead log could be left behind by a copy.
        connection.execute("PRAGMA journal_mode = DELETE")
        with _transaction(connection, "IMMEDIATE"):
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.execute(
                "CREATE TABLE log (number INTEGER PRIMARY KEY, record TEXT, hash TEXT)"
            )
            connection.execute("CREATE TABLE head (number INTEGER, hash TEXT)")
            _insert(connection, 1, _GENESIS, record)


def _flush_folder(folder: str) -> None:
    """Make the new name durable; Windows neither allows nor needs it."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
