"""What each method of the comparison promises, and what can be proven of it; every number is
computed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpconvex import DPLinearSVC, DPLogisticRegression, DPQuantileRegressor
from dpconvex_reproduction.exhibit import PrivacyLine
from dpconvex_reproduction.peers.clipped_sgd import SETTINGS, noise_std, proven_epsilon
from dpconvex_reproduction.peers.diffprivlib_peer import WAYS, true_epsilon
from dpconvex_reproduction.peers.problems import DELTA, EPSILONS

__all__ = ["classification", "quantile", "svm"]

# Public shapes of the example that the lines speak of: a9a, and bike.
_A9A = (32_561, 123, 14**0.5)
_BIKE = (13_034, 12)


def _listed(values: list[float], up: bool = False) -> str:
    """Return numbers to three digits, to the nearest, or upwards where they are upper bounds."""
    return ", ".join(
        "none" if math.isinf(value) else f"{_up(value) if up else value:.3g}" for value in values
    )


def _up(value: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit * (1 - 1e-12)) * unit  # a number of three digits stays itself


def _ours(model: Any, n: int, d: int, where: str) -> PrivacyLine:
    certificate = model.certify(n_samples=n, n_features=d)
    certificate.verify()
    return PrivacyLine(
        type(model).__name__,
        "dpconvex",
        f"({model.epsilon:g}, {DELTA:g})-DP, replace-one",
        f"({certificate.epsilon(DELTA):.4g}, {DELTA:g})-DP by its certificate, which verifies (on "
        f"{where}: {certificate.mechanism})",
        "Certified from public facts before data are read; the same at the other values of "
        "epsilon.",
    )


def _sgd(n: int, where: str) -> list[PrivacyLine]:
    lines = []
    for name, setting in SETTINGS.items():
        rate = setting.rate(n)
        steps = setting.steps(n)
        stds = [noise_std(rate, steps, epsilon, DELTA) for epsilon in EPSILONS]
        proven = [proven_epsilon(std, rate, steps, DELTA) for std in stds]
        lines.append(
            PrivacyLine(
                name,
                "sound",
                f"epsilon {_listed(list(EPSILONS))} at delta {DELTA:g}, replace-one (noise "
                f"{_listed(stds)} clipping norms on {where})",
                "as promised by dp-accounting's replace-one loss distribution; our own Renyi "
                f"bound, which is cruder, proves at most {_listed(proven, up=True)}",
                "dp-accounting takes for the worst neighbours a clipped gradient and its "
                "opposite, each sampled with the batch's rate: the smallest noise that a library "
                "would add.",
            )
        )
    return lines


def _diffprivlib() -> list[PrivacyLine]:
    norm = _A9A[2]
    solver = (
        "Pure epsilon (delta 0), replace-one, for an exact minimiser; its solver, L-BFGS with "
        "max_iter=100 and tol=1e-4, stops early, and for what it then releases nothing is proven."
    )
    why = {
        "as documented": "Its formula has R/4, R the row norm, where the curvature R^2/4 belongs, "
        "so the Jacobian costs more than it pays; its intercept is penalised by "
        "what the formula adds alone, and where it adds nothing the proof has "
        f"nothing to stand on. {solver}",
        "sound": "Rows of norm 1 with the constant among them: the formula then pays more than "
        f"the Jacobian costs, and every coefficient is penalised. {solver}",
    }
    return [
        PrivacyLine(
            "diffprivlib",
            way,
            f"epsilon {_listed(list(EPSILONS))}, delta 0",
            "proven on a9a, for an exact minimiser: at most "
            + _listed([true_epsilon(way, epsilon, norm) for epsilon in EPSILONS], up=True),
            why[way],
        )
        for way in WAYS
    ]


def classification() -> list[PrivacyLine]:
    """Return the lines of the logistic regressions."""
    n, d, _ = _A9A
    ours = DPLogisticRegression(epsilon=1.0, delta=DELTA, feature_bounds=(0, 1))
    return [_ours(ours, n, d, "a9a"), *_sgd(n, "a9a"), *_diffprivlib()]


def svm() -> list[PrivacyLine]:
    """Return the lines of the support vector machines."""
    n, d, _ = _A9A
    ours = DPLinearSVC(epsilon=1.0, delta=DELTA, feature_bounds=(0, 1))
    return [_ours(ours, n, d, "a9a"), *_sgd(n, "a9a")]


def quantile() -> list[PrivacyLine]:
    """Return the lines of the quantile regressions."""
    n, d = _BIKE
    bounds = (np.zeros(d), np.ones(d))
    ours = DPQuantileRegressor(
        0.5, epsilon=1.0, delta=DELTA, feature_bounds=bounds, target_bounds=(0, 1000)
    )
    return [_ours(ours, n, d, "a table of bike's shape"), *_sgd(n, "bike")]
