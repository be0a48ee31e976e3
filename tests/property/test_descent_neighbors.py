"""Coupled runs of the descent where small tables do not lead: fused kernels, parts of the rows, whole estimators.

As in ``coupled_runs`` the second run is made to release what the first did. Here rows are summed by the
compiled kernels of large tables, layouts and kernels vary, invalid rows come and go, and estimators are run from table
to coefficients: attributes, warnings and the number of releases must not tell two neighbours apart.
"""

import json
import math
import warnings
from dataclasses import replace

import coupled_runs as coupled
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex import DPLinearSVC, DPLogisticRegression, DPNewsvendor, DPQuantileRegressor
from dpconvex.core import length_cover
from dpconvex.engine import MemoryRows, RowMap, memory
from dpconvex.engine.rows import FARTHEST, RAW_FARTHEST
from dpconvex.estimators import release as release_path
from dpconvex.losses import Absolute, Hinge, Huber, Logistic, Pinball
from dpconvex.mechanisms import NoisyGradientDescent, gradient_plan
from dpconvex.privacy import GaussianDP, LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate, CertificateError
from dpconvex.smoothing import KERNELS

RELATIONS = ["replace_one", "add_or_remove_one"]
LOSSES = [Pinball(0.5), Pinball(0.9), Pinball(1e-9), Absolute(), Huber(0.3), Logistic(), Hinge()]
ROUNDING = 1 + 1e-9


@pytest.fixture
def fused(monkeypatch):
    """Blocks of 64 rows that are never kept: what tables of millions of rows go through."""
    monkeypatch.setattr(memory, "CACHE_BYTES", 0)
    monkeypatch.setattr("dpconvex.engine.summation_order.BLOCK_BYTES", 1)


def table(kind, n, d, rng):
    """Rows that are plain, all zero, all the same, nearly singular, rarely set, far too large, or far from 0."""
    return {
        "plain": lambda: rng.normal(size=(n, d)),
        "zeros": lambda: np.zeros((n, d)),
        "same": lambda: np.tile(rng.normal(size=d), (n, 1)),
        "singular": lambda: rng.normal(size=(n, 1)) + 1e-7 * rng.normal(size=(n, d)),
        "flags": lambda: (rng.random((n, d)) < 0.02).astype(float),
        "huge": lambda: rng.choice([-1e30, 1e30, 0.0, 1e-30], size=(n, d)),
        "offset": lambda: 1 + 1e-6 * rng.normal(size=(n, d)),
    }[kind]()


def neighbours(n, place, relation):
    """Positions of the rows of two data sets: record n replaces the one at a place, or is put in there."""
    first = np.arange(n)
    if relation == "add_or_remove_one":
        return first, np.insert(first, place, n)
    return first, np.where(first == place, n, first)


@st.composite
def settings_of(draw):
    return {
        "loss": draw(st.sampled_from(LOSSES)),
        "kind": draw(st.sampled_from(["plain", "zeros", "same", "singular", "flags", "huge", "offset"])),
        "relation": draw(st.sampled_from(RELATIONS)),
        "how": draw(st.sampled_from(["private", "private", "given"])),
        "features": draw(st.sampled_from([None, (-1.0, 1.0), (0.5, 2.0), (-5.0, 1.0)])),
        "row_norm": draw(st.sampled_from([None, 0.3, 5.0])),
        "shorten": draw(st.booleans()),
        "intercept": draw(st.booleans()),
        "mu": draw(st.sampled_from([0.3, 30.0, 1e4])),
        "bandwidth": draw(st.sampled_from([None, None, 0.2])),
        "kernel": draw(st.sampled_from(sorted(KERNELS))),
        "void": draw(st.booleans()),
        "layout": draw(st.sampled_from([("C", "f8"), ("F", "f8"), ("C", "f4"), ("F", "f4")])),
        "several": draw(st.sampled_from([None, None, 1, 2])),
        "seed": draw(st.integers(0, 10_000)),
    }  # fmt: skip


@given(chosen=settings_of())
@settings(max_examples=40, derandomize=True, deadline=None)
def test_fused_kernels_spend_at_most_the_budget(chosen):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "CACHE_BYTES", 0)
        patch.setattr("dpconvex.engine.summation_order.BLOCK_BYTES", 1)
        _spends_at_most_the_budget(**chosen)


def _spends_at_most_the_budget(
    loss, kind, relation, how, features, row_norm, shorten, intercept, mu, bandwidth, kernel, void,
    layout, several, seed,
):  # fmt: skip
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(65, 200)), int(rng.integers(1, 5))
    row_map = RowMap.from_bounds(d, features, row_norm, fit_intercept=intercept)
    if not shorten:
        row_map = row_map.weighted(FARTHEST if how == "given" else RAW_FARTHEST)
    longest = row_map.max_norm if math.isfinite(row_map.max_norm) else row_map.row_norm
    nominal = n if relation == "replace_one" else int(rng.choice([1, n, 10 * n]))
    bounds = LinearBounds(
        nominal, d, loss, row_map.row_norm, longest, intercept, 0.0, relation, void
    )
    mechanism = NoisyGradientDescent(geometry=how)
    possible = several is not None and type(loss) is Pinball and how == "private"
    levels = ((0.2, 0.9), several) if possible else ()
    parameters = {"gradient": mechanism.settings(bandwidth, KERNELS[kernel], *levels)}
    certificate = mechanism.certify(bounds, GaussianDP(mu), parameters)
    X = table(kind, n + 1, d, rng)
    y = rng.choice([-1.0, 1.0], n + 1)
    if loss.kind == "residual":
        y *= rng.choice([1.0, 1e-3, 1e200], n + 1)
    place = int(rng.integers(n))
    X[n] = rng.choice([-1e30, -1.0, 0.0, 1e-9, 1.0, 1e30], size=d)
    if rng.random() < 0.3:
        X[n], y[n] = X[place], -y[place]
    if void:
        y[rng.integers(0, n + 1, 3)] = np.nan
        y[[place, n][int(rng.integers(2))]] = np.nan
        X[np.isnan(y), 0] = rng.choice([np.nan, np.inf, 3.0])
    if levels and several == 2:
        y = np.column_stack([y, -y])
    order, dtype = layout
    with np.errstate(all="ignore"):
        data = [
            (np.array(X[rows], dtype=dtype, order=order), y[rows])
            for rows in neighbours(n, place, relation)
        ]
        ratios, spent = coupled.differences(*data, bounds, row_map, certificate)
    assert max(ratios.values()) <= ROUNDING
    assert spent <= mu * ROUNDING


@pytest.mark.parametrize("n", [41_000, 50_000, 200_000, 1_000_000])
def test_no_row_is_looked_at_twice(n):
    """A record that is summed twice moves counts, histograms and moments twice as far as is paid for."""
    course = gradient_plan.plan_gradient(
        LinearBounds(n, 3, Pinball(0.5), 1.0, 1.0), 1.0, NoisyGradientDescent().settings()
    ).course
    rows = MemoryRows(np.zeros((n, 1)), np.zeros(n), RowMap(1, 1.0))
    for size in {course.looked_at, course.stepped_on} - {None}:
        for places in (rows.part(size).where.places(), rows.spread(n, size)):
            assert np.unique(places).size == places.size == size
            assert 0 <= places.min() <= places.max() < n


def test_parts_of_every_size_have_different_rows():
    for n in (*range(1, 60), 4096, 4159, 5000):
        rows = MemoryRows(np.zeros((n, 1)), np.zeros(n), RowMap(1, 1.0))
        for size in range(1, n + 1) if n < 60 else range(1, n + 1, 37):
            for places in (
                rows.part(size).where.places() if size < n else None,
                rows.spread(n, size),
            ):
                assert places is None or np.unique(places).size == size
                assert places is None or 0 <= places.min() <= places.max() < n


def small_parts(patch, rows):
    """Let plans look at about so many rows, and take early steps on them."""
    for name in ("_LOOK_LEAST", "_LOOK_MOST", "_STEPPED_LEAST"):
        patch.setattr(gradient_plan, name, rows)
    patch.setattr(gradient_plan, "_STEPPED", 0.0)


@pytest.mark.parametrize("loss", [Pinball(0.9), Logistic(), Hinge()])
def test_everything_on_a_part_keeps_to_the_sensitivities(monkeypatch, loss):
    """Geometry, searches and early steps on half of the rows, lengths bounded: any row may be the one that differs."""
    small_parts(monkeypatch, 12)
    monkeypatch.setattr("dpconvex.mechanisms.gradient_geometry._LONGER", 5.0)
    bounded = []
    found = length_cover.LengthCover.lengths

    def lengths(cover, block, lead):
        bounded.append(len(block))
        return found(cover, block, lead)

    monkeypatch.setattr(length_cover.LengthCover, "lengths", lengths)
    n, mu, rng = 24, 3e3, np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, size=(n, 3)), rng.choice([-1.0, 1.0], size=n)
    row_map, bounds, certificate = coupled.facts(
        loss, n, 3, mu, intercept=True, row_norm=None, neighbors="replace_one", how="private"
    )
    course = certificate.parameters["course"]
    assert course["looked_at"] == course["stepped_on"] == 12
    assert course["early"] > 0
    spent = []
    for changed in range(n):
        first, second, labels = X.copy(), X.copy(), y.copy()
        first[changed], second[changed] = 1.0, -1e-3
        labels[changed] *= -1
        ratios, total = coupled.differences(
            (first, y), (second, labels), bounds, row_map, certificate
        )
        assert max(ratios.values()) <= ROUNDING
        assert total <= mu * ROUNDING
        spent.append(total)
    assert bounded  # the bound stood for lengths
    # Rows that are not looked at spend late steps alone; those that are spend most of the budget in the worst case.
    assert min(spent) < max(spent)


@pytest.mark.parametrize("n", [19, 29])
def test_a_look_at_an_uneven_part_keeps_to_the_sensitivities(monkeypatch, n):
    """Stretches of a fractional number of rows, as nearly all are; every row is the one that differs."""
    small_parts(monkeypatch, 20)
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, size=(n, 2)), rng.uniform(-1, 1, size=n)
    row_map, bounds, certificate = coupled.facts(
        Pinball(0.5), n, 2, 1e4, intercept=True, row_norm=None, neighbors="replace_one",
        how="private",
    )  # fmt: skip
    assert certificate.parameters["course"]["looked_at"] < n
    for changed in range(n):
        long, short = X.copy(), X.copy()
        long[changed], short[changed] = 1.0, 1e-3
        ratios, _ = coupled.differences((long, y), (short, y), bounds, row_map, certificate)
        assert max(ratios.values()) <= ROUNDING


def test_a_part_of_a_private_number_of_rows_does_not_verify():
    """One row more shifts the rows that are looked at: half of ten others are replaced."""
    bounds = LinearBounds(1000, 2, Pinball(0.5), 1.0, 1.0, neighbors="add_or_remove_one")
    certificate = NoisyGradientDescent().certify(bounds, GaussianDP(1.0))
    course = {**certificate.parameters["course"], "looked_at": 10}
    forged = replace(certificate, parameters={**certificate.parameters, "course": course})
    forged = replace(forged, digest=forged._hash())
    # A row that comes first moves all others by one place.
    shifted = {int(place) - 1 for place in MemoryRows.spread(1001, 10)}
    assert len({*MemoryRows.spread(1000, 10).tolist()} & shifted) < 6
    with pytest.raises(CertificateError):
        Certificate.from_json(json.dumps(forged._to_dict())).verify()


def test_an_invalid_row_is_the_same_record_whatever_it_holds(fused):
    row_map = RowMap.from_bounds(2, (-1.0, 1.0))
    X, y = np.zeros((200, 2)), np.zeros(200)
    X[:2], y[:2] = [[np.nan, 1.0], [np.nan, -1.0]], np.nan
    margins = MemoryRows(X, y, row_map, threads=1).predicted(np.array([0.1, 1.0, 2.0]))
    assert np.ptp(margins.weights[:2]) == 0


MODELS = {
    "quantile": lambda **public: DPQuantileRegressor(0.8, target_bounds=(-2, 2), **public),
    "newsvendor": lambda **public: DPNewsvendor(3.0, 1.0, bandwidth=0.5, row_norm=1.0, **public),
    "two classes": lambda **public: DPLogisticRegression(classes=[0, 1], **public),
    "three classes": lambda **public: DPLogisticRegression(classes=[0, 1, 2], **public),
    "hinge": lambda **public: DPLinearSVC(classes=[0, 1, 2], alpha=0.1, **public),
}


def fitted(make, X, y, public, patch, leader=None):
    """Return all that a fit shows (attributes and warnings), and its noise."""
    noise = coupled.Coupled(0, leader)
    patch.setattr(release_path, "noise_source", lambda model, certificate: noise)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = make(**public).fit(X, y)
    shown = {name: value for name, value in vars(model).items() if name.endswith("_")}
    shown["certificate_"] = shown["certificate_"].to_json()
    return (shown, [str(warning.message) for warning in said]), noise


def plain(value):
    """Return nested lists that can be compared bit by bit."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_estimators_show_nothing_but_what_was_released(name, ignored, relation, monkeypatch):
    """From table to coefficients: a record more or another one, valid or not, also the only one there is."""
    mu, d, make = 1.0, 3, MODELS[name]
    public = {"mu": mu, "neighbors": relation, "feature_bounds": (-2.0, 2.0)}
    public |= {"invalid_rows": "ignore"} if ignored else {}
    for seed, n in ((0, 1), (1, 7), (2, 40)):
        rng = np.random.default_rng(seed)
        if relation == "add_or_remove_one":
            public["nominal_samples"] = 5
        X = rng.choice([-1e9, -1.0, 0.0, 0.3, 1e9], size=(n + 1, d))
        y = rng.integers(0, 3 if name in ("three classes", "hinge") else 2, n + 1).astype(float)
        y[n] = 1 - y[0] if y[0] < 2 else 0
        if ignored:
            X[n, 0] = np.nan
        first, second = neighbours(n, 0, relation)
        if relation == "add_or_remove_one" and n == 1:
            first, second = first[:0], np.array([n])  # none, and one
        mine, leader = fitted(make, X[first], y[first], public, monkeypatch)
        theirs, follower = fitted(make, X[second], y[second], public, monkeypatch, leader)
        assert plain(mine) == plain(theirs)
        certificate = Certificate.from_json(mine[0]["certificate_"])
        numbers = sum(term.releases for term in certificate.noise.values())
        assert len(leader.log) == len(follower.log) == certificate.problems * numbers
        spent = math.fsum(
            float(np.sum((a - b) ** 2)) / std**2
            for (a, _, std), (b, _, _) in zip(leader.log, follower.log, strict=True)
        )
        assert math.sqrt(spent) <= mu * ROUNDING
