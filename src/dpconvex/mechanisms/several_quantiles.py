r"""Several quantiles by one noisy descent in private coordinates: levels of one target, or a level of each of several.

Coordinates are shared, and so is the sum of the weighted rows: the gradient of the level ``tau`` is that of the median
at the same place minus ``(tau - 1/2) sum w x``, so one release of this sum leaves slopes within 1/2 to every descent,
whatever its level. Levels of one target also share the search for its middle and scale, the rough descent to its
median, and at the end what their coefficients have in common: a smooth curve in the level.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.polynomial.legendre import legvander
from numpy.typing import NDArray
from scipy.special import ndtri

from dpconvex.core.slopes import Slope
from dpconvex.losses import Pinball
from dpconvex.mechanisms.gradient_steps import Steps
from dpconvex.mechanisms.quantile_descent import QuantileDescent

Array = NDArray[np.float64]


class SeveralQuantiles(QuantileDescent):
    """One run that finds several quantiles; :meth:`run` returns a column of coefficients for each of them."""

    def _find(self) -> Array:
        """Return the coefficients of every level, a column each."""
        self.mean_row = self._mean_row()
        found, variances, scales = [], [], []
        for number, level in enumerate(self.plan.levels):
            self.loss = Pinball(level)
            if number < self.plan.targets:
                self._take_target(number)
                median = self._median()
            found.append(self._at_level(*median, (0.5 - level) * self.mean_row))
            variances.append(self.expected_noise)
            scales.append(self.released["residual_scale"])
        self.released["residual_scale"] = np.array(scales)
        if not self._shares_start:
            return np.array(found).T
        curve = smooth_in_level(
            np.array(found), self.plan.levels, np.array(variances), self.frame.moments
        )
        return curve.T

    def _take_target(self, number: int) -> None:
        """Ask about another target from now on."""
        if number == 0:
            return
        self.rows, self.hopeless = self.rows.target(number), 0.0
        part = self.plan.looked_at
        self.few_rows = self.rows if part is None else self.rows.part(part)

    def _mean_row(self) -> Array:
        """Release the mean of the weighted rows, in these coordinates; zeros where no level needs it."""
        size = self.frame.matrix.shape[0]
        if "constant part" not in self.terms:
            return np.zeros(size)
        frame = self.frame
        total = self.rows.slope_sum(
            "constant part", np.zeros(size), Slope(None), frame, frame.typical
        )
        return np.asarray(total / self.mass)

    def _expected_noise(self, steps: Steps, rates: Array, curvature: float | Array) -> float:
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
    places = ndtri(levels) / max(np.abs(ndtri(levels)).max(), 1e-9)
    basis, _ = np.linalg.qr(weights[:, None] * legvander(places, len(levels) - 1))
    parts = basis.T @ (weights[:, None] * found)
    lengths = parts**2 @ moments
    kept = np.maximum(0.0, 1 - 1 / np.maximum(lengths, 1e-300))
    kept[:2] = 1.0
    return np.asarray((basis @ (kept[:, None] * parts)) / weights[:, None])
