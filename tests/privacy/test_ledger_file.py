"""What happens to a ledger's file: damage, edits, full disks, locks. Nothing gives budget back."""

import copy
import hashlib
import json
import math
import os
import pickle
import random
import sqlite3

import numpy as np
import pytest

from dpconvex.core.guarantees import ApproxDP, GaussianDP, PureDP
from dpconvex.privacy import ledger_file
from dpconvex.privacy.ledger import Ledger, LedgerError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "privacy.db"


def spent_ledger(path, charges=12):
    ledger = Ledger(path, epsilon=2.0, delta=0.0)
    for index in range(charges):
        ledger.charge(PureDP(0.1), description=f"release {index} " + "x" * 300)
    return path.read_bytes()


def budget_after(path, content):
    """Overwrite the file; return what a fresh opening grants (None: LedgerError) and whether a
    check finds harm.
    """
    path.write_bytes(content)
    left = None
    harmed = False
    try:
        ledger = Ledger(path, epsilon=2.0, delta=0.0)
        left = ledger.remaining().epsilon
    except LedgerError:
        harmed = True
    else:
        try:
            ledger.check()
        except LedgerError:
            harmed = True
    for name in os.listdir(path.parent):
        if name != path.name:
            os.unlink(path.parent / name)
    return left, harmed


def test_a_truncated_file_is_never_a_fresh_budget(path):
    whole = spent_ledger(path)
    rng = np.random.default_rng(0)
    lengths = {0, 1, 15, 16, 99, 100, 4096, 8192, len(whole) - 4096, len(whole) - 1}
    lengths |= set(rng.integers(0, len(whole), size=150).tolist())
    for length in sorted(lengths):
        assert budget_after(path, whole[:length]) == (None, True), length
    assert budget_after(path, whole) == (pytest.approx(0.8), False)


def test_flipped_bits_never_give_budget_back(path):
    whole = spent_ledger(path)
    rng = np.random.default_rng(1)
    # The first pages hold the header, the schema and the roots of the tables.
    places = np.r_[np.arange(0, 120), rng.integers(0, len(whole), size=300)]
    noticed = 0
    for place in places:
        broken = bytearray(whole)
        broken[place] ^= 1 << int(rng.integers(8))
        left, harmed = budget_after(path, bytes(broken))
        assert left is None or left == pytest.approx(0.8), place
        noticed += harmed
    assert noticed > 100


def test_flipped_page_headers_never_give_budget_back(path):
    """Page headers say how many rows a page has: one bit could make rows vanish."""
    whole = spent_ledger(path)
    for page in range(0, len(whole), 4096):
        for offset in range(100 * (page == 0), 100 * (page == 0) + 20):
            for bit in range(8):
                broken = bytearray(whole)
                broken[page + offset] ^= 1 << bit
                left, _ = budget_after(path, bytes(broken))
                assert left is None or left == pytest.approx(0.8), (page, offset, bit)


def edit(path, *statements):
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


# What a charge would rest on: noticed without a check.
TOTALS = [
    "DELETE FROM log WHERE number = 13",
    "DELETE FROM log",
    "DELETE FROM head",
    "DELETE FROM totals",
    "UPDATE totals SET states = replace(states, '2.0', '20.0')",
    "UPDATE totals SET number = 12",
    "UPDATE head SET number = 12",
    "INSERT INTO totals SELECT * FROM totals",
    "DROP TABLE log",
    "DROP TABLE totals",
    "CREATE TRIGGER quiet BEFORE INSERT ON log BEGIN SELECT RAISE(IGNORE); END",
    "CREATE TABLE other (number INTEGER)",
    "ALTER TABLE log ADD COLUMN kept AS (NULL)",
    "CREATE VIEW other AS SELECT * FROM log",
    "PRAGMA application_id = 0",
    "PRAGMA user_version = 2",
]
# What is over: noticed by a check.
RECORDS = [
    "DELETE FROM log WHERE number = 5",
    "UPDATE log SET record = replace(record, '0.1', '0.01') WHERE number = 3",
    "UPDATE log SET record = replace(record, '2.0', '20.0') WHERE number = 1",
    "UPDATE log SET record = replace(record, 'default', 'other') WHERE number = 1",
    "UPDATE log SET record = NULL WHERE number = 4",
]


@pytest.mark.parametrize("statement", TOTALS + RECORDS)
def test_edits_are_noticed(path, statement):
    spent_ledger(path)
    ledger = Ledger(path)
    edit(path, statement)
    left, harmed = budget_after(path, path.read_bytes())
    assert harmed
    assert left == (pytest.approx(0.8) if statement in RECORDS else None)
    with pytest.raises(LedgerError, match="not an intact ledger"):
        ledger.entries()


def seal(path, number, states):
    """Make head and totals agree with the first records, as somebody would who knows the format."""
    connection = sqlite3.connect(path)
    (digest,) = connection.execute("SELECT hash FROM log WHERE number = ?", (number,)).fetchone()
    stamp = hashlib.sha256(f"{digest}\n{states}".encode()).hexdigest()
    connection.execute("DELETE FROM log WHERE number > ?", (number,))
    connection.execute("UPDATE head SET number = ?, hash = ?", (number, digest))
    connection.execute(
        "UPDATE totals SET number = ?, states = ?, seal = ?", (number, states, stamp)
    )
    connection.commit()
    connection.close()


def states_of(path):
    connection = sqlite3.connect(path)
    (states,) = connection.execute("SELECT states FROM totals").fetchone()
    connection.close()
    return states


def test_totals_that_do_not_follow_from_the_records_are_noticed_by_a_check(path):
    ledger = Ledger(path, epsilon=2.0, delta=0.0)
    fresh = states_of(path)
    ledger.charge(PureDP(1.0))
    seal(path, 2, fresh)
    with pytest.raises(LedgerError, match="totals do not follow"):
        ledger.check()


@pytest.mark.parametrize(
    ("name", "forged"),
    [
        ("before_gaussian", [0.5, 0.500001]),
        ("spent_mu_squared", [0.0, 0.01]),
        ("before_gaussian", [1.0, 0.0]),
    ],
)
def test_totals_that_only_sum_up_to_those_of_the_records_are_noticed_by_a_check(path, name, forged):
    ledger = Ledger(path, epsilon=1.0, delta=1e-6)
    ledger.charge(GaussianDP(0.1))
    states = json.loads(states_of(path))
    states["default"][name] = forged
    seal(path, 2, json.dumps(states, sort_keys=True))
    with pytest.raises(LedgerError, match="totals do not follow"):
        ledger.check()


def test_charges_that_cannot_have_been_granted_are_noticed_by_a_check(path):
    """Of somebody who set totals back before a charge, and let it go on from there."""
    ledger = Ledger(path, epsilon=1.0, delta=0.0)
    fresh = states_of(path)
    ledger.charge(PureDP(0.9))
    seal(path, 2, fresh)
    forged = Ledger(path)
    forged.charge(PureDP(0.8))
    with pytest.raises(LedgerError, match="record 3 cannot have been granted"):
        forged.check()


def test_a_removed_charge_is_noticed_by_a_head_kept_elsewhere(path):
    ledger = Ledger(path, epsilon=2.0, delta=0.0)
    ledger.charge(PureDP(0.5))
    earlier = ledger.head()
    fewer = states_of(path)
    ledger.charge(PureDP(1.0))
    head = ledger.head()
    assert Ledger(path).check(head) == head == ledger.check(earlier)
    seal(path, 2, fewer)
    forged = Ledger(path)
    assert forged.check() == forged.check(earlier) == earlier  # the rest agrees
    with pytest.raises(LedgerError, match="another or an older ledger"):
        forged.check(head)
    with pytest.raises(
        ValueError, match=r"'head' parameter of Ledger.check must be what Ledger.head"
    ):
        forged.check("2")


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"SQLite format 3\0", random.Random(0).randbytes(5000)]
)
def test_foreign_files_are_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="not an intact ledger"):
        Ledger(path, epsilon=1.0)
    assert path.read_bytes() == content


def test_another_applications_database_is_refused(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE budgets (epsilon REAL)")
    connection.commit()
    connection.close()
    with pytest.raises(LedgerError, match="not made by dpconvex"):
        Ledger(path, epsilon=1.0)


def test_a_file_that_vanishes_or_goes_back_in_time_is_noticed(path):
    ledger = Ledger(path, epsilon=1.0)
    older = path.read_bytes()
    ledger.charge(PureDP(0.5))
    frozen = pickle.dumps(ledger)
    path.write_bytes(older)
    for attempt in (lambda: ledger.charge(PureDP(0.5)), lambda: pickle.loads(frozen)):
        with pytest.raises(LedgerError, match="replaced by another or an older"):
            attempt()
    path.unlink()
    with pytest.raises(LedgerError, match="is gone"):
        ledger.charge(PureDP(0.5))
    assert not path.exists()


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(LedgerError):
        Ledger(tmp_path, epsilon=1.0)


@pytest.mark.parametrize("side_file", [True, False])
def test_a_file_in_wal_mode_is_refused_since_a_copy_forgets_charges(path, tmp_path, side_file):
    """The newest charges lie in a second file: the copy of a spent budget was a fresh one, and
    its check passed.
    """
    ledger = Ledger(path, epsilon=1.0, delta=0.0)
    edit(path, "PRAGMA journal_mode = WAL")
    holder = sqlite3.connect(path)  # the second file is removed when nobody has it open
    holder.execute("SELECT * FROM head").fetchall()
    copy = tmp_path / "copy.db"
    for attempt in (lambda: ledger.charge(PureDP(0.9)), ledger.check, ledger.remaining):
        with pytest.raises(LedgerError, match=r"WAL mode.*second file"):
            attempt()
    copy.write_bytes(path.read_bytes())
    if side_file:
        copy.with_name("copy.db-wal").write_bytes(path.with_name("privacy.db-wal").read_bytes())
    with pytest.raises(LedgerError, match=r"WAL mode.*copy without it"):
        Ledger(copy)
    holder.close()
    edit(path, "PRAGMA journal_mode = DELETE")
    ledger.charge(PureDP(0.9))
    assert Ledger(path).remaining().epsilon == pytest.approx(0.1)


SWALLOWS = "CREATE TRIGGER {name} BEFORE {event} ON {table} BEGIN SELECT RAISE(IGNORE); END"


@pytest.mark.parametrize("called", ["sqlite_stat_{}", "sqlite_stat1"])
def test_triggers_under_a_name_of_sqlites_own_are_noticed(path, called):
    """They swallowed every charge: each process found the whole budget again, and a check
    passed.
    """
    Ledger(path, epsilon=1.0, delta=0.0)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema = ON")
    events = [
        (table, event) for table in ("log", "head", "totals") for event in ("INSERT", "DELETE")
    ]
    for number, (table, event) in enumerate(events):
        sql = SWALLOWS.format(name=f"sqlite_stat_{number}", table=table, event=event)
        row = (
            "table" if called == "sqlite_stat1" else "trigger",
            called.format(number),
            table,
            sql,
        )
        connection.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, 0, ?)", row)
    connection.execute("PRAGMA schema_version = 99")
    connection.commit()
    connection.close()
    for attempt in (lambda: Ledger(path).charge(PureDP(0.9)), lambda: Ledger(path).check()):
        with pytest.raises(LedgerError, match="triggers"):
            attempt()


def test_what_is_not_kept_is_not_granted(path, monkeypatch):
    """Whatever swallows a charge, it is looked for before it is granted."""
    ledger = Ledger(path, epsilon=1.0, delta=0.0)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(
            ledger_file,
            "_write_ledger_file",
            lambda connection, snapshot: setattr(snapshot, "digest", "0"),
        )
        with pytest.raises(LedgerError, match="does not keep what is written"):
            ledger.charge(PureDP(0.9))
    assert path.read_bytes() == before
    edit(path, "ANALYZE")  # leaves tables of SQLite's own, to no harm
    ledger.charge(PureDP(0.9))
    Ledger(path).check()


def odd_versions(tree, trail=()):
    """Yield a tree of JSON with one value changed, or one entry left out."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(pairs):
        for odd in (None, -1, 1e308, math.nan, "x", [], {}, 10**400):
            changed = copy.copy(tree)
            changed[key] = odd
            yield changed
        if isinstance(tree, dict):
            yield {name: kept for name, kept in tree.items() if name != key}
        if isinstance(value, (dict, list)):
            for inner in odd_versions(value):
                changed = copy.copy(tree)
                changed[key] = inner
                yield changed


def test_whatever_a_file_holds_is_a_ledgers_or_an_error_of_the_ledger(path):
    """Records and totals of other kinds ended in all sorts of errors, which say nothing about
    the ledger.
    """
    ledger = Ledger(path, epsilon=1.0, delta=1e-6)
    for guarantee in (PureDP(0.1), GaussianDP(0.05), ApproxDP(0.1, 1e-8)):
        ledger.charge(guarantee)
    whole = path.read_bytes()
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT record FROM log ORDER BY number").fetchall()
    records = [json.loads(record) for (record,) in rows]
    states = json.loads(states_of(path))
    connection.close()
    deep = "[" * 5000 + "]" * 5000
    forged = [
        (odd, None)
        for place in range(4)
        for odd in (
            [*records[:place], changed, *records[place + 1 :]]
            for changed in odd_versions(records[place])
        )
    ]
    forged += [(records, odd) for odd in odd_versions(states)]
    forged += [([deep, *records[1:]], None), (records, deep)]
    attempts = (
        lambda: Ledger(path).check(),
        lambda: str([*Ledger(path).entries(), Ledger(path).remaining()]),
        lambda: Ledger(path).charge(PureDP(0.01)),
    )
    refused = 0
    for odd_records, odd_states in forged:
        path.write_bytes(whole)
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA synchronous = OFF")
        link = "0" * 64
        for number, record in enumerate(odd_records, start=1):
            text = record if record == deep else json.dumps(record, sort_keys=True)
            link = hashlib.sha256(f"{link}\n{text}".encode()).hexdigest()
            connection.execute(
                "UPDATE log SET record = ?, hash = ? WHERE number = ?", (text, link, number)
            )
        text = (
            odd_states if odd_states == deep else json.dumps(odd_states or states, sort_keys=True)
        )
        stamp = hashlib.sha256(f"{link}\n{text}".encode()).hexdigest()
        connection.execute("UPDATE head SET hash = ?", (link,))
        connection.execute("UPDATE totals SET states = ?, seal = ?", (text, stamp))
        connection.commit()
        connection.close()
        for attempt in attempts:
            try:
                attempt()
            except LedgerError:
                refused += 1
    assert refused > len(forged)


def test_a_charge_that_gives_back_is_noticed_by_a_check(path):
    ledger = Ledger(path, epsilon=1.0, delta=0.0)
    ledger.charge(PureDP(0.9))
    connection = sqlite3.connect(path)
    (text,) = connection.execute("SELECT record FROM log WHERE number = 2").fetchone()
    (first,) = connection.execute("SELECT hash FROM log WHERE number = 1").fetchone()
    record = json.loads(text)
    record["cost"]["epsilon"] = -0.9
    text = json.dumps(record, sort_keys=True)
    link = hashlib.sha256(f"{first}\n{text}".encode()).hexdigest()
    connection.execute("UPDATE log SET record = ?, hash = ? WHERE number = 2", (text, link))
    connection.commit()
    connection.close()
    states = json.loads(states_of(path))
    states["default"]["spent_epsilon"] = [-0.9, 0.0]
    seal(path, 2, json.dumps(states, sort_keys=True))
    with pytest.raises(LedgerError, match="gives something back"):
        ledger_file.LedgerFile(str(path), ledger._file.advance).verify()
    with pytest.raises(LedgerError, match="totals are malformed"):
        Ledger(path).charge(PureDP(0.5))


# Files that are intact, but cannot be used


def with_pragma(monkeypatch, pragma):
    """Let every connection begin with a setting of SQLite that makes writing fail as the system
    would.
    """
    connect = sqlite3.connect

    def limited(*args, **options):
        connection = connect(*args, **options)
        connection.execute(pragma)
        return connection

    monkeypatch.setattr(ledger_file.sqlite3, "connect", limited)


def test_a_full_disk_is_called_a_full_disk(path, monkeypatch):
    ledger = Ledger(path, epsilon=2.0, delta=0.0)
    ledger.charge(PureDP(0.5))
    with monkeypatch.context() as patch:
        with_pragma(
            patch, "PRAGMA max_page_count = 1"
        )  # the smallest that SQLite makes of it: the file as it is
        with pytest.raises(LedgerError, match=r"full disk: nothing was charged") as caught:
            ledger.charge(PureDP(0.5), description="x" * 10_000)
        assert "restored" not in str(caught.value)
        with pytest.raises(LedgerError, match="cannot be created"):
            Ledger(path.with_name("other.db"), epsilon=1.0)
    assert ledger.remaining().epsilon == 1.5
    ledger.charge(PureDP(0.5), description="x" * 10_000)
    ledger.check()


def test_a_file_that_may_not_be_written_is_still_read(path, monkeypatch):
    ledger = Ledger(path, epsilon=2.0, delta=0.0)
    with_pragma(monkeypatch, "PRAGMA query_only = ON")
    assert ledger.remaining().epsilon == 2.0
    ledger.check()
    with pytest.raises(LedgerError, match=r"cannot be written.*nothing was charged.*writable"):
        ledger.charge(PureDP(0.5))


def test_a_locked_file_is_called_locked(path, monkeypatch):
    ledger = Ledger(path, epsilon=2.0, delta=0.0)
    monkeypatch.setattr(ledger_file, "_BUSY_SECONDS", 0.0)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert ledger.remaining().epsilon == 2.0
    with pytest.raises(LedgerError, match=r"locked by another process.*nothing was charged"):
        ledger.charge(PureDP(0.5))
    other.execute("ROLLBACK")
    other.close()
    ledger.charge(PureDP(0.5))
