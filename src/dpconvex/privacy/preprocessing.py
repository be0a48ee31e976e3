"""What looking at columns before a fit costs: the certificate of paid preprocessing, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import log_ndtr

from .account import pure_mu
from .calibration import exact_gaussian_std, gaussian_mu
from .certificate import CertificateError
from .guarantees import GaussianDP, Guarantee, PureDP

__all__ = ["PreprocessingCertificate", "moment_noise", "quantile_noise"]

_ROUNDING = 1 + 1e-6  # sums of up to 1e8 rows in floating point


@dataclass(frozen=True)
class PreprocessingCertificate:
    """What a paid transformer promises, from public facts.

    Attributes
    ----------
    guarantee : PureDP, ApproxDP or GaussianDP
        The promise.
    mechanism : str
        ``"quantile-bounds"`` or ``"moments"``.
    n_samples, n_features : int
        Public size of the data.
    noise : dict
        How it is kept: the epsilon of each of the exponential mechanisms, or the noise's standard deviation.
    sampler : str
        Where randomness comes from.
    neighbors : str
        Always ``"replace_one"``.
    """

    guarantee: Guarantee
    mechanism: str
    n_samples: int
    n_features: int
    noise: dict[str, float]
    sampler: str
    neighbors: str = "replace_one"

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at which (epsilon, delta)-DP follows."""
        return self.guarantee.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta at which (epsilon, delta)-DP follows."""
        return self.guarantee.delta(epsilon)

    def gaussian_mu(self) -> float | None:
        """Return a mu for which the release is mu-Gaussian DP, whatever the guarantee states."""
        if self.mechanism == "moments":
            return _mu(self.guarantee)
        return math.sqrt(2 * self.n_features) * pure_mu(self.noise["epsilon"])

    def verify(self) -> None:
        """Derive the noise again from the public facts, and raise CertificateError if it differs."""
        derive = {"quantile-bounds": quantile_noise, "moments": moment_noise}[self.mechanism]
        if self.noise != derive(self.guarantee, self.n_features):
            raise CertificateError("The certificate's 'noise' does not follow from its guarantee.")


def quantile_noise(guarantee: Guarantee, n_features: int) -> dict[str, float]:
    """Return the epsilon of each of ``2 d`` exponential mechanisms that together keep a guarantee.

    Pure: ``epsilon / (2 d)``. Otherwise each is ``mu / sqrt(2 d)``-GDP, which epsilon-DP is when
    ``exp(epsilon) / (1 + exp(epsilon)) = Phi(mu / (2 sqrt(2 d)))``. The larger of both counts under (epsilon, delta).
    """
    releases = 2 * n_features
    if isinstance(guarantee, PureDP):
        return {"epsilon": guarantee.epsilon_bound / releases}
    half = _mu(guarantee) / math.sqrt(releases) / 2
    each = float(log_ndtr(half) - log_ndtr(-half))
    if not isinstance(guarantee, GaussianDP):
        each = max(each, guarantee.epsilon_bound / releases)
    return {"epsilon": each}


def moment_noise(guarantee: Guarantee, n_features: int) -> dict[str, float]:
    r"""Return the noise on sums and second moments of rows in the unit ball, released together.

    Replacing ``x`` by ``y`` moves ``(sum x, sum x x^T)`` by at most the root of ``2 - 2 t + 2 - 2 t^2`` with
    ``t = x . y``, which is largest at ``t = -1/2``: ``3 / sqrt(2)``.
    """
    if isinstance(guarantee, PureDP):
        raise ValueError(
            "DPMoments offers (epsilon, delta)-DP and Gaussian DP. Got a pure budget instead. Give delta above 0 or mu."
        )
    size = n_features + n_features * (n_features + 1) // 2
    sensitivity = _ROUNDING * 3 / math.sqrt(2)
    return {"std": exact_gaussian_std(_mu(guarantee), sensitivity, size)}


def _mu(guarantee: Guarantee) -> float:
    if isinstance(guarantee, GaussianDP):
        return guarantee.mu
    return gaussian_mu(guarantee.epsilon_bound, guarantee.delta(math.inf))
