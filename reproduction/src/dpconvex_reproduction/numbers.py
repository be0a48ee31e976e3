"""``dpconvex reproduce numbers``: dp-accounting's and OpenDP's numbers beside ours, for every
calibration.

dp-accounting composes the Gaussian terms that a certificate states as privacy loss distributions,
OpenDP as zCDP with its own conversion to epsilon. Both take sensitivities at our word: they can
catch noise that is too small or a wrong composition, not a wrong sensitivity. The last columns show
what they say of a build that adds half of the noise.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dpconvex import (
    DPAUCClassifier,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPNewsvendor,
    DPQuantileRegressor,
)
from dpconvex.cli.output_and_errors import output_console, reports_errors
from dpconvex.core.calibration import gaussian_delta, gaussian_mu, gaussian_scale
from dpconvex.privacy.subsampling import subsampled_epsilon
from dpconvex_reproduction.exhibit import Row

__all__ = ["basic_numbers", "certificate_numbers", "in_words", "main"]

DELTA = 1e-6
_INTERVAL = 1e-4  # of dp-accounting's grid of privacy losses

#: A Gaussian release: standard deviation over sensitivity, and how often it is made.
Release = tuple[float, int]

_TARGET: dict[str, Any] = {"target_bounds": (0.0, 1.0)}
_ESTIMATORS: tuple[tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]], ...] = (
    (DPLogisticRegression, {}, ("auto", "output", "phased-sgd", "phased-erm", "objective")),
    (DPLinearSVC, {}, ("auto", "output", "objective")),
    (DPQuantileRegressor, _TARGET, ("auto", "output", "phased-sgd", "phased-erm", "objective")),
    (DPNewsvendor, {"underage_cost": 3.0, **_TARGET}, ("auto", "output", "objective")),
    (DPLinearRegression, _TARGET, ("auto", "output")),
    (DPAUCClassifier, {}, ("auto", "moments", "output", "objective")),
)


def accounting_epsilon(releases: Iterable[Release], delta: float = DELTA) -> float:
    """Return dp-accounting's epsilon of Gaussian releases, by privacy loss distributions."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    # Gaussians of one sensitivity compose to a Gaussian; each is composed as a distribution all the
    # same.
    total = None
    for multiplier, times in releases:
        single = pld.from_gaussian_mechanism(multiplier, value_discretization_interval=_INTERVAL)
        several = single.self_compose(times) if times > 1 else single
        total = several if total is None else total.compose(several)
    assert total is not None
    return float(total.get_epsilon_for_delta(delta))


def _opendp() -> tuple[Any, tuple[Any, Any]]:
    """Return OpenDP and its space of numbers."""
    import opendp.prelude as dp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions have another name for the second feature
        dp.enable_features("contrib", "floating-point")
    return dp, (dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float))


def opendp_epsilon(releases: Iterable[Release], delta: float = DELTA) -> float:
    """Return OpenDP's epsilon of Gaussian releases: its zCDP of each, added, and its conversion."""
    dp, space = _opendp()
    rho = sum(
        times * dp.m.make_gaussian(*space, scale=multiplier).map(1.0)
        for multiplier, times in releases
    )
    together = dp.m.make_gaussian(*space, scale=math.sqrt(1 / (2 * rho)))
    return float(dp.c.make_zCDP_to_approxDP(together).map(1.0).epsilon(delta))


def _accounting_std(epsilon: float, delta: float) -> float:
    """Return dp-accounting's noise of a Gaussian release of sensitivity 1."""
    from dp_accounting.pld import common, privacy_loss_mechanism

    promise = common.DifferentialPrivacyParameters(epsilon, delta)
    return float(
        privacy_loss_mechanism.GaussianPrivacyLoss.from_privacy_guarantee(
            promise
        ).standard_deviation
    )


def _opendp_std(epsilon: float, near: float) -> float:
    """Return OpenDP's noise of a Gaussian release of sensitivity 1, looked for near ours."""
    return _bisect(lambda scale: opendp_epsilon([(scale, 1)]) <= epsilon, near / 2, 4 * near)


def basic_numbers() -> Iterator[Row]:
    """Yield our calibrations beside theirs: the noise of a release, composition, subsampling,
    Laplace noise.
    """
    from dp_accounting import NeighboringRelation, dp_event
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.rdp import rdp_privacy_accountant

    for epsilon in (0.1, 1.0, 4.0):
        std = gaussian_scale(epsilon, DELTA)
        yield {
            "what": f"noise of one Gaussian release at ({epsilon:g}, {DELTA:g}), sensitivity 1",
            "ours": std,
            "dp-accounting": _accounting_std(epsilon, DELTA),
            "OpenDP": _opendp_std(epsilon, std),
            "unit": "standard deviation",
        }
    for count in (20, 200):
        multiplier = math.sqrt(count) / gaussian_mu(1.0, DELTA)
        releases = [(multiplier, count)]
        yield {
            "what": f"{count} Gaussian releases that we calibrate to (1, {DELTA:g}) together",
            "ours": _epsilon_of(math.sqrt(count) / multiplier),
            "dp-accounting": accounting_epsilon(releases),
            "OpenDP": opendp_epsilon(releases),
            "unit": "epsilon",
        }
    for rate, steps, mu in ((0.01, 1000, 0.8), (0.1, 100, 0.4)):
        accountant = rdp_privacy_accountant.RdpAccountant()
        accountant.compose(
            dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(1 / mu)), steps
        )
        single = pld.from_gaussian_mechanism(
            1 / mu, sampling_prob=rate, value_discretization_interval=_INTERVAL
        )
        tight = single.self_compose(steps).get_epsilon_for_delta(DELTA)
        yield {
            "what": f"{steps} Poisson batches at rate {rate:g}, noise {1 / mu:g}, add or remove "
            f"one; dp-accounting by Renyi divergences ({float(tight):.4g} by loss "
            "distributions)",
            "ours": subsampled_epsilon("poisson", "add_or_remove_one", rate, steps, 1 / mu, DELTA),
            "dp-accounting": float(accountant.get_epsilon(DELTA)),
            "unit": "epsilon",
        }
        both = pld.from_gaussian_mechanism(
            1 / mu,
            sampling_prob=rate,
            value_discretization_interval=_INTERVAL,
            neighboring_relation=NeighboringRelation.REPLACE_ONE,
        )
        yield {
            "what": "the same batches, replace one, where a sum moves by up to 2; dp-accounting's "
            "pair of loss distributions is a gradient and its opposite, ours bounds every "
            "pair of neighbours",
            "ours": subsampled_epsilon("poisson", "replace_one", rate, steps, 1 / mu / 2, DELTA),
            "dp-accounting": float(both.self_compose(steps).get_epsilon_for_delta(DELTA)),
            "unit": "epsilon",
        }
    yield _laplace_line()


def _laplace_line() -> Row:
    from dp_accounting.pld import privacy_loss_distribution as pld

    dp, space = _opendp()
    return {
        "what": "one Laplace release of scale 2, sensitivity 1, at delta 0 (dp-accounting's grid: "
        "at 1e-9)",
        "ours": 0.5,
        "dp-accounting": float(pld.from_laplace_mechanism(2.0).get_epsilon_for_delta(1e-9)),
        "OpenDP": float(dp.m.make_laplace(*space, scale=2.0).map(1.0)),
        "unit": "epsilon",
    }


def _epsilon_of(mu: float) -> float:
    return _bisect(lambda epsilon: gaussian_delta(epsilon, mu) <= DELTA, 0.0, 100.0)


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest number for which it holds, to six digits."""
    for _ in range(60):
        if high - low <= 1e-7 * high:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _gaussian_releases(certificate: Any, factor: float = 1.0) -> list[list[Release]]:
    """Return the Gaussian releases that a certificate states; several lists where parts of the
    rows are apart.
    """
    terms = [
        (name, (factor * term.scale / term.rounded_sensitivity, term.releases))
        for name, term in certificate.noise.items()
    ]
    if all(name.startswith("phase ") for name, _ in terms):
        return [[release] for _, release in terms]
    return [[release for _, release in terms]]


def _worst(epsilon: Callable[[Sequence[Release]], float], lists: list[list[Release]]) -> float:
    return max(epsilon(releases) for releases in lists)


def certificate_numbers(rows: int = 10_000, columns: int = 5) -> Iterator[Row]:
    """Yield, for every estimator and mechanism, what its stated noise is worth by the others'
    books.
    """
    for kind, facts, mechanisms in _ESTIMATORS:
        for mechanism in mechanisms:
            model = kind(
                epsilon=1.0, delta=DELTA, feature_bounds=(0.0, 1.0), mechanism=mechanism, **facts
            )
            certificate = model.certify(n_samples=rows, n_features=columns)
            certificate.verify()
            line: Row = {
                "estimator": kind.__name__,
                "mechanism": mechanism
                if mechanism != "auto"
                else f"auto ({certificate.mechanism})",
                "we promise": float(certificate.epsilon(DELTA)),
            }
            if mechanism == "objective":
                line["note"] = "noise before minimising: its Jacobian is in neither tool"
                yield line
                continue
            lists = _gaussian_releases(certificate)
            half = _gaussian_releases(certificate, 0.5)
            accounted = _worst(accounting_epsilon, lists)
            lied = _worst(accounting_epsilon, half)
            line |= {
                "dp-accounting": accounted,
                "OpenDP": _worst(opendp_epsilon, lists),
                "half of the noise, dp-accounting": lied,
                "agrees": bool(accounted <= line["we promise"] * (1 + 1e-3)),
                "half is caught": bool(lied > line["we promise"] * (1 + 1e-3)),
            }
            yield line


def in_words(stated: Sequence[Row]) -> str:
    """Return how many certificates can be compared, how many of those agree, and why the others
    cannot.

    Examples
    --------
    >>> same, other = (
    ...     {"agrees": True, "half is caught": True},
    ...     {"mechanism": "objective", "note": "in no tool"},
    ... )
    >>> print(in_words([same, same, other]))  # doctest: +ELLIPSIS
    2 of 3 certificates can be compared: 2 agree to a thousandth, and half of the noise is ...
    """
    compared = [line for line in stated if "agrees" in line]
    agree, caught = (sum(line[key] for line in compared) for key in ("agrees", "half is caught"))
    words = (
        f"{len(compared)} of {len(stated)} certificates can be compared: {agree} agree to a "
        f"thousandth, and half of the noise is caught in {caught}."
    )
    others = Counter((line["mechanism"], line["note"]) for line in stated if "agrees" not in line)
    return " ".join(
        [
            words,
            *(
                f"{count} of {name} perturbation cannot ({note})."
                for (name, note), count in others.items()
            ),
        ]
    )


app = typer.Typer(add_completion=False)


def main(words: list[str]) -> None:
    """Run the command with these words."""
    app(words, prog_name="dpconvex reproduce numbers")


@app.command()
@reports_errors
def numbers(out: Annotated[Path, typer.Option(help="The page.")] = Path("numbers.md")) -> None:
    """Set dp-accounting's and OpenDP's numbers beside ours, for every calibration, and for half
    of the noise.
    """
    from dpconvex_reproduction.fingerprint import made_with
    from dpconvex_reproduction.outputs import check_outputs, write_output
    from dpconvex_reproduction.pages import markdown_table

    check_outputs([out], out.parent)
    basic = list(basic_numbers())
    stated = list(certificate_numbers())
    lines = [
        "# Other accountants' numbers beside ours",
        "",
        made_with(),
        "",
        "dp-accounting composes privacy loss distributions on a grid, rounded upwards; OpenDP "
        "adds up zCDP and converts, which is looser. Both take sensitivities at our word: they "
        "can catch noise that is too small and a wrong composition, not a wrong sensitivity, "
        "which is what the brute-force tests of neighbours are for.",
        "",
        "## Calibrations",
        "",
        *markdown_table(basic),
        "",
        "## Certificates",
        "",
        f"10,000 rows of 5 columns, (1, {DELTA:g}), replace one. {in_words(stated)}",
        "",
        *markdown_table(stated),
        "",
        "Written by `dpconvex reproduce numbers`.",
    ]
    write_output(out, ("\n".join(lines) + "\n").encode())
    output_console().print(f"Written: {out} ({in_words(stated)})", markup=False)
