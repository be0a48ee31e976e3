"""Certificate of private bounds of columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.core.bounds import RECORD
from dpconvex.core.certificate import (
    CertifiedPromise,
    refuse_malformed_certificate,
    require,
)
from dpconvex.core.checks import check_count, check_number
from dpconvex.core.guarantees import (
    ApproxDP,
    GaussianDP,
    Guarantee,
    PureDP,
    guaranteed_pure_epsilon,
    pure_guarantee_mu,
)
from dpconvex.core.noise_source import EXACT, SEEDED

_PLATFORM = 1 + 1e-9  # another platform's rounding of the same formula


@dataclass(frozen=True)
class PreprocessingCertificate(CertifiedPromise):
    """Privacy claim of private bounds of columns, from public facts."""

    guarantee: Guarantee
    mechanism: str  # "quantile-bounds"
    n_samples: int  # public
    n_features: int
    noise: dict[str, float]  # the epsilon of each exponential mechanism
    sampler: str  # where randomness comes from
    neighbors: str = "replace_one"  # always
    unit = RECORD

    def gaussian_mu(self) -> float | None:
        """Return a mu for which the release is mu-Gaussian DP, whatever the guarantee states."""
        return math.sqrt(2 * self.n_features) * pure_guarantee_mu(self.noise["epsilon"])

    def verify(self) -> None:
        """Check that a preprocessing certificate's noise suffices; raise a CertificateError
        otherwise.
        """
        with refuse_malformed_certificate("The certificate is malformed"):
            for name in ("n_samples", "n_features"):
                check_count(name, "a certificate", getattr(self, name))
            usual = self.neighbors == "replace_one" and self.sampler in (EXACT, SEEDED)
            require(
                usual, "The certificate's 'neighbors' or 'sampler' is not that of its mechanism."
            )
            claimed = isinstance(self.guarantee, (PureDP, ApproxDP, GaussianDP))
            require(claimed, "The certificate's 'guarantee' must be a guarantee.")
            require(
                self.mechanism == "quantile-bounds", "The certificate's 'mechanism' is unknown."
            )
            require(
                set(self.noise) == {"epsilon"},
                "The certificate's 'noise' is not that of its mechanism.",
            )
            allowed = "a finite number above 0"
            stated = check_number(
                "epsilon", "a certificate", self.noise["epsilon"], allowed, 0, math.inf
            )
            # An exponential mechanism keeps what a smaller epsilon promises.
            needed = quantile_certificate_noise(self.guarantee, self.n_features)["epsilon"]
            require(
                stated <= needed * _PLATFORM,
                "The certificate's 'noise' does not follow from its guarantee.",
            )


def quantile_certificate_noise(guarantee: Guarantee, n_features: int) -> dict[str, float]:
    """Return the epsilon of each of ``2 d`` exponential mechanisms that together keep a guarantee.

    Pure: ``epsilon / (2 d)``. Otherwise each is ``mu / sqrt(2 d)``-GDP, which epsilon-DP is when
    ``exp(epsilon) / (1 + exp(epsilon)) = Phi(mu / (2 sqrt(2 d)))``. The larger of both counts under
    (epsilon, delta).
    """
    releases = 2 * n_features
    if isinstance(guarantee, PureDP):
        return {"epsilon": guarantee.epsilon_bound / releases}
    each = guaranteed_pure_epsilon(GaussianDP(guarantee.as_gaussian().mu / math.sqrt(releases)))
    if isinstance(guarantee, ApproxDP):
        each = max(each, guarantee.epsilon_bound / releases)
    return {"epsilon": each}
