"""Coupled runs on neighbours that differ in a person: all rows at once, how many there are, and the
identifier.

The second run is made to release what the first did, as in ``coupled_runs``: what it would have
released without noise may differ by no more than is paid for, and nothing else that a fit shows may
differ at all.
"""

import math
import warnings
from decimal import Decimal

import coupled_runs as coupled
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex import (
    DPAUCClassifier,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPNewsvendor,
    DPQuantileRegressor,
    DPRobustClassifier,
    DPRobustRegressor,
    DPTiltedClassifier,
    DPTiltedRegressor,
)
from dpconvex.assessment import evaluation_statistics
from dpconvex.core import memory_rows
from dpconvex.core.person_identifiers import person_tags
from dpconvex.core.row_weights import (
    RowWeights,
    equal_person_weights,
    round_weights_to_grid,
    weights_limiting_rows,
)
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.estimators import private_model as release_path
from dpconvex.fit import constants
from dpconvex.inputs import people_and_weights
from dpconvex.losses import Logistic, Pinball
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import LinearBounds
from dpconvex.smoothing import LogisticKernel, convolve

ROUNDING = 1 + 1e-9
RELATIONS = ["replace_one", "add_or_remove_one"]
MODELS = {
    "quantile": lambda **public: DPQuantileRegressor(0.8, target_bounds=(-2, 2), **public),
    "newsvendor": lambda **public: DPNewsvendor(3.0, 1.0, target_bounds=(-2, 2), **public),
    "levels": lambda **public: DPQuantileRegressor((0.1, 0.6), target_bounds=(-2, 2), **public),
    "least squares": lambda **public: DPLinearRegression(target_bounds=(-2, 2), **public),
    "logistic": lambda **public: DPLogisticRegression(classes=[0, 1], **public),
    "hinge": lambda **public: DPLinearSVC(classes=[0, 1, 2], alpha=0.1, **public),
    "weighted classes": lambda **public: DPLogisticRegression(
        classes=[0, 1, 2], class_weight={0: 0.3, 2: 2.0}, **public
    ),
    "ranking": lambda **public: DPAUCClassifier(classes=[0, 1], **public),
    "output": lambda **public: DPLogisticRegression(
        classes=[0, 1], mechanism="output", alpha=0.3, **public
    ),
    "kinked output": lambda **public: DPQuantileRegressor(
        0.8, target_bounds=(-2, 2), mechanism="output", alpha=0.3, **public
    ),
    "robust": lambda **public: DPRobustClassifier(0.1, classes=[0, 1], alpha=0.3, **public),
    "robust regression": lambda **public: DPRobustRegressor(0.1, alpha=0.3, **public),
    "tilted share": lambda **public: DPTiltedClassifier(
        share=1.0, classes=[0, 1], alpha=0.3, **public
    ),
    "tilted maximum": lambda **public: DPTiltedRegressor(share="max", alpha=0.3, **public),
    "tilted": lambda **public: DPTiltedClassifier(1.0, classes=[0, 1], alpha=0.3, **public),
    "tilted regression": lambda **public: DPTiltedRegressor(
        1.0, target_bounds=(-2, 2), alpha=0.3, **public
    ),
}
ONLY_REPLACE = {"ranking", "tilted", "tilted regression"}
CLASSES = {"hinge": 3, "weighted classes": 3}


def fitted(model, table, patch, leader=None):
    """Return all that a fit shows (attributes and warnings), and its noise."""
    noise = coupled.Coupled(0, leader)
    patch.setattr(release_path, "noise_source_setting", lambda model, certificate: noise)
    X, y, groups, sample_weight = table
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(X, y, sample_weight=sample_weight, groups=groups)
    shown = {name: value for name, value in vars(model).items() if name.endswith("_")}
    shown["certificate_"] = shown["certificate_"].to_json()
    return (shown, [str(warning.message) for warning in said]), noise


def plain(value):
    """Return nested lists that can be compared bit by bit."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def population(rng, people, columns, classes, kinds="mixed"):
    """Return the rows of each person: few or many, alike or not, at the bounds or far beyond."""
    table = []
    for _ in range(people):
        rows = int(rng.choice([1, 1, 2, 3, 7, 40]))
        X = rng.choice([-1e9, -1.0, 0.0, 0.3, 1e-9, 1e9], size=(rows, columns))
        if kinds == "alike" or rng.random() < 0.5:
            X[:] = X[0]
            label = rng.integers(classes)
            y = np.full(rows, float(label))
        else:
            y = rng.integers(0, classes, rows).astype(float)
        table.append((X, y, rng.random(rows)))
    return table


def joined(persons, names, weights=None):
    """Return one table of people's rows, in an order in which everybody's own keep theirs."""
    X, y, places = (np.concatenate([person[i] for person in persons]) for i in range(3))
    groups = np.repeat(np.array(names), [len(person[1]) for person in persons])
    order = np.argsort(places)
    given = None if weights is None else np.concatenate(weights)[order]
    return X[order], y[order], groups[order], given


def spent_by(first, second, make, public, patch):
    """Return the mu that tells two tables apart, after a check that nothing else does."""
    mine, leader = fitted(make(**public), first, patch)
    theirs, follower = fitted(make(**public), second, patch, leader)
    assert plain(mine) == plain(theirs)
    assert len(leader.log) == len(follower.log)
    return math.sqrt(
        math.fsum(
            float(np.sum((a - b) ** 2)) / term.scale**2
            for (a, _, term), (b, _, _) in zip(leader.log, follower.log, strict=True)
        )
    )


def neighbours(name, relation, rng, weighted=False, people_at_most=12):
    """Return two tables that differ in one person."""
    classes = CLASSES.get(name, 2)
    count = int(rng.integers(1, people_at_most))
    persons = population(rng, count + 1, 3, classes)
    if rng.random() < 0.4:  # one row against as many as can be, at the other end
        X, y, _ = persons[0]
        opposite = np.repeat(-X[:1], 50, axis=0), np.repeat((y[:1] + 1) % classes, 50)
        persons[count] = (*opposite, rng.random(50))
    names = [f"person {number}" for number in range(count + 1)]
    weights = [rng.choice([0.0, 0.1, 1.0], len(y)) for _, y, _ in persons] if weighted else None
    place = int(rng.integers(count))
    first = list(range(count))
    second = [*range(count), count] if relation == "add_or_remove_one" else first.copy()
    if relation == "replace_one":
        second[place] = count
    called = [names, names.copy()]
    if rng.random() < 0.5:  # the replacement may have the name of the one it replaces
        called[1][count] = names[place] if relation == "replace_one" else names[count]

    def table(chosen, labels):
        own = None if weights is None else [weights[i] for i in chosen]
        return joined([persons[i] for i in chosen], [labels[i] for i in chosen], own)

    return table(first, called[0]), table(second, called[1])


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", MODELS)
def test_a_person_is_worth_no_more_than_the_budget(name, relation, monkeypatch):
    if relation == "add_or_remove_one" and name in ONLY_REPLACE:
        pytest.skip("no bound is known")
    for seed in range(6):
        rng = np.random.default_rng(seed)
        weighted = bool(seed % 2) and not name.startswith("tilted")
        first, second = neighbours(name, relation, rng, weighted)
        public = {"mu": float(rng.choice([0.3, 30.0])), "neighbors": relation}
        public |= {"feature_bounds": [(-2.0, 2.0), (0.5, 2.0)][seed % 2]}
        public |= {"row_norm": [None, 0.4][seed % 3 == 0], "fit_intercept": seed % 4 > 0}
        if name == "ranking":
            public.pop("fit_intercept")
        if relation == "add_or_remove_one":
            public["nominal_samples"] = int(rng.choice([1, 5, 50]))
        spent = spent_by(first, second, MODELS[name], public, monkeypatch)
        assert spent <= public["mu"] * ROUNDING


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "name", ["quantile", "logistic", "output", "robust", "levels", "least squares"]
)
def test_a_person_with_some_rows_of_its_own_is_worth_no_more(name, relation, monkeypatch):
    """At most k rows by identifier, or k rows that are promised and replaced where they stand."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        public = {"mu": 5.0, "neighbors": relation, "feature_bounds": (-2.0, 2.0)}
        public |= {"rows_per_person": 3, "person_weight": "rows"}
        if relation == "add_or_remove_one":
            public["nominal_samples"] = 9
        first, second = neighbours(name, relation, rng)
        assert spent_by(first, second, MODELS[name], public, monkeypatch) <= 5.0 * ROUNDING
        public |= {"rows_per_person": 3, "person_weight": "equal"}
        X, y, _, _ = joined(population(rng, 5, 3, 2), range(5))
        other = X.copy()
        label = y.copy()
        places = rng.choice(len(y), min(3, len(y)), replace=False)
        other[places] = -np.sign(X[places]) * 1e9
        label[places] = 1 - y[places]
        kept = slice(None) if relation == "replace_one" else np.delete(np.arange(len(y)), places)
        tables = (X, y, None, None), (other[kept], label[kept], None, None)
        if relation == "add_or_remove_one":
            tables = tables[0], (X[kept], y[kept], None, None)
        assert spent_by(*tables, MODELS[name], public, monkeypatch) <= 5.0 * ROUNDING


NUMBERS = [7, 12, 2**53 + 1, 2**53 + 2, 2**63 + 5, -(2**62), 10**30, 8, 0, 99, 100, 101, 102]
FORMS = [
    str,
    Decimal,
    lambda number: f" 0{number}" if number >= 0 else str(number),
    lambda number: str(number).encode(),
]
NOBODIES = [None, math.nan, "", "nan", 0.5, "0.5", 2.0**60, math.inf]


def written(table, names, rng, odd):
    """Return a table in which a reader wrote identifiers in all ways that name the same people,
    and nobody more.
    """
    X, y, groups, _ = table
    ids = np.empty(len(y) + odd, dtype=object)
    for row, group in enumerate(groups):
        number = NUMBERS[names.index(group)]
        forms = [int, *FORMS, *([float] if abs(number) < 2**53 else [])]
        ids[row] = forms[rng.integers(len(forms))](number)
    ids[len(y) :] = rng.choice(np.array(NOBODIES, dtype=object), odd)
    more = rng.integers(len(y), size=odd)
    return np.concatenate([X, X[more]]), np.concatenate([y, y[more]]), ids, None


def in_chunks(table):
    da = pytest.importorskip("dask.array")
    X, y, ids, weights = table
    arrays = (da.from_array(part, chunks=(20, *part.shape[1:])) for part in (X, y, ids))
    return *arrays, weights


@pytest.mark.parametrize("engine", ["memory", "dask"])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", ["quantile", "logistic", "least squares", "output"])
def test_how_identifiers_are_written_is_worth_nothing(name, relation, engine, monkeypatch):
    """A neighbour's identifier makes a reader write everybody else's in another way, as pandas
    does: 7 and "7".
    """
    for seed in range(4 if engine == "memory" else 1):
        rng = np.random.default_rng(seed)
        tables = neighbours(name, relation, rng)
        names = [f"person {number}" for number in range(len(NUMBERS))]
        tables = [written(table, names, rng, int(rng.integers(4))) for table in tables]
        if engine == "dask":
            tables = [in_chunks(table) for table in tables]
        public = {"mu": 5.0, "neighbors": relation, "feature_bounds": (-2.0, 2.0)}
        public["invalid_rows"] = "ignore"
        if seed % 2:
            public |= {"rows_per_person": 2, "person_weight": "rows"}
        if relation == "add_or_remove_one":
            public["nominal_samples"] = 9
        assert spent_by(*tables, MODELS[name], public, monkeypatch) <= 5.0 * ROUNDING


@pytest.mark.parametrize("large", [2**53 + 1, -(2**53) - 1, 2**60 + 1])
def test_partitions_of_floats_give_nobody_a_second_vote(large):
    """A missing identifier makes floats of a partition's others, and those beyond 2^53 others
    than they were.
    """
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    ids = [[large, large + 2, 7, 7], [large, None, 7, None], [str(large), "new", "7", 7]]
    rows = {"x": [0.0, 0.5, 1.0, 0.5], "y": [0.0, 1.0, 1.0, 0.0]}
    parts = [pd.DataFrame({**rows, "id": column}) for column in ids]
    assert [part["id"].dtype.kind for part in parts] == list("ifO")
    meta = parts[0][:0]
    table = dd.from_map(lambda i: parts[i], range(3), meta=meta, enforce_metadata=False)
    model = DPLinearRegression(feature_bounds=(0, 1), target_bounds=(0, 1), invalid_rows="ignore")
    model.fit(table[["x"]], table["y"], groups=table["id"])
    assert model.certificate_.bounds.n_samples == 4  # large, large + 2, 7 and new


@pytest.mark.parametrize("count", [1, 2, 2**12, 2**14, 2**17])
def test_votes_of_others_do_not_depend_on_how_many_people_there_are(count):
    """Where their number is private, a grid that follows it moves everybody's weights when one
    person joins.
    """
    before = np.repeat(np.arange(count), 3)
    after = np.repeat(np.arange(count + 1), 3)
    model = DPLinearRegression(neighbors="add_or_remove_one", nominal_samples=4096)
    bounds = model.certify(4096, 1, groups=True).bounds
    cast = []
    binned = []
    for ids in (before, after):
        X = np.zeros((ids.size, 1))
        cast.append(
            people_and_weights.round_row_weights(
                people_and_weights.read_row_weights(model, X, None, ids)[1], bounds
            ).values
        )
        rows = evaluation_statistics.EvaluatedRows(
            None, X, X[:, 0], people_and_weights.read_people(ids, X, "it")
        )
        binned.append(
            evaluation_statistics._bin_evaluated_scores(
                rows, np.where(ids < count, 0.0, 1.0), 0.0, 1.0, 2
            )
        )
    assert np.array_equal(cast[0], cast[1][: before.size])
    assert cast[1].sum() - cast[0].sum() <= 1
    assert binned[0][0] == binned[1][0]
    assert binned[0][1] == 0 < binned[1][1] <= 1


@pytest.mark.parametrize("name", ["quantile", "logistic"])
def test_a_person_is_in_a_part_with_all_its_rows_or_none(name, monkeypatch):
    """Geometry and early steps on part of the people, whom nothing but their own identifiers
    choose.
    """
    monkeypatch.setattr(constants, "GEOMETRY_ROWS", (4.0, 4.0))
    monkeypatch.setattr(constants, "EARLY_ROWS", (4.0, 0.0))
    for seed in range(15):
        first, second = neighbours(
            name, "replace_one", np.random.default_rng(seed), people_at_most=40
        )
        public = {"mu": 10.0, "feature_bounds": (-2.0, 2.0)}
        assert spent_by(first, second, MODELS[name], public, monkeypatch) <= 10.0 * ROUNDING


@pytest.mark.parametrize("name", ["quantile", "logistic", "weighted classes"])
def test_compiled_kernels_carry_votes(name, monkeypatch):
    monkeypatch.setattr(memory_rows, "CACHE_BYTES", 0)
    monkeypatch.setattr("dpconvex.core.summation.BLOCK_BYTES", 1)
    for seed in range(10):
        first, second = neighbours(
            name, "replace_one", np.random.default_rng(seed), seed % 2 == 0, people_at_most=60
        )
        public = {"mu": 10.0, "feature_bounds": (-2.0, 2.0)}
        assert spent_by(first, second, MODELS[name], public, monkeypatch) <= 10.0 * ROUNDING


def worst_spent(name, patch, seeds=range(30)):
    """Return the largest share of the budget that neighbours at the extremes spend."""
    worst = 0.0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        persons = population(rng, 4, 1, 2, "alike")
        X = np.ones((50, 1))
        persons[0] = (X, np.ones(50), rng.random(50))
        other = [(X[:1], np.zeros(1), np.zeros(1)), *persons[1:]]
        tables = (joined(group, list("abcd")) for group in (persons, other))
        public = {"mu": 2.0, "feature_bounds": (-1.0, 1.0)}
        worst = max(worst, spent_by(*tables, MODELS[name], public, patch) / 2.0)
    return worst


@pytest.mark.parametrize(
    ("name", "rows"), [("quantile", 2), ("logistic", 1), ("output", 50), ("least squares", 1)]
)
def test_forgotten_rows_are_caught(name, rows, monkeypatch):
    """Somebody with 50 rows, of which one or two count as a whole person (all, where bounds are
    wide): it is seen.
    """
    assert worst_spent(name, monkeypatch, range(3)) <= ROUNDING

    def forgetful(shares, most_records):
        rounded = round_weights_to_grid(shares, most_records)
        rounded[np.argsort(rounded)[:rows]] = 1.0
        return rounded

    monkeypatch.setattr(people_and_weights, "round_weights_to_grid", forgetful)
    assert worst_spent(name, monkeypatch, range(3)) > 1.3


def counted_in_part(table, records):
    """Return how many votes each first column has among the people of a part."""
    X, y, names, _ = table
    tags = person_tags(names)
    count, shares = equal_person_weights(tags)
    ballot = RowWeights(round_weights_to_grid(shares, count), count, tags)
    rows = MemoryRows(X, y, RowMap(X.shape[1], 1.0), threads=1, row_weights=ballot).part(records)
    (found,) = rows.sum_weighted(
        lambda block, y, w, v: (np.bincount((block[:, 1] > 0) + 2 * (y > 0), v, minlength=4),)
    )
    return found


def furthest_in_part():
    """Return how far neighbours' histograms of a part lie apart at most."""
    pairs = (
        neighbours("logistic", "replace_one", np.random.default_rng(i), False, 40)
        for i in range(200)
    )
    return max(
        float(np.linalg.norm(counted_in_part(first, 5) - counted_in_part(second, 5)))
        for first, second in pairs
    )


def test_a_part_by_rows_would_be_caught(monkeypatch):
    """The first rows of a table, or every so many of them, are others when a person has more
    rows than before.
    """
    assert 1 <= furthest_in_part() <= math.sqrt(2)
    monkeypatch.setattr(
        RowWeights, "rows_in_part", lambda self, records: np.arange(min(self.values.size, 20))
    )
    assert furthest_in_part() > 2


@given(seed=st.integers(0, 100_000))
@settings(max_examples=150, derandomize=True, deadline=None)
def test_gradient_and_curvature_of_a_person_keep_to_those_of_a_row(seed):
    """What objective perturbation rests on: a gradient that moves by 2 L, and a trace of beta
    for each person.
    """
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    intercept = bool(rng.integers(2))
    loss = [Logistic(), convolve(Pinball(0.8), LogisticKernel(), 0.3)][seed % 2]
    row_map = RowMap.from_bounds(d, (-1.0, 2.0), [None, 0.4][seed % 3 == 0], intercept)
    bounds = LinearBounds(
        3, d, loss, row_map.row_norm, row_map.max_norm, intercept, 0.1, people=True
    )
    persons = population(rng, 4, d, 2)
    theta = rng.normal(size=row_map.dim) * rng.choice([0.0, 1.0, 30.0])

    def objective(chosen, divisor=3):
        X, y, names, _ = joined([persons[i] for i in chosen], chosen)
        tags = person_tags(names)
        count, shares = equal_person_weights(tags)
        rows = MemoryRows(
            X,
            2 * y - 1,
            row_map,
            threads=1,
            row_weights=RowWeights(round_weights_to_grid(shares, 3), count, tags),
        )
        return EmpiricalObjective(rows, loss, 0.0, divisor=divisor)

    moved = 3 * (objective([0, 1, 2]).gradient(theta) - objective([0, 1, 3]).gradient(theta))
    assert np.linalg.norm(moved) <= bounds.gradient_sum_sensitivity() * ROUNDING
    alone = objective([3], divisor=1)
    assert np.linalg.norm(alone.gradient(theta)) <= bounds.lipschitz * ROUNDING
    assert np.trace(alone.hessian(theta)) <= bounds.smoothness * ROUNDING


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(1, 4))
@settings(max_examples=200, derandomize=True, deadline=None)
def test_votes_of_everybody_sum_to_one_at_most(names, each):
    tags = person_tags(np.array(names))
    count, shares = equal_person_weights(tags)
    assert count == len(set(names))
    rounded = round_weights_to_grid(shares, count)
    chosen = weights_limiting_rows(tags, each)
    for name in set(names):
        own = np.array(names) == name
        assert 1 - 1e-9 <= math.fsum(rounded[own]) <= 1
        assert chosen[own].sum() == min(each, own.sum())
    # Which of somebody's rows are chosen does not depend on anybody else.
    alone = np.flatnonzero(np.array(names) == names[0])
    assert np.array_equal(chosen[alone], weights_limiting_rows(tags[alone], each))


def test_sums_of_votes_are_exact_in_any_order():
    rng = np.random.default_rng(0)
    tags = person_tags(rng.integers(0, 30_000, 200_000))
    count, shares = equal_person_weights(tags)
    rounded = round_weights_to_grid(shares, count)
    exact = math.fsum(rounded)
    assert exact == rounded.sum() == np.cumsum(rounded)[-1] == rounded[::-1] @ np.ones(200_000)
    assert shares.sum() != exact  # what rounding is for


def test_people_are_partitioned_and_drawn_one_by_one():
    """Phases and batches: all rows of a person go together, and no person counts for more than
    one.
    """
    rng = np.random.default_rng(0)
    names = rng.integers(0, 50, 400)
    tags = person_tags(names)
    count, shares = equal_person_weights(tags)
    weights = rng.choice([0.0, 0.5, 1.0], 400)
    ballot = RowWeights(round_weights_to_grid(shares * weights, count), count, tags)
    order = rng.permutation(count)
    parts = [ballot.rows_of_people(part) for part in np.array_split(order, 7)]
    assert sorted(np.concatenate(parts)) == np.flatnonzero(ballot.values > 0).tolist()
    people_of = [set(names[part]) for part in parts]
    assert sum(map(len, people_of)) == len(set().union(*people_of))
    total = np.zeros(400)
    for _ in range(4000):
        rows, shares_drawn = ballot.one_row_each(np.arange(count), rng)
        voting = shares_drawn > 0
        assert np.unique(names[rows[voting]]).size == voting.sum() <= count
        assert shares_drawn.max() <= 1
        total[rows] += shares_drawn
    # On average every row counts for its vote: within six standard errors, 1e-6 over all of them.
    error = np.sqrt(np.maximum(ballot.values, 1e-3) / 4000)
    assert (np.abs(total / 4000 - ballot.values) < 6 * error).all()


def test_tags_are_spread_evenly_and_follow_from_the_identifier_alone():
    tags = person_tags(np.arange(100_000))
    assert np.unique(tags).size == 100_000
    share = (tags < np.uint64(2**62)).mean()
    assert abs(share - 0.25) < 6 * math.sqrt(0.25 * 0.75 / 100_000)
    some = np.array(["b", "a", "b", "c"], dtype=object)
    assert person_tags(some)[1] == person_tags(np.array(["a"]))[0]
