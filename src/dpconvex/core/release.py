r"""The one primitive between rows and noise: a handle that answers questions about rows, noisily.

A question is data. The answer is a sum over records of what each of them adds, clipped here to the bound that the
certificate states, plus the noise that it states; the use is counted, and one use too many raises before noise is
drawn. Whoever holds the handle may ask what he likes: he cannot learn more than the certificate says.

Why an answer has the sensitivity of its query:

1. What a record adds is computed from its own row, target and vote, public numbers, and the question, row by row in an
   order of operations that is the same whatever the other records are.
2. It is limited to the stated bound: rows by their own length, rounded up; slopes by their largest size; numbers to
   their range; counts and bins by construction.
3. Votes multiply it: of one row at most 1, of a person's rows together at most 1, of ignored rows 0.
4. The sum's rounding is paid for (:func:`dpconvex.core.queries.largest_cancellation`), which is why coordinates in
   which digits would be lost are refused.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.core.coordinates import Coordinates, RowLengths, cancellation, row_lengths
from dpconvex.core.queries import Query, largest_cancellation, pack_symmetric, prove_sums, unpack_symmetric
from dpconvex.core.slopes import Factor, Slope, registered_factor, registered_slope
from dpconvex.engine.accurate_products import MomentSums
from dpconvex.engine.blocks import by_nonzeros, row_margins
from dpconvex.engine.memory import MemoryRows
from dpconvex.engine.rows import Rows
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import CertificateError
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.noise import NoiseSource
from dpconvex.types import Array

__all__ = ["Answers", "PrivateRows", "Score", "Statistic", "finite_numbers", "positive_number"]


STATISTICS = ("target", "label", "length", "residual", "margin", "distance")
SCORES = ("residual", "lost squares")

_LARGEST = 1e100  # coefficients are kept within it: margins of bounded rows do not overflow
_TINY = 1e-300  # added to distances, whose logarithms are counted


@dataclass(frozen=True)
class Statistic:
    """A number of every record that may be counted.

    Parameters
    ----------
    name : {"target", "label", "length", "residual", "margin", "distance"}
        The target; -1 for a positive label and 0 for others; the base-2 logarithm of a row's length in coordinates;
        ``y - z`` or ``z`` with margins ``z = x . theta``; the base-2 logarithm of ``|z - centre|``.
    theta : array, optional
        Public or released coefficients of mapped rows.
    centre : float, default=0
        Of distances.
    coordinates : Coordinates, optional
        Of lengths.
    """

    name: str
    theta: ArrayLike | None = None
    centre: float = 0.0
    coordinates: Coordinates | None = None


@dataclass(frozen=True)
class Score:
    """A number of every record, at most 1 in size, that may be summed.

    Parameters
    ----------
    name : {"residual", "lost squares"}
        ``clip((y - z) / limit, -1, 1)``; or how much larger the squared residual of z is than that of ``centre``, in
        units of ``limit^2``, within [-1, 1] and in steps of 1/64.
    theta : array
        Public or released coefficients of mapped rows.
    limit : float
        Public or released.
    centre : float, default=0
        Prediction that the margin is compared with.
    """

    name: str
    theta: ArrayLike
    limit: float
    centre: float = 0.0


@dataclass(eq=False)
class Answers:
    """The terms of a certificate, how often each was used, and the gate behind which noise is added.

    Parameters
    ----------
    terms : mapping of str to NoiseTerm
        What the certificate allows.
    noise : NoiseSource
        Where noise comes from.
    """

    terms: Mapping[str, NoiseTerm]
    noise: NoiseSource
    used: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def claim(self, name: str, kinds: Sequence[str] = ("",), dimension: int | None = None) -> NoiseTerm:
        """Count a use of a term, or raise if the certificate does not allow for it; of no sum by default."""
        if type(name) is not str or name not in self.terms:
            raise CertificateError(f"The certificate states no release {name!r}.")
        term = self.terms[name]
        if term.kind not in kinds:
            raise CertificateError(
                f"The certificate's {name!r} is {term.kind or 'no sum'!r}, not {kinds[0] or 'no sum'!r}."
            )
        if dimension is not None and term.dimension != dimension:
            raise CertificateError(
                f"The certificate's {name!r} has {term.dimension} numbers, but the question has {dimension}."
            )
        with self._lock:
            used = self.used.get(name, 0)
            if used >= term.releases:
                raise CertificateError(
                    f"The certificate allows for {term.releases} releases of {name!r}, and all of them are used."
                )
            self.used[name] = used + 1
        return term

    def draw(self, term: NoiseTerm) -> Array:
        """Return the noise that a term states, for what is perturbed before it is solved."""
        return self.noise.draw(term)

    def release(self, term: NoiseTerm, exact: ArrayLike) -> Array:
        """Return numbers plus the noise that their term states, behind the gate."""
        value = np.array(exact, dtype=np.float64).ravel()
        if value.size != term.dimension:
            raise CertificateError("What is released has another size than its term states.")
        return self.noise.add(value, term)


Method = TypeVar("Method", bound=Callable[..., object])


def _question(method: Method) -> Method:
    """Answer one question at a time, whatever floating-point numbers do on the way: a signal would tell of rows."""

    @functools.wraps(method)
    def answer(self: PrivateRows, *asked: object, **more: object) -> object:
        with self._kept.lock, np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return method(self, *asked, **more)

    return cast(Method, answer)


class PrivateRows:
    """A handle on the rows of a linear model.

    Parameters
    ----------
    targets : sequence of engines
        The same mapped rows with each of their targets; the handle is on the first.
    certificate : Certificate
        Which questions may be asked, how often, and with which noise.
    noise : NoiseSource
        Where noise comes from.

    Attributes
    ----------
    bounds : LinearBounds
        Public facts of the records.
    terms : mapping of str to NoiseTerm
        What the certificate states: public.

    Notes
    -----
    Privacy: all answers together have the guarantee that :func:`~dpconvex.core.queries.prove_sums` composes from the
    stated terms, whatever is asked and in whatever order. Arguments are copied to plain arrays of numbers first.
    """

    def __init__(self, targets: Sequence[Rows], certificate: Certificate, noise: NoiseSource) -> None:
        if isinstance(certificate, Certificate):
            prove_sums(certificate)
        self.bounds: LinearBounds = certificate.bounds
        self.terms: Mapping[str, NoiseTerm] = MappingProxyType(dict(certificate.noise))
        self._answers = Answers(self.terms, noise)
        self._targets, self._rows = tuple(targets), targets[0]
        self._size: int | None = None  # of a part
        self._kept = _Kept()

    def target(self, number: int) -> PrivateRows:
        """Return the handle on the same rows with another of their targets."""
        return self._view(self._targets[number], None)

    def part(self, rows: int) -> PrivateRows:
        """Return the handle on a part of the records, which follows from their public number alone."""
        if self.bounds.neighbors != "replace_one":
            raise CertificateError("Which rows are a part of them is public only where their number is.")
        rows = int(rows)
        return self if rows >= self.bounds.n_samples else self._view(self._rows, rows)

    def _view(self, rows: Rows, size: int | None) -> PrivateRows:
        other = object.__new__(PrivateRows)
        vars(other).update(vars(self))
        other._rows, other._size = rows, size
        return other

    @_question
    def count(self, name: str, statistic: Statistic, point: float, level: float = 0.0) -> float:
        """Return how many records have a statistic below a point, plus noise.

        With a level in [0, 1] the count is centred, ``sum_i v_i (1[s_i < point] - level)``: 0 at that quantile however
        many records are ignored. The term may be one for another kind of sum: the count then stands in its first
        coordinate, in units in which it moves no further than that sum; a millionth less, which pays for rounding the
        product.
        """
        term = self._answers.claim(name, ("count", "vector", "histogram", "second moments"))
        # Only where rows may be ignored is the rounding of a centred count paid for.
        level = min(max(_number(level), 0.0), 1.0) if self.bounds.ignored_rows else 0.0
        exact = self._counter(statistic, level)(_number(point))
        if term.kind == "count":
            return float(self._answers.release(term, [exact])[0])
        unit = self._count_unit(term)
        vector = np.zeros(term.dimension)
        vector[0] = unit * exact
        return float(self._answers.release(term, vector)[0]) / unit

    def count_std(self, name: str) -> float:
        """Return the standard deviation of the noise of :meth:`count`."""
        term = self.terms[name]
        return term.scale if term.kind == "count" else term.scale / self._count_unit(term)

    def _count_unit(self, term: NoiseTerm) -> float:
        return (1 - 2.0**-20) * term.sensitivity / Query("count").sensitivity(self.bounds)

    @_question
    def histogram(self, name: str, statistic: Statistic, edges: ArrayLike, by_label: bool = False) -> Array:
        """Return how many records lie between edges, the outermost bins with all beyond, plus noise.

        With labels the counts of negative records come first.
        """
        inner = np.unique(finite_numbers(edges))
        bins = inner.size + 1
        term = self._answers.claim(name, ("histogram",), bins * (2 if by_label else 1))
        if term.bound < 1:
            raise CertificateError(f"The certificate's {name!r} is for less than one histogram.")
        rows, value = self._valued(statistic)

        def part(y: Array, w: Array, v: Array) -> tuple[Array]:
            places = np.searchsorted(inner, value(y, w), side="right")
            if by_label:
                places = places + bins * (y > 0)
            return (np.asarray(np.bincount(places, v, minlength=term.dimension), np.float64),)

        (exact,) = rows.sum_targets(part)
        counts = self._answers.release(term, exact)
        return counts.reshape(2, bins) if by_label else counts

    @_question
    def column_octaves(self, name: str, above: int, octaves: int) -> Array:
        """Return in which signed octave below ``2^above`` the values of every column lie, plus noise.

        A column has ``2 octaves + 1`` bins: from large negative values to large positive ones, with zeros and what is
        smaller than all octaves in the middle.
        """
        above, bins = int(above), 2 * int(octaves) + 1
        lead, columns, rows = self._lead, self.bounds.n_features, self._own_rows
        term = self._answers.claim(name, ("histogram",), bins * columns)
        if term.bound < columns:
            raise CertificateError(f"The certificate's {name!r} is for fewer columns.")

        @by_nonzeros(lambda rows: (rows.octave_counts(bins, above).ravel(),))
        def part(block: Array, y: Array, w: Array, v: Array | None = None) -> tuple[Array]:
            from dpconvex.engine.mapping import count_octaves

            counts = np.zeros((columns, bins))
            count_octaves(block, _votes(w, v), lead, above, counts)
            return (counts.ravel(),)

        (exact,) = rows.sum_votes(part) if rows.voted else rows.sum(part)
        return self._answers.release(term, exact).reshape(columns, bins)

    @_question
    def slope_sum(
        self, name: str, theta: ArrayLike, slope: Slope, coordinates: Coordinates, unit: float = 1.0
    ) -> Array:
        """Return ``sum_i s_i u_i`` over records, no term longer than ``bound * unit``, plus noise of ``std * unit``.

        u are rows in the coordinates, s slopes at the margins of ``theta``; rows longer than ``bound * unit`` over the
        largest slope count less, as the slope says.
        """
        slope = registered_slope(slope, self.bounds.loss)
        frame, unit = self._checked(coordinates), positive_number(unit)
        point = finite_numbers(theta, self.bounds.dimension)
        term = self._answers.claim(name, ("vector",), self.bounds.dimension)
        rows = self._weighted(frame, slope.weighting, term.bound * unit / slope.largest)
        if slope.loss is not None and slope.loss.kind == "margin":
            rows = rows.with_labels()  # slopes of margins grow with the label
        (total,) = rows.combine(point, slope)
        exact = frame.of_sum(np.asarray(total)) / unit
        return self._answers.release(term, exact) * unit

    @_question
    def second_moments(
        self,
        name: str,
        coordinates: Coordinates,
        radius: float,
        factor: Factor | None = None,
        theta: ArrayLike | None = None,
    ) -> Array:
        r"""Return ``sum_i f_i^2 u_i u_i^T / radius^2`` over records, plus noise on the packed matrix.

        u are rows in the coordinates and f factors, or 1; no vector ``f u`` is longer than the radius.
        """
        frame, radius = self._checked(coordinates), positive_number(radius)
        size = self.bounds.dimension
        term = self._answers.claim(name, ("second moments",), size * (size + 1) // 2)
        if term.bound != 1:
            raise CertificateError(f"The certificate's {name!r} is not for vectors of length 1.")
        if factor is None:
            exact = _moment_sums(self._measured(frame), frame, radius)
        else:
            factor = registered_factor(factor, self.bounds.loss)
            rows = self._weighted(frame, factor.weighting, radius)
            exact = _product_sums(rows, frame, finite_numbers(theta, size), radius, factor)
        return unpack_symmetric(self._answers.release(term, pack_symmetric(exact)), size)

    @_question
    def limited_sum(self, name: str, score: Score) -> float:
        """Return the sum of a score over records, plus noise."""
        term = self._answers.claim(name, ("limited sum",), 1)
        if term.bound < 1:
            raise CertificateError(f"The certificate's {name!r} is for smaller scores.")
        limit, centre = positive_number(score.limit), _number(score.centre)
        if score.name not in SCORES:
            raise ValueError(f"A score must be one of {list(SCORES)}. Got {score.name!r} instead.")
        residual = score.name == "residual"

        def part(y: Array, z: Array, v: Array) -> tuple[Array]:
            if residual:
                scores = np.clip(np.nan_to_num((y - z) / limit), -1.0, 1.0)
            else:
                # The difference of both squares as a product: squares alone may exceed all numbers.
                lost = (z - centre) / limit * (((z - y) + (centre - y)) / limit)
                # In parts of 64, whose sums are exact where every row is a record.
                scores = np.round(64 * np.clip(np.nan_to_num(lost), -1.0, 1.0)) / 64
            return (np.array([float(v @ scores)]),)

        rows = self._own_rows.predicted(finite_numbers(score.theta, self.bounds.dimension))
        (exact,) = rows.sum_targets(part)
        return float(self._answers.release(term, exact)[0])

    @property
    def _lead(self) -> int:
        return int(self.bounds.fit_intercept)

    @property
    def _own_rows(self) -> Rows:
        """The rows of this view."""
        return self._rows if self._size is None else self._kept.part(self._rows, self._size)

    def _checked(self, coordinates: Coordinates) -> Coordinates:
        """Return a copy of coordinates in which sums keep their digits; raise for others."""
        size = self.bounds.dimension
        matrix = finite_numbers(coordinates.matrix)
        if matrix.shape not in ((size,), (size, size)):
            raise ValueError("Coordinates must be a square matrix, or its diagonal.")
        # How bounds of lengths are computed depends on the number of rows, which must be public for that.
        public = self.bounds.neighbors == "replace_one" and not self.bounds.people
        public = public and self.bounds.rows_per_person == 1
        excess = min(max(float(coordinates.excess), 0.0), 1.0) if public else 0.0
        added = abs(_number(coordinates.added_length))
        own = Coordinates(matrix, self._lead, excess, added)
        return self._kept.coordinates(own, largest_cancellation(self.bounds))

    def _measured(self, frame: Coordinates) -> Rows:
        """Return rows with their lengths in place of weights."""
        lengths, key = RowLengths(frame), ("length", *_key(frame))
        if self._size is not None and not self._kept.holds(key):
            # A part alone is asked for: lengths of all rows would take longer.
            return self._kept.alone((*key, id(self._rows), self._size), lambda: self._own_rows.reweighted(lengths))
        return self._kept.rows(self, key, lambda: self._targets[0].reweighted(lengths))

    def _weighted(self, frame: Coordinates, weighting: str, limit: float) -> Rows:
        """Return rows with the weights of a slope in place of their own."""
        key, whole = (weighting, limit, *_key(frame)), self.target(0)
        weights = _Weights(weighting, limit)
        if self._size is not None and not self._kept.holds(key):
            # A part alone is asked for: weights of all rows would take longer.
            return self._kept.alone((*key, id(self._rows), self._size), lambda: self._measured(frame).rescaled(weights))

        def weigh() -> Rows:
            return whole._measured(frame).rescaled(weights)

        return self._kept.rows(self, key, weigh)

    def _valued(self, statistic: Statistic) -> tuple[Rows, Callable[[Array, Array], Array]]:
        """Return rows, and the function of their targets and weights that a statistic is."""
        name, centre = statistic.name, _number(statistic.centre)
        if name not in STATISTICS:
            raise ValueError(f"A statistic must be one of {list(STATISTICS)}. Got {name!r} instead.")
        if name == "target":
            return self._own_rows, lambda y, w: y
        if name == "label":
            return self._own_rows, lambda y, w: np.where(y > 0, -1.0, 0.0)
        if name == "length":
            if statistic.coordinates is None:
                raise ValueError("Lengths need coordinates.")
            frame = self._checked(statistic.coordinates)
            return self._measured(frame), lambda y, w: np.log2(w)
        theta = finite_numbers(statistic.theta, self.bounds.dimension)
        rows = self._own_rows.predicted(theta)
        if name == "residual":
            return rows, lambda y, z: y - z
        if name == "margin":
            return rows, lambda y, z: z
        return rows, lambda y, z: np.log2(np.abs(z - centre) + _TINY)

    def _counter(self, statistic: Statistic, level: float) -> Callable[[float], float]:
        """Return the function of a point that counts records below it; values are computed once for several points."""
        frame = statistic.coordinates
        key = (
            statistic.name,
            float(statistic.centre),
            None if statistic.theta is None else np.array(statistic.theta, np.float64).tobytes(),
            None if frame is None else _key(self._checked(frame)),
            id(self._rows),
            self._size,
            level,
        )

        def make() -> Callable[[float], float]:
            rows, value = self._valued(statistic)
            return rows.counter(value, level)

        return self._kept.counter(key, make)


@dataclass(frozen=True)
class _Weights:
    """Weights of rows by their length: see :data:`dpconvex.core.slopes.WEIGHTINGS`."""

    weighting: str
    limit: float

    def __call__(self, lengths: Array) -> Array:
        if self.weighting == "clip":
            return np.asarray(self.limit / lengths)
        weights = np.minimum(1.0, self.limit / lengths)
        return np.asarray(weights**2 if self.weighting == "square" else weights)


def _key(frame: Coordinates) -> tuple[bytes, float, float]:
    return frame.matrix.tobytes(), frame.excess, frame.added_length


class _Kept:
    """What was computed for the last question and may serve the next: coordinates, weights of rows, a counter."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._frame: tuple[object, Coordinates] | None = None
        self._whole: tuple[object, Rows] | None = None
        self._views: dict[tuple[int, int | None], Rows] = {}
        self._alone: tuple[object, Rows] | None = None
        self._parts: dict[tuple[int, int], Rows] = {}
        self._count: tuple[object, Callable[[float], float]] | None = None

    def coordinates(self, frame: Coordinates, most: float) -> Coordinates:
        """Return coordinates after a check that sums in them keep their digits."""
        key, kept = _key(frame), self._frame
        if kept is None or kept[0] != key:
            if not cancellation(frame.matrix) <= most:
                raise ValueError("In these coordinates sums of rows would lose their digits.")
            kept = self._frame = key, frame
        return kept[1]

    def holds(self, key: object) -> bool:
        """Return whether all rows have the weights of this key."""
        return self._whole is not None and self._whole[0] == key

    def rows(self, view: PrivateRows, key: object, make: Callable[[], Rows]) -> Rows:
        """Return the rows of a view with other weights, made once for all rows of the first target."""
        if not self.holds(key):
            whole = make()
            self._whole, self._alone, self._views = (key, whole), None, {}
        assert self._whole is not None
        place = id(view._rows), view._size
        if place not in self._views:
            rows = self._whole[1]
            if view._rows is not view._targets[0]:
                rows = cast(MemoryRows, view._rows).with_weights(cast(MemoryRows, rows).weights)
            self._views[place] = rows if view._size is None else rows.part(view._size)
        return self._views[place]

    def alone(self, key: object, make: Callable[[], Rows]) -> Rows:
        """Return a part of the rows with other weights, of which the rest of the rows has none."""
        if self._alone is None or self._alone[0] != key:
            self._alone = key, make()
        return self._alone[1]

    def part(self, rows: Rows, size: int) -> Rows:
        """Return a part of the rows."""
        if (id(rows), size) not in self._parts:
            self._parts[id(rows), size] = rows.part(size)
        return self._parts[id(rows), size]

    def counter(self, key: object, make: Callable[[], Callable[[float], float]]) -> Callable[[float], float]:
        """Return the counter of a statistic."""
        if self._count is None or self._count[0] != key:
            self._count = None  # its values are freed before others are computed
            self._count = key, make()
        return self._count[1]


def _number(value: float) -> float:
    """Return a number, never NaN."""
    return float(np.nan_to_num(float(value), nan=0.0, posinf=np.inf, neginf=-np.inf))


def positive_number(value: float) -> float:
    """Return a number between 1e-100 and 1e100, or raise: products with it neither under- nor overflow."""
    number = float(value)
    if not 1 / _LARGEST <= number <= _LARGEST:
        raise ValueError("A unit, radius or limit must be a number between 1e-100 and 1e100.")
    return number


def finite_numbers(values: ArrayLike | None, size: int | None = None) -> Array:
    """Return a new array of finite numbers: no subclass, no view, nothing that another thread may change."""
    if values is None:
        raise ValueError("The question needs coefficients.")
    copied = np.array(values, dtype=np.float64, copy=True, subok=False, order="C")
    if size is not None and copied.shape != (size,):
        raise ValueError(f"The question needs {size} numbers. Got shape {copied.shape} instead.")
    return np.clip(np.nan_to_num(copied, nan=0.0), -_LARGEST, _LARGEST)


def _votes(w: Array, v: Array | None) -> Array:
    """Return votes of rows by their weights: ignored rows, of weight 0, have none."""
    present = np.asarray(w > 0, dtype=np.float64)
    return present if v is None else present * v


def _moment_sums(measured: Rows, frame: Coordinates, radius: float) -> Array:
    """Return the sum over votes of ``u u^T`` of placed rows ``u = (1, x) / radius``, shortened to length 1."""

    @by_nonzeros(lambda rows: (rows.moment_sums(np.minimum(1 / radius, 1 / rows.weights)),))
    def part(block: Array, y: Array, w: Array, v: Array | None = None) -> tuple[Array]:
        shortened = frame.place(block)
        # Lengths of the very numbers that are summed: another product with the matrix could round differently.
        lengths = row_lengths(shortened, 0.0 if frame.lead else frame.added_length)
        factors = np.where(w == 0, 0.0, np.minimum(1 / radius, 1 / lengths))  # ignored rows
        shortened *= (factors if v is None else factors * np.sqrt(v))[:, None]
        return (shortened.T @ shortened,)

    (sums,) = measured.sum_votes(part) if measured.voted else measured.sum(part)
    if isinstance(sums, MomentSums):  # by non-zeros, in the rows' own coordinates
        matrix = frame.matrix if frame.stretches is None else frame.stretches
        return sums.mapped(matrix, measured.n_rows)
    return np.asarray(sums)


def _product_sums(rows: Rows, frame: Coordinates, theta: Array, radius: float, factor: Factor) -> Array:
    """Return the sum over votes of ``f^2 u u^T / radius^2`` of placed rows u.

    No vector ``f u / radius`` is longer than 1, whatever the factor says: its own computed length limits it.
    """

    def part(block: Array, y: Array, w: Array, v: Array | None = None) -> tuple[Array]:
        factors = np.nan_to_num(factor(y, row_margins(block, theta), w))
        vectors = frame.place(block)
        factors = np.minimum(np.abs(factors) / radius, 1 / row_lengths(vectors))
        vectors *= (factors if v is None else factors * np.sqrt(v))[:, None]
        return (vectors.T @ vectors,)

    (total,) = rows.sum_votes(part) if rows.voted else rows.sum(part)
    return np.asarray(total)
