r"""Plain private stochastic gradient descent of the kind that Opacus runs, on linear models, in
numpy.

Every step draws a Poisson batch (each row with probability ``q = batch_size / n``), clips each
row's gradient to norm ``clip``, adds Gaussian noise to the sum, and goes

    theta <- theta - learning_rate * (sum of clipped gradients + std * clip * normal) / batch_size.

The last iterate is released. The noise follows from dp-accounting's privacy loss distribution of
Poisson-sampled Gaussian sums under replace-one, where one row's clipped gradient may turn into its
opposite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpconvex.core.calibration import gaussian_mu
from dpconvex.privacy.subsampling import subsampled_epsilon

__all__ = ["SETTINGS", "Setting", "accounted_epsilon", "descend", "noise_std", "proven_epsilon"]

Array = NDArray[np.float64]

_INTERVAL = 1e-3  # widest grid of the privacy loss distribution
_FINENESS = 5  # points of the grid in what one step typically spends
_ACCURACY = 1e-3  # of the noise, on the safe side


@dataclass(frozen=True)
class Setting:
    """What a user of such a library leaves as it finds it.

    Attributes
    ----------
    learning_rate : float
        Step size.
    epochs : int
        Expected passes over the rows.
    batch_size : int
        Expected rows of a batch.
    clip : float
        Bound on a row's gradient norm.
    """

    learning_rate: float
    epochs: int
    batch_size: int = 256
    clip: float = 1.0

    def rate(self, n: int) -> float:
        """Return the probability that a row is in a batch."""
        return min(1.0, self.batch_size / n)

    def steps(self, n: int) -> int:
        """Return the number of batches."""
        return max(1, round(self.epochs / self.rate(n)))


#: The two ends of what examples and tutorials use; both are run, and the better one counts.
SETTINGS = {
    "DP-SGD, rate 0.1, 10 epochs": Setting(0.1, 10),
    "DP-SGD, rate 0.5, 20 epochs": Setting(0.5, 20),
}


def accounted_epsilon(std: float, rate: float, steps: int, delta: float) -> float:
    """Return dp-accounting's epsilon under replace-one for noise of ``std`` times the clipping
    norm.
    """
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    # Rounding to the grid adds up over the steps: it must stay small against what one step spends.
    interval = min(_INTERVAL, rate / (_FINENESS * std))
    single = privacy_loss_distribution.from_gaussian_mechanism(
        std,
        sensitivity=1,
        sampling_prob=rate,
        value_discretization_interval=interval,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )
    return float(single.self_compose(steps).get_epsilon_for_delta(delta))


@lru_cache(maxsize=256)
def noise_std(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """Return the noise, in units of the clipping norm, that dp-accounting finds sufficient.

    Parameters
    ----------
    rate : float
        Probability that a row is in a batch.
    steps : int
        Number of batches.
    epsilon, delta : float
        Budget under replace-one.
    """

    def excess(log_std: float) -> float:
        return math.log(accounted_epsilon(math.exp(log_std), rate, steps, delta) / epsilon)

    # Many small steps together are nearly Gaussian: the first guess is a few per cent off.
    guess = math.log(2 * rate * math.sqrt(steps) / gaussian_mu(epsilon, delta))
    low = guess - 0.1
    high = guess + 0.1
    while excess(low) < 0:
        low -= 0.3
    while excess(high) > 0:
        high += 0.3
    found = float(brentq(excess, low, high, xtol=_ACCURACY, rtol=_ACCURACY))
    while excess(found) > 0:
        found += _ACCURACY
    return math.exp(found)


def proven_epsilon(std: float, rate: float, steps: int, delta: float) -> float:
    """Return the epsilon that dpconvex's Renyi bound proves for every pair of neighbours.

    The bound takes ``std / sensitivity`` with the replace-one sensitivity of a clipped sum, twice
    the clipping norm.
    """
    return subsampled_epsilon("poisson", "replace_one", rate, steps, std / 2, delta)


def descend(
    rows: Array,
    targets: Array,
    loss: Any,
    setting: Setting,
    stds: Sequence[float],
    rng: np.random.Generator,
) -> Array:
    """Run several chains that differ in their noise on the same batches and return their last
    iterates.

    Parameters
    ----------
    rows : array of shape (n, dim)
        Rows with the constant in front.
    targets : array of shape (n,)
        Labels -1 and +1, or targets.
    loss : Loss
        Pointwise loss; its (sub)gradient is used.
    setting : Setting
        Step size, epochs, batches and clipping norm.
    stds : sequence of float
        Noise of each chain in units of the clipping norm; 0 for none.
    rng : Generator
        Draws batches and noise.

    Returns
    -------
    array of shape (len(stds), dim)
    """
    n, dim = rows.shape
    noise = setting.clip * np.asarray(stds, dtype=float)
    norms = np.linalg.norm(rows, axis=1)
    theta = np.zeros((dim, len(noise)))
    pace = setting.learning_rate / setting.batch_size
    for size in rng.binomial(n, setting.rate(n), size=setting.steps(n)):
        batch = rng.choice(n, size, replace=False, shuffle=False)
        chosen = rows[batch]
        slopes = loss.gradient(targets[batch][:, None], chosen @ theta)
        # A row's gradient is its slope times the row.
        lengths = np.abs(slopes) * norms[batch][:, None]
        slopes *= setting.clip / np.maximum(lengths, setting.clip)
        theta -= pace * (chosen.T @ slopes + noise * rng.standard_normal(theta.shape))
    return theta.T
