r"""Bounds: the only place where public facts become sensitivities.

The objective is always a mean,

    F(theta) = (1/n) sum_i w_i loss(y_i, x_i . theta) + (alpha/2) ||theta||^2,

where the row ``x_i`` contains the constant 1 of a fitted intercept. ``n`` is the public number of
rows under replace-one and a public nominal number under add-or-remove-one; the row count of the
data enters nowhere else.
"""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np

from dpconvex.core.calibration import check_neighbors
from dpconvex.core.checks import check_count, check_number
from dpconvex.core.description import Facts, describe, rebuild_description
from dpconvex.core.stated_names import BOUNDS

RECORD = "one record"
PERSON = "one person"  # with all its rows
EPS = 2.0**-52  # spacing of doubles at 1
ROUNDINGS = 64  # of one term of a gradient: some 30 are made, and as many again in reserve
# of the Lipschitz constant: no solver is asked for a smaller gradient where rounding would allow it
FINEST = 1e-10
# Widths, slope over curvature, beyond which a smooth loss is linear in float64: exp(-37) is below
# its spacing.
LINEAR_BEYOND = 40
# Factor on tolerances where the number of rows is private, and the rows for which the least one is
# enough.
_LEAST_RESERVE = 10.0
_RESERVED = 2e6


class Bounds:
    """What every set of public facts offers: constants of one record, and sensitivities that
    follow from them.
    """

    n_samples: int
    n_features: int
    alpha: float
    neighbors: str
    people: bool = False
    rows_per_person: int = 1
    weighted_rows: bool = False
    ignored_rows: bool = False
    sums_records = True  # whether F is a mean over records

    def __init_subclass__(cls, *, stated: bool = False) -> None:
        """Register a kind of bounds under its name, if certificates may state it."""
        super().__init_subclass__()
        if stated:
            BOUNDS.add(cls.__name__, cls)

    def most_additions(self, n_rows: int) -> int | None:
        """Return through how many additions a term of a sum over rows passes at most.

        None for sums that the engine forms, whose number of additions
        :func:`~dpconvex.core.summation.most_summation_additions` bounds.
        """
        return None

    @property
    def unit(self) -> str:
        """Whom a promise is made to."""
        if self.people:
            return PERSON
        return (
            RECORD
            if self.rows_per_person <= 1
            else f"one person, at most {self.rows_per_person} rows"
        )

    @property
    def counted(self) -> str:
        """The noun for what ``n_samples`` counts, in messages and reports."""
        return "people" if self.people else "rows"

    @property
    def dimension(self) -> int:
        """Number of coefficients, a fitted intercept included."""
        return self.n_features

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
        return self.dimension

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
        r"""Return the bound on how far the released minimiser can move when one record changes.

        ``G / (n alpha) + 2 tolerance / alpha + 2 sqrt(2 gap / alpha)`` with
        ``G = gradient_sum_sensitivity()``, at most ``2 L`` under replace-one and ``L`` under
        add-or-remove-one. Why: F and its neighbour are alpha-strongly convex and their gradients
        differ by at most ``G / n`` everywhere, so their minimisers lie within ``G / (n alpha)``; a
        point with certified ``||gradient of F|| <= tolerance`` lies within ``tolerance / alpha`` of
        the minimiser, and one with certified ``F(theta) - min F <= gap`` (kinked losses) within
        ``sqrt(2 gap / alpha)``. The penalty is common to both and cancels.
        """
        if not self.alpha > 0:
            raise ValueError(
                "The minimiser's sensitivity needs alpha above 0: without strong convexity it is "
                f"unbounded. Got alpha={self.alpha!r} instead."
            )
        short = 2 * tolerance / self.alpha + 2 * math.sqrt(2 * gap / self.alpha)
        return self._minimiser_shift() + short

    def _minimiser_shift(self) -> float:
        """Return how far exact minimisers of neighbouring data sets lie apart at most."""
        return self.gradient_sum_sensitivity() / self.regularisation

    @property
    def relation(self) -> str:
        """Which data sets count as neighbours, as a certificate states it."""
        return self.neighbors

    @property
    def changed_records(self) -> int:
        """In how many records neighbours differ: a replaced one counts twice, as it goes and as
        it comes.
        """
        return 2 if self.neighbors == "replace_one" else 1

    def gradient_sum_sensitivity(self) -> float:
        """Return how far the SUM of gradients at one fixed theta can move when one record, or
        one person, changes.
        """
        return self.rows_per_person * self.changed_records * self.lipschitz

    @property
    def linear_term_form(self) -> tuple[str, int, float]:
        """What ``<b, theta>`` is added to (``J = n F``, a sum), what divides b in F, and how far
        its gradient moves.
        """
        return "sum", self.n_samples, self.gradient_sum_sensitivity()

    def linear_term_inexactness(
        self, grid: float, norm_upper_bound: float, tolerance: float
    ) -> float:
        r"""Return a bound on how far two neighbours' solved problems lie apart beyond what the
        theorem covers.

        ``2 (t + (g sqrt(d) / 2 + 2^-52 B) / divisor) / alpha``: a point with
        ``||gradient of F|| <= t`` lies within ``t / alpha`` of the minimiser; and the theorem is
        about an ideal b, from which b on the grid g differs by at most ``g sqrt(d) / 2``, and its
        division by a few roundings of a b of norm at most B.
        """
        rounding = grid * math.sqrt(self.dimension) / 2 + 2.0**-52 * norm_upper_bound
        return 2 * (tolerance + rounding / self.linear_term_form[1]) / self.alpha

    def linear_term_theorem(self, gaussian: bool) -> tuple[str, str]:
        """Return what is perturbed and by which theorem, in the words of a certificate."""
        if self.trace_form is not None:
            return "perturbation", "Rényi profile in trace form" if gaussian else "trace form"
        family = "GLM two-sided profile" if self.rank == 1 else "Rényi and chi profiles"
        return "perturbation", family if gaussian else "GLM"

    @property
    def trace_form(self) -> tuple[float, float, str, float, int] | None:
        """Bounds for a record whose gradient is a sum over rows; None if it is a multiple of one
        vector.
        """
        # Norm L of a record's gradient, ``kappa`` (trace of its Hessian over the strong convexity),
        # relation, sensitivity of the gradient, and largest rank k of its Hessian: the rank of its
        # rows, whose number is private where they share one weight.
        many = self.rows_per_person
        if not self.people and many == 1:
            return None
        rank = self.dimension if self.people else min(self.dimension, many)
        moved = self.gradient_sum_sensitivity()
        return many * self.lipschitz, many * self.curvature_ratio, self.neighbors, moved, rank

    def solver_tolerance(self, linear_norm: float = 0.0) -> float:
        r"""Return the bounds' public tolerance on ``||gradient of F||``, which certified minimisers
        must meet.

        ``max(1e-10 L, 64 eps (dimension + kappa n) (L + t))``, ``eps`` the spacing of doubles,
        times ``max(10, 2e6 / n)`` where the number of rows is private. The second term is what
        float64 can resolve in the worst case: at a minimiser ``alpha ||theta|| <= L + t``, so
        rounding theta alone moves the gradient by
        ``smoothness eps (L + t) / alpha = eps kappa n (L + t)``. Here ``t = linear_norm`` bounds
        the norm of a linear term added to F, which noise exceeds with negligible probability.
        """
        ratio = self.curvature_ratio if math.isfinite(self.curvature_ratio) else 0.0
        return self._resolvable(ratio * self.n_samples, linear_norm)

    def _resolvable(self, condition: float, linear_norm: float = 0.0) -> float:
        """``reserve max(1e-10 L, 64 eps (dimension + condition) (L + linear_norm))``, the
        condition in mean form.
        """
        rounded = (self.dimension + condition) * (self.lipschitz + linear_norm)
        return self._reserve * max(FINEST * self.lipschitz, ROUNDINGS * EPS * rounded)

    @property
    def _reserve(self) -> float:
        # Factor on bounds of tolerances: 1 if the number of rows is public, else max(10, 2e6 / n),
        # for 1e10 rows. Solvers finish with gradients in which every row's slope is off by some 30
        # roundings, however many rows there are
        # (dpconvex.objectives.EmpiricalObjective.refined_gradient).
        if self.neighbors == "replace_one" and not self.people:
            return 1.0
        return max(_LEAST_RESERVE, _RESERVED / self.n_samples)

    def objective_facts(self) -> Facts:
        """Return the ``public_facts`` that the objective of a release must have."""
        raise AttributeError

    def _facts(self, objective: str, *names: str, **more: object) -> Facts:
        """Return the named facts of an objective, and some more."""
        return {"objective": objective, **{name: getattr(self, name) for name in names}, **more}

    def to_dict(self) -> Facts:
        """Return the public bounds as plain data."""
        facts = {field.name: describe(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]
        usual = {
            "ignored_rows": False,
            "people": False,
            "rows_per_person": 1,
            "weighted_rows": False,
        }
        for name, value in {**usual, "shape": None, "shared": None}.items():
            if name in facts and facts[name] == value:  # certificates do not state what is usual
                del facts[name]
        return {"kind": type(self).__name__, **facts}

    def _check_bounds_fields(self) -> None:
        owner = type(self).__name__
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, np.generic):  # float32 would round what follows from it
                value = value.item()
                object.__setattr__(self, field.name, value)
            if field.type in ("bool", bool) and not isinstance(value, bool):
                raise self._wrong(field.name, "True or False", error=TypeError)
        check_neighbors(self.neighbors, owner)
        check_number("alpha", owner, self.alpha, "a finite number of at least 0", 0, math.inf)
        check_count("n_samples", owner, self.n_samples, 1)
        check_count("n_features", owner, self.n_features, 1)

    def _check_positive(self, *names: str, allowed: str = "a finite number above 0") -> None:
        for name in names:
            check_number(
                name, type(self).__name__, getattr(self, name), allowed, 0, math.inf, low_open=True
            )

    def _wrong(
        self, name: str, wanted: str, remedy: str = "", error: type[Exception] = ValueError
    ) -> Exception:
        """Return the error of a parameter that is not as it must be."""
        value = getattr(self, name)
        got = type(value).__name__ if name == "loss" else repr(value)
        text = (
            f"The '{name}' parameter of {type(self).__name__} must be {wanted}. Got {got} instead."
        )
        return error(f"{text} {remedy}".rstrip())


def bounds_from_dict(data: Facts) -> Bounds:
    """Rebuild public bounds from :meth:`Bounds.to_dict`."""
    facts = dict(data)
    name = facts.pop("kind", None)
    kind = BOUNDS.find(name)
    if kind is None:
        raise ValueError(
            f"The kind of bounds must be one of {BOUNDS.known()}. Got {name!r} instead."
        )
    bounds: Bounds = kind(**{name: rebuild_description(value) for name, value in facts.items()})
    return bounds
