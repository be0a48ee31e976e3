r"""Noisy stochastic gradient descent: noise enters in every step, on the sum over a random batch.

    theta <- theta - step_size * ((sum over the batch of w grad loss + std * normal) / batch_size +
    alpha theta)

Sampling makes each step reveal little, so there can be very many of them; their average forgets
most of the noise. Accounting and runner both read from the certificate's parameters how batches are
drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from dpconvex.core import certificate as certificates
from dpconvex.core.block_products import block_margins
from dpconvex.core.calibration import gaussian_mu
from dpconvex.core.certificate import Certificate, CertificateCalibration, CertificateProof
from dpconvex.core.checks import check_count, check_number, parameter_error
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import (
    ApproxDP,
    Guarantee,
    compose_guarantee,
    guarantee_per_problem,
)
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.mechanism_rules import Carries, Parameters
from dpconvex.core.memory_rows import MemoryRows
from dpconvex.core.noise_source import FLOATING_POINT, NoiseSource
from dpconvex.core.rows import RowIndices
from dpconvex.core.summation import block_rows
from dpconvex.core.threads import single_threaded_blas
from dpconvex.engine.sparse_rows import SparseRows
from dpconvex.losses import Pinball
from dpconvex.mechanisms import mechanism as mechanisms
from dpconvex.mechanisms.mechanism import (
    PrivateMechanism,
    average_mechanism_iterates,
    check_mechanism_slope,
    longest_descent_margin,
)
from dpconvex.mechanisms.private_fit import EVERY_STEP
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.objectives import EmpiricalObjective
from dpconvex.objectives.structured_objective import StructuredNormTerm, StructuredObjective
from dpconvex.privacy.bounds.structured_bounds import StructuredBounds
from dpconvex.privacy.subsampling import check_sampling, subsampled_epsilon, subsampled_multiplier
from dpconvex.risk.contractive_steps import contractive_bandwidth
from dpconvex.types import Array

if TYPE_CHECKING:  # it loads numba
    from dpconvex.smoothing.compiled_slopes import CompiledSlope

BatchBounds = LinearBounds | StructuredBounds
BatchObjective = EmpiricalObjective | StructuredObjective
_OWNER = "NoisySGD"
_NOISE = ("accounted", "published")
_MOST_WORK = 2e9  # numbers touched by default: about half a minute on one core
_CHUNK = 1 << 17  # sampled records at a time: enough to make calls cheap, few enough for the cache
# By default on records that are matrices: each step reads a fiftieth of them, forty passes in all.
_MATRIX_STEPS = 2000
_MATRIX_BATCHES = 50


@dataclass(frozen=True)
class SGDSettings:
    """What a run of DP-SGD uses; its certificate states the same as plain data.

    ``published_epsilon`` is the claim that published noise was printed for.
    """

    steps: int
    batch_size: int
    sampling: str
    average: float
    noise: str
    step_size: float
    published_epsilon: float | None = None

    @classmethod
    def read(cls, stated: Parameters) -> SGDSettings:
        """Return the settings that a certificate states."""
        names = ("steps", "batch_size", "sampling", "average", "noise", "step_size")
        published = stated.get("published_epsilon")
        return cls(**{name: stated[name] for name in names}, published_epsilon=published)

    def stated(self) -> Facts:
        """Return the settings as a certificate states them."""
        facts = dict(vars(self))
        rate = facts.pop("step_size")
        if self.published_epsilon is None:
            del facts["published_epsilon"]
        return {**facts, "step_size": rate}


def published_std(lipschitz: float, epsilon: float, delta: float) -> float:
    """Return ``L sqrt(8 ln(1/delta)) / epsilon``, the noise printed for n^2 steps of one record
    each.
    """
    return lipschitz * math.sqrt(8 * math.log(1 / delta)) / epsilon


def _check_sgd_guarantee(guarantee: Guarantee) -> ApproxDP:
    if isinstance(guarantee, ApproxDP) and guarantee.delta_bound > 0 < guarantee.epsilon_bound:
        return guarantee
    raise ValueError(
        f"NoisySGD offers ApproxDP with epsilon and delta above 0. Got {guarantee!r} instead. For "
        "Gaussian DP use 'gradient', 'output' or 'phased-sgd'; for pure epsilon use 'objective' "
        "or 'output'."
    )


def _checked_sgd_scheme(bounds: BatchBounds, settings: SGDSettings) -> tuple[str, str, float, int]:
    """Return sampling scheme, relation, rate and number of steps: what the accounting needs
    besides the noise.
    """
    mechanisms.check_mechanism_records(bounds, _OWNER)
    steps = check_count("steps", _OWNER, settings.steps)
    size = check_count("batch_size", _OWNER, settings.batch_size, most=bounds.n_samples)
    sampling = check_sampling(settings.sampling, bounds.neighbors, _OWNER)
    return sampling, bounds.neighbors, size / bounds.n_samples, steps


def _record_share(bounds: BatchBounds) -> float:
    """Return how long a record's gradient can be, over how far replacing the record moves a sum."""
    return bounds.lipschitz / bounds.gradient_sum_sensitivity()


def _sgd_noise_std(bounds: BatchBounds, guarantee: ApproxDP, settings: SGDSettings) -> float:
    """Return the std of the noise on the sum over a batch: the smallest that suffices, or the
    published one.
    """
    epsilon = guarantee.epsilon_bound
    delta = guarantee.delta_bound
    scheme = _checked_sgd_scheme(bounds, settings)
    sensitivity = bounds.gradient_sum_sensitivity()
    if settings.noise == "accounted":
        return sensitivity * subsampled_multiplier(*scheme, epsilon, delta, _record_share(bounds))
    claimed = cast(float, settings.published_epsilon)
    std = published_std(bounds.lipschitz, claimed, delta)
    accounted = subsampled_epsilon(*scheme, std / sensitivity, delta, _record_share(bounds))
    if accounted > epsilon:
        raise ValueError(
            f"NoisySGD with noise='published' claims epsilon={claimed:g}, "
            f"but its noise is accounted at epsilon={accounted:.4g} (delta={delta:g}), more than "
            f"the {epsilon:g} asked for. Use noise='accounted'."
        )
    return std


def _check_sgd_overflow(bounds: BatchBounds, settings: SGDSettings, std: float) -> None:
    """Raise if steps could overflow: a slope at an infinite margin is no number, and its size no
    longer bounded.
    """
    rate = settings.step_size
    steps = settings.steps
    # Noise beyond this has a probability below 1e-17 in any of 1e18 steps, and overflows no sooner
    # than 1e300.
    longest = bounds.whole_lipschitz if isinstance(bounds, StructuredBounds) else bounds.lipschitz
    longest += std * (math.sqrt(bounds.dimension) + 13)
    if not (rate * bounds.alpha <= 2 and steps * rate * longest < 1e100):
        raise ValueError(
            "The 'step_size' parameter of NoisySGD must be so small that steps cannot overflow: "
            "at most 2 / alpha, and steps * step_size below 1e100 in units of a gradient. Got "
            f"{rate!r} instead. Use a smaller step."
        )


@dataclass(frozen=True)
class NoisySGD(PrivateMechanism):
    r"""Stochastic gradient descent with noise on every sum over a batch, and averaged iterates.

    Parameters
    ----------
    steps : int, optional
        Number of steps. By default as many as make sampling pay, ``(n mu / batch_size)^2`` with
        ``mu`` the Gaussian DP budget of (epsilon, delta), at least 20 passes over the rows, at most
        n^2 and what a core does in half a minute.
    batch_size : int, default=1
        Records per step (in expectation for Poisson sampling). Of a person with several rows, one
        of them at random.
    sampling : {"fixed", "poisson"}
        Exactly ``batch_size`` distinct records, or every record independently with probability
        ``batch_size / n``.
    step_size : float, optional
        In mapped units; by default ``0.5 / sqrt(steps (L^2 / batch_size + d std^2 /
        batch_size^2))``.
    average : float, default=0.75
        Share of the iterates, the last ones, that are averaged; 0 for the last iterate.
    noise : {"accounted", "published"}
        The smallest noise that the accounting certifies, or
        ``std^2 = 8 L^2 ln(1/delta) / epsilon^2`` as printed for n^2 steps of one record each; the
        certificate then states the accounted epsilon, and a claim that is smaller than that is
        refused.

    Notes
    -----
    Privacy: (epsilon, delta)-DP, by :mod:`dpconvex.privacy.subsampling`. Replace-one: both schemes;
    add-or-remove-one: Poisson sampling. Public: number of rows (nominal under add-or-remove-one),
    bounds, loss, and all of the parameters above. Any convex or nonconvex loss of bounded slope
    will do for privacy, kinked ones included.

    Why no Gaussian DP: sampling at rate q makes a step's law ``(1 - q) P + q Q``, P and Q normal
    and ``1/s`` apart in units of the noise. The test that looks at the tail beyond t has type I
    error ``a = Phi(-t)`` and power at least ``q Phi(1/s - t)``. A mu-Gaussian step allows a power
    of ``Phi(mu - t)`` at that error, and for mu below ``1/s`` the ratio
    ``Phi(1/s - t) / Phi(mu - t)`` grows without bound in t, beyond ``1/q`` too. So a sampled step
    is mu-Gaussian DP for no mu below ``1/s``, and so for T of them and ``sqrt(T)/s`` (all T batches
    hold the record with probability ``q^T``, and the tail of the sum decides as before): exact
    Gaussian DP sees nothing of the sampling, and ``"gradient"``, which uses all records, is better
    at that price. Pure epsilon: the privacy loss of normal noise is unbounded.

    Examples
    --------
    >>> from dpconvex.losses import Pinball
    >>> from dpconvex.privacy import ApproxDP, LinearBounds
    >>> bounds = LinearBounds(1000, 2, Pinball(0.7), row_norm=1.0, max_norm=1.0)
    >>> paper = NoisySGD(steps=1000**2, noise="published")
    >>> paper.certify(bounds, ApproxDP(1.0, 1e-6)).guarantee
    ApproxDP(epsilon=0.8625, delta=1e-06)
    """

    steps: int | None = None
    batch_size: int = 1
    sampling: str = "fixed"
    step_size: float | None = None
    average: float = 0.75
    noise: str = "accounted"
    name: ClassVar[str] = "sgd"
    carries: ClassVar[Carries] = Carries(
        bounds=(LinearBounds, StructuredBounds),
        weights=True,
        people=True,
        ignored_rows=True,
        problems=True,
    )
    fits: ClassVar[frozenset[str]] = frozenset({"quantiles", "classes", "matrices"})
    guarantees: ClassVar[tuple[type[Guarantee], ...]] = (ApproxDP,)
    noise_enters: ClassVar[str] = EVERY_STEP
    method: ClassVar[str] = (
        "The coefficients were improved step by step on small random parts of the data, with "
        "random noise in every step."
    )
    quantities: ClassVar[dict[str, str]] = {"gradients": "gradients of the middle rounds"}

    @classmethod
    def calibrate(
        cls, bounds: BatchBounds, guarantee: Guarantee, parameters: Parameters
    ) -> CertificateCalibration:
        """Derive DP-SGD's noise of every step from the number of steps, the batches and the scheme
        that draws them.
        """
        settings = SGDSettings.read(parameters["sgd"])
        _, _, _, steps = _checked_sgd_scheme(bounds, settings)
        check_mechanism_slope(bounds, _OWNER)
        guarantee = guarantee_per_problem(guarantee, parameters.get("problems", 1))
        std = _sgd_noise_std(bounds, _check_sgd_guarantee(guarantee), settings)
        _check_sgd_overflow(bounds, settings, std)
        sensitivity = bounds.gradient_sum_sensitivity()
        # Millions of sums that are never shown are drawn in floating point: no grid.
        term = certificates.CertifiedNoise(
            "gaussian", std, sensitivity, bounds.dimension, "sum", steps, grid=0.0
        )
        return CertificateCalibration({"gradients": term})

    @classmethod
    def prove(cls, certificate: Certificate) -> CertificateProof:
        """Account for DP-SGD's stated steps with the stated noise, batches and scheme."""
        bounds = certificate.bounds
        settings = SGDSettings.read(certificate.parameters["sgd"])
        certificate.check_terms("gradients")
        sampling, neighbors, rate, steps = _checked_sgd_scheme(bounds, settings)
        moved = bounds.gradient_sum_sensitivity()
        term = certificate.term("gradients", moved, bounds.dimension, "sum", steps)
        if term.distribution != "gaussian":
            raise certificates.CertificateError("The certificate's noise is not Gaussian.")
        _check_sgd_overflow(bounds, settings, term.scale)
        claim = _check_sgd_guarantee(certificate.guarantee)
        problems = certificate.problems
        each = claim.delta_bound / problems
        epsilon = subsampled_epsilon(
            sampling, neighbors, rate, steps, term.scale / moved, each, _record_share(bounds)
        )
        drawn = "uniform batches without replacement" if sampling == "fixed" else "Poisson batches"
        proof = (
            "privacy loss of the pair that dominates a sampled Gaussian sum, composed "
            "numerically, or its Renyi divergence"
        )
        relation = neighbors.replace("_", "-")
        theorem = f"{drawn} of rate {rate:.6g}, {steps} steps, {relation}: {proof}"
        return CertificateProof(
            compose_guarantee(ApproxDP(epsilon, each), problems), theorem, FLOATING_POINT
        )

    @classmethod
    def named_for(cls, request: FitRequest) -> NoisySGD:
        """Return the usual run: on records that are matrices two thousand batches."""
        if request.task != "matrices":
            return cls()
        return cls(
            batch_size=max(1, request.bounds.n_samples // _MATRIX_BATCHES),
            steps=_MATRIX_STEPS,
            # The rate of batches of a fixed size would tell the private number of records.
            sampling="fixed" if request.bounds.neighbors == "replace_one" else "poisson",
        )

    def prepare(self, request: FitRequest) -> FitDecision:
        """Decide steps, batches and, of quantiles, the smoothing: as little as the steps allow."""
        bounds = replace(request.bounds, alpha=request.alpha or 0.0)
        if isinstance(bounds, StructuredBounds):
            return self._prepare_matrices(request, bounds)
        if isinstance(bounds.loss, Pinball):
            return self._prepare_quantile(request, bounds)
        bounds = replace(bounds, loss=request.smooth_loss or bounds.loss)
        settings = self.settings(bounds, guarantee_per_problem(request.guarantee, request.problems))
        return self.decide(request, bounds, {self.name: settings.stated()}, settings=settings)

    def _prepare_quantile(self, request: FitRequest, bounds: LinearBounds) -> FitDecision:
        """Choose the smoothing as in Theorem 3.4 of the quantile paper."""
        chosen = self
        if bounds.neighbors == "add_or_remove_one" and self == NoisySGD():
            # The rate of batches of a fixed size would tell the private number of rows.
            chosen = NoisySGD(sampling="poisson")
        settings = chosen.settings(bounds, request.guarantee)
        kernel = request.kernel
        assert kernel is not None
        bandwidth = request.bandwidth or contractive_bandwidth(
            kernel, bounds.curvature_factor, settings.step_size
        )
        bounds = replace(bounds, loss=request.smoothed(bounds.loss, bandwidth))
        return chosen.decide(
            request, bounds, {self.name: settings.stated()}, settings=settings, bandwidth=bandwidth
        )

    def _prepare_matrices(self, request: FitRequest, bounds: StructuredBounds) -> FitDecision:
        bandwidth = request.bandwidth
        bounds = replace(bounds, loss=request.smoothed(bounds.loss, bandwidth))
        settings = self.settings(bounds, request.guarantee)
        smoothing = {} if bandwidth is None else {"bandwidth": bandwidth}
        parameters = {**smoothing, self.name: settings.stated()}
        return self.decide(request, bounds, parameters, settings=settings)

    def settings(self, bounds: BatchBounds, guarantee: Guarantee) -> SGDSettings:
        """Return the public parameters of a run of DP-SGD, all chosen."""
        budget = _check_sgd_guarantee(guarantee)
        epsilon = budget.epsilon_bound
        delta = budget.delta_bound
        size = check_count("batch_size", "NoisySGD", self.batch_size, most=bounds.n_samples)
        if self.noise not in _NOISE:
            raise parameter_error("noise", "NoisySGD", f"one of {list(_NOISE)}", repr(self.noise))
        if self.steps is None:
            wanted = (bounds.n_samples * gaussian_mu(epsilon, delta) / size) ** 2
            wanted = max(min(wanted, (bounds.n_samples / size) ** 2), 20 * bounds.n_samples / size)
            steps = math.ceil(max(200.0, min(wanted, _MOST_WORK / (bounds.dimension * (size + 1)))))
        else:
            steps = check_count("steps", "NoisySGD", self.steps)
        published = self.noise == "published"
        chosen = SGDSettings(
            steps=steps,
            batch_size=size,
            sampling=check_sampling(self.sampling, bounds.neighbors, _OWNER),
            average=check_number("average", _OWNER, self.average, "a number in [0, 1]", 0, 1.01),
            noise=self.noise,
            step_size=math.nan,  # follows from the noise, which does not depend on it
            published_epsilon=epsilon if published else None,
        )
        if published:
            std = published_std(bounds.lipschitz, epsilon, delta)
        else:
            std = _sgd_noise_std(bounds, budget, chosen)
        if self.step_size is None:
            square = bounds.lipschitz**2 / size + bounds.dimension * std**2 / size**2
            rate = 0.5 / math.sqrt(steps * square)
        else:
            allowed = "None or a finite number above 0"
            rate = check_number(
                "step_size", _OWNER, self.step_size, allowed, 0, math.inf, low_open=True
            )
        return replace(chosen, step_size=rate)

    def _chosen(self, bounds: BatchBounds, guarantee: Guarantee, parameters: Facts) -> Facts:
        if "sgd" not in parameters:
            parameters["sgd"] = self.settings(bounds, guarantee).stated()
        return parameters

    def _issue(
        self,
        bounds: BatchBounds,
        guarantee: Guarantee,
        parameters: Parameters | None,
        seeded: bool,
    ) -> tuple[Certificate, Any]:
        """Issue the certificate; published noise is certified for what it truly gives."""
        chosen = self._chosen(bounds, guarantee, dict(parameters or {}))
        settings = SGDSettings.read(chosen["sgd"])
        if settings.noise == "published":
            budget = _check_sgd_guarantee(guarantee)
            std = _sgd_noise_std(
                bounds, budget, settings
            )  # refuses a claim that the accounting does not support
            multiplier = std / bounds.gradient_sum_sensitivity()
            scheme = _checked_sgd_scheme(bounds, settings)
            accounted = subsampled_epsilon(
                *scheme, multiplier, budget.delta_bound, _record_share(bounds)
            )
            unit = 10.0 ** (math.floor(math.log10(accounted)) - 3)
            accounted = float(f"{math.ceil(accounted / unit) * unit:.4g}")
            guarantee = ApproxDP(min(accounted, budget.epsilon_bound), budget.delta_bound)
        return super()._issue(bounds, guarantee, chosen, seeded)

    def stated_settings(self, certificate: Certificate) -> SGDSettings:
        """Return the settings that a certificate states, as the object that a run takes."""
        return SGDSettings.read(certificate.parameters["sgd"])

    @classmethod
    def matrix_target_limit(cls, certificate: Certificate, settings: object) -> float:
        """Return the public bound to which targets of matrices are clamped."""
        assert isinstance(settings, SGDSettings)
        return longest_descent_margin(
            certificate, settings.steps, settings.step_size, settings.batch_size
        )

    def _run(
        self,
        objective: BatchObjective,
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
        settings: SGDSettings,
    ) -> Array:
        generator = fast_sgd_generator(noise)
        if isinstance(objective, StructuredObjective):
            return descend_noisy_sgd(objective, certificate, generator, settings)
        return _NoisySGDRun(objective, certificate, settings, generator).run()


class _NoisySGDRun:
    """One run on data: the certificate fixes everything but the noise and the batches."""

    def __init__(
        self,
        objective: EmpiricalObjective,
        certificate: Certificate,
        settings: SGDSettings,
        generator: np.random.Generator,
    ) -> None:
        from dpconvex.smoothing.compiled_slopes import compile_slope

        self.settings = settings
        term = certificate.noise["gradients"]
        self.std = term.scale
        self.steps = term.releases
        self.sampling = settings.sampling
        self.size = settings.batch_size
        self.rate = self.size / certificate.bounds.n_samples
        self.alpha = certificate.bounds.alpha
        self.loss = objective.loss
        # Records are visited one by one: rows of other engines are refused before.
        self.rows = cast(MemoryRows, objective.rows)
        self.n_rows = self.rows.n_records
        self.sparse = isinstance(self.rows, SparseRows)
        # Small tables are mapped once, of large and sparse ones only the records that the next
        # steps visit.
        whole = self.rows.small and not self.sparse and not self.rows.has_people
        self.mapped = self.rows.mapped() if whole else None
        self.compiled = compile_slope(self.loss)
        self.generator = generator
        self.theta = np.zeros(self.rows.dim)
        self.permutation = np.arange(self.n_rows)

    def run(self) -> Array:
        averaged = min(self.steps, max(1, round(self.settings.average * self.steps)))
        total = np.zeros_like(self.theta)
        self._take_sgd_steps(self.steps - averaged, total)
        total[:] = 0.0
        self._take_sgd_steps(averaged, total)
        return np.asarray(total / averaged)

    def _take_sgd_steps(self, steps: int, total: Array) -> None:
        """Take steps of DP-SGD in chunks of about as many sampled records."""
        single = self.compiled if self.sampling == "fixed" and self.size == 1 else None
        copied = self.mapped is None and single is None
        chunk = max(1, (block_rows(self.theta.size) if copied else _CHUNK) // self.size)
        while steps > 0:
            count = min(chunk, steps)
            if self.rows.has_people:  # of people, a random row each, drawn anew every so many steps
                everyone = np.arange(self.n_rows)
                self.mapped = self.rows.one_row_each(everyone, self.generator).mapped()
            self._sgd_of_batches(count, total) if single is None else self._sgd_of_records(
                count, total, single
            )
            steps -= count

    def _sgd_of_records(self, steps: int, total: Array, compiled: CompiledSlope) -> None:
        """Take steps of DP-SGD of one record each, compiled."""
        from dpconvex.solvers.sgd_loops import run_single_sgd_loop

        chosen = self.generator.integers(0, self.n_rows, size=steps)
        for visited, records in self._sgd_records(chosen, block_rows(self.theta.size)):
            run_single_sgd_loop(
                self.generator,
                visited,
                *records,
                compiled,
                self.theta,
                total,
                self.settings.step_size,
                self.alpha,
                self.std,
            )

    def _sgd_records(
        self, chosen: RowIndices, few: int
    ) -> Iterator[tuple[RowIndices, tuple[Array, Array, Array]]]:
        """Yield indices of DP-SGD's records with the rows, targets and weights they index; `few`
        copies at once.
        """
        if self.mapped is not None:
            yield chosen, self.mapped
            return
        for start in range(0, chosen.size, few):
            records = self.rows.take(chosen[start : start + few]).mapped()
            yield np.arange(len(records[1])), records

    def _sgd_of_batches(self, steps: int, total: Array) -> None:
        """Take steps of DP-SGD of a batch each: compiled for dense rows and losses of the
        package, else in numpy.
        """
        from dpconvex.solvers.sgd_loops import (
            draw_sgd_batches,
            run_batch_sgd_loop,
            sgd_batch_members,
        )

        sizes, swaps = draw_sgd_batches(
            self.generator, self.sampling, self.n_rows, self.size, self.rate, steps
        )
        chosen = sgd_batch_members(self.permutation, sizes, swaps)
        few = block_rows(self.theta.size)
        if self.compiled is not None and not self.sparse and chosen.size:
            ((visited, records),) = self._sgd_records(chosen, chosen.size)
            run_batch_sgd_loop(
                self.generator,
                sizes,
                visited,
                *records,
                self.compiled,
                self.theta,
                total,
                self.settings.step_size,
                self.alpha,
                self.std,
                float(self.size),
            )
            return
        for batch in np.split(chosen, np.cumsum(sizes)[:-1]):
            gradient = self.std * self.generator.standard_normal(self.theta.size)
            for visited, (rows, targets, weights) in self._sgd_records(batch, few):
                block = rows[visited]
                slopes = self.loss.gradient(targets[visited], block_margins(block, self.theta))
                gradient += (weights[visited] * slopes) @ block
            self.theta -= self.settings.step_size * (gradient / self.size + self.alpha * self.theta)
            total += self.theta


def fast_sgd_generator(noise: NoiseSource) -> np.random.Generator:
    """Return a fast generator for many millions of normals, seeded by the operating system or a
    seeded source.
    """
    if not noise.seeded:
        return np.random.Generator(np.random.SFC64())
    words = noise.generator.integers(0, 2**32, size=8, dtype=np.uint32)
    return np.random.Generator(np.random.SFC64(words))


def descend_noisy_sgd(
    objective: StructuredObjective,
    certificate: Certificate,
    generator: np.random.Generator,
    settings: SGDSettings,
) -> Array:
    """Return the mean of the later iterates of noisy stochastic descent on records that are
    matrices.

    The part that all records share is public and added to every step as it is: only the records'
    own parts are sampled, summed and hidden by noise.
    """
    term = certificate.noise["gradients"]
    records = objective.records
    loss = objective.own_loss
    bounds = certificate.bounds
    size = settings.batch_size
    steps = term.releases
    step = settings.step_size
    averaged = min(steps, max(1, round(settings.average * steps)))
    shared = None if records.shared is None else StructuredNormTerm(records.shared, objective.loss)
    rate = size / bounds.n_samples

    def take_sgd_step(theta: Array) -> Array:
        if settings.sampling == "fixed":
            batch = generator.choice(objective.n_rows, size=size, replace=False, shuffle=False)
        else:
            batch = np.flatnonzero(generator.random(objective.n_rows) < rate)
        matrices = records.scaled(batch)
        level = None if records.level is None else records.level[batch]
        # Row by row: what a record gives must not depend on how many others were drawn.
        margins = block_margins(matrices.reshape(-1, theta.size), theta)
        targets = records.targets[batch]
        slopes = -loss.gradient(targets - margins.reshape(targets.shape), level)
        gradient = np.tensordot(slopes, matrices, axes=2)
        gradient += term.scale * generator.standard_normal(theta.size)
        move = gradient / size + bounds.alpha * theta
        if shared is not None:
            move += shared.gradient(theta)
        return np.asarray(theta - step * move)

    with single_threaded_blas():  # the products are small: threads would wait for each other
        return average_mechanism_iterates(take_sgd_step, np.zeros(objective.dim), steps, averaged)
