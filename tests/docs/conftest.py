"""Pages may teach certificates a mechanism; other tests do not see it."""

from __future__ import annotations

import pytest

from dpconvex.privacy.certificates import rules


@pytest.fixture(autouse=True)
def taught_mechanisms_are_forgotten(monkeypatch):
    import dpconvex.mechanisms  # noqa: F401 (teaches its own first)

    for registry in ("_CALIBRATORS", "_PROVERS"):
        monkeypatch.setattr(rules, registry, dict(getattr(rules, registry)))
