"""No room but ``mechanisms/`` knows a mechanism by its name: facts are asked of the mechanism."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import dpconvex
from dpconvex.core.mechanism_rules import known_mechanisms
from dpconvex.mechanisms import PrivateMechanism
from dpconvex.mechanisms.mechanism import known_mechanism_kinds
from dpconvex.mechanisms.request_and_decision import TASKS

SOURCE = Path(dpconvex.__file__).parent
ROOMS = ("core", "inputs", "models", "planning", "releases", "risk", "reports", "estimators")
#: Words that mean something else there: a key of an objective's facts, a noise term, kernels.
HOMONYMS = {
    "core/bounds.py": {"objective"},
    "core/linear_bounds.py": {"objective"},
    "core/smoothing_kernels.py": {"exponential"},
    "estimators/structured.py": {"exponential"},
    "releases/perturbed_minimiser.py": {"objective"},
}


def named_in(text: str, names: set[str]) -> set[str]:
    """Return the names of mechanisms that stand in a file's code as words of their own."""
    constants = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    return {node.value for node in constants if isinstance(node.value, str)} & names


def test_no_other_room_names_a_mechanism():
    names = {kind.name for kind in known_mechanism_kinds()}
    names |= {kind.word for kind in known_mechanism_kinds()} - {""}
    found = {}
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE).as_posix()
        if place.split("/")[0] in ROOMS:
            found[place] = named_in(path.read_text(), names) - HOMONYMS.get(place, set())
    assert {place: words for place, words in found.items() if words} == {}


def test_what_the_test_above_would_catch():
    text = 'def f(c):\n    """Say \'gradient\'."""\n    return c.mechanism in ("sgd", "output")\n'
    assert named_in(text, {"sgd", "output", "gradient"}) == {"sgd", "output"}


def test_every_mechanism_is_one_class_in_a_file_of_its_own():
    kinds = known_mechanism_kinds()
    assert sorted(kind.name for kind in kinds) == known_mechanisms()
    modules = [kind.__module__ for kind in kinds]
    assert len(set(modules)) == len(modules)
    assert all(module.startswith("dpconvex.mechanisms.") for module in modules)


@pytest.mark.parametrize("kind", known_mechanism_kinds(), ids=lambda kind: kind.name)
def test_a_mechanism_says_what_it_is(kind):
    """By facts of its own, which are of the right kind and about tasks that there are."""
    assert issubclass(kind, PrivateMechanism)
    assert kind.fits is None or kind.fits <= set(TASKS)
    for method in ("calibrate", "prove", "_run"):
        own, base = (inspect.getattr_static(each, method) for each in (kind, PrivateMechanism))
        assert own is not base
    if kind.name != "exponential":  # no estimator offers it by default, so no report is about it
        assert kind.noise_enters
        assert kind.method != PrivateMechanism.method
