"""Handles on small tables for tests of what asks them: with terms of any noise, and on plain
numbers.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dpconvex.core.certificate import CertifiedNoise
from dpconvex.core.private_rows import PrivateRows
from dpconvex.fit.constants import LENGTH_EDGES
from dpconvex.fit.geometry import column_octaves
from dpconvex.losses import Logistic
from dpconvex.privacy import LinearBounds, NoiseSource


def term(std, kind, dimension=1, bound=1.0, uses=1000):
    return CertifiedNoise(
        "gaussian", std, 1.0, dimension, "sum", uses, query=kind, record_bound=bound
    )


def geometry_terms(std, columns, lead=1, above=0):
    """Return noise of one size on everything that coordinates are found by."""
    size = columns + lead
    bins = 2 * column_octaves(above) + 1
    return {
        "columns": term(std, "histogram", bins * columns, columns),
        "lengths": term(std, "histogram", len(LENGTH_EDGES) + 1),
        "moments": term(std, "second moments", size * (size + 1) // 2),
    }


def handle(rows, terms, seed=0, loss=None, neighbors="replace_one", noise=None):
    """Return a handle on engine rows with terms that no certificate has to prove."""
    row_map = rows.row_map
    bounds = LinearBounds(
        max(1, rows.n_records),
        row_map.n_features,
        loss or Logistic(),
        row_map.row_norm,
        min(row_map.max_norm, 1e100),
        row_map.fit_intercept,
        neighbors=neighbors,
    )
    certificate = SimpleNamespace(bounds=bounds, noise=terms, verify=lambda: None)
    return PrivateRows([rows], certificate, noise or NoiseSource(seed))


class CountedNumbers:
    """Answers noisy counts of plain numbers, as a handle does of a statistic."""

    def __init__(self, values, std, seed=0, ignored=False):
        self.values = np.asarray(values)
        self.noise = NoiseSource(seed)
        self.terms = {"counts": SimpleNamespace(scale=std)}
        self.bounds = SimpleNamespace(ignored_rows=ignored)

    def count(self, name, statistic, point, level=0.0):
        exact = np.count_nonzero(self.values < point) - level * self.values.size
        std = self.terms[name].scale
        return float(self.noise.add_gaussian(np.array([float(exact)]), std)[0])
