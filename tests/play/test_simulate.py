"""One run: exact regret, reproducible generators, the same environment for every agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.reference import as_mixture, dense, optimal_q, policy_value, random_mdp
from upriver import FiniteMDP, Plan, envs, evaluate, features, simulate
from upriver import simulate as public
from upriver.agents import UCRL2, UCRLMNL, Always, Optimal, Random
from upriver.mdp import Task
from upriver.mdp.archive import digest
from upriver.planning import start_value
from upriver.play import episodes
from upriver.play.checkpoints import fingerprint_mdp, spawn_generators


@dataclass(frozen=True)
class Scripted:
    """Plays a given list of tables in turn, and wastes random numbers while doing so."""

    task: Task
    tables: Any
    waste: int = 0

    def init(self):
        return (0, None)

    def plan(self, state, rng):
        rng.random(self.waste)
        k = state[0]
        return Plan(self.tables[k % len(self.tables)], np.zeros((self.task.horizon + 1, 1)))

    def update(self, state, plan, episode):
        return (state[0] + 1, (state, episode))


def episodes_of(run):
    """All episodes of a scripted run, from its chain of states."""
    found, state = [], run.state
    while state[1] is not None:
        state, episode = state[1]
        found.append(episode)
    return found[::-1]


def learner(mdp, support="local", **more):
    task = mdp.task(support)
    return UCRLMNL(task, features.one_hot(task), radius=1e-2, **more)


@pytest.mark.parametrize("per_step", [False, True])
def test_values_and_regret_are_exact_for_every_policy_played(rng, per_step):
    """Policies that change at a few steps only, so that what is reused must be right."""
    mdp = random_mdp(rng, 5, 3, 6, per_step=per_step, random_start=True)
    p, r = dense(mdp)
    tables = [rng.integers(0, 3, (6, 5)).astype(np.int8)]
    for _ in range(30):
        table = tables[-1].copy()
        if rng.random() < 0.7:
            table[rng.integers(6), rng.integers(5)] = rng.integers(3)
        tables.append(table)
    run = simulate(mdp, Scripted(mdp.task(), tables), 62, seed=3)
    best = optimal_q(p, r)[0].max(axis=1)
    for k, (states, actions, rewards) in enumerate(episodes_of(run)):
        table = tables[k % 31]
        v = policy_value(p, r, as_mixture(table, 3))[0]
        assert run.values[k] == pytest.approx(v[states[0]], abs=1e-13)
        assert run.regret[k] == pytest.approx(best[states[0]] - v[states[0]], abs=1e-13)
        assert run.optimal_values[k] == pytest.approx(best[states[0]], abs=1e-13)
        # The episode is a walk of this policy on this MDP, and the return is what it paid.
        assert actions.tolist() == [table[h, states[h]] for h in range(6)]
        assert rewards.tolist() == [r[h, states[h], actions[h]] for h in range(6)]
        assert all(p[h, states[h], actions[h], states[h + 1]] > 0 for h in range(6))
        assert run.returns[k] == pytest.approx(sum(rewards))
    assert run.returns.shape == run.values.shape == run.seconds.shape == (62,)
    assert (run.seconds > 0).all()


def test_returns_agree_with_values_on_average(rng):
    mdp = random_mdp(rng, 5, 3, 6, per_step=True, random_start=True)
    table = rng.integers(0, 3, (6, 5)).astype(np.int8)
    run = simulate(mdp, Scripted(mdp.task(), [table]), 20_000, seed=1)
    error = run.returns - run.values
    assert abs(error.mean()) < 4.5 * error.std() / np.sqrt(20_000)
    assert error.std() > 0.05


def test_transitions_and_starts_have_their_probabilities(rng):
    mdp = random_mdp(rng, 3, 2, 2, per_step=True, random_start=True)
    p, _ = dense(mdp)
    table = np.array([[0, 1, 0], [1, 1, 0]], np.int8)
    run = simulate(mdp, Scripted(mdp.task(), [table]), 20_000, seed=2)
    states = np.array([e[0] for e in episodes_of(run)])
    start = np.zeros(3)
    start[mdp.initial_states] = mdp.initial_probability
    share = np.bincount(states[:, 0], minlength=3) / len(states)
    assert np.abs(share - start).max() < 4.5 * 0.5 / np.sqrt(20_000)
    for h in range(2):
        for s in range(3):
            at = states[states[:, h] == s]
            if not len(at):
                assert h == 1 and not any(p[0, t, table[0, t], s] * start[t] for t in range(3))
                continue
            share = np.bincount(at[:, h + 1], minlength=3) / len(at)
            row = p[h, s, table[h, s]]
            assert np.abs(share - row).max() < 4.5 * 0.5 / np.sqrt(len(at))
            assert not share[row == 0].any()


def test_an_optimal_run_has_no_regret_and_a_random_one_its_mean(rng):
    mdp = envs.riverswim(6, 24)
    assert not simulate(mdp, Optimal(mdp), 20, seed=0).regret.any()
    run = simulate(mdp, Random(mdp.task()), 4000, seed=0)
    exact = start_value(mdp, evaluate(mdp, np.full((6, 2), 0.5)))
    for got in (run.returns, run.values):
        assert abs(got.mean() - exact) < 4.5 * got.std() / np.sqrt(4000)
    left = simulate(mdp, Always(mdp.task(), 0), 5, seed=0)
    np.testing.assert_allclose(left.returns, 0.12)
    np.testing.assert_allclose(left.values, 0.12)


def test_the_first_episodes_do_not_depend_on_how_many_follow():
    mdp = envs.riverswim(5, 12)
    for agent in (learner(mdp), Random(mdp.task())):
        short, long = (simulate(mdp, agent, k, seed=9) for k in (13, 40))
        np.testing.assert_array_equal(short.returns, long.returns[:13])
        np.testing.assert_array_equal(short.values, long.values[:13])


def test_the_size_of_the_chunks_does_not_matter(monkeypatch):
    mdp = envs.riverswim(5, 12)
    whole = simulate(mdp, learner(mdp), 40, seed=4)
    monkeypatch.setattr(episodes, "CHUNK", 7)
    parts = simulate(mdp, learner(mdp), 40, seed=4)
    np.testing.assert_array_equal(whole.returns, parts.returns)
    np.testing.assert_array_equal(whole.values, parts.values)


def test_interleaved_equals_separate():
    """Two agents stepped in turn by hand reproduce two separate runs."""
    mdp = envs.riverswim(5, 12)
    agents = [learner(mdp), learner(mdp, "full")]
    separate = [simulate(mdp, agent, 25, seed=6) for agent in agents]
    parts: list[list[float]] = [[], []]
    checkpoints: list[Any] = [None, None]
    for _ in range(25):
        for i, agent in enumerate(agents):
            seed = 6 if checkpoints[i] is None else None
            run = simulate(mdp, agent, 1, seed=seed, resume=checkpoints[i])
            checkpoints[i] = run.checkpoint
            parts[i].extend(run.returns)
    for i in range(2):
        np.testing.assert_array_equal(separate[i].returns, parts[i])


def test_every_agent_meets_the_same_environment_stream(rng, monkeypatch):
    monkeypatch.setattr(episodes, "CHUNK", 4)  # so that both generators are drawn from in turn
    mdp = random_mdp(rng, 6, 2, 8, random_start=True)
    task = mdp.task()
    table = rng.integers(0, 2, (8, 6)).astype(np.int8)
    calm = simulate(mdp, Scripted(task, [table]), 30, seed=5)
    wasteful = simulate(mdp, Scripted(task, [table], waste=17), 30, seed=5)
    np.testing.assert_array_equal(calm.returns, wasteful.returns)
    for a, b in zip(episodes_of(calm), episodes_of(wasteful), strict=True):
        np.testing.assert_array_equal(a[0], b[0])
    other = simulate(mdp, Scripted(task, [1 - table]), 30, seed=5)
    starts = [[e[0][0] for e in episodes_of(run)] for run in (calm, other)]
    assert starts[0] == starts[1] and len(set(starts[0])) > 1
    again = simulate(mdp, Scripted(task, [table]), 30, seed=6)
    assert (again.returns != calm.returns).any()


def test_a_run_depends_on_the_seed_alone_and_the_default_is_zero():
    mdp = envs.riverswim(5, 12)
    runs = [simulate(mdp, learner(mdp), 20, seed=s) for s in (0, 0, 1)]
    np.testing.assert_array_equal(runs[0].returns, runs[1].returns)
    assert (runs[0].returns != runs[2].returns).any()
    np.testing.assert_array_equal(runs[0].returns, public(mdp, learner(mdp), 20).returns)


def test_wrong_calls_get_one_clear_sentence():
    mdp, other = envs.riverswim(5, 12), envs.riverswim(6, 12)
    for call, sentence in (
        (lambda: simulate(mdp, learner(mdp), 0), "n_episodes is 0"),
        (lambda: simulate(mdp, learner(mdp), 1, seed=-1), "seed is -1"),
        (lambda: simulate(mdp, learner(mdp), 1, seed=1.5), r"seed is 1\.5"),
        (lambda: simulate(mdp, learner(other), 1), "build the agent from a task of this MDP"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()


def test_leaving_the_declared_support_is_an_error_not_a_wrong_count():
    mdp = envs.riverswim(5, 12)
    task = mdp.task()
    agent = UCRLMNL(task, features.one_hot(task))
    state = agent.init()
    from upriver.agents.base import Episode

    jump = Episode(np.array([0, 3] + [3] * 11), np.zeros(12, int), np.zeros(12))
    with pytest.raises(ValueError, match=r"step 0 .* \(s=0, a='left'\) to 3, .* successors \[0\]"):
        agent.update(state, agent.plan(state, np.random.default_rng(0)), jump)
    assert not state.model.counts.any()


def test_a_table_that_is_no_policy_is_refused_before_anything_is_read():
    """Compiled loops do not check their indices; a wrong table of a new agent must not crash."""
    mdp = envs.riverswim(5, 12)
    table = np.zeros((12, 5), np.int8)
    for wrong, sentence in (
        (np.where(np.arange(5) == 3, 2, table), r"policy\[0, 3\] is 2; actions are 0 to 1"),
        (table - 1, r"policy\[0, 0\] is -1"),
        (table[:-1], r"shape \(11, 5\); it must be whole numbers of shape \(12, 5\)"),
        (table.astype(float), "policy is float64"),
    ):
        with pytest.raises(ValueError, match=sentence):
            simulate(mdp, Scripted(mdp.task(), [wrong]), 3)


def test_an_agent_that_writes_into_one_table_is_evaluated_anew():
    mdp = envs.riverswim(5, 12)
    shared = np.zeros((12, 5), np.int8)

    class Rewriting(Scripted):
        def plan(self, state, rng):
            shared[:] = state[0] % 2
            return Plan(shared, np.zeros((13, 5)))

    run = simulate(mdp, Rewriting(mdp.task(), None), 4)
    left, right = (evaluate(mdp, np.full(5, a))[0, 0] for a in (0, 1))
    np.testing.assert_allclose(run.values, [left, right, left, right])


class Gambler:
    """Plays action 1 at every step, and draws from its generator as often as it likes."""

    def __init__(self, task, draws):
        self.task, self.draws, self.seen = task, draws, []

    def init(self):
        return None

    def plan(self, state, rng):
        self.seen.extend(rng.random(self.draws))
        shape = self.task.horizon, self.task.n_states
        return Plan(np.ones(shape, np.int8), np.zeros((shape[0] + 1, shape[1])))

    def update(self, state, plan, episode):
        return None


def test_the_agent_and_the_environment_have_streams_of_their_own():
    """What an agent draws changes nothing of its luck, and is not the environment's luck either."""
    mdp = envs.riverswim(4, horizon=10)
    quiet, busy = Gambler(mdp.true_task, 0), Gambler(mdp.true_task, 11)
    one, two = (simulate(mdp, agent, 30, seed=5) for agent in (quiet, busy))
    assert (one.returns == two.returns).all() and one.returns.std() > 0
    environment, agent = (g.random(330) for g in spawn_generators(5))
    assert busy.seen == pytest.approx(agent)
    assert len(np.intersect1d(environment, agent)) == 0
    assert abs(np.corrcoef(environment, agent)[0, 1]) < 0.2


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("episodes", -5, "resume.episodes is -5"),
        ("episodes", 2.5, "resume.episodes is 2.5"),
        ("steps_played", -1, "resume.steps_played is -1"),
        ("stream_state", 99, "resume.stream_state is 99"),
        ("generator", {}, "resume.generator is not the state"),
    ],
)
def test_a_checkpoint_that_cannot_be_is_refused(field, value, message):
    mdp = envs.riverswim(5, 12)
    agent = learner(mdp)
    checkpoint = simulate(mdp, agent, 2).checkpoint
    with pytest.raises(ValueError, match=message):
        simulate(mdp, agent, 1, resume=checkpoint._replace(**{field: value}))
    with pytest.raises(TypeError, match=r"resume\.fingerprint is not the fingerprint"):
        simulate(mdp, agent, 1, resume=checkpoint._replace(fingerprint=""))


def test_a_checkpoint_may_count_in_whole_numbers_of_numpy():
    mdp = envs.riverswim(5, 12)
    agent = learner(mdp)
    checkpoint = simulate(mdp, agent, 2).checkpoint
    plain, numpy = (
        simulate(mdp, agent, 3, resume=checkpoint._replace(episodes=n)) for n in (2, np.int64(2))
    )
    np.testing.assert_array_equal(plain.returns, numpy.returns)


def test_visits_count_the_pairs_of_all_episodes(monkeypatch):
    monkeypatch.setattr(episodes, "CHUNK", 4)
    mdp = envs.riverswim(5, 12)
    table = np.ones((12, 5), np.int8)
    run = simulate(mdp, Scripted(mdp.task(), [table, 0 * table]), 10, seed=2)
    expected = np.zeros((5, 2), int)
    for states, actions, _ in episodes_of(run):
        for s, a in zip(states, actions, strict=False):
            expected[s, a] += 1
    np.testing.assert_array_equal(run.visits, expected)


P = np.full((2, 2, 2), 0.5)
BASE = {"p": P, "r": [[0.0, 1.0], [0.5, 0.2]], "horizon": 4, "more": {}}
CHANGES = {
    "probability": {"p": np.array([[[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.4, 0.6]]])},
    "reward": {"r": [[0.0, 1.0], [0.5, 0.3]]},
    "reward range": {"more": {"reward_range": (0.0, 2.0)}},
    "horizon": {"horizon": 5},
    "terminal value": {"more": {"terminal": [0.0, 1.0]}},
    "state names": {"more": {"states": ["a", "b"]}},
    "action names": {"more": {"actions": ["a", "b"]}},
    "start": {"more": {"initial_state": 1}},
}


def made(p, r, horizon, more):
    return FiniteMDP.from_arrays(p, r, horizon, **more)


def test_the_fingerprint_covers_the_whole_problem_and_the_agent():
    base = made(**BASE)
    prints = {name: fingerprint_mdp(made(**(BASE | change))) for name, change in CHANGES.items()}
    for discount in (None, 0.9, 0.99):
        prints[f"discount {discount}"] = fingerprint_mdp(base.infinite_horizon(discount))
    assert len({fingerprint_mdp(base), *prints.values()}) == 1 + len(prints)
    assert fingerprint_mdp(base) == fingerprint_mdp(made(**BASE))
    task = base.task("full")
    phi = features.one_hot(task)
    other = features.Features(task, 2.0 * phi.matrix)
    agents = [UCRLMNL(task, phi), UCRLMNL(task, other), UCRLMNL(task, phi, radius=1.0)]
    agents += [UCRLMNL(task, phi, per_step=True), Random(task), Always(task), Always(task, 1)]
    assert len({digest(agent) for agent in agents}) == len(agents)
    assert digest(agents[0]) == digest(UCRLMNL(task, phi))


def test_unknown_rewards_must_lie_in_the_range_that_the_agent_relies_on():
    """Both actions would be clipped to 1, and tie in every episode."""
    mdp = FiniteMDP.from_arrays(np.ones((1, 2, 1)), [[2.0, 10.0]], 5)
    task = Task.from_successors([0], [0, 1], lambda s, a: [0], 5)
    with pytest.raises(ValueError, match=r"reward_range \(0, 1\).* between 2 and 10"):
        simulate(mdp, UCRL2(task), 3)
    assert simulate(mdp, UCRL2(mdp.task().with_unknown_reward()), 50).regret[-1] == 0.0


def test_a_policy_in_another_byte_order_is_refused():
    class Swapped(Random):
        def plan(self, state, rng):
            plan = super().plan(state, rng)
            return plan._replace(policy=plan.policy.astype(">i4"))

    mdp = envs.riverswim(3)
    with pytest.raises(ValueError, match="the agent's policy is >i4"):
        simulate(mdp, Swapped(mdp.task()), 2)
