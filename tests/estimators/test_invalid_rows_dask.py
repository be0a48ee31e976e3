"""Invalid rows and no rows in Dask collections: the fit of the same rows in memory."""

import numpy as np
import pytest
from all_fits import ALL, AUCS, CLASSIFICATIONS, REGRESSIONS, training_data
from partitions import assert_same_fit
from sklearn.base import clone
from test_invalid_rows import PRIVATE_NUMBER, spoiled

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")

from dpconvex import DPLogisticRegression  # noqa: E402

SUMMED = [
    name
    for name in [*REGRESSIONS, *CLASSIFICATIONS, *AUCS]
    if not any(word in name for word in ("sgd", "phased", "plain"))
]


@pytest.mark.parametrize("spill_limit", [None, 0, "5 kB"])  # all, none, some of the partitions
@pytest.mark.parametrize("name", SUMMED)
def test_same_coefficients_as_in_memory(name, spill_limit):
    X, y = spoiled(name, *training_data(name), "target")
    X[17, 1] = np.nan
    model = ALL[name]().set_params(invalid_rows="ignore", random_state=3)
    expected = clone(model).fit(X, y)
    with dask.config.set({"dpconvex.spill-limit": spill_limit, "scheduler": "threads"}):
        found = model.fit(da.from_array(X, chunks=(7, 2)), da.from_array(y, chunks=7))
    assert_same_fit(found, expected, 1e-7)


def elsewhere(graph, keys, **_):
    """A scheduler that is none of Dask's own, as a cluster's."""
    return dask.get(graph, keys)


@pytest.mark.parametrize("scheduler", ["threads", elsewhere])
def test_frames_with_objects_and_text(scheduler):
    X, y = training_data("DPLogisticRegression output")
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame["b"] = frame["b"].astype(object)
    frame["target"] = np.where(y > 0, "yes", "no")
    frame.loc[3, "a"] = np.inf
    frame.loc[4, "b"] = None
    frame.loc[5, "b"] = "text"
    frame.loc[6, "target"] = None
    frame.loc[7, "target"] = "perhaps"
    model = DPLogisticRegression(
        classes=["no", "yes"],
        feature_bounds=(-1, 1),
        mechanism="output",
        invalid_rows="ignore",
        random_state=0,
    )
    expected = clone(model).fit(frame[["a", "b"]], frame["target"])
    with dask.config.set({"dataframe.convert-string": False, "scheduler": scheduler}):
        parts = dd.from_pandas(frame, npartitions=3)
        found = model.fit(parts[["a", "b"]], parts["target"])
    assert_same_fit(found, expected, 1e-7)
    assert found.feature_names_in_.tolist() == ["a", "b"]


@pytest.mark.parametrize("chunks", [7, (0, 0)])
@pytest.mark.parametrize("name", [name for name in PRIVATE_NUMBER if name in SUMMED])
def test_no_rows_fit_where_their_number_is_private(name, chunks):
    X, y = training_data(name, rows=0)
    model = ALL[name]().set_params(
        neighbors="add_or_remove_one", nominal_samples=20, random_state=3
    )
    expected = clone(model).fit(X, y)
    columns = (chunks, 2) if chunks == 7 else (chunks, (2,))
    found = model.fit(da.from_array(X, chunks=columns), da.from_array(y, chunks=(chunks,)))
    assert_same_fit(found, expected, 1e-7)


@pytest.mark.parametrize("name", SUMMED)
def test_no_rows_are_refused_where_their_number_is_public(name):
    X, y = training_data(name, rows=0)
    with pytest.raises(ValueError, match="0 sample"):
        ALL[name]().fit(da.from_array(X, chunks=(7, 2)), da.from_array(y, chunks=7))
