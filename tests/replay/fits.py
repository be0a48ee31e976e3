"""Every estimator with every mechanism that it offers, and with which data and relations it is
offered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import dpconvex as dp
from dpconvex.evaluation import private_score, private_score_difference
from dpconvex.intervals import DPConformal
from dpconvex.mechanisms import (
    ExponentialMechanism,
    NoisyGradientDescent,
    NoisySGD,
    PhasedERM,
    PhasedSGD,
    StructuredGradientDescent,
)
from dpconvex.preprocessing import DPQuantileBounds
from dpconvex.selection import DPSelect

REPLACE = "replace_one"
ADD = "add_or_remove_one"
RELATIONS = (REPLACE, ADD)
VARIANTS = ("rows", "people", "weights", "sparse", "dask", "ignored")

GAUSSIAN = ({"mu": 1.0}, {"mu": 40.0}, {"epsilon": 1.0, "delta": 1e-6})
APPROXIMATE = ({"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 6.0, "delta": 1e-3})
PURE = ({"epsilon": 1.0, "delta": 0.0}, {"epsilon": 8.0, "delta": 0.0})
BOTH = (*GAUSSIAN, PURE[0])


@dataclass(frozen=True)
class Fit:
    """An estimator with a mechanism.

    Attributes
    ----------
    make : callable
        Returns the estimator from public settings.
    target : str
        What it predicts: see `neighbours.Family`.
    budgets : tuple of dict
        Guarantees, of which a seed takes one.
    public : dict
        Settings that are fixed.
    choices : dict of tuples
        Settings of which a seed takes one.
    variants, relations : tuple of str
        What it is offered with.
    columns : int
        Columns at most.
    sizes : tuple of int
        Numbers of records; those of `neighbours` by default.
    in_place : bool
        Whether records are drawn by their places: batches, phases.
    rows_each : int
        Rows that a person may have where nobody names people.
    pairs : int
        Pairs of each variant and relation in a run of all tests.
    """

    make: Callable[..., Any]
    target: str
    budgets: tuple[dict[str, float], ...]
    public: dict[str, Any] = field(default_factory=dict)
    choices: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    variants: tuple[str, ...] = VARIANTS
    relations: tuple[str, ...] = RELATIONS
    columns: int = 8
    sizes: tuple[int, ...] = ()
    in_place: bool = False
    rows_each: int = 1
    pairs: int = 6

    def model(self, relation: str, records: int, ignored: bool, seed: int, **settled: Any) -> Any:
        """Return the estimator with the settings that a seed draws, but for those that are
        settled.
        """
        rng = np.random.default_rng([seed, 7])
        public = {**self.public, **self.budgets[int(rng.integers(len(self.budgets)))]}
        for name, values in self.choices.items():
            public[name] = values[int(rng.integers(len(values)))]
        if relation == ADD:
            nominal = self.sizes[0] if self.sizes else int(rng.choice([records, 5, 50]))
            public |= {"neighbors": ADD, "nominal_samples": nominal}
        if ignored:
            public["invalid_rows"] = "ignore"
        return self.make(random_state=seed % 2**31, **{**public, **settled})


def without(*variants: str) -> tuple[str, ...]:
    return tuple(variant for variant in VARIANTS if variant not in variants)


# Rows that are within bounds, partly beyond, mostly beyond, or of another offset.
LINEAR = {
    "feature_bounds": ((-1.0, 1.0), (-1.0, 1.0), (0.5, 2.0), (-0.3, 0.2)),
    "row_norm": (None, None, 0.4),
    "fit_intercept": (True, True, False),
}
RIDGED = {**LINEAR, "alpha": (None, 0.1), "coef_bound": (None, None, 0.5)}
PAIRS = {name: LINEAR[name] for name in ("feature_bounds", "row_norm")}
SGD = (NoisySGD(steps=12), NoisySGD(steps=6, batch_size=3, average=0.0))
POISSON = (NoisySGD(steps=6, batch_size=3, sampling="poisson"),)
FEW = (12, 5)  # numbers of records whose sampling is accounted for once


def fits_of(
    kind: type, target: str, public: dict[str, Any], named: dict[str, Fit]
) -> dict[str, Fit]:
    """Return the fits of an estimator, named after it."""
    return {
        f"{kind.__name__}-{name}": replace(
            fit, make=kind, target=target, public={**public, **fit.public}
        )
        for name, fit in named.items()
    }


def one(budgets: tuple[dict[str, float], ...], choices=LINEAR, **more: Any) -> Fit:
    """Return a fit whose estimator is still to be named; what is no field of a fit is a public
    setting.
    """
    own = {name: more.pop(name) for name in list(more) if name in Fit.__dataclass_fields__}
    return Fit(dict, "", budgets, public=more, choices=choices, **own)


PHASES = {"in_place": True, "sizes": (9, 16, 33)}
BY_GRADIENT = {
    "gradient": one(GAUSSIAN, mechanism="gradient", pairs=3),
    "ridged": one(GAUSSIAN, RIDGED, mechanism=NoisyGradientDescent(steps=3), pairs=3),
    "plain": one(
        GAUSSIAN,
        RIDGED,
        mechanism=NoisyGradientDescent(steps=4, step_size=0.3),
        variants=("rows", "sparse", "ignored"),
    ),
}
BY_RECORD = {
    "sgd": one(
        APPROXIMATE,
        {**RIDGED, "mechanism": SGD},
        in_place=True,
        sizes=FEW,
        relations=(REPLACE,),
        variants=without("dask"),
    ),
    "poisson": one(
        APPROXIMATE,
        {**RIDGED, "mechanism": POISSON},
        in_place=True,
        sizes=FEW,
        variants=without("dask"),
    ),
    "phased-erm": one(
        BOTH, RIDGED, mechanism=PhasedERM(phases=3), variants=without("dask"), **PHASES
    ),
    "phased-sgd": one(
        BOTH,
        RIDGED,
        mechanism=PhasedSGD(phases=3),
        relations=(REPLACE,),
        variants=without("dask"),
        **PHASES,
    ),
}
SUMS = {
    "objective": one((*APPROXIMATE, PURE[1]), mechanism="objective"),
    "output": one(BOTH, mechanism="output"),
    **BY_GRADIENT,
    **BY_RECORD,
}
# Few rows leave enough for intervals at a large budget only.
INFERENCE = {
    "intervals": one(({"mu": 300.0},), inference=True, columns=3, sizes=(16, 17, 33), pairs=3)
}
# A person with several rows of its own: named, of whom some rows count, or a promise that nobody
# has more.
SEVERAL = {
    "named": {"rows_per_person": 3, "person_weight": "rows", "variants": ("people",)},
    "promised": {"rows_per_person": 3, "rows_each": 3, "variants": ("rows",)},
}
PERSONS = {
    f"{mechanism}-{how}": one(APPROXIMATE, mechanism=mechanism, sizes=(40, 33, 17), **facts)
    for mechanism in ("objective", "output", "gradient")
    for how, facts in SEVERAL.items()
} | {
    f"intervals-{how}": one(
        ({"mu": 300.0},), inference=True, columns=3, sizes=(40, 33), pairs=3, **facts
    )
    for how, facts in SEVERAL.items()
}
OUTPUT = {"l2": one(BOTH), "linf": one(GAUSSIAN, norm="linf")}
TILTED = {
    "output": one(BOTH, tilt=1.0, relations=(REPLACE,), variants=without("weights"), pairs=3),
    "share": one(GAUSSIAN, share=0.3, variants=without("weights"), pairs=3),
    "max": one(GAUSSIAN, share="max", variants=without("weights"), pairs=3),
}
MATRICES = ("rows", "dask", "ignored")  # partitions are joined
MATRIX = {
    "objective": one(
        APPROXIMATE, {}, mechanism="objective", variants=MATRICES, sizes=(4, 9, 17, 24)
    ),
    "gradient": one(GAUSSIAN, {}, mechanism=StructuredGradientDescent(steps=5), variants=MATRICES),
    "sgd": one(
        APPROXIMATE,
        {},
        mechanism=NoisySGD(steps=6, batch_size=4),
        in_place=True,
        sizes=(5,),
        variants=MATRICES,
        relations=(REPLACE,),
    ),
    "poisson": one(
        APPROXIMATE,
        {},
        mechanism=NoisySGD(steps=6, batch_size=4, sampling="poisson"),
        in_place=True,
        sizes=(5,),
        variants=MATRICES,
    ),
}
ONLY_ROWS = without("people", "weights")
AUC = {
    "moments": one(GAUSSIAN, PAIRS, mechanism="moments", variants=ONLY_ROWS, relations=(REPLACE,)),
    "objective": one(
        APPROXIMATE,
        PAIRS,
        mechanism="objective",
        min_positive=3,
        min_negative=3,
        variants=ONLY_ROWS,
    ),
    "pure": one(PURE, PAIRS, mechanism="objective", alpha=50.0, variants=ONLY_ROWS),
    "output": one(BOTH, PAIRS, mechanism="output", loss="hinge", variants=ONLY_ROWS),
    "squared": one(GAUSSIAN, PAIRS, mechanism="output", loss="squared", variants=ONLY_ROWS),
    "gradient": one(GAUSSIAN, PAIRS, mechanism="gradient", pairs=3),
}
NUMBERS = {"target_bounds": (-2.0, 2.0)}
TWO = {"classes": [0, 1]}
THREE = {"classes": [0, 1, 2]}


class Descended:
    """Noisy descent on a smooth loss of residuals, which no estimator offers, with the face of
    one.
    """

    def __init__(
        self, random_state, loss, inference=False, neighbors=REPLACE, nominal_samples=None, **budget
    ):
        self.facts = random_state, loss, inference, neighbors, nominal_samples, budget

    def fit(self, X, y):
        from dpconvex.engine import MemoryRows, RowMap
        from dpconvex.objectives import EmpiricalObjective
        from dpconvex.privacy import ApproxDP, GaussianDP, LinearBounds

        seed, loss, inference, neighbors, nominal, budget = self.facts
        mechanism = NoisyGradientDescent()
        row_map = RowMap.from_bounds(X.shape[1], (-1.0, 1.0))
        n = len(y) if nominal is None else nominal
        bounds = LinearBounds(
            n, X.shape[1], loss, row_map.row_norm, row_map.max_norm, neighbors=neighbors
        )
        claim = GaussianDP(**budget) if "mu" in budget else ApproxDP(**budget)
        parameters = {"inference": True} if inference else {}
        self.certificate_ = mechanism.certify(bounds, claim, parameters, seeded=True)
        objective = EmpiricalObjective(MemoryRows(X, y, row_map, threads=1), loss, 0.0, divisor=n)
        self.released_ = {}
        self.coef_ = mechanism.release(objective, self.certificate_, seed, self.released_)
        return self


class Drawn:
    """The exponential mechanism, which no estimator offers, with the face of one."""

    def __init__(
        self, random_state, mechanism, loss, neighbors=REPLACE, nominal_samples=None, **budget
    ):
        self.facts = random_state, mechanism, loss, neighbors, nominal_samples, budget["epsilon"]

    def fit(self, X, y):
        from dpconvex.engine import MemoryRows, RowMap
        from dpconvex.objectives import EmpiricalObjective
        from dpconvex.privacy import LinearBounds, PureDP

        seed, mechanism, loss, neighbors, nominal, epsilon = self.facts
        row_map = RowMap.from_bounds(X.shape[1], (-1.0, 1.0))
        n = len(y) if nominal is None else nominal
        bounds = LinearBounds(
            n, X.shape[1], loss, row_map.row_norm, row_map.max_norm, alpha=0.5, neighbors=neighbors
        )
        self.certificate_ = mechanism.certify(bounds, PureDP(epsilon), seeded=True)
        objective = EmpiricalObjective(
            MemoryRows(X, y, row_map, threads=1), loss, bounds.alpha, divisor=n
        )
        with np.errstate(all="ignore"):
            self.coef_ = mechanism.release(objective, self.certificate_, seed)
        return self


class Scored:
    """A private score of a model that is public, with the face of an estimator."""

    def __init__(
        self,
        random_state,
        metric,
        model,
        second=None,
        neighbors=REPLACE,
        nominal_samples=None,
        **budget,
    ):
        self.model = model
        self.options = {"metric": metric, "neighbors": neighbors, **budget}
        self.seed = random_state
        self.second = second

    def fit(self, X, y, groups=None):
        if isinstance(X, np.ndarray) and X.dtype != object:  # as many columns as the model has
            columns = self.model.coef_.size
            X = np.hstack([X] * columns)[:, :columns]
        given = {"random_state": self.seed, "groups": groups, **self.options}
        if self.second is None:
            score = private_score(self.model, X, y, **given)
        else:
            score = private_score_difference(self.model, self.second, X, y, **given)
        self.certificate_ = score.certificate
        self.score_ = (score.value, score.interval, score.curve)
        return self


def public_model(kind: type, **public: Any) -> Any:
    """Return a model of three columns that was fitted before."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (60, 3))
    y = X.sum(axis=1)
    model = kind(feature_bounds=(-1, 1), random_state=0, **public)
    return model.fit(X, (y > 0).astype(int) if "classes" in public else y)


def _selected(random_state, strategy, **budget):
    inner = dp.DPLogisticRegression(mechanism="output", feature_bounds=(-1, 1), classes=[0, 1])
    grid = {"alpha": [0.1, 1.0]}
    return DPSelect(inner, grid, strategy=strategy, random_state=random_state, **budget)


def _conformal(random_state, **budget):
    inner = dp.DPQuantileRegressor(mechanism="output", feature_bounds=(-1, 1), **NUMBERS)
    return DPConformal(inner, 0.6, random_state=random_state, **budget)


def _others() -> dict[str, Fit]:
    """What releases numbers and is no estimator of a mechanism: scores, intervals, searches,
    preprocessing.
    """
    from dpconvex.losses import Absolute, Huber, Logistic
    from dpconvex.smoothing import GaussianKernel, convolve

    rows = {"variants": ("rows",), "choices": {}}
    replaced = {**rows, "relations": (REPLACE,)}
    draws = {
        "mechanism": (
            ExponentialMechanism(points=7),
            ExponentialMechanism(points=5, localise=True, radius=3.0),
        )
    }
    smooth = {"loss": (Huber(0.3), convolve(Absolute(), GaussianKernel(), 0.2))}
    large = ({"mu": 300.0},)  # few rows leave enough for late rounds at a large budget only
    found = {
        "NoisyGradientDescent-smooth": Fit(
            Descended, "number", (*GAUSSIAN, *large), {}, smooth, ("rows",)
        ),
        "NoisyGradientDescent-intervals": Fit(
            Descended, "number", large, {"inference": True}, smooth, ("rows",)
        ),
        "ExponentialMechanism-absolute": Fit(
            Drawn, "number", PURE, {"loss": Absolute()}, draws, ("rows",), columns=2
        ),
        "ExponentialMechanism-logistic": Fit(
            Drawn, "sign", PURE, {"loss": Logistic()}, draws, ("rows",), columns=2
        ),
        "DPQuantileBounds": Fit(
            DPQuantileBounds, "number", PURE, {"search_bounds": (-1, 1)}, **replaced
        ),
        "DPConformal": Fit(
            _conformal,
            "number",
            ({"mu": 40.0},),
            sizes=(16, 33),
            in_place=True,
            **{**replaced, "variants": ("rows", "people")},
            pairs=3,
        ),
        "DPSelect-exponential": Fit(
            _selected,
            "label",
            PURE,
            {"strategy": "exponential"},
            sizes=(16, 33),
            in_place=True,
            **replaced,
        ),
        "DPSelect-repeat": Fit(
            _selected,
            "label",
            APPROXIMATE,
            {"strategy": "repeat"},
            sizes=(16, 33),
            in_place=True,
            pairs=3,
            **replaced,
        ),
    }
    scores = {
        "number": (
            dp.DPQuantileRegressor,
            NUMBERS,
            ("pinball", "absolute", "coverage", "residuals"),
        ),
        "label": (dp.DPLogisticRegression, TWO, ("accuracy", "log_loss", "auc", "calibration")),
    }
    for target, (kind, public, metrics) in scores.items():
        model = public_model(kind, **public)
        for metric in metrics:
            relations = (REPLACE,) if metric == "auc" else RELATIONS
            facts = {"metric": metric, "model": model}
            found[f"private_score-{metric}"] = Fit(
                Scored, target, BOTH, facts, {}, ("rows", "people"), relations
            )
    survival = public_model(dp.DPDiscreteHazard, horizons=(0.3, 0.6))
    rate = {"target_bounds": (0.0, 2.0)}
    for metric, model in (
        ("brier", survival),
        ("deviance", public_model(dp.DPPoissonRegressor, **rate)),
    ):
        facts = {"metric": metric, "model": model}
        found[f"private_score-{metric}"] = Fit(
            Scored, "number", BOTH, facts, {}, ("rows", "people"), RELATIONS
        )
    facts = {"metric": "concordance", "model": survival}
    found["private_score-concordance"] = Fit(
        Scored, "number", BOTH, facts, {}, ("rows",), (REPLACE,)
    )
    models = {
        name: public_model(dp.DPQuantileRegressor, quantile=level, **NUMBERS)
        for name, level in (("model", 0.2), ("second", 0.8))
    }
    facts = {"metric": "absolute", **models, "bound": 0.7}
    found["private_score_difference"] = Fit(
        Scored, "number", BOTH, facts, {}, ("rows", "people"), RELATIONS
    )
    # Ranges that are paid for: which questions follow depends on the answers.
    facts = {
        "metric": "absolute",
        "model": public_model(dp.DPQuantileRegressor, **NUMBERS),
        "residual_bound": "private",
    }
    large = ({"mu": 40.0}, {"epsilon": 60.0, "delta": 0.0})
    found["private_score-range"] = Fit(
        Scored, "number", large, facts, {}, ("rows", "people"), RELATIONS
    )
    return found


ESTIMATORS: dict[str, Fit] = {
    **fits_of(
        dp.DPQuantileRegressor,
        "number",
        {"quantile": 0.7, **NUMBERS},
        {
            **SUMS,
            **INFERENCE,
            "levels": one(GAUSSIAN, quantile=(0.2, 0.5, 0.9), pairs=3),
            "late": one(({"mu": 300.0},), pairs=3),
            "late-levels": one(({"mu": 300.0},), quantile=(0.2, 0.9), pairs=3),
            "no-bounds": one(GAUSSIAN, {"feature_bounds": (None,)}, target_bounds=None, pairs=3),
        },
    ),
    **fits_of(
        dp.DPNewsvendor,
        "number",
        {"underage_cost": 3.0, **NUMBERS},
        {"auto": one(GAUSSIAN, pairs=3), "output": one(GAUSSIAN, mechanism="output", pairs=3)},
    ),
    **fits_of(
        dp.DPLinearRegression,
        "number",
        NUMBERS,
        {
            "squares": one((*GAUSSIAN, {"mu": 300.0})),
            "output": one(BOTH, mechanism="output", pairs=3),
            **INFERENCE,
        },
    ),
    **fits_of(
        dp.DPDiscreteHazard,
        "number",
        {"horizons": (0.5, 1.0, 1.5)},
        {  # signed times
            "gradient": one(GAUSSIAN, PAIRS, variants=without("people"), pairs=3),
            "late": one(({"mu": 300.0},), PAIRS, variants=without("people"), pairs=3),
        },
    ),
    **fits_of(
        dp.DPPoissonRegressor,
        "number",
        {"target_bounds": (0.0, 2.0)},
        {
            "rate": one((*GAUSSIAN, {"mu": 300.0}), pairs=3),
            "ridged": one(GAUSSIAN, RIDGED, pairs=3),
            **INFERENCE,
            "objective": one((*APPROXIMATE, PURE[1]), mechanism="objective", alpha=100.0, pairs=3),
            "output": one(BOTH, mechanism="output", pairs=3),
            "no-bounds": one(GAUSSIAN, {"feature_bounds": (None,)}, target_bounds=None, pairs=3),
        },
    ),
    **fits_of(
        dp.DPGammaRegressor,
        "number",
        {"target_bounds": (0.01, 2.0)},
        {
            "rate": one((*GAUSSIAN, {"mu": 300.0}), pairs=3),
            "output": one(BOTH, mechanism="output", pairs=3),
        },
    ),
    **fits_of(
        dp.DPTweedieRegressor,
        "number",
        {"target_bounds": (0.0, 2.0)},
        {"rate": one((*GAUSSIAN, {"mu": 300.0}), {**LINEAR, "power": (1.1, 1.5, 1.9)}, pairs=3)},
    ),
    **fits_of(dp.DPTiltedRegressor, "number", NUMBERS, TILTED),
    **fits_of(dp.DPRobustRegressor, "number", NUMBERS, OUTPUT),
    **fits_of(
        dp.DPLogisticRegression,
        "label",
        TWO,
        {**SUMS, **INFERENCE, "late": one(({"mu": 300.0},), pairs=3)},
    ),
    **fits_of(
        dp.DPLogisticRegression,
        "three labels",
        THREE,
        {
            "three": one(GAUSSIAN, pairs=3),
            "three-ridged": one(GAUSSIAN, RIDGED, mechanism="gradient", pairs=3),
            "three-late": one(({"mu": 300.0},), pairs=3),
            "three-objective": one(APPROXIMATE, mechanism="objective"),
            "class-weights": one(
                GAUSSIAN, class_weight={0: 0.3, 2: 2.0}, pairs=3, variants=without("sparse", "dask")
            ),
        },
    ),
    **fits_of(
        dp.DPOrdinalRegression,
        "three labels",
        {"classes": [2, 0, 1]},
        {
            "gradient": one(GAUSSIAN, PAIRS, pairs=3),
            "late": one(({"mu": 300.0},), PAIRS, pairs=3),
            "class-weights": one(
                GAUSSIAN,
                PAIRS,
                class_weight={0: 0.3, 2: 2.0},
                pairs=3,
                variants=without("sparse", "dask"),
            ),
        },
    ),
    **fits_of(dp.DPLinearSVC, "label", TWO, SUMS),
    **fits_of(
        dp.DPLinearSVC,
        "three labels",
        THREE,
        {"three": one(GAUSSIAN, pairs=3), "three-late": one(({"mu": 300.0},), pairs=3)},
    ),
    **fits_of(dp.DPTiltedClassifier, "label", TWO, TILTED),
    **fits_of(
        dp.DPTopRankClassifier,
        "label",
        TWO,
        {
            "output": one(
                GAUSSIAN, PAIRS, top=2, variants=ONLY_ROWS, relations=(REPLACE,), pairs=3
            ),
            "pure": one(
                PURE, PAIRS, loss="hinge", variants=ONLY_ROWS, relations=(REPLACE,), pairs=3
            ),
        },
    ),
    **fits_of(
        dp.DPRobustClassifier,
        "label",
        TWO,
        {
            **OUTPUT,
            "l1": one(GAUSSIAN, norm="l1"),
            "cost": one(GAUSSIAN, cost=300.0, alpha=0.05, relations=(REPLACE,)),
        },
    ),
    **fits_of(dp.DPAUCClassifier, "label", TWO, AUC),
    **fits_of(
        dp.DPAUCClassifier,
        "kept label",
        TWO,
        {
            "public-labels": one(
                GAUSSIAN,
                PAIRS,
                mechanism="output",
                label_private=False,
                variants=ONLY_ROWS,
                relations=(REPLACE,),
            )
        },
    ),
    **{
        name: fit
        for kind in (dp.DPMedian, dp.DPPiecewiseLinear, dp.DPBowl, dp.DPL1Link)
        for name, fit in fits_of(kind, "matrix", {}, MATRIX).items()
    },
}
FITS: dict[str, Fit] = {
    **ESTIMATORS,
    **fits_of(dp.DPQuantileRegressor, "number", {"quantile": 0.7, **NUMBERS}, PERSONS),
    **fits_of(
        dp.DPPoissonRegressor,
        "number",
        {"target_bounds": (0.0, 2.0)},
        {name: fit for name, fit in PERSONS.items() if name.startswith(("gradient", "intervals"))},
    ),
    **fits_of(dp.DPLogisticRegression, "label", TWO, PERSONS),
    **_others(),
}
