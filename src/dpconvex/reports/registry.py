"""An entry for the OpenDP registry of deployments, as YAML: what the certificate knows, and what its publisher said.

Entries have three tiers: what was published by whom (1), what is promised (2), how it was done (3). Fields that only
the publisher knows and that no release file answers are left as empty strings.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from dpconvex.inputs.estimator_protocols import Fitted
from dpconvex.inputs.release_file import ReleaseFacts
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.guarantees import GaussianDP, PureDP
from dpconvex.privacy.noise import FLOATING_POINT
from dpconvex.reports.content import promise
from dpconvex.reports.officer import method, unit_of
from dpconvex.reports.printable import quoted
from dpconvex.version import __version__
from dpconvex.whole_files import write_whole

__all__ = ["registry_entry", "write_registry_entry"]

Entry = dict[str, object]


def registry_entry(model: Fitted, release: ReleaseFacts | None = None) -> Entry:
    """Return the entry of a fitted model as nested dictionaries.

    Parameters
    ----------
    model : estimator
        A fitted dpconvex estimator.
    release : ReleaseFacts, optional
        What its publisher says.

    Notes
    -----
    Gaussian DP with mu is zero-concentrated DP with ``rho = mu^2 / 2``, the form that the registry knows; mu stands
    beside it. The tier is the highest whose fields are all answered.
    """
    release = ReleaseFacts() if release is None else release
    certificate = model.certificate_
    certificate.verify()
    kind = type(model).__name__
    mechanism = method(certificate)
    exact = certificate.sampler != FLOATING_POINT
    return {
        "status": "Draft",
        "registry_authors": [release.author] if release.author else [],
        "tier": _tier(release),
        "deployment": {
            "name": release.name,
            "data_curator": release.controller,
            "intended_use": release.purpose,
            "data_product_type": "Machine learning model",
            "data_product_region": release.region,
            "description": f"Coefficients of a linear model ({kind}) with {promise(certificate.guarantee)}.",
            "publication_date": release.published,
            "data_product_sector": release.sector,
            "dp_flavor": _flavor(certificate, release),
            "privacy_loss": {
                "privacy_unit": unit_of(certificate, release),
                "privacy_unit_description": _relation(certificate),
                "privacy_parameters": _parameters(certificate),
                "privacy_parameters_description": promise(certificate.guarantee),
            },
            "model": {
                "model_name": "Central",
                "model_name_description": "Whoever runs the fit sees the data and is trusted.",
                "actors": "The controller of the data, and everybody who sees the published model.",
                "release_type": "One release",
                "release_type_description": "One fit; a ledger adds up what else is released about the same data.",
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
                "pre_processing_eda_hyperparameter_tuning": "Columns are clipped to public bounds. No setting is taken "
                "from the data without being paid for.",
                "mechanisms": f"{mechanism} Software: dpconvex {__version__}. Noise is drawn "
                + ("exactly, on a public grid." if exact else "in floating point."),
                "justification": release.budget_reason,
            },
            "additional_information": f"Certificate: {certificate.digest}",
        },
    }


def write_registry_entry(model: Fitted, path: str | os.PathLike[str], release: ReleaseFacts | None = None) -> Path:
    """Write the entry of a fitted model as a YAML file; see :func:`registry_entry`."""
    write_whole(path, ("\n".join(_lines(registry_entry(model, release))) + "\n").encode())
    return Path(path)


def _tier(release: ReleaseFacts) -> int:
    basic = (release.name, release.controller, release.purpose, release.published)
    if not all(basic):
        return 1
    return 3 if release.budget_reason and release.data_source else 2


def _flavor(certificate: Certificate, release: ReleaseFacts) -> Entry:
    guarantee = certificate.guarantee
    names = {PureDP: "Pure DP", GaussianDP: "Zero-concentrated DP"}
    added = certificate.neighbors == "add_or_remove_one"
    unprotected = ["names and bounds of columns"]
    person = "person" in certificate.unit
    if not added:
        unprotected.append("number of people" if person else "number of rows")
    if certificate.parameters.get("label_set"):
        unprotected.append("set of labels")
    if certificate.neighbors == "replace_one_keeping_label":
        unprotected.append("labels of rows")
    columns = getattr(certificate.bounds, "n_features", "several")
    return {
        "name": names.get(type(guarantee), "Approximate DP"),
        "input_metric": "Symmetric distance" if added else "Change-one distance",
        "bound_on_input_distance": 1,
        "output_measure": promise(guarantee),
        "data_domain": f"Tables of {columns} bounded columns and a target.",
        "unprotected_quantities": ", ".join(unprotected),
    }


def _relation(certificate: Certificate) -> str:
    if "person" in certificate.unit:
        changed = "more or less" if certificate.neighbors == "add_or_remove_one" else "replaced"
        return f"Neighbouring data sets differ by one person with all rows that count, {changed}."
    if certificate.neighbors == "add_or_remove_one":
        return "Neighbouring data sets differ by one record more or less."
    kept = " with the same label" if certificate.neighbors == "replace_one_keeping_label" else ""
    return f"Neighbouring data sets differ in one record, replaced by any other{kept}."


def _parameters(certificate: Certificate) -> Entry:
    guarantee = certificate.guarantee
    if isinstance(guarantee, GaussianDP):
        return {"rho": guarantee.mu**2 / 2, "mu": guarantee.mu}
    found: Entry = {"epsilon": guarantee.epsilon_bound}
    delta = guarantee.delta(math.inf)
    return found | {"delta": delta} if delta else found


def _lines(value: Mapping[str, object], indent: str = "") -> Iterator[str]:
    """Yield YAML."""
    for name, part in value.items():
        if isinstance(part, Mapping):
            yield f"{indent}{name}:"
            yield from _lines(part, f"{indent}  ")
        else:
            yield f"{indent}{name}: {quoted(part)}"
