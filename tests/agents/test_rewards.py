"""Unknown rewards: sums by hand, coverage of the Hoeffding width, the Beta posterior."""

import numpy as np
import pytest

import upriver as up
from upriver.agents import rewards
from upriver.agents.base import Episode


def sums_of(total, visits):
    """Sums of rewards of 0 or 1, whose squares are themselves."""
    return rewards.RewardSums(total, visits, total)


@pytest.fixture
def task():
    return up.envs.riverswim(3, horizon=4).true_task.with_unknown_reward()


def test_sums_by_hand(task):
    episode = Episode(
        np.array([0, 1, 0, 0, 1]), np.array([1, 0, 1, 1]), np.array([0.5, 0, 0.25, 1])
    )
    first = rewards.start(task)
    sums = rewards.observe(task, first, episode)
    assert sums.total.tolist() == [0, 1.75, 0, 0, 0, 0]
    assert sums.visits.tolist() == [0, 3, 1, 0, 0, 0]
    assert not first.visits.any()  # the sums given are left alone
    upper = rewards.optimistic_reward(task, sums, 0.3)
    assert upper[0] == pytest.approx([1, 1.75 / 3 + 0.3 / np.sqrt(3), 0.3, 1, 1, 1])
    assert rewards.optimistic_reward(task, sums, 0.0)[0, :3] == pytest.approx([1, 1.75 / 3, 0])


def test_known_rewards_pass_through():
    known = up.envs.riverswim(3, horizon=4).true_task
    assert rewards.start(known) is None
    assert rewards.observe(known, None, None) is None
    rng = np.random.default_rng(0)
    for table in (
        rewards.optimistic_reward(known, None, 1.0),
        rewards.posterior_reward(known, None, rng),
    ):
        assert np.array_equal(table, known.reward.reshape(1, -1))


def test_the_hoeffding_width_covers_the_mean(task):
    """The stated scale covers all pairs at all times at least as often as promised."""
    rng = np.random.default_rng(4)
    delta, steps, size = 0.1, 200, 6
    scale = np.sqrt(np.log(2 * size * steps / delta) / 2)
    mean = rng.random(size)
    missed = 0
    for _ in range(100):
        paid = (rng.random((steps, size)) < mean).cumsum(axis=0)  # the hardest rewards: 0 or 1
        for n in range(1, steps + 1):
            sums = sums_of(paid[n - 1].astype(float), np.full(size, float(n)))
            if (rewards.optimistic_reward(task, sums, scale)[0] < mean).any():
                missed += 1
                break
    assert missed <= 0.1 * 100
    # and a width of a quarter of it does not, so the test can tell
    sums = sums_of(paid[0].astype(float), np.ones(size))
    assert (rewards.optimistic_reward(task, sums, scale / 16)[0] < mean).any()


def test_posterior_draws_follow_the_beta(task):
    rng = np.random.default_rng(5)
    sums = sums_of(np.array([0, 3.0, 0, 8, 0.5, 0]), np.array([0, 4.0, 9, 8, 1, 0]))
    drawn = np.concatenate([rewards.posterior_reward(task, sums, rng) for _ in range(4000)])
    assert drawn.mean(axis=0) == pytest.approx((1 + sums.total) / (2 + sums.visits), abs=0.02)
    assert ((drawn >= 0) & (drawn <= 1)).all()


def test_rounding_of_the_sums_is_harmless(task):
    total = np.full(6, 0.1) * 3  # a shade above 0.3
    sums = sums_of(total, np.full(6, 0.3))
    assert np.isfinite(rewards.posterior_reward(task, sums, np.random.default_rng(0))).all()
