"""Gymnasium in both directions: a table P becomes a FiniteMDP, a FiniteMDP an environment."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from upriver.checks import Array, check_kinds, format_value, is_whole
from upriver.mdp import FiniteMDP
from upriver.mdp.building import from_triples
from upriver.mdp.validation import initial_distribution

Outcomes = list[tuple[float, int, float, bool]]
"""(probability, next state, reward, terminated) of every outcome of a state and an action."""


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
    arrivals and continue on others, one more state called "end" takes the endings.

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
    if horizon is None:
        horizon = spec.max_episode_steps if spec is not None else None
        if horizon is None:
            raise ValueError(f"horizon is None and {name} has no time limit; give a horizon")
    rows = read_table(table, name)
    if initial_state is None:
        initial_state = getattr(base, "initial_state_distrib", None)
        if initial_state is None:
            raise ValueError(f"{name} has no initial_state_distrib; give initial_state")
    mdp = close_ends(rows, initial_state, horizon, name)
    if mdp.true_task.max_successors == 1:
        warnings.warn(
            f"every state and action of {name} has one successor: nothing is left to learn about "
            "its transitions",
            stacklevel=3,  # the caller of envs.from_gymnasium
        )
    return mdp


def read_table(table: Any, name: str) -> list[dict[int, Outcomes]]:
    """Return P[s][a] in the order of states; a state has the actions that have outcomes."""

    def numbered(x: Any) -> dict[int, Any]:
        return dict(x) if isinstance(x, Mapping) else dict(enumerate(x))

    states = numbered(table)
    if sorted(states) != list(range(len(states))):
        raise ValueError(f"P of {name} has the states {sorted(states)}; they must count from 0")
    rows = [numbered(states[s]) for s in range(len(states))]
    for s, actions in enumerate(rows):
        for a in [a for a, outcomes in actions.items() if len(outcomes) == 0]:
            del actions[a]
        if not actions or not all(isinstance(a, int | np.integer) and a >= 0 for a in actions):
            raise ValueError(
                f"P[{s}] of {name} has the actions {list(actions)}; there must be at least one, "
                "and they must count from 0"
            )
        for a, outcomes in actions.items():
            for outcome in outcomes:
                if len(outcome) != 4 or outcome[1] not in range(len(rows)):
                    raise ValueError(
                        f"P[{s}][{a}] of {name} holds {outcome!r}; it must be (probability, next "
                        f"state from 0 to {len(rows) - 1}, reward, terminated)"
                    )
            kept = (outcome for outcome in outcomes if outcome[0] != 0)
            actions[a] = [(float(p), int(s2), float(r), bool(end)) for p, s2, r, end in kept]
    return rows


def close_ends(rows: list[dict[int, Outcomes]], initial: Any, horizon: int, name: str) -> FiniteMDP:
    """Make the MDP of a table; the ends of episodes become absorbing states."""
    n_states, n_actions = len(rows), 1 + max(max(actions) for actions in rows)
    starts = set(initial_distribution(initial, n_states)[0].tolist())
    continues, ends, queue = set(starts), set(), list(starts)  # states reached in an episode
    while queue:
        for outcomes in rows[queue.pop()].values():
            for _, s2, _, end in outcomes:
                if end:
                    ends.add(s2)
                elif s2 not in continues:
                    continues.add(s2)
                    queue.append(s2)
    absorbing = ends - continues
    extra = bool(ends & continues)
    triples: list[tuple[int, int, float, float]] = []  # s * A + a, s', probability, reward
    for s in range(n_states + extra):
        for a in rows[s] if s < n_states else range(n_actions):
            pair = s * n_actions + a
            if s in absorbing or s == n_states:
                triples.append((pair, s, 1.0, 0.0))
                continue
            for p, s2, r, end in rows[s][a]:
                to = n_states if end and s2 in continues and s in continues else s2
                triples.append((pair, to, p, r))
    if extra and not is_whole(initial):
        initial = np.append(initial, 0.0)
    names = {"name": name, "states": [*range(n_states), "end"] if extra else None}
    shape = n_states + extra, n_actions
    pairs, following, chances, rewards = map(np.array, zip(*triples, strict=True))
    return from_triples(pairs, following, chances, rewards, shape, horizon, initial, names)


class FiniteMDPEnv(gymnasium.Env):
    """A FiniteMDP as a Gymnasium environment, in the user's units of reward.

    An episode is truncated after the horizon. It terminates before in a state that no action leaves
    and whose rewards are 0. The last reward includes the terminal value. `info["action_mask"]` has
    a 1 for each action that the state has, as `action_space.sample(mask)` takes it.
    """

    def __init__(self, mdp: FiniteMDP) -> None:
        self.mdp = mdp
        self.observation_space = spaces.Discrete(mdp.n_states)
        self.action_space = spaces.Discrete(mdp.n_actions)
        task = mdp.true_task
        self.pair_reward, self.next_state_reward = task.user_rewards
        """(1 or H, S*A) and (1 or H, n or 0) rewards of pairs and triples."""
        s, _, s2 = task.triples
        leaves = np.bincount(s[s != s2], minlength=mdp.n_states) > 0
        paid = (np.abs(mdp.reward) > 1e-12).reshape(-1, *task.available.shape).any((0, 2))
        self.ends = np.asarray(~(leaves | paid | (mdp.terminal != 0.0)))
        """(S,) whether an episode terminates in the state."""
        self.state, self.step_number = 0, 0

    @property
    def P(self) -> dict[int, dict[int, Outcomes]]:
        """P[s][a] = [(probability, next state, reward, terminated), ...], as in toy_text."""
        mdp, task = self.mdp, self.mdp.true_task
        if len(mdp.probability) > 1 or len(mdp.reward_rows) > 1 or mdp.terminal.any():
            raise AttributeError(
                f"{mdp.name} changes with the step or has terminal values, for which there is no "
                "table P"
            )
        table: dict[int, dict[int, Outcomes]] = {s: {} for s in range(mdp.n_states)}
        for i, (s, a, s2) in enumerate(zip(*(x.tolist() for x in task.triples), strict=True)):
            p, r = float(mdp.probability[0, i]), self.reward(0, s, a, i)
            table[s].setdefault(a, []).append((p, s2, r, bool(self.ends[s2])))
        return table

    @property
    def initial_state_distrib(self) -> Array:
        """(S,) distribution of the initial state."""
        weights = np.zeros(self.mdp.n_states)
        weights[self.mdp.initial_states] = self.mdp.initial_probability
        return weights

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
        reward = self.reward(h, self.state, int(action), row)
        self.state = int(task.successors[row])
        self.step_number = h + 1
        if self.step_number == mdp.horizon:
            reward += float(mdp.terminal[self.state])
        ended = bool(self.ends[self.state])
        return self.state, reward, ended, self.step_number == mdp.horizon, self.info()

    def info(self) -> dict[str, Any]:
        """Return the number of the step and the mask of available actions."""
        mask = self.mdp.true_task.available[self.state].astype(np.int8)
        return {"step": self.step_number, "action_mask": mask}

    def reward(self, h: int, s: int, a: int, row: int) -> float:
        """Return the reward of a triple at step h."""
        by_pair, by_triple = self.pair_reward, self.next_state_reward
        reward = float(by_pair[min(h, len(by_pair) - 1), s * self.mdp.n_actions + a])
        if by_triple.size:
            reward += float(by_triple[min(h, len(by_triple) - 1), row])
        return reward

    def draw(self, states: Array, weights: Array) -> int:
        """Draw one of the states with the given probabilities."""
        i = np.searchsorted(np.cumsum(weights), self.np_random.random(), side="right")
        return int(states[min(i, len(states) - 1)])


@check_kinds
def to_gymnasium(mdp: FiniteMDP) -> FiniteMDPEnv:
    """Make a Gymnasium environment of a FiniteMDP."""
    return FiniteMDPEnv(mdp)
