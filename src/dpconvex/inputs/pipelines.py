"""Check of pipelines: steps that read the data without paying are named before anything is
fitted.
"""

from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

from sklearn.utils import get_tags

from dpconvex.core.checks import parameter_error
from dpconvex.inputs.public_table import PublicTable

__all__ = ["PrivateStep", "check_pipeline"]


class PrivateStep:
    """Base of estimators and searches whose fit is private, which :func:`check_pipeline` knows
    by it.
    """

    ledger: object


_PUBLIC = (
    "Use dpconvex.preprocessing.PublicTable with a schema, or give the estimator public "
    "feature_bounds."
)
_FITTED = (
    "is fitted on the data, and what it learned is released with the model: no budget covers it."
)


def check_pipeline(pipeline: Any) -> list[str]:
    """Return what a pipeline, a search or an estimator does to the data beyond its certificate, one
    sentence each.

    Named are steps that are fitted on the data (scalers, encoders that read their categories,
    imputers, projections), models that are not private, and searches whose fits are not charged to
    a ledger. Only settings are read.

    Parameters
    ----------
    pipeline : estimator
        A scikit-learn pipeline, column transformer, union or search, nested as you like, or a
        single estimator.

    Returns
    -------
    list of str
        Empty where nothing was found. A step of your own that says ``requires_fit=False`` in its
        tags, or has ``privacy_ = "public"`` or ``"paid"``, is believed.

    Notes
    -----
    Privacy: sees no data. An empty list is no proof: a function of your own may still look at other
    rows.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from dpconvex import DPQuantileRegressor, check_pipeline
    >>> for problem in check_pipeline(make_pipeline(StandardScaler(), DPQuantileRegressor())):
    ...     print(problem.split(" and ")[0])
    standardscaler: StandardScaler is fitted on the data,
    """
    if isinstance(pipeline, type) or not hasattr(pipeline, "fit"):
        is_class = isinstance(pipeline, type)
        got = f"the class {pipeline.__name__}" if is_class else type(pipeline).__name__
        allowed = "a pipeline, a search or an estimator, made with its settings"
        raise parameter_error("pipeline", "check_pipeline", allowed, got, kind=TypeError)
    return list(_find_pipeline_problems(pipeline, ""))


def _find_pipeline_problems(item: Any, path: str) -> Iterator[str]:
    """Yield what a step of a pipeline does to the data beyond its certificate."""
    here = f"{path}: " if path else ""
    name = type(item).__name__
    if item is None or isinstance(item, str):  # passthrough, drop
        return
    searches = any(
        hasattr(item, attribute) for attribute in ("param_grid", "param_distributions", "cv")
    )
    if searches and hasattr(item, "estimator"):
        # The certificate of our own search covers its fits.
        if not isinstance(item, PrivateStep) and _pipeline_without_ledger(item.estimator):
            yield (
                f"{here}{name} fits the same data many times, and no ledger counts these fits: "
                "all of them together are covered by no certificate. Give the estimator a "
                "ledger, or use dpconvex.selection.DPSelect."
            )
        yield from _find_pipeline_problems(item.estimator, _join(path, "estimator"))
        return
    parts = _pipeline_steps(item)
    if parts:
        yield from _people_lost_in_pipeline(item, parts, path)
        for label, part in parts:
            yield from _find_pipeline_problems(part, _join(path, label))
        if hasattr(item, "final_estimator") and item.final_estimator is None:  # of a stack
            yield (
                f"{here}{name} ends in an estimator of scikit-learn by default, which is not "
                "private: what it learns from the data is covered by nothing. Give a "
                "final_estimator of dpconvex."
            )
    elif not isinstance(item, PrivateStep) and not _pipeline_step_is_public(item):
        if hasattr(item, "transform"):
            yield f"{here}{name} {_FITTED} {_PUBLIC}"
        elif hasattr(item, "predict"):
            yield (
                f"{here}{name} is not private: what it learns from the data is covered by nothing."
            )


def _people_lost_in_pipeline(item: Any, parts: list[tuple[str, Any]], path: str) -> Iterator[str]:
    """Name tables whose people do not reach an estimator of the pipeline that takes them."""
    # Steps that pass all columns through, or drop them, are no followers.
    parts = [part for part in parts if part[1] is not None and not isinstance(part[1], str)]
    in_order = hasattr(item, "steps")
    for place, (label, table) in enumerate(parts):
        if not isinstance(table, PublicTable) or table._parsed().person is None:
            continue
        follower: Any = parts[place + 1][1] if place + 1 < len(parts) else None
        taker = getattr(follower, "regressor", follower)  # of a target that is transformed
        takes_groups = hasattr(taker, "certify") and "groups" in signature(taker.fit).parameters
        if not in_order or (follower is not None and not takes_groups):
            yield (
                f"{_join(path, label)}: PublicTable hands on whose rows they are, by [person] of "
                "its schema, and what comes next does not take them: a fit is refused. Put an "
                "estimator of dpconvex directly behind it."
            )


def _join(path: str, label: str) -> str:
    return f"{path}.{label}" if path else label


def _pipeline_without_ledger(item: Any) -> bool:
    """Whether a private model somewhere inside charges nobody."""
    if isinstance(item, PrivateStep):
        return item.ledger is None
    return any(_pipeline_without_ledger(part) for _, part in _pipeline_steps(item))


def _pipeline_steps(item: Any) -> list[tuple[str, Any]]:
    """Return the steps of a pipeline, or of something else that is made of steps."""
    for attribute in ("steps", "transformers", "transformer_list", "estimators"):
        steps = getattr(item, attribute, None)
        if isinstance(steps, (list, tuple)) and all(isinstance(step, tuple) for step in steps):
            found = [(str(step[0]), step[1]) for step in steps]
            for name in ("remainder", "final_estimator"):
                if hasattr(getattr(item, name, None), "fit"):
                    found.append((name, getattr(item, name)))
            return found
    if not isinstance(item, PrivateStep):
        for attribute in ("estimator", "regressor"):
            inner = getattr(item, attribute, None)
            if hasattr(inner, "fit"):
                transformer = getattr(item, "transformer", None)
                return [
                    (attribute, inner),
                    *([] if transformer is None else [("transformer", transformer)]),
                ]
    return []


def _pipeline_step_is_public(item: Any) -> bool:
    """Return whether a pipeline's step is public or paid for, by its settings alone."""
    if isinstance(item, PublicTable):
        return True
    if getattr(item, "privacy_", None) in ("public", "paid"):
        return True
    known: dict[str, Callable[[Any], bool]] = {
        "OneHotEncoder": _pipeline_encoder_is_public,
        "OrdinalEncoder": _pipeline_encoder_is_public,
        "SimpleImputer": lambda step: (
            step.strategy == "constant"
            and step.fill_value is not None
            and not step.add_indicator
            and step.keep_empty_features
        ),
        "PolynomialFeatures": lambda step: True,  # reads the number of columns
        "SplineTransformer": lambda step: (
            not isinstance(step.knots, str) and step.extrapolation != "error"
        ),
    }
    if type(item).__name__ in known and type(item).__module__.startswith("sklearn."):
        return bool(known[type(item).__name__](item))
    return hasattr(item, "fit") and not get_tags(item).requires_fit


def _pipeline_encoder_is_public(step: Any) -> bool:
    """Whether an encoder is told its categories, and what to do with others."""
    told = not isinstance(step.categories, str) and step.handle_unknown != "error"
    counted = (
        getattr(step, name, None) is not None for name in ("min_frequency", "max_categories")
    )
    return told and getattr(step, "drop", None) in (None, "first") and not any(counted)
