"""Where a fit's noise is drawn: by our gate, or by opendp throughout."""

import numpy as np
import pytest
from all_fits import ALL, training_data

from dpconvex.core import normal_and_laplace
from dpconvex.core.noise_source import EXACT


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


def test_unknown_samplers_are_refused_before_the_charge():
    X, y = training_data("DPQuantileRegressor gradient")
    model = ALL["DPQuantileRegressor gradient"]().set_params(sampler="fast")
    with pytest.raises(ValueError, match="must be one of"):
        model.fit(X, y)
