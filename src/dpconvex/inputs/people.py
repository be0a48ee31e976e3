"""Whose rows they are and what they count for: weights, and identifiers of people, checked and made into votes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dpconvex.checks import check_count, check_number
from dpconvex.engine.dask.partitions import numbers_or_missing
from dpconvex.engine.votes import NOBODY, Tags, Votes, at_most_each, exact_values, person_tags, round_votes, share_votes
from dpconvex.inputs.estimator_protocols import Label, Model
from dpconvex.inputs.settings import LARGEST, ignores_invalid
from dpconvex.privacy.bounds.base import Bounds
from dpconvex.privacy.bounds.tilted import TiltedBounds
from dpconvex.privacy.summation import most_summed_rows
from dpconvex.types import Array

__all__ = [
    "Ballot",
    "People",
    "Records",
    "RowsOfPeople",
    "check_class_weight",
    "read_ballot",
    "read_people",
    "with_people",
]


PERSON_WEIGHTS = ("equal", "rows")
_CAP = "Divide all weights by a public number that none of them exceeds."


@dataclass(frozen=True)
class Records:
    """How many records there are and what one is: public facts.

    Attributes
    ----------
    count : int
        Rows; people, where the rows of a person share one vote; or people times `rows_each`.
    people : bool
        Whether the rows of a person share one vote.
    rows_each : int
        Rows of a person, at most, that have a vote of their own each.
    weighted : bool
        Whether a row may count less than a whole one.
    """

    count: int
    people: bool = False
    rows_each: int = 1
    weighted: bool = False

    @classmethod
    def stated_by(cls, bounds: Bounds) -> Records:
        """Return the records that bounds are about."""
        return cls(bounds.n_samples, bounds.people, bounds.rows_per_person, bounds.weighted_rows)

    @classmethod
    def of(cls, model: Model, count: int, groups: bool, weighted: bool) -> Records:
        """Return what a fit counts, by an estimator's settings.

        Parameters
        ----------
        model : estimator
            Says what a person's rows weigh.
        count : int
            Number of rows, or of people with groups.
        groups, weighted : bool
            Whether identifiers and weights are given.
        """
        owner = type(model).__name__
        each = check_count("rows_per_person", owner, getattr(model, "rows_per_person", 1), 1)
        rule = getattr(model, "person_weight", "equal")
        if rule not in PERSON_WEIGHTS:
            raise ValueError(
                f"The 'person_weight' parameter of {owner} must be one of {list(PERSON_WEIGHTS)}. Got {rule!r} instead."
            )
        weighted = weighted or getattr(model, "class_weight", None) is not None
        if not groups:
            if rule == "rows":
                raise ValueError(
                    f"The 'person_weight' parameter of {owner} must be 'equal' without identifiers. Got 'rows' "
                    "instead. Give fit the rows' identifiers as 'groups', or promise rows_per_person alone."
                )
            return cls(count, rows_each=each, weighted=weighted)
        if rule == "rows":  # somebody with fewer rows has others of weight 0
            return cls(count * each, rows_each=each, weighted=True)
        if each > 1:
            raise ValueError(
                f"The 'rows_per_person' parameter of {owner} must be 1 with identifiers and person_weight='equal', "
                f"where all rows of a person share one vote. Got {each!r} instead. Use person_weight='rows'."
            )
        return cls(count, people=True, weighted=weighted)

    def facts(self) -> dict[str, Any]:
        """Return the records as bounds state them."""
        return {"people": self.people, "rows_per_person": self.rows_each, "weighted_rows": self.weighted}

    def require_rows(self, owner: str, why: str) -> None:
        """Raise unless every row is a whole record of its own."""
        if self.people or self.rows_each > 1 or self.weighted:
            raise ValueError(f"{owner} must be given neither groups, rows_per_person nor weights here: {why}.")


@dataclass(frozen=True)
class Ballot:
    """Votes as they were read, before they are rounded for a certified number of records.

    Attributes
    ----------
    records : Records
        Public facts.
    shares : array of shape (n_rows,), optional
        What each row counts for; None stands for ones.
    tags : array of shape (n_rows,), optional
        Of the rows' people; None where every row is a record of its own.
    """

    records: Records
    shares: Array | None = None
    tags: Tags | None = None

    def votes(self, bounds: Bounds, factors: Array | None = None) -> Votes | None:
        """Return the votes of a fit with these public facts; None where every row is a whole record.

        Parameters
        ----------
        bounds : Bounds
            Their number of records says how finely votes are rounded.
        factors : array of shape (n_rows,), optional
            Between 0 and 1; further weights.
        """
        shares = self.shares
        if factors is not None:
            shares = factors if shares is None else shares * factors
        if shares is None:
            return None
        if not isinstance(bounds, TiltedBounds):  # which count nothing, and whose people's votes sum to 1
            shares = round_votes(shares, most_summed_rows(bounds.n_samples, bounds.neighbors))
        return Votes(shares, self.records.count, self.tags)


@dataclass(frozen=True)
class People:
    """Whose rows they are, where a person has one vote.

    Attributes
    ----------
    places : array of shape (n_rows,)
        Of each row's person, from 0 to ``count - 1`` in an order without meaning; ``count`` for rows that name nobody.
    shares : array of shape (n_rows,)
        ``1 / m`` for the m rows of a person, 0 for nobody's.
    count : int
        Number of people.
    tags : array of shape (n_rows,)
        A public function of each row's identifier alone; `NOBODY` where it names nobody.
    """

    places: npt.NDArray[np.int64]
    shares: Array
    count: int
    tags: Tags

    @property
    def named(self) -> npt.NDArray[np.bool_]:
        """Which rows name somebody."""
        return np.asarray(self.places < self.count)

    def of_named(self) -> People:
        """Return the same people without rows that name nobody."""
        keep = self.named
        return People(self.places[keep], self.shares[keep], self.count, self.tags[keep])

    def one_row_each(self, people: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Return a random row of each of some people: every one of its rows as likely as the others."""
        order = np.argsort(self.places, kind="stable")
        starts = np.searchsorted(self.places[order], np.arange(self.count + 1))
        counts = np.diff(starts)[people]
        drawn = starts[people] + (rng.random(people.size) * counts).astype(np.int64)
        return np.asarray(order[drawn])


@dataclass(frozen=True, repr=False)
class RowsOfPeople:
    """Rows for a fit, and whose they are: what a pipeline hands from a table to an estimator.

    Nothing but an estimator of dpconvex can use it. Any other step would drop the people without a word, and the
    promise would be made to single rows: so whatever else is asked of it raises.

    Attributes
    ----------
    rows : dataframe, sparse array or Dask dataframe
        The columns of numbers.
    groups : array or Dask series
        One identifier per row: private.
    """

    rows: Any
    groups: Any

    def _refuse(self, *_: object, **__: object) -> Any:
        raise TypeError(
            "Rows that come with their people, because the schema's [person] names them, must go to the fit of an "
            "estimator of dpconvex. Got another use instead, which would forget whose rows they are. Put the estimator "
            "directly behind PublicTable; elsewhere use table.transform(frame), and fit with "
            "groups=table.groups(frame)."
        )

    __array__ = __getitem__ = __iter__ = __len__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what Python itself looks for
            raise AttributeError(name)
        return self._refuse()


def with_people(X: Any, groups: object) -> tuple[Any, Any]:
    """Return rows and identifiers of people: those that are given, or else those that come with the rows."""
    if not isinstance(X, RowsOfPeople):
        return X, groups
    return X.rows, X.groups if groups is None else groups


def read_people(groups: object, X: npt.NDArray[Any], owner: str) -> People:
    """Return whose rows they are; a row that names nobody has no vote, and no error tells of it."""
    tags = _tags(groups, X, owner)
    count, shares = share_votes(tags)
    found = np.unique(tags[tags != NOBODY])
    places = np.searchsorted(found, tags).astype(np.int64)  # nobody's tag is behind all others
    return People(places, shares, count, tags)


def read_ballot(model: Model, X: Any, sample_weight: object, groups: object) -> Ballot:
    """Return the votes of rows, after all checks of weights and identifiers.

    Parameters
    ----------
    model : estimator
        Says what a person's rows weigh and what becomes of invalid rows.
    X : array or DaskTable
        The rows, as they were read.
    sample_weight : array-like, Dask collection or None
        One number between 0 and 1 per row.
    groups : array-like, Dask collection or None
        One identifier per row. Of collections 16 bytes per row are kept in memory; rows stay where they are.

    Notes
    -----
    Privacy: identifiers are not kept; messages name what is wrong and never a value or a number of rows.
    """
    owner, ignored, n_rows = f"{type(model).__name__}.fit", ignores_invalid(model), X.shape[0]
    weights = None if sample_weight is None else _weights(sample_weight, X, owner, ignored)
    if groups is None:
        records = Records.of(model, n_rows, False, weights is not None)
        return Ballot(records, weights)
    tags = _tags(groups, X, owner)
    if not ignored and (tags == NOBODY).any():
        raise ValueError(
            f"The 'groups' given to {owner} must name a person in every row. Got missing identifiers instead, or "
            "floats that are no whole numbers below 2^53. Give such rows an identifier each, as text or whole numbers, "
            "or use invalid_rows='ignore', which gives them no vote."
        )
    count, shares = share_votes(tags)
    rule = Records.of(model, max(1, count), True, weights is not None)
    if not rule.people:
        shares = at_most_each(tags, rule.rows_each)
    return Ballot(rule, shares if weights is None else shares * weights, tags)


def _column(values: object, X: Any, name: str, owner: str) -> npt.NDArray[Any]:
    """Return one value per row, or raise."""
    problem = (
        f"The '{name}' given to {owner} must be one-dimensional, with one value for each row of X, and with the "
        "partitions of X if both are Dask collections. Got another shape instead."
    )
    if type(values).__module__.split(".")[0] == "dask":
        if isinstance(X, np.ndarray):
            raise TypeError(
                f"The '{name}' given to {owner} must be in memory where X is. Got a Dask collection instead. Use "
                f"{name}.compute()."
            )
        values = np.concatenate(X.column(values, _numbers_or_objects, problem))
    column = exact_values(values)
    if column.ndim == 0 and name == "sample_weight":
        column = np.full(X.shape[0], column)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.shape != (X.shape[0],):
        raise ValueError(problem)
    return column


def _numbers_or_objects(part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a partition as numbers or as objects: beside text, numpy would make text of other partitions' numbers."""
    return part if part.dtype.kind in "biuf" else part.astype(object)


def _tags(groups: Any, X: Any, owner: str) -> Tags:
    """Return the tags of all rows' people."""
    if isinstance(X, np.ndarray) or type(groups).__module__.split(".")[0] != "dask":
        return _identified(_column(groups, X, "groups", owner), owner)
    problem = f"The 'groups' given to {owner} must have the partitions of X. Got others instead."
    return np.concatenate(X.column(groups, partial(_identified, owner=owner), problem))


def _identified(column: npt.NDArray[Any], owner: str) -> Tags:
    """Return tags of identifiers, or raise by their type; whatever a cell holds, nothing raises."""
    if column.ndim != 1 or column.dtype.kind not in "biufUSOM":
        raise TypeError(
            f"The 'groups' given to {owner} must be whole numbers, text or dates. Got another type instead."
        )
    return person_tags(column)


def _weights(sample_weight: object, X: Any, owner: str, ignored: bool) -> Array:
    """Return weights between 0 and 1; where invalid rows are ignored, others are clipped and missing ones are 0."""
    problem = f"The 'sample_weight' given to {owner} must be numbers between 0 and 1."
    column = _column(sample_weight, X, "sample_weight", owner)
    try:
        if ignored and column.dtype.kind not in "biuf":
            column = column.astype(object)  # read cell by cell
        weights = numbers_or_missing(column) if ignored else column.astype(np.float64)
    except (TypeError, ValueError):
        weights = None
    if weights is None:
        raise TypeError(f"{problem} Got another type instead.")
    inside = (weights >= 0) & (weights <= 1)
    if inside.all():
        return weights
    if not ignored:
        raise ValueError(f"{problem} Got others instead. {_CAP}")
    return np.clip(np.where(np.isnan(weights), 0.0, weights), 0.0, 1.0)


def check_class_weight(weights: object, classes: Sequence[Label], owner: str) -> Array | None:
    """Return a weight between 0 and 1 for each label, the largest one 1 at most; None if none are given.

    Weights beyond 1 are divided by the largest of them: a public number, which alpha is to be seen against.
    """
    if weights is None:
        return None
    problem = (
        f"The 'class_weight' parameter of {owner} must be None or a dictionary from labels to numbers of at least 0, "
        "not all of them 0."
    )
    if not isinstance(weights, Mapping):
        remedy = "Weights that are 'balanced' would be read from the data: write down public ones."
        raise TypeError(f"{problem} Got {type(weights).__name__} instead. {remedy}")
    known = list(classes)
    if any(label not in known for label in weights):
        raise ValueError(f"{problem} Got a label that is not in the label set instead.")
    allowed = f"numbers of at least 0 and below {LARGEST:g}"
    given = (weights.get(label, 1.0) for label in known)
    found = np.array([check_number("class_weight", owner, one, allowed, 0, LARGEST) for one in given])
    if not found.any():
        raise ValueError(f"{problem} Got only zeros instead.")
    return np.asarray(found / max(1.0, float(found.max())))
