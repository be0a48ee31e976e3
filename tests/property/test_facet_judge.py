"""The judge of smoothed pieces against ours, and against the kinked loss itself averaged over a
grid of the kernel.
"""

import numpy as np
import pytest
from loss_judge import Contradiction, vector
from scipy.special import ndtri

from dpconvex.core.description import describe
from dpconvex.losses import Bowl, PiecewiseLinear
from dpconvex.smoothing import ExponentialKernel, GaussianKernel, convolve_vector, moreau_vector

FAN = PiecewiseLinear([[1.0, 0.0], [-0.4, 0.9], [-0.6, -0.7], [0.1, 0.1]])
CUBE = PiecewiseLinear([[1.0, 0.2, 0], [-0.7, 0.4, 0.3], [0.1, -1.0, 0.5], [0, 0, -1.0]])
SMOOTHED = [
    *(convolve_vector(FAN, GaussianKernel(), 0.5), convolve_vector(FAN, ExponentialKernel(2), 0.5)),
    *(
        convolve_vector(CUBE, GaussianKernel(3), 0.3),
        convolve_vector(CUBE, ExponentialKernel(3), 2.0),
    ),
    *(
        convolve_vector(Bowl(2), GaussianKernel(), 0.5),
        convolve_vector(Bowl(3), ExponentialKernel(3), 0.7),
    ),
    moreau_vector(Bowl(4), "huber", 3.0, 0.5),
    *(moreau_vector(FAN), convolve_vector(Bowl(3), GaussianKernel(3), 0.2)),
]


@pytest.mark.parametrize("smooth", SMOOTHED, ids=lambda loss: f"{type(loss).__name__} {loss.loss}")
def test_constants_agree(smooth):
    judged = vector(describe(smooth))
    assert judged.slope == pytest.approx(smooth.lipschitz, rel=1e-12)
    assert judged.curvature == pytest.approx(smooth.smoothness, rel=1e-6)


@pytest.mark.parametrize("loss", [FAN, PiecewiseLinear([[1.0, 1.0], [-1.0, -1.0], [0.3, -0.3]])])
def test_no_average_of_slopes_turns_faster(loss):
    """Of the kinked loss over 40,000 points of equal weight of the normal law: right to about 1
    %.
    """
    h = 0.5
    rng = np.random.default_rng(0)
    ends = ndtri((np.arange(200) + 0.5) / 200)
    shifts = h * np.stack(np.meshgrid(ends, ends), axis=-1).reshape(-1, 2)
    slopes = np.array(loss.slopes)
    offsets = np.array(loss.offsets)

    def mean_slope(u):
        return slopes[np.argmax((u + shifts) @ slopes.T + offsets, axis=1)].mean(axis=0)

    judged = vector(describe(convolve_vector(loss, GaussianKernel(), h)))
    largest = 0.0
    for _ in range(60):
        u = rng.normal(size=2) * 0.5
        step = rng.normal(size=2)
        step *= 0.3 / np.linalg.norm(step)
        first = mean_slope(u)
        second = mean_slope(u + step)
        assert np.linalg.norm(first) <= judged.slope * (1 + 1e-9)
        largest = max(largest, np.linalg.norm(first - second) / 0.3)
    assert 0.5 * judged.curvature <= largest <= 1.03 * judged.curvature


def test_what_is_no_such_loss_is_refused():
    data = describe(SMOOTHED[0])
    four = np.vstack([np.eye(5), -np.eye(5)[:1]]).tolist()
    for change in (
        {"kernel": {"class": "LaplacianKernel"}},
        {"bandwidth": 0.0},
        {"loss": {"class": "L1Norm", "size": 2}},
        {"loss": {"class": "PiecewiseLinear", "slopes": four, "offsets": [0.0] * 6}},
    ):
        with pytest.raises(Contradiction):
            vector({**data, **change})
