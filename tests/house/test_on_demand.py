"""Names that load on demand are all there, and a certificate finds the module that proves it
when nobody loaded it.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import numpy as np
import pytest

import dpconvex
from dpconvex import (
    DPAUCClassifier,
    DPLinearRegression,
    DPLogisticRegression,
    DPMedian,
    DPNewsvendor,
    save_model,
)
from dpconvex.core.mechanism_rules import known_mechanisms
from dpconvex.losses import Absolute
from dpconvex.mechanisms import ExponentialMechanism, NoisyGradientDescent
from dpconvex.privacy import LinearBounds, PureDP

ROOMS = ["dpconvex"] + [
    f"dpconvex.{name}"
    for name in (
        "planning",
        "estimators",
        "mechanisms",
        "objectives",
        "privacy",
        "smoothing",
        "reports",
    )
]


def fresh(code: str, *words: str) -> str:
    """Return what a process prints that has loaded nothing of ours before."""
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_is_there(room):
    package = import_module(room)
    for module in iter_modules(package.__path__):
        if module.name != "__main__":
            import_module(f"{room}.{module.name}")
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:  # of which none was replaced by a module that is named like it
        assert not isinstance(getattr(package, name), ModuleType), name
    found: dict[str, object] = {}
    exec(f"from {room} import *", found)
    assert set(package.__all__) <= set(found)
    with pytest.raises(AttributeError, match=f"module '{room}' has no attribute 'Nobody'"):
        package.Nobody  # noqa: B018


def test_rooms_are_found_and_names_seen_before_they_are_loaded():
    code = "import dpconvex; print('DPBowl' in dir(dpconvex), dpconvex.privacy.Ledger.__name__)"
    assert fresh(code).split() == ["True", "Ledger"]
    assert dpconvex.privacy.Ledger is import_module("dpconvex.privacy.ledger").Ledger


def test_an_estimator_loads_no_other_and_no_words():
    code = "import sys\nfrom dpconvex import DPLogisticRegression\nprint(*sys.modules)"
    loaded = set(fresh(code).split())
    assert "dpconvex.estimators.classification" in loaded
    others = {
        "quantile_and_newsvendor",
        "ranking",
        "structured",
        "survival",
        "tilted_and_robust",
        "tweedie",
    }
    assert {f"dpconvex.estimators.{name}" for name in others} & loaded == set()
    words = ("dpconvex.reports", "dpconvex.models.model_file")
    assert [name for name in loaded if name.startswith(words)] == []


# All files in one process, which forgets our modules before each, and keeps them compiled.
JUDGE = """
import sys
import sklearn.base, typer

way, sys.pycache_prefix, *paths = sys.argv[1:]
sys.dont_write_bytecode = False
for path in paths:
    for name in [name for name in sys.modules if name.partition(".")[0] == "dpconvex"]:
        del sys.modules[name]
    if way == "Certificate":
        from dpconvex.privacy import Certificate
        Certificate.from_json(open(path).read()).verify()
    elif way == "load_model":
        from dpconvex import load_model
        load_model(path).certificate_.verify()
    else:
        from dpconvex.cli import main
        try:
            main(["verify", path])
        except SystemExit as ended:
            assert not ended.code, path
print(len(paths), "judged")
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the paths of certificates and of models, by mechanism."""
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
    y = X[:, 0]
    labels = (X[:, 0] > 0).astype(int)
    known = {"feature_bounds": (-1, 1), "random_state": 0}
    named = {"classes": [0, 1], **known}
    plain = NoisyGradientDescent(steps=15, step_size=1.0, average=False)
    models = [
        DPLogisticRegression(inference=True, **named).fit(X, labels),
        DPLinearRegression(target_bounds=(-1, 1), **known).fit(X, y),
        DPAUCClassifier(mechanism="objective", **named).fit(X, labels),
        DPAUCClassifier(loss="squared", **named).fit(X, labels),
        DPNewsvendor(
            3.0, 1.0, mu=2.0, target_bounds=(-1, 1), bandwidth=1.0, mechanism=plain, **known
        ).fit(X, y),
    ]
    for name in ("objective", "output", "gradient", "sgd", "phased-erm", "phased-sgd"):
        models.append(DPLogisticRegression(mechanism=name, **named).fit(X, labels))
    grid = LinearBounds(1000, 1, Absolute(), row_norm=1.0, max_norm=1.0)
    lone = [
        ExponentialMechanism(points=101).certify(grid, PureDP(1.0)),
        DPMedian(operator_norm=4.0, mechanism="gradient").certify(1000, n_features=5, n_outputs=3),
    ]
    folder = tmp_path_factory.mktemp("files")
    certificates = {}
    saved = {}
    for certificate in (*lone, *(model.certificate_ for model in models)):
        path = folder / f"certificate-{certificate.mechanism}.json"
        path.write_text(certificate.to_json())
        certificates[certificate.mechanism] = str(path)
    for model in models:
        path = folder / f"model-{model.certificate_.mechanism}.json"
        save_model(model, path)
        saved[model.certificate_.mechanism] = str(path)
    return certificates, saved


def test_certificates_of_all_mechanisms_find_their_provers(files, tmp_path):
    certificates, models = files
    assert sorted(certificates) == known_mechanisms()
    assert set(known_mechanisms()) - set(models) == {
        "exponential",
        "structured-gradient",
    }  # no models have them
    for way, paths in (
        ("Certificate", certificates),
        ("load_model", models),
        ("verify", certificates),
    ):
        said = fresh(JUDGE, way, str(tmp_path), *paths.values())
        assert said.endswith(f"{len(paths)} judged\n")
