"""Robust objectives: the closed form is the worst case, derivatives and constants."""

import math

import numpy as np
import pytest

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Absolute, Hinge, Logistic
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import AdversarialObjective, CostlyAdversaryObjective, EmpiricalObjective
from dpconvex.objectives.adversary_sets import exact_adversary_support, smoothed_adversary_support
from dpconvex.privacy import ApproxDP, Certificate, RobustBounds
from dpconvex.smoothing import LogisticKernel, convolve

LOSSES = [Logistic(), convolve(Hinge(), LogisticKernel(), 0.5)]
THETA = np.array([0.3, 0.9, -0.4, 0.001])


def data(n=200, d=3, row_norm=1.0):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, d))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    return MemoryRows(X, y, RowMap.from_bounds(d, (-1.0, 1.0), row_norm))


def check_derivatives(objective):
    step = 1e-6
    gradient = objective.gradient(THETA)
    hessian = objective.hessian(THETA)
    for j, axis in enumerate(np.eye(4)):
        ends = THETA + step * axis, THETA - step * axis
        slope = (objective.value(ends[0]) - objective.value(ends[1])) / (2 * step)
        bend = (objective.gradient(ends[0]) - objective.gradient(ends[1])) / (2 * step)
        assert gradient[j] == pytest.approx(slope, abs=1e-8)
        assert hessian[j] == pytest.approx(bend, abs=1e-5)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_derivatives(loss, norm):
    check_derivatives(AdversarialObjective(data(), loss, 0.1, 0.3, norm))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_derivatives_with_a_cost(loss):
    check_derivatives(CostlyAdversaryObjective(data(), loss, 0.5, 30.0))


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_no_perturbation_does_worse_than_the_closed_form(norm):
    """Random moves on the sphere of the norm, and the worst one, which attains it up to the
    smoothing.
    """
    rows = data(20)
    radius = 0.3
    width = 1e-6
    objective = AdversarialObjective(rows, Logistic(), 0.0, radius, norm, width)
    block, y, w = rows.mapped()
    claimed = objective.value(THETA)
    rng = np.random.default_rng(1)

    def attacked(moves):
        moved = block.copy()
        moved[:, 1:] += moves
        return float(w @ Logistic().value(y, moved @ THETA)) / len(y)

    for _ in range(200):
        moves = rng.normal(size=(20, 3))
        lengths = np.abs(moves).max(axis=1) if norm == "linf" else np.linalg.norm(moves, axis=1)
        assert attacked(radius * moves / lengths[:, None]) <= claimed + 1e-5
    inner = THETA[1:]
    worst = np.sign(inner) if norm == "linf" else inner / np.linalg.norm(inner)
    assert attacked(-radius * y[:, None] * worst) == pytest.approx(claimed, abs=1e-5)


def test_radius_zero_is_the_mean_of_losses():
    rows = data()
    robust = AdversarialObjective(rows, Logistic(), 0.1, 0.0)
    plain = EmpiricalObjective(rows, Logistic(), 0.1)
    assert robust.value(THETA) == pytest.approx(plain.value(THETA), rel=1e-14)
    assert robust.gradient(THETA) == pytest.approx(plain.gradient(THETA), rel=1e-12)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_dual_norms(norm):
    rng = np.random.default_rng(2)
    for size in (0.0, 1e-9, 0.1, 10.0):
        c = size * rng.normal(size=5)
        value, slope, bend = smoothed_adversary_support(c, norm, 0.01)
        exact = np.abs(c).sum() if norm == "linf" else np.linalg.norm(c)
        slack = 0.01 * (5 if norm == "linf" else 1)
        assert exact - slack <= value <= exact + 1e-15
        assert np.linalg.norm(slope) <= (math.sqrt(5) if norm == "linf" else 1)
        assert np.linalg.eigvalsh(bend).min() >= -1e-9
        assert np.linalg.eigvalsh(bend).max() <= 1 / 0.01 + 1e-9


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("row_norm", [0.4, 1.0, 3.0])
def test_declared_constants_hold_for_every_record(loss, norm, row_norm):
    """Gradient and Hessian of single records, at corners and at random points."""
    row_map = RowMap.from_bounds(3, (-1.0, 1.0), row_norm)
    facts = RobustBounds(1, 3, loss, row_norm, row_map.max_norm, alpha=0.1, radius=0.3, norm=norm)
    rng = np.random.default_rng(3)
    largest = [0.0, 0.0]
    for _ in range(150):
        X = np.sign(rng.normal(size=(1, 3))) if rng.random() < 0.5 else rng.uniform(-1, 1, (1, 3))
        rows = MemoryRows(X, [rng.choice([-1.0, 1.0])], row_map)
        record = AdversarialObjective(rows, loss, 0.0, 0.3, norm)
        scale = 10.0 ** rng.uniform(-3, 1)
        theta = -rows.mapped()[1][0] * scale * rows.mapped()[0][0]
        theta = theta if rng.random() < 0.5 else scale * rng.normal(size=4)
        largest[0] = max(largest[0], float(np.linalg.norm(record.gradient(theta))))
        largest[1] = max(largest[1], float(np.linalg.eigvalsh(record.hessian(theta)).max()))
    assert largest[0] <= facts.lipschitz * (1 + 1e-12)
    assert largest[1] <= facts.smoothness * (1 + 1e-12)
    assert largest[0] >= 0.9 * facts.lipschitz  # the constant is not wasteful


@pytest.mark.parametrize("label", [1.0, -1.0])
def test_lipschitz_constant_is_attained(label):
    """A corner row far on the wrong side, which the adversary pushes further."""
    row_map = RowMap.from_bounds(3, (-1.0, 1.0))
    facts = RobustBounds(1, 3, Logistic(), math.sqrt(3), math.sqrt(3), radius=0.3, norm="linf")
    rows = MemoryRows(np.ones((1, 3)), [label], row_map)
    record = AdversarialObjective(rows, Logistic(), 0.0, 0.3, "linf")
    steep = np.linalg.norm(record.gradient(-100 * label * np.ones(4)))
    assert steep == pytest.approx(facts.lipschitz, rel=1e-6)


def test_costly_facts_hold():
    """Reach of the adversary and constants of a record on the ball that holds the minimisers."""
    row_map = RowMap.from_bounds(3, (-1.0, 1.0), 1.0)
    facts = RobustBounds(1, 3, Logistic(), 1.0, row_map.max_norm, alpha=0.2, cost=4.0)
    rng = np.random.default_rng(4)
    for _ in range(100):
        rows = MemoryRows(np.sign(rng.normal(size=(1, 3))), [rng.choice([-1.0, 1.0])], row_map)
        record = CostlyAdversaryObjective(rows, Logistic(), 0.2, 4.0)
        assert record.reach == pytest.approx(facts.perturbation_norm)
        theta = rng.normal(size=4)
        theta *= facts.minimiser_norm * rng.random() / np.linalg.norm(theta)
        gradient = record.gradient(theta) - 0.2 * theta
        hessian = record.hessian(theta) - 0.2 * np.eye(4)
        assert np.linalg.norm(gradient) <= facts.lipschitz * (1 + 1e-12)
        assert np.linalg.eigvalsh(hessian).max() <= facts.smoothness * (1 + 1e-12)
        assert np.linalg.eigvalsh(hessian).min() >= -1e-12


def test_certificates_survive_the_trip_to_json():
    for more in ({"norm": "linf"}, {"cost": 10.0}):
        facts = RobustBounds(1000, 3, Logistic(), 1.0, 1.0, alpha=0.2, **more)
        again = Certificate.from_json(
            OutputPerturbation().certify(facts, ApproxDP(1.0, 1e-6)).to_json()
        )
        again.verify()
        assert again.bounds == facts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"radius": -0.1}, "radius"),
        ({"norm": "l3"}, "norm"),
        ({"width": 0.0}, "width"),
        ({"loss": Absolute(), "cost": 1.0}, "margin loss"),
        ({"cost": 1.0}, "at least"),
        ({"cost": 100.0, "norm": "linf"}, "l2"),
        ({"cost": 100.0, "neighbors": "add_or_remove_one"}, "replace_one"),
    ],
)
def test_what_has_no_proof_is_refused(change, message):
    facts = {
        "n_samples": 10,
        "n_features": 1,
        "loss": Logistic(),
        "row_norm": 1.0,
        "max_norm": 1.0,
        "alpha": 0.1,
    }
    with pytest.raises(ValueError, match=message):
        RobustBounds(**{**facts, **change})
    if "cost" in change and "norm" not in change and "neighbors" not in change:
        with pytest.raises(ValueError, match="at least"):
            CostlyAdversaryObjective(data(), Logistic(), 0.1, change["cost"])


def test_objectives_check_their_parameters():
    with pytest.raises(ValueError, match="margin loss"):
        AdversarialObjective(data(), Absolute(), 0.1, 0.1)
    with pytest.raises(ValueError, match="norm"):
        AdversarialObjective(data(), Logistic(), 0.1, 0.1, "l3")


SETS = {
    "l1": None,
    "box": (0.5, 2.0, 1.0),
    "hull": ((1.0, 0.0, 0.5), (-0.3, 0.8, 0.0), (0.2, 0.2, -1.5)),
}


@pytest.mark.parametrize("norm", SETS)
def test_sets_of_ones_own(norm):
    from decimal import Decimal, localcontext

    from dpconvex.privacy import RobustBounds

    shape = SETS[norm]
    width = 0.05
    bounds = RobustBounds(
        10, 3, Logistic(), 1.0, 1.0, radius=1.0, norm=norm, width=width, shape=shape
    )
    rng = np.random.default_rng(0)
    extremes = {
        "l1": np.eye(3),
        "box": np.array([[a, b, c] for a in (-0.5, 0.5) for b in (-2.0, 2.0) for c in (-1.0, 1.0)]),
        "hull": np.array(SETS["hull"]),
    }[norm]
    slack = width * (np.sum(shape) if norm == "box" else np.log(2 * len(extremes)))
    for _ in range(50):
        c = rng.normal(size=3) * 10 ** rng.uniform(-3, 1)
        value, slope, bend = smoothed_adversary_support(c, norm, width, shape)
        support = np.abs(extremes @ c).max()
        assert support - slack - 1e-12 <= value <= support + 1e-12
        with localcontext() as context:
            context.prec = 40
            exact = exact_adversary_support(
                [Decimal(x) for x in c.tolist()], norm, Decimal(width), shape
            )
        assert value == pytest.approx(float(exact), rel=1e-12, abs=1e-15)
        step = 1e-6
        around = [smoothed_adversary_support(c + step * e, norm, width, shape) for e in np.eye(3)]
        behind = [smoothed_adversary_support(c - step * e, norm, width, shape) for e in np.eye(3)]
        slopes = [(a[0] - b[0]) / (2 * step) for a, b in zip(around, behind, strict=True)]
        np.testing.assert_allclose(slope, slopes, atol=1e-7)
        assert np.linalg.norm(slope) <= bounds.perturbation_norm * (1 + 1e-12)
        eigenvalues = np.linalg.eigvalsh(bend)
        assert eigenvalues.min() >= -1e-9
        assert eigenvalues.max() <= bounds._dual_norm_curvature / width * (1 + 1e-9)


@pytest.mark.parametrize("norm", SETS)
def test_the_worst_move_in_a_set_is_what_the_objective_takes(norm):
    from dpconvex import DPRobustClassifier

    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3)) / 2
    y = (X @ [2.0, -1.0, 0.5] > 0).astype(int)
    model = DPRobustClassifier(
        0.3,
        norm,
        shape=SETS[norm],
        alpha=0.1,
        epsilon=1e4,
        delta=1e-3,
        random_state=0,
        row_norm=2.0,
    )
    with pytest.warns(UserWarning, match="feature_bounds"):
        model.fit(X, y)
    model.certificate_.verify()
    assert model.certificate_.to_json() == model.certify(300, 3).to_json()


def test_shapes_are_checked():
    from dpconvex.privacy import RobustBounds

    for norm, shape in (
        ("box", None),
        ("box", (1.0, 0.0, 1.0)),
        ("hull", (1.0, 2.0, 3.0)),
        ("l2", (1.0,) * 3),
        ("hull", ((0.0,) * 3,)),
    ):
        with pytest.raises(ValueError, match="'shape'"):
            RobustBounds(10, 3, Logistic(), 1.0, 1.0, norm=norm, shape=shape)
