"""An append-only log in one SQLite file, each record chained to the one before by its hash.

Records are committed and flushed before :meth:`ChainedLog.append` ends, and writers wait for each other. Beside the log
the file keeps one running state per data set, sealed with the newest hash and written in the same transaction, so that
reading a state or appending a record takes the same time however long the log is. :meth:`ChainedLog.verify` reads
everything, checks every link and works the states out again. What does not fit together (truncation, flipped bits, a
hand edit, an empty or foreign file) is a :class:`LedgerError`, never an empty log.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpconvex.privacy.description import Facts
from dpconvex.whole_files import flush_folder

_APPLICATION_ID = 0x64704C67  # "dpLg"
# Format 1 had no running states: it is read in full, and gets them with the next record.
_FIRST_VERSION, _VERSION = 1, 2
_GENESIS = "0" * 64
_BUSY_SECONDS = 120.0
# The last one came with the second format.
_TABLES = (
    "CREATE TABLE log (number INTEGER PRIMARY KEY, record TEXT, hash TEXT)",
    "CREATE TABLE head (number INTEGER, hash TEXT)",
    "CREATE TABLE running (number INTEGER, states TEXT, seal TEXT)",
)
# What ANALYZE adds, to no harm.
_STATISTICS = ("CREATE TABLE sqlite_stat1(tbl,idx,stat)", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)")
# What content that is not a ledger's raises while it is read.
MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

Record = Facts
State = Facts


class LedgerError(RuntimeError):
    """The ledger cannot be opened, read or charged: nothing may be released."""


@dataclass
class Snapshot:
    """The log at one moment: its newest record, the running states, and what is to be appended."""

    number: int
    digest: str
    states: dict[str, State]
    version: int
    advance: Callable[[State | None, Record], State]
    added: list[Record] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """Append a record when the block of :meth:`ChainedLog.append` ends."""
        name = record["dataset"]
        self.states[name] = self.advance(self.states.get(name), record)
        self.added.append(record)


class ChainedLog:
    """The log in the file at ``path``, opened anew for every call so that a fork shares nothing.

    Parameters
    ----------
    path : str
        Absolute path of the file.
    advance : callable
        ``advance(state, record)`` returns the state, as plain data, of the record's data set after the record; the
        state before its first record is None.
    seen : (int, str) or None
        Number and hash of the newest record known: a file without it was replaced or rolled back.
    """

    def __init__(
        self, path: str, advance: Callable[[State | None, Record], State], seen: tuple[int, str] | None = None
    ) -> None:
        self.path = path
        self.advance = advance
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
            self._write_draft(draft, record)
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
            flush_folder(folder)
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"A ledger cannot be created at '{self.path}': {error}.") from error
        finally:
            if os.path.exists(draft):
                os.unlink(draft)

    def _write_draft(self, draft: str, record: Record) -> None:
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")
            # One file and no side files at rest: a write-ahead log could be left behind by a copy.
            connection.execute("PRAGMA journal_mode = DELETE")
            with _transaction(connection, "IMMEDIATE"):
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                for table in _TABLES[:2]:
                    connection.execute(table)
                empty = Snapshot(0, _GENESIS, {}, _FIRST_VERSION, self.advance)
                empty.add(record)
                _write(connection, empty)

    def read(self) -> Snapshot:
        """Return the newest state of the log, in a time that does not depend on its length."""
        with self._open() as connection, _transaction(connection, "DEFERRED"):
            snapshot = self._newest(connection)
        self.seen = (snapshot.number, snapshot.digest)
        return snapshot

    def verify(self, expected: tuple[int, str] | None = None) -> tuple[Snapshot, list[Record]]:
        """Return the newest state and all records, oldest first, after checking every link and every total.

        Parameters
        ----------
        expected : (int, str), optional
            Number and hash of a record that must be there.
        """
        with self._open() as connection, _transaction(connection, "DEFERRED"):
            snapshot, records = self._verified(connection, expected)
        self.seen = (snapshot.number, snapshot.digest)
        return snapshot, records

    @contextmanager
    def append(self) -> Iterator[Snapshot]:
        """Hold the write lock over a block that gets the newest state.

        What the block adds to it is written and committed when it ends, before the caller goes on; an exception in
        the block leaves the file as it was.
        """
        with self._open() as connection:
            with _transaction(connection, "IMMEDIATE"):
                snapshot = self._newest(connection)
                yield snapshot
                if snapshot.added:
                    _write(connection, snapshot)
                    # Whatever swallows a record: what is not there is not granted.
                    if self._last(connection) != (snapshot.number, snapshot.digest):
                        raise self.damaged("it does not keep what is written")
            self.seen = (snapshot.number, snapshot.digest)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            if os.path.getsize(self.path) == 0:
                # SQLite takes an empty file for a new database.
                raise self.damaged("the file is empty")
            uri = Path(self.path).as_uri() + "?mode=rw"
            with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)) as connection:
                # EXTRA also flushes the removal of the journal: otherwise a power cut just after
                # the commit could bring the journal back and undo a charge already granted.
                connection.execute("PRAGMA synchronous = EXTRA")
                yield connection
        except FileNotFoundError:
            raise LedgerError(
                f"The ledger at '{self.path}' is gone. Put the file back: a new one would forget what was spent."
            ) from None
        except sqlite3.Error as error:
            raise self._explained(error) from error
        except OSError as error:
            raise LedgerError(f"The ledger at '{self.path}' cannot be read: {error}.") from error

    def _newest(self, connection: sqlite3.Connection) -> Snapshot:
        """Return the newest state, as far as a constant number of rows can tell."""
        # Taken before the file is read: another thread may append and move it meanwhile.
        seen = self.seen
        version, (number, digest) = self._checked_header(connection)
        if version == _FIRST_VERSION:
            return self._verified(connection)[0]
        self._check_contains(connection, seen)
        states = self._running(connection, number, digest)
        return Snapshot(number, digest, states, version, self.advance)

    def _verified(
        self, connection: sqlite3.Connection, expected: tuple[int, str] | None = None
    ) -> tuple[Snapshot, list[Record]]:
        """Return the newest state and all records, or raise if any link or total is wrong."""
        seen = self.seen
        version, (number, digest) = self._checked_header(connection)
        if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise self.damaged("its pages are damaged")
        replayed = Snapshot(0, _GENESIS, {}, version, self.advance)
        rows = connection.execute("SELECT number, record, hash FROM log ORDER BY number")
        for position, (found, record, link) in enumerate(rows, start=1):
            if found != position or not isinstance(record, str):
                raise self.damaged(f"record {position} is missing")
            replayed.digest = _hash(replayed.digest, record)
            if replayed.digest != link:
                raise self.damaged(f"record {position} was changed")
            replayed.number = position
            try:
                replayed.add(json.loads(record))
            except LedgerError as error:
                raise self.damaged(f"record {position} cannot have been granted ({error})") from None
            except MALFORMED as error:
                raise self.damaged(f"record {position} is none of a ledger's") from error
        if (replayed.number, replayed.digest) != (number, digest):
            raise self.damaged("its last records are missing")
        records, replayed.added = replayed.added, []
        for mark in (seen, expected):
            self._check_contains(connection, mark)
        if version == _FIRST_VERSION:
            return replayed, records
        if not _same(self._running(connection, number, digest), replayed.states):
            raise self.damaged("its totals do not follow from its records")
        return replayed, records

    def _checked_header(self, connection: sqlite3.Connection) -> tuple[int, tuple[int, str]]:
        """Return the version, and the number and hash of the newest record."""

        def single(statement: str) -> Any:
            return connection.execute(statement).fetchone()[0]

        if single("PRAGMA application_id") != _APPLICATION_ID:
            raise self.damaged("it was not made by dpconvex")
        if single("PRAGMA journal_mode") == "wal":
            raise LedgerError(
                f"The ledger at '{self.path}' was set to SQLite's WAL mode: the newest charges may lie in a second "
                "file, which copies leave behind. Nothing may be released. Where it was set so, with that second file "
                f"beside it, run `sqlite3 {shlex.quote(self.path)} 'PRAGMA journal_mode = DELETE'`; a copy without it "
                "may have forgotten charges and must not be used."
            )
        version = single("PRAGMA user_version")
        if version not in (_FIRST_VERSION, _VERSION):
            raise self.damaged(f"its format is {version}, this dpconvex reads formats up to {_VERSION}")
        # Not only their names, and whatever they are called: columns and triggers can swallow what is written.
        made = [str(sql) for (sql,) in connection.execute("SELECT sql FROM sqlite_master")]
        own = [sql for sql in made if sql not in _STATISTICS]
        if sorted(own) != sorted(_TABLES[: 1 + version]):
            raise self.damaged("it holds other tables, or triggers, than a ledger has")
        # SQLite notices when whole pages are missing, and this a last page that was cut.
        if os.path.getsize(self.path) != single("PRAGMA page_count") * single("PRAGMA page_size"):
            raise self.damaged("its size is wrong")
        return version, self._last(connection)

    def _last(self, connection: sqlite3.Connection) -> tuple[int, str]:
        """Return the number and hash of the newest record, which the head must name."""
        newest = "SELECT number, hash FROM log ORDER BY number DESC LIMIT 1"
        last = connection.execute(newest).fetchall()
        if not last or connection.execute("SELECT number, hash FROM head").fetchall() != last:
            raise self.damaged("its last records are missing")
        return last[0]

    def _running(self, connection: sqlite3.Connection, number: int, digest: str) -> dict[str, State]:
        """Return the running states, which must be sealed with the newest record."""
        rows = connection.execute("SELECT number, states, seal FROM running").fetchall()
        if len(rows) != 1 or (rows[0][0], rows[0][2]) != (number, _hash(digest, rows[0][1])):
            raise self.damaged("its totals do not belong to its last record")
        try:
            states = json.loads(rows[0][1])
        except MALFORMED:
            states = None
        if not isinstance(states, dict):
            raise self.damaged("its totals are none")
        return states

    def _check_contains(self, connection: sqlite3.Connection, mark: tuple[int, str] | None) -> None:
        if mark is None:
            return
        found = connection.execute("SELECT hash FROM log WHERE number = ?", mark[:1]).fetchall()
        if found != [(mark[1],)]:
            raise self.damaged("it was replaced by another or an older ledger")

    def damaged(self, reason: str) -> LedgerError:
        """Return the error of a file that cannot be trusted."""
        return LedgerError(
            f"The file at '{self.path}' is not an intact ledger: {reason}. Nothing may be released "
            "until it is restored from a copy that holds every charge."
        )

    def _explained(self, error: sqlite3.Error) -> LedgerError:
        """Return what an error of SQLite means for the ledger, and what to do."""
        # The low byte is the kind of error, the rest its variety.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            return self.damaged(str(error))
        if code == sqlite3.SQLITE_FULL:
            return LedgerError(
                f"The disk of the ledger at '{self.path}' is full: nothing was charged, so nothing may be released. "
                "What was charged before is still on record. Make room and try again."
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return LedgerError(
                f"The ledger at '{self.path}' is locked by another process, for more than {_BUSY_SECONDS:g} seconds: "
                "nothing was charged, so nothing may be released. Find the process that holds the file, or try again."
            )
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return LedgerError(
                f"The ledger at '{self.path}' cannot be written ({error}): nothing was charged, so nothing may be "
                "released. Make the file and its folder writable; a journal is kept beside the file."
            )
        return LedgerError(
            f"The ledger at '{self.path}' could not be read or written ({error}). Nothing may be released; look "
            "whether the last charge was recorded before it is tried again."
        )


def _hash(link: str, text: str) -> str:
    return hashlib.sha256(f"{link}\n{text}".encode()).hexdigest()


def _same(found: State, expected: State) -> bool:
    """Compare states: numbers to a relative 1e-9 (another platform's rounding), the rest exactly."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(_same(found[k], expected[k]) for k in found)
    if isinstance(expected, (list, tuple)):
        if not isinstance(found, list) or len(found) != len(expected):
            return False
        # Of a sum and its rounding error, the error may be another one.
        rounding = 1e-14 * max(map(abs, expected), default=0.0)
        return all(
            type(one) in (int, float) and math.isclose(one, other, rel_tol=1e-9, abs_tol=rounding)
            for one, other in zip(found, expected, strict=True)
        )
    return bool(found == expected)


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


def _write(connection: sqlite3.Connection, snapshot: Snapshot) -> None:
    """Write the added records, the head and the states, inside the caller's transaction."""
    if snapshot.version == _FIRST_VERSION:
        connection.execute(_TABLES[2])
        connection.execute(f"PRAGMA user_version = {_VERSION}")
        snapshot.version = _VERSION
    for record in snapshot.added:
        text = json.dumps(record, sort_keys=True)
        snapshot.number += 1
        snapshot.digest = _hash(snapshot.digest, text)
        connection.execute("INSERT INTO log VALUES (?, ?, ?)", (snapshot.number, text, snapshot.digest))
    connection.execute("DELETE FROM head")
    connection.execute("INSERT INTO head VALUES (?, ?)", (snapshot.number, snapshot.digest))
    states = json.dumps(snapshot.states, sort_keys=True)
    connection.execute("DELETE FROM running")
    connection.execute(
        "INSERT INTO running VALUES (?, ?, ?)", (snapshot.number, states, _hash(snapshot.digest, states))
    )
