"""The choice of a mechanism and of its public parameters, for each task; ``mechanism="auto"`` is
resolved here.

``"auto"`` takes noisy descent, or for pure epsilon the perturbed minimiser with the smallest
predicted risk. Noisy descent needs no penalty, keeps to a private constant where columns cannot pay
for their noise, and is consistent; perturbed objectives were ahead of it only between some 50 and
100 records after noise.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from dpconvex import losses
from dpconvex.core.bounds import Bounds
from dpconvex.core.calibration import gaussian_mu
from dpconvex.core.checks import parameter_error
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import GaussianDP, Guarantee, PureDP, guarantee_per_problem
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.rows import RowMap
from dpconvex.fit.fit_plan import gaussian_budget
from dpconvex.mechanisms import (
    Moments,
    NoisyGradientDescent,
    NoisySGD,
    ObjectivePerturbation,
    OutputPerturbation,
    PairwiseObjectivePerturbation,
    PhasedERM,
    PhasedSGD,
    resolve_mechanism,
)
from dpconvex.mechanisms.auc import ADDED, calibrate_auc_objective
from dpconvex.mechanisms.gradient_descent import StructuredGradientDescent
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.planning import excess_risk
from dpconvex.planning import structured_prescriptions as structured
from dpconvex.privacy.bounds.ranking import PairwiseBounds
from dpconvex.privacy.bounds.structured_bounds import StructuredBounds
from dpconvex.releases.perturbed_minimiser import LONGEST, WIDEST
from dpconvex.smoothing import Kernel, convolve, convolve_vector

AnyBounds = TypeVar("AnyBounds", bound=Bounds)
SmoothPairLoss = (
    losses.PairLogistic | losses.PairHinge | losses.PairSquared | losses.PairSquaredHinge
)

_SGD_STEPS = 2000  # each reads a fiftieth of the records: forty passes
_SGD_BATCHES = 50

_HINGE_BANDWIDTH = 0.5  # of the rounded kink, in units of the score difference
_SCORE_NOISE = (
    0.05  # scores of rows at the bound may be off by this much, in units of the loss's argument
)
_COUNTABLE = 600  # rows times epsilon from which on a count of half the rows is telling
# Records per coefficient that noise leaves, n mu / (d + 1), from which on a descent outdoes the
# moments.
_DESCENT_RECORDS = 4.0


@dataclass(frozen=True)
class MechanismRequest(Generic[AnyBounds]):
    """The public settings of a fit, in mapped units; ``alpha`` and ``bandwidth`` are the user's,
    or None.
    """

    guarantee: Guarantee  # of all problems together
    bounds: AnyBounds  # with the plain loss and no penalty
    kernel: Kernel | None = None
    alpha: float | None = None
    bandwidth: float | None = None
    smooth_loss: losses.PointwiseLoss | losses.Tweedie | None = (
        None  # a classifier's, for smooth objectives
    )
    problems: int = 1  # one per class of more than two
    joint_loss: losses.SeveralMarginLoss | None = None  # of more than two classes in one fit
    levels: tuple[float, ...] = ()  # of several quantiles that one run finds
    targets: int = 1  # or one for each of the levels
    row_map: RowMap | None = None  # mechanisms may depart from it where feature bounds are missing
    raw_target: bool = False  # whether no bounds of the target are public


@dataclass(frozen=True)
class MechanismChoice:
    """A mechanism, the facts it certifies, and the risk predicted for it; infinite where none is
    needed.
    """

    mechanism: Mechanism
    bounds: Bounds
    predicted_risk: float = math.inf
    parameters: Facts = field(default_factory=dict)
    bandwidth: float | None = None


Minimiser = ObjectivePerturbation | OutputPerturbation
Descent = StructuredGradientDescent | NoisySGD
LinearRequest = MechanismRequest[LinearBounds]
StructuredRequest = MechanismRequest[StructuredBounds]
Chooser = Callable[[Any, MechanismRequest[Any]], MechanismChoice]


def _choose_mechanism(
    mechanism: object,
    request: MechanismRequest[AnyBounds],
    choosers: Mapping[str, Chooser],
    owner: str,
) -> MechanismChoice:
    """Choose the mechanism that was named, or for ``"auto"`` the best; raises what the first
    candidate raised.
    """
    if not (isinstance(mechanism, str) and mechanism == "auto"):
        found = resolve_mechanism(mechanism, owner)
        if found.name not in choosers:
            allowed = f"one of {['auto', *choosers]} or an object of theirs"
            raise parameter_error("mechanism", owner, allowed, repr(mechanism))
        return choosers[found.name](found, request)
    if not isinstance(request.guarantee, PureDP):
        return choosers["gradient"](NoisyGradientDescent(), request)
    choices: list[MechanismChoice] = []
    refusals: list[ValueError] = []
    for candidate in (ObjectivePerturbation(), OutputPerturbation()):
        try:
            choices.append(choosers[candidate.name](candidate, request))
        except ValueError as error:
            refusals.append(error)
    if not choices:
        raise refusals[0]
    return min(choices, key=lambda choice: choice.predicted_risk)


def choose_quantile_mechanism(
    mechanism: object, request: LinearRequest, owner: str
) -> MechanismChoice:
    """Return the choice for quantiles; ``request.bounds`` has the plain pinball loss,
    ``request.kernel`` is given.
    """
    if request.levels:
        if isinstance(request.guarantee, PureDP):
            raise ValueError(
                f"Several quantiles in one fit of {owner} need an (epsilon, delta) or mu budget. "
                "Got pure epsilon instead. Give a delta above 0, or fit one quantile at a time."
            )
        named = "gradient" if isinstance(mechanism, str) and mechanism == "auto" else mechanism
        if resolve_mechanism(named, owner).name != "gradient":
            allowed = "'auto' or 'gradient' for several quantiles in one fit"
            remedy = "Fit one quantile at a time, each with its part of the budget."
            raise parameter_error("mechanism", owner, allowed, repr(mechanism), remedy)
    return _choose_mechanism(mechanism, request, _QUANTILE_CHOOSERS, owner)


def choose_classifier_mechanism(
    mechanism: object, request: LinearRequest, owner: str
) -> MechanismChoice:
    """Return the choice for linear classifiers; descents go along the loss of
    ``request.bounds``.
    """
    return _choose_mechanism(mechanism, request, _CLASSIFIER_CHOOSERS, owner)


def _pinball_and_kernel(request: LinearRequest) -> tuple[losses.Pinball, Kernel]:
    loss = request.bounds.loss
    kernel = request.kernel
    assert isinstance(loss, losses.Pinball)
    assert kernel is not None
    return loss, kernel


def _choose_quantile_objective(
    mechanism: ObjectivePerturbation, request: LinearRequest
) -> MechanismChoice:
    loss, kernel = _pinball_and_kernel(request)
    alpha = request.alpha
    bandwidth = request.bandwidth
    level = loss.quantile
    predicted = math.inf
    if alpha is None or bandwidth is None:
        facts = request.bounds, request.guarantee
        chosen = excess_risk.objective_prescription(level, kernel, *facts, alpha, bandwidth)
        alpha = chosen.alpha
        bandwidth = chosen.bandwidth
        level = chosen.level or level
        predicted = chosen.excess_risk
    bounds = replace(
        request.bounds, loss=convolve(losses.Pinball(level), kernel, bandwidth), alpha=alpha
    )
    return MechanismChoice(mechanism, bounds, predicted, bandwidth=bandwidth)


def _choose_quantile_output(
    mechanism: OutputPerturbation, request: LinearRequest
) -> MechanismChoice:
    plain, kernel = _pinball_and_kernel(request)
    chosen = excess_risk.output_prescription(
        plain.quantile, request.bounds, request.guarantee, request.alpha
    )
    loss = plain if request.bandwidth is None else convolve(plain, kernel, request.bandwidth)
    bounds = replace(request.bounds, loss=loss, alpha=chosen.alpha)
    return MechanismChoice(mechanism, bounds, chosen.excess_risk, bandwidth=request.bandwidth)


def _choose_descent_mechanism(
    mechanism: NoisyGradientDescent, request: LinearRequest
) -> MechanismChoice:
    settings = mechanism.settings(
        request.bandwidth, request.kernel, request.levels, request.targets
    )
    if request.raw_target and not mechanism.plain:
        settings["raw_target"] = True
    bounds = replace(request.bounds, alpha=request.alpha or 0.0)
    if request.row_map is not None and request.row_map.low is None:
        bounds = replace(bounds, max_norm=request.row_map.weighted(mechanism.clip_limit).max_norm)
    return MechanismChoice(
        mechanism, bounds, parameters={"gradient": settings}, bandwidth=request.bandwidth
    )


def _choose_quantile_sgd(mechanism: NoisySGD, request: LinearRequest) -> MechanismChoice:
    """Choose the smoothing of SGD as in Theorem 3.4 of the quantile paper: as little as its
    mechanism's steps allow.
    """
    loss, kernel = _pinball_and_kernel(request)
    bounds = replace(request.bounds, alpha=request.alpha or 0.0)
    if bounds.neighbors == "add_or_remove_one" and mechanism == NoisySGD():
        # The rate of batches of a fixed size would tell the private number of rows.
        mechanism = NoisySGD(sampling="poisson")
    settings = mechanism.settings(bounds, request.guarantee)
    bandwidth = request.bandwidth or contractive_bandwidth(
        kernel, bounds.curvature_factor, settings["step_size"]
    )
    bounds = replace(bounds, loss=convolve(loss, kernel, bandwidth))
    return MechanismChoice(
        mechanism, bounds, parameters={mechanism.name: settings}, bandwidth=bandwidth
    )


def _choose_quantile_phased(
    mechanism: PhasedERM | PhasedSGD, request: LinearRequest
) -> MechanismChoice:
    """Choose as little smoothing as keeps a phased mechanism contractive; certified solutions
    need none.
    """
    loss, kernel = _pinball_and_kernel(request)
    bounds = replace(request.bounds, alpha=request.alpha or 0.0)
    bandwidth = request.bandwidth
    if bandwidth is None and isinstance(mechanism, PhasedSGD):
        step = mechanism.wanted_step(bounds, request.guarantee) / mechanism.decay
        # A hair wider, so that rounding cannot make the step too long.
        factor = (1 + 1e-9) * bounds.curvature_factor
        bandwidth = contractive_bandwidth(kernel, factor, step, bounds.alpha)
    if bandwidth is not None:
        bounds = replace(bounds, loss=convolve(loss, kernel, bandwidth))
    settings = mechanism.settings(bounds, request.guarantee)
    return MechanismChoice(
        mechanism, bounds, parameters={mechanism.name: settings}, bandwidth=bandwidth
    )


def _smooth_bounds(request: LinearRequest) -> LinearBounds:
    loss = request.bounds.loss if request.smooth_loss is None else request.smooth_loss
    return replace(request.bounds, loss=loss)


def _choose_classifier_minimiser(mechanism: Minimiser, request: LinearRequest) -> MechanismChoice:
    parameters = {"problems": request.problems}
    bounds = _smooth_bounds(request)
    chosen = excess_risk.classifier_prescription(
        mechanism.name, bounds, request.guarantee, parameters, request.alpha
    )
    return MechanismChoice(
        mechanism, replace(bounds, alpha=chosen.alpha), chosen.excess_risk, parameters
    )


def _choose_classifier_descent(
    mechanism: NoisyGradientDescent, request: LinearRequest
) -> MechanismChoice:
    problems = request.problems
    if request.joint_loss is not None and not mechanism.plain:
        request = replace(request, bounds=replace(request.bounds, loss=request.joint_loss))
        problems = 1
    chosen = _choose_descent_mechanism(mechanism, request)
    return replace(chosen, parameters={"problems": problems, **chosen.parameters})


def _choose_classifier_sgd(
    mechanism: NoisySGD | PhasedERM | PhasedSGD, request: LinearRequest
) -> MechanismChoice:
    bounds = replace(_smooth_bounds(request), alpha=request.alpha or 0.0)
    settings = mechanism.settings(
        bounds, guarantee_per_problem(request.guarantee, request.problems)
    )
    return MechanismChoice(
        mechanism, bounds, parameters={"problems": request.problems, mechanism.name: settings}
    )


_QUANTILE_CHOOSERS: dict[str, Chooser] = {
    "objective": _choose_quantile_objective,
    "output": _choose_quantile_output,
    "gradient": _choose_descent_mechanism,
    "sgd": _choose_quantile_sgd,
    **dict.fromkeys(("phased-erm", "phased-sgd"), _choose_quantile_phased),
}
_CLASSIFIER_CHOOSERS: dict[str, Chooser] = {
    **dict.fromkeys(("objective", "output"), _choose_classifier_minimiser),
    "gradient": _choose_classifier_descent,
    **dict.fromkeys(("sgd", "phased-erm", "phased-sgd"), _choose_classifier_sgd),
}


def contractive_bandwidth(
    kernel: Kernel, curvature_factor: float, step_size: float, alpha: float = 0.0
) -> float:
    """Choose the smallest bandwidth at which a mechanism's gradient step takes no two points
    further apart.

    ``peak curvature_factor / (2 / step_size - alpha)``: a smoothed pinball loss, whose slope jumps
    by 1, then has curvature ``2 / step_size - alpha`` in theta.
    """
    room = 2 / step_size - alpha
    if not room > 0:
        raise ValueError(
            "contractive_bandwidth needs step_size * alpha below 2. "
            f"Got step_size={step_size!r} and alpha={alpha!r} instead. Use a smaller step."
        )
    return kernel.peak * curvature_factor / room


def choose_structured_mechanism(
    mechanism: object, request: StructuredRequest, owner: str
) -> MechanismChoice:
    """Choose a mechanism for losses of matrices; ``"auto"`` takes the smallest predicted risk
    that is offered.
    """
    named = {
        "objective": ObjectivePerturbation(),
        "gradient": StructuredGradientDescent(),
        "output": OutputPerturbation(),
        "sgd": NoisySGD(
            batch_size=max(1, request.bounds.n_samples // _SGD_BATCHES),
            steps=_SGD_STEPS,
            # The rate of batches of a fixed size would tell the private number of records.
            sampling="fixed" if request.bounds.neighbors == "replace_one" else "poisson",
        ),
    }
    if isinstance(mechanism, str):
        mechanism = named.get(mechanism, mechanism)
    if isinstance(mechanism, (ObjectivePerturbation, OutputPerturbation)):
        return _choose_structured_minimiser(mechanism, request)
    if isinstance(mechanism, (StructuredGradientDescent, NoisySGD)):
        return _choose_structured_descent(mechanism, request)
    if not (isinstance(mechanism, str) and mechanism == "auto"):
        kinds = "ObjectivePerturbation, OutputPerturbation, NoisySGD or StructuredGradientDescent"
        raise parameter_error(
            "mechanism", owner, f"one of {['auto', *named]}, {kinds}", repr(mechanism)
        )
    choices: list[MechanismChoice] = []
    pure = isinstance(request.guarantee, PureDP)
    if not pure:
        choices.append(_choose_structured_descent(StructuredGradientDescent(), request))
    # Losses that cannot be smoothed are left to descent; pure epsilon beyond rank 1 to output
    # perturbation.
    if not isinstance(request.guarantee, GaussianDP) and not (pure and request.bounds.rank > 1):
        try:
            choices.append(_choose_structured_minimiser(ObjectivePerturbation(), request))
        except ValueError:
            if not choices:
                raise
    if not choices:
        choices.append(_choose_structured_minimiser(OutputPerturbation(), request))
    return min(choices, key=lambda choice: choice.predicted_risk)


def _choose_structured_minimiser(
    mechanism: Minimiser, request: StructuredRequest
) -> MechanismChoice:
    alpha = request.alpha
    bandwidth = request.bandwidth
    kernel = request.kernel
    predicted = math.inf
    assert kernel is not None
    output = isinstance(mechanism, OutputPerturbation)
    if alpha is None or bandwidth is None or output or request.bounds.loss.link is not None:
        prescribe = structured.structured_objective_prescription
        if output:
            prescribe = structured.structured_output_prescription
        chosen = prescribe(kernel, request.bounds, request.guarantee, alpha, bandwidth)
        alpha = chosen.alpha
        bandwidth = chosen.bandwidth
        predicted = chosen.excess_risk
    loss = convolve_vector(request.bounds.loss, kernel, bandwidth)
    bounds = replace(request.bounds, loss=loss, alpha=alpha)
    return MechanismChoice(mechanism, bounds, predicted, {"bandwidth": bandwidth})


def _choose_structured_descent(mechanism: Descent, request: StructuredRequest) -> MechanismChoice:
    predicted = math.inf
    if isinstance(mechanism, StructuredGradientDescent):
        rate, predicted = structured.structured_step_size(
            request.bounds, request.guarantee, mechanism.steps
        )
        if mechanism.step_size is None:
            mechanism = replace(mechanism, step_size=rate)
    bounds = replace(request.bounds, alpha=request.alpha or 0.0)
    if request.bandwidth is None:
        return MechanismChoice(mechanism, bounds, predicted)
    assert request.kernel is not None
    bounds = replace(bounds, loss=convolve_vector(bounds.loss, request.kernel, request.bandwidth))
    return MechanismChoice(mechanism, bounds, predicted, {"bandwidth": request.bandwidth})


def choose_pair_loss(loss: object, bandwidth: float | None, owner: str) -> SmoothPairLoss:
    """Choose the smooth pairwise loss that a name or object stands for."""
    named: dict[str, SmoothPairLoss] = {
        "logistic": losses.PairLogistic("2"),
        "natural-logistic": losses.PairLogistic("e"),
        "hinge": losses.PairHinge(bandwidth or _HINGE_BANDWIDTH),
        "squared": losses.PairSquared(),
        "squared-hinge": losses.PairSquaredHinge(),
    }
    if isinstance(loss, str) and loss in named:
        return named[loss]
    if isinstance(loss, SmoothPairLoss) and math.isfinite(loss.smoothness):
        return loss
    allowed = f"one of {list(named)} or a smooth pairwise loss of dpconvex.losses"
    raise parameter_error("loss", owner, allowed, repr(loss))


def _pairwise_perturbation_noise_norm(bounds: PairwiseBounds, guarantee: Guarantee) -> float:
    """Return the typical norm of noise that hides the change of F's gradient."""
    gamma = bounds.gradient_sensitivity
    size = bounds.dimension
    if isinstance(guarantee, GaussianDP):
        return gamma * math.sqrt(size) / guarantee.mu
    delta = guarantee.delta(math.inf)
    if delta > 0:
        return gamma * math.sqrt(size) / gaussian_mu(guarantee.epsilon_bound, delta)
    return gamma * size / guarantee.epsilon_bound


def _choose_pair_penalty(bounds: PairwiseBounds, guarantee: Guarantee) -> float:
    """Choose the penalty of the mechanisms that perturb an objective of pairs, or its minimiser."""
    # alpha = 20 U ||noise||: noise moves the score of no row by more than 1/20. The direction is
    # what counts for the AUC, and a large penalty only makes it more like the difference of the
    # class means. Objective perturbation also needs a small change of the Hessian's trace, kappa <=
    # epsilon / 10 or epsilon / (8 log(1 / delta)).
    alpha = 1.0
    for _ in range(
        60
    ):  # losses of unbounded slope: the slope on the minimisers' ball depends on alpha
        facts = replace(bounds, alpha=alpha)
        alpha = facts.row_norm * _pairwise_perturbation_noise_norm(facts, guarantee) / _SCORE_NOISE
    kappa = 0.5
    if not isinstance(guarantee, GaussianDP):
        delta = guarantee.delta(math.inf)
        kappa = min(0.5, guarantee.epsilon_bound / (8 * math.log(1 / delta) if delta > 0 else 10))
    return max(alpha, replace(bounds, alpha=1.0).curvature_ratio / kappa)


def _choose_added_penalty(bounds: PairwiseBounds, guarantee: Guarantee) -> float:
    """Choose the penalty without which no objective mechanism for pairs is private; 0 where
    noise suffices.
    """
    # It makes the curvature ratio epsilon / (8 log(1 / delta)), or for pure epsilon the ratio at
    # which the Jacobian takes half of epsilon, d (exp(epsilon / (2 d)) - 1): the Delta of Algorithm
    # 2 of the AUC paper, from public facts and with counts that are bounds. The certificate states
    # it.
    try:
        calibrate_auc_objective(bounds, guarantee, {})
        return 0.0
    except ValueError:
        if isinstance(guarantee, GaussianDP):
            raise
    delta = guarantee.delta(math.inf)
    size = bounds.dimension
    if delta > 0:
        ratio = min(0.5, guarantee.epsilon_bound / (8 * math.log(1 / delta)))
    else:
        ratio = size * math.expm1(min(guarantee.epsilon_bound, 50.0 * size) / (2 * size))
    needed = excess_risk.rounded_up(replace(bounds, alpha=1.0).curvature_ratio / ratio)
    return max(0.0, needed - bounds.alpha)


def choose_auc_mechanism(
    mechanism: object,
    bounds: PairwiseBounds,
    single: LinearBounds,
    guarantee: Guarantee,
    alpha: float | None,
    find_length: bool,
    owner: str,
) -> MechanismChoice:
    """Choose the mechanism for the AUC.

    ``bounds`` are the facts of pairs and ``single`` those of single records, along whose logistic
    loss noisy gradient descent goes: a ranking by the odds of a label has the largest AUC. With
    ``find_length`` and no alpha given, objective perturbation first finds a typical length of rows,
    if the budget suffices to count half of the rows; bounds and alpha are then in units of that
    length.
    """
    pure = not isinstance(guarantee, GaussianDP) and guarantee.delta(math.inf) == 0
    steep = not math.isfinite(float(bounds.loss.lipschitz))
    if isinstance(mechanism, str) and mechanism == "auto":
        if pure:
            mechanism = "output" if steep else "objective"
        else:
            records = single.n_samples * gaussian_budget(guarantee, owner) / single.dimension
            few = steep or records < _DESCENT_RECORDS
            mechanism = "moments" if few and bounds.neighbors == "replace_one" else "gradient"
    named: dict[str, Mechanism] = {
        "moments": Moments(),
        "objective": PairwiseObjectivePerturbation(),
        "output": OutputPerturbation(),
        "gradient": NoisyGradientDescent(),
    }
    found: Mechanism | None = None
    if isinstance(mechanism, str):
        found = named.get(mechanism)
    elif isinstance(mechanism, ObjectivePerturbation):
        found = PairwiseObjectivePerturbation(mechanism.solver)
    elif isinstance(mechanism, (Moments, NoisyGradientDescent, OutputPerturbation)):
        found = mechanism
    if found is None:
        allowed = f"one of {['auto', *named]} or a mechanism object of these kinds"
        raise parameter_error("mechanism", owner, allowed, repr(mechanism))
    if isinstance(found, NoisyGradientDescent):
        settings = {**found.settings(), "ranking": True}
        return MechanismChoice(
            found, replace(single, alpha=alpha or 0.0), parameters={"gradient": settings}
        )
    if isinstance(found, Moments) and bounds.neighbors != "replace_one":
        raise ValueError(
            f"The 'mechanism' parameter of {owner} must not be 'moments' under add_or_remove_one: "
            "their sensitivities are known for a replaced record. Use 'gradient', 'objective' or "
            "'output'."
        )
    own: Facts = {}
    perturbed = isinstance(found, PairwiseObjectivePerturbation)
    if perturbed and find_length and alpha is None:
        epsilon = 0.0 if isinstance(guarantee, GaussianDP) else guarantee.epsilon_bound
        if bounds.n_samples * epsilon >= _COUNTABLE:
            own = {LONGEST: bounds.row_norm, WIDEST: bounds.distance}
            bounds = replace(bounds, row_norm=1.0, diameter=2.0)
    if alpha is None:
        alpha = (
            _choose_pair_penalty(bounds, guarantee)
            if perturbed or isinstance(found, OutputPerturbation)
            else 0.0
        )
    elif perturbed:
        added = _choose_added_penalty(replace(bounds, alpha=alpha), guarantee)
        if added > 0:
            own = {**own, ADDED: added}
            alpha = alpha + added
    return MechanismChoice(found, replace(bounds, alpha=alpha), parameters=own)
