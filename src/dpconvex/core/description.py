"""Descriptions of losses and kernels as plain data: certificates can be read, checked and
rebuilt without pickle.
"""

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol

from dpconvex.core.stated_names import DESCRIBED

Facts = dict[str, Any]  # public facts by name, as a certificate or an objective states them


class DescribableLoss(Protocol):
    """The constants of a loss that bounds are made of."""

    @property
    def kind(self) -> str:
        """``"residual"``, ``"margin"``, ``"rate"`` or ``"several"``."""

    @property
    def lipschitz(self) -> float:
        """``sup |d/dz|``."""

    @property
    def smoothness(self) -> float:
        """``sup |d2/dz2|``."""

    @property
    def slope_range(self) -> tuple[float, float]:
        """Interval that holds every slope."""


@dataclass(frozen=True)
class DeclaredLoss:
    """A loss known only by its constants: what remains of a user-defined loss in a certificate."""

    name: str  # of the class that was used
    lipschitz: float  # bound on |d loss / dz| that the user declared
    smoothness: float  # bound on |d2 loss / dz2|
    kind: str = "residual"  # a loss of y - z, or "margin": of y * z

    def __post_init__(self) -> None:
        for name in ("lipschitz", "smoothness"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not value >= 0:
                raise ValueError(
                    f"The '{name}' of a declared loss must be a number of at least 0. Got "
                    f"{value!r} instead."
                )
            object.__setattr__(self, name, float(value))
        if self.kind not in ("residual", "margin") or not isinstance(self.name, str):
            raise ValueError(
                f"The 'kind' of a declared loss must be 'residual' or 'margin'. Got {self.kind!r} "
                "instead."
            )

    @property
    def slope_range(self) -> tuple[float, float]:
        """Nothing more is known than the Lipschitz bound."""
        return -self.lipschitz, self.lipschitz


def _described_class(name: object) -> type | None:
    """Return the loss or kernel class that a description may name so, if there is one."""
    if name == DeclaredLoss.__name__:
        return DeclaredLoss
    found = DESCRIBED.find(name)
    return found if found is not None and is_dataclass(found) else None


def describe(value: Any) -> Any:
    """Describe a loss, kernel or plain value as JSON-ready data; a class of the user's keeps
    only its constants.
    """
    name = type(value).__name__
    if is_dataclass(value) and _described_class(name) is type(value):
        inner = {
            item.name: describe(getattr(value, item.name)) for item in fields(value) if item.init
        }
        return {"class": name, **inner}
    if hasattr(value, "lipschitz") and hasattr(value, "smoothness"):
        constants = float(value.lipschitz), float(value.smoothness)
        return describe(DeclaredLoss(name, *constants, getattr(value, "kind", "residual")))
    if isinstance(value, (tuple, list)):
        return [describe(item) for item in value]
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    return value


def rebuild_description(data: Any) -> Any:
    """Return what :func:`describe` described; only dpconvex's own losses and kernels can be
    named.
    """
    if isinstance(data, dict):
        arguments = dict(data)
        name = arguments.pop("class", None)
        kind = _described_class(name)
        if kind is None:
            raise ValueError(
                f"A description must name a loss or kernel of dpconvex. Got {name!r} instead."
            )
        return kind(**{key: rebuild_description(item) for key, item in arguments.items()})
    if isinstance(data, list):
        return tuple(rebuild_description(item) for item in data)
    if data in ("inf", "-inf"):
        return float(data)
    return data
