"""A mechanism by the guide's recipe works with the shipped estimators as far as its facts allow, in
other processes too; what it does not state to carry is refused, in fits and in certificates.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from dpconvex import (
    DPAUCClassifier,
    DPDiscreteHazard,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPMedian,
    DPNewsvendor,
    DPPoissonRegressor,
    DPQuantileRegressor,
    DPTiltedClassifier,
    load_model,
    save_model,
)
from dpconvex.core.certificate import CertificateCalibration, CertificateError
from dpconvex.core.guarantees import guarantee_per_problem
from dpconvex.core.private_rows import PrivateRows
from dpconvex.core.queries import Query, QuerySlope, prove_queries
from dpconvex.core.row_coordinates import Coordinates
from dpconvex.losses import Huber, describable
from dpconvex.mechanisms import Carries, NoisyGradientDescent, PrivateMechanism
from dpconvex.mechanisms.mechanism import resolve_mechanism
from dpconvex.privacy import ApproxDP, Certificate, GaussianDP, LinearBounds
from dpconvex.reports import write_report

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"
ROWS = 300
IDS = np.arange(ROWS) // 2
WEIGHTS = np.linspace(0, 1, ROWS)
PUBLIC = {"feature_bounds": (-1, 1), "random_state": 0}


def blocks():
    """Return the guide's Python, block by block."""
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)


def recipe(words):
    """Return the one block of the guide that has these words."""
    (found,) = [block for block in blocks() if words in block]
    return found


@pytest.fixture
def one_step():
    """The mechanism that the guide's recipe defines."""
    names = {"__name__": "one_step"}
    exec(compile(recipe("class OneStep"), "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    return names["OneStep"]


@pytest.fixture
def closed(one_step):
    """The same, without a word about what it carries."""

    @dataclass(frozen=True)
    class Closed(one_step):
        name = "one-step-closed"
        carries = Carries()

    return Closed


def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (ROWS, 2))
    return X, X @ [1.0, -2.0] + rng.normal(0, 0.1, ROWS)


def fits(mechanism):
    """Yield models that a mechanism for rows can fit, with their targets."""
    _, y = table()
    labels = (y > 0).astype(int)
    known = {"mechanism": mechanism, **PUBLIC}
    classes = {"classes": [0, 1], **known}
    yield DPQuantileRegressor(0.9, target_bounds=(-4, 4), **known), y
    yield DPQuantileRegressor(0.9, target_bounds=(-4, 4), bandwidth=0.5, **known), y
    yield DPLinearRegression(target_bounds=(-4, 4), **known), y
    yield DPNewsvendor(3.0, 1.0, target_bounds=(0, 8), **known), y + 4
    yield DPPoissonRegressor(target_bounds=(0, 8), **known), y + 4
    yield DPLogisticRegression(**classes), labels
    yield DPLinearSVC(**classes), labels
    yield DPAUCClassifier(**classes), labels


def test_every_shipped_estimator_for_rows_takes_it_with_people_and_weights(one_step):
    X, _ = table()
    for model, target in fits(one_step()):
        for promise in ({}, {"groups": IDS}, {"sample_weight": WEIGHTS}):
            certificate = model.fit(X, target, **promise).certificate_
            certificate.verify()
            assert certificate.mechanism == "one-step"
            assert certificate.unit == ("one person" if "groups" in promise else "one record")
            assert np.isfinite(model.coef_).all()
            asked = {name: True for name in promise}
            rows = ROWS // 2 if "groups" in promise else ROWS
            shape = (rows, 2, 2) if hasattr(model, "classes_") else (rows, 2)
            assert model.certify(*shape, **asked) == certificate


def test_summaries_and_reports_speak_of_it(one_step, tmp_path):
    X, _ = table()
    for number, (model, target) in enumerate(fits(one_step())):
        model.fit(X, target)
        assert re.search(r"^mechanism +one-step$", str(model.summary()), re.M)
        write_report(model, tmp_path / f"{number}.html")
        page = (tmp_path / f"{number}.html").read_text()
        assert "Random noise was added as the certificate states." in page


def test_the_step_is_what_the_recipe_says(one_step):
    """The fit goes minus the step times the mean gradient of all records, up to its noise."""
    X, y = table()
    model = DPQuantileRegressor(
        0.9, epsilon=1e6, target_bounds=(-4, 4), mechanism=one_step(step=2.0), **PUBLIC
    ).fit(X, y)
    slope = np.where(y > 0, 0.9, 0.9 - 1)  # of the target at margin 0, in mapped units
    expected = 2.0 * (slope[:, None] * X).mean(axis=0) / 0.25
    np.testing.assert_allclose(model.coef_, expected, atol=1e-3)


LOAD = """
import sys
from dpconvex import load_model
for path in sys.argv[1:]:
    model = load_model(path)
    model.certificate_.verify()
    print(type(model).__name__, model.certificate_.mechanism, model.coef_.ravel().tolist())
"""


def in_a_fresh_process(code, folder, *words):
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_models_are_loaded_and_verified_where_the_mechanism_is_imported(one_step, tmp_path):
    """A process that does not know the mechanism says so, and what to do."""
    X, _ = table()
    paths = []
    expected = []
    for number, (model, target) in enumerate(fits(one_step())):
        paths.append(str(tmp_path / f"{number}.json"))
        save_model(model.fit(X, target, groups=IDS), paths[-1])
        assert load_model(paths[-1]).certificate_ == model.certificate_
        name = type(model).__name__
        expected.append(f"{name} one-step {model.coef_.ravel().tolist()}")
    (tmp_path / "own_mechanism.py").write_text(recipe("class OneStep"))
    done = in_a_fresh_process(f"import own_mechanism\n{LOAD}", tmp_path, *paths)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected
    done = in_a_fresh_process(LOAD, tmp_path, paths[0])
    assert done.returncode != 0
    assert "Got 'one-step' instead" in done.stderr
    assert "import the module that defines it" in done.stderr


@pytest.mark.parametrize("fact", ["people", "weights", "ignored_rows", "levels", "problems"])
def test_what_is_not_stated_is_refused_by_name_before_data(closed, fact):
    known = {"mechanism": closed(), **PUBLIC}
    asked = {
        "people": (DPQuantileRegressor(**known), {"groups": True}),
        "weights": (DPLogisticRegression(classes=[0, 1], **known), {"sample_weight": True}),
        "ignored_rows": (DPLinearRegression(invalid_rows="ignore", **known), {}),
        "levels": (DPQuantileRegressor((0.1, 0.9), **known), {}),
        "problems": (DPLogisticRegression(classes=[0, 1, 2], **known), {"n_classes": 3}),
    }
    model, promise = asked[fact]
    with pytest.raises(ValueError, match=rf"'gradient'.*state {fact}=True in the 'carries'"):
        model.certify(ROWS, 2, **promise)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (DPMedian(), "state bounds=(StructuredBounds,)"),
        (DPTiltedClassifier(classes=[0, 1]), "state bounds=(TiltedBounds,)"),
        (DPDiscreteHazard((1.0, 2.0)), "share coefficients"),
    ],
)
def test_records_that_it_does_not_know_are_refused(one_step, model, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        model.set_params(mechanism=one_step()).certify(ROWS, 2)


@pytest.mark.parametrize(
    "facts", [{"people": True}, {"rows_per_person": 2}, {"weighted_rows": True}]
)
def test_certificates_are_refused_too_where_the_rule_does_not_carry_them(one_step, closed, facts):
    """By the registered rule, whatever an object or a certificate says of itself."""
    bounds = LinearBounds(100, 2, Huber(0.1), 1.0, 1.0, **facts)
    honest = one_step().certify(bounds, GaussianDP(1.0))
    honest.verify()
    with pytest.raises(CertificateError, match="does not carry"):
        closed().certify(bounds, GaussianDP(1.0))
    forged = replace(honest, mechanism="one-step-closed")
    with pytest.raises(CertificateError, match="does not carry"):
        replace(forged, digest=forged._hash()).verify()


def test_a_forged_certificate_of_the_library_cannot_claim_weights():
    """The plain descent has no tested proof for people."""
    bounds = LinearBounds(100, 2, Huber(0.1), 1.0, 1.0)
    plain = NoisyGradientDescent(average=False).certify(bounds, GaussianDP(1.0))
    for facts in ({"people": True}, {"weighted_rows": True}):
        forged = replace(plain, bounds=replace(bounds, **facts))
        forged = replace(forged, unit=forged.bounds.unit)
        with pytest.raises(CertificateError, match="does not carry"):
            replace(forged, digest=forged._hash()).verify()


def test_several_problems_once_they_are_stated_and_paid_for(one_step):
    @dataclass(frozen=True)
    class OneStepEach(one_step):
        name = "one-step-each"
        carries = Carries(problems=True)

        @staticmethod
        def calibrate(bounds, guarantee, parameters):
            problems = parameters.get("problems", 1)
            return one_step.calibrate(bounds, guarantee_per_problem(guarantee, problems), {})

        @staticmethod
        def prove(certificate):
            proof = one_step.prove(certificate)
            return replace(
                proof, guarantee=GaussianDP(proof.guarantee.mu * certificate.problems**0.5)
            )

    X, y = table()
    model = DPLogisticRegression(classes=[0, 1, 2], mechanism=OneStepEach(), **PUBLIC)
    model.fit(X, np.digitize(y, [-1.0, 1.0])).certificate_.verify()
    assert model.certificate_.problems == len(model.coef_) == 3


@pytest.fixture
def core_step():
    """The same step by the trusted core, whose proof carries nearly everything."""

    @dataclass(frozen=True)
    class CoreStep(PrivateMechanism):
        name = "core-step"
        carries = Carries(weights=True, people=True, ignored_rows=True, problems=True)
        takes_rows = True
        takes_partitions = True

        @staticmethod
        def calibrate(bounds, guarantee, parameters):
            mu = guarantee.as_gaussian().mu / parameters.get("problems", 1) ** 0.5
            query = Query("vector", bounds.lipschitz, bounds.dimension)
            return CertificateCalibration({"gradient": query.calibrated_noise(bounds, mu)})

        @staticmethod
        def prove(certificate):
            return prove_queries(certificate)

        def _run(self, objective, certificate, noise, record):
            bounds = certificate.bounds
            rows = PrivateRows(objective, certificate, noise)
            same = Coordinates(
                np.eye(bounds.dimension), int(bounds.fit_intercept), constant_norm=0.0
            )
            start = np.zeros(bounds.dimension)
            slope = QuerySlope(bounds.loss)
            return -rows.slope_sum("gradient", start, slope, same) / bounds.n_samples

    return CoreStep


def test_sums_over_rows_are_proved_by_the_core(core_step):
    da = pytest.importorskip("dask.array")
    X, y = table()
    y = y.copy()
    y[::7] = np.nan
    model = DPLinearRegression(
        target_bounds=(-4, 4), invalid_rows="ignore", mechanism=core_step(), **PUBLIC
    )
    whole = model.fit(X, y, groups=IDS, sample_weight=WEIGHTS).coef_.copy()
    model.certificate_.verify()
    assert model.certificate_.bounds.ignored_rows
    chunks = (100, 200)
    parts = model.fit(
        da.from_array(X, chunks=(chunks, 2)),
        da.from_array(y, chunks=(chunks,)),
        groups=da.from_array(IDS, chunks=(chunks,)),
        sample_weight=da.from_array(WEIGHTS, chunks=(chunks,)),
    )
    np.testing.assert_allclose(parts.coef_, whole, atol=1e-9)
    several = DPLinearSVC(classes=[0, 1, 2], mechanism=core_step(), **PUBLIC)
    several.fit(X, np.digitize(np.nan_to_num(y), [-1.0, 1.0])).certificate_.verify()


def test_records_in_partitions_are_refused_unless_stated(one_step):
    da = pytest.importorskip("dask.array")
    X, y = (da.from_array(each, chunks=100) for each in table())
    model = DPQuantileRegressor(target_bounds=(-4, 4), mechanism=one_step(), **PUBLIC)
    with pytest.raises(ValueError, match="does not state that sums over partitions are enough"):
        model.fit(X, y)


def test_prepare_may_choose_a_penalty(one_step):
    @dataclass(frozen=True)
    class Penalised(one_step):
        name = "one-step-penalised"

        def prepare(self, request):
            bounds = replace(request.bounds, loss=request.smooth_loss, alpha=0.25)
            return self.decide(request, bounds, {"chosen": "by public facts"})

    X, y = table()
    model = DPLinearRegression(target_bounds=(-4, 4), mechanism=Penalised(), **PUBLIC).fit(X, y)
    assert model.certificate_.bounds.alpha == 0.25
    assert model.certificate_.parameters["chosen"] == "by public facts"
    assert model.certify(ROWS, 2) == model.certificate_


def test_a_mechanism_that_lacks_something_is_told_what(one_step):
    class Nameless(PrivateMechanism):
        """Has nothing at all."""

    @dataclass(frozen=True)
    class Unrun(PrivateMechanism):
        name = "unrun"
        calibrate = staticmethod(one_step.calibrate)
        prove = staticmethod(one_step.prove)

    class ByProtocol:
        """What was enough once: a certificate and a release."""

        name = "by-protocol"

        def certify(self, *_):
            """Nothing."""

        def release(self, *_):
            """Nothing."""

    model = DPQuantileRegressor(target_bounds=(-4, 4), **PUBLIC)
    for mechanism, lacks in (
        (Nameless(), "'name', 'calibrate', 'prove', '_run'"),
        (Unrun(), "that defines '_run'"),
        (ByProtocol(), "Derive it from PrivateMechanism"),
        (one_step, "one of"),  # the class in place of an object
        ("two-steps", "one of"),
    ):
        with pytest.raises((ValueError, TypeError), match=re.escape(lacks)):
            model.set_params(mechanism=mechanism).certify(ROWS, 2)


def test_names_are_not_taken_twice(one_step):
    with pytest.raises(ValueError, match=r"'sgd' of .* is the name of dpconvex"):

        class Thief(one_step):
            name = "sgd"

    with pytest.raises(ValueError, match=r"'one-step' of .* is the name of one_step"):

        class Second(one_step):
            name = "one-step"

    @dataclass(frozen=True)
    class Quantile(one_step):
        name = "one-step-quantile"
        quantile: float = 0.5

    with pytest.raises(ValueError, match="field 'quantile'"):
        DPQuantileRegressor(0.9, mechanism=Quantile(), **PUBLIC).certify(ROWS, 2)


def test_a_loss_by_the_recipe_is_rebuilt_where_its_module_is_imported(tmp_path):
    names = {"__name__": "own_loss"}
    exec(compile(recipe("class LogCosh"), "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    bounds = LinearBounds(100, 2, names["LogCosh"](), 1.0, 1.0, alpha=0.1)
    certificate = resolve_mechanism("output", "a test").certify(bounds, ApproxDP(1.0, 1e-6))
    assert Certificate.from_json(certificate.to_json()) == certificate
    (tmp_path / "own_loss.py").write_text(recipe("class LogCosh"))
    (tmp_path / "certificate.json").write_text(certificate.to_json())
    judge = (
        "from dpconvex.privacy import Certificate\n"
        "found = Certificate.from_json(open('certificate.json').read())\n"
        "found.verify()\n"
        "print(type(found.bounds.loss).__name__)\n"
    )
    done = in_a_fresh_process(f"import own_loss\n{judge}", tmp_path)
    assert done.stdout == "LogCosh\n", done.stderr
    done = in_a_fresh_process(judge, tmp_path)
    assert done.returncode != 0
    assert "LogCosh" in done.stderr


def test_names_of_losses_are_not_taken_twice():
    with pytest.raises(ValueError, match="'Logistic' of"):

        @describable
        @dataclass(frozen=True)
        class Logistic(Huber):
            """Another loss of the same name."""

    with pytest.raises(TypeError, match="must be a dataclass"):

        @describable
        class Plain:
            """Says nothing about itself."""
