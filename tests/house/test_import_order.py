"""Imports point one way, as CONTRIBUTING.md says, and none inside a function hides a cycle."""

from __future__ import annotations

import ast
import functools
import itertools
from pathlib import Path

import dpconvex

SOURCE = Path(dpconvex.__file__).parent
# Every room may use itself and the rooms of earlier lines.
ORDER = (
    ("types", "version", "system"),
    ("core",),
    ("losses", "engine"),
    ("smoothing",),
    ("privacy",),
    ("objectives",),
    ("solvers",),
    ("releases",),
    ("fit",),
    ("risk",),
    ("mechanisms",),
    ("planning", "inputs"),
    ("models",),
    ("reports",),
    ("estimators",),
    ("datasets", "assessment"),
    ("audit", "evaluation", "intervals", "preprocessing", "selection"),
    ("cli",),
    ("__main__",),
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}


def name_of(path: Path, root: Path) -> str:
    parts = ("dpconvex", *path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(text: str, module: str, package: str, modules: set[str]) -> set[str]:
    """Return the modules of ours that a file imports, at its top or inside a function, but for
    types alone.

    What a room's own file imports for types is what it loads on demand.
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = node.body if module == package else []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in modules}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join(
                    [*parents[: len(parents) - node.level + 1], *base.split(".")]
                ).rstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found |= {inner} if inner in modules else {base} & modules
    return found - {module}


@functools.cache
def graph(root: Path = SOURCE) -> dict[str, set[str]]:
    paths = {name_of(path, root): path for path in root.rglob("*.py")}
    return {
        module: imports_of(
            path.read_text(),
            module,
            module if path.name == "__init__.py" else module.rpartition(".")[0],
            set(paths),
        )
        for module, path in paths.items()
    }


def wrong_way(edges: dict[str, set[str]]) -> list[str]:
    """Return imports that point to a later room, or beside it."""
    found = []
    for module, used in edges.items():
        for other in used:
            here, there = (f"{name}..".split(".")[1] for name in (module, other))
            # The package itself stands for its estimators.
            if here and here != there and not LEVEL[there or "estimators"] < LEVEL[here]:
                found.append(f"{module} imports {other}")
    return sorted(found)


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle, or nothing."""
    left = {module: set(used) for module, used in edges.items()}
    while True:
        done = {module for module, used in left.items() if not used}
        if not done:
            return sorted(left)
        left = {module: used - done for module, used in left.items() if module not in done}


def test_rooms_use_earlier_rooms_only():
    assert wrong_way(graph()) == []


def test_no_cycle_even_inside_functions():
    assert cycle(graph()) == []


def test_every_room_is_in_the_order_and_in_the_contributors_guide():
    rooms = {
        name_of(path, SOURCE).split(".")[1]
        for path in SOURCE.rglob("*.py")
        if path.parent != SOURCE
    }
    assert rooms <= set(LEVEL)
    guide = SOURCE.parents[1] / "CONTRIBUTING.md"
    text = guide.read_text()
    assert [
        room for room in itertools.chain(*ORDER) if room in rooms and f"`{room}/`" not in text
    ] == []


def test_what_these_tests_would_catch(tmp_path):
    for room, text in {
        "losses/a.py": "def f():\n    from dpconvex.privacy import b\n",
        "privacy/b.py": "from dpconvex.losses.a import f\n",
        "engine/c.py": "from dpconvex.losses import a\n",
    }.items():
        path = tmp_path / room
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    edges = graph(tmp_path)
    assert wrong_way(edges) == [
        "dpconvex.engine.c imports dpconvex.losses.a",
        "dpconvex.losses.a imports dpconvex.privacy.b",
    ]
    assert "dpconvex.privacy.b" in cycle(edges)
