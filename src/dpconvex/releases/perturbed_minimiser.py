r"""The second primitive between rows and noise: minimisers of an objective, perturbed before or
after solving.

Objective perturbation, output perturbation and phased methods release through this file alone. It
sees to the premises of their theorems at run time:

1. The objective is the one that the certificate was issued for (:func:`check_minimised_objective`),
   and stays it: targets are clamped by limits made of public facts, never of the noise that was
   drawn.
2. The point that noise is added to is certified: its gradient, or its gap, is at most the tolerance
   that the stated sensitivity pays for (:func:`certified_minimiser`). What a solver says of itself
   is not believed. Certificates come from :mod:`dpconvex.solvers.certified_descent` and
   :mod:`dpconvex.solvers.duality_gap`; how they search is not trusted.
3. The linear term b of an objective is drawn here and never leaves.
4. Every record is in one phase, by draws that are independent of what records hold.
5. Noise is what the certificate states, at the gate; every use is counted, and one too many raises
   before anything is drawn.

The sensitivities are those of :mod:`dpconvex.privacy.bounds`.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.core.certificate import Certificate, CertificateError
from dpconvex.core.description import Facts, describe
from dpconvex.core.memory_rows import MemoryRows
from dpconvex.core.noise_source import NoiseSource
from dpconvex.core.pointwise_losses import Loss, PointwiseLoss
from dpconvex.core.private_rows import PrivateAnswers
from dpconvex.core.row_coordinates import row_norms, shorten_rows
from dpconvex.core.rows import RowIndices
from dpconvex.core.summation import block_rows
from dpconvex.objectives.empirical import EmpiricalObjective, empirical_with_clamped_targets
from dpconvex.objectives.objective import ExtendedObjective, Objective
from dpconvex.objectives.pairwise_objective import PairwiseObjective
from dpconvex.privacy.bounds.phases import (
    DRAWN,
    Phase,
    PhaseSettings,
    anchored_phase_bounds,
    assignment_for,
    phase_names,
    phases_of,
)
from dpconvex.smoothing.moreau_envelopes import moreau
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.solvers.black_box import Method

LINEAR_TERM = "objective"
RELEASE = "release"
# Of a certificate in units of a released length: public bounds on the length of rows, and on the
# distance of two.
LONGEST = "longest_row"
WIDEST = "widest_pair"


class PerturbedMinimiser:
    """A handle on an objective: its certified minimiser may be released with noise, as a
    certificate states.

    The objective is the one that the certificate was issued for. It states the noise ``"release"``
    on the minimiser and, for objective perturbation, the noise ``"objective"`` of the linear term
    b, which is drawn at once.

    Privacy: the release costs what the certificate's theorem says. Rows of pairs whose bounds are
    in units of a length must be brought to these units by :meth:`measure_minimised_pairs` first.
    """

    def __init__(self, objective: Any, certificate: Certificate, noise: NoiseSource) -> None:
        check_minimised_objective(objective, certificate)
        self._objective = objective
        self._certificate = certificate
        self._answers = PrivateAnswers(certificate.noise, noise)
        self._linear_term: Array | None = None
        self._lengths: Array | None = None
        if LINEAR_TERM in certificate.noise:
            divisor = certificate.bounds.linear_term_form[1]
            self._linear_term = self._answers.draw(self._answers.claim(LINEAR_TERM)) / divisor
        self._unit = None if LONGEST in certificate.parameters else 1.0

    def release(self, solver: Method | None = None, kinked: bool = False) -> Array:
        """Return the minimiser plus the certificate's noise; the answer of any solver is certified.

        A kinked loss is solved as it is, to a certified gap, or through its Moreau envelope.
        """
        if self._unit is None:
            raise CertificateError("The certificate's bounds are in units of a length to be found.")
        term = self._answers.claim(RELEASE, dimension=self._certificate.bounds.dimension)
        point = exact_minimiser(
            self._objective, self._certificate, solver, kinked, self._linear_term
        )
        return self._answers.release(term, point) / self._unit

    def count_shorter(self, name: str, length: float) -> float:
        """Return how many rows of the minimiser's pairs are shorter than a length, less half of
        them, plus noise.

        The half is of their public number, or of those that are not ignored.
        """
        term = self._answers.claim(name, ("count",), dimension=1)
        if self._lengths is None:
            self._lengths = self._objective.each_row(row_norms)
        bounds = self._certificate.bounds
        half = (self._lengths.size if bounds.ignored_rows else bounds.n_samples) / 2
        below = float(np.count_nonzero(self._lengths < float(length)))
        return float(self._answers.release(term, [below - half])[0])

    def measure_minimised_pairs(self, length: float | None) -> float:
        """Bring the minimiser's pairs to a unit of length in which no two rows are further apart
        than 2; return it.

        Longer rows are shortened to a public or released length; None stands for half the public
        distance of two rows.
        """
        if self._unit is not None:
            raise CertificateError("Rows are in the units of the certificate already.")
        longest, widest = (self._certificate.parameters[name] for name in (LONGEST, WIDEST))
        pairs = cast(PairwiseObjective, self._objective)
        unit = widest / 2
        if length is not None:
            unit = float(length)
            if not 0 < unit < math.inf:
                raise ValueError("A unit of length must be a finite number above 0.")
            self._objective = pairs.with_rows(lambda block: shorten_rows(block, unit), 1.0)
        else:
            self._objective = pairs.with_rows(lambda block: block / unit, longest / unit)
        self._unit = float(unit)
        return self._unit


def exact_minimiser(
    objective: Any,
    certificate: Certificate,
    solver: Method | None = None,
    kinked: bool = False,
    linear_term: Array | None = None,
) -> Array:
    """Return the certified minimiser that noise is added to: private.

    The clamp of targets knows a public bound on the linear term and never the term: theta must
    determine b.
    """
    from dpconvex.solvers.duality_gap import envelope_of

    bounds = certificate.bounds
    tolerance = certificate.noise[RELEASE].tolerance
    linear_norm = (
        0.0
        if linear_term is None
        else certificate.noise[LINEAR_TERM].norm_upper_bound / bounds.n_samples
    )
    clamped = empirical_with_clamped_targets(objective, bounds, linear_norm)
    if not kinked and not math.isfinite(bounds.smoothness):
        clamped = envelope_of(cast(EmpiricalObjective, clamped), bounds.envelope_smoothness())
    if linear_term is not None:
        clamped = cast(ExtendedObjective, clamped).with_linear(linear_term)
    return certified_minimiser(solver, clamped, np.zeros(bounds.dimension), tolerance)


def certified_minimiser(
    solver: Method | None, objective: Objective, start: ArrayLike, tolerance: float
) -> Array:
    """Return a certified minimiser by any solver; where it fails, warns or lies the default one
    takes over.

    Whether and how a solver complains depends on the data, so it must not be seen. Where the
    default one's certificate does not meet the tolerance nothing is released: a ConvergenceError is
    raised.
    """
    from dpconvex.solvers.black_box import BlackBox
    from dpconvex.solvers.certified_descent import ConvergenceError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if solver is not None:
            with contextlib.suppress(Exception):
                found = BlackBox(solver).solve(objective, start, tolerance)
                if found.gradient_norm <= tolerance:
                    return found.point
        found = BlackBox().solve(objective, start, tolerance)
    if not found.gradient_norm <= tolerance:
        raise ConvergenceError("No point was certified within the tolerance that was paid for.")
    return found.point


def release_phased_minimisers(
    objective: Any,
    certificate: Certificate,
    noise: NoiseSource,
    settings: PhaseSettings,
    one_pass: bool,
) -> Array:
    """Return the last phase's perturbed minimiser; every phase starts from the point that the one
    before released.

    The certificate, of a phased method, states the noise of every phase; rows are in memory. A
    phase minimises its objective, or passes over its records once.
    """
    check_minimised_objective(objective, certificate)
    bounds = certificate.bounds
    answers = PrivateAnswers(certificate.noise, noise)
    point = np.zeros(bounds.dimension)
    phases = phases_of(bounds.n_samples, settings)
    parts = records_of_minimisers(
        phases, assignment_for(bounds.neighbors), objective.rows.n_records, noise.generator
    )
    for phase, name, chosen in zip(phases, phase_names(phases), parts, strict=True):
        term = answers.claim(name, dimension=bounds.dimension)
        exact = phase_minimiser(
            objective,
            certificate,
            phase,
            term.tolerance,
            chosen,
            point,
            noise.generator,
            settings.radius,
            one_pass,
        )
        point = answers.release(term, exact)
        # A projection of what was released: no privacy cost.
        point = point * min(1.0, settings.radius / max(float(np.linalg.norm(point)), 1e-300))
    return point


def records_of_minimisers(
    phases: list[Phase], assignment: str, n_records: int, generator: np.random.Generator
) -> list[RowIndices]:
    """Return the records of every phase: the next ones of a permutation, or those whose own
    draws say so.
    """
    if assignment == DRAWN:
        # The number of leading tails of fair coins, plus one: i with probability 2^-i.
        tosses = generator.geometric(0.5, n_records)
        return [np.flatnonzero(tosses == i) for i in range(1, len(phases) + 1)]
    order = generator.permutation(n_records)
    ends = np.cumsum([0, *(phase.records for phase in phases)])
    return [order[a:b] for a, b in pairwise(ends.tolist())]


def phase_minimiser(
    objective: EmpiricalObjective,
    certificate: Certificate,
    phase: Phase,
    tolerance: float,
    chosen: RowIndices,
    start: Array,
    generator: np.random.Generator,
    radius: float,
    one_pass: bool,
) -> Array:
    """Return the minimiser of a phase's chosen records, anchored to a start within a radius, or a
    pass's mean: what noise is added to.
    """
    bounds = certificate.bounds
    rows = cast(MemoryRows, objective.rows)
    if one_pass:
        return mean_minimiser_of_pass(
            rows, objective.loss, chosen, start, phase.step, bounds.alpha, generator
        )
    local = anchored_phase_bounds(bounds, phase)
    loss = cast(PointwiseLoss, objective.loss)
    if not math.isfinite(loss.smoothness):
        loss = moreau(loss, local.envelope_smoothness())
    held = rows.take_records(chosen) if rows.has_people else rows.chosen(chosen)
    problem = EmpiricalObjective(
        held, loss, local.alpha, divisor=phase.records, linear=-phase.anchor * start
    )
    linear_norm = phase.anchor * radius
    problem = empirical_with_clamped_targets(problem, replace(local, loss=loss), linear_norm)
    return certified_minimiser(None, problem, start, tolerance)


def check_minimised_objective(objective: object, certificate: Certificate) -> None:
    """Raise unless the objective is the one that the certificate was issued for; called before
    noise is drawn.

    Compared are public facts only: the kind of objective, loss, penalty, divisor, how rows are
    bounded, and, where the relation makes it public, the number of rows. Pairs of rows that come
    without a map know no diameter of their own.
    """
    bounds = certificate.bounds
    given = certificate.parameters
    stated = bounds.objective_facts()
    if (
        LONGEST in given
    ):  # rows come in public units; the bounds are in units of a length that is found first
        stated |= {"row_norm": given[LONGEST], "diameter": given[WIDEST]}
    found: Facts | None = getattr(objective, "public_facts", None)
    if found is None:
        raise TypeError(
            "The 'objective' parameter of a release must offer public_facts, so that they can be "
            f"compared with the certificate. Got {type(objective).__name__} instead. Use an "
            "objective of dpconvex.objectives."
        )
    found = {"diameter": stated.get("diameter"), **found}
    if bounds.neighbors == "replace_one":
        counted = "n_records" if hasattr(type(objective), "n_records") else "n_rows"
        stated["n_records"] = bounds.n_samples
        found["n_records"] = getattr(objective, counted, None)
    for name, value in stated.items():
        own = found.get(name)
        if isinstance(value, bool) or isinstance(own, bool):
            alike = value is own
        elif isinstance(value, (int, float)) and isinstance(own, (int, float)):
            alike = math.isclose(value, own, rel_tol=1e-12)
        else:
            alike = value is own or bool(describe(value) == describe(own))
        if not alike:
            raise ValueError(
                "The objective given to a release must be that of its certificate. It has "
                f"{name}={own!r}, but the certificate was issued for {name}={value!r}. Build it "
                "from certificate.bounds, or certify what is to be released."
            )


def mean_minimiser_of_pass(
    rows: MemoryRows,
    loss: Loss,
    chosen: RowIndices,
    start: Array,
    step: float,
    alpha: float,
    generator: np.random.Generator,
) -> Array:
    """Return the mean of the iterates of one step per chosen record, in their order: private.

    Of a person's rows a random one takes its step, whatever they hold.
    """
    from dpconvex.smoothing.compiled_slopes import compile_slope
    from dpconvex.solvers.sgd_loops import run_one_pass_loop

    theta = start.copy()
    total = np.zeros_like(start)
    compiled = compile_slope(loss)
    size = block_rows(
        start.size
    )  # at a time: mapped rows may have far more numbers than given ones
    for first in range(0, chosen.size, size):
        records = rows.one_row_each(chosen[first : first + size], generator).mapped()
        if compiled is not None:
            run_one_pass_loop(
                np.arange(len(records[1])), *records, compiled, theta, total, step, alpha
            )
            continue
        for row, target, weight in zip(*records, strict=True):
            # A loss of the user's own: the same steps, not compiled.
            theta = theta - step * (
                weight * float(loss.gradient(target, row @ theta)) * row + alpha * theta
            )
            total += theta
    return total / chosen.size
