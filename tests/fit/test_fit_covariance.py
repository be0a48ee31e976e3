"""Released curvatures: denoised for steps, lowered for intervals, and the covariance of a private estimate."""

import numpy as np
import pytest

from dpconvex.fit.covariance_and_curvature import (
    check_whole_rows,
    conservative_inverse_curvature,
    denoise_curvature,
    sandwich_covariance,
)
from dpconvex.losses import Logistic
from dpconvex.privacy import LinearBounds


def noisy(matrix, std, seed):
    """Return a symmetric matrix with noise as it is released: half its variance beside the diagonal."""
    noise = np.random.default_rng(seed).normal(0, std, matrix.shape)
    upper = np.triu(noise, 1) / np.sqrt(2)
    return matrix + upper + upper.T + np.diag(np.diag(noise))


def test_without_noise_the_curvature_is_kept():
    truth = np.array([[2.0, 0.5], [0.5, 1.0]])
    found, left = denoise_curvature(truth, 1e-9, np.eye(2))
    np.testing.assert_allclose(found, truth, atol=1e-6)
    assert left == pytest.approx(1e-9)
    np.testing.assert_allclose(conservative_inverse_curvature(truth, 1e-9, np.ones(2)), np.linalg.inv(truth), rtol=1e-6)


@pytest.mark.parametrize("std", [1e-3, 1.0, 1e6])
def test_curvatures_stay_positive_definite_and_noise_leaves_what_was_expected(std):
    truth = np.diag(np.linspace(0.5, 1.5, 6))
    for seed in range(30):
        found, left = denoise_curvature(noisy(truth, std, seed), std, np.diag(np.diag(truth)))
        assert np.linalg.eigvalsh(found).min() > 0
        assert 0 <= left <= std
        inverse = conservative_inverse_curvature(noisy(truth, std, seed), std, np.ones(6))
        assert np.linalg.eigvalsh(inverse).min() > 0
        assert np.isfinite(inverse).all()
    # Noise alone leaves no more than a fraction of itself, in the mean.
    gaps = [np.linalg.norm(denoise_curvature(noisy(truth, std, seed), std, truth)[0] - truth) for seed in range(30)]
    assert np.mean(gaps) < 3 * std + 1e-9


def test_what_is_not_known_to_be_curved_has_a_wide_interval():
    """A direction whose curvature noise may have made has a large variance; others keep theirs."""
    widest = conservative_inverse_curvature(np.diag([1000.0, 1000.0, 1.5]), 1.0, np.ones(3))
    assert np.diag(widest)[:2] == pytest.approx(1e-3, rel=0.01)
    assert widest[2, 2] > 1 / 15  # ten times what the curvature would say, or no less than a hundredth of the mean


def test_a_sandwich_is_the_covariance_of_what_it_says():
    """``H^-1 (S + std^2) H^-1``, also where noise leaves S a direction of negative variance."""
    inverse = np.linalg.inv(np.array([[2.0, 0.3], [0.3, 1.0]]))
    scores = np.array([[1.0, 0.2], [0.2, 0.5]])
    wanted = inverse @ (scores + 0.01 * np.eye(2)) @ inverse
    np.testing.assert_allclose(sandwich_covariance(inverse, scores, 0.1), wanted)
    wrong = sandwich_covariance(inverse, np.diag([1.0, -5.0]), 0.1)
    assert np.linalg.eigvalsh(wrong).min() > 0


@pytest.mark.parametrize("record", [{"people": True}, {"weighted_rows": True}, {"rows_per_person": 2}])
def test_rows_that_share_a_vote_have_no_intervals(record):
    check_whole_rows(LinearBounds(100, 2, Logistic(), 1.0, 1.0))
    with pytest.raises(ValueError, match="records of their own"):
        check_whole_rows(LinearBounds(100, 2, Logistic(), 1.0, 1.0, **record))
