"""What smoothed losses of a residual vector share: the loss they come from, and checks."""

from __future__ import annotations

from dpconvex.checks import check_positive
from dpconvex.losses.interface import PointwiseLoss
from dpconvex.losses.structured import VectorLoss
from dpconvex.smoothing.kernels import Kernel

__all__ = ["Smoothed"]


class Smoothed(VectorLoss):
    """What the smoothed losses share: the loss they come from, and checks."""

    loss: VectorLoss
    kernel: Kernel
    bandwidth: float

    @property
    def outputs(self) -> int:
        """That of the loss."""
        return self.loss.outputs

    @property
    def link(self) -> PointwiseLoss | None:
        """That of the loss."""
        return self.loss.link

    @property
    def uses_level(self) -> bool:
        """That of the loss."""
        return self.loss.uses_level

    @property
    def lipschitz(self) -> float:
        """That of the loss: averages of gradients are not longer."""
        return self.loss.lipschitz

    def _check(self, kinds: tuple[type, ...]) -> None:
        owner = "convolve_vector"
        if not isinstance(self.loss, kinds):
            names = ", ".join(kind.__name__ for kind in kinds)
            raise TypeError(
                f"The 'loss' parameter of {type(self).__name__} must be {names}. "
                f"Got {type(self.loss).__name__} instead. Use {owner}."
            )
        if not isinstance(self.kernel, Kernel):
            raise TypeError(
                f"The 'kernel' parameter of {owner} must be a kernel such as GaussianKernel(). "
                f"Got {type(self.kernel).__name__} instead."
            )
        size = self.loss.outputs - (self.loss.link is not None)
        if self.kernel.dim not in (1, size):
            raise ValueError(
                f"The 'kernel' parameter of {owner} must have dim=1 (a product of its law) or dim={size}. "
                f"Got dim={self.kernel.dim} instead."
            )
        remedy = "For no smoothing use the loss itself with noisy gradient descent."
        number = check_positive("bandwidth", owner, self.bandwidth, remedy)
        object.__setattr__(self, "bandwidth", number)
