r"""Bounds on the risk of output perturbation: exact minimisers, solvers of any accuracy, steps, the
exponential rule.

Numbers are those the paper prints, with ``ratio = spread / epsilon`` (over n for a mean) as in
:mod:`dpconvex_reproduction.output_perturbation.presets`. Where a printed formula is wrong the
proof's is used, and the function says so; where a constant hides behind an order it is 1. What a
fit guarantees is what its certificate says.
"""

from __future__ import annotations

import math

from dpconvex.core.checks import check_number
from dpconvex_reproduction.output_perturbation import presets
from dpconvex_reproduction.output_perturbation.presets import OutputProblem

__all__ = [
    "corollary_2_1",
    "corollary_2_2",
    "exponential_shrinkage",
    "free_privacy_epsilon",
    "minimax_steps",
    "proposition_2_3",
    "proposition_2_5",
    "proposition_2_6",
    "proposition_2_8",
    "proposition_5_1",
    "proposition_g_2",
    "risk_at_accuracy",
    "solver_steps",
    "theorem_g_1",
]


def _positive(name: str, owner: str, value: float) -> None:
    check_number(name, owner, value, "a finite number above 0", 0, math.inf, low_open=True)


def _exact_sensitivity(problem: OutputProblem) -> float:
    """``2 L / (mu n)``, n = 1 if the objective is not a mean (Proposition 2.2)."""
    return 2 * problem.lipschitz / (problem.strong_convexity * problem.records)


def proposition_2_3(problem: OutputProblem, sensitivity: float) -> float:
    """``L Delta d / epsilon``, or ``L Delta sqrt(d) (c + sqrt(c^2 + epsilon)) / (sqrt(2) epsilon)``
    for delta > 0.

    Excess risk of the exact minimiser of a Lipschitz objective plus noise, projected on the ball.
    """
    _positive("sensitivity", "proposition_2_3", sensitivity)
    root = 1.0 if problem.delta == 0 else math.sqrt(2)
    return problem.lipschitz * sensitivity * problem.spread / (root * problem.epsilon)


def corollary_2_1(problem: OutputProblem) -> float:
    """``2 (L^2/mu) ratio``, or ``sqrt(2) (L^2/mu) ratio`` for delta > 0: Proposition 2.3 with
    ``2 L / (mu n)``.
    """
    presets._need(problem, "Corollary 2.1", True, False)
    return proposition_2_3(problem, _exact_sensitivity(problem))


def proposition_2_6(problem: OutputProblem, sensitivity: float) -> float:
    r"""``(beta/2) d (d + 1) (Delta/epsilon)^2``, or
    ``(beta/4) d ((c + sqrt(c^2 + epsilon)) Delta / epsilon)^2``.

    Excess risk of the exact minimiser of a smooth objective plus noise. The paper prints the second
    without its d.
    """
    presets._need(problem, "Proposition 2.6", False, True)
    _positive("sensitivity", "proposition_2_6", sensitivity)
    size = (
        problem.dimension * (problem.dimension + 1) if problem.delta == 0 else problem.spread**2 / 2
    )
    return problem.smoothness / 2 * size * (sensitivity / problem.epsilon) ** 2


def corollary_2_2(problem: OutputProblem) -> float:
    """``4 kappa (L^2/mu) ratio^2`` for either budget (one half or a quarter of it would do for
    delta > 0).
    """
    presets._need(problem, "Corollary 2.2", True, True)
    return (
        4
        * problem.condition_number
        * problem.lipschitz**2
        / problem.strong_convexity
        * problem.ratio**2
    )


def proposition_5_1(problem: OutputProblem) -> float:
    """Adversarial training by the exact saddle point: Corollary 2.2, the smoothness that of the
    worst-case loss.
    """
    return corollary_2_2(problem)


def proposition_2_5(problem: OutputProblem) -> presets.OutputPreset:
    """Convex: ``lambda = L / (R sqrt(1 + 1/ratio))`` and excess risk ``8.5 L R sqrt(ratio)``, if
    ``ratio <= 1``.

    The paper prints ``1 + d/epsilon`` under the root of part 1; its proof has ``1 + epsilon/d``,
    which is used here.
    """
    base = presets.theorem_3_4(problem)
    risk = 8.5 * problem.lipschitz * problem.radius * math.sqrt(problem.ratio)
    return presets.OutputPreset("Proposition 2.5", base.alpha, 0.0, risk, base.nontrivial)


def proposition_2_8(problem: OutputProblem) -> presets.OutputPreset:
    """Smooth convex: ``48.5 beta^(1/3) L^(2/3) R^(4/3) ratio^(2/3)``, if
    ``ratio^2 <= L / (R beta)``.
    """
    base = presets.theorem_3_5(problem)
    risk = 48.5 * presets._smooth_scale(problem) * problem.ratio ** (2 / 3)
    return presets.OutputPreset("Proposition 2.8", base.alpha, 0.0, risk, base.nontrivial)


def risk_at_accuracy(problem: OutputProblem, accuracy: float) -> float:
    r"""Return the bound of Theorem 3.1, 3.2, 3.4 or 3.5, by the problem's class, for a solver of
    any accuracy.

    With a the accuracy, ``q = spread / epsilon`` (ratio for an objective that is no mean) and n = 1
    if not a mean:

        3.1 2 sqrt(2) (L^2/(mu n) + L sqrt(2 a/mu)) q + a 2 in place of 2 sqrt(2) for delta > 0 3.2
        4 beta (L/(mu n) + sqrt(2 a/mu))^2 q^2 + a 2 in place of 4 3.4 16.5 L R ratio^(1/2) + 32
        sqrt(a L R) ratio^(-1/4) (1 + q) 13 and 12; 1 in place of 1 + q if not a mean 3.5 48.5 S
        ratio^(2/3) + a (1 + 3 (R beta/L)^(2/3) q^(4/3) n^(2/3)) + 12 R sqrt(a beta) q 8 and 69

    with ``S = beta^(1/3) L^(2/3) R^(4/3)``. The paper prints 3.4 for delta > 0 and a mean without
    ``1 + q``: see *Where the papers are wrong*. Regularised problems use the theorem's own lambda.
    """
    check_number(
        "accuracy", "risk_at_accuracy", accuracy, "a finite number of at least 0", 0, math.inf
    )
    pure = problem.delta == 0
    size = problem.lipschitz
    radius = problem.radius
    beta = problem.smoothness
    n = problem.records
    r = problem.ratio
    mu = problem.strong_convexity
    q = n * r
    if mu > 0:
        stop = math.sqrt(2 * accuracy / mu)
        if math.isinf(beta):
            return (2 * math.sqrt(2) if pure else 2) * (
                size**2 / (mu * n) + size * stop
            ) * q + accuracy
        return (4 if pure else 2) * beta * (size / (mu * n) + stop) ** 2 * q**2 + accuracy
    if math.isinf(beta):
        first, second = (16.5, 32) if pure else (13, 12)
        grown = 1 + q if problem.mean else 1.0
        return float(
            first * size * radius * math.sqrt(r)
            + second * math.sqrt(accuracy * size * radius) * grown / r**0.25
        )
    third, last = (3, 12) if pure else (8, 69)
    growth = third * (radius * beta / size) ** (2 / 3) * q ** (4 / 3) * n ** (2 / 3)
    base = 48.5 * presets._smooth_scale(problem) * r ** (2 / 3)
    return float(base + accuracy * (1 + growth) + last * radius * math.sqrt(accuracy * beta) * q)


def solver_steps(problem: OutputProblem, accuracy: float | None = None) -> tuple[str, int]:
    r"""Return the solver of Corollaries 3.1 to 3.8 and how many gradients it evaluates to reach the
    accuracy.

    ============================ =====================
    ============================================================ subgradient (3.1, 3.5) not a mean,
    kinked ``2 L'^2 / (s a)`` stochastic subgradient a mean, kinked the same number of single
    records (3.2, 3.6) accelerated gradient not a mean, smooth
    ``sqrt(kappa') log((s + beta') R^2 / (2 a))`` (3.3, 3.7) Katyusha a mean, smooth
    ``(n + sqrt(n kappa')) log(L' R / a)``, an order (3.4, 3.8) ============================
    ===================== ============================================================

    of the penalised objective: ``s = mu`` or lambda, ``L' = L + lambda R``,
    ``beta' = beta + lambda``, ``kappa' = beta' / s``. The printed counts are these with the
    theorems' own accuracies, rounded up.
    """
    preset = presets.output_preset(problem)
    gap = preset.accuracy if accuracy is None else accuracy
    _positive("accuracy", "solver_steps", gap)
    added = 0.0 if problem.strong_convexity > 0 else preset.alpha
    size = problem.lipschitz + added * problem.radius
    s = preset.alpha
    if math.isinf(problem.smoothness):
        name = "stochastic subgradient" if problem.mean else "subgradient"
        return name, math.ceil(2 * size**2 / (s * gap))
    beta = problem.smoothness + added
    kappa = beta / s
    if not problem.mean:
        logs = math.log(max((s + beta) * problem.radius**2 / (2 * gap), math.e))
        return "accelerated gradient", math.ceil(math.sqrt(kappa) * logs)
    n = problem.n_samples
    logs = math.log(max(size * problem.radius / gap, math.e))
    return "Katyusha", math.ceil((n + math.sqrt(n * kappa)) * logs)


def minimax_steps(
    problem: OutputProblem,
    accuracy: float,
    adversary_smoothness: float,
    adversary_diameter: float,
    adversary_concavity: float = 0.0,
) -> float:
    """``sqrt(kappa beta_v / a) rho``, or ``sqrt(kappa kappa_v)`` with a strongly concave adversary
    (Proposition 5.2).

    An order, logarithms left out, of the gradients that a proximal-point method needs for an
    a-saddle point; for n adversaries of diameter rho at once the diameter is ``sqrt(n) rho``
    (Corollary 5.1).
    """
    presets._need(problem, "Proposition 5.2", True, True)
    for name, value in (("accuracy", accuracy), ("adversary_smoothness", adversary_smoothness)):
        _positive(name, "minimax_steps", value)
    if adversary_concavity > 0:
        return math.sqrt(problem.condition_number * adversary_smoothness / adversary_concavity)
    return (
        math.sqrt(problem.condition_number * adversary_smoothness / accuracy) * adversary_diameter
    )


def free_privacy_epsilon(
    lipschitz: float,
    dimension: int,
    n_samples: int,
    delta: float = 0.0,
    *,
    radius: float = 1.0,
    strong_convexity: float = 0.0,
    smoothness: float = math.inf,
) -> float:
    r"""Return the least epsilon at which the part of privacy in the population loss is no larger
    than that of sampling.

    "Privacy for free" of section 4, with the constants of Propositions 4.1 to 4.4: strongly convex
    ``spread / epsilon <= 1``; smooth and strongly convex ``4 kappa (spread / epsilon)^2 <= 2 n``;
    convex ``127 sqrt(ratio) <= 1/(2 sqrt(n))``; smooth convex ``83 ratio^(2/3) <= 11/sqrt(n)`` (19
    and 43 for delta > 0).
    """

    def parts(epsilon: float) -> float:
        problem = OutputProblem(
            lipschitz, radius, n_samples, dimension, epsilon, delta, strong_convexity, smoothness
        )
        r = problem.ratio
        n = n_samples
        if strong_convexity > 0 and math.isinf(smoothness):
            return n * r
        if strong_convexity > 0:
            return 2 * problem.condition_number * n * r**2
        if math.isinf(smoothness):
            return 2 * (127 if delta == 0 else 19) * math.sqrt(n * r)
        return float((83 if delta == 0 else 43) / 11 * math.sqrt(n) * r ** (2 / 3))

    # the part of privacy falls in epsilon
    low = 1e-12
    high = 1e12
    while high / low > 1 + 1e-12:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if parts(middle) > 1 else (low, middle)
    return high


def exponential_shrinkage(problem: OutputProblem) -> float:
    """``log(epsilon^2 mu R / (d L))``: xi of Algorithm 11, with which the smaller ball holds the
    minimiser.

    It does with probability at least ``1 - d e^-xi``.
    """
    presets._need(problem, "Algorithm 11", True, False)
    inner = (
        problem.epsilon**2
        * problem.strong_convexity
        * problem.radius
        / (problem.dimension * problem.lipschitz)
    )
    return math.log(inner)


def theorem_g_1(problem: OutputProblem) -> float:
    r"""``4 L R (d/epsilon) (1 + log(1 + epsilon/(2 d)))``, d/n for d with a mean: Algorithm 9 with
    a proved constant.

    The paper states ``L R d / epsilon``, an order. Proof: the draw has density
    ``exp(-g (F - min F))`` on the ball, ``g = epsilon / (4 L R)`` (times n for a mean). Points
    ``w* + s (w - w*)`` of the ball shrunk by s have F above its least value by at most ``2 L R s``
    and a share ``s^d`` of the volume, so that the normaliser is at least ``s^d e^{-2 L R s g}`` of
    it; the mean of ``F - min F`` is then at most ``(1/g) (d log(1/s) + 2 L R s g)``, by Jensen's
    inequality (entropy of the draw relative to the uniform law is not negative). The least of it
    over s is bounded by ``s = 1/(1 + epsilon/(2 d))``.
    """
    r = problem.dimension / (problem.epsilon * problem.records)
    return 4 * problem.lipschitz * problem.radius * r * (1 + math.log1p(1 / (2 * r)))


def proposition_g_2(problem: OutputProblem) -> float:
    """``(L^2/mu) (d/epsilon)^2 log(epsilon^2 mu R / (d L))``, an order, if ``d mu R >= 2 L`` and
    ``epsilon > d``.
    """
    enough = problem.dimension * problem.strong_convexity * problem.radius >= 2 * problem.lipschitz
    if problem.mean or not enough or problem.epsilon <= problem.dimension:
        raise ValueError(
            "Proposition G.2 needs an objective that is no mean, d mu R >= 2 L and epsilon > d. "
            "Use theorem_g_1."
        )
    scale = problem.lipschitz**2 / problem.strong_convexity
    return scale * (problem.dimension / problem.epsilon) ** 2 * exponential_shrinkage(problem)
