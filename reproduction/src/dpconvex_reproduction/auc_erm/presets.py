r"""The penalties of the AUC paper's theorems, and the rates it prints for them.

``n+, n-`` are class counts, ``D`` the diameter of the rows, ``L`` and ``beta`` slope and curvature
of the loss, ``xi`` the probability that the bound fails. The paper penalises with
``(lambda/2) ||w||^2``: ``alpha = lambda``. Where a penalty depends on the unknown ``||w*||``, the
remarks set it to 1 and the rate grows by ``(1 + ||w*||)^2``; so does ``norm=None`` here. The
presets serve comparisons: a certificate states what its own noise proves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = [
    "AUCPreset",
    "AUCProblem",
    "lemma_3",
    "lemma_4",
    "theorem_3",
    "theorem_4",
    "theorem_5",
    "theorem_7",
]


@dataclass(frozen=True)
class AUCProblem:
    """What the theorems are told.

    Attributes
    ----------
    positives, negatives, dimension : int
        Class counts and coefficients; Theorem 7 uses their sum.
    epsilon, delta : float
        Budget; delta 0 for pure epsilon.
    lipschitz, smoothness : float
        L and beta of the loss.
    diameter : float
        D; for Theorem 7 the bound R2 on a row.
    norm : float or None
        ``||w*||``, or None for the choices of Remarks 1 to 3, which do not use it.
    failure : float
        xi.
    """

    positives: int
    negatives: int
    dimension: int
    epsilon: float
    delta: float = 0.0
    lipschitz: float = 1.0
    smoothness: float = 1.0
    diameter: float = 1.0
    norm: float | None = None
    failure: float = 0.05

    @property
    def size(self) -> int:
        """``n = n+ + n-``."""
        return self.positives + self.negatives

    @property
    def pairs(self) -> int:
        """``n+ n-``."""
        return self.positives * self.negatives

    @property
    def known_norm(self) -> float:
        """``||w*||``, 1 where it is unknown."""
        return 1.0 if self.norm is None else self.norm

    @property
    def logs(self) -> float:
        """``log(1 / xi)``."""
        return math.log(1 / self.failure)


@dataclass(frozen=True)
class AUCPreset:
    """What a theorem prescribes.

    Attributes
    ----------
    theorem : str
        Which one.
    alpha : float
        ``lambda``.
    rate : float
        The printed order of the excess risk, its constant taken to be 1.
    applies : bool
        Whether the theorem's condition on beta holds.
    """

    theorem: str
    alpha: float
    rate: float
    applies: bool = True


def _grown(problem: AUCProblem, rate: float) -> float:
    # Of Remarks 1 to 3; the factor is unknown with the norm, so that 4 = (1 + 1)^2 stands for it.
    return rate if problem.norm is not None else 4 * rate


def lemma_3(problem: AUCProblem, slope: float, penalty: float, share: float = 0.5) -> float:
    r"""Return by how much a regularised population risk exceeds ``1/tau`` times that of the sample,
    at most.

    ``M^2 / (tau (1 - tau))`` with ``M = 8 n^(3/2) / (n+ n-) B D (2 sqrt(2) + 2 + sqrt(log(1/xi))) /
    sqrt(lambda)``, the constants of the proof (C.12, C.13); B is ``slope``, tau ``share``. It holds
    with probability ``1 - xi``, at once for all w at which the loss has slopes within B.
    """
    spread = 2 * math.sqrt(2) + 2 + math.sqrt(problem.logs)
    m = (
        8
        * problem.size**1.5
        / problem.pairs
        * slope
        * problem.diameter
        * spread
        / math.sqrt(penalty)
    )
    return float(m**2 / (share * (1 - share)))


def lemma_4(problem: AUCProblem, penalty: float) -> float:
    r"""Return the order of the risk that noise adds to the minimiser of a smooth loss (least
    squares), its constant 1.

    With ``N = n+ n-``, ``s = d`` and ``t = d + d^2`` for delta = 0, else
    ``s^2 = t = d log(1/delta)``:

        n D^4 beta^2 s ||w*|| / (N eps lambda^(3/2)) + n^(5/2) D^5 beta^(5/2) s sqrt(log(1/xi)) /
        (N^2 eps lambda^(5/2)) + n^2 D^4 beta^3 t / (N eps)^2 / lambda^3 (beta^2 for delta > 0, as
        printed)
    """
    n = problem.size
    d = problem.dimension
    D = problem.diameter
    beta = problem.smoothness
    w = problem.known_norm
    pairs = problem.pairs
    epsilon = problem.epsilon
    spread = float(d)
    square = float(d + d * d)
    power = 3
    if problem.delta > 0:
        square = d * math.log(1 / problem.delta)
        power = 2
        spread = math.sqrt(square)
    first = n * D**4 * beta**2 * spread * w / (pairs * epsilon * penalty**1.5)
    second = (
        n**2.5
        * D**5
        * beta**2.5
        * spread
        * math.sqrt(problem.logs)
        / (pairs**2 * epsilon * penalty**2.5)
    )
    return float(
        first + second + n**2 * D**4 * beta**power * square / (pairs * epsilon) ** 2 / penalty**3
    )


def theorem_3(problem: AUCProblem) -> AUCPreset:
    r"""Output perturbation, L-Lipschitz and smooth losses.

    ``lambda = max(beta^(1/3) (L D n s)^(2/3) / (||w*|| epsilon n+ n-)^(2/3), L D sqrt(log(1/xi))
    n^(3/2) / (||w*|| n+ n-))`` with ``s = d`` for delta = 0 and ``s = sqrt(d log(1/delta))``
    otherwise; Remark 1 leaves out ``||w*||``. The paper prints a minimum, with which the proof's
    bound is far above the rate: each part needs its own penalty.
    """
    spread = float(problem.dimension)
    if problem.delta > 0:
        spread = math.sqrt(problem.dimension * math.log(1 / problem.delta))
    steep = problem.lipschitz * problem.diameter
    w = problem.known_norm
    first = problem.smoothness ** (1 / 3) * (steep * problem.size * spread) ** (2 / 3)
    first /= (w * problem.epsilon * problem.pairs) ** (2 / 3)
    second = steep * math.sqrt(problem.logs) * problem.size**1.5 / (w * problem.pairs)
    balance = problem.pairs / problem.size**2
    rate = max(
        problem.smoothness ** (1 / 3)
        * (steep * spread) ** (2 / 3)
        * w ** (4 / 3)
        / (balance * problem.epsilon * problem.size) ** (2 / 3),
        steep * math.sqrt(problem.logs) * w / (balance * math.sqrt(problem.size)),
    )
    name = "Theorem 3" if problem.norm is not None else "Remark 1"
    return AUCPreset(name, max(first, second), _grown(problem, rate))


def theorem_4(problem: AUCProblem) -> AUCPreset:
    r"""Output perturbation, losses that are only smooth (least squares).

    delta = 0: ``lambda = D^(8/5) beta^(4/5) (n d)^(2/5) / (n+ n- epsilon ||w*||)^(2/5)``; otherwise
    ``lambda = D^(4/3) beta^(2/3) log(1/xi)^(1/3) n / ((n+ n-)^(2/3) ||w*||^(2/3))``.
    """
    n = problem.size
    d = problem.dimension
    w = problem.known_norm
    D = problem.diameter
    beta = problem.smoothness
    balance = problem.pairs / n**2
    logs = problem.logs
    if problem.delta == 0:
        alpha = D**1.6 * beta**0.8 * (n * d) ** 0.4 / (problem.pairs * problem.epsilon * w) ** 0.4
        rate = max(
            D**1.6 * beta**0.8 * d**0.4 * w**1.6 / (balance * problem.epsilon * n) ** 0.4,
            D**0.8 * beta**0.4 * logs * w**0.8 / (balance**1.2 * n**0.2 * d**0.8),
            D * math.sqrt(beta * logs) * w / (balance * math.sqrt(n)),
        )
        return AUCPreset("Theorem 4", alpha, rate)
    alpha = D ** (4 / 3) * beta ** (2 / 3) * logs ** (1 / 3) * n / (problem.pairs * w) ** (2 / 3)
    rate = max(
        D**2
        * beta
        * math.log(1 / problem.delta)
        * math.sqrt(d)
        * w**2
        / (balance ** (1 / 3) * problem.epsilon**2 * math.sqrt(n) * logs ** (1 / 3)),
        D ** (4 / 3)
        * beta ** (2 / 3)
        * logs ** (1 / 3)
        * w ** (4 / 3)
        / (balance ** (2 / 3) * n ** (1 / 3)),
    )
    return AUCPreset("Theorem 4", alpha, rate)


def _radicand(problem: AUCProblem) -> float:
    """``d^2`` or ``(sqrt(log(1/delta)) + sqrt(epsilon))^2 d``, plus ``n log(1/xi) epsilon^2``."""
    private = float(problem.dimension) ** 2
    if problem.delta > 0:
        root = math.sqrt(math.log(1 / problem.delta)) + math.sqrt(problem.epsilon)
        private = root**2 * problem.dimension
    return private + problem.size * problem.logs * problem.epsilon**2


def theorem_5(problem: AUCProblem) -> AUCPreset:
    r"""Objective perturbation of pairs.

    ``lambda = L D n sqrt(s^2 + n log(1/xi) epsilon^2) / (n+ n- epsilon ||w*||)`` with ``s = d`` for
    delta = 0 and ``s = (sqrt(log(1/delta)) + sqrt(epsilon)) sqrt(d)`` otherwise, if
    ``beta <= L sqrt(...) / (2 D ||w*||)``; Remark 2 leaves out ``||w*||``.
    """
    root = math.sqrt(_radicand(problem))
    w = problem.known_norm
    steep = problem.lipschitz * problem.diameter
    alpha = steep * problem.size * root / (problem.pairs * problem.epsilon * w)
    applies = problem.smoothness <= problem.lipschitz * root / (2 * problem.diameter * w)
    rate = _rate(problem, steep, problem.pairs / problem.size**2)
    name = "Theorem 5" if problem.norm is not None else "Remark 2"
    return AUCPreset(name, alpha, rate, applies)


def theorem_7(problem: AUCProblem) -> AUCPreset:
    r"""Objective perturbation of a mean over records (Algorithm 3), delta above 0.

    ``lambda = 8 L R2 sqrt((sqrt(log(1/delta)) + sqrt(epsilon))^2 d + n log(1/xi) epsilon^2) /
    (epsilon n ||w*||)`` if ``beta <= 4 L sqrt(...) / (R2 ||w*||)``; Remark 3 leaves out ``||w*||``.
    """
    if problem.delta == 0:
        raise ValueError("Theorem 7 needs delta above 0. Got 0 instead. Use theorem_5 for pairs.")
    root = math.sqrt(_radicand(problem))
    w = problem.known_norm
    steep = problem.lipschitz * problem.diameter
    alpha = 8 * steep * root / (problem.epsilon * problem.size * w)
    applies = problem.smoothness <= 4 * problem.lipschitz * root / (problem.diameter * w)
    name = "Theorem 7" if problem.norm is not None else "Remark 3"
    return AUCPreset(name, alpha, _rate(problem, steep, 1.0), applies)


def _rate(problem: AUCProblem, steep: float, balance: float) -> float:
    private = float(problem.dimension)
    if problem.delta > 0:
        root = math.sqrt(math.log(1 / problem.delta)) + math.sqrt(problem.epsilon)
        private = root * math.sqrt(problem.dimension)
    w = problem.known_norm
    rate = max(
        steep * private * w / (balance * problem.epsilon * problem.size),
        steep * math.sqrt(problem.logs) * w / (balance * math.sqrt(problem.size)),
    )
    return _grown(problem, rate)
