"""Numbers from runs, against independent calculations."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from scipy import stats

from upriver.results import analysis
from upriver.results.analysis import Sample


def sample(returns, env="river", agent="a", seeds=None, values=None) -> Sample:
    returns = np.asarray(returns, dtype=float)
    seeds = np.arange(len(returns)) if seeds is None else np.asarray(seeds)
    values = returns if values is None else np.asarray(values, dtype=float)
    return Sample(env, agent, "s", seeds, returns, values, np.full(returns.shape, 10.0))


def test_paired_differences_use_the_seeds_in_common(rng):
    noise = 100.0 * rng.normal(size=(6, 3))
    a = sample(noise + 1.0, agent="a", seeds=[0, 1, 2, 3, 4, 5])
    b = sample(noise[::-1][:5], agent="b", seeds=[5, 4, 3, 2, 1])
    b = b._replace(seeds=b.seeds[::-1], returns=b.returns[::-1])
    found = analysis.paired_difference(a, b)
    assert found.pairs == 5
    assert found.mean == pytest.approx(3.0) and found.low == pytest.approx(3.0)
    assert found.se == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(ValueError, match="no seed in common"):
        analysis.paired_difference(a, b._replace(seeds=b.seeds + 100))
    with pytest.raises(ValueError, match="not pairs"):
        analysis.paired_difference(a, b._replace(env="elsewhere"))


def test_the_paired_interval_is_the_bootstrap_of_the_differences(rng):
    a, b = rng.normal(size=(2, 9, 4))
    found = analysis.paired_difference(sample(a), sample(b))
    x = a.sum(axis=1) - b.sum(axis=1)
    assert (found.low, found.high) == analysis.bootstrap(x)
    assert found.se == pytest.approx(statistics.stdev(x) / 3.0)


def test_the_probability_of_improvement_is_mann_whitney(rng):
    a, b = rng.integers(0, 5, size=(12, 1)), rng.integers(1, 6, size=(9, 1))  # with ties
    found = analysis.probability_of_improvement([sample(a)], [sample(b)])
    u = stats.mannwhitneyu(a[:, 0], b[:, 0]).statistic
    assert found.probability == pytest.approx(u / (12 * 9))
    assert found.low <= found.probability <= found.high
    reverse = analysis.probability_of_improvement([sample(b)], [sample(a)])
    assert found.probability + reverse.probability == pytest.approx(1.0)
    regret = analysis.probability_of_improvement([sample(a)], [sample(b)], "regret")
    assert regret.probability == pytest.approx(found.probability)  # less regret is more value


def test_its_interval_is_that_of_a_plain_loop(rng):
    a, b = rng.normal(0.5, size=(10, 1)), rng.normal(size=(8, 1))
    found = analysis.probability_of_improvement([sample(a)], [sample(b)])
    rows = analysis.draws(10, analysis.RESAMPLES, 0)
    columns = analysis.draws(8, analysis.RESAMPLES, 1)
    shares = [
        np.mean([x > y for x in a[i, 0] for y in b[j, 0]])
        for i, j in zip(rows[:300], columns[:300], strict=True)
    ]
    direct = np.einsum(
        "br,rc,bc->b",
        analysis.counts_of(rows)[:300],
        (a > b.T).astype(float),
        analysis.counts_of(columns)[:300],
    )
    np.testing.assert_allclose(direct, shares)
    assert 0.0 <= found.low < found.high <= 1.0


def test_both_sides_of_an_improvement_are_resampled_by_themselves(rng):
    x = rng.normal(size=(15, 1))
    found = analysis.probability_of_improvement([sample(x)], [sample(x)])
    # with one stream for both every resample would meet itself and win exactly half of the time
    assert found.low < 0.4 < found.probability == 0.5 < 0.6 < found.high


def test_episodes_lost_are_counted_in_mean_optimal_values():
    # a random start: some episodes are worth 1 at best, some 3
    best = np.array([[1.0, 3.0, 3.0, 1.0]])
    values = np.array([[1.0, 1.0, 3.0, 0.0]])
    one = Sample("river", "a", "s", np.arange(1), values, values, best)
    assert one.totals("regret") == pytest.approx([3.0])
    assert one.totals("episodes lost") == pytest.approx([1.5])
    assert one.shares() == pytest.approx([5 / 8])


def test_a_run_is_locked_in_when_its_last_tenth_is_worth_under_half():
    values = np.full((4, 20), 10.0)
    values[1, :18] = 0.0  # a late start
    values[2, -2:] = [4.0, 6.0]  # exactly half
    values[3, -2:] = [4.0, 5.9]
    runs = sample(values)
    assert runs.locked_in().tolist() == [False, False, False, True]
    assert not runs._replace(optimal_values=-runs.optimal_values).locked_in().any()
    short = sample([[1.0, 10.0], [10.0, 1.0]])
    assert short.locked_in().tolist() == [False, True]


def test_improvement_averages_environments_and_wants_the_same_ones(rng):
    a = [sample([[2.0]] * 3, env=e) for e in ("x", "y")]
    b = [sample([[1.0]] * 3, env="x"), sample([[3.0]] * 3, env="y")]
    assert analysis.probability_of_improvement(a, b) == (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="same environments"):
        analysis.probability_of_improvement(a, b[::-1])


def test_curves_are_means_with_bootstrap_bands(rng):
    values = rng.uniform(0, 10, size=(6, 20))
    curve = analysis.regret_curve(sample(values))
    regret = np.cumsum(10.0 - values, axis=1)
    np.testing.assert_allclose(curve.mean, regret.mean(axis=0))
    bands = [analysis.bootstrap(column, resamples=1000) for column in regret.T]
    np.testing.assert_allclose(np.transpose([curve.low, curve.high]), bands)
    assert curve.runs == 6 and list(curve.episodes[:2]) == [1, 2]


def test_a_window_averages_the_last_episodes(rng):
    x = rng.normal(size=(3, 15))
    curve = analysis.curve_of(sample(x), "return", cumulative=False, window=4)
    plain = [x[:, max(0, k - 3) : k + 1].mean() for k in range(15)]
    np.testing.assert_allclose(curve.mean, plain)
    with pytest.raises(ValueError, match="window is 0"):
        analysis.curve_of(sample(x), window=0)
    with pytest.raises(ValueError, match="quantity 'regrets' is unknown"):
        analysis.curve_of(sample(x), "regrets")


def test_samples_come_out_of_a_shuffled_table(rng):
    import pyarrow as pa

    rows = [
        (env, agent, "h", seed, k, 100.0 * seed + k)
        for env in ("x", "y")
        for agent in ("b", "a")
        for seed in (4, 2)
        for k in (1, 2, 3)
    ]
    rng.shuffle(rows)
    env, agent, setting, seed, episode, number = zip(*rows, strict=True)
    table = pa.table(
        {"env": env, "agent": agent, "setting": setting, "seed": np.array(seed, dtype=int),
         "episode": np.array(episode, dtype=int), "return": np.array(number, dtype=float),
         "value": np.array(number, dtype=float) - 1, "optimal_value": np.full(len(rows), 500.0)}
    )  # fmt: skip
    found = analysis.samples_of(table)
    assert [(s.env, s.agent) for s in found] == [("x", "a"), ("x", "b"), ("y", "a"), ("y", "b")]
    for s in found:
        assert list(s.seeds) == [2, 4]
        np.testing.assert_array_equal(s.returns, [[201, 202, 203], [401, 402, 403]])
        np.testing.assert_array_equal(s.regret, 501.0 - s.returns)
    with pytest.raises(ValueError, match="is incomplete"):
        analysis.samples_of(table.slice(1))


def test_a_summary_row_is_what_its_columns_say(rng):
    returns, values = rng.uniform(0, 5, size=(2, 10, 7))
    runs = sample(returns, values=values)
    (row,) = analysis.summary([runs])
    totals = returns.sum(axis=1)
    assert (row.runs, row.episodes) == (10, 7)
    assert row.mean == pytest.approx(totals.mean())
    assert row.sd == pytest.approx(np.std(totals, ddof=1))
    assert row.se == pytest.approx(stats.sem(totals))
    assert row.iqm == pytest.approx(stats.trim_mean(totals, 0.25))
    assert (row.low, row.high) == analysis.bootstrap(totals)
    assert row.locked_in == runs.locked_in().mean()
    exact = stats.binomtest(int(runs.locked_in().sum()), 10).proportion_ci(method="exact")
    assert (row.locked_low, row.locked_high) == pytest.approx(tuple(exact))
    assert row.episodes_lost == pytest.approx((70.0 - values.sum(axis=1)).mean() / 10.0)
    with pytest.raises(ValueError, match="quantity 'gain' is unknown"):
        analysis.summary([sample(returns)], "gain")
