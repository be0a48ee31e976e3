"""Label sets of classifiers and the checks of targets that hold labels.

A label set is public. It is either declared with ``classes`` or read from the target, which the
certificate then says; targets that seem to be measurements rather than labels are refused. No
message quotes a label.
"""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from dpconvex.core.checks import check_count, parameter_error
from dpconvex.engine.dask.partitions import MOST_LABELS
from dpconvex.inputs.cells import Cell, CellWordMatcher, cell_meaning, read_cell
from dpconvex.inputs.containers import NO_NUMBERS, read_cells_of_one
from dpconvex.inputs.settings import Classifier, Label

# A label set that is read from the target becomes public: beyond this size it is taken for
# measurements.
MOST_FOUND = 100
LONGEST_LABEL = 1000  # characters
_KINDS = "text, whole numbers or booleans"


def _label_kind(label: object) -> str:
    """Return the kind of a label: "text", "number", "boolean", "missing" or "other"."""
    if isinstance(label, (bool, np.bool_)):
        return "boolean"
    if isinstance(label, str):
        return "text"
    if is_missing_label(label):
        return "missing"
    whole = isinstance(label, (int, np.integer))
    return (
        "number"
        if whole or (isinstance(label, (float, np.floating)) and float(label).is_integer())
        else "other"
    )


def is_missing_label(value: object) -> bool:
    """Return whether a value stands for none: None, NaN, or pandas' NA and NaT, which do not
    even say so.
    """
    if isinstance(value, (float, np.floating)):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def declared_label_set(classes: object, owner: str, ordered: bool = False) -> np.ndarray | None:
    """Return the label set that the 'classes' parameter declares, None if it is None, or raise.

    It is sorted, but for ``ordered`` levels, which stay as they are given.
    """
    if classes is None:
        return None
    allowed = f"None or a list of 2 to {MOST_LABELS} different labels, all of one kind: {_KINDS}"
    problem = partial(parameter_error, "classes", owner, allowed)
    listed = isinstance(classes, Sequence) and not isinstance(classes, (str, bytes))
    if not listed and getattr(classes, "ndim", None) != 1:
        what = type(classes).__name__
        if isinstance(classes, (str, Set, Mapping)):
            what += ", which is no list"
        raise TypeError(str(problem(what, "Write [0, 1], for instance.")))
    labels = list(cast(Iterable[object], classes))
    if len(labels) > MOST_LABELS:
        raise problem(str(len(labels)))
    # As an array, which gives every label the room of the longest.
    if any(isinstance(label, str) and len(label) > LONGEST_LABEL for label in labels):
        raise problem(f"one of more than {LONGEST_LABEL:,} characters")
    kinds = {_label_kind(label) for label in labels}
    if len(kinds) > 1 or kinds & {"missing", "other"}:
        raise problem("several kinds or other values")
    found = np.unique(np.array(labels)) if labels else np.empty(0)
    if len(found) < len(labels):
        raise problem("a label twice")
    if not 2 <= len(found) <= MOST_LABELS:
        raise problem(str(len(found)))
    return np.array(labels) if ordered else found


def read_label_set(y: Any, declared: np.ndarray | None, owner: str) -> np.ndarray:
    """Return the sorted label set of a target: the declared one, which must hold all labels, or
    the one found.
    """
    if declared is not None and y.shape[0] == 0:
        return declared
    found = _distinct_labels(y, owner)
    if declared is not None:
        # Numbers would be compared as text with text.
        if (found.dtype.kind in "UO") != (declared.dtype.kind in "UO"):
            raise ValueError(_wrong_label_kind(declared, owner))
        if not np.isin(found, declared).all():
            raise ValueError(
                f"The labels given to {owner}.fit must all be in its 'classes' parameter, "
                f"{_show_labels(declared)}. Got others as well. Add them to 'classes', or map "
                "them to labels in it by a rule that is public."
            )
        return declared
    if len(found) > MOST_FOUND:
        raise ValueError(
            f"The target given to {owner} must hold labels: at most {MOST_FOUND} different ones "
            "are read from it, because the label set becomes public. Got more instead. Use a "
            "regressor for a target that is measured, or name the labels with 'classes'."
        )
    if len(found) < 2:
        raise ValueError(
            f"{owner} needs at least two classes. Got {len(found)} class instead. Name the label "
            "set with 'classes'."
        )
    return found


def check_label_type(y: object, declared: np.ndarray, owner: str) -> None:
    """Raise for an array of numbers, which is a public type, where no declared label means one:
    no row would be valid.

    Text is read cell by cell, because one label may be why all of them are text.
    """
    kind = getattr(getattr(y, "dtype", None), "kind", "O")
    if kind in NO_NUMBERS:
        raise TypeError(_several_kinds(owner))
    shape: tuple[Any, ...] = getattr(y, "shape", ())
    empty = len(shape) > 0 and isinstance(shape[0], int) and shape[0] == 0
    if kind not in "biuf" or declared.dtype.kind != "U" or empty:
        return
    meanings = [cell_meaning(Cell(text=str(label))) for label in declared.tolist()]
    if all(meaning.number is None and meaning.truth is None for meaning in meanings):
        raise TypeError(_wrong_label_kind(declared, owner))


def _wrong_label_kind(declared: np.ndarray, owner: str) -> str:
    """Return the message about text where numbers are declared, or the other way round: both
    types are public.
    """
    text = declared.dtype.kind in "UO"
    kinds = ("text", "numbers or booleans") if text else ("numbers or booleans", "text")
    remedy = "Turn the labels into numbers with y.astype(int), or write the classes as text."
    if text:
        remedy = (
            "Write the labels of y in 'classes', numbers without quotes, or turn them into text "
            "by a public rule, for instance y.astype(str)."
        )
    return (
        f"The labels given to {owner} must be of the kind of its 'classes' parameter, "
        f"{_show_labels(declared)}, which are {kinds[0]}. Got {kinds[1]} instead. {remedy}"
    )


def _show_labels(declared: np.ndarray) -> str:
    write = repr if declared.dtype.kind in "UO" else str
    words = [write(str(label)[:80]) for label in declared[:10].tolist()]
    return "[" + ", ".join(words) + (", ..." if len(declared) > 10 else "") + "]"


def _distinct_labels(y: Any, owner: str) -> np.ndarray:
    """Return the sorted distinct labels of a target, or raise if it holds something else."""
    if y.shape[0] == 0:
        return np.empty(0)
    if not isinstance(y, np.ndarray):  # a table of partitions, which checked each of them
        try:
            return np.asarray(y.unique())
        except TypeError:  # labels of several partitions that cannot be compared
            problem = TypeError(_several_kinds(owner))
        raise problem
    if y.dtype.kind == "O" and not all(issubclass(kind, str) for kind in set(map(type, y))):
        kinds = {_label_kind(label) for label in y}
        if "missing" in kinds:
            raise ValueError(missing_labels(owner))
        if len(kinds) > 1 or "other" in kinds:
            raise TypeError(_several_kinds(owner))
        y = np.array(y.tolist())
    if y.dtype.kind in NO_NUMBERS:
        raise TypeError(_several_kinds(owner))
    with warnings.catch_warnings():
        # Whether scikit-learn finds many labels odd depends on the data.
        warnings.simplefilter("ignore", UserWarning)
        # Of booleans, sorting a million would take longer than a pass of the fit.
        found = np.array([False, True])[[not y.all(), y.any()]] if y.dtype == bool else np.unique(y)
        check_classification_targets(found)
    return found


def _several_kinds(owner: str) -> str:
    return (
        f"The labels given to {owner} must be all of one kind: {_KINDS}. Got several kinds or "
        "other objects instead. Turn all of them into text, dates too."
    )


def missing_labels(owner: str) -> str:
    """Return the message about labels that are missing."""
    return (
        f"The labels given to {owner} must all be there. Got missing ones instead. Give missing "
        "labels a public label of their own, or one that exists; drop their rows only with "
        "neighbors='add_or_remove_one', where the number of rows is private."
    )


def label_set_facts(model: Classifier, n_classes: int | None) -> dict[str, Any]:
    """Return the public parameters that follow from the label set; of a fitted one if
    ``n_classes`` is None.
    """
    n_classes = len(model.classes_) if n_classes is None else n_classes
    return {
        "n_classes": n_classes,
        "label_set": "assumed public" if model.classes is None else "given",
        "problems": 1 if n_classes == 2 else n_classes,
    }


def count_expected_labels(model: Classifier, n_classes: int | None) -> int:
    """Return how many labels ``certify`` is about: as declared, as given, or two."""
    owner = type(model).__name__
    declared = declared_label_set(model.classes, owner)
    if n_classes is None:
        return 2 if declared is None else len(declared)
    check_count("n_classes", f"{owner}.certify", n_classes, 2)
    if declared is not None and n_classes != len(declared):
        allowed = f"the number of its 'classes', {len(declared)}"
        raise parameter_error(
            "n_classes", f"{owner}.certify", allowed, repr(n_classes), "Leave it out."
        )
    return int(n_classes)


@dataclass(frozen=True)
class OneVsRestLabels:
    """Targets +1 for one label and -1 for all others; NaN, the mark of an invalid row, stays
    NaN.
    """

    label: Label

    def __call__(self, y: np.ndarray) -> np.ndarray:
        """Return the targets of an array of labels."""
        targets = np.where(y == self.label, 1.0, -1.0)
        if y.dtype.kind == "f":
            targets[np.isnan(y)] = np.nan
        return targets


@dataclass(frozen=True)
class LabelNumbers:
    """The number of every label in a set that holds all of them; NaN, the mark of an invalid
    row, stays NaN.
    """

    labels: tuple[Label, ...]

    def __call__(self, y: np.ndarray) -> np.ndarray:
        """Return the numbers of an array of labels."""
        numbers = np.full(y.shape, np.nan)
        for number, label in enumerate(self.labels):
            numbers[y == label] = number
        return numbers


@dataclass(frozen=True)
class LabelPositions:
    """The position of every label in a declared set of labels of one kind; NaN for what is none of
    them.

    Another value is matched by its meaning: the text ``1`` is the label 1. A reader that makes text
    of all labels because one of them is no number thus changes no other row.
    """

    declared: tuple[Label, ...]

    def __call__(self, y: np.ndarray) -> np.ndarray:
        """Return the positions of an array of labels."""
        text = isinstance(self.declared[0], str)
        if y.dtype.kind in "ST":
            y = y.astype(object)
        if y.dtype.kind not in "biufUO":
            return np.full(y.shape, np.nan)
        if y.dtype.kind == "O":  # a list of one label is that label
            y = read_cells_of_one(y)
        alike = (y.dtype.kind == "U") == text and y.dtype.kind != "O"
        positions = LabelNumbers(self.declared)(y) if alike else np.full(y.shape, np.nan)
        if alike and not text:
            return positions
        known = {label: position for position, label in enumerate(self.declared)}
        words = CellWordMatcher([str(label) for label in self.declared])
        allowed = ("text",) if text else ("number", "boolean")  # others need not be hashable

        def find(label: object) -> float:
            try:
                position = known.get(cast(Label, label)) if _label_kind(label) in allowed else None
                position = words.find(read_cell(label)) if position is None else position
            except Exception:  # whatever a label does when it is read: an error would tell of it
                position = None
            return np.nan if position is None else position

        left = np.isnan(positions)
        if y.dtype.kind == "O":
            positions[left] = [find(label) for label in y[left]]
        elif left.any():
            labels, rows = np.unique(y[left], return_inverse=True)
            positions[left] = np.array([find(label) for label in labels])[rows.reshape(-1)]
        return positions
