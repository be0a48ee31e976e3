"""Names that certificates state, and the classes and rules behind them.

A certificate is plain data: it names losses, kernels, kinds of bounds and a mechanism. The rooms
that define them register them here when they are imported, so that the core, which reads
certificates, depends on none of these rooms. A name that is not known yet makes the package import
all of its own rooms once (:data:`LOADERS`); nothing that a certificate says decides what is
imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")

#: Functions that import every room that registers names; the package adds its own.
LOADERS: list[Callable[[], None]] = []


def load_all_names() -> None:
    """Import every room that registers names that certificates state."""
    for load in LOADERS:
        load()


class StatedNames(Generic[Value]):
    """What names of one kind stand for; ``loaders`` import the rooms that register them."""

    def __init__(self, loaders: list[Callable[[], None]] = LOADERS) -> None:
        self._found: dict[str, Value] = {}
        self.loaders = loaders

    def add(self, name: str, value: Value) -> None:
        """Register what a name stands for."""
        self._found[name] = value

    def registered(self, name: str) -> Value | None:
        """Return what a name stands for so far, without loading any room."""
        return self._found.get(name)

    def find(self, name: object) -> Value | None:
        """Return what a name stands for, or None if no room has registered it."""
        if not isinstance(name, str):
            return None
        if name not in self._found:
            self._load()
        return self._found.get(name)

    def known(self) -> list[str]:
        """Return all names, in the order of the alphabet."""
        self._load()
        return sorted(self._found)

    def _load(self) -> None:
        for load in self.loaders:
            load()


#: Losses and kernels that a description may name, and kinds of bounds.
DESCRIBED: StatedNames[type] = StatedNames()
BOUNDS: StatedNames[type] = StatedNames()


def register_described(module_names: dict[str, object], exported: Iterable[str]) -> None:
    """Register the classes among the exported names of a room: descriptions may name them."""
    for name in exported:
        value = module_names[name]
        if isinstance(value, type):
            DESCRIBED.add(name, value)


Kind = TypeVar("Kind", bound=type)


def describable(kind: Kind) -> Kind:
    """Let certificates describe a loss or kernel of one's own by its fields, and rebuild it.

    A decorator of a dataclass whose fields are plain data. Without it a certificate keeps only the
    declared constants of the loss. A process that reads such a certificate must import the module
    that defines the class first.
    """
    if not is_dataclass(kind):
        raise TypeError(
            f"A describable class must be a dataclass, so that its fields say all about it. Got "
            f"{kind.__name__} instead. Put @dataclass(frozen=True) below @describable."
        )
    load_all_names()  # so that no name of the library is taken, whatever is loaded
    known = DESCRIBED.registered(kind.__name__)
    if known is not None and (known.__module__, known.__qualname__) != (
        kind.__module__,
        kind.__qualname__,
    ):
        raise ValueError(
            f"The name {kind.__name__!r} of {kind.__module__} is the name of a class of "
            f"{known.__module__} already, and a certificate would be read with the wrong one. "
            "Choose another name."
        )
    DESCRIBED.add(kind.__name__, kind)
    return kind
