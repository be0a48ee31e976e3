"""Structured losses, their records and their objective."""

import time

import numpy as np
import pytest

from dpconvex.core.threads import single_threaded_blas
from dpconvex.losses import (
    Bowl,
    Huber,
    L1Norm,
    L1WithLink,
    Logistic,
    PiecewiseLinear,
    Pinball,
    Squared,
)
from dpconvex.losses.max_affine import group_affine_pieces, max_affine_envelope
from dpconvex.mechanisms import ObjectivePerturbation, StructuredGradientDescent
from dpconvex.objectives import StructuredObjective, StructuredRecords
from dpconvex.objectives.structured_objective import structured_spectral_norms
from dpconvex.privacy import ApproxDP, Certificate, GaussianDP, PureDP, StructuredBounds
from dpconvex.smoothing import GaussianKernel, convolve_vector
from dpconvex.solvers import Newton

LARGEST = PiecewiseLinear(np.concatenate([np.eye(3), -np.eye(3)]))


_TRIANGLE = [[1.0, 0.3], [-0.7, 0.9], [0.1, -1.1]]


def problem(n=60, m=3, d=4, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, m, d))
    return A, A @ rng.normal(size=d) + rng.normal(size=(n, m))


def objective(loss, alpha=0.1, norm=2.0, **options):
    A, Y = problem(m=loss.outputs)
    link = 1.5 if loss.link is not None else 0.0
    return StructuredObjective(StructuredRecords(A, Y, norm, link, **options), loss, alpha)


@pytest.mark.parametrize("seed", range(5))
def test_pieces_are_the_same_function(seed):
    rng = np.random.default_rng(seed)
    slopes = rng.integers(-2, 3, size=(7, 2)).astype(float)
    offsets = rng.normal(size=7)
    u = rng.normal(size=(400, 2)) * 3
    expected = (u @ slopes.T + offsets).max(axis=1)
    for centre in (np.zeros(2), slopes[0], np.array([0.3, -1.0])):
        pieces = group_affine_pieces(slopes, offsets, centre)
        best = np.full(len(u), pieces.floor)
        for group in pieces.groups:
            x = u @ np.array(group.direction)
            if group.rise:
                best = np.maximum(best, group.rise * x + group.high)
            if group.fall:
                best = np.maximum(best, group.low - group.fall * x)
        np.testing.assert_allclose(best + u @ centre, expected, atol=1e-12)
    np.testing.assert_allclose(PiecewiseLinear(slopes, offsets).value(u), expected)


def test_upper_envelope():
    rng = np.random.default_rng(1)
    x = np.linspace(-20, 20, 801)
    for _ in range(50):
        slopes = rng.integers(-3, 4, size=6).astype(float)
        offsets = rng.normal(size=6)
        if np.ptp(slopes) == 0:
            continue
        expected = (np.outer(x, slopes) + offsets).max(axis=1)
        np.testing.assert_allclose(
            max_affine_envelope(slopes, offsets).value(x), expected, atol=1e-9
        )


@pytest.mark.parametrize(
    "loss", [L1Norm(3), LARGEST, Bowl(3), L1WithLink(2, Logistic())], ids=lambda x: type(x).__name__
)
def test_subgradients_support_the_loss(loss):
    rng = np.random.default_rng(2)
    u, v = rng.normal(size=(2, 300, 3))
    level = np.abs(rng.normal(size=300)) if loss.uses_level else None
    tangent = loss.value(u, level) + ((v - u) * loss.gradient(u, level)).sum(axis=1)
    assert np.all(loss.value(v, level) >= tangent - 1e-12)


def test_link_reads_margins_and_residuals():
    u = np.array([[0.5, -1.0, 0.3]])
    margin = L1WithLink(2, Logistic()).value(u)[0]
    assert margin == pytest.approx(1.5 + np.log1p(np.exp(0.3)))
    assert L1WithLink(2, Huber(1.0)).value(u)[0] == pytest.approx(1.5 + 0.045)
    with pytest.raises(ValueError, match="bounded slope"):
        L1WithLink(2, Squared())
    with pytest.raises(ValueError, match="bounded slope and curvature"):
        L1WithLink(2, Pinball(0.5))
    with pytest.raises(TypeError, match="pointwise loss"):
        L1WithLink(2, L1Norm(2))


def test_malformed_pieces_are_refused():
    for slopes, offsets in (
        ([[1.0]], None),
        ([[1.0], [1.0]], None),
        ([[1.0], [2.0]], [0.0]),
        ([1.0, 2.0], None),
    ):
        with pytest.raises(ValueError, match="PiecewiseLinear must"):
            PiecewiseLinear(slopes, offsets)
    with pytest.raises(ValueError, match="at most 5"):
        Bowl(6)
    with pytest.raises(ValueError, match="positive integer"):
        L1Norm(0)


def test_spectral_norms():
    rng = np.random.default_rng(3)
    for shape in ((20, 3, 5), (20, 5, 3), (20, 1, 4)):
        A = rng.normal(size=shape)
        norms = structured_spectral_norms(A)
        exact = np.linalg.norm(A, 2, axis=(1, 2))
        assert np.all(norms >= exact * (1 - 1e-15))
        np.testing.assert_allclose(norms, exact, rtol=1e-9)
    extreme = structured_spectral_norms(np.array([1e200, 1e-200, 0.0])[:, None, None] * np.eye(2))
    np.testing.assert_allclose(extreme, [1e200, 1e-200, 0.0])


def test_records_are_scaled_as_a_whole():
    A, Y = problem()
    records = StructuredRecords(A, Y, 1.5)
    assert structured_spectral_norms(records.matrices).max() <= 1.5 * (1 + 1e-11)
    factor = records.targets[:, :1] / Y[:, :1]
    assert factor.max() <= 1
    np.testing.assert_allclose(records.matrices, A * factor[:, :, None])
    np.testing.assert_allclose(records.targets, Y * factor)
    short = structured_spectral_norms(A) < 1.5
    np.testing.assert_allclose(factor[short], 1)


SMOOTH = [
    convolve_vector(L1Norm(3), GaussianKernel(3), 0.3),
    convolve_vector(LARGEST, GaussianKernel(3), 0.3),
    convolve_vector(L1WithLink(2, Huber(0.7)), GaussianKernel(2), 0.3),
    convolve_vector(Bowl(3), GaussianKernel(3), 0.3),
]


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda x: type(x.loss).__name__)
def test_objective_derivatives_and_certificate(loss):
    options = {"level": np.linspace(0, 2, 60)} if loss.uses_level else {}
    F = objective(loss, **options).with_linear([0.1, -0.2, 0.0, 0.3])
    theta = np.array([0.3, -0.5, 0.2, 1.0])
    step = 1e-5
    eye = np.eye(4)
    slopes = [(F.value(theta + step * e) - F.value(theta - step * e)) / (2 * step) for e in eye]
    bends = [
        (F.gradient(theta + step * e) - F.gradient(theta - step * e)) / (2 * step) for e in eye
    ]
    np.testing.assert_allclose(slopes, F.gradient(theta), atol=1e-8)
    np.testing.assert_allclose(bends, F.hessian(theta), atol=1e-6)
    np.testing.assert_allclose(F.value_and_gradient(theta)[0], F.value(theta))
    solution = Newton().solve(F, np.zeros(4), 1e-9)
    assert np.linalg.norm(F.gradient(solution.point)) <= solution.gradient_norm <= 1e-9


def test_rounding_allowance_covers_a_recomputation_with_more_digits():
    loss = convolve_vector(L1Norm(3), GaussianKernel(3), 1e-4)
    A, Y = problem(400)
    F = StructuredObjective(StructuredRecords(A, Y * 100, 2.0), loss, 0.1)
    theta = np.array([3.0, -5.0, 2.0, 10.0])
    records = F.records
    long = np.longdouble
    u = records.targets.astype(long) - records.matrices.astype(long) @ theta.astype(long)
    slopes = loss.gradient(u.astype(np.float64))
    exact = (
        -(records.matrices.astype(long) * slopes.astype(long)[:, :, None]).sum(axis=(0, 1)) / 400
    )
    exact += long(0.1) * theta
    error = float(np.linalg.norm((F.gradient(theta) - exact).astype(np.float64)))
    assert 0 < error <= F.rounding_allowance(theta)
    assert F.rounding_allowance(theta) < 1e-7


def hostile():
    rng = np.random.default_rng(4)
    A, Y = problem(40)
    yield "huge targets", A, np.where(rng.uniform(size=Y.shape) < 0.5, 1e300, -1e300)
    yield "huge matrices", A * 1e200, Y
    yield "tiny matrices", A * 1e-200, Y
    yield "zeros", np.zeros_like(A), np.zeros_like(Y)
    yield "equal records", np.repeat(A[:1], 40, axis=0), np.repeat(Y[:1], 40, axis=0)
    yield "one far record", A, np.where(np.arange(40)[:, None] == 0, 1e12, Y)


@pytest.mark.parametrize("loss", SMOOTH[:2], ids=lambda x: type(x.loss).__name__)
def test_objective_perturbation_releases_whatever_the_data(loss):
    bounds = StructuredBounds(40, 4, loss, 1.0, alpha=0.5)
    mechanism = ObjectivePerturbation()
    certificate = mechanism.certify(bounds, ApproxDP(3.0, 1e-5))
    for _, A, Y in hostile():
        records = StructuredRecords(A, Y, 1.0, target_limit=bounds.target_reach(100.0))
        F = StructuredObjective(records, loss, bounds.alpha, divisor=40)
        assert np.isfinite(mechanism.release(F, certificate, rng=0)).all()


def test_certificates_survive_json():
    for loss in (*SMOOTH, LARGEST):
        link = 2.0 if loss.link is not None else 0.0
        bounds = StructuredBounds(500, 6, loss, 1.5, link, alpha=0.3)
        mechanisms = [StructuredGradientDescent()]
        if loss is not LARGEST:
            mechanisms.append(ObjectivePerturbation())
        for mechanism in mechanisms:
            certificate = mechanism.certify(bounds, ApproxDP(1.0, 1e-6))
            read = Certificate.from_json(certificate.to_json())
            read.verify()
            assert read.bounds == bounds
    with pytest.raises(ValueError, match="smoothness=inf"):
        ObjectivePerturbation().certify(bounds, ApproxDP(1.0, 1e-6))


@pytest.mark.parametrize("loss", [L1Norm(2), Bowl(2), PiecewiseLinear(_TRIANGLE)])
def test_a_record_more_flips_no_slope_of_another(loss):
    """Targets on their own predictions: a product of matrices rounds a record by how many others
    there are.
    """
    rng = np.random.default_rng(0)
    A = rng.normal(size=(9, 2, 16)) / 9
    theta = rng.normal(size=16)

    def gradient(part, Y):
        records = StructuredRecords(A[part], Y[part], 1.0)
        return StructuredObjective(records, loss, 0.0, divisor=9.0).gradient_sum(theta)

    for n in range(1, 10):
        for Y in ((A[:n].reshape(-1, 16) @ theta).reshape(n, 2), A[:n] @ theta):
            alone = sum(gradient(slice(i, i + 1), Y) for i in range(n))
            np.testing.assert_allclose(gradient(slice(0, n), Y), alone, atol=1e-12)


def test_which_piece_is_highest_depends_on_the_record_alone():
    rng = np.random.default_rng(0)
    slopes = rng.normal(size=(40, 3))
    loss = PiecewiseLinear(np.vstack([slopes, slopes + 1e-16 * rng.normal(size=(40, 3))]))
    u = rng.normal(size=(2000, 3))
    alone = np.vstack([loss.gradient(row[None]) for row in u])
    for n in (2, 3, 4, 5, 2000):
        np.testing.assert_array_equal(loss.gradient(u[:n]), alone[:n])
    np.testing.assert_array_equal(loss.value(u), [loss.value(row[None])[0] for row in u])


def test_descent_spends_exactly_mu():
    for neighbors, records in (("replace_one", 2), ("add_or_remove_one", 1)):
        bounds = StructuredBounds(500, 6, L1Norm(3), 1.5, neighbors=neighbors)
        certificate = StructuredGradientDescent(steps=49).certify(bounds, GaussianDP(0.7))
        term = certificate.noise["gradients"]
        spent = np.sqrt(term["releases"]) * records * bounds.lipschitz / term["std"]
        assert 0.7 * (1 - 2e-3) < spent < 0.7  # a thousandth pays for rounding
    with pytest.raises(ValueError, match="GaussianDP and ApproxDP"):
        StructuredGradientDescent().certify(bounds, PureDP(1.0))
    with pytest.raises(ValueError, match="'steps'"):
        StructuredGradientDescent(steps=0).certify(bounds, GaussianDP(0.7))
    with pytest.raises(ValueError, match="'step_size'"):
        StructuredGradientDescent(step_size=-1.0).certify(bounds, GaussianDP(0.7))


def test_descent_without_noise_finds_the_minimiser():
    A, Y = problem(2000, seed=5)
    bounds = StructuredBounds(2000, 4, L1Norm(3), 1.0)
    mechanism = StructuredGradientDescent(steps=2000, step_size=0.05)
    certificate = mechanism.certify(bounds, GaussianDP(1e9))
    F = StructuredObjective(StructuredRecords(A, Y, 1.0), L1Norm(3), 0.0)
    smooth = StructuredObjective(
        F.records, convolve_vector(L1Norm(3), GaussianKernel(3), 1e-3), 1e-6
    )
    best = Newton().solve(smooth, np.zeros(4), 1e-8).point
    found = mechanism.release(F, certificate, rng=0)
    np.testing.assert_allclose(found, best, atol=0.01)


def test_cost_is_linear_in_the_number_of_records():
    loss = SMOOTH[0]

    def seconds(n):
        A, Y = problem(n, d=20)
        F = StructuredObjective(StructuredRecords(A, Y, 2.0), loss, 0.1)
        F.gradient(np.ones(20))
        start = time.process_time()
        with single_threaded_blas():
            for _ in range(3):
                F.gradient(np.ones(20))
                F.hessian(np.ones(20))
        return time.process_time() - start

    # Ten times the records: quadratic cost would be a factor of 100.
    assert seconds(20_000) < 40 * max(seconds(2000), 1e-3)
