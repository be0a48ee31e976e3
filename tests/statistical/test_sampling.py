"""Batches are drawn as they are accounted.

False-alarm rates: every test below rejects at p < 1e-8 and there are fewer than fifty of them, so
the file fails by chance less than once in a million runs. What they would catch: sampling with
replacement, epochs of a shuffled order, batches that repeat, rates that are off by a few per cent,
and a runner that ignores the scheme of its certificate.
"""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Absolute
from dpconvex.mechanisms import NoisySGD
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import ApproxDP, LinearBounds
from dpconvex.solvers import sgd_loops as loop

LEVEL = 1e-8


def batches(sampling, n, size, steps, seed=None):
    """The batches of a run, as tuples of records."""
    generator = np.random.default_rng(seed)
    sizes, swaps = loop.draw_sgd_batches(generator, sampling, n, size, size / n, steps)
    chosen = loop.sgd_batch_members(np.arange(n), sizes, swaps)
    return [tuple(sorted(batch.tolist())) for batch in np.split(chosen, np.cumsum(sizes)[:-1])]


@pytest.mark.parametrize(("n", "size"), [(6, 1), (6, 2), (6, 4), (6, 6)])
def test_fixed_batches_are_uniform_sets_of_distinct_records(n, size):
    drawn = batches("fixed", n, size, 40_000)
    assert all(len(set(batch)) == size for batch in drawn)
    sets = list(combinations(range(n), size))
    counts = Counter(drawn)
    assert set(counts) <= set(sets)
    if len(sets) > 1:
        assert stats.chisquare([counts[s] for s in sets]).pvalue > LEVEL


@pytest.mark.parametrize(("n", "size"), [(5, 1), (5, 2)])
def test_poisson_batches_include_every_record_independently(n, size):
    drawn = batches("poisson", n, size, 60_000)
    assert all(len(set(batch)) == len(batch) for batch in drawn)
    rate = size / n
    counts = Counter(drawn)
    sets = [s for k in range(n + 1) for s in combinations(range(n), k)]
    expected = np.array([60_000 * rate ** len(s) * (1 - rate) ** (n - len(s)) for s in sets])
    found = np.array([counts[s] for s in sets], dtype=float)
    common = expected > 5  # rare sets in one cell
    found = np.append(found[common], found[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    keep = expected > 0
    assert stats.chisquare(found[keep], expected[keep]).pvalue > LEVEL


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_batches_of_different_steps_are_independent(sampling):
    """Whether a record is drawn says nothing about the next step: a shuffled epoch would show at
    once.
    """
    drawn = batches(sampling, 8, 2, 40_000)
    inside = np.array([0 in batch for batch in drawn])
    table = np.array(
        [
            [np.sum(inside[:-1] & inside[1:]), np.sum(inside[:-1] & ~inside[1:])],
            [np.sum(~inside[:-1] & inside[1:]), np.sum(~inside[:-1] & ~inside[1:])],
        ]
    )
    assert stats.chi2_contingency(table).pvalue > LEVEL


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_sizes(sampling):
    sizes, _ = loop.draw_sgd_batches(np.random.default_rng(), sampling, 1000, 30, 0.03, 20_000)
    if sampling == "fixed":
        assert (sizes == 30).all()
        return
    mean = stats.norm.sf(abs(sizes.mean() - 30) / np.sqrt(30 * 0.97 / 20_000))
    spread = stats.chi2.cdf(19_999 * sizes.var() / (30 * 0.97), 19_999)
    assert mean > LEVEL
    assert LEVEL < spread < 1 - LEVEL


def one_step(sampling, size, n, runs, neighbors="replace_one"):
    """Gradients of single steps of the real mechanism: record i pulls coordinate i only, noise
    is negligible.
    """
    rows = MemoryRows(np.eye(n), np.full(n, 10.0), RowMap(n, 1.0, fit_intercept=False), threads=1)
    bounds = LinearBounds(n, n, Absolute(), 1.0, 1.0, fit_intercept=False, neighbors=neighbors)
    mechanism = NoisySGD(steps=1, batch_size=size, sampling=sampling, step_size=1.0)
    certificate = mechanism.certify(bounds, ApproxDP(1.0, 1e-2), seeded=True)
    assert certificate.parameters["sgd"]["sampling"] == sampling
    assert certificate.parameters["sgd"]["batch_size"] == size
    quiet = {"gradients": replace(certificate.noise["gradients"], scale=1e-9)}
    certificate = replace(certificate, noise=quiet)
    objective = EmpiricalObjective(rows, Absolute(), 0.0)
    rng = np.random.default_rng()
    outputs = np.array([mechanism.release(objective, certificate, rng) for _ in range(runs)])
    return np.round(outputs * size).astype(int)


@pytest.mark.parametrize(
    ("sampling", "size", "neighbors"),
    [
        ("fixed", 1, "replace_one"),
        ("fixed", 3, "replace_one"),
        ("poisson", 1, "replace_one"),
        ("poisson", 3, "add_or_remove_one"),
    ],
)
def test_the_runner_draws_what_the_certificate_names(sampling, size, neighbors):
    """Inclusions counted in the released point itself: no record twice, sizes as accounted,
    every record alike.
    """
    n = 12
    runs = 2000
    included = one_step(sampling, size, n, runs, neighbors)
    assert set(np.unique(included)) <= {0, 1}  # with replacement some would be 2
    sizes = included.sum(axis=1)
    if sampling == "fixed":
        assert (sizes == size).all()
    else:
        law = stats.binom(n, size / n)
        edges = np.arange(0, 8)
        found = np.array([*(np.sum(sizes == k) for k in edges[:-1]), np.sum(sizes >= edges[-1])])
        chances = np.array([*(law.pmf(k) for k in edges[:-1]), law.sf(edges[-1] - 1)])
        keep = chances * runs > 5
        found = np.append(found[keep], found[~keep].sum())
        chances = np.append(chances[keep], chances[~keep].sum())
        if chances[-1] * runs < 1:
            found = found[:-1]
            chances = chances[:-1] / chances[:-1].sum()
        assert stats.chisquare(found, chances / chances.sum() * found.sum()).pvalue > LEVEL
    for record in range(n):
        hits = int(included[:, record].sum())
        assert stats.binomtest(hits, runs, size / n).pvalue > LEVEL


def test_a_scheme_that_was_not_accounted_is_caught():
    """With replacement, records repeat: what the tests above look for does show."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 12, size=(3000, 3))
    assert any(len(set(batch)) < 3 for batch in drawn.tolist())
    with pytest.raises(ValueError, match="must be 'fixed' or 'poisson'"):
        loop.draw_sgd_batches(rng, "shuffled", 12, 3, 0.25, 5)


def test_noise_of_every_step_has_the_certified_scale():
    """On a flat loss the last iterate is the sum of the noise of all steps.

    Kolmogorov-Smirnov and the variance, each at 1e-8; noise 8 % too small would be caught.
    """
    n = 4
    bounds = LinearBounds(n, 3, Absolute(), 1.0, 1.0, fit_intercept=False)
    rows = MemoryRows(np.zeros((n, 3)), np.ones(n), RowMap(3, 1.0, fit_intercept=False), threads=1)
    objective = EmpiricalObjective(rows, Absolute(), 0.0)
    rng = np.random.default_rng()
    for size, steps in ((1, 4), (2, 3)):
        mechanism = NoisySGD(steps=steps, batch_size=size, step_size=1.0, average=0.0)
        certificate = mechanism.certify(bounds, ApproxDP(1.0, 1e-2), seeded=True)
        std = certificate.noise["gradients"]["std"] * np.sqrt(steps) / size
        releases = [mechanism.release(objective, certificate, rng) for _ in range(5000)]
        draws = np.array(releases).ravel() / std
        assert stats.kstest(draws, "norm").pvalue > LEVEL
        law = stats.chi2(draws.size)
        assert LEVEL < law.cdf(draws @ draws) < 1 - LEVEL
        assert law.cdf(0.92**2 * (draws @ draws)) < LEVEL
