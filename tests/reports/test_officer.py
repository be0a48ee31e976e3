"""What an officer reads: every question answered or named as open, in the user's words, and a
registry entry.
"""

from __future__ import annotations

import re
from html import unescape

import numpy as np
import pandas as pd
import pytest

import dpconvex
from dpconvex.inputs import InputError
from dpconvex.planning import plan
from dpconvex.privacy import ApproxDP, GaussianDP, Ledger
from dpconvex.reports import render_report
from dpconvex.reports.charts import accuracy_chart, standalone_svg
from dpconvex.reports.coefficients_and_forecasts import forecast_accuracy, gaussian_guarantee
from dpconvex.reports.nist_registry import YOURS, nist_answers, registry_entry, write_registry_entry
from dpconvex.reports.release_file import (
    FIELDS,
    ReleaseFileFacts,
    parse_release_file,
    read_release_file,
)
from dpconvex.reports.wording import unit_name_wording

RELEASE = ReleaseFileFacts(**{name: f"answer about {name}" for name in FIELDS if name != "unit"})


def fitted(**options):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(0, 1, (300, 2)), columns=["price", "<weekday>"])
    model = dpconvex.DPNewsvendor(3.0, 1.0, feature_bounds=(0, 1), target_bounds=(0, 2), **options)
    return model.fit(X, X.sum(axis=1))


def words(page):
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", page)))


def test_missing_answers_are_shown_as_missing_and_given_ones_as_given():
    model = fitted()
    text = words(render_report(model))
    assert text.count(" missing ") >= len(FIELDS) - 2
    assert "No ledger was given to this report." in text
    text = words(render_report(model, release=RELEASE))
    assert " missing " not in text
    for name in FIELDS:
        assert name == "unit" or f"answer about {name}" in text
    assert "price, <weekday>" in text
    assert "null" not in text.split("The certificate as JSON")[0]


def test_the_sharper_promise_is_shown_beside_the_claim():
    model = fitted(epsilon=1.0)
    mu = gaussian_guarantee(model.certificate_).mu
    assert GaussianDP(mu).delta(1.0) == pytest.approx(1e-6, rel=0.01)
    text = words(render_report(model))
    assert "73.1 %" in text
    assert f"{100 * (1 + GaussianDP(mu).delta(0.0)) / 2:.1f} %" in text
    gaussian = fitted(mu=0.5)
    assert gaussian_guarantee(gaussian.certificate_) is None
    assert "by the mechanism itself" not in words(render_report(gaussian))


def test_the_ledger_takes_the_place_of_the_red_box(tmp_path):
    ledger = Ledger(tmp_path / "privacy.db", epsilon=2.0, delta=1e-5)
    text = words(render_report(fitted(ledger=ledger)))
    assert "No ledger was given" not in text
    assert "Everything that was charged to it" in text


def test_the_unit_is_in_the_users_word():
    certificate = fitted().certificate_
    assert unit_name_wording(certificate, ReleaseFileFacts()) == "record"
    assert unit_name_wording(certificate, ReleaseFileFacts(unit="patient")) == "row of a patient"


def test_every_question_of_nist_is_answered_or_named_as_yours():
    certificate = fitted().certificate_
    found = nist_answers(certificate, ReleaseFileFacts(), has_ledger=False)
    assert {item.layer for item in found} == {
        "Guarantee",
        "Algorithms and utility",
        "Implementation",
        "Trust and security",
        "Data collection",
    }
    assert all(item.answer.strip() for item in found)
    opened = {item.question for item in found if item.open}
    answered = {item.question for item in nist_answers(certificate, RELEASE, True) if item.open}
    assert answered < opened
    assert any(item.answer.startswith(YOURS) for item in found)
    loose = dpconvex.DPLogisticRegression(epsilon=1.0, delta=0.03).certify(50, 2)
    hazard = {item.question: item.answer for item in nist_answers(loose, RELEASE, True)}
    assert "not smaller than that" in hazard["Hazard: a large delta"]


# The registry's fields, from its public description.
DEPLOYMENT = {
    "name",
    "data_curator",
    "intended_use",
    "data_product_type",
    "data_product_region",
    "description",
    "publication_date",
    "data_product_sector",
    "dp_flavor",
    "privacy_loss",
    "model",
    "accounting",
    "implementation",
    "additional_information",
}
INNER = {
    "dp_flavor": {
        "name",
        "input_metric",
        "bound_on_input_distance",
        "output_measure",
        "data_domain",
        "unprotected_quantities",
    },
    "privacy_loss": {
        "privacy_unit",
        "privacy_unit_description",
        "privacy_parameters",
        "privacy_parameters_description",
    },
    "model": {
        "model_name",
        "model_name_description",
        "actors",
        "release_type",
        "release_type_description",
        "data_source_type",
        "data_source_type_description",
        "access_type",
        "access_type_description",
    },
    "accounting": {"post_processing", "composition"},
    "implementation": {"pre_processing_eda_hyperparameter_tuning", "mechanisms", "justification"},
}


@pytest.mark.parametrize(
    "sign",
    [
        "\x7f",
        "\x80",
        "\x85",
        "\x9b",
        "\x1b",
        "\0",
        "\ufffe",
        "\uffff",
        "\u2028",
        "\ufeff",
        "\U0001f600",
        "é",
        "\n",
    ],
)
def test_a_registry_entry_is_yaml_whatever_its_publisher_writes(tmp_path, sign):
    """U+007F, U+009B and U+FFFE may not stand in YAML: the entry was written, and nobody could
    read it.
    """
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with Dask")
    release = ReleaseFileFacts(name=f"a{sign}b", author=f"{sign}")
    path = write_registry_entry(fitted(), tmp_path / "entry.yaml", release)
    read = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert read["deployment"]["name"] == f"a{sign}b"
    assert read["registry_authors"] == [sign]


def test_the_registry_entry_has_the_registrys_fields(tmp_path):
    entry = registry_entry(fitted(mu=0.5), RELEASE)
    assert set(entry) == {"status", "registry_authors", "tier", "deployment"}
    deployment = entry["deployment"]
    assert set(deployment) == DEPLOYMENT
    for name, inner in INNER.items():
        assert set(deployment[name]) == inner
    assert entry["tier"] == 3
    assert registry_entry(fitted())["tier"] == 1
    assert deployment["privacy_loss"]["privacy_parameters"] == {"rho": 0.125, "mu": 0.5}
    parameters = registry_entry(fitted(epsilon=2.0))["deployment"]["privacy_loss"][
        "privacy_parameters"
    ]
    assert parameters == {"epsilon": 2.0, "delta": 1e-6}
    path = write_registry_entry(
        fitted(), tmp_path / "entry.yaml", ReleaseFileFacts(name='a "b": #c')
    )
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with Dask")
    read = yaml.safe_load(path.read_text())
    assert read["deployment"]["name"] == 'a "b": #c'
    assert read["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"] == 1.0


def test_release_files_are_checked_without_quoting_them(tmp_path):
    path = tmp_path / "release.toml"
    path.write_text('[release]\nname = "Demand"\npublished = 2026-11-16\n')
    assert read_release_file(path) == ReleaseFileFacts(name="Demand", published="2026-11-16")
    for content in (
        'secret = "value 17"',
        "name = 3",
        "name =",
        "[release]\nname='a'\n[other]\nb=1",
        "name = '%s'" % ("x" * 3000),
    ):
        path.write_text(content)
        with pytest.raises(InputError) as caught:
            read_release_file(path)
        assert "17" not in str(caught.value)
    with pytest.raises(InputError):
        parse_release_file({"release": 3})


def test_notebooks_show_cards():
    model = fitted()
    card = model._repr_mimebundle_()["text/html"]
    assert "right at most" in card
    assert "&lt;weekday&gt;" in card
    assert "<weekday>" not in card
    assert "Privacy certificate" in model.certificate_._repr_html_()
    assert "DPNewsvendor" in dpconvex.DPNewsvendor()._repr_mimebundle_()["text/html"]


def test_a_forecast_is_drawn():
    ahead = forecast_accuracy(plan("quantile", 10_000, 5, ApproxDP(1.0, 1e-6), wanted=0.05))
    assert 1.0 in dict(ahead.points)
    drawn = standalone_svg(accuracy_chart(ahead))
    assert drawn.count("<polyline") == 3
    assert "Accuracy against epsilon" in drawn
