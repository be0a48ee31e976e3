"""An independent judge of certificates: does the noise that a file states suffice for what it
claims?

It reads plain JSON and recomputes sensitivities, curvatures and privacy profiles from the formulas
of the theory, with other code than the library's: no bounds, provers, profiles or losses of
dpconvex are used. It errs on the lenient side by 1e-6, so what it refuses is refuted.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from loss_judge import Contradiction, Facts, count, number, pair, pointwise, require, vector
from scipy import integrate, optimize, special, stats

SLACK = 1 + 1e-6
SEARCH = 6
RELATIONS = ("replace_one", "add_or_remove_one")


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Profile of N(0, 1) against N(mu, 1)."""
    if mu == 0:
        return 0.0
    first = float(special.log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu))
    if first == -math.inf:
        return 0.0
    return max(0.0, math.exp(first) * -math.expm1(min(0.0, second - first)))


class Judge:
    """Everything that the judge derives from one file."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self.tree = tree
        self.facts = tree["bounds"]
        self.kind = self.facts["kind"]
        self.mechanism = tree["mechanism"]
        self.parameters = tree["parameters"]
        self.noise = tree["noise"]
        self.n = count(self.facts["n_samples"])
        self.d = count(self.facts["n_features"])
        self.alpha = number(self.facts["alpha"], closed=True)
        self.neighbors = self.facts["neighbors"]
        require(self.neighbors in RELATIONS, "relation")
        self.records = 2 if self.neighbors == "replace_one" else 1
        kept = self.facts.get("label_private", True)
        relation = self.neighbors if kept else "replace_one_keeping_label"
        require(tree["neighbors"] == relation, "relation of the promise")
        classes = self.parameters.get("n_classes", 2)
        self.problems = self.parameters.get("problems", 1)
        require(count(classes) >= 2 and count(self.problems) >= 1, "classes")
        getattr(self, f"_read_{self.kind}")()
        together = classes == 2 or (self.kind == "LinearBounds" and self.loss.kind == "several")
        require(self.problems == (1 if together else classes), "problems")

    # Facts of one record: L, beta, dimension, sensitivity of a gradient sum, rank.

    def _row(self) -> None:
        self.c = self.facts["fit_intercept"]
        require(type(self.c) is bool, "fit_intercept")
        self.loss = pointwise(self.facts["loss"])
        self.U = number(self.facts["row_norm"])
        self.X = number(self.facts["max_norm"])
        self.size = self.d + self.c
        self.row = math.hypot(self.c, min(self.U, self.X))
        self.rank = 1

    def _factor(self, reach: float = 0.0) -> float:
        """``sup w (c + (||x|| + reach)^2)``, numerically over the lengths of rows."""
        lengths = np.append(np.linspace(0, self.X, 2001), min(self.U, self.X))
        weights = np.minimum(1, self.U / np.maximum(lengths, 1e-300))
        return float(np.max(weights * (self.c + (lengths + reach) ** 2)))

    def _read_LinearBounds(self) -> None:
        self._row()
        self.L = self.loss.slope * self.row
        self.beta = self.loss.curvature * self._factor()
        self.moved = self.records * self.L

    def _read_RobustBounds(self) -> None:
        self._row()
        loss = self.loss
        radius = number(self.facts["radius"], closed=True)
        sided = loss.kind == "residual"
        require(sided or loss.high <= 0, "a loss that never increases")
        width = number(self.facts["width"])
        norm = self.facts["norm"]
        cost = self.facts["cost"]
        require(norm in ("l2", "linf", "l1", "box", "hull"), "norm")
        unit, curved = adversary(norm, self.facts.get("shape"), self.d, width)
        require(cost is None or not sided, "a cost of residuals")
        if cost is None:
            reach = radius * unit
            bend = loss.slope * radius * curved
            self.beta = loss.curvature * self._factor(reach) + bend
            self.beta += loss.slope**2 * self._factor(reach) / width if sided else 0.0
        else:
            require(self.neighbors == "replace_one" and norm == "l2", "with a cost")
            ball = math.sqrt(2 * loss.value(0.0) / self.alpha)
            require(number(cost) * SLACK >= 2 * loss.curvature * ball**2, "a concave inner problem")
            reach = loss.slope * ball / cost
            self.beta = 2 * loss.curvature * self._factor(2 * reach) + loss.slope**2 / cost
            require(self.mechanism == "output", "slopes are known where minimisers lie only")
        self.L = loss.slope * math.hypot(self.c, min(self.U, self.X) + reach)
        self.moved = self.records * self.L
        if self.neighbors == "replace_one" and cost is None:
            # The steepest slopes that two records can have, and how unlike the adversary's parts of
            # them are.
            sides = {abs(loss.low), abs(loss.high)} - {0.0} if sided else {loss.slope}
            least = min(1.0, self.U / self.X)
            corners = [
                (p + q) * self.row + max(p - least * q, q - least * p) * reach
                for p in sides
                for q in sides
            ]
            self.moved = min(self.moved, max(self.L, *corners))
        self.rank = self.size if radius > 0 or cost is not None else 1

    def _read_TiltedBounds(self) -> None:
        self._row()
        require(self.neighbors == "replace_one" and self.mechanism == "output", "tilted")
        loss = self.loss
        tilt = number(self.facts["tilt"], closed=True)
        self.L = loss.slope * self.row
        self.beta = math.nan

        def value(y: float, z: float) -> float:
            return loss.value(y - z if loss.kind == "residual" else y * z)

        start = max(value(1.0, 0.0), value(-1.0, 0.0))
        ball = min(self.L / self.alpha, math.sqrt(2 * start / self.alpha))
        wall = self.facts["coef_bound"]
        if wall is not None and ball > number(wall):
            steep = 100 * self.L / wall
            ball = min(ball, (self.L + steep * wall) / (self.alpha + steep))
        if self.X > self.U:
            spread = start + self.L * ball
        else:
            margin = math.hypot(self.c, self.X) * ball
            ends = [value(y, z) for y in (1.0, -1.0) for z in (margin, -margin)]
            falls = loss.kind == "margin" and loss.high <= 0
            spread = max(ends) - (min(ends) if falls else 0.0)
        weight = 1 / (1 + (self.n - 1) * math.exp(-min(745.0, tilt * spread)))
        self.minimiser = min(2 * self.L / self.alpha * weight, 2 * ball)

    def _read_WorstShareBounds(self) -> None:
        self._row()
        require(self.mechanism == "output", "worst share")
        loss = self.loss
        share = number(self.facts["share"])
        width = number(self.facts["width"])
        require(share <= 1 and share * self.n >= 1 - 1e-9, "share")
        self.L = loss.slope * self.row
        self.beta = math.nan
        ball = self.L / self.alpha
        if self.neighbors == "replace_one":
            ends = (1.0, -1.0) if loss.kind == "residual" else (0.0,)
            found = level(max(map(loss.value, ends)), 1 / share, width)
            ball = min(ball, math.sqrt(2 * found / self.alpha))
        self.minimiser = min(2 * self.L / self.alpha / max(1.0, share * self.n), 2 * ball)

    def _read_TopRankBounds(self) -> None:
        require(self.neighbors == "replace_one" and self.mechanism == "output", "top rank")
        loss = pointwise(self.facts["loss"])
        reach = number(self.facts["row_norm"])
        require(loss.kind == "margin" and loss.high <= 0, "a loss that never increases")
        top = count(self.facts["top"])
        positive = count(self.facts["min_positive"])
        width = number(self.facts["width"])
        require(top >= 1 and positive >= 1, "counts")
        self.size = self.d
        self.L = 2 * reach * loss.slope
        self.beta = math.nan
        start = level(0.0, 2 + self.n / top, width)  # of n negative records and 2 K public ones
        ball = min(self.L / self.alpha, math.sqrt(2 * loss.value(-start) / self.alpha))
        bent = 2 * reach * loss.curvature / top
        flip = self.L / positive + self.L / top + bent * (reach * ball + width * math.log(2))
        kept = self.L / top + bent * 2 * reach * ball
        self.minimiser = min(max(flip, kept), 2 * self.L) / self.alpha

    def _read_PairwiseBounds(self) -> None:
        self.loss = pair(self.facts["loss"])
        self.size = self.d
        require(self.neighbors == "replace_one", "pairs")
        require(type(self.facts["label_private"]) is bool, "label_private")
        widest = 2 * number(self.facts["row_norm"])
        given = self.facts["diameter"]
        self.D = widest if given is None else min(number(given), widest)
        plus, minus = (count(self.facts[name]) for name in ("min_positive", "min_negative"))
        if self.facts["label_private"] and self.loss.monotone:
            self.share = max(1 / plus + 1 / (minus + 1), 1 / minus + 1 / (plus + 1))
        elif self.facts["label_private"]:
            options = 2 / plus, 2 / minus, 1 / plus + 2 / (minus + 1), 1 / minus + 2 / (plus + 1)
            self.share = max(options)
        else:
            self.share = (1 if self.loss.monotone else 2) * max(1 / plus, 1 / minus)
        slope = self.loss.slope
        if self.loss.quadratic and self.mechanism == "output":
            slope = 2 * (1 + self.D * math.sqrt(2 / self.alpha))  # on the ball of minimisers
        self.L = slope * self.D
        self.gamma = self.L * self.share
        self.beta = self.loss.curvature * self.D**2
        self.trace = self.beta * (1 / plus + 1 / minus)
        self.moved = self.n * self.gamma

    def _read_StructuredBounds(self) -> None:
        self.loss = vector(self.facts["loss"])
        self.size = self.d
        norm = number(self.facts["operator_norm"])
        link = self.loss.link
        reach = number(self.facts["link_norm"], closed=True)
        require((link is None) == (reach == 0), "link")
        self.L = norm * self.loss.slope + (0.0 if link is None else reach * link.slope)
        self.beta = norm * norm * self.loss.curvature
        self.beta += 0.0 if link is None else reach * reach * link.curvature
        self.moved = self.records * self.L
        self.rank = min(self.loss.size, self.d)

    # Noise.

    def term(
        self, name: str, moved: float, size: int, times: int | None = 1, law: str | None = None
    ) -> tuple[float, int]:
        """Return (sensitivity with rounding) / scale of a release, and how often it is made."""
        require(name in self.noise, f"{name} is missing")
        term = self.noise[name]
        require(law is None or term["distribution"] == law, "law")
        require(term["dimension"] == size and type(term["dimension"]) is int, "dimension")
        times = count(term["releases"]) if times is None else times
        require(term["releases"] == times and type(term["releases"]) is int, "releases")
        require(number(term["sensitivity"], closed=True) * SLACK >= moved, "stated sensitivity")
        scale = number(term["scale"])
        return (moved + self.grid(name) * math.sqrt(size)) / scale, times

    def grid(self, name: str) -> float:
        scale = number(self.noise[name]["scale"])
        stated = self.noise[name]["grid"]
        drawn = 2.0 ** (math.floor(math.log2(scale)) - 40)
        require(stated is None or number(stated) > 0, "a grid")
        return drawn if stated is None else max(drawn, stated)

    def only(self, *names: str) -> None:
        require(set(self.noise) == set(names), "terms")

    # What the releases give together, for the claim.

    def enough(self, **spent: Any) -> bool:
        """Whether mu (squared), pure epsilon, or a delta at each epsilon covers the claim, over
        all problems.
        """
        claim = self.tree["guarantee"]
        k = self.problems
        if claim["kind"] == "gaussian":
            return "square" in spent and math.sqrt(k * spent["square"]) <= claim["mu"] * SLACK
        epsilon = claim["epsilon"] * SLACK
        delta = claim.get("delta", 0.0) if claim["kind"] == "approx" else 0.0
        if "pure" in spent:
            excess = k * spent["pure"] - epsilon
            # Pure epsilon' beyond epsilon still leaves a delta.
            return excess <= 0 or -math.expm1(-excess) / (1 + math.exp(-excess - epsilon)) <= delta
        if delta == 0:
            return "square" in spent and spent["square"] == 0
        if "square" in spent:
            return gaussian_delta(epsilon, math.sqrt(k * spent["square"])) <= delta * SLACK
        return k * spent["delta"](epsilon / k) <= delta * SLACK

    def suffices(self) -> bool:
        name = self.mechanism.replace("-", "_")
        require(hasattr(self, f"_judge_{name}"), "mechanism")
        return bool(getattr(self, f"_judge_{name}")())

    def composed(self, *terms: tuple[float, int]) -> bool:
        return self.enough(square=sum(times * ratio**2 for ratio, times in terms))

    def _judge_output(self) -> bool:
        self.only("release")
        require(self.alpha > 0 and math.isfinite(self.L), "strong convexity and bounded slope")
        tolerance = number(self.tree["solver_tolerance"], closed=True)
        gap = self.parameters.get("solver_gap")
        if gap is not None:
            tolerance = max(tolerance, math.sqrt(2 * self.alpha * number(gap)))
        base = getattr(self, "minimiser", None)
        base = self.moved / (self.n * self.alpha) if base is None else base
        ratio, _ = self.term("release", base + 2 * tolerance / self.alpha, self.size)
        if self.noise["release"]["distribution"] == "gaussian":
            return self.composed((ratio, 1))
        return self.enough(pure=ratio)

    def _inexact(self, divisor: int) -> float:
        """How far a solver that stops short, and the rounding of b, can move the release."""
        tilt = self.noise["objective"]
        scale = number(tilt["scale"])
        d = self.size
        gaussian = tilt["distribution"] == "gaussian"
        largest = scale * (math.sqrt(d) + 9 if gaussian else 2 * d + 80)
        rounding = self.grid("objective") * math.sqrt(d) / 2 + 2.0**-52 * largest
        tolerance = number(self.tree["solver_tolerance"], closed=True)
        return 2 * (tolerance + rounding / divisor) / self.alpha

    def _judge_objective(self) -> bool:
        require(self.kind != "PairwiseBounds", "pairs have a theorem of their own")
        self.only("objective", "release")
        require(self.alpha > 0 and math.isfinite(self.L + self.beta), "smooth and penalised")
        law = self.noise["objective"]["distribution"]
        self.term("objective", self.moved, self.size)
        release, _ = self.term("release", self._inexact(self.n), self.size, law=law)
        kappa = self.beta / (self.n * self.alpha)
        scale = number(self.noise["objective"]["scale"])
        if law == "gaussian":
            key = (self.L / scale, kappa, self.rank, self.neighbors)
            return self.enough(
                delta=lambda e: tilted_delta(0.99 * e, *key) + gaussian_delta(0.01 * e, release)
            )
        require(self.rank == 1, "pure epsilon needs a GLM")
        return self.enough(pure=self.records * self.L / scale + math.log1p(kappa) + release)

    def _judge_auc_objective(self) -> bool:
        search = "longest_row" in self.parameters
        self.only("objective", "release", *(["lengths"] if search else []))
        require(self.problems == 1 and math.isfinite(self.L + self.beta), "smooth and single")
        require(not search or self.D >= 2, "rows in units of a released length are up to 2 apart")
        law = self.noise["objective"]["distribution"]
        d = self.size
        self.term("objective", self.gamma, d)
        release, _ = self.term("release", self._inexact(1), d, law=law)
        counts = self.term("lengths", 1.0, 1, SEARCH, law)[0] if search else 0.0
        kappa = self.trace / self.alpha
        scale = number(self.noise["objective"]["scale"])
        if law == "l2-laplace":
            tilt = self.gamma / scale + d * math.log1p(kappa / d)
            return self.enough(pure=tilt + release + SEARCH * counts)
        share = 0.1 if search else 0.0

        def delta(e: float) -> float:
            total = trace_delta((0.99 - share) * e, self.gamma / scale, kappa)
            total += gaussian_delta(0.01 * e, release)
            return total + (
                gaussian_delta(share * e, math.sqrt(SEARCH) * counts) if search else 0.0
            )

        return self.enough(delta=delta)

    def _sums(self, *kinds: str) -> bool:
        """Compose the stated queries: what one record adds is bounded by their kind."""
        require(self.kind in kinds and self.noise, "what is summed")
        many = count(self.facts.get("rows_per_person", 1))
        pair = math.sqrt(self.records)
        terms = []
        for name, stated in self.noise.items():
            bound = number(stated["record_bound"])
            moved = {
                "count": 1.0,
                "histogram": pair * math.sqrt(bound),
                "vector": self.records * bound,
                "second moments": pair * bound * bound,
                "limited sum": self.records * bound,
            }
            require(stated["query"] in moved, "kind")
            require(stated["query"] != "count" or bound == 1, "a count")
            size = count(stated["dimension"])
            terms.append(self.term(name, many * moved[stated["query"]], size, None, "gaussian"))
        return self.composed(*terms)

    def _judge_moments(self) -> bool:
        require(self.problems == 1, "one problem")
        return self._sums("PairwiseBounds")

    def _judge_structured_gradient(self) -> bool:
        require(self.problems == 1, "one problem")
        return self._sums("StructuredBounds")

    def _judge_gradient(self) -> bool:
        stated = self.parameters["fit"]
        settings = self.parameters["gradient"]
        levels = stated.get("levels", [])
        named = self.parameters.get("quantile")
        require(not levels or named is None or named == levels, "quantile")
        require(settings.get("levels", []) == levels, "levels")
        parts = [
            rows
            for name in ("geometry_rows", "early_rows")
            if (rows := stated.get(name)) is not None
        ]
        require(not parts or self.neighbors == "replace_one", "parts of the rows")
        return self._sums("LinearBounds")

    def _judge_plain_gradient(self) -> bool:
        return self._sums("LinearBounds")

    def _phases(self, name: str) -> list[tuple[int, float]]:
        settings = self.parameters[name]
        fixed = self.neighbors == "replace_one"
        require(self.kind == "LinearBounds" and (fixed or name == "phased-erm"), "phases")
        phases = count(settings["phases"])
        step = number(settings["step_size"])
        decay = number(settings["decay"])
        require(decay >= 1 and self.n >> phases >= 1, "phases with rows")
        assigned = "random permutation" if fixed else "independent draws"
        require(settings["assignment"] == assigned, "assignment")
        self.only(*(f"phase {i}" for i in range(1, phases + 1)))
        return [(self.n >> i, step / decay**i) for i in range(1, phases + 1)]

    def _judge_phased_erm(self) -> bool:
        worst = 0.0
        require(math.isfinite(self.L), "bounded slope")
        for i, (rows, step) in enumerate(self._phases("phased-erm"), start=1):
            firm = self.alpha + 2 / (step * rows)
            tolerance = number(self.noise[f"phase {i}"]["tolerance"], closed=True)
            moved = self.records * self.L / (rows * firm) + 2 * tolerance / firm
            worst = max(worst, self.term(f"phase {i}", moved, self.size, 1, "gaussian")[0])
        return self.composed((worst, 1))

    def _judge_phased_sgd(self) -> bool:
        worst = 0.0
        for i, (_, step) in enumerate(self._phases("phased-sgd"), start=1):
            require(step * (self.beta + self.alpha) <= 2 * SLACK, "contractive steps")
            moved = 2 * self.L * step
            worst = max(worst, self.term(f"phase {i}", moved, self.size, 1, "gaussian")[0])
        return self.composed((worst, 1))

    def _judge_sgd(self) -> bool:
        self.only("gradients")
        require(self.kind == "LinearBounds" and math.isfinite(self.L), "a linear model")
        settings = self.parameters["sgd"]
        term = self.noise["gradients"]
        steps = count(settings["steps"])
        size = count(settings["batch_size"])
        require(size <= self.n and term["releases"] == steps, "batches")
        require(settings["sampling"] in ("fixed", "poisson"), "scheme")
        require(settings["sampling"] == "poisson" or self.neighbors == "replace_one", "scheme")
        require(term["distribution"] == "gaussian" and term["grid"] == 0, "law")
        require(term["dimension"] == self.size, "dimension")
        require(number(term["sensitivity"]) * SLACK >= self.moved, "stated sensitivity")
        claim = self.tree["guarantee"]
        k = self.problems
        require(claim["kind"] == "approx" and claim["delta"] > 0, "sgd proves epsilon and delta")
        mu = self.moved / number(term["scale"])
        found = sampled_epsilon(self.neighbors, size / self.n, mu, steps, claim["delta"] / k)
        if k * found <= claim["epsilon"] * (1 + 1e-3):
            return True
        poisson = settings["sampling"] == "poisson" and self.neighbors == "replace_one"
        alone = min(1.0, max(0.5, self.L / self.moved)) if poisson else 1.0
        exact = sampled_delta(self.neighbors, size / self.n, mu, steps, claim["epsilon"] / k, alone)
        return exact <= claim["delta"] / k * (1 + 1e-3)


def adversary(norm: str, shape: Any, size: int, width: float) -> tuple[float, float]:
    """The longest vector of a set, and how much its smoothed support function curves."""
    if norm in ("l2", "linf", "l1"):
        require(shape is None, "no shape")
        return (math.sqrt(size) if norm == "linf" else 1.0), 1 / width
    require(isinstance(shape, list) and len(shape) > 0, "shape")
    if norm == "box":
        require(len(shape) == size, "one half-width per column")
        sides = [number(side) for side in shape]
        return math.sqrt(sum(side**2 for side in sides)), max(sides) / width
    lengths = [math.sqrt(sum(number(v, -math.inf) ** 2 for v in vector)) for vector in shape]
    require(all(len(vector) == size for vector in shape) and max(lengths) > 0, "vectors")
    return max(lengths), max(lengths) ** 2 / width


def level(height: float, ratio: float, width: float) -> float:
    """``min_{t >= 0} t + ratio s(height - t)``: the mean of the worst of so many numbers that
    are all alike.
    """
    t = max(0.0, height + width * math.log(ratio - 1)) if ratio > 1 else 0.0
    return t + ratio * width * float(np.logaddexp(0.0, (height - t) / width))


@cache
def tilted_delta(epsilon: float, a: float, kappa: float, rank: int, neighbors: str) -> float:
    """Delta of Gaussian objective perturbation, ``a = L / std``: GLM, or the smaller of Renyi
    and chi.
    """
    reduced = epsilon - rank * math.log1p(kappa)

    def two_sided(e: float, r: float) -> float:
        if e >= r * r / 2:
            return 2 * gaussian_delta(e, r)
        return 1 - 2 * math.exp(e + float(special.log_ndtr(-r)))

    if rank == 1 and neighbors == "replace_one":
        if reduced <= 0:
            return 1.0
        twice = 4 * a * a > 2 * (math.hypot(1, reduced) - 1)
        return min(1.0, (2 if twice else 1) * two_sided(reduced, 2 * a))
    if rank == 1:
        inside = (
            gaussian_delta(reduced, a)
            if reduced >= 0
            else 1 - math.exp(reduced) * (2 * special.ndtr(-a / 2))
        )
        return float(max(two_sided(epsilon, a), inside))

    def chi(e: float, r: float) -> float:
        law = stats.chi(rank)
        offset = e - r * r / 2

        def part(x: float) -> float:
            return float(law.pdf(x)) * -math.expm1(min(0.0, offset - r * x))

        start = max(0.0, offset / r)
        middle = max(start, math.sqrt(rank))
        near = integrate.quad(part, start, middle, limit=200)[0]
        return float(near + integrate.quad(part, middle, middle + 15, limit=200)[0])

    def renyi(direction: str) -> float:
        orders = 1 + np.geomspace(1e-2, 1e5, 60_001)
        slack = 1 - (orders - 1) * kappa
        with np.errstate(all="ignore"):
            outside = -(orders - 1) * math.log1p(kappa) - np.log(slack)
        outside = np.where(slack > 0, outside, np.inf)
        inside = orders * math.log1p(kappa) - np.log1p(orders * kappa)
        cost = {"with": inside, "without": outside, "both": inside + outside}[direction]
        gap = (4 if direction == "both" else 1) * orders * a * a / 2
        return best_delta(orders, gap + rank * cost / (orders - 1), epsilon)

    if neighbors == "replace_one":
        return min(1.0, renyi("both"), 2 * chi(reduced, 2 * a))
    return min(
        1.0, max(min(renyi("with"), chi(reduced, a)), min(renyi("without"), chi(epsilon, a)))
    )


def best_delta(orders: Any, curve: Any, epsilon: float) -> float:
    logs = (orders - 1) * (curve - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    return math.exp(min(0.0, float(np.min(logs))))


@cache
def trace_delta(epsilon: float, ratio: float, kappa: float) -> float:
    """Delta of objective perturbation of pairs: Renyi orders a with
    ``sqrt(a) kappa <= 1, (a - 1) kappa < 1``.
    """
    orders = 1 + np.geomspace(1e-3, 1e5, 100_001)
    orders = orders[(np.sqrt(orders) * kappa <= 1) & ((orders - 1) * kappa < 1)]
    if not orders.size:
        return 1.0
    inside = orders * math.log1p(kappa) - np.log1p(orders * kappa)
    outside = -(orders - 1) * math.log1p(kappa) - np.log1p(-(orders - 1) * kappa)
    return best_delta(orders, orders * ratio**2 / 2 + (inside + outside) / (orders - 1), epsilon)


@cache
def sampled_epsilon(neighbors: str, rate: float, mu: float, steps: int, delta: float) -> float:
    """Epsilon of sampled Gaussian steps: Renyi by quadrature, or by the binomial sum under
    add-or-remove-one.
    """
    orders = np.concatenate([1 + np.geomspace(0.02, 0.95, 60), np.arange(2, 257)])
    orders = np.append(orders, np.geomspace(258, 2000, 60))
    if neighbors == "replace_one":
        curve = np.array([_dominating(rate, mu, float(order)) for order in orders])
    else:
        whole = orders[orders == np.round(orders)]
        orders = whole
        curve = np.array([_binomial(rate, mu, int(order)) for order in whole])
    needed = steps * curve + np.log1p(-1 / orders)
    needed -= (math.log(delta) + np.log(orders)) / (orders - 1)
    renyi = max(0.0, float(np.min(needed)))
    return renyi


def step_profiles(
    neighbors: str, rate: float, mu: float, alone: float = 1.0
) -> list[tuple[Any, Any, Any, Any]]:
    """Profiles of a sampled step's dominating pairs: for each, ``(alpha, h, beta, h')`` as
    functions of ``s > 0``.

    ``h(alpha)`` is the divergence of the first law from the second, h' that of the second from the
    first.
    """

    def gauss(s: Any, far: float) -> Any:
        return special.ndtr(far / 2 - s / far) - np.exp(s) * special.ndtr(-far / 2 - s / far)

    def present(s: Any) -> Any:
        return 1 + rate * np.expm1(s)

    def split(s: Any) -> Any:
        weight = present(s) * np.exp(-s)
        return rate * ((1 - weight) * gauss(s, alone * mu) + weight * gauss(s, mu))

    if neighbors == "replace_one":
        return [(present, split, present, split)]

    def absent(s: Any) -> Any:
        return np.exp(s) / (rate + (1 - rate) * np.exp(s))

    def reverse(s: Any) -> Any:
        return (1 - absent(s) * (1 - rate)) * gauss(s, mu)

    forward = (present, lambda s: rate * gauss(s, mu))
    return [(*forward, absent, reverse), (absent, reverse, *forward)]


def sampled_delta(
    neighbors: str, rate: float, mu: float, steps: int, epsilon: float, alone: float = 1.0
) -> float:
    """Delta of sampled Gaussian steps by a contour integral, without a grid of losses: exact up to
    quadrature.

    ``delta(e) = (1/2 pi i) int M(z)^T e^{-z e} / (z (z + 1)) dz`` over a vertical line, with the
    moments of one loss from its profiles, ``M(z) = 1 + z (z + 1) [ int_1^oo a^{z-1} h(a) da +
    int_1^oo a^{-z-2} h'(a) da ]``.
    """
    if steps == 1 and neighbors == "replace_one":
        return float(
            step_profiles(neighbors, rate, mu, alone)[0][1](np.log1p(np.expm1(epsilon) / rate))
        )
    nodes, weights = np.polynomial.legendre.leggauss(8)
    edges = np.linspace(0, mu * (mu / 2 + 11), 300) + 1e-12
    half = np.diff(edges)[:, None] / 2
    s = (edges[:-1, None] + half * (1 + nodes)).ravel()
    w = (half * weights).ravel()

    def one(alpha: Any, h: Any, beta: Any, back: Any) -> float:
        logs = np.log(alpha(s))
        other = np.log(beta(s))
        step = 1e-5
        rise = w * (alpha(s + step) - alpha(s - step)) / (2 * step) * h(s)
        fall = w * (beta(s + step) - beta(s - step)) / (2 * step) * back(s)

        def moment(z: Any) -> Any:
            z = np.asarray(z)[..., None]
            inner = (np.exp((z - 1) * logs) * rise).sum(-1) + (np.exp((-z - 2) * other) * fall).sum(
                -1
            )
            return 1 + z[..., 0] * (z[..., 0] + 1) * inner

        def chernoff(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            return float(steps * np.log(moment(tilt)) - tilt * epsilon)

        tilt = math.exp(optimize.minimize_scalar(chernoff, bounds=(-3, 8), method="bounded").x)
        # Twelve standard deviations of the tilted sum, or a far end where few steps decay slowly.
        bend = (
            chernoff(math.log(tilt * 1.01))
            + chernoff(math.log(tilt / 1.01))
            - 2 * chernoff(math.log(tilt))
        ) / 1e-4
        end = max(12 * tilt / math.sqrt(max(bend, 1e-9)), 40 * tilt)
        points = 1200 if steps > 100 else 3000
        # A loss of exactly 0 adds nothing to delta, but its part of the moments does not decay.
        fell = float((h(np.float64(2e-5)) - h(np.float64(1e-5))) / (alpha(2e-5) - alpha(1e-5)))
        atom = 1 - float(h(np.float64(1e-9))) + 2 * fell if h is back else 0.0
        total = 0.0
        for part in np.array_split(
            tilt + 1j * (np.arange(points) + 0.5) * end / points, points // 100
        ):
            terms = np.exp(steps * np.log(moment(part))) - max(atom, 0.0) ** steps
            total += float((terms * np.exp(-part * epsilon) / (part * (part + 1))).real.sum())
        return total * end / points / math.pi

    return max(one(*pair) for pair in step_profiles(neighbors, rate, mu, alone))


def _dominating(rate: float, mu: float, order: float) -> float:
    """Renyi divergence of one step under replace-one: the smaller of two bounds."""
    plain = order * (order - 1) * mu * mu / 2
    if rate >= 1:
        return plain / (order - 1)
    moment = plain
    if order * mu <= 24:
        x = np.linspace(mu / 2, max(order * mu, mu / 2) + 20, 5001)
        ratio = np.log1p(rate * np.expm1(mu * x - mu * mu / 2))
        up = order * ratio + np.log(-np.expm1(-order * ratio))
        logs = up + np.log(-np.expm1((1 - order) * ratio)) - x * x / 2
        logs = np.where(np.isnan(logs), -np.inf, logs)
        peak = float(logs.max())
        area = float(integrate.simpson(np.exp(logs - peak), x=x)) / math.sqrt(2 * math.pi)
        moment = float(np.logaddexp(0.0, peak + math.log(area)))
    if order == round(order) and order <= 256:
        j = np.arange(2, int(order) + 1)
        choose = (
            special.gammaln(order + 1) - special.gammaln(j + 1) - special.gammaln(order - j + 1)
        )
        total = np.logaddexp.reduce(choose + j * math.log(rate) + _triples(mu)[: j.size])
        moment = min(moment, float(np.logaddexp(0.0, total)))
    return min(plain, moment) / (order - 1)


@cache
def _triples(mu: float) -> Any:
    j = np.arange(2, 257)
    bound = math.log(2) + j * (j - 1) * mu * mu / 2
    x = np.linspace(-20, 20, 8001)
    size = np.log(np.abs(np.expm1(mu * x - mu * mu / 2)))
    for place in range(j.size):
        if j[place] * mu > 4:
            break
        moment = np.logaddexp.reduce(j[place] * size - x * x / 2)
        moment += math.log((x[1] - x[0]) / math.sqrt(2 * math.pi)) + j[place] * math.log(2)
        bound[place] = min(bound[place], moment)
    bound[0] = math.log(2) + mu * mu / 2 + math.log(math.expm1(mu * mu / 2))
    return bound


def _binomial(rate: float, mu: float, order: int) -> float:
    """Renyi divergence of one Poisson-sampled step: a binomial sum at integer orders."""
    if rate >= 1:
        return order * mu * mu / 2
    k = np.arange(order + 1)
    logs = special.gammaln(order + 1) - special.gammaln(k + 1) - special.gammaln(order - k + 1)
    logs = logs + k * math.log(rate) + (order - k) * math.log1p(-rate) + k * (k - 1) * mu * mu / 2
    return float(np.logaddexp.reduce(logs)) / (order - 1)


def suffices(tree: dict[str, Any]) -> bool:
    """Whether the stated noise suffices; Contradiction where facts exclude each other."""
    try:
        with np.errstate(all="ignore"):
            return Judge(tree).suffices()
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise Contradiction(f"{type(error).__name__}: {error}") from error


__all__ = ["Contradiction", "Facts", "Judge", "suffices"]
