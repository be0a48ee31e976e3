"""Sentences about a certificate, shared by summaries, terminal tables, reports and the registry."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dpconvex.core.bounds import RECORD
from dpconvex.core.certificate import Certificate, CertifiedNoise
from dpconvex.core.guarantees import ApproxDP, GaussianDP, Guarantee
from dpconvex.core.noise_source import FLOATING_POINT
from dpconvex.inputs.settings import Fitted
from dpconvex.mechanisms.mechanism import certified_kind
from dpconvex.reports.release_file import ReleaseFileFacts

_NUMBERS = {
    "sum": ("sum over the rows", "sums over the rows"),
    "mean": ("average over the rows", "averages over the rows"),
    "count": ("count of rows", "counts of rows"),
    "coefficients": ("coefficient", "coefficients"),
}
# By neighbouring relation, what happens to one record: as a clause of its own, and after "when one
# record ...".
_NEIGHBORS = {
    "replace_one": ("one record is replaced by any other", "is replaced"),
    "add_or_remove_one": ("one record is added or removed", "is added or removed"),
    "replace_one_keeping_label": (
        "one record is replaced by another with the same label",
        "is replaced by one with the same label",
    ),
}


def _guarantee_wording_parts(guarantee: Guarantee) -> tuple[str, list[str]]:
    if isinstance(guarantee, GaussianDP):
        return "Gaussian differential privacy", [f"mu = {guarantee.mu:g}"]
    epsilon = f"epsilon = {guarantee.epsilon_bound:g}"
    if isinstance(guarantee, ApproxDP) and guarantee.delta_bound > 0:
        return "differential privacy", [epsilon, f"delta = {guarantee.delta_bound:g}"]
    return "pure differential privacy", [epsilon]


def guarantee_wording(guarantee: Guarantee) -> str:
    """Return the numbers of a guarantee, for a table."""
    kind, numbers = _guarantee_wording_parts(guarantee)
    return numbers[0] + (f" ({kind})" if len(numbers) == 1 else f", {numbers[1]}")


def promise_wording(guarantee: Guarantee) -> str:
    """Return the guarantee as it stands in a sentence."""
    kind, numbers = _guarantee_wording_parts(guarantee)
    return f"{kind} with {' and '.join(numbers)}"


def formula_wording(guarantee: Guarantee) -> str:
    """Return the inequality that the guarantee states, in plain characters."""
    if isinstance(guarantee, GaussianDP):
        return f"type II error ≥ Φ( Φ⁻¹(1 − type I error) − {guarantee.mu:.6g} )"
    term = f"exp({guarantee.epsilon_bound:.6g}) · P[ M(D′) ∈ S ]"
    if isinstance(guarantee, ApproxDP) and guarantee.delta_bound > 0:
        term += f" + {guarantee.delta_bound:.6g}"
    return f"P[ M(D) ∈ S ] ≤ {term}"


def largest_factor(epsilon: float) -> str:
    """Return the factor by which probabilities change at most."""
    return f"{math.exp(epsilon):.4g}" if epsilon < 30 else f"exp({epsilon:g})"


def guarantee_meaning_wording(guarantee: Guarantee, neighbors: str, unit: str = RECORD) -> str:
    """Return what the guarantee means for one record or person, as a sentence."""
    change = _NEIGHBORS[neighbors][1]
    unit = unit_wording(unit)
    if isinstance(guarantee, GaussianDP):
        return (
            f"Telling whether {unit} {change} is at least as hard as telling N(0, 1) from "
            f"N({guarantee.mu:g}, 1) from one draw."
        )
    factor = largest_factor(guarantee.epsilon_bound)
    text = (
        f"When {unit} {change}, the probability of any outcome changes by a factor of at most "
        f"{factor}"
    )
    if isinstance(guarantee, ApproxDP) and guarantee.delta_bound > 0:
        text += f", plus at most {guarantee.delta_bound:g}"
    return text + "."


def unit_wording(unit: str) -> str:
    """Return the protected unit as it stands in a sentence."""
    if unit == RECORD:
        return unit
    return (
        unit.replace(", at most", " with at most")
        if "rows" in unit
        else f"{unit} with all its rows"
    )


def promised_to_wording(certificate: Certificate) -> str:
    """Return the protected unit, and what a record of a table or a file is."""
    if "records" not in certificate.parameters:
        return certificate.unit
    whose = "a row" if certificate.unit == RECORD else "whose rows are those"
    lines = "a line" if certificate.unit == RECORD else "lines"
    return f"{certificate.unit}: {whose} of a table, or {lines} of a CSV file"


def unit_name_wording(certificate: Certificate, release: ReleaseFileFacts) -> str:
    """Return the protected unit in the publisher's word: "record", or "patient, at most 12
    rows".
    """
    unit = certificate.unit.removeprefix("one ")
    if not release.unit:
        return unit
    if certificate.unit == RECORD:
        return f"row of a {release.unit}"
    return unit.replace("person", release.unit)


def neighbors_wording(certificate: Certificate) -> str:
    """Return in what neighbouring data sets differ."""
    name = certificate.neighbors
    return f"{name.replace('_', ' ')}: {_NEIGHBORS[name][0]}".replace(RECORD, certificate.unit)


def quantity_wording(certificate: Certificate, name: str) -> str:
    """Return the quantity that a noise term was added to; other names speak for themselves."""
    return certified_kind(certificate).quantities.get(name, name)


def noise_wording(term: CertifiedNoise, counted: str = "rows") -> str:
    """Return one noise term in words: every coordinate of a released vector is a number of its
    own.
    """
    count = term.dimension * term.releases
    one, many = (words.replace("rows", counted) for words in _NUMBERS[term.added_to])
    where = f"one {one}" if count == 1 else f"each of {count:,} {many}"
    if term.distribution == "gaussian":
        return f"Gaussian noise of standard deviation {term.scale:.4g} on {where}"
    if term.dimension > 1:
        where = f"{term.dimension:,} {many} together" + (
            f", {term.releases:,} times" if term.releases > 1 else ""
        )
    return f"l2-Laplace noise of scale {term.scale:.4g} on {where}"


def noise_wording_lines(certificate: Certificate) -> list[str]:
    """Return all noise terms in words, those of one kind under one heading."""
    kinds: dict[tuple[str, str], list[tuple[str, CertifiedNoise]]] = {}
    for name, term in certificate.noise.items():
        kinds.setdefault((term.distribution, term.added_to), []).append((name, term))
    lines = []
    counted = certificate.bounds.counted
    for (law, statistic), terms in kinds.items():
        if len(terms) == 1 or law != "gaussian":
            lines += [
                f"{quantity_wording(certificate, name)}: {noise_wording(term, counted)}"
                for name, term in terms
            ]
            continue
        lines.append(
            f"Gaussian noise on each {_NUMBERS[statistic][0].replace('rows', counted)}, standard "
            "deviation"
        )
        for name, term in terms:
            count = term.dimension * term.releases
            numbers = _NUMBERS[statistic][count > 1].split()[0]
            quantity = quantity_wording(certificate, name)
            lines.append(f"{term.scale:>6.4g} for {count:,} {numbers}: {quantity}")
    return lines


def mechanism_wording(certificate: Certificate) -> str:
    """Return the name of a certificate's mechanism, and where it adds noise."""
    where = certified_kind(certificate).noise_enters
    return f"{certificate.mechanism}: {where}" if where else certificate.mechanism


def label_wording(certificate: Certificate) -> str | None:
    """Return where the label set is from; None for numbers."""
    found = certificate.parameters.get("label_set")
    if found == "assumed public":
        return (
            "read from the data without noise, and assumed public. If it is not, declare it: "
            "classes in Python and in the schema's [target], or --classes"
        )
    return None if found is None else "declared beforehand"


def sampler_wording(certificate: Certificate) -> str:
    """Return how noise was drawn, and what of floating point the guarantee covers."""
    failure = certificate.failure_probability
    if failure is None:
        return f"{certificate.sampler}; rounding in floating point is not covered"
    return (
        f"{certificate.sampler}; no last digit gives a value away, except with probability "
        f"{failure:.0e}"
    )


def public_facts_wording(certificate: Certificate) -> str:
    """Return the sizes and bounds that the noise was computed from."""
    bounds = certificate.bounds
    facts = f"{bounds.n_samples:,} {bounds.counted}, {bounds.n_features} features"
    if hasattr(bounds, "row_norm"):
        facts += f", row norm at most {bounds.row_norm:.4g}"
    return facts + f", penalty alpha {bounds.alpha:.4g}"


def method_wording(certificate: Certificate) -> str:
    """Return how the coefficients were computed, for a reader without training."""
    found = certified_kind(certificate).method
    intervals = certificate.parameters.get("inference", False)
    return found + (
        " The certainty of the result was measured in the same way." if intervals else ""
    )


def quotable_wording(model: Fitted, release: ReleaseFileFacts) -> str:
    """Return one sentence that says what was published and what is promised."""
    certificate = model.certificate_
    name = f"“{release.name}”" if release.name else f"This {type(model).__name__}"
    return (
        f"{name} was published with {promise_wording(certificate.guarantee)} for each "
        f"{unit_name_wording(certificate, release)}: what can be learned from it changes little "
        "whether or not anybody's data were used, and whatever they are."
    )


def unprotected_wording(certificate: Certificate) -> list[str]:
    """Return what is assumed public."""
    facts = ["names, bounds and units of the columns"]
    if "records" in certificate.parameters:
        facts.append("types of a table's columns")
    if certificate.neighbors != "add_or_remove_one":
        facts.append(f"number of {certificate.bounds.counted}")
    label_set = certificate.parameters.get("label_set")
    if label_set:
        facts.append(f"set of labels ({label_set})")
    if certificate.neighbors == "replace_one_keeping_label":
        facts.append("labels of rows")
    return facts


def limits_wording(certificate: Certificate) -> Iterator[tuple[str, str]]:
    """Yield what the guarantee does not cover, each with a heading."""
    yield (
        "What is true of everybody",
        "If the model shows that a price lowers demand, that can be applied to people who are "
        "not in the data as well.",
    )
    yield (
        "What is assumed to be public",
        f"{', '.join(unprotected_wording(certificate))}. Bounds that were read from the data are "
        "not covered.",
    )
    yield (
        "Other releases",
        "What else was published about the same records adds up with this release. A ledger adds "
        "it up.",
    )
    yield (
        "Floating point",
        "Covered: every released number is rounded to a public grid and noise is drawn as whole "
        "multiples of it, so the last digits of a number tell nothing."
        if certificate.sampler != FLOATING_POINT
        else "Not covered: this mechanism draws noise in floating point, and the last digits of "
        "the coefficients could tell more than is stated.",
    )
    yield (
        "Time and machine",
        "How long the fit took, how much memory it used and what the machine did are not part of "
        "the promise. Do not let strangers watch the run.",
    )
    yield (
        "Errors",
        "A fit that stops with an error says whether values could be read as numbers. With "
        "invalid_rows='ignore' nothing depends on values.",
    )
    yield (
        "Seeds",
        "A fit with a fixed random_state is not private, and its report says so at the top.",
    )
    yield (
        "Origin",
        "The certificate proves that its numbers fit together, not who made it. It is not a "
        "signature.",
    )
