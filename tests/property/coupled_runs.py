"""Runs of noisy descent on neighbouring data, coupled so that what each releases can be compared.

The first run draws noise as usual. The second is made to release the same numbers, so both take the
same path, as in the proof of adaptive composition. Then (i) the sums behind the releases may differ
by at most the claimed sensitivity, each, and by ``mu`` together; (ii) what comes out must be equal
to the last bit, or something was used that was not released.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from hypothesis import strategies as st

from dpconvex.core.private_rows import PrivateRows
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Absolute, Hinge, Huber, Logistic, Pinball, Squared
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import GaussianDP, LinearBounds, NoiseSource

LOSSES = [Pinball(0.5), Pinball(0.9), Pinball(0.2), Absolute(), Huber(0.3), Logistic(), Hinge()]
FITTED = [*LOSSES, Squared()]


def unproven(bounds, terms):
    """Return bounds and terms of any noise, which no guarantee has to follow from."""
    return SimpleNamespace(bounds=bounds, noise=terms, verify=lambda: None)


class Coupled(NoiseSource):
    """Records what is released; a follower releases what its leader did."""

    def __init__(self, seed, leader=None):
        super().__init__(seed)
        self.leader = leader
        self.log = []

    def add_gaussian(self, value, std):
        raise AssertionError("noise that no term states")

    def add(self, value, term):
        assert term.distribution == "gaussian"
        exact = np.array(value, dtype=float)
        if self.leader is None:
            out = exact + term.scale * self.generator.standard_normal(exact.shape)
        else:
            out = self.leader.log[len(self.log)][1]
        self.log.append((exact, out, term))
        return out.copy()


def run(X, y, bounds, row_map, certificate, leader=None):
    targets = y.T if y.ndim == 2 else [y]
    rows = [MemoryRows(X, target, row_map, threads=1) for target in targets]
    made = (bounds.loss, bounds.alpha, bounds.n_samples)
    objective = list(rows) if len(rows) > 1 else EmpiricalObjective(rows[0], *made)
    noise = Coupled(0, leader)
    theta = NoisyGradientDescent().release(objective, certificate, noise)
    return theta, noise


class Silence(NoiseSource):
    """A source of noise without noise: what is left is the sum that a release would hide."""

    def __init__(self):
        super().__init__(0)

    def add(self, value, term):
        return np.array(value, dtype=float)


def silent_rows(rows, bounds, **queries):
    """Return a handle that answers these queries exactly, as often as asked."""
    terms = {
        name: replace(query.calibrated_noise(bounds, 1.0), releases=10**6)
        for name, query in queries.items()
    }
    return PrivateRows([rows], unproven(bounds, terms), Silence())


def phases_in_order(certificate, log):
    """Name every release of a log by the term that it was paid with."""
    names = {id(term): name for name, term in certificate.noise.items()}
    return [names[id(term)] for _, _, term in log]


def differences(first, second, bounds, row_map, certificate):
    """Return the largest difference per phase over its sensitivity, and the mu that was spent."""
    theta, leader = run(*first, bounds, row_map, certificate)
    same, follower = run(*second, bounds, row_map, certificate, leader)
    assert np.array_equal(theta, same), "the result depends on something that was not released"
    names = phases_in_order(certificate, leader.log)
    assert len(leader.log) == len(follower.log)
    for name, term in certificate.noise.items():
        assert names.count(name) == term["releases"]
    ratios = dict.fromkeys(certificate.noise, 0.0)
    spent = 0.0
    for name, (mine, _, term), (theirs, _, other) in zip(
        names, leader.log, follower.log, strict=True
    ):
        assert term is other
        size = float(np.linalg.norm(mine - theirs))
        ratios[name] = max(ratios[name], size / term.sensitivity)
        spent += (size / term.scale) ** 2
    return ratios, math.sqrt(spent)


def facts(
    loss,
    n,
    d,
    mu,
    *,
    intercept,
    row_norm,
    neighbors,
    steps=None,
    alpha=0.0,
    ranking=False,
    raw=False,
    levels=(),
    targets=1,
    inference=False,
    void=False,
):
    mechanism = NoisyGradientDescent(steps=steps)
    known = None if raw else (-1.0, 1.0)
    row_map = RowMap.from_bounds(d, known, row_norm=row_norm, fit_intercept=intercept)
    row_map = row_map.weighted(mechanism.clip_limit)
    bounds = LinearBounds(
        n,
        d,
        loss,
        row_map.row_norm,
        row_map.max_norm,
        intercept,
        alpha,
        neighbors,
        ignored_rows=void,
    )
    chosen = mechanism.settings(levels=levels, targets=targets)
    parameters = {"gradient": chosen | ({"ranking": True} if ranking else {})}
    if raw:
        parameters["gradient"]["raw_target"] = True
    if inference:
        parameters["inference"] = True
    return row_map, bounds, mechanism.certify(bounds, GaussianDP(mu), parameters)


@st.composite
def problems(draw):
    loss = draw(st.sampled_from(FITTED))
    n = draw(st.integers(2, 6))
    d = draw(st.integers(1, 3))
    raw = draw(st.booleans())
    sizes = [-3.0, -1.0, -0.5, -0.01, 0.0, 0.02, 0.5, 1.0, 3.0]
    value = st.sampled_from([-1e30, -5e4, 1e-9, 1990.0, 1999.0, 2024.0, 2024.0] if raw else sizes)
    signs = st.sampled_from([-1.0, 1.0])
    target = signs if loss.kind == "margin" else st.sampled_from([-1e6, -1.0, 0.1, 1.0, 1e6])
    X = np.array([[draw(value) for _ in range(d)] for _ in range(n + 1)])
    y = np.array([draw(target) for _ in range(n + 1)])
    public = {
        "intercept": draw(st.booleans()),
        "row_norm": draw(st.sampled_from([None, 0.3, 5.0])),
        "neighbors": draw(st.sampled_from(["replace_one", "add_or_remove_one"])),
        "alpha": draw(st.sampled_from([0.0, 0.1])),
        "ranking": loss.kind == "margin" and draw(st.booleans()),
        "raw": raw,
        "inference": draw(st.booleans()),
    }
    if type(loss) is Pinball and not public["inference"]:
        public["levels"] = draw(st.sampled_from([(), (0.1, 0.5, 0.9), (0.5, 0.5)]))
        public["targets"] = draw(st.sampled_from([1, max(1, len(public["levels"]))]))
        if public["targets"] > 1:
            more = [[draw(target) for _ in y] for _ in range(public["targets"] - 1)]
            y = np.column_stack([y, *more])
    # With a large budget even a handful of rows affords late rounds, and is seen through noise.
    return loss, X, y, draw(st.sampled_from([0.5, 20.0, 1e4])), public


def pair(d, high, low, record, other):
    """Two data sets of three rows that differ in the last."""
    base = np.tile(np.linspace(-0.5, 0.5, d), (2, 1))
    first = np.vstack([base, record]), np.array([0.1, -0.1, high])
    second = np.vstack([base, other]), np.array([0.1, -0.1, low])
    return first, second
