"""Location, spread and intervals, against scipy and by simulation."""

from __future__ import annotations

import statistics as standard

import numpy as np
import pytest
from scipy import stats

from upriver.results import statistics


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 11, 40])
def test_location_and_spread_agree_with_the_standard_library_and_scipy(rng, n):
    x = rng.gamma(2.0, size=n)
    assert statistics.mean(x) == pytest.approx(standard.fmean(x))
    assert statistics.iqm(x) == pytest.approx(stats.trim_mean(x, 0.25))
    spread = standard.stdev(x) if n > 1 else 0.0
    assert statistics.sd(x) == pytest.approx(spread)
    assert statistics.standard_error(x) == pytest.approx(spread / n**0.5)


@pytest.mark.parametrize("n", [12, 60])
@pytest.mark.parametrize("statistic", [statistics.mean, statistics.iqm])
def test_the_bootstrap_is_scipys_bca_at_a_wider_level(rng, n, statistic):
    x = rng.exponential(size=n)
    wide = stats.t.ppf(0.975, n - 1) * (n / (n - 1)) ** 0.5
    theirs = stats.bootstrap(
        (x,), lambda y, axis=-1: statistic(np.moveaxis(y, axis, -1)), method="BCa",
        n_resamples=20_000, confidence_level=2 * stats.norm.cdf(wide) - 1,
        rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    ours = statistics.bootstrap(x, statistic, resamples=20_000)
    np.testing.assert_allclose(ours, theirs, atol=0.03)
    assert statistics.bootstrap(x) == statistics.bootstrap(x)


def test_each_column_has_a_quantile_of_its_own(rng):
    x = np.sort(rng.normal(size=(40, 3)), axis=0)
    levels = np.array([0.0, 0.31, 1.0])
    expected = [np.quantile(x[:, i], p) for i, p in enumerate(levels)]
    np.testing.assert_allclose(statistics.quantile(x, levels), expected)


def test_strata_are_resampled_by_themselves():
    low, high = statistics.bootstrap([np.zeros(5), np.full(7, 100.0)])
    assert low == high == 50.0
    low, high = statistics.bootstrap(np.concatenate([np.zeros(5), np.full(5, 100.0)]))
    assert low < 50.0 < high
    assert statistics.bootstrap(np.array([3.0])) == (3.0, 3.0)  # one run says nothing of others


def test_strata_do_not_share_their_draws(rng):
    x = rng.normal(size=30)
    single = np.diff(statistics.bootstrap(x))
    both = np.diff(statistics.bootstrap([x, x]))
    assert both == pytest.approx(single / 2**0.5, rel=0.1)
    first, second = (statistics.draws(30, 100, stream) for stream in (0, 1))
    assert (first == second).mean() == pytest.approx(1 / 30, abs=0.02)


def test_a_level_is_met():
    x = np.arange(30.0)
    half, nearly_all = (np.diff(statistics.bootstrap(x, level=level)) for level in (0.5, 0.95))
    ratio = stats.t.ppf(0.975, 29) / stats.t.ppf(0.75, 29)
    assert nearly_all / half == pytest.approx(ratio, rel=0.08)


@pytest.mark.parametrize(("count", "of"), [(0, 20), (1, 20), (7, 9), (20, 20)])
def test_a_share_has_the_exact_interval(count, of):
    theirs = stats.binomtest(count, of).proportion_ci(0.95, method="exact")
    assert statistics.share_interval(count, of) == pytest.approx(tuple(theirs))


def coverage(draw, true: float, n: int, times: int = 1000) -> float:
    """How often the interval of the mean of n numbers holds the true mean."""
    rng = np.random.default_rng(n)
    ends = [statistics.bootstrap(draw(rng, n)) for _ in range(times)]
    return float(np.mean([low <= true <= high for low, high in ends]))


def locking(rng, n):
    """Two episodes lost, and 95 in one run of twenty."""
    return np.where(rng.random(n) < 0.05, 95.0, 2.0 + 0.3 * rng.normal(size=n))


KINDS = {
    "normal": (lambda rng, n: rng.normal(size=n), 0.0),
    "exponential": (lambda rng, n: rng.exponential(size=n), 1.0),
    "one run in twenty locks in": (locking, 0.05 * 95.0 + 0.95 * 2.0),
}


@pytest.mark.slow
def test_intervals_cover_as_the_page_says(capsys):
    sizes = (10, 20, 50, 100)
    found = {k: [coverage(*kind, n) for n in sizes] for k, kind in KINDS.items()}
    with capsys.disabled():
        print("\n|  | " + " | ".join(f"{n} runs" for n in sizes) + " |")
        for kind, covers in found.items():
            print(f"| {kind} | " + " | ".join(f"{c:.1%}" for c in covers) + " |")
    assert found["normal"][1] >= 0.93 and found["normal"][3] >= 0.93
    assert max(found["normal"]) <= 0.97
    assert found["exponential"][1] >= 0.91
    # with 20 runs a third of the samples hold no such run at all, and no method can know of it
    assert found["one run in twenty locks in"][1] <= 1 - 0.95**20 + 0.03
    assert found["one run in twenty locks in"][3] >= 0.93
