"""Importing dpconvex stays light: no heavy package is loaded before it is needed."""

import functools
import subprocess
import sys

import numpy as np
import pytest

from dpconvex import DPQuantileRegressor, save_model

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


@functools.cache
def loaded_by(statement: str) -> frozenset[str]:
    """Return the heavy packages that a fresh process has loaded after the statement."""
    code = f"import sys\n{statement}\nprint(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return frozenset(done.stdout.split())


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


@pytest.fixture(scope="module")
def model():
    X = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    return DPQuantileRegressor(feature_bounds=(-1, 1)).fit(X, X.sum(axis=1))


@pytest.mark.parametrize(
    "loading",
    [
        "from dpconvex.privacy import Certificate; "
        "Certificate.from_json(open({path!r}).read()).verify()",
        "from dpconvex.models.model_file import load_model; load_model({path!r})",
    ],
)
def test_rooms_work_on_their_own(loading, model, tmp_path):
    """Certificates and files are about mechanisms and estimators that nobody has loaded yet."""
    path = tmp_path / "it.json"
    if "Certificate" in loading:
        path.write_text(model.certificate_.to_json())
    else:
        save_model(model, path)
    subprocess.run([sys.executable, "-c", loading.format(path=str(path))], check=True)
