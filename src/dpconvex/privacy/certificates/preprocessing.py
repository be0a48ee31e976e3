"""What looking at columns before a fit costs: the certificate of paid preprocessing, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.checks import check_count, check_number
from dpconvex.privacy.calibration import gaussian_mu, released_scale
from dpconvex.privacy.certificates.rules import CertificateError, Promise, check_tails
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP, covered_epsilon
from dpconvex.privacy.ledger.account import pure_mu
from dpconvex.privacy.noise import EXACT, SEEDED
from dpconvex.privacy.summation import summation_error

__all__ = ["MOMENT_BLOCK", "PreprocessingCertificate", "moment_noise", "quantile_noise"]

_PLATFORM = 1 + 1e-9  # another platform's rounding of the same formula


MOMENT_BLOCK = 4096  # rows whose moments are summed at a time


@dataclass(frozen=True)
class PreprocessingCertificate(Promise):
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

    @property
    def term(self) -> NoiseTerm:
        """The noise of released moments, as other certificates state it."""
        size, moved = _moments(self.n_samples, self.n_features)
        return NoiseTerm("gaussian", self.noise["std"], moved, size, "sum")

    def gaussian_mu(self) -> float | None:
        """Return a mu for which the release is mu-Gaussian DP, whatever the guarantee states."""
        if self.mechanism == "moments":
            return _mu(self.guarantee)
        return math.sqrt(2 * self.n_features) * pure_mu(self.noise["epsilon"])

    def verify(self) -> None:
        """Check that the stated noise suffices for the guarantee.

        Raises
        ------
        CertificateError
            Naming what does not follow.
        """
        try:
            enough = self._suffices()
        except CertificateError:
            raise
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise CertificateError(f"The certificate is malformed: {error}") from error
        if not enough:
            raise CertificateError("The certificate's 'noise' does not follow from its guarantee.")

    def _suffices(self) -> bool:
        for name in ("n_samples", "n_features"):
            check_count(name, "a certificate", getattr(self, name), 1)
        if self.neighbors != "replace_one" or self.sampler not in (EXACT, SEEDED):
            raise CertificateError("The certificate's 'neighbors' or 'sampler' is not that of its mechanism.")
        if not isinstance(self.guarantee, (PureDP, ApproxDP, GaussianDP)):
            raise CertificateError("The certificate's 'guarantee' must be a guarantee.")
        derive = {"quantile-bounds": quantile_noise, "moments": moment_noise}[self.mechanism]
        ((name, needed),) = derive(self.guarantee, self.n_samples, self.n_features).items()
        ((stated_name, stated),) = self.noise.items()
        stated = check_number(name, "a certificate", stated, "a finite number above 0", 0, math.inf)
        if stated_name != name:
            raise CertificateError("The certificate's 'noise' is not that of its mechanism.")
        # An exponential mechanism keeps what a smaller epsilon promises, Gaussian noise what a larger std does.
        return stated <= needed * _PLATFORM if name == "epsilon" else stated * _PLATFORM >= needed


def quantile_noise(guarantee: Guarantee, n_samples: int, n_features: int) -> dict[str, float]:
    """Return the epsilon of each of ``2 d`` exponential mechanisms that together keep a guarantee.

    Pure: ``epsilon / (2 d)``. Otherwise each is ``mu / sqrt(2 d)``-GDP, which epsilon-DP is when
    ``exp(epsilon) / (1 + exp(epsilon)) = Phi(mu / (2 sqrt(2 d)))``. The larger of both counts under (epsilon, delta).
    """
    releases = 2 * n_features
    if isinstance(guarantee, PureDP):
        return {"epsilon": guarantee.epsilon_bound / releases}
    each = covered_epsilon(GaussianDP(_mu(guarantee) / math.sqrt(releases)))
    if not isinstance(guarantee, GaussianDP):
        each = max(each, guarantee.epsilon_bound / releases)
    return {"epsilon": each}


def moment_noise(guarantee: Guarantee, n_samples: int, n_features: int) -> dict[str, float]:
    """Return the noise on sums and second moments of rows in the unit ball, released together."""
    if isinstance(guarantee, PureDP):
        raise ValueError(
            "DPMoments offers (epsilon, delta)-DP and Gaussian DP. Got a pure budget instead. Give delta above 0 or mu."
        )
    size, moved = _moments(n_samples, n_features)
    check_tails(guarantee, size)
    return {"std": released_scale(_mu(guarantee), moved, size)}


def _moments(n_samples: int, n_features: int) -> tuple[int, float]:
    r"""Return the size of sums and second moments of rows in the unit ball, and their sensitivity together.

    Replacing ``x`` by ``y`` moves ``(sum x, sum x x^T)`` by at most the root of ``2 - 2 t + 2 - 2 t^2`` with
    ``t = x . y``, which is largest at ``t = -1/2``: ``3 / sqrt(2)``.
    """
    size = n_features + n_features * (n_features + 1) // 2
    # A sum and second moments of norm 1 each, summed in blocks of MOMENT_BLOCK rows.
    additions = min(n_samples, MOMENT_BLOCK) + n_samples.bit_length()
    error = summation_error(n_samples, size, math.sqrt(2), additions)
    return size, 3 / math.sqrt(2) + 2 * error


def _mu(guarantee: Guarantee) -> float:
    if isinstance(guarantee, GaussianDP):
        return guarantee.mu
    return gaussian_mu(guarantee.epsilon_bound, guarantee.delta(math.inf))
