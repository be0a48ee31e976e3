"""What a model file may hold: estimators by name, and intervals around them.

The rooms that define them lie above this one and register them here when they are imported, as
mechanisms and losses register in :mod:`dpconvex.core.stated_names`. A name that is not known yet
makes the package import these rooms; nothing that a file says decides what is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpconvex.core.stated_names import StatedNames

if TYPE_CHECKING:
    from dpconvex.inputs.settings import Fitted


@dataclass(frozen=True)
class SavedIntervals:
    """How a file of fitted intervals is written and read, around the file of an estimator."""

    content: Callable[[Any], dict[str, object]]
    rebuild: Callable[[Mapping[str, Any], Any], Any]


#: Functions that return the class of an estimator, by its name: a class is loaded when it is used.
ESTIMATORS: StatedNames[Callable[[], type[Fitted]]] = StatedNames([])
INTERVALS: StatedNames[SavedIntervals] = StatedNames([])
