"""A disk that fills up, at every byte: a charge is granted and on record, or refused and not; a
fit says which.
"""

import os
import subprocess
from contextlib import contextmanager

import numpy as np
import pytest

resource = pytest.importorskip("resource")

from dpconvex import DPLogisticRegression, load_model, save_model  # noqa: E402
from dpconvex.privacy import GaussianDP, Ledger, LedgerError  # noqa: E402

pytestmark = pytest.mark.slow


@contextmanager
def no_file_longer_than(size):
    """Let every write beyond so many bytes of a file fail, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    return X, X[:, 0] > 0


def model(ledger):
    return DPLogisticRegression(
        epsilon=0.01, feature_bounds=(-4, 4), random_state=0, ledger=ledger, verbose=False
    )


def test_a_charge_is_on_record_or_refused(tmp_path):
    """Limits at every 256 bytes up to what a charge needs: the journal and the file itself fail
    in turn.
    """
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, epsilon=100.0)
    granted = refused = 0
    for limit in range(0, 40_000, 256):
        before = len(ledger.entries())
        try:
            with no_file_longer_than(limit):
                ledger.charge(GaussianDP(1e-3), mu=1e-3)
            granted += 1
        except LedgerError:
            refused += 1
        again = Ledger(path)
        again.check()
        assert len(again.entries()) == granted
        assert granted - before in (0, 1)
    assert granted > 10
    assert refused > 10


def test_a_new_ledger_is_there_or_not(tmp_path):
    for number, limit in enumerate(range(0, 40_000, 1024)):
        path = tmp_path / f"ledger{number}.db"
        try:
            with no_file_longer_than(limit):
                Ledger(path, epsilon=1.0)
        except LedgerError:
            assert not path.exists()
        else:
            Ledger(path).check()
        assert {file.name for file in tmp_path.glob(f"ledger{number}*")} <= {path.name}


@pytest.mark.parametrize("limit", [0, 600, 4096, 9000])
def test_a_fit_without_room_for_its_charge_releases_nothing(tmp_path, limit, monkeypatch):
    from dpconvex.core.noise_source import NoiseSource

    ledger = Ledger(tmp_path / "ledger.db", epsilon=1.0)
    monkeypatch.setattr(NoiseSource, "add_gaussian", lambda *_: pytest.fail("noise was drawn"))
    estimator = model(ledger)
    with no_file_longer_than(limit), pytest.raises(LedgerError):
        estimator.fit(*rows())
    assert not hasattr(estimator, "coef_")
    ledger.check()
    assert ledger.entries() == []


def test_a_model_is_saved_whole_or_not_at_all(tmp_path):
    path = tmp_path / "model.json"
    fitted = model(None).fit(*rows())
    save_model(fitted, path)
    size = path.stat().st_size
    saved = path.read_bytes()
    for limit in (*range(0, size, max(1, size // 20)), size - 1):
        with no_file_longer_than(limit), pytest.raises(OSError, match=r"large|space"):
            save_model(fitted, path)
        assert path.read_bytes() == saved
        assert os.listdir(tmp_path) == ["model.json"]
    with no_file_longer_than(size):
        save_model(fitted, path)
    np.testing.assert_array_equal(load_model(path).coef_, fitted.coef_)


def test_partitions_without_room_are_read_from_their_source():
    da = pytest.importorskip("dask.array")
    X, y = rows()
    with no_file_longer_than(1000):
        found = model(None).fit(da.from_array(X, chunks=(100, 3)), da.from_array(y, chunks=100))
    np.testing.assert_allclose(found.coef_, model(None).fit(X, y).coef_, rtol=1e-8)


def test_a_disk_that_is_really_full(tmp_path):
    """A file system of 64 kB in memory, filled up: charges are refused until there is room
    again.
    """
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        ledger = Ledger(tmp_path / "ledger.db", epsilon=1.0)
        ledger.charge(GaussianDP(1e-3), mu=1e-3)
        filler = tmp_path / "filler"
        with pytest.raises(OSError, match="space"):
            filler.write_bytes(b"x" * 70_000)
        with pytest.raises(LedgerError, match=r"ledger at .* is on a full disk"):
            model(ledger).fit(*rows())
        assert len(ledger.entries()) == 1
        filler.unlink()
        model(ledger).fit(*rows())
        assert len(ledger.entries()) == 2
        ledger.check()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
