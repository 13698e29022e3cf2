"""Factored problems against their listed twins, and the sentences for bad input."""

import numpy as np
import pytest

import upriver as up
from tests.factored.problems import random_problem, ring
from upriver.mnl import likelihood


@pytest.mark.parametrize("seed", range(30))
def test_listed_twin_has_the_same_probabilities_and_rewards(seed):
    """By the definition: products over components, one (x, a, x') after the other."""
    net = random_problem(seed)
    mdp = net.to_finite()
    task, logits = mdp.true_task, net.logits
    s, a, s2 = task.triples
    rng = np.random.default_rng(seed)
    for row in rng.choice(len(s), size=40):
        x, y = np.array(task.states[s[row]]), np.array(task.states[s2[row]])
        expected = 1.0
        for i in range(len(x)):
            line = logits[net.kind(x, a[row], i)]
            expected *= np.exp(line[y[i]]) / np.exp(line).sum()
        assert mdp.probability[0, row] == pytest.approx(expected, abs=1e-12)
        by_pair, by_triple = task.user_rewards
        found = by_pair[0, s[row] * net.n_actions + a[row]]
        found += by_triple[0, row] if by_triple.size else 0.0
        arguments = (x, a[row], y) if net.takes_next_state else (x, a[row])
        assert found == pytest.approx(net.reward(*arguments), abs=1e-12)
    allowed = np.array([
        [net.allowed is None or net.allowed(np.array(x), a) for a in range(net.n_actions)]
        for x in task.states
    ])  # fmt: skip
    assert (task.available == allowed).all()


def test_estimate_equals_the_one_of_the_listed_twin():
    """The joint MNL of the twin has the sum of the components' features as features."""
    for net in (ring(3, 3, features=True), ring(3, 2)):
        rng, task = np.random.default_rng(0), net.to_finite().task()
        s, a, s2 = task.triples
        states = np.array(task.states)
        counts = rng.multinomial(400, np.full(len(s), 1 / len(s)))
        table = np.zeros((*net.support.shape, net.dimension))
        table[net.support] = net.matrix
        kinds = net.kinds(states[s], a)
        joint = table[kinds, states[s2]].sum(axis=1)
        listed = up.fit_mnl(up.features.Features(task, joint), counts, regularization=0.7)
        rows = np.repeat(np.arange(len(s)), counts)
        seen = net.count(states[s[rows]], a[rows], states[s2[rows]])
        fitted = up.fit_mnl(up.features.components(net.task()), seen, regularization=0.7)
        np.testing.assert_allclose(fitted.theta, listed.theta, atol=1e-8)
        np.testing.assert_allclose(fitted.standard_errors, listed.standard_errors, atol=1e-8)
        assert fitted.log_likelihood == pytest.approx(listed.log_likelihood, abs=1e-7)


def test_counts_are_those_of_a_plain_loop():
    net = ring(4, 3)
    run = up.simulate(net, 0, n_episodes=3, seed=1)
    expected = np.zeros(net.support.shape)
    for episode in run.episodes:
        for x, a, y in zip(episode.states[:-1], episode.actions, episode.states[1:], strict=True):
            for i in range(4):
                expected[net.kind(x, a, i), y[i]] += 1
    found = sum(net.count(e.states[:-1], e.actions, e.states[1:]) for e in run.episodes)
    np.testing.assert_array_equal(found, expected[net.support])


def test_more_values_than_kinds_can_be_estimated():
    """A single kind with five values: theta are the log-ratios of counts without a ridge."""
    net = up.FactoredMDP([0, 0], 5, 1, one_kind, 1, no_reward, 4, np.zeros((1, 5)))
    seen = np.array([3.0, 6.0, 1.0, 2.0, 4.0])
    x = np.repeat(np.arange(5), seen.astype(int))
    states = np.stack([x, x], axis=1)
    counts = net.count(np.zeros_like(states), np.zeros(len(x)), states)
    fitted = up.fit_mnl(up.features.components(net.task()), counts, regularization=0.0)
    np.testing.assert_allclose(fitted.theta, np.log(seen[1:] / seen[0]), atol=1e-8)
    assert likelihood.loss(fitted.features, fitted.theta, counts, 0.0) == pytest.approx(
        -2 * seen @ np.log(seen / seen.sum())
    )


@pytest.mark.slow
def test_intervals_cover_the_true_parameters():
    """95% intervals of 500 logs, unpenalised up to a tiny ridge."""
    net = ring(4, 3, features=True)
    theta = np.linalg.lstsq(net.matrix, net.logits[net.support], rcond=None)[0]
    features, covered = up.features.components(net.task()), []
    for seed in range(500):
        run = up.simulate(net, 1, n_episodes=10, seed=seed)
        counts = sum(net.count(e.states[:-1], e.actions, e.states[1:]) for e in run.episodes)
        fitted = up.fit_mnl(features, counts, regularization=1e-6)
        covered.append(np.abs(fitted.theta - theta) <= 1.96 * fitted.standard_errors)
    share = np.mean(covered)
    print(f"coverage {share:.4f}")
    assert 0.93 <= share <= 0.97


def test_a_task_has_no_logits_and_keeps_what_is_impossible():
    net = ring(3, 3)
    task = net.task()
    assert task.logits is None and (task.support == net.support).all()
    with pytest.raises(ValueError, match="no logits"):
        up.rollout_policy(task)
    with pytest.raises(TypeError, match=r"mdp\.task\(\)"):
        up.agents.FactoredPSRL(net)
    again = task.with_theta(np.arange(net.dimension) / 10)
    assert again.logits is not None and task.logits is None


def test_numbers_are_saved_and_loaded(tmp_path):
    net = ring(3, 3, features=True)
    net.save(tmp_path / "net.npz")
    again = up.FactoredMDP.load(tmp_path / "net.npz", net.kind, net.reward)
    assert (again.logits == net.logits).all() and (again.features == net.features).all()
    assert again.horizon == net.horizon and again.name == net.name
    value = up.evaluate(net, 0, 5, seed=0)
    assert (up.evaluate(again, 0, 5, seed=0).returns == value.returns).all()


def test_gymnasium_environment_follows_the_probabilities():
    net = ring(3, 3)
    env = up.envs.to_gymnasium(net)
    x, _ = env.reset(seed=3)
    assert (x == net.start).all() and env.observation_space.contains(x)
    counts, steps = np.zeros((3, 3)), 4000
    for _ in range(steps):
        env.reset()
        x, reward, ended, truncated, _ = env.step(1)
        counts[np.arange(3), x] += 1
        assert not ended and not truncated and reward == net.reward(net.start, 1)
    expected = net.probabilities[net.kinds([net.start], [1])[0]]
    assert np.abs(counts / steps - expected).max() < 5 * np.sqrt(0.25 / steps)
    env.reset()
    ends = [env.step(0)[3] for _ in range(net.horizon)]
    assert ends == [False] * (net.horizon - 1) + [True]
    with pytest.raises(ValueError, match="reset first"):
        env.step(0)


def one_kind(x, a, i):
    return 0


def no_reward(x, a):
    return 0.0


TABLE = {0: 1}


def reads_a_dictionary(x, a, i):
    return TABLE[a]


def changes_the_state(x, a, i):
    x[0] = 1
    return 0


def kind_7(x, a, i):
    return 7


def kind_of_later_steps(x, a, i):
    return 9 if x.sum() == 12 else 0


def half(x, a, i):
    return 0.5


NEIGHBOURS = np.zeros((5, 1), np.int64)


def past_the_end(x, a, i):
    return NEIGHBOURS[i, a]


def nan_reward(x, a):
    return np.nan


def nan_reward_later(x, a):
    return np.nan if x.sum() == 12 else 0.0


def text_reward(x, a):
    return "one"


def never(x, a):
    return False


LOGITS = np.array([[0.0, 0.0]])
BAD = [
    ({"kind": reads_a_dictionary}, "kind cannot be compiled by numba: Untyped global name"),
    ({"kind": changes_the_state}, "must not change the state"),
    ({"kind": kind_7}, r"kind returns 7 for action \d and component 0 in state .* 0 to 0$"),
    ({"kind": half}, r"kind returns 0.5; it must return a whole number"),
    ({"kind": past_the_end}, r"kind\(.*\) reads past the end of an array"),
    ({"kind": no_reward}, r"it must be a function of \(x, a, i\)"),
    ({"reward": text_reward}, "reward returns 'one'; it must return a number"),
    ({"start": [2] * 12}, "start must hold a value from 0 to n_values - 1"),
    ({"start": [0.5] * 12}, "whole numbers"),
    ({"start": []}, "start has shape"),
    ({"n_values": [2, 2]}, "n_values"),
    ({"actions": 0}, "actions is 0"),
    ({"actions": []}, r"actions is \[\]"),
    ({"actions": None}, "actions is None"),
    ({"n_kinds": 10**9}, "at most 100,000,000 are listed"),
    ({"names": 5}, "names is 5; it must be a list"),
    ({"kind": print}, "kind.* fails: .* not a function"),
    ({"kind": 5}, r"kind is 5; it must be a function of \(x, a, i\)"),
    ({"reward": 5}, r"reward is 5; it must be a function of \(x, a\)"),
    ({"allowed": 5}, r"allowed is 5; it must be a function of \(x, a\)"),
    ({"reward": nan_reward}, r"reward of action \d is not finite in state"),
    ({"logits": [[0.0, np.nan]]}, "logits"),
    ({"logits": [[-np.inf, -np.inf]]}, "a finite one in each row"),
    ({"logits": [[0.0]]}, "of shape"),
    ({"features": np.zeros((1, 3, 1))}, "features have shape"),
    ({"horizon": None}, "discount"),
    ({"discount": 0.5}, "discount"),
    ({"horizon": None, "discount": 1.0}, "less than 1"),
    ({"names": ["a", "b"]}, "names has 2 names; there must be 1"),
    ({"logits": None, "support": [[False, False]]}, "support"),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD)
def test_bad_input_gets_one_sentence(changes, sentence):
    fields = {
        "start": [0] * 12, "n_values": 2, "actions": 2, "kind": one_kind, "n_kinds": 1,
        "reward": no_reward, "horizon": 5, "logits": LOGITS,
    } | changes  # fmt: skip
    with pytest.raises((ValueError, TypeError), match=sentence) as error:
        up.FactoredMDP(**fields)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kind": kind_of_later_steps}, "kind returns 9"),
        ({"n_values": [1, *[2] * 11]}, "component 0 takes the value 1 by kind 0"),
        ({"reward": nan_reward_later}, "reward of action 0 is not finite"),
        ({"allowed": never}, "allowed leaves no action"),
    ],
)
def test_what_a_simulation_meets_is_refused(changes, sentence):
    """Impossible values that the trial in random states did not show."""
    fields = {
        "start": [0] * 12, "n_values": 2, "actions": 2, "kind": one_kind, "n_kinds": 1,
        "reward": no_reward, "horizon": 5, "logits": [[-3.0, 3.0]],
    } | changes  # fmt: skip
    net = up.FactoredMDP(**fields)
    for policy in (0, up.rollout_policy(net, scenarios=4, depth=3, base=0)):
        with pytest.raises(ValueError, match=sentence):
            up.evaluate(net, policy, 20, seed=0)


def test_what_a_listing_meets_is_refused():
    """The same sentences as in a simulation."""
    for changes, sentence in (
        ({"allowed": never}, "allowed leaves no action in state"),
        ({"n_values": [1, 2]}, "component 0 takes the value 1 by kind 0 in state"),
    ):
        fields = {"start": [0, 0], "n_values": 2} | changes
        net = up.FactoredMDP(
            actions=2,
            kind=one_kind,
            n_kinds=1,
            reward=no_reward,
            horizon=5,
            logits=LOGITS,
            **fields,
        )
        with pytest.raises(ValueError, match=sentence):
            net.to_finite()


def test_wrong_numbers_get_one_sentence():
    net = ring(3, 3)
    with pytest.raises(ValueError, match=r"theta has shape \(2,\); it must be \(6,\)"):
        net.with_theta([1.0, 2.0])
    with pytest.raises(ValueError, match="actions must be 1 numbers from 0 to 3"):
        net.kinds([[0, 0, 0]], [4])
    with pytest.raises(ValueError, match="states holds the value 3 of component 1"):
        net.kinds([[0, 3, 0]], [0])
    with pytest.raises(ValueError, match=r"next_states has shape \(2, 3\)"):
        net.count([[0, 0, 0]], [0], [[0, 0, 0]] * 2)
    with pytest.raises(ValueError, match="seed is -1"):
        up.simulate(net, 0, n_episodes=1, seed=-1)
    env = up.envs.to_gymnasium(random_problem(0))  # not all of its actions are allowed
    x, _ = env.reset(seed=0)
    assert env.step(0)[0].shape == x.shape
    env.x[:] = 1
    with pytest.raises(ValueError, match="does not have it"):
        env.step(1)
    with pytest.raises(ValueError, match="action is 9"):
        env.step(9)
