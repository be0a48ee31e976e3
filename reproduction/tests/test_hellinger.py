"""Envelopes with Hellinger's function (Table 2): infima, from above by the stated amounts."""

import numpy as np
import pytest
from scipy.optimize import minimize

from dpconvex.losses import Bowl, L1Norm, PiecewiseLinear
from dpconvex_reproduction.convolution_objective_perturbation.energies import HellingerEnvelope

pytestmark = pytest.mark.slow

LOSSES = [
    L1Norm(3),
    PiecewiseLinear([[1.0, 0.2], [-0.7, 0.4], [0.1, -1.0]], [0.0, 0.2, -0.1]),
    Bowl(4),
]


@pytest.mark.parametrize("loss", LOSSES, ids=["norm", "pieces", "bowl"])
def test_hellinger_envelopes_are_infima_from_above(loss):
    """Against a solver of the infimum that knows nothing of duals; slopes and curvatures against
    differences.
    """
    bend = 2.5
    width = 0.4
    m = loss.outputs
    envelope = HellingerEnvelope(loss, bend, width)
    rng = np.random.default_rng(0)
    u = rng.normal(size=(12, m))
    level = np.abs(rng.normal(size=12))
    given = (level,) if isinstance(loss, Bowl) else ()
    values, slopes, bends = (
        call(u, *given) for call in (envelope.value, envelope.gradient, envelope.hessian)
    )
    assert np.all(values >= loss.value(u, *given))
    assert np.all(values - loss.value(u, *given) <= envelope.approximation_gap)
    for i, (row, value) in enumerate(zip(u, values, strict=True)):
        own = tuple(each[i : i + 1] for each in given)

        def raised(v, row=row, own=own):
            far = np.sqrt(width**2 + ((v - row) ** 2).sum())
            return float(loss.value(v[None], *own)[0]) + bend * far

        starts = [row, *(row + 0.3 * rng.normal(size=m) for _ in range(4))]
        options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 20_000, "maxfev": 40_000}
        best = min(minimize(raised, s, method="Nelder-Mead", options=options).fun for s in starts)
        assert value == pytest.approx(best, abs=1e-5)
        assert value <= best + 1e-9
    step = 1e-5
    for j in range(m):
        moved = step * np.eye(m)[j]
        ahead, behind = (envelope.value(u + sign * moved, *given) for sign in (1, -1))
        np.testing.assert_allclose(slopes[:, j], (ahead - behind) / (2 * step), atol=1e-6)
        ahead, behind = (envelope.gradient(u + sign * moved, *given) for sign in (1, -1))
        np.testing.assert_allclose(bends[:, :, j], (ahead - behind) / (2 * step), atol=1e-4)
    assert np.linalg.eigvalsh(bends).max() <= envelope.smoothness * (1 + 1e-9)


def test_a_conjugate_must_exist_at_every_slope():
    with pytest.raises(ValueError, match="'curvature'"):
        HellingerEnvelope(L1Norm(4), 1.0, 1.0)
    with pytest.raises(TypeError, match="residual vector"):
        HellingerEnvelope(None, 1.0, 1.0)
