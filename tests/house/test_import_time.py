"""Importing dpconvex stays light: no heavy package is loaded before it is needed."""

import subprocess
import sys

HEAVY = (
    "numba",
    "opendp",
    "dp_accounting",
    "polars",
    "pandas",
    "matplotlib",
    "dask",
    "distributed",
    "pyarrow",
    "statsmodels",
    "typer",
    "mpmath",
    "sklearn",
    "scipy",
    "numpy",
)


def loaded_by(statement: str) -> set[str]:
    """Return the heavy packages that a fresh process has loaded after the statement."""
    code = f"import sys\n{statement}\nprint(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_is_light():
    assert loaded_by("import dpconvex") == set()
    assert "numba" in loaded_by("import numba")  # the question can be answered with yes


def test_estimators_are_light():
    # scikit-learn's own linear models may bring some of them along; dpconvex adds none.
    assert loaded_by("import sklearn.linear_model\nimport dpconvex.estimators") <= loaded_by(
        "import sklearn.linear_model"
    )


def test_the_command_line_loads_what_a_command_needs():
    typer = loaded_by("import typer")
    assert loaded_by("import dpconvex.cli") == typer
    command = ["fit", "no.txt", "--feature-bounds", "no.toml", "--out", "no.json"]
    refused = f"import dpconvex.cli\ntry: dpconvex.cli.main({command})\nexcept SystemExit: pass"
    assert loaded_by(refused) == typer
