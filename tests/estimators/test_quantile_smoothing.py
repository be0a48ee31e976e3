"""Quantile fits with a Moreau envelope, with a kernel of one's own, and with kernels by name."""

import numpy as np
import pytest

from dpconvex import DPNewsvendor, DPQuantileRegressor, load_model, save_model
from dpconvex.losses import Pinball
from dpconvex.smoothing import GaussianKernel, MixtureKernel, moreau

HEAVY = MixtureKernel((GaussianKernel(), GaussianKernel()), (0.8, 0.2), (0.7, 3.0))


def problem(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, X @ [1.0, -0.5] + rng.normal(size=n) * 0.3


BOUNDS = {"feature_bounds": (-1, 1), "target_bounds": (-3, 3), "random_state": 0}


@pytest.mark.parametrize("mechanism", ["objective", "output", "sgd", "phased-erm", "phased-sgd"])
@pytest.mark.parametrize("bandwidth", [None, 0.5])
def test_an_envelope_of_the_same_curvature(mechanism, bandwidth, tmp_path):
    X, y = problem()
    settings = {**BOUNDS, "mechanism": mechanism, "bandwidth": bandwidth, "alpha": 0.05}
    plain = DPQuantileRegressor(0.7, **settings).certify(400, 2)
    model = DPQuantileRegressor(0.7, smoothing="moreau", **settings).fit(X, y)
    certificate = model.certificate_
    certificate.verify()
    loss = certificate.bounds.loss
    if hasattr(plain.bounds.loss, "bandwidth"):
        assert loss == moreau(Pinball(0.7), plain.bounds.loss.smoothness)
        u = np.linspace(-3, 3, 301)
        assert (loss.value(u, 0.0) <= Pinball(0.7).value(u, 0.0) + 1e-12).all()
    else:
        assert loss == plain.bounds.loss
    # A wide kernel pushes quantiles away from the median, so that convolution may aim at another
    # level.
    same = getattr(plain.bounds.loss, "loss", Pinball(0.7)) == Pinball(0.7)
    for name, term in certificate.noise.items() if same else ():
        assert term.scale == pytest.approx(plain.noise[name].scale, rel=1e-6)
    save_model(model, tmp_path / "model.json")
    assert load_model(tmp_path / "model.json").certificate_ == certificate


def test_kernels_of_ones_own_and_by_name(tmp_path):
    X, y = problem()
    for kernel in (HEAVY, "exponential"):
        model = DPNewsvendor(3.0, 1.0, kernel=kernel, mechanism="objective", **BOUNDS).fit(X, y)
        model.certificate_.verify()
        save_model(model, tmp_path / "model.json")
        assert load_model(tmp_path / "model.json").certificate_ == model.certificate_


def test_refusals():
    with pytest.raises(ValueError, match="'smoothing'"):
        DPQuantileRegressor(smoothing="none").certify(400, 2)
    with pytest.raises(ValueError, match="convolved slopes"):
        DPQuantileRegressor(smoothing="moreau", mechanism="gradient").certify(400, 2)
