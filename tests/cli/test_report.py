"""Reports: right in what they say, complete on their own, and shown by a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from html import unescape

import numpy as np
import pytest
from html_pages import problems

import dpconvex
from dpconvex.privacy import CertificateError, GaussianDP, Ledger
from dpconvex.reports import render_report, write_report
from dpconvex.reports.coefficients_and_forecasts import (
    attacker_limits,
    coefficient_uncertainty,
    forecast_model,
)
from dpconvex.reports.studio_pages import studio_ledger_timeline
from dpconvex.reports.summary import model_summary_card

BOUNDS = {"feature_bounds": ([0.0, 10.0], [4.0, 30.0])}
REGRESSION = {**BOUNDS, "target_bounds": (0.0, 50.0)}


def sample(rows=300):
    rng = np.random.default_rng(3)
    X = rng.uniform([0, 10], [4, 30], (rows, 2))
    return X, X @ [2.0, 1.0] + rng.normal(size=rows)


def models():
    X, y = sample()
    labels = np.digitize(y, [20.0, 26.0])
    return {
        "gradient": dpconvex.DPNewsvendor(3.0, 1.0, **REGRESSION).fit(X, y),
        "output": dpconvex.DPQuantileRegressor(mechanism="output", **REGRESSION).fit(X, y),
        "objective": dpconvex.DPQuantileRegressor(delta=0, **REGRESSION, mechanism="objective").fit(
            X, y
        ),
        "gaussian": dpconvex.DPLogisticRegression(mu=0.5, **BOUNDS).fit(X, labels),
        "svm": dpconvex.DPLinearSVC(epsilon=40.0, **BOUNDS).fit(X, labels > 0),
        "auc": dpconvex.DPAUCClassifier(**BOUNDS).fit(X, labels > 0),
        "bounded": dpconvex.DPLinearSVC(mechanism="output", coef_bound=1.0, **BOUNDS).fit(
            X, labels > 0
        ),
        "tilted": dpconvex.DPTiltedRegressor(**REGRESSION).fit(X, y),
        "unbounded": dpconvex.DPQuantileRegressor(fit_intercept=False).fit(X / 100, y / 100),
        "intervals": dpconvex.DPQuantileRegressor(mu=2.0, inference=True, **REGRESSION).fit(X, y),
        "intervals of classes": dpconvex.DPLogisticRegression(mu=4.0, inference=True, **BOUNDS).fit(
            X, labels
        ),
        "nominal": dpconvex.DPQuantileRegressor(
            neighbors="add_or_remove_one", nominal_samples=300, **REGRESSION
        ).fit(X, y),
    }


def words(page):
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", page)))


def test_every_kind_of_model_has_a_page_that_stands_alone(tmp_path):
    for name, model in models().items():
        path = write_report(model, tmp_path / f"{name}.html")
        assert problems(path) == [], name
        text = words(path.read_text())
        for heading in ("What an attacker can learn", "What was released", "The certificate"):
            assert heading in text, name
        for value in np.ravel(model.coef_):
            assert f"{value:.6g}" in text, name
        intervals = name.startswith("intervals")
        assert ("95 % interval" in text) is intervals
        assert ("Coefficients with intervals" in text) is (name == "intervals")
        if intervals:
            low, high = model.confidence_interval().reshape(-1, 2)[-1]
            assert f"{low:.4g} to {high:.4g}" in text
            assert f"{low:.4g} {high:.4g}" in " ".join(repr(model.summary()).split())
            assert ("95 % intervals" in model._repr_html_()) is (name == "intervals")
        assert model.certificate_.theorem in text
        assert "None" not in text.split("The certificate as JSON")[0], name


def test_the_page_names_what_it_does_not_know():
    found = {name: words(render_report(model)) for name, model in models().items()}
    assert "standard deviation" in found["output"]
    assert "bounds the root mean square" in found["objective"]
    assert "depends on the data and was not released" in found["gradient"]
    assert "one record had been left out" in found["nominal"]
    assert "set of labels (assumed public)" in found["svm"]
    assert "before the noisy coefficients were bounded" in found["bounded"]
    assert "before the noisy coefficients were bounded" not in found["output"]


def test_numbers_of_the_attacker():
    guarantee = GaussianDP(1.0)
    found = attacker_limits(guarantee)
    # Telling N(0, 1) from N(1, 1) at even odds: right with probability Phi(1/2).
    assert found.accuracy == pytest.approx(0.6914625, abs=1e-6)
    assert dict(found.rates)[0.05] == pytest.approx(0.2595, abs=1e-4)


def test_stated_noise_is_the_noise():
    # 150 fits, 6 numbers: an estimated standard deviation errs by 6 %, so 35 % off has a chance
    # below 1e-6.
    X, y = sample(40)
    for delta in (1e-6, 0):
        fits = [
            dpconvex.DPQuantileRegressor(
                mechanism="output", alpha=1.0, delta=delta, random_state=seed, **REGRESSION
            ).fit(X, y)
            for seed in range(150)
        ]
        spread = coefficient_uncertainty(fits[0])
        assert spread.exact
        seen = np.std([[fit.intercept_, *fit.coef_] for fit in fits], axis=0)
        np.testing.assert_allclose(seen, [spread.intercept, *spread.coef], rtol=0.35)


def test_bound_for_objective_perturbation_holds():
    X, y = sample(40)
    fits = [
        dpconvex.DPQuantileRegressor(
            mechanism="objective", alpha=1.0, bandwidth=20.0, random_state=seed, **REGRESSION
        ).fit(X, y)
        for seed in range(100)
    ]
    spread = coefficient_uncertainty(fits[0])
    assert not spread.exact
    seen = np.std([[fit.intercept_, *fit.coef_] for fit in fits], axis=0)
    # Far from tight: the bound holds for all data, so it is checked without a margin.
    assert (seen < [spread.intercept, *spread.coef]).all()
    assert (seen > 0.02 * np.array([spread.intercept, *spread.coef])).all()


def test_predictions_fall_with_the_budget_and_contain_it():
    found = models()
    for name, budget in (("gradient", "epsilon"), ("objective", "epsilon"), ("nominal", "epsilon")):
        ahead = forecast_model(found[name])
        risks = dict(ahead.points)
        assert ahead.budget == budget
        assert ahead.own in risks
        assert risks[0.1] > risks[1.0] > risks[10.0] > 0
        assert "Accuracy against epsilon" in render_report(found[name])
    for name in ("gaussian", "svm", "tilted"):  # three classes, and tasks without predictions
        assert forecast_model(found[name]) is None
        assert "Accuracy against" not in render_report(found[name])
    X, y = sample()
    two = dpconvex.DPLogisticRegression(mu=0.5, **BOUNDS).fit(X, y > 23)
    assert forecast_model(two).budget == "mu"
    assert "Accuracy against mu" in render_report(two)


def test_seeded_models_are_called_not_private():
    X, y = sample(50)
    model = dpconvex.DPQuantileRegressor(random_state=0, **REGRESSION).fit(X, y)
    assert "Not private." in words(render_report(model))


def test_names_are_escaped(tmp_path):
    import pandas as pd

    X, y = sample(50)
    table = pd.DataFrame(X, columns=["<script>alert(1)</script>", "a & b"])
    model = dpconvex.DPQuantileRegressor(**REGRESSION).fit(table, y)
    path = write_report(model, tmp_path / "report.html")
    assert problems(path) == []
    assert "<script>alert(1)</script>" in words(path.read_text())


def test_nothing_on_a_page_turns_the_direction_of_writing_round(tmp_path):
    """A column's name could make the promise beside it read backwards, or hide what follows."""
    import pandas as pd

    from dpconvex.reports.release_file import ReleaseFileFacts

    X, y = sample(50)
    odd = "a\u202e\u2066\x1b\x9b\u200eb"
    table = pd.DataFrame(X, columns=[odd, "\u0628\u200c\u0628"])  # letters that are kept apart
    ledger = Ledger(tmp_path / "privacy.db", dataset=odd, epsilon=2.0)
    ledger.charge(GaussianDP(0.1), description=odd, mechanism=odd)
    model = dpconvex.DPQuantileRegressor(ledger=ledger, **REGRESSION).fit(table, y)
    page = render_report(model, ledger, ReleaseFileFacts(name=odd, purpose=f"first\n{odd}"))
    for text in (page, model_summary_card(model), studio_ledger_timeline(ledger)):
        assert not set("\u202e\u2066\x1b\x9b\u200e") & set(text)
        assert r"\u202e" in text
    assert "\u0628\u200c\u0628" in page


def test_no_report_on_a_false_claim():
    model = models()["output"]
    object.__setattr__(model.certificate_, "guarantee", GaussianDP(0.001))
    with pytest.raises(CertificateError):
        render_report(model)


def test_the_ledger_is_shown(tmp_path):
    ledger = Ledger(tmp_path / "privacy.db", epsilon=2.0, delta=1e-5)
    X, y = sample(50)
    model = dpconvex.DPQuantileRegressor(ledger=ledger, **REGRESSION).fit(X, y)
    text = words(render_report(model))
    assert "The budget of the data" in text
    assert "DPQuantileRegressor.fit" in text


def test_fit_and_report_commands_agree(folder):
    first = folder / "fit.html"
    second = folder / "report.html"
    result = folder.fit("--quantile", 0.9, "--report", first)
    assert result.exit_code == 0, result.output
    assert "Report written to" in result.stdout
    result = folder.run("report", "model.json", "--out", second)
    assert result.exit_code == 0, result.output
    pages = [words(path.read_text()) for path in (first, second)]
    assert problems(first) == problems(second) == []
    stamp = r"Written by dpconvex .*? UTC"
    assert re.sub(stamp, "", pages[0]) == re.sub(stamp, "", pages[1])
    assert "city=paris" in pages[0]


def test_report_command_shows_the_ledger(fitted):
    assert fitted.run("ledger", "init", "privacy.db", "--epsilon", 3).exit_code == 0
    result = fitted.run("report", "model.json", "--out", "r.html", "--ledger", "privacy.db")
    assert result.exit_code == 0, result.output
    assert "The budget of the data" in words((fitted / "r.html").read_text())


def test_a_report_that_cannot_be_written_costs_nothing(folder):
    assert folder.run("ledger", "init", "privacy.db", "--epsilon", 1).exit_code == 0
    result = folder.fit("--ledger", "privacy.db", "--report", folder / "none" / "report.html")
    assert result.exit_code == 2
    assert "The report cannot be written" in result.stderr
    assert Ledger(folder / "privacy.db").entries() == []


def test_no_report_on_an_edited_model(fitted):
    path = fitted / "model.json"
    path.write_text(path.read_text().replace('"epsilon": 1.0', '"epsilon": 0.1'))
    result = fitted.run("report", "model.json", "--out", fitted / "report.html")
    assert result.exit_code == 4
    assert not (fitted / "report.html").exists()


BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.mark.skipif(BROWSER is None, reason="no headless browser is installed (Debian: chromium)")
def test_a_browser_shows_the_page_without_asking_the_network(tmp_path):
    from PIL import Image

    page = write_report(models()["output"], tmp_path / "report.html")
    picture = tmp_path / "report.png"
    subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--proxy-server=127.0.0.1:9",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=900,3000",
            f"--screenshot={picture}",
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    pixels = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    assert pixels.shape[1] == 900
    # The blue of the curve and bars, and ink of text in the upper and in the lower half.
    blue = np.abs(pixels - [0x1A, 0x5F, 0xB4]).max(axis=2) < 12
    dark = pixels.max(axis=2) < 80
    assert blue.sum() > 2000
    assert dark[:1500].sum() > 5000
    assert dark[1500:].sum() > 2000


def test_what_is_wider_than_a_narrow_page_says_so(fitted):
    """Tables scroll inside a frame with a shadow at its edge; pictures are as wide as the page."""
    fitted.run("report", "model.json", "--out", "page.html")
    page = (fitted / "page.html").read_text()
    figures = page.split("<figure>")[1:]
    assert figures
    for figure in figures:
        assert figure.startswith("<svg")
    assert page.count('class="scroll"') == page.count('class="scroll" tabindex="0"')
    assert "background-attachment: local" in page
