r"""Several quantiles by one noisy descent in private coordinates: levels of one target, or one level of each of several.

Coordinates are shared, and so is the sum of the weighted rows: the gradient of the level ``tau`` is that of the median
at the same place minus ``(tau - 1/2) sum w x``, so one release of this sum leaves slopes within 1/2 to every descent,
whatever its level. Levels of one target also share the search for its middle and scale and the rough descent to its
median.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.polynomial.legendre import legvander
from numpy.typing import NDArray
from scipy.special import ndtri

from dpconvex.engine.rows import Rows
from dpconvex.losses import Pinball
from dpconvex.mechanisms.gradient_run import PrivateDescent, Steps, gradient_sum

Array = NDArray[np.float64]


class SeveralDescents(PrivateDescent):
    """One run that finds several quantiles; :meth:`run` returns a column of coefficients for each of them.

    Parameters
    ----------
    targets : sequence of engines
        The same rows with each of their targets; ``rows`` is the first of them.
    others
        As for :class:`PrivateDescent`.
    """

    def __init__(self, targets: Sequence[Rows], *facts: object) -> None:
        super().__init__(targets[0], *facts)  # type: ignore[arg-type]
        self.targets = targets

    def _quantile(self, rows: Rows) -> Array:
        """Return the coefficients of every level, a column each."""
        self.all_rows = self._sum_of_rows(rows)
        levels = self.plan.levels
        if len(self.targets) == 1:
            self.loss = Pinball(0.5)
            median = self._median(rows)
            variances, found = [], []
            for level in levels:
                found.append(self._level(rows, level, *median))
                variances.append(self.expected_noise)
            return smooth_in_level(
                np.array(found), levels, np.array(variances), self.frame.moments
            ).T
        found = []
        for target, level in zip(self.targets, levels, strict=True):
            own = self._with_target(rows, target)
            self.loss, self.hopeless = Pinball(level), 0.0
            found.append(self._level(own, level, *self._median(own)))
        return np.array(found).T

    def _sum_of_rows(self, rows: Rows) -> Array:
        """Release the mean of the weighted rows, in these coordinates; zeros where no level needs it."""
        size = self.frame.matrix.shape[0]
        if "constant part" not in self.terms:
            return np.zeros(size)
        exact = gradient_sum(rows, self.frame, np.zeros(size), _weights)
        total = self.noise.add_gaussian(exact, self.terms["constant part"].scale)
        return np.asarray(total * self.frame.typical / self.mass)

    def _level(self, rows: Rows, level: float, constant: Array, found: Array, scale: float) -> Array:
        self.loss = Pinball(level)
        return self._at_level(rows, constant, found, scale, (0.5 - level) * self.all_rows)


    def _expected_noise(self, steps: Steps, rates: Array, curvature: float) -> float:
        self.expected_noise = super()._expected_noise(steps, rates, curvature)
        return self.expected_noise


def smooth_in_level(
    found: Array, levels: Sequence[float], variances: Array, moments: Array
) -> Array:
    """Return coefficients of every level with what noise alone could have made of their curve taken out.

    Coefficients are a line in the level's normal quantile, as for rows of one law at different scales, plus further
    orthogonal polynomials in it, each shortened by ``max(0, 1 - noise / length^2)``, a James-Stein factor.

    Parameters
    ----------
    found : array of shape (levels, dimension)
        Released.
    levels : sequence of float
        Of the rows.
    variances : array of shape (levels,)
        Variance that noise gives predictions of each level: public or released.
    moments : array of shape (dimension,)
        Second moment of each coordinate.
    """
    weights = 1 / np.sqrt(np.clip(variances, 1e-300, 1e300))
    places = ndtri(levels) / np.abs(ndtri(levels)).max()
    basis, _ = np.linalg.qr(weights[:, None] * legvander(places, len(levels) - 1))
    parts = basis.T @ (weights[:, None] * found)
    lengths = parts**2 @ moments
    kept = np.maximum(0.0, 1 - 1 / np.maximum(lengths, 1e-300))
    kept[:2] = 1.0
    return np.asarray((basis @ (kept[:, None] * parts)) / weights[:, None])


def _weights(y: Array, z: Array, w: Array) -> tuple[Array]:
    return (w,)
