"""The default on tables that nobody designed: never much worse than a constant, whatever the
columns hold.
"""

import math
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import rankdata

from dpconvex import DPAUCClassifier, DPLogisticRegression, DPQuantileRegressor
from dpconvex.core.calibration import gaussian_mu

RUNS = 8
TEST_ROWS = 10_000
WORST = 1.25  # of the constant's loss: nonsense costs several times as much

COLUMNS = {
    "flag": lambda rng, n: (rng.random(n) < 0.27).astype(float),
    "rare flag": lambda rng, n: (rng.random(n) < 0.02).astype(float),
    "zeros and amounts": lambda rng, n: (rng.random(n) < 0.2) * rng.gamma(1.0, 0.1, n),
    "normal": lambda rng, n: rng.normal(size=n) / 4,
    "tiny": lambda rng, n: rng.normal(size=n) / 1e4,
    "heavy": lambda rng, n: rng.standard_t(1.5, n) / 50,
    "constant": lambda rng, n: np.full(n, 0.7),
    "far from 0": lambda rng, n: 0.9 + rng.normal(size=n) / 50,
    "copy": None,
}


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=12))
    return {
        "kinds": kinds,
        "rows": draw(st.sampled_from([400, 1500, 6000, 20_000])),
        "epsilon": draw(st.sampled_from([0.1, 0.5, 1.0, 4.0])),
        "task": draw(st.sampled_from([0.1, 0.5, 0.9, "labels", "rare labels", "ranking"])),
        "wider": draw(st.sampled_from([1.0, 10.0, 1000.0])),
        "away": draw(st.sampled_from([0.0, 3.0])),
        "noise": draw(st.sampled_from([0.1, 1.0])),
        "seed": draw(st.integers(0, 2**20)),
    }


def drawn(table, rng, n):
    columns = []
    for kind in table["kinds"]:
        make = COLUMNS[kind]
        columns.append(
            columns[-1] if make is None and columns else (make or COLUMNS["flag"])(rng, n)
        )
    X = np.clip(np.column_stack(columns), -1, 1)
    signal = X @ np.random.default_rng(table["seed"]).normal(size=X.shape[1])
    if isinstance(table["task"], float):
        return X, table["away"] + signal + table["noise"] * rng.normal(size=n)
    shift = -4.0 if table["task"] == "rare labels" else 0.5
    return X, (rng.random(n) < expit(signal / table["noise"] + shift)).astype(int)


def losses(table, model, X, y):
    """Return the mean loss of a model and of the best constant on fresh rows."""
    if isinstance(table["task"], float):
        level = table["task"]
        predicted = model.predict(X)

        def pinball(z):
            return float(np.mean(np.maximum(level * (y - z), (level - 1) * (y - z))))

        return pinball(predicted), pinball(np.quantile(y, level))
    if table["task"] == "ranking":
        ranks = rankdata(model.decision_function(X)) - 1  # ties count half
        positive = y == 1
        pairs = positive.sum() * (~positive).sum()
        if not pairs:
            return 0.5, 0.5
        above = ranks[positive].sum() - positive.sum() * (positive.sum() - 1) / 2
        return 1 - above / pairs, 0.5
    p = np.clip(model.predict_proba(X)[:, 1], 1e-12, 1 - 1e-12)
    share = np.clip(y.mean(), 1e-3, 1 - 1e-3)
    return (
        -float(np.mean(y * np.log(p) + (1 - y) * np.log1p(-p))),
        -float(share * math.log(share) + (1 - share) * math.log1p(-share)),
    )


@pytest.mark.slow
@given(table=tables())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_table_makes_the_default_much_worse_than_a_constant(table):
    """Means of eight fits, five standard errors beyond 1.25 of the constant's loss.

    For normal means that is a false alarm once in 3e6 tables at the very edge. Where ``n mu`` is
    below 100 the constant itself would need care, and the table is passed over.
    """
    if table["rows"] * gaussian_mu(table["epsilon"], 1e-6) < 100:
        return
    shared = {"epsilon": table["epsilon"], "feature_bounds": (-table["wider"], table["wider"])}
    rng = np.random.default_rng(table["seed"] + 1)
    X_test, y_test = drawn(table, rng, TEST_ROWS)
    excess = []
    for _ in range(RUNS):
        X, y = drawn(table, rng, table["rows"])
        if isinstance(table["task"], float):
            model = DPQuantileRegressor(table["task"], target_bounds=(-8, 8), **shared)
        elif table["task"] == "ranking":
            model = DPAUCClassifier(classes=[0, 1], **shared)
        else:
            model = DPLogisticRegression(classes=[0, 1], **shared)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, constant = losses(table, model.fit(X, y), X_test, y_test)
        excess.append(found - WORST * constant)
    note(f"loss above {WORST} of the constant's: {excess}")
    assert np.mean(excess) <= 5 * np.std(excess, ddof=1) / math.sqrt(RUNS)
