"""A fit written by an enemy who holds the handle: it learns no more than the certificate says.

Each fit is a random program over the handle's public methods: too many uses, other sizes, NaN,
infinities, huge and ill-conditioned coordinates, subclasses of arrays, exceptions in between,
answers of earlier runs. It runs on a table and on a neighbour with the same answers; what moves, in
units of the stated noise, stays within the certificate, and what it is told or refused does not
depend on rows. Everything is seeded: no false alarms.
"""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

from dpconvex.core.certificate import CertificateError
from dpconvex.core.memory_rows import MemoryRows
from dpconvex.core.noise_source import NoiseSource
from dpconvex.core.private_rows import PrivateRows
from dpconvex.core.queries import QueryFactor, QueryScore, QuerySlope, QuerySlopes, QueryStatistic
from dpconvex.core.row_coordinates import Coordinates
from dpconvex.core.row_weights import RowWeights
from dpconvex.core.rows import RowMap
from dpconvex.losses import (
    CrammerSinger,
    DiscreteHazard,
    Hinge,
    Huber,
    Logistic,
    Pinball,
    ProportionalOdds,
    Softmax,
    Squared,
)
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.privacy import GaussianDP, LinearBounds
from dpconvex.smoothing import LogisticKernel, convolve

COLUMNS = 3
ODD = np.array([0.0, -1.0, 1.0, 5e-324, 1e300, -1e300, 0.3, 1 / 3])


class Scripted(NoiseSource):
    """Answers that were written before; what would have been answered is kept."""

    def __init__(self, seed: int) -> None:
        super().__init__(0)
        self.script = np.random.default_rng(seed)
        self.exact = []

    def add(self, value, term):
        value = np.array(value, dtype=np.float64)
        self.exact.append((value, term))
        kind = self.script.integers(10)
        answer = self.script.normal(scale=term.scale, size=value.shape)
        answer = answer + self.script.normal(scale=5.0, size=value.shape)
        if kind == 0:
            answer[...] = self.script.choice([0.0, 1e300, -1e300, np.inf, -np.inf, np.nan])
        return answer


def certificates(relation: str, people: bool):
    facts = dict(
        row_norm=math.sqrt(COLUMNS), max_norm=math.sqrt(COLUMNS), neighbors=relation, alpha=0.0
    )
    claim = GaussianDP(3.0)
    descent = NoisyGradientDescent()
    for loss in (Pinball(0.8), Logistic(), Squared()):
        bounds = LinearBounds(12, COLUMNS, loss, **facts, people=people)
        yield descent.certify(bounds, claim)
        if not people:
            settings = {"gradient": descent.settings(), "inference": True}
            yield descent.certify(bounds, claim, settings)
    for several in (Softmax(3), DiscreteHazard(2)):
        yield descent.certify(LinearBounds(12, COLUMNS, several, **facts, people=people), claim)
    levels = {"gradient": descent.settings(levels=(0.2, 0.9))}
    yield descent.certify(
        LinearBounds(12, COLUMNS, Pinball(0.5), **facts, people=people), claim, levels
    )


def a_row(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    X = rng.uniform(-1, 1, COLUMNS)
    y = rng.uniform(-1, 1)
    if rng.random() < 0.5:
        X[rng.random(COLUMNS) < 0.5] = rng.choice(ODD)
        y = rng.choice(ODD)
    return X, float(rng.choice([np.sign(y) or 1.0, y]))


def tables(rng: np.random.Generator, relation: str, people: bool):
    """Return two neighbouring tables."""
    rows = [a_row(rng) for _ in range(12)]
    names = np.arange(12) if not people else np.repeat(np.arange(6), 2)
    place = int(rng.integers(12))
    other = list(rows)
    if relation == "replace_one":
        for row in np.flatnonzero(names == names[place]):
            other[row] = a_row(rng)
        return (rows, names), (other, names)
    keep = np.flatnonzero(names != names[place])
    return (rows, names), ([rows[i] for i in keep], names[keep])


def handle(table, certificate, noise: NoiseSource, people: bool) -> PrivateRows:
    rows, names = table
    row_map = RowMap.from_bounds(COLUMNS, (-1, 1))
    X = np.array([x for x, _ in rows])
    y = np.array([t for _, t in rows])
    votes = None
    if people:
        _, counts = np.unique(names, return_counts=True)
        shares = np.repeat(1 / counts, counts)
        votes = RowWeights(shares, counts.size)
    engine = MemoryRows(X, np.clip(y, -1, 1), row_map, row_weights=votes)
    if certificate.bounds.loss.kind == "margin":
        engine = engine.with_labels()
    return PrivateRows([engine], certificate, noise)


class Odd(np.ndarray):
    """An array that answers with other numbers each time it is read."""

    def __array_finalize__(self, other):
        pass


def odd_array(rng: np.random.Generator, *shape: int):
    values = rng.normal(scale=rng.choice([0.0, 1.0, 1e-200, 1e200]), size=shape)
    if rng.random() < 0.2:
        values.flat[0] = rng.choice([np.nan, np.inf, -np.inf, 1e308])
    kind = rng.integers(4)
    if kind == 0:
        return values.view(Odd)
    if kind == 1:
        return values.tolist()
    return values


def a_matrix(rng: np.random.Generator):
    size = COLUMNS + 1
    kind = rng.integers(5)
    if kind == 0:
        return np.diag(10.0 ** rng.uniform(-3, 3, size))
    if kind == 1:
        return 10.0 ** rng.uniform(-3, 3, size)
    if kind == 2:  # in which digits would be lost
        return np.eye(size) + 1e14 * np.eye(size, k=-1)
    matrix = rng.normal(size=(size, size))
    return matrix if kind == 3 else odd_array(rng, size, size)


LOSSES = (
    Logistic(),
    Hinge(),
    Pinball(0.8),
    Huber(0.3),
    convolve(Pinball(0.2), LogisticKernel(), 0.1),
)


def ask(rows: PrivateRows, rng: np.random.Generator, names: list[str]):
    """Ask one question that an enemy may think of."""
    name = str(rng.choice([*names, *names, "no such term"]))
    size = COLUMNS + 1
    unit = float(
        rng.choice([1.0, 1e-3, 1e3, 0.0, -1.0, np.nan, np.inf], p=[0.4, 0.2, 0.2] + [0.05] * 4)
    )
    frame = Coordinates(a_matrix(rng), int(rng.integers(2)))
    statistic = QueryStatistic(
        str(rng.choice(["target", "label", "length", "residual", "margin", "distance", "name"])),
        odd_array(rng, size),
        float(rng.normal()),
        frame,
    )
    loss = LOSSES[rng.integers(len(LOSSES))]
    slope = QuerySlope(
        loss, float(rng.choice([0.0, 0.5])), str(rng.choice(["weight", "square", "clip"]))
    )
    factor = (
        None,
        QueryFactor("slope", loss),
        QueryFactor("inside", width=0.5),
        QueryFactor("curvature", Logistic()),
    )
    several = (Softmax(3), DiscreteHazard(2), CrammerSinger(3), ProportionalOdds(3))[
        rng.integers(4)
    ]
    if rows.bounds.neighbors == "replace_one" and rng.random() < 0.2:
        rows = rows.part(int(rng.integers(1, 14)))
    questions = {
        "count": lambda: rows.count(name, statistic, float(rng.normal())),
        "histogram": lambda: rows.histogram(
            name,
            statistic,
            np.linspace(-1, 1, int(rng.choice([63, 15, 25, 48, 5]))),
            bool(rng.integers(2)),
        ),
        "octaves": lambda: rows.column_octaves(name, 0, int(rng.choice([16, 16, 8]))),
        "slopes": lambda: rows.slope_sum(name, odd_array(rng, size), slope, frame, unit),
        "several": lambda: rows.slopes_sum(
            name,
            odd_array(rng, several.margins, size),
            QuerySlopes(several, slope.weighting),
            frame,
            unit,
        ),
        "moments": lambda: rows.second_moments(
            name, frame, unit, factor[rng.integers(4)], odd_array(rng, size)
        ),
        "score": lambda: rows.limited_sum(name, QueryScore("residual", odd_array(rng, size), unit)),
    }
    return questions[str(rng.choice(list(questions)))]()


def run(table, certificate, seed: int, people: bool):
    """Return what an enemy heard, and what it would have heard without noise."""
    noise = Scripted(seed)
    rng = np.random.default_rng([seed, 1])
    rows = handle(table, certificate, noise, people)
    names = list(certificate.noise)
    heard = []
    with np.errstate(all="ignore"):
        for _ in range(60):
            state = rng.bit_generator.state
            try:
                answer = ask(rows, rng, names)
                heard.append(np.asarray(answer).tobytes())
            except Exception as error:
                heard.append(f"{type(error).__name__}: {error}")
                rng.bit_generator.state = state
                rng.random(7)
    return heard, noise.exact


def spent(first, second) -> float:
    return sum(
        float(np.square((one - two) / term.scale).sum())
        for (one, term), (two, _) in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("people", [False, True])
@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_no_fit_exceeds_the_certificate(relation, people):
    largest = 0.0
    refused = 0
    for certificate in certificates(relation, people):
        for seed in range(12):
            first, second = tables(np.random.default_rng([seed, 2]), relation, people)
            heard, exact = run(first, certificate, seed, people)
            also, moved = run(second, certificate, seed, people)
            assert heard == also
            refused += sum(isinstance(words, str) for words in heard)
            ratio = spent(exact, moved) / certificate.gaussian_mu() ** 2
            assert ratio <= 1 + 1e-9
            largest = max(largest, ratio)
    assert refused > 100  # there were questions to refuse
    assert largest > 0.02  # and answers that moved


def test_one_use_too_many_raises_before_noise_is_drawn():
    certificate = next(certificates("replace_one", False))
    noise = Scripted(0)
    rows = handle(
        tables(np.random.default_rng(0), "replace_one", False)[0], certificate, noise, False
    )
    for _ in range(certificate.noise["targets"].releases):
        rows.count("targets", QueryStatistic("target"), 0.0)
    before = len(noise.exact)
    with pytest.raises(CertificateError, match="all of them are used"):
        rows.part(5).count("targets", QueryStatistic("target"), 0.0)
    assert len(noise.exact) == before


def test_uses_are_counted_across_threads():
    certificate = next(certificates("replace_one", False))
    noise = Scripted(0)
    rows = handle(
        tables(np.random.default_rng(0), "replace_one", False)[0], certificate, noise, False
    )
    allowed = certificate.noise["targets"].releases

    def ask_often() -> None:
        for _ in range(allowed):
            with np.errstate(all="ignore"):
                try:
                    rows.count("targets", QueryStatistic("target"), 0.1)
                except CertificateError:
                    return

    threads = [threading.Thread(target=ask_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(noise.exact) == allowed


def test_a_handle_that_does_not_clip_is_caught(monkeypatch):
    """What the test above would catch: weights of 1 for all rows."""
    from dpconvex.core import private_rows

    monkeypatch.setattr(
        private_rows._PrivateRowWeights,
        "__call__",
        lambda self, lengths: np.full_like(lengths, 40.0),
    )
    with pytest.raises(AssertionError):
        test_no_fit_exceeds_the_certificate("replace_one", False)
