"""Every method of the benchmark by name; a file of your own adds to them."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

from dpconvex_reproduction.bench.method import Method

__all__ = ["MODULES", "digest", "find_methods"]

#: Modules of this package, in the order of tables: ours first, then peers by task.
MODULES = (
    "ours", "ebm", "opacus", "jax_privacy", "diffprivlib", "objective_perturbation", "double_noise_newton", "adassp",
    "tukey", "theil_sen", "without_privacy",
)  # fmt: skip


def _module(place: str) -> ModuleType:
    """Return a module of this package, or of a file of its user's."""
    if place in MODULES:
        return importlib.import_module(f"{__name__}.{place}")
    path = Path(place)
    if not path.is_file():
        raise ValueError(f"There is no file '{place}' with a method. A file of your own lists instances in METHODS.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find_methods(files: tuple[str, ...] = ()) -> dict[str, tuple[Method, str]]:
    """Return methods by name, each with its module or file.

    Raises
    ------
    ValueError
        If a file lists none, or a name is taken.
    """
    found: dict[str, tuple[Method, str]] = {}
    for place in (*MODULES, *files):
        listed = getattr(_module(place), "METHODS", ())
        if not listed:
            raise ValueError(f"'{place}' lists no methods. Name instances of Method in METHODS.")
        for method in listed:
            if method.name in found:
                raise ValueError(f"Two methods are named '{method.name}'. Give yours another name.")
            found[method.name] = (method, place)
    return found


def digest(place: str) -> str:
    """Return a digest of the files behind a method: what is changed is run again."""
    source = Path(str(_module(place).__file__))
    files = [source, *sorted(source.parent.glob(f"{source.stem}_worker.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
