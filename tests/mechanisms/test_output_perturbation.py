"""Output perturbation: calibration, certificates, and solvers that are never believed."""

import math
import warnings

import numpy as np
import pytest

from dpconvex import DPQuantileRegressor
from dpconvex.core.calibration import grid_of
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    Pinball,
    PointwiseLoss,
    SoftThreshold,
    Squared,
)
from dpconvex.mechanisms import ObjectivePerturbation, OutputPerturbation, resolve_mechanism
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import (
    ApproxDP,
    Certificate,
    CertificateError,
    GaussianDP,
    LinearBounds,
    NoiseSource,
    PureDP,
    gaussian_scale,
)
from dpconvex.smoothing import LogisticKernel, convolve
from dpconvex.solvers import LBFGS, ConvergenceError, Newton, Solution, certify_point


def bounds_of(loss=None, n=200, d=2, alpha=0.05, **settings):
    return LinearBounds(n, d, loss or Logistic(), 1.0, math.sqrt(d), alpha=alpha, **settings)


def objective_of(bounds, seed=0, n_rows=None):
    rng = np.random.default_rng(seed)
    n = n_rows or bounds.n_samples
    X = rng.uniform(-1, 1, (n, bounds.n_features))
    y = X.sum(axis=1) + 0.3 * rng.standard_normal(n)
    if bounds.loss.kind == "margin":
        y = np.where(y > 0, 1.0, -1.0)
    rows = MemoryRows(X, y, RowMap.from_bounds(bounds.n_features, (-1.0, 1.0), row_norm=1.0))
    return EmpiricalObjective(rows, bounds.loss, bounds.alpha, divisor=bounds.n_samples)


@pytest.mark.parametrize(("neighbors", "records"), [("replace_one", 2), ("add_or_remove_one", 1)])
def test_noise_follows_the_formulas(neighbors, records):
    bounds = bounds_of(neighbors=neighbors)
    exact = records * math.sqrt(2) / (200 * 0.05)
    tolerance = {2: 1e-10, 1: 1e-10 * 2e6 / 200}[records] * math.sqrt(2)
    sensitivity = exact + 2 * tolerance / 0.05
    assert bounds.minimiser_sensitivity() == pytest.approx(exact, rel=1e-12)

    def noise(guarantee):
        certificate = OutputPerturbation().certify(bounds, guarantee)
        certificate.verify()
        return certificate, certificate.noise["release"]

    certificate, term = noise(GaussianDP(0.7))
    assert certificate.sampler == "exact"
    assert certificate.solver_tolerance == pytest.approx(tolerance)
    assert dict(term) == {
        "distribution": "gaussian",
        "scale": pytest.approx(sensitivity / 0.7, rel=1e-6),
        "sensitivity": pytest.approx(sensitivity, rel=1e-12),
        "dimension": 3,
        "added_to": "coefficients",
        "releases": 1,
        "tolerance": certificate.solver_tolerance,
        "grid": grid_of(term.scale),
        "query": "",
        "record_bound": 0.0,
    }
    assert term["std"] >= (sensitivity + term.grid * math.sqrt(3)) / 0.7  # rounding is paid for
    _, term = noise(ApproxDP(1.0, 1e-5))
    assert term["std"] == pytest.approx(gaussian_scale(1.0, 1e-5, sensitivity), rel=2e-6)
    certificate, term = noise(PureDP(2.0))
    assert certificate.sampler == "exact"
    assert term["scale"] == pytest.approx(sensitivity / 2.0, rel=1e-6)
    assert term["scale"] >= (sensitivity + term.grid * math.sqrt(3)) / 2.0
    assert noise(ApproxDP(2.0, 0.0))[1] == term


def test_certificates_survive_json_and_notice_edits():
    mechanism = OutputPerturbation(gap=1e-3, radius=3.0)
    for loss in (Logistic(), Pinball(0.8), convolve(Pinball(0.5), LogisticKernel(), 0.1)):
        certificate = mechanism.certify(bounds_of(loss), ApproxDP(1.0, 1e-6), {"note": 1})
        again = Certificate.from_json(certificate.to_json())
        again.verify()
        assert again == certificate
        assert again.parameters == {"note": 1, "solver_gap": 1e-3, "release_radius": 3.0}
        for field, old, new in (
            ("noise", '"scale": ', '"scale": 0.5'),
            ("gap", '"solver_gap": 0.001', '"solver_gap": 0.0001'),
            ("radius", '"release_radius": 3.0', '"release_radius": 9.0'),
        ):
            edited = certificate.to_json().replace(old, new)
            assert edited != certificate.to_json(), field
            with pytest.raises(CertificateError):
                Certificate.from_json(edited).verify()


def test_kinked_losses_cost_no_more_noise_than_smooth_ones():
    """The envelope has the loss's own slope; only its tolerance is coarser, by a public 1 %."""
    smooth = convolve(Pinball(0.8), LogisticKernel(), 0.1)
    for n, alpha in ((50, 0.1), (10_000, 1e-2), (10**6, 1e-3)):
        kinked, reference = (
            OutputPerturbation()
            .certify(bounds_of(loss, n=n, alpha=alpha), GaussianDP(1.0))
            .noise["release"]["std"]
            for loss in (Pinball(0.8), smooth)
        )
        assert 1.0 <= kinked / reference <= 1.0101


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.2), Pinball(0.3), Hinge(), Absolute()])
@pytest.mark.parametrize("gap", [None, 1e-3])
def test_release_is_the_minimiser_plus_the_certified_noise(loss, gap):
    bounds = bounds_of(loss)
    objective = objective_of(bounds)
    mechanism = OutputPerturbation(gap=gap)
    certificate = mechanism.certify(bounds, GaussianDP(1.0), seeded=True)
    released = mechanism.release(objective, certificate, NoiseSource(5))
    noise = NoiseSource(5).gaussian(certificate.noise["release"]["std"], 3)
    point = mechanism.minimise(objective, certificate)
    np.testing.assert_allclose(released, point + noise, atol=1e-12)
    # A minimiser of the loss itself: the envelope's bias is of no importance.
    others = point + 0.05 * np.random.default_rng(0).standard_normal((50, 3))
    slack = gap or 1e-4
    assert all(objective.value(point) <= objective.value(other) + slack for other in others)


def gives_up(objective, start, tolerance):
    raise ConvergenceError("No point was found.")


@pytest.mark.parametrize(
    "solver",
    [
        None,
        Newton(),
        LBFGS(),
        "L-BFGS-B",
        "BFGS",
        lambda objective, start, tolerance: start + 1.0,
        lambda objective, start, tolerance: np.full(3, np.nan),
        lambda objective, start, tolerance: 1 / 0,
        lambda objective, start, tolerance: "no point at all",
        lambda objective, start, tolerance: warnings.warn("data-dependent", stacklevel=1),
        gives_up,
    ],
)
@pytest.mark.parametrize("loss", [Logistic(), Hinge()])
def test_no_solver_is_believed(solver, loss):
    """Answers that are short, absurd or missing are polished or replaced, without a sign of it."""
    bounds = bounds_of(loss)
    objective = objective_of(bounds)
    mechanism = OutputPerturbation(solver)
    certificate = mechanism.certify(bounds, PureDP(1.0))
    point = mechanism.minimise(objective, certificate)
    reference = OutputPerturbation().minimise(objective, certificate)
    distance = np.linalg.norm(point - reference)
    assert distance <= 2 * certificate.solver_tolerance / bounds.alpha
    if loss == Logistic():
        assert certify_point(objective, point, certificate.solver_tolerance) is not None


@pytest.mark.parametrize("solver", [None, gives_up, "L-BFGS-B"])
def test_a_gap_is_certified_at_the_point(solver):
    bounds = bounds_of(Pinball(0.7))
    objective = objective_of(bounds)
    mechanism = OutputPerturbation(solver, gap=1e-3)
    certificate = mechanism.certify(bounds, PureDP(1.0))
    assert certificate.solver_tolerance == pytest.approx(math.sqrt(2 * 0.05 * 1e-3))
    point = mechanism.minimise(objective, certificate)
    solution = certify_point(objective, point, certificate.solver_tolerance)
    best = OutputPerturbation().minimise(
        objective, OutputPerturbation().certify(bounds, PureDP(1.0))
    )
    assert objective.value(point) - objective.value(best) <= 1e-3
    assert solution is None or solution.gap <= 1e-3


def test_add_or_remove_one_with_any_number_of_rows():
    bounds = bounds_of(neighbors="add_or_remove_one")
    for rows in (1, 50, 2000):
        certificate = OutputPerturbation().certify(bounds, PureDP(1.0))
        objective = objective_of(bounds, n_rows=rows)
        point = OutputPerturbation().minimise(objective, certificate)
        assert np.linalg.norm(objective.gradient(point)) <= certificate.solver_tolerance


@pytest.mark.parametrize("loss", [Pinball(0.8), Absolute(), Huber(1e-3), SoftThreshold(0.3)])
@pytest.mark.parametrize("gap", [None, 1e-2])
def test_wild_targets_neither_move_the_minimiser_nor_stop_the_solver(loss, gap):
    """A record of any size must be answered: a failure would reveal it."""
    bounds = bounds_of(loss, n=30, d=6, alpha=1e-2)
    row_map = RowMap.from_bounds(6, (-1.0, 1.0), row_norm=1.0)
    certificate = OutputPerturbation(gap=gap).certify(bounds, PureDP(1.0))

    def minimiser(y):
        rows = MemoryRows(X, y, row_map)
        objective = EmpiricalObjective(rows, loss, bounds.alpha)
        return OutputPerturbation(gap=gap).minimise(objective, certificate)

    rng = np.random.default_rng(0)
    for _ in range(10):
        X = rng.uniform(-1, 1, (30, 6))
        y = X.sum(axis=1) * 10.0 ** rng.integers(0, 12, 30)
        limit = 2 * bounds.lipschitz / bounds.alpha * math.sqrt(7)
        moderate = minimiser(np.clip(y, -limit, limit))
        distance = np.linalg.norm(minimiser(y) - moderate)
        assert distance <= 2 * certificate.solver_tolerance / bounds.alpha


def test_release_is_projected_on_the_public_ball():
    bounds = bounds_of(alpha=0.001)
    mechanism = OutputPerturbation(radius=0.5)
    certificate = mechanism.certify(bounds, GaussianDP(0.1), seeded=True)
    released = mechanism.release(objective_of(bounds), certificate, NoiseSource(0))
    assert np.linalg.norm(released) == pytest.approx(0.5)


def test_exact_noise_without_a_seed():
    bounds = bounds_of()
    certificate = OutputPerturbation().certify(bounds, GaussianDP(1.0))
    objective = objective_of(bounds)
    point = OutputPerturbation().minimise(objective, certificate)
    released = OutputPerturbation().release(objective, certificate, NoiseSource())
    # Beyond 12 standard deviations with probability 1e-32.
    assert 0 < np.linalg.norm(released - point) < 12 * 3 * certificate.noise["release"]["std"]


class Curved(PointwiseLoss):
    """A user's loss that is neither smooth nor piecewise linear."""

    lipschitz = 1.0
    smoothness = math.inf

    def value_at(self, u):
        return np.hypot(u, 1e-3) + np.abs(u)

    slope_at = curvature_at = value_at


def test_refusals_name_the_remedy():
    mechanism = OutputPerturbation()
    claim = PureDP(1.0)
    with pytest.raises(ValueError, match=r"alpha above 0.*linear_preset"):
        mechanism.certify(bounds_of(alpha=0.0), claim)
    with pytest.raises(ValueError, match=r"lipschitz=inf. Use Huber"):
        mechanism.certify(bounds_of(Squared()), claim)
    with pytest.raises(TypeError, match="KinkedLoss"):
        mechanism.certify(bounds_of(Curved()), claim)
    with pytest.raises(ValueError, match=r"'gap' parameter of OutputPerturbation must be at least"):
        OutputPerturbation(gap=1e-12).certify(bounds_of(Pinball(0.5)), claim)
    with pytest.raises(ValueError, match="'gap' parameter of OutputPerturbation"):
        OutputPerturbation(gap=0.0).certify(bounds_of(), claim)
    with pytest.raises(ValueError, match="'radius' parameter of OutputPerturbation"):
        OutputPerturbation(radius=-1.0).certify(bounds_of(), claim)


def test_any_promised_gap_can_be_kept():
    """The smallest gap that certify accepts is reached on data full of ties."""
    from dpconvex.mechanisms.output_perturbation import _smallest_output_gap

    for loss in (Pinball(0.5), Hinge(), Logistic()):
        bounds = bounds_of(loss, n=60, alpha=0.01)
        mechanism = OutputPerturbation(gap=1.01 * _smallest_output_gap(bounds))
        certificate = mechanism.certify(bounds, PureDP(1.0))
        X = np.sign(np.random.default_rng(0).standard_normal((60, 2)))
        rows = MemoryRows(X, X[:, 0], RowMap.from_bounds(2, (-1.0, 1.0), row_norm=1.0))
        objective = EmpiricalObjective(rows, loss, bounds.alpha)
        point = mechanism.minimise(objective, certificate)
        assert certify_point(objective, point, certificate.solver_tolerance) is not None


def test_name():
    assert isinstance(resolve_mechanism("output", "Test"), OutputPerturbation)


class _Liar:
    """Claims an exact minimiser at a point of its own."""

    def solve(self, objective, start, tolerance):
        return Solution(np.full(objective.dim, 3.0), 0.0, 1)


@pytest.mark.parametrize("mechanism", [ObjectivePerturbation, OutputPerturbation])
def test_a_solver_is_never_believed(mechanism):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (300, 2))
    settings = {"feature_bounds": (0, 1), "target_bounds": (0, 2), "random_state": 0}
    lied, honest = (
        DPQuantileRegressor(mechanism=mechanism(solver=solver), **settings).fit(X, X.sum(axis=1))
        for solver in (_Liar(), None)
    )
    np.testing.assert_allclose(lied.coef_, honest.coef_, rtol=1e-6)


@pytest.mark.parametrize("solver", [3, "newton-ish", object()])
@pytest.mark.parametrize("mechanism", [ObjectivePerturbation, OutputPerturbation])
def test_what_is_no_solver_is_refused_before_data(mechanism, solver):
    model = DPQuantileRegressor(
        mechanism=mechanism(solver=solver), feature_bounds=(0, 1), target_bounds=(0, 2)
    )
    with pytest.raises(ValueError, match="'solver' parameter of"):
        model.certify(300, 2)
