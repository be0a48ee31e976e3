"""The questions of NIST SP 800-226, by layers of its pyramid: answered from the certificate, or yours to answer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpconvex.inputs.release_file import ReleaseFacts
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.noise import FLOATING_POINT
from dpconvex.reports.content import promise
from dpconvex.reports.officer import method, unit_of

__all__ = ["YOURS", "Answer", "answers"]

YOURS = "Yours to answer"


@dataclass(frozen=True)
class Answer:
    """One question.

    Attributes
    ----------
    layer : str
        Part of the pyramid, from the top down.
    question : str
        What is asked, or which hazard is meant.
    answer : str
        What is known; begins with `YOURS` where only the publisher can say.
    """

    layer: str
    question: str
    answer: str

    @property
    def open(self) -> bool:
        """Whether the publisher has to answer."""
        return self.answer.startswith(YOURS)


def answers(certificate: Certificate, release: ReleaseFacts, kept_ledger: bool) -> list[Answer]:
    """Return the whole list for one release.

    Parameters
    ----------
    certificate : Certificate
        What is promised.
    release : ReleaseFacts
        What the publisher said.
    kept_ledger : bool
        Whether the report was given a ledger.
    """

    def said(field: str, ask: str) -> str:
        return getattr(release, field) or f"{YOURS}: {ask}"

    guarantee, added = certificate.guarantee, certificate.neighbors == "add_or_remove_one"
    delta, rows = guarantee.delta(math.inf), certificate.bounds.n_samples
    small = "none: the guarantee has no delta" if delta == 0 else f"delta {delta:g}; 1 / rows is {1 / rows:.2g}"
    if delta >= 1 / rows:
        small += ". It is not smaller than that: one whole record could be published and still keep the promise"
    relation = (
        "one record added or removed; the number of records is protected"
        if added
        else "one record replaced; the number of records is public"
    )
    exact = certificate.sampler != FLOATING_POINT
    return [
        Answer("Guarantee", "Privacy parameters", promise(guarantee)),
        Answer(
            "Guarantee", "Hazard: a large epsilon", said("budget_reason", "why this budget is right (budget_reason).")
        ),
        Answer("Guarantee", "Hazard: a large delta", small),
        Answer("Guarantee", "Unit of privacy", f"one {unit_of(certificate, release)}; {relation}"),
        Answer(
            "Guarantee",
            "Hazard: several records of one person",
            f"The certificate's unit is “{certificate.unit}”; the report says what several records are promised.",
        ),
        Answer("Algorithms and utility", "Mechanism", method(certificate)),
        Answer("Algorithms and utility", "Correctness", f"{certificate.theorem}. `dpconvex verify` derives it again."),
        Answer(
            "Algorithms and utility",
            "Hazard: contributions without a bound",
            "Columns are clipped to public bounds and a record's influence is limited; the certificate states both.",
        ),
        Answer(
            "Algorithms and utility",
            "Hazard: bounds or settings taken from the data",
            f"{YOURS}: bounds and settings must be known without the data. The library takes none from them unpaid.",
        ),
        Answer(
            "Algorithms and utility",
            "Composition",
            "A ledger is kept, and its state is in the report."
            if kept_ledger
            else f"{YOURS}: no ledger was given to the report; list what else is published about the same records.",
        ),
        Answer(
            "Algorithms and utility", "Utility", "Predicted or measured accuracy is in the report where it is known."
        ),
        Answer(
            "Algorithms and utility",
            "Bias: of the data, of people, of noise",
            f"{YOURS}: groups with few rows are fitted less well, and noise hides that. Check accuracy group by group.",
        ),
        Answer(
            "Implementation",
            "Hazard: floating point",
            "Noise is exact on a public grid." if exact else f"{YOURS}: this mechanism draws noise in floating point.",
        ),
        Answer(
            "Implementation",
            "Hazard: a seeded or weak source of randomness",
            "The noise was seeded: nothing here holds."
            if certificate.sampler.startswith("seeded")
            else "Noise comes from the operating system's cryptographic generator.",
        ),
        Answer(
            "Implementation", "Hazard: timing and other side channels", f"{YOURS}: do not let strangers watch the run."
        ),
        Answer("Trust and security", "Deployment model", "Central: whoever runs the fit sees the data and is trusted."),
        Answer(
            "Trust and security",
            "Threat model",
            "Anybody who sees the model, with any knowledge besides; not those who see the data or the run.",
        ),
        Answer(
            "Trust and security",
            "Security and access control",
            said("security", "how the data are protected (security)."),
        ),
        Answer("Data collection", "Where the data come from", said("data_source", "the source (data_source).")),
        Answer("Data collection", "Ground of collection", said("legal_basis", "the legal ground (legal_basis).")),
        Answer(
            "Data collection",
            "Exposure before the release",
            f"{YOURS}: privacy of a release does not protect data that are collected or kept carelessly.",
        ),
    ]
