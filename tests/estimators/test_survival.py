"""Discrete-time proportional hazards: the estimate without noise, forms of the target,
predictions, refusals.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit

from dpconvex import DPDiscreteHazard, load_model, save_model
from dpconvex.estimators.survival import HazardOutcomes, concordance_index, signed_times

HORIZONS = (2.0, 4.0, 6.0, 8.0, 11.0)


def records(n=4000, d=3, seed=0):
    """Return rows, times and events: exponential times, censored uniformly."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).clip(-4, 4)
    time = rng.exponential(8 * np.exp(-X @ np.linspace(1, -0.5, d)))
    end = rng.uniform(1, 20, n)
    return X, np.minimum(time, end), time <= end


def period_rows(time, event):
    """Return which records are at risk in which period, and which have their event there; period
    by period.
    """
    risk = []
    seen = []
    for low, high in zip((0.0, *HORIZONS), HORIZONS, strict=False):
        risk.append((time > low) & ((time >= high) | event))
        seen.append(risk[-1] & event & (time <= high))
    return np.array(risk), np.array(seen)


def loss(X, risk, seen, coef, baseline):
    z = X @ coef + np.asarray(baseline)[:, None]
    return (np.where(risk, np.logaddexp(0, z), 0) - np.where(seen, z, 0)).sum(axis=0).mean()


def not_private(X, risk, seen):
    """Return the minimiser by another's solver, from person-period rows."""
    d = X.shape[1]

    def value(p):
        slopes = risk * expit(X @ p[:d] + p[d:, None]) - seen
        return loss(X, risk, seen, p[:d], p[d:]), np.concatenate(
            [slopes.sum(axis=0) @ X, slopes.sum(axis=1)]
        ) / len(X)

    found = minimize(
        value,
        np.concatenate([np.zeros(d), np.full(len(HORIZONS), -1.0)]),
        jac=True,
        method="L-BFGS-B",
    )
    return found.x[:d], found.x[d:]


def test_a_large_budget_gives_the_fit_without_privacy():
    X, time, event = records()
    risk, seen = period_rows(time, event)
    coef, baseline = not_private(X, risk, seen)
    model = DPDiscreteHazard(HORIZONS, epsilon=100.0, feature_bounds=(-4, 4), random_state=0)
    model.fit(X, np.column_stack([time, event]))
    model.certificate_.verify()
    assert model.certify(len(X), 3) == model.certificate_
    assert np.abs(model.coef_ - coef).max() < 0.05
    assert np.abs(model.released_["baseline"] - baseline).max() < 0.1
    found = loss(X, risk, seen, model.coef_, model.released_["baseline"])
    assert found <= 1.002 * loss(X, risk, seen, coef, baseline)


def test_a_small_budget_keeps_most_of_it():
    X, time, event = records(20_000)
    risk, seen = period_rows(time, event)
    best = loss(X, risk, seen, *not_private(X, risk, seen))
    model = DPDiscreteHazard(HORIZONS, epsilon=1.0, feature_bounds=(-4, 4), random_state=1)
    model.fit(X, np.column_stack([time, event]))
    assert loss(X, risk, seen, model.coef_, model.released_["baseline"]) <= 1.01 * best


def test_outcomes_are_those_of_the_periods():
    times = np.array([0.5, 2.0, 2.1, 11.0, 11.1, 30.0])
    outcomes = HazardOutcomes(HORIZONS)
    assert outcomes(times).tolist() == [1, 1, 3, 9, 10, 10]
    assert outcomes(-times).tolist() == [0, 2, 2, 10, 10, 10]
    assert outcomes(np.array([0.0, -0.0])).tolist() == [1, 0]
    assert np.isnan(outcomes(np.array([np.nan, -np.nan]))).all()


def test_forms_of_the_target_are_one():
    X, time, event = records(500)
    structured = np.array(
        list(zip(event, time, strict=True)), dtype=[("event", bool), ("time", float)]
    )
    forms = [np.column_stack([time, event]), np.where(event, time, -time), structured]
    fits = [
        DPDiscreteHazard(HORIZONS, epsilon=5.0, feature_bounds=(-4, 4), random_state=0).fit(X, form)
        for form in forms
    ]
    assert all(np.array_equal(model.coef_, fits[0].coef_) for model in fits)
    frame = pytest.importorskip("pandas").DataFrame(forms[0], columns=["time", "event"])
    assert np.array_equal(signed_times(frame, "a"), forms[1])
    with pytest.raises(ValueError, match="two columns"):
        DPDiscreteHazard(HORIZONS).fit(X, np.ones((500, 3)))


@pytest.mark.parametrize(
    "odd", [["SECRET", True], [1.0], [], [None, True], [1j, False], 10**400, [[1.0], 2.0], "x"]
)
def test_how_a_list_is_read_follows_from_each_record_alone(odd):
    """numpy finds one type and shape for all records: one of them would change, or lose, all
    others.
    """
    pairs = [[1.5, True], [0.0, False], [2.5, True], (3, 0), -4.0, np.array([5.0, 1.0])]
    before, after = (signed_times(y, "a") for y in (pairs, [odd, *pairs[1:]]))
    assert before.tolist() == [1.5, 0.0, 2.5, -3.0, -4.0, 5.0]
    assert np.signbit(before[1])
    assert after[1:].tobytes() == before[1:].tobytes()


def test_text_is_refused_without_its_words():
    structured = np.array([(True, "SECRET")], dtype=[("event", bool), ("time", "U6")])
    for y in (structured, np.array([["SECRET", "1"]])):
        with pytest.raises(ValueError, match="must be numbers") as caught:
            signed_times(y, "a")
        assert "SECRET" not in str(caught.value)


def test_sparse_and_dask_rows_give_the_same():
    array = pytest.importorskip("dask.array")
    X, time, event = records(600)
    X[np.abs(X) < 0.5] = 0.0
    signed = np.where(event, time, -time)
    model = DPDiscreteHazard(HORIZONS, epsilon=5.0, feature_bounds=(-4, 4), random_state=0)
    dense = model.fit(X, signed).coef_
    assert np.allclose(model.fit(csr_array(X), signed).coef_, dense, atol=1e-6)
    parts = array.from_array(X, chunks=(200, 3)), array.from_array(signed, chunks=200)
    assert np.allclose(model.fit(*parts).coef_, dense, atol=1e-6)


def test_zeros_of_whole_numbers_keep_whether_an_event_was_seen():
    """A 0 of integers has no sign: whoever is censored at once would have an event in the first
    period.
    """
    array = pytest.importorskip("dask.array")
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    y = np.column_stack([rng.integers(0, 3, 60), rng.integers(0, 2, 60)])
    table = pandas.DataFrame(y, columns=["time", "event"])
    wanted = signed_times(y, "a")
    assert np.signbit(wanted[y[:, 1] == 0]).all()
    forms = array.from_array(y, chunks=(20, 2)), frames.from_pandas(table, npartitions=3)
    for form in (table, *forms):
        found = signed_times(form, "a")
        found = np.asarray(found.compute() if hasattr(found, "compute") else found)
        assert found.tobytes() == wanted.tobytes()
    X = frames.from_pandas(
        pandas.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"]), npartitions=3
    )
    model = DPDiscreteHazard((1.0, 2.0), epsilon=5.0, feature_bounds=(-4, 4), random_state=0)
    again = model.fit(X.compute(), y).coef_
    assert np.allclose(model.fit(X, forms[1]).coef_, again, atol=1e-6)


@pytest.mark.parametrize("odd", ["SECRET", None, [1.0, 2.0]])
@pytest.mark.parametrize("column", [0, 1])
def test_a_record_that_is_none_ends_no_fit_of_partitions(odd, column):
    """Sizes and comparisons of whole partitions raised on one such record: the others were
    fitted in memory alone.
    """
    array = pytest.importorskip("dask.array")
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    (X, time, event) = records(60)
    y = np.column_stack([time, event]).astype(object)
    y[7, column] = odd
    model = DPDiscreteHazard(
        HORIZONS, epsilon=5.0, feature_bounds=(-4, 4), random_state=0, invalid_rows="ignore"
    )
    wanted = model.fit(X, y).coef_
    rows = pandas.DataFrame(X, columns=list("abc"))
    names = ["time", "event"]
    parts = [(array.from_array(X, chunks=(20, 3)), array.from_array(y, chunks=(20, 1)))]
    if not isinstance(odd, list):  # which a dataframe of partitions makes text of
        parts += [
            tuple(
                frames.from_pandas(each, npartitions=3)
                for each in (rows, pandas.DataFrame(y, columns=names))
            )
        ]
    for part in parts:
        assert np.allclose(model.fit(*part).coef_, wanted, atol=1e-6)


def test_predictions_and_files(tmp_path):
    X, time, event = records(3000)
    y = np.column_stack([time, event])
    model = DPDiscreteHazard(HORIZONS, epsilon=3.0, feature_bounds=(-4, 4), random_state=0).fit(
        X, y
    )
    survival = model.predict_survival(X)
    assert survival.shape == (3000, 5)
    assert (np.diff(survival, axis=1) <= 0).all()
    assert np.abs(survival.mean(axis=0)[0] - (time > 2).mean()) < 0.1
    median = model.predict_median(X)
    assert set(median) <= {*HORIZONS, np.inf}
    assert (survival[np.isfinite(median), -1] <= 0.5).all()
    assert model.score(X, y) > 0.65
    assert "periods" in str(model.summary())
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert np.array_equal(loaded.predict_survival(X), survival)


def test_concordance_counts_comparable_pairs():
    rng = np.random.default_rng(0)
    times = rng.integers(1, 9, 60).astype(float)
    signed = times * rng.choice([-1, 1], 60)
    risk = rng.integers(0, 5, 60).astype(float)
    agree = pairs = 0.0
    for i in range(60):
        for j in range(60):
            if signed[i] > 0 and (times[j] > times[i] or (times[j] == times[i] and signed[j] < 0)):
                pairs += 1
                agree += 1.0 if risk[i] > risk[j] else 0.5 * (risk[i] == risk[j])
    assert concordance_index(signed, risk) == pytest.approx(agree / pairs)
    assert concordance_index(np.array([-1.0, -2.0]), np.zeros(2)) == 0.5


def test_what_is_not_offered_is_refused():
    X, time, event = records(50)
    y = np.column_stack([time, event])
    for horizons in ((), (0.0, 1.0), (2.0, 1.0), (1.0, np.inf), "abc", None):
        with pytest.raises(ValueError, match="horizons"):
            DPDiscreteHazard(horizons).fit(X, y)
    with pytest.raises(ValueError, match="survivors"):
        DPDiscreteHazard(HORIZONS).fit(X, y, groups=np.arange(50) // 2)
    for settings in ({"mechanism": "objective"}, {"fit_intercept": False}):
        with pytest.raises(ValueError, match="gradient"):
            DPDiscreteHazard(HORIZONS, **settings).fit(X, y)
    with pytest.raises(ValueError, match="Gaussian"):
        DPDiscreteHazard(HORIZONS, delta=0.0).fit(X, y)
    whole = DPDiscreteHazard(HORIZONS, rows_per_person=2, person_weight="rows", epsilon=5.0)
    assert whole.fit(X, y, groups=np.arange(50) // 2).certificate_.bounds.rows_per_person == 2
