"""``dpconvex reproduce canaries``: another project's auditor attacks our fits, honest ones and
sabotaged ones.

jax-privacy's ``CanaryScoreAuditor`` proves lower bounds on epsilon from scores of records that were
in a fit and of records that were not. It knows nothing of dpconvex. Two attacks are scored:

- many fits: one record that is as far out as bounds allow, in one of two neighbouring tables; the
  score is the projection of coefficients on the direction in which the first half of the fits
  differs; the bound is Clopper's and Pearson's;
- one fit: many records, each in a column of its own and in the table or not by a fair coin; the
  score of each is the coefficient of its column; the bound is that of Steinke, Nasr and Jagielski
  for one run.

A sabotaged build draws a fraction of the noise that its certificate states.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import numpy as np
import typer
from numpy.typing import NDArray

from dpconvex import DPAUCClassifier, DPLinearRegression, DPLogisticRegression, DPQuantileRegressor
from dpconvex.audit import neighbor_pairs
from dpconvex.audit.estimators_on_neighbors import fitted_estimator_outputs
from dpconvex.cli.output_and_errors import output_console, reports_errors
from dpconvex.core.noise_source import NoiseSource
from dpconvex.inputs import InputError
from dpconvex_reproduction.exhibit import Row
from dpconvex_reproduction.peers.environments import JAX_PRIVACY

__all__ = [
    "CASES",
    "attack",
    "less_noise",
    "main",
    "many_fit_scores",
    "one_fit_scores",
    "what_is_caught",
]

Array = NDArray[np.float64]

EPSILON = 1.0
DELTA = 1e-2
SIGNIFICANCE = 1e-3
SABOTAGE = 1 / 20  # of the noise that a sabotaged build draws
_CANARIES = 40
_OTHERS = 60

_TARGET: dict[str, Any] = {"target_bounds": (-1.0, 1.0)}
#: Name -> estimator and its settings.
CASES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "DPLogisticRegression, auto": (DPLogisticRegression, {}),
    "DPLogisticRegression, objective": (DPLogisticRegression, {"mechanism": "objective"}),
    "DPLogisticRegression, output": (DPLogisticRegression, {"mechanism": "output"}),
    "DPQuantileRegressor, auto": (DPQuantileRegressor, _TARGET),
    "DPQuantileRegressor, objective": (DPQuantileRegressor, {"mechanism": "objective", **_TARGET}),
    "DPLinearRegression, auto": (DPLinearRegression, _TARGET),
    "DPAUCClassifier, auto": (DPAUCClassifier, {}),
}


@contextmanager
def less_noise(factor: float) -> Iterator[None]:
    """Let every Gaussian of the noise gate be this fraction of what the certificate states: a
    build that lies.
    """
    whole = NoiseSource.gaussian

    def drawn(self: NoiseSource, std: float, size: int) -> Any:
        return whole(self, std * factor, size)

    with mock.patch.object(NoiseSource, "gaussian", drawn):
        yield


def _classifies(kind: Callable[..., Any]) -> bool:
    return kind in (DPLogisticRegression, DPAUCClassifier)


def many_fit_scores(
    kind: Callable[..., Any], settings: dict[str, Any], runs: int
) -> tuple[Array, Array]:
    """Return scores of so many fits with the record, and without it (or with its opposite)."""
    labels = _classifies(kind)
    X = np.array([[0.0], [0.5], [-0.2], [0.1]])
    y = np.array([1.0, -1.0, 1.0, -1.0]) if labels else np.array([0.0, 0.1, -0.3, 0.2])
    pairs = {pair.name: pair for pair in neighbor_pairs(X, y, np.array([1.0]), (-1.0, 1.0))}
    pair = pairs["mirror" if labels else "both"]
    model = kind(epsilon=EPSILON, delta=DELTA, feature_bounds=(-1.0, 1.0), **settings)
    first, second = (
        np.clip(fitted_estimator_outputs(model, data, 2 * runs), -1e6, 1e6)
        for data in (pair.first, pair.second)
    )
    spread = np.concatenate([first[:runs], second[:runs]]).std(axis=0)
    direction = (np.median(first[:runs], axis=0) - np.median(second[:runs], axis=0)) / np.where(
        spread > 0, spread, 1
    )
    scale = np.where(spread > 0, spread, 1)
    return first[runs:] / scale @ direction, second[runs:] / scale @ direction


def one_fit_scores(
    kind: Callable[..., Any], settings: dict[str, Any], seed: int
) -> tuple[Array, Array]:
    """Return scores of canaries that were in one fit, and of those that were not."""
    rng = np.random.default_rng(seed)
    inside = rng.random(_CANARIES) < 0.5
    X = np.concatenate([np.eye(_CANARIES)[inside], np.zeros((_OTHERS, _CANARIES))])
    labels = _classifies(kind)
    others = np.where(np.arange(_OTHERS) % 2, 1.0, -1.0) if labels else np.zeros(_OTHERS)
    y = np.concatenate([np.ones(inside.sum()), others])
    model = kind(
        epsilon=EPSILON,
        delta=DELTA,
        feature_bounds=(-1.0, 1.0),
        neighbors="add_or_remove_one",
        nominal_samples=_OTHERS + _CANARIES // 2,
        **settings,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = np.ravel(model.fit(X, y).coef_)
    return scores[inside], scores[~inside]


def attack(runs: int, cases: dict[str, Any] | None = None) -> list[Row]:
    """Return a row per case: what the auditor proves of honest and of sabotaged fits.

    Raises
    ------
    RuntimeError
        If jax-privacy is not installed.
    """
    JAX_PRIVACY.python()
    arrays: dict[str, NDArray[Any]] = {}
    requests: list[dict[str, Any]] = []
    rows: list[Row] = []
    for name, (kind, settings) in (cases or CASES).items():
        rows.append({"estimator, mechanism": name, "claimed epsilon": EPSILON})
        for factor in (1.0, SABOTAGE):
            with less_noise(factor):
                pairs = (many_fit_scores(kind, settings, runs), one_fit_scores(kind, settings, 0))
            for one_run, (inside, outside) in enumerate(pairs):
                number = len(requests)
                arrays |= {f"in{number}": inside, f"out{number}": outside}
                requests.append(
                    {
                        "in": f"in{number}",
                        "out": f"out{number}",
                        "one_run": bool(one_run),
                        "significance": SIGNIFICANCE,
                        "delta": DELTA,
                    }
                )
    found = JAX_PRIVACY.ask(Path(__file__).with_name("canaries_worker.py"), arrays, requests)[
        "epsilon"
    ]
    for row, (many, one, many_less, one_less) in zip(rows, np.reshape(found, (-1, 4)), strict=True):
        row |= {
            "many fits prove": float(many),
            "one fit proves": float(one),
            "sabotaged, many fits": float(many_less),
            "sabotaged, one fit": float(one_less),
            "claim survives": bool(max(many, one) <= EPSILON),
            "sabotage is caught": bool(max(many_less, one_less) > EPSILON),
        }
    return rows


def what_is_caught(rows: Sequence[Row]) -> str:
    """Return which sabotaged builds each attack catches, and whose claims survive an attack that
    sees nothing.
    """
    builds = f"{len(rows)} sabotaged build{'s' * (len(rows) != 1)}"
    by_one = sum(row["sabotaged, one fit"] > row["claimed epsilon"] for row in rows)
    if by_one:
        words = f"With one fit the auditor catches {by_one} of {builds}."
    else:
        words = (
            f"With one fit the auditor catches none of {builds}. It has no power at this size: it "
            "proves nothing against sabotaged builds either, and that it proves nothing against "
            "honest ones is no evidence for them."
        )
    missed = [str(row["estimator, mechanism"]) for row in rows if not row["sabotage is caught"]]
    if not missed:
        return f"{words} Many fits or one catch every sabotaged build."
    return (
        f"{words} Sabotage is caught by neither attack in {len(missed)} of {len(rows)} cases: "
        f"{'; '.join(missed)}. There a claim that survives has not been tested."
    )


app = typer.Typer(add_completion=False)


def main(words: list[str]) -> None:
    """Run the command with these words."""
    app(words, prog_name="dpconvex reproduce canaries")


@app.command()
@reports_errors
def canaries(
    runs: Annotated[
        int,
        typer.Option(help="Fits that are scored, on each side; as many teach the attack.", min=20),
    ] = 500,
    case: Annotated[
        list[str] | None, typer.Option(help="One case; may be repeated.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="The page.")] = Path("canaries.md"),
) -> None:
    """Let jax-privacy's auditor attack fits, honest and sabotaged; needs `--install-peers` of
    `dpconvex reproduce`.
    """
    from dpconvex_reproduction.fingerprint import made_with
    from dpconvex_reproduction.outputs import check_outputs, write_output
    from dpconvex_reproduction.pages import markdown_table

    check_outputs([out], out.parent)
    unknown = [name for name in case or () if name not in CASES]
    if unknown:
        raise InputError(f"There is no case '{unknown[0]}'. There are: {'; '.join(CASES)}.")
    try:
        rows = attack(runs, {name: CASES[name] for name in case or CASES})
    except RuntimeError as error:
        raise InputError(str(error)) from error
    lines = [
        "# jax-privacy's canary auditor on our fits",
        "",
        made_with(),
        "",
        f"Lower bounds on epsilon, each proven with error probability {SIGNIFICANCE:g}, at delta "
        f"{DELTA:g}: Clopper–Pearson over {runs} + {runs} fits of two neighbouring tables of four "
        f"rows, and one fit with {_CANARIES} canaries. A claim survives if no bound exceeds it. "
        f"The sabotaged build draws {SABOTAGE:g} of the noise that its certificate states; where "
        "the auditor does not notice, such an error of ours would not have been caught by it.",
        "",
        *markdown_table(rows),
        "",
        what_is_caught(rows),
        "",
        "Written by `dpconvex reproduce canaries`. scikit-learn's checks and our own audits are "
        "in the test suite.",
    ]
    write_output(out, ("\n".join(lines) + "\n").encode())
    survived = sum(row["claim survives"] for row in rows)
    caught = sum(row["sabotage is caught"] for row in rows)
    words = (
        f"{survived} of {len(rows)} claims survive, {caught} of {len(rows)} sabotaged builds "
        "are caught"
    )
    output_console().print(f"Written: {out} ({words})", markup=False)
