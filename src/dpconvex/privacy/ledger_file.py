"""Ledger file: an append-only log in one SQLite file, each record chained to the one before by its
hash.

Beside the log the file keeps the totals of each data set, sealed with the newest hash and written
in the same transaction, so that reading totals or appending a record takes the same time however
long the log is. What does not fit together (truncation, flipped bits, a hand edit, an empty or
foreign file) is an error, never an empty log.
"""

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

from dpconvex.core.description import Facts
from dpconvex.system.atomic_files import flush_file_folder, name_new_file

_APPLICATION_ID = 0x64704C67  # "dpLg"
_VERSION = 1
_GENESIS = "0" * 64
_BUSY_SECONDS = 120.0
_TABLES = (
    "CREATE TABLE log (number INTEGER PRIMARY KEY, record TEXT, hash TEXT)",
    "CREATE TABLE head (number INTEGER, hash TEXT)",
    "CREATE TABLE totals (number INTEGER, states TEXT, seal TEXT)",
)
# Tables that ANALYZE adds, to no harm.
_STATISTICS = (
    "CREATE TABLE sqlite_stat1(tbl,idx,stat)",
    "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)",
)
# Errors that content of other files raises while it is read.
MALFORMED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
# Sentences about errors of SQLite, by its codes.
_NOTHING_CHARGED = "nothing was charged, so nothing may be released."
_EXPLANATIONS = {
    (
        sqlite3.SQLITE_FULL,
    ): f"is on a full disk: {_NOTHING_CHARGED} Earlier charges are still on record. Make room and "
    "try again.",
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
    ): f"is locked by another process for more than {_BUSY_SECONDS:g} "
    f"seconds: {_NOTHING_CHARGED} Find the process that holds the file, or try again.",
    (
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
    ): f"cannot be written: {_NOTHING_CHARGED} "
    "Make the file and its folder writable; SQLite keeps a journal beside the file.",
}

Advance = Callable[[Facts | None, Facts], Facts]


class LedgerError(RuntimeError):
    """The ledger cannot be opened, read or charged: nothing may be released."""


@dataclass
class LedgerFileSnapshot:
    """The log at one moment: its newest record, the totals by data set, and the records to be
    appended.
    """

    number: int
    digest: str
    states: dict[str, Facts]
    advance: Advance
    added: list[Facts] = field(default_factory=list)

    def add(self, record: Facts) -> None:
        """Append a record when the block of :meth:`LedgerFile.append` ends."""
        name = record["dataset"]
        self.states[name] = self.advance(self.states.get(name), record)
        self.added.append(record)


class LedgerFile:
    """The log in the file at ``path``, opened anew for every call so that a fork shares nothing.

    ``advance(state, record)`` returns the totals of the record's data set after the record, as
    plain data; those before its first record are None. ``seen`` are number and hash of the newest
    record known: a file without it was replaced or rolled back.
    """

    def __init__(self, path: str, advance: Advance, seen: tuple[int, str] | None = None) -> None:
        self.path = path
        self.advance = advance
        self.seen = seen

    def create(self, record: Facts) -> None:
        """Create the ledger's file beside its place and link it in, never seen half made;
        another one stays.
        """
        folder, name = os.path.split(self.path)
        draft = ""
        try:
            handle, draft = tempfile.mkstemp(prefix=f".{name}.", suffix=".new", dir=folder)
            os.close(handle)
            self._draft_ledger_file(draft, record)
            try:
                name_new_file(draft, self.path)
            except FileExistsError:
                return
            flush_file_folder(folder)
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"A ledger cannot be created at '{self.path}': {error}.") from error
        finally:
            if draft and os.path.exists(draft):
                os.unlink(draft)

    def _draft_ledger_file(self, draft: str, record: Facts) -> None:
        """Write a new ledger file with its first record, before it gets its name."""
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")
            # One file and no side files at rest: a write-ahead log could be left behind by a copy.
            connection.execute("PRAGMA journal_mode = DELETE")
            with _ledger_file_transaction(connection, "IMMEDIATE"):
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
                for table in _TABLES:
                    connection.execute(table)
                empty = LedgerFileSnapshot(0, _GENESIS, {}, self.advance)
                empty.add(record)
                _write_ledger_file(connection, empty)

    def read(self) -> LedgerFileSnapshot:
        """Return the newest state of the log, in a time that does not depend on its length."""
        with (
            self._open_ledger_file() as connection,
            _ledger_file_transaction(connection, "DEFERRED"),
        ):
            snapshot = self._newest_ledger_state(connection)
        self.seen = (snapshot.number, snapshot.digest)
        return snapshot

    @contextmanager
    def append(self) -> Iterator[LedgerFileSnapshot]:
        """Hold the write lock of the ledger's file over a block that gets the newest state."""
        # What the block adds to it is written and committed when it ends, before the caller goes
        # on; an exception in the block leaves the file as it was.
        with self._open_ledger_file() as connection:
            with _ledger_file_transaction(connection, "IMMEDIATE"):
                snapshot = self._newest_ledger_state(connection)
                yield snapshot
                if snapshot.added:
                    _write_ledger_file(connection, snapshot)
                    # Whatever swallows a record: what is not there is not granted.
                    if self._last_ledger_record(connection) != (snapshot.number, snapshot.digest):
                        raise self.damaged("it does not keep what is written")
            self.seen = (snapshot.number, snapshot.digest)

    def verify(
        self, expected: tuple[int, str] | None = None
    ) -> tuple[LedgerFileSnapshot, list[Facts]]:
        """Return the ledger file's newest state and all records after checking every link, total
        and ``expected``.
        """
        with (
            self._open_ledger_file() as connection,
            _ledger_file_transaction(connection, "DEFERRED"),
        ):
            newest = self._newest_ledger_state(connection)
            if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise self.damaged("its pages are damaged")
            replayed = LedgerFileSnapshot(0, _GENESIS, {}, self.advance)
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
                    raise self.damaged(
                        f"record {position} cannot have been granted ({error})"
                    ) from None
                except MALFORMED as error:
                    raise self.damaged(f"record {position} is malformed") from error
            if (replayed.number, replayed.digest) != (newest.number, newest.digest):
                raise self.damaged("its last records are missing")
            self._check_contains(connection, expected)
            if not _same_file_totals(newest.states, replayed.states):
                raise self.damaged("its totals do not follow from its records")
        self.seen = (newest.number, newest.digest)
        return newest, replayed.added

    @contextmanager
    def _open_ledger_file(self) -> Iterator[sqlite3.Connection]:
        """Connect to the database in the ledger's file; errors say what they mean for the
        ledger.
        """
        try:
            if os.path.getsize(self.path) == 0:
                # SQLite takes an empty file for a new database.
                raise self.damaged("the file is empty")
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
        except sqlite3.Error as error:
            raise self._explained_ledger_error(error) from error
        except OSError as error:
            raise LedgerError(f"The ledger at '{self.path}' cannot be read: {error}.") from error

    def _newest_ledger_state(self, connection: sqlite3.Connection) -> LedgerFileSnapshot:
        """Return the newest state of the ledger's file, as far as a constant number of rows can
        tell.
        """
        # Taken before the file is read: another thread may append and move it meanwhile.
        seen = self.seen
        self._check_header(connection)
        number, digest = self._last_ledger_record(connection)
        self._check_contains(connection, seen)
        rows = connection.execute("SELECT number, states, seal FROM totals").fetchall()
        if len(rows) != 1 or (rows[0][0], rows[0][2]) != (number, _hash(digest, rows[0][1])):
            raise self.damaged("its totals do not belong to its last record")
        try:
            states = json.loads(rows[0][1])
        except MALFORMED:
            states = None
        if not isinstance(states, dict):
            raise self.damaged("its totals are malformed")
        return LedgerFileSnapshot(number, digest, states, self.advance)

    def _check_header(self, connection: sqlite3.Connection) -> None:
        """Raise unless the file is a ledger of this version, in one file, with the tables of a
        ledger.
        """

        def pragma(name: str) -> int | str:
            value: int | str = connection.execute(f"PRAGMA {name}").fetchone()[0]
            return value

        if pragma("application_id") != _APPLICATION_ID:
            raise self.damaged("it was not made by dpconvex")
        if pragma("journal_mode") == "wal":
            raise LedgerError(
                f"The ledger at '{self.path}' was set to SQLite's WAL mode: the newest charges "
                "may lie in a second file, which copies leave behind. Nothing may be released. "
                "Where it was set so, with that second file beside it, run `sqlite3 "
                f"{shlex.quote(self.path)} 'PRAGMA journal_mode = DELETE'`; a copy without it may "
                "have forgotten charges and must not be used."
            )
        version = pragma("user_version")
        if version != _VERSION:
            raise self.damaged(f"its format is {version}, this dpconvex reads format {_VERSION}")
        # Not only their names, and whatever they are called: columns and triggers can swallow what
        # is written.
        made = [str(sql) for (sql,) in connection.execute("SELECT sql FROM sqlite_master")]
        if sorted(sql for sql in made if sql not in _STATISTICS) != sorted(_TABLES):
            raise self.damaged("it holds other tables, or triggers, than a ledger has")
        # SQLite notices when whole pages are missing, and this a last page that was cut.
        if os.path.getsize(self.path) != int(pragma("page_count")) * int(pragma("page_size")):
            raise self.damaged("its size is wrong")

    def _last_ledger_record(self, connection: sqlite3.Connection) -> tuple[int, str]:
        """Return the number and hash of the newest record, which the head must name."""
        newest = "SELECT number, hash FROM log ORDER BY number DESC LIMIT 1"
        last: list[tuple[int, str]] = connection.execute(newest).fetchall()
        if not last or connection.execute("SELECT number, hash FROM head").fetchall() != last:
            raise self.damaged("its last records are missing")
        return last[0]

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

    def _explained_ledger_error(self, error: sqlite3.Error) -> LedgerError:
        # The low byte is the kind of error, the rest its variety.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            return self.damaged(str(error))
        for codes, explanation in _EXPLANATIONS.items():
            if code in codes:
                return LedgerError(
                    f"The ledger at '{self.path}' {explanation} SQLite says: {error}."
                )
        return LedgerError(
            f"The ledger at '{self.path}' could not be read or written ({error}). Nothing may be "
            "released. See whether the last charge was recorded before you try again."
        )


def _hash(link: str, text: str) -> str:
    return hashlib.sha256(f"{link}\n{text}".encode()).hexdigest()


def _same_file_totals(found: object, expected: object) -> bool:
    """Compare totals of a ledger's file: numbers to a relative 1e-9 (another platform's
    rounding), else exactly.
    """
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and found.keys() == expected.keys()
            and all(_same_file_totals(found[name], expected[name]) for name in found)
        )
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
def _ledger_file_transaction(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    """See one state of the file, with the write lock if IMMEDIATE; undo everything on any error."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _write_ledger_file(connection: sqlite3.Connection, snapshot: LedgerFileSnapshot) -> None:
    """Write the added records, the head and the totals, inside the caller's transaction."""
    for record in snapshot.added:
        text = json.dumps(record, sort_keys=True)
        snapshot.number += 1
        snapshot.digest = _hash(snapshot.digest, text)
        connection.execute(
            "INSERT INTO log VALUES (?, ?, ?)", (snapshot.number, text, snapshot.digest)
        )
    connection.execute("DELETE FROM head")
    connection.execute("INSERT INTO head VALUES (?, ?)", (snapshot.number, snapshot.digest))
    states = json.dumps(snapshot.states, sort_keys=True)
    seal = _hash(snapshot.digest, states)
    connection.execute("DELETE FROM totals")
    connection.execute("INSERT INTO totals VALUES (?, ?, ?)", (snapshot.number, states, seal))
