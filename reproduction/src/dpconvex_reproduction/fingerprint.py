"""A fingerprint of the default: coefficients of a few tiny fits with fixed seeds.

Pages carry the fingerprint with which they were made, and ``stored_fingerprint.json`` the one of
the code as it is. So a change of the default's coefficients is seen by a test, and so is every page
that is older than it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import subprocess
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpconvex.version import __version__

__all__ = [
    "STORED",
    "WITHOUT_MARK",
    "agree",
    "default_fits",
    "fingerprint",
    "made_with",
    "main",
    "now",
    "page_fingerprint",
    "stale_pages",
]

STORED = Path(__file__).parent / "stored_fingerprint.json"
#: Pages of a folder that need no fingerprint: they carry no numbers of the default, or only tables
#: that ``dpconvex reproduce evidence`` writes from stored results and a test compares with them.
WITHOUT_MARK = {"evidence": ("index.md", "papers.md", "cost.md", "peers.md", "scale.md")}
_INDEX = (
    "index.md",
)  # of any other folder: verdicts of its pages. That of a folder below has numbers of its own.
_MARK = "fingerprint of the default "
_DIGITS = 6  # of a coefficient in the file


def _rows(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (2000, 3))
    return X, X @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=2000)


def default_fits() -> dict[str, list[float]]:
    """Return coefficients and intercept of the default fit of every family, at a small and at a
    larger budget.
    """
    from dpconvex import (
        DPAUCClassifier,
        DPLinearRegression,
        DPLinearSVC,
        DPLogisticRegression,
        DPNewsvendor,
        DPQuantileRegressor,
    )

    target: dict[str, Any] = {"target_bounds": (-4, 4)}
    kinds: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "logistic": (DPLogisticRegression, {}),
        "svm": (DPLinearSVC, {}),
        "auc": (DPAUCClassifier, {}),
        "linear": (DPLinearRegression, target),
        "median": (DPQuantileRegressor, target),
        "newsvendor": (DPNewsvendor, {"underage_cost": 3.0, **target}),
    }
    rows, y = _rows(0)
    found = {}
    flags = {
        "feature_bounds": ([0, 0, 0, -100], [1, 1, 1, 100])
    }  # two of them are rare, and hidden by noise
    kinds["logistic with flags"] = DPLogisticRegression, flags
    kinds["linear with flags"] = DPLinearRegression, {**target, **flags}
    wide = {"target_bounds": (-4000, 1000)}  # of few rows: noise hides nearly everything
    kinds["linear, few rows"] = DPLinearRegression, wide
    kinds["upper, few rows"] = DPQuantileRegressor, {**wide, "quantile": 0.9}
    for name, (kind, facts) in kinds.items():
        X = rows
        if "flags" in name:
            X = np.column_stack(
                [*(rows[:, 1] < share for share in (0.002, 0.03, 0.5)), rows[:, 0]]
            ).astype(float)
        for epsilon in (0.5, 4.0):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = kind(
                    **{
                        "epsilon": epsilon,
                        "delta": 1e-5,
                        "feature_bounds": (0, 1),
                        "random_state": 1,
                        **facts,
                    }
                )
                some = slice(100 if "few" in name else None)
                model.fit(X[some], y[some] if "target_bounds" in facts else np.where(y > 0, 1, -1))
            numbers = np.append(np.ravel(model.coef_), getattr(model, "intercept_", 0.0))
            found[f"{name}, epsilon {epsilon:g}"] = [
                float(f"{number:.{_DIGITS}g}") for number in numbers
            ]
    return found


@functools.cache
def fingerprint() -> str:
    """Return twelve digits that change with any of these coefficients: the stored ones, if
    today's fits are those.
    """
    fits = default_fits()
    if STORED.is_file():
        stored = json.loads(STORED.read_text(encoding="utf-8"))
        if agree(stored["fits"], fits):
            return str(stored["fingerprint"])
    return _digest(fits)


def agree(stored: dict[str, list[float]], fits: dict[str, list[float]]) -> bool:
    """Whether two sets of coefficients are the same up to what another machine's rounding may
    change.
    """
    return stored.keys() == fits.keys() and all(
        len(stored[name]) == len(fits[name])
        and np.allclose(stored[name], fits[name], rtol=1e-3, atol=1e-6)
        for name in fits
    )


def _digest(fits: dict[str, list[float]]) -> str:
    return hashlib.sha256(json.dumps(fits, sort_keys=True).encode()).hexdigest()[:12]


def page_fingerprint(text: str) -> str | None:
    """Return the fingerprint that a page was made with, or None."""
    found = re.search(_MARK + "([0-9a-f]{12})", text)
    return found.group(1) if found else None


def now() -> str:
    """Return the commit and the day."""
    return f"{_commit()} on {time.strftime('%Y-%m-%d', time.gmtime())}"


def made_with(measured: Sequence[str] = ()) -> str:
    """Return the line of a page that says with what, and when, it was made, and its cells where
    that was before.
    """
    today = now()
    before = "" if set(measured) <= {today} else f"Measured at {', '.join(sorted(measured))}. "
    return f"{before}Made at {today}, {_MARK}{fingerprint()}."


def _commit() -> str:
    """Return the commit of the checkout that this file is in, or the version of an installed
    distribution.
    """
    git = functools.partial(
        subprocess.run,
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    try:
        found = git(["git", "rev-parse", "--short=10", "HEAD"]).stdout.strip()
        changed = git(["git", "status", "--porcelain", "--", "../../../src", "."]).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return f"version {__version__}"
    return f"commit {found}" + (" with changes" if changed else "")


def stale_pages(folder: Path) -> list[str]:
    """Return the pages under a folder that were made with another default than that of the stored
    fingerprint.

    Pages without a fingerprint count, unless they need none: see ``WITHOUT_MARK``.
    """
    stored = json.loads(STORED.read_text(encoding="utf-8"))["fingerprint"]
    need_none = WITHOUT_MARK.get(folder.resolve().name, _INDEX)
    old = []
    for page in sorted(folder.rglob("*.md")):
        name = page.relative_to(folder).as_posix()
        found = page_fingerprint(page.read_text(encoding="utf-8"))
        if found != stored and not (found is None and name in need_none):
            old.append(name)
    return old


def main(words: list[str]) -> None:
    """Write the stored fingerprint (``--write``), or list pages of folders that are older than
    the default.
    """
    if "--write" in words:
        fits = default_fits()
        STORED.write_text(
            json.dumps({"fingerprint": _digest(fits), "fits": fits}, indent=1) + "\n",
            encoding="utf-8",
        )
        print(f"Written: {STORED.name} {_digest(fits)}")
        return
    folders = [word for word in words if not word.startswith("-")] or [
        "docs/reproduction",
        "docs/evidence",
    ]
    old = [f"{folder}/{page}" for folder in folders for page in stale_pages(Path(folder))]
    print("\n".join([*old, f"{len(old)} pages are older than the default."]))
