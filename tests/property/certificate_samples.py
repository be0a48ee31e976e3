"""Random honest certificates of every mechanism, kind of bounds, guarantee and relation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from dpconvex.core.description import DeclaredLoss
from dpconvex.losses import (
    Absolute,
    Bowl,
    CrammerSinger,
    DiscreteHazard,
    Hinge,
    Huber,
    KinkedLoss,
    L1Norm,
    L1WithLink,
    Logistic,
    PairHinge,
    PairLogistic,
    PairSquared,
    PairSquaredHinge,
    PiecewiseLinear,
    Pinball,
    ProportionalOdds,
    ReLU,
    Scaled,
    Softmax,
    SoftThreshold,
    Squared,
    Tweedie,
)
from dpconvex.mechanisms import (
    Moments,
    NoisyGradientDescent,
    NoisySGD,
    ObjectivePerturbation,
    OutputPerturbation,
    PairwiseObjectivePerturbation,
    PhasedERM,
    PhasedSGD,
    StructuredGradientDescent,
)
from dpconvex.privacy import ApproxDP, Certificate, GaussianDP, LinearBounds, PureDP
from dpconvex.privacy.bounds.ranking import PairwiseBounds, TopRankBounds
from dpconvex.privacy.bounds.structured_bounds import StructuredBounds
from dpconvex.privacy.bounds.tilted_and_robust_bounds import (
    RobustBounds,
    TiltedBounds,
    WorstShareBounds,
)
from dpconvex.releases.perturbed_minimiser import LONGEST, WIDEST
from dpconvex.smoothing import (
    EpanechnikovKernel,
    ExponentialKernel,
    GaussianKernel,
    LaplacianKernel,
    LogisticKernel,
    UniformKernel,
    convolve,
    convolve_vector,
    moreau,
    moreau_vector,
)

Draw = Callable[[Any], Any]
RELATIONS = st.sampled_from(["replace_one", "add_or_remove_one"])
KERNELS = [GaussianKernel(), LogisticKernel(), UniformKernel(), EpanechnikovKernel()]
KINKED = [
    *(Pinball(0.5), Pinball(0.9), Absolute(), ReLU(), Hinge(), SoftThreshold(0.2)),
    *(Scaled(Pinball(0.7), 3.0), KinkedLoss((-1.0, 0.5), (-2.0, 0.5, 1.0))),
    KinkedLoss((1.0,), (-3.0, -1.0), kind="margin"),
]
SMOOTH = [
    *(Logistic(), Huber(0.3), Scaled(Huber(2.0), 0.5), moreau(Absolute(), 4.0)),
    *(convolve(Hinge(), LaplacianKernel(), 0.3), convolve(Scaled(ReLU(), 2.0), KERNELS[0], 1.0)),
    *(DeclaredLoss("Mine", 2.0, 1.5), DeclaredLoss("Other", 0.5, 0.1, "margin")),
    convolve(KINKED[7], LogisticKernel(), 0.5),
]
FALLING = [Logistic(), convolve(Hinge(), LogisticKernel(), 0.5)]
BOUNDED_BELOW = [
    *FALLING,
    Huber(0.5),
    Scaled(Huber(1.0), 2.0),
    convolve(Pinball(0.8), KERNELS[0], 0.4),
]
PAIRS = [PairLogistic(), PairLogistic("e"), PairHinge(0.5), PairHinge(2.0)]
SQUARES = [PairSquared(), PairSquaredHinge()]
STRUCTURED = [
    *(L1Norm(1), L1Norm(3), L1WithLink(2, Logistic()), Bowl(2)),
    PiecewiseLinear([[1.0, 0.0], [0.0, 2.0], [-1.0, -1.0]]),
]
SMOOTH_STRUCTURED = [
    convolve_vector(L1Norm(2), GaussianKernel(2), 0.5),
    convolve_vector(L1Norm(3), ExponentialKernel(3), 1.0),
    convolve_vector(L1WithLink(2, Huber(0.5)), UniformKernel(), 0.7),
    *(moreau_vector(L1Norm(2), width=2.0), moreau_vector(L1Norm(3), "huber", 2.0, 1.0)),
    *(convolve_vector(STRUCTURED[-1], GaussianKernel(), 0.5), moreau_vector(STRUCTURED[-1])),
    *(moreau_vector(Bowl(5), width=0.5), moreau_vector(Bowl(4), "huber", 2.5, 0.5)),
    moreau_vector(L1WithLink(2, Logistic()), width=0.5),
    convolve_vector(STRUCTURED[-1], ExponentialKernel(2), 0.7),
    *(
        convolve_vector(Bowl(3), ExponentialKernel(3), 0.5),
        convolve_vector(Bowl(2), KERNELS[0], 0.5),
    ),
]


def guarantee(draw: Draw, *kinds: str) -> Any:
    kind = draw(st.sampled_from(kinds))
    epsilon = draw(st.sampled_from([0.3, 1.0, 2.5, 8.0]))
    if kind == "pure":
        return draw(st.sampled_from([PureDP(epsilon), ApproxDP(epsilon, 0.0)]))
    if kind == "gaussian":
        return GaussianDP(epsilon / 3)
    return ApproxDP(epsilon, draw(st.sampled_from([1e-9, 1e-6, 1e-3])))


def classes(draw: Draw) -> dict[str, int]:
    return draw(
        st.sampled_from([{}, {"n_classes": 2, "problems": 1}, {"n_classes": 4, "problems": 4}])
    )


def numbers(draw: Draw) -> tuple[int, int]:
    return draw(st.sampled_from([20, 300, 5000, 10**6])), draw(st.integers(1, 12))


def lengths(draw: Draw) -> tuple[float, float]:
    return draw(st.sampled_from([0.5, 1.0, 3.0])), draw(st.sampled_from([0.7, 1.0, 4.0]))


def linear(draw: Draw, losses: list[Any], alphas: list[float], **fixed: Any) -> LinearBounds:
    relation = fixed.get("neighbors") or draw(RELATIONS)
    return LinearBounds(
        *numbers(draw),
        draw(st.sampled_from(losses)),
        *lengths(draw),
        draw(st.booleans()),
        draw(st.sampled_from(alphas)),
        relation,
        draw(st.booleans()),
    )


def robust(draw: Draw, relation: str | None = None) -> RobustBounds:
    n, d = numbers(draw)
    norm = draw(st.sampled_from(["l2", "linf", "l1", "box", "hull"]))
    shapes: dict[str, Any] = {
        "box": tuple(0.5 + k for k in range(d)),
        "hull": ((1.0,) * d, (-2.0, *(0.5,) * (d - 1))),
    }
    return RobustBounds(
        n,
        d,
        draw(st.sampled_from(BOUNDED_BELOW)),
        *lengths(draw),
        draw(st.booleans()),
        draw(st.sampled_from([0.5, 4.0])),
        relation or draw(RELATIONS),
        radius=draw(st.sampled_from([0.0, 0.1, 0.5])),
        norm=norm,
        width=draw(st.sampled_from([0.1, 1.0])),
        shape=shapes.get(norm),
    )


def costly(draw: Draw) -> RobustBounds:
    return RobustBounds(
        *numbers(draw),
        Logistic(),
        *lengths(draw),
        alpha=0.5,
        norm="l2",
        radius=0.0,
        cost=draw(st.sampled_from([2.0, 9.0])),
    )


def tilted(draw: Draw) -> TiltedBounds:
    return TiltedBounds(
        *numbers(draw),
        draw(st.sampled_from(BOUNDED_BELOW)),
        *lengths(draw),
        draw(st.booleans()),
        draw(st.sampled_from([0.2, 2.0])),
        tilt=draw(st.sampled_from([0.0, 0.5, 3.0])),
        coef_bound=draw(st.sampled_from([None, 0.3, 2.0])),
    )


def worst(draw: Draw) -> WorstShareBounds:
    n, d = numbers(draw)
    return WorstShareBounds(
        n,
        d,
        draw(st.sampled_from(BOUNDED_BELOW)),
        *lengths(draw),
        draw(st.booleans()),
        draw(st.sampled_from([0.2, 2.0])),
        draw(RELATIONS),
        share=max(1 / n, draw(st.sampled_from([0.0, 0.1, 1.0]))),
        width=draw(st.sampled_from([0.01, 0.5])),
    )


def top_rank(draw: Draw) -> TopRankBounds:
    return TopRankBounds(
        *numbers(draw),
        draw(st.sampled_from([loss for loss in FALLING if loss in BOUNDED_BELOW])),
        draw(st.sampled_from([0.5, 2.0])),
        draw(st.sampled_from([1, 7])),
        draw(st.sampled_from([1, 20])),
        draw(st.sampled_from([0.2, 2.0])),
        width=draw(st.sampled_from([0.01, 0.5])),
    )


def pairs(draw: Draw, losses: list[Any], alpha: float, **fixed: Any) -> PairwiseBounds:
    n, d = numbers(draw)
    given: dict[str, Any] = {
        "row_norm": draw(st.sampled_from([0.5, 2.0])),
        "diameter": draw(st.sampled_from([None, 0.7, 100.0])),
        "label_private": draw(st.booleans()),
        "ignored_rows": draw(st.booleans()),
        **fixed,
    }
    few = max(1, n // 10)
    return PairwiseBounds(
        n,
        d,
        draw(st.sampled_from(losses)),
        min_positive=few,
        min_negative=2 * few,
        alpha=alpha,
        **given,
    )


def structured(draw: Draw, losses: list[Any]) -> StructuredBounds:
    n, d = numbers(draw)
    loss = draw(st.sampled_from(losses))
    link = 0.0 if loss.link is None else draw(st.sampled_from([0.5, 2.0]))
    norm = draw(st.sampled_from([0.5, 2.0]))
    alpha = draw(st.sampled_from([0.5, 3.0]))
    return StructuredBounds(n, d, loss, norm, link, alpha, draw(RELATIONS))


def firm(bounds: Any, factor: float = 50.0) -> Any:
    """Return the same facts with a penalty strong enough for every budget that is drawn."""
    needed = factor * bounds.smoothness * max(1, min(bounds.rank, 12)) / bounds.n_samples
    return replace(bounds, alpha=max(bounds.alpha, needed))


def objective(draw: Draw) -> Certificate:
    kind = draw(st.sampled_from(["linear", "linear", "robust", "structured"]))
    if kind == "linear":
        bounds = linear(draw, SMOOTH, [0.1, 2.0])
        claims = ("pure", "approx")
    elif kind == "robust":
        bounds = robust(draw)
        claims = ("approx",)
    else:
        bounds = structured(draw, SMOOTH_STRUCTURED)
        claims = ("approx",)
    claim = guarantee(draw, *claims)
    parameters = classes(draw)
    return ObjectivePerturbation().certify(firm(bounds), claim, parameters)


def output(draw: Draw) -> Certificate:
    kinds = ["linear", "robust", "costly", "tilted", "worst", "top", "pairs", "structured"]
    kind = draw(st.sampled_from(kinds))
    bounds: Any = {
        "linear": lambda: linear(draw, [*KINKED, *SMOOTH], [0.05, 2.0]),
        "robust": lambda: robust(draw),
        "costly": lambda: costly(draw),
        "tilted": lambda: tilted(draw),
        "worst": lambda: worst(draw),
        "top": lambda: top_rank(draw),
        "pairs": lambda: pairs(draw, [*PAIRS, *SQUARES], draw(st.sampled_from([0.1, 3.0]))),
        "structured": lambda: structured(draw, SMOOTH_STRUCTURED),
    }[kind]()
    given = draw(st.sampled_from([{}, {"radius": 3.0}]))
    if kind == "linear" and math.isinf(bounds.smoothness) and draw(st.booleans()):
        given["gap"] = 0.01
    claim = guarantee(draw, "pure", "approx", "gaussian")
    return OutputPerturbation(**given).certify(bounds, claim, classes(draw))


def gradient(draw: Draw) -> Certificate:
    # One-sided residual losses stand for a quantile level of 0 or 1, which no descent reaches.
    losses = [
        loss
        for loss in (*KINKED, *SMOOTH)
        if loss.kind == "margin" or loss.slope_range[0] < 0 < loss.slope_range[1]
    ]
    bounds = linear(draw, losses, [0.0, 0.1])
    mechanism = NoisyGradientDescent(draw(st.sampled_from([None, 1, 35])))
    bandwidth = draw(st.sampled_from([None, 0.2]))
    several = draw(st.sampled_from([0, 1, 2]))
    settings = mechanism.settings(bandwidth)
    if several and type(bounds.loss) is Pinball:
        levels = draw(st.sampled_from([(0.1, 0.9), (0.5, 0.5)]))
        settings = mechanism.settings(bandwidth, None, levels, several)
    if draw(st.booleans()):
        settings["ranking"] = True
    if draw(st.booleans()):
        settings["raw_target"] = True
    claim = guarantee(draw, "approx", "gaussian")
    parameters = classes(draw)
    return mechanism.certify(bounds, claim, {**parameters, "gradient": settings})


def sgd(draw: Draw) -> Certificate:
    bounds = replace(
        linear(draw, [*KINKED, *SMOOTH], [0.0, 0.1]), n_samples=draw(st.sampled_from([300, 5000]))
    )
    size = draw(st.sampled_from([1, 20]))
    fixed = bounds.neighbors == "replace_one"
    # Privacy loss distributions of few steps under add-or-remove-one take seconds.
    steps = draw(st.sampled_from([1, 50, 3000])) if fixed else 3000
    mechanism = NoisySGD(steps, size, "fixed" if fixed and draw(st.booleans()) else "poisson")
    claim = draw(st.sampled_from([ApproxDP(0.5, 1e-7), ApproxDP(3.0, 1e-4)]))
    return mechanism.certify(bounds, claim, classes(draw) if fixed else {})


def phased(method: Any) -> Callable[[Draw], Certificate]:
    def one(draw: Draw) -> Certificate:
        losses = [*KINKED, *SMOOTH] if method is PhasedERM else SMOOTH
        relation = draw(RELATIONS) if method is PhasedERM else "replace_one"
        bounds = linear(draw, losses, [0.0, 0.3], neighbors=relation)
        mechanism = method(
            phases=draw(st.sampled_from([None, 1, 4])), decay=draw(st.sampled_from([2.0, 4.0]))
        )
        return mechanism.certify(bounds, guarantee(draw, "approx", "gaussian"), classes(draw))

    return one


def moments(draw: Draw) -> Certificate:
    return Moments().certify(pairs(draw, SQUARES, 0.1), guarantee(draw, "approx", "gaussian"))


def auc_objective(draw: Draw) -> Certificate:
    found = draw(st.booleans())
    units = {"row_norm": 1.0, "diameter": 2.0} if found else {}
    bounds = pairs(draw, PAIRS, 1.0, **units)
    # The curvature ratio that epsilon allows, whatever the class counts are.
    strong = 500 * bounds.curvature_ratio
    parameters = {LONGEST: 3.0, WIDEST: 5.0} if found else {}
    claim = guarantee(draw, "pure", "approx")
    return PairwiseObjectivePerturbation().certify(replace(bounds, alpha=strong), claim, parameters)


def structured_gradient(draw: Draw) -> Certificate:
    mechanism = StructuredGradientDescent(draw(st.sampled_from([1, 100])))
    bounds = structured(draw, [*STRUCTURED, *SMOOTH_STRUCTURED])
    return mechanism.certify(bounds, guarantee(draw, "approx", "gaussian"))


def intervals(draw: Draw) -> Certificate:
    bounds = linear(draw, [Logistic(), Pinball(0.2), Pinball(0.9), Squared()], [0.0])
    settings = NoisyGradientDescent().settings()
    if bounds.loss.kind != "margin" and draw(st.booleans()):
        settings["raw_target"] = True
    parameters = classes(draw) if bounds.loss.kind == "margin" else {}
    claim = guarantee(draw, "approx", "gaussian")
    parameters = {**parameters, "gradient": settings, "inference": True}
    return NoisyGradientDescent().certify(bounds, claim, parameters)


def squares(draw: Draw) -> Certificate:
    bounds = linear(draw, [Squared()], [0.0, 0.1])
    settings = NoisyGradientDescent().settings()
    if draw(st.booleans()):
        settings["raw_target"] = True
    records = draw(
        st.sampled_from([{}, {"people": True}, {"rows_per_person": 3}, {"weighted_rows": True}])
    )
    claim = guarantee(draw, "approx", "gaussian")
    return NoisyGradientDescent().certify(replace(bounds, **records), claim, {"gradient": settings})


def outcomes(draw: Draw) -> Certificate:
    """Classes, levels, survival times and rates."""
    losses = [Softmax(3), CrammerSinger(4), ProportionalOdds(3), DiscreteHazard(5)]
    losses += [Tweedie(power, -2.0, 1.5, 20.0) for power in (1.0, 1.5, 2.0)]
    bounds = linear(draw, losses, [0.0])
    records = draw(
        st.sampled_from([{}, {"people": True}, {"rows_per_person": 3}, {"weighted_rows": True}])
    )
    claim = guarantee(draw, "approx", "gaussian")
    parameters = {"gradient": NoisyGradientDescent().settings()}
    return NoisyGradientDescent().certify(replace(bounds, **records), claim, parameters)


def plain(draw: Draw) -> Certificate:
    bounds = linear(draw, [*KINKED, Huber(0.5), Logistic()], [0.0, 0.1])
    step = draw(st.sampled_from([1e-3, 0.3]))
    mechanism = NoisyGradientDescent(
        draw(st.sampled_from([None, 1, 35])), step, draw(st.sampled_from([None, 0.5]))
    )
    claim = guarantee(draw, "approx", "gaussian")
    parameters = classes(draw)
    return mechanism.certify(bounds, claim, parameters)


HONEST: dict[str, Callable[[Draw], Certificate]] = {
    "objective": objective,
    "output": output,
    "gradient": gradient,
    "sgd": sgd,
    "phased-erm": phased(PhasedERM),
    "phased-sgd": phased(PhasedSGD),
    "moments": moments,
    "auc-objective": auc_objective,
    "structured-gradient": structured_gradient,
    "intervals": intervals,
    "squares": squares,
    "outcomes": outcomes,
    "plain-gradient": plain,
}


@st.composite
def certificates(draw: Draw, mechanism: str) -> Certificate:
    """Return an honest certificate of a mechanism, all of its public facts drawn."""
    return HONEST[mechanism](draw)
