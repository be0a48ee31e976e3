"""What an officer asks before signing: who is promised what, how it was made, and what nobody promised."""

from __future__ import annotations

from collections.abc import Iterator

from dpconvex.inputs.estimator_protocols import Fitted
from dpconvex.inputs.release_file import FIELDS, ReleaseFacts
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.guarantees import GaussianDP, Guarantee
from dpconvex.privacy.noise import FLOATING_POINT
from dpconvex.reports.content import promise

__all__ = ["limits", "method", "quotable", "sharper", "unit_of", "who_and_why"]

_RECORD_UNITS = ("record", "one record")

_STEPS = (
    "Coefficients were found step by step. In every step each record says in which direction it would move them, "
    "no record louder than a fixed limit; the answers are added up, random noise is added to the total, and only "
    "the noisy total is used."
)
_CERTAINTY = " How certain the result is was measured in the same way."
#: By mechanism, how coefficients were computed, for a reader who has never heard of it.
_METHODS = {
    "gradient": f"{_STEPS} How columns are scaled was measured in the same way.",
    "plain-gradient": _STEPS,
    "structured-gradient": _STEPS,
    "output": (
        "The best coefficients were computed exactly, with a penalty that keeps any one record from moving them far. "
        "Random noise, large enough to hide such a move, was then added to them."
    ),
    "objective": (
        "Random noise was added to the problem itself, and the noisy problem was solved exactly. What is published is "
        "its solution."
    ),
    "moments": (
        "A few totals of the data (counts, sums, and sums of products of columns, in which no record weighs more than "
        "a fixed limit) were published with random noise. The coefficients were computed from these totals alone."
    ),
    "sgd": (
        "Coefficients were improved step by step on small random parts of the data, with random noise in every step."
    ),
    "phased-erm": (
        "The data were divided into parts. Each part improved the coefficients of the one before it, and random noise "
        "was added after each."
    ),
    "phased-sgd": (
        "The data were divided into parts. Each part was read once, record by record, to improve the coefficients of "
        "the part before it, and random noise was added after each."
    ),
}


def unit_of(certificate: Certificate, release: ReleaseFacts) -> str:
    """Return whom the guarantee is about, in the user's word: "record", or "patient, at most 12 rows"."""
    unit = certificate.unit.removeprefix("one ")
    if not release.unit:
        return unit
    if certificate.unit in _RECORD_UNITS:
        return f"row of a {release.unit}"
    return unit.replace("person", release.unit)


def quotable(model: Fitted, release: ReleaseFacts) -> str:
    """Return one sentence that says what was published and what is promised."""
    certificate = model.certificate_
    name = f"“{release.name}”" if release.name else f"This {type(model).__name__}"
    return (
        f"{name} was published with {promise(certificate.guarantee)} for each {unit_of(certificate, release)}: "
        "whether or not anybody's data were used, and what they say, changes little in what can be learned from it."
    )


def who_and_why(release: ReleaseFacts) -> Iterator[tuple[str, str]]:
    """Yield every question of a release file with its answer; empty where the file is silent."""
    for field, question in FIELDS.items():
        if field not in ("unit", "target"):  # said elsewhere on the page
            yield question, getattr(release, field)


def sharper(certificate: Certificate) -> Guarantee | None:
    """Return the Gaussian guarantee that the mechanism truly has where it says more than the one that is stated."""
    if isinstance(certificate.guarantee, GaussianDP):
        return None
    mu = certificate.gaussian_mu()
    return None if mu is None else GaussianDP(mu)


def method(certificate: Certificate) -> str:
    """Return how the coefficients were computed, in words."""
    found = _METHODS.get(certificate.mechanism, "Random noise was added as the certificate states.")
    return found + _CERTAINTY * bool(certificate.parameters.get("inference", False))


def limits(certificate: Certificate, label_set: object) -> Iterator[tuple[str, str]]:
    """Yield what the guarantee does not cover, each with a heading."""
    public = ["names, bounds and units of the columns"]
    if certificate.neighbors != "add_or_remove_one":
        public.append(f"the number of {'people' if 'person' in certificate.unit else 'rows'}")
    if label_set:
        public.append(f"the set of labels ({label_set})")
    yield (
        "What is true of everybody",
        "If the model shows that a price lowers demand, that can be applied to people who are not in the data as well.",
    )
    yield ("What is assumed to be public", f"{', '.join(public)}. Bounds that were read from the data are not covered.")
    yield (
        "Other releases",
        "What else was published about the same records adds up with this release. A ledger adds it up.",
    )
    exact = certificate.sampler != FLOATING_POINT
    yield (
        "Floating point",
        "Covered: every released number is rounded to a public grid and noise is drawn as whole multiples of it, so "
        "the last digits of a number tell nothing."
        if exact
        else "Not covered: this mechanism draws noise in floating point, and the last digits of the coefficients could "
        "tell more than is stated.",
    )
    yield (
        "Time and machine",
        "How long the fit took, how much memory it used and what the machine did are not part of the promise. Do not "
        "let strangers watch the run.",
    )
    yield (
        "Errors",
        "A fit that stops with an error says whether values could be read as numbers. With invalid_rows='ignore' "
        "nothing depends on values.",
    )
    yield ("Seeds", "A fit with a fixed random_state is not private, and its report says so at the top.")
    yield ("Origin", "The certificate proves that its numbers fit together, not who made it. It is not a signature.")
