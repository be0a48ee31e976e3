"""Record and replay: everything that a fit lets out, and what a neighbour's fit would have let out
in its place.

A fit asks questions about its rows. Each answer passes the gate,
:class:`~dpconvex.privacy.noise.NoiseSource`, and what follows may depend on answers alone. So a fit
on D is run and its answers are kept; then a fit on a neighbour is run with the answers frozen. Both
must ask the same questions and show the same attributes to the last bit, and their exact values may
lie apart by no more than the certificate pays for.

What is no sum with noise passes hooks of its own here:

- a choice (exponential mechanism): the answer is the outcome, the values are the scores;
- objective perturbation: the answer is the minimiser, and the neighbour's tilt is the one that
  leads to the same point;
- stochastic descent: batches are frozen, and the values are the sums over them, step by step.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np

from dpconvex.core.calibration import gaussian_mu, grid_of
from dpconvex.core.guarantees import ApproxDP, GaussianDP, guaranteed_pure_epsilon
from dpconvex.core.noise_source import NoiseSource, Words, on_grid
from dpconvex.estimators import private_model as release_path
from dpconvex.mechanisms import dp_sgd
from dpconvex.mechanisms.mechanism import PrivateMechanism
from dpconvex.releases import exponential_choices, perturbed_minimiser
from dpconvex.solvers import sgd_loops

ROUNDING = 1 + 1e-9  # of the judge's own sums, and of a calibration's profile
GATE = "gate"
PICK = "choice"
TILT = "tilt"
BATCH = "batch"

_CHOOSE = exponential_choices.exponential_mechanism
_BELOW = Words.below
_SOLVE = perturbed_minimiser.certified_minimiser
_RELEASE = PrivateMechanism.release
_TAKE = dp_sgd._NoisySGDRun._take_sgd_steps
_STRUCTURED = dp_sgd.descend_noisy_sgd
_DRAW = sgd_loops.draw_sgd_batches
_MEMBERS = sgd_loops.sgd_batch_members


@dataclass
class Question:
    """What was asked, the exact value and the answer.

    ``asked`` is what an observer may see: kind, law, scale and shape. ``limit`` is how far the
    value may move, where the certificate's term is known.
    """

    asked: tuple[Any, ...]
    value: np.ndarray
    answer: np.ndarray
    limit: float = math.inf
    # The logarithm of the Hessian's determinant, and how far it may move.
    curvature: tuple[float, float] = (0.0, math.inf)
    ends: np.ndarray | None = None  # outcomes that share a score end here

    @property
    def kind(self) -> object:
        return self.asked[0]

    def move(self, other: Question) -> float:
        """Return how far the exact value moved: its length, or how far two scores moved apart."""
        if self.kind != PICK:
            return float(np.linalg.norm((self.value - other.value).ravel()))
        if self.ends is None or other.ends is None:
            apart = self.value - other.value
        else:
            places = np.union1d(self.ends, other.ends)
            apart = self._at(places) - other._at(places)
        return float(apart.max() - apart.min())

    def _at(self, places: np.ndarray) -> np.ndarray:
        """Return the scores of the outcomes just before some places."""
        assert self.ends is not None
        return self.value[np.searchsorted(self.ends, places)]


@dataclass
class Transcript:
    """Questions and answers of one fit; with a ``leader``, its answers; with a ``liar``, answers
    of its choice.
    """

    leader: Transcript | None = None
    liar: Callable[[np.ndarray, float], np.ndarray | None] | None = None
    seed: int = 0
    questions: list[Question] = field(default_factory=list)
    certificate: Any = None
    _batches: list[np.ndarray] = field(default_factory=list)
    _rest: int | None = None  # of an outcome: its place among those that share a score

    def _frozen(self) -> Question | None:
        """Return what the leader was asked at this point."""
        asked = [] if self.leader is None else self.leader.questions
        return asked[len(self.questions)] if len(self.questions) < len(asked) else None

    def _answer(self, honest, value, scale, most=math.inf):
        """Return the leader's answer, a lie of at most a size, or the honest one."""
        frozen = self._frozen()
        if frozen is not None and frozen.answer.shape == honest.shape:
            return frozen.answer
        lie = None if self.liar is None else self.liar(value, scale)
        return honest if lie is None else np.clip(lie, -most, most)

    def add(self, noise, law, value, scale, limit=math.inf):
        """The gate: the value on the public grid, plus noise; noise is drawn in any case, to
        stay in step.
        """
        grid = grid_of(scale)
        cells = on_grid(value, grid)
        law_of = noise.gaussian if law == "gaussian" else noise.l2_laplace
        drawn = on_grid(law_of(scale, cells.size), grid).reshape(cells.shape)
        value = cells * grid
        answer = self._answer((cells + drawn) * grid, value, scale)
        self.questions.append(Question((GATE, law, scale, cells.shape), value, answer, limit))
        return answer.copy()

    def choose(self, words, scores, rate, weights=None):
        """A draw from scores: the frozen outcome, wherever it stands among the neighbour's
        scores.
        """
        value = -np.asarray(scores, dtype=np.float64)
        frozen = self._frozen()
        index = _CHOOSE(words, scores, rate, weights)
        if weights is None:
            answer = self._answer(np.array(index), np.array(index), 1.0, 0)
            self.questions.append(Question((PICK, rate, value.shape), value, answer))
            return int(answer)
        # Outcomes share scores. Of which score the frozen one has, and its place there, the
        # neighbour says.
        ends = np.cumsum(np.asarray(weights, dtype=np.float64))
        self._rest = -1  # to be drawn next
        answer = np.array(index)
        if frozen is not None:
            answer = frozen.answer
            index = int(np.searchsorted(ends, answer, side="right"))
            self._rest = int(answer) - (int(ends[index - 1]) if index else 0)
        self.questions.append(Question((PICK, rate, ends[-1]), value, answer, ends=ends))
        return index

    def below(self, words, bound):
        """Whole random numbers; after a choice among scores that are shared, the place among the
        equals.
        """
        drawn = _BELOW(words, bound)
        if self._rest is None:
            return drawn
        rest = self._rest
        self._rest = None
        if rest >= 0:
            return rest
        last = self.questions[-1]
        before = int(last.answer[()])
        last.answer = np.array((int(last.ends[before - 1]) if before else 0) + drawn)
        return drawn

    def solve(self, solver, objective, start, tolerance):
        """A minimiser. Of a tilted objective it is the answer: a neighbour's tilt is the one
        that leads there.
        """
        point = _SOLVE(solver, objective, start, tolerance)
        assert np.linalg.norm(objective.gradient(point)) <= tolerance, "the gap is too wide"
        if not self.certificate.mechanism.endswith("objective"):
            return point
        bounds = self.certificate.bounds
        term = self.certificate.noise["objective"]
        theta = self._answer(point, point, 1.0, 2 * np.abs(point).max())
        gradient = objective.gradient(theta)
        asked = (TILT, term.distribution, term.scale, theta.shape, tolerance)
        question = Question(asked, bounds.linear_term_form[1] * gradient, theta, term.sensitivity)
        _, bend = np.linalg.slogdet(objective.hessian(theta))
        question.curvature = (float(bend), max(_determinant(bounds), 1e-9))
        self.questions.append(question)
        if theta is point:
            return point
        return _SOLVE(solver, objective.with_linear(-gradient), start, tolerance)

    def take(self, run, steps, total):
        """Steps of stochastic descent, one by one: what a batch sums to is asked, and theta is
        frozen.
        """
        rate = run.settings.step_size / run.size
        for _ in range(steps):
            drawn = np.random.Generator(np.random.SFC64([self.seed, len(self.questions)]))
            run.generator = drawn
            std = run.std
            run.std = 0.0
            before = run.theta.copy()
            _TAKE(run, 1, np.zeros_like(total))
            run.std = std
            run.theta[:] = before - rate * self._batch((before - run.theta) / rate, drawn)
            total += run.theta

    def _batch(self, value, generator):
        """Return the answer to what a batch sums to."""
        term = self.certificate.noise["gradients"]
        honest = value + term.scale * generator.standard_normal(value.shape)
        answer = self._answer(honest, value, term.scale, 1e6 * term.scale)
        asked = (BATCH, term.scale, value.shape)
        self.questions.append(Question(asked, value, answer, term.sensitivity))
        return answer

    def draw_batches(self, generator, sampling, n_rows, size, rate, steps):
        """Sizes and swaps of batches; where the neighbour has a record more, it is in every
        batch.
        """
        sizes, swaps = _DRAW(generator, sampling, n_rows, size, rate, steps)
        frozen = None if self.leader is None else self.leader._batches[len(self._batches)]
        if frozen is not None and frozen[0] != n_rows:
            sizes = np.array([frozen.size])
            swaps = np.zeros(frozen.size, np.int64)
        self._batches.append(np.array([n_rows]))
        return sizes, swaps

    def batch_members(self, permutation, sizes, swaps):
        """Members of a batch: those of the leader's, and the record more."""
        place = len(self._batches) - 1
        found = _MEMBERS(permutation, sizes, swaps)
        frozen = None if self.leader is None else self.leader._batches[place]
        if frozen is not None and frozen[0] != permutation.size:
            assert permutation.size == frozen[0] + 1, "the neighbour's record is the last"
            found = np.append(frozen[1:], permutation.size - 1)
        self._batches[place] = np.concatenate([[permutation.size], found])
        return found

    def structured(self, objective, certificate, generator, settings):
        """One step of stochastic descent on matrices, from 0: what its batch sums to is asked."""
        term = certificate.noise["gradients"]
        rate = settings.step_size / settings.batch_size
        generator = np.random.Generator(np.random.SFC64([self.seed]))
        silent = replace(certificate, noise={"gradients": replace(term, scale=1e-300, releases=1)})
        value = -_STRUCTURED(objective, silent, generator, settings) / rate
        return -rate * self._batch(value, generator)

    def release(self, mechanism, objective, certificate, *rest):
        self.certificate = certificate
        return _RELEASE(mechanism, objective, certificate, *rest)


def _determinant(bounds: Any) -> float:
    """Return by how much the logarithm of the Hessian's determinant may differ, by the theorem
    that is stated.
    """
    if bounds.trace_form is None:
        return float(bounds.rank * math.log1p(bounds.curvature_ratio))
    _, kappa, _, _, rank = bounds.trace_form
    return rank * math.log1p(kappa / rank)


@contextmanager
def listening(transcript: Transcript) -> Iterator[Transcript]:
    """Let all that is released pass through a transcript: the one place where the harness
    touches the library.
    """
    heard = transcript
    hooks = [
        (
            NoiseSource,
            "add",
            lambda noise, value, term: heard.add(
                noise, term.distribution, value, term.scale, term.rounded_sensitivity
            ),
        ),
        (
            NoiseSource,
            "add_gaussian",
            lambda noise, value, std: heard.add(noise, "gaussian", value, std),
        ),
        (
            NoiseSource,
            "add_l2_laplace",
            lambda noise, value, scale: heard.add(noise, "l2-laplace", value, scale),
        ),
        (exponential_choices, "exponential_mechanism", heard.choose),
        (Words, "below", lambda words, bound: heard.below(words, bound)),
        (perturbed_minimiser, "certified_minimiser", heard.solve),
        (PrivateMechanism, "release", lambda mechanism, *rest: heard.release(mechanism, *rest)),
        # What warns of privacy's cost sees the certificate alone, which is compared, and takes a
        # third of the time.
        (release_path, "warn_of_privacy_cost", lambda certificate, settings: None),
        (
            dp_sgd._NoisySGDRun,
            "_take_sgd_steps",
            lambda run, steps, total: heard.take(run, steps, total),
        ),
        (dp_sgd, "descend_noisy_sgd", heard.structured),
        (sgd_loops, "draw_sgd_batches", heard.draw_batches),
        (sgd_loops, "sgd_batch_members", heard.batch_members),
    ]
    with ExitStack() as stack:
        for owner, name, hook in hooks:
            stack.enter_context(mock.patch.object(owner, name, hook))
        yield transcript


@dataclass
class Run:
    """One fit: what passed the gate, all that it shows, and what it may spend, None where no sum
    of moves tells.
    """

    transcript: Transcript
    shown: object
    guarantee: Any


def run(fit: Callable[[], Any], **options: Any) -> Run:
    """Fit and keep everything that can be seen: questions, attributes, warnings, and an error if
    there is one.
    """
    with ExitStack() as stack:
        transcript = stack.enter_context(listening(Transcript(**options)))
        said = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        try:
            found: Any = fit()
        except Exception as error:
            leader = transcript.leader or transcript
            if leader.liar is None:
                raise
            # Answers that no noise gives may overflow: for everybody, and at the same point.
            return Run(transcript, (type(error), str(error)), transcript.certificate.guarantee)
    certificate = found.certificate_
    # Of several tries one is shown: what each of them may spend is more than its part of the whole.
    repeated = getattr(certificate, "strategy", "") == "repeat"
    shown = plain(vars(found)), [str(warning.message) for warning in said]
    return Run(transcript, shown, None if repeated else certificate.guarantee)


def plain(value: Any) -> Any:
    """Return nested tuples that are equal if and only if every bit is."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)
        if value.dtype == object:
            return tuple(plain(item) for item in value.tolist())
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return tuple((name, plain(value[name])) for name in sorted(value, key=str))
    if isinstance(value, (list, tuple)):
        return tuple(plain(item) for item in value)
    if isinstance(value, float):
        return value.hex()
    if hasattr(value, "to_json"):
        return value.to_json()
    if hasattr(value, "get_params"):
        return type(value).__name__, plain(vars(value))
    return repr(value)


def spent(first: Run, second: Run) -> float:
    """Return the share of the budget that tells two fits apart, after a check that nothing else
    does.
    """
    asked = first.transcript.questions
    again = second.transcript.questions
    assert asked, "nothing was asked"
    assert [question.asked for question in asked] == [question.asked for question in again]
    assert first.shown == second.shown, "what is shown depends on something that was not released"
    shares = [0.0]
    square = 0.0
    pure = 0.0
    moved = 0
    for mine, theirs in zip(asked, again, strict=True):
        move = mine.move(theirs)
        moved += move > 0
        shares.append(move / mine.limit)
        shares.append(abs(mine.curvature[0] - theirs.curvature[0]) / mine.curvature[1])
        if mine.kind == PICK:
            pure += move * mine.asked[1]
        elif mine.asked[:2] == (GATE, "gaussian"):
            square += (move / mine.asked[2]) ** 2
        elif mine.kind == GATE:
            pure += move / mine.asked[2]
    if getattr(first.transcript.certificate, "mechanism", "").startswith("phased"):
        assert moved <= first.transcript.certificate.problems, "a record is in several phases"
    if first.guarantee is not None and not {TILT, BATCH} & {question.kind for question in asked}:
        shares.append(pure / guaranteed_pure_epsilon(first.guarantee) if pure else 0.0)
        shares.append(math.sqrt(square) / mu_of(first.guarantee) if square else 0.0)
    return max(shares)


def mu_of(guarantee: Any) -> float:
    """Return the mu that Gaussian noise may spend together."""
    if isinstance(guarantee, GaussianDP):
        return guarantee.mu
    assert isinstance(guarantee, ApproxDP), "Gaussian noise proves no pure epsilon-DP"
    return gaussian_mu(guarantee.epsilon_bound, guarantee.delta_bound)
