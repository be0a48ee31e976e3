"""Bounds of a mean of losses of a linear model: what most estimators certify."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.privacy.bounds.base import EPS, LINEAR_BEYOND, ROUNDINGS
from dpconvex.privacy.bounds.record import LinearRecord
from dpconvex.privacy.description import Facts

__all__ = ["LinearBounds"]

# Curvature of an envelope in units of the slope: kinks are rounded over a hundred-thousandth of the targets' unit, or
# over a twentieth at most; in between, rounding may cost this share of the minimiser's sensitivity.
_SHARPEST, _BLUNTEST, _SHARE = 1e5, 20, 0.01


@dataclass(frozen=True)
class LinearBounds(LinearRecord):
    r"""Public facts of a generalised linear model, influence weights and intercept included.

    What one record is bounded by is in :class:`LinearRecord`; sensitivities of sums over rows are in
    :mod:`dpconvex.core.queries`.

    Parameters
    ----------
    n_samples, n_features : int
        Public number of rows (nominal under add-or-remove-one) and columns, the intercept excluded.
    loss : Loss
        Pointwise loss in mapped units.
    row_norm, max_norm : float
        Influence bound U and the largest norm X of a row, intercept excluded.
    fit_intercept : bool
        Whether rows carry a constant 1.
    alpha : float
        Strength of the penalty ``(alpha/2) ||theta||^2``.
    neighbors : {"replace_one", "add_or_remove_one"}
        Neighbouring relation.
    ignored_rows : bool
        Whether a record may have weight 0, as invalid rows that are ignored have.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> facts = LinearBounds(1000, 3, Logistic(), row_norm=1.0, max_norm=1.0, alpha=0.01)
    >>> round(facts.lipschitz, 6), facts.smoothness, round(facts.curvature_ratio, 6)
    (1.414214, 0.5, 0.05)
    """

    ignored_rows: bool = False

    def objective_facts(self) -> Facts:
        """Return what the objective of a release must be like: its ``public_facts``."""
        return {
            "objective": "mean of losses",
            "loss": self.loss,
            "alpha": self.alpha,
            "linear_term": False,
            "divisor": self.n_samples,
            **self.row_facts,
        }

    @property
    def rank(self) -> int:
        """1: every gradient of a record is a multiple of its row."""
        return 1

    def envelope_smoothness(self) -> float:
        r"""Return the public curvature ``b`` of the Moreau envelope that stands in for a kinked loss.

        A kink is rounded over ``slope / b`` to each side and the loss lowered by at most ``slope^2 / (2 b)``. ``b`` is
        ``1e5 slope``, or less where float64 could not resolve the minimiser to 1 % of the minimiser's sensitivity:
        ``64 eps n (dimension + b c / alpha) <= 0.01``, ``c`` the curvature factor; never below ``20 slope``. Rounded
        down to three digits.
        """
        slope = float(self.loss.lipschitz)
        condition = _SHARE / (ROUNDINGS * EPS * self.n_samples) - self.dimension
        wanted = min(_SHARPEST * slope, condition * self.alpha / self.curvature_factor)
        value = max(wanted, _BLUNTEST * slope)
        unit = 10.0 ** (math.floor(math.log10(value)) - 2)
        return float(f"{math.floor(value / unit) * unit:.3g}")

    def envelope_tolerance(self, smoothness: float) -> float:
        """Return :meth:`solver_tolerance` for the objective whose loss is the envelope of this curvature."""
        return self._resolvable(smoothness * self.curvature_factor / self.alpha)

    def target_limit(self, tilt: float = 0.0) -> float | None:
        """Return the public number beyond which targets are not told apart; None for losses without residuals.

        Twice the largest margin of a minimiser with ``n`` rows, ``sup ||x|| (L + tilt) / alpha``, with room for the
        part of the loss that is not linear yet. The loss of a clamped target is a fixed function of its record, as
        convex, steep and curved as any other, so the guarantee holds for every number of rows, even where so many of
        them pull that the clamp is felt. That needs a limit made of public facts alone: one that knew the noise of
        objective perturbation would let two draws of it lead to the same minimiser.

        Parameters
        ----------
        tilt : float
            Public bound on the norm of a linear term added to F.
        """
        if getattr(self.loss, "kind", None) != "residual":
            return None
        longest = math.hypot(self.fit_intercept, self.max_norm)
        margin = longest * (self.lipschitz + tilt) / self.alpha
        kinks = getattr(self.loss, "kinks", None)
        reach = max(abs(knot) for knot in kinks.knots) if kinks is not None else 0.0
        if math.isfinite(self.loss.smoothness) and self.loss.smoothness > 0:
            reach = LINEAR_BEYOND * self.loss.lipschitz / self.loss.smoothness
        return float(2 * margin + 2 * reach + 1)
