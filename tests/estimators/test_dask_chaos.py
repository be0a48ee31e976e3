"""What goes wrong in a fit on partitions: the right coefficients or an error that says what it
cost, in time.
"""

import gc
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from dpconvex import DPAUCClassifier, DPLogisticRegression, DPQuantileRegressor  # noqa: E402
from dpconvex.engine import ClusterLostError, RowMap, SourceChangedError  # noqa: E402
from dpconvex.engine.dask.rows_and_table import DaskTable  # noqa: E402
from dpconvex.estimators import private_model as release  # noqa: E402
from dpconvex.privacy import BudgetExceeded, Ledger  # noqa: E402

# Clusters that lose workers leave sockets and tasks behind.
pytestmark = pytest.mark.filterwarnings("ignore")

SIZES = (300, 1, 500, 0, 399, 700)
READS = 2 * sum(size > 0 for size in SIZES)  # to read features and targets once
SETTINGS = {"epsilon": 2.0, "feature_bounds": (-4, 4), "random_state": 7}
SPENT = "The budget is spent"


def make_table():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(sum(SIZES), 4))
    return X, X @ np.array([1.0, -2.0, 0.5, 0.0]) + rng.normal(size=len(X))


def read(folder, name, number):
    """Return a partition from its file, and note who read it."""
    with open(Path(folder) / "reads", "a") as file:
        file.write(f"{number}\n")
    path = Path(folder) / f"{name}{number}.npy"
    try:
        return np.load(path, allow_pickle=True)
    except (
        SystemError
    ):  # Python 3.11 may miscount the depth of a header's syntax tree while another thread parses
        return np.load(path, allow_pickle=True)


@pytest.fixture
def table(tmp_path):
    """Return rows in files, as a Dask array that reads them and a target; and the folder."""
    return in_files(tmp_path, *make_table()), tmp_path


def in_files(folder, X, y):
    edges = np.concatenate([[0], np.cumsum(SIZES)])
    load = dask.delayed(read, pure=True)
    parts = {"X": [], "y": []}
    for number, (a, b) in enumerate(itertools.pairwise(edges)):
        for name, array in (("X", X[a:b]), ("y", y[a:b])):
            np.save(folder / f"{name}{number}.npy", array)
            lazy = load(str(folder), name, number)
            parts[name].append(da.from_delayed(lazy, array.shape, array.dtype, meta=array[:0]))
    return da.concatenate(parts["X"]), da.concatenate(parts["y"])


def reads(folder):
    return len((folder / "reads").read_text().split())


def after_the_charge(monkeypatch, action):
    """Do something once, when the ledger has been charged and the descent begins."""
    before = release.charge_private_model

    def charge(*arguments):
        monkeypatch.setattr(release, "charge_private_model", before)
        before(*arguments)
        action()

    monkeypatch.setattr(release, "charge_private_model", charge)


def model_with_ledger(folder, mechanism="objective"):
    ledger = Ledger(folder / "ledger.db", epsilon=5.0)
    return DPQuantileRegressor(**SETTINGS, mechanism=mechanism, ledger=ledger), ledger


def in_memory(mechanism="objective"):
    return DPQuantileRegressor(**SETTINGS, mechanism=mechanism).fit(*make_table())


def assert_same(model, expected):
    scale = np.abs(expected.coef_).max()
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=0, atol=1e-8 * scale)


@pytest.fixture
def threads_cluster():
    """Return a cluster of two workers in this process, and a client."""
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield cluster, client


@pytest.fixture
def without_collector():
    """Let nothing be freed but what nobody refers to any more."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("mechanism", ["objective", "gradient"])
def test_workers_read_a_partition_once_and_free_it(
    threads_cluster, table, mechanism, monkeypatch, without_collector
):
    from dpconvex.engine.dask import cluster

    monkeypatch.setattr(cluster, "POLL", 1e-3)  # waits that end in vain must leave nothing behind
    (X, y), folder = table
    model, ledger = model_with_ledger(folder, mechanism)
    assert_same(model.fit(X, y), in_memory(mechanism))
    assert reads(folder) == READS
    assert len(ledger.entries()) == 1
    for _ in range(100):
        if not cluster._held:
            break
        time.sleep(0.05)
    assert not cluster._held
    assert not cluster._files


def test_auc_and_labels_of_text_on_a_cluster(threads_cluster, tmp_path):
    X, y = make_table()
    named = np.where(y > 0, "yes", "no").astype(object)
    lazy = in_files(tmp_path, X, named)
    for estimator in (DPAUCClassifier, DPLogisticRegression):
        expected = estimator(**SETTINGS).fit(X, named)
        assert_same(estimator(**SETTINGS).fit(*lazy), expected)


@pytest.mark.parametrize("limit", [0, "20 kB"])
def test_without_room_every_pass_reads_on_a_cluster(threads_cluster, table, limit):
    (X, y), folder = table
    with dask.config.set({"dpconvex.spill-limit": limit}):
        model, _ = model_with_ledger(folder)
        assert_same(model.fit(X, y), in_memory())
    assert reads(folder) > 2 * READS


def test_what_a_worker_held_is_read_again_by_another(threads_cluster, table, monkeypatch):
    (X, y), folder = table
    cluster, client = threads_cluster
    after_the_charge(monkeypatch, lambda: client.retire_workers([cluster.workers[0].address]))
    model, ledger = model_with_ledger(folder)
    assert_same(model.fit(X, y), in_memory())
    assert READS < reads(folder) <= 2 * READS
    assert len(ledger.entries()) == 1


def test_no_workers_for_longer_than_the_time_out(threads_cluster, table, monkeypatch):
    (X, y), folder = table
    cluster, _ = threads_cluster
    after_the_charge(monkeypatch, lambda: cluster.scale(0))
    model, ledger = model_with_ledger(folder)
    with dask.config.set({"dpconvex.timeout": "1 s"}), pytest.raises(ClusterLostError, match=SPENT):
        model.fit(X, y)
    assert len(ledger.entries()) == 1
    with dask.config.set({"dpconvex.timeout": "1 s"}), pytest.raises(ClusterLostError) as caught:
        model.fit(X, y)
    assert SPENT not in str(caught.value)
    assert len(ledger.entries()) == 1


def elsewhere(graph, keys, **_):
    """A scheduler that is none of Dask's own."""
    return dask.get(graph, keys)


def _swapped(array):
    return array[::-1].copy()


def _shorter(array):
    return array[:-1]


def _text(array):
    return np.full(len(array), "17.25 euros", dtype=object)


def _shifted(array):
    return array + 17.25


@pytest.mark.parametrize("change", [_swapped, _shorter, _text, _shifted])
@pytest.mark.parametrize("scheduler", ["threads", elsewhere, "cluster"])
def test_a_source_that_changes_is_noticed(
    change, scheduler, table, monkeypatch, threads_cluster, capfd
):
    (X, y), folder = table

    def spoil():
        for name in ("y2", "X2") if change is _shorter else ("y2",):
            np.save(folder / f"{name}.npy", change(np.load(folder / f"{name}.npy")))

    after_the_charge(monkeypatch, spoil)
    model, ledger = model_with_ledger(folder)
    chosen = {} if scheduler == "cluster" else {"scheduler": scheduler}
    with (
        dask.config.set({"dpconvex.spill-limit": 0, **chosen}),
        pytest.raises(SourceChangedError, match=SPENT) as caught,
    ):
        model.fit(X, y)
    assert len(ledger.entries()) == 1
    assert not hasattr(model, "coef_")
    assert not re.search(r"\d", str(caught.value))
    assert "17.25" not in "".join(capfd.readouterr())


def test_a_source_that_changed_is_noticed_when_a_worker_is_replaced(
    threads_cluster, table, monkeypatch
):
    (X, y), folder = table
    cluster, client = threads_cluster

    def spoil():
        for number in range(len(SIZES)):
            np.save(folder / f"y{number}.npy", _shifted(np.load(folder / f"y{number}.npy")))
        client.retire_workers([cluster.workers[0].address])

    after_the_charge(monkeypatch, spoil)
    model, ledger = model_with_ledger(folder)
    with pytest.raises(SourceChangedError, match=SPENT):
        model.fit(X, y)
    assert len(ledger.entries()) == 1


def test_a_source_that_vanishes_says_that_the_budget_is_spent(table, monkeypatch):
    (X, y), folder = table
    after_the_charge(monkeypatch, (folder / "y2.npy").unlink)
    model, ledger = model_with_ledger(folder)
    with (
        dask.config.set({"dpconvex.spill-limit": 0, "scheduler": "threads"}),
        pytest.raises(FileNotFoundError) as caught,
    ):
        model.fit(X, y)
    assert SPENT in "".join(caught.value.__notes__)
    assert len(ledger.entries()) == 1


@pytest.fixture
def processes():
    """Start processes that are killed at the end, whatever happened."""
    started = []

    def start(*command):
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def bare_cluster(processes, tmp_path):
    """Return a scheduler and two workers that nobody restarts, and a client."""
    address = tmp_path / "scheduler.json"
    options = ("--scheduler-file", str(address), "--no-dashboard")
    scheduler = processes("-m", "dask", "scheduler", "--port", "0", "--no-show", *options)
    workers = [
        processes(
            *("-m", "dask", "worker", "--no-nanny", "--nthreads", "1", *options),
            *("--local-directory", str(tmp_path / f"worker{number}")),
        )
        for number in range(2)
    ]
    while not address.exists():
        time.sleep(0.1)
    with distributed.Client(scheduler_file=str(address), timeout="5 s") as client:
        client.wait_for_workers(2, timeout=30)
        yield scheduler, workers, client


def kill(*victims):
    for victim in victims:
        victim.send_signal(signal.SIGKILL)
        victim.wait()


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(bare_cluster, table, monkeypatch):
    (X, y), folder = table
    after_the_charge(monkeypatch, lambda: kill(bare_cluster[1][0]))
    model, ledger = model_with_ledger(folder)
    assert_same(model.fit(X, y), in_memory())
    assert reads(folder) > READS
    assert len(ledger.entries()) == 1


@pytest.mark.slow
def test_a_worker_that_dies_in_the_middle_of_a_pass(bare_cluster, table):
    (X, y), folder = table
    mark = str(folder / "died")

    def count(block, y, w):
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return (np.array([len(y)]),)
        os.kill(os.getpid(), signal.SIGKILL)

    found = DaskTable(X, y, "test").rows(RowMap(4, 1.0)).sum(count)
    assert found[0] == sum(SIZES)
    assert len(bare_cluster[2].nthreads()) == 1


@pytest.mark.slow
def test_all_workers_killed(bare_cluster, table, monkeypatch):
    (X, y), folder = table
    after_the_charge(monkeypatch, lambda: kill(*bare_cluster[1]))
    model, ledger = model_with_ledger(folder)
    with (
        dask.config.set({"dpconvex.timeout": "15 s"}),  # a scheduler that imports does not answer
        pytest.raises(ClusterLostError, match=SPENT),
    ):
        model.fit(X, y)
    assert len(ledger.entries()) == 1


@pytest.mark.slow
def test_a_frozen_worker_is_not_waited_for_any_longer_than_a_lost_one(
    bare_cluster, table, monkeypatch
):
    (X, y), folder = table
    frozen = bare_cluster[1][0]
    after_the_charge(monkeypatch, lambda: frozen.send_signal(signal.SIGSTOP))
    model, ledger = model_with_ledger(folder)
    with (
        dask.config.set({"dpconvex.timeout": "15 s"}),
        pytest.raises(ClusterLostError, match=f"has not answered .* {SPENT}"),
    ):
        model.fit(X, y)
    frozen.send_signal(signal.SIGCONT)
    assert len(ledger.entries()) == 1


@pytest.mark.slow
def test_workers_that_come_back_in_time_finish_the_fit(table, monkeypatch):
    (X, y), folder = table
    options = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(2, **options) as cluster, distributed.Client(cluster) as client:

        def slaughter():
            for pid in client.run(os.getpid).values():
                os.kill(pid, signal.SIGKILL)

        after_the_charge(monkeypatch, slaughter)
        model, ledger = model_with_ledger(folder)
        assert_same(model.fit(X, y), in_memory())
    assert len(ledger.entries()) == 1


@pytest.mark.slow
def test_a_killed_scheduler_is_no_reason_to_compute_here(bare_cluster, table, monkeypatch):
    (X, y), folder = table
    after_the_charge(monkeypatch, lambda: kill(bare_cluster[0]))
    model, ledger = model_with_ledger(folder)
    with pytest.raises(ClusterLostError, match=SPENT):
        model.fit(X, y)
    assert reads(folder) == READS
    assert len(ledger.entries()) == 1


CLIENT = """
import sys
from pathlib import Path
import dask
import test_dask_chaos as chaos

folder = Path(sys.argv[1])

charge = chaos.release.charge_private_model

def charge_and_stop(*arguments):
    charge(*arguments)
    (folder / "charged").touch()
    chaos.time.sleep(60)

chaos.release.charge_private_model = charge_and_stop
model, _ = chaos.model_with_ledger(folder)
with dask.config.set({"scheduler": "threads"}):
    model.fit(*chaos.in_files(folder, *chaos.make_table()))
"""


@pytest.mark.slow
def test_a_killed_fit_has_paid(processes, tmp_path):
    client = processes("-c", CLIENT, str(tmp_path))
    deadline = time.monotonic() + 50
    while not (tmp_path / "charged").exists():
        assert time.monotonic() < deadline
        assert client.poll() is None
        time.sleep(0.1)
    kill(client)
    ledger = Ledger(tmp_path / "ledger.db", epsilon=5.0)
    ledger.check()
    assert len(ledger.entries()) == 1
    model, ledger = model_with_ledger(tmp_path)
    with pytest.raises(BudgetExceeded):  # there is room for one such fit
        model.fit(*make_table())
