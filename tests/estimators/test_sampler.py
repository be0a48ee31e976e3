"""Where a fit's noise is drawn: by our gate, or by opendp throughout."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from all_fits import ALL, training_data

from dpconvex.core import noise_source, normal_and_laplace
from dpconvex.core.noise_source import EXACT
from dpconvex.privacy import Ledger


@pytest.mark.parametrize("name", ALL)
def test_opendp_draws_all_gaussian_noise_where_it_is_asked_to(name, monkeypatch):
    X, y = training_data(name)
    model = ALL[name]().set_params(sampler="exact")
    if model.get_params().get("mechanism") == "sgd" or "sgd" in name.split():
        with pytest.raises(ValueError, match="'sampler' parameter"):
            model.fit(X, y)
        return

    def ours(*arguments):
        raise AssertionError("a Gaussian number was drawn by our own sampler")

    monkeypatch.setattr(normal_and_laplace, "rounded_normals", ours)
    model.fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.certificate_.sampler == EXACT


@pytest.mark.parametrize("installed", ["0.14.1", "0.14.0", "0.9.2"])
def test_biased_samplers_are_refused_before_the_charge(installed, monkeypatch, tmp_path):
    X, y = training_data("DPQuantileRegressor gradient")
    ledger = Ledger(tmp_path / "ledger.db", epsilon=10.0, delta=1e-3)
    model = ALL["DPQuantileRegressor gradient"]().set_params(sampler="exact", ledger=ledger)
    monkeypatch.setattr(noise_source, "version", lambda name: installed)
    with pytest.raises(ValueError, match=r"needs opendp 0\.14\.2 or later"):
        model.fit(X, y)
    assert not list(ledger.entries())


def test_no_biased_sampler_may_be_installed():
    """All lists of what dpconvex needs ask for a version whose noise is that of its law."""
    wanted = "opendp>=" + ".".join(map(str, noise_source._UNBIASED_OPENDP))
    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert wanted in project["dependencies"]
    assert wanted in (root / "conda" / "recipe.yaml").read_text().replace(" ", "")


def test_unknown_samplers_are_refused_before_the_charge():
    X, y = training_data("DPQuantileRegressor gradient")
    model = ALL["DPQuantileRegressor gradient"]().set_params(sampler="fast")
    with pytest.raises(ValueError, match="must be one of"):
        model.fit(X, y)
