"""Transforms of one number, like ``log(x + 1)``, with the bounds that follow from those of the
number.

Bounds come from interval arithmetic: every step of an expression has an interval, and its values
are clipped to it. So a value never leaves the bounds, whatever the number was and however a
function rounds.
"""

import ast
import functools
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

WORDS = ("clip", "log1p", "log", "sqrt")  # transforms that a schema may name by a word
FUNCTIONS = ("log", "log10", "log2", "log1p", "sqrt", "exp", "abs")
ALLOWED = f"numbers, the column, + - * / ** and {', '.join(FUNCTIONS)}"
# characters of an expression, and sizes of its steps
_LONGEST = 200
_LARGEST = 1e150
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_LEAST = {
    "log": 0.0,
    "log10": 0.0,
    "log2": 0.0,
    "log1p": -1.0,
}  # below or at which there is no logarithm


class TransformError(ValueError):
    """An expression that has no bounds, or that is more than a transform of one number."""


class BoundedValues(NamedTuple):
    """Values of one step of an expression, and its interval."""

    values: Any
    low: float
    high: float


@functools.lru_cache(1000)
def parse_transform(text: str) -> ast.expr:
    """Return the tree of an expression of ``x``, where a word stands for its function."""
    if text in WORDS:
        text = "x" if text == "clip" else f"{text}(x)"
    try:
        tree = ast.parse(text, mode="eval").body if len(text) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    known = {"x", "I", "np", *FUNCTIONS}
    if tree is None or {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - known:
        raise TransformError(f"has more than {_LONGEST} characters, or parts other than {ALLOWED}")
    return tree


def transform_numbers(text: str, values: Any, low: float, high: float) -> BoundedValues:
    """Return the transform of numbers within ``[low, high]``, and its bounds."""
    import numpy as np  # which most commands do without

    if text == "clip":
        return BoundedValues(values, low, high)
    with np.errstate(all="ignore"):
        try:
            found = _transform_step(
                parse_transform(text), BoundedValues(np.asarray(values, float), low, high)
            )
        except RecursionError:
            raise TransformError("is nested too deeply") from None
    return found._replace(values=np.broadcast_to(found.values, np.shape(values)))


def _transform_step(node: ast.expr, x: BoundedValues) -> BoundedValues:
    if isinstance(node, ast.Name) and node.id == "x":
        return x
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _bounded_transform_values(lambda value: value, [node.value], float(node.value))  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _transform_step(node.operand, x)
        return BoundedValues(-inner.values, -inner.high, -inner.low)
    if isinstance(node, ast.BinOp):
        return _transform_by_operator(
            node.op, _transform_step(node.left, x), _transform_step(node.right, x)
        )
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        called = node.func
        plain = not isinstance(called, ast.Attribute) or getattr(called.value, "id", "") == "np"
        name = (
            getattr(called, "attr" if isinstance(called, ast.Attribute) else "id", "")
            if plain
            else ""
        )
        inner = _transform_step(node.args[0], x)
        if name == "I":
            return inner
        if name in FUNCTIONS:
            import numpy as np

            if inner.low <= _LEAST.get(name, -math.inf) or (name == "sqrt" and inner.low < 0):
                raise TransformError(f"takes {name} where the bounds allow numbers that have none")
            ends = [
                inner.low,
                inner.high,
                *([0.0] if name == "abs" and inner.low < 0 < inner.high else []),
            ]
            return _bounded_transform_values(getattr(np, name), ends, inner.values)
    raise TransformError(f"has parts other than {ALLOWED}")


def _transform_by_operator(
    node: ast.operator, left: BoundedValues, right: BoundedValues
) -> BoundedValues:
    corners = [(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    if isinstance(node, ast.Pow):
        power = right.low
        whole = power == int(power)
        even = power % 2 == 0
        if (
            right.low != right.high
            or (not whole and left.low < 0)
            or (power < 0 and left.low <= 0 <= left.high)
        ):
            raise TransformError(
                "takes a power that there is not for all numbers within the bounds"
            )
        ends = [left.low, left.high, *([0.0] if even and left.low < 0 < left.high else [])]
        return _bounded_transform_values(lambda value: value**power, ends, left.values)
    if isinstance(node, ast.Div) and right.low <= 0 <= right.high:
        raise TransformError("divides by numbers that may be 0 within the bounds")
    if type(node) not in _OPERATORS:
        raise TransformError(f"has parts other than {ALLOWED}")
    function = _OPERATORS[type(node)]
    return _bounded_transform_values(
        lambda pair: function(*pair), corners, (left.values, right.values)
    )


def _bounded_transform_values(
    function: Callable[[Any], Any], ends: list[Any], values: Any
) -> BoundedValues:
    """Return a transform's values, clipped to the bounds that its values at the ends span."""
    import numpy as np

    try:
        exact = [
            tuple(map(np.float64, end)) if isinstance(end, tuple) else np.float64(end)
            for end in ends
        ]
        found = [float(function(end)) for end in exact]
    except OverflowError:
        found = [math.inf]
    low = min(found)
    high = max(found)
    if not max(abs(low), abs(high)) <= _LARGEST:
        raise TransformError(f"leads to numbers beyond {_LARGEST:g} within the bounds")
    return BoundedValues(np.clip(function(values), low, high), low, high)
