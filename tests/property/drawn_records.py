"""Few records for brute-force neighbours, the last two of which are exchanged or left out."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st


@st.composite
def drawn_records(draw, losses, most=4):
    """Return a loss and rows and targets of one record more than a data set has.

    Values are corners, where sensitivities are attained, and values beyond the bounds, which are clipped.
    """
    loss = draw(st.sampled_from(losses))
    n, d = draw(st.integers(1, most)), draw(st.integers(1, 2))
    value = st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])
    target = st.sampled_from([-1.0, 1.0]) if loss.kind == "margin" else value
    X = np.array([[draw(value) for _ in range(d)] for _ in range(n + 1)])
    return loss, X, np.array([draw(target) for _ in range(n + 1)])
