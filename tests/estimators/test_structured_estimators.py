"""DPMedian and DPPiecewiseLinear: shapes, settings, certificates, ledgers, files, accuracy."""

import pickle
import time

import numpy as np
import pytest
from sklearn.base import clone

from dpconvex import DPMedian, DPPiecewiseLinear, ModelFileError, load_model, save_model
from dpconvex.mechanisms import StructuredGradientDescent
from dpconvex.privacy import GaussianDP, Ledger
from dpconvex.reports.wording import guarantee_wording

STAR = np.array([0.5, -0.5, 1.0, -1.0, 1.0])
MEAN = np.array([[1.0, 0.5, 0.0, 0.0, 1.0], [0.5, 0.5, 0.0, 0.0, 1.0], [0.0, 0.0, -0.5, 0.0, 1.0]])


def draw(n, seed, copies=1):
    """Draw records of ``Y = A theta + w`` with 5 coefficients, repeated side by side."""
    rng = np.random.default_rng(seed)
    A = np.tile(MEAN, copies) + rng.normal(size=(n, 3, 5 * copies))
    return A, A @ np.tile(STAR, copies) + rng.normal(size=(n, 3))


A, Y = draw(400, 0)
CLASSES = [DPMedian, DPPiecewiseLinear]


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mechanism": "objective"},
        {"mechanism": "gradient", "mu": 0.5},
        {"mechanism": "objective", "alpha": 0.5, "bandwidth": 0.4, "coef_bound": 1.0},
        {"neighbors": "add_or_remove_one", "nominal_samples": 500, "epsilon": 2.0, "delta": 1e-5},
        {"mechanism": "gradient", "bandwidth": 0.3, "alpha": 0.01},
        {"mechanism": StructuredGradientDescent(steps=20, step_size=0.1), "operator_norm": 3.0},
    ],
)
def test_fit_and_certify_agree(cls, settings):
    model = cls(**settings).fit(A, Y)
    certificate = cls(**settings).certify(400, 5, n_outputs=3)
    assert model.certificate_.to_json() == certificate.to_json()
    certificate.verify()
    assert model.coef_.shape == (5,)
    assert model.predict(A).shape == (400, 3)
    assert np.isfinite(model.score(A, Y))
    if "coef_bound" in settings:
        assert np.linalg.norm(model.coef_) <= 1.0 + 1e-12
    text = repr(model.summary())
    assert guarantee_wording(certificate.guarantee) in text
    assert "theta4" in text


@pytest.mark.parametrize("cls", CLASSES)
def test_parameters_survive_clone_and_pickle(cls):
    model = cls(operator_norm=2.0, epsilon=3.0, random_state=1)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    first = model.fit(A, Y)
    second = copy.fit(A, Y)
    np.testing.assert_array_equal(first.coef_, second.coef_)
    read = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(read.predict(A), first.predict(A))
    assert "seeded" in first.certificate_.sampler
    assert "Not private" in repr(first.summary())
    assert not np.array_equal(cls().fit(A, Y).coef_, cls().fit(A, Y).coef_)


def test_model_files(tmp_path):
    for model in (
        DPMedian(epsilon=2.0),
        DPPiecewiseLinear([[1.0, 0, 0], [0, 1.0, 0], [0, 0, -1.0]]),
    ):
        save_model(model.fit(A, Y), tmp_path / "model.json")
        read = load_model(tmp_path / "model.json")
        np.testing.assert_array_equal(read.predict(A), model.predict(A))
        assert read.certificate_.to_json() == model.certificate_.to_json()
    content = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(
        content.replace('"operator_norm": 1.0', '"operator_norm": 0.5', 1)
    )
    with pytest.raises(ModelFileError):
        load_model(tmp_path / "model.json")


def test_a_ledger_is_charged(tmp_path):
    ledger = Ledger(tmp_path / "privacy.db", epsilon=5.0, delta=1e-4)
    DPMedian(epsilon=1.0, delta=1e-6, ledger=ledger).fit(A, Y)
    (entry,) = ledger.entries()
    assert entry.mechanism in ("objective", "structured-gradient")


def test_guarantees_and_mechanisms():
    assert DPMedian(mu=0.5).certify(1000, 5, 3).guarantee == GaussianDP(0.5)
    assert DPMedian(delta=0.0).certify(1000, 5, 1).mechanism == "objective"
    assert DPMedian(delta=0.0).certify(1000, 5, 3).mechanism == "output"
    with pytest.raises(ValueError, match="rank 1"):
        DPMedian(delta=0.0, mechanism="objective").certify(1000, 5, 3)
    with pytest.raises(ValueError, match="PureDP and ApproxDP"):
        DPMedian(mu=0.5, mechanism="objective").certify(1000, 5, 3)
    for mechanism in ("moments", 3):
        with pytest.raises(ValueError, match="'mechanism'"):
            DPMedian(mechanism=mechanism).certify(1000, 5, 3)


def test_records_count_is_private_under_add_or_remove_one():
    settings = {"neighbors": "add_or_remove_one", "nominal_samples": 500}
    certificates = {
        DPMedian(**settings).fit(A[:n], Y[:n]).certificate_.to_json() for n in (100, 400)
    }
    assert len(certificates) == 1


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"operator_norm": 0.0}, "'operator_norm'"),
        ({"operator_norm": None}, "'operator_norm'"),
        ({"epsilon": -1.0}, "'epsilon'"),
        ({"epsilon": 1.0, "mu": 1.0}, "Got both"),
        ({"alpha": -1.0}, "'alpha'"),
        ({"bandwidth": 0.0}, "'bandwidth'"),
        ({"kernel": "box"}, "'kernel'"),
        ({"neighbors": "all"}, "'neighbors'"),
        ({"neighbors": "add_or_remove_one"}, "'nominal_samples'"),
        ({"mechanism": "objective", "alpha": 1e-9, "bandwidth": 1e-9}, "larger alpha"),
        ({"mechanism": "objective", "alpha": 1e-9}, "No bandwidth"),
    ],
)
def test_bad_settings_are_refused_before_data_are_read(settings, match):
    with pytest.raises(ValueError, match=match):
        DPMedian(**settings).fit(A, Y)


def test_bad_data_are_refused_without_quoting_them():
    secret = 123456.789
    for wrong in (
        (A[0], Y[0]),
        (A, Y[:, :2]),
        (A[:0], Y[:0]),
        (np.where(A[3, 1, 2] == A, np.nan, A), Y),
        (A, np.where(Y[0, 0] == Y, np.inf, Y)),
        (A.astype(str), Y),
        (A, [[secret, "a", 1.0]] * 400),
    ):
        with pytest.raises(ValueError, match="given to DPMedian") as caught:
            DPMedian().fit(*wrong)
        assert "123456" not in str(caught.value)
    with pytest.raises(ValueError, match="expecting 5 features"):
        DPMedian().fit(A, Y).predict(A[:, :, :3])
    with pytest.raises(ValueError, match="one entry per"):
        DPPiecewiseLinear([[1.0, 0.0], [0.0, 1.0]]).fit(A, Y)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("mechanism", ["gradient", "objective"])
def test_absurd_records_are_fitted(cls, mechanism):
    # A failure that depends on data would be an output too.
    far = Y.copy()
    large = A.copy()
    far[::2] = 1.7e308
    large[::3] = 1e300
    for data in ((A, far), (large, Y), (large, far), (A * 0, Y), (A * 1e-300, -far)):
        assert np.isfinite(cls(mechanism=mechanism).fit(*data).coef_).all()


LOSSES = {
    DPMedian: lambda residuals: np.abs(residuals).sum(axis=1).mean(),
    DPPiecewiseLinear: lambda residuals: np.abs(residuals).max(axis=1).mean(),
}


@pytest.mark.parametrize("cls", CLASSES)
def test_accuracy(cls):
    # Relative excess risk of zero is 1.3. Seeded, so no false alarms; means over these seeds are
    # 0.006 and 0.01.
    fresh_A, fresh_Y = draw(200_000, 99)
    best = LOSSES[cls](fresh_Y - fresh_A @ STAR)

    def relative_excess_risk(model):
        return (LOSSES[cls](fresh_Y - fresh_A @ model.coef_) - best) / best

    data = [draw(2000, seed) for seed in range(3)]
    for norm in (1.0, 4.0):
        risks = [
            relative_excess_risk(
                cls(operator_norm=norm, epsilon=1.0, delta=1e-5, random_state=k).fit(*sample)
            )
            for k, sample in enumerate(data)
        ]
        assert np.mean(risks) < 0.02
    objective = cls(epsilon=1.0, delta=1e-5, mechanism="objective", random_state=0)
    assert relative_excess_risk(objective.fit(*data[0])) < 0.05


def test_speed():
    data = draw(2000, 0, copies=6)
    for mechanism in ("objective", "auto"):
        model = DPMedian(epsilon=0.5, delta=1e-5, mechanism=mechanism, random_state=0)
        model.fit(*data)
        start = time.process_time()
        model.fit(*data)
        assert time.process_time() - start < 0.4  # two cores' worth of 0.2 s


def test_a_nominal_count_far_too_small_is_no_reason_to_fail():
    rng = np.random.default_rng(0)
    A = rng.uniform(-0.4, 0.4, (20_000, 3, 2))
    Y = A @ [1.0, 2.0] + rng.normal(size=(20_000, 3))
    settings = {"neighbors": "add_or_remove_one", "nominal_samples": 20}
    model = DPMedian(mechanism="objective", epsilon=1.0, **settings).fit(A, Y)
    assert np.isfinite(model.coef_).all()


def test_masked_arrays_are_refused():
    for data in ((np.ma.array(A), Y), (A, np.ma.array(Y))):
        with pytest.raises(TypeError, match="filled"):
            DPMedian().fit(*data)
