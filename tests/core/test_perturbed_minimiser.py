"""Perturbed minimisers: uses are counted before anything is drawn, and no solver is believed."""

import numpy as np
import pytest

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Logistic, PairLogistic, Pinball
from dpconvex.mechanisms import (
    ObjectivePerturbation,
    OutputPerturbation,
    PairwiseObjectivePerturbation,
    PhasedERM,
    PhasedSGD,
)
from dpconvex.objectives import EmpiricalObjective, PairwiseObjective
from dpconvex.privacy import ApproxDP, CertificateError, LinearBounds, NoiseSource, PureDP
from dpconvex.privacy.bounds.ranking import PairwiseBounds
from dpconvex.releases import perturbed_minimiser
from dpconvex.releases.perturbed_minimiser import (
    LONGEST,
    WIDEST,
    PerturbedMinimiser,
    exact_minimiser,
    release_phased_minimisers,
)
from dpconvex.solvers import ConvergenceError, Solution, black_box

RNG = np.random.default_rng(0)
N = 64
D = 2
X = RNG.uniform(-1, 1, (N, D))
Y = np.where(RNG.random(N) < 0.5, 1.0, -1.0)
CLAIM = ApproxDP(1.0, 1e-6)
MINIMISERS = [ObjectivePerturbation(), OutputPerturbation()]


class Watched(NoiseSource):
    """Keeps what was asked for."""

    def __init__(self):
        super().__init__(0)
        self.asked = []

    def draw(self, term):
        self.asked.append("draw")
        return super().draw(term)

    def add(self, value, term):
        self.asked.append("add")
        return super().add(value, term)


def facts(loss=None, alpha=0.1):
    return LinearBounds(N, D, loss or Logistic(), 1.0, 1.0, fit_intercept=False, alpha=alpha)


def objective_of(bounds):
    rows = MemoryRows(X, Y, RowMap(D, 1.0, fit_intercept=False), threads=1)
    return EmpiricalObjective(rows, bounds.loss, bounds.alpha, N)


def pairs():
    bounds = PairwiseBounds(N, D, PairLogistic("e"), 1.0, None, 16, 16, alpha=1e3)
    certificate = PairwiseObjectivePerturbation().certify(
        bounds, PureDP(1.0), {LONGEST: 3.0, WIDEST: 6.0}
    )
    return PairwiseObjective(X, Y > 0, bounds.loss, 1e3, 16, 16, row_norm=3.0), certificate


@pytest.mark.parametrize("mechanism", MINIMISERS)
def test_one_release_too_many_draws_nothing(mechanism):
    bounds = facts()
    noise = Watched()
    certificate = mechanism.certify(bounds, CLAIM)
    minimiser = PerturbedMinimiser(objective_of(bounds), certificate, noise)
    assert np.isfinite(minimiser.release()).all()
    before = noise.asked.copy()
    with pytest.raises(CertificateError, match="all of them are used"):
        minimiser.release()
    assert noise.asked == before == ["draw"] * (len(certificate.noise) - 1) + ["add"]


def test_another_objective_is_refused_before_anything_is_drawn():
    bounds = facts()
    noise = Watched()
    for mechanism in (*MINIMISERS, PhasedERM(), PhasedSGD()):
        certificate = mechanism.certify(bounds, CLAIM)
        other = objective_of(facts(alpha=0.2))
        handle, more = PerturbedMinimiser, ()
        if isinstance(mechanism, (PhasedERM, PhasedSGD)):
            handle = release_phased_minimisers
            more = mechanism.stated_settings(certificate), mechanism.one_pass
        with pytest.raises(ValueError, match="must be that of its certificate"):
            handle(other, certificate, noise, *more)
    assert noise.asked == []


def test_rows_of_pairs_are_measured_once_and_before_a_release():
    objective, certificate = pairs()
    noise = Watched()
    minimiser = PerturbedMinimiser(objective, certificate, noise)
    with pytest.raises(CertificateError, match="units of a length"):
        minimiser.release()
    # Row lengths strictly below a point are counted, and no more often than the certificate says.
    lengths = np.sort(np.linalg.norm(X, axis=1))
    term = certificate.noise["lengths"]
    uses = certificate.noise["lengths"].releases
    for i in range(uses):
        found = minimiser.count_shorter("lengths", lengths[i])
        assert abs(found + N / 2 - i) < 20 * term.scale  # beyond with probability exp(-20)
    with pytest.raises(CertificateError, match="all of them are used"):
        minimiser.count_shorter("lengths", lengths[0])
    for wrong in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="unit of length"):
            minimiser.measure_minimised_pairs(wrong)
    assert minimiser.measure_minimised_pairs(None) == 3.0
    with pytest.raises(CertificateError, match="already"):
        minimiser.measure_minimised_pairs(1e-9)
    minimiser.release()
    assert noise.asked == ["draw"] + ["add"] * (uses + 1)


def test_lengths_are_counted_strictly_below():
    objective, certificate = pairs()

    class Without(Watched):
        def add(self, value, term):
            return value

    rows = np.zeros((N, D))
    rows[:, 0] = np.repeat([0.5, 1.0, 2.0, 3.0], N // 4)
    own = PairwiseObjective(rows, Y > 0, objective.loss, 1e3, 16, 16, row_norm=3.0)
    minimiser = PerturbedMinimiser(own, certificate, Without())
    # Lengths are rounded up: a row of length 1 is not below 1, nor just above.
    found = [minimiser.count_shorter("lengths", each) + N / 2 for each in (0.25, 1.0, 2.5)]
    assert found == [0, N // 4, 3 * N // 4]


class Liar:
    """Says that a point far away is the minimiser."""

    def solve(self, objective, start, tolerance):
        return Solution(np.full(D, 50.0), 0.0, 1, 0.0)


@pytest.mark.parametrize("loss", [Logistic(), Pinball(0.3)], ids=["smooth", "kinked"])
@pytest.mark.parametrize("gap", [None, 1e-3])
def test_a_solver_that_lies_is_caught(loss, gap):
    bounds = facts(loss)
    mechanism = OutputPerturbation(Liar(), gap=gap)
    certificate = mechanism.certify(bounds, CLAIM)
    objective = objective_of(bounds)
    own, best = (
        exact_minimiser(objective, certificate, solver, gap is not None)
        for solver in (Liar(), None)
    )
    distance = 2 * certificate.noise["release"].tolerance / bounds.alpha
    assert np.linalg.norm(own - best) <= distance
    released = mechanism.release(objective, certificate, 1)
    honest = OutputPerturbation(gap=gap).release(objective, certificate, 1)
    assert np.linalg.norm(released - honest) <= 1.01 * distance


@pytest.mark.parametrize("mechanism", [*MINIMISERS, PhasedERM()])
def test_nothing_is_released_where_nothing_was_certified(mechanism, monkeypatch):
    """The last resort returns a point without the certificate that was asked for."""

    def short(objective, point, tolerance):
        return Solution(point, 1.01 * tolerance, 1)

    monkeypatch.setattr(black_box, "polish_black_box", short)
    bounds = facts()
    noise = Watched()
    certificate = mechanism.certify(bounds, CLAIM)
    with pytest.raises(ConvergenceError):
        mechanism.release(objective_of(bounds), certificate, noise)
    assert "add" not in noise.asked


@pytest.mark.parametrize("mechanism", [PhasedERM(), PhasedSGD()])
def test_every_record_is_in_one_phase(mechanism, monkeypatch):
    bounds = facts()
    noise = Watched()
    chosen = []
    certificate = mechanism.certify(bounds, PureDP(1.0))
    inner = perturbed_minimiser.phase_minimiser

    def keep(objective, certificate, phase, tolerance, records, *rest):
        chosen.append(records)
        return inner(objective, certificate, phase, tolerance, records, *rest)

    monkeypatch.setattr(perturbed_minimiser, "phase_minimiser", keep)
    mechanism.release(objective_of(bounds), certificate, noise)
    records = np.concatenate(chosen)
    assert len(np.unique(records)) == len(records) <= N
    assert noise.asked == ["add"] * len(certificate.noise)
