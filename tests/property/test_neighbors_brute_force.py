"""Brute force on tiny data: no record and no neighbour exceeds a constant that a certificate rests
on.

Claims come from the plan of DPQuantileRegressor and rows from its own map, so intercept, clipping,
influence weights and target scale are those of a fit. The same check, run against four ways to get
the constants wrong, must fail: that is what makes it worth running.
"""

import math
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest
from coupled_runs import Silence
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex import DPQuantileRegressor
from dpconvex.core.private_rows import PrivateRows
from dpconvex.core.queries import (
    QueryFactor,
    QuerySlope,
    largest_query_cancellation,
    pack_query_matrix,
)
from dpconvex.core.row_coordinates import coordinate_cancellation
from dpconvex.engine import MemoryRows
from dpconvex.fit.geometry import RowGeometry, column_octaves
from dpconvex.inputs.people_and_weights import PersonUnit
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.objectives import EmpiricalObjective
from dpconvex.smoothing import LogisticKernel, convolve
from dpconvex.solvers import Newton

REPLACE = "replace_one"
ADD_REMOVE = "add_or_remove_one"
KERNELS = ["logistic", "gaussian", "uniform", "epanechnikov", "laplacian"]
ROUNDING = 1 + 1e-12
FIXED = settings(max_examples=400, derandomize=True, deadline=None, database=None)


class Ratios(dict):
    """Largest ratio of what was seen to what is claimed, by claim."""

    def see(self, claim, seen, bound):
        assert seen <= bound * ROUNDING, f"{claim}: {seen!r} exceeds {bound!r}"
        self[claim] = max(self.get(claim, 0.0), seen / bound)


@dataclass(frozen=True)
class World:
    """Public facts of a fit, and how it turns data into an objective; fields can be sabotaged."""

    bounds: object
    row_map: object
    target_shift: float = 0.0
    target_scale: float = 1.0
    build: type = field(default=EmpiricalObjective)

    @classmethod
    def of(cls, estimator, n, d):
        plan = estimator._plan(PersonUnit(n), d)
        bounds = plan.certificate.bounds
        return cls(bounds, plan.row_map, plan.target_shift, plan.target_scale)

    def objective(self, X, y, alpha=None):
        rows = MemoryRows(X, y, self.row_map, self.target_shift, self.target_scale, threads=1)
        alpha = self.bounds.alpha if alpha is None else alpha
        return self.build(rows, self.bounds.loss, alpha, divisor=self.bounds.n_samples)


def worst_points(world, X, y):
    """Coefficients that put some record at its steepest slope or its largest curvature."""
    rows, targets, _ = world.objective(X, y).rows.mapped()
    yield np.zeros(rows.shape[1])
    for row, target in zip(rows, targets, strict=True):
        square = row @ row
        if square > 0 and abs(target) < 1e8:
            yield row * (target / square)  # residual 0
        for sign in (-1.0, 1.0):
            yield sign * row * 1e6


def check_records(world, X, y, ratios):
    """Every record keeps to the claimed gradient norm and curvature."""
    bounds = world.bounds
    for i in range(len(X)):
        record = world.objective(X[i : i + 1], y[i : i + 1], alpha=0.0)
        for theta in worst_points(world, X[i : i + 1], y[i : i + 1]):
            gradient = bounds.n_samples * record.gradient(theta)
            ratios.see("lipschitz", np.linalg.norm(gradient), bounds.lipschitz)
            hessian = bounds.n_samples * record.hessian(theta)
            ratios.see("smoothness", np.linalg.eigvalsh(hessian)[-1], bounds.smoothness)


def check_neighbors(world, first, second, ratios):
    """Two neighbouring data sets keep to the claimed sensitivities."""
    bounds = world.bounds
    pair = [world.objective(*data) for data in (first, second)]
    tolerance = bounds.solver_tolerance()
    start = np.zeros(bounds.dimension)
    points = [Newton().solve(objective, start, tolerance).point for objective in pair]
    for theta in [*points, *worst_points(world, *second)]:
        difference = bounds.n_samples * (pair[0].gradient(theta) - pair[1].gradient(theta))
        # Terms common to both, like alpha theta, cancel up to rounding.
        lost = 1e-14 * bounds.n_samples * bounds.alpha * np.linalg.norm(theta)
        seen = max(np.linalg.norm(difference) - lost, 0.0)
        ratios.see("gradient sum", seen, bounds.gradient_sum_sensitivity())
    distance = np.linalg.norm(points[0] - points[1])
    ratios.see("minimiser", distance, bounds.minimiser_sensitivity(tolerance))


def neighbors_of(X, y, record, target, relation):
    """Yield all neighbours that put the record in a place of its own, or leave one out."""
    if relation == REPLACE:
        for i in range(len(X)):
            rows = X.copy()
            targets = y.copy()
            rows[i] = record
            targets[i] = target
            yield rows, targets
    else:
        yield np.vstack([X, record]), np.append(y, target)
        for i in range(len(X)) if len(X) > 1 else ():
            yield np.delete(X, i, axis=0), np.delete(y, i)


def check(world, X, y, record, target, ratios=None):
    """Check every claim on the data, on its neighbours and between them."""
    ratios = Ratios() if ratios is None else ratios
    for neighbor in neighbors_of(X, y, record, target, world.bounds.neighbors):
        check_records(world, *neighbor, ratios)
        check_neighbors(world, (X, y), neighbor, ratios)
    return ratios


@st.composite
def estimators(draw, relation):
    """An estimator with everything set that its constants depend on."""
    d = draw(st.integers(1, 3))
    bounded = draw(st.booleans())
    low = np.array([draw(st.sampled_from([-7.0, -1.0, 0.0, 3.0])) for _ in range(d)])
    width = np.array([draw(st.sampled_from([0.5, 1.0, 20.0])) for _ in range(d)])
    row_norm = draw(st.sampled_from([None, 0.3, 1.0, 2.5]))
    estimator = DPQuantileRegressor(
        draw(st.sampled_from([0.01, 0.3, 0.5, 0.9])),
        epsilon=60.0,
        delta=1e-3,
        neighbors=relation,
        nominal_samples=None if relation == REPLACE else draw(st.integers(1, 9)),
        feature_bounds=(low, low + width) if bounded else None,
        target_bounds=draw(st.sampled_from([None, (-5.0, 45.0)])),
        row_norm=row_norm,
        fit_intercept=draw(st.booleans()),
        alpha=draw(st.sampled_from([0.01, 0.3, 5.0])),
        bandwidth=draw(st.sampled_from([0.05, 0.7])),
        kernel=draw(st.sampled_from(KERNELS)),
        mechanism="objective",
    )
    return estimator, d


extremes = [0.0, -1e300, 1e300, 1e9, -1e9]
values = st.one_of(st.sampled_from(extremes), st.floats(-30, 30, width=32))


@pytest.mark.parametrize("relation", [REPLACE, ADD_REMOVE])
def test_no_neighbor_exceeds_a_claimed_constant(relation):
    ratios = Ratios()

    @FIXED
    @given(st.data())
    def run(data):
        estimator, d = data.draw(estimators(relation))
        n = data.draw(st.integers(1, 6))
        table = data.draw(st.lists(values, min_size=(n + 1) * (d + 1), max_size=(n + 1) * (d + 1)))
        table = np.array(table).reshape(n + 1, d + 1)
        world = World.of(estimator, n, d)
        X = table[:n, :d]
        y = table[:n, d]
        # One neighbour is enough for a random case: hypothesis looks for the worst.
        neighbors = list(neighbors_of(X, y, table[n, :d], table[n, d], relation))
        neighbor = neighbors[data.draw(st.integers(0, len(neighbors) - 1))]
        check_records(world, *neighbor, ratios)
        check_neighbors(world, (X, y), neighbor, ratios)

    run()
    # Records reach what is claimed of one record, so the claims are not idle.
    assert min(ratios["lipschitz"], ratios["smoothness"]) > 0.99
    assert ratios["gradient sum"] > 0.8


def adversary(relation=REPLACE, quantile=0.5, fit_intercept=True, bounds=(-1.0, 1.0), **options):
    """Tiny data whose one record is as bad as the public bounds allow."""
    estimator = DPQuantileRegressor(
        quantile,
        epsilon=60.0,
        delta=1e-3,
        neighbors=relation,
        nominal_samples=None if relation == REPLACE else 2,
        feature_bounds=bounds,
        fit_intercept=fit_intercept,
        mechanism="objective",
        **{"alpha": 0.5, "bandwidth": 0.1, **options},
    )
    return World.of(estimator, 1, 2)


FAR = 1e6


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("relation", [REPLACE, ADD_REMOVE])
def test_claims_are_attained(relation, fit_intercept):
    corner = np.array([1.0, 1.0])
    ratios = Ratios()
    world = adversary(relation, fit_intercept=fit_intercept)
    X = corner[None, :]
    y = np.array([FAR])
    check(world, X, y, corner, -FAR if relation == REPLACE else FAR, ratios)
    assert min(ratios["lipschitz"], ratios["gradient sum"], ratios["minimiser"]) > 0.999
    check_records(world, X, np.array([0.3]), ratios)
    assert ratios["smoothness"] > 0.999


@pytest.mark.parametrize("row_norm", [0.2, 1.0, 1.4])
def test_curvature_of_a_weighted_row_is_attained_at_one_end(row_norm):
    # Below its influence bound a row keeps weight 1; beyond, weight falls as curvature grows.
    world = adversary(row_norm=row_norm)
    ratios = Ratios()
    for length in (row_norm, math.sqrt(2.0)):
        row = np.full((1, 2), length / math.sqrt(2.0))
        check_records(world, row, np.array([0.3]), ratios)
    assert ratios["smoothness"] > 0.999
    assert ratios["lipschitz"] > 0.999


def test_without_intercept_a_mirrored_row_attains_twice_the_slope():
    world = adversary(quantile=0.9, fit_intercept=False)
    X = np.array([[1.0, 1.0]])
    y = np.array([FAR])
    ratios = check(world, X, y, -X[0], FAR)
    assert min(ratios["gradient sum"], ratios["minimiser"]) > 0.999


class Sabotaged:
    """Bounds with some constants replaced by wrong ones."""

    def __init__(self, bounds, **wrong):
        self._bounds = bounds
        self._wrong = wrong

    def __getattr__(self, name):
        wrong = self.__dict__["_wrong"]
        return wrong[name] if name in wrong else getattr(self.__dict__["_bounds"], name)


class UnpenalisedIntercept:
    """An objective whose first coefficient escapes the penalty."""

    def __init__(self, rows, loss, alpha, divisor):
        self.inner = EmpiricalObjective(rows, loss, alpha, divisor=divisor)
        self.mask = np.eye(rows.dim)[0]

    def __getattr__(self, name):
        if name in ("inner", "subsample", "smoothed", "hessian_diagonal"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def value(self, theta):
        return self.inner.value(theta) - self.inner.alpha / 2 * theta[0] ** 2

    def gradient(self, theta):
        return self.inner.gradient(theta) - self.inner.alpha * theta[0] * self.mask

    def value_and_gradient(self, theta):
        return self.value(theta), self.gradient(theta)

    def refined_gradient(self, theta):
        gradient, error = self.inner.refined_gradient(theta)
        return gradient - self.inner.alpha * theta[0] * self.mask, error

    def hessian(self, theta):
        return self.inner.hessian(theta) - self.inner.alpha * np.outer(self.mask, self.mask)


def adversarial_cases(sabotage=lambda world: world):
    """Run the whole check over a fixed set of bad records, in a world that may be sabotaged."""
    corner = np.array([1.0, 1.0])
    few = np.array([[1.0, 1.0], [0.1, -0.2], [-0.1, 0.2]])
    for relation in (REPLACE, ADD_REMOVE):
        for options in ({}, {"bounds": (-4.0, 4.0), "row_norm": 0.5}, {"row_norm": 1.0}):
            world = sabotage(adversary(relation, **options))
            scale = 4.0 if "bounds" in options else 1.0
            spread = np.array([50.0, 50.0, -50.0])
            more = replace(world, bounds=resized(world.bounds, 3))
            check(more, few * scale, spread, corner * scale, -50.0)
            for target in (FAR, 0.0):
                check(world, corner[None, :] * scale, np.array([target]), corner * scale, -target)


def resized(bounds, n):
    if isinstance(bounds, Sabotaged):
        return Sabotaged(resized(bounds._bounds, n), **bounds._wrong)
    return replace(bounds, n_samples=n)


def test_the_adversarial_cases_pass_as_they_are():
    adversarial_cases()


def without_intercept_in_the_row(world):
    bounds = world.bounds
    slope = bounds.loss.lipschitz * min(bounds.row_norm, bounds.max_norm)
    return replace(world, bounds=Sabotaged(bounds, lipschitz=slope))


def with_row_norm_for_its_square(world):
    bounds = world.bounds
    smoothness = bounds.loss.smoothness * math.sqrt(bounds.curvature_factor)
    return replace(world, bounds=Sabotaged(bounds, smoothness=smoothness))


def with_unpenalised_intercept(world):
    return replace(world, build=UnpenalisedIntercept)


def without_influence_weights(world):
    return replace(world, row_map=replace(world.row_map, row_norm=1e9))


@pytest.mark.parametrize(
    ("sabotage", "claim"),
    [
        (without_intercept_in_the_row, "lipschitz"),
        (with_row_norm_for_its_square, "smoothness"),
        (with_unpenalised_intercept, "minimiser"),
        (without_influence_weights, "lipschitz"),
    ],
)
def test_wrong_constants_are_caught(sabotage, claim):
    with pytest.raises(AssertionError, match=claim):
        adversarial_cases(sabotage)


def check_gradient_sums(world, certificate, first, second, frame, points, ratios):
    """All sums that noisy gradient descent releases keep to the sensitivities it calibrates to."""
    noise = certificate.noise
    bounds = certificate.bounds
    often = {name: replace(term, releases=10**6) for name, term in noise.items()}
    asked = SimpleNamespace(bounds=bounds, noise=often, verify=lambda: None)
    handles = [
        PrivateRows([world.objective(*data).rows], asked, Silence()) for data in (first, second)
    ]
    loss = bounds.loss
    size = frame.median_row_norm
    if coordinate_cancellation(frame.matrix) > largest_query_cancellation(bounds):  # refused
        return
    above = certificate.parameters["fit"]["max_octaves"]
    sums = [handle.column_octaves("columns", above, column_octaves(above)) for handle in handles]
    ratios.see("columns", np.linalg.norm(sums[0] - sums[1]), noise["columns"]["sensitivity"])
    sums = [pack_query_matrix(handle.second_moments("moments", frame, 0.7)) for handle in handles]
    ratios.see("moments", np.linalg.norm(sums[0] - sums[1]), noise["moments"]["sensitivity"])
    for phi, width in points:
        smooth = convolve(loss, LogisticKernel(), width)
        theta = frame.row_coefficients(phi)
        for name, offset in (("rough gradients", sum(loss.slope_range) / 2), ("gradients", 0)):
            slope = QuerySlope(smooth, offset)
            sums = [h.slope_sum(name, theta, slope, frame, size) / size for h in handles]
            seen = np.linalg.norm(sums[0] - sums[1])
            ratios.see(name, seen, noise[name]["sensitivity"])
        if "curvature" in noise:
            factor = QueryFactor("inside", width=1e9, weighting="square")
            sums = [
                pack_query_matrix(handle.second_moments("curvature", frame, size, factor, theta))
                for handle in handles
            ]
            seen = np.linalg.norm(sums[0] - sums[1])
            ratios.see("curvature", seen, noise["curvature"]["sensitivity"])


@pytest.mark.parametrize("relation", [REPLACE, ADD_REMOVE])
def test_noisy_gradients_keep_to_their_sensitivities(relation):
    # Coordinates are released before gradients are: the sums must be bounded for all of them.
    ratios = Ratios()

    @settings(FIXED, max_examples=120)
    @given(st.data())
    def run(data):
        estimator, d = data.draw(estimators(relation))
        mu = data.draw(st.sampled_from([0.3, 1e3]))  # where curvature is released as well
        budget = {"mu": mu, "epsilon": None, "delta": None}
        estimator.set_params(mechanism=NoisyGradientDescent(), alpha=None, **budget)
        n = data.draw(st.integers(1, 6))
        table = data.draw(st.lists(values, min_size=(n + 1) * (d + 1), max_size=(n + 1) * (d + 1)))
        table = np.array(table).reshape(n + 1, d + 1)
        plan = estimator._plan(PersonUnit(n), d)
        world = World.of(estimator, n, d)
        lead = int(world.bounds.fit_intercept)
        rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
        matrix = rng.normal(size=(d + lead, d + lead)) * data.draw(
            st.sampled_from([0.01, 1.0, 1e3])
        )
        matrix[:lead] = np.eye(d + lead)[:lead]
        X = table[:n, :d]
        y = table[:n, d]
        neighbor = next(neighbors_of(X, y, table[n, :d], table[n, d], relation))
        points = [(rng.normal(size=d + lead) * size, 0.1) for size in (0.1, 1e3, 1e6)]
        frame = RowGeometry(matrix, lead, median_row_norm=2.0, moments=np.ones(d + lead))
        check_gradient_sums(world, plan.certificate, (X, y), neighbor, frame, points, ratios)

    run()
    assert min(ratios[name] for name in ("columns", "gradients", "rough gradients")) > 0.9
    assert ratios["curvature"] > 0.5
