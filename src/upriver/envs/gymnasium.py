"""Gymnasium in both directions: a table P becomes a FiniteMDP, a FiniteMDP an environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse import csgraph

from upriver.checks import NUMBER, WHOLE, Array, check_kinds, format_value
from upriver.mdp import FactoredMDP, FiniteMDP
from upriver.mdp.building import from_triples
from upriver.mdp.validation import initial_distribution

NUMBERS = NUMBER | np.bool_


def make_environment(name: str, **arguments: Any) -> Any:
    """Make an environment that is registered with Gymnasium."""
    try:
        return gymnasium.make(name, **arguments)
    except gymnasium.error.Error as error:
        raise ValueError(f"Gymnasium cannot make {name!r}: {format_value(str(error))}") from error


def from_gymnasium(
    env: Any, horizon: int | None = None, initial_state: int | ArrayLike | None = None,
    **arguments: Any,
) -> FiniteMDP:  # fmt: skip
    """Make a FiniteMDP from an environment with a transition table `P`, as those of toy_text.

    Outcomes with the same next state are merged, and the reward is E[r | s, a, s']. A state in
    which episodes always end is absorbing with a reward of 0. Where episodes end in a state on some
    arrivals and continue on others, one more state called "end" takes the endings. Options and
    wrappers that the table does not contain are refused where they are known.

    Parameters
    ----------
    env : environment or id
        An id is made with `arguments`.
    horizon, initial_state : int, and int or (S,)
        The defaults are the environment's time limit and its `initial_state_distrib`.
    """
    made = make_environment(env, **arguments) if isinstance(env, str) else env
    base = getattr(made, "unwrapped", made)
    spec = getattr(made, "spec", None)
    name = spec.id if spec is not None else type(base).__name__
    table = getattr(base, "P", None)
    if table is None:
        raise ValueError(
            f"{name} has no transition table P, it is a black box: describe what is known with "
            "Task.from_successors and learn through reset and step with upriver.learn"
        )
    missing, layer = [], made
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gymnasium.RewardWrapper | gymnasium.ActionWrapper):
            missing.append(f"{name} is wrapped in {type(layer).__name__}")
        layer = layer.env
    if getattr(base, "fickle_passenger", False):
        missing.append(f"fickle_passenger of {name} is True")
    if missing:
        raise ValueError(
            f"{missing[0]}, which its transition table P does not contain: leave it out, or learn "
            "through reset and step with upriver.learn"
        )
    horizon = getattr(spec, "max_episode_steps", None) if horizon is None else horizon
    if horizon is None:
        raise ValueError(f"horizon is None and {name} has no time limit; give a horizon")
    if initial_state is None:
        initial_state = getattr(base, "initial_state_distrib", None)
        if initial_state is None:
            raise ValueError(f"{name} has no initial_state_distrib; give initial_state")
    return from_table(table, initial_state, horizon, name)


def list_outcomes(table: Any, name: str) -> tuple[Array, ...]:
    """Return s, a, probability, next state, reward and terminated of every outcome of P[s][a]."""

    def numbered(x: Any) -> list[tuple[Any, Any]]:
        if not isinstance(x, Iterable):
            wanted = "P[state][action] must be a list of outcomes"
            raise ValueError(f"P of {name} holds {x!r}; {wanted}")
        return list(x.items() if isinstance(x, Mapping) else enumerate(x))

    found, states = [], range(len(numbered(table)))
    for s, actions in numbered(table):
        for a, outcomes in numbered(actions):
            for _, outcome in numbered(outcomes):
                counted = s in states and isinstance(a, WHOLE) and a >= 0
                fits = isinstance(outcome, tuple | list | np.ndarray) and len(outcome) == 4
                if not (counted and fits and all(isinstance(x, NUMBERS) for x in outcome)
                        and outcome[1] in states):  # fmt: skip
                    raise ValueError(
                        f"P[{s}][{a}] of {name} holds {outcome!r}; it must be (probability, next "
                        f"state from 0 to {len(states) - 1}, reward, terminated), and states and "
                        "actions must count from 0"
                    )
                found.append((s, a, *outcome))
    if not found:
        raise ValueError(f"P of {name} has no outcomes; every state needs an action")
    s, a, p, s2, reward, end = np.array(found, np.float64).T
    return s.astype(int), a.astype(int), p, s2.astype(int), reward, end.astype(bool)


def from_table(table: Any, initial: Any, horizon: int, name: str) -> FiniteMDP:
    """Make the MDP of a table; the ends of episodes become absorbing states."""
    s, a, p, s2, reward, end = list_outcomes(table, name)
    n_states, n_actions = len(table), 1 + int(a.max())
    starts = initial_distribution(initial, n_states)[0]
    # the states reached in an episode, from one more node that leads to the initial states
    on = ~end & (p != 0.0)
    edges = np.append(s[on], np.full(len(starts), n_states)), np.append(s2[on], starts)
    size = n_states + 1
    graph = sparse.csr_array((np.ones(len(edges[0])), edges), shape=(size, size))
    reached = np.zeros(size, bool)
    reached[csgraph.breadth_first_order(graph, n_states, return_predecessors=False)] = True
    ends = np.zeros(size, bool)
    ends[s2[reached[s] & end & (p != 0.0)]] = True
    extra = bool((ends & reached).any())
    absorbing = (ends & ~reached)[s]
    to_end = ~absorbing & end & reached[s2] & reached[s]
    s2 = np.where(absorbing, s, np.where(to_end, n_states, s2))
    pair, reward = s * n_actions + a, np.where(absorbing, 0.0, reward)
    if extra:  # a state that no action leaves
        pair = np.append(pair, n_states * n_actions + np.arange(n_actions))
        s2, p, reward = (
            np.append(x, np.full(n_actions, value))
            for x, value in ((s2, n_states), (p, 1.0), (reward, 0.0))
        )
        initial = initial if isinstance(initial, WHOLE) else np.append(initial, 0.0)
    names = {"name": name, "states": [*range(n_states), "end"] if extra else None}
    shape = n_states + extra, n_actions
    return from_triples(pair, s2, p, reward, shape, horizon, initial, names)


class FiniteMDPEnv(gymnasium.Env):
    """A FiniteMDP as a Gymnasium environment, in the user's units of reward.

    An episode is truncated after the horizon. It terminates before in a state that no action leaves
    and whose rewards are 0. The last reward includes the terminal value, which is also
    `info["terminal_value"]`. `info["action_mask"]` has a 1 for each action that the state has, as
    `action_space.sample(mask)` takes it.
    """

    def __init__(self, mdp: FiniteMDP) -> None:
        if mdp.true_task.infinite_horizon:
            raise ValueError(f"{mdp.name} has an infinite horizon; to_gymnasium needs a finite one")
        self.mdp = mdp
        self.observation_space = spaces.Discrete(mdp.n_states)
        self.action_space = spaces.Discrete(mdp.n_actions)
        task = mdp.true_task
        by_pair, by_triple = task.user_rewards
        self.rewards = np.repeat(by_pair, task.sizes, axis=1) + (by_triple if by_triple.size else 0)
        """(1 or H, n) the reward of each triple."""
        self.ends = task.ends & (mdp.terminal == 0.0)
        """(S,) whether an episode terminates in the state."""
        self.state, self.step_number = 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Begin an episode and return (state, info)."""
        super().reset(seed=seed)
        self.state = self.draw(self.mdp.initial_states, self.mdp.initial_probability)
        self.step_number = 0
        return self.state, self.info()

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take an action and return (state, reward, terminated, truncated, info)."""
        mdp, task, h = self.mdp, self.mdp.true_task, self.step_number
        if h >= mdp.horizon:
            raise ValueError(f"the episode has had its {mdp.horizon} steps; call reset first")
        if not self.action_space.contains(action):
            raise ValueError(f"action is {action!r}; actions are 0 to {mdp.n_actions - 1}")
        if not task.available[self.state, int(action)]:
            has = np.flatnonzero(task.available[self.state]).tolist()
            raise ValueError(f"action is {action!r}; state {self.state} has the actions {has}")
        at = task.rows(self.state, int(action))
        weights = mdp.probability[min(h, len(mdp.probability) - 1), at]
        row = self.draw(np.arange(at.start, at.stop), weights)
        reward = float(self.rewards[min(h, len(self.rewards) - 1), row])
        self.state = int(task.successors[row])
        self.step_number = h + 1
        is_last, info, ended = h + 1 == mdp.horizon, self.info(), bool(self.ends[self.state])
        if is_last:
            info["terminal_value"] = float(mdp.terminal[self.state])
            reward += info["terminal_value"]
        return self.state, reward, ended, is_last, info

    def info(self) -> dict[str, Any]:
        """Return the number of the step and the mask of available actions."""
        mask = self.mdp.true_task.available[self.state].astype(np.int8)
        return {"step": self.step_number, "action_mask": mask}

    def draw(self, states: Array, weights: Array) -> int:
        """Draw one of the states with the given probabilities."""
        i = np.searchsorted(np.cumsum(weights), self.np_random.random(), side="right")
        return int(states[min(i, len(states) - 1)])


class FactoredEnv(gymnasium.Env):
    """A factored problem as a Gymnasium environment; an episode is truncated at the horizon."""

    def __init__(self, mdp: FactoredMDP) -> None:
        mdp.probabilities  # noqa: B018  (raises an error where there are no logits)
        self.mdp = mdp
        self.observation_space = spaces.MultiDiscrete(mdp.n_values)
        self.action_space = spaces.Discrete(mdp.n_actions)
        self.x, self.step_number = np.array(mdp.start), 0

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin an episode and return (x, info)."""
        super().reset(seed=seed)
        self.x, self.step_number = np.array(self.mdp.start), 0
        return self.x.copy(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take an action and return (x, reward, False, truncated, info)."""
        if self.step_number == self.mdp.horizon:
            raise ValueError(f"the episode has had its {self.step_number} steps; call reset first")
        after, reward = self.mdp.step(self.x, action, self.np_random.random(len(self.x)))
        self.x, self.step_number = after, self.step_number + 1
        return after.copy(), reward, False, self.step_number == self.mdp.horizon, {}


@check_kinds
def to_gymnasium(mdp: FiniteMDP | FactoredMDP) -> FiniteMDPEnv | FactoredEnv:
    """Make a Gymnasium environment of a FiniteMDP or a FactoredMDP."""
    return FactoredEnv(mdp) if isinstance(mdp, FactoredMDP) else FiniteMDPEnv(mdp)
