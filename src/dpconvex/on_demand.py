"""Names of a package that load their module when they are asked for, so that nobody waits for what is not used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["on_demand"]


def on_demand(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__``.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : mapping of str to str
        By name, the module that defines it, counted from the package (a leading dot: from the one around it). A
        module of the same name stands for itself: what is defined in it must not share its name, because importing
        the module would put the module in its place.
    """
    names = vars(sys.modules[package])

    def __getattr__(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(f".{homes[name]}", package)
        names[name] = home if homes[name] == name else getattr(home, name)
        return names[name]

    def __dir__() -> list[str]:
        return sorted({*names, *homes})

    return __getattr__, __dir__
