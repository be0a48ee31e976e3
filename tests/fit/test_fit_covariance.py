"""Released curvatures: denoised for steps, lowered for intervals, and the covariance of a
private estimate.
"""

import numpy as np
import pytest

from dpconvex.fit.covariance_and_curvature import (
    combine_curvatures,
    conservative_inverse_curvature,
    curvature_variances,
    denoise_curvature,
    denoise_scores,
)


def noisy(matrix, std, seed):
    """Return a symmetric matrix with noise as it is released: half its variance beside the
    diagonal.
    """
    noise = np.random.default_rng(seed).normal(0, std, matrix.shape)
    upper = np.triu(noise, 1) / np.sqrt(2)
    return matrix + upper + upper.T + np.diag(np.diag(noise))


def test_without_noise_the_curvature_is_kept():
    truth = np.array([[2.0, 0.5], [0.5, 1.0]])
    found, left = denoise_curvature(truth, 1e-9, np.eye(2))
    np.testing.assert_allclose(found, truth, atol=1e-6)
    assert left == pytest.approx(1e-9)
    found, variance = combine_curvatures(truth, 1e-9, np.ones(2), np.full(2, 0.3))
    np.testing.assert_allclose(found, truth, atol=1e-6)
    np.testing.assert_allclose(
        conservative_inverse_curvature(found, variance), np.linalg.inv(truth), rtol=1e-6
    )


@pytest.mark.parametrize("std", [1e-3, 1.0, 1e6])
def test_curvatures_stay_positive_definite_and_noise_leaves_what_was_expected(std):
    truth = np.diag(np.linspace(0.5, 1.5, 6))
    for seed in range(30):
        found, left = denoise_curvature(noisy(truth, std, seed), std, np.diag(np.diag(truth)))
        assert np.linalg.eigvalsh(found).min() > 0
        assert 0 <= left <= std
        inverse = conservative_inverse_curvature(
            *combine_curvatures(noisy(truth, std, seed), std, np.ones(6), np.full(6, 0.1))
        )
        assert np.linalg.eigvalsh(inverse).min() > 0
        assert np.isfinite(inverse).all()
    # Noise alone leaves no more than a fraction of itself, in the mean.
    gaps = [
        np.linalg.norm(denoise_curvature(noisy(truth, std, seed), std, truth)[0] - truth)
        for seed in range(30)
    ]
    assert np.mean(gaps) < 3 * std + 1e-9


def test_what_is_not_known_to_be_curved_has_a_wide_interval():
    """A direction whose curvature noise may have made has a large variance; others keep theirs."""
    widest = conservative_inverse_curvature(
        *combine_curvatures(
            np.diag([100.0, 100.0, 1.5]), 1.0, np.array([1.0, 1.0, 0.1]), np.array([0.1, 0.1, 1.0])
        )
    )
    assert np.diag(widest)[:2] == pytest.approx(0.01, rel=0.1)
    assert widest[2, 2] > 0.9  # 1 / 1.5, and half as much again for its noise


def test_curvatures_are_combined_by_their_noise():
    """Noise of both sources explains the gap to the truth: the posterior variance is what is
    found, up to a fifth.
    """
    rng = np.random.default_rng(0)
    std = 0.1
    doubt = np.array([0.05, 0.2, 0.6, 0.1])
    gaps = []
    stated = []
    for seed in range(400):
        truth = np.eye(4) + noisy(np.zeros((4, 4)), 1.0, rng.integers(2**31)) * np.sqrt(
            np.outer(doubt, doubt)
        )
        found, variance = combine_curvatures(noisy(truth, std, seed), std, np.ones(4), doubt)
        gaps.append((found - truth) ** 2)
        stated.append(variance)
    # Squares of 400 normal numbers: a relative error of 0.07, and the factor common to all is known
    # to 0.05.
    np.testing.assert_allclose(np.mean(gaps, axis=0), np.mean(stated, axis=0), rtol=0.45)
    along = np.array([0.6, 0.0, 0.8, 0.0])[:, None]
    found = [along[:, 0] @ noisy(np.zeros((4, 4)), std, seed) @ along[:, 0] for seed in range(2000)]
    variance = std**2 * (np.eye(4) + 1) / 2
    assert np.var(found) == pytest.approx(float(curvature_variances(variance, along)[0]), rel=0.2)


def test_scores_are_those_of_equal_errors_where_noise_hides_them():
    """With little noise they are kept, with much they are a multiple of the curvature; none is
    negative.
    """
    curvature = np.diag([1.0, 2.0, 0.5])
    scores = np.array([[3.0, 0.4, 0.0], [0.4, 2.0, 0.0], [0.0, 0.0, 0.5]])
    np.testing.assert_allclose(denoise_scores(scores, 1e-9, curvature), scores, atol=1e-6)
    hidden = denoise_scores(noisy(scores, 100.0, 0), 100.0, curvature, 1.5)
    np.testing.assert_allclose(hidden, 1.5 * curvature, rtol=0.3, atol=0.3)
    assert (
        np.linalg.eigvalsh(denoise_scores(np.diag([1.0, -5.0, 1.0]), 0.1, curvature)).min()
        >= -1e-12
    )
