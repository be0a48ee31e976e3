"""Real data is what it says, and its bounds hold it."""

import os
import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest

from dpconvex_reproduction import datasets
from dpconvex_reproduction.bench.problems import DATA, files
from dpconvex_reproduction.catalogue import find
from dpconvex_reproduction.datasets.dataset import SHA256, data_path

pytestmark = pytest.mark.slow

FOLDER = Path(os.environ.get("DPCONVEX_DATA", "no data"))
needs_data = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no data folder: set DPCONVEX_DATA to the folder of the data files"
)

# loader, options, shape, test rows, regression
REAL = [
    ("load_bike", {}, (17379, 12), None, True),
    ("load_bike", {"one_hot": True}, (17379, 7 + 4 + 12 + 24 + 7 + 4), None, True),
    ("load_census_wages", {}, (29501, 3), None, True),
    ("load_census_wages", {"one_hot": True}, (29501, 54), None, True),
    ("load_engel", {}, (235, 1), None, True),
    ("load_restaurant", {}, (765, 8), None, True),
    ("load_restaurant", {"target": "steak", "one_hot": True}, (765, 27), None, True),
    ("load_restaurant_lamb", {}, (751, 5), None, True),
    ("load_restaurant_lamb", {"rows": "open"}, (738, 5), None, True),
    ("load_restaurant_lamb", {"rows": "nonzero"}, (735, 5), None, True),
    ("load_a9a", {}, (32561, 123), 16281, False),
    ("load_adult", {}, (32561, 104), 16281, False),
    ("load_ijcnn1", {}, (49990, 22), 91701, False),
    ("load_satimage", {}, (4435, 36), 2000, False),
    ("load_satimage", {"scaled": True, "binary": False}, (4435, 36), None, False),
    ("load_http", {}, (567498, 3), None, False),
    ("load_skin", {}, (245057, 3), None, False),
    ("load_bank_campaign", {}, (41188, 62), None, False),
    ("load_covtype", {}, (581012, 54), None, False),
]


@needs_data
@pytest.mark.parametrize(("loader", "options", "shape", "test_rows", "regression"), REAL)
def test_real_data_has_its_shape_and_lies_within_round_bounds(
    loader, options, shape, test_rows, regression
):
    data = getattr(datasets, loader)(**options, folder=FOLDER)
    assert data.X.shape == shape
    assert data.y.shape == (shape[0],)
    assert len(data.feature_names) == len(set(data.feature_names)) == shape[1]
    assert np.isfinite(data.X).all()
    assert (data.X_test is None) == (test_rows is None)
    parts = [data.X]
    if test_rows is not None:
        assert data.X_test.shape == (test_rows, shape[1])
        assert set(np.unique(data.y_test)) == set(np.unique(data.y))
        parts.append(data.X_test)
    low, high = data.feature_bounds
    assert low.shape == high.shape == (shape[1],)
    assert (low < high).all()
    for X in parts:
        clipped = ((low > X) | (high < X)).mean(axis=0)
        assert clipped.max() < 0.01
        # No column is squeezed into a corner: bounds that wide would waste the budget.
        used = (X.max(axis=0) - X.min(axis=0)) / (high - low)
        assert used[X.std(axis=0) > 0].min() > 0.2
    assert (data.target_bounds is not None) == regression
    if regression:
        assert np.mean((data.y < data.target_bounds[0]) | (data.y > data.target_bounds[1])) < 0.01
    else:
        assert len(np.unique(data.y)) in (2, 6)
    assert repr(shape) in repr(data)
    with pytest.raises(FrozenInstanceError):
        data.X = None


@needs_data
def test_leaks_of_the_target_are_left_out():
    bike = datasets.load_bike(folder=FOLDER)
    assert not {"casual", "registered", "cnt", "instant", "dteday"} & set(bike.feature_names)
    assert bike.y.sum() == 3292679
    wages = datasets.load_census_wages(folder=FOLDER)
    assert not {"lweekinc", "weekinc"} & set(wages.feature_names)
    assert np.log(wages.y) == pytest.approx(wages.raw["lweekinc"])


@needs_data
def test_indicators_cover_every_category():
    adult = datasets.load_adult(folder=FOLDER)
    train = adult.raw["split"] == "train"
    for column, levels in adult.categories.items():
        block = [k for k, name in enumerate(adult.feature_names) if name.startswith(column + "=")]
        assert len(block) == len(levels)
        # Only a missing value has no indicator: a category absent from the list would too.
        known = adult.raw[column][train] != ""
        assert np.array_equal(adult.X[:, block].sum(axis=1) == 1, known)
    bike = datasets.load_bike(one_hot=True, folder=FOLDER)
    assert (bike.X[:, 7:].sum(axis=1) == 5).all()
    wages = datasets.load_census_wages(one_hot=True, folder=FOLDER)
    assert (wages.X[:, 3:].sum(axis=1) == 1).all()
    restaurant = datasets.load_restaurant(one_hot=True, folder=FOLDER)
    assert (restaurant.X[:, 8:].sum(axis=1) == 2).all()
    covtype = datasets.load_covtype(binary=False, folder=FOLDER)
    assert (covtype.X[:, 10:14].sum(axis=1) == 1).all()
    assert (covtype.X[:, 14:].sum(axis=1) == 1).all()
    assert np.bincount(covtype.y)[1:].tolist() == [211840, 283301, 35754, 2747, 9493, 17367, 20510]


@needs_data
def test_skin_is_back_in_whole_channel_values():
    skin = datasets.load_skin(folder=FOLDER)
    for column in skin.X.T:
        assert np.array_equal(np.unique(column), np.arange(256))
    with np.load(FOLDER / "skin.npz") as archive:
        for stored, column in zip(archive["X"].T, skin.X.T, strict=True):
            assert np.corrcoef(stored, column)[0, 1] == pytest.approx(1.0, abs=1e-12)


@needs_data
@pytest.mark.parametrize("filename", sorted(SHA256))
def test_checksums(filename):
    assert data_path(filename, FOLDER).name == filename


def test_the_page_on_data_names_every_file_with_its_hash_and_its_exhibits():
    page = Path(__file__).parents[2] / "docs" / "reference" / "data.md"
    listed = [line for line in page.read_text().splitlines() if line.startswith("| `")]
    found = {}
    for line in listed:
        name, *_, digest, used = (cell.strip() for cell in line.strip("|").split("|"))
        found[name.strip("`")] = digest.strip("`"), set(re.findall("`([^`]+)`", used))
    assert len(listed) == len(found)
    used = {name: set() for name in SHA256}
    for exhibit in find("all"):
        for name in exhibit.data:
            used[name].add(exhibit.name)
    for name in files(DATA):
        used[name].add("bench")
    assert found == {name: (digest[:16], used[name]) for name, digest in SHA256.items()}


def test_an_absent_file_is_explained(tmp_path, monkeypatch):
    monkeypatch.delenv("DPCONVEX_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"engel\.csv.*DPCONVEX_DATA is not set"):
        datasets.load_engel()
    monkeypatch.setenv("DPCONVEX_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"'engel\.csv' is not in '{tmp_path}'"):
        datasets.load_engel()


def test_another_version_of_a_file_is_refused(tmp_path):
    (tmp_path / "engel.csv").write_text("income,foodexp\n1,2\n")
    with pytest.raises(ValueError, match="SHA-256"):
        datasets.load_engel(folder=tmp_path)


@needs_data
def test_the_folder_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("DPCONVEX_DATA", str(FOLDER))
    assert datasets.load_engel().X.shape == (235, 1)


@needs_data
def test_wrong_options_are_explained():
    with pytest.raises(ValueError, match="'target' parameter of load_restaurant"):
        datasets.load_restaurant("soup", folder=FOLDER)
    with pytest.raises(ValueError, match="'rows' parameter of load_restaurant_lamb"):
        datasets.load_restaurant_lamb("closed", folder=FOLDER)
