"""Infinite horizons: what is played, its regret, and when plans change."""

from dataclasses import dataclass

import numpy as np
import pytest

import upriver as up
from tests.building import from_rows
from upriver.agents.base import Episode
from upriver.planning.infinite_horizon import plan_l1, plan_model, plan_tilted

RIVER = up.envs.riverswim(5)
AVERAGE, DISCOUNTED = RIVER.infinite_horizon(), RIVER.infinite_horizon(0.95)


def learners(mdp):
    task = mdp.task("local")
    phi = up.features.shared(task)
    with_features = ("UCRLMNLSE", "UCMNLK", "EpsilonGreedy", "PSRLMNL")
    made = {name: getattr(up.agents, name)(task, phi) for name in with_features}
    return made | {name: getattr(up.agents, name)(task) for name in ("UCRL2", "PSRL", "Random")}


NAMES = sorted(learners(AVERAGE))


@pytest.mark.parametrize("mdp", [AVERAGE, DISCOUNTED])
@pytest.mark.parametrize("name", NAMES)
def test_a_stopped_stream_goes_on_as_if_it_had_not(mdp, name):
    agent = learners(mdp)[name]
    whole = up.simulate(mdp, agent, n_steps=700, seed=4)
    assert len(whole.returns) == 700 and (whole.regret >= -1e-9).all()
    again = up.simulate(mdp, agent, n_steps=300, seed=4)
    np.testing.assert_array_equal(again.returns, whole.returns[:300])
    np.testing.assert_array_equal(again.values, whole.values[:300])
    for stop in (150, 250):  # twice, the second time perhaps within the same plan
        rest = up.simulate(mdp, agent, n_steps=stop, resume=again.checkpoint)
        again = rest._replace(returns=np.concatenate([again.returns, rest.returns]))
    np.testing.assert_array_equal(again.returns, whole.returns)
    np.testing.assert_array_equal(again.plan.policy, whole.plan.policy)


def test_the_optimum_has_no_regret_and_its_rewards_are_the_gain():
    run = up.simulate(AVERAGE, up.agents.Optimal(AVERAGE), n_steps=40_000)
    assert run.regret.sum() < 1e-3
    assert run.returns.mean() == pytest.approx(up.solve(AVERAGE).gain, abs=0.02)
    left = up.simulate(DISCOUNTED, up.agents.Always(DISCOUNTED.true_task, 0), n_steps=50)
    best, worth = up.solve(DISCOUNTED).v, up.evaluate(DISCOUNTED, [0] * 5).v
    np.testing.assert_allclose(left.regret, best[0] - worth[0])  # it never leaves the first state


def test_gaps_sum_to_the_regret_against_the_gain():
    """T gain - rewards is the sum of the gaps, the change of the bias, and luck of mean 0."""
    task, best = AVERAGE.true_task, up.solve(AVERAGE)
    runs = [up.simulate(AVERAGE, up.agents.Random(task), n_steps=2_000, seed=s) for s in range(100)]
    luck = [2_000 * best.gain - run.returns.sum() - run.regret.sum() for run in runs]
    error = np.std(luck) / 10
    assert abs(np.mean(luck)) < 3 * error + np.ptp(best.v) and error < 0.02 * runs[0].regret.sum()


def test_random_restarts_begin_anew():
    far = from_rows(
        {(s, 0): {min(s + 1, 3): 1.0} for s in range(4)}, {(3, 0): 1.0}, None, discount=0.9
    )
    seen = []

    class Watch(up.agents.Always):
        def update(self, state, plan, episode):
            seen.append(episode)

    for restart, many in ((0.0, 1), (0.25, 250)):
        seen.clear()
        run = up.simulate(far, Watch(far.true_task), n_steps=1_000, restart=restart)
        assert len(run.returns) == sum(len(e.actions) for e in seen) == 1_000
        assert all(e.states[0] == 0 for e in seen) and abs(len(seen) - many) < 50
        assert all((np.diff(e.states) == (e.states[:-1] < 3)).all() for e in seen)


def test_ucrl2_plans_again_when_a_count_has_doubled():
    agent = up.agents.UCRL2(AVERAGE.task("local"))
    plans = []

    class Watch(up.agents.UCRL2):
        def update(self, state, plan, episode):
            plans.append((self.task.by_pair(state.model[0]), episode))
            return super().update(state, plan, episode)

    up.simulate(AVERAGE, Watch(agent.task), n_steps=3_000)
    for visits, episode in plans[:-1]:
        pairs = episode.states[:-1] * 2 + episode.actions
        new = np.bincount(pairs, minlength=10)
        doubled = new >= np.maximum(visits, 1)
        assert doubled.sum() == 1 and doubled[pairs[-1]]
        assert new[pairs[-1]] == max(visits[pairs[-1]], 1)
    assert len(plans) < 10 * np.log2(3_000)


@pytest.mark.parametrize("name", ["UCRLMNLSE", "UCMNLK"])
def test_plans_change_when_the_determinant_has_doubled(name):
    agent = learners(AVERAGE)[name]
    rng, task = np.random.default_rng(0), agent.task
    states = np.array([0, 1, 1, 2, 1, 2, 3, 3, 4, 4, 4, 3, 4, 4, 4, 3, 2, 3, 4, 4, 4, 3])
    episode = Episode(states, np.ones(21, np.int64), np.zeros(21))
    plan = agent.plan(agent.init(), rng)
    state = agent.update(agent.init(), plan, episode)
    kept = agent.steps_until_replan(state, plan, episode)
    assert 1 < kept < 21

    def logdet(n):
        part = Episode(states[: n + 1], episode.actions[:n], episode.rewards[:n])
        if name == "UCMNLK":
            return agent.update(state, plan, part).model.logdet.sum()
        # the ridge, and the information at theta_hat, by hand
        total = state.model.regularization * np.eye(agent.features.dimension)
        for i in [*range(21), *range(n)]:
            s, a = states[i], 1
            rows = task.rows(int(s), int(a))
            x, p = np.asarray(agent.features.matrix)[rows], state.model.prob[0][rows]
            total += (x.T * p) @ x - np.outer(p @ x, p @ x)
        return np.linalg.slogdet(total)[1]

    before = logdet(0)
    assert logdet(kept - 1) <= before + np.log(2.0) < logdet(kept)


def play(mdp, of=None, **given):
    return up.simulate(mdp, up.agents.Random((of or mdp).true_task), **given)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: play(AVERAGE, n_episodes=5), "has an infinite horizon; give n_steps"),
        (lambda: play(RIVER, n_steps=5), "n_steps and restart are"),
        (lambda: play(AVERAGE, n_steps=0), "n_steps is 0"),
        (lambda: play(AVERAGE, n_steps=5, restart=1.0), r"restart is 1\.0; .* less than 1"),
        (lambda: play(AVERAGE, DISCOUNTED, n_steps=5), "the agent's task"),
        (lambda: up.agents.UCBVI(AVERAGE.true_task), r"UCBVI plans for .* infinite horizon"),
    ],
)
def test_bad_calls_are_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def shifted(pay):
    """RIVER in other units, its reward paid on arrival where `pay`."""
    p = np.zeros((5, 2, 5))
    p[RIVER.true_task.triples] = RIVER.probability[0]
    r = 10.0 * RIVER.reward - 3.0
    r = r[:, :, None] + (np.arange(5.0) - p @ np.arange(5.0)[:, None]) if pay else r
    return up.FiniteMDP.from_arrays(p, r, None, discount=0.95)


@pytest.mark.parametrize("pay", [False, True])
def test_rewards_of_any_size_and_of_the_next_state(pay):
    mdp = shifted(pay)
    task, best = mdp.true_task, up.solve(mdp)
    np.testing.assert_allclose(best.v, 10.0 * up.solve(DISCOUNTED).v - 3.0 / 0.05, atol=1e-6)
    run = up.simulate(mdp, up.agents.Optimal(mdp), n_steps=20_000)
    assert abs(run.regret).max() < 1e-6
    assert run.returns.min() >= task.reward_range[0] and run.returns.max() <= task.reward_range[1]
    for agent in (
        up.agents.UCRL2(task),
        up.agents.PSRL(task),
        up.agents.UCRLMNLSE(task, up.features.shared(task)),
    ):
        assert (up.simulate(mdp, agent, n_steps=500).regret >= -1e-6).all()
    prob, reward, tie_seed = mdp.probability[0], task.reward_rows[0], np.uint64(3)
    starts = np.append(0, np.cumsum((task.sizes - 1) ** 2))
    for plan in (  # the truth alone
        plan_model(task, prob, reward, tie_seed),
        plan_l1(task, prob, reward, np.zeros(10), tie_seed, 0.95),
        plan_tilted(task, prob, reward, np.zeros((1, starts[-1])), starts, tie_seed),
    ):
        np.testing.assert_allclose(plan.to_user_units(task).v[0], best.v, atol=1e-3)
    anything = plan_l1(task, prob, reward, np.full(10, 2.0), tie_seed, 0.95)
    paid, next_state_reward = task.user_rewards
    rows = paid[0].repeat(task.sizes) + (next_state_reward[0] if pay else 0.0)
    v = np.zeros(5)
    for _ in range(1_000):  # the best successor with certainty
        v = task.by_pair(rows + 0.95 * v[task.successors], np.maximum).reshape(5, 2).max(axis=1)
    np.testing.assert_allclose(anything.to_user_units(task).v[0], v, atol=1e-3)


def test_a_plan_is_played_by_name_and_a_terminal_value_is_refused():
    best = up.solve(DISCOUNTED)
    run = up.simulate(DISCOUNTED, best, n_steps=100)
    np.testing.assert_allclose(run.regret, 0.0, atol=1e-6)
    p, r = np.full((2, 1, 2), 0.5), np.zeros((2, 1))
    with pytest.raises(ValueError, match="terminal is given, but the horizon is infinite"):
        up.FiniteMDP.from_arrays(p, r, None, terminal=[0.0, 1.0])


@dataclass(frozen=True)
class WithoutReplan:
    """An agent that cannot say for how long it keeps a plan."""

    task: up.Task

    def init(self):
        return None

    plan = update = init


@dataclass(frozen=True)
class NeverPlays(WithoutReplan):
    """An agent that keeps no step of its plan."""

    def plan(self, state, rng):
        return up.Plan(np.zeros((1, 5), np.int8), np.zeros((2, 5)))

    def steps_until_replan(self, state, plan, episode):
        return 0


def test_an_agent_must_say_for_how_long_it_keeps_a_plan():
    """A wrapper that forgets it would otherwise play its first plan to the end."""
    with pytest.raises(TypeError, match="it has no steps_until_replan"):
        up.simulate(AVERAGE, WithoutReplan(AVERAGE.true_task), n_steps=5)
    with pytest.raises(ValueError, match="steps_until_replan is 0"):
        up.simulate(AVERAGE, NeverPlays(AVERAGE.true_task), n_steps=5)


@pytest.mark.parametrize("mdp", [AVERAGE, DISCOUNTED])
def test_visits_are_those_of_the_steps_returned(mdp):
    agent = learners(mdp)["UCRL2"]
    whole = up.simulate(mdp, agent, n_steps=90, seed=1)
    first = up.simulate(mdp, agent, n_steps=50, seed=1)
    rest = up.simulate(mdp, agent, n_steps=40, resume=first.checkpoint)
    assert first.visits.sum() == 50 and rest.visits.sum() == 40
    np.testing.assert_array_equal(first.visits + rest.visits, whole.visits)


def test_the_display_of_an_average_reward_run_shows_the_mean_of_its_values():
    run = up.simulate(AVERAGE, up.agents.Random(AVERAGE.true_task), n_steps=50)
    facts = run.card().facts
    assert facts["mean value"] == pytest.approx(run.values.mean())
    assert facts["optimal gain"] == pytest.approx(up.solve(AVERAGE).gain)
    assert "last value" not in facts and facts["steps"] == 50


@pytest.mark.parametrize("name", ["UCRL2", "EpsilonGreedy"])
def test_a_stationary_policy_has_no_steps(name, tmp_path):
    policy = up.simulate(AVERAGE, learners(AVERAGE)[name], n_steps=50).policy
    assert policy.stationary and policy.card().facts["horizon"] == "infinite"
    rng = np.random.default_rng(0)
    assert policy.act(0, 0, rng) in AVERAGE.true_task.actions
    if name == "UCRL2":
        assert policy.act(4) == policy.act(4, 10**6)
    with pytest.raises(ValueError, match="h is -1; steps are 0 or more"):
        policy.act(0, -1)
    policy.save(tmp_path / "p.npz")
    again = up.load_policy(tmp_path / "p.npz")
    assert again.stationary and again.to_pandas().equals(policy.to_pandas())
    assert "step" not in policy.to_pandas() and len(policy.to_pandas()) == AVERAGE.n_states
    with pytest.raises(ValueError, match="actions have 2 steps; a stationary policy has 1"):
        up.Policy(np.zeros((2, 3), int), 2, stationary=True)


def test_a_stream_goes_on_with_its_own_restarts(tmp_path):
    agent = up.agents.UCRL2(DISCOUNTED.task())
    whole = up.simulate(DISCOUNTED, agent, n_steps=400, seed=3, restart=0.1)
    first = up.simulate(DISCOUNTED, agent, n_steps=200, seed=3, restart=0.1)
    up.save_agent(tmp_path / "run.npz", first)
    for checkpoint in (first.checkpoint, up.load_agent(tmp_path / "run.npz", agent)):
        rest = up.simulate(DISCOUNTED, agent, n_steps=200, resume=checkpoint)
        assert np.array_equal(np.append(first.returns, rest.returns), whole.returns)
    with pytest.raises(ValueError, match=r"restart is 0\.2; the run to resume has 0\.1"):
        up.simulate(DISCOUNTED, agent, n_steps=200, resume=first.checkpoint, restart=0.2)


@pytest.mark.parametrize("discount", [None, 0.95])
@pytest.mark.parametrize("scale", [1e-12, 1e-9, 1e-6, 1e9, 1e100])
def test_plans_and_regret_are_in_proportion_to_the_rewards(scale, discount):
    """Tiny rewards are a tiny part of the range [0, 1] that is taken for granted."""
    frame = up.envs.riverswim(5).to_frame()

    def made(unit):
        rewards = frame.assign(reward=frame["reward"] * unit)
        return up.FiniteMDP.from_frame(rewards, None, discount=discount)

    def regret(mdp, name):
        task, named = mdp.task(), getattr(up.agents, name)
        agent = named(task, up.features.shared(task)) if "MNL" in name else named(task)
        return up.simulate(mdp, agent, n_steps=600, seed=0).regret

    for name in ("UCRL2", "UCRLMNLSE", "PSRLMNL", "PSRL", "Random"):
        np.testing.assert_allclose(
            regret(made(scale), name) / scale, regret(made(1.0), name), atol=2e-7
        )
