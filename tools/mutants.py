"""Mutation testing of the trusted core: do tests notice when one operator, constant or line of it
is wrong?

    python tools/mutants.py --count 200 --seed 0 --out mutants.json

Every mutant is one small change of one file of ``TARGETS``, drawn by the seed: compiled kernels are
changed in their source, like everything else. It runs against the file's tests, in a copy of
``src``, until the first failure. A mutant that no test fails survives, and is printed with its
line, to be read by somebody. Finished mutants are kept in the output and not run again.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[1]
#: Seconds that the tests of one mutant may take; one that takes longer is killed and counts as
#: noticed.
LONGEST = 300
#: Trusted files, and the tests that hold each of them: at most 30 seconds on one core without a
#: mutant.
CORE = (
    "tests/core/test_answers.py",
    "tests/core/test_handle_attacks.py",
    "tests/core/test_norm_upper_bound.py",
)
CORE += (
    "tests/fit/test_fit_config.py",
    "tests/fit/test_fit_geometry.py",
    "tests/core/test_malicious_fit.py",
)
CORE += tuple(
    f"--deselect=tests/core/test_malicious_fit.py::test_no_fit_exceeds_the_certificate[{case}]"
    for case in ("replace_one-False", "add_or_remove_one-True")
)
GATE = ("tests/privacy/test_gate.py", "tests/statistical/test_noise.py")
DENSE = (
    "tests/engine/test_row_kernels.py",
    "tests/engine/test_octaves.py",
    "tests/engine/test_engine.py",
)
SPARSE = (
    "tests/engine/test_row_kernels.py",
    "tests/engine/test_octaves.py",
    "tests/engine/test_sparse.py",
)
TARGETS = {
    "core/row_coordinates.py": CORE,
    "core/queries.py": CORE,
    "core/private_rows.py": CORE,
    "core/noise_source.py": GATE,
    "core/dense_kernels.py": DENSE,
    "engine/sparse_kernels.py": SPARSE,
}

SWAPS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
CALLS = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
}
CALLS |= {"floor": "ceil", "ceil": "floor", "less": "less_equal", "nextafter": "copysign"}


def changes(tree: ast.AST) -> Iterator[tuple[int, str, ast.AST, ast.AST]]:
    """Yield line, description, node and what replaces it; annotations, messages and compilers'
    options stay.
    """
    skipped: set[int] = set()
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if isinstance(getattr(node, field, None), ast.AST):
                skipped |= {id(inner) for inner in ast.walk(getattr(node, field))}
        for decorator in getattr(node, "decorator_list", []):
            skipped |= {id(inner) for inner in ast.walk(decorator)}
        if isinstance(node, ast.Raise):
            skipped |= {id(inner) for inner in ast.walk(node)} - {id(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
            yield node.lineno, "operator", node, _with(node, op=SWAPS[type(node.op)]())
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield (
                node.lineno,
                "comparison",
                node,
                _with(node, ops=[SWAPS[type(node.ops[0])](), *node.ops[1:]]),
            )
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            yield node.lineno, "sign", node, node.operand
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            value = node.value + 1 if isinstance(node.value, int) else (node.value * 2 or 1.0)
            yield node.lineno, "constant", node, ast.Constant(value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node.lineno, "constant", node, ast.Constant(not node.value)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", None))
            if name in CALLS and isinstance(node.func, ast.Name):
                yield (
                    node.lineno,
                    "function",
                    node,
                    _with(node, func=ast.Name(CALLS[name], ast.Load())),
                )
            elif name in CALLS and isinstance(node.func, ast.Attribute):
                yield (
                    node.lineno,
                    "function",
                    node,
                    _with(node, func=_with(node.func, attr=CALLS[name])),
                )
        elif isinstance(node, ast.Raise | ast.AugAssign):
            yield node.lineno, "statement left out", node, ast.Pass()


def _with(node: ast.AST, **fields: object) -> ast.AST:
    """Return a copy of a node with other fields."""
    return type(node)(**{**{name: getattr(node, name) for name in node._fields}, **fields})


def mutate(text: str, wanted: int) -> tuple[int, str, str]:
    """Return line, description and text of the mutant of a number."""
    tree = ast.parse(text)
    for number, (line, kind, node, other) in enumerate(changes(tree)):
        if number == wanted:
            first, last = _span(text, node)
            code = ast.unparse(ast.fix_missing_locations(other))
            # Brackets keep what stands around the place as it was.
            code = (
                f"({code})"
                if isinstance(other, ast.expr) and not isinstance(other, ast.Constant)
                else code
            )
            return line, kind, text[:first] + code + text[last:]
    raise IndexError(wanted)


def _span(text: str, node: ast.AST) -> tuple[int, int]:
    """Return where a node begins and ends, in characters."""
    lines = text.splitlines(keepends=True)

    def position(line: int, column: int) -> int:
        return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())

    return position(node.lineno, node.col_offset), position(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]


def drawn(count: int, seed: int) -> list[tuple[str, int]]:
    """Return files and numbers of mutants, every possible one with the same chance."""
    every = [
        (name, number)
        for name in TARGETS
        for number, _ in enumerate(changes(ast.parse((ROOT / "src/dpconvex" / name).read_text())))
    ]
    return sorted(random.Random(seed).sample(every, min(count, len(every))))


def try_mutant(folder: Path, name: str, number: int) -> dict[str, object]:
    """Run the tests of a file against one of its mutants."""
    path = folder / "src/dpconvex" / name
    honest = (ROOT / "src/dpconvex" / name).read_text()
    line, kind, text = mutate(honest, number)
    path.write_text(text)
    began = time.monotonic()
    code, output = run_tests(folder, TARGETS[name], LONGEST)
    path.write_text(honest)
    said = (row for row in output.splitlines() if row.startswith(("FAILED", "ERROR")))
    killed_by = next(said, "no import") if code else ""
    old, new = (t.splitlines() for t in (honest, text))
    place = next(
        (i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), line - 1
    )
    return {
        "file": name,
        "mutant": number,
        "line": place + 1,
        "kind": kind,
        "was": old[place].strip(),
        "is": new[place].strip(),
        "killed_by": killed_by[:160],
        "seconds": round(time.monotonic() - began, 1),
    }


def run_tests(folder: Path, tests: tuple[str, ...], longest: float) -> tuple[int, str]:
    """Run tests against the sources of a folder, in a process of their own; code 1 for tests
    that take too long.
    """
    output = folder / "output"
    process = multiprocessing.get_context("forkserver").Process(
        target=_pytest_of, args=(folder, tests, output)
    )
    process.start()
    process.join(longest)
    if process.exitcode is None:
        process.kill()
        process.join()
        return 1, "ERROR time"
    return process.exitcode, output.read_text()


def _pytest_of(folder: Path, tests: tuple[str, ...], output: Path) -> None:
    """Run tests where the sources of a folder come first on the path, and exit with pytest's
    code.
    """
    import pytest

    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(ROOT)
    sys.path.insert(0, str(folder / "src"))
    code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]))
    loaded = Path(sys.modules["dpconvex"].__file__ or "")
    sys.exit(code if loaded.is_relative_to(folder) else f"{loaded} was tested in place of {folder}")


def main() -> None:
    """Run mutants, keep what was found and print the share killed and the survivors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    options = parser.parse_args()
    # One thread, kernels kept apart from those of other sources, and what every test imports loaded
    # once.
    multiprocessing.set_forkserver_preload(
        ["numpy", "scipy.optimize", "sklearn.linear_model", "numba", "pytest"]
    )
    os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    os.environ |= {"NUMBA_CACHE_DIR": tempfile.mkdtemp(), "PYTHONDONTWRITEBYTECODE": "1"}
    found = json.loads(options.out.read_text()) if options.out.exists() else []
    done = {(one["file"], one["mutant"]) for one in found}
    folders: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as place:
        for worker in range(options.workers):
            folder = Path(place) / str(worker)
            shutil.copytree(
                ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__")
            )
            for tests in sorted(set(TARGETS.values())):
                began = time.monotonic()
                code, output = run_tests(folder, tests, 10 * LONGEST)
                if code:
                    sys.exit(f"The tests fail without a mutant:\n{output[-2000:]}")
                print(
                    f"worker {worker}: {tests[0]} and the rest, {time.monotonic() - began:.0f} s",
                    flush=True,
                )
            folders.put(folder)

        def one(task: tuple[str, int]) -> None:
            folder = folders.get()
            try:
                result = try_mutant(folder, *task)
            finally:
                folders.put(folder)
            found.append(result)
            options.out.write_text(
                json.dumps(sorted(found, key=lambda m: (m["file"], m["mutant"])), indent=1)
            )
            if not result["killed_by"]:
                print(
                    f"survives: {result['file']}:{result['line']}: {result['was']}  ->  "
                    f"{result['is']}",
                    flush=True,
                )

        tasks = [task for task in drawn(options.count, options.seed) if task not in done]
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(one, tasks))
    killed = sum(bool(one["killed_by"]) for one in found)
    print(f"{killed} of {len(found)} mutants killed ({killed / max(len(found), 1):.0%})")


if __name__ == "__main__":
    main()
