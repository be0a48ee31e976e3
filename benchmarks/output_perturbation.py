"""Output perturbation against the paper's printed constants, and its solvers against their
corollaries.

Excess risks are means over the same noise directions, so their ratio is that of the calibrations.
The paper's Algorithm 6 is run as printed, with noise too small by sqrt(2) for its claim.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from benchmarks import Measurement, one_time
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Huber, Logistic, Pinball
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import EmpiricalObjective
from dpconvex.planning import linear_preset
from dpconvex.privacy import ApproxDP, LinearBounds
from dpconvex.solvers import newton_or_lbfgs
from dpconvex_reproduction.output_perturbation import algorithm_1, algorithm_6
from dpconvex_reproduction.output_perturbation.accelerated import AcceleratedGradient, Katyusha
from dpconvex_reproduction.output_perturbation.paper_tables import solver_iterations
from dpconvex_reproduction.output_perturbation.presets import OutputProblem, output_preset
from dpconvex_reproduction.output_perturbation.subgradient import StochasticSubgradient, Subgradient

EPSILON = 1.0
DELTA = 1e-5
RADIUS = 2.0


def make_rows(n: int, d: int, labels: bool) -> MemoryRows:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, d))
    truth = rng.normal(size=d)
    z = X @ (RADIUS * truth / np.linalg.norm(truth))
    y = z + 0.3 * rng.standard_normal(n)
    if labels:
        y = np.where(rng.random(n) < expit(z), 1.0, -1.0)
    return MemoryRows(X, y, RowMap.from_bounds(d, (-1.0, 1.0), row_norm=1.0))


def bounds_for(rows: MemoryRows, loss: object, alpha: float) -> LinearBounds:
    facts = rows.row_map
    return LinearBounds(rows.n_rows, facts.n_features, loss, 1.0, facts.max_norm, alpha=alpha)


def mean_excess(
    objective: EmpiricalObjective, lowest: float, point: np.ndarray, std: float
) -> float:
    draws = np.random.default_rng(1).standard_normal((200, objective.dim))
    return float(np.mean([objective.value(point + std * draw) for draw in draws])) - lowest


def against_printed_constants() -> Iterator[Measurement]:
    n = 5_000
    d = 5
    for name, loss in (("logistic", Logistic()), ("Huber", Huber(0.5))):
        rows = make_rows(n, d, name == "logistic")
        facts = bounds_for(rows, loss, 1.0)
        beta = facts.smoothness
        plain = OutputProblem(facts.lipschitz, RADIUS, n, d + 1, EPSILON, DELTA, smoothness=beta)

        def release(alpha: float, rows: MemoryRows = rows, loss: object = loss) -> tuple:
            bounds = bounds_for(rows, loss, alpha)
            mechanism = OutputPerturbation()
            certificate = mechanism.certify(bounds, ApproxDP(EPSILON, DELTA))
            objective = EmpiricalObjective(rows, loss, alpha)
            point = mechanism.minimise(objective, certificate)
            return objective, point, certificate.noise["release"]["std"]

        # Algorithm 1: an objective that is strongly convex to begin with.
        alpha = 0.05
        strong = OutputProblem(
            facts.lipschitz, RADIUS, n, d + 1, EPSILON, DELTA, alpha, beta + alpha
        )
        printed = algorithm_1(strong, output_preset(strong).accuracy)
        objective, point, std = release(alpha)
        lowest = objective.value(point)
        ours, theirs = (mean_excess(objective, lowest, point, s) for s in (std, printed.std))
        yield Measurement(
            f"excess risk / Algorithm 1, {name}",
            ours / theirs,
            0.6,
            detail=f"{ours:.2e} / {theirs:.2e}",
        )

        # Algorithm 6: regularised as Theorem 3.5 says, ours by our own bound; both from public
        # facts alone. The risk is that of the plain objective, the bias of the penalty included.
        preset = output_preset(plain)
        printed = algorithm_6(plain, preset.alpha, preset.accuracy)
        chosen = linear_preset(facts, ApproxDP(EPSILON, DELTA), RADIUS).alpha
        risk = EmpiricalObjective(rows, loss, 0.0)
        lowest = _lowest(rows, loss)
        _, their_point, same = release(preset.alpha)
        theirs = mean_excess(risk, lowest, their_point, printed.std)
        _, point, std = release(chosen)
        ours = mean_excess(risk, lowest, point, std)
        equal = mean_excess(risk, lowest, their_point, same)
        yield Measurement(
            f"excess risk / Algorithm 6 as printed, {name}",
            ours / theirs,
            0.6,
            detail=f"{ours:.2e} / {theirs:.2e}, alpha {chosen:.2g} / {preset.alpha:.2g}",
        )
        yield Measurement(
            f"excess risk / Algorithm 6 as printed, their alpha, {name}",
            equal / theirs,
            detail=f"{equal:.2e} / {theirs:.2e}",
        )


def _lowest(rows: MemoryRows, loss: object) -> float:
    """Value of the unpenalised minimum, from a penalty too small to matter."""
    tiny = EmpiricalObjective(rows, loss, 1e-7)
    point = newton_or_lbfgs(tiny.dim).solve(tiny, np.zeros(tiny.dim), 1e-9).point
    return EmpiricalObjective(rows, loss, 0.0).value(point)


def against_scipy() -> Iterator[Measurement]:
    """The default solver against scipy's L-BFGS-B, to the gradient norm scipy reaches."""
    n = 100_000
    d = 50
    alpha = 1e-3
    rows = make_rows(n, d, labels=True)
    objective = EmpiricalObjective(rows, Logistic(), alpha)
    tolerance = 1e-10 * objective.gradient_bound
    start = np.zeros(objective.dim)
    X, y, w = rows.mapped()
    signed = y[:, None] * X
    trace: list[tuple[float, float]] = []

    class Met(Exception):
        pass

    def function(theta: np.ndarray) -> tuple[float, np.ndarray]:
        margin = signed @ theta
        value = w @ np.logaddexp(0.0, -margin) / n + alpha / 2 * (theta @ theta)
        gradient = -(w * expit(-margin)) @ signed / n + alpha * theta
        norm = float(np.linalg.norm(gradient))
        trace.append((time.perf_counter() - begin, norm))
        if norm <= tolerance:
            raise Met
        return value, gradient

    solver = newton_or_lbfgs(objective.dim)
    solver.solve(objective, start, tolerance)  # compiles
    before = one_time(lambda: solver.solve(objective, start, tolerance))
    begin = time.perf_counter()
    options = {"maxiter": 2000, "maxfun": 2000, "ftol": 0.0, "gtol": 0.0}
    with contextlib.suppress(Met):
        minimize(function, start, jac=True, method="L-BFGS-B", options=options)
    target = max(tolerance, 1.5 * min(norm for _, norm in trace))
    theirs = next(seconds for seconds, norm in trace if norm <= target)
    ours = max(before, one_time(lambda: solver.solve(objective, start, target)))
    yield Measurement(
        "default solver / scipy L-BFGS-B, logistic n=1e5 d=50",
        ours / theirs,
        1.0,
        detail=f"{ours * 1e3:.0f} ms / {theirs * 1e3:.0f} ms to a relative gradient of "
        f"{target / objective.gradient_bound:.1e}",
    )


def against_corollaries() -> Iterator[Measurement]:
    """Steps that our solvers need, over those the paper's corollaries allow (without their
    hidden constants).
    """
    n = 2_000
    d = 5
    alpha = 0.05
    smooth = make_rows(n, d, labels=True)
    kinked = make_rows(n, d, labels=False)
    cases = [
        ("accelerated", AcceleratedGradient(restart=False), smooth, Logistic(), 1.0),
        ("katyusha", Katyusha(), smooth, Logistic(), 3.0 * n),
        ("subgradient", Subgradient(), kinked, Pinball(0.7), 1.0),
        ("stochastic subgradient", StochasticSubgradient(), kinked, Pinball(0.7), 16.0),
    ]
    for name, solver, rows, loss, visits in cases:
        facts = bounds_for(rows, loss, alpha)
        smoothness = facts.smoothness + alpha if math.isfinite(facts.smoothness) else math.inf
        problem = OutputProblem(
            facts.lipschitz, RADIUS, n, d + 1, EPSILON, DELTA, alpha, smoothness
        )
        preset = output_preset(problem)
        if math.isinf(smoothness):
            # The prescribed 1/n^2 accuracy takes hours; the rate is the same at a larger one.
            preset = output_preset(
                OutputProblem(facts.lipschitz, RADIUS, 50, d + 1, EPSILON, DELTA, alpha, smoothness)
            )
        objective = EmpiricalObjective(rows, loss, alpha)
        tolerance = math.sqrt(2 * alpha * preset.accuracy)
        found = solver.solve(objective, np.zeros(objective.dim), tolerance)
        allowed = solver_iterations(problem, preset, name)
        yield Measurement(
            f"steps / corollary, {name}",
            found.iterations * visits / allowed,
            detail=f"{found.iterations * visits:.0f} / {allowed:.0f} to a gap of "
            f"{preset.accuracy:.1e}",
        )


def run() -> Iterator[Measurement]:
    yield from against_printed_constants()
    yield from against_scipy()
    yield from against_corollaries()
