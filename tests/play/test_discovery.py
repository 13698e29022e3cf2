"""Learning with nothing declared: what is found, by hand; what is learned; bad environments."""

import numpy as np
import pytest

import upriver as up
from upriver.agents import ucrl_mnl_se
from upriver.mnl.pooled import likely_spread
from upriver.planning import policy_iteration, start_value
from upriver.play.discovery import Declared, Discovery
from upriver.play.greedy import greedy_plan


def names(found, s, a):
    """The possible next states of a pair, by name."""
    task = found.task
    return {task.state_names[i] for i in task.successors[task.rows_of(s, a)]}


def line(*steps, **declared):
    """A discovery on a line of numbers that has seen steps (s, a, s2, reward, ended)."""
    found = Discovery(Declared(10, actions=["left", "right"], **declared))
    found.node(steps[0][0])
    found.rebuild()
    for s, a, s2, reward, ended in steps:
        found.see(found.node(s), a, found.node(s2, ended), reward)
    found.episodes = 1
    found.rebuild()
    return found


def test_successors_by_hand():
    """Right was seen to add 1 and to stay, left to subtract 1; 4 ends the episode."""
    steps = (0, 1, 1, 0.0, False), (1, 1, 1, 0.0, False), (1, 0, 0, 0.0, False)
    found = line(*steps, (1, 1, 2, 0.0, False), (2, 1, 4, 5.0, True))
    assert found.task.support == "discovered"
    assert list(found.task.state_names) == [0, 1, 2, 4, "new"]
    assert names(found, 0, "right") == {0, 1, 2, "new"}  # +1, 0 and +2
    assert names(found, 2, "right") == {2, 4, "new"}  # 3 is not known
    assert names(found, 2, "left") == {1, "new"}
    assert names(found, 0, "left") == {"new"}  # -1 is not known, and nothing else was seen
    assert names(found, 4, "left") == {4} and names(found, "new", "left") == {"new"}
    # rewards: those of the end are known, those of the unseen the largest, others to be learned
    task = found.task
    assert task.reward_range == (0.0, 5.0)
    known = task.partial_reward
    assert (known[task.rows_of(4, "left")] == 0.0).all()
    assert known[task.rows_of(0, "left")][-1] == 5.0
    assert np.isnan(known[task.rows_of(0, "right")][0])


def test_an_action_that_led_to_a_named_end_may_lead_there_from_elsewhere():
    """As in Blackjack, where sticking wins or loses: "won" has no number to add to."""
    found = line((0, 1, 1, 0.0, False), (1, 1, "won", 1.0, True), (2, 0, 1, 0.0, False))
    assert names(found, 0, "right") == {1, "won", "new"}
    assert names(found, 2, "right") == {"won", "new"}
    assert names(found, 0, "left") == {"new"}


def test_an_action_that_ended_an_episode_may_end_it_from_elsewhere():
    """Right ended the episode in 1, which is also a state where it goes on: "end" takes that."""
    found = line((1, 1, 1, 1.0, True), (0, 0, 1, 0.0, False))
    assert names(found, 1, "right") == {"end", "new"}
    assert names(found, 0, "right") == {"end", "new"}


def test_surprises_are_counted_as_long_as_they_are_single():
    found = line((0, 1, 1, 0.0, False), (1, 1, 2, 0.0, False))
    task = found.task
    new = {s: task.rows_of(s, "right").stop - 1 for s in (0, 1)}
    assert found.sums()[3, [new[0], new[1]]].tolist() == [1.0, 1.0]
    found.see(0, 1, 1, 0.0)  # seen again: it is no surprise any more
    assert found.sums()[3, [new[0], new[1]]].tolist() == [0.0, 1.0]
    found.rebuild()
    assert found.sums()[3, [new[0], new[1]]].tolist() == [0.0, 1.0]
    assert found.sums()[0].sum() == 3.0  # and what was counted is carried over


def test_sums_on_the_unit_scale():
    found = line((0, 1, 1, -3.0, False), (1, 0, 0, 1.0, False), (1, 0, 0, -1.0, False))
    assert found.task.reward_range == (-3.0, 1.0)
    sums, row = found.reward_sums(found.sums()), found.task.rows_of(1, "left").start
    assert sums.visits[row] == 2.0
    assert sums.total[row] == pytest.approx(1.0 + 0.5)
    assert sums.squares[row] == pytest.approx(1.0 + 0.25)


def test_costs_have_no_imagined_gain():
    assert line((0, 1, 1, -2.0, False)).task.reward_range == (-2.0, 0.0)
    assert line((0, 1, 1, 0.0, False)).task.reward_range == (0.0, 1.0)
    assert line((0, 1, 1, 0.0, False), reward_range=(-1, 9)).task.reward_range == (-1.0, 9.0)


def test_a_state_where_episodes_only_sometimes_end():
    found = line((0, 1, 1, 0.0, False), (0, 1, 1, 1.0, True), (1, 1, 1, 0.0, False))
    assert list(found.task.state_names) == [0, 1, "end", "new"]
    row = found.task.rows_of(0, "right")
    ends = row.start + list(found.task.successors[row]).index(2)
    assert found.sums()[:2, ends].tolist() == [1.0, 1.0]


def test_declared_successors_leave_nothing_new():
    found = line(
        (0, 1, 1, 0.0, False), (1, 1, 2, 1.0, True),
        successors=lambda s, a: [min(s + 1, 2)] if a == "right" else [max(s - 1, 0)],
    )  # fmt: skip
    assert names(found, 0, "left") == {0} and names(found, 0, "right") == {1}
    assert names(found, 2, "left") == {2}  # it was declared, and turned out to be an end
    assert "end" not in list(found.task.state_names)


def test_declared_rewards_are_known():
    found = line((0, 1, 1, 0.3, False), reward=lambda s, a, s2: None if s2 == 0 else 2.0 * s2)
    known, task = found.task.partial_reward, found.task
    assert known[task.rows_of(0, "right")].tolist()[0] == 2.0
    assert task.reward_range == (0.0, 2.0)


@pytest.fixture(scope="module")
def lake():
    return up.learn("FrozenLake-v1", n_episodes=150, seed=0)


def test_the_frozen_lake_with_nothing_declared(lake):
    mdp = up.envs.from_gymnasium("FrozenLake-v1")
    policy = lake.greedy_policy
    table = [[policy.act(s, h) if s in policy.states else 0 for s in range(16)] for h in range(100)]
    value = start_value(mdp, up.evaluate(mdp, np.array(table)))
    assert value >= 0.95 * start_value(mdp, up.solve(mdp).v)
    assert lake.policy.act(0, 0) in range(4)
    assert "to new" in str(lake.model.summary())
    assert "150 episodes" in repr(lake)


def test_a_continued_discovery_equals_an_uninterrupted_one(lake):
    first = up.learn("FrozenLake-v1", n_episodes=60, seed=0)
    for resume in (first, first.checkpoint):  # the checkpoint stays what it is
        rest = up.learn("FrozenLake-v1", n_episodes=90, resume=resume)
        joined = np.concatenate([first.returns, rest.returns])
        np.testing.assert_array_equal(joined, lake.returns)
        np.testing.assert_array_equal(rest.plan.policy, lake.plan.policy)


class Line:
    """Words as states; `spoil(t)` may replace the result of step t."""

    def __init__(self, spoil=None):
        self.spoil, self.t = spoil, 0

    def reset(self, seed=None):
        self.at, self.rng = 0, np.random.default_rng(seed)
        return "abcde"[0], {}

    def step(self, action):
        self.t += 1
        move = 1 if action == "on" else -1
        self.at = min(max(self.at + (move if self.rng.random() < 0.8 else 0), 0), 4)
        found = "abcde"[self.at], float(self.at == 4), self.at == 4, False, {}
        return (self.spoil and self.spoil(self.t)) or found


def test_states_without_variables_and_named_actions():
    run = up.learn(Line(), n_episodes=60, horizon=12, actions=["back", "on"], seed=3)
    assert run.returns[-20:].mean() > 0.85
    assert run.greedy_policy.act("a") == "on"


@pytest.mark.parametrize("cost", [0.0, -1.0])
def test_what_was_never_tried_is_not_greedy(cost):
    """Of "b" one knows that going costs 1 + cost; anything else might end all costs, or pay."""
    found = Discovery(Declared(8, actions=["go", "x", "y"]))
    found.node("a")
    found.rebuild()
    for s, s2, reward in (("a", "b", cost), ("b", "a", cost + 0.5)):
        found.see(found.node(s), 0, found.node(s2), reward)
    found.episodes = 1
    found.learn()
    policy = greedy_plan(found.agent, found.state).policy
    assert (policy[:, found.task.state_names.number("b", "state")] == 0).all()


def test_every_action_is_tried_where_each_step_pays():
    """Words say nothing about where an action leads, and "left" pays .6 in each step."""

    class Two:
        def reset(self, seed=None):
            self.at = "a"
            return self.at, {}

        def step(self, action):
            paid = 1.0 if self.at == "b" else 0.6 * (action == "left")
            self.at = "b" if action == "right" else "a"
            return self.at, paid, False, False, {}

    run = up.learn(Two(), n_episodes=30, horizon=10, actions=["left", "right"], seed=0)
    assert (run.returns[-10:] == 9.0).all()


class River:
    """A line of ten numbers, against the current; the far end pays."""

    def reset(self, seed=None):
        self.rng, self.at = np.random.default_rng(seed), 0
        return 0, {}

    def step(self, action):
        rises, falls = action == "up" and self.rng.random() < 0.6, self.rng.random() < 0.5
        self.at = min(max(self.at + (1 if rises else -1 if falls else 0), 0), 9)
        return self.at, float(self.at == 9), False, False, {}


def test_the_spread_is_estimated_as_often_as_by_the_agent(monkeypatch):
    """Also where the model is not fitted after every episode."""
    estimated = []

    def count(features, model):
        estimated.append(int(model.counts.sum()))
        return likely_spread(features, model)

    monkeypatch.setattr(ucrl_mnl_se, "likely_spread", count)
    run = up.learn(River(), n_episodes=700, horizon=5, actions=["down", "up"], seed=0)
    due = {ucrl_mnl_se.growth_steps(k + 1) for k in range(1, 701)}
    assert len(estimated) >= len(due) - 2  # steps of k up to 3 are less than an episode
    assert run.model.counts[run.task.successors < run.task.n_states - 1].sum() == 3_500


def test_states_may_be_called_new_and_end():
    class Customer(Line):
        def reset(self, seed=None):
            return "new", super().reset(seed)[1]

    run = up.learn(Customer(), n_episodes=5, horizon=10, actions=["left", "right"])
    assert list(run.task.state_names)[-1] == "(new)" and "new" in run.task.state_names
    found = line((1, 1, "end", 1.0, False), (1, 1, 1, 1.0, True))
    assert list(found.task.state_names)[-2:] == ["(end)", "new"]


def test_a_stream_with_a_discount():
    class Endless(Line):
        def step(self, action):
            s, r, _, _, info = super().step(action)
            return s, r, False, False, info

    run = up.learn(
        Endless(), n_episodes=60, discount=0.9, horizon=20, actions=["back", "on"], seed=0
    )
    assert run.policy.stationary and (run.lengths == 20).all()
    assert run.greedy_policy.act("a") == "on" and run.returns[-10:].mean() > 10


def fail(error):
    raise error


STEPS = {
    "nan": (lambda: ("a", np.nan, False, False, {}), r"a reward of env\.step is nan"),
    "huge": (lambda: ("a", 1e200, False, False, {}), "give rewards in a larger unit"),
    "unhashable": (lambda: ({"a"}, 0.0, False, False, {}), "not hashable; let `state_of` return"),
    "no state": (lambda: ((1, np.nan), 0.0, False, False, {}), "has nan, which is no state"),
    "old": (lambda: ("a", 0.0, False, {}), r"env\.step returned 4 values"),
    "broken": (lambda: fail(RuntimeError("no power")), "no power"),
    "full": (lambda: fail(MemoryError("full")), "full"),
}
GIVEN = {"horizon": 12, "actions": ["back", "on"]}


def assert_kept(error):
    assert len(error.value.run.returns) >= 8 and "attribute `run`" in error.value.__notes__[0]
    assert error.value.run.policy.act("a") in ("back", "on")
    assert error.value.run.greedy_policy.act("a") in ("back", "on")


@pytest.mark.parametrize("kind", STEPS)
def test_bad_steps_keep_what_was_learned(kind):
    result, message = STEPS[kind]
    env = Line(lambda t: result() if t > 100 else None)
    with pytest.raises(Exception, match=message) as error:
        up.learn(env, n_episodes=60, **GIVEN)
    assert_kept(error)


FUNCTIONS = {
    "callback": lambda n, k, r: fail(OSError("bad")) if k > 20 else None,
    "features": lambda n, task: fail(OSError("bad")) if n > 10 else up.features.one_hot(task),
    "reward": lambda n, s, a: fail(OSError("bad")) if n > 150 else None,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bad_functions_of_the_user_keep_what_was_learned(name):
    """Also where the task is being made again: then the run has the task before."""
    calls, function = [], FUNCTIONS[name]

    def counted(*given):
        calls.append(given)
        return function(len(calls), *given)

    wrapped = {
        "callback": lambda k, r: counted(k, r), "features": lambda task: counted(task),
        "reward": lambda s, a: counted(s, a),
    }  # fmt: skip
    with pytest.raises(OSError, match="bad") as error:
        up.learn(Line(), n_episodes=60, **GIVEN, **{name: wrapped[name]})
    assert_kept(error)


def test_an_interrupted_fit_keeps_what_was_learned(monkeypatch):
    calls, refit = [], Discovery.refit

    def interrupted(self, k, since):
        calls.append(k)
        if len(calls) == 12:
            self.state.model.prob[:] = np.nan  # as in the middle of a fit
            raise KeyboardInterrupt
        refit(self, k, since)

    monkeypatch.setattr(Discovery, "refit", interrupted)
    run = up.learn(Line(), n_episodes=60, **GIVEN)
    assert 5 <= len(run.returns) < 60 and run.greedy_policy.act("a") in ("back", "on")
    assert np.isfinite(run.plan.v).all()


WRONG = {
    "no actions": ({"actions": []}, r"actions is \[\]; it must be a list of names"),
    "states": ({"states": 3}, "states is 3; it must be a list of names"),
    "range": ({"reward_range": 1}, r"reward_range is 1; it must be \(low, high\)"),
    "successors": ({"successors": lambda s, a: 3}, r"successors\('a', 'back'\) is 3; it must be a"),
    "successor": (
        {"successors": lambda s, a: [{1}]},
        r"of 'a' is \{1\}, which is not hashable",
    ),
    "horizon": ({"horizon": 10**9}, "would have 2,000,000,000 entries.* give a shorter `horizon`"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_declarations(kind):
    given, message = WRONG[kind]
    with pytest.raises((ValueError, TypeError), match=message):
        up.learn(Line(), n_episodes=3, **(GIVEN | given))


def test_what_a_resumed_run_refuses():
    run = up.learn(Line(), n_episodes=3, **GIVEN)
    with pytest.raises(ValueError, match="horizon is 3; it is not for a run to resume"):
        up.learn(Line(), n_episodes=3, resume=run, horizon=3)
    with pytest.raises(ValueError, match="env has 4 actions, the run to resume 2"):
        up.learn("FrozenLake-v1", n_episodes=3, resume=run)


def test_observations_of_any_kind():
    """Arrays in tuples, and the names that a discovery uses itself."""
    kinds = {
        "a": "new", "b": (np.array([1, 2]), [3]), "c": None, "d": 10**400, "e": "end",
    }  # fmt: skip
    run = up.learn(Line(), n_episodes=30, state_of=kinds.__getitem__, **GIVEN)
    assert list(run.task.states)[-1] == "(new)" and ((1, 2), (3,)) in run.task.states
    assert run.greedy_policy.act("new") == "on"


def test_features_of_changes_while_one_state_is_known():
    class Count(Line):
        def step(self, action):
            s, *rest = super().step(action)
            return "abcde".index(s), *rest

        def reset(self, seed=None):
            return 0, super().reset(seed)[1]

    run = up.learn(Count(), n_episodes=20, features=up.features.changes, **GIVEN)
    assert run.returns.sum() > 0


def test_an_environment_without_a_seed():
    class NoSeed(Line):
        def reset(self):
            return "a", {}

    with pytest.raises(TypeError, match=r"env\.reset takes no seed; give it .* seed=None"):
        up.learn(NoSeed(), n_episodes=3, horizon=12, actions=["back", "on"])


def test_what_must_be_given():
    with pytest.raises(ValueError, match="give the names of its `actions`"):
        up.learn(Line(), n_episodes=3)
    with pytest.raises(ValueError, match="no time limit; give the `horizon`, or a `discount`"):
        up.learn(Line(), n_episodes=3, actions=["back", "on"])
    task = up.envs.riverswim(3).true_task
    with pytest.raises(
        ValueError, match=r"reward is .*; it is not for runs with an agent; its task"
    ):
        up.learn(Line(), up.agents.Random(task), 3, reward=lambda s, a: 0.0)


def test_callback_time_and_interruption_end_a_run():
    seen = []

    def stop(k, total):
        seen.append((k, total))
        return k == 5

    given = {"horizon": 12, "actions": ["back", "on"]}
    run = up.learn(Line(), n_episodes=50, callback=stop, **given)
    assert len(run.returns) == 5 and seen[-1] == (5, run.returns[-1])
    assert len(up.learn(Line(), n_episodes=50, max_seconds=1e-9, **given).returns) == 1

    def interrupt(t):
        if t > 60:
            raise KeyboardInterrupt

    run = up.learn(Line(interrupt), n_episodes=50, **given)
    assert 5 <= len(run.returns) < 50


def test_too_many_states(monkeypatch):
    monkeypatch.setattr("upriver.play.discovery.MAX_STATES", 50)

    class Wide(Line):
        def step(self, action):
            return self.rng.random(), 0.0, False, False, {}

    with pytest.raises(ValueError, match="more than 50 states were seen; let `state_of`"):
        up.learn(Wide(), n_episodes=50, horizon=12, actions=["back", "on"])


class Plant:
    """Wear, stock and orders; run, maintain or expedite. Chosen models went round in circles."""

    def reset(self, seed=None):
        self.chance, self.wear, self.stock, self.orders = np.random.default_rng(seed), 0, 3, 0
        return (self.wear, self.stock, self.orders), {}

    def step(self, action):
        draw, cost = self.chance.random, 0.0
        self.orders = min(self.orders + (draw() < 0.5), 3)
        if action == "maintain":
            self.wear, cost = 0, 3.0
        elif action == "expedite":
            self.stock, cost = min(self.stock + 1, 6), 2.0
        else:
            if self.wear < 5 and draw() < 0.9 - 0.12 * self.wear:
                self.stock = min(self.stock + 1, 6)
            self.wear = min(self.wear + (draw() < 0.4), 5)
            cost = 4.0 * (self.wear == 5)
        sold = min(self.stock, self.orders)
        self.stock, self.orders = self.stock - sold, self.orders - sold
        cost += 0.2 * self.stock + 1.5 * self.orders
        return (self.wear, self.stock, self.orders), -cost, False, False, {}


def test_plans_of_a_stream_end(monkeypatch):
    """A plan where the choice of a model does not settle took a million passes over the states."""
    sweeps, run_one = [], policy_iteration.run_policy_iteration

    def counted(*arguments):
        found = run_one(*arguments)
        sweeps.append((found.sweeps, found.half_spread))
        return found

    monkeypatch.setattr(policy_iteration, "run_policy_iteration", counted)
    monkeypatch.setattr(policy_iteration, "MAX_SWEEPS", 20_000)
    actions = ["run", "maintain", "expedite"]
    up.learn(Plant(), n_episodes=100, horizon=50, discount=0.99, actions=actions, seed=0)
    longest, widest = np.max(sweeps, axis=0)
    assert 150 < longest < 10_000 and widest < 1e-6


def test_policies_are_of_states_that_can_be_met():
    run = up.learn(Plant(), n_episodes=5, horizon=50, actions=["run", "expedite"], seed=0)
    assert "new" in run.task.states
    for policy in (run.policy, run.greedy_policy):
        assert "new" not in policy.state_names and policy.states.size == run.task.n_states - 1
        with pytest.raises(ValueError, match=r"state \(9, 9, 9\) is unknown to the policy; there"):
            policy.act((9, 9, 9))
    greedy = greedy_plan(run.checkpoint.fingerprint[0], run.state)
    assert (run.greedy_policy.actions == greedy.policy[:, :-1]).all()


def test_a_word_is_no_list_of_actions():
    with pytest.raises(ValueError, match="actions is 'run'; it must be a list of names"):
        up.learn(Plant(), n_episodes=1, horizon=5, actions="run")


class Two:
    """Two steps with four actions each, that pay 1 by chance."""

    chances = (0.61, 0.32, 0.13, 0.11), (0.75, 0.83, 0.59, 0.68)

    def reset(self, seed=None):
        self.chance, self.state = np.random.default_rng(seed), 0
        return 0, {}

    def step(self, action):
        was, self.state = self.state, 1
        return 1, float(self.chance.random() < self.chances[was][action]), was == 1, False, {}


class Arms:
    """A bandit with four arms that never ends."""

    def reset(self, seed=None):
        self.chance = np.random.default_rng(seed)
        return 0, {}

    def step(self, action):
        pay = self.chance.random() < (0.2, 0.5, 0.4, 0.8)[action]
        return 0, float(pay), False, False, {}


@pytest.mark.parametrize("seed", range(4))
def test_every_action_is_tried_where_the_first_was_good_enough(seed):
    """An untried action was worth no more than the best that was known."""
    run = up.learn(Two(), n_episodes=300, horizon=5, actions=range(4), seed=seed)
    tries = run.checkpoint.state.tries
    assert all(tries[s, a] > 0 for s in (0, 1) for a in range(4))
    assert [run.greedy_policy.act(s, s) for s in (0, 1)] == [0, 1]


@pytest.mark.parametrize("discount", [0.9, 0.99, 0.999])
def test_every_action_of_a_stream_is_tried(discount):
    run = up.learn(Arms(), n_episodes=60, discount=discount, actions=range(4), seed=2)
    assert len(run.checkpoint.state.tries) == 4 and run.greedy_policy.act(0) == 3


def test_declared_successors_need_no_trial():
    run = up.learn(
        Two(), n_episodes=300, horizon=5, actions=range(4), seed=0,
        reward=lambda s, a: Two.chances[s][a], successors=lambda s, a: [1],
    )  # fmt: skip
    assert run.checkpoint.state.tries[0, 3] == 0


def test_an_observation_may_be_empty():
    class Empty(Arms):
        def reset(self, seed=None):
            return (), super().reset(seed)[1]

        def step(self, action):
            return (), *super().step(action)[1:]

    run = up.learn(Empty(), n_episodes=2, horizon=5, actions=range(4), seed=0)
    assert run.policy.act((), 0) in range(4)
