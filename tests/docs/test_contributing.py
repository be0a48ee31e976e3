"""The contributors' guide holds: its mechanism is private, its estimator fits, project files say
what they should.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dpconvex
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Huber
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import ApproxDP, CertificateError, GaussianDP, LinearBounds

ROOT = Path(__file__).parents[2]


@pytest.fixture
def guide():
    """The names that the guide's Python defines."""
    names = {"__name__": "guide"}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    assert len(blocks) >= 4
    for block in blocks:
        exec(compile(block, "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    return names


def test_no_neighbour_beats_the_sensitivity_of_the_guides_mechanism(guide):
    bounds = LinearBounds(3, 1, Huber(0.1), 1.0, 1.0, alpha=0.1)
    row_map = RowMap.from_bounds(1, (-1.0, 1.0))

    def gradient(records):
        rows = MemoryRows(
            np.array([[x] for x, _ in records]), np.array([y for _, y in records]), row_map
        )
        return EmpiricalObjective(rows, bounds.loss, bounds.alpha).gradient(np.zeros(2))

    extremes = list(itertools.product((-1.0, 0.0, 1.0), (-9.0, 0.0, 9.0)))
    rest = [(0.5, 1.0), (-1.0, 9.0)]
    gradients = [gradient([record, *rest]) for record in extremes]
    moved = max(np.linalg.norm(a - b) for a, b in itertools.combinations(gradients, 2))
    claimed = guide["sensitivity"](bounds)
    assert 0.999 * claimed < moved <= claimed


@pytest.mark.parametrize("guarantee", [GaussianDP(1.0), ApproxDP(1.0, 1e-6)])
def test_certificates_of_the_guides_mechanism_refuse_half_of_the_noise(guide, guarantee):
    bounds = LinearBounds(100, 2, Huber(0.1), 1.0, 1.0, alpha=0.1)
    certificate = guide["OneStep"]().certify(bounds, guarantee)
    certificate.verify()
    term = certificate.noise["gradient"]
    for other in (
        replace(term, scale=term.scale / 2),
        replace(term, sensitivity=term.sensitivity / 2, scale=term.scale / 2),
    ):
        forged = replace(certificate, noise={"gradient": other})
        with pytest.raises(CertificateError):
            replace(forged, digest=forged._hash()).verify()


def test_the_recipe_for_a_change_of_the_fit(guide):
    """Certificates verified while it ran; a doubled share moved the model, and no budget was
    ruined by it.
    """
    assert all(guide["ratios"] != 1)
    assert all(guide["ratios"] < 2)
    assert guide["before"][1] < guide["before"][0]


def test_links_of_project_files_lead_somewhere():
    for name in ("SECURITY.md", "reproduction/README.md"):
        path = ROOT / name
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
            assert "://" in target or (path.parent / target).exists(), target


def test_the_version_has_one_source():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    stated = project["tool"]["setuptools"]["dynamic"]["version"]["attr"]
    assert stated == "dpconvex.version.__version__"
    assert "\nversion" not in (ROOT / "CITATION.cff").read_text()
    assert f"## {dpconvex.__version__}" in (ROOT / "CHANGELOG.md").read_text()
