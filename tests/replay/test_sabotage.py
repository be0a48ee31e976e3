"""Record and replay sees what it is there for: a fit that uses more than it paid for is caught."""

import numpy as np
import pytest
from fits import ADD, REPLACE
from replaying import Replay

from dpconvex.core import fused_kernels, row_weights
from dpconvex.core.bounds import Bounds
from dpconvex.core.queries import Query
from dpconvex.fit.private_fit import PrivateFit
from dpconvex.inputs import people_and_weights
from dpconvex.mechanisms.output_perturbation import OutputPerturbation
from dpconvex.releases import exponential_choices, perturbed_minimiser


def is_caught(name, relation, variant="rows", tables=12, on_edge=False):
    """Whether some pair spends a tenth more than its budget, or differs in something that was
    not paid for.
    """
    for seed in range(tables):
        pairs = Replay(name, relation, variant, seed, on_edge)
        pairs.adversarial = False
        leader = pairs.leader()
        for _ in range(4):
            try:
                share = pairs.share(leader)
            except AssertionError:
                return True
            if share > 1.1:
                return True
    return False


def half_of(kind, name):
    """Halve what a method says that one record can change."""
    honest = getattr(kind, name)

    def halve(monkeypatch):
        monkeypatch.setattr(kind, name, lambda self, *more: honest(self, *more) / 2)

    return halve


HALF = half_of(Bounds, "gradient_sum_sensitivity")


@pytest.mark.parametrize(
    ("name", "sabotage"),
    [
        ("DPQuantileRegressor-output", HALF),
        ("DPQuantileRegressor-objective", HALF),
        ("DPQuantileRegressor-poisson", HALF),
        ("DPQuantileRegressor-phased-erm", HALF),
        ("DPMedian-gradient", half_of(Query, "sensitivity")),
        ("DPMedian-poisson", HALF),
        ("DPQuantileRegressor-plain", half_of(Query, "sensitivity")),
        ("DPLogisticRegression-gradient", half_of(Query, "sensitivity")),
    ],
)
def test_half_a_clip_is_caught(name, sabotage, monkeypatch):
    assert not is_caught(name, ADD, tables=2)
    sabotage(monkeypatch)
    assert is_caught(name, ADD)


@pytest.mark.parametrize("name", ["DPQuantileRegressor-gradient"])
def test_one_product_as_of_blas_is_caught(name, monkeypatch):
    """Rows of an incomplete group of four are summed in another order, as products of matrices
    do on many machines.
    """
    assert not is_caught(name, ADD, tables=2, on_edge=True)
    honest = fused_kernels.raw_margins

    def in_groups(raw, indices, first, low, high, shift, steps, constant, out):
        honest(raw, indices, first, low, high, shift, steps, constant, out)
        whole = len(out) - len(out) % 4
        places = np.arange(first + whole, first + len(out))
        rest = raw[indices[places] if indices.size else places]
        total = np.full(len(rest), constant)  # the constant first, not last
        for j in range(low.size):
            total += (np.clip(rest[:, j], low[j], high[j]) - shift[j]) * steps[j]
        out[whole:] = total

    monkeypatch.setattr(fused_kernels, "raw_margins", in_groups)
    # The Python function calls what stands in for the compiled one.
    monkeypatch.setattr(fused_kernels, "fused_slope_sums", fused_kernels.fused_slope_sums.py_func)
    assert is_caught(name, ADD, tables=40, on_edge=True)


def forget_a_release(monkeypatch):
    """Release the minimiser twice, and state it once."""
    honest = OutputPerturbation._run

    def twice(self, objective, certificate, noise, record, settings):
        record["again"] = honest(self, objective, certificate, noise, record, settings)
        return honest(self, objective, certificate, noise, record, settings)

    monkeypatch.setattr(OutputPerturbation, "_run", twice)


def count_by_data(monkeypatch):
    """Release as often as the minimiser is long."""
    honest = OutputPerturbation._run

    def often(self, objective, certificate, noise, record, settings):
        for _ in range(int(10 * np.linalg.norm(self.minimise(objective, certificate)))):
            honest(self, objective, certificate, noise, record, settings)
        return honest(self, objective, certificate, noise, record, settings)

    monkeypatch.setattr(OutputPerturbation, "_run", often)


def show_what_is_exact(monkeypatch):
    """Leave something private among what was released."""
    honest = OutputPerturbation._run

    def kept(self, objective, certificate, noise, record, settings):
        record["solver_steps"] = float(self.minimise(objective, certificate)[0])
        return honest(self, objective, certificate, noise, record, settings)

    monkeypatch.setattr(OutputPerturbation, "_run", kept)


def divide_by_the_rows(monkeypatch):
    """Divide by the true number of rows, which is private when records come and go."""
    honest = PrivateFit.__init__

    def init(self, *arguments):
        honest(self, *arguments)
        self.mass = float(self.rows._rows._rows.n_rows)

    monkeypatch.setattr(PrivateFit, "__init__", init)


def share_phases(monkeypatch):
    """Use every record in every phase."""
    honest = perturbed_minimiser.records_of_minimisers

    def everybody(*arguments):
        parts = honest(*arguments)
        return [np.concatenate(parts)] * len(parts)

    monkeypatch.setattr(perturbed_minimiser, "records_of_minimisers", everybody)


def spread_of_one(monkeypatch):
    """Draw as if one record could move scores half as far apart."""
    honest = exponential_choices.exponential_loss_spread
    monkeypatch.setattr(
        exponential_choices, "exponential_loss_spread", lambda bounds: honest(bounds) // 2
    )


def whole_weights(monkeypatch):
    """Let every row of a person count as a whole person."""
    honest = row_weights.equal_person_weights

    def generous(*arguments):
        count, shares = honest(*arguments)
        return count, np.ones_like(shares)

    monkeypatch.setattr(people_and_weights, "equal_person_weights", generous)


@pytest.mark.parametrize(
    ("name", "relation", "variant", "sabotage"),
    [
        ("DPQuantileRegressor-output", ADD, "sparse", forget_a_release),
        ("DPQuantileRegressor-output", REPLACE, "rows", count_by_data),
        ("DPQuantileRegressor-output", REPLACE, "rows", show_what_is_exact),
        ("DPLogisticRegression-gradient", ADD, "rows", divide_by_the_rows),
        ("DPQuantileRegressor-phased-erm", ADD, "rows", share_phases),
        ("ExponentialMechanism-absolute", ADD, "rows", spread_of_one),
        ("DPQuantileRegressor-gradient", ADD, "people", whole_weights),
    ],
)
def test_sabotage_is_caught(name, relation, variant, sabotage, monkeypatch):
    assert not is_caught(name, relation, variant, tables=2)
    sabotage(monkeypatch)
    assert is_caught(name, relation, variant)
