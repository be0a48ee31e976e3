r"""Bounds: the only place where public facts become sensitivities.

The objective is always a mean,

    F(theta) = (1/n) sum_i w_i loss(y_i, x_i . theta) + (alpha/2) ||theta||^2,

where the row ``x_i`` contains the constant 1 of a fitted intercept. ``n`` is the public number of rows under
replace-one and a public nominal number under add-or-remove-one; the row count of the data enters nowhere else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dpconvex.checks import check_count, check_number
from dpconvex.privacy.calibration import check_neighbors
from dpconvex.privacy.description import describe, rebuild


class Bounds:
    """What every set of public facts offers: constants of one record, and sensitivities that follow from them."""

    n_samples: int
    alpha: float
    neighbors: str

    @property
    def dimension(self) -> int:
        """Number of coefficients, a fitted intercept included."""
        raise AttributeError

    @property
    def lipschitz(self) -> float:
        """Bound on the norm of one record's gradient in theta."""
        raise AttributeError

    @property
    def smoothness(self) -> float:
        """Bound on the largest eigenvalue of one record's Hessian in theta."""
        raise AttributeError

    @property
    def rank(self) -> int:
        """Dimension of a fixed subspace that holds every gradient of one record; 1 for a GLM."""
        raise AttributeError

    @property
    def regularisation(self) -> float:
        """``Lambda = n alpha``, the strong convexity in sum form."""
        return self.n_samples * self.alpha

    @property
    def curvature_ratio(self) -> float:
        """``kappa = smoothness / Lambda``."""
        if self.smoothness == 0:
            return 0.0
        return self.smoothness / self.regularisation if self.regularisation > 0 else math.inf

    def minimiser_sensitivity(self, tolerance: float = 0.0, gap: float = 0.0) -> float:
        r"""Return how far the released minimiser can move when one record changes.

        ``G / (n alpha) + 2 tolerance / alpha + 2 sqrt(2 gap / alpha)`` with ``G = gradient_sum_sensitivity()``, at most
        ``2 L`` under replace-one and ``L`` under add-or-remove-one. Why: F and its neighbour are alpha-strongly convex
        and their gradients differ by at most ``G / n`` everywhere, so their minimisers lie within ``G / (n alpha)``; a
        point with ``||gradient of F|| <= tolerance`` lies within ``tolerance / alpha`` of the minimiser, and one with
        ``F(theta) - min F <= gap`` within ``sqrt(2 gap / alpha)``. The penalty is common to both and cancels.

        Parameters
        ----------
        tolerance : float
            Certified bound on the norm of the gradient of F at the point returned.
        gap : float
            Certified bound on ``F(theta) - min F`` at the point returned, for kinked losses.
        """
        if not self.alpha > 0:
            raise ValueError(
                "The minimiser's sensitivity needs alpha above 0: without strong convexity it is unbounded. "
                f"Got alpha={self.alpha!r} instead."
            )
        short = 2 * tolerance / self.alpha + 2 * math.sqrt(2 * gap / self.alpha)
        return self.gradient_sum_sensitivity() / self.regularisation + short

    @property
    def relation(self) -> str:
        """Which data sets count as neighbours, as a certificate states it."""
        return self.neighbors

    def gradient_sum_sensitivity(self) -> float:
        """Return how far the SUM of gradients at one fixed theta can move when one record changes."""
        records = 2 if self.neighbors == "replace_one" else 1
        return records * self.lipschitz

    def solver_tolerance(self, tilt: float = 0.0) -> float:
        r"""Return the public tolerance on ``||gradient of F||`` that certified minimisers must meet.

        ``max(1e-10 L, 64 eps (dimension + kappa n) (L + tilt))``, ``eps`` the spacing of doubles, times
        ``max(10, 2e6 / n)`` where the number of rows is private. The second term is what float64 can resolve in the
        worst case: at a minimiser ``alpha ||theta|| <= L + tilt``, so rounding theta alone moves the gradient by
        ``smoothness eps (L + tilt) / alpha = eps kappa n (L + tilt)``.

        Parameters
        ----------
        tilt : float
            Bound on the norm of a linear term added to F; one that noise exceeds with negligible probability.
        """
        ratio = self.curvature_ratio if math.isfinite(self.curvature_ratio) else 0.0
        return self._resolvable(ratio * self.n_samples, tilt)

    def _resolvable(self, condition: float, tilt: float = 0.0) -> float:
        """``reserve max(1e-10 L, 64 eps (dimension + condition) (L + tilt))``, the condition number in mean form."""
        reach = (self.dimension + condition) * (self.lipschitz + tilt)
        return self._reserve * max(1e-10 * self.lipschitz, 64 * 2.0**-52 * reach)

    @property
    def _reserve(self) -> float:
        """What tolerances are multiplied by, because sums over a private number of rows round more than nominal ones.

        ``max(10, 2e6 / n)`` under add-or-remove-one. Solvers finish with gradients in which every row's slope is off
        by some 30 roundings (:meth:`dpconvex.objectives.EmpiricalObjective.refined_gradient`), whatever its number, so
        that this covers 1e10 rows. 1 where the number of rows is public.
        """
        return max(10.0, 2e6 / self.n_samples) if self.neighbors == "add_or_remove_one" else 1.0

    def objective_facts(self) -> dict[str, Any]:
        """Return what the objective of a release must be like: its ``public_facts``."""
        raise AttributeError

    def to_dict(self) -> dict[str, Any]:
        """Return the public facts as plain data."""
        facts = {field.name: describe(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]
        if not facts.get("void_rows"):  # a fact that certificates without it do not state
            facts.pop("void_rows", None)
        return {"kind": type(self).__name__, **facts}

    def _check_shared(self) -> None:
        owner = type(self).__name__
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, np.generic):  # float32 would round what follows from it
                object.__setattr__(self, field.name, value.item())
        check_neighbors(self.neighbors, owner)
        check_number("alpha", owner, self.alpha, "a finite number of at least 0", 0, math.inf)
        check_count("n_samples", owner, self.n_samples, 1)


def check_never_negative(loss: Any, owner: str) -> None:
    """Raise unless the loss is never negative: a penalised minimum then bounds the minimiser's length."""
    if not hasattr(loss, "value"):
        raise TypeError(
            f"The 'loss' parameter of {owner} must be one of dpconvex.losses, whose values are known. "
            f"Got {type(loss).__name__} instead."
        )
    base = loss
    while hasattr(base, "loss"):  # smoothing and scaling leave a loss of at least 0 at least 0
        base = base.loss
    kinks = getattr(base, "kinks", None)
    if kinks is not None:
        # A convex function is least at a knot, unless it falls forever.
        falls = kinks.slopes[0] > 0 or kinks.slopes[-1] < 0
        negative = falls or min(kinks.heights) < 0
    else:
        margins = np.linspace(-50.0, 50.0, 2001)
        negative = min(float(np.min(loss.value(y, margins))) for y in (-1.0, 0.5, 1.0)) < 0
    if negative:
        raise ValueError(
            f"The 'loss' parameter of {owner} must never be negative. "
            f"Got {type(loss).__name__}, which is, instead. Add a constant to it."
        )


def _check_void(value: object, owner: str) -> None:
    if not isinstance(value, bool):
        raise TypeError(
            f"The 'void_rows' parameter of {owner} must be True or False. Got {value!r} instead."
        )


@dataclass(frozen=True)
class LinearBounds(Bounds):
    r"""Public facts of a generalised linear model, influence weights and intercept included.

    A record's features have norm at most ``max_norm`` (enforced by clipping to the feature bounds) and the record is
    weighted by ``w = min(1, row_norm / ||x||)``. With ``c = 1`` for a fitted intercept and 0 otherwise,

        lipschitz  = slope * sqrt(c + min(row_norm, max_norm)^2)
        smoothness = curvature * sup w (c + ||x||^2)

    where the supremum is ``max(c + U^2, c U / X + U X)`` for ``U = row_norm <= X = max_norm`` and ``c + X^2``
    otherwise. Rows that are shortened to ``row_norm`` instead are described by ``max_norm = row_norm``.

    Parameters
    ----------
    n_samples : int
        Public number of rows (nominal under add-or-remove-one).
    n_features : int
        Number of columns, the intercept excluded.
    loss : Loss
        Pointwise loss in mapped units; its ``lipschitz`` and ``smoothness`` are slope and curvature above.
    row_norm, max_norm : float
        Influence bound U and the largest norm X of a row, intercept excluded.
    fit_intercept : bool
        Whether rows carry a constant 1. The intercept is penalised like every coefficient.
    alpha : float
        Strength of the penalty ``(alpha/2) ||theta||^2``.
    neighbors : {"replace_one", "add_or_remove_one"}
        Neighbouring relation.
    void_rows : bool
        Whether a record may have weight 0, as invalid rows that are ignored have.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> facts = LinearBounds(1000, 3, Logistic(), row_norm=1.0, max_norm=1.0, alpha=0.01)
    >>> round(facts.lipschitz, 6), facts.smoothness, round(facts.curvature_ratio, 6)
    (1.414214, 0.5, 0.05)
    """

    n_samples: int
    n_features: int
    loss: Any
    row_norm: float
    max_norm: float
    fit_intercept: bool = True
    alpha: float = 0.0
    neighbors: str = "replace_one"
    void_rows: bool = False

    def __post_init__(self) -> None:
        self._check_shared()
        check_count("n_features", "LinearBounds", self.n_features, 1)
        if getattr(self.loss, "kind", None) not in ("residual", "margin"):
            raise TypeError(
                "The 'loss' parameter of LinearBounds must be a loss of one margin, of kind 'residual' or 'margin'. "
                f"Got {type(self.loss).__name__} instead."
            )
        for name in ("row_norm", "max_norm"):
            allowed = "a finite number above 0"
            check_number(
                name, "LinearBounds", getattr(self, name), allowed, 0, math.inf, low_open=True
            )
        if not isinstance(self.fit_intercept, bool):
            raise TypeError(
                "The 'fit_intercept' parameter of LinearBounds must be True or False. "
                f"Got {self.fit_intercept!r} instead."
            )
        _check_void(self.void_rows, "LinearBounds")

    @property
    def dimension(self) -> int:
        """Number of coefficients, a fitted intercept included."""
        return self.n_features + self.fit_intercept

    @property
    def lipschitz(self) -> float:
        """``slope * sqrt(c + min(U, X)^2)``."""
        return float(self.loss.lipschitz) * self.row_norm_with_intercept

    @property
    def row_norm_with_intercept(self) -> float:
        """``sup w ||(1, x)|| = sqrt(c + min(U, X)^2)``: the weighted row, intercept included."""
        return math.sqrt(self.fit_intercept + min(self.row_norm, self.max_norm) ** 2)

    def objective_facts(self) -> dict[str, Any]:
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
    def row_facts(self) -> dict[str, Any]:
        """What mapped rows must be like."""
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
        limit, largest = self.row_norm, self.max_norm
        if largest <= limit:
            return self.fit_intercept + largest**2
        at_largest = self.fit_intercept * limit / largest + limit * largest
        return max(self.fit_intercept + limit**2, at_largest)

    @property
    def smoothness(self) -> float:
        """``curvature * sup w (c + ||x||^2)``."""
        return float(self.loss.smoothness) * self.curvature_factor

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
        condition = 0.01 / (64 * 2.0**-52 * self.n_samples) - self.dimension
        wanted = min(1e5 * slope, condition * self.alpha / self.curvature_factor)
        value = max(wanted, 20 * slope)
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
            reach = 40 * self.loss.lipschitz / self.loss.smoothness
        return float(2 * margin + 2 * reach + 1)

    def split_sensitivity(
        self, influence: float | None = None, least_weight: float | None = None
    ) -> tuple[float, float]:
        r"""Return the sensitivities of the two parts of the gradient SUM at a fixed theta.

        With slopes ``c'`` in ``[low, high]``, ``middle = (low + high) / 2`` and ``half = (high - low) / 2``, a record's
        gradient is a part with slopes within ``half`` of 0, which moves with theta, and the constant part
        ``middle w x`` (times ``y`` for margin losses). With ``R = sqrt(c + U^2)``:

        - moving part: ``2 half R`` under replace-one, ``half R`` under add-or-remove-one;
        - constant part: ``|middle| R`` under add-or-remove-one; under replace-one ``2 |middle| R`` for margin losses,
          whose labels may flip, and ``|middle| sqrt(c (1 - w_min)^2 + 4 U^2)`` for residual losses, where two records
          share the sign of their constant.

        Parameters
        ----------
        influence : float, optional
            Influence bound U in the coordinates that are used; the rows' own by default.
        least_weight : float, optional
            Smallest weight ``w_min`` a record can have in these coordinates; 0 whatever is given with ``void_rows``.

        Returns
        -------
        tuple of two floats
            Of the moving and of the constant part.
        """
        if influence is None:
            influence = min(self.row_norm, self.max_norm)
        if least_weight is None:
            least_weight = min(1.0, self.row_norm / self.max_norm)
        if self.void_rows:
            least_weight = 0.0
        low, high = self.loss.slope_range
        middle, half = abs(low + high) / 2, (high - low) / 2
        reach = math.sqrt(self.fit_intercept + influence**2)
        if self.neighbors == "add_or_remove_one":
            return half * reach, middle * reach
        if self.loss.kind == "margin":
            return 2 * half * reach, 2 * middle * reach
        constant = math.sqrt(self.fit_intercept * (1 - least_weight) ** 2 + 4 * influence**2)
        return 2 * half * reach, middle * constant

    def gradient_sensitivity(self, clip: float, slope: float) -> float:
        r"""Return the sensitivity of a sum of gradients whose norms are at most ``slope * clip``.

        A record contributes ``s u`` with ``|s| <= slope`` and ``|s| ||u|| <= slope * clip``, whether it was weighted by
        ``min(1, clip / ||u||)`` or its slope was limited to ``slope * clip / ||u||``: in both cases the norm of what it
        contributes is at most ``slope * clip``, whatever its row, target or label. Two records differ by at most twice
        that (replace-one; attained by one row with opposite slopes), one record adds at most that (add-or-remove-one).
        Sums are formed in the rows' own coordinates and then mapped: :meth:`rounding_share` pays for that.

        Parameters
        ----------
        clip : float
            Bound on the length of a weighted row, in the unit of the coordinates that are used.
        slope : float
            Largest size of a slope.
        """
        records = 2 if self.neighbors == "replace_one" else 1
        return records * slope * clip * (1 + self.rounding_share())

    def given_sensitivities(self) -> tuple[float, float]:
        """Return those of :meth:`split_sensitivity` in coordinates with an influence bound of ``sqrt(n_features)``."""
        moving, constant = self.split_sensitivity(math.sqrt(self.n_features))
        more = 1 + self.rounding_share()
        return moving * more, constant * more

    def rounding_share(self) -> float:
        r"""Return what rounding of a mapped sum of gradients may add to its sensitivity, relative to it.

        A thousandth, or what cannot be avoided: see :meth:`most_cancellation`.
        """
        return max(1e-3, 1 / self._digits())

    def most_cancellation(self) -> float:
        r"""Return how large ``K = || |M| |M^-1| ||`` may be for a map M that is applied to sums of gradients.

        A sum errs, coordinate by coordinate, by at most ``e = k u / (1 - k u)`` times the sum of the terms' sizes, and
        so does its product with M. A record contributes ``x = M^-1 u`` with ``||u|| <= c``, so the terms' sizes, mapped
        by ``|M|``, have norm at most ``K c``, and the computed sum of n records errs by at most ``n e K c``. Two
        neighbours' sums move apart by twice that, which is at most ``rounding_share()`` of ``records c`` for
        ``K <= rounding_share() records / (2 n e)``.
        """
        return self.rounding_share() * self._digits()

    def _digits(self) -> float:
        """Return ``records / (2 n e)``, for every number of rows that rounding is paid for."""
        from dpconvex.privacy.summation import most_rows, relative_error

        records = 2 if self.neighbors == "replace_one" else 1
        rows = most_rows(self.n_samples, self.neighbors)
        return records / (2 * rows * relative_error(rows, self.dimension))

    def moment_sensitivity(self) -> float:
        r"""Return the Frobenius sensitivity of a computed ``sum_i v_i v_i^T`` with ``||v_i|| <= 1``.

        ``||v v^T - u u^T||^2 = ||v||^4 + ||u||^4 - 2 (v . u)^2 <= 2``, attained by orthogonal unit vectors, so
        ``sqrt(2)`` under replace-one; one record adds ``||v||^2 <= 1``. Rounding comes on top, on either side.
        """
        from dpconvex.privacy.summation import most_rows, summation_error

        rows = most_rows(self.n_samples, self.neighbors)
        error = summation_error(rows, self.dimension, 1.0)
        return (math.sqrt(2) if self.neighbors == "replace_one" else 1.0) + 2 * error

    def histogram_sensitivity(self, histograms: int = 1) -> float:
        """Return the l2 sensitivity of histograms in each of which every record is in at most one bin.

        Replacing a record takes 1 from a bin and adds 1 to another in each of ``k`` histograms: ``sqrt(2 k)``; adding
        or removing one changes a single bin of each: ``sqrt(k)``.
        """
        bins = 2 if self.neighbors == "replace_one" else 1
        return math.sqrt(bins * histograms)

    def count_sensitivity(self) -> float:
        """Return the sensitivity of a number of records: 1 under both relations."""
        return 1.0


_KINDS = {"LinearBounds": LinearBounds}


def bounds_from_dict(data: dict[str, Any]) -> Bounds:
    """Rebuild public facts from :meth:`Bounds.to_dict`."""
    facts = dict(data)
    kind = facts.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(
            f"The kind of bounds must be one of {sorted(_KINDS)}. Got {kind!r} instead."
        )
    return _KINDS[kind](**{name: rebuild(value) for name, value in facts.items()})
