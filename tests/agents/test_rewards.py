"""Unknown rewards: sums by hand, coverage of the Hoeffding width, the Beta posterior."""

from dataclasses import replace

import numpy as np
import pytest

import upriver as up
from tests.building import from_rows
from upriver.agents import rewards
from upriver.agents.base import Episode, State


def sums_of(total, visits):
    """Sums of rewards of 0 or 1, whose squares are themselves."""
    return rewards.RewardSums(total, visits, total)


@pytest.fixture
def task():
    """Three states and two actions, each with one successor: a triple is a pair."""
    rows = {(s, a): {(s + 1 - 2 * a) % 3: 1.0} for s in range(3) for a in range(2)}
    return from_rows(rows, {}, 4).true_task.with_unknown_reward()


def upper_bound(task, sums, width):
    """What agents with a `reward_bonus` plan with."""
    return up.agents.UCRL2(task, reward_bonus=width).reward(State(1, None, sums))


def test_sums_by_hand(task):
    episode = Episode(
        np.array([0, 2, 0, 2, 0]), np.array([1, 0, 1, 0]), np.array([0.5, 0, 0.25, 1])
    )
    first = rewards.start(task)
    sums = rewards.observe(task, first, episode)
    assert sums.total.tolist() == [0, 0.75, 0, 0, 1, 0]
    assert sums.visits.tolist() == [0, 2, 0, 0, 2, 0]
    assert sums.squares.tolist() == [0, 0.3125, 0, 0, 1, 0]
    assert not first.visits.any()  # the sums given are left alone
    upper = upper_bound(task, sums, 0.3)
    width = 0.3 / np.sqrt(2)
    assert upper[0] == pytest.approx([1, 0.375 + width, 1, 1, 0.5 + width, 1])
    assert upper_bound(task, sums, 0.0)[0, :3] == pytest.approx([1, 0.375, 1])


def test_known_rewards_pass_through():
    known = up.envs.riverswim(3, horizon=4).true_task
    assert rewards.start(known) is None
    assert rewards.observe(known, None, None) is None
    rng = np.random.default_rng(0)
    for table in (
        upper_bound(known, None, 1.0),
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
            if (upper_bound(task, sums, scale)[0] < mean).any():
                missed += 1
                break
    assert missed <= 0.1 * 100
    # and a width of a quarter of it does not, so the test can tell
    sums = sums_of(paid[0].astype(float), np.ones(size))
    assert (upper_bound(task, sums, scale / 16)[0] < mean).any()


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


def test_the_upper_bound_by_hand(task):
    """Pair (0, 1) paid .5 and .25; pair (2, 0) paid 0 and 1; all else was never tried."""
    total, squares = np.array([0, 0.75, 0, 0, 1, 0]), np.array([0, 0.3125, 0, 0, 1, 0])
    sums = rewards.RewardSums(total, np.array([0, 2.0, 0, 0, 2.0, 0]), squares)
    scatter = {1: 0.3125 - 0.75 * 0.375, 4: 1.0 - 0.5}
    pooled = (0.25 + sum(scatter.values())) / (1 + 2)
    bound = {}
    for row, mean in ((1, 0.375), (4, 0.5)):  # they lead to 2 and to 0: nobody else arrives there
        arrival = (pooled + scatter[row]) / (1 + 1)
        variance = (4 * arrival + scatter[row]) / (4 + 1)
        bound[row] = mean + 1.5 * np.sqrt(variance / 2)
    upper = rewards.triple_upper_bound(task, sums, 1.5)[0]
    assert upper == pytest.approx([1, min(bound[1], 1), 1, 1, min(bound[4], 1), 1])
    # of 40 visits of state 0 two were to action 1: it was neglected
    sums = rewards.RewardSums(total, np.array([38, 2.0, 0, 0, 2.0, 0]), squares)
    pooled = (0.25 + sum(scatter.values())) / (1 + 37 + 2)
    arrival = (pooled + scatter[1]) / (1 + 1)
    variance = (4 * arrival + scatter[1]) / (4 + 1)
    upper = rewards.triple_upper_bound(task, sums, 1.5)[0, 1]
    assert upper == pytest.approx(0.375 + np.sqrt(2 * np.log(20)) * np.sqrt(variance / 2))


def test_a_neglected_action_is_doubted_more(task):
    visits = np.zeros(len(task.sizes))
    visits[:2] = 38.0, 2.0
    count = rewards.count_errors(task, visits, 1.5)
    assert count[:2] == pytest.approx([1.5, np.sqrt(2 * np.log(20))])
    assert (count[2:] == 1.5).all()


@pytest.fixture
def line():
    """States 0 to 3, either action may go on or back; nobody leaves state 3, the goal."""
    rows = {(s, a): {s + 1: 0.5, max(s - 1, 0): 0.5} for s in range(3) for a in range(2)}
    rows |= {(3, a): {3: 1.0} for a in range(2)}
    return from_rows(rows, {}, 4).true_task.with_unknown_reward()


def test_what_arriving_has_paid_is_expected_of_other_pairs(line):
    """The goal paid 1 after action 1. Action 0 slipped: it still promises the goal its 1, but
    the way back what it has paid, although nobody has been paid for staying in the goal."""
    sums = rewards.start(line)
    walks = ((2, 1, 3, 1.0), (2, 0, 1, 0.0), (3, 0, 3, 0.0), (3, 1, 3, 0.0), (1, 0, 0, 0.0))
    for s, a, s2, paid in walks:
        step = Episode(np.array([s, s2]), np.array([a]), np.array([paid]))
        sums = rewards.observe(line, sums, step)
    rows = line.rows(2, 0)
    expected = rewards.predict_rewards(line, sums, line.by_pair(sums.visits))[rows]
    assert expected == pytest.approx([0.0, 1.0])
    assert rewards.triple_upper_bound(line, sums, 0.0)[0, rows][1] == pytest.approx(1.0)
    # nobody has arrived in state 2
    assert rewards.triple_upper_bound(line, sums, 0.0)[0, line.rows(1, 0)][1] == 1.0


def test_a_greedy_plan_knows_what_arriving_costs(line):
    """Action 0 of state 2 only slipped: arriving in 3 pays there what it has paid after action 1.

    With the mean of the pair, a bad end that was not seen yet would look as good as what was.
    """
    sums = rewards.start(line)
    for s, a, s2, paid in ((2, 1, 3, 0.0), (2, 0, 1, 1.0), (0, 1, 1, 1.0)):
        step = Episode(np.array([s, s2]), np.array([a]), np.array([paid]))
        sums = rewards.observe(line, sums, step)
    mean = rewards.mean_rewards(line, sums)[0]
    assert mean[line.rows(2, 0)] == pytest.approx([1.0, 0.0])
    assert mean[line.rows(1, 0)] == pytest.approx([0.0, 0.0])  # never tried: the least


def test_rewards_of_pairs_are_expected_of_their_other_successors(line):
    """Action 0 pays .2 and action 1 pays .7 wherever they lead: no arrival is credited with it."""
    sums, rng = rewards.start(line), np.random.default_rng(0)
    left_out = line.rows(1, 0).start  # (1, 0) to 0 is never seen
    for _ in range(300):
        row = rng.integers(line.n_triples)
        s, a, s2 = (int(x[row]) for x in line.triples)
        if row != left_out:
            step = Episode(np.array([s, s2]), np.array([a]), np.array([0.7 if a else 0.2]))
            sums = rewards.observe(line, sums, step)
    expected = rewards.predict_rewards(line, sums, line.by_pair(sums.visits))
    assert abs(expected[left_out] - 0.2) < 0.06


def test_known_except_here():
    """Rewards that are known in part are learned where they are not known, and nowhere else."""
    states = range(3)
    task = up.Task.from_successors(states, [0, 1], lambda s, a: states, 4)
    known = np.where(task.triples[0] == 1, np.nan, task.triples[2])
    task = replace(task, partial_reward=known, reward_range=None)
    assert task.reward is None and task.reward_range == (0.0, 2.0)
    sums = rewards.start(task)
    step = Episode(np.array([0, 1]), np.array([0]), np.array([0.9]))  # noise that is not believed
    upper = rewards.triple_upper_bound(task, rewards.observe(task, sums, step), 1.5)[0]
    s, _, s2 = task.triples
    assert upper == pytest.approx(np.where(s == 1, 1.0, s2 / 2))
    assert "known in part" in repr(task)
    with pytest.raises(TypeError, match=r"reward\(0, 0, 0\) is nan"):
        up.Task.from_successors(states, [0, 1], lambda s, a: states, 4, lambda s, a, s2: np.nan)


class Bandit:
    """One step; each action pays 1 with its own probability."""

    def __init__(self, *chances):
        self.chances = chances

    def reset(self, seed=None):
        self.rng = np.random.default_rng(seed)
        return 0, {}

    def step(self, action):
        return 0, float(self.rng.random() < self.chances[action]), False, True, {}


def test_an_unlucky_action_is_tried_again():
    """With 1.5 standard errors of the mean of a pair one run in seven ended on the wrong arm."""
    task = up.Task.from_successors([0], [0, 1], lambda s, a: [0], 1)
    agent = up.agents.UCRLMNLSE(task, up.features.one_hot(task))
    wrong = [up.learn(Bandit(0.4, 0.6), agent, 500, seed=s).plan.policy[0, 0] for s in range(60)]
    assert np.mean(np.array(wrong) == 0) <= 0.05
