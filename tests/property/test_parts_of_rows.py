"""Parts of the rows, on which geometry and early steps are found: every row at most once, chosen
by public numbers.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from dpconvex.core import memory_rows
from dpconvex.core.certificate import Certificate, CertificateError
from dpconvex.core.summation import spread_indices
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.fit.fit_plan import plan_fit
from dpconvex.losses import Pinball
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.privacy import GaussianDP, LinearBounds


@pytest.mark.parametrize("n", [41_000, 50_000, 200_000, 1_000_000])
def test_no_row_is_looked_at_twice(n):
    """A record that is summed twice moves counts, histograms and moments twice as far as is paid
    for.
    """
    bounds = LinearBounds(n, 3, Pinball(0.5), 1.0, 1.0)
    config = plan_fit(bounds, 1.0, NoisyGradientDescent().settings()).config
    assert config.geometry_rows is not None
    rows = MemoryRows(np.zeros((n, 1)), np.zeros(n), RowMap(1, 1.0))
    for size in {config.geometry_rows, config.early_rows} - {None}:
        for places in (rows.part(size).indices, spread_indices(n, size)):
            assert np.unique(places).size == places.size == size
            assert 0 <= places.min() <= places.max() < n


def test_parts_of_every_size_have_different_rows():
    for n in (*range(1, 60), 4096, 4159, 5000):
        rows = MemoryRows(np.zeros((n, 1)), np.zeros(n), RowMap(1, 1.0))
        for size in range(1, n + 1) if n < 60 else range(1, n + 1, 37):
            for places in (rows.part(size).indices if size < n else None, spread_indices(n, size)):
                assert places is None or np.unique(places).size == size
                assert places is None or 0 <= places.min() <= places.max() < n


def test_a_part_of_a_private_number_of_rows_does_not_verify():
    """One row more shifts the rows that are looked at: half of ten others are replaced."""
    bounds = LinearBounds(1000, 2, Pinball(0.5), 1.0, 1.0, neighbors="add_or_remove_one")
    certificate = NoisyGradientDescent().certify(bounds, GaussianDP(1.0))
    fit = {**certificate.parameters["fit"], "geometry_rows": 10}
    forged = replace(certificate, parameters={**certificate.parameters, "fit": fit})
    forged = replace(forged, digest=forged._hash())
    # A row that comes first moves all others by one place.
    shifted = {int(place) - 1 for place in spread_indices(1001, 10)}
    assert len({*spread_indices(1000, 10).tolist()} & shifted) < 6
    with pytest.raises(CertificateError):
        Certificate.from_json(json.dumps(forged._certificate_to_dict())).verify()


def test_an_invalid_row_is_the_same_record_whatever_it_holds(monkeypatch):
    monkeypatch.setattr(memory_rows, "CACHE_BYTES", 0)
    monkeypatch.setattr("dpconvex.core.summation.BLOCK_BYTES", 1)
    row_map = RowMap.from_bounds(2, (-1.0, 1.0))
    X = np.zeros((200, 2))
    y = np.zeros(200)
    X[:2] = [[np.nan, 1.0], [np.nan, -1.0]]
    y[:2] = np.nan
    margins = MemoryRows(X, y, row_map, threads=1).predicted(np.array([0.1, 1.0, 2.0]))
    assert np.ptp(margins.weights[:2]) == 0
