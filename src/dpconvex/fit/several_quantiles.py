r"""Several quantiles by one private fit: levels of one target, or a level of each of several.

Coordinates are shared, and so is the sum of the weighted rows: the gradient of the level ``tau`` is
that of the median at the same point minus ``(tau - 1/2) sum w x``, so one release of this sum
leaves slopes within 1/2 to every level. Levels of one target also share the search for its location
and scale and the rough rounds to its median, and their coefficients are smoothed along the level.
"""

from collections.abc import Sequence

import numpy as np
from numpy.polynomial.legendre import legvander
from scipy.special import ndtri

from dpconvex.core.queries import QuerySlope
from dpconvex.fit.private_fit import PrivateFit
from dpconvex.losses import Pinball
from dpconvex.types import Array


class SeveralQuantiles(PrivateFit):
    """One run that finds several quantiles; :meth:`run` returns a column of coefficients for
    each of them.
    """

    def _fit(self) -> Array:
        """Fit several quantile levels; return the coefficients, a column each."""
        mean_row = self._release_mean_row()
        found = []
        noises = []
        scales = []
        covariances = []
        for number, level in enumerate(self.config.levels):
            self.loss = Pinball(level)
            if number < self.config.targets:
                self.rows = self.rounds.rows = self.rows.target(number)
                rough = self._fit_rough_stage()
            found.append(self._fit_fine_stage(*rough, (0.5 - level) * mean_row))
            noises.append(float(self.frame.moments @ self.level_noise))
            scales.append(self.released["residual_scale"])
            covariances.append({"covariance": self.released.pop("covariance", None)})
        self.released["residual_scale"] = np.array(scales)
        if self.config.inference:  # nothing is smoothed
            self.released["problems"] = covariances
        if self.config.targets > 1 or self.config.inference:
            return np.array(found).T
        return smooth_quantile_levels(
            np.array(found), self.config.levels, np.array(noises), self.frame.moments
        ).T

    def _release_mean_row(self) -> Array:
        """Release the mean of the weighted rows, in these coordinates; zeros where no level
        needs it.
        """
        if "mean row" not in self.terms:
            return np.zeros(self.size)
        frame = self.frame
        zero = np.zeros(self.size)
        total = self.rows.slope_sum(
            "mean row", zero, QuerySlope(None), frame, frame.median_row_norm
        )
        return np.asarray(total / self.mass)


def smooth_quantile_levels(
    found: Array, levels: Sequence[float], variances: Array, moments: Array
) -> Array:
    """Return coefficients of several quantile levels, a row each, smoothed along the level."""
    # Coefficients are a line in the level's normal quantile, as for rows of one law at different
    # scales, plus further orthogonal polynomials in it, each shrunk by the James-Stein factor
    # max(0, 1 - noise / length^2). variances are those of noise in the predictions of each level,
    # moments the second moments of coordinates.
    weights = 1 / np.sqrt(np.clip(variances, 1e-300, 1e300))
    nodes = ndtri(levels) / max(np.abs(ndtri(levels)).max(), 1e-9)
    basis, _ = np.linalg.qr(weights[:, None] * legvander(nodes, len(levels) - 1))
    parts = basis.T @ (weights[:, None] * found)
    factors = np.maximum(0.0, 1 - 1 / np.maximum(parts**2 @ moments, 1e-300))
    factors[:2] = 1.0
    return np.asarray((basis @ (factors[:, None] * parts)) / weights[:, None])
