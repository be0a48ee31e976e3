"""What a run uses is what its certificate states: the settings that were decided and those that are
read from the certificate are equal, for every estimator with every mechanism it offers.
"""

from __future__ import annotations

import numpy as np
import pytest
from all_fits import ALL, training_data

from dpconvex import (
    DPBowl,
    DPLogisticRegression,
    DPNewsvendor,
    DPQuantileRegressor,
)
from dpconvex.inputs.people_and_weights import PersonUnit
from dpconvex.mechanisms import (
    NoisyGradientDescent,
    NoisySGD,
    OutputPerturbation,
)
from dpconvex.privacy import Certificate
from dpconvex.smoothing import GaussianKernel

TARGET = {"feature_bounds": (-1, 1), "target_bounds": (-2, 2)}
MORE = {
    "raw": lambda: DPQuantileRegressor(),
    "bandwidth, kernel, curves": lambda: DPQuantileRegressor(
        kernel=GaussianKernel(), bandwidth=np.float32(0.3), smooth=[(0, 3, 0.5)], **TARGET
    ),
    "products": lambda: DPNewsvendor((1.0, 3.0), **TARGET),
    "three classes": lambda: DPLogisticRegression(classes=[0, 1, 2], feature_bounds=(-1, 1)),
    "plain": lambda: DPQuantileRegressor(
        mechanism=NoisyGradientDescent(
            steps=np.int64(3),
            covariance=np.eye(5) + 0.1,
            truncation=np.float32(2.1),
            start=np.arange(5),
            step_size=0.3,
        ),
        bandwidth=1.0,
        **TARGET,
    ),
    "published": lambda: DPQuantileRegressor(
        mechanism=NoisySGD(100**2, noise="published"), **TARGET
    ),
    "gap and radius": lambda: DPQuantileRegressor(
        mechanism=OutputPerturbation(gap=np.float32(1e-3), radius=np.float32(2.1)), **TARGET
    ),
}


def decision_of(name):
    if name in MORE:
        model = MORE[name]()
        classes = {"three classes": (3,), "products": (2,)}.get(name, ())
        return model._plan(PersonUnit(100), 4, *classes)
    model = ALL[name]()
    X, y = training_data(name, 24, 2)
    _, _, shape = model._read(X, (y, 0.0) if isinstance(model, DPBowl) else y)
    return model._plan(PersonUnit(shape[0]), *shape[1:])


@pytest.mark.parametrize("name", [*ALL, *MORE])
def test_the_certificate_states_the_settings_of_the_run(name):
    decision = decision_of(name)
    mechanism = decision.mechanism
    assert mechanism.stated_settings(decision.certificate) == decision.settings
    read = Certificate.from_json(decision.certificate.to_json())
    assert mechanism.stated_settings(read) == decision.settings
    assert decision.certificate.mechanism == mechanism.name


def test_a_difference_would_be_seen():
    """Settings are compared by value, and not all of them are empty."""
    found = {name: decision_of(name).settings for name in MORE}
    assert None not in found.values()
    kinds = {type(settings).__name__ for settings in found.values()}
    assert kinds == {
        "OutputSettings",
        "PlainDescentSettings",
        "PrivateFitSettings",
        "SGDSettings",
    }
    assert found["raw"] != found["three classes"]
