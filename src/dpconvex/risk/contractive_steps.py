"""The smoothing that a gradient step needs to be contractive, from public facts."""

from dpconvex.smoothing import Kernel


def contractive_bandwidth(
    kernel: Kernel, curvature_factor: float, step_size: float, alpha: float = 0.0
) -> float:
    """Choose the smallest bandwidth at which a mechanism's gradient step takes no two points
    further apart.

    ``peak curvature_factor / (2 / step_size - alpha)``: a smoothed pinball loss, whose slope jumps
    by 1, then has curvature ``2 / step_size - alpha`` in theta.
    """
    room = 2 / step_size - alpha
    if not room > 0:
        raise ValueError(
            "contractive_bandwidth needs step_size * alpha below 2. "
            f"Got step_size={step_size!r} and alpha={alpha!r} instead. Use a smaller step."
        )
    return kernel.peak * curvature_factor / room
