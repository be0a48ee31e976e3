"""Every method of the benchmark by name; a file of your own adds to them."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Collection, Mapping
from pathlib import Path
from types import ModuleType

from dpconvex_reproduction.bench.method import ADD_OR_REMOVE, REPLACE, Method
from dpconvex_reproduction.bench.problems import TASKS
from dpconvex_reproduction.bench.remote import RemoteMethod
from dpconvex_reproduction.peers.environments import PeerEnvironment

__all__ = ["MODULES", "digest", "find_methods", "unknown_name"]

LONGEST_NAME = 60  # characters of a method's name

#: Modules of this package, in the order of tables: ours first, then peers by task.
MODULES = (
    "ours",
    "ebm",
    "opacus",
    "jax_privacy",
    "noisy_gd",
    "diffprivlib",
    "objective_perturbation",
    "double_noise_newton",
    "adassp",
    "tukey",
    "theil_sen",
    "without_privacy",
)


def _module(place: str) -> ModuleType:
    """Return a module of this package, or of a file of its user's."""
    if place in MODULES:
        return importlib.import_module(f"{__name__}.{place}")
    path = Path(place).resolve()
    if not path.is_file():
        raise ValueError(
            f"There is no file '{place}' with a method. A file of your own lists instances in "
            "METHODS."
        )
    # A name of its own hides no other module; being registered, its classes know their file.
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(
            f"The file '{path}' with a method must be Python, with a name that ends in .py."
        )
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(
            f"The file '{path}' cannot be loaded: {_place_and_words(error, str(path))}"
        ) from error
    finally:
        sys.path.remove(folder)
    return module


def _place_and_words(error: BaseException, path: str) -> str:
    """Return the line of a file at which an error arose, and what the error says."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}."
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == path
    ]
    return (
        (f"line {lines[-1]}: " if lines else "")
        + f"{type(error).__name__}: {error}".rstrip(".: ")
        + "."
    )


def _listed(place: str) -> tuple[Method, ...]:
    """Return the methods of a module or file, checked."""
    listed = getattr(_module(place), "METHODS", ())
    if isinstance(listed, Method):
        raise ValueError(
            f"METHODS of '{place}' must be a tuple, METHODS = ({type(listed).__name__}(),), with "
            "a comma."
        )
    if not isinstance(listed, tuple | list) or not listed:
        raise ValueError(
            f"'{place}' lists no methods. Name instances of Method in a tuple METHODS."
        )
    for method in listed:
        _check(method, place)
    return tuple(listed)


def _check(method: object, place: str) -> None:
    """Raise if an entry of METHODS is no method, or one of its attributes cannot be used."""
    if not isinstance(method, Method):
        made = f" Write {method.__name__}(), with brackets." if isinstance(method, type) else ""
        raise ValueError(
            f"METHODS of '{place}' must hold instances of Method. Got {method!r}.{made}"
        )
    name = getattr(method, "name", None)
    if not isinstance(name, str) or not name.strip():
        raise ValueError(
            f"name of {type(method).__name__} in '{place}' must be text that is not empty. Got "
            f"{name!r}."
        )
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise ValueError(
            f"name of {type(method).__name__} in '{place}' must be one line of at most "
            f"{LONGEST_NAME} characters that can be printed: it stands in figures."
        )

    def refuse(attribute: str, asked: str, got: object) -> None:
        raise ValueError(
            f"{attribute} of the method '{name}' in '{place}' must be {asked}. Got {got!r}."
        )

    relations = (ADD_OR_REMOVE, REPLACE)
    for attribute, known, many in (
        ("tasks", tuple(TASKS), "one or more"),
        ("relations", relations, "none, one or both"),
    ):
        got = getattr(method, attribute)
        usable = (
            isinstance(got, tuple)
            and all(each in known for each in got)
            and len({*got}) == len(got)
        )
        if not usable or (not got and attribute == "tasks"):
            words = (
                f"a tuple of {many} of {', '.join(map(repr, known))}; one alone is written "
                f"({known[0]!r},)"
            )
            refuse(attribute, words, got)
    if not callable(method.guarantee):
        refuse(
            "guarantee",
            "a function of the problem and the budget that returns text",
            method.guarantee,
        )
    settings = method.settings
    if not isinstance(settings, Mapping) or not settings:
        refuse("settings", "a mapping with an entry at least", settings)
    for key, arguments in settings.items():
        named = isinstance(key, str) and key.isprintable()
        if not named or not isinstance(arguments, Mapping):
            refuse("settings", "a mapping of names to keyword arguments of fit", settings)
    if isinstance(method, RemoteMethod):
        environment = getattr(method, "environment", None)
        worker = getattr(method, "worker", None)
        if not isinstance(environment, PeerEnvironment):
            refuse("environment", "a PeerEnvironment", environment)
        if not isinstance(worker, str) or not method.script().is_file():
            refuse("worker", "a script beside the file", worker)


def find_methods(files: tuple[str, ...] = ()) -> dict[str, tuple[Method, str]]:
    """Return methods by name, each with its module or file.

    Parameters
    ----------
    files : tuple of str
        Files with methods of one's own. Modules beside a file can be imported while it is loaded.

    Raises
    ------
    ValueError
        If a file cannot be loaded or lists no methods, a name is taken, or an attribute of a method
        cannot be used.
    """
    found: dict[str, tuple[Method, str]] = {}
    for place in (*MODULES, *files):
        for method in _listed(place):
            if method.name in found:
                raise ValueError(f"Two methods are named '{method.name}'. Give yours another name.")
            found[method.name] = (method, place)
    return found


def unknown_name(name: str, known: Collection[str]) -> str:
    """Return what to say of a name that no method has: the nearest one, and all in quotes, since
    names have commas.

    Parameters
    ----------
    name : str
        What was asked for.
    known : collection of str
        Names of methods.

    Examples
    --------
    >>> unknown_name("adassp", ["AdaSSP", "dpconvex, splines"])
    "There is no method 'adassp'. Did you mean 'AdaSSP'? There are: 'AdaSSP', 'dpconvex, splines'."
    """
    lower = {each.lower(): each for each in known}
    nearest = [lower[each] for each in difflib.get_close_matches(name.lower(), lower, n=1)]
    meant = f" Did you mean '{nearest[0]}'?" if nearest else ""
    return f"There is no method '{name}'.{meant} There are: {', '.join(map(repr, known))}."


def digest(place: str) -> str:
    """Return a digest of what is behind methods: what is changed is run again.

    It covers the file itself, the files of classes that its methods inherit from, if they lie in
    this package or beside the file, those of functions that it imports from this distribution's
    peers, workers, and pinned packages. What every method inherits from is left out.

    Parameters
    ----------
    place : str
        A module of this package, or a file.
    """
    module = _module(place)
    source = Path(str(module.__file__))
    bench = __name__.rpartition(".")[0]
    behind = {Path(inspect.getfile(each)) for each in vars(module).values() if _of_peers(each)}
    pins: list[str] = []
    for method in module.METHODS:
        if isinstance(method, RemoteMethod):
            behind.add(method.script())
            pins += method.environment.pins
        for each in type(method).__mro__:
            inside = each.__module__.startswith(f"{bench}.") and each is not Method
            if inside or (each.__module__ in sys.modules and _beside(each, source)):
                behind.add(Path(inspect.getfile(each)))
    files = [source, *sorted(behind - {source}, key=lambda path: (path.name, path.read_bytes()))]
    content = [path.read_bytes() for path in files] + [" ".join(pins).encode()]
    return hashlib.sha256(b"".join(content)).hexdigest()[:12]


def _of_peers(each: object) -> bool:
    """Whether a name of a module is a function of this distribution's code for peers."""
    return inspect.isfunction(each) and each.__module__.startswith("dpconvex_reproduction.peers.")


def _beside(each: type, source: Path) -> bool:
    """Whether a class is defined in the folder of a file."""
    origin = getattr(sys.modules[each.__module__], "__file__", None)
    return origin is not None and Path(origin).parent == source.parent
