"""Checks of what users set: budgets, bounds, kernels. Everything here is public and sees no data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpconvex.privacy.calibration import check_neighbors
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP, check_number
from dpconvex.smoothing import KERNELS, Kernel

DEFAULT_EPSILON = 1.0
DEFAULT_DELTA = 1e-6


def resolve_guarantee(epsilon: Any, delta: Any, mu: Any, owner: str) -> Guarantee:
    """Return the guarantee that the budget parameters ask for."""
    if mu is not None:
        if epsilon is not None or delta is not None:
            raise ValueError(
                f"The budget of {owner} must be either 'mu' or 'epsilon' with 'delta'. Got both instead. "
                "Leave out one of them."
            )
        allowed = "a finite number above 0"
        return GaussianDP(check_number("mu", owner, mu, allowed, 0, math.inf, low_open=True))
    epsilon = DEFAULT_EPSILON if epsilon is None else epsilon
    delta = DEFAULT_DELTA if delta is None else delta
    allowed = "a finite number above 0"
    epsilon = check_number("epsilon", owner, epsilon, allowed, 0, math.inf, low_open=True)
    delta = check_number("delta", owner, delta, "a number in [0, 1), 0 meaning pure epsilon", 0, 1)
    return ApproxDP(epsilon, delta) if delta > 0 else PureDP(epsilon)


def resolve_kernel(kernel: Any, owner: str) -> Kernel:
    """Return the smoothing kernel that a name or object stands for."""
    if isinstance(kernel, str) and kernel in KERNELS:
        return KERNELS[kernel]
    if isinstance(kernel, Kernel):
        return kernel
    raise ValueError(
        f"The 'kernel' parameter of {owner} must be one of {list(KERNELS)} or a kernel object. Got {kernel!r} instead."
    )


def resolve_samples(neighbors: Any, nominal_samples: Any, n_samples: int, owner: str) -> int:
    """Return the public number of rows: the data's under replace-one, the nominal one otherwise."""
    check_neighbors(neighbors, owner)
    if neighbors == "replace_one":
        if nominal_samples is not None:
            raise ValueError(
                f"The 'nominal_samples' parameter of {owner} must be None with neighbors='replace_one', where the "
                f"number of rows is public. Got {nominal_samples!r} instead."
            )
        return int(n_samples)
    whole = isinstance(nominal_samples, (int, np.integer)) and not isinstance(nominal_samples, bool)
    if not whole or nominal_samples < 1:
        raise ValueError(
            f"The 'nominal_samples' parameter of {owner} must be a positive integer with "
            f"neighbors='add_or_remove_one', where the number of rows is private. Got {nominal_samples!r} instead. "
            "Give a public guess of the number of rows."
        )
    return int(nominal_samples)


def optional_positive(name: str, value: Any, owner: str) -> float | None:
    """Return None or a positive finite float."""
    if value is None:
        return None
    allowed = "None or a finite number above 0"
    return check_number(name, owner, value, allowed, 0, math.inf, low_open=True)


def resolve_bounds(
    name: str, bounds: Any, columns: int | None, owner: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return (low, high) as arrays of ``columns`` entries (scalars if None), or None."""
    if bounds is None:
        return None
    shape = "a pair (low, high) of finite numbers with low < high"
    if columns is not None:
        shape += f", each a scalar or one value for each of the {columns} columns"
    problem = f"The '{name}' parameter of {owner} must be None or {shape}."
    try:
        low, high = (np.asarray(bound, dtype=np.float64) for bound in bounds)
        if any(bound.ndim and bound.shape != (columns,) for bound in (low, high)):
            raise ValueError(problem)
        low, high = (
            np.broadcast_to(bound, () if columns is None else columns) for bound in (low, high)
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{problem} Got another shape or type instead.") from error
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError(f"{problem} Got a value that is not finite instead.")
    if not (low < high).all():
        raise ValueError(f"{problem} Got low >= high instead. Drop columns that are constant.")
    with np.errstate(over="ignore"):
        width = high - low
    if not (np.isfinite(width).all() and (width >= 1e-300).all()):
        raise ValueError(f"{problem} Got a width beyond float64 instead. Change the units.")
    return low, high
