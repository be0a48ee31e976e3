"""Pages may teach certificates a mechanism; other tests do not see it."""

from __future__ import annotations

import copy

import pytest

from dpconvex.core import certificate, stated_names


@pytest.fixture(autouse=True)
def taught_mechanisms_are_forgotten(monkeypatch):
    stated_names.load_all_names()  # what is loaded later would be forgotten, too
    for registry in ("_CALIBRATORS", "_PROVERS"):
        monkeypatch.setattr(certificate, registry, copy.deepcopy(getattr(certificate, registry)))
