# ruff: noqa: E501  (a table reads best with one line per case)
"""Wrong inputs over the public functions: one sentence that names the argument, raised by us.

Never a traceback from inside numpy or numba, a hang, or a silent wrong answer.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import upriver as up
from tests.building import from_rows
from upriver.agents.ucbvi import Bernstein

MDP = up.envs.riverswim(4, 6)
TASK = MDP.task("known")
PHI = up.features.one_hot(TASK)
OTHER = up.envs.riverswim(5, 6).task()
AGENT = up.agents.UCRLMNL(TASK, PHI)
P = np.full((2, 1, 2), 0.5)
R = np.zeros((2, 1))
ROWS = {(0, 0): {0: 0.5, 1: 0.5}, (1, 0): {1: 1.0}}
COUNTS = np.ones(TASK.n_triples)
LOG = ([0, 1], ["left", "left"], [0, 0])
X = np.array([[0.0], [1.0], [0.5], [2.0]])


def river(**changed):
    return from_rows(ROWS, np.zeros((2, 1)), 3, **changed)


def put(array, at, value):
    changed = np.array(array, dtype=float)
    changed[at] = value
    return changed


def fitted(**changed):
    return up.fit_transitions(
        "next_state", LOG, successors="all", regularization=1.0, horizon=6, **changed
    )


class Plain:
    """An environment that answers, whatever it is told."""

    def __init__(self, state=0, reward=0.0):
        self.state, self.reward = state, reward

    def reset(self, seed=None):
        return self.state, {}

    def step(self, action):
        return self.state, self.reward, False, False, {}


CASES = {
    # MDPs
    "a NaN probability in a frame": (lambda: up.FiniteMDP.from_frame({"state": [1], "action": [0], "next_state": [1], "probability": [np.nan], "reward": [0.0]}, 3), "column 'probability' of the frame is empty in row 0"),
    "an MDP where a task is needed": (lambda: up.agents.UCRLMNLSE(MDP, PHI), r"task is a FiniteMDP; (use|pass) mdp.task\(\)"),  # type: ignore
    "a name of features as an array of no dimension": (lambda: up.features.from_function(TASK, lambda s, a, t: [1.0], names=np.array("x")), "names is a ndarray; it must be a list of text"),  # type: ignore
    "no columns of a log": (lambda: up.fit_transitions("C(next_state)", {"state": [0]}, columns=()), "columns is .*; it must name the state"),
    "a step without an individual": (lambda: up.fit_transitions("C(next_state)", {"state": [0]}, step="visit"), "step is 'visit'; it needs individual"),
    "successors of a log that are no list": (lambda: up.fit_transitions("C(next_state)", {"state": [0, 1], "action": ["a", "a"], "next_state": [1, 0]}, successors=lambda s, a: 7), r"successors\(0, 'a'\) is 7; it must be a list"),
    "features of an MDP": (lambda: up.features.shared(MDP), r"task is a FiniteMDP; (use|pass) mdp.task\(\)"),  # type: ignore
    "every state of a large problem": (lambda: up.envs.riverswim(10_000).task("full"), r"10,000 states have about 200,000,000 triples .*at most 100,000,000"),
    "actions that are nothing": (lambda: up.FiniteMDP.from_functions(0, lambda s: None, lambda s, a: [s], lambda s, a, t: 1.0, lambda s, a: 0.0, 3), r"actions\(0\) is None; it must be a list"),
    "a reward that is nan": (lambda: up.FiniteMDP.from_functions(0, ["a"], lambda s, a: [s], lambda s, a, t: 1.0, lambda s, a: np.nan, 3), r"reward\(0, 'a'\) is nan; it must be a number"),
    "a reward in words": (lambda: up.FiniteMDP.from_functions(0, ["a"], lambda s, a: [s], lambda s, a, t: 1.0, lambda s, a: "x", 3), r"\(0, 'a'\) is 'x'; it must be a number"),
    "a reward that is no function": (lambda: up.FiniteMDP.from_functions(0, ["a"], lambda s, a: [s], lambda s, a, t: 1.0, 3, 3), "reward is an int"),  # type: ignore
    "pooled numbers": (lambda: up.features.pooled(3), "shared is an int; it must be a Features"),  # type: ignore
    "checks of an MDP": (lambda: up.check_policy_value(MDP, None), "model is a FiniteMDP"),  # type: ignore
    "checks without a log": (lambda: up.check_policy_value(fitted(), np.zeros((6, 4), int)), "the model does not know which rows are one individual's"),
    "names that are a matrix": (lambda: up.Task.from_successors(sparse.eye_array(3).tocsr(), ["a"], lambda s, a: [s], horizon=2), "states is .*; it must be a list"),
    "a row that sums to 0.9": (lambda: up.FiniteMDP.from_arrays(put(P, (1, 0, 0), 0.4), R, 3), r"transition row \(s=1, a=0\) sums to 0.9"),
    "a negative probability": (lambda: up.FiniteMDP.from_arrays(put(P, (0, 0), [-0.5, 1.5]), R, 3), r"transition row \(s=0, a=0\) holds -0.5"),
    "a NaN probability": (lambda: up.FiniteMDP.from_arrays(put(P, (0, 0, 1), np.nan), R, 3), r"transition row \(s=0, a=0\) holds nan"),
    "an oblong transition": (lambda: up.FiniteMDP.from_arrays(np.ones((2, 1, 3)) / 3, R, 3), r"transition has shape \(2, 1, 3\)"),
    "ragged transitions": (lambda: up.FiniteMDP.from_arrays([[[1.0]], [[1.0, 0.0]]], R, 3), "transition must be an array"),
    "words for transitions": (lambda: up.FiniteMDP.from_arrays("abc", R, 3), "transition must be an array"),
    "a step too few": (lambda: up.FiniteMDP.from_arrays(np.stack([P, P]), R, 3), "transition has 2 steps"),
    "an infinite reward": (lambda: up.FiniteMDP.from_arrays(P, R - np.inf, 3), r"reward of \(s=0, a=0\) is -inf"),
    "a NaN reward": (lambda: up.FiniteMDP.from_arrays(P, put(R, (1, 0), np.nan), 3), r"reward of \(s=1, a=0\) is nan"),
    "a reward of another shape": (lambda: up.FiniteMDP.from_arrays(P, np.zeros(2), 3), r"reward has shape \(2,\)"),
    "a function where an array is needed": (lambda: up.FiniteMDP.from_arrays(P, lambda s, a, s2: 0.0, 3), "reward must be an array of numbers"),  # type: ignore
    "no horizon": (lambda: up.FiniteMDP.from_arrays(P, R, 0), "horizon is 0"),
    "half a step": (lambda: up.FiniteMDP.from_arrays(P, R, 2.5), "horizon is 2.5"),
    "a start outside": (lambda: river(initial_state=2), "initial_state is 2"),
    "a start that sums to 2": (lambda: river(initial_state=[1.0, 1.0]), "initial probabilities sum to 2"),
    "an unknown argument": (lambda: river(nane="x"), "unknown argument 'nane'"),
    "an empty reward range": (lambda: river(reward_range=(1.0, 1.0)), r"reward_range is \(1.0, 1.0\)"),
    "too many states": (lambda: up.FiniteMDP.from_functions(0, [1], lambda s, a: [s + 1], lambda s, a, t: 1.0, lambda s, a: 0.0, 99, max_states=9), "max_states=9"),
    "a dead end": (lambda: up.FiniteMDP.from_functions(0, [1], lambda s, a: [], lambda s, a, t: 1.0, lambda s, a: 0.0, 3), r"successors\(0, 1\) is empty"),
    "an unknown support": (lambda: MDP.task("locl"), "support is 'locl'"),
    "a support that leaves out": (lambda: replace(MDP, local=(np.arange(9), [0] * 8)), "local leaves out successor"),
    "a river of one state": (lambda: up.envs.riverswim(1), "n_states is 1"),
    "an unknown variant": (lambda: up.envs.riverswim(6, variant="x"), "variant is 'x'; it must be one of"),
    "an unknown environment": (lambda: up.envs.make("riverswin"), "'riverswin' is unknown; did you mean 'riverswim'"),
    "a successor that is no state": (lambda: up.Task.from_successors([0], [0], lambda s, a: [1], 3), r"successors\(0, 0\) names 1"),
    "states twice": (lambda: up.Task.from_successors([0, 0], [0], lambda s, a: [0], 3), "states has the name 0 twice"),
    "rows outside a task": (lambda: TASK.rows(9, 0), r"\(s=9, a=0\) is not in a task"),
    # features
    "a feature row too few": (lambda: up.Features(TASK, np.ones((3, 2))), r"features have shape \(3, 2\)"),
    "an infinite feature": (lambda: up.Features(TASK, put(np.ones((TASK.n_triples, 1)), (2, 0), np.inf)), "features of row 2"),
    "words as features": (lambda: up.Features(TASK, [["a"]] * TASK.n_triples), "features must be an array"),
    "a name too few": (lambda: up.Features(TASK, np.ones((TASK.n_triples, 2)), names=["x"]), "it must be a list of 2 texts"),
    "names that are lists": (lambda: up.Features(TASK, np.ones((TASK.n_triples, 2)), names=["x", []]), "it must be a list of 2 texts"),  # type: ignore
    "a checkpoint of no MDP": (lambda: up.simulate(MDP, AGENT, 1, resume=up.simulate(MDP, AGENT, 1, seed=0).checkpoint._replace(fingerprint=(AGENT, {}))), "the MDP of the checkpoint is a dict"),
    "ragged situations": (lambda: up.fit_choices(X, [1, 0, 0, 1], [[0], [0, 1]]), "groups must hold numbers, or text"),
    "a table of numbers for an agent": (lambda: up.experiments.parse({"name": "x", "episodes": 1, "seeds": {"first": 0, "count": 1}, "environments": [{"name": "riverswim-4"}], "agents": [np.full((5, 4), -1)]}), r"agents\[0\] is array"),
    "a temperature of nearly nothing": (lambda: up.solve(MDP, discount=0.9, temperature=1e-320), "1 / temperature is inf"),
    "an environment that Gymnasium has not": (lambda: up.envs.from_gymnasium("x"), "Gymnasium cannot make 'x'"),
    "a plan that is an array": (lambda: up.plan_from_model(fitted(), np.zeros((2, 2))), "how is a ndarray; it must be text"),  # type: ignore
    "a plan with something else for a table": (lambda: up.Policy.from_plan(up.solve(MDP)._replace(policy=MDP), up.envs.riverswim(4, 6).task()), "plan.policy is a FiniteMDP"),  # type: ignore
    "a radius that is a number": (lambda: up.coverage(MDP, PHI, radii={"a": 1}, n_runs=1, n_episodes=1), r"radii\['a'\] is 1; it must be a function"),
    "features for a log": (lambda: up.fit_transitions("next_state", PHI), "the frame is a Features"),
    "a formula without columns": (lambda: up.fit_transitions([], dict(zip(("state", "action", "next_state"), LOG, strict=True))), r"formula is \[\]; it must be text"),
    "states without the column": (lambda: up.fit_transitions("next_state", dict(zip(("state", "action", "next_state"), LOG, strict=True)), states={"x": [1, 2]}), "states has no column 'state'"),
    "a frame for a model": (lambda: up.decide({"state": [0]}), "model is a dict; it must be a TransitionModel"),  # type: ignore
    "a negative seed of a test": (lambda: fitted().goodness_of_fit(seed=-1), "seed is -1; it must be"),
    "a state of no observation": (lambda: up.learn(Plain(), AGENT, 1, state_of=lambda: 0), r"state_of is <function.*must be a function of \(observation\)"),
    "an experiment that is an array": (lambda: up.experiments.execute(np.array("x"), "out"), "experiment is a ndarray; it must be an Experiment"),  # type: ignore
    "features of changing length": (lambda: up.features.from_function(TASK, lambda s, a, t: [1.0] * (1 + s)), r"features of \(s=1"),
    # agents
    "features of another task": (lambda: up.agents.UCRLMNL(OTHER, PHI), "features were made for a task with 4 states"),
    "a negative radius": (lambda: up.agents.UCRLMNL(TASK, PHI, radius=-1.0), "radius is -1.0"),
    "no regularization": (lambda: up.agents.UCRLMNL(TASK, PHI, regularization=0.0), "regularization is 0.0"),
    "a word for optimism": (lambda: up.agents.UCRLMNL(TASK, PHI, optimism="exact"), "optimism is 'exact'"),
    "an action outside": (lambda: up.agents.Always(TASK, 2), "action is 2"),
    # running, planning
    "no episodes": (lambda: up.simulate(MDP, AGENT, 0), "n_episodes is 0"),
    "a negative seed": (lambda: up.simulate(MDP, AGENT, 1, seed=-1), "seed is -1"),
    "a word for a seed": (lambda: up.simulate(MDP, AGENT, 1, seed="0"), "seed is '0'"),
    "an agent of another task": (lambda: up.simulate(MDP, up.agents.Random(OTHER), 1), "the agent's task has 5 states"),
    "a run to resume": (lambda: up.simulate(MDP, AGENT, 1, resume=up.simulate(MDP, AGENT, 1)), "resume is a Run"),
    "another seed to resume": (lambda: up.simulate(MDP, AGENT, 1, seed=4, resume=up.simulate(MDP, AGENT, 1).checkpoint), "seed is 4; the run to resume has seed 0"),
    "a policy of another shape": (lambda: up.evaluate(MDP, np.zeros((2, 2), int)), r"policy has shape \(2, 2\)"),
    "a policy with a third action": (lambda: up.evaluate(MDP, np.full((6, 4), 2)), r"policy\[0, 0\] is 2"),
    "a policy that sums to 2": (lambda: up.evaluate(MDP, np.ones((4, 2))), "policy must hold whole numbers, or probabilities"),
    "a step after the last": (lambda: up.solve(MDP).q(6), "h is 6"),
    # estimates
    "counts of unequal length": (lambda: up.fit_mnl(PHI, [[1.0], [1.0, 2.0]]), "counts must be"),  # type: ignore
    "a count too few": (lambda: up.fit_mnl(PHI, COUNTS[1:]), "counts has shape"),
    "a negative count": (lambda: up.fit_mnl(PHI, put(COUNTS, 3, -1)), r"counts\[3\] is -1.0"),
    "a NaN count": (lambda: up.fit_mnl(PHI, put(COUNTS, 3, np.nan)), r"counts\[3\] is nan"),
    "negative regularization": (lambda: up.fit_mnl(PHI, COUNTS, -1.0), "regularization is -1.0"),
    "data that say nothing": (lambda: up.fit_mnl(PHI, 0 * COUNTS, 0.0), "regularization"),
    "no choice taken": (lambda: up.fit_choices(X, [1, 0, 0, 0], [0, 0, 1, 1]), "choice situation .*1.* has 0 chosen"),
    "half a choice": (lambda: up.fit_choices(X, [0.5, 0.5, 1, 0], [0, 0, 1, 1]), r"chosen\[0\]"),
    "flat X": (lambda: up.fit_choices(X[:, 0], [1, 0, 1, 0], [0, 0, 1, 1]), r"X has shape \(4,\)"),
    "NaN in X": (lambda: up.fit_choices(put(X, (2, 0), np.nan), [1, 0, 1, 0], [0, 0, 1, 1]), r"X\[2, 0\] is nan"),
    "a group too few": (lambda: up.fit_choices(X, [1, 0, 1, 0], [0, 0, 1]), r"groups has shape \(3,\)"),
    "a Gram matrix without ridge": (lambda: up.radii.gram_matrix(PHI, COUNTS, 0.0), "regularization is 0.0"),
    "a negative scale": (lambda: up.radii.scaled_radius(-1.0), "scale is -1.0"),
    # policies and files
    "an unknown state": (lambda: up.Policy(np.zeros((1, 2), int), 1).act(2, 0), "state 2 is unknown"),
    "a state without a name": (lambda: up.Policy(np.zeros((1, 1), int), 1, ["a"]).act("b", 0), "state 'b' is unknown"),
    "an unhashable state": (lambda: up.Policy(np.zeros((1, 1), int), 1, ["a"]).act([[]], 0), r"state \[\[\]\] is unknown"),
    "a step too late": (lambda: up.Policy(np.zeros((1, 2), int), 1).act(0, 1), "h is 1"),
    "a policy of words": (lambda: up.Policy(np.array([["a"]]), 1), "actions are <U1"),
    "saving to a folder": (lambda: up.save_agent(".", up.simulate(MDP, AGENT, 1)), "'.' is a folder"),
    "saving no run": (lambda: up.save_agent("x.npz", None), "run is a NoneType"),
    # black boxes
    "no environment": (lambda: up.learn(3, AGENT, 1), "env is a int"),
    "an observation that is no state": (lambda: up.learn(Plain(9), AGENT, 1), "observation 9 is unknown"),
    "an unhashable observation": (lambda: up.learn(Plain({}), AGENT, 1), "observation {} is unknown"),
    "a reward out of range": (lambda: up.learn(Plain(0, 7.0), up.agents.Always(TASK.with_unknown_reward()), 1), "paid 7.0, outside reward_range"),
    "an end that is no state": (lambda: up.learn(Plain(), AGENT, 1, end="over"), "end 'over' is unknown"),
    "state_of that is no function": (lambda: up.learn(Plain(), AGENT, 1, state_of=3), "state_of is an int"),
    "a black box as a table": (lambda: up.envs.from_gymnasium(Plain(), 3), "has no transition table P"),
    "a jump out of the support": (lambda: up.learn(Plain(2), up.agents.UCRLMNL(TASK, PHI, radius=0.0), 3), r"went from \(s=2, a=.left.\) to 2"),
    # problems too large to list
    "a river too long": (lambda: up.envs.riverswim(10**9), "6,000,000,000 triples"),
    "a sea too deep": (lambda: up.envs.deep_sea(10**5), "40,000,000,000 triples"),
    # kinds of arguments, by their annotations
    "an MDP for a task": (lambda: up.features.shared(MDP), r"use mdp\.task\(\)"),
    "no MDP": (lambda: up.solve(TASK), "mdp is a Task; it must be a FiniteMDP"),
    "a word for a number": (lambda: up.rollouts(MDP, up.solve(MDP), "x"), "n_episodes is 'x'; it must be a whole number"),
    "a function of nothing": (lambda: up.FiniteMDP.from_functions(0, [0], lambda s, a: [s], lambda s, a, t: 1.0, lambda s, a: 0.0, 3, terminal=lambda: 0.0), r"terminal is .* function of \(s\)"),
    "a reward of four": (lambda: up.Task.from_successors([0], [0], lambda s, a: [0], 3, lambda s, a, t, u: 0.0), r"reward is .* function of \(s, a, s2\)"),
    # logs
    "a log of two columns": (lambda: up.fit_transitions("next_state", np.zeros((5, 2), int)), "the frame is a ndarray; it must be"),
    "a log that is a number": (lambda: up.fit_transitions("next_state", 3), "the frame is a int"),
    "columns of two lengths": (lambda: up.fit_transitions("next_state", ([0], ["left"], [0, 0])), "columns of the frame have lengths"),
    "an empty log": (lambda: up.fit_transitions("next_state", ([], [], [])), "the frame has no rows"),
    "a column that is not there": (lambda: up.fit_transitions("next_state", {"state": [0]}), "the frame has no column 'action'"),
    "a negative weight": (lambda: fitted(weights=[1.0, -1.0]), "row 1 of the frame has a weight"),
    "a weight too few": (lambda: fitted(weights=[1.0]), "columns of the frame have lengths"),
    "half a state": (lambda: up.fit_transitions("next_state", ([0.5], ["left"], [0]), states={"state": [0, 1]}), "row 0 of the frame has the state 0.5"),
    "a log of another suffix": (lambda: up.fit_transitions("next_state", Path(__file__)), "must end in .csv or .parquet"),
    "an unknown plan": (lambda: up.plan_from_model(fitted(), "careful"), "how is 'careful'"),
    "confidence in percent": (lambda: up.plan_from_model(fitted(), confidence=95.0), "confidence is 95.0"),
    "a plan with no model": (lambda: up.plan_from_model(AGENT), "model is a UCRLMNL"),
    "a wrong reward": (lambda: fitted().at(reward=np.ones(3)), r"reward has shape \(3,\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_sentence_that_names_the_argument(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, message = CASES[name]
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    raised = str(caught.traceback[-1].path)
    assert "upriver" in Path(raised).parts, f"raised inside {raised}"
    assert not list(tmp_path.iterdir())  # and nothing was written


RULES = {
    "noise": lambda bad: up.agents.RLSVI(TASK, noise=lambda task, k: bad),
    "bonus": lambda bad: up.agents.UCBVI(TASK, bonus=lambda task: bad),
    "variance": lambda bad: up.agents.UCBVIBF(
        TASK, bonus=lambda task, n: Bernstein(bad, np.ones(6), np.ones((1, 4)))
    ),
    "linear": lambda bad: up.agents.UCBVIBF(
        TASK, bonus=lambda task, n: Bernstein(1.0, bad, np.ones((1, 4)))
    ),
    "doubt": lambda bad: up.agents.UCBVIBF(
        TASK, bonus=lambda task, n: Bernstein(1.0, np.ones(6), bad)
    ),
    "radius": lambda bad: up.agents.UCRLMNL(TASK, PHI, radius=lambda evidence: bad),
    "L1 radius": lambda bad: up.agents.UCRL2(TASK, radius=lambda task, n, k: bad),
    "Bernstein": lambda bad: up.agents.UCBVIBF(TASK, bonus=lambda task, n: bad),
}


@pytest.mark.parametrize(
    "bad", ["x", None, np.nan, -1.0, np.full(6, -1.0), np.full(8, np.nan), [1.0, 2.0]], ids=str
)
@pytest.mark.parametrize("name", RULES)
def test_what_a_function_of_an_agent_returns_is_checked(name, bad):
    """A bonus of nan would be played with."""
    with pytest.raises((TypeError, ValueError), match=name.split()[-1]):
        up.simulate(MDP, RULES[name](bad), n_episodes=2, seed=0)


def test_the_name_of_a_radius_and_a_number_of_steps_are_checked():
    found = up.coverage(MDP, PHI, n_episodes=2, n_runs=1)
    with pytest.raises(ValueError, match="name is 'x'; it must be one of"):
        found.share("x")
    with pytest.raises(ValueError, match="n_steps is 'x'"):
        up.simulate(MDP, AGENT, n_episodes=1, seed=0).policy.to_pandas("x")
