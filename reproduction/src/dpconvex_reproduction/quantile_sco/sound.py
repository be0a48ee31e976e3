r"""The compared algorithms with noise that dpconvex certifies at the claimed budget, under
replace-one.

Steps, batches, phases, penalties and bandwidths follow the same formulas as in :mod:`.rivals` and
:mod:`.objective_perturbation`; where a formula contains the noise, it is the noise that is drawn. A
row carries the constant 1, so its norm is up to ``sqrt(1 + B_x^2)`` and the Lipschitz constant
``max(r, 1 - r)`` times that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Loss, Pinball
from dpconvex.mechanisms import NoisySGD, ObjectivePerturbation, PhasedERM, PhasedSGD
from dpconvex.mechanisms.objective_perturbation import RELEASE_SHARE
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import ApproxDP, Certificate, LinearBounds, objective_perturbation_scale
from dpconvex.privacy.subsampling import subsampled_multiplier
from dpconvex.smoothing import convolve
from dpconvex_reproduction.quantile_sco.presets import (
    Problem,
    objective_preset,
    phased_erm_preset,
    phased_sgd_preset,
    sgd_preset,
)
from dpconvex_reproduction.quantile_sco.rivals import contractive_envelope, minibatch_plan

__all__ = ["SoundPlan", "run_sound", "sound_plan"]

Array = NDArray[np.float64]

# Released points of a phase are projected on a ball that they never reach: the algorithms have no
# constraint.
_FAR = 100.0


@dataclass(frozen=True)
class SoundPlan:
    """What a sound run is made of, from public facts.

    Attributes
    ----------
    mechanism : Mechanism
        How noise is added.
    certificate : Certificate
        Noise and guarantee.
    """

    mechanism: Any
    certificate: Certificate


def _bounds(n: int, d: int, problem: Problem, loss: Any, alpha: float = 0.0) -> LinearBounds:
    return LinearBounds(n, d - 1, loss, problem.row_norm, problem.row_norm, alpha=alpha)


def _told(problem: Problem) -> Problem:
    """Return the problem with the bound on a row that counts its constant."""
    return replace(problem, row_norm=math.hypot(1.0, problem.row_norm))


def _objective(n: int, d: int, problem: Problem, part: int) -> SoundPlan:
    told = _told(problem)
    preset = objective_preset(part, n, d, told)
    keep = 1 - RELEASE_SHARE
    # The bandwidth makes the curvature ratio epsilon / 2 whatever the penalty, so the noise is
    # known before it.
    std = objective_perturbation_scale(
        keep * told.epsilon, keep * told.delta, told.lipschitz, told.epsilon / 2
    )
    square = (preset.alpha / 2) ** 2 + d * (std**2 - preset.std**2) / (n * told.coef_norm) ** 2
    penalty = math.sqrt(square)  # of lambda ||theta||^2, so alpha is twice that
    bandwidth = told.kernel.peak * told.row_norm**2 / (penalty * n * told.epsilon)
    loss = convolve(Pinball(told.quantile), told.kernel, bandwidth)
    return _certified(ObjectivePerturbation(), _bounds(n, d, problem, loss, 2 * penalty), problem)


def _descent(n: int, d: int, problem: Problem, smooth: bool) -> SoundPlan:
    told = _told(problem)
    preset = sgd_preset(n, d, told)
    loss: Any = Pinball(told.quantile)
    multiplier = subsampled_multiplier(
        "fixed", "replace_one", 1 / n, preset.steps, told.epsilon, told.delta
    )
    std = _bounds(n, d, problem, loss).gradient_sum_sensitivity() * multiplier
    spread = d * (std**2 - preset.std**2)
    if not smooth:  # the step without its smoothing term
        spread -= told.kernel.mean_abs * told.kernel.peak * told.row_norm**2 / 2
    step = 1 / math.sqrt(preset.step_size**-2 + spread * (n / told.coef_norm) ** 2)
    if smooth:
        bandwidth = step * told.kernel.peak * told.row_norm**2 / 2
        loss = convolve(loss, told.kernel, bandwidth)
    mechanism = NoisySGD(steps=preset.steps, step_size=step, average=1.0)
    return _certified(mechanism, _bounds(n, d, problem, loss), problem)


def _minibatches(n: int, d: int, problem: Problem) -> SoundPlan:
    told = _told(problem)
    plan = minibatch_plan(n, d, told)
    mechanism = NoisySGD(
        steps=plan.steps, batch_size=plan.batch_size, step_size=plan.step_size, average=1.0
    )
    loss = contractive_envelope(told, plan.step_size)
    return _certified(mechanism, _bounds(n, d, problem, loss), problem)


def _phased(n: int, d: int, problem: Problem, erm: bool) -> SoundPlan:
    told = _told(problem)
    preset = (phased_erm_preset if erm else phased_sgd_preset)(n, d, told)
    settings: dict[str, Any] = {
        "step_size": preset.step_size * (1 - 1e-12),  # contractive in exact arithmetic
        "phases": preset.phases,
        "radius": _FAR * told.coef_norm,
    }
    if erm:
        return _certified(
            PhasedERM(**settings), _bounds(n, d, problem, Pinball(told.quantile)), problem
        )
    loss = contractive_envelope(told, preset.step_size / 4)
    return _certified(PhasedSGD(**settings), _bounds(n, d, problem, loss), problem)


def _certified(mechanism: Any, bounds: LinearBounds, problem: Problem) -> SoundPlan:
    budget = ApproxDP(problem.epsilon, problem.delta)
    return SoundPlan(mechanism, mechanism.certify(bounds, budget, seeded=True))


@lru_cache(maxsize=256)
def sound_plan(algorithm: str, n: int, d: int, problem: Problem) -> SoundPlan:
    """Return mechanism and certificate of an algorithm, from public facts alone.

    Parameters
    ----------
    algorithm : str
        A name of the comparison: "OP", "OP, part 2", "DP-SGD", "EmpSGD", "Moreau", "Phased-ERM" or
        "Phased-SGD".
    n, d : int
        Rows and coefficients, the intercept included.
    problem : Problem
        As the printed algorithms are told it: ``row_norm`` without the constant.

    Examples
    --------
    >>> plan = sound_plan("OP", 1000, 3, Problem(0.7, 1.0, 1e-2, 10.0, 25.0))
    >>> plan.certificate.guarantee
    ApproxDP(epsilon=1.0, delta=0.01)
    """
    if algorithm in ("OP", "OP, part 2"):
        return _objective(n, d, problem, 2 if algorithm.endswith("2") else 1)
    if algorithm in ("DP-SGD", "EmpSGD"):
        return _descent(n, d, problem, algorithm == "DP-SGD")
    if algorithm == "Moreau":
        return _minibatches(n, d, problem)
    if algorithm in ("Phased-ERM", "Phased-SGD"):
        return _phased(n, d, problem, algorithm == "Phased-ERM")
    raise ValueError(f"The comparison has no algorithm '{algorithm}'.")


def run_sound(plan: SoundPlan, X: Array, y: Array, seed: int) -> Array:
    """Return the coefficients that a plan releases on data, intercept first; seeded, for
    comparisons.
    """
    bounds = plan.certificate.bounds
    assert isinstance(bounds, LinearBounds)
    rows = MemoryRows(X, y, RowMap(X.shape[1], bounds.row_norm), threads=1)
    assert isinstance(bounds.loss, Loss)
    objective = EmpiricalObjective(rows, bounds.loss, bounds.alpha)
    return np.asarray(plan.mechanism.release(objective, plan.certificate, seed))
