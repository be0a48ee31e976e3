"""Calibration is monotone in every public fact and never under-protects."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.privacy import gaussian_scale, objective_perturbation_scale
from dpconvex.privacy.objective_perturbation_calibration import (
    glm_add_remove_objective_delta,
    glm_replace_objective_delta,
    structured_objective_delta,
)

CI = settings(derandomize=True, deadline=None, max_examples=150)
epsilons = st.floats(0.02, 8.0)
log_deltas = st.floats(-12.0, -1.0)
shares = st.floats(0.01, 0.9)  # of epsilon that the Jacobian takes
relations = st.sampled_from(["replace_one", "add_or_remove_one"])


@CI
@given(epsilons, log_deltas, shares, relations)
def test_delta_holds_at_the_scale_and_fails_just_below(epsilon, log_delta, share, neighbors):
    delta = 10.0**log_delta
    kappa = math.expm1(share * epsilon)
    profile = (
        glm_replace_objective_delta
        if neighbors == "replace_one"
        else glm_add_remove_objective_delta
    )
    std = objective_perturbation_scale(epsilon, delta, 1.0, kappa, neighbors=neighbors)
    assert profile(epsilon, 1 / std, kappa) <= delta
    assert profile(epsilon, 1 / (std * (1 - 1e-6)), kappa) > delta * (1 - 1e-4)


@CI
@given(epsilons, log_deltas, shares, relations, st.floats(1.01, 2.0))
def test_more_budget_never_needs_more_noise(epsilon, log_delta, share, neighbors, factor):
    delta = 10.0**log_delta
    kappa = math.expm1(share * epsilon)
    base = objective_perturbation_scale(epsilon, delta, 1.0, kappa, neighbors=neighbors)
    slack = 1 + 1e-9
    richer = objective_perturbation_scale(epsilon * factor, delta, 1.0, kappa, neighbors=neighbors)
    assert richer <= base * slack
    looser = objective_perturbation_scale(
        epsilon, min(0.9, delta * factor), 1.0, kappa, neighbors=neighbors
    )
    assert looser <= base * slack
    flatter = objective_perturbation_scale(epsilon, delta, 1.0, kappa / factor, neighbors=neighbors)
    assert flatter <= base * slack


@CI
@given(epsilons, log_deltas, shares)
def test_replace_one_costs_more_than_add_or_remove_and_both_more_than_plain_noise(
    epsilon, log_delta, share
):
    delta = 10.0**log_delta
    kappa = math.expm1(share * epsilon)
    replace = objective_perturbation_scale(epsilon, delta, 1.0, kappa)
    add = objective_perturbation_scale(epsilon, delta, 1.0, kappa, neighbors="add_or_remove_one")
    assert replace >= add >= gaussian_scale(epsilon, delta, 1.0) * (1 - 1e-9)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(epsilons, log_deltas, st.floats(0.01, 0.3), relations, st.integers(2, 12))
def test_structured_scale_is_safe_and_grows_with_rank(epsilon, log_delta, share, neighbors, rank):
    delta = 10.0**log_delta
    kappa = min(math.expm1(share * epsilon) / (8 * rank), epsilon / (8 * math.log(1 / delta)))
    std = objective_perturbation_scale(epsilon, delta, 1.0, kappa, rank, neighbors)
    assert structured_objective_delta(epsilon, 1 / std, kappa, rank, neighbors) <= delta
    more = objective_perturbation_scale(epsilon, delta, 1.0, kappa, rank + 3, neighbors)
    assert more >= std * (1 - 1e-9)
