r"""Gaussian mechanism for sums over rows: PrivateRows answers the queries that a certificate
states, and counts them.

A question is data. The answer is a sum over records of what each of them adds, clipped here to the
bound that the certificate states, plus the noise that it states; the use is counted, and one use
too many raises before noise is drawn. Whoever holds the handle may ask what he likes: he cannot
learn more than the certificate says.

Why an answer has the sensitivity of its query:

1. What a record adds is computed from its own row, target and weight, public numbers and the
   question, row by row in an order of operations that is the same whatever the other records are.
2. It is limited to the stated bound: rows by their own norm, rounded up; slopes by their largest
   size; numbers to their range; counts and bins by construction.
3. Weights multiply it: of one row at most 1, of a person's rows together at most 1, of ignored rows
   0.
4. The sum's rounding is paid for (:func:`dpconvex.core.queries.largest_query_cancellation`), which
   is why coordinates in which digits would be lost are refused.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.core import queries
from dpconvex.core.block_products import block_by_nonzeros, block_margins
from dpconvex.core.certificate import Certificate, CertificateError, CertifiedNoise
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.memory_rows import MemoryRows
from dpconvex.core.noise_source import NoiseSource
from dpconvex.core.queries import (
    QueryFactor,
    QuerySlope,
    QuerySlopes,
    QueryStatistic,
    registered_query_slope,
)
from dpconvex.core.row_coordinates import Coordinates, RowNorms, coordinate_cancellation, row_norms
from dpconvex.core.rows import Rows
from dpconvex.types import Array

_LARGEST = 1e100  # coefficients are kept within it: margins of bounded rows do not overflow
_ROUND_UP = 1 + 1e-12  # of norms of slopes: more than the roundings of some thousand of them
# added to distances, whose logarithms are counted; smaller weights have lost their digits
_TINY = 1e-300
_LONGEST = (
    1e200  # longer rows count as 0: their multiples would lose digits that the length magnifies
)


class PrivateAnswers:
    """The terms that a certificate allows, how often each was used, and the gate behind which
    noise is added.
    """

    def __init__(self, terms: Mapping[str, CertifiedNoise], noise: NoiseSource) -> None:
        self.terms = terms
        self.noise = noise
        self.used: dict[str, int] = {}
        self._lock = threading.Lock()

    def claim(
        self,
        name: str,
        kinds: Sequence[str] = ("",),
        dimension: int | None = None,
        record_bound: float = 0.0,
    ) -> CertifiedNoise:
        """Count a use of a private answer's noise term, or raise if the certificate does not allow
        for it.

        A record adds at most ``record_bound``; 0 where the sum is clipped to the bound that the
        term states.
        """
        if type(name) is not str or name not in self.terms:
            raise CertificateError(f"The certificate states no release {name!r}.")
        term = self.terms[name]
        if term.query not in kinds:
            raise CertificateError(
                f"The certificate's {name!r} is {term.query or 'no sum'!r}, not "
                f"{kinds[0] or 'no sum'!r}."
            )
        if dimension is not None and term.dimension != dimension:
            raise CertificateError(
                f"The certificate's {name!r} has {term.dimension} numbers, but the question has "
                f"{dimension}."
            )
        if record_bound and term.record_bound < record_bound:
            raise CertificateError(f"The certificate's {name!r} is for records that add less.")
        with self._lock:
            used = self.used.get(name, 0)
            if used >= term.releases:
                raise CertificateError(
                    f"The certificate allows for {term.releases} releases of {name!r}, and all of "
                    "them are used."
                )
            self.used[name] = used + 1
        return term

    def draw(self, term: CertifiedNoise) -> Array:
        """Return the noise that a term states, for what is perturbed before it is solved."""
        return self.noise.draw(term)

    def release(self, term: CertifiedNoise, exact: ArrayLike) -> Array:
        """Return numbers plus the noise that their term states, behind the gate."""
        value = np.array(exact, dtype=np.float64).ravel()
        if value.size != term.dimension:
            raise CertificateError("What is released has another size than its term states.")
        return self.noise.add(value, term)


Method = TypeVar("Method", bound=Callable[..., object])


def _one_private_answer(method: Method) -> Method:
    """Answer one question at a time, whatever floating-point numbers do on the way: a signal
    would tell of rows.
    """

    @functools.wraps(method)
    def answer(self: PrivateRows, *asked: object, **more: object) -> object:
        with self._lock, np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return method(self, *asked, **more)

    return cast(Method, answer)


class PrivateRows:
    """A handle on the rows of a linear model: which questions may be asked, how often and with
    which noise is stated.

    ``rows_by_target`` are the same mapped rows with each of their targets; the handle is on the
    first. ``bounds`` and ``terms``, the facts of the records and the terms of the certificate, are
    public.

    Privacy: all answers together have the guarantee that
    :func:`~dpconvex.core.queries.prove_queries` composes from the stated terms, whatever is asked
    and in whatever order. Arguments are copied to plain arrays of numbers first.
    """

    def __init__(
        self, rows_by_target: Sequence[Rows], certificate: Certificate, noise: NoiseSource
    ) -> None:
        certificate.verify()  # the stated noise suffices for the stated guarantee
        self.bounds: LinearBounds = certificate.bounds
        self.terms: Mapping[str, CertifiedNoise] = MappingProxyType(dict(certificate.noise))
        self._answers = PrivateAnswers(self.terms, noise)
        self._rows_by_target = tuple(rows_by_target)
        self._rows = rows_by_target[0]
        self._size: int | None = None  # of a part
        self._lead = int(self.bounds.fit_intercept)
        self._lock = threading.RLock()  # one question at a time
        # By slot, the last question of its kind and what may serve the next: coordinates, weights,
        # a counter, a part.
        self._kept: dict[object, tuple[object, Any]] = {}

    def target(self, number: int) -> PrivateRows:
        """Return the handle on the same rows with another of their targets."""
        return self._view(self._rows_by_target[number], None)

    def part(self, rows: int) -> PrivateRows:
        """Return the handle on a part of the records, which follows from their public number
        alone.
        """
        if self.bounds.neighbors != "replace_one":
            raise CertificateError(
                "Which rows are a part of them is public only where their number is."
            )
        rows = int(rows)
        return self if rows >= self.bounds.n_samples else self._view(self._rows, rows)

    def _held(self, slot: object, key: object) -> Any:
        """Return what private rows have kept for a key, in its slot until another one is asked
        for, or None.
        """
        kept = self._kept.get(slot)
        return kept[1] if kept is not None and kept[0] == key else None

    def _view(self, rows: Rows, size: int | None) -> PrivateRows:
        other = object.__new__(PrivateRows)
        vars(other).update(vars(self))
        other._rows = rows
        other._size = size
        return other

    @_one_private_answer
    def count(
        self, name: str, statistic: QueryStatistic, point: float, level: float = 0.0
    ) -> float:
        """Return how many private rows' records have a statistic below a point, plus noise.

        With a level in [0, 1] the count is centred, ``sum_i v_i (1[s_i < point] - level)``: 0 at
        that quantile however many records are ignored. The term may be one for another kind of sum:
        the count then stands in its first coordinate, in units in which it moves no further than
        that sum; a millionth less, which pays for rounding the product.
        """
        term = self._answers.claim(name, ("count", "vector", "histogram", "second moments"))
        # Only where rows may be ignored is the rounding of a centred count paid for.
        level = min(max(_nan_to_zero(level), 0.0), 1.0) if self.bounds.ignored_rows else 0.0
        frame = statistic.coordinates
        theta = statistic.theta
        key = (
            *(
                statistic.name,
                float(statistic.centre),
                repr(statistic.loss),
                level,
                id(self._rows),
                self._size,
            ),
            None if theta is None else np.array(theta, np.float64).tobytes(),
            None if frame is None else _key(self._checked(frame)),
        )
        counter = self._held("counter", key)  # values are computed once for several points
        if counter is None:
            self._kept.pop("counter", None)  # its values are freed before others are computed
            rows, value = self._valued(statistic)
            counter = rows.counter(value, level)
            self._kept["counter"] = key, counter
        exact = counter(_nan_to_zero(point))
        if term.query == "count":
            return float(self._answers.release(term, [exact])[0])
        unit = self._count_unit(term)
        vector = np.zeros(term.dimension)
        vector[0] = unit * exact
        return float(self._answers.release(term, vector)[0]) / unit

    def _count_unit(self, term: CertifiedNoise) -> float:
        return (1 - 2.0**-20) * term.sensitivity / queries.Query("count").sensitivity(self.bounds)

    @_one_private_answer
    def histogram(
        self, name: str, statistic: QueryStatistic, edges: ArrayLike, by_label: bool = False
    ) -> Array:
        """Return how many private rows' records lie between edges, the outermost bins with all
        beyond, plus noise.

        With labels the counts of negative records come first.
        """
        inner = np.unique(checked_finite_array(edges))
        bins = inner.size + 1
        by_label = bool(by_label)
        term = self._answers.claim(
            name, ("histogram",), bins * (2 if by_label else 1), record_bound=1
        )
        self._kept.pop("counter", None)  # its memory is needed
        rows, value = self._valued(statistic)

        def part(y: Array, w: Array, v: Array) -> tuple[Array]:
            found = np.searchsorted(inner, value(y, w), side="right")
            if by_label:
                np.add(found, bins, out=found, where=y > 0)
            return (np.asarray(np.bincount(found, v, minlength=term.dimension), np.float64),)

        (exact,) = rows.sum_targets(part)
        counts = self._answers.release(term, exact)
        return counts.reshape(2, bins) if by_label else counts

    @_one_private_answer
    def column_octaves(self, name: str, max_octave: int, octaves: int) -> Array:
        """Return the signed octaves below ``2^max_octave`` of private rows' values in every column,
        plus noise.

        A column has ``2 octaves + 1`` bins: from large negative values to large positive ones, with
        zeros and what is smaller than all octaves in the middle.
        """
        top = int(max_octave)
        bins = 2 * int(octaves) + 1
        lead = self._lead
        columns = self.bounds.n_features
        rows = self._own_rows
        term = self._answers.claim(name, ("histogram",), bins * columns, record_bound=columns)

        def part(block: Array, y: Array, w: Array, v: Array) -> tuple[Array]:
            from dpconvex.core.dense_kernels import count_dense_octaves

            counts = np.zeros((columns, bins))
            present = np.asarray(
                w > 0, dtype=np.float64
            )  # the influence weight of ignored rows is 0
            count_dense_octaves(block, present * v, lead, top, counts)
            return (counts.ravel(),)

        (exact,) = rows.sum_weighted(
            block_by_nonzeros(part, lambda rows: (rows.octave_counts(bins, top).ravel(),))
        )
        return self._answers.release(term, exact).reshape(columns, bins)

    @_one_private_answer
    def slope_sum(
        self,
        name: str,
        theta: ArrayLike,
        slope: QuerySlope,
        coordinates: Coordinates,
        unit: float = 1.0,
    ) -> Array:
        """Return ``sum_i s_i u_i`` over private rows, each at most ``bound * unit`` long, plus
        noise of ``std * unit``.

        u are rows in the coordinates, s slopes at the margins of ``theta``; rows longer than
        ``bound * unit`` over the largest slope count less, by the slope's weighting.
        """
        slope = registered_query_slope(slope, self.bounds.loss)
        frame = self._checked(coordinates)
        unit = checked_positive(unit)
        point = checked_finite_array(theta, self.bounds.dimension)
        term = self._answers.claim(name, ("vector",), self.bounds.dimension)
        rows = self._weighted(
            frame, slope.weighting, checked_positive(term.record_bound * unit) / slope.largest
        )
        if slope.loss is not None and slope.loss.kind == "margin":
            rows = rows.with_labels()  # slopes of margins grow with the label
        (total,) = rows.combine(point, slope)
        exact = frame.transform_sum(np.asarray(total)) / unit
        return self._answers.release(term, exact) * unit

    @_one_private_answer
    def slopes_sum(
        self,
        name: str,
        thetas: ArrayLike,
        slopes: QuerySlopes,
        coordinates: Coordinates,
        unit: float = 1.0,
    ) -> Array:
        """Return what private rows' records add by several slopes, each at most ``bound * unit``
        long, plus noise.

        ``thetas`` has the coefficients of each margin. The answer has a row for each margin where
        coefficients are separate; else all intercepts' sums come first, and the common
        coefficients' sums without the constant follow.
        """
        slopes = queries.registered_query_slopes(slopes)
        frame = self._checked(coordinates)
        unit = checked_positive(unit)
        size = self.bounds.dimension
        loss = slopes.loss
        separate = slopes.loss.lift == "separate"
        points = checked_finite_array(thetas)
        if points.shape != (loss.margins, size) or not (separate or self._lead):
            raise ValueError(
                f"The question needs coefficients of shape {(loss.margins, size)} and an intercept."
            )
        term = self._answers.claim(name, ("vector",), loss.coefficients(size))
        clipped = _ClippedMarginSlopes(slopes, checked_positive(term.record_bound * unit))
        (total,) = self._weighted(frame).combine(np.ascontiguousarray(points.T), clipped)
        sums = [frame.transform_sum(each) for each in (total if separate else total[-1:])]
        # A row's constant is 1: sums of slopes are in its column.
        exact = np.array(sums) if separate else np.concatenate([total[:-1, 0], sums[0][1:]])
        released = self._answers.release(term, exact / unit) * unit
        return released.reshape(loss.margins, size) if separate else released

    @_one_private_answer
    def second_moments(
        self,
        name: str,
        coordinates: Coordinates,
        radius: float,
        factor: QueryFactor | None = None,
        theta: ArrayLike | None = None,
    ) -> Array:
        r"""Return ``sum_i f_i^2 u_i u_i^T / radius^2`` over private rows, plus noise on the packed
        matrix.

        u are rows in the coordinates and f factors, or 1; no vector ``f u`` is longer than the
        radius.
        """
        frame = self._checked(coordinates)
        radius = checked_positive(radius)
        size = self.bounds.dimension
        term = self._answers.claim(
            name, ("second moments",), size * (size + 1) // 2, record_bound=1
        )
        if factor is None:
            exact = _private_moment_sums(self._weighted(frame), frame, radius)
        else:
            factor = queries.registered_query_factor(factor, self.bounds.loss)
            rows = self._weighted(frame, factor.weighting, radius)
            exact = _private_product_sums(
                rows, frame, checked_finite_array(theta, size), radius, factor
            )
        return queries.unpack_query_matrix(
            self._answers.release(term, queries.pack_query_matrix(exact)), size
        )

    @_one_private_answer
    def limited_sum(self, name: str, score: queries.QueryScore) -> float:
        """Return the sum of a score over private rows' records, plus noise."""
        term = self._answers.claim(name, ("limited sum",), 1, record_bound=1)
        limit = checked_positive(score.limit)
        if score.name not in queries.SCORES:
            raise ValueError(
                f"A score must be one of {list(queries.SCORES)}. Got {score.name!r} instead."
            )

        def private_score_part(y: Array, z: Array, v: Array) -> tuple[Array]:
            scores = np.clip(np.nan_to_num((y - z) / limit), -1.0, 1.0)
            return (np.array([float(v @ scores)]),)

        rows = self._own_rows.predicted(
            checked_finite_array(score.theta, self.bounds.dimension)
        )  # margins as weights
        (exact,) = rows.sum_targets(private_score_part)
        return float(self._answers.release(term, exact)[0])

    @property
    def _own_rows(self) -> Rows:
        """The rows of this view."""
        rows = self._rows
        size = self._size
        if size is None:
            return rows
        part = self._held(("part", id(rows)), size)
        if part is None:
            for other in (
                ("part", id(rows)),
                "weights of a part",
            ):  # freed before another part takes the place of one
                self._kept.pop(other, None)
            part = rows.part(size)
            self._kept["part", id(rows)] = size, part
        return cast(Rows, part)

    def _checked(self, coordinates: Coordinates) -> Coordinates:
        """Return a copy of coordinates in which private rows' sums keep their digits; raise for
        others.
        """
        size = self.bounds.dimension
        matrix = checked_finite_array(coordinates.matrix)
        if matrix.shape not in ((size,), (size, size)):
            raise ValueError("Coordinates must be a square matrix, or its diagonal.")
        matrix[np.abs(matrix) < 1 / _LARGEST] = 0.0  # whose squares are too small for a number
        # How bounds of norms are computed depends on the number of rows, which must be public for
        # that.
        public = self.bounds.neighbors == "replace_one" and not self.bounds.people
        public = public and self.bounds.rows_per_person == 1
        slack = min(max(float(coordinates.norm_slack), 0.0), 1.0) if public else 0.0
        own = Coordinates(matrix, self._lead, slack, abs(_nan_to_zero(coordinates.constant_norm)))
        key = _key(own)
        checked = self._held("coordinates", key)
        if checked is None:
            if not coordinate_cancellation(matrix) <= queries.largest_query_cancellation(
                self.bounds
            ):
                raise ValueError("In these coordinates sums of rows would lose their digits.")
            self._kept["coordinates"] = key, own
        return own if checked is None else cast(Coordinates, checked)

    def _weighted(
        self, frame: Coordinates, weighting: str | None = None, limit: float = 1.0
    ) -> Rows:
        """Return rows with weights by their norm in the frame in the weight slot, or with the
        norms, read as ``w``.

        ``min(1, limit / norm)``, its square or ``limit / norm`` by the weighting; row weights v
        stay. They are made once for all rows of the first target. Where a part alone is asked for,
        its weights are made: those of all rows would take longer.
        """
        norms = _key(
            frame
        )  # shorter than every key of weights: whatever a weighting equals, norms are no weights
        key: tuple[object, ...] = norms if weighting is None else (weighting, limit, *norms)
        view = (id(self._rows), self._size)
        slot = "weights"
        made = self._held(slot, key)
        alone = self._size is not None and made is None
        if alone:
            slot = "weights of a part"
            key = (*key, *view)
            made = self._held(slot, key)
        if made is None:
            whole_first = self._size is None and self._rows is self._rows_by_target[0]
            source = self if alone or whole_first else self._view(self._rows_by_target[0], None)
            weights = None if weighting is None else _PrivateRowWeights(weighting, limit)
            if not alone:  # what belongs to a part is needed no more, and memory is
                for other in set(self._kept) - {"coordinates", "weights"}:
                    del self._kept[other]
            if weights and (
                self._held("weights", norms) or self._held("weights of a part", (*norms, *view))
            ):
                rows = source._weighted(frame).rescaled(weights)
            else:
                rows = source._own_rows.reweighted(RowNorms(frame, weights or np.asarray))
            made = rows, {view: rows} if alone else {}
            self._kept[slot] = key, made
        whole, views = cast(tuple[Rows, dict[tuple[int, int | None], Rows]], made)
        if view not in views:
            rows = whole
            if self._rows is not self._rows_by_target[0]:
                rows = cast(MemoryRows, self._rows).with_weights(cast(MemoryRows, whole).weights)
            views[view] = rows if self._size is None else rows.part(self._size)
        return views[view]

    def _valued(self, statistic: QueryStatistic) -> tuple[Rows, Callable[[Array, Array], Array]]:
        """Return private rows, and the function of their targets and weights that a statistic
        is.
        """
        name = statistic.name
        centre = _nan_to_zero(statistic.centre)
        if name not in queries.STATISTICS:
            raise ValueError(
                f"A statistic must be one of {list(queries.STATISTICS)}. Got {name!r} instead."
            )
        if name == "target":
            return self._own_rows, lambda y, w: y
        if name == "label":
            return self._own_rows, lambda y, w: np.where(y > 0, -1.0, 0.0)
        if name == "length":
            if statistic.coordinates is None:
                raise ValueError("Lengths need coordinates.")
            return self._weighted(self._checked(statistic.coordinates)), lambda y, norms: np.log2(
                norms
            )
        theta = checked_finite_array(statistic.theta, self.bounds.dimension)
        rows = self._own_rows.predicted(theta)  # with margins z in the weight slot
        if name == "residual":
            return rows, lambda y, z: y - z
        if name == "margin":
            return rows, lambda y, z: z
        if name == "slope":
            if statistic.loss is None:
                raise ValueError("Slopes need a loss.")
            return rows, queries.registered_query_loss(statistic.loss, self.bounds.loss).gradient
        return rows, lambda y, z: np.log2(np.abs(z - centre) + _TINY)


@dataclass(frozen=True)
class _PrivateRowWeights:
    """Weights of rows by their norm: see :data:`dpconvex.core.queries.WEIGHTINGS`.

    Numbers too small for all their digits may be rounded up by half: a row would be longer than its
    clip.
    """

    weighting: str
    limit: float

    def __call__(self, norms: Array) -> Array:
        weights = self.limit / norms
        weights = np.where((norms > _LONGEST) | (weights < _TINY), 0.0, weights)
        if self.weighting == "clip":
            return weights
        weights = np.minimum(1.0, weights)
        return np.asarray(weights**2 if self.weighting == "square" else weights)


@dataclass(frozen=True)
class _ClippedMarginSlopes:
    """Slopes of a row's margins, and their sum where coefficients are common, shortened so that no
    gradient is long.

    One factor shortens what a record adds to the bound; its norm is rounded up. Ignored rows, whose
    norm is 0 or infinite, add 0, and so does what is not a number, or too small for all its digits.
    Sums over margins are taken margin by margin.
    """

    slopes: QuerySlopes
    bound: float

    def __call__(self, y: Array, z: Array, norms: Array) -> tuple[Array]:
        loss = self.slopes.loss
        weighting = self.slopes.weighting
        slopes = np.nan_to_num(loss.slopes(y, np.ascontiguousarray(z.T)))
        if weighting != "clip":
            slopes = slopes * _PrivateRowWeights(weighting, self.bound / loss.lipschitz)(norms)
        # Squares of what is left are neither too small nor too large for a number.
        slopes = np.where(np.abs(slopes) < 1 / _LARGEST, 0.0, np.clip(slopes, -_LARGEST, _LARGEST))
        lengths = np.sqrt(functools.reduce(np.add, slopes**2))
        whole = functools.reduce(np.add, slopes)
        if loss.lift == "separate":
            lengths = lengths * norms
        else:
            lengths = np.hypot(lengths, whole * norms)
            slopes = np.vstack([slopes, whole])
        factors = np.minimum(1.0, self.bound / (lengths * _ROUND_UP))
        return (
            np.where(
                (norms > 0) & (norms <= _LONGEST) & (factors >= _TINY), slopes * factors, 0.0
            ).T,
        )


def _key(frame: Coordinates) -> tuple[bytes, float, float]:
    return frame.matrix.tobytes(), frame.norm_slack, frame.constant_norm


def _nan_to_zero(value: float) -> float:
    """Return a number, never NaN."""
    return float(np.nan_to_num(float(value), nan=0.0, posinf=np.inf, neginf=-np.inf))


def checked_positive(value: float) -> float:
    """Return a number between 1e-100 and 1e100, or raise: products with it neither under- nor
    overflow.
    """
    number = float(value)
    if not 1 / _LARGEST <= number <= _LARGEST:
        raise ValueError("A unit, radius or limit must be a number between 1e-100 and 1e100.")
    return number


def checked_finite_array(values: ArrayLike | None, size: int | None = None) -> Array:
    """Return a new array of finite numbers: no subclass, no view, nothing that another thread
    may change.
    """
    if values is None:
        raise ValueError("The question needs coefficients.")
    copied = np.array(values, dtype=np.float64, copy=True, subok=False, order="C")
    if size is not None and copied.shape != (size,):
        raise ValueError(f"The question needs {size} numbers. Got shape {copied.shape} instead.")
    return np.clip(np.nan_to_num(copied, nan=0.0), -_LARGEST, _LARGEST)


def _private_moment_sums(measured: Rows, frame: Coordinates, radius: float) -> Array:
    """Return the weighted sum of ``u u^T`` of transformed rows ``u = (1, x) / radius``,
    shortened to length 1.
    """

    def by_nonzeros(rows: Any) -> tuple[Any]:
        return (rows.moment_sums(np.minimum(1 / radius, 1 / rows.weights)),)

    def part(block: Array, y: Array, w: Array, v: Array) -> tuple[Array]:
        shortened = frame.transform(block)
        # Lengths of the very numbers that are summed: another product with the matrix could round
        # differently.
        lengths = row_norms(shortened, 0.0 if frame.lead else frame.constant_norm)
        factors = np.where(w == 0, 0.0, np.minimum(1 / radius, 1 / lengths))  # ignored rows
        shortened *= (factors * np.sqrt(v))[:, None]
        return (shortened.T @ shortened,)

    (sums,) = measured.sum_weighted(block_by_nonzeros(part, by_nonzeros))
    if not isinstance(sums, np.ndarray):  # by non-zeros, in the rows' own coordinates
        matrix = frame.matrix if frame.diagonal is None else frame.diagonal
        return np.asarray(sums.mapped(matrix, measured.n_rows))
    return sums


def _private_product_sums(
    rows: Rows, frame: Coordinates, theta: Array, radius: float, factor: QueryFactor
) -> Array:
    """Return the weighted sum of ``f^2 u u^T / radius^2`` of transformed rows u.

    No vector ``f u / radius`` is longer than 1, whatever the factor says: its own computed length
    limits it.
    """

    def part(block: Array, y: Array, w: Array, v: Array) -> tuple[Array]:
        factors = np.nan_to_num(factor(y, block_margins(block, theta), w))
        vectors = frame.transform(block)
        factors = np.minimum(np.abs(factors) / radius, 1 / row_norms(vectors))
        vectors *= (factors * np.sqrt(v))[:, None]
        return (vectors.T @ vectors,)

    (total,) = rows.sum_weighted(part)
    return np.asarray(total)
