"""The privacy that each algorithm of Figures 1 to 3 truly has, computed from the printed
constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dpconvex import DPAUCClassifier
from dpconvex_reproduction.auc_erm.algorithms import PENALTIES
from dpconvex_reproduction.auc_erm.noise_alone import refutation
from dpconvex_reproduction.auc_erm.problems import FACTS, ROW_NORM
from dpconvex_reproduction.auc_erm.studies import EPSILONS
from dpconvex_reproduction.auc_erm.true_privacy import printed_epsilon
from dpconvex_reproduction.exhibit import PrivacyLine, Row

__all__ = ["privacy_of", "with_true_epsilon"]

_SHOWN = 4  # significant digits of a page's table


def _up(value: float, unit: float = 0.01) -> float:
    """Return an upper bound, rounded up to a unit."""
    return math.ceil(value / unit) * unit


def _down(value: float, unit: float = 0.001) -> float:
    """Return a lower bound, rounded down to a unit."""
    return math.floor(value / unit) * unit


def _unit(value: float) -> float:
    """Return the unit of the last digit that a table shows."""
    return 10.0 ** (math.floor(math.log10(value)) + 1 - _SHOWN) if value > 0 else 1.0


def _settings(pure: bool) -> list[tuple[str, float, float, float]]:
    """Return data set, epsilon, delta and penalty of everything that the figures may run."""
    return [
        (name, epsilon, 0.0 if pure else facts.delta, penalty)
        for name, facts in FACTS.items()
        for epsilon in EPSILONS
        for penalty in PENALTIES
    ]


@lru_cache(maxsize=32)
def _range(algorithm: int, loss: str, pure: bool, labels_change: bool) -> str:
    """Return the provable multiples of the claimed epsilon over all settings, rounded up."""
    ratios = []
    for name, epsilon, delta, penalty in _settings(pure):
        found, _ = printed_epsilon(algorithm, name, loss, epsilon, delta, penalty, labels_change)
        ratios.append(found / epsilon)
    return f"at most {_up(min(ratios)):.2f} to {_up(max(ratios)):.2f} epsilon, by setting"


@lru_cache(maxsize=32)
def _refuted(algorithm: int, loss: str, pure: bool) -> str:
    """Return where rows of zeros break the claim, and by how much."""
    settings = _settings(pure)
    tried = {setting: refutation(algorithm, setting[0], loss, *setting[1:]) for setting in settings}
    found = {setting: broken for setting, broken in tried.items() if broken is not None}
    deltas = []
    for name in FACTS:
        here = [broken.delta for setting, broken in found.items() if setting[0] == name]
        deltas.append(f"{_down(min(here)):.3f} ({name})")
    listed = ", ".join(deltas)
    if algorithm == 1:
        return (
            "refuted: with one and two positives delta at the claimed epsilon is at least "
            f"{listed} over all settings"
        )
    return (
        f"refuted in {len(found)} of {len(settings)} settings, those in which some class counts "
        "leave the penalty as it is: around the fewest positives that do, delta at the claimed "
        f"epsilon is at least {listed}; in the others neither proven nor refuted"
    )


def _printed(name: str, algorithm: int, loss: str, pure: bool) -> PrivacyLine:
    kept, changed = (_range(algorithm, loss, pure, flag) for flag in (False, True))
    true = (
        f"Labels kept and counts public: {kept}, at {'delta 0' if pure else 'the claimed delta'}. "
        f"Labels may change: {_refuted(algorithm, loss, pure)}. For neighbours of these data "
        f"sets' counts alone {changed}, at delta 1/n^2, which is no DP guarantee"
    )
    why = (
        "The noise is scaled by the class counts, which differ between neighbours when a label "
        "changes: on rows of zeros the release is noise alone, and its spread gives the label "
        "away. "
    )
    if algorithm == 2:
        why += (
            "The printed proof takes the change of the gradient as independent of the noise, "
            "which decides where it is evaluated; the upper bounds do without that. "
        )
    elif loss == "logistic":
        why += "Where labels are kept its sensitivity is larger than needed. "
    return PrivacyLine(
        name,
        "paper",
        f"{'epsilon-DP' if pure else '(epsilon, 1/n^2)-DP'} (Theorem {algorithm})",
        true,
        why + "A setting is one of three data sets, nine epsilons and five penalties.",
    )


def _ours(name: str, pure: bool, **settings: Any) -> PrivacyLine:
    used: dict[str, None] = {}
    for facts in FACTS.values():
        model = DPAUCClassifier(
            epsilon=0.1,
            delta=0.0 if pure else facts.delta,
            row_norm=ROW_NORM,
            min_positive=facts.min_positive,
            min_negative=facts.min_negative,
            **settings,
        )
        theorem = model.certify(facts.rows, facts.features).theorem
        used[theorem.split(": mu")[0]] = None
    budget = "epsilon-DP" if pure else "(epsilon, 1/n^2)-DP"
    return PrivacyLine(
        name, "dpconvex", budget, f"{budget}, labels may change", "; ".join(used) + "; no tuning."
    )


_TUNING = PrivacyLine(
    "choice of the penalty",
    "paper and sound",
    "not counted",
    "none proven; not counted",
    "Ten-fold cross-validation scores held-out rows without noise; every line above takes the "
    "penalty as public.",
)


def privacy_of(figure: int) -> Callable[[], list[PrivacyLine]]:
    """Return what states the privacy of a figure's algorithms."""

    def privacy() -> list[PrivacyLine]:
        lines = []
        loss = "least squares" if figure == 3 else "logistic"
        for pure in {1: (True,), 2: (False,), 3: (True, False)}[figure]:
            ending = "" if pure else "-Delta"
            budget = "epsilon-DP" if pure else "(epsilon, 1/n^2)-DP"
            names = [(f"Output-Pert{ending}", 1)]
            if figure < 3:
                names.append((f"Obj-Pert{ending}", 2))
            for name, algorithm in names:
                lines.append(_printed(name, algorithm, loss, pure))
                lines.append(
                    PrivacyLine(
                        name,
                        "sound",
                        budget,
                        f"{budget}, labels may change",
                        "Public lower bounds on the class counts in place of the counts; its "
                        "certificate.",
                    )
                )
            if figure == 3:
                lines.append(_ours(f"DPAUCClassifier squared{ending}", pure, loss="squared"))
            else:
                lines.append(_ours("DPAUCClassifier", pure))
                if pure:
                    lines.append(_ours("DPAUCClassifier hinge", pure, loss="hinge"))
        return [*lines, _TUNING]

    return privacy


def with_true_epsilon(row: Row) -> Row:
    """Return a line of a table with what can be proven and refuted of its claim, the penalty
    taken as public.
    """
    kept = changed = delta = broken = None
    if row["variant"] in ("sound", "dpconvex"):
        kept = changed = row["epsilon"]
        delta = row["delta"]
    elif row["variant"] == "paper" and row["data"] in FACTS:
        algorithm = 2 if row["algorithm"].startswith("Obj") else 1
        facts = row["data"], row["loss"], row["epsilon"], row["delta"], row["penalty"]
        kept, delta = printed_epsilon(algorithm, *facts, labels_change=False)
        kept = _up(kept, _unit(kept))
        found = refutation(algorithm, *facts)
        broken = None if found is None else _down(found.delta, _unit(found.delta))
    return {
        **row,
        "labels kept: epsilon at most": kept,
        "labels may change: epsilon at most": changed,
        "at delta": delta,
        "labels may change: delta at least": broken,
    }
