"""Rounded normals, l2-Laplace vectors and private choices have the law they should, from
cryptographic words.

False-alarm rates: every statistical test below rejects at p < 1e-8, with fewer than 50 of them.
Power: sabotaged samplers (half a unit of rounding bias, a repeated word, a truncated tail) are
rejected by the same tests.
"""

import multiprocessing
import threading

import numpy as np
import pytest
from scipy import stats

from dpconvex.core import normal_and_laplace
from dpconvex.core.calibration import grid_of
from dpconvex.core.noise_source import NoiseSource, Words
from dpconvex.core.normal_and_laplace import rounded_l2_laplace, rounded_normals
from dpconvex.releases.exponential_sampler import exponential_mechanism

LEVEL = 1e-8
RATIOS = [1.0, 1.375, 4.0, 61.7]


def cells_p_value(draws, ratio):
    """Chi-square of integers against P(k) = Phi((k + 1/2) / ratio) - Phi((k - 1/2) / ratio)."""
    most = 1
    while len(draws) * 2 * stats.norm.sf((most + 0.5) / ratio) > 20:
        most += 1
    edges = (np.arange(-most, most) + 0.5) / ratio
    expected = len(draws) * np.diff(stats.norm.cdf(np.r_[-np.inf, edges, np.inf]))
    clipped = np.clip(draws, -most, most) + most
    return stats.chisquare(np.bincount(clipped, minlength=2 * most + 1), expected).pvalue


def uniform_p_value(values, cells):
    return stats.chisquare(np.bincount(values, minlength=cells)).pvalue


def lag_p_value(draws):
    """Whether neighbouring draws are correlated, in size or in sign."""
    size = np.abs(draws) - np.abs(draws).mean()
    worst = 1.0
    for values in (np.sign(draws), size):
        products = values[1:] * values[:-1]
        z = products.sum() / np.sqrt((products**2).sum())
        worst = min(worst, 2 * stats.norm.sf(abs(z)))
    return worst


@pytest.mark.parametrize("ratio", RATIOS)
def test_small_cells_have_their_probabilities(ratio):
    assert cells_p_value(rounded_normals(Words(), ratio, 1_000_000), ratio) > LEVEL


@pytest.mark.parametrize("word_bits", [2, 3, 6])
def test_ties_everywhere_leave_the_law_as_it_is(word_bits):
    """With words of a few bits most comparisons are open at first; digits decide, and the law is
    the same.
    """
    ratio = 1.375
    size = 30_000
    bits = iter(np.random.default_rng(word_bits).integers(0, 2**word_bits, 200 * size).tolist())
    draws = np.empty(size, dtype=np.int64)
    for index in range(size):
        sign, whole, fraction = normal_and_laplace.exact_normal(bits.__next__, word_bits)
        cell = normal_and_laplace.round_normal_product(11, 3, whole, fraction)
        draws[index] = -cell if sign else cell
    assert cells_p_value(draws, ratio) > LEVEL


def test_ties_taken_for_ordered_are_caught(monkeypatch):
    def ordered(left, right, sides=1, twice=0):
        return (sides * left.value << right.bits) < (twice << right.bits) + right.value << left.bits

    monkeypatch.setattr(normal_and_laplace, "_normal_is_below", ordered)
    with pytest.raises(AssertionError):
        test_ties_everywhere_leave_the_law_as_it_is(2)


@pytest.mark.slow
@pytest.mark.parametrize("ratio", RATIOS)
def test_small_cells_have_their_probabilities_at_ten_million(ratio):
    assert cells_p_value(rounded_normals(Words(), ratio, 10_000_000), ratio) > LEVEL


def test_fine_grid_law_moments_and_low_bits():
    n = 1_000_000
    ratio = 1.7 * 2**22
    draws = rounded_normals(Words(), ratio, n)
    z = draws / ratio
    assert stats.kstest(z, "norm").pvalue > LEVEL
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        deviation = ((z**power).mean() - moment) / np.sqrt(variance / n)
        assert abs(deviation) < stats.norm.isf(LEVEL / 2)
    # Cells are far narrower than the density: low bits are uniform and say nothing of the high
    # ones.
    assert uniform_p_value(draws & 255, 256) > LEVEL
    table = np.histogram2d(draws & 15, np.clip(draws >> 21, -5, 4), bins=(16, 10))[0]
    assert stats.chi2_contingency(table).pvalue > LEVEL
    assert lag_p_value(z) > LEVEL


@pytest.mark.slow
def test_tails_to_one_in_ten_million():
    # A hundred million draws; expected beyond the last threshold: 10.
    thresholds = stats.norm.isf(np.array([1e-3, 1e-4, 1e-5, 1e-6, 1e-7]) / 2)
    counts = np.zeros(5, dtype=int)
    n = 0
    source = NoiseSource()
    for _ in range(100):
        sizes = np.abs(source.gaussian(1.0, 1_000_000))
        n += sizes.size
        counts += [(sizes > threshold).sum() for threshold in thresholds]
    for count, p in zip(counts, (1e-3, 1e-4, 1e-5, 1e-6, 1e-7), strict=True):
        assert stats.binomtest(int(count), n, p).pvalue > LEVEL
    assert counts[3] > 0


def test_ours_and_opendp_agree():
    ours = NoiseSource().gaussian(3.0, 20_000)
    theirs = NoiseSource(sampler="exact").gaussian(3.0, 20_000)
    assert stats.ks_2samp(ours, theirs).pvalue > LEVEL
    grid = grid_of(3.0)
    for draws in (ours, theirs):
        cells = (draws / grid).astype(np.int64)
        assert np.array_equal(cells * grid, draws)
        assert uniform_p_value(cells & 15, 16) > LEVEL


@pytest.mark.parametrize("size", [1, 2, 9])
def test_l2_laplace_norm_direction_and_low_bits(size):
    n = 8_000
    ratio = 1.3 * 2**22
    draws = np.array([rounded_l2_laplace(Words(), ratio, size) for _ in range(n)])
    norms = np.linalg.norm(draws / ratio, axis=1)
    assert stats.kstest(norms, "gamma", args=(size,)).pvalue > LEVEL
    assert stats.kstest(norms[: n // 2], norms[n // 2 :]).pvalue > LEVEL
    first = draws[:, 0] / ratio / norms
    if size == 1:
        assert stats.binomtest(int((first > 0).sum()), n).pvalue > LEVEL
    else:
        half = (size - 1) / 2
        assert stats.kstest((1 + first) / 2, "beta", args=(half, half)).pvalue > LEVEL
        correlation = stats.spearmanr(norms, first)
        assert correlation.pvalue > LEVEL
    assert uniform_p_value(draws[:, -1] & 15, 16) > LEVEL


def test_choices_follow_the_exponential_mechanism():
    scores = np.array([3, 0, 1, 1, 40])
    weights = np.array([5, 1, 2, 0, 10**9])
    rate = 0.7
    words = Words()
    drawn = np.bincount(
        [exponential_mechanism(words, scores, rate, weights) for _ in range(20_000)], minlength=5
    )
    masses = weights * np.exp(-rate * scores)
    assert drawn[3] == 0
    possible = masses > 0
    expected = 20_000 * masses[possible] / masses.sum()
    assert stats.chisquare(drawn[possible], expected).pvalue > LEVEL


def _draw_for(queue):
    queue.put(NoiseSource().gaussian(1.0, 3).tolist())


def test_forked_children_draw_differently():
    source = NoiseSource()
    source.gaussian(1.0, 3)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_draw_for, args=(queue,)) for _ in range(4)]
    for child in children:
        child.start()
    drawn = [queue.get(timeout=60) for _ in children] + [source.gaussian(1.0, 3).tolist()]
    for child in children:
        child.join()
    assert len({number for numbers in drawn for number in numbers}) == 15


def test_threads_draw_differently():
    source = NoiseSource()
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(source.words.take(1).tolist()[0] for _ in range(2_000))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(set(found)) == 8_000


class Repeating(Words):
    """A broken generator that gives every word twice."""

    def take(self, count):
        return np.repeat(super().take(-(-count // 2)), 2)[:count]


def test_repeated_words_are_refused():
    """Comparisons of a number with itself stay open for ever."""
    with pytest.raises(RuntimeError, match="generator repeats itself"):
        rounded_normals(Repeating(), 4.0, 1_000_000)


class Echoing(Words):
    """A broken generator whose every tenth word is the one before it."""

    def take(self, count):
        words = super().take(count).copy()
        words[10::10] = words[9:-1:10]
        return words


def test_a_repeated_word_is_caught():
    draws = rounded_normals(Echoing(), 4.0, 1_000_000)
    assert min(cells_p_value(draws, 4.0), lag_p_value(draws)) < LEVEL


def test_words_offered_twice_are_caught():
    """A refill that hands out old words again: stretches of numbers come twice."""

    class Stuck(Words):
        kept = None

        def take(self, count):
            if self.kept is None or self.kept.size < count:
                self.kept = super().take(count)
            return self.kept[:count]

    broken, sound = (rounded_normals(words, 2.0**22, 40_000) for words in (Stuck(), Words()))
    assert len(np.unique(broken)) < 30_000 < 39_000 < len(np.unique(sound))


def test_half_a_unit_of_rounding_bias_is_caught():
    draws = rounded_normals(Words(), 4.0 * 2**20, 1_000_000)
    assert (
        cells_p_value((draws + 2**19) >> 20, 4.0) > LEVEL
    )  # rounded to the nearest cell once more
    assert cells_p_value(draws >> 20, 4.0) < LEVEL  # rounded down


def beyond_four_p_value(draws, ratio):
    count = int((np.abs(draws) > 4 * ratio).sum())
    return stats.binomtest(count, len(draws), 2 * stats.norm.sf(4)).pvalue


def test_a_truncated_tail_is_caught(monkeypatch):
    ratio = 2.0**22
    assert beyond_four_p_value(rounded_normals(Words(), ratio, 1_000_000), ratio) > LEVEL
    short = normal_and_laplace._WHOLE_PARTS.copy()
    short[3:] = 2**63  # no pick is as large
    monkeypatch.setattr(normal_and_laplace, "_WHOLE_PARTS", short)
    assert beyond_four_p_value(rounded_normals(Words(), ratio, 1_000_000), ratio) < LEVEL
