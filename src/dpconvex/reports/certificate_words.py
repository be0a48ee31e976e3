"""A certificate's terms in plain words: what got noise and how much, what may differ, how noise was drawn."""

from __future__ import annotations

from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.terms import NoiseTerm

__all__ = [
    "describe_labels",
    "describe_mechanism",
    "describe_neighbors",
    "describe_noise",
    "describe_release",
    "describe_sampler",
    "describe_size",
    "noise_lines",
]

# What a noise term of this name was added to. Names that are not here speak for themselves.
_RELEASES = {
    "mass": "number of valid records",
    "columns": "size and place of each column",
    "lengths": "typical length of a row",
    "moments": "second moments of the columns",
    "labels": "number of positive labels",
    "octaves": "size of the target",
    "targets": "middle and spread of the target",
    "mean row": "mean row, which all levels share",
    "rough gradients": "gradients of the first rounds",
    "residuals": "place and spread of the residuals",
    "margins": "histogram of the scores",
    "gradients": "gradients of the descent",
    "curvature": "curvature of the loss",
    "late gradients": "gradients of the last rounds",
    "scores": "spread of the gradients, for intervals",
    "centre": "mean row",
    "count": "number of positive labels",
    "difference": "difference of the classes",
    "objective": "gradient of the objective, before it is minimised",
    "release": "coefficients",
}
_NUMBERS = {
    "sum": ("sum over the rows", "sums over the rows"),
    "mean": ("average over the rows", "averages over the rows"),
    "count": ("count of rows", "counts of rows"),
    "coefficients": ("coefficient", "coefficients"),
}
_MECHANISMS = {
    "gradient": "noise is added in every step of the solver",
    "plain-gradient": "noise is added in every step of the solver",
    "structured-gradient": "noise is added in every step of the solver",
    "sgd": "noise is added in every step of the solver",
    "objective": "noise is added to the objective before it is minimised",
    "auc-objective": "noise is added to the objective before it is minimised",
    "output": "noise is added to the finished coefficients",
    "moments": "noise is added to moments, which the coefficients are computed from",
    "phased-erm": "noise is added to the coefficients after every phase",
    "phased-sgd": "noise is added to the coefficients after every phase",
}
_NEIGHBORS = {
    "replace_one": "one record is replaced by any other",
    "add_or_remove_one": "one record is added or removed",
    "replace_one_keeping_label": "one record is replaced by another with the same label",
}


def describe_release(name: str) -> str:
    """Return what a noise term was added to."""
    return _RELEASES.get(name, name)


def describe_size(term: NoiseTerm) -> str:
    """Return the law and the size of the noise."""
    if term.distribution == "gaussian":
        return f"Gaussian noise of standard deviation {term.scale:.4g}"
    return f"l2-Laplace noise of scale {term.scale:.4g}"


def describe_noise(term: NoiseTerm, counted: str = "rows") -> str:
    """Return one noise term in words: every coordinate of a released vector is a number of its own."""
    count = term.dimension * term.releases
    one, many = (words.replace("rows", counted) for words in _NUMBERS[term.added_to])
    where = f"one {one}" if count == 1 else f"each of {count:,} {many}"
    if term.distribution != "gaussian" and term.dimension > 1:
        where = f"{term.dimension:,} {many} together"
        where += f", {term.releases:,} times" if term.releases > 1 else ""
    return f"{describe_size(term)} on {where}"


def noise_lines(certificate: Certificate) -> list[str]:
    """Return all noise terms in words, those of one kind under one heading."""
    kinds: dict[tuple[str, str], list[tuple[str, NoiseTerm]]] = {}
    for name, term in certificate.noise.items():
        kinds.setdefault((term.distribution, term.added_to), []).append((name, term))
    lines, counted = [], certificate.bounds.counted
    for (law, place), terms in kinds.items():
        if len(terms) == 1 or law != "gaussian":
            lines += [f"{describe_release(name)}: {describe_noise(term, counted)}" for name, term in terms]
            continue
        one = _NUMBERS[place][0].replace("rows", counted)
        lines.append(f"Gaussian noise on each {one}, of standard deviation")
        for name, term in terms:
            count = term.dimension * term.releases
            numbers = _NUMBERS[place][count > 1].split()[0]
            lines.append(f"{term.scale:>6.4g} for the {describe_release(name)} ({count:,} {numbers})")
    return lines


def describe_mechanism(name: str) -> str:
    """Return the name of a mechanism, and where it adds noise."""
    return f"{name}: {_MECHANISMS[name]}" if name in _MECHANISMS else name


def describe_neighbors(name: str) -> str:
    """Return what may differ between two data sets that must look alike."""
    return f"{name.replace('_', ' ')}: {_NEIGHBORS[name]}"


def describe_labels(certificate: Certificate) -> str | None:
    """Return in words where the label set is from; None for numbers."""
    found = certificate.parameters.get("label_set")
    if found == "assumed public":
        return (
            "which ones there are was read from the data, without noise, and is assumed to be public. If it is not, "
            "declare them: classes in Python and in the schema's [target], or --classes"
        )
    return None if found is None else "declared beforehand"


def describe_sampler(certificate: Certificate) -> str:
    """Return in words how noise was drawn, and what of floating point the guarantee covers."""
    failure = certificate.failure_probability
    if failure is None:
        return f"{certificate.sampler}; rounding in floating point is not covered"
    return f"{certificate.sampler}; no last digit gives a value away, except with probability {failure:.0e}"
