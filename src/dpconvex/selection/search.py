"""One search of `DPSelect`: rows apart, candidates fitted and scored, one of them drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpconvex.core.choices import Choices, repeat_and_select
from dpconvex.engine.votes import Tags
from dpconvex.inputs.estimator_protocols import Classifier, Model
from dpconvex.privacy.certificates.selection import SelectionCertificate
from dpconvex.privacy.noise import NoiseSource
from dpconvex.scores import Targets
from dpconvex.selection.candidates import Candidate, Score, budgeted
from dpconvex.types import Array

__all__ = ["Search", "held_out"]


def held_out(certificate: SelectionCertificate, share: float, count: int, noise: NoiseSource) -> NDArray[np.bool_]:
    """Return which rows are held out for validation, drawn independently of what they hold."""
    if certificate.neighbors == "add_or_remove_one":
        # A coin for each row: one row more or less leaves the law of all others' parts as it is.
        return np.asarray(noise.generator.random(count) < share)
    held = np.zeros(count, dtype=bool)
    held[noise.generator.permutation(count)[: certificate.validation_rows]] = True
    return held


@dataclass(frozen=True)
class Search:
    """What was promised, what candidates are compared by, and the rows of both parts.

    Attributes
    ----------
    estimator : estimator
        Whose parameters the candidates set.
    candidates : list of dict
        Checked.
    certificate : SelectionCertificate
        The total guarantee, and what each fit may spend of it.
    score : RowScore, AUCScore, RightOrWrong or ResidualScore
        On validation rows.
    training, validation : pair of arrays
        Rows and targets.
    labels : array or None
        Of a classifier.
    noise : NoiseSource
        Of all choices.
    training_people, validation_people : array, optional
        Tags of the people behind the rows.
    """

    estimator: Model
    candidates: list[Candidate]
    certificate: SelectionCertificate
    score: Score
    training: tuple[Array, Targets]
    validation: tuple[Array, Targets]
    labels: Targets | None
    noise: NoiseSource
    training_people: Tags | None = None
    validation_people: Tags | None = None

    def run(self) -> tuple[Classifier, Candidate]:
        """Return the winner, fitted, and its parameters."""
        return self._repeat() if self.certificate.strategy == "repeat" else self._exponential()

    def _fit_one(self, parameters: Candidate) -> tuple[Classifier, int]:
        """Return a fitted candidate and its exact score on the validation rows, in steps of the grid: private."""
        certificate, noise = self.certificate, self.noise
        seed = int(noise.generator.integers(2**31 - 1)) if noise.seeded else None
        per_fit, rows = certificate.per_fit, certificate.training_rows
        model = budgeted(self.estimator, parameters, per_fit, rows, seed)
        if self.labels is not None and model.classes is None:
            model.classes = self.labels.tolist()
        if self.training_people is None:
            model.fit(*self.training)
        else:
            cast(Any, model).fit(*self.training, groups=self.training_people)
        people = self.validation_people
        return model, self.score.steps(model, *self.validation, certificate.neighbors, people)

    def _exponential(self) -> tuple[Classifier, Candidate]:
        certificate = self.certificate
        fits = [self._fit_one(candidate) for candidate in self.candidates]
        steps = np.array([reached for _, reached in fits], dtype=np.int64)
        choices = Choices(certificate.noise["epsilon"], 1, self.noise)
        winner = choices.candidate(steps, certificate.score, certificate.neighbors)
        return fits[winner][0], self.candidates[winner]

    def _repeat(self) -> tuple[Classifier, Candidate]:
        def run(number: int) -> tuple[tuple[Classifier, Candidate], int]:
            model, steps = self._fit_one(self.candidates[number])
            return (model, self.candidates[number]), steps

        certificate, count = self.certificate, len(self.candidates)
        std = certificate.noise["std"]
        return repeat_and_select(run, count, certificate.mean_repeats, std, self.noise)
