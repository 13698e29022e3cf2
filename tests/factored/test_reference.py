"""Everything that simulation and rollouts do, against slow loops in plain Python.

The problem has all options at once: actions by state, a reward of the next state, a discount,
impossible values, components with different numbers of values, features that kinds share.
"""

import numba
import numpy as np
import pytest

import upriver as up
from tests.factored.problems import not_twice
from upriver.kernels.compiled import thread_count
from upriver.planning import rollouts

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def kind_of_all(x, a, i):
    """Kinds 0 to 3: by the neighbour, and one of its own for what the action is at."""
    if a == i + 1:
        return 3
    return min(x[(i + 1) % x.shape[0]], 2)


def change_reward(x, a, x2):
    total = -0.3 * a
    for i in range(x.shape[0]):
        total += (i + 1) * (x2[i] > x[i]) + 0.2 * x2[i]
    return total


def make_problem(discount=None, horizon=9):
    rng = np.random.default_rng(5)
    features = rng.normal(size=(4, 3, 3))
    logits = features @ rng.normal(size=3)
    logits[:3, 2] = [-np.inf, -1.0, -np.inf]
    logits[3] = [-np.inf, 0.3, -np.inf]
    n_values = [3, 2, 3]
    logits[1, 2] = -np.inf  # kind 1 is met by the component of two values
    return up.FactoredMDP(
        [0, 1, 0], n_values, ["rest", "one", "two", "three"], kind_of_all, 4, change_reward,
        None if discount else horizon, logits, features, "all options", allowed=not_twice,
        discount=discount,
    )  # fmt: skip


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def derive(key, number):
    return mix(key ^ mix((number + GOLDEN) & MASK))


def uniforms(key, count):
    return [(mix((key + GOLDEN * (j + 1)) & MASK) >> 11) / 2.0**53 for j in range(count)]


def make_key(seed, stream):
    return int(np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0])


def draw(net, x, a, numbers):
    """Return the next state, by inverse transform from the definition of the softmax."""
    after = []
    for i, u in enumerate(numbers):
        row = net.logits[kind_of_all(x, a, i)]
        weights = [np.exp(v) for v in row]
        total, v = 0.0, 0
        last = max(j for j, w in enumerate(weights) if w > 0)
        while v < last:
            total += weights[v] / sum(weights)
            if u < total:
                break
            v += 1
        after.append(v)
    return np.array(after)


def legal(net, x, a):
    """Return the action, or the first allowed one in its place."""
    return a if not_twice(x, a) else next(b for b in range(net.n_actions) if not_twice(x, b))


def rollout(net, x, a, base, n_steps, numbers):
    n, total = len(x), 0.0
    for t in range(n_steps):
        a = a if t == 0 else legal(net, x, base)
        after = draw(net, x, a, numbers[t * n : (t + 1) * n])
        total += net.weight**t * change_reward(x, a, after)
        x = after
    return total


def choose(net, policy, x, h):
    """Return the action of sequential halving, with the base policy's own action first."""
    own = legal(net, x, policy.constant)
    left = [own] + [a for a in range(net.n_actions) if a != own and not_twice(x, a)]
    n_steps = min(policy.depth, (net.horizon or 10**6) - h)
    key, sums, done, more = derive(make_key(policy.seed, 1), h), dict.fromkeys(left, 0.0), 0, 0
    while len(left) > 1:
        more = done or policy.scenarios
        for j in range(done, done + more):
            numbers = uniforms(derive(key, j), n_steps * len(x))
            for a in left:
                sums[a] += rollout(net, x, a, policy.constant, n_steps, numbers)
        done += more
        left = sorted(left, key=lambda a: -sums[a])  # stable
        left = left[: (len(left) + 1) // 2 if policy.halving and len(left) > 2 else 1]
    return left[0]


@pytest.mark.parametrize("discount", [None, 0.8])
@pytest.mark.parametrize("halving", [True, False])
def test_rollouts_are_those_of_a_plain_loop(discount, halving):
    net = make_problem(discount)
    policy = up.rollout_policy(net, 3, 4, base="two", halving=halving, seed=2**70)
    for seed in range(15):
        rng = np.random.default_rng(seed)
        x, h = rng.integers(net.n_values), int(rng.integers(9))
        assert policy.act(x, h) == net.actions[choose(net, policy, x, h)]


@pytest.mark.parametrize("discount", [None, 0.8])
def test_an_episode_is_that_of_a_plain_loop(discount):
    """Episodes of rollouts and of a constant action, and their discounted returns."""
    net = make_problem(discount)
    n_steps = net.horizon or int(np.ceil(np.log(rollouts.NEGLIGIBLE) / np.log(discount)))
    for policy in (up.rollout_policy(net, 2, 3, base="one"), "two"):
        run = up.simulate(net, policy, n_episodes=2, seed=11)
        value = up.evaluate(net, policy, 2, seed=11)
        for e, episode in enumerate(run.episodes):
            x, total, key = net.start, 0.0, derive(make_key(11, 0), e)
            for h in range(n_steps):
                a = legal(net, x, 2) if policy == "two" else choose(net, policy, x, h)
                after = draw(net, x, a, uniforms(derive(key, h), 3))
                reward = change_reward(x, a, after)
                assert episode.actions[h] == a and episode.states[h].tolist() == x.tolist()
                assert episode.rewards[h] == pytest.approx(reward, abs=1e-12)
                total += net.weight**h * reward
                x = after
            assert run.returns[e] == pytest.approx(total) == value.returns[e]
            assert episode.states[-1].tolist() == x.tolist()


def test_threads_share_the_scenarios_of_one_act_and_change_nothing(monkeypatch):
    """A single episode, all of whose rounds are shared."""
    net = make_problem()
    policy = up.rollout_policy(net, 7, 4, base="one")
    monkeypatch.setattr(rollouts, "MIN_DRAWS_TO_SHARE", 0)
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", threads)
        assert thread_count() == threads
        run = up.simulate(net, policy, n_episodes=1, seed=3)
        found.append((run.episodes[0].actions.tolist(), run.returns.tolist()))
    assert found[0] == found[1] == found[2]
    assert found[0][1][0] == up.evaluate(net, policy, 4, seed=3).returns[0]


def test_scenarios_are_not_the_future():
    """The keys of the scenarios of seed 0 are not those of the episodes of seed 0."""
    net = make_problem()
    policy = up.rollout_policy(net, seed=0)
    assert int(policy.key) != make_key(0, 0)
    assert int(policy.key) == make_key(0, 1)


def test_a_policy_plans_with_its_own_problem():
    """What it believes of kinds and rewards counts in its rollouts, the truth in the episodes."""
    net = make_problem()
    believed = up.FactoredMDP(
        net.start, net.n_values, net.actions, lambda x, a, i: 3 if a == i + 1 else 0, 4,
        lambda x, a: float(a), 9, net.logits, allowed=not_twice,
    )  # fmt: skip
    policy = up.rollout_policy(believed, 4, 2, base="rest")
    run = up.simulate(net, policy, n_episodes=3, seed=0)
    for episode in run.episodes:
        states = zip(episode.states[:-1], episode.actions, strict=True)
        assert all(net.actions[a] == policy.act(x, h) for h, (x, a) in enumerate(states))
        for x, a, y, r in zip(
            episode.states[:-1], episode.actions, episode.states[1:], episode.rewards, strict=True
        ):
            assert r == pytest.approx(change_reward(x, a, y))
