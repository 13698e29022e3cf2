"""Rewards of any size, also of the next state, and terminal values: the user's units everywhere."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng
from scipy import sparse

import upriver as up
from tests.building import build_agent, from_rows
from upriver.agents.table import AGENTS
from upriver.checks import Array
from upriver.mdp import FiniteMDP, Task
from upriver.planning import start_value

S, A, H = 4, 2, 5
RNG = default_rng(7)
RNG_REWARDS = default_rng(3).integers(0, 65, (4, 2, 4)) / 64.0
P = RNG.dirichlet(np.ones(S), (S, A)) * (RNG.random((S, A, S)) < 0.8)
P /= P.sum(axis=2, keepdims=True)
R = RNG.normal(-50.0, 200.0, (S, A, S))
LAST = RNG.normal(0.0, 300.0, S)


def mdp(**names) -> FiniteMDP:
    return FiniteMDP.from_arrays(P, R, H, terminal=LAST, **names)


def induction(policy: Array | None = None) -> Array:
    """(H + 1, S) plain backward induction with r(s, a, s') and the terminal value."""
    v = np.zeros((H + 1, S))
    v[H] = LAST
    for h in reversed(range(H)):
        q = (P * (R + v[h + 1])).sum(axis=2)
        v[h] = q.max(axis=1) if policy is None else q[np.arange(S), policy[h]]
    return v


def test_optimum_and_evaluation_are_in_the_users_units() -> None:
    plan = up.solve(mdp())
    np.testing.assert_allclose(plan.v, induction(), rtol=1e-13)
    np.testing.assert_allclose(plan.q(0).max(axis=1), induction()[0], rtol=1e-13)
    policy = default_rng(1).integers(A, size=(H, S))
    np.testing.assert_allclose(up.evaluate(mdp(), policy), induction(policy), rtol=1e-13)
    np.testing.assert_allclose(up.evaluate(mdp(), np.eye(A)[policy]), induction(policy), rtol=1e-13)
    np.testing.assert_allclose(mdp().reward, (P * R).sum(axis=2))


def test_mean_returns_equal_the_values() -> None:
    policy = default_rng(1).integers(A, size=(H, S))
    played = up.rollouts(mdp(), policy, 20_000, seed=3)
    s, a, s2 = played.states[:, :-1], played.actions, played.states[:, 1:]
    np.testing.assert_allclose(played.returns, R[s, a, s2].sum(axis=1) + LAST[s2[:, -1]])
    np.testing.assert_allclose(played.rewards[:, 0], R[s, a, s2][:, 0])
    error = played.returns.std() / np.sqrt(len(s))
    assert abs(played.returns.mean() - induction(policy)[0, 0]) < 4.0 * error


def agent_of(name: str, problem: FiniteMDP, task: Task):
    kind = AGENTS[name]
    if name == "optimal":
        return kind(problem)
    fields = inspect.signature(kind).parameters
    if "features" in fields and fields["features"].default is inspect.Parameter.empty:
        return kind(task, up.features.one_hot(task))
    return kind(task)


def rescaled(unit: float, shift: float, per_step: bool = False) -> FiniteMDP:
    """A problem in [0, 1], and the same in other units: rewards and terminal values move alike."""
    rng = default_rng(3)
    reward = rng.integers(65, size=(H, S, A) if per_step else (S, A)) / 64
    reward.flat[0], reward.flat[1] = 0.0, 1.0
    return FiniteMDP.from_arrays(P, shift + unit * reward, H)


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("hidden", [False, True])
def test_learning_does_not_depend_on_the_units(name: str, hidden: bool) -> None:
    """Rewards and units are such that nothing is rounded on the way in."""
    plain, other = rescaled(1.0, 0.0), rescaled(1024.0, -512.0)
    runs = []
    for problem in (plain, other):
        task = problem.task("full")
        if hidden:
            task = task.with_unknown_reward()
        runs.append(up.simulate(problem, agent_of(name, problem, task), 15, seed=2))
    one, two = runs
    np.testing.assert_array_equal(one.plan.policy, two.plan.policy)
    if name not in ("random", "always"):
        left = np.arange(H, -1, -1)[:, None]
        np.testing.assert_allclose(two.plan.v, 1024.0 * one.plan.v - 512.0 * left, rtol=1e-9)
        assert two.plan.q(0).shape == (S, A)
    np.testing.assert_allclose(two.values, 1024.0 * one.values - 512.0 * H, rtol=1e-9)
    np.testing.assert_allclose(two.returns, 1024.0 * one.returns - 512.0 * H, rtol=1e-9)
    np.testing.assert_allclose(two.regret, 1024.0 * one.regret, atol=1e-8)


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_plans_with_rewards_of_the_next_state(name: str) -> None:
    problem = mdp(local=(np.arange(S * A + 1) * S, np.tile(np.arange(S), S * A)))
    task = problem.task("local")
    agent = agent_of(name, problem, task)
    run = up.simulate(problem, agent, 30, seed=1)
    assert np.isfinite(run.plan.v).all()
    np.testing.assert_allclose(run.optimal_values[0], induction()[0, 0])
    assert (run.regret >= -1e-6).all()
    direct = agent.plan(run.state, default_rng(5)).to_user_units(task)
    if name not in ("random", "always"):
        np.testing.assert_allclose(direct.v[H], LAST)


@pytest.mark.parametrize(
    "name", ["ucrl-mnl-se", "ucrl-mnl", "psrl-mnl", "psrl", "ucbvi", "ucrl2", "ucrl-mnl-lr"]
)
def test_rewards_of_the_next_state_are_learned_with_the_transitions(name: str) -> None:
    """A bandit in which the reward of an arm depends only on the next state."""
    p = np.zeros((3, 2, 3))
    p[:, 0, :2] = 0.5, 0.5
    p[:, 1, :2] = 0.3, 0.7
    p[2, :, :] = 1 / 3
    r = np.zeros((3, 2, 3))
    r[..., 1] = 10.0
    r[..., 2] = -5.0
    problem = FiniteMDP.from_arrays(p, r, 1)
    agent = agent_of(name, problem, problem.task("full"))
    state, rng = agent.init(), default_rng(0)
    for arm in (0, 1):
        played = up.rollouts(problem, np.full(3, arm), 300, seed=arm)
        for episode in zip(*played, strict=True):
            state = agent.update(state, None, episode)
    plan = agent.plan(state, rng).to_user_units(agent.task)
    assert plan.policy[0, 0] == 1
    np.testing.assert_allclose(plan.q(0)[0], [5.0, 7.0], atol=2.5)  # some are optimistic


def test_the_bonus_covers_the_reward_of_the_next_state() -> None:
    """With one step V is 0, so only the reward of the next state is uncertain."""
    problem = FiniteMDP.from_arrays(P, R, 1)
    task = problem.task("full")
    features = up.features.one_hot(task)
    bold, greedy = (
        agent.plan(agent.init(), default_rng(0)).v[0]  # the numbers of errors are in the state
        for agent in (
            up.agents.UCRLMNLSE(task, features),
            up.agents.UCRLMNLSE(task, features, shared_errors=0.0, own_errors=0.0),
        )
    )
    assert (bold > greedy).all()


def test_all_builders_give_the_same_rewards() -> None:
    arrays = FiniteMDP.from_arrays(P, R, H, terminal=LAST)
    flat = sparse.csr_array(P.reshape(S * A, S))
    matrices = FiniteMDP.from_arrays(flat, sparse.csr_array(R.reshape(S * A, S)), H, terminal=LAST)
    rows = from_rows(
        {(s, a): {t: P[s, a, t] for t in np.flatnonzero(P[s, a])} for s, a in np.ndindex(S, A)},
        {(s, a): {t: R[s, a, t] for t in np.flatnonzero(P[s, a])} for s, a in np.ndindex(S, A)},
        H,
        terminal=LAST,
    )
    functions = FiniteMDP.from_functions(
        0,
        range(A),
        lambda s, a: np.flatnonzero(P[s, a]).tolist(),
        lambda s, a, t: P[s, a, t],
        lambda s, a, t: R[s, a, t],
        H,
        terminal=lambda s: LAST[s],
    )
    for other in (matrices, rows, functions):
        assert other.true_task.reward_range == arrays.true_task.reward_range
        assert start_value(other, up.solve(other).v) == pytest.approx(induction()[0, 0])
    stepwise = FiniteMDP.from_arrays(P, np.broadcast_to(R, (H, S, A, S)), H, terminal=LAST)
    np.testing.assert_allclose(up.solve(stepwise).v, induction())
    task = Task.from_successors(
        range(S),
        range(A),
        lambda s, a: np.flatnonzero(P[s, a]).tolist(),
        H,
        reward=lambda s, a, t: R[s, a, t],
        terminal=lambda s: LAST[s],
    )
    np.testing.assert_array_equal(task.next_state_reward, arrays.true_task.next_state_reward)
    np.testing.assert_array_equal(task.terminal, LAST)


def test_files_keep_any_reward(tmp_path) -> None:
    mdp().save(path := tmp_path / "m.npz")
    again = FiniteMDP.load(path)
    np.testing.assert_array_equal(
        again.true_task.next_state_reward, mdp().true_task.next_state_reward
    )
    np.testing.assert_array_equal(again.terminal, LAST)
    np.testing.assert_array_equal(up.solve(again).v, up.solve(mdp()).v)


def test_gymnasium_rewards_are_in_the_users_units() -> None:
    problem = mdp()
    env = up.envs.to_gymnasium(problem)
    total, s = 0.0, env.reset(seed=1)[0]
    for h in range(H):
        t, reward, _, _, _ = env.step(0)
        total += reward
        assert reward == pytest.approx(R[s, 0, t] + (LAST[t] if h == H - 1 else 0.0))
        s = t


def test_rewards_of_a_black_box_are_in_its_units() -> None:
    problem = FiniteMDP.from_arrays(P, R, H)
    env = up.envs.to_gymnasium(problem)
    known = problem.task("full")
    agent = up.agents.UCRLMNLSE(known, up.features.one_hot(known))
    here = up.simulate(problem, agent, 20, seed=4)
    assert up.learn(env, agent, 20, seed=4).plan.v[0].max() > here.values.min()
    hidden = known.with_unknown_reward()
    assert hidden.reward_range == known.reward_range
    run = up.learn(env, up.agents.UCBVI(hidden), 20)
    assert np.isfinite(run.plan.v).all()
    with pytest.raises(ValueError, match="outside reward_range"):
        up.learn(env, up.agents.UCBVI(replace(hidden, reward_range=(0.0, 1.0))), 20)


REFUSED = {
    "infinite": (lambda: FiniteMDP.from_arrays(P, R[..., 0] * np.inf, H), r"of \(s=0, a=0\) is"),
    "infinite later": (lambda: FiniteMDP.from_arrays(P, R * np.nan, H), "with next state"),
    "a terminal value": (lambda: mdp(states=list("abcd")).true_task.__class__(
        1, 1, 1, [0, 1], [0], terminal=[np.nan]), "terminal of 0 is nan"),
    "terminal shape": (lambda: FiniteMDP.from_arrays(P, R, H, terminal=[1]), "terminal has shape"),
    "too narrow": (lambda: mdp(reward_range=(0.0, 1.0)), "outside reward_range"),
    "terminal values with a discount": (lambda: up.solve(mdp(), discount=0.9), "no terminal value"),
    "two readings": (
        lambda: FiniteMDP.from_arrays(np.ones((2, 2, 2)) / 2, 3 * np.ones((2, 2, 2)), 2),
        r"may be \(H, S, A\) or \(S, A, S\)"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_rewards_are_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", sorted(set(AGENTS) - {"optimal", "always", "random"}))
def test_a_constant_in_rewards_of_the_next_state_changes_no_play(name) -> None:
    """It would be regressed on: a ridge draws it towards 0, and a bonus grows with it."""

    def regret(constant: float) -> Array:
        rewards = RNG_REWARDS + constant
        problem = FiniteMDP.from_arrays(P, rewards, H, reward_range=(constant, constant + 1.0))
        return up.simulate(problem, build_agent(AGENTS[name], problem, "known"), 30, seed=1).regret

    # powers of two, so that adding them to multiples of 1 / 64 does not round
    for constant in (16.0, -128.0):
        np.testing.assert_allclose(regret(constant), regret(0.0), rtol=1e-9, atol=1e-9)


def test_a_constant_reward_of_any_size_has_a_unit() -> None:
    for reward in (1e17, -1e17, 5.0):
        units = FiniteMDP.from_arrays(np.ones((1, 1, 1)), [[reward]], 3).task().units
        assert units.low == reward and units.unit >= 1.0
