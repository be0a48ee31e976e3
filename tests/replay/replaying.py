"""A fit, its neighbours with the answers frozen, and what tells them apart."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from edges import Deaf, on_edge, watched_edges
from fits import ADD, FITS, Fit
from neighbours import SIZES, Family, Table
from transcript import Run, plain, run, spent

_SMALL = (5, 8, 9)  # rows of partitioned tables, where every pass takes a task for each partition


def cells() -> Iterator[tuple[str, str, str]]:
    """Yield every fit with every relation and kind of data that it is offered with."""
    for name, fit in FITS.items():
        for relation in fit.relations:
            for variant in fit.variants:
                yield name, relation, variant


def pairs_of(fit: Fit, variant: str) -> int:
    """Return how many pairs of a cell are run among all tests."""
    return 1 if variant == "dask" else fit.pairs


def seeds_of(name: str, relation: str, variant: str) -> Iterator[int]:
    """Yield the seeds of a cell, which are no other cell's."""
    start = zlib.crc32(f"{name} {relation} {variant}".encode())
    yield from range(start, 2**63)


class Replay:
    """A table, its neighbours and how they are fitted, drawn by a seed; every tenth transcript
    is adversarial.
    """

    def __init__(
        self,
        name: str,
        relation: str,
        variant: str,
        seed: int,
        on_edge: bool = False,
        sizes: tuple[int, ...] = (),
    ) -> None:
        self.fit = FITS[name]
        self.relation = relation
        self.seed = seed
        self.on_edge = on_edge
        sizes = sizes or self.fit.sizes or (_SMALL if variant == "dask" else SIZES)
        if relation == ADD and sizes is SIZES:
            sizes = (1, *SIZES)  # one record, and none
        columns = (1, self.fit.columns)
        if on_edge:  # where products of matrices are known to round rows by how many there are
            sizes = (3, 5, 7, 11)
            columns = (7, 8)
        self.family = Family(self.fit, variant, relation, seed, columns, sizes)
        self.adversarial = not on_edge and np.random.default_rng([seed, 3]).random() < 0.1
        self.settled: dict[str, Any] = {}
        self._plans: dict[object, Any] = {}

    def leader(self, liar: Callable[[np.ndarray, float], np.ndarray | None] | None = None) -> Run:
        """Fit the table, and keep the answers."""
        table = self.family.table()
        if self.adversarial and liar is None:
            liar = Liar(self.seed)
        if self.on_edge and liar is None:
            liar = self._put_on_edge()
            table = self.family.table()
        return run(lambda: self._fitted(table), seed=self.seed, liar=liar)

    def _put_on_edge(self) -> Deaf:
        """Put residuals on an edge of something that is asked, and return the answers that lead
        there.
        """
        self.settled = {
            "feature_bounds": (-1, 1),
            "target_bounds": (-1, 1),
            "row_norm": None,
            "fit_intercept": True,
        }
        self.family.layout = ("C", "f8")
        with watched_edges() as edges:
            self.leader(Deaf(self.seed))
        edges = [
            edge for edge in edges if edge[0].any() and edge[0].size == self.family.columns + 1
        ]
        counted = [
            edge for edge in edges if edge[1]
        ]  # slopes are smooth where residuals are counted
        theta, point = (counted or edges)[
            int(np.random.default_rng(self.seed).integers(len(counted or edges)))
        ]
        self.family.put_targets(lambda X: on_edge(X, theta, point))
        return Deaf(self.seed)

    def share(self, leader: Run) -> float:
        """Fit a neighbour with the answers frozen, and return the share of the budget that tells
        both apart.
        """
        table = self.family.neighbour()
        follower = run(lambda: self._fitted(table), seed=self.seed, leader=leader.transcript)
        return spent(leader, follower)

    def _fitted(self, table: Table) -> Any:
        family = self.family
        model = self.fit.model(
            self.relation, family.size, family.invalid, self.seed, **self.settled
        )
        given, more = table.given()
        return fit_by_known_plans(model, self._plans, *given, **more)


def fit_by_known_plans(model: Any, plans: dict[object, Any], *given: Any, **more: Any) -> Any:
    """Fit a model, and plan only what was not planned before: planning takes most of the time."""
    if not hasattr(model, "_plan"):
        return model.fit(*given, **more)
    honest = model._plan

    def plan(*shape: object) -> Any:
        # Planning sees the settings and these arguments alone.
        settings = {name: value for name, value in vars(model).items() if name != "_plan"}
        key = (plain(settings), repr(shape))
        if key not in plans:
            plans[key] = honest(*shape)
        return plans[key]

    model._plan = plan
    model.fit(*given, **more)
    del model._plan
    return model


class Liar:
    """Answers that no noise would give: nothing, far too much, or on the edges of bins."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 11])
        self.only = self.rng.choice(["zero", "huge", "edge", "still", "mixed"])

    def __call__(self, value: np.ndarray, scale: float) -> np.ndarray | None:
        kind = self.only
        if kind == "mixed":
            kind = self.rng.choice(["zero", "huge", "edge", "still", "far", "honest"])
        signs = self.rng.choice([-1.0, 1.0], value.shape)
        lies = {
            "zero": 0.0 * value,
            "huge": 1e300 * signs,
            "edge": np.rint(2 * value) / 2,
            "still": value,
            "far": 2.0**20 * scale * signs,
        }
        return lies.get(str(kind))
