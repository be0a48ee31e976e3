"""Bounds of linear models: one record with its influence weight and intercept, and the mean of
losses over records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dpconvex.core.bounds import EPS, LINEAR_BEYOND, ROUNDINGS, Bounds
from dpconvex.core.checks import check_count, check_number
from dpconvex.core.description import DescribableLoss, Facts
from dpconvex.core.tweedie_loss import Tweedie

# Curvature of an envelope in units of the slope: kinks are rounded over a hundred-thousandth of the
# targets' unit, or over a twentieth at most; in between, rounding may cost this share of the
# minimiser's sensitivity.
_SHARPEST = 1e5
_BLUNTEST = 20
_SHARE = 0.01


@dataclass(frozen=True)
class LinearRecord(Bounds):
    r"""Public facts of one record of a linear model, influence weight and intercept included.

    A record's features have norm at most ``max_norm`` (enforced by clipping to the feature bounds)
    and the record is weighted by ``w = min(1, row_norm / ||x||)``. With ``c = 1`` for a fitted
    intercept and 0 otherwise,

        lipschitz  = slope * sqrt(c + min(row_norm, max_norm)^2)
        smoothness = curvature * sup w (c + ||x||^2)

    where the supremum is ``max(c + U^2, c U / X + U X)`` for ``U = row_norm <= X = max_norm`` and
    ``c + X^2`` otherwise. Rows that are shortened to ``row_norm`` instead are described by
    ``max_norm = row_norm``.

    The parameters are those of :class:`LinearBounds`.
    """

    n_samples: int
    n_features: int
    loss: DescribableLoss
    row_norm: float
    max_norm: float
    fit_intercept: bool = True
    alpha: float = 0.0
    neighbors: str = "replace_one"
    people: bool = field(default=False, kw_only=True)
    rows_per_person: int = field(default=1, kw_only=True)
    weighted_rows: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self._check_bounds_fields()
        check_count("rows_per_person", type(self).__name__, self.rows_per_person, 1)
        if self.people and self.rows_per_person > 1:
            raise self._wrong("rows_per_person", "1 where the rows of a person share one weight")
        if getattr(self.loss, "kind", None) not in ("residual", "margin", "rate", "several"):
            raise self._wrong(
                "loss", "a loss of kind 'residual', 'margin', 'rate' or 'several'", error=TypeError
            )
        for name in ("row_norm", "max_norm"):
            allowed = "a finite number above 0"
            check_number(
                name, type(self).__name__, getattr(self, name), allowed, 0, math.inf, low_open=True
            )

    @property
    def dimension(self) -> int:
        """Number of coefficients, a fitted intercept included."""
        return self.n_features + self.fit_intercept

    @property
    def lipschitz(self) -> float:
        """``slope * sqrt(c + min(U, X)^2)``, the slope times the longest weighted row, intercept
        included.
        """
        return float(self.loss.lipschitz) * math.sqrt(
            self.fit_intercept + min(self.row_norm, self.max_norm) ** 2
        )

    @property
    def row_facts(self) -> Facts:
        """Facts of linear bounds that mapped rows must have."""
        return {
            "n_features": self.n_features,
            "fit_intercept": self.fit_intercept,
            "row_norm": min(self.row_norm, self.max_norm),
            "max_norm": self.max_norm,
            "own_weights": False,
        }

    @property
    def curvature_factor(self) -> float:
        """``sup w (c + ||x||^2)``, attained at one end of ``[U, X]`` because it is convex there."""
        limit = self.row_norm
        largest = self.max_norm
        if largest <= limit:
            return self.fit_intercept + largest**2
        at_largest = self.fit_intercept * limit / largest + limit * largest
        return max(self.fit_intercept + limit**2, at_largest)

    @property
    def smoothness(self) -> float:
        """``curvature * sup w (c + ||x||^2)``."""
        return float(self.loss.smoothness) * self.curvature_factor


@dataclass(frozen=True)
class LinearBounds(LinearRecord, stated=True):
    r"""Public facts of a generalised linear model, influence weights and intercept included.

    The sensitivities of sums over rows are in :mod:`dpconvex.core.queries`.

    Parameters
    ----------
    n_samples, n_features : int
        Public number of rows (nominal under add-or-remove-one), or of people; and of columns,
        intercept excluded.
    loss : Loss
        Pointwise loss in mapped units; its ``lipschitz`` and ``smoothness`` are slope and curvature
        of a record.
    row_norm, max_norm : float
        Influence bound U and the largest norm X of a row, intercept excluded.
    fit_intercept : bool
        Whether rows carry a constant 1, whose coefficient is penalised like every other.
    alpha, neighbors : float, {"replace_one", "add_or_remove_one"}
        Strength of the penalty ``(alpha/2) ||theta||^2``, and the neighbouring relation.
    people, rows_per_person : bool, int
        Whether a record is a person whose rows, a private number of them, share one weight: what a
        person contributes lies in the convex hull of what single rows contribute. Or how many rows
        a person has at most, where each of them counts as a record: so many records change at once.
    weighted_rows, ignored_rows : bool
        Whether a row may count less than a whole one, down to 0; whether invalid rows have weight
        0.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> facts = LinearBounds(1000, 3, Logistic(), row_norm=1.0, max_norm=1.0, alpha=0.01)
    >>> round(facts.lipschitz, 6), facts.smoothness, round(facts.curvature_ratio, 6)
    (1.414214, 0.5, 0.05)
    """

    ignored_rows: bool = False

    def objective_facts(self) -> Facts:
        """Return the ``public_facts`` that the objective of a release must have."""
        own = {
            "loss": self.loss,
            "alpha": self.alpha,
            "linear_term": False,
            "divisor": self.n_samples,
        }
        return {"objective": "mean of losses", **own, **self.row_facts}

    @property
    def rank(self) -> int:
        """1: every gradient of a record is a multiple of its row."""
        return 1

    def envelope_smoothness(self) -> float:
        r"""Return the public curvature ``b`` of the Moreau envelope of a linear model's kinked
        loss.

        A kink is rounded over ``slope / b`` to each side and the loss lowered by at most
        ``slope^2 / (2 b)``. ``b`` is ``1e5 slope``, or less where float64 could not resolve the
        minimiser to 1 % of the minimiser's sensitivity:
        ``64 eps n (dimension + b c / alpha) <= 0.01``, ``c`` the curvature factor; never below
        ``20 slope``. Rounded down to three digits.
        """
        slope = float(self.loss.lipschitz)
        condition = _SHARE / (ROUNDINGS * EPS * self.n_samples) - self.dimension
        wanted = min(_SHARPEST * slope, condition * self.alpha / self.curvature_factor)
        value = max(wanted, _BLUNTEST * slope)
        unit = 10.0 ** (math.floor(math.log10(value)) - 2)
        return float(f"{math.floor(value / unit) * unit:.3g}")

    def envelope_tolerance(self, smoothness: float) -> float:
        """Return :meth:`solver_tolerance` for the objective whose loss is the envelope of this
        curvature.
        """
        return self._resolvable(smoothness * self.curvature_factor / self.alpha)

    def target_limit(self, linear_norm: float = 0.0) -> float | None:
        """Return the public bound beyond which a linear model's targets are alike; None for losses
        without residuals.

        Twice the largest margin of a minimiser with ``n`` rows, ``sup ||x|| (L + t) / alpha``, with
        room for the part of the loss that is not linear yet. The loss of a clamped target is a
        fixed function of its record, as convex, steep and curved as any other, so the guarantee
        holds for every number of rows, even where so many of them pull that the clamp is felt. That
        needs a limit made of public facts alone: one that knew the noise of objective perturbation
        would let two draws of it lead to the same minimiser. ``t = linear_norm`` is a public bound
        on the norm of a linear term added to F.
        """
        if self.loss.kind != "residual":
            return (
                self.loss.most if isinstance(self.loss, Tweedie) else None
            )  # responses are clipped there
        longest = math.hypot(self.fit_intercept, self.max_norm)
        margin = longest * (self.lipschitz + linear_norm) / self.alpha
        kinks = getattr(self.loss, "piecewise_linear", None)
        width = max(abs(knot) for knot in kinks.knots) if kinks is not None else 0.0
        if math.isfinite(self.loss.smoothness) and self.loss.smoothness > 0:
            width = LINEAR_BEYOND * self.loss.lipschitz / self.loss.smoothness
        return float(2 * margin + 2 * width + 1)
