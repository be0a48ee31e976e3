"""`PublicTable`, a transformer that learns nothing: columns of any table, bounded by a public
schema.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags

from dpconvex.core.checks import parameter_error
from dpconvex.core.rows import is_partitioned
from dpconvex.inputs import InputError
from dpconvex.inputs.cells import Cells, read_cells, read_identifier_cells
from dpconvex.inputs.column_encoding import (
    encode_columns,
    encode_labels,
    encoded_array,
    encoded_sparse_matrix,
)
from dpconvex.inputs.column_types import check_column_types
from dpconvex.inputs.formula import formula_schema
from dpconvex.inputs.people_and_weights import RowsOfPeople
from dpconvex.inputs.schema import Range, Schema
from dpconvex.inputs.schema_file import parse_schema, read_schema
from dpconvex.inputs.table_files import hide_file_values, open_table_file, require_file_columns
from dpconvex.system.lazy_imports import pd, pl


class _PublicTablePeople:
    """``fit_transform`` with people; apart, because scikit-learn would make a frame of its
    result.
    """

    def fit_transform(self: PublicTable, X: Any, y: object = None) -> Any:  # type: ignore[misc]
        """Return the public table's columns of numbers for a fit, with the people of its rows if it
        has ``[person]``.

        Parameters
        ----------
        X : dataframe, mapping of str to array, or path
            As for ``transform``, with the column that identifies people.
        y : ignored

        Returns
        -------
        dataframe, sparse array or RowsOfPeople
            As of ``transform``; `RowsOfPeople` goes to estimators of dpconvex alone, so that no
            step forgets people.
        """
        schema = self.fit(X, y)._parsed()
        if schema.person is None:
            return self.transform(X)
        X = open_public_table(X, [*schema.inputs, schema.person], schema, "PublicTable")
        return RowsOfPeople(self.transform(X), self.groups(X))


class PublicTable(_PublicTablePeople, TransformerMixin, BaseEstimator):
    r"""Numbers, categories, flags and dates of a table as bounded columns, by a public schema.
    Costs nothing.

    Every cell by itself becomes numbers: a number is clipped to its bounds, a category becomes an
    indicator, a date its calendar features, and a missing or unreadable cell follows its column's
    rule. Nothing is learned from rows.

    Parameters
    ----------
    schema : path, mapping or Schema
        The schema file, or its tables: ``{"features": {"age": [17, 90]}, "categories": {"job":
        ["clerk", "driver"]}}``.
    formula : str, optional
        ``"wage ~ educ + log(exper) + C(region)"``: which columns of the schema are used and how;
        categories are compared with their first level. Bounds, levels and knots are the schema's,
        and nothing is taken from rows. Needs formulaic.
    sparse : bool, default=False
        Whether ``transform`` returns a scipy CSR array, which takes less memory where there are
        many categories.

    Attributes
    ----------
    feature_bounds, row_norm : pair of lists, float
        For an estimator: bounds of the columns, and the largest length of a row in mapped units. A
        block of indicators adds 1 to its square however many categories there are.
    target_bounds, classes : pair or None, list or None
        Public range or public classes of the target.
    privacy_ : str
        ``"public"``, once fitted: a fit reads the schema, and no rows.

    Notes
    -----
    Privacy: public, if the schema was written without the data. In a pipeline the people of
    ``[person]`` go to the estimator with their rows, and the promise is made to them; ``transform``
    alone leaves them out, so give ``fit`` ``groups=table.groups(frame)`` beside
    ``table.transform(frame)``. A missing column is an error, because names of columns are public;
    no value is. Types of columns are public too: where the schema says how text is read, by
    ``decimal`` or the format of a date, a column of another type is refused. With the missing rule
    ``row`` a row with NaN comes out, whose meaning ``invalid_rows`` of the estimator says; all
    other rules give finite numbers for whatever the table holds.

    Examples
    --------
    >>> table = PublicTable(
    ...     {"features": {"age": [17, 90]}, "categories": {"job": ["clerk", "driver"]}}
    ... )
    >>> list(table.get_feature_names_out())
    ['age', 'job=clerk', 'job=driver']
    >>> table.transform({"age": [30, "99"], "job": ["driver", "pilot"]}).to_numpy().tolist()
    [[30.0, 0.0, 1.0], [90.0, 0.0, 0.0]]
    >>> round(table.row_norm**2, 9)
    2.0
    """

    def __init__(
        self,
        schema: str | os.PathLike[str] | Mapping[str, object] | Schema,
        *,
        formula: str | None = None,
        sparse: bool = False,
    ) -> None:
        self.schema = schema
        self.formula = formula
        self.sparse = sparse

    def _check_sparse(self) -> None:
        if not isinstance(self.sparse, (bool, np.bool_)):
            raise parameter_error("sparse", "PublicTable", "True or False", repr(self.sparse))

    def _parsed(self) -> Schema:
        return vars(self).get("schema_") or _public_table_schema(self.schema, self.formula)

    def fit(self, X: object = None, y: object = None) -> Self:
        """Read and check the schema; the table is not read."""
        self._check_sparse()
        self.schema_ = _public_table_schema(self.schema, self.formula)
        self.n_features_in_ = len(self.schema_.inputs)
        self.privacy_ = "public"
        return self

    def transform(self, X: Any) -> Any:
        """Return the table's columns of numbers, by the public schema alone.

        Parameters
        ----------
        X : dataframe, mapping of str to array, or path
            A pandas, polars, pyarrow or Dask table, a dictionary of columns, or a CSV or Parquet
            file, with at least the schema's columns in any order.

        Returns
        -------
        dataframe or sparse array
            Of pandas for pandas and of Dask for Dask, otherwise of polars, with the names of
            ``get_feature_names_out``; a CSR array if ``sparse`` says so.
        """
        self._check_sparse()
        schema = self._parsed()
        if is_partitioned(X):
            check_column_types(schema, {name: X[name] for name in schema.inputs if name in X})
            meta = pd.DataFrame(np.empty((0, len(schema.names))), columns=schema.names)
            return X.map_partitions(
                partial(public_table_frame, schema, owner="PublicTable"), meta=meta
            )
        if self.sparse:
            cells = public_table_cells(X, schema.inputs, schema, "PublicTable")
            return encoded_sparse_matrix(encode_columns(schema, cells))
        return public_table_frame(schema, X, "PublicTable")

    def target(self, X: Any) -> NDArray[Any]:
        """Return the target of a table: declared classes as text (None where a cell holds none), or
        numbers (NaN).

        Parameters
        ----------
        X : dataframe, mapping of str to array, or path
            With the target's column.
        """
        schema = self._parsed()
        if schema.target is None:
            raise ValueError("The schema of PublicTable names no target. Add it: [target].")
        cells = public_table_cells(X, [schema.target.name], schema, "PublicTable")[
            schema.target.name
        ]
        if schema.target.classes is not None:
            return encode_labels(cells, schema.target.classes, schema.file.decimal)
        numbers: NDArray[Any] = schema.target.transformed(cells.as_numbers(schema.file.decimal))
        return numbers

    def groups(self, X: Any) -> Any:
        """Return the people of the table's rows, by the schema's ``[person]``: ``groups`` of a fit
        or a score.

        Parameters
        ----------
        X : dataframe, mapping of str to array, or path
            With the column that identifies people.

        Returns
        -------
        array or Dask series
            Identifiers as they are, None where one is missing: private, like the table.
        """
        schema = self._parsed()
        name = schema.person
        missing = schema.file.missing
        if name is None:
            raise ValueError(
                'The schema of PublicTable names no person. Add it: [person] with column = "...".'
            )
        column = read_public_column(
            open_public_table(X, [name], schema, "PublicTable"), name, "PublicTable"
        )
        if is_partitioned(X):
            return column.map_partitions(_identify_partition, missing, meta=(name, object))
        with hide_file_values(None):
            return read_identifier_cells(column, missing)

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Return the names of the columns of numbers, like ``job=clerk``."""
        return np.array(self._parsed().names, dtype=object)

    @property
    def feature_bounds(self) -> tuple[list[float], list[float]]:
        """Lowest and highest value of each column of numbers."""
        return self._parsed().feature_bounds

    @property
    def smooth(self) -> list[tuple[int, int, float]]:
        """Curves whose second differences are penalised, for the estimator's parameter of this
        name.
        """
        return self._parsed().smooth

    @property
    def row_norm(self) -> float:
        """Largest length of a row in the estimator's mapped units."""
        return self._parsed().row_norm

    @property
    def target_bounds(self) -> Range | None:
        """Range of the target, if declared."""
        return self._parsed().target_bounds

    @property
    def classes(self) -> list[str] | None:
        """Classes of the target, if declared."""
        target = self._parsed().target
        return None if target is None or target.classes is None else list(target.classes)

    def __sklearn_is_fitted__(self) -> bool:
        return True  # there is nothing to learn

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def fitted_schema(model: object) -> Schema | None:
    """Return the schema of a model that reads tables as they come; None for any other."""
    return getattr(model, "schema_", None)


def pipeline_steps(model: object) -> list[Any]:
    """Return the steps of a pipeline in their order; none for an estimator."""
    return [step for _, step in getattr(model, "steps", [])]


def _public_table_schema(schema: object, formula: str | None = None) -> Schema:
    if isinstance(schema, Mapping):
        schema = parse_schema(schema)
    elif isinstance(schema, (str, os.PathLike)):
        schema = read_schema(schema)
    elif not isinstance(schema, Schema):
        allowed = "a path or a mapping of tables"
        raise parameter_error(
            "schema", "PublicTable", allowed, type(schema).__name__, kind=TypeError
        )
    return schema if formula is None else formula_schema(schema, formula)


def public_table_frame(schema: Schema, X: Any, owner: str) -> Any:
    """Return the columns of numbers as a dataframe: of pandas for pandas, otherwise of polars."""
    rows = encoded_array(
        encode_columns(schema, public_table_cells(X, schema.inputs, schema, owner))
    )
    if type(X).__module__.split(".")[0] == "pandas":
        return pd.DataFrame(rows, columns=schema.names, index=X.index)
    return pl.DataFrame(rows, schema=schema.names, orient="row")


def _identify_partition(part: Any, missing: tuple[str, ...]) -> Any:
    return pd.Series(read_identifier_cells(part, missing), index=part.index, name=part.name)


def open_public_table(table: Any, wanted: list[str], schema: Schema, owner: str) -> Any:
    """Return a table that has the wanted columns, read once if it is a file or a LazyFrame; else
    raise.
    """
    if isinstance(table, (str, os.PathLike)):
        # Every line is a row and none is refused: what a row holds is the schema's matter.
        return open_table_file(Path(table), schema.file).read(wanted, every_line=True)
    names = public_column_names(table)
    if names is None:
        raise TypeError(
            f"The table given to {owner} must have named columns: a pandas, polars or pyarrow "
            "table, a dictionary of arrays, or the path of a CSV or Parquet file. Got "
            f"{type(table).__name__} instead."
        )
    require_file_columns(names, wanted, f"The table given to {owner}")
    if hasattr(table, "collect") and hasattr(table, "collect_schema"):  # a LazyFrame of polars
        with hide_file_values(None):
            return table.select(wanted).collect()
    return table


def read_public_column(table: Any, name: str, owner: str) -> Any:
    """Return a column of an open table, which must be there once."""
    column = table[name]
    if getattr(column, "ndim", 1) != 1:
        raise InputError(
            f"The column {name!r} given to {owner} must be there once, one value a row."
        )
    return column


def public_table_cells(
    table: Any, wanted: list[str], schema: Schema, owner: str
) -> dict[str, Cells]:
    """Return the wanted columns of a table as cells, by name."""
    table = open_public_table(table, wanted, schema, owner)
    columns = {name: read_public_column(table, name, owner) for name in wanted}
    check_column_types(schema, columns)
    cells = {}
    for name, column in columns.items():
        with hide_file_values(None):
            cells[name] = read_cells(column)
    if len({len(column) for column in cells.values()}) > 1:
        raise InputError(f"The columns given to {owner} must be of one length.")
    return cells


def public_column_names(table: Any) -> list[object] | None:
    """Return the names of a table's columns, or None if it has none."""
    if isinstance(table, Mapping):
        return list(table)
    if isinstance(table, np.ndarray):
        return None
    if hasattr(table, "collect_schema"):
        return list(table.collect_schema().names())
    names = getattr(table, "column_names", None)  # of pyarrow
    if names is None:
        names = getattr(table, "columns", None)
    return None if names is None else list(names)
