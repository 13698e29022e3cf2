"""Learning in a black box: an environment that can only be reset and stepped.

Only the agent's Task is known of it, so neither the value of a policy nor its regret is known: a
`LearningRun` holds the returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from upriver.agents.base import Agent, Episode, check_agent, unguarded
from upriver.checks import (
    Array,
    check_function,
    check_kinds,
    finite_number,
    format_value,
    positive_integer,
)
from upriver.display import Card, add_repr, to_frame
from upriver.mdp import FactoredMDP, Task
from upriver.planning import Plan, check_available
from upriver.play.checkpoints import Checkpoint, begin
from upriver.play.checks import check_table
from upriver.play.factored import learn_factored
from upriver.play.policy import Policy
from upriver.play.units import episode_converter, final_plan


@add_repr
class LearningRun(NamedTuple):
    """K episodes of one agent in a black box. The arrays have length K."""

    returns: Array
    """Sum of rewards received in each episode, in the environment's own units."""
    lengths: Array
    """Number of steps of each episode."""
    ended: Array
    """Whether the environment ended the episode itself, rather than the horizon."""
    seconds: Array
    """Time of planning and learning, without the environment."""
    plan: Plan
    """The plan of the last episode."""
    state: Any
    """The agent's state after the last episode."""
    task: Task
    """What the agent knows of the environment."""
    checkpoint: Checkpoint
    """Where to go on, see `learn`."""

    @property
    def policy(self) -> Policy:
        """The policy of the last episode, to keep, save and use."""
        return Policy.from_plan(self.plan, self.task)

    def card(self) -> Card:
        recent = self.returns[-100:]
        facts: dict[str, Any] = {
            "episodes": len(self.returns), "return": float(self.returns.sum()),
            f"mean of the last {len(recent)}": float(recent.mean()),
            "ended early": int(self.ended.sum()), "regret": "unknown (black box)",
        }  # fmt: skip
        more = "plot() draws the returns, to_pandas() has every episode"
        return Card(facts, more=more, brief=f"{len(self.returns)} episodes")

    def to_pandas(self) -> Any:
        """Return a data frame with a row per episode: return, length, ended, seconds."""
        return to_frame({
            "episode": np.arange(1, len(self.returns) + 1), "return": self.returns,
            "length": self.lengths, "ended": self.ended, "seconds": self.seconds,
        })  # fmt: skip

    def plot(self) -> Any:
        """Return a figure of the return of every episode and of their running mean."""
        from upriver.display import figures

        so_far = np.cumsum(self.returns)
        return figures.plot_learning({
            "return of an episode": {"return": self.returns},
            "mean return so far": {"mean": so_far / np.arange(1, len(so_far) + 1)},
        })  # fmt: skip


@check_kinds
def learn(
    env: Any, agent: Agent, n_episodes: int, seed: int | None = None, *,
    state_of: Callable[[Any], Any] | None = None, end: Any = None,
    resume: Checkpoint | None = None,
) -> Any:  # fmt: skip
    """Let an agent learn through `reset` and `step` alone.

    Each episode is reset with its own seed, drawn from `seed`, so that a run depends on (env,
    agent, seed) alone where the environment honours its seed.

    Parameters
    ----------
    env : Gymnasium environment or its id, or an object with the same `reset` and `step`
        A Discrete action space gets the numbers of actions, others their names.
    agent : Agent
        A learner of a task with a finite horizon, in the environment's own units of reward. Rewards
        that are to be learned must lie within `task.reward_range`.
    state_of : function, optional
        Maps an observation to a state of the agent's task, by name where the states have names. By
        default the observation itself is the state, arrays as tuples of numbers.
    end : state, optional
        The state that stands for "the episode has ended"; by default the last observation does. It
        must be its own only successor in the task.
    resume : Checkpoint, optional
        Of an earlier call.
    """
    n_episodes = positive_integer("n_episodes", n_episodes, most=10**9)
    if isinstance(env, str):
        from upriver.envs.gymnasium import make_environment

        env = make_environment(env)
    for method in ("reset", "step"):
        if not callable(getattr(env, method, None)):
            raise TypeError(f"env is a {type(env).__name__}, which has no method {method}")
    if isinstance(getattr(agent, "task", None), FactoredMDP):
        return learn_factored(env, agent, n_episodes, seed)
    check_agent(agent)
    task = agent.task
    if task.infinite_horizon:
        raise ValueError("agent.task has an infinite horizon; learn plays episodes of H steps")
    adapter = Adapter(task, env, state_of, end)

    start = begin(agent, None, seed, resume, draws=1)
    make_plan, update = unguarded(agent)
    to_unit_scale = episode_converter(task)
    returns, seconds = np.empty((2, n_episodes))
    lengths = np.empty(n_episodes, np.int64)
    ended = np.empty(n_episodes, bool)
    state, plan = start.state, None
    for k in range(n_episodes):
        began = perf_counter()
        plan: Any = make_plan(state, start.randomness)
        planned = perf_counter()
        # One double per episode, so that a resumed run continues with the same seeds.
        episode_seed = int(start.environment.random() * 2**31)
        check_table(plan.policy, task)
        check_available("the agent's policy", plan.policy, task)
        episode, returns[k], ended[k] = adapter.play(plan.policy, episode_seed)
        lengths[k] = len(episode.actions)
        if ended[k] and task.reward is None:
            episode = adapter.extend_after_end(episode)
        played = perf_counter()
        state = update(state, plan, to_unit_scale(episode))
        seconds[k] = perf_counter() - played + planned - began
    plan = final_plan(plan, task)
    stopped = start.stop(agent, None, state, n_episodes)
    return LearningRun(returns, lengths, ended, seconds, plan, state, task, stopped)


class Adapter:
    """Translates the observations, actions and rewards of an environment to those of a task."""

    def __init__(self, task: Task, env: Any, state_of: Any, end: Any) -> None:
        self.task, self.env, self.state_of = task, env, state_of
        self.end = None if end is None else task.state_names.number(end, "end")
        least, most = task.reward_range or (0.0, 1.0)
        self.slack = 1e-9 * (most - least)
        self.least, self.most = (least, most) if task.reward is None else (-np.inf, np.inf)
        self.actions, space = list(task.action_names), getattr(env, "action_space", None)
        """What `step` takes for each action of the task."""
        if state_of is not None:
            check_function("state_of", state_of, "observation")
        if space is not None and hasattr(space, "n"):
            if space.n != task.n_actions:
                raise ValueError(f"env has {space.n} actions, the agent's task {task.n_actions}")
            self.actions = [int(space.start) + a for a in range(task.n_actions)]

    def reset(self, seed: int) -> int:
        """Reset the environment and return the first state."""
        found = self.env.reset(seed=seed)
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping)):
            raise TypeError(
                f"env.reset returned {format_value(found)}; it must return (observation, info), as "
                "Gymnasium's environments do"
            )
        return self.read(found[0])

    def step(self, action: int) -> tuple[Any, float, float, bool, bool]:
        """Take one step; return observation, reward, terminal value, terminated and truncated.

        The terminal value is a part of the reward that the task knows: `info["terminal_value"]`.
        """
        found = self.env.step(self.actions[action])
        if not (isinstance(found, tuple) and len(found) == 5):
            count = f"{len(found)} values" if isinstance(found, tuple) else format_value(found)
            raise TypeError(
                f"env.step returned {count}; it must return 5, (observation, reward, terminated, "
                "truncated, info), as Gymnasium's environments do"
            )
        observation, reward, terminated, truncated, info = found
        known = 0.0
        if self.task.terminal is not None and isinstance(info, Mapping):
            known = info.get("terminal_value", 0.0)
        paid, known = (finite_number("a reward of env.step", x, -np.inf) for x in (reward, known))
        return observation, paid, known, bool(terminated), bool(truncated)

    def read(self, observation: Any) -> int:
        """Return the state of an observation."""
        state = observation if self.state_of is None else self.state_of(observation)
        try:
            return self.task.state_names.number(state, "observation")
        except ValueError as error:
            raise ValueError(f"{error}; state_of must map observations to states") from None

    def play(self, policy: Array, seed: int) -> tuple[Episode, float, bool]:
        """Return one episode in the units of the task, its return in the environment's units, and
        whether the environment ended it."""
        horizon = self.task.horizon
        states = np.empty(horizon + 1, np.int64)
        actions = np.empty(horizon, np.int64)
        rewards = np.empty(horizon)
        states[0] = self.reset(seed)
        total, h, ended, stopped = 0.0, 0, False, False
        while h < horizon and not stopped:
            actions[h] = policy[h, states[h]]
            observation, reward, known, ended, truncated = self.step(actions[h])
            stopped = ended or truncated
            total += reward
            rewards[h] = reward - known
            self.check_range(rewards[h], f"step {h} paid {rewards[h]}")
            h += 1
            states[h] = self.end if ended and self.end is not None else self.read(observation)
        if ended and h < horizon:
            self.check_end(int(states[h]))
        return Episode(states[: h + 1], actions[:h], rewards[:h]), total, ended

    def check_range(self, reward: float, what: str) -> None:
        """Refuse a reward outside the range on which an agent that learns rewards relies."""
        if not self.least - self.slack <= reward <= self.most + self.slack:
            raise ValueError(
                f"{what}, outside reward_range ({self.least:g}, {self.most:g}); give the Task the "
                "bounds of rewards"
            )

    def check_end(self, s: int) -> None:
        """Refuse an end where the task goes on or pays: plans would be wrong."""
        task, name = self.task, self.task.state_names[s]
        here = slice(s * task.n_actions, (s + 1) * task.n_actions)
        rows = slice(task.indptr[here.start], task.indptr[here.stop])
        if (task.successors[rows] != s).any():
            raise ValueError(
                f"the environment ended in state {name!r}, where the task goes on; give that state "
                "itself as its only successor, or a state of that kind as `end`"
            )
        if task.reward is None:
            return
        reward, next_state_reward = task.user_rewards
        total = reward[:, here][:, task.available[s]]
        if next_state_reward.size:  # each available action has one triple, to s itself
            total = total + next_state_reward[:, rows]
        if (np.abs(total) > 1e-9 * max(task.units.unit, 1.0)).any():
            raise ValueError(
                f"the environment ended in state {name!r}, where the task pays; its rewards must "
                "be 0"
            )

    def extend_after_end(self, episode: Episode) -> Episode:
        """Return the episode filled up to H steps in which every action pays 0, so that an agent
        that learns rewards expects none after the end."""
        missing, last = self.task.horizon - len(episode.actions), episode.states[-1]
        if missing:
            self.check_range(0.0, "steps after the end of an episode pay 0")
        actions = np.flatnonzero(self.task.available[last])
        return Episode(
            np.append(episode.states, np.full(missing, last)),
            np.append(episode.actions, actions[np.arange(missing) % len(actions)]),
            np.append(episode.rewards, np.zeros(missing)),
        )
