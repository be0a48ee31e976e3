"""The table of docs/evidence/papers.md tells the truth: calls run, what shows a line exists, and
none is empty.
"""

import ast
import functools
import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dpconvex
import dpconvex.losses
import dpconvex.mechanisms
import dpconvex.planning
import dpconvex.preprocessing
import dpconvex.privacy
import dpconvex.selection
import dpconvex.smoothing
import dpconvex.solvers
from dpconvex_reproduction import catalogue, rates, tradeoffs
from dpconvex_reproduction.auc_erm.presets import AUCProblem
from dpconvex_reproduction.newsvendor_gdp.convergence import DescentFacts
from dpconvex_reproduction.output_perturbation.presets import OutputProblem
from dpconvex_reproduction.quantile_sco.presets import Problem

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evidence" / "papers.md"
PAPERS = {
    "newsvendor": ("newsvendor_gdp", ("algorithm", "convergence", "presets")),
    "quantile": ("quantile_sco", ("presets",)),
    "convolution": ("convolution_objective_perturbation", ("energies", "presets")),
    "auc": ("auc_erm", ("algorithms", "presets")),
    "output": (
        "output_perturbation",
        ("algorithms", "presets", "risks", "subgradient", "accelerated"),
    ),
}


def lines():
    paper = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            paper = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| statement"):
            cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
            yield pytest.param(cells, id=f"{paper}: {cells[0]}")


def names():
    found = {"np": np, "catalogue": catalogue}
    for module in (rates, tradeoffs):
        found |= {name: call for name, call in vars(module).items() if not name.startswith("_")}
    for module in (
        dpconvex.losses,
        dpconvex.smoothing,
        dpconvex.privacy,
        dpconvex.mechanisms,
        dpconvex.solvers,
        dpconvex.planning,
        dpconvex.selection,
        dpconvex.preprocessing,
        dpconvex,
    ):
        found.update({name: getattr(module, name) for name in module.__all__})
    for short, (package, modules) in PAPERS.items():
        parts = {name: import_module(f"dpconvex_reproduction.{package}.{name}") for name in modules}
        found[short] = SimpleNamespace(**parts)
    losses = dpconvex.losses
    smoothing = dpconvex.smoothing
    privacy = dpconvex.privacy

    def linear(loss, alpha=0.0, size=1):
        return privacy.LinearBounds(1000, size, loss, row_norm=1.0, max_norm=1.0, alpha=alpha)

    def refused(call, match="at most 3"):
        with pytest.raises(ValueError, match=match):
            call()
        return True

    smooth = smoothing.convolve(losses.Pinball(0.7), smoothing.LogisticKernel(), 0.5)
    found |= {
        "refused": refused,
        "LINEAR": linear(losses.Pinball(0.7)),
        "WIDE": linear(losses.Logistic(), size=5),
        "SMOOTH": linear(smooth, 0.1),
        "PENALISED": linear(losses.Logistic(), 0.1),
        "MATRICES": privacy.StructuredBounds(
            1000,
            5,
            smoothing.convolve_vector(losses.L1Norm(3), smoothing.GaussianKernel(3), 0.5),
            1.0,
            alpha=0.5,
        ),
        "OUTPUT": OutputProblem(1.0, 1.0, 1000, 5, 1.0, strong_convexity=0.1, smoothness=1.0),
        "LOCAL": OutputProblem(1.0, 40.0, 10, 2, 20.0, strong_convexity=0.1, mean=False),
        "DESCENT": DescentFacts(1, 2.0, 0.5, 0.24, 0.4, 0.24, 1.0, 1.0, 0.1),
        "QUANTILE": Problem(0.7, 1.0, 1e-6, 1.0, 1.0),
        "AUC": AUCProblem(400, 600, 10, 0.5, 1e-5, norm=2.0),
        "UNKNOWN": AUCProblem(400, 600, 10, 0.5, 1e-5),
    }
    return found


@pytest.fixture(scope="module")
def namespace():
    return names()


@functools.cache
def names_of_tests(path):
    """Return the names of the test functions of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def says_no(value):
    """Whether a value, or a part of a tuple or list, is a comparison that does not hold."""
    if isinstance(value, (tuple, list)):
        return any(says_no(part) for part in value)
    return isinstance(value, (bool, np.bool_)) and not value


def unknown_tests(shown):
    """Return what a cell names that is not `file::test_name` of a test that exists, or the cell
    if it names nothing.
    """
    wrong = []
    for reference in re.findall("`([^`]*)`", shown) or [shown]:
        path, _, name = reference.partition("::")
        if (
            not path.endswith(".py")
            or not (ROOT / path).is_file()
            or name not in names_of_tests(path)
        ):
            wrong.append(reference)
    return wrong


@pytest.mark.parametrize("cells", list(lines()))
def test_a_line_of_the_table(cells, namespace):
    assert len(cells) == 4
    assert all(cells)
    _, _, call, shown = cells
    if shown.startswith("["):
        assert (PAGE.parent / re.search(r"\]\(([^)]+)\)", shown)[1]).exists()
    else:
        assert unknown_tests(shown) == []
    assert not says_no(eval(call.strip("`"), dict(namespace)))


def test_comparisons_that_fail_and_tests_that_are_not_there_are_seen(namespace):
    for call in ("1 < 0", "np.float64(1) < 0", "(3, 1 < 0)", "[(1 < 0,)]"):
        assert says_no(eval(call, dict(namespace)))
    for call in ("None", "0.0", "1 > 0", "(0, [np.float64(1) > 0])", "np.zeros(3) > 1"):
        assert not says_no(eval(call, dict(namespace)))
    here = "reproduction/tests/test_papers_table.py"
    name = "test_a_line_of_the_table"
    assert unknown_tests(f"`{here}::{name}`, `{here}::test_every_paper_has_its_lines`") == []
    for shown in (
        f"`{here}`",
        f"`{here}::{name}`, `{here}::test_of_rain`",
        f"`{here}::names_of_tests`",
        "`no.py::test`",
        "it",
    ):
        assert len(unknown_tests(shown)) == 1


def test_every_paper_has_its_lines():
    papers = {param.id.split(":")[0] for param in lines()}
    assert papers == set(catalogue.PAPERS) - {"peers"}
    assert len(list(lines())) > 60
