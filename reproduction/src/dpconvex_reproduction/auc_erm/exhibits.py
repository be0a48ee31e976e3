"""Tables and figures, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpconvex_reproduction.auc_erm.judging import (
    PUBLISHED,
    judge_least_squares,
    judge_logistic,
    judge_table,
)
from dpconvex_reproduction.auc_erm.statements import privacy_of, with_true_epsilon
from dpconvex_reproduction.auc_erm.studies import (
    DATA,
    DEFAULT,
    LEAST_SQUARES,
    OBJECTIVE,
    OUTPUT,
    TABLE,
)
from dpconvex_reproduction.drawing import ERRORS, curves, finish, panels
from dpconvex_reproduction.exhibit import Exhibit, Row, select, summarise

__all__ = ["EXHIBITS"]

_KEYS = ["data", "epsilon", "delta", "algorithm", "variant", "loss", "penalty"]
_HIDDEN = ("delta", "std", "failed", "loss")

_SETTING = (
    "Three of the paper's four data sets: webspam_u is not to be had. Its diameter is not "
    "stated; here features are in [-1, 1] by public bounds and rows are shortened to norm 1, so "
    "the diameter is 2 for every variant. Noise is proportional to it; why the published AUCs on "
    "ijcnn1 are not reached is not known. ijcnn1 and satimage come with test parts; of http a "
    "fifth is held out. A run is a new draw of the noise, as in the paper (60 runs, fewer in a "
    "quick one). The penalty is tuned for `paper` and `sound` by ten-fold cross-validation at "
    "epsilon 0.1 over 1e-4 to 1, which spends privacy that is not counted; `dpconvex` is not "
    "tuned. Minimisers are exact where the paper takes stochastic gradient steps, whose error "
    "its noise does not cover. Lower bounds on the class counts for `sound` and `dpconvex`: "
    "4,000 and 40,000 (ijcnn1), 2,000 and 1,500 (satimage), 1,500 and 400,000 (http); `paper` "
    "uses the private counts. In the table, `epsilon at most` is what can be proven at the delta "
    "beside it, and `delta at least` what the claimed epsilon costs on some data of the same "
    "size where labels may change; either is empty where nothing is known. An AUC difference is "
    "clear if above two standard errors and 0.005."
)

_PURE = (
    " With pure epsilon our default runs objective perturbation too, with a penalty that follows "
    "from public facts: numbers of rows and columns, lower bounds on the class counts, slope of "
    "the loss, epsilon. On ijcnn1 this penalty is 7 to 140 times the 0.1 that cross-validation "
    "on the data picks for the sound Obj-Pert. It draws the coefficients to 0 and costs "
    "accuracy: with `alpha=0.1` ours was as accurate as the sound algorithm in 12 runs at "
    "epsilon 0.1 and 0.5. The hinge has a smaller slope, and so less noise."
)


def _table(chosen: Callable[[list[Row]], list[Row]]) -> Callable[[list[Row]], list[Row]]:
    def table(rows: list[Row]) -> list[Row]:
        lines = []
        for line in summarise(chosen(rows), _KEYS, "auc"):
            full = with_true_epsilon(line)
            lines.append({key: value for key, value in full.items() if key not in _HIDDEN})
        return sorted(lines, key=lambda line: (DATA.index(line["data"]), line["epsilon"]))

    return table


def _draw(chosen: Callable[[list[Row]], list[Row]]) -> Callable[[list[Row], Any], None]:
    def draw(rows: list[Row], figure: Any) -> None:
        axes = panels(figure, len(DATA), height=3.6)
        for ax, data in zip(axes[0], DATA, strict=True):
            curves(ax, select(chosen(rows), data=data), "epsilon", "auc")
            ax.set_ylim(top=min(ax.get_ylim()[1], 1.02))  # bands of errors know no bound at 1
            ax.set(title=data, xlabel="epsilon", xticks=(0.1, 0.3, 0.5))
        axes[0, 0].set_ylabel("AUC on the test part")
        finish(figure, axes, note=ERRORS)

    return draw


def _of(budget: str) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: select(rows, budget=budget)


def _squares(rows: list[Row]) -> list[Row]:
    """Return the rows of Figure 3, with one line for No-Pert, which has no budget."""
    return [
        row
        for row in select(rows, loss="least squares")
        if row["algorithm"] != "No-Pert" or row["budget"] == "pure"
    ]


def _logistic(figure: int, budget: str, what: str) -> Exhibit:
    return Exhibit(
        paper="auc-erm",
        label=f"Figure {figure}",
        title=f"AUC against epsilon, {what}, logistic loss",
        claim=(
            f"Section 6.2 and Figure {figure}: with {what} the AUC rises with epsilon, objective "
            "perturbation outperforms output perturbation, http has a high AUC at epsilon 0.1 "
            "already, and ijcnn1 reaches 0.9 below epsilon 0.2."
        ),
        studies=(OUTPUT, OBJECTIVE, DEFAULT),
        table=_table(_of(budget)),
        judge=judge_logistic(budget),
        draw=_draw(_of(budget)),
        privacy=privacy_of(figure),
        notes=_SETTING + (_PURE if budget == "pure" else ""),
        shown=200,
    )


def _table_2(rows: list[Row]) -> list[Row]:
    lines = []
    for name, (instances, features, ratio) in PUBLISHED.items():
        line: Row = {
            "data": name,
            "published n": instances,
            "published d": features,
            "published n+/n": ratio,
            "n": None,
            "d": None,
            "n+/n": None,
            "n+/n-": None,
            "n+/n- with test part": None,
            "remark": "not to be had",
        }
        for row in select(rows, data=name):
            line |= {
                "n": row["n"],
                "d": row["d"],
                "n+/n": row["positive"] / row["n"],
                "n+/n-": row["positive"] / row["negative"],
                "n+/n- with test part": row["all_positive"] / row["all_negative"],
                "remark": "",
            }
        lines.append(line)
    return lines


EXHIBITS: tuple[Exhibit, ...] = (
    _logistic(1, "pure", "pure epsilon-DP"),
    _logistic(2, "approximate", "(epsilon, 1/n^2)-DP"),
    Exhibit(
        paper="auc-erm",
        label="Figure 3",
        title="AUC against epsilon, output perturbation with least squares",
        claim=(
            "Section 6.2 and Figure 3: output perturbation with least squares is less accurate "
            "than with the logistic loss, because its slope bound is larger; on ijcnn1 it needs "
            "epsilon 0.5 for about 0.9."
        ),
        studies=(LEAST_SQUARES, OUTPUT),
        table=_table(_squares),
        judge=judge_least_squares,
        draw=_draw(_squares),
        privacy=privacy_of(3),
        notes=(
            _SETTING + " The paper puts the slope of the logistic loss below 1; with its base-2 "
            "logarithm it is 1/log 2 = 1.44, which is used here. With a budget of (epsilon, "
            "delta) the names end in -Delta."
        ),
        shown=200,
    ),
    Exhibit(
        paper="auc-erm",
        label="Table 2",
        title="the data sets",
        claim="Section 6.1 and Table 2: instances, features and imbalance of four data sets.",
        studies=(TABLE,),
        table=_table_2,
        judge=judge_table,
        notes=(
            "Satimage: labels 1 to 3 against 4 to 6, the first half of the classes as in the "
            "paper. webspam_u could not be obtained, so its line has the published figures only."
        ),
    ),
)
