"""Names of a package that load their module on first use, and modules that do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["dask", "dd", "np", "nw", "on_demand", "pd", "pl"]


def on_demand(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__``.

    ``homes`` says for each name which module defines it, relative to the package (a leading dot: to
    its parent). A module of the same name stands for itself: importing it would put the module in
    the name's place.
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


class ModuleOnDemand:
    """A module that is imported when something of it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):  # what Python itself asks for, before there is a name
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


if TYPE_CHECKING:
    import dask
    import dask.dataframe as dd
    import narwhals as nw
    import numpy as np
    import pandas as pd
    import polars as pl
else:
    modules = ("dask", "dask.dataframe", "narwhals", "numpy", "pandas", "polars")
    dask, dd, nw, np, pd, pl = map(ModuleOnDemand, modules)
