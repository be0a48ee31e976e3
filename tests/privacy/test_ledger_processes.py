"""The ledger under many processes, and under processes killed at every point of a charge.

The processes are forked from a fresh interpreter: forking the test runner, which may have threads,
is not safe, and starting an interpreter for each would take most of the time.
"""

import os
import subprocess
import sys

import pytest

from dpconvex.core.guarantees import PureDP
from dpconvex.privacy.ledger import Ledger

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")

IMPORTS = """
import itertools, os, pickle, resource, signal, sqlite3, sys
from dpconvex.core.guarantees import PureDP
from dpconvex.privacy.ledger import BudgetExceeded, Ledger, LedgerError
"""

# Eight children, half of which inherit the ledger while the others unpickle it, start together.
CROWD = """
ledger = Ledger(sys.argv[1], epsilon=1.0, delta=0.0)
frozen = pickle.dumps(ledger)
gate, starter = os.pipe()
for child in range(8):
    if os.fork() == 0:
        os.close(starter)
        os.read(gate, 1)
        mine = ledger if child % 2 else pickle.loads(frozen)
        granted = 0
        for _ in range(20):
            try:
                mine.charge(PureDP(0.01), description=f"child {child}")
                granted += 1
            except BudgetExceeded:
                pass
        os.write(1, f"{granted}\\n".encode())
        os._exit(0)
os.close(starter)
for _ in range(8):
    os.wait()
"""

CREATORS = """
for epsilon in range(1, 9):
    if os.fork() == 0:
        try:
            Ledger(sys.argv[1], epsilon=float(epsilon), delta=0.0)
            os.write(1, f"{epsilon}\\n".encode())
        except LedgerError as error:
            os.write(1, b"other\\n" if "cannot be changed" in str(error) else b"failed\\n")
        os._exit(0)
for _ in range(8):
    os.wait()
"""

# For one kind of point after the other, children open the ledger and charge once, each dying one
# point later than the one before, until one of them lives. A line says how many died, and what was
# announced.
KILLER = """
def die_before_statement(point):
    connect, count = sqlite3.connect, itertools.count()
    def trace(statement):
        if next(count) == point:
            os.kill(os.getpid(), signal.SIGKILL)
    def traced(*args, **options):
        connection = connect(*args, **options)
        connection.set_trace_callback(trace)
        return connection
    sqlite3.connect = traced

def die_at_byte(point):
    # The system ends a process that writes beyond the limit, to the journal or to the file itself.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * point,) * 2)

def die_once_charged(point):
    charge = Ledger.charge
    def last(*args, **options):
        charge(*args, **options)
        if point == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    Ledger.charge = last

for prepare in (die_before_statement, die_at_byte, die_once_charged):
    for point in itertools.count():
        path = f"{sys.argv[1]}/{prepare.__name__}-{point}.db"
        if sys.argv[2] == "charge":
            Ledger(path, epsilon=1.0, delta=0.0).charge(PureDP(0.125), description="y" * 9000)
        child = os.fork()
        if child == 0:
            prepare(point)
            Ledger(path, epsilon=1.0, delta=0.0).charge(PureDP(0.125), description="x" * 9000)
            os.write(1, f"{path} charged\\n".encode())
            os._exit(0)
        died = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        journal = os.path.exists(path + "-journal")
        os.write(1, f"{path} {'died' if died else 'lived'} {int(journal)}\\n".encode())
        if not died:
            break
"""


def run(script, *arguments):
    finished = subprocess.run(
        [sys.executable, "-c", IMPORTS + script, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stderr == ""
    return finished.stdout.splitlines()


def test_eight_processes_never_overspend(tmp_path):
    """160 attempts against a budget for 100: exactly 100 are granted, whoever asks first."""
    granted = run(CROWD, tmp_path / "privacy.db")
    assert len(granted) == 8
    assert sum(map(int, granted)) == 100
    ledger = Ledger(tmp_path / "privacy.db")
    assert len(ledger.entries()) == 100
    assert ledger.spent() <= 1.0 * (1 + 1e-12)
    ledger.check()


def test_processes_that_create_at_once_agree_on_one_budget(tmp_path):
    answers = run(CREATORS, tmp_path / "privacy.db")
    winner = Ledger(tmp_path / "privacy.db").epsilon
    assert sorted(answers) == sorted([f"{winner:.0f}"] + ["other"] * 7)
    assert os.listdir(tmp_path) == ["privacy.db"]


@pytest.mark.parametrize("first", ["create", "charge"])
def test_kills_at_every_point_lose_budget_never_privacy(tmp_path, first):
    """A charge is on record if it was announced, and else wholly or not at all; the file is
    intact after every kill.
    """
    announced = set()
    deaths = dict.fromkeys(("statement", "byte", "charged"), 0)
    journals = 0
    for line in run(KILLER, tmp_path, first):
        path, *outcome = line.split()
        if outcome == ["charged"]:
            announced.add(path)
            continue
        deaths[path.rpartition("/")[2].partition("-")[0].rpartition("_")[2]] += outcome[0] == "died"
        journals += int(outcome[1])
        before = int(first == "charge")
        if not os.path.exists(path):
            assert first == "create"
            assert path not in announced
            continue
        ledger = Ledger(path, epsilon=1.0, delta=0.0)
        recorded = len(ledger.entries()) - before
        assert (path in announced) <= recorded <= 1
        assert (outcome[0] == "lived") == (path in announced)
        if "once_charged" in path:
            assert recorded == 1
        assert ledger.remaining().epsilon == 1 - 0.125 * len(ledger.entries())
        ledger.charge(PureDP(0.125))
        ledger.check()
    # Every kind of point was met, and some kills left a journal from which the file was restored.
    assert deaths["charged"] == 1
    assert deaths["statement"] > 10
    assert deaths["byte"] > 10
    assert journals > 0
