"""Choices: counted before anything is drawn."""

import numpy as np
import pytest

from dpconvex.assessment.evaluation_certificate import EvaluationCertificate
from dpconvex.core.private_rows import PrivateAnswers
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Absolute
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import CertificateError, LinearBounds, NoiseSource, PureDP
from dpconvex.privacy.bounds.scores import RowScoreBounds
from dpconvex.releases.exponential_choices import ExponentialChoices


class Watched(NoiseSource):
    """Counts how often its words are asked for."""

    asked = 0

    @property
    def words(self):
        self.asked += 1
        return super().words


def candidate(choices):
    return choices.candidate([0, 5, 9], RowScoreBounds(), "replace_one")


def quantile(choices):
    return choices.quantiles([0.1, np.nan, np.inf, 0.4], [0.5], 0.0, 1.0)


def coefficients(choices):
    rows = MemoryRows(np.ones((3, 1)), np.zeros(3), RowMap(1, 1.0, fit_intercept=False))
    bounds = LinearBounds(3, 1, Absolute(), 1.0, 1.0, fit_intercept=False)
    grid = np.array([[-1.0], [0.0], [1.0]])
    objective = EmpiricalObjective(rows, bounds.loss, 0.0)
    return choices.coefficients(objective, bounds, grid, np.zeros(1), 1.0)


@pytest.mark.parametrize("choose", [candidate, quantile, coefficients])
def test_one_choice_too_many_draws_nothing(choose):
    noise = Watched(0)
    choices = ExponentialChoices(1.0, 2, noise)
    for _ in range(2):
        assert np.isfinite(choose(choices)).all()
    before = noise.asked
    assert before > 0
    with pytest.raises(CertificateError, match="All choices"):
        choose(choices)
    assert noise.asked == before


def test_quantiles_stop_where_the_certificate_does():
    with pytest.raises(CertificateError):
        ExponentialChoices(1.0, 2, NoiseSource(0)).quantiles([0.1, 0.4], [0.1, 0.5, 0.9], 0.0, 1.0)


def test_a_pair_statistic_is_released_once():
    certificate = EvaluationCertificate.issue(PureDP(1.0), "score", "auc", 10, 2)
    noise = Watched(0)
    answers = PrivateAnswers({"score": certificate.term}, noise)
    assert answers.release(answers.claim("score"), [0.5, 1.0]).shape == (2,)
    before = noise.asked
    with pytest.raises(CertificateError, match="all of them are used"):
        answers.claim("score")
    with pytest.raises(CertificateError, match="another size"):
        answers.release(certificate.term, [0.5])
    assert noise.asked == before
