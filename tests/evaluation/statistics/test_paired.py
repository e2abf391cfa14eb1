"""Intervals that cover what they say, p-values that agree with them, and corrections worked by hand."""

import time
from dataclasses import replace

import numpy as np
import pytest
from scipy import signal, stats

from seqmodels.evaluation.statistics.paired import (
    _satterthwaite,
    _tail_probability,
    _TDistribution,
    holm,
    moving_block_difference,
    paired_difference,
    politis_white_block,
)

TRUE = 0.3
# Differences of clusters by distribution, each with the mean it has in truth.
DISTRIBUTIONS = {
    "normal": (lambda rng, shape: rng.normal(size=shape), 0.0),
    "Student's, 3 degrees of freedom": (lambda rng, shape: rng.standard_t(3, shape), 0.0),
    "exponential": (lambda rng, shape: rng.exponential(size=shape), 1.0),
    "log-normal": (lambda rng, shape: rng.lognormal(size=shape), np.exp(0.5)),
    "minus log-normal": (lambda rng, shape: -rng.lognormal(size=shape), -np.exp(0.5)),
}


def clusters_of_unequal_size(rng, n):
    """Log-normal sizes; noise within clusters and between them, as of speakers with longer and shorter recordings."""
    units = rng.lognormal(5, 1, n)
    return TRUE * units + 10 * np.sqrt(units) * rng.normal(size=n) + 0.5 * units * rng.normal(size=n), units


def autoregressive(rng, n, phi):
    return signal.lfilter([1], [1, -phi], rng.normal(size=n + 200))[200:] + TRUE


def paired(d, units=None, **options):
    return paired_difference(d, np.zeros_like(d, dtype=float), np.ones(len(d)) if units is None else units, **options)


class TestPairedDifference:
    def test_the_difference_is_a_ratio_of_sums(self):
        result = paired_difference([-10.0, -1.0], [-14.0, -2.0], [8, 2])
        assert result.difference == pytest.approx((4 + 1) / 10)

    @pytest.mark.quick_cases(1)
    @pytest.mark.parametrize(("n", "repetitions"), [(5, 600), (10, 600), (40, 300)])
    def test_intervals_cover(self, n, repetitions):
        rng = np.random.default_rng(n)
        results = [paired(*clusters_of_unequal_size(rng, n)) for _ in range(repetitions)]
        assert {r.method for r in results} == {"t over clusters, corrected for skewness"}
        assert 0.93 < np.mean([r.low <= TRUE <= r.high for r in results]) < 0.985

    @pytest.mark.quick_cases(1)
    @pytest.mark.parametrize("distribution", DISTRIBUTIONS)
    @pytest.mark.parametrize("n", [5, 8, 12, 20, 50])
    def test_intervals_cover_skewed_differences(self, n, distribution):
        """Student's t covers 83 to 90 % of log-normal ones. Bounds are two standard errors (0.6 %) around the 94 to 96
        % that are promised.
        """
        draw, true = DISTRIBUTIONS[distribution]
        results = [paired(d) for d in draw(np.random.default_rng([1, n]), (1200, n))]
        assert 0.928 < np.mean([r.low <= true <= r.high for r in results]) < 0.973

    def test_the_limit_on_the_side_of_the_tail_is_further_out(self):
        d = np.array([0.0, 0.1, 0.2, 0.2, 0.3, 0.4, 0.5, 4.0])
        right, left = paired(d), paired(-d)
        assert right.high - right.difference > 2 * (right.difference - right.low)
        assert (left.low, left.high, left.p_value) == pytest.approx((-right.high, -right.low, right.p_value))
        scaled = paired(1e150 * d)
        assert (scaled.low, scaled.high) == pytest.approx((1e150 * right.low, 1e150 * right.high))

    @pytest.mark.parametrize("n", [60, 200])
    def test_many_clusters_of_one_size_without_skewness_are_near_students_t(self, n):
        half = np.random.default_rng(0).normal(0.5, 1, n // 2)
        d = np.concatenate([half, 1 - half])  # symmetric around 0.5
        result, oracle = paired(d), stats.ttest_1samp(d, 0)
        interval = oracle.confidence_interval()
        assert (result.low, result.high) == pytest.approx(tuple(interval), abs=0.02 * (interval.high - interval.low))
        assert result.p_value == pytest.approx(oracle.pvalue, rel=0.5)

    def test_unequal_clusters_have_a_t_of_their_own(self):
        """Its quantile, from draws of clusters of the variance it is made for: wider than Student's."""
        _, u = clusters_of_unequal_size(np.random.default_rng(3), 6)
        d = np.random.default_rng(4).normal(size=(400_000, 6)) * np.sqrt(u * (1 + u / u.mean()))
        ratio, share = d.sum(1, keepdims=True) / u.sum(), u / u.sum()
        error = np.sqrt(((d - ratio * u) ** 2 / (1 - share)).sum(1)) / u.sum()
        drawn = np.abs(ratio[:, 0]) / error
        distribution = _TDistribution.for_units(u)
        assert distribution.quantile(0.95) == pytest.approx(np.quantile(drawn, 0.95), rel=0.01)
        for t in (1.0, 3.0):
            assert distribution.p_value(t) == pytest.approx((drawn > t).mean(), abs=0.003)
        assert distribution.quantile(0.95) > 1.1 * stats.t.ppf(0.975, 5)

    def test_many_unequal_clusters_have_students_t_with_fewer_degrees_of_freedom(self):
        u = np.random.default_rng(5).lognormal(0, 0.7, 100)
        computed, approximate = _TDistribution.for_units(u), replace(_TDistribution.for_units(u), units=None)
        assert approximate.freedom < 60
        assert approximate.quantile(0.95) == pytest.approx(computed.quantile(0.95), rel=0.02)
        assert replace(_TDistribution.for_units(np.full(8, 3.0)), units=None) == _TDistribution(7, 1.0, None)
        assert np.allclose(_satterthwaite(np.full(8, 3.0)), (7, 1))

    @pytest.mark.parametrize(("n", "is_computed"), [(100, True), (101, False)])
    def test_up_to_a_hundred_unequal_clusters_have_the_computed_distribution(self, n, is_computed):
        u = np.random.default_rng(5).lognormal(0, 0.7, n)
        found, freedom_and_scale = _TDistribution.for_units(u), _satterthwaite(u)
        assert (found.freedom, found.scale) == freedom_and_scale
        freedom, scale = freedom_and_scale
        expected = _tail_probability(2.0, u) if is_computed else 2 * stats.t.sf(2.0 / scale, freedom)
        assert found.p_value(2.0) == pytest.approx(expected, rel=1e-10)
        assert _tail_probability(2.0, u) != pytest.approx(2 * stats.t.sf(2.0 / scale, freedom), rel=1e-6)

    def test_ten_thousand_clusters_take_no_time(self):
        rng = np.random.default_rng(6)
        d, u = rng.exponential(size=10_000), rng.integers(1, 9, 10_000)
        began = time.perf_counter()
        result = paired(d, u)
        assert time.perf_counter() - began < 0.5  # a bootstrap took longer
        assert result.high - result.low == pytest.approx(
            4 * np.std(d - result.difference * u) / u.mean() / 100, rel=0.05
        )

    def test_a_p_value_far_out_is_small_and_a_level_beyond_reach_has_no_end(self):
        d, u = np.array([5.0, 5.001, 5, 5, 5]), np.array([1.0, 1, 1, 1, 1])
        assert 0 <= paired(d, u).p_value < 1e-10
        assert paired([1.0, 2, 3, 4, 5], [1e9, 1, 1, 1, 1], level=1 - 1e-12).high == np.inf

    @pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
    @pytest.mark.parametrize("n", [5, 12, 30])
    def test_the_interval_leaves_out_zero_where_p_is_below_the_level_and_nowhere_else(self, n, level):
        rng = np.random.default_rng(2)
        for draw, true in DISTRIBUTIONS.values():
            results = [paired(draw(rng, n) - true + rng.normal(0, 1), level=level) for _ in range(60)]
            results += [paired(draw(rng, n) * u, u, level=level) for u in rng.lognormal(size=(3, n))]
            excludes_zero = [r.low > 0 or r.high < 0 for r in results]
            assert [r.p_value < 1 - level for r in results] == excludes_zero
            assert 0 < sum(excludes_zero) < len(results)

    def test_p_is_that_of_the_interval_which_ends_at_zero(self):
        d = np.random.default_rng(3).exponential(size=9) - 0.4
        found = paired(d)
        at = paired(d, level=1 - found.p_value)
        assert min(abs(at.low), abs(at.high)) < 1e-9 < found.p_value

    def test_level_widens(self):
        d = np.random.default_rng(4).normal(size=30)
        assert paired(d, level=0.99).high > paired(d, level=0.9).high

    def test_sequences_of_a_cluster_are_summed(self):
        rng = np.random.default_rng(6)
        names = np.repeat(["ann", "bob", "cy", "di", "ed", "flo"], 50)
        effect = np.repeat(rng.normal(size=6), 50)
        by_cluster = paired(effect, clusters=names)
        assert by_cluster.n_clusters == 6
        totals = paired(effect[::50] * 50, np.full(6, 50))
        assert (by_cluster.low, by_cluster.high) == pytest.approx((totals.low, totals.high))
        assert by_cluster.high - by_cluster.low > 4 * (paired(effect).high - paired(effect).low)

    def test_fewer_than_five_clusters_have_no_interval(self):
        result = paired([1.0] * 40, clusters=["a", "b", "c", "d"] * 10)
        assert result.difference == 1
        assert np.isnan([result.low, result.high, result.p_value]).all()
        assert result.method == "none: fewer than 5 clusters"

    def test_models_that_agree(self):
        for n in (8, 30):
            result = paired(np.zeros(n))
            assert (result.difference, result.low, result.high, result.p_value) == (0, 0, 0, 1)

    @pytest.mark.parametrize("n", [5, 30, 10_000])
    def test_one_cluster_with_every_difference_is_no_finding(self, n):
        result = paired([0.0] * (n - 1) + [1e6])
        assert result.low < 0 < result.high
        assert result.p_value > 0.05

    @pytest.mark.parametrize("n", [5, 30, 101])
    def test_differences_without_spread_are_certain(self, n):
        """But for rounding: sums of tenths are not exact."""
        units = np.arange(1.0, n + 1)
        for d, u in ((np.full(n, 0.1), np.ones(n)), (0.1 * units, units)):
            result = paired(d, u)
            assert (result.low, result.high) == pytest.approx((0.1, 0.1), abs=1e-12)
            assert result.p_value == 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (([0.0, -np.inf, np.nan], [0.0] * 3, [1] * 3), "2 of 3 sequences of the model are not finite"),
            (([0.0] * 3, [0.0, -np.inf, 0.0], [1] * 3), "1 of 3 sequences of the baseline"),
            (([0.0] * 3, [0.0] * 2, [1] * 3), r"shapes \(3,\) and \(2,\)"),
            (([0.0] * 3, [0.0] * 3, [1, 0, 1]), "sequence 1 has 0 units"),
            (([0.0] * 3, [0.0] * 3, [1, 1]), r"units have shape \(2,\)"),
            (([0.0] * 3, [0.0] * 3, [1] * 3, ["a", "b"]), "2 clusters but 3 sequences"),
            (([0.0] * 3, [0.0] * 3, [1] * 3, ["a", None, "b"]), "1 sequences have no cluster"),
        ],
    )
    def test_bad_input_is_named(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            paired_difference(*arguments)


class TestMovingBlocks:
    @pytest.mark.quick_cases(1)
    @pytest.mark.parametrize(("n", "phi"), [(400, 0.0), (1000, 0.6), (2000, 0.8)])
    def test_intervals_cover(self, n, phi):
        rng = np.random.default_rng(n)
        results = [moving_block_difference(autoregressive(rng, n, phi), np.zeros(n)) for _ in range(1200)]
        assert 0.93 <= np.mean([r.low <= TRUE <= r.high for r in results]) <= 0.97

    def test_p_value_agrees_and_units_rescale(self):
        rng = np.random.default_rng(8)
        for _ in range(50):
            d = autoregressive(rng, 200, 0.7)
            result = moving_block_difference(d, np.zeros(200))
            assert (result.p_value <= 0.05) == (result.low > 0 or result.high < 0)
        rescaled = moving_block_difference(d, np.zeros(200), n_units=100)
        assert (rescaled.low, rescaled.high) == pytest.approx((2 * result.low, 2 * result.high))
        assert rescaled.p_value == result.p_value

    def test_block_of_one_is_students_error(self):
        d = np.random.default_rng(9).normal(size=100)
        result = moving_block_difference(d, np.zeros(100), block=1)
        half = stats.t.ppf(0.975, 1.5 * 99) * d.std(ddof=1) / 10
        assert result.high - result.difference == pytest.approx(half)

    def test_the_block_follows_the_autocorrelation_and_is_reported(self):
        """For AR(1) the best length is known: ``(6 φ² / (1 - φ²)² T)^(1/3)``."""
        rng = np.random.default_rng(10)
        for phi in (0.5, 0.8):
            chosen = np.median([politis_white_block(autoregressive(rng, 4000, phi)) for _ in range(30)])
            best = (6 * phi**2 / (1 - phi**2) ** 2 * 4000) ** (1 / 3)
            assert 0.7 < chosen / best < 1.4
        d = autoregressive(rng, 1000, 0.9)
        result = moving_block_difference(d, np.zeros(1000))
        assert 100 < result.block == int(np.ceil(3 * politis_white_block(d)))
        assert result.method == f"moving blocks of {result.block} steps"
        assert result.n_clusters == 1000 // result.block

    @pytest.mark.slow
    def test_topics_under_noise_are_covered(self):
        """What no single autocorrelation shows: a block by them alone would cover 80 % here."""
        rng, n = np.random.default_rng(11), 5000
        topic = signal.lfilter([1], [1, -0.98], 0.03 * rng.normal(size=(600, n + 500)), axis=1)[:, 500:]
        results = [moving_block_difference(d, np.zeros(n)) for d in topic + rng.normal(size=(600, n)) + TRUE]
        assert np.median([politis_white_block(d) for d in topic[:20] + rng.normal(size=(20, n))]) < 30
        assert {r.block for r in results} == {500}
        assert 0.925 <= np.mean([r.low <= TRUE <= r.high for r in results]) <= 0.975

    def test_too_short_or_constant(self):
        assert moving_block_difference([1.0] * 10, [0.0] * 10).method == "none: fewer than 20 steps"
        assert moving_block_difference([1.0] * 40, [0.0] * 40, block=20).method == "none: fewer than 5 blocks"
        same = moving_block_difference([1.0] * 40, [1.0] * 40)
        assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)

    def test_bad_input_is_named(self):
        with pytest.raises(ValueError, match="1 of 30 steps of the model are not finite"):
            moving_block_difference([-np.inf] + [0.0] * 29, [0.0] * 30)
        with pytest.raises(ValueError, match="block is 31"):
            moving_block_difference([0.0] * 30, [0.0] * 30, block=31)


class TestHolm:
    def test_by_hand(self):
        # sorted .005 .01 .03 .04, times 4 3 2 1: .02 .03 .06 .04; never below the one before: .02 .03 .06 .06
        assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])

    def test_nan_stays_and_does_not_count(self):
        assert holm([0.01, np.nan, 0.02]) == pytest.approx([0.02, np.nan, 0.02], nan_ok=True)

    def test_no_more_than_one_and_empty(self):
        assert holm([0.6, 0.7]).tolist() == [1, 1]
        assert holm([]).shape == (0,)


class TestSeeds:
    @staticmethod
    def drawn(rng, n_seeds, n, of_seeds, of_both=0.0):
        """``(S, C)`` clusters of deviation 1, seeds and both of these."""
        both = of_both * rng.normal(size=(n_seeds, n))
        return TRUE + rng.normal(size=n) + of_seeds * rng.normal(size=(n_seeds, 1)) + both

    @pytest.mark.parametrize("n_seeds", [3, 10])
    @pytest.mark.parametrize("n", [5, 20])
    @pytest.mark.parametrize(("of_seeds", "of_both"), [(0.5, 0.0), (1.5, 0.0), (0.5, 0.5)])
    def test_intervals_hold_the_spread_of_seeds_and_of_clusters(self, n_seeds, n, of_seeds, of_both):
        rng = np.random.default_rng([n_seeds, n, int(10 * of_both)])
        each = [self.drawn(rng, n_seeds, n, of_seeds, of_both) for _ in range(500)]
        results = [paired(d, np.ones(n)) for d in each]
        assert 0.93 < np.mean([r.low <= TRUE <= r.high for r in results]) < 0.995
        alone = [paired(d.mean(axis=0), np.ones(n)) for d in each]
        covered_alone = np.mean([r.low <= TRUE <= r.high for r in alone])
        assert covered_alone < (0.92 if of_seeds > 1 else 0.97)

    def test_the_squared_error_is_that_of_an_analysis_of_variance(self):
        """Two ways with one value a cell: clusters, seeds and the rest, by mean squares; none of it is skewed."""
        d = self.drawn(np.random.default_rng(1), 4, 200, 2.0, 1.0)
        seeds, clusters = d.mean(axis=1), d.mean(axis=0)
        rest = d - seeds[:, None] - clusters + d.mean()
        shared = (rest**2).sum() / (3 * 199) / (4 * 200)
        over_seeds, over_clusters = seeds.var(ddof=1) / 4, clusters.var(ddof=1) / 200
        squared = over_clusters + over_seeds - shared
        raised = over_seeds * 5 / 3
        spread = over_clusters**2 / 199 + raised**2 / 3 + shared**2 / (3 * 199)
        freedom = (over_clusters + raised - shared) ** 2 / spread
        half = stats.t.ppf(0.975, freedom) * np.sqrt(squared)
        result = paired(d, np.ones(200))
        assert (result.high - result.low) / 2 == pytest.approx(half, rel=0.01)  # but for the factor of skewness

    def test_p_values_agree_with_the_intervals(self):
        rng = np.random.default_rng(2)
        for _ in range(300):
            n = int(rng.integers(5, 15))
            units = rng.lognormal(1, 0.7, n)
            result = paired(units * self.drawn(rng, 3, n, 0.3), units)
            assert (result.p_value < 0.05) == (result.low > 0 or result.high < 0)

    def test_seeds_that_do_not_differ_change_nothing(self):
        rng = np.random.default_rng(3)
        d, units = rng.exponential(size=12), rng.lognormal(size=12)
        alone, thrice = paired(d, units), paired(np.stack([d] * 3), units)
        assert thrice.method == "t over seeds and clusters, corrected for skewness"
        for field in ("low", "high", "p_value", "difference"):
            assert getattr(thrice, field) == pytest.approx(getattr(alone, field), rel=1e-12)
        one = paired(d[None], units)
        assert one == alone

    def test_where_seeds_alone_differ_it_is_students_t_over_seeds(self):
        seeds = np.array([1.0, 2.0, 4.0, 4.5])
        result = paired(np.repeat(seeds[:, None], 8, axis=1), np.ones(8))
        low, high = stats.t.interval(0.95, 3, seeds.mean(), seeds.std(ddof=1) / 2)
        assert (result.low, result.high) == pytest.approx((low, high))
        assert result.p_value == pytest.approx(stats.ttest_1samp(seeds, 0).pvalue)

    def test_sequences_of_a_cluster_are_summed_for_each_seed(self):
        rng = np.random.default_rng(4)
        d = self.drawn(rng, 3, 8, 1.0)
        halves = np.concatenate([d * 0.25, d * 0.75], axis=1)
        result = paired(halves, np.full(16, 0.5), clusters=[*range(8), *range(8)])
        assert result.low == pytest.approx(paired(d, np.ones(8)).low)

    def test_a_long_sequence_of_several_seeds(self):
        rng, covered, alone = np.random.default_rng(5), 0, 0
        for _ in range(200):
            d = autoregressive(rng, 400, 0.5) + 0.2 * rng.normal(size=(4, 1))
            for each, name in ((d, "seeds"), (d.mean(axis=0), "alone")):
                result = moving_block_difference(each, np.zeros(each.shape))
                holds = result.low <= TRUE <= result.high
                covered, alone = covered + (holds and name == "seeds"), alone + (holds and name == "alone")
        assert 180 < covered <= 200
        assert alone < 182

    def test_shapes_that_differ_are_refused(self):
        with pytest.raises(ValueError, match=r"shapes \(3, 6\) and \(2, 6\)"):
            paired_difference(np.zeros((3, 6)), np.zeros((2, 6)), np.ones(6))
