"""Certificates of every mechanism, edited by a forger who repairs the digest.

None verifies with less noise than its guarantee needs, by a judge that shares no code with the
library; and none that is honest is refused: as issued, with its keys in another order, with more
noise, with larger stated sensitivities.
"""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from certificate_judge import Contradiction, suffices
from certificate_samples import HONEST, certificates
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dpconvex.losses import Hinge, Huber, Logistic, PairLogistic, PairSquared, Pinball, Squared
from dpconvex.mechanisms import (
    NoisyGradientDescent,
    ObjectivePerturbation,
    OutputPerturbation,
    PairwiseObjectivePerturbation,
)
from dpconvex.privacy import (
    ApproxDP,
    Certificate,
    CertificateError,
    GaussianDP,
    LinearBounds,
    PureDP,
)
from dpconvex.privacy.bounds.ranking import PairwiseBounds
from dpconvex.privacy.bounds.tilted_and_robust_bounds import RobustBounds

FIXED = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # a forgery says itself what was edited
)
EXAMPLES = {"sgd": 5}  # its accounting is slow
EDITS = 25  # of each certificate

Path = tuple[Any, ...]


def verified(tree: Any) -> Any:
    """Return what a file states if it verifies after its digest was made to fit, else None.

    The only error that reading and checking may raise is CertificateError. Fields that were left
    out stand for their defaults, as every reader is shown.
    """
    try:
        forged = Certificate.from_json(json.dumps(tree))
        object.__setattr__(forged, "digest", forged._hash())
        forged.verify()
    except CertificateError:
        return None
    return json.loads(forged.to_json())


def places(node: Any, path: Path = ()) -> list[Path]:
    """Return the path of every key and every item of the tree."""
    found = [] if not path else [path]
    keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        found += places(node[key], (*path, key))
    return found


def holder(tree: Any, path: Path) -> Any:
    for key in path[:-1]:
        tree = tree[key]
    return tree


NAMES = ["Pinball", "Logistic", "Hinge", "DeclaredLoss", "Scaled", "L1Norm", "GaussianKernel"]
NAMES += ["Softmax", "ProportionalOdds", "DiscreteHazard", "Tweedie"]
NAMES += [
    "PairLogistic",
    "PairSquared",
    "LinearBounds",
    "RobustBounds",
    "TiltedBounds",
    "WorstShareBounds",
]
NAMES += ["PairwiseBounds", "StructuredBounds", *HONEST, "pure", "approx", "gaussian", "l2-laplace"]
NAMES += ["sum", "mean", "count", "coefficients", "replace_one", "add_or_remove_one", "given"]
NAMES += ["poisson", "fixed", "exact", "floating-point", "margin", "residual", "linf", "2", "e"]
ODD = [None, True, False, 0, 1, 2, -1, 0.5, 1e-6, 1e-300, 1e300, 10**15, 10**400, "", "inf", "-inf"]
ODD += ["NaN", "1", [], [1.0], {}, {"class": "Pinball", "quantile": 0.5}, {"class": "Logistic"}]
ODD += [{"class": "DeclaredLoss", "name": "x", "lipschitz": 1e-6, "smoothness": 0.0}]
ODD += [{"class": "DeclaredLoss", "name": "x", "lipschitz": -1, "smoothness": 0.0}]


def changes(value: Any) -> list[Any]:
    """Return other values that a place of the file could hold."""
    near: list[Any] = []
    if isinstance(value, bool):
        near = [not value]
    elif isinstance(value, (int, float)):
        near = [value * factor for factor in (0.5, 0.9, 0.999, 1.001, 1.1, 2.0, 1e3, 1e-6, -1)]
        near += [value + 1, value - 1, float(value), str(value), [value]]
        near += [int(value), 2 * int(value)] if abs(value) < 1e15 else []
    elif isinstance(value, str):
        near = [*NAMES, value + "x"]
    elif isinstance(value, list):
        near = [value[::-1], value[1:], value + value[-1:]]
    elif isinstance(value, dict):
        near = [value.get("loss"), {**value, "extra": 1}]
    return near + ODD


def edited(tree: Any, path: Path, rng: random.Random) -> Any:
    """Return a copy with one place changed, removed, or doubled under another name."""
    copied = copy.deepcopy(tree)
    inside = holder(copied, path)
    key = path[-1]
    way = rng.random()
    if way < 0.08:
        del inside[key]
    elif way < 0.14 and isinstance(inside, dict):
        other = rng.choice([*inside, "extra", "objective", "release", "gradients", "problems"])
        inside[other] = copy.deepcopy(inside[key])
    else:
        inside[key] = rng.choice(changes(inside[key]))
    return copied


def quieter(tree: Any, factor: float, with_sensitivity: bool) -> Any:
    """Return a copy with less noise: what a forger gains from facts that are no longer checked."""
    copied = copy.deepcopy(tree)
    terms = copied.get("noise")
    for term in terms.values() if isinstance(terms, dict) else ():
        for name in ("scale", *(["sensitivity"] if with_sensitivity else [])):
            if isinstance(term, dict) and type(term.get(name)) is float:
                term[name] *= factor
        if isinstance(term, dict) and term.get("grid"):
            term["grid"] = None
    return copied


def check(tree: Any, label: Any) -> bool:
    """Return whether a file verifies, after asking the judge about it."""
    stated = verified(tree)
    if stated is None:
        return False
    try:
        enough = suffices(stated)
    except Contradiction as error:
        raise AssertionError(f"verified, but {error}: {label}") from error
    assert enough, f"verified with too little noise: {label}"
    return True


def attack(certificate: Certificate, rng: random.Random, edits: int) -> int:
    tree = json.loads(certificate.to_json())
    trails = places(tree)
    accepted = 0
    for _ in range(edits):
        path = rng.choice(trails)
        forged = edited(tree, path, rng)
        label = (certificate.mechanism, path, tree, forged)
        accepted += check(forged, label)
        accepted += check(quieter(forged, 0.5, rng.random() < 0.5), label)
        accepted += check(quieter(forged, 1e-4, True), label)
    return accepted


def honest_variants(certificate: Certificate, rng: random.Random) -> list[Any]:
    tree = json.loads(certificate.to_json())
    shuffled = json.loads(json.dumps(tree, sort_keys=True))
    louder = copy.deepcopy(tree)
    wider = copy.deepcopy(tree)
    for name, term in louder["noise"].items():
        # More of a tilt rounds more, and the release pays for that.
        term["scale"] *= 1.5 if name == "objective" else 4.0
        term["grid"] = 0.0 if certificate.mechanism == "sgd" else None
        if "objective" in louder["noise"] and name == "release":
            term["sensitivity"] *= 2.5
    for term in wider["noise"].values():
        if certificate.mechanism != "sgd":
            term["scale"] *= 2.0
            term["grid"] *= 2.0
        term["sensitivity"] *= 1.0 + rng.random() * 0.9
    if "objective" in wider["noise"]:
        wider["noise"]["release"]["sensitivity"] *= 2.0
        wider["noise"]["release"]["scale"] *= 2.0
        wider["noise"]["release"]["grid"] *= 2.0
    return [tree, shuffled, louder, wider]


def run(mechanism: str, examples: int, edits: int) -> None:
    @settings(FIXED, max_examples=examples)
    @given(certificates(mechanism), st.integers(0, 2**32))
    def one(certificate: Certificate, seed: int) -> None:
        rng = random.Random(seed)
        for number, tree in enumerate(honest_variants(certificate, rng)):
            stated = verified(tree)
            assert stated is not None, (number, tree)
            assert suffices(stated), (number, tree)
        attack(certificate, rng, edits)

    one()


@pytest.mark.parametrize("mechanism", HONEST)
def test_no_forgery_verifies_and_no_honest_certificate_is_refused(mechanism):
    run(mechanism, EXAMPLES.get(mechanism, 10), EDITS)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", HONEST)
def test_more_forgeries(mechanism):
    """A thousand certificates, a hundred edits of each."""
    run(mechanism, 100, 100)


@pytest.mark.parametrize("mechanism", HONEST)
def test_every_place_of_one_certificate(mechanism):
    """All values of every place of one file, so that no place is missed by chance."""
    tree = json.loads(first_of(mechanism).to_json())
    for path in places(tree):
        value = holder(tree, path)[path[-1]]
        for other in changes(value) if isinstance(value, (int, float)) else [*ODD, "gradients"]:
            forged = copy.deepcopy(tree)
            holder(forged, path)[path[-1]] = other
            check(forged, (path, other))


def first_of(mechanism: str) -> Certificate:
    found: list[Certificate] = []

    @settings(FIXED, max_examples=1)
    @given(certificates(mechanism))
    def first(certificate: Certificate) -> None:
        found.append(certificate)

    first()
    return found[0]


@pytest.mark.parametrize(
    "mechanism",
    [
        "objective",
        "output",
        "gradient",
        "moments",
        "phased-sgd",
        "intervals",
        "squares",
        "outcomes",
        "plain-gradient",
    ],
)
@pytest.mark.parametrize("weakness", ["follows", "term"])
def test_a_library_that_checks_less_is_caught(mechanism, weakness, monkeypatch):
    """The judge is worth its name: without one check of the library, forgeries that verify are
    found.
    """
    if weakness == "follows":
        monkeypatch.setattr(
            "dpconvex.core.certificate.certified_guarantee_follows", lambda claim, proven: True
        )
    else:
        monkeypatch.setattr(
            Certificate, "term", lambda self, name, *facts, **more: self.noise[name]
        )
    certificate = first_of(mechanism)
    with pytest.raises(AssertionError, match="verified"):
        attack(certificate, random.Random(0), 800)


def refused(tree: Any) -> bool:
    """Whether the judge finds too little noise, or facts that exclude each other."""
    try:
        return not suffices(tree)
    except Contradiction:
        return True


SUMS = {
    "logistic": (Logistic(), 1.0, {}),
    "hinge": (Hinge(), 1.0, {}),
    "ranking": (Logistic(), 1.0, {"ranking": True}),
    "quantile": (Pinball(0.9), 1.0, {}),
    "quantile, raw": (Pinball(0.9), 1e4, {"raw_target": True}),
    "levels": (Pinball(0.5), 1.0, {"levels": [0.1, 0.5, 0.9], "targets": 1}),
    "Huber": (Huber(0.3), 1.0, {}),
    "least squares": (Squared(), 1.0, {}),
    "least squares, raw": (Squared(), 1e4, {"raw_target": True}),
    "logistic, intervals": (Logistic(), 1.0, {"inference": True}),
    "logistic, raw, intervals": (Logistic(), 1e4, {"inference": True}),
    "quantile, intervals": (Pinball(0.9), 1.0, {"inference": True}),
    "quantile, raw, intervals": (Pinball(0.9), 1e4, {"inference": True, "raw_target": True}),
    "least squares, intervals": (Squared(), 1.0, {"inference": True}),
}


def parameters_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a descent with these settings beside its own."""
    own = {name: value for name, value in settings.items() if name != "inference"}
    more = {"inference": True} if "inference" in settings else {}
    return {"gradient": {**NoisyGradientDescent().settings(), **own}, **more}


@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize("name", SUMS)
def test_the_judge_knows_every_released_sum(name, neighbors):
    """By itself, without the library's check: no query with half its noise, a smaller sensitivity,
    or one use more.

    A file that states fewer queries promises no more than they are: a handle answers none that it
    does not state.
    """
    loss, longest, more = SUMS[name]
    bounds = LinearBounds(20_000, 3, loss, 1.0, longest, neighbors=neighbors)
    tree = issued(NoisyGradientDescent(), bounds, GaussianDP(1.0), parameters_of(more))
    assert suffices(tree)
    wanted = {"scores"} if "inference" in more else set()
    wanted |= {"columns", "lengths", "moments", "gradients", "curvature", "late gradients"}
    assert wanted <= set(tree["noise"])
    for phase, term in tree["noise"].items():
        for field, value in (
            ("scale", term["scale"] / 2),
            ("sensitivity", 0.99 * term["sensitivity"]),
            ("releases", 4 * term["releases"]),
            ("record_bound", 1.01 * term["record_bound"]),
            ("query", "mean"),
        ):
            forged = copy.deepcopy(tree)
            forged["noise"][phase][field] = value
            assert refused(forged), (phase, field)
        extra = copy.deepcopy(tree)
        extra["noise"]["more"] = term
        assert refused(extra)


@pytest.mark.parametrize(
    "record", [{"people": True}, {"weighted_rows": True}, {"rows_per_person": 2}]
)
@pytest.mark.parametrize("name", [name for name in SUMS if "inference" in SUMS[name][2]])
def test_intervals_of_rows_that_share_a_vote_need_their_noise(name, record):
    loss, longest, more = SUMS[name]
    bounds = LinearBounds(20_000, 3, loss, 1.0, longest)
    mechanism = NoisyGradientDescent()
    budget = GaussianDP(1.0)
    parameters = parameters_of(more)
    mechanism.certify(replace(bounds, **record), budget, parameters).verify()
    if "rows_per_person" in record:  # noise of single rows does not do
        single = json.loads(mechanism.certify(bounds, budget, parameters).to_json())
        single["bounds"]["rows_per_person"] = 2
        assert refused(single)


# Forgeries that verified once, or that only one check stands against.

LINEAR = LinearBounds(500, 3, Logistic(), 1.0, 1.0, alpha=0.5)
PAIRS = PairwiseBounds(500, 3, PairLogistic(), 1.0, min_positive=50, min_negative=50, alpha=5.0)
BUDGET = ApproxDP(1.0, 1e-6)


def issued(mechanism: Any, bounds: Any, claim: Any = BUDGET, parameters: Any = None) -> Any:
    return json.loads(mechanism.certify(bounds, claim, parameters).to_json())


def put(tree: Any, *edits: tuple[str, Any]) -> Any:
    """Return the tree after edits at paths like ``noise.release.scale``."""
    for path, value in edits:
        *trail, key = path.split(".")
        inside = tree
        for part in trail:
            inside = inside[part]
        inside[key] = value
    return tree


def several(count: Any) -> Any:
    """Ten classes that are paid for like ``count`` of them."""
    tree = issued(OutputPerturbation(), LINEAR, GaussianDP(0.5), {"n_classes": 2, "problems": 1})
    return put(tree, ("parameters.problems", count), ("parameters.n_classes", 10))


def declared(**constants: Any) -> Any:
    tree = issued(OutputPerturbation(), LINEAR)
    loss = {"class": "DeclaredLoss", "name": "x", "lipschitz": 1.0, "smoothness": 0.25}
    return put(tree, ("bounds.loss", {**loss, "kind": "margin", **constants}))


def loss_of(description: Any) -> Any:
    return put(issued(OutputPerturbation(), LINEAR), ("bounds.loss", description))


def large(claim: dict[str, Any]) -> Any:
    """Gaussian noise and a claim without delta, at an epsilon where delta underflows."""
    return put(issued(OutputPerturbation(), LINEAR, GaussianDP(1.0)), ("guarantee", claim))


def pairs_as_records() -> Any:
    """Pairs by the theorem for sums over records: one record is in hundreds of pairs."""
    tree = issued(PairwiseObjectivePerturbation(), PAIRS)
    sums = {"sensitivity": PAIRS.gradient_sum_sensitivity(), "added_to": "sum", "scale": 50.0}
    put(tree, ("mechanism", "objective"), ("noise.release.sensitivity", 1.0))
    for name, value in (*sums.items(), ("grid", None)):
        put(tree, (f"noise.objective.{name}", value))
    theorem = "Gaussian objective perturbation, replace-one, Rényi and chi profiles"
    return put(
        tree, ("theorem", theorem), ("noise.release.scale", 1e6), ("noise.release.grid", None)
    )


def squared_pairs() -> Any:
    """Least squares has bounded slopes only where minimisers without noise lie."""
    tree = issued(PairwiseObjectivePerturbation(), PAIRS)
    for name in ("objective", "release"):
        for field in ("scale", "sensitivity"):
            tree["noise"][name][field] *= 20 if name == "objective" else 400
    return put(tree, ("bounds.loss", {"class": "PairSquared"}), ("bounds.alpha", 50.0))


def free_rounding() -> Any:
    """A small budget in many dimensions, where rounding to the grid costs more than the rest."""
    bounds = LinearBounds(10**6, 10**6, Logistic(), 1.0, 1.0, alpha=0.5)
    tree = issued(OutputPerturbation(), bounds, GaussianDP(3e-4))
    moved = tree["noise"]["release"]["sensitivity"]
    return put(tree, ("noise.release.scale", moved / 3e-4), ("noise.release.grid", 0.0))


def fine_rounding() -> Any:
    return put(free_rounding(), ("noise.release.grid", 2.0**-900))


def negative_far_out() -> Any:
    """A tilted loss that is negative only beyond margins of 50 has a wider range than its ends
    say.
    """
    loss = {"class": "KinkedLoss", "knots": [100.0], "slopes": [-0.01, 0.02], "height": -0.4}
    smooth = {"class": "MoreauLoss", "loss": {**loss, "kind": "residual"}, "modulus": 1.0}
    tree = issued(OutputPerturbation(), LINEAR)
    tree["bounds"].update(kind="TiltedBounds", tilt=1.0, coef_bound=None, loss=smooth)
    return put(tree, ("noise.release.scale", 1e9), ("noise.release.sensitivity", 1e3))


def shortened_units() -> Any:
    """Rows in units of a length that is found first lie up to 2 apart, whatever the file says."""
    bounds = PairwiseBounds(500, 3, PairLogistic(), 1.0, 0.01, 50, 50, alpha=5.0)
    tree = issued(
        PairwiseObjectivePerturbation(),
        PAIRS,
        PureDP(1.0),
        {"longest_row": 3.0, "widest_pair": 5.0},
    )
    return put(tree, ("bounds.diameter", bounds.diameter))


def smoothed_by(kernel: Any) -> Any:
    return put(issued(NoisyGradientDescent(), LINEAR), ("parameters.gradient.kernel", kernel))


FORGERIES = {
    "a millionth of a problem": lambda: several(1e-6),
    "one problem for ten classes": lambda: several(1),
    "true problems": lambda: several(True),
    "a clip below 0": lambda: put(
        issued(NoisyGradientDescent(), LINEAR), ("parameters.fit.clip", -1.0)
    ),
    "geometry of more rows than there are": lambda: put(
        issued(NoisyGradientDescent(), LINEAR), ("parameters.fit.geometry_rows", 501)
    ),
    "a part of an unknown number of rows": lambda: put(
        issued(NoisyGradientDescent(), replace(LINEAR, neighbors="add_or_remove_one")),
        ("parameters.fit.early_rows", 100),
    ),
    "levels that no setting names": lambda: put(
        issued(NoisyGradientDescent(), LINEAR),
        ("parameters.fit.levels", [0.1, 0.9]),
        ("parameters.fit.targets", 1),
    ),
    "levels of a margin": lambda: put(
        issued(NoisyGradientDescent(), LINEAR),
        ("parameters.fit.levels", [0.1, 0.9]),
        ("parameters.fit.targets", 1),
        ("parameters.gradient.levels", [0.1, 0.9]),
        ("parameters.gradient.targets", 1),
    ),
    "a choice that no fit has": lambda: put(
        issued(NoisyGradientDescent(), LINEAR), ("parameters.fit.noise", 0.0)
    ),
    "a plain descent of more columns than it starts from": lambda: put(
        issued(NoisyGradientDescent(step_size=0.1), LINEAR), ("bounds.n_features", 10**15)
    ),
    "a plain descent of many columns that starts nowhere": lambda: put(
        issued(NoisyGradientDescent(step_size=0.1), LINEAR),
        ("bounds.n_features", 10**15),
        ("parameters.plain.start", None),
    ),
    "a loss for a kernel": lambda: smoothed_by({"class": "Logistic", "base": "e"}),
    "no kernel": lambda: smoothed_by(None),
    "a kernel of two variables": lambda: smoothed_by({"class": "GaussianKernel", "dim": 2}),
    "a kernel with a field of its own": lambda: smoothed_by({"class": "LogisticKernel", "x": 1}),
    "a negative bandwidth of a descent": lambda: put(
        issued(NoisyGradientDescent(), LINEAR), ("parameters.gradient.bandwidth", -1.0)
    ),
    "a setting that no descent has": lambda: put(
        issued(NoisyGradientDescent(), LINEAR), ("parameters.gradient.noise", 0.0)
    ),
    "a negative slope": lambda: declared(lipschitz=-1),
    "a slope that is true": lambda: declared(lipschitz=True),
    "a negative bandwidth": lambda: loss_of(
        {
            "class": "ConvolvedLoss",
            "loss": {"class": "Hinge"},
            "kernel": {"class": "LogisticKernel"},
            "bandwidth": -1.0,
        }
    ),
    "a convolved convolution": lambda: loss_of(
        {
            "class": "ConvolvedLoss",
            "kernel": {"class": "LogisticKernel"},
            "bandwidth": 1e9,
            "loss": {
                "class": "ConvolvedLoss",
                "loss": {"class": "Hinge"},
                "kernel": {"class": "LogisticKernel"},
                "bandwidth": 0.1,
            },
        }
    ),
    "a quantile of 2": lambda: loss_of({"class": "Pinball", "quantile": 2.0}),
    "a width of 0": lambda: loss_of({"class": "Huber", "width": 0}),
    "slopes that fall": lambda: loss_of(
        {
            "class": "KinkedLoss",
            "knots": [0.0],
            "slopes": [1.0, -1.0],
            "height": 0.0,
            "kind": "margin",
        }
    ),
    "a factor of 0": lambda: loss_of(
        {"class": "Scaled", "loss": {"class": "Logistic"}, "factor": 0}
    ),
    "a negative factor": lambda: loss_of(
        {"class": "Scaled", "loss": {"class": "Logistic"}, "factor": -1e-6}
    ),
    "a vector's loss for a margin": lambda: loss_of({"class": "L1Norm", "size": 1}),
    "a pair's loss for a margin": lambda: loss_of({"class": "PairLogistic", "base": "e"}),
    "a kernel for a loss": lambda: loss_of({"class": "GaussianKernel", "dim": 1}),
    "pure epsilon from normal noise": lambda: large({"kind": "pure", "epsilon": 1e4}),
    "delta 0 from normal noise": lambda: large({"kind": "approx", "epsilon": 1e4, "delta": 0.0}),
    "pairs as records": pairs_as_records,
    "squared pairs": squared_pairs,
    "no grid": free_rounding,
    "a grid that is not drawn on": fine_rounding,
    "negative far out": negative_far_out,
    "shortened units": shortened_units,
    "five tilts": lambda: put(
        issued(ObjectivePerturbation(), LINEAR), ("noise.objective.releases", 5)
    ),
    "noise on a mean": lambda: put(
        issued(ObjectivePerturbation(), LINEAR), ("noise.objective.added_to", "mean")
    ),
    "a release of low tolerance": lambda: put(
        issued(ObjectivePerturbation(), LINEAR), ("noise.release.tolerance", 0.0)
    ),
    "rows beyond number": lambda: put(
        issued(OutputPerturbation(), LINEAR), ("bounds.n_samples", 10**30)
    ),
    "moments of three classes": lambda: put(
        issued(PairwiseObjectivePerturbation(), PAIRS),
        ("parameters", {"n_classes": 3, "problems": 3}),
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_known_forgeries(name):
    assert verified(FORGERIES[name]()) is None


def test_objectives_without_a_theorem_are_refused():
    """Before anything is issued: slopes that hold on a ball only, and pairs by the theorem for
    records.
    """
    costly = RobustBounds(500, 3, Logistic(), 1.0, 1.0, alpha=0.5, radius=0.0, cost=9.0)
    with pytest.raises(ValueError, match="with a cost"):
        ObjectivePerturbation().certify(costly, BUDGET)
    with pytest.raises(ValueError, match="needs LinearBounds or"):
        ObjectivePerturbation().certify(PAIRS, BUDGET)
    squared = PairwiseBounds(
        500, 3, PairSquared(), 1.0, min_positive=50, min_negative=50, alpha=5.0
    )
    with pytest.raises(ValueError, match="bounded slope"):
        PairwiseObjectivePerturbation().certify(squared, BUDGET)


def test_numbers_of_too_many_digits_and_deep_nesting_are_certificate_errors():
    text = first_of("output").to_json()
    deep = '{"class": "Scaled", "factor": 1.0, "loss": ' * 900 + '{"class": "Logistic"}' + "}" * 900
    tree = json.loads(text)
    tree["bounds"]["loss"] = "LOSS"
    for bad in (
        text.replace('"n_samples": ', f'"n_samples": {"9" * 5000}'),
        json.dumps(tree).replace('"LOSS"', deep),
    ):
        with pytest.raises(CertificateError):
            Certificate.from_json(bad)
