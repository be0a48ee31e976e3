"""Effects of a table's columns on a model's value: curves of numbers, dots of categories, with
intervals where paid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.stats import norm

from dpconvex.core.checks import check_share
from dpconvex.inputs.cells import read_cells
from dpconvex.inputs.column_encoding import encode_columns, encoded_array
from dpconvex.inputs.public_table import PublicTable, fitted_schema
from dpconvex.inputs.schema import (
    CALENDAR,
    Schema,
    SchemaCategory,
    SchemaDate,
    SchemaFlag,
    SchemaNumber,
    source_column,
)
from dpconvex.inputs.settings import Fitted
from dpconvex.reports.coefficients_and_forecasts import LEVEL, coefficient_heading, feature_names
from dpconvex.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID = 121  # points of a curve


@dataclass(frozen=True)
class ColumnEffect:
    """How a model's value differs along one column of the table, all its terms together."""

    name: str
    labels: tuple[str, ...]  # of levels; none for a column of numbers
    points: Array  # numbers of the column, or positions of its levels
    # differences from the level of reference, or from the mean of all points where there is none
    values: Array
    low: Array  # ends of pointwise confidence intervals; NaN where the fit paid for none
    high: Array


def column_effects(
    model: Fitted, schema: object = None, level: float = LEVEL
) -> list[ColumnEffect]:
    """Return the effect of every column of a schema on a model's value, interactions left out.

    A point's effect is ``(e - e_0) . coef`` and its variance ``(e - e_0)' V (e - e_0)``, with the
    encoded point e, the reference ``e_0`` and the released covariance V.
    """
    owner = f"{type(model).__name__}.plot_effects"
    level = check_share("level", owner, level)
    known = fitted_schema(model) if schema is None else schema
    if known is None:
        raise ValueError(
            f"{owner} needs the schema of the table. Got none. Give the PublicTable of the fit: "
            "pipeline[-1].plot_effects(pipeline[0])."
        )
    table = known if isinstance(known, PublicTable) else PublicTable(cast(Any, known))
    found, (coef, *others) = (
        table.fit().schema_,
        np.atleast_2d(np.asarray(model.coef_, dtype=np.float64)),
    )
    if others or found.names != feature_names(model):
        raise ValueError(
            f"{owner} needs a model with one vector of coefficients and the schema of its "
            "columns. Got others."
        )
    covariance = np.asarray(
        model.released_.get("covariance", np.full((len(coef) + 1,) * 2, math.nan))
    )[:-1, :-1]
    margin = float(norm.ppf((1 + level) / 2))
    effects = []
    starts = {name: k for k, name in enumerate(found.names)}
    for name, labels, points, rows, columns in _effect_grids(found):
        places = [starts[column] for column in columns]
        std = np.sqrt(
            np.maximum(
                np.einsum("ij,jk,ik->i", rows, covariance[np.ix_(places, places)], rows), 0.0
            )
        )
        values = rows @ coef[places]
        effects.append(
            ColumnEffect(name, labels, points, values, values - margin * std, values + margin * std)
        )
    return effects


_Grid = tuple[str, tuple[str, ...], Array, Array, Sequence[str]]


def _effect_grids(schema: Schema) -> list[_Grid]:
    """Return of every column its name, levels, points, encoded differences from the reference,
    and their columns.
    """
    grids: list[_Grid] = []
    for name in schema.inputs:
        terms = tuple(column for column in schema.columns if source_column(column) == name)
        part = replace(schema, columns=terms, interactions=(), target=None)
        first = terms[0]
        if isinstance(first, SchemaDate):
            for block in first.blocks:
                if block.name.removeprefix(f"{name}.") in CALENDAR:
                    rows = np.eye(len(block.names))
                    labels = list(block.names)
                    if block.reference is not None:
                        rows = np.insert(rows, block.reference[0], 0.0, axis=0)
                        labels.insert(*block.reference)
                    shown = tuple(label.split("=", 1)[1] for label in labels)
                    points = np.arange(len(rows), dtype=np.float64)
                    zero = None if block.reference is None else block.reference[0]
                    grids.append(
                        (block.name, shown, points, rows - _reference_row(rows, zero), block.names)
                    )
            continue
        references = [block.reference[0] for block in part.blocks if block.reference is not None]
        if isinstance(first, SchemaNumber):
            knots = [
                knot for term in terms if isinstance(term, SchemaNumber) for knot in term.knots
            ]
            points = np.sort([*np.linspace(first.low, first.high, _GRID), *knots])
            labels = []
            cells: list[object] = list(points)
        else:
            cells, labels = _effect_levels(first)
            points = np.arange(len(cells), dtype=np.float64)
            references = [0] if isinstance(first, SchemaFlag) else references
        rows = encoded_array(encode_columns(part, {name: read_cells(cells)}))
        centre = _reference_row(rows, references[0] if references else None)
        grids.append((name, tuple(labels), points, rows - centre, part.names))
    return grids


def _reference_row(rows: Array, zero: int | None) -> Array:
    """Return the row that others are compared with: the mean of all of them where there is no
    level of reference.
    """
    return np.asarray(rows.mean(axis=0) if zero is None else rows[zero])


def _effect_levels(column: SchemaFlag | SchemaCategory) -> tuple[list[object], list[str]]:
    """Return cells of a column, one of each level, and the levels' words."""
    if isinstance(column, SchemaFlag):
        return [column.false[0], column.true[0]], [column.false[0], column.true[0]]
    values: list[object] = list(column.values)
    labels = [str(value) for value in values]
    if column.other:
        values = [*values, "\0 none of them"]
        labels = [*labels, "(other)"]
    if column.missing.rule == "indicator":
        values = [*values, None]
        labels = [*labels, "(missing)"]
    return values, labels


def plot_effects(
    model: Fitted, schema: object = None, level: float = LEVEL, axes: Sequence[Axes] | None = None
) -> Any:
    """Draw the effect of every column and return the axes; see the estimators' method of the
    same name.
    """
    effects = column_effects(model, schema, level)
    if axes is None:
        import matplotlib.pyplot as plt

        wide = min(3, len(effects))
        high = -(-len(effects) // wide)
        grid = plt.subplots(
            high, wide, figsize=(3.6 * wide, 2.9 * high), layout="constrained", squeeze=False
        )[1]
        for spare in grid.ravel()[len(effects) :]:
            spare.remove()
        axes = list(grid.ravel()[: len(effects)])
    if len(axes) != len(effects):
        raise ValueError(
            f"plot_effects needs an axes for each of {len(effects)} columns. Got {len(axes)} "
            "instead."
        )
    for ax, effect in zip(axes, effects, strict=True):
        paid = bool(np.isfinite(effect.low).all())
        ax.axhline(0.0, color="0.8", linewidth=1)
        if effect.labels:
            bars = (
                np.maximum([effect.values - effect.low, effect.high - effect.values], 0.0)
                if paid
                else None
            )
            ax.errorbar(effect.points, effect.values, yerr=bars, fmt="o", capsize=3)
            ax.set_xticks(
                effect.points, effect.labels, rotation=45 if max(map(len, effect.labels)) > 4 else 0
            )
        else:
            ax.plot(effect.points, effect.values)
            if paid:
                ax.fill_between(effect.points, effect.low, effect.high, alpha=0.25, linewidth=0)
        ax.set_title(effect.name)
    heading = coefficient_heading(model)
    axes[0].set_ylabel("effect" if heading == "value" else heading)
    return np.array(axes, dtype=object)
