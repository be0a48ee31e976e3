"""Formulas: the design matrix is that of formulaic on clean rows, and a function of one row and
the schema on all.
"""

from __future__ import annotations

import json

import formulaic
import numpy as np
import pandas as pd
import pytest

from dpconvex import DPLinearRegression, load_model, save_model
from dpconvex.inputs import InputError
from dpconvex.inputs.schema_file import parse_schema, schema_to_dict
from dpconvex.preprocessing import PublicTable

SCHEMA = {
    "features": {
        "wage": [1, 100],
        "educ": [0, 20],
        "exper": {"bounds": [0, 50], "missing": {"value": 10}},
        "income": {"bounds": [1, 1e6], "missing": "indicator"},
        "age": {"bounds": [17, 90], "knots": [30, 50]},
    },
    "categories": {
        "region": ["north", "south", "west"],
        "job": {"values": ["clerk", "driver"], "other": True},
    },
    "flags": {"union": {}},
}
FORMULAS = (
    "wage ~ educ + exper + C(region)",
    'wage ~ C(region, Treatment("south")) + educ',
    "wage ~ educ * C(region) + log(exper + 1)",
    "log(wage) ~ educ + I(educ ** 2) + np.sqrt(exper) + np.log1p(exper)",
    "wage ~ educ + exper + educ:exper + C(job) * C(region)",
)


def clean_rows(n=200):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "wage": rng.uniform(1, 100, n),
            "educ": rng.integers(0, 21, n),
            "exper": rng.uniform(0, 50, n),
            "income": rng.uniform(1, 1e6, n),
            "age": rng.uniform(17, 90, n),
            "region": rng.choice(["north", "south", "west"], n),
            "job": rng.choice(["clerk", "driver"], n),
            "union": rng.choice(["yes", "no"], n),
        }
    )


@pytest.mark.parametrize("formula", FORMULAS)
def test_on_clean_rows_the_columns_are_those_of_formulaic(formula):
    rows = clean_rows()
    table = PublicTable(SCHEMA, formula=formula)
    theirs = formulaic.model_matrix(formula, rows)
    expected = theirs.rhs.drop(columns="Intercept").to_numpy(dtype=float)
    found = table.transform(rows)
    ours = found.loc[:, [name for name in found if "(other)" not in name]].to_numpy()  # nobody is
    np.testing.assert_allclose(np.sort(ours, axis=1), np.sort(expected, axis=1), rtol=1e-12)
    for column in expected.T:  # in another order
        assert min(np.abs(ours - column[:, None]).max(axis=0)) < 1e-9
    np.testing.assert_allclose(table.target(rows), theirs.lhs.to_numpy(dtype=float)[:, 0])


@pytest.mark.parametrize("formula", [*FORMULAS, "income + log(income) + age + union"])
def test_a_row_is_encoded_as_if_it_were_alone_and_stays_in_the_bounds(formula):
    rows = clean_rows(60).astype(object)
    rng = np.random.default_rng(1)
    for name in rows:
        strange = np.array([None, "?", -1e300, 1e300, "1,234", "south ", "nowhere"], dtype=object)
        chosen = rng.random(60) < 0.3
        rows.loc[chosen, name] = rng.choice(strange, chosen.sum())
    table = PublicTable(SCHEMA, formula=formula)
    together = table.transform(rows).to_numpy()
    alone = np.vstack([table.transform(rows.iloc[[k]]).to_numpy() for k in range(60)])
    np.testing.assert_array_equal(together, alone)
    low, high = table.feature_bounds
    valid = ~np.isnan(together).any(axis=1)
    assert valid.any()
    assert (together[valid] >= low).all()
    assert (together[valid] <= high).all()


def test_the_schema_that_formulaic_would_learn_differs_with_one_row():
    """What the rule is for: levels and rows to leave out, taken from the data, change with a
    single record.
    """
    rows = clean_rows()
    neighbour = clean_rows()
    neighbour.loc[0, "region"] = "mars"
    neighbour.loc[1, "exper"] = None
    formula = "wage ~ exper + C(region)"
    assert (
        formulaic.model_matrix(formula, neighbour).rhs.shape
        != formulaic.model_matrix(formula, rows).rhs.shape
    )
    table = PublicTable(SCHEMA, formula=formula)
    same = table.transform(rows).to_numpy() == table.transform(neighbour).to_numpy()
    assert same[2:].all()
    assert not same[:2].all()


@pytest.mark.parametrize(
    ("formula", "part"),
    [
        ("wage ~ bs(educ, df=3)", "calls other functions"),
        ("wage ~ scale(educ)", "calls other functions"),
        ("wage ~ educ.mean()", "has parts other than"),
        ("wage ~ log(educ)", "takes log where the bounds allow"),
        ("wage ~ I(educ * exper)", "has 2 columns"),
        ("wage ~ log(age)", "is no plain number"),
        ("wage ~ C(educ)", "is no category of the schema"),
        ("wage ~ C(region, Sum)", "is another contrast"),
        ('wage ~ C(region, Treatment("mars"))', "compares with a level"),
        ("wage ~ tenure", "names 'tenure', which the schema does not"),
        ("wage ~ educ:exper", "lacks the terms it is made of"),
        ("wage ~ educ * exper * union", "product of more than two"),
        ("wage ~ 0 + educ", "leaves the constant out"),
        ("wage ~ educ | exper", "makes several formulas"),
        ("wage + educ ~ exper", "one of several targets"),
        ("wage ~ wage", "must not be on its right side"),
        ("wage ~ 1", "at least one term"),
        ("wage ~ (educ", "cannot be parsed"),
        ("wage ~ C(region) + region + C(region, Treatment('west'))", "another level of reference"),
    ],
)
def test_what_a_formula_may_not_have(formula, part):
    with pytest.raises(InputError) as caught:
        PublicTable(SCHEMA, formula=formula).fit()
    assert part in str(caught.value)


def test_one_indicator_of_missing_values_serves_all_terms_of_a_column():
    names = PublicTable(SCHEMA, formula="income + log(income)").get_feature_names_out()
    assert list(names) == ["income", "income is missing", "log(income)"]


def test_a_model_of_a_formula_reads_tables_from_its_file(tmp_path):
    rows = clean_rows(2000)
    table = PublicTable(SCHEMA, formula="log(wage) ~ educ * C(region) + I(exper ** 2)")
    schema = table.fit().schema_
    assert parse_schema(json.loads(json.dumps(schema_to_dict(schema)))) == schema
    model = DPLinearRegression(
        feature_bounds=table.feature_bounds,
        row_norm=table.row_norm,
        target_bounds=table.target_bounds,
    )
    model.fit(table.transform(rows), table.target(rows))
    save_model(model, tmp_path / "model.json", schema=schema)
    loaded = load_model(tmp_path / "model.json")
    np.testing.assert_allclose(loaded.predict(rows), model.predict(table.transform(rows)))


def test_names_between_backticks_may_be_any_text():
    schema = {
        "features": {"hourly wage (EUR)": [1, 300], "exper.": [0, 50]},
        "categories": {"kind of job": ["a", "b"]},
    }
    formula = (
        "log(`hourly wage (EUR)`) ~ `exper.` + I(`exper.` ** 2) + C(`kind of job`, Treatment('b'))"
    )
    table = PublicTable(schema, formula=formula)
    assert list(table.get_feature_names_out()) == ["exper.", "I(`exper.` ** 2)", "kind of job=a"]
    found = table.transform({"exper.": [2, 3], "kind of job": ["a", "b"]}).to_numpy()
    np.testing.assert_array_equal(found, [[2, 4, 1], [3, 9, 0]])
