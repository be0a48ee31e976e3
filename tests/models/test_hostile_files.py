"""Files from strangers are refused or loaded with little work and memory, whatever numbers they
hold.

Work is counted (function calls, densities, orders), not timed.
"""

from __future__ import annotations

import copy
import json
import signal
import sys
import tracemalloc

import numpy as np
import polars as pl
import pytest

from dpconvex import (
    DPAUCClassifier,
    DPLogisticRegression,
    DPMedian,
    DPQuantileRegressor,
    ModelFileError,
    load_model,
    save_model,
)
from dpconvex.inputs.schema_file import parse_schema
from dpconvex.losses import Huber, L1Norm, Pinball
from dpconvex.mechanisms import (
    NoisyGradientDescent,
    NoisySGD,
    ObjectivePerturbation,
    OutputPerturbation,
    PhasedERM,
)
from dpconvex.models import model_file
from dpconvex.models.model_file import parse_certificate_file, parse_model
from dpconvex.privacy import ApproxDP, CertificateError, Ledger, LinearBounds, subsampling
from dpconvex.privacy.bounds.structured_bounds import StructuredBounds
from dpconvex.smoothing import GaussianKernel, LogisticKernel, convolve_vector

MEGABYTES = 100
# entered and left: a certificate takes some thousand, and some ten for each number of a list
CALLS = 1_000_000

BUDGET = ApproxDP(1.0, 1e-6)
LINEAR = LinearBounds(1000, 3, Huber(0.5), 1.0, 1.0, alpha=0.1)
VECTORS = StructuredBounds(
    1000, 5, convolve_vector(L1Norm(2), GaussianKernel(2), 0.5), 1.0, alpha=5.0
)
BASES = {
    "output": OutputPerturbation().certify(LINEAR, BUDGET),
    "phased": PhasedERM().certify(LINEAR, BUDGET),
    "sgd": NoisySGD(steps=1000).certify(LINEAR, BUDGET),
    "vectors": ObjectivePerturbation().certify(VECTORS, BUDGET),
    "gradient": NoisyGradientDescent().certify(
        LinearBounds(10**5, 3, Pinball(0.5), 1.0, 1.0), BUDGET
    ),
}
X = np.random.default_rng(0).uniform(0, 10, size=(200, 3))


def put(tree, edits):
    tree = copy.deepcopy(tree)
    for path, value in edits.items():
        *trail, key = path.split(".")
        inside = tree
        for part in trail:
            inside = inside[part]
        inside[key] = value
    return tree


class TooManyCalls(BaseException):
    """Nothing between a test and what it calls may catch this."""


def frugal(action):
    """Run an action and return its error or None; fail if it takes too many calls or too much
    memory.
    """
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += 1
        if calls > CALLS:
            raise TooManyCalls

    error = None
    tracemalloc.start()
    sys.setprofile(count)
    try:
        action()
    except ValueError as raised:  # CertificateError and ModelFileError are
        error = raised
    finally:
        sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MEGABYTES * 2**20, peak
    return error


def kinked(knots):
    return {
        "class": "ConvolvedLoss",
        "kernel": {"class": "LogisticKernel"},
        "bandwidth": 1.0,
        "loss": {
            "class": "KinkedLoss",
            "knots": list(range(knots)),
            "slopes": list(range(knots + 1)),
            "height": 0.0,
            "kind": "residual",
        },
    }


def pieces(count, size, name=None):
    slopes = np.random.default_rng(0).normal(size=(count, size)).round(3).tolist()
    loss = {"class": "PiecewiseLinear", "slopes": slopes, "offsets": [0.0] * count}
    kernel = {"class": "GaussianKernel", "dim": 1}
    return (
        loss if name is None else {"class": name, "loss": loss, "kernel": kernel, "bandwidth": 1.0}
    )


def nested(depth):
    loss = {"class": "Pinball", "quantile": 0.5}
    for _ in range(depth):
        loss = {"class": "Scaled", "factor": 1.0, "loss": loss}
    return loss


HUGE = {"bounds.loss.loss.size": 10**9, "bounds.n_features": 10**9}
CERTIFICATES = {
    "3e6 phases": ("phased", {"parameters.phased-erm.phases": 3_000_000}),
    "rows of a thousand digits": ("phased", {"bounds.n_samples": 10**1000}),
    "sgd, a small epsilon": ("sgd", {"guarantee.epsilon": 1e-4}),
    "sgd, a tiny delta": ("sgd", {"guarantee.delta": 1e-300}),
    "sgd, 1e9 steps": ("sgd", {"parameters.sgd.steps": 10**9, "noise.gradients.releases": 10**9}),
    "sgd, hardly any noise": ("sgd", {"noise.gradients.scale": 1e-9}),
    "sgd, much noise": ("sgd", {"noise.gradients.scale": 1e9}),
    "1e9 features": ("output", {"bounds.n_features": 10**9}),
    "1e6 classes": ("output", {"parameters": {"n_classes": 10**6, "problems": 10**6}}),
    "1e9 outputs": ("vectors", {**HUGE, "bounds.loss.kernel.dim": 1}),
    "a kernel in 1e9 dimensions": ("vectors", {**HUGE, "bounds.loss.kernel.dim": 10**9}),
    "another one": (
        "vectors",
        {**HUGE, "bounds.loss.kernel": {"class": "ExponentialKernel", "dim": 10**9}},
    ),
    "a kernel of 1e9 dimensions for descent": (
        "gradient",
        {"parameters.gradient.kernel": {"class": "GaussianKernel", "dim": 10**9}},
    ),
    "3000 knots": ("output", {"bounds.loss": kinked(3000)}),
    "slopes of length 20000": ("vectors", {"bounds.loss": pieces(2, 20_000, "SmoothedProfile")}),
    "200 pieces": ("vectors", {"bounds.loss": pieces(200, 3, "SmoothedMax")}),
    "3000 pieces": ("vectors", {"bounds.loss": pieces(3000, 3, "SmoothedMax")}),
    "a loss in a loss": ("output", {"bounds.loss": nested(300)}),
    "a loss too deep": ("output", {"bounds.loss": nested(900)}),
}


@pytest.mark.parametrize("name", CERTIFICATES)
def test_certificates_of_absurd_size(name):
    base, edits = CERTIFICATES[name]
    tree = put(json.loads(BASES[base].to_json()), edits)
    assert isinstance(frugal(lambda: parse_certificate_file(tree)), CertificateError)


def test_the_curvature_of_many_knots_takes_few_densities(monkeypatch):
    seen = []
    plain = LogisticKernel._pdf
    monkeypatch.setattr(
        LogisticKernel, "_pdf", lambda self, t: (seen.append(t.size), plain(self, t))[1]
    )
    from dpconvex.core.description import rebuild_description

    few, many = (rebuild_description(kinked(count)) for count in (40, 1000))
    # Unit jumps one bandwidth apart: the curvature is that of a parabola, between the two bounds.
    assert 1.0 <= few.smoothness < 1.001
    assert 1.0 <= many.smoothness < 1.5
    assert sum(seen) < 2**24


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    settings = {"feature_bounds": (0, 10), "epsilon": 1.0, "delta": 1e-6}
    models = {
        "quantile": DPQuantileRegressor(0.5, target_bounds=(-5, 20), **settings).fit(X, X.sum(1)),
        "sgd": DPQuantileRegressor(0.5, target_bounds=(-5, 20), mechanism="sgd", **settings).fit(
            X, X.sum(1)
        ),
        "classes": DPLogisticRegression(**settings).fit(X, np.arange(200) % 2),
        "auc": DPAUCClassifier(**settings).fit(X, np.arange(200) % 2),
        "median": DPMedian().fit(X.reshape(100, 2, 3) / 50, np.ones((100, 2))),
    }
    contents = {}
    for name, model in models.items():
        save_model(model, folder / "model.json")
        contents[name] = json.loads((folder / "model.json").read_text())
    return contents


deep: list[object] = [0]
for _ in range(900):
    deep = [deep]

MODELS = {
    "4e6 features": ("quantile", {"n_features": 4_000_000}),
    "4e6 features, agreed": (
        "quantile",
        {"n_features": 4_000_000, "certificate.bounds.n_features": 4_000_000},
    ),
    "other bounds": ("quantile", {"parameters.feature_bounds": [[0] * 50_000, [1] * 50_000]}),
    "deep bounds": ("quantile", {"parameters.feature_bounds": deep}),
    "deep coefficients": ("quantile", {"coef": deep}),
    "1e18 nominal rows": ("quantile", {"parameters.nominal_samples": 10**18}),
    "1e5 quantiles": ("quantile", {"parameters.quantile": [0.5] * 10**5}),
    "a kernel in 1e9 dimensions": (
        "quantile",
        {"parameters.kernel": {"class": "GaussianKernel", "dim": 10**9}},
    ),
    "a small epsilon": (
        "sgd",
        {"parameters.epsilon": 1e-4, "certificate.guarantee.epsilon": 1e-4},
    ),
    "1e6 classes": ("classes", {"certificate.parameters.n_classes": 10**6}),
    "1e5 labels": ("classes", {"classes": list(range(10**5))}),
    "1e4 declared labels": ("classes", {"parameters.classes": list(range(10**4))}),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_absurd_size(name, files):
    base, edits = MODELS[name]
    tree = put(files[base], edits)
    assert isinstance(frugal(lambda: parse_model(tree)), ModelFileError)


@pytest.mark.parametrize("sign", [".", ","])
def test_a_word_of_many_digits_is_read_once(sign):
    """Digits and a letter, 20,000 of them for 50 seconds: a pattern tried every way to part
    them.
    """

    def stop(*_):
        raise AssertionError("it takes more than a pass")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 60)  # for 10 ms of work, or an hour
    try:
        for word in ("1" * 200_000 + "x", "." + "1" * 200_000 + "x", "1." + "1" * 200_000 + "x"):
            parse_schema({"categories": {"a": [word]}, "file": {"decimal": sign}})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_wide_table_of_a_schema_can_be_saved(tmp_path):
    """5,000 columns were fitted and charged, and then the file had more objects than any model."""
    schema = parse_schema({"features": {f"c{i}": [0, 1] for i in range(5000)}})
    model = DPQuantileRegressor(feature_bounds=schema.feature_bounds, target_bounds=(0, 1))
    rows = np.random.default_rng(0).uniform(0, 1, (20, 5000))
    model.fit(pl.DataFrame(rows, schema=schema.names, orient="row"), rows[:, 0])
    save_model(model, tmp_path / "wide.json", schema=schema)
    load_model(tmp_path / "wide.json")


def test_more_columns_than_any_model_has_are_refused_at_once():
    """99,999,999 of them took minutes and gigabytes to certify."""

    def certify():
        DPQuantileRegressor(feature_bounds=(0, 1)).certify(1000, 99_999_999)

    error = frugal(certify)
    assert "'n_features' parameter of DPQuantileRegressor.certify must be" in str(error)
    assert "1,048,576" in str(error)


@pytest.mark.parametrize(
    "weights",
    [
        [[0, -1.0]],
        [[0, 1e30]],
        [[2, 1.0]],
        [["0", 1.0]],
        [[0, True]],
        [[0, 0.0], [1, 0]],
        [[0, 1.0], [0, 1.0]],
        [[0, "1"]],
        [[0]],
        {"0": 1.0},
        0.5,
    ],
)
def test_weights_of_classes_are_those_that_a_fit_takes(weights, files, tmp_path):
    """Weights of -1, of 1e30 and of labels that there are not were loaded."""
    honest = DPLogisticRegression(class_weight={0: 0.5}, feature_bounds=(0, 10))
    save_model(honest.fit(X, np.arange(200) % 2), tmp_path / "weighted.json")
    content = json.loads((tmp_path / "weighted.json").read_text())
    assert parse_model(content).estimator.class_weight == {0: 0.5}
    with pytest.raises(ModelFileError, match=r"class_weight|parameters"):
        parse_model(put(content, {"parameters.class_weight": weights}))


@pytest.mark.parametrize(
    ("base", "edits"),
    [
        ("quantile", {"parameters.alpha": 0}),
        ("quantile", {"parameters.alpha": False}),
        ("quantile", {"version": "<b>"}),
        ("quantile", {"version": "\u202e"}),
        ("quantile", {"parameters.inference": 0}),
        ("classes", {"classes": [0, 10**30]}),
        ("classes", {"classes": [0.5, 1.5]}),
        ("auc", {"parameters.label_private": "no"}),
        ("auc", {"parameters.loss": "x"}),
        ("auc", {"parameters.loss": None}),
        ("auc", {"parameters.bandwidth": -1}),
        ("auc", {"parameters.bandwidth": "x"}),
        ("auc", {"parameters.min_positive": 0}),
        ("median", {"parameters.kernel": "x"}),
        ("median", {"parameters.kernel": None}),
    ],
)
def test_settings_that_no_fit_takes_are_refused_where_no_certificate_needs_them(base, edits, files):
    with pytest.raises(ModelFileError):
        parse_model(put(files[base], edits))


@pytest.mark.parametrize(
    "released",
    [
        {"note": "audited, epsilon is 0.001"},
        {"<b>": 1.0},
        {"x" * 50: 1.0},
        {"coordinates": [[1.0], [1.0, 2.0]]},
        {"coordinates": [None]},
        {"mass": True},
        {"mass": None},
        {"mass": {"a": 1.0}},
        {"problems": [{"problems": "words"}]},
        {"problems": [{}], "note": "words"},
        {"kept_share": [0.5]},
    ],
)
def test_what_is_said_to_be_released_is_numbers(released, files):
    """Words of a stranger stood in the report as if they were released, and ragged lists were an
    internal error.
    """
    with pytest.raises(ModelFileError, match="must"):
        parse_model(put(files["quantile"], {"released": released}))


def test_honest_models_are_frugal_too(files):
    for content in files.values():
        assert frugal(lambda content=content: parse_model(content)) is None


@pytest.mark.parametrize("value", ["[],", "{},", '"a",', "1,"])
def test_files_of_many_small_values_are_not_parsed(value, tmp_path):
    path = tmp_path / "model.json"
    path.write_text('{"a": [' + value * (2**22 + 1) + "0]}")
    assert path.stat().st_size < model_file.LARGEST_FILE
    error = frugal(lambda: load_model(path))
    assert "more values" in str(error)


def test_what_could_not_be_read_is_not_saved(files, tmp_path, monkeypatch):
    model = parse_model(files["quantile"]).estimator
    monkeypatch.setitem(model_file._MOST_SIGNS, b"{", 2)
    with pytest.raises(ModelFileError, match="more values"):
        save_model(model, tmp_path / "model.json")


# The same version, but for what was checked before: verification must not depend on words of the
# file.


@pytest.mark.parametrize("version", ["0.0.9", "99.0.0", ""])
@pytest.mark.parametrize("part", ["scale", "problems", "steps"])
def test_another_version_is_no_excuse(version, part, files):
    """Any certificate was believed once 'version' was not this package's."""
    edits = {
        "scale": {"certificate.noise.gradients.scale": 1e-6},
        "problems": {"certificate.parameters.problems": 1e-6},
        "steps": {"certificate.parameters.gradient.steps": 1e-9},
    }[part]
    forged = put(files["quantile"], {**edits, "version": version})
    with pytest.raises(ModelFileError, match="certificate is not valid"):
        parse_model(forged)


@pytest.mark.parametrize("name", ["epsilon", "feature_bounds", "quantile", "neighbors", "alpha"])
def test_nothing_that_matters_may_be_omitted(name, files):
    """A parameter that was listed as omitted was not compared, nor anything else."""
    forged = copy.deepcopy(files["quantile"])
    del forged["parameters"][name]
    forged["omitted"] = [name]
    with pytest.raises(ModelFileError, match="must be names among"):
        parse_model(forged)


FOREIGN = {
    "quantile": ({"loss": {"class": "Pinball", "quantile": 0.001}}, "loss"),
    "scaled": (
        {
            "loss": {
                "class": "Scaled",
                "factor": 1e-6,
                "loss": {"class": "Pinball", "quantile": 0.5},
            }
        },
        "loss",
    ),
    "declared": (
        {
            "loss": {
                "class": "DeclaredLoss",
                "name": "Pinball",
                "lipschitz": 1e-6,
                "smoothness": "inf",
            }
        },
        "loss",
    ),
    "short rows": ({"row_norm": 1e-3}, "row_norm"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_certificate_of_smaller_facts_is_refused(name, files):
    """A certificate that verifies, about a loss or rows that are not the estimator's: noise by a
    smaller slope.
    """
    content = copy.deepcopy(files["quantile"])
    facts, wrong = FOREIGN[name]
    stated = copy.deepcopy(content["certificate"])
    stated["bounds"].update(facts)
    bounds = parse_bounds(stated["bounds"])
    parameters = {key: value for key, value in stated["parameters"].items() if key != "fit"}
    guarantee = parse_model(content).estimator.certificate_.guarantee
    forged = NoisyGradientDescent().certify(bounds, guarantee, parameters)
    forged.verify()
    content["certificate"] = json.loads(forged.to_json())
    with pytest.raises(ModelFileError, match=f"check .*{wrong}"):
        parse_model(content)


def parse_bounds(data):
    from dpconvex.core.bounds import bounds_from_dict

    return bounds_from_dict(data)


def test_a_budget_that_sampling_cannot_keep_is_refused_before_the_charge(tmp_path, monkeypatch):
    """An endless search once, for every epsilon below 0.0026 at this delta."""
    asked = []
    plain = subsampling.dominating_subsampled_rdp
    monkeypatch.setattr(
        subsampling, "dominating_subsampled_rdp", lambda *a: (asked.append(a), plain(*a))[1]
    )
    ledger = Ledger(tmp_path / "budget.db", epsilon=1.0, delta=1e-5)
    model = DPQuantileRegressor(
        0.5,
        epsilon=0.001,
        delta=1e-6,
        mechanism="sgd",
        feature_bounds=(0, 10),
        target_bounds=(0, 30),
        ledger=ledger,
    )
    with pytest.raises(ValueError, match=r"No noise is certified for epsilon=0\.001"):
        model.fit(X, X.sum(1))
    assert not ledger.entries()
    assert not asked


def test_the_largest_search_is_bounded(monkeypatch):
    asked = []
    plain = subsampling.dominating_subsampled_rdp
    monkeypatch.setattr(
        subsampling, "dominating_subsampled_rdp", lambda *a: (asked.append(a), plain(*a))[1]
    )
    floor = subsampling.rdp_epsilon(subsampling._ORDERS, np.zeros(subsampling._ORDERS.size), 1e-6)
    subsampling.subsampled_multiplier("fixed", "replace_one", 0.01, 10, 1.001 * floor, 1e-6)
    assert len(asked) < 120
