"""What ``mechanism="auto"`` takes, for each task; mechanisms that do not carry a fit are refused.

``"auto"`` takes noisy descent, or for pure epsilon the perturbed minimiser with the smallest
predicted risk. Noisy descent needs no penalty, keeps to a private constant where columns cannot pay
for their noise, and is consistent; perturbed objectives were ahead of it only between some 50 and
100 records after noise. How a mechanism fills in what a user left open stands in its own file.
"""

import math
from collections.abc import Callable, Sequence

from dpconvex import losses
from dpconvex.core.checks import parameter_error
from dpconvex.core.guarantees import GaussianDP, PureDP
from dpconvex.fit.fit_plan import gaussian_budget
from dpconvex.mechanisms import (
    Moments,
    ObjectivePerturbation,
    OutputPerturbation,
    PairwiseObjectivePerturbation,
    PrivateFitMechanism,
    StructuredGradientDescent,
)
from dpconvex.mechanisms.mechanism import (
    PrivateMechanism,
    known_mechanism_kinds,
    mechanism_with_word,
    resolve_mechanism,
)
from dpconvex.mechanisms.request_and_decision import TASKS, FitDecision, FitRequest

SmoothPairLoss = (
    losses.PairLogistic | losses.PairHinge | losses.PairSquared | losses.PairSquaredHinge
)
_HINGE_BANDWIDTH = 0.5  # of the rounded kink, in units of the score difference
# Records per coefficient that noise leaves, n mu / (d + 1), from which on a descent outdoes the
# moments.
_DESCENT_RECORDS = 4.0


def decide_fit(mechanism: object, request: FitRequest) -> FitDecision:
    """Return what is decided for a request: by the mechanism that was named, or for ``"auto"`` by
    the candidate of the smallest predicted risk.

    Candidates that a budget rules out are passed over; if all of them are, the first one's refusal
    is raised.
    """
    candidates = candidates_for(mechanism, request)
    if len(candidates) == 1:
        return _prepare(candidates[0], request)
    decisions: list[FitDecision] = []
    refusals: list[ValueError] = []
    for candidate in candidates:
        try:
            decisions.append(_prepare(candidate, request))
        except ValueError as error:
            refusals.append(error)
    if not decisions:
        raise refusals[0]
    return min(decisions, key=lambda decision: decision.predicted_risk)


def candidates_for(mechanism: object, request: FitRequest) -> Sequence[PrivateMechanism]:
    """Return the mechanism that was named, or those that ``"auto"`` chooses among."""
    if is_auto(mechanism):
        return _CANDIDATES[request.task](request)
    found = named_mechanism(mechanism, request)
    _check_carried(found, request)
    return (found,)


def _prepare(mechanism: PrivateMechanism, request: FitRequest) -> FitDecision:
    """Return a mechanism's decision; raise where curves are asked that it does not penalise."""
    if request.curves is not None and (request.inference or not mechanism.offers_curves):
        raise ValueError(
            f"The 'smooth' parameter of {request.owner} must be None with inference=True, and with "
            "other mechanisms than 'gradient'. Got curves instead. Leave them out, or take the "
            "default."
        )
    return mechanism.prepare(request)


def check_intervals_are_offered(mechanism: object, request: FitRequest) -> None:
    """Raise unless the mechanism that a fit takes releases what confidence intervals need."""
    if not all(found.offers_intervals for found in candidates_for(mechanism, request)):
        raise ValueError(
            f"The 'inference' parameter of {request.owner} needs the mechanism 'gradient', which "
            "offers Gaussian DP and (epsilon, delta)-DP. Give delta above 0, or leave it at False."
        )


def is_auto(mechanism: object) -> bool:
    """Return whether a setting leaves the choice of a mechanism open."""
    return isinstance(mechanism, str) and mechanism == "auto"


def named_mechanism(mechanism: object, request: FitRequest) -> PrivateMechanism:
    """Return the mechanism that a word or an object stands for in a request; raise unless it is
    for the task.
    """
    if isinstance(mechanism, str):
        kind = mechanism_with_word(mechanism, request.task)
        if kind is None:
            raise _unfit(mechanism, request)
        return kind.named_for(request)
    found = resolve_mechanism(mechanism, request.owner).adapted_to(request)
    if not found.is_for(request.task):
        raise _unfit(mechanism, request)
    return found


def _unfit(mechanism: object, request: FitRequest) -> Exception:
    """Return the refusal of a mechanism that is not for a task."""
    kinds = known_mechanism_kinds()
    words = sorted({kind.word for kind in kinds if kind.word and kind.is_for(request.task)})
    allowed = f"one of {['auto', *words]} or a mechanism object for {TASKS[request.task]}"
    return parameter_error("mechanism", request.owner, allowed, repr(mechanism))


def _check_carried(mechanism: PrivateMechanism, request: FitRequest) -> None:
    """Raise unless a mechanism's facts allow what is asked; the error names the missing fact."""
    carries = mechanism.carries
    if not isinstance(request.bounds, carries.bounds):
        kind = type(request.bounds).__name__
        raise _lacking(mechanism, request, f"bounds=({kind},)", TASKS[request.task])
    several_margins = isinstance(request.bounds.loss, losses.SeveralMarginLoss)
    several_problems = request.problems > 1 and request.joint_loss is None
    people = request.people or request.rows_per_person > 1
    asked = {
        "people": (people, "groups and rows_per_person"),
        "weights": (request.weighted_rows, "weights of rows"),
        "ignored_rows": (request.ignored_rows, "invalid_rows='ignore'"),
        "levels": (bool(request.levels), "several quantiles in one fit"),
        "problems": (several_problems, "several classes, one against the rest"),
        "several_margins": (several_margins, "losses of several margins"),
    }
    for fact, (needed, words) in asked.items():
        if needed and not getattr(carries, fact):
            raise _lacking(mechanism, request, f"{fact}=True", words)


def _lacking(mechanism: PrivateMechanism, request: FitRequest, fact: str, words: str) -> Exception:
    """Return the refusal of a mechanism that does not carry a fact."""
    name = fact.partition("=")[0]
    others = [
        kind.word
        for kind in known_mechanism_kinds()
        if kind.word and kind.is_for(request.task) and getattr(kind.carries, name) is True
    ]
    allowed = " or ".join(map(repr, ["auto", *others]))
    remedy = (
        f"Or state {fact} in the 'carries' of {type(mechanism).__name__}, once its proof and a "
        "test cover it."
    )
    return parameter_error(
        "mechanism", request.owner, f"{allowed} for {words}", repr(mechanism), remedy
    )


def _candidates_for_rows(request: FitRequest) -> Sequence[PrivateMechanism]:
    if isinstance(request.guarantee, PureDP):
        return ObjectivePerturbation(), OutputPerturbation()
    return (PrivateFitMechanism(),)


def _candidates_for_means(request: FitRequest) -> Sequence[PrivateMechanism]:
    pure = isinstance(request.guarantee, PureDP)
    return (OutputPerturbation() if pure else PrivateFitMechanism(),)


def _candidates_for_matrices(request: FitRequest) -> Sequence[PrivateMechanism]:
    pure = isinstance(request.guarantee, PureDP)
    found: list[PrivateMechanism] = []
    if not pure:
        found.append(StructuredGradientDescent())
    # Losses that cannot be smoothed are left to descent; pure epsilon beyond rank 1 to output
    # perturbation.
    if not isinstance(request.guarantee, GaussianDP) and not (pure and request.bounds.rank > 1):
        found.append(ObjectivePerturbation())
    return found or (OutputPerturbation(),)


def ranking_mechanism(pairs: FitRequest, records: FitRequest) -> PrivateMechanism:
    """Return what ``"auto"`` takes for the AUC: a mechanism for pairs, or a descent along the
    logistic loss of single records.
    """
    guarantee = pairs.guarantee
    steep = not math.isfinite(float(pairs.bounds.loss.lipschitz))
    if not isinstance(guarantee, GaussianDP) and guarantee.delta(math.inf) == 0:
        return OutputPerturbation() if steep else PairwiseObjectivePerturbation()
    bounds = records.bounds
    left = bounds.n_samples * gaussian_budget(guarantee, pairs.owner) / bounds.dimension
    few = steep or left < _DESCENT_RECORDS
    return Moments() if few and pairs.neighbors == "replace_one" else PrivateFitMechanism()


#: The mechanisms that ``"auto"`` chooses among, by task; of rankings see `ranking_mechanism`.
_CANDIDATES: dict[str, Callable[[FitRequest], Sequence[PrivateMechanism]]] = {
    "quantiles": _candidates_for_rows,
    "classes": _candidates_for_rows,
    "rates": _candidates_for_rows,
    "means": _candidates_for_means,
    "matrices": _candidates_for_matrices,
    "shared coefficients": lambda request: (PrivateFitMechanism(),),
    "risk measures": lambda request: (OutputPerturbation(),),
}


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
