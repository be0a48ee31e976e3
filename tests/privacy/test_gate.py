"""The gate: grids, exact sums, every input; samplers against exact arithmetic, word by word."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpconvex.core import normal_and_laplace
from dpconvex.core.calibration import GRID_BITS, RESERVED, grid_of
from dpconvex.core.certificate import MOST_EPSILON, CertificateError, CertifiedNoise
from dpconvex.core.noise_source import (
    FAILURE_PROBABILITY,
    TAIL_PROBABILITY,
    NoiseSource,
    Words,
    on_grid,
)
from dpconvex.core.queries import pack_query_matrix, unpack_query_matrix
from dpconvex.losses import Logistic
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.privacy import ApproxDP, LinearBounds
from dpconvex.releases.exponential_sampler import exponential_mechanism

CAP = 2.0**1000


class Interval:
    """A uniform number by its first words, as rational ends of what it can be."""

    def __init__(self, words, low, width):
        self.words = words
        self.low = low
        self.width = width

    def halve(self):
        self.low += self.width * Fraction(next(self.words), 2**64)
        self.width /= 2**64


def certainly_below(left, right, sides=1, whole=0):
    """Whether ``sides left < whole + right``; where that is open, the coarser number gets a word
    of digits.
    """
    while True:
        if sides * (left.low + left.width) <= whole + right.low:
            return True
        if sides * left.low >= whole + right.low + right.width:
            return False
        (right if right.width > left.width else left).halve()


def ideal(words, ratio, limit=10**9):
    """Rounded normals by exact rational arithmetic from the same words."""
    words = iter(words)
    numbers = []
    masses = [mpmath.exp(-mpmath.mpf(k * k) / 2) for k in range(40)]
    sums = [mpmath.fsum(masses[: k + 1]) / mpmath.fsum(masses) for k in range(40)]

    def uniform():
        return Interval(words, Fraction(next(words), 2**64), Fraction(1, 2**64))

    def whole_part(pick):
        while True:
            ends = [
                mpmath.mpf(e.numerator) / e.denominator for e in (pick.low, pick.low + pick.width)
            ]
            k = sum(ends[0] >= s for s in sums)
            if ends[1] <= sums[k]:
                return k
            pick.halve()

    def accepted(k, x):
        for _ in range(k + 1):
            last = x
            length = 0
            while True:
                z = uniform()
                if not certainly_below(z, last) or not certainly_below(
                    uniform(), x, 2 * k + 2, 2 * k
                ):
                    break
                last = z
                length = length + 1
            if length % 2:
                return False
        return True

    try:
        while len(numbers) < limit:
            first = next(words)
            pick = Interval(words, Fraction(first >> 1, 2**63), Fraction(1, 2**63))
            x = uniform()
            k = whole_part(pick)
            if not accepted(k, x):
                continue
            while True:
                low = Fraction(ratio) * (k + x.low)
                width = Fraction(ratio) * x.width
                size = math.floor(low + Fraction(1, 2))
                if size == math.ceil(low + width + Fraction(1, 2)) - 1:
                    break
                x.halve()
            numbers.append(-size if first & 1 else size)
    except StopIteration:
        pass
    return numbers


def drawn(words, ratio, size):
    """As many of `size` numbers as the words last for."""
    out = np.zeros(size, dtype=np.int64)
    significand, exponent = math.frexp(ratio)
    filled, used, is_open = normal_and_laplace._fill_rounded_normals(
        np.array(words, dtype=np.uint64),
        normal_and_laplace._WHOLE_PARTS,
        np.uint64(int(significand * 2**53)),
        np.uint64(53 - exponent),
        out,
        0,
    )
    assert not is_open
    return out[:filled].tolist(), used


class Portions(Words):
    """Given words, some at a time."""

    def __init__(self, words, most=10**6):
        self.words = np.array(words, dtype=np.uint64)
        self.most = most

    def take(self, count):
        count = min(count, self.most)
        assert self.words.size
        taken = self.words[:count]
        self.words = self.words[count:]
        return taken


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
    """Words in small portions give the numbers that all at once give: none is dropped or used
    for two.
    """

    words = np.random.default_rng(1).integers(0, 2**64, 400_000, dtype=np.uint64)
    runs = [
        normal_and_laplace.rounded_normals(Portions(words, most), 2.0**22, 500)
        for most in (3, 50, 10**6)
    ]
    assert np.array_equal(runs[0], runs[1])
    assert np.array_equal(runs[0], runs[2])


def words_with_ties(count, seed):
    """Words of which many are equal, halves of each other, or edges of whole parts."""
    rng = np.random.default_rng(seed)
    few = [*rng.integers(0, 2**63, 6, dtype=np.uint64).tolist(), 0, 1, 2**64 - 1]
    few += [word // 2 for word in few] + [word // 2 + 1 for word in few[:6]]
    # (2k + x) / (2k + 2) for k = 1, 2 and small x: dice that leave that comparison open.
    few += [((2 * k << 64) + x) // (2 * k + 2) for k in (1, 2) for x in few[:4]]
    few += [
        2 * edge + bit for edge in normal_and_laplace._WHOLE_PARTS[:4].tolist() for bit in (0, 1)
    ]
    plain = rng.integers(0, 2**64, count, dtype=np.uint64)
    return np.where(
        rng.random(count) < 0.7, rng.choice(np.array(few, dtype=np.uint64), count), plain
    )


@pytest.mark.parametrize("ratio", [1.0, math.pi * 2**22, 2.0**47])
@pytest.mark.parametrize("most", [5, 10**6])
def test_ties_are_decided_by_further_digits(ratio, most, monkeypatch):
    """Word by word as exact arithmetic decides, wherever 64 digits leave a comparison open."""
    opened = []
    slow = normal_and_laplace.exact_normal
    monkeypatch.setattr(
        normal_and_laplace, "exact_normal", lambda take: opened.append(1) or slow(take)
    )
    with mpmath.workdps(200):
        for seed in range(8):
            words = words_with_ties(20_000, seed)
            found = normal_and_laplace.rounded_normals(Portions(words, most), ratio, 150).tolist()
            assert found == ideal(words.tolist(), ratio, 150)
    assert len(opened) > 200  # of 1200 numbers


@pytest.mark.parametrize("place", ["pick", "last", "die"])
def test_each_kind_of_tie_is_noticed(place):
    """One tie each, decided one way and the other by the next word."""
    edge = int(normal_and_laplace._WHOLE_PARTS[0])
    with mpmath.workdps(60):
        exact = mpmath.mpf(2) ** 63 / mpmath.nsum(
            lambda k: mpmath.exp(-(k**2) / 2), [0, mpmath.inf]
        )
        further = int((exact - edge) * 2**64)
    x = 2**62 + 12345
    stream, decisions = {
        "pick": ([2 * edge, x], (further - 1, further + 1)),
        "last": ([0, x, x], (5, 2**64 - 5)),
        "die": ([0, x, 7, x // 2], (5, 2**64 - 5)),
    }[place]
    tail = np.random.default_rng(1).integers(0, 2**64, 500, dtype=np.uint64).tolist()
    results = []
    with mpmath.workdps(100):
        for decision in decisions:
            words = [*stream, decision, 2**63, *tail]
            out = np.zeros(1, dtype=np.int64)
            filled, used, is_open = normal_and_laplace._fill_rounded_normals(
                np.array(words, dtype=np.uint64),
                normal_and_laplace._WHOLE_PARTS,
                np.uint64(2**52),
                np.uint64(20),
                out,
                0,
            )
            assert (filled, used, is_open) == (0, 0, True)
            found = normal_and_laplace.rounded_normals(Portions(words), 2.0**32, 20).tolist()
            assert found == ideal(words, 2.0**32, 20)
            results.append(found)
    assert results[0] != results[1]


def test_whole_parts_are_right_to_the_last_bit():
    with mpmath.workdps(150):
        total = mpmath.fsum(mpmath.exp(-mpmath.mpf(k * k) / 2) for k in range(24))
        for bits in (63, 127, 400):
            running = mpmath.mpf(0)
            for k, threshold in enumerate(normal_and_laplace.normal_whole_part_sums(bits)[:-1]):
                running += mpmath.exp(-mpmath.mpf(k * k) / 2)
                assert threshold == int(mpmath.floor(2**bits * running / total))
            assert normal_and_laplace.normal_whole_part_sums(bits)[-1] == 2**bits
    assert normal_and_laplace._WHOLE_PARTS.tolist() == list(
        normal_and_laplace.normal_whole_part_sums(63)
    )


def test_stated_failure_covers_tails_and_choices():
    with mpmath.workdps(60):
        mass = mpmath.nsum(lambda k: mpmath.exp(-(k**2) / 2), [0, mpmath.inf])
        tail = mpmath.nsum(lambda k: mpmath.exp(-(k**2) / 2), [24, mpmath.inf]) / mass
        attempts = mass / mpmath.sqrt(mpmath.pi / 2)
        assert attempts < 1.41
        assert attempts * (tail + mpmath.mpf(2) ** -399) < normal_and_laplace.NORMAL_FAILURE
    assert normal_and_laplace.NORMAL_FAILURE < TAIL_PROBABILITY
    assert 3 * normal_and_laplace.NORMAL_FAILURE + 2.0**-140 < FAILURE_PROBABILITY
    # What calibrations keep in reserve is more, see the comment there.
    assert (1 + math.exp(MOST_EPSILON)) * 1e9 * TAIL_PROBABILITY < RESERVED * 1e-35


def test_tails_that_are_never_drawn_are_covered_or_refused(monkeypatch):
    """At (100, 1e-6) noise that stops at 14 standard deviations gives a delta of 8e-5."""
    bounds = LinearBounds(1000, 2, Logistic(), row_norm=1.0, max_norm=1.0)
    certificate = NoisyGradientDescent().certify(bounds, ApproxDP(100.0, 1e-6))
    certificate.verify()
    with pytest.raises(CertificateError, match="exact noise"):
        NoisyGradientDescent().certify(bounds, ApproxDP(140.0, 1e-50))
    monkeypatch.setattr("dpconvex.core.certificate.TAIL_PROBABILITY", 1e-42)
    with pytest.raises(CertificateError, match="exact noise"):
        certificate.verify()


@pytest.mark.parametrize("size", [1, 2, 5])
def test_l2_laplace_follows_exact_arithmetic(size, monkeypatch):
    rng = np.random.default_rng(4)
    ratio = 1.23 * 2**22
    for _ in range(50):
        z = [int(abs(z) * 2**60) << 132 for z in rng.normal(size=3 * size)]
        signs = rng.integers(0, 2, 3 * size).tolist()
        monkeypatch.setattr(
            normal_and_laplace, "normal_digits", lambda words, count, both=(signs, z): both
        )
        found = normal_and_laplace.rounded_l2_laplace(Words(), ratio, size)
        with mpmath.workdps(80):
            z = [mpmath.mpf(d) / mpmath.mpf(2) ** 192 for d in z]
            radius = ratio * mpmath.fsum(x * x for x in z[size:]) / 2
            norm = mpmath.sqrt(mpmath.fsum(x * x for x in z[:size]))
            expected = [int(mpmath.nint(radius * x / norm)) for x in z[:size]]
            assert found.tolist() == [-e if s else e for e, s in zip(expected, signs, strict=False)]


def test_l2_laplace_takes_more_digits_where_they_decide(monkeypatch):
    """In one dimension b = ratio R sign: R just below an edge to 192 digits, and the next word
    decides.
    """
    ratio = 2.0**22
    cell = 12345
    # R = (z1^2 + z2^2) / 2 with z2 = 0, and ratio R = cell + 1/2 between z1 and z1 + 2^-192.
    square = ((2 * cell + 1) << 2 * 256) // 2**22
    exact = math.isqrt(square)
    first = exact >> 64
    threshold = exact % 2**64
    monkeypatch.setattr(
        normal_and_laplace, "normal_digits", lambda words, count: ([1, 0, 0], [1 << 192, first, 0])
    )
    for word, expected in ((threshold - 2, -cell), (threshold + 2, -cell - 1)):
        words = Portions([5, word, 0, *range(30)])
        assert normal_and_laplace.rounded_l2_laplace(words, ratio, 1).tolist() == [expected]
        assert words.words.size == 30


def test_normal_digits_are_the_rounded_numbers_in_full():
    words = np.random.default_rng(6).integers(0, 2**64, 9_000, dtype=np.uint64).tolist()
    signs, sizes = normal_and_laplace.normal_digits(Portions(words, 40), 100)
    stream = iter(words)
    for sign, size in zip(signs, sizes, strict=True):
        exact_sign, whole, x = normal_and_laplace.exact_normal(stream.__next__)
        x.extend()
        x.extend()
        assert (sign, size) == (exact_sign, (whole << 192) + x.value)
    # With ties, all digits that were looked at are kept.
    words = words_with_ties(9_000, 3)
    signs, sizes = normal_and_laplace.normal_digits(Portions(words), 100)
    stream = iter(words.tolist())
    for sign, size in zip(signs, sizes, strict=True):
        exact_sign, whole, x = normal_and_laplace.exact_normal(stream.__next__)
        while x.bits < 192:
            x.extend()
        assert (sign, size) == (exact_sign, (whole << 192) + (x.value >> (x.bits - 192)))


@pytest.mark.parametrize("scale", [2.0**-22, 0.3, 1.0, 1.9999, 2.0, 1e9, 1e-200, 1e200])
def test_grid_is_public_and_fine(scale):
    grid = grid_of(scale)
    assert math.frexp(grid)[0] == 0.5
    assert 2.0**GRID_BITS <= scale / grid < 2.0 ** (GRID_BITS + 1)
    term = CertifiedNoise("gaussian", scale, 1.5 * scale, 9, "sum")
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
    """Beyond 2^53 cells the release is the exact sum of whole numbers, rounded to the nearest
    float64.
    """
    grid = grid_of(1e-16)
    value = np.array([1 / 3, 12345.678, -1e10])
    noise = (NoiseSource(2).gaussian(1e-16, 3) / grid).astype(int).tolist()
    released = NoiseSource(2).add_gaussian(value, 1e-16)
    for given, added, found in zip((value / grid).tolist(), noise, released.tolist(), strict=True):
        assert found == float((round(given) + added) * Fraction(grid))


@pytest.mark.parametrize("law", ["gaussian", "l2-laplace"])
def test_release_is_rounded_value_plus_noise_that_does_not_know_it(law):
    """The same words, three values: the releases differ by exactly what the rounded values
    differ.
    """
    term = CertifiedNoise(law, 0.7, 1.0, 3, "sum")
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
    """In floating point, sums of 1/3 and noise fall on other numbers than noise alone: an attack
    by their bits.
    """
    term = CertifiedNoise(law, 1.3, 1.0, 1, "sum")
    for value in (0.0, 1 / 3, 1e-17, -7.77e5):
        released = np.concatenate(
            [NoiseSource(sampler=sampler).add([value], term) for _ in range(100)]
        )
        assert np.array_equal(released * 2.0**GRID_BITS, np.rint(released * 2.0**GRID_BITS))


def test_symmetric_matrices_keep_their_shape_and_frobenius_law():
    matrix = np.array([[2.0, 0.5, -1.0], [0.5, 3.0, 0.25], [-1.0, 0.25, 4.0]])
    source = NoiseSource(0)
    term = CertifiedNoise("gaussian", 0.5, 1.0, 6, "sum")
    draws = np.array(
        [
            unpack_query_matrix(source.add(pack_query_matrix(matrix), term), 3) - matrix
            for _ in range(4_000)
        ]
    )
    assert np.array_equal(draws, draws.transpose(0, 2, 1))
    spread = draws.std(axis=0)
    expected = 0.5 * np.where(np.eye(3), 1, 1 / math.sqrt(2))
    np.testing.assert_allclose(spread, expected, rtol=0.08)


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
    scores = [5, 2, 100, 3, 2]
    weights = [7, 1, 3, 0, 9]
    rate = 0.37
    masses = []

    class Boundaries(Words):
        def below(self, bound):
            masses.append(bound)
            return self.answer

    words = Boundaries()
    words.answer = 0
    exponential_mechanism(words, scores, rate, weights)
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
            assert exponential_mechanism(words, scores, rate, weights) == index
            if index != 2:
                words.answer = int(edge * (1 + mpmath.mpf(10) ** -40))
                assert exponential_mechanism(words, scores, rate, weights) != index


def test_far_scores_are_left_out_and_ties_without_width_too():
    words = Words()
    assert {exponential_mechanism(words, [10**6, 0, 10**9], 1.0) for _ in range(50)} == {1}
    assert exponential_mechanism(words, [0, 10**7], 0.5, [0, 1]) == 1


@pytest.mark.parametrize("bound", [1, 2, 3, 2**64, 2**64 + 1, 10**50])
def test_uniform_integers_stay_below_their_bound(bound):
    words = Words()
    drawn_integers = [words.below(bound) for _ in range(200)]
    assert all(0 <= number < bound for number in drawn_integers)
    if bound > 10**10:
        assert len(set(drawn_integers)) == 200
        assert max(drawn_integers) > bound // 2


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 8, 9])
def test_integers_below_a_bound_are_all_drawn(bound):
    """One of 9 is missed by 2,000 draws with a probability below 1e-100."""
    words = Words(np.random.default_rng(bound))
    assert {words.below(bound) for _ in range(2000)} == set(range(bound))
