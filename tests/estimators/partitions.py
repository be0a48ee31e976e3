"""What tests of fits on Dask share: uneven partitions, and fits that should be the same."""

from __future__ import annotations

import itertools

import numpy as np


def in_partitions(array, sizes):
    """Return a Dask array with partitions of these sizes, empty ones among them."""
    import dask
    import dask.array as da

    edges = np.concatenate([[0], np.cumsum(sizes)])
    return da.concatenate(
        [
            da.from_delayed(dask.delayed(np.array)(part), part.shape, part.dtype, meta=part[:0])
            for part in (array[a:b] for a, b in itertools.pairwise(edges))
        ]
    )


def assert_same_fit(fitted, expected, relative=1e-8):
    """Assert that certificates are equal, and coefficients up to the order in which sums are
    formed.
    """
    scale = np.abs(expected.coef_).max()
    np.testing.assert_allclose(fitted.coef_, expected.coef_, rtol=0, atol=relative * scale)
    np.testing.assert_allclose(
        fitted.intercept_, expected.intercept_, rtol=relative, atol=relative * scale
    )
    assert fitted.certificate_.to_json() == expected.certificate_.to_json()
