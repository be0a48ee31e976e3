"""Smoothed losses of residual vectors: closed forms and rules against brute force, and the
lemmas they must satisfy.
"""

import math

import numpy as np
import pytest

from dpconvex.losses import Bowl, Huber, L1Norm, L1WithLink, Logistic, PiecewiseLinear
from dpconvex.smoothing import (
    ExponentialKernel,
    GaussianKernel,
    LaplacianKernel,
    LogisticKernel,
    MixtureKernel,
    SmoothedFacets,
    SmoothedMax,
    SmoothedProfile,
    convolve_vector,
    moreau_vector,
)
from dpconvex.smoothing.mixture_and_marginal_kernels import (
    ExponentialMarginalKernel,
    marginal_kernel,
)

LARGEST = PiecewiseLinear(np.concatenate([np.eye(3), -np.eye(3)]))
WIDE = PiecewiseLinear(np.concatenate([np.eye(6), -np.eye(6)]))
FAN = PiecewiseLinear([[0.0, 0.0], [1.0, 0.0], [0.3, 1.0], [-1.0, 0.4]], [0.1, 0.0, 0.2, -0.1])
SPACE = PiecewiseLinear(
    [
        [0.0, 0.0, 0.0],
        [1.0, 0.2, 0.0],
        [-0.3, 1.0, 0.4],
        [-0.5, -0.8, 0.6],
        [0.2, 0.1, -1.0],
        [0.1, 0.0, 0.9],
    ],
    [0.3, 0.1, 0.0, -0.2, 0.1, 0.0],
)  # the last piece is nowhere the largest by much
TWO = PiecewiseLinear([[1.0, 0.5], [-0.5, 1.0]], [0.2, 0.0])
LINES = PiecewiseLinear([[1.0, 2.0], [-1.0, -2.0], [3.0, 6.0]], [0.0, 0.5, -1.0])
H = 0.4
SMOOTHED = [
    convolve_vector(L1Norm(1), LogisticKernel(), H),
    convolve_vector(L1Norm(3), GaussianKernel(3), H),
    convolve_vector(L1Norm(2), LaplacianKernel(2), H),
    convolve_vector(L1Norm(2), ExponentialKernel(2), H),
    convolve_vector(L1Norm(3), ExponentialKernel(3), H),
    convolve_vector(L1WithLink(2, Logistic()), GaussianKernel(2), H),
    convolve_vector(L1WithLink(2, Huber(0.7)), GaussianKernel(), H),
    convolve_vector(TWO, GaussianKernel(2), H),
    convolve_vector(LINES, ExponentialKernel(2), H),
    convolve_vector(LARGEST, GaussianKernel(3), H),
    convolve_vector(FAN, GaussianKernel(2), H),
    convolve_vector(FAN, ExponentialKernel(2), H),
    convolve_vector(SPACE, GaussianKernel(3), H),
    convolve_vector(Bowl(3), ExponentialKernel(3), H),
    convolve_vector(WIDE, GaussianKernel(6), H),
    convolve_vector(Bowl(1), GaussianKernel(1), H),
    convolve_vector(Bowl(2), GaussianKernel(2), H),
    convolve_vector(Bowl(3), GaussianKernel(3), H),
    moreau_vector(L1Norm(3), "energy", 1.0, H),
    moreau_vector(L1Norm(3), "huber", 2.0, H),
    moreau_vector(FAN, "energy", 1.0, H),
    moreau_vector(SPACE, "huber", 2.0, H),
]


def label(loss):
    kernel = type(getattr(loss, "kernel", None)).__name__
    return f"{type(loss).__name__}-{type(loss.loss).__name__}-{loss.outputs}-{kernel}"


def sample(loss, n=200, seed=0):
    if label(loss) == "SmoothedFacets-Bowl-3-ExponentialKernel":
        n //= 8  # a quadrature in three dimensions for every residual
    rng = np.random.default_rng(seed)
    level = np.abs(rng.normal(size=n)) if loss.uses_level else None
    return rng.normal(size=(n, loss.outputs)) * 0.8, level


@pytest.mark.parametrize("loss", SMOOTHED, ids=label)
def test_derivatives_belong_to_the_value(loss):
    u, level = sample(loss)
    step = 1e-4
    eye = np.eye(loss.outputs)
    slopes = [
        (loss.value(u + step * e, level) - loss.value(u - step * e, level)) / (2 * step)
        for e in eye
    ]
    bends = [
        (loss.gradient(u + step * e, level) - loss.gradient(u - step * e, level)) / (2 * step)
        for e in eye
    ]
    gradient = loss.gradient(u, level)
    hessian = loss.hessian(u, level)
    # The Hessian of an envelope, and of Huber's link, jumps; a few records sit on a jump.
    jumps = not hasattr(loss, "kernel") or isinstance(loss.link, Huber)
    wrong = np.abs(np.stack(slopes, axis=1) - gradient).max(axis=1) > 2e-7
    wrong |= np.abs(np.stack(bends, axis=2) - hessian).max(axis=(1, 2)) > 1e-5
    assert wrong.mean() <= (0.02 if jumps else 0)


@pytest.mark.parametrize("loss", SMOOTHED, ids=label)
def test_a_row_has_the_same_bits_however_many_others_there_are(loss):
    u, level = sample(loss, n=23)
    alone = [
        loss.gradient(u[i : i + 1], None if level is None else level[i : i + 1]) for i in range(23)
    ]
    for n in (1, 2, 3, 4, 5, 23):
        found = loss.gradient(u[:n], None if level is None else level[:n])
        np.testing.assert_array_equal(found, np.vstack(alone[:n]))


@pytest.mark.parametrize("loss", SMOOTHED, ids=label)
def test_declared_constants_hold(loss):
    u, level = sample(loss, 3000, seed=1)
    u[: len(u) // 2] *= 0.05  # near the kinks, where the curvature is
    inner = loss.outputs - (loss.link is not None)
    slopes = loss.gradient(u, level)[:, :inner]
    eigenvalues = np.linalg.eigvalsh(loss.hessian(u, level)[:, :inner, :inner])
    assert np.linalg.norm(slopes, axis=1).max() <= loss.lipschitz * (1 + 1e-12)
    assert eigenvalues.max() <= loss.smoothness * (1 + 1e-12)
    assert eigenvalues.min() >= -1e-9
    if isinstance(loss.loss, L1Norm):
        assert eigenvalues.max() >= 0.95 * loss.smoothness  # the constant is attained
        assert np.linalg.norm(slopes, axis=1).max() >= 0.9 * loss.lipschitz


@pytest.mark.parametrize("loss", [s for s in SMOOTHED if hasattr(s, "kernel")], ids=label)
def test_convolution_lies_above_by_at_most_its_gap(loss):
    # Lemma 3.1, part 3.
    u, level = sample(loss, 2000, seed=2)
    gap = loss.value(u, level) - loss.loss.value(u, level)
    assert gap.min() >= -1e-12
    assert gap.max() <= loss.approximation_gap * (1 + 1e-12)


def brute_force(loss, u, level=None, points=161, reach=7.0):
    """``E g(u + H v)`` for the Gaussian kernel in R^m by a fine tensor sum; kinks cost about
    1e-4.
    """
    axis = np.linspace(-reach, reach, points)
    weight = np.exp(-0.5 * axis**2)
    grids = np.meshgrid(*[axis] * loss.outputs, indexing="ij")
    v = np.stack([grid.ravel() for grid in grids], axis=1)
    w = np.prod(np.meshgrid(*[weight / weight.sum()] * loss.outputs, indexing="ij"), axis=0).ravel()
    return np.array([w @ loss.value(row + H * v, level) for row in u])


@pytest.mark.parametrize(
    "loss",
    [L1Norm(2), TWO, FAN, Bowl(1), Bowl(2), Bowl(3), LARGEST, SPACE],
    ids=lambda x: type(x).__name__,
)
def test_gaussian_kernel_against_a_tensor_sum(loss):
    u = np.random.default_rng(3).normal(size=(6, loss.outputs)) * 0.5
    points = 81 if loss.outputs == 3 else 401
    level = 0.6 if loss.uses_level else None
    smooth = convolve_vector(loss, GaussianKernel(loss.outputs), H)
    found = smooth.value(u, None if level is None else np.full(6, level))
    np.testing.assert_allclose(found, brute_force(loss, u, level, points), atol=2e-3 / points * 81)


def test_exponential_kernel_in_the_plane():
    # Polar coordinates: radius Gamma(2), uniform angle.
    radius, weights = np.polynomial.laguerre.laggauss(60)
    angle = np.linspace(0, 2 * np.pi, 2000, endpoint=False)
    direction = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    u = np.array([[0.1, -0.3], [0.7, 0.2]])
    smooth = convolve_vector(L1Norm(2), ExponentialKernel(2), H)
    for row, value in zip(u, smooth.value(u), strict=True):
        means = [np.abs(row + H * r * direction).sum(axis=1).mean() for r in radius]
        assert value == pytest.approx(np.dot(weights * radius, means), abs=2e-3)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_marginal_of_the_exponential_kernel(size):
    law = ExponentialMarginalKernel(size)
    t = np.linspace(0, 60, 200_001)
    density = law.pdf(t)
    step = t[1]
    assert law.pdf(0.0) == pytest.approx(law.peak, rel=1e-12)
    assert 2 * step * (density.sum() - density[0] / 2) == pytest.approx(1, abs=1e-6)
    assert 2 * step * (t**2 @ density) == pytest.approx(law.second_moment, rel=1e-6)
    for start in (0.0, 0.6, 3.0):
        beyond = t > start - step / 2
        tail = step * (density[beyond].sum() - 0.5 * law.pdf(start))
        assert law.cdf(-start) == pytest.approx(tail, abs=1e-6)
        assert law.gap(start) == pytest.approx(
            2 * step * ((t[beyond] - start) @ density[beyond]), abs=1e-6
        )
    assert size > 1 or law.gap(0.7) == pytest.approx(math.exp(-0.7), rel=1e-12)


@pytest.mark.parametrize(
    "kernel", [GaussianKernel(2), LaplacianKernel(2), ExponentialKernel(2)], ids=repr
)
def test_curvature_constant_of_a_maximum_for_every_kernel(kernel):
    # <e, g_h'' e> <= W_e p / h, by second differences of a fine sum over the plane.
    slopes = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    axis = np.linspace(-12, 12, 181)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    weight = kernel.pdf(grid)
    weight /= weight.sum()
    largest = 0.0
    for angle in np.linspace(0, np.pi, 5):
        e = np.array([np.cos(angle), np.sin(angle)])
        width = np.ptp(slopes @ e)
        for u in ([0.0, 0.0], [1.0, 1.0], [3.0, 3.0], [0.0, 2.0]):
            values = [
                weight @ ((np.array(u) + t * e + grid) @ slopes.T).max(axis=1)
                for t in (-0.5, 0.0, 0.5)
            ]
            bend = (values[0] - 2 * values[1] + values[2]) / 0.25
            bound = width * marginal_kernel(kernel).peak
            assert bend <= bound * 1.03
            largest = max(largest, bend / bound)
    assert largest > 0.5


def test_rule_errs_by_less_than_it_states(monkeypatch):
    from dpconvex.smoothing import vector_convolution

    for loss, kernel, nodes in (
        (LARGEST, GaussianKernel(3), "_NODES"),
        (WIDE, GaussianKernel(6), "_NODES"),
        (FAN, GaussianKernel(2), "_FACET_NODES"),
        (SPACE, GaussianKernel(3), "_FACET_NODES"),
        (Bowl(3), GaussianKernel(3), "_FACET_NODES"),
    ):
        smooth = convolve_vector(loss, kernel, H)
        u, level = sample(smooth, 200, seed=4)
        u[::2] *= 0.2
        found = smooth.gradient(u, level)
        with monkeypatch.context() as patch:
            patch.setattr(vector_convolution, "_PANEL", 1.0)
            fine = smooth.gradient(u, level)
        error = np.linalg.norm(found - fine, axis=1).max()
        assert error <= smooth.gradient_error + 2e-14
        assert smooth.gradient_error < 1e-9
        # A coarse rule is caught by the same comparison.
        with monkeypatch.context() as patch:
            patch.setattr(vector_convolution, nodes, (3,) if nodes == "_NODES" else 3)
            coarse = convolve_vector(loss, kernel, H).gradient(u, level)
        assert np.linalg.norm(coarse - fine, axis=1).max() > 1e-7


def parts(loss, u, level=None):
    return loss.value(u, level), loss.gradient(u, level), loss.hessian(u, level)


def test_facets_agree_with_formulas_that_know_nothing_of_them():
    u = np.random.default_rng(8).normal(size=(300, 3)) * 0.6
    u[:20] = 0.0  # on every kink at once
    u[20:40, 0] = 0.0
    u[40:50] *= 1e5
    largest = parts(SmoothedMax(LARGEST, GaussianKernel(3), H), u)
    for found, expected in zip(
        parts(SmoothedFacets(LARGEST, GaussianKernel(3), H), u), largest, strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-11)
    # At level 0 the bowl is the norm. The exponential kernel is a mixture at finitely many nodes.
    for kernel, close in ((GaussianKernel(3), 1e-13), (ExponentialKernel(3), 3e-7)):
        norm = parts(convolve_vector(L1Norm(3), kernel, H), u)
        bowl = parts(SmoothedFacets(Bowl(3), kernel, H), u, np.zeros(300))
        for found, expected in zip(bowl, norm, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=close)
    plane = u[:, :2]
    rotated = PiecewiseLinear([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    for found, expected in zip(
        parts(SmoothedFacets(rotated, GaussianKernel(2), H), plane),
        parts(convolve_vector(L1Norm(2), GaussianKernel(2), H), plane),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("seed", range(6))
def test_random_pieces_are_the_expectation_they_promise(seed):
    # By sampling, 5.5 deviations: false alarm below 4e-8 each.
    rng = np.random.default_rng(seed)
    size = 2 + seed % 2
    loss = PiecewiseLinear(rng.normal(size=(5, size)), rng.normal(size=5) * 0.5)
    u = rng.normal(size=(1, size)) * 0.5
    normal = rng.normal(size=(400_000, size))
    lengths = np.sqrt(2 * rng.gamma((size + 1) / 2, size=400_000))[:, None]
    for kernel, v in ((GaussianKernel(size), normal), (ExponentialKernel(size), lengths * normal)):
        values = loss.value(u + H * v)
        error = float(convolve_vector(loss, kernel, H).value(u)[0]) - values.mean()
        assert abs(error) <= 5.5 * values.std() / math.sqrt(len(values))


def test_choice_of_formula():
    assert isinstance(convolve_vector(TWO, LogisticKernel(), H), SmoothedProfile)
    assert isinstance(convolve_vector(LARGEST, GaussianKernel(), H), SmoothedMax)
    assert isinstance(convolve_vector(FAN, GaussianKernel(), H), SmoothedFacets)
    for loss in (Bowl(4), PiecewiseLinear(np.random.default_rng(0).normal(size=(6, 4)))):
        with pytest.raises(ValueError, match="at most three directions"):
            convolve_vector(loss, GaussianKernel(), H)
    assert LARGEST.pieces.direction_norm == pytest.approx(1)
    assert Bowl(2).pieces.direction_norm == pytest.approx(1)
    assert not Bowl(3).orthonormal


def test_lemmas_of_the_l1_norm():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 3))
    mu = 0.3
    # Lemma 4.1: the integrand of the gap is positive exactly where some |v_j| exceeds |x_j| / mu.
    v = rng.normal(size=(300, 3)) * 3
    gain = np.abs(x + mu * v).sum(1) + np.abs(x - mu * v).sum(1) - 2 * np.abs(x).sum(1)
    assert np.array_equal(gain > 1e-12, (np.abs(v) > np.abs(x) / mu).any(axis=1))
    # Lemma 4.2: that set grows with mu.
    wider = np.abs(x + 0.5 * v).sum(1) + np.abs(x - 0.5 * v).sum(1) - 2 * np.abs(x).sum(1)
    assert np.all(wider[gain > 1e-12] > 1e-12)
    assert (wider > 1e-12).sum() > (gain > 1e-12).sum()
    # Lemma 4.3: away from the kinks the gap is exponentially small in (x / mu)^2.
    smooth = convolve_vector(L1Norm(3), GaussianKernel(3), mu)
    gap = smooth.value(x) - np.abs(x).sum(1)
    bound = math.sqrt(2 / math.pi) * mu * np.exp(-((x / mu) ** 2) / 2).sum(1)
    assert np.all(gap <= bound)
    far = np.array([[10 * mu, -9 * mu, 8 * mu]])
    assert smooth.value(far) - np.abs(far).sum() < 1e-14
    # Lemma 3.1, part 4: the kernel is symmetric, so v and -v may be paired.
    np.testing.assert_allclose(smooth.value(x), smooth.value(-x), rtol=1e-14)


@pytest.mark.parametrize("potential", ["energy", "huber"])
def test_moreau_envelopes(potential):
    # Lemma 4.6: from below by the stated amounts, gradient from the minimiser.
    width = 0.7
    curvature = 1.8
    envelope = moreau_vector(L1Norm(2), potential, curvature, width)
    rng = np.random.default_rng(6)
    x = rng.normal(size=(12, 2))
    grid = np.linspace(-4, 4, 401)
    u = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    phi = {
        "energy": lambda r: curvature * r**2 / 2,
        "huber": lambda r: np.where(r <= 1, curvature * r**2 / 2, curvature * r - curvature / 2),
    }[potential]
    for row, value in zip(x, envelope.value(x), strict=True):
        costs = np.abs(u).sum(1) + width * phi(np.linalg.norm(row - u, axis=1) / width)
        assert value == pytest.approx(costs.min(), abs=1e-3)
        assert value <= costs.min() + 1e-12
    gap = envelope.value(x) - np.abs(x).sum(1)
    assert np.all((gap >= -width * 2 / (2 * curvature) - 1e-12) & (gap <= 1e-12))


def test_refusals():
    with pytest.raises(ValueError, match="must be Gaussian, exponential or a mixture"):
        convolve_vector(LARGEST, LaplacianKernel(3), H)
    with pytest.raises(ValueError, match="dim=1"):
        convolve_vector(L1Norm(3), GaussianKernel(2), H)
    with pytest.raises(ValueError, match="'bandwidth'"):
        convolve_vector(L1Norm(3), GaussianKernel(3), 0.0)
    with pytest.raises(TypeError, match="'kernel'"):
        convolve_vector(L1Norm(3), "gaussian", 1.0)
    with pytest.raises(TypeError, match="'loss'"):
        convolve_vector(Huber(1.0), GaussianKernel(), 1.0)
    with pytest.raises(ValueError, match="at least 2, the loss's Lipschitz constant"):
        moreau_vector(L1Norm(4), "huber", 1.0)
    with pytest.raises(ValueError, match="'potential'"):
        moreau_vector(L1Norm(4), "entropy", 1.0)


@pytest.mark.parametrize("loss", [FAN, SPACE, LARGEST], ids=["fan", "space", "largest"])
def test_envelopes_of_pieces_are_infima(loss):
    # A solver that knows nothing of the dual; and the envelope of the l1 norm as pieces.
    from scipy.optimize import minimize

    envelope = moreau_vector(loss, "energy", 2.0, 0.5)
    assert envelope.smoothness == 4.0
    u = np.random.default_rng(0).normal(size=(12, loss.outputs))
    values = envelope.value(u)
    for row, value in zip(u, values, strict=True):
        m = loss.outputs
        start = np.append(row, loss.value(row[None])[0])
        found = minimize(  # the epigraph: t above all pieces
            lambda z, row=row: z[-1] + 2.0 * ((z[:-1] - row) ** 2).sum(),
            start,
            constraints={
                "type": "ineq",
                "fun": lambda z: z[-1] - np.array(loss.slopes) @ z[:-1] - np.array(loss.offsets),
            },
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert value == pytest.approx(found.fun, abs=1e-6)
        assert m == len(row)
    gap = loss.value(u) - values
    assert gap.min() >= -1e-12
    assert gap.max() <= envelope.approximation_gap
    signs = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    plane = np.random.default_rng(1).normal(size=(50, 2))
    np.testing.assert_allclose(
        moreau_vector(PiecewiseLinear(signs), "energy", 1.0, 0.5).value(plane),
        moreau_vector(L1Norm(2), "energy", 1.0, 0.5).value(plane),
        atol=1e-9,
    )
    with pytest.raises(ValueError, match="huber"):
        moreau_vector(loss, "huber", 1e-3)


def test_an_envelope_leaves_a_link_as_it_is():
    linked, plain = (
        moreau_vector(loss, "energy", 2.0, 0.5) for loss in (L1WithLink(2, Logistic()), L1Norm(2))
    )
    u = np.random.default_rng(2).normal(size=(20, 3))
    own = Logistic().value_at(-u[:, 2])
    np.testing.assert_allclose(linked.value(u), plain.value(u[:, :2]) + own, rtol=1e-12)
    np.testing.assert_array_equal(linked.gradient(u)[:, :2], plain.gradient(u[:, :2]))
    np.testing.assert_array_equal(linked.hessian(u)[:, :2, :2], plain.hessian(u[:, :2]))
    step = 1e-5 * np.eye(3)[2]
    slope = (linked.value(u + step) - linked.value(u - step)) / 2e-5
    np.testing.assert_allclose(linked.gradient(u)[:, 2], slope, atol=1e-8)
    bend = (linked.gradient(u + step) - linked.gradient(u - step)) / 2e-5
    np.testing.assert_allclose(linked.hessian(u)[:, :, 2], bend, atol=1e-7)


OWN = MixtureKernel((GaussianKernel(2), GaussianKernel(2)), (0.8, 0.2), (1.0, 2.5))


@pytest.mark.parametrize(
    "loss",
    [L1Norm(2), PiecewiseLinear([[1.0, 0.2], [-0.7, 0.4], [0.1, -1.0]]), Bowl(2)],
    ids=["l1", "pieces", "bowl"],
)
def test_a_kernel_of_ones_own_in_the_plane(loss):
    """A radial mixture against quasi-Monte Carlo: 2^20 Sobol points of each part, at 1e-5."""
    from scipy.stats import norm, qmc

    smooth = convolve_vector(loss, OWN, 0.3)
    points = norm.ppf(qmc.Sobol(2, seed=0).random_base2(20))
    for u in np.random.default_rng(3).normal(size=(3, 2)) / 3:
        level = (np.zeros(len(points)),) if isinstance(loss, Bowl) else ()
        parts = [loss.value(u + 0.3 * width * points, *level).mean() for width in (1.0, 2.5)]
        own = (np.zeros(1),) if isinstance(loss, Bowl) else ()
        assert smooth.value(u[None], *own)[0] == pytest.approx(
            0.8 * parts[0] + 0.2 * parts[1], abs=1e-5
        )
    bends = smooth.hessian(
        np.random.default_rng(4).normal(size=(500, 2)) / 3, *(np.zeros(500),) * len(own)
    )
    assert np.linalg.eigvalsh(bends).max() <= smooth.smoothness * (1 + 1e-9)
    assert OWN.dim == 2
    assert OWN.peak == pytest.approx(0.8 / (2 * np.pi) + 0.2 / (2 * np.pi * 2.5**2))
    with pytest.raises(ValueError, match="must be 1"):
        OWN.cdf(0.0)
    with pytest.raises(TypeError, match="same dimension"):
        MixtureKernel((GaussianKernel(2), GaussianKernel(3)), (0.5, 0.5))


def test_pieces_that_nearly_coincide_are_left_out():
    """The larger of two nearly parallel pieces is all that can be seen of them."""
    for slopes, hidden in (
        ([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [1e-10, 1.0], [0.3, -1.0]], 2),
        (
            [
                [1.0, 0.0, 0.0],
                [0.0, 1.0, 0.0],
                [0.0, 1.0 + 1e-10, 0.0],
                [-1.0, -1.0, 1.0],
                [0.0, 0.0, -1.0],
            ],
            1,
        ),
    ):
        offsets = [0.0, 0.0, 0.1, 0.1 + 1e-3, 0.0]
        kept = [place for place in range(5) if place != hidden]
        seen = PiecewiseLinear([slopes[k] for k in kept], [offsets[k] for k in kept])
        point = np.zeros((1, seen.outputs))
        smoothed = convolve_vector(PiecewiseLinear(slopes, offsets), GaussianKernel(), H)
        expected = convolve_vector(seen, GaussianKernel(), H).value(point)
        assert smoothed.value(point) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_the_envelope_of_a_bowl_is_its_infimum(size):
    """Against a solver that knows nothing of the dual, and differences in place of derivatives."""
    from scipy.optimize import minimize

    envelope = moreau_vector(Bowl(size), "energy", 2.0, 0.5)
    rng = np.random.default_rng(size)
    u = rng.normal(size=(40, size))
    level = rng.choice([-0.5, 0.0, 0.3, 2.0], 40)
    values = envelope.value(u, level)
    slopes = envelope.gradient(u, level)
    bends = envelope.hessian(u, level)
    for row, height, value in zip(u[:8], level, values, strict=False):
        # Signs of the best point are those of the row: u = sign * size, t at least the bowl.
        found = minimize(
            lambda z, row=row: z[-1] + 2.0 * ((z[:-1] - np.abs(row)) ** 2).sum(),
            np.append(np.abs(row), np.abs(row).sum() + 1),
            bounds=[(0, None)] * size + [(0, None)],
            constraints={"type": "ineq", "fun": lambda z, h=height: z[-1] - z[:-1].sum() + h},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert value == pytest.approx(found.fun, abs=1e-6)
    gap = Bowl(size).value(u, level) - values
    assert gap.min() >= -1e-12
    assert gap.max() <= envelope.approximation_gap * (1 + 1e-12)
    step = 1e-6
    for j, e in enumerate(np.eye(size)):
        rise = envelope.value(u + step * e, level) - envelope.value(u - step * e, level)
        np.testing.assert_allclose(slopes[:, j], rise / (2 * step), atol=1e-6)
        turn = envelope.gradient(u + step * e, level) - envelope.gradient(u - step * e, level)
        np.testing.assert_allclose(bends[:, j], turn / (2 * step), atol=1e-6)
    assert np.linalg.norm(slopes, axis=1).max() <= envelope.lipschitz * (1 + 1e-12)
    assert np.linalg.eigvalsh(bends).max() <= envelope.smoothness * (1 + 1e-12)
