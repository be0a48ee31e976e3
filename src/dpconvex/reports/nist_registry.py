"""Answers for an officer: the questions of NIST SP 800-226, and an entry for the OpenDP registry of
deployments.

Both are answered from the certificate and from what the publisher said in a release file. Questions
of NIST that only the publisher can answer say so. Fields of the registry that nobody answered are
empty strings.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dpconvex.core.certificate import Certificate
from dpconvex.core.guarantees import GaussianDP, PureDP
from dpconvex.core.noise_source import FLOATING_POINT
from dpconvex.inputs.settings import Fitted
from dpconvex.reports.printable import printable_quote
from dpconvex.reports.release_file import ReleaseFileFacts
from dpconvex.reports.wording import (
    method_wording,
    promise_wording,
    unit_name_wording,
    unprotected_wording,
)
from dpconvex.system.atomic_files import write_file_atomically
from dpconvex.version import __version__

YOURS = "Yours to answer"

Entry = dict[str, object]


@dataclass(frozen=True)
class NISTAnswer:
    """A question or hazard of one layer of NIST's pyramid, with its answer."""

    layer: str
    question: str
    answer: str

    @property
    def open(self) -> bool:
        """Whether the publisher has to answer."""
        return self.answer.startswith(YOURS)


def nist_answers(
    certificate: Certificate, release: ReleaseFileFacts, has_ledger: bool
) -> list[NISTAnswer]:
    """Return all questions of NIST SP 800-226 for one release, from the top of its pyramid down."""

    def said(field: str, ask: str) -> str:
        return getattr(release, field) or f"{YOURS}: {ask}"

    delta = certificate.guarantee.delta(math.inf)
    rows = certificate.bounds.n_samples
    small = (
        "none: the guarantee has no delta"
        if delta == 0
        else f"delta {delta:g}; 1 / rows is {1 / rows:.2g}"
    )
    if delta >= 1 / rows:
        small += (
            ". It is not smaller than that: one whole record could be published and still "
            "keep the promise"
        )
    relation = (
        "one record added or removed; the number of records is protected"
        if certificate.neighbors == "add_or_remove_one"
        else "one record replaced; the number of records is public"
    )
    layers = {
        "Guarantee": {
            "Privacy parameters": promise_wording(certificate.guarantee),
            "Hazard: a large epsilon": said(
                "budget_reason", "why this budget is right (budget_reason)."
            ),
            "Hazard: a large delta": small,
            "Unit of privacy": f"one {unit_name_wording(certificate, release)}; {relation}",
            "Hazard: several records of one person": "The certificate's unit is "
            f"“{certificate.unit}”; the report says what "
            "several records are promised.",
        },
        "Algorithms and utility": {
            "Mechanism": method_wording(certificate),
            "Correctness": f"{certificate.theorem}. `dpconvex verify` derives it again.",
            "Hazard: contributions without a bound": "Columns are clipped to public bounds and a "
            "record's influence is limited; the "
            "certificate states both.",
            "Hazard: bounds or settings taken from the data": f"{YOURS}: bounds and settings must "
            "be known without the data. The "
            "library takes none from them "
            "unpaid.",
            "Composition": "A ledger is kept, and its state is in the report."
            if has_ledger
            else f"{YOURS}: no ledger was given to the report; list what else is published about "
            "the same records.",
            "Utility": "Predicted or measured accuracy is in the report where it is known.",
            "Bias: of the data, of people, of noise": f"{YOURS}: groups with few rows are fitted "
            "less well, and noise hides that. Check "
            "accuracy group by group.",
        },
        "Implementation": {
            "Hazard: floating point": "Noise is exact on a public grid."
            if certificate.sampler != FLOATING_POINT
            else f"{YOURS}: this mechanism draws noise in floating point.",
            "Hazard: a seeded or weak source of randomness": "The noise was seeded: nothing here "
            "holds."
            if certificate.sampler.startswith("seeded")
            else "Noise comes from the operating system's cryptographic generator.",
            "Hazard: timing and other side channels": f"{YOURS}: do not let strangers watch the "
            "run.",
        },
        "Trust and security": {
            "Deployment model": "Central: whoever runs the fit sees the data and is trusted.",
            "Threat model": "Anybody who sees the model, with any knowledge besides; not those "
            "who see the data or the run.",
            "Security and access control": said(
                "security", "how the data are protected (security)."
            ),
        },
        "Data collection": {
            "Where the data come from": said("data_source", "the source (data_source)."),
            "Ground of collection": said("legal_basis", "the legal ground (legal_basis)."),
            "Exposure before the release": f"{YOURS}: privacy of a release does not protect data "
            "that are collected or kept carelessly.",
        },
    }
    return [
        NISTAnswer(layer, ask, words)
        for layer, questions in layers.items()
        for ask, words in questions.items()
    ]


def registry_entry(model: Fitted, release: ReleaseFileFacts | None = None) -> Entry:
    """Return the registry's entry of a fitted model as nested dictionaries.

    Entries have three tiers: what was published by whom (1), what is promised (2), how it was done
    (3). The tier is the highest whose fields are all answered. Gaussian DP with mu is
    zero-concentrated DP with ``rho = mu^2 / 2``, the form that the registry knows; mu stands beside
    it.
    """
    release = ReleaseFileFacts() if release is None else release
    certificate = model.certificate_
    certificate.verify()
    exact = certificate.sampler != FLOATING_POINT
    stated = promise_wording(certificate.guarantee)
    named = all((release.name, release.controller, release.purpose, release.published))
    tier = 1 if not named else 3 if release.budget_reason and release.data_source else 2
    return {
        "status": "Draft",
        "registry_authors": [release.author] if release.author else [],
        "tier": tier,
        "deployment": {
            "name": release.name,
            "data_curator": release.controller,
            "intended_use": release.purpose,
            "data_product_type": "Machine learning model",
            "data_product_region": release.region,
            "description": (
                f"Coefficients of a linear model ({type(model).__name__}) with {stated}."
            ),
            "publication_date": release.published,
            "data_product_sector": release.sector,
            "dp_flavor": _registry_flavor(certificate),
            "privacy_loss": {
                "privacy_unit": unit_name_wording(certificate, release),
                "privacy_unit_description": _registry_relation(certificate),
                "privacy_parameters": _registry_parameters(certificate),
                "privacy_parameters_description": stated,
            },
            "model": {
                "model_name": "Central",
                "model_name_description": "Whoever runs the fit sees the data and is trusted.",
                "actors": "The controller of the data, and everybody who sees the published model.",
                "release_type": "One release",
                "release_type_description": "One fit; a ledger adds up what else is released "
                "about the same data.",
                "data_source_type": "Static",
                "data_source_type_description": release.data_source,
                "access_type": "Non-interactive",
                "access_type_description": release.audience,
            },
            "accounting": {
                "post_processing": "Coefficients are mapped to the units of the data.",
                "composition": certificate.theorem,
            },
            "implementation": {
                "pre_processing_eda_hyperparameter_tuning": "Columns are clipped to public "
                "bounds. No setting is taken from the "
                "data without being paid for.",
                "mechanisms": f"{method_wording(certificate)} Software: dpconvex {__version__}. "
                "Noise is drawn "
                + ("exactly, on a public grid." if exact else "in floating point."),
                "justification": release.budget_reason,
            },
            "additional_information": f"Certificate: {certificate.digest}",
        },
    }


def write_registry_entry(
    model: Fitted, path: str | os.PathLike[str], release: ReleaseFileFacts | None = None
) -> Path:
    """Write the entry of a fitted model as a YAML file; see :func:`registry_entry`."""
    write_file_atomically(path, registry_entry_content(model, release))
    return Path(path)


def registry_entry_content(model: Fitted, release: ReleaseFileFacts | None = None) -> bytes:
    """Return what :func:`write_registry_entry` writes."""
    lines = _registry_yaml_lines(registry_entry(model, release))
    return ("\n".join(lines) + "\n").encode()


def _registry_flavor(certificate: Certificate) -> Entry:
    names = {PureDP: "Pure DP", GaussianDP: "Zero-concentrated DP"}
    added = certificate.neighbors == "add_or_remove_one"
    return {
        "name": names.get(type(certificate.guarantee), "Approximate DP"),
        "input_metric": "Symmetric distance" if added else "Change-one distance",
        "bound_on_input_distance": 1,
        "output_measure": promise_wording(certificate.guarantee),
        "data_domain": f"Tables of {certificate.bounds.n_features} bounded columns and a target.",
        "unprotected_quantities": ", ".join(unprotected_wording(certificate)),
    }


def _registry_relation(certificate: Certificate) -> str:
    added = certificate.neighbors == "add_or_remove_one"
    if "person" in certificate.unit:
        changed = "more or less" if added else "replaced"
        return f"Neighbouring data sets differ by one person with all rows that count, {changed}."
    if added:
        return "Neighbouring data sets differ by one record more or less."
    kept = " with the same label" if certificate.neighbors == "replace_one_keeping_label" else ""
    return f"Neighbouring data sets differ in one record, replaced by any other{kept}."


def _registry_parameters(certificate: Certificate) -> Entry:
    guarantee = certificate.guarantee
    if isinstance(guarantee, GaussianDP):
        return {"rho": guarantee.mu**2 / 2, "mu": guarantee.mu}
    found: Entry = {"epsilon": guarantee.epsilon_bound}
    delta = guarantee.delta(math.inf)
    return found | {"delta": delta} if delta else found


def _registry_yaml_lines(value: Mapping[str, object], indent: str = "") -> Iterator[str]:
    for name, part in value.items():
        if isinstance(part, Mapping):
            yield f"{indent}{name}:"
            yield from _registry_yaml_lines(part, f"{indent}  ")
        else:
            yield f"{indent}{name}: {printable_quote(part)}"
