import warnings

import numpy as np
import pytest

import upriver as up
from upriver.agents.base import Episode
from upriver.agents.table import AGENTS
from upriver.planning import start_value


class Walk:
    """A line of cells named by what is seen there; stepping right of the last ends the episode.

    Observations are arrays, actions are words, and no seed is needed: moves fail every third time.
    """

    def __init__(self, length=3, limit=None, pay=2.0):
        self.length, self.limit, self.pay = length, limit, pay
        self.seeds = []

    def reset(self, seed=None):
        self.seeds.append(seed)
        self.at, self.t = 0, 0
        self.rng = np.random.default_rng(seed)
        return np.array([self.at, -self.at]), {}

    def step(self, action):
        assert action in ("back", "on")
        self.t += 1
        if self.rng.random() < 0.75:
            self.at = max(self.at + (1 if action == "on" else -1), 0)
        done = self.at == self.length
        reward = self.pay if done else 0.0
        return np.array([self.at, -self.at]), reward, done, self.t == self.limit, {}


def walk_task(length=3, horizon=12, reward=None):
    cells = [(i, -i) for i in range(length + 1)]

    def successors(cell, action):
        i = cell[0]
        if i == length:
            return [cell]
        return {cell, cells[i + 1] if action == "on" else cells[max(i - 1, 0)]}

    bounds = (0.0, 2.0)  # what `Walk` pays
    return up.Task.from_successors(
        cells, ["back", "on"], successors, horizon, reward, reward_range=bounds
    )


def test_arrays_as_states_and_words_as_actions():
    task = walk_task()
    agent = up.agents.UCRLMNL(task, up.features.one_hot(task), radius=1e-3)
    run = up.learn(Walk(), agent, 60, seed=1)
    assert run.policy.act((0, 0), 0) == "on"
    assert run.returns[-30:].mean() > 1.9  # reached in 12 steps almost always, and paid 2
    assert run.lengths.max() <= 12 and run.lengths.min() >= 3
    # whatever the environment did, it ended itself exactly when it paid
    np.testing.assert_array_equal(run.ended, run.returns == 2.0)


def test_regret_is_unknown_and_says_so():
    run = up.learn(Walk(), up.agents.Random(walk_task()), 3)
    assert not hasattr(run, "regret")
    assert "regret unknown" in repr(run)


def test_observations_through_a_function():
    task = up.Task.from_successors(
        range(4), ["back", "on"], lambda s, a: range(4), 12, reward_range=(0, 2)
    )
    run = up.learn(Walk(limit=2), up.agents.Random(task), 5, state_of=lambda x: int(x[0]))
    assert (run.lengths == 2).all() and not run.ended.any()  # truncated early, and no end claimed


def test_one_state_for_the_end():
    """The environment's last observation need not be a state at all."""
    cells = [(0, 0), (1, -1), (2, -2), "over"]
    task = up.Task.from_successors(
        cells, ["back", "on"], lambda s, a: [s] if s == "over" else cells, 12, lambda s, a: 0.0
    )
    run = up.learn(Walk(), up.agents.Random(task), 30, end="over")
    assert run.ended.any()
    with pytest.raises(ValueError, match=r"observation \(3, -3\) is unknown; there are 4 states"):
        up.learn(Walk(), up.agents.Random(task), 30)


def test_an_end_where_the_task_goes_on_is_refused():
    task = up.Task.from_successors(
        range(4), ["back", "on"], lambda s, a: range(4), 12, reward_range=(0, 2)
    )
    with pytest.raises(ValueError, match="ended in state 3, where the task goes on"):
        up.learn(Walk(), up.agents.Random(task), 30, state_of=lambda x: int(x[0]))
    pays = walk_task(reward=lambda s, a: 0.5)
    with pytest.raises(ValueError, match=r"ended in state \(3, -3\), where the task pays"):
        up.learn(Walk(), up.agents.Random(pays), 30)


def test_unknown_rewards_hope_for_nothing_after_the_end():
    """After learning, the planned value of the end is 0: nobody is paid there."""
    task = walk_task()
    agent = up.agents.UCRLMNL(task, up.features.one_hot(task), reward_bonus=0.0)
    run = up.learn(Walk(), agent, 40)
    assert run.plan.v[0, 3] == pytest.approx(0.0, abs=1e-6 + 12 * 1e-2)
    assert run.state.rewards.visits[3 * 2 : 3 * 2 + 2].min() > 0


def quitter(reward_range=(-1.0, 1.0)):
    """Three states of work, which costs first and pays in the third, and an end to quit to."""

    def successors(s, a):
        if s == "end" or a == "quit":
            return ["end"]
        return [0, min(s + 1, 2)]

    def reward(s, a):
        return 0.0 if s == "end" or a == "quit" else (1.0 if s == 2 else -0.1)

    return up.Task.from_successors(
        [0, 1, 2, "end"], ["work", "quit"], successors, 6, reward, reward_range=reward_range
    )


LEARNERS = sorted(set(AGENTS) - {"always", "optimal", "random"})


@pytest.mark.parametrize("name", LEARNERS)
def test_the_end_of_an_episode_is_worth_0_by_definition(name):
    """An end that was never visited is no promise: its value is 0 in the user's units, also where
    its features are not zero and 0 is no extreme reward."""
    task, rng = quitter(), np.random.default_rng(0)
    rows = {}
    phi = up.features.from_function(task, lambda *x: rows.setdefault(x, rng.normal(size=3)))
    with_features = "features" in AGENTS[name].__dataclass_fields__
    agents = [AGENTS[name](task, phi) if with_features else AGENTS[name](task)]
    if "phi" in AGENTS[name].__dataclass_fields__:  # a linear learner that generalises
        agents.append(AGENTS[name](task, phi=rng.normal(size=(8, 3))))
    for agent in agents:
        plan = agent.plan(agent.init(), rng).to_user_units(task)
        np.testing.assert_allclose(plan.v[:, 3], 0.0, atol=1e-12)


class Quitting:
    """The black box of `quitter`: it ends when the end is reached."""

    def reset(self, seed=None):
        self.s, self.rng = 0, np.random.default_rng(seed)
        return self.s, {}

    def step(self, action):
        if action == "quit":
            return "end", 0.0, True, False, {}
        reward = 1.0 if self.s == 2 else -0.1
        self.s = min(self.s + 1, 2) if self.rng.random() < 0.9 else 0
        return self.s, reward, False, False, {}


def learn_slowly(agent, n_episodes, seed):
    """Returns and the last plan, with the public methods of the agent and plain lists."""
    task, generators = agent.task, map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
    environment, randomness = generators
    state, returns, env = agent.init(), [], Quitting()
    low, high = task.reward_range
    for k in range(n_episodes):
        plan = agent.plan(state, randomness)
        s, _ = env.reset(seed=int(environment.random() * 2**31))
        states, actions, paid = [task.state_names.number(s)], [], []
        ended = False
        while len(actions) < 6 and not ended:
            actions.append(int(plan.policy[len(actions), states[-1]]))
            s, reward, ended, _, _ = env.step(["work", "quit"][actions[-1]])
            states.append(task.state_names.number(s))
            paid.append(reward)
        returns.append(sum(paid))
        turn = k % 2
        while ended and task.reward is None and len(actions) < 6:  # what follows an end pays 0
            states, actions, paid = [*states, 3], [*actions, turn], [*paid, 0.0]
            turn = 1 - turn
        scaled = (np.array(paid) - low) / (high - low)
        state = agent.update(state, plan, Episode(np.array(states), np.array(actions), scaled))
    return returns, plan


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", LEARNERS)
def test_learning_agrees_with_a_slow_reference_where_episodes_end_early(name, known):
    task = quitter() if known else quitter().with_unknown_reward()
    run = up.learn(Quitting(), AGENTS[name](task), 12, seed=4)
    returns, plan = learn_slowly(AGENTS[name](task), 12, seed=4)
    np.testing.assert_allclose(run.returns, returns, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(run.plan.policy, plan.policy)
    assert run.ended.any()


@pytest.mark.parametrize("name", ["lsvi-ucb", "lsvi-phe", "uc-matrix-rl"])
def test_nobody_learns_to_quit(name):
    run = up.learn(Quitting(), AGENTS[name](quitter()), 150, seed=0)
    assert run.returns[-20:].mean() > 2.0  # quitting earns 0


def test_continuations_after_the_end_begin_with_each_action_in_turn():
    task = walk_task()
    seen = []

    class Watch(up.agents.Always):
        def update(self, state, plan, episode):
            seen.append(episode.actions)
            return super().update(state, plan, episode)

    run = up.learn(Walk(), Watch(task, 1), 12, seed=0)
    first = [e[n] for e, n in zip(seen, run.lengths, strict=True) if n < len(e)]
    assert len(first) >= 8 and abs(np.mean(first) - 0.5) < 0.2


def test_continued_equals_uninterrupted():
    task = walk_task()
    agent = up.agents.UCRLMNL(task, up.features.one_hot(task), radius=1e-2)
    whole = up.learn(Walk(), agent, 30, seed=5)
    first = up.learn(Walk(), agent, 13, seed=5)
    rest = up.learn(Walk(), agent, 17, resume=first.checkpoint)
    for name in ("returns", "lengths", "ended"):
        joined = np.concatenate([getattr(first, name), getattr(rest, name)])
        assert joined.tobytes() == getattr(whole, name).tobytes()
    assert whole.plan.policy.tobytes() == rest.plan.policy.tobytes()


def test_every_episode_has_its_own_seed():
    env = Walk()
    up.learn(env, up.agents.Random(walk_task()), 6, seed=2)
    assert len(set(env.seeds)) == 6
    other = Walk()
    up.learn(other, up.agents.Always(walk_task()), 6, seed=2)
    assert env.seeds == other.seeds  # every agent meets the same environment


def test_a_black_box_and_its_table_agree():
    """Learning through reset and step reaches the value that the table says is best."""
    mdp = up.envs.riverswim(5, 15)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = up.envs.to_gymnasium(mdp)
    task = mdp.task("local")
    agent = up.agents.UCRLMNL(task, up.features.shared(task), radius=1e-3)
    run = up.learn(env, agent, 150, seed=0)
    value = start_value(mdp, up.evaluate(mdp, run.plan.policy))
    assert value >= 0.95 * start_value(mdp, up.solve(mdp).v)


@pytest.mark.parametrize(
    ("reset", "step", "message"),
    [
        ((0, {}), (0, 1.0, False, {}), "env.step returned 4 values; it must return 5"),
        ((0, {}), 7, "env.step returned 7; it must return 5"),
        (0, None, "env.reset returned 0; it must return"),
        ((0, 0), None, r"env.reset returned \(0, 0\); it must return"),
    ],
)
def test_the_results_of_reset_and_step_are_checked(reset, step, message):
    class Old:
        def reset(self, seed=None):
            return reset

        def step(self, action):
            return step

    task = up.Task.from_successors(range(2), [0, 1], lambda s, a: range(2), 3)
    with pytest.raises(TypeError, match=message):
        up.learn(Old(), up.agents.Random(task), 1)


def test_an_infinite_horizon_is_refused():
    task = up.envs.riverswim(4).infinite_horizon(0.9).true_task
    with pytest.raises(ValueError, match=r"agent\.task has an infinite horizon"):
        up.learn(Walk(), up.agents.Random(task), 1)


def cliff(reward_range):
    """A cliff of two states: a step costs 1, and the second state ends the episode."""
    mdp = up.FiniteMDP.from_arrays([[[0.5, 0.5]], [[0.0, 1.0]]], [[-1.0], [0.0]], 4)
    task = up.Task.from_successors(
        range(2), range(1), lambda s, a: [0, 1] if s == 0 else [1], 4, reward_range=reward_range
    )
    return up.envs.to_gymnasium(mdp), up.agents.UCRL2(task)


def test_steps_after_the_end_pay_0_which_must_be_a_possible_reward():
    """With a range of -2 to -1 the end would be taken to pay -1."""
    env, agent = cliff((-2.0, -1.0))
    with pytest.raises(ValueError, match=r"after the end .* pay 0, outside .* \(-2, -1\)"):
        up.learn(env, agent, 20, seed=0)
    env, agent = cliff((-2.0, 0.0))
    assert up.learn(env, agent, 20, seed=0).ended.any()


def test_a_terminal_value_that_the_task_knows_is_not_learned_as_a_reward():
    prob = np.zeros((3, 2, 3))
    prob[0, 0], prob[0, 1] = [0.2, 0.8, 0.0], [0.2, 0.0, 0.8]
    prob[1, :], prob[2, :] = [0.5, 0.5, 0.0], [0.5, 0.0, 0.5]
    reward = np.array([[0.1, 0.1], [0.5, 0.5], [0.0, 0.0]])
    ends = {"terminal": [0.0, 0.0, 0.6], "reward_range": (0.0, 2.0)}
    mdp = up.FiniteMDP.from_arrays(prob, reward, 3, **ends)
    task = mdp.task().with_unknown_reward()
    run = up.learn(up.envs.to_gymnasium(mdp), up.agents.UCRL2(task), 200, seed=0)
    total, visits = (task.by_pair(x) for x in run.state.rewards[:2])
    seen = visits > 0
    learned = 2.0 * total[seen] / visits[seen]
    np.testing.assert_allclose(learned, reward.ravel()[seen], atol=1e-12)
    assert run.returns.max() > 1.1  # the return has it all the same


@pytest.mark.parametrize("reward", [np.inf, np.nan, None, "x"])
def test_a_reward_that_is_no_finite_number_is_refused(reward):
    class Paying:
        def reset(self, seed=None):
            return 0, {}

        def step(self, action):
            return 0, reward, False, False, {}

    task = up.Task.from_successors([0], [0], lambda s, a: [0], 2, lambda s, a: 0.0)
    with pytest.raises(ValueError, match=r"a reward of env\.step is .*finite number"):
        up.learn(Paying(), up.agents.UCRL2(task), 2, seed=0)
