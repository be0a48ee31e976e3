"""The warning that privacy will cost more than columns bring: of every default fit, and monotone
in public facts.
"""

import itertools
import re
import warnings

import numpy as np
import pytest

from dpconvex import (
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPNewsvendor,
    DPQuantileRegressor,
)
from dpconvex.planning.cost_warning import PrivacyCostWarning, warn_of_privacy_cost

EPSILONS = (0.05, 0.2, 1.0, 8.0)
ROWS = (30, 250, 1500, 50_000)
COLUMNS = (1, 8, 120)
NUMBERS = {"feature_bounds": (-1, 1), "target_bounds": (-1, 1)}
LABELS = {"feature_bounds": (-1, 1), "classes": [0, 1]}
MODELS = {
    "mean": (DPLinearRegression, NUMBERS),
    "mean, raw": (DPLinearRegression, {}),
    "mean, a person's five rows": (DPLinearRegression, {**NUMBERS, "rows_per_person": 5}),
    "mean, people by rows": (
        DPLinearRegression,
        {**NUMBERS, "rows_per_person": 5, "person_weight": "rows"},
    ),
    "labels, people": (DPLogisticRegression, {**LABELS, "rows_per_person": 1}),
    "median": (DPQuantileRegressor, NUMBERS),
    "upper quantile": (DPQuantileRegressor, {"quantile": 0.95, **NUMBERS}),
    "levels": (DPQuantileRegressor, {"quantile": (0.1, 0.5, 0.9), **NUMBERS}),
    "products": (DPNewsvendor, {"underage_cost": (1.0, 4.0), **NUMBERS}),
    "labels": (DPLogisticRegression, LABELS),
    "three labels": (DPLogisticRegression, {**LABELS, "classes": [0, 1, 2]}),
    "sides": (DPLinearSVC, LABELS),
}


def words_of(certificate):
    """Return what is said of the cost; None where nothing is."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_privacy_cost(certificate)
    said = [str(item.message) for item in caught if item.category is PrivacyCostWarning]
    assert len(said) <= 1
    return said[0] if said else None


def certificate_of(name, epsilon, rows, columns):
    kind, settings = MODELS[name]
    more = {"n_classes": len(settings["classes"])} if "classes" in settings else {}
    if "people" in name:
        more["groups"] = True
    return kind(epsilon=epsilon, **settings).certify(rows, columns, **more)


@pytest.mark.parametrize("name", MODELS)
def test_budget_and_rows_silence_the_warning_and_columns_do_not(name):
    warned = np.array(
        [
            words_of(certificate_of(name, *facts)) is not None
            for facts in itertools.product(EPSILONS, ROWS, COLUMNS)
        ]
    ).reshape(len(EPSILONS), len(ROWS), len(COLUMNS))
    assert warned[0, 0].all()
    assert not warned[-1, -1].any()
    assert (warned[1:] <= warned[:-1]).all()
    assert (warned[:, 1:] <= warned[:, :-1]).all()
    assert (warned[:, :, :-1] <= warned[:, :, 1:]).all()


@pytest.mark.parametrize("name", MODELS)
def test_what_is_said_to_do_does(name):
    """The rows and the budget that the warning names are enough, each alone."""
    said = words_of(certificate_of(name, 0.5, 100, 8))
    rows = int(re.search(r"About ([\d,]+) (rows|people)", said)[1].replace(",", ""))
    # Of people whose rows count one by one the number of rows is said.
    rows = -(-rows // 5) if "people by rows" in name else rows
    epsilon = float(re.search(r"epsilon of ([\d.e+]+)", said)[1])
    assert words_of(certificate_of(name, 0.5, rows, 8)) is None
    assert words_of(certificate_of(name, epsilon, 100, 8)) is None


@pytest.mark.parametrize("name", ["mean", "median", "labels"])
def test_a_person_with_several_rows_is_one_record_in_the_plan_of_a_fit(name):
    """With five rows each and one promise to all of them, people weigh what as many single
    records weigh.
    """
    kind, settings = MODELS[name]
    several = kind(rows_per_person=5, person_weight="rows", **settings).certify(
        409, 17, groups=True
    )
    single = kind(**settings).certify(409, 17)
    assert words_of(single) is not None
    assert words_of(several) is not None
    found, wanted = (
        each.parameters["fit"]["records_per_coefficient"] for each in (several, single)
    )
    assert found == pytest.approx(wanted, rel=1e-3)


def test_linear_fits_are_announced_too():
    X = np.random.default_rng(0).random((60, 8))
    model = DPLinearRegression(epsilon=0.2, feature_bounds=(0, 1), target_bounds=(0, 1))
    with pytest.warns(PrivacyCostWarning, match="8 columns can bring at 60 rows"):
        model.fit(X, X[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        large = np.random.default_rng(0).random((20_000, 2))
        DPLinearRegression(feature_bounds=(0, 1), target_bounds=(0, 1)).fit(large, large[:, 0])
