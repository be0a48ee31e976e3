"""What the losses and kernels that a certificate names are, computed from their descriptions by
other means.

Nothing of dpconvex is used: slopes and curvatures are written down or found numerically from the
definitions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy import integrate


class Contradiction(Exception):
    """The stated facts cannot all be true, so nothing may be concluded from them."""


def require(true: bool, what: str) -> None:
    if not true:
        raise Contradiction(what)


def number(value: object, low: float = 0.0, closed: bool = False) -> float:
    """Return a finite number above ``low`` (or at least that)."""
    require(type(value) in (int, float), f"{value!r} is not a number")
    found = float(value)  # type: ignore[arg-type]
    require(math.isfinite(found) and (found > low or (closed and found == low)), f"{value!r}")
    return found


def count(value: object) -> int:
    require(type(value) is int and value >= 1, f"{value!r} is not a count")  # type: ignore[operator]
    return value  # type: ignore[return-value]


@dataclass(frozen=True)
class Facts:
    """A loss: slopes in [low, high], curvature at most so much, as a function of a residual or
    of a margin.
    """

    kind: str
    low: float
    high: float
    curvature: float = math.inf
    knots: tuple[float, ...] = ()
    slopes: tuple[float, ...] = ()
    height: float = 0.0
    function: object = None
    size: int = 1  # of the residual vector
    link: Facts | None = None
    monotone: bool = False
    quadratic: bool = False  # a pair loss of unbounded slope, 1 at 0

    @property
    def slope(self) -> float:
        return max(abs(self.low), abs(self.high))

    def value(self, u: float) -> float:
        if self.function is not None:
            return self.function(u)  # type: ignore[operator]
        if u < self.knots[0]:
            return self.height + self.slopes[0] * (u - self.knots[0])
        total = self.height
        ends = (*self.knots[1:], math.inf)
        for knot, end, slope in zip(self.knots, ends, self.slopes[1:], strict=True):
            total += slope * (min(u, end) - knot)
            if u <= end:
                break
        return total

    @property
    def least(self) -> float:
        """Smallest value of a convex piecewise-linear function."""
        falls = self.slopes[0] > 0 or self.slopes[-1] < 0
        return -math.inf if falls else min(map(self.value, self.knots))


def kinked(knots: tuple[float, ...], slopes: tuple[float, ...], height: float, kind: str) -> Facts:
    require(len(slopes) == len(knots) + 1 and len(knots) >= 1, "knots and slopes")
    for values in (knots, slopes):
        require(all(math.isfinite(v) for v in values), "finite")
        require(all(a < b for a, b in pairwise(values)), "increasing")
    return Facts(
        kind, slopes[0], slopes[-1], knots=tuple(knots), slopes=tuple(slopes), height=height
    )


# Density of each one-dimensional kernel; the largest value is at 0.
KERNELS = {
    "GaussianKernel": lambda t: math.exp(-min(t * t, 1400.0) / 2) / math.sqrt(2 * math.pi),
    "LogisticKernel": lambda t: 1 / (2 + 2 * math.cosh(min(abs(t), 700.0))),
    "UniformKernel": lambda t: 0.5 if abs(t) <= 1 else 0.0,
    "EpanechnikovKernel": lambda t: max(0.0, 0.75 * (1 - min(t * t, 1.0))),
    "LaplacianKernel": lambda t: math.exp(-abs(t)) / 2,
    "ExponentialKernel": lambda t: math.exp(-abs(t)) / 2,
}


def convolved(inner: Facts, density: object, bandwidth: float) -> Facts:
    """``E c(u + h v)``: curvature is the sum of the jumps' densities, at its largest."""
    require(bool(inner.knots), "only kinked losses are convolved")
    jumps = np.diff(inner.slopes)
    # Cells between the knots, as everything falls outside; the bound of a cell is that of its ends.
    places = set(inner.knots)
    for left, right in pairwise(inner.knots):
        places |= set(np.linspace(left, right, 41))
    curvature = max(
        sum(
            jump * density((u - knot) / bandwidth)  # type: ignore[operator]
            for jump, knot in zip(jumps, inner.knots, strict=True)
        )
        / bandwidth
        for u in places
    )

    def value(u: float) -> float:
        def weighted(v: float) -> float:
            return inner.value(u + bandwidth * v) * density(v)  # type: ignore[operator]

        kinks = [(k - u) / bandwidth for k in inner.knots]
        points = [p for p in (-1.0, 1.0, *kinks) if -60 < p < 60]
        return float(integrate.quad(weighted, -60, 60, points=points, limit=400)[0])

    return replace(inner, curvature=curvature, function=value, knots=(), slopes=())


def stable_logistic(u: float) -> float:
    return max(0.0, -u) + math.log1p(math.exp(-abs(u)))


def huber(width: float) -> object:
    return lambda u: u * u / 2 if abs(u) <= width else width * abs(u) - width**2 / 2


def kernel_facts(data: object) -> tuple[object, int, str]:
    require(isinstance(data, dict), "a kernel is an object")
    name = data["class"]  # type: ignore[index]
    require(name in KERNELS, f"{name} is no kernel")
    size = count(data.get("dim", 1))  # type: ignore[attr-defined]
    return KERNELS[name], size, name


def pointwise(data: object) -> Facts:
    """Return the facts of a loss of one margin from its description."""
    require(isinstance(data, dict) and "class" in data, "a loss is an object")  # type: ignore[operator]
    given = dict(data)  # type: ignore[call-overload]
    name = given.pop("class")
    if name == "Pinball":
        level = number(given["quantile"])
        require(level < 1, "quantile")
        return kinked((0.0,), (level - 1, level), 0.0, "residual")
    if name in ("Absolute", "ReLU", "Hinge"):
        knot, low, high = {
            "Absolute": (0.0, -1.0, 1.0),
            "ReLU": (0.0, 0.0, 1.0),
            "Hinge": (1.0, -1.0, 0.0),
        }[name]
        return kinked((knot,), (low, high), 0.0, "margin" if name == "Hinge" else "residual")
    if name == "SoftThreshold":
        width = number(given["width"])
        return kinked((-width, width), (-1.0, 0.0, 1.0), 0.0, "residual")
    if name == "KinkedLoss":
        knots, slopes = (tuple(map(float, given[part])) for part in ("knots", "slopes"))
        kind = given.get("kind", "residual")
        require(kind in ("residual", "margin"), "kind")
        return kinked(knots, slopes, float(given.get("height", 0.0)), kind)
    if name == "Logistic":
        return Facts("margin", -1.0, 0.0, 0.25, function=stable_logistic)
    if name == "Huber":
        width = number(given["width"])
        return Facts("residual", -width, width, 1.0, function=huber(width))
    if name == "Squared":
        return Facts("residual", -math.inf, math.inf, 1.0)
    if name == "Scaled":
        inner = pointwise(given["loss"])
        factor = number(given["factor"])
        scaled = (
            (lambda u: factor * inner.value(u)) if inner.function or inner.knots else None  # type: ignore[truthy-function]
        )
        return replace(
            inner,
            low=factor * inner.low,
            high=factor * inner.high,
            curvature=factor * inner.curvature,
            function=None if inner.knots else scaled,
            slopes=tuple(factor * slope for slope in inner.slopes),
            height=factor * inner.height,
        )
    if name == "ConvolvedLoss":
        density, size, _ = kernel_facts(given["kernel"])
        require(size == 1, "one dimension")
        return convolved(pointwise(given["loss"]), density, number(given["bandwidth"]))
    if name == "MoreauLoss":
        inner = pointwise(given["loss"])
        require(bool(inner.knots), "only kinked losses have envelopes here")
        return replace(inner, curvature=number(given["modulus"]), knots=(), slopes=())
    if name == "DeclaredLoss":
        kind = given.get("kind", "residual")
        require(kind in ("residual", "margin"), "kind")
        slope, bend = (
            math.inf if given[part] == "inf" else number(given[part], closed=True)
            for part in ("lipschitz", "smoothness")
        )
        return Facts(kind, -slope, slope, bend)
    if name == "Tweedie":
        return rate(
            *(number(given[part], -100.0) for part in ("power", "low", "high")),
            number(given["most"]),
        )
    if name in ("Softmax", "CrammerSinger", "ProportionalOdds", "DiscreteHazard"):
        count(given["margins"])
        # Slopes of several margins: only sums that clip what a record adds are proved for them.
        return Facts("several", -math.inf, math.inf)
    raise Contradiction(f"{name} is no loss of one margin")


def rate(power: float, low: float, high: float, most: float) -> Facts:
    """Half the Tweedie deviance of a mean exp(z) within [low, high], straight beyond: extremes
    are at the ends.
    """
    require(1 <= power <= 2 and low < high < 100, "a power and a range")
    ends = [(y, z) for y in (0.0, most) for z in (low, high)]
    slopes = [math.exp((2 - power) * z) - y * math.exp((1 - power) * z) for y, z in ends]
    bends = [
        (2 - power) * math.exp((2 - power) * z) + y * (power - 1) * math.exp((1 - power) * z)
        for y, z in ends
    ]
    return Facts("rate", min(slopes), max(slopes), max(bends))


def pair(data: object) -> Facts:
    require(isinstance(data, dict), "a loss is an object")
    name = data["class"]  # type: ignore[index]
    if name == "PairLogistic":
        base = data.get("base", "2")  # type: ignore[attr-defined]
        require(base in ("2", "e"), "base")
        scale = 1 / math.log(2) if base == "2" else 1.0
        return Facts("pair", -scale, 0.0, scale / 4, monotone=True)
    if name == "PairHinge":
        width = number(data.get("width", 0.5), closed=True)  # type: ignore[attr-defined]
        return Facts("pair", -1.0, 0.0, 1 / width if width else math.inf, monotone=True)
    if name in ("PairSquared", "PairSquaredHinge"):
        monotone = name == "PairSquaredHinge"
        return Facts("pair", -math.inf, math.inf, 2.0, monotone=monotone, quadratic=True)
    raise Contradiction(f"{name} is no loss of pairs")


def coordinate_peak(kernel: str, dim: int, density: object) -> float:
    """The largest density of one coordinate; of the radial exponential law by its characteristic
    function.

    ``(1/pi) int_0^oo (1 + w^2)^{-(m + 1)/2} dw``: the density at 0 is the mean of what it is in
    every direction.
    """
    if kernel != "ExponentialKernel":
        return float(density(0.0))  # type: ignore[operator]
    found, _ = integrate.quad(lambda w: (1 + w * w) ** (-(dim + 1) / 2), 0, math.inf)
    return float(found) / math.pi


def corners(data: dict[str, object]) -> np.ndarray:
    """Slopes of the pieces of a maximum, or of a bowl: 0 and all signs."""
    if data["class"] == "Bowl":
        size = count(data["size"])
        signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * size)).reshape(size, -1).T
        return np.vstack([np.zeros(size), signs])
    return np.array(data["slopes"], dtype=float)


def widest(slopes: np.ndarray) -> float:
    """How far the slope can turn: the longest difference of two."""
    return max(float(math.dist(a, b)) for a in slopes for b in slopes)


def vector(data: object) -> Facts:
    """Return the facts of a loss of a residual vector: slope in l2, curvature, size and link."""
    require(isinstance(data, dict), "a loss is an object")
    given = dict(data)  # type: ignore[call-overload]
    name = given.pop("class")
    if name in ("L1Norm", "L1WithLink", "Bowl"):
        size = count(given["size"])
        require(name != "Bowl" or size <= 5, "size of a bowl")
        root = math.sqrt(size)
        link = pointwise(given["pointwise"]) if name == "L1WithLink" else None
        return Facts("vector", -root, root, size=size + (link is not None), link=link)
    if name == "PiecewiseLinear":
        slopes = np.array(given["slopes"], dtype=float)
        require(slopes.ndim == 2 and np.isfinite(slopes).all(), "slopes")
        longest = float(np.linalg.norm(slopes, axis=1).max())
        return Facts("vector", -longest, longest, size=slopes.shape[1])
    if name == "SmoothedL1":
        inner = vector(given["loss"])
        (density, dim, kernel) = kernel_facts(given["kernel"])
        require(given["loss"]["class"] in ("L1Norm", "L1WithLink"), "l1 only")
        plain = inner.size - (inner.link is not None)
        require(dim in (1, plain), "dimension of the kernel")
        peak = coordinate_peak(kernel, dim, density)
        return replace(inner, curvature=2 * peak / number(given["bandwidth"]))
    if name in ("SmoothedFacets", "SmoothedMax"):
        # Along a unit vector e the slope of a convex function rises by at most the widest
        # difference of slopes, and its mean under a shift by at most that times the largest density
        # of the coordinate along e.
        inner = vector(given["loss"])
        (density, dim, kernel) = kernel_facts(given["kernel"])
        require(given["loss"]["class"] in ("PiecewiseLinear", "Bowl"), "pieces only")
        require(dim in (1, inner.size), "dimension of the kernel")
        radial = kernel == "GaussianKernel" or (kernel == "ExponentialKernel" and dim == inner.size)
        require(radial and not (name == "SmoothedMax" and kernel != "GaussianKernel"), "a law")
        slopes = corners(given["loss"])
        rank = int(np.linalg.matrix_rank(slopes[1:] - slopes[0], tol=1e-9))
        require(name == "SmoothedMax" or rank <= 3, "at most three directions")
        bend = widest(slopes) * coordinate_peak(kernel, dim, density)
        return replace(inner, curvature=bend / number(given["bandwidth"]))
    if name in ("PiecesMoreau", "BowlMoreau"):
        wanted = "Bowl" if name == "BowlMoreau" else "PiecewiseLinear"
        require(given["loss"]["class"] == wanted, "its loss")
        return replace(vector(given["loss"]), curvature=number(given["modulus"]))
    if name == "VectorMoreau":
        require(given["loss"]["class"] in ("L1Norm", "L1WithLink"), "l1 only")
        inner = vector(given["loss"])
        bend = number(given["curvature"])
        width = given["width"]
        require(given["potential"] in ("energy", "huber"), "potential")
        if given["potential"] != "energy":
            require(bend >= math.sqrt(inner.size) * (1 - 1e-9), "a conjugate at every slope")
        return replace(inner, curvature=bend / number(width))
    raise Contradiction(f"{name} is no loss of vectors that this judge knows")
