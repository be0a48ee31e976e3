"""What rooms below the estimators ask of one: its settings and, once it is fitted, what it released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpconvex.inputs.schema import Schema
from dpconvex.privacy.certificates.certificate import Certificate

__all__ = ["Classifier", "Fitted", "Label", "Model"]

Label = str | int | float | bool


class Model(Protocol):
    """An estimator of this package, unfitted."""

    neighbors: str
    sampler: str
    invalid_rows: str
    random_state: int | None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name."""

    def fit(self, X: object, y: object, **more: Any) -> Fitted:
        """Fit privately."""

    def certify(self, n_samples: int, n_features: int, **more: int) -> Certificate:
        """Return the certificate of a fit before any data."""


class Fitted(Model, Protocol):
    """An estimator after its fit: what ends with ``_`` may be published."""

    certificate_: Certificate
    coef_: NDArray[np.float64]
    intercept_: float | NDArray[np.float64]
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]  # of a fit on named columns
    released_: dict[str, Any]
    schema_: Schema  # of a model that reads tables as they come

    def predict(self, X: object) -> NDArray[Any]:
        """Return predictions."""

    def score(self, X: object, y: object) -> float:
        """Return how good predictions are: more is better."""

    def _summary_facts(self) -> list[tuple[str, str]]:
        """Return what a summary says besides what all of them say."""

    def _problem_name(self, problem: int) -> str:
        """Return the heading of one of several vectors of coefficients."""

    def _public_facts(self, records: Any, n_features: int) -> Any:
        """Return the checked settings."""

    def _stated(self, certificate: Certificate, facts: Any) -> dict[str, tuple[object, object]]:
        """Return what a certificate states in the words of the settings, and what these say."""


class Classifier(Fitted, Protocol):
    """A model of labels."""

    classes: Sequence[Label] | None
    classes_: NDArray[Any]

    def decision_function(self, X: object) -> NDArray[np.float64]:
        """Return margins."""

    def predict_proba(self, X: object) -> NDArray[np.float64]:
        """Return probabilities, where the model has them."""
