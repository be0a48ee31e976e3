"""A default fit plans once, and hands the plan on."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import dpconvex
from dpconvex import DPLinearRegression, DPLogisticRegression, DPQuantileRegressor
from dpconvex.reports import write_report

SOURCE = Path(dpconvex.__file__).parent
PLANNED = ("fit/fit_plan.py", "plan_fit")
NAMELESS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>"}


def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 3))
    return X, X @ [1.0, 0.5, -0.2] + 0.1 * rng.standard_normal(2000)


def entered(run):
    """Return how often each function of the package is entered; what has no name of its own is
    part of its function.
    """
    found = Counter()

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE) and frame.f_code.co_name not in NAMELESS:
            found[
                path.relative_to(SOURCE).as_posix(),
                frame.f_code.co_qualname,
                frame.f_code.co_firstlineno,
            ] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return found


def times_planned(found):
    return sum(times for (path, name, _), times in found.items() if (path, name) == PLANNED)


def fit(kind=DPQuantileRegressor):
    X, y = table()
    if kind is DPLogisticRegression:
        return kind(feature_bounds=(-1, 1), classes=[False, True]).fit(X, y > 0)
    return kind(feature_bounds=(-1, 1), target_bounds=(-2, 2)).fit(X, y)


@pytest.mark.parametrize("kind", [DPQuantileRegressor, DPLogisticRegression, DPLinearRegression])
def test_a_fit_plans_once_and_hands_the_plan_on(kind, tmp_path):
    assert times_planned(entered(lambda: fit(kind))) == 1
    model = fit(kind)
    assert times_planned(entered(model.summary)) == 0
    assert times_planned(entered(lambda: model.certify(2000, 3))) == 1


def test_a_report_forecasts_each_budget_once(tmp_path):
    """Seven budgets and the model's own are drawn, of which one coincides with it."""
    model = fit()
    assert times_planned(entered(lambda: write_report(model, tmp_path / "report.html"))) == 7
