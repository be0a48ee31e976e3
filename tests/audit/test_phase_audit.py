"""Audits of single phases of least squares: histograms of residuals and columns, the mean of residuals, and the gain.

A phase is run as a fit runs it, on two tables that differ in one record; the number and the noise that it asks for are
then released many times. False-alarm rate: each audit refutes a true claim with probability at most 1e-6, and seeds are
fixed. Power: half the noise is refuted, with a wide margin, by 6,000 runs.
"""

from dataclasses import replace

import numpy as np
import pytest

from dpconvex.audit import audit
from dpconvex.core.release import PrivateRows
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Squared
from dpconvex.mechanisms import LeastSquares
from dpconvex.mechanisms.column_ranges import PLACES
from dpconvex.mechanisms.gradient_geometry import Frame
from dpconvex.mechanisms.least_squares import _Run
from dpconvex.mechanisms.residual_tails import Tails, residual_tails
from dpconvex.privacy import GaussianDP, LinearBounds, NoiseSource

ROWS, COLUMNS, MU = 40, 2, 12.0
ROW_MAP = LeastSquares().mapped(RowMap.from_bounds(COLUMNS, None))
NO_MODEL = np.zeros(COLUMNS + 1)
FRAME = Frame(np.eye(COLUMNS + 1), 1, typical=1.0, moments=np.ones(COLUMNS + 1))


class Asked(NoiseSource):
    """Keeps what noise was asked for, and adds none."""

    def add_gaussian(self, value, std):
        self.last = np.array(value, dtype=np.float64), std
        return self.last[0]


def tails(run):
    residual_tails(run.rows, "tails", NO_MODEL, 1.0, ROWS)


def mean(run):
    run._mean(FRAME, NO_MODEL, Tails(np.zeros(24), np.zeros(24), 1.0, 1.0))


def gain(run):
    # The first record's residual grows by the model's, the other's shrinks.
    run._gains(FRAME, np.array([-1e5, 0.0, 0.0]), 0.0, 1.0)


def places(run):
    run.rows.column_places("places", np.full(COLUMNS, 2048.0), PLACES)


def certificate_of(neighbors):
    bounds = LinearBounds(
        ROWS, COLUMNS, Squared(), ROW_MAP.row_norm, ROW_MAP.max_norm, neighbors=neighbors
    )
    return LeastSquares().certify(bounds, GaussianDP(MU), {"target_bounds": None})


@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize("phase", [tails, mean, gain, places])
def test_half_the_noise_of_a_phase_is_refuted(phase, neighbors):
    certificate = certificate_of(neighbors)
    name = phase.__name__
    term = certificate.noise[name]
    X, y = np.full((ROWS, COLUMNS), 2000.0), np.full(ROWS, 1e6)
    other = np.vstack([X[1:], [[-1e9] * COLUMNS]]), np.append(y[1:], -1e6)
    if neighbors == "add_or_remove_one":
        other = X[1:], y[1:]

    def asked(table, factor=1.0):
        noise = {**certificate.noise, name: replace(term, scale=factor * term.scale)}
        stated, source = replace(certificate, noise=noise), Asked()
        rows = PrivateRows([MemoryRows(*table, ROW_MAP, threads=1)], stated, source)
        phase(_Run(rows, stated))
        return source.last

    def sampler(table, factor):
        exact, std = asked(table, factor)

        def sample(count, rng):
            released = NoiseSource(rng).add_gaussian(np.tile(exact, count), std)
            return released.reshape(count, -1)

        return sample

    claim = GaussianDP(term.sensitivity / term.scale)
    # What differs: a record's bins on both tables, and the mean itself.
    way = asked(other)[0] - asked((X, y))[0]
    assert np.linalg.norm(way) > 0.99 * term.sensitivity
    for factor, passes in ((1.0, True), (0.5, False)):
        result = audit(
            sampler((X, y), factor), sampler(other, factor), claim, runs=6_000, rng=0,
            statistic=lambda outputs: outputs @ way,
        )  # fmt: skip
        assert result.passed is passes
