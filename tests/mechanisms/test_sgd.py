"""NoisySGD: accounting against hand-computed cases, compiled slopes, certificates, runs."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpconvex import DPQuantileRegressor
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import (
    Absolute,
    Hinge,
    Huber,
    KinkedLoss,
    Logistic,
    Pinball,
    ReLU,
    Scaled,
    SoftThreshold,
    Squared,
)
from dpconvex.mechanisms import NoisySGD, resolve_mechanism
from dpconvex.objectives import EmpiricalObjective
from dpconvex.planning import contractive_bandwidth
from dpconvex.privacy import ApproxDP, Certificate, GaussianDP, LinearBounds, PureDP
from dpconvex.privacy.subsampling import (
    dominating_subsampled_rdp,
    rdp_epsilon,
    subsampled_epsilon,
    subsampled_multiplier,
)
from dpconvex.smoothing import KERNELS, ExponentialKernel, convolve, moreau
from dpconvex.smoothing.compiled_slopes import compile_slope, compiled_slope

PLAIN = [
    Pinball(0.7),
    Absolute(),
    ReLU(),
    SoftThreshold(0.3),
    Hinge(),
    KinkedLoss((-1.0, 0.2, 0.7), (-2.0, -0.5, 0.1, 3.0)),
    KinkedLoss((-1.0, 0.2), (-2.0, -0.5, 0.1), kind="margin"),
    Scaled(Pinball(0.2), 3.0),
]
SMOOTH = [Logistic(), Huber(0.3), Squared(), Scaled(Huber(0.3), 2.0), moreau(Huber(0.3), 2.0)]
SMOOTHED = [
    *(convolve(loss, kernel, 0.13) for loss in PLAIN for kernel in KERNELS.values()),
    convolve(Pinball(0.7), ExponentialKernel(1), 0.2),
    *(moreau(loss, 4.0) for loss in PLAIN),
]


@pytest.mark.parametrize("loss", PLAIN + SMOOTH + SMOOTHED, ids=repr)
def test_compiled_slopes_agree(loss):
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(size=200), [0.0, 1.0, -1.0, 0.3, 50.0, -50.0]])
    y = rng.normal(size=z.size) if loss.kind == "residual" else rng.choice([-1.0, 1.0], z.size)
    y[-6:] = [0.0, 1.0, -1.0, 1.0, -1.0, 1.0]
    compiled = compile_slope(loss)
    found = [compiled_slope(compiled, *pair) for pair in zip(y, z, strict=True)]
    np.testing.assert_allclose(found, loss.gradient(y, z), rtol=0, atol=1e-12)


def test_unknown_loss_is_not_compiled():
    class Own(Logistic):
        def slope_at(self, u):
            return 2 * super().slope_at(u)

    assert compile_slope(Own()) is None


def mixture_renyi(first, second, rate, order):
    """Renyi divergence of two mixtures of unit normal laws in the plane, by brute force on a
    grid.
    """
    grid = np.linspace(-9, 9, 151)
    x, y = np.meshgrid(grid, grid)

    def density(centre):
        return np.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / 2) / (2 * np.pi)

    others = density((0.0, 0.0))
    p = (1 - rate) * others + rate * density(first)
    q = (1 - rate) * others + rate * density(second)
    cell = (grid[1] - grid[0]) ** 2
    return math.log(float((p**order * q ** (1 - order)).sum()) * cell) / (order - 1)


@pytest.mark.parametrize(("rate", "mu"), [(0.5, 1.0), (0.2, 0.5), (0.1, 1.5), (0.02, 1.0)])
@pytest.mark.parametrize("order", [1.5, 2.0, 3.0, 6.0])
def test_replace_one_bound_covers_every_triple(rate, mu, order):
    """Batches of one record: all others at the origin, the record at one end or another, all
    within mu.
    """
    bound = float(dominating_subsampled_rdp(rate, mu, [order])[0])
    ends = [(0.0, 0.0), (mu, 0.0), (mu / 2, math.sqrt(0.75) * mu), (-mu / 2, 0.0), (mu / 2, 0.0)]
    worst = 0.0
    for first in ends:
        for second in ends:
            if math.dist(first, second) <= mu * (1 + 1e-12):
                worst = max(worst, mixture_renyi(first, second, rate, order))
    assert worst <= bound * (1 + 1e-6)
    assert bound <= 2.1 * worst  # and it is not far from what can happen


def test_second_order_is_exact_for_small_rates():
    """``rate^2 (2 e^{mu^2} - 2 e^{mu^2/2})``, attained by three equidistant records."""
    rate = 1e-3
    mu = 0.8
    corner = (mu / 2, math.sqrt(0.75) * mu)
    exact = mixture_renyi((mu, 0.0), corner, rate, 2.0)
    assert float(dominating_subsampled_rdp(rate, mu, [2.0])[0]) == pytest.approx(exact, rel=5e-3)


@pytest.mark.parametrize("mu", [0.1, 0.7, 2.0])
def test_full_batches_are_the_gaussian_mechanism(mu):
    orders = np.array([1.5, 2.0, 7.0])
    np.testing.assert_allclose(
        dominating_subsampled_rdp(1.0, mu, orders), orders * mu**2 / 2, rtol=1e-12
    )
    # The integral itself, just below a rate of one.
    near = dominating_subsampled_rdp(1 - 1e-12, mu, np.array([1.5, 2.5]))
    np.testing.assert_allclose(near, np.array([1.5, 2.5]) * mu**2 / 2, rtol=1e-6)


@pytest.mark.parametrize(
    ("n", "size", "multiplier"), [(5000, 1, 0.6), (5000, 1, 3.0), (100, 10, 1.0)]
)
def test_between_dp_accountings_bounds(n, size, multiplier):
    """Never above its general bound for sampling without replacement, never below Poisson
    sampling.
    """
    from dp_accounting import NeighboringRelation, dp_event
    from dp_accounting.rdp import RdpAccountant
    from dp_accounting.rdp.rdp_privacy_accountant import compute_delta, compute_epsilon

    orders = np.array([2.0, 3.0, 5.0, 8.0, 16.0])
    general = RdpAccountant(orders, NeighboringRelation.REPLACE_ONE)
    gaussian = dp_event.GaussianDpEvent(multiplier)
    general.compose(dp_event.SampledWithoutReplacementDpEvent(n, size, gaussian))
    poisson = RdpAccountant(orders)
    poisson.compose(dp_event.PoissonSampledDpEvent(size / n, gaussian))
    ours = dominating_subsampled_rdp(size / n, 1 / multiplier, orders)
    assert (ours <= np.asarray(general.rdp) * (1 + 1e-9)).all()
    assert (ours >= np.asarray(poisson.rdp) * (1 - 1e-9)).all()
    total = 1000 * ours
    epsilon = rdp_epsilon(orders, total, 1e-5)
    assert epsilon == pytest.approx(compute_epsilon(orders, total, 1e-5)[0], rel=1e-9)
    logs = (orders - 1) * (total - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    assert np.exp(logs.min()) == pytest.approx(1e-5, rel=1e-6)
    # dp-accounting takes the smaller of two conversions, so it may be below ours but never above.
    assert compute_delta(orders, total, epsilon)[0] <= 1e-5 * (1 + 1e-6)


def test_poisson_add_or_remove_is_dp_accountings():
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=1e-3)
    sampled = dp_event.PoissonSampledDpEvent(0.05, dp_event.GaussianDpEvent(1.2))
    accountant.compose(sampled, 50)
    reference = accountant.get_epsilon(1e-5)
    found = subsampled_epsilon("poisson", "add_or_remove_one", 0.05, 50, 1.2, 1e-5)
    assert reference * (1 - 1e-3) <= found <= reference * 1.01


@pytest.mark.parametrize(
    ("sampling", "neighbors"),
    [("fixed", "replace_one"), ("poisson", "replace_one"), ("poisson", "add_or_remove_one")],
)
@pytest.mark.parametrize(("rate", "steps", "epsilon"), [(0.1, 40, 0.7), (0.01, 5000, 3.0)])
def test_calibration_is_safe_and_tight(sampling, neighbors, rate, steps, epsilon):
    multiplier = subsampled_multiplier(sampling, neighbors, rate, steps, epsilon, 1e-5)
    facts = (sampling, neighbors, rate, steps)
    assert subsampled_epsilon(*facts, multiplier, 1e-5) <= epsilon
    assert subsampled_epsilon(*facts, 0.995 * multiplier, 1e-5) > epsilon
    assert subsampled_multiplier(*facts, 2 * epsilon, 1e-5) < multiplier


def facts(n=200, loss=None, neighbors="replace_one", d=2):
    return LinearBounds(n, d, loss or Pinball(0.7), 1.0, 1.0, neighbors=neighbors)


@pytest.mark.parametrize(
    ("epsilon", "delta", "accounted"),
    [(1.0, 1e-2, 0.6384), (1.0, 1e-6, 0.8626), (0.5, 1e-2, 0.2206)],
)
def test_published_noise_is_certified_up_to_one(epsilon, delta, accounted):
    mechanism = NoisySGD(steps=5000**2, noise="published", average=1.0)
    certificate = mechanism.certify(facts(5000), ApproxDP(epsilon, delta))
    assert certificate.guarantee.epsilon_bound == pytest.approx(accounted, rel=2e-3)
    std = 0.7 * math.sqrt(2) * math.sqrt(8 * math.log(1 / delta)) / epsilon
    assert certificate.noise["gradients"]["std"] == pytest.approx(std, rel=1e-12)
    certificate.verify()


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-6])
def test_published_noise_is_refused_at_five(delta):
    mechanism = NoisySGD(steps=5000**2, noise="published")
    with pytest.raises(ValueError, match="accounted at epsilon="):
        mechanism.certify(facts(5000), ApproxDP(5.0, delta))


def test_contractive_bandwidth():
    kernel = KERNELS["logistic"]
    width = contractive_bandwidth(kernel, 4.0, 0.5, alpha=0.1)
    assert convolve(Pinball(0.7), kernel, width).smoothness * 4.0 + 0.1 == pytest.approx(4.0)


@pytest.mark.parametrize("guarantee", [GaussianDP(1.0), PureDP(1.0), ApproxDP(1.0, 0.0)])
def test_other_guarantees_are_refused(guarantee):
    with pytest.raises(ValueError, match=r"NoisySGD offers ApproxDP.*Got"):
        NoisySGD().certify(facts(), guarantee)


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (NoisySGD(steps=0), "steps"),
        (NoisySGD(steps=1.5), "steps"),
        (NoisySGD(batch_size=201), "batch_size"),
        (NoisySGD(batch_size=True), "batch_size"),
        (NoisySGD(sampling="shuffle"), "sampling"),
        (NoisySGD(average=-0.1), "average"),
        (NoisySGD(noise="none"), "noise"),
        (NoisySGD(step_size=0.0), "step_size"),
    ],
)
def test_bad_parameters(mechanism, message):
    with pytest.raises(ValueError, match=f"The '{message}' parameter of NoisySGD must be"):
        mechanism.certify(facts(), ApproxDP(1.0, 1e-6))


def test_fixed_batches_need_a_public_number_of_rows():
    with pytest.raises(ValueError, match="must be 'poisson' with neighbors='add_or_remove_one'"):
        NoisySGD().certify(facts(neighbors="add_or_remove_one"), ApproxDP(1.0, 1e-6))


def test_unbounded_slope_is_refused():
    with pytest.raises(ValueError, match="lipschitz=inf"):
        NoisySGD(steps=5).certify(facts(loss=Squared()), ApproxDP(1.0, 1e-6))


def test_tampering_is_noticed():
    certificate = NoisySGD(steps=50, batch_size=4).certify(facts(), ApproxDP(1.0, 1e-6))
    certificate.verify()
    again = Certificate.from_json(certificate.to_json())
    again.verify()
    for field, value, problem in (
        ("steps", 51, "but the mechanism has 51"),
        ("sampling", "poisson", "'theorem'"),
        ("sampling", "shuffled", "must be one of"),
        ("batch_size", 5, "does not suffice"),
        ("step_size", 0.5, "edited"),
    ):
        edited = replace(again, parameters={"sgd": {**again.parameters["sgd"], field: value}})
        with pytest.raises(ValueError, match=problem):
            edited.verify()


def objective_of(n=400, seed=0, loss=None):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    y = 0.5 + X @ [0.5, -0.3] + 0.2 * rng.normal(size=n)
    rows = MemoryRows(X, y, RowMap.from_bounds(2, (-1.0, 1.0)), threads=1)
    return EmpiricalObjective(rows, loss or Pinball(0.5), 0.0)


RUN_LOSSES = [
    Pinball(0.5),
    convolve(Pinball(0.5), KERNELS["gaussian"], 0.1),
    moreau(Pinball(0.5), 5.0),
]
RUNS = [NoisySGD(), NoisySGD(batch_size=20), NoisySGD(batch_size=20, sampling="poisson")]


@pytest.mark.parametrize("loss", RUN_LOSSES, ids=repr)
@pytest.mark.parametrize("mechanism", RUNS)
def test_finds_the_coefficients_with_little_noise(loss, mechanism):
    objective = objective_of(loss=loss)
    bounds = LinearBounds(400, 2, loss, math.sqrt(2), math.sqrt(2))
    certificate = mechanism.certify(bounds, ApproxDP(20.0, 1e-2), seeded=True)
    theta = mechanism.release(objective, certificate, 0)
    np.testing.assert_allclose(theta, [0.5, 0.5, -0.3], atol=0.12)
    np.testing.assert_array_equal(theta, mechanism.release(objective, certificate, 0))
    assert not np.array_equal(theta, mechanism.release(objective, certificate))


def test_own_loss_takes_the_same_steps():
    """A class that cannot be compiled runs step by step in Python, with the same law."""

    class Own(Huber):
        pass

    spread = []
    for loss in (Own(0.5), Huber(0.5)):
        bounds = LinearBounds(400, 2, loss, math.sqrt(2), math.sqrt(2))
        mechanism = NoisySGD(steps=3, batch_size=400, average=0.0, step_size=0.1)
        certificate = mechanism.certify(bounds, ApproxDP(1.0, 1e-2), seeded=True)
        spread.append(mechanism.release(objective_of(loss=loss), certificate, 3))
    # Whole batches: the only randomness is the noise, drawn in the same order.
    np.testing.assert_allclose(spread[0], spread[1], rtol=1e-9)


@pytest.mark.parametrize("mechanism", [replace(run, steps=200) for run in RUNS])
@pytest.mark.parametrize("loss", [Huber(0.5), type("Own", (Huber,), {})(0.5)], ids=["", "own"])
def test_records_that_are_mapped_when_they_are_visited_give_the_same_steps(
    mechanism, loss, monkeypatch
):
    bounds = LinearBounds(400, 2, loss, math.sqrt(2), math.sqrt(2))
    certificate = mechanism.certify(bounds, ApproxDP(1.0, 1e-2), seeded=True)
    objective = objective_of(loss=loss)
    expected = mechanism.release(objective, certificate, 3)
    monkeypatch.setattr(objective.rows, "small", False)
    monkeypatch.setattr(objective.rows, "mapped", None)  # never as a whole
    np.testing.assert_allclose(mechanism.release(objective, certificate, 3), expected, rtol=1e-12)


@pytest.mark.parametrize("mechanism", ["sgd", NoisySGD(batch_size=8, steps=300)])
def test_estimator(mechanism):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(2000, 2))
    y = 1 + X @ [1.0, -2.0] + 0.3 * rng.normal(size=2000)
    model = DPQuantileRegressor(
        0.7,
        epsilon=3.0,
        feature_bounds=(-1, 1),
        target_bounds=(-5, 5),
        mechanism=mechanism,
        random_state=0,
    )
    model.fit(X, y)
    assert model.certificate_.to_json() == model.certify(2000, 2).to_json()
    model.certificate_.verify()
    assert model.certificate_.mechanism == "sgd"
    assert model.score(X, y) > 0.6
    assert "sums over the rows" in repr(model.summary())


def test_names():
    assert resolve_mechanism("sgd", "test") == NoisySGD()


@pytest.mark.parametrize(("step_size", "alpha"), [(1.7e308, 0.0), (1e99, 0.0), (3.0, 1.0)])
def test_steps_that_could_overflow_are_refused(step_size, alpha):
    """An infinite iterate made a slope that is no number of a zero row's, so that a release
    showed a record.
    """
    bounds = replace(facts(), alpha=alpha)
    with pytest.raises(ValueError, match="overflow"):
        NoisySGD(steps=20, step_size=step_size).certify(bounds, ApproxDP(1.0, 1e-6))
