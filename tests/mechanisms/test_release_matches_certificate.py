"""A release refuses an objective that is not the certificate's, before any noise is drawn."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dpconvex.core.noise_source import NoiseSource
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Huber, L1Norm, Logistic, PairHinge, PairLogistic, Pinball
from dpconvex.mechanisms import (
    Moments,
    NoisyGradientDescent,
    NoisySGD,
    ObjectivePerturbation,
    OutputPerturbation,
    PairwiseObjectivePerturbation,
    PhasedERM,
    PhasedSGD,
    StructuredGradientDescent,
)
from dpconvex.objectives import (
    AdversarialObjective,
    CostlyAdversaryObjective,
    EmpiricalObjective,
    TiltedObjective,
)
from dpconvex.objectives.pairwise_objective import PairwiseObjective
from dpconvex.objectives.structured_objective import StructuredObjective, StructuredRecords
from dpconvex.privacy import ApproxDP, LinearBounds
from dpconvex.privacy.bounds.ranking import PairwiseBounds
from dpconvex.privacy.bounds.structured_bounds import StructuredBounds
from dpconvex.privacy.bounds.tilted_and_robust_bounds import RobustBounds, TiltedBounds
from dpconvex.smoothing import GaussianKernel, convolve_vector

N = 64
D = 2
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(N, D))
Y = np.where(RNG.random(N) < 0.5, 1.0, -1.0)
BUDGET = ApproxDP(1.0, 1e-6)


class Silent(NoiseSource):
    """A source that may not be asked for anything."""

    def __init__(self):
        super().__init__(0)
        self.generator = None

    def _refuse(self, *arguments, **options):
        raise AssertionError("noise was drawn")

    gaussian = l2_laplace = add_gaussian = add_l2_laplace = draw = add = _refuse


@dataclass
class Setting:
    """How to build an objective from bounds, and bounds that differ from it in one fact."""

    bounds: object
    build: object
    wrong: dict


def rows_of(bounds, **options):
    row_map = RowMap(
        D, bounds.row_norm, bounds.fit_intercept, "weight", (-1.0,) * D, (1.0,) * D
    )  # max_norm sqrt(2)
    return MemoryRows(X, Y, row_map, threads=1, **options)


def linear(bounds, **options):
    return EmpiricalObjective(
        rows_of(bounds, **options), bounds.loss, bounds.alpha, bounds.n_samples
    )


def tilted(bounds):
    return TiltedObjective(
        rows_of(bounds), bounds.loss, bounds.alpha, bounds.tilt, bounds.coef_bound, bounds.wall
    )


def robust(bounds):
    if bounds.cost is not None:
        return CostlyAdversaryObjective(rows_of(bounds), bounds.loss, bounds.alpha, bounds.cost)
    return AdversarialObjective(
        rows_of(bounds),
        bounds.loss,
        bounds.alpha,
        bounds.radius,
        bounds.norm,
        bounds.width,
        bounds.n_samples,
    )


MATRICES = RNG.normal(size=(N, 2, D))


def structured(bounds):
    records = StructuredRecords(MATRICES, MATRICES @ np.ones(D), bounds.operator_norm)
    return StructuredObjective(records, bounds.loss, bounds.alpha, divisor=bounds.n_samples)


def pairwise(bounds):
    return PairwiseObjective(
        X / 2,
        Y > 0,
        bounds.loss,
        bounds.alpha,
        bounds.min_positive,
        bounds.min_negative,
        row_norm=bounds.row_norm,
    )


def mapped_pairs(bounds):
    row_map = RowMap(D, bounds.row_norm, False, "shorten", (0.0,) * D, (1.0,) * D)
    rows = MemoryRows(np.abs(X), Y, row_map, threads=1)
    return PairwiseObjective(
        rows,
        None,
        bounds.loss,
        bounds.alpha,
        bounds.min_positive,
        bounds.min_negative,
        row_norm=bounds.row_norm,
    )


LINEAR = LinearBounds(N, D, Logistic(), 1.0, math.sqrt(2), alpha=0.1)
LINEAR_FACTS = {
    "loss": Huber(0.5),
    "alpha": 0.2,
    "n_samples": N + 1,
    "n_features": D + 1,
    "row_norm": 0.5,
    "max_norm": 3.0,
    "fit_intercept": False,
}
ROBUST = RobustBounds(N, D, Logistic(), 1.0, math.sqrt(2), alpha=0.1, radius=0.2)
ROBUST_FACTS = {
    **{name: value for name, value in LINEAR_FACTS.items() if name != "loss"},
    "radius": 0.1,
    "norm": "linf",
    "width": 0.02,
}
SMOOTH_L1 = convolve_vector(L1Norm(2), GaussianKernel(2), 0.5)
STRUCTURED = StructuredBounds(N, D, SMOOTH_L1, 1.0, alpha=1.0)
STRUCTURED_FACTS = {
    "loss": convolve_vector(L1Norm(2), GaussianKernel(2), 0.6),
    "alpha": 2.0,
    "n_samples": N - 1,
    "n_features": D + 1,
    "operator_norm": 0.9,
}
PAIRS = PairwiseBounds(N, D, PairLogistic("e"), 1.0, None, 10, 12, alpha=20.0)
PAIR_FACTS = {
    "loss": PairHinge(0.5),
    "alpha": 30.0,
    "n_samples": N + 1,
    "n_features": D + 1,
    "row_norm": 0.8,
    "min_positive": 11,
    "min_negative": 13,
}

SETTINGS = {
    "linear": Setting(LINEAR, linear, LINEAR_FACTS),
    "tilted": Setting(
        TiltedBounds(N, D, Logistic(), 1.0, math.sqrt(2), alpha=0.1, tilt=0.5, coef_bound=2.0),
        tilted,
        {**LINEAR_FACTS, "tilt": 0.4, "coef_bound": 3.0},
    ),
    "robust": Setting(ROBUST, robust, ROBUST_FACTS),
    "costly": Setting(
        replace(ROBUST, cost=20.0),
        robust,
        {"alpha": 0.2, "n_samples": N + 1, "row_norm": 0.5, "cost": 30.0},
    ),
    "structured": Setting(STRUCTURED, structured, STRUCTURED_FACTS),
    "pairs": Setting(PAIRS, pairwise, PAIR_FACTS),
    "mapped pairs": Setting(
        replace(PAIRS, diameter=math.sqrt(2)), mapped_pairs, {**PAIR_FACTS, "diameter": 1.0}
    ),
}

MECHANISMS = [
    ("linear", ObjectivePerturbation()),
    ("linear", OutputPerturbation()),
    ("linear", NoisyGradientDescent()),
    ("linear", NoisySGD(steps=5)),
    ("linear", PhasedERM()),
    ("linear", PhasedSGD()),
    ("tilted", OutputPerturbation()),
    ("robust", OutputPerturbation()),
    ("costly", OutputPerturbation()),
    ("structured", ObjectivePerturbation()),
    ("structured", StructuredGradientDescent(steps=5)),
    ("pairs", Moments()),
    ("pairs", OutputPerturbation()),
    ("pairs", PairwiseObjectivePerturbation()),
    ("mapped pairs", PairwiseObjectivePerturbation()),
]
CASES = [
    (setting, mechanism, fact)
    for setting, mechanism in MECHANISMS
    for fact in SETTINGS[setting].wrong
]
WORDS = {"n_samples": "divisor|n_rows|n_records"}


def names(value):
    return value if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize(("setting", "mechanism"), MECHANISMS, ids=names)
def test_what_was_certified_is_released(setting, mechanism):
    given = SETTINGS[setting]
    certificate = mechanism.certify(given.bounds, BUDGET)
    assert np.isfinite(mechanism.release(given.build(given.bounds), certificate, 0)).all()


@pytest.mark.parametrize(("setting", "mechanism", "fact"), CASES, ids=names)
def test_any_other_objective_is_refused_before_noise(setting, mechanism, fact):
    given = SETTINGS[setting]
    bounds = replace(given.bounds, **{fact: given.wrong[fact]})
    certificate = mechanism.certify(bounds, BUDGET)
    # The steepness of a tilted objective's wall follows from its rows, and may be named in their
    # place.
    with pytest.raises(
        ValueError, match=rf"has ({WORDS.get(fact, fact)}|wall)=.*certificate was issued"
    ):
        mechanism.release(given.build(given.bounds), certificate, Silent())


@pytest.mark.parametrize(("setting", "mechanism"), MECHANISMS, ids=names)
def test_an_objective_of_another_kind_is_refused(setting, mechanism):
    given = SETTINGS[setting]
    certificate = mechanism.certify(given.bounds, BUDGET)
    other = "pairs" if setting in ("linear", "tilted", "robust", "costly") else "linear"
    foreign = SETTINGS[other].build(SETTINGS[other].bounds)
    with pytest.raises(ValueError, match="has objective="):
        mechanism.release(foreign, certificate, Silent())
    with pytest.raises(TypeError, match="public_facts"):
        mechanism.release(object(), certificate, Silent())


def test_the_number_of_rows_is_compared_only_where_it_is_public():
    bounds = replace(LINEAR, neighbors="add_or_remove_one", n_samples=50)
    certificate = OutputPerturbation().certify(bounds, BUDGET)
    objective = linear(bounds)
    assert objective.n_rows == N
    assert np.isfinite(OutputPerturbation().release(objective, certificate, 0)).all()
    without = EmpiricalObjective(objective.rows, bounds.loss, bounds.alpha)  # divides by the rows
    with pytest.raises(ValueError, match="has divisor=64"):
        OutputPerturbation().release(without, certificate, Silent())


@pytest.mark.parametrize("setting", ["linear", "structured", "pairs"])
def test_a_linear_term_that_no_certificate_knows_is_refused(setting):
    given = SETTINGS[setting]
    certificate = OutputPerturbation().certify(given.bounds, BUDGET)
    objective = given.build(given.bounds)
    objective = objective.with_linear(np.full(objective.dim, 0.5))
    with pytest.raises(ValueError, match="has linear_term=True"):
        OutputPerturbation().release(objective, certificate, Silent())


def test_weights_of_ones_own_are_refused():
    certificate = OutputPerturbation().certify(LINEAR, BUDGET)
    objective = linear(LINEAR, weights=np.full(N, 5.0))
    with pytest.raises(ValueError, match="has own_weights=True"):
        OutputPerturbation().release(objective, certificate, Silent())


def test_rows_that_nobody_bounded_are_refused():
    certificate = Moments().certify(PAIRS, BUDGET)
    unbounded = PairwiseObjective(100 * X, Y > 0, PAIRS.loss, PAIRS.alpha, 10, 12)
    with pytest.raises(ValueError, match="has row_norm=None"):
        Moments().release(unbounded, certificate, Silent())
    longer = RowMap(D, 5.0, fit_intercept=False)
    rows = MemoryRows(X, Y, longer, threads=1)
    declared = PairwiseObjective(rows, None, PAIRS.loss, PAIRS.alpha, 10, 12, row_norm=1.0)
    with pytest.raises(ValueError, match=r"has row_norm=5\.0"):
        Moments().release(declared, certificate, Silent())


def test_rows_of_weights_are_not_shortened_rows():
    # Without bounds, weighted rows may be of any length, and the curvature is not bounded.
    certificate = ObjectivePerturbation().certify(
        LinearBounds(N, D, Logistic(), 1.0, 1.0, alpha=0.5), BUDGET
    )
    rows = MemoryRows(X, Y, RowMap(D, 1.0, influence="weight"), threads=1)
    with pytest.raises(ValueError, match="has max_norm=inf"):
        ObjectivePerturbation().release(
            EmpiricalObjective(rows, Logistic(), 0.5), certificate, Silent()
        )


def test_variants_of_output_perturbation_compare_too():
    linf = replace(ROBUST, norm="linf")
    mechanism = OutputPerturbation()
    certificate = mechanism.certify(linf, BUDGET, {"threshold": 2.0})
    with pytest.raises(ValueError, match="has norm='l2'"):
        mechanism.release(robust(ROBUST), certificate, Silent())


def test_a_loss_of_ones_own_matches_by_itself_and_by_its_constants():
    class Own(Huber):
        """Huber's, under another name."""

    own = Own(0.5)
    bounds = replace(LINEAR, loss=own)
    certificate = OutputPerturbation().certify(bounds, BUDGET)
    assert np.isfinite(OutputPerturbation().release(linear(bounds), certificate, 0)).all()
    steeper = replace(bounds, loss=Own(0.7))
    with pytest.raises(ValueError, match="has loss="):
        OutputPerturbation().release(linear(steeper), certificate, Silent())
    kinked = replace(bounds, loss=Pinball(0.5))
    with pytest.raises(ValueError, match="has loss="):
        OutputPerturbation().release(linear(kinked), certificate, Silent())
