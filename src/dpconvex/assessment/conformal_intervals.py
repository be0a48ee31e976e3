r"""Prediction intervals by conformal calibration on held-out rows, and their files.

Rows are split once, independently of what they hold. An estimator is fitted on one part; on the
other, noisy counts find a threshold that the scores of enough rows do not exceed. A record lies in
one part, so the budget is spent once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import KW_ONLY, asdict, dataclass, field, fields
from typing import Any, Self

import numpy as np
from scipy.integrate import quad
from scipy.stats import laplace, norm
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from dpconvex.assessment.evaluation_certificate import EvaluationCertificate
from dpconvex.core.bounds import RECORD
from dpconvex.core.certificate import Certificate, CertificateError, CertifiedPromise
from dpconvex.core.checks import check_number, check_share, parameter_error
from dpconvex.core.guarantees import Guarantee, guarantee_from_dict
from dpconvex.core.noise_source import NoiseSource
from dpconvex.core.person_identifiers import NOBODY
from dpconvex.core.private_rows import PrivateAnswers
from dpconvex.engine.dask.partitions import PartitionTargets
from dpconvex.estimators.linear import PrivateLinearRegressor
from dpconvex.estimators.parameters import with_parameters
from dpconvex.estimators.private_model import keep_model_on_failure, without_model_warnings
from dpconvex.estimators.quantile_and_newsvendor import DPNewsvendor
from dpconvex.inputs import settings
from dpconvex.inputs.containers import read_target_numbers
from dpconvex.inputs.people_and_weights import person_indices, read_people, split_people
from dpconvex.inputs.records import are_of_table, told_of_records
from dpconvex.inputs.training_data import (
    read_training,
    refuse_partitioned_data,
    takes_columns_in_order,
)
from dpconvex.models.model_file import REBUILDING, ModelFileError
from dpconvex.models.saved_kinds import INTERVALS, SavedIntervals
from dpconvex.privacy.charging import charge_private_model, noted_as_spent
from dpconvex.privacy.ledger import Ledger
from dpconvex.reports.summary import Summary, summary_text
from dpconvex.reports.wording import guarantee_wording
from dpconvex.types import Array

__all__ = ["ConformalCertificate", "DPConformal"]

COUNTS = 10  # noisy counts of a bisection: 2^10 thresholds
_OCTAVES = 16  # spanned by the thresholds on either side of 0
_BUDGET = ("epsilon", "delta", "mu")
_SAVED = ("coverage", "calibration_share", "score_bound", *_BUDGET)
_FIELDS = {"format", "version", "parameters", "threshold", "calibration", "model"}
# Of a calibration's certificate: that of the fit says what the records of both are.
_STATED = {item.name for item in fields(EvaluationCertificate)} - {"records"}


@dataclass(frozen=True)
class ConformalCertificate(CertifiedPromise):
    """Guarantee of intervals: a fit and a calibration, on rows of their own."""

    fit: Certificate = field(repr=False)  # of the estimator, on the training rows
    calibration: EvaluationCertificate = field(
        repr=False
    )  # of the noisy counts, on the held-out rows

    @property
    def guarantee(self) -> Guarantee:  # type: ignore[override]
        """Guarantee of both together: a record is in one of the two parts."""
        return self.fit.guarantee

    @property
    def neighbors(self) -> str:
        """The relation of both."""
        return self.fit.neighbors

    @property
    def unit(self) -> str:
        """Unit that both protect."""
        return self.fit.unit

    def gaussian_mu(self) -> float | None:
        """Return a mu for which both are mu-Gaussian DP, or None."""
        found = self.fit.gaussian_mu(), self.calibration.gaussian_mu()
        return None if None in found else max(float(mu or 0.0) for mu in found)

    def verify(self) -> None:
        """Raise `CertificateError` unless both certificates of the intervals verify and promise
        the same.
        """
        self.fit.verify()
        self.calibration.verify()
        same = (self.calibration.guarantee, self.calibration.neighbors, self.calibration.unit)
        wanted = (self.fit.guarantee, "replace_one", self.fit.unit)
        if same != wanted or self.fit.neighbors != "replace_one":
            raise CertificateError("The fit and the calibration must promise the same.")


@with_parameters
class DPConformal(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    r"""Intervals around the predictions of a private regression, with proven coverage.

    The score of a row is ``|y - prediction|``, or for an estimator of several quantiles the
    distance ``max(low - y, y - high)`` from the outermost two. Ten noisy counts bisect a public
    grid for a threshold that the scores of at least ``coverage (m + 1) + E`` of the m held-out rows
    do not exceed, with ``E`` the mean of the largest of ten draws of the noise (or of 0). Rows that
    the estimator ignores have no score, and m, the number of the others, is private. So each row
    counts ``1 - coverage`` where its score is at most the threshold, ``-coverage`` where it is
    larger and 0 where it is ignored; the sum of these must reach ``coverage + E``.

    Parameters
    ----------
    estimator : dpconvex regression
        Unfitted: :class:`DPQuantileRegressor`, one level or several, for instance.
    coverage, calibration_share : float, default=0.9 and 0.25
        Least probability that a new row's target lies in its interval, and share of the rows that
        are held out.
    epsilon, delta, mu, ledger : float, Ledger, optional
        Budget of the whole, charged once, before noise is drawn; by default that of the estimator.
    score_bound : float, optional
        Largest threshold, in the target's units; by default the width of ``target_bounds``. It may
        be far too large.
    random_state : None or int
        For tests: a seeded fit is not private.

    Attributes
    ----------
    estimator_, certificate_ : estimator, ConformalCertificate
        Fitted on the training rows, with a certificate about them; and the guarantee of the whole.
    threshold_ : float
        Distance from the prediction to either end of its interval; infinite where no threshold of
        the grid was enough.

    Notes
    -----
    Coverage: let N(t) be the number of held-out scores of at most t, and M the largest of the ten
    draws of noise, or 0 if that is larger. A threshold is taken only if its noisy count reached
    ``c = coverage (m + 1) + E``, so ``N(threshold) >= c - M``: it is no less than the score of rank
    ``ceil(c - M)``, which a new, exchangeable score exceeds with probability
    ``1 - ceil(c - M) / (m + 1)`` at most. M does not depend on the rows, so coverage is at least
    ``(c - E M) / (m + 1)``, over the draw of rows and noise, whatever m is.

    Privacy: replace-one. The two parts have public sizes and a replaced record, or person, lies in
    one of them. Each count moves by at most 1, also where a row becomes one that is ignored. The
    threshold is a point of a public grid.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex import DPQuantileRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 1, (8000, 2))
    >>> y = X.sum(axis=1) + rng.normal(0, 0.2, 8000)
    >>> model = DPQuantileRegressor(0.5, feature_bounds=(0, 1), target_bounds=(-1, 3), epsilon=1.0)
    >>> intervals = DPConformal(model, coverage=0.9, random_state=0).fit(X, y)
    >>> low, high = intervals.predict_interval(X[:1])[0]
    >>> bool(0.5 < high - low < 0.9)
    True
    """

    estimator: settings.Model
    coverage: float = 0.9
    _: KW_ONLY
    calibration_share: float = 0.25
    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    score_bound: float | None = None
    ledger: Ledger | None = None
    random_state: int | None = None

    def _model(self, seed: int | None = None) -> Any:
        """Return the unfitted estimator of the intervals with the budget of the whole, after
        checks.
        """
        if not isinstance(self.estimator, PrivateLinearRegressor):
            allowed = (
                "a regression of dpconvex (in a pipeline, DPConformal is the last step, "
                "around the regression)"
            )
            raise parameter_error(
                "estimator", "DPConformal", allowed, type(self.estimator).__name__, kind=TypeError
            )
        model: Any = clone(self.estimator)
        if model.neighbors != "replace_one":
            raise ValueError(
                "DPConformal holds out a public number of rows, so its estimator must have "
                f"neighbors='replace_one'. Got {model.neighbors!r} instead."
            )
        if model.rows_per_person != 1 or model.person_weight != "equal":
            raise ValueError(
                "DPConformal counts each person once, if it is given 'groups'. Leave "
                "'rows_per_person' and 'person_weight' of its estimator at their defaults."
            )
        if isinstance(model, DPNewsvendor) and isinstance(model.service_level, tuple):
            raise ValueError(
                "DPConformal is for one target: its estimator must not have costs of several "
                "products. Fit intervals for one product at a time."
            )
        own = {name: getattr(self, name) for name in _BUDGET}
        if any(value is not None for value in own.values()):
            if any(getattr(model, name) is not None for name in _BUDGET):
                raise ValueError("Give the budget to DPConformal or to its estimator, not to both.")
            model.set_params(**own)
        if self.ledger is not None and model.ledger is not None:
            raise ValueError("Give the ledger to DPConformal or to its estimator, not to both.")
        model.set_params(ledger=None, random_state=seed)
        return model

    def certify(
        self, n_samples: int, n_features: int, *, groups: bool = False, table: bool = False
    ) -> ConformalCertificate:
        """Return the certificate of conformal intervals, before any data.

        Parameters
        ----------
        n_samples, n_features, groups : int, int, bool
            Public shape of the data, and whether the fit will be given identifiers of people, who
            then count for rows.
        table : bool, default=False
            Whether the fit will be given a dataframe, as for the estimator.
        """
        seeded = self.random_state is not None
        model = self._model(0 if seeded else None)
        training, held = self._parts(n_samples)
        guarantee = settings.resolve_budget_setting(
            model.epsilon, model.delta, model.mu, "DPConformal"
        )
        calibration = EvaluationCertificate.issue(
            guarantee, "conformal", "counts", held, 1, COUNTS, seeded=seeded, people=groups
        )
        self._wanted(calibration)
        self._score_bound()
        more: dict[str, object] = {"table": table, **({"groups": True} if groups else {})}
        return ConformalCertificate(model.certify(training, n_features, **more), calibration)

    def _parts(self, n_samples: int) -> tuple[int, int]:
        return settings.split_sizes_setting(
            n_samples, "calibration_share", self.calibration_share, "DPConformal"
        )

    def _wanted(self, calibration: EvaluationCertificate) -> float:
        """Return the noisy centred count that the intervals' threshold must reach, or raise if
        no rows could.
        """
        coverage = check_share("coverage", "DPConformal", self.coverage)
        extra = _mean_largest_interval_noise(calibration)
        held = calibration.n_samples
        # Half of it again: all rows together must reach it in spite of their own noise.
        if coverage * (held + 1) + 1.5 * extra > held:
            needed = math.ceil(
                (coverage + 1.5 * extra) / (1 - coverage) / float(self.calibration_share)
            )
            raise ValueError(
                f"DPConformal cannot show a coverage of {coverage:g} with {held} held-out rows "
                f"and this budget: noise would hide too many of them. Give about {needed} rows in "
                "all, a larger 'calibration_share', a larger budget, or a smaller 'coverage'."
            )
        return coverage + extra

    def _score_bound(self) -> float:
        bound = self.score_bound
        if bound is None:
            bound = settings.target_range_setting(self.estimator, "score_bound", "DPConformal")
        allowed = "a finite number above 0"
        return check_number("score_bound", "DPConformal", bound, allowed, 0, 1e300, low_open=True)

    def fit(self, X: object, y: object, groups: object = None) -> Self:
        """Split rows, fit the estimator, and calibrate its prediction intervals.

        Parameters
        ----------
        X, y : array or dataframe of shape (n_samples, n_features), array of shape (n_samples,)
            Rows and targets.
        groups : array of shape (n_samples,), optional
            Identifiers of people. Each is held out with all rows, and one random row of each
            calibrates. The guarantee applies to a person, and coverage is that of a random row of a
            new person.
        """
        with keep_model_on_failure(self), noted_as_spent():
            self._fit(X, y, groups)
        return self

    def _fit(self, X: object, y: object, groups: object) -> None:
        """Fit and calibrate intervals: read, certify, charge, split; nothing is charged before
        checks of the input.
        """
        of_table = are_of_table(self, X, y, groups)
        X, groups = split_people(X, groups)
        refuse_partitioned_data("DPConformal", X, y)
        probe = self._model()
        clean = (
            PartitionTargets(read_target_numbers) if settings.invalid_rows_setting(probe) else None
        )
        with nullcontext() if clean is None else without_model_warnings():
            rows, target = read_training(probe, X, y, clean, 2, y_numeric=True)
            people = None if groups is None else read_people(groups, rows, "DPConformal.fit")
        target = np.asarray(target, dtype=np.float64)
        if people is not None and people.tags is not None and np.any(people.tags == NOBODY):
            if clean is None:
                raise ValueError(
                    "The 'groups' given to DPConformal.fit must name a person in every row. Got "
                    "missing identifiers instead. Use invalid_rows='ignore' for rows that count "
                    "for nobody."
                )
            known = np.flatnonzero(people.tags != NOBODY)
            rows = rows[known]
            target = target[known]
            people = people.part(known, people.records)
        count = len(target) if people is None else people.records
        named = people is not None
        certificate = self.certify(count, rows.shape[1], groups=named, table=of_table)
        ledger = self.ledger if self.ledger is not None else self.estimator.ledger
        noise = NoiseSource(self.random_state)
        charge_private_model(ledger, certificate, "DPConformal.fit", "conformal")
        held = np.zeros(count, dtype=bool)
        chosen = noise.generator.permutation(count)[: certificate.calibration.n_samples]
        held[chosen] = True
        more: dict[str, object] = {}
        if people is not None:
            assert people.tags is not None
            (chosen, _) = people.one_row_each(chosen, noise.generator)
            held = held[person_indices(people.tags)]
            more["groups"] = people.tags[~held]
        seed = int(noise.generator.integers(2**31 - 1)) if noise.seeded else None
        model = takes_columns_in_order(self._model(seed))
        with told_of_records(model, of_table=of_table):
            model.fit(rows[~held], target[~held], **more)
        with without_model_warnings():
            scores = self._scores(model, rows[chosen], target[chosen])
            self.threshold_ = self._threshold(scores, certificate.calibration, noise)
        self.estimator_ = model
        self.certificate_ = certificate
        self.n_features_in_ = probe.n_features_in_
        if (names := settings.fitted_names(probe)) is not None:
            self.feature_names_in_ = model.feature_names_in_ = names

    @staticmethod
    def _scores(model: Any, rows: Array, target: Array) -> Array:
        """Return the score of every row; NaN where a value is missing."""
        usable = np.asarray(np.isfinite(rows).all(axis=1))
        low, high = _outermost_predictions(model.predict(np.where(usable[:, None], rows, 0.0)))
        return np.where(usable, np.maximum(low - target, target - high), np.nan)

    def _threshold(
        self, scores: Array, calibration: EvaluationCertificate, noise: NoiseSource
    ) -> float:
        """Return the smallest threshold of intervals that the bisection accepts; infinite if it
        accepts none.
        """
        answers = PrivateAnswers({"scores": calibration.term}, noise)
        wanted = self._wanted(calibration)
        grid = thresholds(self._score_bound())
        # Rounded up to so many bits that its product with a number of rows is exact.
        unit = 2.0 ** (calibration.n_samples.bit_length() - 52)
        missed = math.ceil(float(self.coverage) / unit) * unit * np.count_nonzero(~np.isnan(scores))
        # an infinite threshold covers everything
        below = -1
        reached = len(grid)
        for _ in range(calibration.releases):
            middle = (below + reached) // 2
            count = float(np.count_nonzero(scores <= grid[middle])) - missed
            if answers.release(answers.claim("scores"), [count])[0] >= wanted:
                reached = middle
            else:
                below = middle
        return float(grid[reached]) if reached < len(grid) else math.inf

    def summary(self) -> Summary:
        """Return a table for people: threshold, coverage, guarantee, and the estimator's own
        summary.
        """
        check_is_fitted(self)
        return Summary(_interval_summary(self))

    def predict(self, X: object) -> Array:
        """Return the estimator's predictions."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict(X))

    def predict_interval(self, X: object) -> Array:
        """Return both ends of each row's interval, shape (n_samples, 2); where they would cross,
        they meet.
        """
        low, high = _outermost_predictions(self.predict(X))
        middle = low / 2 + high / 2
        return np.column_stack(
            [np.minimum(low - self.threshold_, middle), np.maximum(high + self.threshold_, middle)]
        )


def _interval_summary(model: DPConformal) -> str:
    certificate = model.certificate_
    threshold = model.threshold_
    ends = f"prediction ± {threshold:.6g}" if math.isfinite(threshold) else "unbounded"
    thing = "people" if certificate.unit != RECORD else "rows"
    lines = [
        ("interval", ends),
        ("coverage", f"at least {model.coverage:g}, over the draw of {thing} and noise"),
        ("guarantee", f"{guarantee_wording(certificate.guarantee)}, for {certificate.unit}"),
        ("calibrated on", f"{certificate.calibration.n_samples:,} held-out {thing}"),
        ("by", f"{certificate.calibration.releases} noisy counts of their scores"),
    ]
    text = [f"{label:<16} {value}" for label, value in lines]
    return "\n".join(
        ["DPConformal".center(78).rstrip(), "=" * 78, *text, summary_text(model.estimator_)]
    )


def _outermost_predictions(predicted: Array) -> tuple[Array, Array]:
    if predicted.ndim == 1:
        return predicted, predicted
    return predicted[:, 0], predicted[:, -1]


def thresholds(bound: float) -> Array:
    """Return 2^10 - 1 thresholds: geometric on either side of 0, up to the bound."""
    half = 2 ** (COUNTS - 1) - 1
    sizes = bound * 2.0 ** np.linspace(-_OCTAVES, 0, half)
    return np.concatenate([-sizes[::-1], [0.0], sizes])


def _mean_largest_interval_noise(calibration: EvaluationCertificate) -> float:
    """Return ``E max(0, e_1, ..., e_k) = int_0^inf 1 - F(x)^k dx`` of the noise of k counts,
    rounded up.
    """
    law = norm if calibration.distribution == "gaussian" else laplace
    largest, _ = quad(lambda x: -math.expm1(calibration.releases * law.logcdf(x)), 0, 60)
    # The grid of released counts is far finer than the noise.
    return float(largest * calibration.scale) * (1 + 1e-6)


def intervals_content(intervals: DPConformal) -> dict[str, object]:
    """Return the content of a file of fitted intervals, without its format, version and
    estimator.
    """
    calibration = intervals.certificate_.calibration
    threshold = intervals.threshold_
    stated = {name: value for name, value in asdict(calibration).items() if name in _STATED}
    return {
        "parameters": {name: getattr(intervals, name) for name in _SAVED},
        "threshold": threshold if math.isfinite(threshold) else None,
        "calibration": {**stated, "guarantee": calibration.guarantee.to_dict()},
    }


def rebuild_intervals(data: Mapping[str, Any], model: Any) -> DPConformal:
    """Return the intervals of a file's content after all checks; ``model`` is the estimator that
    it holds.
    """
    if set(data) != _FIELDS:
        wrong = sorted(set(data) ^ _FIELDS)[:10]
        raise ModelFileError(
            f"A file of intervals must have the fields {sorted(_FIELDS)}. Check {wrong}."
        )
    if data["version"] != data["model"]["version"]:
        raise ModelFileError("The 'version' of a file of intervals must be that of its model.")
    parameters = data["parameters"]
    plain = data["calibration"]
    if not isinstance(parameters, dict) or set(parameters) != set(_SAVED):
        raise ModelFileError(f"The file's 'parameters' must be those of intervals: {_SAVED}.")
    try:
        if not isinstance(plain, dict) or set(plain) != _STATED:
            raise ModelFileError(
                "The file's 'calibration' must be the certificate of a calibration."
            )
        calibration = EvaluationCertificate(
            **{**plain, "guarantee": guarantee_from_dict(plain["guarantee"])}
        )
        own = any(parameters[name] is not None for name in _BUDGET)
        template = clone(model).set_params(**dict.fromkeys(_BUDGET) if own else {})
        found = DPConformal(template, **parameters)
        certificate = ConformalCertificate(model.certificate_, calibration)
        certificate.verify()
        _check_interval_certificates(found, certificate)
        _set_fitted_intervals(found, certificate, model, data["threshold"])
    except ModelFileError:
        raise
    except CertificateError as error:
        raise ModelFileError(f"The certificate of the intervals is not valid. {error}") from error
    except REBUILDING as error:
        raise ModelFileError("The file of intervals is malformed.") from error
    return found


def _check_interval_certificates(intervals: DPConformal, certificate: ConformalCertificate) -> None:
    calibration = certificate.calibration
    training = certificate.fit.bounds.n_samples
    held = calibration.n_samples
    model = intervals._model()
    stated = (calibration.mechanism, calibration.statistic, calibration.releases)
    if (
        stated != ("conformal", "counts", COUNTS)
        or intervals._parts(training + held) != (training, held)
        or calibration.sampler.startswith("seeded") != certificate.fit.sampler.startswith("seeded")
        or model.neighbors != certificate.neighbors
        or settings.resolve_budget_setting(model.epsilon, model.delta, model.mu, "DPConformal")
        != certificate.guarantee
    ):
        raise ModelFileError("The certificates of the intervals do not follow from the parameters.")
    intervals._wanted(calibration)  # raises where so few rows could not show the coverage


def _set_fitted_intervals(
    intervals: DPConformal, certificate: ConformalCertificate, model: Any, stated: object
) -> None:
    """Set the attributes of a fit, or raise if the file states an impossible threshold."""
    if stated is not None and type(stated) not in (int, float):
        raise ModelFileError(
            "The file's 'threshold' must be a number, or null for an infinite one."
        )
    threshold = math.inf if stated is None else float(stated)  # type: ignore[arg-type]
    grid = thresholds(intervals._score_bound())
    if math.isfinite(threshold) and not np.isclose(grid, threshold, rtol=1e-9, atol=0).any():
        raise ModelFileError("The file's 'threshold' is not on the public grid.")
    intervals.estimator_ = model
    intervals.certificate_ = certificate
    intervals.threshold_ = threshold
    intervals.n_features_in_ = model.n_features_in_
    for name in ("feature_names_in_", "schema_"):
        if hasattr(model, name):
            setattr(intervals, name, getattr(model, name))


INTERVALS.add("DPConformal", SavedIntervals(intervals_content, rebuild_intervals))
