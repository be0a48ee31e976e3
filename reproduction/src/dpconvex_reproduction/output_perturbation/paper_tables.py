r"""Calculators for the output-perturbation paper's excess-risk and runtime bounds (its Tables 1 to
6).

The tables state orders of growth: every number here is such an expression without its constant,
except where a function says otherwise. ``ratio`` and ``spread`` are those of
:class:`OutputProblem`, logarithms of delta included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpconvex_reproduction.output_perturbation.presets import (
    OutputPreset,
    OutputProblem,
    output_preset,
)

__all__ = ["TableRow", "excess_risk_bound", "solver_iterations", "table"]


def excess_risk_bound(problem: OutputProblem, population: bool = False) -> float:
    """Return the smallest of the theorems' bounds that apply, constants included, and ``L R``.

    A smooth objective also belongs to the class without smoothness (Remarks 3.1 to 3.4, 4.1 and
    4.2), and a fixed answer errs by at most ``L R``.
    """
    candidates = [problem.lipschitz * problem.radius]
    for smoothness in {problem.smoothness, math.inf}:
        preset = output_preset(replace(problem, smoothness=smoothness), population)
        if preset.nontrivial:
            candidates.append(preset.excess_risk)
    return min(candidates)


def solver_iterations(problem: OutputProblem, preset: OutputPreset, solver: str) -> float:
    r"""Return how many steps the paper's corollaries give a solver to reach the preset's accuracy.

    With ``mu = preset.alpha``, ``kappa = (beta + penalty) / mu`` and ``L_F = L + penalty R``,
    penalty being what was added to the objective:

    - ``"subgradient"`` and ``"stochastic subgradient"``: ``2 L_F^2 / (mu accuracy)`` passes, or
      visits of a record;
    - ``"accelerated"``: ``sqrt(kappa) log((mu + beta) R^2 / (2 accuracy))`` passes;
    - ``"katyusha"``: ``(n + sqrt(n kappa)) log(L R / accuracy)`` visits of a record.
    """
    penalty = preset.alpha if problem.strong_convexity == 0 else 0.0
    lipschitz = problem.lipschitz + penalty * problem.radius
    smoothness = problem.smoothness + penalty
    kappa = smoothness / preset.alpha
    if solver in ("subgradient", "stochastic subgradient"):
        return 2 * lipschitz**2 / (preset.alpha * preset.accuracy)
    if solver == "accelerated":
        distance = (preset.alpha + smoothness) * problem.radius**2 / (2 * preset.accuracy)
        return math.sqrt(kappa) * max(1.0, math.log(max(distance, 1.0)))
    if solver == "katyusha":
        digits = max(1.0, math.log(max(problem.lipschitz * problem.radius / preset.accuracy, 1.0)))
        return (problem.n_samples + math.sqrt(problem.n_samples * kappa)) * digits
    raise ValueError(
        "The 'solver' parameter of solver_iterations must be 'subgradient', 'stochastic "
        f"subgradient', 'accelerated' or 'katyusha'. Got {solver!r} instead."
    )


@dataclass(frozen=True)
class TableRow:
    """One row of a table: the paper's own method on one function class.

    Attributes
    ----------
    function_class, reference : str
        Class, and where the paper proves the bound.
    excess_risk, runtime : float
        Orders of growth; the risk is capped at ``L R``.
    condition : str
        When the bound says more than ``L R``.
    nontrivial : bool
        Whether the condition holds here.
    """

    function_class: str
    reference: str
    excess_risk: float
    runtime: float
    condition: str
    nontrivial: bool


_REFERENCES = {
    "general": ("Corollary 3.1", "Corollary 3.3", "Corollary 3.5", "Corollary 3.7"),
    "population": ("Corollary 4.1", "Corollary 4.2", "Corollary 4.3", "Corollary 4.4"),
    "mean": ("Corollary 3.2", "Corollary 3.4", "Corollary 3.6", "Corollary 3.8"),
}
_TABLES = {1: "general", 2: "general", 3: "population", 4: "population", 5: "mean", 6: "mean"}


def table(number: int, problem: OutputProblem) -> list[TableRow]:
    """Return the paper's own rows of one of its tables, evaluated for a problem.

    Tables 1 and 2: any objective; 3 and 4: population loss; 5 and 6: a mean over records. Odd
    tables are for delta = 0, even ones for delta > 0.

    Parameters
    ----------
    number : int
        Table, 1 to 6.
    problem : OutputProblem
        Public constants; rows that need strong convexity or smoothness appear if the problem has
        them.

    Returns
    -------
    list of TableRow
    """
    if number not in _TABLES:
        raise ValueError(
            f"The 'number' parameter of table must be 1, 2, 3, 4, 5 or 6. Got {number!r} instead."
        )
    if (problem.delta == 0) != (number % 2 == 1):
        wanted = "delta = 0" if number % 2 else "delta > 0"
        raise ValueError(f"Table {number} is for {wanted}. Got delta={problem.delta!r} instead.")
    kind = _TABLES[number]
    problem = replace(problem, mean=kind != "general")
    L = problem.lipschitz
    R = problem.radius
    r = problem.ratio
    mu = problem.strong_convexity
    kappa = problem.condition_number
    beta = problem.smoothness
    n = problem.n_samples
    extra = 1 / n if kind == "population" else 0.0
    times = _runtimes(problem, kind)
    linear = "spread <= epsilon n" if problem.mean else "spread <= epsilon"
    square = "ratio^2 <= L / (R beta)"
    wide = L * R * (math.sqrt(r) + math.sqrt(extra))
    rows: list[tuple[str, float, float, str, bool]] = []
    if mu > 0:
        rows.append(("strongly convex", L**2 / mu * (r + extra), times[0], linear, r <= 1))
        if math.isfinite(beta):
            risk = L**2 / mu * (min(kappa * r**2, r) + extra)
            rows.append(("smooth strongly convex", risk, times[1], linear, r <= 1))
    rows.append(("convex", wide, times[2], linear, r <= 1))
    if math.isfinite(beta):
        scale = (beta * L**2 * R**4) ** (1 / 3)
        risk = min(scale * (r ** (2 / 3) + math.sqrt(extra)), wide)
        rows.append(("smooth convex", risk, times[3], square, r**2 <= L / (R * beta)))
    names = ("strongly convex", "smooth strongly convex", "convex", "smooth convex")
    references = dict(zip(names, _REFERENCES[kind], strict=True))
    return [
        TableRow(name, references[name], min(risk, L * R), time, condition, holds)
        for name, risk, time, condition, holds in rows
    ]


def _runtimes(problem: OutputProblem, kind: str) -> tuple[float, float, float, float]:
    """Return the runtime column for the four classes; infinite where smoothness is missing."""
    n = problem.n_samples
    d = problem.dimension
    epsilon = problem.epsilon
    kappa = problem.condition_number
    steep = problem.smoothness * problem.radius / problem.lipschitz
    pure = problem.delta == 0
    # The two arguments of the maximum in the smooth convex row: its own regularisation, and that of
    # the convex class.
    thirds = (steep * epsilon) ** (1 / 3) * d ** (2 / 3)
    quarters = math.sqrt(steep) * epsilon**0.25 * d**0.75
    if not pure:
        thirds = steep ** (1 / 3) * epsilon ** (1 / 6) * d ** (5 / 6)
        quarters = math.sqrt(steep) * epsilon**0.125 * d**0.875
    if kind == "general":
        rough = n * epsilon if pure else n * math.sqrt(epsilon * d)
        convex = n * epsilon**2 / d if pure else n * epsilon
        return rough, n * d * math.sqrt(kappa), convex, n * max(thirds, quarters)
    rough = max(d * n**2, epsilon * n if pure else n * math.sqrt(d * epsilon))
    convex = n**2 * d * max(1.0, (epsilon / d) ** 2) if pure else n**2 * epsilon
    smooth = n * d + max(n ** (5 / 6) * thirds, n**0.75 * quarters)
    return rough, d * (n + math.sqrt(n * kappa)), convex, smooth
