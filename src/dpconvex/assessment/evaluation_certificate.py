"""Certificate of a private score or a calibration: what the evaluation of rows after a fit
costs, from public facts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.core import certificate as certificates
from dpconvex.core.bounds import PERSON, RECORD
from dpconvex.core.calibration import NEIGHBORS, calibrated_release_scale
from dpconvex.core.certificate import CertifiedNoise, CertifiedPromise, require
from dpconvex.core.checks import check_count, check_number
from dpconvex.core.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP, pure_guarantee_mu
from dpconvex.core.noise_source import EXACT, SEEDED
from dpconvex.releases.auc_pairs import ROW_WEIGHT as ROW_WEIGHT
from dpconvex.releases.auc_pairs import pair_sensitivity

STATISTICS = ("mean", "auc", "concordance", "histogram", "counts")

_PLATFORM = 1 + 1e-9  # another platform's rounding of the same formula


def certified_evaluation_sensitivity(statistic: str, n_samples: int, neighbors: str) -> float:
    r"""Return how far, in Euclidean distance, one record moves what an evaluation adds noise to.

    ``"mean"``
        ``(sum u_i - 1/2, a r)`` over the r valid rows, with ``u_i`` in [0, 1] and ``a = 443/512``,
        just below ``sqrt(3)/2``. Two valid rows differ by 1 at most in the first number; a row that
        is valid and one that is not, or one row more or less, by ``(1/2, a)``, whose norm is below
        1. Both are whole numbers of steps, exactly.
    ``"auc"``, ``"concordance"``
        The statistics of pairs of :mod:`dpconvex.releases.auc_pairs`, which move by 1.
    ``"histogram"``
        Counts of disjoint bins; an invalid row is in none. Two of them move by 1, or one where a
        record is added or removed.
    ``"counts"``
        One count of rows.
    """
    if statistic not in STATISTICS or neighbors not in NEIGHBORS:
        raise ValueError(
            f"A statistic must be one of {STATISTICS} under one of {NEIGHBORS}. Got "
            f"{statistic!r}, {neighbors!r}."
        )
    added = neighbors == "add_or_remove_one"
    if statistic in ("auc", "concordance"):
        if added:
            raise ValueError(
                "Areas under the curve and concordance need a public number of rows: replace_one."
            )
        return pair_sensitivity(n_samples)
    return math.sqrt(2) if statistic == "histogram" and not added else 1.0


@dataclass(frozen=True)
class EvaluationCertificate(CertifiedPromise):
    """What a private evaluation promises about the rows that it reads."""

    guarantee: Guarantee
    mechanism: str  # "score", or "conformal" for the calibration of intervals
    statistic: str  # what noise was added to, see certified_evaluation_sensitivity
    n_samples: int  # number of rows: public under replace-one, and not used otherwise
    dimension: int  # length of a released vector
    releases: int  # how many were released
    distribution: str  # "gaussian" with the scale as standard deviation, or "l2-laplace"
    scale: float
    neighbors: str
    sampler: str  # where randomness comes from
    # or PERSON, whose rows share one weight, so that all but concordance move as with one row
    unit: str = RECORD
    # certificates.TABLE_RECORDS; empty for arrays, and where the certificate of a fit on the same
    # table says it
    records: str = ""

    @classmethod
    def issue(
        cls,
        guarantee: Guarantee,
        mechanism: str,
        statistic: str,
        n_samples: int,
        dimension: int = 1,
        releases: int = 1,
        neighbors: str = "replace_one",
        *,
        seeded: bool = False,
        people: bool = False,
        table: bool = False,
    ) -> EvaluationCertificate:
        """Return an evaluation's certificate, its noise derived from the guarantee and the
        statistic's sensitivity; ``table`` says whether the records are rows of a table.
        """
        if neighbors == "add_or_remove_one":
            n_samples = 0  # it is private
        distribution, scale = _certified_evaluation_noise(
            guarantee, statistic, n_samples, dimension, releases, neighbors
        )
        return cls(
            guarantee,
            mechanism,
            statistic,
            n_samples,
            dimension,
            releases,
            distribution,
            scale,
            neighbors,
            SEEDED if seeded else EXACT,
            PERSON if people else RECORD,
            certificates.TABLE_RECORDS if table else "",
        )

    @property
    def term(self) -> CertifiedNoise:
        """The noise of a release, as other certificates state it."""
        moved = certified_evaluation_sensitivity(self.statistic, self.n_samples, self.neighbors)
        return CertifiedNoise(
            self.distribution, self.scale, moved, self.dimension, "sum", self.releases
        )

    def gaussian_mu(self) -> float | None:
        """Return a mu for which the release is mu-Gaussian DP, whatever the guarantee states."""
        if isinstance(self.guarantee, GaussianDP) or self.distribution == "gaussian":
            return self.guarantee.as_gaussian().mu
        return pure_guarantee_mu(self.guarantee.epsilon_bound)

    def verify(self) -> None:
        """Check that an evaluation's noise suffices for its guarantee; raise a CertificateError
        otherwise.
        """
        with certificates.refuse_malformed_certificate("The certificate is malformed"):
            known = self.mechanism in ("score", "conformal") and self.sampler in (EXACT, SEEDED)
            require(known, "The certificate's 'mechanism' or 'sampler' is unknown.")
            units = (
                (RECORD,) if self.statistic == "concordance" else (RECORD, PERSON)
            )  # it has no weights of rows
            require(
                self.unit in units,
                "The certificate's 'unit' is none that its statistic is proved for.",
            )
            require(
                self.records in ("", certificates.TABLE_RECORDS),
                "The certificate's 'records' must say what a record is in words of dpconvex.",
            )
            claimed = isinstance(self.guarantee, (PureDP, ApproxDP, GaussianDP))
            require(claimed, "The certificate's 'guarantee' must be a guarantee.")
            facts = (self.n_samples, self.dimension, self.releases)
            for name, value, least in zip(
                ("n_samples", "dimension", "releases"), facts, (0, 1, 1), strict=True
            ):
                check_count(name, "a certificate", value, least)
            size = {"mean": 2, "auc": 3, "concordance": 2, "counts": 1}.get(self.statistic)
            fits = self.dimension >= 2 if size is None else self.dimension == size
            require(fits, "The certificate's 'dimension' is not that of its statistic.")
            allowed = "a finite number above 0"
            stated = check_number(
                "scale", "a certificate", self.scale, allowed, 0, math.inf, low_open=True
            )
            distribution, needed = _certified_evaluation_noise(
                self.guarantee, self.statistic, *facts, self.neighbors
            )
            enough = self.distribution == distribution and stated * _PLATFORM >= needed
            require(enough, "The certificate's noise does not suffice for its guarantee.")


def _certified_evaluation_noise(
    guarantee: Guarantee,
    statistic: str,
    n_samples: int,
    dimension: int,
    releases: int,
    neighbors: str,
) -> tuple[str, float]:
    """Return the law and scale of the noise of each of so many releases: under (epsilon, delta) the
    smaller noise.

    l2-Laplace noise of scale ``b`` in ``d`` dimensions has the standard deviation ``b sqrt(d + 1)``
    per coordinate.
    """
    moved = certified_evaluation_sensitivity(statistic, n_samples, neighbors)
    pure = guarantee.epsilon_bound / releases if not isinstance(guarantee, GaussianDP) else 0.0
    if not isinstance(guarantee, PureDP):
        certificates.check_certified_tails(guarantee, dimension * releases)
        gaussian = calibrated_release_scale(
            guarantee.as_gaussian().mu / math.sqrt(releases), moved, dimension
        )
        if not pure or gaussian <= math.sqrt(dimension + 1) * moved / pure:
            return "gaussian", gaussian
    return "l2-laplace", calibrated_release_scale(pure, moved, dimension)
