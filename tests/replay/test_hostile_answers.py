"""Hostile answers of the trusted core end in a model, or in one error that is the same for all."""

from itertools import islice

import dask
import numpy as np
import pytest
from fits import FITS
from hostile import KINDS, Hostile, at_the_ends, check_outcome, parts_of_few_rows, replayed
from replaying import cells, seeds_of

from dpconvex import (
    DPLinearRegression,
    DPLogisticRegression,
    DPQuantileRegressor,
    load_model,
    save_model,
)
from dpconvex.core.queries import Query
from dpconvex.core.row_coordinates import coordinate_cancellation
from dpconvex.fit import constants, linear_algebra, private_fit
from dpconvex.fit.plausible_answers import (
    PlausibleAnswers,
    ReleasedNumbersError,
    plausible_answer,
)
from dpconvex.losses import Logistic
from dpconvex.privacy import Ledger, LinearBounds

#: Of every fit, the ways to hold its data; partitions take a task for each.
WAYS = {name: [] for name in FITS}
for _name, _relation, _variant in cells():
    if _variant != "dask":
        WAYS[_name].append((_relation, _variant))


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def hostile_fits(name, number, first=0):
    """Run fits of a name, each with another way to hold its data and another kind of answers."""
    ways = WAYS[name]
    seeds = seeds_of(name, "hostile", "answers")
    for place, seed in enumerate(islice(seeds, first, first + number), first):
        kind = KINDS[(place + seed) % len(KINDS)]
        fit = replayed(name, *ways[(place + seed) % len(ways)], seed)
        check_outcome(fit, Hostile(seed, kind))


@pytest.mark.parametrize("name", FITS)
def test_hostile_answers_end_in_a_model(name):
    """They ended in errors of linear algebra, of arithmetic and of the core after the charge, or
    in coefficients that are no numbers.
    """
    hostile_fits(name, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_many_hostile_answers_end_in_a_model(name):
    hostile_fits(name, 49, first=1)


MODES = ("gradient", "late", "intervals", "squares", "rate", "levels", "three")
DESCENTS = [name for name in FITS if {*name.split("-")[1:2]} & {*MODES}]


def descents_of_kind(kind, every):
    """Run every so many of the descents with one kind of answers, another one with each kind."""
    place = KINDS.index(kind)
    for seed, name in enumerate(DESCENTS):
        if (seed + place) % every == 0:
            relation, variant = WAYS[name][seed % len(WAYS[name])]
            check_outcome(replayed(name, relation, variant, seed), Hostile(seed, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_answer_ends_in_a_model(kind):
    """Of all kinds of losses and modes of the private fit."""
    descents_of_kind(kind, every=6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_answer_ends_in_a_model_of_every_kind(kind):
    descents_of_kind(kind, every=1)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_settings_at_the_ends_of_what_is_allowed(first, monkeypatch):
    models = 0
    for seed in range(first, first + 20):
        if seed % 3:
            models += check_outcome(at_the_ends(seed), Hostile(seed))
            continue
        with parts_of_few_rows(monkeypatch):
            models += check_outcome(at_the_ends(seed), Hostile(seed))
    assert models >= 14


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 5000, 100))
def test_many_settings_at_the_ends_of_what_is_allowed(first, monkeypatch):
    for seed in range(first, first + 100):
        check_outcome(at_the_ends(seed), Hostile(seed))
        with parts_of_few_rows(monkeypatch):
            check_outcome(at_the_ends(seed), Hostile(seed + 1))


# The one error.


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a"), np.linalg.LinAlgError("b"), IndexError("c"), ValueError("d")]
)
def test_what_nobody_foresaw_has_one_message(error, monkeypatch, tmp_path):
    """Of arithmetic on released numbers, after the charge."""

    def fails(*arguments):
        raise error

    monkeypatch.setattr(private_fit.location, "locate_quantile", fails)
    ledger = Ledger(tmp_path / "ledger.db", epsilon=10.0, delta=1e-3)
    model = DPQuantileRegressor(feature_bounds=(-1, 1), target_bounds=(-1, 1), ledger=ledger)
    with pytest.raises(ReleasedNumbersError) as caught:
        model.fit(np.zeros((50, 2)), np.zeros(50))
    assert str(caught.value) == (
        f"{ReleasedNumbersError()} The budget is spent: it was charged before noise was drawn, and "
        "another release costs as much again."
    )
    assert len(list(ledger.entries())) == 1
    assert not hasattr(model, "coef_")


# Guards, one by one.


BOUNDS = LinearBounds(100, 2, Logistic(), row_norm=1.0, max_norm=1.0)


@pytest.mark.parametrize("query", [Query("count"), Query("vector", 2.0, 3), Query.moments(3)])
def test_only_what_noise_does_not_give_is_changed(query):
    """To the last bit: all other fits stay as they are."""
    term = query.calibrated_noise(BOUNDS, 1e-3, 4)
    rng = np.random.default_rng(0)
    for size in (1e-12, 1.0, 23.0):
        answer = 100 * query.bound**2 + size * term.scale * rng.standard_normal(query.dimension)
        assert plausible_answer(answer, term, BOUNDS).tobytes() == answer.tobytes()
    most = 100 * term.sensitivity + 100 * term.scale
    for answer in (np.full(query.dimension, 1e300), np.full(query.dimension, np.inf)):
        assert (plausible_answer(answer, term, BOUNDS) == most).all()
        assert (plausible_answer(-answer, term, BOUNDS, unit=2.0) == -2 * most).all()


@pytest.mark.parametrize(
    "edges", [[1.0, 1.0, 2.0], [0.0, np.inf, np.inf], [np.nan, 1.0, 2.0], [2.0, 1.0, 0.0]]
)
def test_edges_that_have_no_bins_are_replaced(edges):
    asked = []

    class Rows:
        def __init__(self):
            self.bounds = BOUNDS
            self.terms = {"bins": Query("histogram", 1, 4).calibrated_noise(BOUNDS, 1.0, 1)}

        def histogram(self, name, statistic, edges, by_label):
            asked.append(edges)
            return np.zeros(4)

    answers = PlausibleAnswers(Rows())
    answers.histogram("bins", None, edges)
    assert np.isfinite(asked[0]).all()
    assert (np.diff(asked[0]) > 0).all()
    answers.histogram("bins", None, [-1.0, 0.5, 2.0])
    assert asked[1].tolist() == [-1.0, 0.5, 2.0]


def test_decompositions_come_to_an_end():
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(3, 3))
    symmetric = whole + whole.T
    right = rng.normal(size=3)
    assert (linear_algebra.solve(whole, right) == np.linalg.solve(whole, right)).all()
    assert (linear_algebra.inverse(whole) == np.linalg.inv(whole)).all()
    for found, expected in zip(
        linear_algebra.symmetric_eigenvalues(symmetric), np.linalg.eigh(symmetric), strict=True
    ):
        assert (found == expected).all()
    broken = [np.zeros((3, 3)), np.ones((3, 3)), np.full((3, 3), np.nan), np.full((3, 3), np.inf)]
    for matrix in broken:
        linear_algebra.solve(matrix, right)
        linear_algebra.inverse(matrix)
        assert np.isfinite(linear_algebra.symmetric_eigenvalues(matrix)[0]).all()
    assert np.allclose(linear_algebra.solve(np.diag([1.0, 0.0]), np.ones(2)), [1, 0])


def test_a_singular_matrix_has_no_bound_on_what_its_sums_lose():
    assert coordinate_cancellation(np.diag([1.0, 0.0])) == np.inf


# Found on the way.


@pytest.mark.parametrize("kind", [DPLinearRegression, DPLogisticRegression, DPQuantileRegressor])
def test_intervals_of_too_many_columns_are_refused_before_the_charge(kind):
    """A matrix of all columns is not released then: the fit ended in an error after the charge."""
    columns = constants.MAX_WHITENED_COLUMNS
    facts = {"inference": True, "mu": 10.0, "feature_bounds": (-1, 1)}
    kind(**facts).certify(10**6, columns)
    with pytest.raises(ValueError, match="more than 2,000 columns"):
        kind(**facts).certify(10**6, columns + 1)


def test_a_bandwidth_in_large_units_can_be_saved(tmp_path):
    model = DPQuantileRegressor(bandwidth=1e20, feature_bounds=(-1, 1), target_bounds=(-1e22, 1e22))
    model.fit(np.zeros((50, 2)), np.zeros(50))
    save_model(model, tmp_path / "model.json")
    assert load_model(tmp_path / "model.json").bandwidth == 1e20
