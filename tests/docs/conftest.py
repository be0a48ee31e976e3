"""Pages may teach certificates a mechanism; other tests do not see it."""

from __future__ import annotations

from importlib import import_module

import pytest

from dpconvex.mechanisms import RULES
from dpconvex.core import certificate


@pytest.fixture(autouse=True)
def taught_mechanisms_are_forgotten(monkeypatch):
    for home in set(
        RULES.values()
    ):  # the library's own first: what is loaded later would be forgotten, too
        import_module(f"dpconvex.mechanisms.{home}")
    for registry in ("_CALIBRATORS", "_PROVERS"):
        monkeypatch.setattr(certificate, registry, dict(getattr(certificate, registry)))
