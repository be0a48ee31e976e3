"""The gate: grids, exact sums, every input; samplers against exact arithmetic, word by word."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpconvex.mechanisms.symmetric import release_symmetric
from dpconvex.privacy.calibration import GRID_BITS, grid_of
from dpconvex.privacy.noise import (
    NoiseSource,
    Words,
    choose,
    laplace,
    normal,
    on_grid,
)
from dpconvex.privacy.terms import NoiseTerm

CAP = 2.0**1000


def ideal(words, ratio):
    """Rounded normals by exact rational arithmetic from the same words, and how many words they used."""
    words, numbers = iter(words), []
    masses = [mpmath.exp(-mpmath.mpf(k * k) / 2) for k in range(40)]
    sums = [mpmath.fsum(masses[: k + 1]) / mpmath.fsum(masses) for k in range(40)]

    def uniform():
        return Fraction(next(words), 2**64)

    def accepted(k, x):
        for _ in range(k + 1):
            last, length = x, 0
            while True:
                z = uniform()
                if z >= last or uniform() * (2 * k + 2) >= 2 * k + x:
                    break
                last, length = z, length + 1
            if length % 2:
                return False
        return True

    try:
        while True:
            pick = next(words)
            k = sum(mpmath.mpf(pick >> 1) / 2**63 >= s for s in sums)
            x = uniform()
            if not accepted(k, x):
                continue
            low, width = Fraction(ratio) * (k + x), Fraction(ratio) / 2**64
            while math.floor(low + Fraction(1, 2)) != math.ceil(low + width + Fraction(1, 2)) - 1:
                low, width = low + width * uniform(), width / 2**64
            size = math.floor(low + Fraction(1, 2))
            numbers.append(-size if pick & 1 else size)
    except StopIteration:
        return numbers


def drawn(words, ratio, size):
    """As many of `size` numbers as the words last for."""
    out = np.zeros(size, dtype=np.int64)
    significand, exponent = math.frexp(ratio)
    filled, used = normal._fill_rounded(
        np.array(words, dtype=np.uint64), normal._WHOLE_PARTS, np.uint64(int(significand * 2**53)),
        np.uint64(53 - exponent), out, 0,
    )  # fmt: skip
    return out[:filled].tolist(), used


@pytest.mark.parametrize("ratio", [1.0, 1.9999999999999998, math.pi * 2**22, 2.0**47])
def test_kernel_follows_exact_arithmetic_word_by_word(ratio):
    with mpmath.workdps(50):
        words = np.random.default_rng(5).integers(0, 2**64, 4_000, dtype=np.uint64).tolist()
        expected = ideal(words, ratio)
        numbers, _ = drawn(words, ratio, len(expected) + 5)
        assert numbers == expected
        assert len(numbers) > 500


def test_digits_beyond_the_first_word_decide_where_they_must():
    """First words that leave the rounding open, followed by all kinds of further digits."""
    ratio = math.pi * 2**22
    mantissa = int(math.frexp(ratio)[0] * 2**53)
    drop = 53 - math.frexp(ratio)[1]
    found = 0
    with mpmath.workdps(60):
        for cell in range(3, 4_000_000, 77_777):
            # The product reaches (cell + 1/2) 2^(drop + 64) between this first word and the next.
            edge = (2 * cell + 1) << (drop + 63)
            first = edge // mantissa
            threshold = (edge % mantissa) * 2**64 // mantissa
            for digits in ([threshold], [threshold + 1], [threshold - 1], [0], [2**64 - 1]):
                if not 0 <= digits[0] < 2**64:
                    continue
                words = [0, first, 2**64 - 1, *digits, 2**63, 12345]
                expected = ideal(words, ratio)[0]
                numbers, used = drawn(words, ratio, 1)
                assert numbers == [expected]
                assert expected in (cell, cell + 1)
                found += used > 3
    assert found > 100


def test_refills_change_nothing():
    """Words in small portions give the numbers that all at once give: none is dropped or used for two."""

    class Portions(Words):
        def __init__(self, sizes):
            self.words, self.sizes = np.random.default_rng(1).bytes(8 * 400_000), sizes

        def take(self, count):
            count = min(count, self.sizes)
            taken, self.words = self.words[: 8 * count], self.words[8 * count :]
            return np.frombuffer(taken, dtype=np.uint64)

    runs = [normal.rounded_normals(Portions(size), 2.0**22, 500) for size in (3, 50, 10**6)]
    assert np.array_equal(runs[0], runs[1])
    assert np.array_equal(runs[0], runs[2])


def test_whole_parts_are_right_to_the_last_of_63_bits():
    with mpmath.workdps(60):
        total = mpmath.nsum(lambda k: mpmath.exp(-(k**2) / 2), [0, mpmath.inf])
        running = mpmath.mpf(0)
        for k, threshold in enumerate(normal._WHOLE_PARTS.tolist()):
            running += mpmath.exp(-mpmath.mpf(k * k) / 2)
            assert abs(threshold - 2**63 * running / total) <= 0.5 + 1e-9
    assert normal._WHOLE_PARTS[-1] == 2**63


def test_stated_failure_covers_tables_and_ties():
    """Rounded thresholds, and 2^-64 for every comparison of two words."""
    words = np.random.default_rng(2).integers(0, 2**64, 700_000, dtype=np.uint64)
    numbers, used = drawn(words, 2.0**22, 100_000)
    per_number = used / len(numbers)
    assert 5.5 < per_number < 7  # no more words than that, and fewer comparisons than words
    attempts = 1.41  # sum of exp(-k^2 / 2) over the integral of exp(-x^2 / 2)
    assert attempts * 14 * 2.0**-64 + per_number * 2.0**-64 < normal.NORMAL_FAILURE
    assert 3 * normal.NORMAL_FAILURE < 1e-17


@pytest.mark.parametrize("size", [1, 2, 5])
def test_l2_laplace_follows_exact_arithmetic(size, monkeypatch):
    rng = np.random.default_rng(4)
    ratio = 1.23 * 2**22
    for _ in range(50):
        digits = [int(z * 2**60) << 68 for z in rng.normal(size=3 * size)]
        monkeypatch.setattr(normal, "normal_digits", lambda words, count, d=digits: d)
        found = laplace.rounded_l2_laplace(Words(), ratio, size)
        with mpmath.workdps(80):
            z = [mpmath.mpf(d) / mpmath.mpf(2) ** 128 for d in digits]
            radius = ratio * mpmath.fsum(x * x for x in z[size:]) / 2
            norm = mpmath.sqrt(mpmath.fsum(x * x for x in z[:size]))
            assert found.tolist() == [int(mpmath.nint(radius * x / norm)) for x in z[:size]]


def test_normal_digits_are_the_rounded_numbers_in_full():
    words = np.random.default_rng(6).integers(0, 2**64, 900, dtype=np.uint64).tolist()
    out = np.zeros((100, 3), dtype=np.uint64)
    normal._fill_digits(np.array(words, dtype=np.uint64), normal._WHOLE_PARTS, out, 0)
    rounded, _ = drawn(words, 2.0**22, 100)
    for (sign, whole, first), number in zip(out.tolist(), rounded, strict=True):
        assert abs((1 - 2 * sign) * (whole + first / 2**64) * 2**22 - number) <= 0.5
    assert all(abs(z) < 8 << 128 for z in normal.normal_digits(Words(), 50))


@pytest.mark.parametrize("scale", [2.0**-22, 0.3, 1.0, 1.9999, 2.0, 1e9, 1e-200, 1e200])
def test_grid_is_public_and_fine(scale):
    grid = grid_of(scale)
    assert math.frexp(grid)[0] == 0.5
    assert 2.0**GRID_BITS <= scale / grid < 2.0 ** (GRID_BITS + 1)
    term = NoiseTerm("gaussian", scale, 1.5 * scale, 9, "sum")
    assert term.rounded_sensitivity == pytest.approx(1.5 * scale + 3 * grid, rel=1e-15)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 1e-300])
def test_scales_that_have_no_grid_are_refused(scale):
    with pytest.raises(ValueError, match="positive, finite scale"):
        NoiseSource().gaussian(scale, 1)


def test_values_are_rounded_to_the_nearest_cell_whatever_they_are():
    values = [0.0, 0.49999999999999994, 0.5, -0.5, 1.5, -2.6, 1e300, -math.inf, math.nan, 5e-324]
    assert on_grid(values, 1.0).tolist() == [0, 0, 0, 0, 2, -3, 1e300, -CAP, 0, 0]
    for exponent in (-900, 900):
        assert on_grid(math.ldexp(3.2, exponent), math.ldexp(1.0, exponent)) == 3
    assert on_grid([1e300, 1e-300], 2.0**-900).tolist() == [CAP, 0]
    for scale in (1e-280, 1.0, 1e280):
        released = NoiseSource().add_gaussian([math.inf, math.nan, -1e308], scale)
        assert np.isfinite(released).all()


def test_noise_far_below_the_value_is_added_exactly_and_then_rounded():
    """Beyond 2^53 cells the release is the exact sum of whole numbers, rounded to the nearest float64."""
    grid, value = grid_of(1e-16), np.array([1 / 3, 12345.678, -1e10])
    noise = (NoiseSource(2).gaussian(1e-16, 3) / grid).astype(int).tolist()
    released = NoiseSource(2).add_gaussian(value, 1e-16)
    for given, added, found in zip((value / grid).tolist(), noise, released.tolist(), strict=True):
        assert found == float((round(given) + added) * Fraction(grid))


@pytest.mark.parametrize("law", ["gaussian", "l2-laplace"])
def test_release_is_rounded_value_plus_noise_that_does_not_know_it(law):
    """The same words, three values: the releases differ by exactly what the rounded values differ."""
    term = NoiseTerm(law, 0.7, 1.0, 3, "sum")
    grid = grid_of(0.7)
    zero = NoiseSource(3).add(np.zeros(3), term)
    value = np.array([1 / 3, -1e6, 0.1])
    moved = NoiseSource(3).add(value, term)
    assert ((moved - zero) / grid).tolist() == np.rint(value / grid).tolist()
    assert np.array_equal(zero, NoiseSource(3).draw(term))
    assert np.array_equal(zero / grid, np.rint(zero / grid))


@pytest.mark.parametrize("law", ["gaussian", "l2-laplace"])
@pytest.mark.parametrize("sampler", ["auto", "exact"])
def test_supports_do_not_depend_on_data(law, sampler):
    """In floating point, sums of 1/3 and noise fall on other numbers than noise alone: an attack by their bits."""
    term = NoiseTerm(law, 1.3, 1.0, 1, "sum")
    for value in (0.0, 1 / 3, 1e-17, -7.77e5):
        released = np.concatenate(
            [NoiseSource(sampler=sampler).add([value], term) for _ in range(100)]
        )
        assert np.array_equal(released * 2.0**GRID_BITS, np.rint(released * 2.0**GRID_BITS))


def test_symmetric_matrices_keep_their_shape_and_frobenius_law():
    matrix = np.array([[2.0, 0.5, -1.0], [0.5, 3.0, 0.25], [-1.0, 0.25, 4.0]])
    source = NoiseSource(0)
    term = NoiseTerm("gaussian", 0.5, 1.0, 6, "sum")
    draws = np.array([release_symmetric(matrix, term, source) - matrix for _ in range(4_000)])
    assert np.array_equal(draws, draws.transpose(0, 2, 1))
    spread = draws.std(axis=0)
    expected = 0.5 * np.where(np.eye(3), 1, 1 / math.sqrt(2))
    np.testing.assert_allclose(spread, expected, rtol=0.08)
    quiet = NoiseTerm("gaussian", 1e-9, 1.0, 1, "sum")
    assert release_symmetric(np.array([[2.0]]), quiet, source) == pytest.approx(2.0, abs=1e-6)


def test_seeded_sources_repeat_and_others_do_not():
    assert np.array_equal(NoiseSource(1).gaussian(1.0, 9), NoiseSource(1).gaussian(1.0, 9))
    assert not np.array_equal(NoiseSource().gaussian(1.0, 9), NoiseSource().gaussian(1.0, 9))
    assert np.array_equal(NoiseSource(1).l2_laplace(1.0, 9), NoiseSource(1).l2_laplace(1.0, 9))
    generator = np.random.default_rng(1)
    first = NoiseSource(generator).gaussian(1.0, 9)
    assert not np.array_equal(first, NoiseSource(generator).gaussian(1.0, 9))
    with pytest.raises(ValueError, match="'sampler' parameter must be one of"):
        NoiseSource(sampler="fast")


def test_masses_of_choices_are_right_to_forty_digits():
    scores, weights, rate = [5, 2, 100, 3, 2], [7, 1, 3, 0, 9], 0.37
    masses = []

    class Boundaries(Words):
        def below(self, bound):
            masses.append(bound)
            return self.answer

    words = Boundaries()
    words.answer = 0
    choose(words, scores, rate, weights)
    total = masses[0]
    with mpmath.workdps(80):
        exact = [
            w * mpmath.exp(-mpmath.mpf(rate) * (s - 2))
            for s, w in zip(scores, weights, strict=True)
        ]
        running = mpmath.mpf(0)
        for index in (1, 4, 0, 2):  # in order of scores
            # The last draw that belongs to this candidate, and the first one beyond it.
            running += exact[index]
            edge = running / mpmath.fsum(exact) * total
            words.answer = min(int(edge * (1 - mpmath.mpf(10) ** -40)), total - 1)
            assert choose(words, scores, rate, weights) == index
            if index != 2:
                words.answer = int(edge * (1 + mpmath.mpf(10) ** -40))
                assert choose(words, scores, rate, weights) != index


def test_far_scores_are_left_out_and_ties_without_width_too():
    words = Words()
    assert {choose(words, [10**6, 0, 10**9], 1.0) for _ in range(50)} == {1}
    assert choose(words, [0, 10**7], 0.5, [0, 1]) == 1


@pytest.mark.parametrize("bound", [1, 2, 3, 2**64, 2**64 + 1, 10**50])
def test_uniform_integers_stay_below_their_bound(bound):
    words = Words()
    drawn_integers = [words.below(bound) for _ in range(200)]
    assert all(0 <= number < bound for number in drawn_integers)
    if bound > 10**10:
        assert len(set(drawn_integers)) == 200
        assert max(drawn_integers) > bound // 2
