"""Fits with groups, weights and weights of classes: what they mean, what they promise, what they
never show.
"""

import contextlib
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GroupKFold, cross_validate

from dpconvex import (
    DPAUCClassifier,
    DPLinearRegression,
    DPLogisticRegression,
    DPQuantileRegressor,
    DPTiltedClassifier,
    DPTopRankClassifier,
)
from dpconvex.core import mechanism_rules
from dpconvex.core.rows import SourceChangedError
from dpconvex.mechanisms import Carries, NoisySGD
from dpconvex.models import model_file
from dpconvex.selection import DPSelect

PUBLIC = {
    "epsilon": 1e4,
    "feature_bounds": (-4.0, 4.0),
}  # hardly any noise: what a fit means is seen


def table(people=400, seed=0):
    """Return rows of people; those with many rows have another intercept."""
    rng = np.random.default_rng(seed)
    counts = np.where(np.arange(people) % 2, 1, 15)
    ids = np.repeat([f"patient {i}" for i in range(people)], counts)
    X = np.clip(rng.normal(size=(ids.size, 2)), -4, 4)
    y = X @ [1.0, -0.5] + 2.0 * (np.repeat(counts, counts) > 1) + 0.3 * rng.normal(size=ids.size)
    order = rng.permutation(ids.size)
    return X[order], y[order], ids[order]


def median(**more):
    return DPQuantileRegressor(0.5, target_bounds=(-6, 6), **{**PUBLIC, **more})


def test_equal_votes_are_a_mean_over_people_and_rows_a_mean_over_rows():
    """Half of the people, with nearly all of the rows, lie 2 higher: so does the median of rows,
    not that of people.
    """
    X, y, ids = table()
    of_rows = median().fit(X, y)
    of_people = median().fit(X, y, groups=ids)
    assert abs(of_rows.intercept_ - 2) < 0.3
    assert 0.4 < of_people.intercept_ < 1.6
    some = median(person_weight="rows", rows_per_person=15).fit(X, y, groups=ids)
    assert abs(some.intercept_ - 2) < 0.3
    linear = DPLinearRegression(target_bounds=(-6, 6), **PUBLIC).fit(X, y, groups=ids)
    assert abs(linear.intercept_ - 1) < 0.3  # a mean, of people
    one = median(person_weight="rows", rows_per_person=1).fit(X, y, groups=ids)
    assert 0.4 < one.intercept_ < 1.6


def test_the_certificate_is_that_of_people():
    X, y, ids = table()
    model = median().fit(X, y, groups=ids)
    certificate = model.certificate_
    certificate.verify()
    assert certificate.unit == "one person"
    assert certificate.bounds.n_samples == 400
    assert certificate.to_json() == median().certify(400, 2, groups=True).to_json()
    some = median(person_weight="rows", rows_per_person=3)
    assert some.certify(400, 2, groups=True).unit == "one person, at most 3 rows"
    assert some.certify(400, 2, groups=True).bounds.n_samples == 1200
    promised = median(rows_per_person=3).certify(1200, 2)
    assert promised.unit == "one person, at most 3 rows"
    single = median().certify(400, 2)  # of whom there are as many: the plan is the same
    for name, term in promised.noise.items():
        assert term.sensitivity == pytest.approx(3 * single.noise[name].sensitivity, rel=1e-3)


def test_a_forged_unit_does_not_verify():
    certificate = median().certify(400, 2)
    data = json.loads(certificate.to_json()) | {"unit": "one person"}
    forged = type(certificate).from_json(json.dumps(data))
    object.__setattr__(forged, "digest", forged._hash())
    with pytest.raises(ValueError, match="unit"):
        forged.verify()


def test_objective_perturbation_pays_for_people():
    logistic = DPLogisticRegression(mechanism="objective", alpha=0.01, feature_bounds=(-1, 1))
    row, person = (logistic.certify(5000, 3, groups=groups) for groups in (False, True))
    ratio = person.noise["objective"].scale / row.noise["objective"].scale
    assert 1.0 < ratio < 1.3
    pure = DPLogisticRegression(
        mechanism="objective", alpha=0.01, feature_bounds=(-1, 1), delta=0.0
    ).certify(5000, 3, groups=True)
    pure.verify()
    assert "trace form" in pure.theorem


def test_identifiers_are_in_nothing_that_is_kept(tmp_path):
    X, y, ids = table()
    model = median().fit(X, y, groups=ids)
    shown = pickle.dumps(model) + str(model.summary()).encode() + repr(vars(model)).encode()
    model_file.save_model(model, tmp_path / "model.json")
    shown += (tmp_path / "model.json").read_bytes()
    assert b"patient" not in shown
    again = model_file.load_model(tmp_path / "model.json")
    assert again.certificate_.unit == "one person"


@pytest.mark.parametrize(
    "groups", [[["a", "b"]], [1, 2, 3], None.__class__, np.zeros(6060, dtype=complex)], ids=str
)
def test_errors_name_no_identifier_and_no_number_of_rows(groups):
    X, y, ids = table()
    with pytest.raises((ValueError, TypeError)) as caught:
        median().fit(X, y, groups=groups)
    assert str(len(y)) not in str(caught.value)
    missing = ids.astype(object)
    missing[0] = None
    with pytest.raises(ValueError, match="missing identifiers") as caught:
        median().fit(X, y, groups=missing)
    assert "patient" not in str(caught.value)
    ignored = median(invalid_rows="ignore").fit(X, y, groups=missing)
    assert ignored.certificate_.bounds.n_samples == 400


def test_settings_that_contradict_each_other_are_refused():
    X, y, ids = table(40)
    label = (y > 1).astype(int)
    with pytest.raises(ValueError, match="rows_per_person"):
        median(rows_per_person=3).fit(X, y, groups=ids)
    with pytest.raises(ValueError, match="person_weight"):
        median(person_weight="rows").fit(X, y)
    with pytest.raises(ValueError, match="person_weight"):
        median(person_weight="many").fit(X, y, groups=ids)
    with pytest.raises(ValueError, match="label_private"):
        DPAUCClassifier(label_private=False).fit(X, label, groups=ids)
    with pytest.raises(ValueError, match="not proven"):
        DPAUCClassifier(mechanism="objective").fit(X, label, groups=ids)
    with pytest.raises(ValueError, match="no weights"):
        DPTiltedClassifier().fit(X, label, groups=ids, sample_weight=np.ones(len(y)))
    for public in ({"class_weight": {1: 0.5}}, {"rows_per_person": 2}):
        with pytest.raises(ValueError, match="top of a list is not proven"):
            DPTopRankClassifier(**public).fit(X, label)
    with pytest.raises(ValueError, match="batches or phases"):
        DPLogisticRegression(mechanism=NoisySGD(), rows_per_person=2).fit(X, label)


def test_weights_of_rows_and_of_classes():
    rng = np.random.default_rng(0)
    X, y, _ = table()
    heavy = np.where(y > 1.5, 0.05, 1.0)
    lighter = median().fit(X, y, sample_weight=heavy).intercept_
    assert lighter < median().fit(X, y).intercept_ - 0.15
    label = (rng.random(len(y)) < 0.5).astype(int)
    weighted = DPLogisticRegression(class_weight={0: 0.25}, **PUBLIC).fit(X, label)
    assert weighted.intercept_[0] == pytest.approx(np.log(4), abs=0.15)
    same = DPLogisticRegression(class_weight={0: 1.0, 1: 4.0}, **PUBLIC).fit(X, label)
    assert same.intercept_[0] == pytest.approx(np.log(4), abs=0.15)
    given = DPLogisticRegression(**PUBLIC).fit(X, label, sample_weight=np.where(label, 1, 0.25))
    assert given.intercept_[0] == pytest.approx(np.log(4), abs=0.15)
    for wrong in ("balanced", {0: -1.0}, {7: 1.0}, {0: 0.0, 1: 0.0}):
        with pytest.raises((TypeError, ValueError), match="class_weight"):
            DPLogisticRegression(class_weight=wrong).fit(X, label)
    with pytest.raises(ValueError, match="between 0 and 1"):
        median().fit(X, y, sample_weight=2 * heavy)


def test_people_are_kept_together_in_cross_validation_and_selection():
    X, y, ids = table(60)
    label = (y > 1).astype(int)
    with sklearn.config_context(enable_metadata_routing=True):
        model = DPLogisticRegression(classes=[0, 1], **PUBLIC).set_fit_request(groups=True)
        found = cross_validate(
            model, X, label, cv=GroupKFold(3), params={"groups": ids}, return_estimator=True
        )
    assert [fit.certificate_.bounds.n_samples for fit in found["estimator"]] == [40] * 3
    search = DPSelect(
        DPLogisticRegression(classes=[0, 1], feature_bounds=(-4, 4)), {"row_norm": [1.0, 2.0]}
    ).fit(X, label, groups=ids)
    assert search.certificate_.unit == "one person"
    assert search.certificate_.training_rows + search.certificate_.validation_rows == 60
    search.certificate_.verify()
    with pytest.raises(ValueError, match="both parts"):
        DPSelect(DPLogisticRegression(rows_per_person=2), {"row_norm": [1.0]}).certify(100, 2)


@pytest.mark.parametrize("limit", ["1 GB", 0])
@pytest.mark.parametrize("beside", ["groups", "sample_weight"])
def test_rows_in_another_order_when_identifiers_are_read_are_noticed(beside, limit):
    """Else somebody with half of all rows would have the votes of others, and weights would
    stand beside other rows.
    """
    dask = pytest.importorskip("dask")
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    n = 400
    reads = []
    own = np.arange(n) // 2 if beside == "groups" else np.linspace(0, 1, n)
    frame = pd.DataFrame({"x": np.linspace(0, 1, n), "y": 1.0, "own": own})

    def read(number, shuffled):
        part = frame[number * 200 : (number + 1) * 200]
        reads.append(number)
        return part.sample(frac=1, random_state=len(reads)) if shuffled else part

    def fit(shuffled):
        parts = [dask.delayed(read, pure=False)(i, shuffled) for i in range(2)]
        table = dd.from_delayed(parts, meta=frame[:0])
        model = DPLinearRegression(feature_bounds=(0, 1), target_bounds=(0, 1))
        with dask.config.set({"dpconvex.spill-limit": limit}):
            model.fit(table[["x"]], table["y"], **{beside: table["own"]})

    fit(shuffled=False)
    with pytest.raises(SourceChangedError, match="not the one that was checked"):
        fit(shuffled=True)


def test_weights_of_one_partition_are_not_those_of_others(monkeypatch):
    """Beside a partition of text, numpy would write the truth values of another one as words,
    which weigh nothing.
    """
    dask = pytest.importorskip("dask")
    da = pytest.importorskip("dask.array")
    from dpconvex.estimators import private_model

    blocks = [np.array([True, False, True]), np.array(["0.5", "much", "1"])]
    weights = da.concatenate([da.from_delayed(dask.delayed(b), (3,), object) for b in blocks])
    found = []
    read = private_model.read_row_weights
    monkeypatch.setattr(
        private_model, "read_row_weights", lambda *a: found.append(read(*a)) or found[-1]
    )
    X = da.full((6, 1), 0.5, chunks=(3, 1))
    model = DPLinearRegression(feature_bounds=(0, 1), target_bounds=(0, 1), invalid_rows="ignore")
    model.fit(X, X[:, 0], sample_weight=weights)
    assert found[0][1].values.tolist() == [1, 0, 1, 0.5, 0, 1]


@pytest.mark.parametrize("turned", range(4))
def test_identifiers_come_from_the_reading_that_their_rows_come_from(turned):
    """Readers that are asked for some columns only are asked for those of a row together,
    whichever reading differs.
    """
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    n = 200
    reads = []
    frame = pd.DataFrame({"x": np.linspace(0, 1, n), "y": 1.0, "id": np.arange(n) // 2})

    def read(part, columns=None):
        reads.append(columns)
        found = frame[::-1] if len(reads) - 1 == turned else frame
        return found if columns is None else found[columns]

    table = dd.from_map(read, [0], meta=frame[:0], enforce_metadata=False)
    model = DPLinearRegression(feature_bounds=(0, 1), target_bounds=(0, 1))
    with contextlib.suppress(SourceChangedError):
        model.fit(table[["x"]], table["y"], groups=table["id"])
    assert all("x" in columns for columns in reads if columns is not None and "id" in columns)


def test_dask_and_memory_agree():
    da = pytest.importorskip("dask.array")
    X, y, ids = table()
    chunks = (1000, 1000, len(y) - 2000)
    public = {"random_state": 0, "epsilon": 2.0}
    for more in ({"groups": ids}, {"sample_weight": np.linspace(0, 1, len(y))}):
        whole = median(**public).fit(X, y, **more)
        pieces = {name: da.from_array(values, chunks=(chunks,)) for name, values in more.items()}
        parts = median(**public).fit(
            da.from_array(X, chunks=(chunks, 2)), da.from_array(y, chunks=(chunks,)), **pieces
        )
        assert np.allclose(parts.coef_, whole.coef_, atol=1e-6)
        assert parts.certificate_.to_json() == whole.certificate_.to_json()
    with pytest.raises(ValueError, match="partitions"):
        median().fit(
            da.from_array(X, chunks=(chunks, 2)),
            da.from_array(y, chunks=(chunks,)),
            groups=da.from_array(ids, chunks=999),
        )


def test_mechanisms_that_are_not_known_to_carry_votes_are_refused(monkeypatch):
    rule = replace(mechanism_rules.find_mechanism_rule("gradient"), carries=Carries())
    monkeypatch.setitem(mechanism_rules._RULES._found, "gradient", rule)
    assert median().certify(100, 2).unit == "one record"
    for promised in ({"groups": True}, {"sample_weight": True}):
        with pytest.raises(ValueError, match="does not carry"):
            median().certify(100, 2, **promised)
    with pytest.raises(ValueError, match="does not carry"):
        median(rows_per_person=2).certify(100, 2)
