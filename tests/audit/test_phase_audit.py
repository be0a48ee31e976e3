"""Audits of single phases of the private fit: what one release shows of a record is what it was
paid for.

A question is asked as a fit asks it, on two tables that differ in one record; the number and the
noise that the gate is asked for are then released many times. False-alarm rate: each audit refutes
a true claim with probability at most 1e-6, and seeds are fixed. Power: half the noise is refuted,
with a wide margin, by 6,000 runs.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from releases import phase_claim

from dpconvex.audit import audit
from dpconvex.core.private_rows import PrivateRows
from dpconvex.core.queries import QueryFactor, QueryScore, QuerySlope, QuerySlopes, QueryStatistic
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.fit.geometry import RowGeometry, column_octaves
from dpconvex.fit.location_and_scale import locate_residual_tails, locate_target_bracket
from dpconvex.fit.margin_calibration import margin_edges
from dpconvex.losses import (
    CrammerSinger,
    DiscreteHazard,
    Huber,
    Logistic,
    Pinball,
    ProportionalOdds,
    Softmax,
    Squared,
    Tweedie,
)
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.privacy import GaussianDP, LinearBounds, NoiseSource

ROWS = 40
COLUMNS = 2
ROW_MAP = RowMap.from_bounds(COLUMNS, None).weighted(NoisyGradientDescent().clip_limit)
NOTHING = np.zeros(COLUMNS + 1)
FRAME = RowGeometry(np.eye(COLUMNS + 1), 1, median_row_norm=1.0, moments=np.ones(COLUMNS + 1))
SHORT = replace(FRAME, matrix=np.diag([1e-6, 1 / 2000, 1 / 2000]))  # where rows have length 1


class Asked(NoiseSource):
    """Keeps what noise was asked for, and adds none."""

    def add_gaussian(self, value, std):
        self.last = np.array(value, dtype=np.float64), std
        return self.last[0]


def columns(rows, config):
    above = config["max_octaves"]
    rows.column_octaves("columns", above, column_octaves(above))


def lengths(rows, config):
    rows.histogram("lengths", QueryStatistic("length", coordinates=FRAME), np.arange(25.0))


def moments(rows, config):
    rows.second_moments("moments", FRAME, 1e3)


def octaves(rows, config):
    locate_target_bracket(rows, "octaves", ROWS, bounded=False)


def targets(rows, config):
    if rows.terms["targets"].query == "limited sum":
        rows.limited_sum("targets", QueryScore("residual", NOTHING, 100.0))
        return
    rows.count("targets", QueryStatistic("target"), 0.0)


def residuals(rows, config):
    if rows.terms["residuals"].query == "count":
        rows.count("residuals", QueryStatistic("residual", NOTHING), 0.0)
    else:
        loss = rows.bounds.loss
        locate_residual_tails(
            rows, "residuals", NOTHING, 1.0, ROWS, loss if loss.kind == "rate" else None
        )


def labels(rows, config):
    if rows.terms["labels"].query == "count":
        rows.count("labels", QueryStatistic("label"), -0.5)
    else:
        rows.histogram(
            "labels", QueryStatistic("target"), np.arange(rows.bounds.loss.outcomes - 1) + 0.5
        )


def margins(rows, config):
    rows.histogram("margins", QueryStatistic("margin", NOTHING), margin_edges(0.0, 1.0)[1:-1], True)


def gradients(rows, config, name="gradients"):
    loss = rows.bounds.loss
    if loss.kind == "several":
        rows.slopes_sum(name, np.zeros((loss.margins, NOTHING.size)), QuerySlopes(loss), FRAME)
        return
    if type(loss) is Squared:
        loss = Huber(config["width"])
    limit = config["width"] if loss.kind == "rate" else np.inf
    weighting = "clip" if loss.kind == "margin" else "weight"
    rows.slope_sum(name, NOTHING, QuerySlope(loss, weighting=weighting, limit=limit), FRAME)


def late(rows, config):
    gradients(rows, config, "late gradients")


def curvature(rows, config):
    factor = QueryFactor("inside", width=1e9, weighting="square")
    if rows.bounds.loss.kind == "rate":
        factor = QueryFactor("curvature", rows.bounds.loss, weighting="square", most=0.5)
    rows.second_moments("curvature", SHORT, 1.0, factor, NOTHING)


def scores(rows, config):
    loss = rows.bounds.loss
    loss = Huber(config["width"]) if type(loss) is Squared else loss
    factor = QueryFactor("slope", loss, 0.5 if loss.kind == "rate" else 0.0, weighting="square")
    rows.second_moments("scores", SHORT, 1.0, factor, NOTHING)


RATE_PHASES = targets, residuals, gradients, late, curvature, scores
PHASES = [
    (Squared(), columns),
    (Squared(), lengths),
    (Squared(), moments),
    (Squared(), octaves),
    (Squared(), targets),
    (Squared(), residuals),
    (Squared(), gradients),
    (Squared(), late),
    (Pinball(0.5), residuals),
    (Pinball(0.5), gradients),
    (Pinball(0.5), curvature),
    (Pinball(0.5), scores),
    (Logistic(), labels),
    (Logistic(), margins),
    (Logistic(), gradients),
    (Softmax(3), labels),
    (Softmax(3), gradients),
    (CrammerSinger(4), gradients),
    *((Tweedie(1.5, -5.0, 5.0, 1000.0), phase) for phase in RATE_PHASES),
    *(
        (Tweedie(power, -5.0, 5.0, 1000.0), phase)
        for power in (1.0, 2.0)
        for phase in (gradients, curvature)
    ),
    (DiscreteHazard(3), labels),
    (DiscreteHazard(3), gradients),
    (ProportionalOdds(2), labels),
    (ProportionalOdds(2), gradients),
]


def named(value):
    return getattr(value, "__name__", type(value).__name__)


def certified(loss, neighbors, name):
    """Return a certificate of which one release of a name is about 1.5-Gaussian DP: what an
    audit tells best.
    """
    bounds = LinearBounds(
        ROWS, COLUMNS, loss, ROW_MAP.row_norm, ROW_MAP.max_norm, neighbors=neighbors
    )
    parameters = {
        "gradient": NoisyGradientDescent().settings(),
        "inference": loss.kind != "several",
    }
    if loss.kind == "residual":
        parameters["gradient"]["raw_target"] = True
    mu = 10.0
    for _ in range(8):
        certificate = NoisyGradientDescent().certify(bounds, GaussianDP(mu), parameters)
        mu *= 1.5 / phase_claim(certificate, name, 1).mu
    return certificate


@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize(("loss", "phase"), PHASES, ids=named)
def test_half_the_noise_of_a_phase_is_refuted(loss, phase, neighbors):
    name = {"late": "late gradients"}.get(phase.__name__, phase.__name__)
    certificate = certified(loss, neighbors, name)
    term = certificate.noise[name]
    extreme = 1.0 if loss.kind == "margin" else 1e6
    X = np.full((ROWS, COLUMNS), 2000.0)
    y = np.full(ROWS, extreme)
    X[0] = X[-1] = (2000.0, 0.0)
    changed = {moments: [[0.0, -1e9]], lengths: [[0.0, 0.0]], columns: [[-1e9, 1e9]]}.get(
        phase, X[:1]
    )
    if phase in (curvature, scores):
        changed = [[0.0, -2000.0]]
    target = -extreme
    if loss.kind in ("several", "rate") and phase in (gradients, late):
        # slopes of two outcomes are not opposite, but rows may be
        changed = -X[:1]
        target = extreme
    if loss.kind == "rate" and phase in (curvature, scores):
        target = extreme
    other = np.vstack([X[1:], changed]), np.append(y[1:], target)
    if neighbors == "add_or_remove_one":
        y[0] = -extreme if phase in (targets, residuals) and term.query == "count" else extreme
        other = X[1:], y[1:]

    def asked(table, factor=1.0):
        noise = {**certificate.noise, name: replace(term, scale=factor * term.scale)}
        unproven = SimpleNamespace(bounds=certificate.bounds, noise=noise, verify=lambda: None)
        source = Asked()
        rows = PrivateRows([MemoryRows(*table, ROW_MAP, threads=1)], unproven, source)
        phase(rows, certificate.parameters["fit"])
        return source.last

    def sampler(table, factor):
        exact, std = asked(table, factor)

        def sample(count, rng):
            released = NoiseSource(rng).add_gaussian(np.tile(exact, count), std)
            return released.reshape(count, -1)

        return sample

    # What differs: a record's bins on both tables, or what it adds to a sum.
    way = asked(other)[0] - asked((X, y))[0]
    assert 0.99 * term.sensitivity < np.linalg.norm(way) <= term.sensitivity * (1 + 1e-9)
    for factor, passes in ((1.0, True), (0.5, False)):
        result = audit(
            sampler((X, y), factor),
            sampler(other, factor),
            phase_claim(certificate, name, 1),
            runs=6_000,
            rng=0,
            statistic=lambda outputs: outputs @ way,
        )
        assert result.passed is passes
