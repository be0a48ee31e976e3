"""Pages may teach certificates a mechanism; other tests do not see it."""

from __future__ import annotations

import pytest

from dpconvex.core import mechanism_rules, stated_names
from dpconvex.mechanisms import mechanism


@pytest.fixture(autouse=True)
def taught_mechanisms_are_forgotten(monkeypatch):
    stated_names.load_all_names()  # what is loaded later would be forgotten, too
    for registry in (mechanism_rules._RULES, mechanism.MECHANISMS, stated_names.DESCRIBED):
        monkeypatch.setattr(registry, "_found", dict(registry._found))
