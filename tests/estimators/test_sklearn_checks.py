"""scikit-learn's own checks, for every public estimator and the settings that change its path."""

import inspect
from dataclasses import replace

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

import dpconvex

# Settings that take another path through fit. An estimator whose name is missing is checked with
# its defaults and with bounds.
BOUNDS = {"feature_bounds": (-1e3, 1e3), "target_bounds": (-1e3, 1e3)}
NOMINAL = {"neighbors": "add_or_remove_one", "nominal_samples": 100}
SETTINGS = {
    "DPQuantileRegressor": [
        {},
        BOUNDS,
        {**BOUNDS, **NOMINAL, "quantile": 0.9, "fit_intercept": False, "delta": 0.0},
        {
            "mechanism": "objective",
            "kernel": "uniform",
            "bandwidth": 0.5,
            "alpha": 10.0,
            "coef_bound": 1.0,
        },
    ]
}


def public_estimators():
    """Return every class of ``dpconvex.__all__`` that fits tables; stacks of matrices cannot be
    checked.
    """
    classes = [getattr(dpconvex, name) for name in dpconvex.__all__]
    fits = [cls for cls in classes if inspect.isclass(cls) and hasattr(cls, "fit")]
    return [cls for cls in fits if not getattr(cls, "takes_matrices", False)]


def cases():
    """Return one unfitted estimator per class and setting."""
    return [
        cls(**settings)
        for cls in public_estimators()
        for settings in SETTINGS.get(cls.__name__, [{}])
    ]


#: What weights cannot be under differential privacy.
WEIGHTS = {
    "check_sample_weight_equivalence_on_dense_data": "a weight of 0 leaves the public number of "
    "records and the noise as they are, and a "
    "record that is there twice is two records",
    "check_sample_weights_list": "weights beyond 1 must be divided by a public number",
    "check_sample_weights_not_overwritten": "weights beyond 1 must be divided by a public number",
    "check_all_zero_sample_weights_error": "whether anything counts is private",
}


WEIGHTS["check_sample_weight_equivalence_on_sparse_data"] = WEIGHTS[
    "check_sample_weight_equivalence_on_dense_data"
]
#: Estimators whose sums count every row in full refuse weights.
REFUSED = {
    name: "offers no weights, and says so"
    for name in (
        "check_sample_weights_pandas_series",
        "check_sample_weights_not_an_array",
        "check_sample_weights_shape",
        "check_classifiers_one_label_sample_weights",
        "check_class_weight_classifiers",
    )
}


def excused(estimator):
    """No rows must be fitted like any other number of them where that number is private; weights
    lie in [0, 1].
    """
    private = getattr(estimator, "neighbors", None) == "add_or_remove_one"
    weighted = "sample_weight" in inspect.signature(estimator.fit).parameters
    reason = {"check_estimators_empty_data_messages": "whether there are rows is private"}
    whole = type(estimator).__name__ in (
        "DPTiltedClassifier",
        "DPTiltedRegressor",
        "DPTopRankClassifier",
    )
    weights = WEIGHTS | (REFUSED if whole else {})
    if type(estimator).__name__ == "DPOrdinalRegression":
        weights = weights | {
            "check_classifiers_classes": "words have no order: levels must be given"
        }
    return (reason if private else {}) | (weights if weighted else {})


@parametrize_with_checks(cases(), expected_failed_checks=excused)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("cls", public_estimators(), ids=lambda cls: cls.__name__)
def test_only_randomness_and_accuracy_are_excused(cls):
    plain = BaseEstimator().__sklearn_tags__()
    ours = cls().__sklearn_tags__()
    assert ours.non_deterministic
    assert not ours.no_validation
    assert ours.requires_fit
    assert ours.input_tags == replace(plain.input_tags, sparse=True)
    assert ours.target_tags.required
    for tags in (ours.classifier_tags, ours.regressor_tags):
        assert tags is None or tags.poor_score


def test_the_list_is_not_empty():
    names = {cls.__name__ for cls in public_estimators()}
    assert "DPQuantileRegressor" in names
    assert set(SETTINGS) <= names
