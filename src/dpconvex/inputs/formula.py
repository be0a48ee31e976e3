"""Formulas such as ``wage ~ educ + log(exper) + C(region)``: a public schema and a formula give
another public schema.

Formulaic parses the formula and is never shown a row: its own design matrices take levels, centres
and rows to leave out from the data. Each term becomes a column of the schema, so that a row's
numbers depend on that row alone.
"""

import ast
import re
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any

from dpconvex.inputs import InputError
from dpconvex.inputs.bounded_transforms import FUNCTIONS, TransformError, transform_numbers
from dpconvex.inputs.schema import (
    MOST_COLUMNS,
    Column,
    Schema,
    SchemaCategory,
    SchemaDate,
    SchemaFlag,
    SchemaInteraction,
    SchemaMissing,
    SchemaNumber,
    SchemaTarget,
    shown_name,
    source_column,
)
from dpconvex.inputs.schema_file import check_schema, with_reference

_TERMS = (
    'columns of the schema, C(column), C(column, Treatment("level")), transforms of one number '
    "such as log(x) or I(x ** 2), and +, : and * of two of them"
)


LONGEST_FORMULA = 20_000  # signs
LONGEST_FACTOR = 1_000  # signs of one factor, such as log(exper + 1)
# Of all terms that the operators of a formula make on the way, where one of a product counts as a
# hundred: it takes as long as a hundred that are copied.
_MOST_WORK = 20_000_000
_PRODUCT_WORK = 100
_QUOTED = re.compile("`([^`]+)`")


def _refused(term: str, why: str, remedy: str) -> InputError:
    return InputError(
        f"A formula may have {_TERMS}. Got {shown_name(term)} instead, which {why}. {remedy}."
    )


def formula_schema(schema: Schema, formula: str) -> Schema:
    """Return the schema whose columns are the terms of a formula, and whose target is on its left.

    Categories are compared with their first level, or with the one of ``Treatment``; numbers are
    clipped to their bounds before a transform. Privacy: public, nothing is read but the schema and
    the formula.
    """
    parsed = _parse_formula(formula)
    left = getattr(parsed, "lhs", None)
    right = getattr(parsed, "rhs", parsed)
    sides = [side for side in (left, right) if side is not None]
    if not all(hasattr(term, "factors") for side in sides for term in side):
        raise _refused("|", "makes several formulas", "Fit them one by one")
    terms = [[str(factor.expr) for factor in term.factors] for term in right]
    if ["1"] not in terms:
        raise _refused("-1", "leaves the constant out", "Give the estimator fit_intercept=False")
    found = _FormulaColumns({column.name: column for column in schema.columns})
    interactions = []
    for factors in (term for term in terms if term != ["1"]):
        columns = [
            found.add(factor)
            for factor in factors
            if len(factors) == 1 or factor in found.of_factor
        ]
        if len(columns) < len(factors):
            raise _refused(
                ":".join(factors), "lacks the terms it is made of", "Write a * b, or a + b + a:b"
            )
        if len(factors) > 2:
            raise _refused(
                ":".join(factors), "is a product of more than two", "Multiply two of them"
            )
        if len(columns) == 2:
            pairs = [(a.name, b.name) for a in columns[0].blocks for b in columns[1].blocks]
            interactions += [SchemaInteraction(f"{a}:{b}", a, b) for a, b in pairs]
    target = _formula_target(
        schema, [[str(factor.expr) for factor in term.factors] for term in left or []]
    )
    if target is not None and any(
        source_column(column) == target.name for column in found.columns.values()
    ):
        raise InputError(
            f"The target {target.name!r} of a formula must not be on its right side too."
        )
    if not found.columns:
        raise InputError("A formula must have at least one term beside the constant.")
    widths = {
        block.name: len(block.names) for column in found.columns.values() for block in column.blocks
    }
    if (
        sum(widths.values()) + sum(widths[item.left] * widths[item.right] for item in interactions)
        > MOST_COLUMNS
    ):
        raise InputError(f"The formula leads to more than {MOST_COLUMNS:,} columns.")
    # In the order of a schema's tables, by which model files list columns.
    order = (SchemaNumber, SchemaFlag, SchemaCategory, SchemaDate)
    ordered = tuple(sorted(found.columns.values(), key=lambda column: order.index(type(column))))
    return check_schema(
        replace(schema, columns=ordered, interactions=tuple(interactions), target=target)
    )


def _parse_formula(formula: str) -> Any:
    """Return what formulaic makes of a formula, or raise before that takes long."""
    try:
        from formulaic import Formula
        from formulaic.errors import FormulaicError
        from formulaic.parser import DefaultFormulaParser, DefaultOperatorResolver
    except ImportError:
        raise InputError(
            "Formulas need formulaic: install it with `pip install 'dpconvex[formula]'`."
        ) from None
    if len(formula) > LONGEST_FORMULA:
        raise InputError(
            f"A formula must have at most {LONGEST_FORMULA:,} characters. Got more instead. Leave "
            "columns that are used as they are to the schema."
        )
    work = 0

    def count_first(symbol: str, make_terms: Callable[..., Any]) -> Callable[..., Any]:
        def make_few_terms(*parts: Any, **more: Any) -> Any:
            nonlocal work
            work += _operator_work(symbol, parts)
            if work > _MOST_WORK:
                raise InputError(
                    "A formula must have at most some 6,000 terms in a sum, and at most some "
                    "200,000 where its products are written out. Got more instead. Multiply two "
                    "terms at a time."
                )
            return make_terms(*parts, **more)

        return make_few_terms

    def refuse_parts(_: object) -> bool:
        raise _refused("|", "makes several formulas", "Fit them one by one")

    class CountedOperators(DefaultOperatorResolver):
        @property
        def operators(self) -> list[Any]:
            found: list[Any] = super().operators
            for operator in found:
                operator.to_terms = count_first(operator.symbol, operator.to_terms)
                if operator.symbol == "|":  # of which formulaic looks at all that came before
                    operator.accepts_context = refuse_parts
            return found

    try:
        return Formula(formula, _parser=DefaultFormulaParser(CountedOperators()))
    except InputError:
        raise
    except (
        FormulaicError,
        SyntaxError,
        ValueError,
        TypeError,
        RecursionError,
        ArithmeticError,
        MemoryError,
    ):
        raise InputError(
            'A formula must be like "wage ~ educ + C(region)". Got one that cannot be parsed.'
        ) from None


def _operator_work(symbol: str, parts: tuple[Any, ...]) -> int:
    """Return how much work an operator of a formula makes of terms that its parts have become."""
    sizes = [len(part) for part in parts if hasattr(part, "__len__")]
    if symbol in ("**", "^") and len(sizes) == 2:
        power = str(next(iter(parts[1]), ""))
        if not power.isdecimal():  # which is refused by formulaic
            return 0
        exponent = int(power) if len(power) < 3 else 100
        return _PRODUCT_WORK * exponent * int(max(sizes[0], 2) ** exponent)
    if symbol in ("+", "-", "~") or len(sizes) < 2:
        return sum(sizes)
    return _PRODUCT_WORK * sizes[0] * sizes[1]


def _formula_target(schema: Schema, terms: list[list[str]]) -> SchemaTarget | None:
    """Return the target of a formula's left side: the schema's own, or one of its columns."""
    if not terms:
        return schema.target
    text = terms[0][0]
    if len(terms) > 1 or len(terms[0]) > 1:
        raise _refused(text, "is one of several targets", "Fit them one by one")
    known = {column.name: column for column in schema.columns}
    named = {schema.target.name} if schema.target is not None else set()
    name, transform = _formula_column(text, {*known, *named})
    column = known.get(name)
    found = schema.target if name in named else SchemaTarget(name)
    if isinstance(column, SchemaNumber):
        found = SchemaTarget(name, (column.low, column.high))
    elif isinstance(column, SchemaCategory):
        found = SchemaTarget(name, None, column.values)
    elif column is not None:
        raise _refused(text, "is no number and no category", "Declare it in [target]")
    assert found is not None
    if transform == "x":
        return found
    if found.bounds is None or found.transform != "clip":
        raise _refused(
            text,
            "transforms a target without bounds of its own",
            "Give [target] bounds = [low, high]",
        )
    _check_bounds(text, transform, found.bounds)
    return replace(found, transform=transform)


def _check_bounds(text: str, transform: str, bounds: tuple[float, float]) -> None:
    try:
        transform_numbers(transform, 0.0, *bounds)
    except TransformError as error:
        raise _refused(text, str(error), "Change the schema's bounds, or the transform") from None


def _without_backticks(text: str) -> tuple[str, dict[str, str]]:
    """Return a factor with a word for each name between backticks, and the names by their words."""
    words: dict[str, str] = {}
    plain = _QUOTED.sub(lambda found: words.setdefault(found[1], f"quoted_{len(words)}"), text)
    return plain, {word: name for name, word in words.items()}


def _formula_column(text: str, known: Container[str]) -> tuple[str, str]:
    """Return the single column of a formula's factor, and the factor as an expression of ``x``."""
    if text in known:  # names between backticks may be any text
        return text, "x"
    if len(text) > LONGEST_FACTOR:
        raise _refused(text, "is too long", "Make a column of the table of it")
    plain, quoted = _without_backticks(text)
    try:
        tree = ast.parse(plain, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _refused(text, "cannot be parsed", "Check its spelling") from None
    called = {
        getattr(node.func, "id", "np") for node in ast.walk(tree) if isinstance(node, ast.Call)
    }
    if called - {*FUNCTIONS, "I", "np"}:
        raise _refused(
            text,
            f"calls other functions than {', '.join(FUNCTIONS)}",
            "Splines are knots of the schema",
        )
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - {
        *FUNCTIONS,
        "I",
        "np",
    }
    missing = sorted(name for name in names if quoted.get(name, name) not in known)
    if missing:
        raise _refused(
            text,
            f"names {shown_name(missing[0])}, which the schema does not",
            "Add it to the schema",
        )
    if len(names) != 1:
        raise _refused(
            text,
            f"has {len(names)} columns",
            "Transform one column at a time, and multiply with a:b",
        )
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            node.id = "x"
    found = names.pop()
    return quoted.get(found, found), ast.unparse(tree)


class _FormulaColumns:
    """Columns that the factors of a formula become, by name."""

    def __init__(self, known: dict[str, Column]) -> None:
        self.known = known
        self.columns: dict[str, Column] = {}
        self.of_factor: dict[str, Column] = {}
        self.sources: set[str] = set()

    def add(self, text: str) -> Column:
        """Return the column of a formula's factor, with its level of reference or its transform."""
        if text not in self.of_factor:
            column = self._read(text)
            if self.columns.setdefault(column.name, column) != column:
                raise _refused(text, "is there with another level of reference", "Keep one of them")
            self.of_factor[text] = column
            self.sources.add(source_column(column))
        return self.of_factor[text]

    def _read(self, text: str) -> Column:
        """Return the schema column that a formula's factor means, or refuse the factor."""
        name, level = _formula_category(text)
        if name is None:
            name, transform = _formula_column(text, self.known)
            column = self.known[name]
            if transform != "x":
                return self._transformed_factor(text, column, transform)
        elif name not in self.known:
            raise _refused(
                text, f"names {shown_name(name)}, which the schema does not", "Add it to the schema"
            )
        else:
            column = self.known[name]
            if not isinstance(column, SchemaCategory):
                raise _refused(
                    text, "is no category of the schema", f"List its levels: {name} in [categories]"
                )
        if isinstance(column, SchemaCategory) and level is not None and level not in column.values:
            raise _refused(
                text,
                "compares with a level that the schema does not list",
                "Name one that it lists",
            )
        return with_reference(column, level or getattr(column, "drop", "") or "first")

    def _transformed_factor(self, text: str, column: Column, transform: str) -> SchemaNumber:
        if not isinstance(column, SchemaNumber) or column.transform != "clip" or column.knots:
            raise _refused(
                text,
                "is no plain number of the schema",
                "Leave transform and knots to one of the two",
            )
        _check_bounds(text, transform, (column.low, column.high))
        missing = column.missing
        source = source_column(column)
        if missing.rule == "indicator" and source in self.sources:
            missing = SchemaMissing(
                "value", column.low / 2 + column.high / 2
            )  # one indicator says it for all
        return replace(column, name=text, column=source, transform=transform, missing=missing)


def _formula_category(text: str) -> tuple[str | None, str | None]:
    """Return column and level of a formula's ``C(column, Treatment("level"))``; None for what is
    no ``C``.
    """
    if len(text) > LONGEST_FACTOR:
        return None, None
    plain, quoted = _without_backticks(text)
    try:
        call = ast.parse(plain, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None, None
    if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") == "C"):
        return None, None
    arguments = call.args
    if call.keywords or not 1 <= len(arguments) <= 2 or not isinstance(arguments[0], ast.Name):
        raise _refused(
            text,
            "is more than a column and a level",
            'Write C(column) or C(column, Treatment("level"))',
        )
    name = quoted.get(arguments[0].id, arguments[0].id)
    if len(arguments) == 1:
        return name, None
    contrast = arguments[1]
    given = [
        *getattr(contrast, "args", []),
        *(word.value for word in getattr(contrast, "keywords", [])),
    ]
    treatment = ast.unparse(getattr(contrast, "func", contrast)) in ("Treatment", "contr.treatment")
    if not treatment or len(given) != 1 or not isinstance(given[0], ast.Constant):
        raise _refused(text, "is another contrast", 'Write C(column, Treatment("level"))')
    return name, str(given[0].value)
