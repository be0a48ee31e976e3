"""Row weights from records, people and sample weights, and the privacy unit that they make: one row
or one person.

A weight multiplies everything that a row adds to a sum. Weights of the rows of one person sum to at
most 1, or at most ``rows_per_person`` of them are 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from numbers import Number
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import is_classifier

from dpconvex.core.bounds import Bounds
from dpconvex.core.checks import check_count, check_number, data_error, parameter_error
from dpconvex.core.person_identifiers import NOBODY, Tags, person_tags
from dpconvex.core.row_weights import (
    RowWeights,
    equal_person_weights,
    round_weights_to_grid,
    weights_limiting_rows,
)
from dpconvex.core.rows import is_partitioned
from dpconvex.core.summation import most_summed_rows
from dpconvex.inputs.containers import NO_NUMBERS, read_column, read_target_numbers
from dpconvex.inputs.settings import LARGEST, Classifier, Label, Model, invalid_rows_setting
from dpconvex.privacy.bounds.tilted_and_robust_bounds import TiltedBounds
from dpconvex.types import Array

PERSON_WEIGHTS = ("equal", "rows")


@dataclass(frozen=True)
class PersonUnit:
    """Number of records and the meaning of one: public facts."""

    count: int  # rows; people, if their rows share one weight; or people times rows_each
    people: bool = False  # whether the rows of a person share one weight
    rows_each: int = 1  # largest number of rows of a person that have a weight of their own each
    weighted: bool = False  # whether a row may count less than a whole one
    of_table: bool = False  # whether they are rows of a table whose columns have types

    @classmethod
    def of(
        cls, model: Model, count: int, groups: bool, weighted: bool, of_table: bool = False
    ) -> PersonUnit:
        """Return the unit of a fit: `count` rows, or people with groups, by the estimator's
        settings.
        """
        owner = type(model).__name__
        each = check_count("rows_per_person", owner, model.rows_per_person, 1)
        rule = model.person_weight
        if rule not in PERSON_WEIGHTS:
            raise parameter_error(
                "person_weight", owner, f"one of {list(PERSON_WEIGHTS)}", repr(rule)
            )
        weighted = weighted or (
            is_classifier(model) and cast(Classifier, model).class_weight is not None
        )
        if not groups:
            if rule == "rows":
                remedy = (
                    "Give fit the rows' identifiers as 'groups', or promise rows_per_person alone."
                )
                raise parameter_error(
                    "person_weight", owner, "'equal' without identifiers", "'rows'", remedy
                )
            return cls(count, rows_each=each, weighted=weighted, of_table=of_table)
        if rule == "rows":  # somebody with fewer rows has others of weight 0
            return cls(count * each, rows_each=each, weighted=True, of_table=of_table)
        if each > 1:
            allowed = (
                "1 with identifiers and person_weight='equal', where all rows of a person "
                "share one weight"
            )
            raise parameter_error(
                "rows_per_person", owner, allowed, repr(each), "Use person_weight='rows'."
            )
        return cls(count, people=True, weighted=weighted, of_table=of_table)

    @property
    def has_whole_rows(self) -> bool:
        """Whether every row is a whole record of its own."""
        return not (self.people or self.rows_each > 1 or self.weighted)

    def require_rows(self, owner: str, why: str) -> None:
        """Raise unless every row is a whole record of its own."""
        if not self.has_whole_rows:
            raise ValueError(
                f"{owner} must be given neither groups, rows_per_person nor weights here: {why}."
            )


@dataclass(frozen=True, repr=False)
class RowsOfPeople:
    """Rows for a fit with the identifiers of their people, which a pipeline hands from a table to
    an estimator.

    Nothing but an estimator of dpconvex can use it. Any other step would drop the people without a
    word, and the promise would be made to single rows: so every other use of it raises. ``groups``
    is private.
    """

    rows: Any
    groups: Any

    def _refuse(self, *_: object, **__: object) -> Any:
        raise TypeError(
            "Rows that come with their people, because the schema's [person] names them, must go "
            "to the fit of an estimator of dpconvex. Got another use instead, which would forget "
            "whose rows they are. Put the estimator directly behind PublicTable; elsewhere use "
            "table.transform(frame), and fit with groups=table.groups(frame)."
        )

    __array__ = __getitem__ = __iter__ = __len__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what Python itself asks for
            raise AttributeError(name)
        return self._refuse()


def split_people(X: Any, groups: object) -> tuple[Any, Any]:
    """Return rows and identifiers of people: those that are given, or else those that come with
    the rows.
    """
    if not isinstance(X, RowsOfPeople):
        return X, groups
    return X.rows, X.groups if groups is None else groups


def read_people(groups: object, X: npt.NDArray[Any], owner: str) -> RowWeights:
    """Return ``1 / m`` for each of a person's m rows, and 0, without an error, for rows that
    name nobody.
    """
    tags = _read_person_tags(groups, X, owner)
    count, shares = equal_person_weights(tags)
    return RowWeights(shares, count, tags)


def person_indices(tags: Tags) -> npt.NDArray[np.int64]:
    """Return the index of each row's person, in an order without meaning; the number of people
    for nobody's rows.
    """
    found = np.unique(tags[tags != NOBODY])
    return np.searchsorted(found, tags).astype(np.int64)  # nobody's tag is behind all others


def read_row_weights(
    model: Model, X: Any, sample_weight: object, groups: object
) -> tuple[PersonUnit, RowWeights | None]:
    """Return the privacy unit, rows or people, and the weights of rows, after all checks of both.

    Weights are not rounded yet (`round_row_weights`), and None where every row is a whole record.
    Of Dask collections 16 bytes per row are kept in memory.

    Privacy: identifiers are not kept; messages name what is wrong and never a value or a number of
    rows.
    """
    owner = f"{type(model).__name__}.fit"
    ignored = invalid_rows_setting(model)
    n_rows = X.shape[0]
    weights = (
        None if sample_weight is None else _read_sample_weight(sample_weight, X, owner, ignored)
    )
    if groups is None:
        unit = PersonUnit.of(model, n_rows, False, weights is not None)
        return unit, None if weights is None else RowWeights(weights, unit.count)
    tags = _read_person_tags(groups, X, owner)
    if not ignored and (tags == NOBODY).any():
        raise ValueError(
            f"The 'groups' given to {owner} must name a person in every row. Got missing "
            "identifiers instead, or floats that are no whole numbers below 2^53. Give such rows "
            "an identifier each, as text or whole numbers, or use invalid_rows='ignore', which "
            "gives them weight 0."
        )
    count, shares = equal_person_weights(tags)
    unit = PersonUnit.of(model, max(1, count), True, weights is not None)
    if not unit.people:
        shares = weights_limiting_rows(tags, unit.rows_each)
    return unit, RowWeights(shares if weights is None else shares * weights, unit.count, tags)


def round_row_weights(
    weights: RowWeights | None, bounds: Bounds, factors: Array | None = None
) -> RowWeights | None:
    """Return weights, times further factors in [0, 1], rounded for a certified number of
    records; None for ones.
    """
    if factors is not None:
        values = factors if weights is None else weights.values * factors
        weights = (
            RowWeights(values, values.size) if weights is None else replace(weights, values=values)
        )
    if weights is None:
        return None
    if isinstance(bounds, TiltedBounds):  # which count nothing, and whose people's weights sum to 1
        return weights
    most = most_summed_rows(bounds.n_samples, bounds.neighbors)
    return replace(weights, values=round_weights_to_grid(weights.values, most))


def _read_people_or_weights(values: object, X: Any, name: str, owner: str) -> npt.NDArray[Any]:
    problem = (
        f"The '{name}' given to {owner} must be one-dimensional, with one value for each row of "
        "X, and with the partitions of X if both are Dask collections. Got another shape instead."
    )
    if is_partitioned(values):
        if isinstance(X, np.ndarray):
            allowed = "in memory where X is"
            raise data_error(
                f"'{name}'",
                owner,
                allowed,
                "a Dask collection",
                f"Use {name}.compute().",
                kind=TypeError,
            )
        # Numbers or objects: beside text, numpy would make text of other partitions' numbers.
        plain = X.column(
            values, lambda part: part if part.dtype.kind in "biuf" else part.astype(object), problem
        )
        values = np.concatenate(plain)
    if isinstance(values, (str, bytes, bytearray, Mapping, Set)):
        raise data_error(f"'{name}'", owner, "an array or a list", type(values).__name__)
    column = read_column(f"'{name}'", values, owner)
    if column.ndim == 0 and name == "sample_weight" and isinstance(column.item(), Number):
        column = np.full(X.shape[0], column)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.shape != (X.shape[0],):
        raise ValueError(problem)
    return column


def _read_person_tags(groups: Any, X: Any, owner: str) -> Tags:
    if isinstance(X, np.ndarray) or not is_partitioned(groups):
        return _tag_people(_read_people_or_weights(groups, X, "groups", owner), owner)
    problem = f"The 'groups' given to {owner} must have the partitions of X. Got others instead."
    return np.concatenate(X.column(groups, partial(_tag_people, owner=owner), problem))


def _tag_people(column: npt.NDArray[Any], owner: str) -> Tags:
    """Return tags of identifiers, or raise by their type; whatever a cell holds, nothing raises."""
    if column.dtype.kind == "c":  # one cell makes complex numbers of all
        column = np.where(column.imag == 0, column.real, np.nan)
    if column.dtype.kind == "T":
        column = column.astype(object)
    if column.ndim != 1 or column.dtype.kind not in "biufUSOM":
        raise TypeError(
            str(data_error("'groups'", owner, "whole numbers, text or dates", "another type"))
        )
    return person_tags(column)


def _read_sample_weight(sample_weight: object, X: Any, owner: str, ignored: bool) -> Array:
    """Return weights between 0 and 1; where invalid rows are ignored, others are clipped and
    missing ones are 0.
    """
    problem = f"The 'sample_weight' given to {owner} must be numbers between 0 and 1."
    column = _read_people_or_weights(sample_weight, X, "sample_weight", owner)
    given = getattr(getattr(sample_weight, "dtype", None), "kind", "O")
    try:
        if given in NO_NUMBERS or column.dtype.kind in NO_NUMBERS:
            raise TypeError("no numbers")
        if ignored and column.dtype.kind not in "biuf":
            column = column.astype(object)  # read cell by cell
        weights = read_target_numbers(column) if ignored else column.astype(np.float64)
    except (TypeError, ValueError):
        weights = None
    if weights is None:
        raise TypeError(f"{problem} Got another type instead.")
    if not ignored and not ((weights >= 0) & (weights <= 1)).all():
        remedy = "Divide all weights by a public number that none of them exceeds."
        raise ValueError(f"{problem} Got others instead. {remedy}")
    return np.clip(np.where(np.isnan(weights), 0.0, weights), 0.0, 1.0)


def check_class_weight(weights: object, classes: Sequence[Label], owner: str) -> Array | None:
    """Return a weight between 0 and 1 for each label, divided by the largest if that is beyond
    1; None for None.
    """
    if weights is None:
        return None
    problem = (
        f"The 'class_weight' parameter of {owner} must be None or a dictionary from labels to "
        "numbers of at least 0, not all of them 0."
    )
    if not isinstance(weights, Mapping):
        remedy = "Weights that are 'balanced' would be read from the data: write down public ones."
        raise TypeError(f"{problem} Got {type(weights).__name__} instead. {remedy}")
    known = list(classes)
    if any(label not in known for label in weights):
        raise ValueError(f"{problem} Got a label that is not in the label set instead.")
    allowed = f"numbers of at least 0 and below {LARGEST:g}"
    given = (weights.get(label, 1.0) for label in known)
    found = np.array(
        [check_number("class_weight", owner, one, allowed, 0, LARGEST) for one in given]
    )
    if not found.any():
        raise ValueError(f"{problem} Got only zeros instead.")
    return np.asarray(found / max(1.0, float(found.max())))
