"""Learning in a black box: an environment that can only be reset and stepped.

Nothing is known about it but the agent's Task, so neither the value of a policy nor its regret is
known either: a `LearningRun` holds what was earned, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from upriver.agents.guard import check_agent, to_unit_scale, to_user_units, unguarded
from upriver.agents.protocol import Agent, Episode
from upriver.checks import Array, positive_integer
from upriver.display import Card, displayed, to_frame
from upriver.mdp import Task
from upriver.planning import Plan, check_available
from upriver.play.policy import Policy
from upriver.play.simulate import Checkpoint, begin, check_table


@displayed
class LearningRun(NamedTuple):
    """K episodes of one agent in a black box. All arrays have length K."""

    returns: Array
    """Sum of rewards received in each episode, in the environment's own units."""
    lengths: Array
    """Number of steps of each episode."""
    ended: Array
    """Whether the environment ended the episode itself, rather than time running out."""
    seconds: Array
    """Time that planning and learning took, environment not counted."""
    plan: Plan
    """The last plan played."""
    state: Any
    """The agent's state after the last episode."""
    task: Task
    checkpoint: Checkpoint

    @property
    def regret(self) -> Array:
        raise ValueError(
            "regret is not known: the environment is a black box, whose best value nobody has "
            "computed; use returns"
        )

    @property
    def values(self) -> Array:
        raise ValueError(
            "the exact value of a policy is not known in a black box; returns are samples of it"
        )

    @property
    def policy(self) -> Policy:
        """The last policy played, to keep, save and use."""
        return Policy.from_plan(self.plan, self.task)

    def card(self) -> Card:
        recent = self.returns[-100:]
        facts: dict[str, Any] = {
            "episodes": len(self.returns),
            "return": float(self.returns.sum()),
            f"mean of the last {len(recent)}": float(recent.mean()),
            "ended early": int(self.ended.sum()),
            "regret": "unknown (black box)",
        }
        more = "plot() draws the returns, to_pandas() has every episode"
        return Card(facts, more=more, brief=f"{len(self.returns)} episodes")

    def to_pandas(self) -> Any:
        """A data frame with a row per episode: return, length, ended, seconds."""
        return to_frame({
            "episode": np.arange(1, len(self.returns) + 1),
            "return": self.returns,
            "length": self.lengths,
            "ended": self.ended,
            "seconds": self.seconds,
        })  # fmt: skip

    def plot(self) -> Any:
        """A figure of the return of every episode, and of the return so far."""
        from upriver.display import figures

        so_far = np.cumsum(self.returns)
        return figures.learning({
            "return of an episode": {"return": self.returns},
            "mean return so far": {"mean": so_far / np.arange(1, len(so_far) + 1)},
        })  # fmt: skip

    def summary(self, last: int = 100) -> str:
        """What was earned in the last episodes, with its standard error."""
        recent = self.returns[-positive_integer("last", last) :]
        error = recent.std(ddof=1) / np.sqrt(len(recent)) if len(recent) > 1 else np.nan
        return (
            f"{len(self.returns)} episodes, return {recent.mean():.4g} ± {error:.2g} (standard "
            f"error) over the last {len(recent)}; regret unknown (black box)"
        )


def learn(
    env: Any,
    agent: Agent,
    n_episodes: int,
    seed: int | None = None,
    *,
    state_of: Callable[[Any], Any] | None = None,
    end: Any = None,
    action_of: Callable[[Any], Any] | None = None,
    reward_range: tuple[float, float] | None = None,
    resume: Checkpoint | None = None,
) -> LearningRun:
    """Let an agent learn through `reset` and `step` alone.

    env: a Gymnasium environment or its id, or anything with the same `reset` and `step`.
    state_of: maps an observation to a state of the agent's task, by name where the states have
    names; without it the observation itself is the state, arrays as tuples of numbers.
    end: the state that stands for "the episode is over"; without it the last observation does.
    It must be its own only successor in the task.
    action_of: maps an action of the task to what `step` takes; without it Discrete action spaces
    get numbers, others the action's name.
    reward_range: the rewards that stand for 0 and 1 in the task; unless given, the task is in the
    environment's own units. Rewards that are to be learned must lie within `task.reward_range`.
    resume: the checkpoint of an earlier call.

    Each episode is reset with its own seed, drawn from `seed` (0 unless given), so that a run
    depends on (env, agent, seed) alone where the environment honours its seed.
    """
    n_episodes = positive_integer("n_episodes", n_episodes, most=10**9)
    env = made(env)
    check_agent(agent)
    task = agent.task
    adapter = Adapter(task, env, state_of, end, action_of, reward_range)
    state, since, environment, randomness = begin(agent, None, seed, resume, 1)
    make_plan, update = unguarded(agent)
    returns, seconds = np.empty((2, n_episodes))
    lengths = np.empty(n_episodes, np.int64)
    ended = np.empty(n_episodes, bool)
    plan: Any = None
    for k in range(n_episodes):
        began = perf_counter()
        plan = make_plan(state, randomness)
        planned = perf_counter()
        # One double an episode, so that a resumed run finds its place in the stream.
        word = int(environment.random() * 2**31)
        check_table(plan.policy, task)
        check_available("the agent's policy", plan.policy, task)
        episode, paid, over = adapter.play(plan.policy, word)
        returns[k], lengths[k], ended[k] = paid, len(episode.actions), over
        if over and task.reward is None:
            episode = adapter.after_the_end(episode)
        resumed = perf_counter()
        state = update(state, plan, to_unit_scale(task, episode))
        seconds[k] = perf_counter() - resumed + planned - began
    stopped = Checkpoint(
        state, since.episodes + n_episodes, since.seed, randomness.bit_generator.state,
        (agent, None),
    )  # fmt: skip
    return LearningRun(
        returns, lengths, ended, seconds, to_user_units(agent, plan), state, task, stopped
    )


def made(env: Any) -> Any:
    if isinstance(env, str):
        import gymnasium

        env = gymnasium.make(env)
    for method in ("reset", "step"):
        if not callable(getattr(env, method, None)):
            raise TypeError(f"env is a {type(env).__name__}, which has no method {method}")
    return env


class Adapter:
    """Between an environment's observations, actions and rewards, and those of a task."""

    def __init__(
        self, task: Task, env: Any, state_of: Any, end: Any, action_of: Any, reward_range: Any
    ) -> None:
        self.task, self.env, self.state_of = task, env, state_of
        self.end = None if end is None else task.state_names.number(end, "end")
        for name, given in (("state_of", state_of), ("action_of", action_of)):
            if given is not None and not callable(given):
                raise TypeError(f"{name} is a {type(given).__name__}; it must be a function")
        try:
            low, high = (0.0, 1.0) if reward_range is None else map(float, reward_range)
        except (TypeError, ValueError):
            low = high = np.nan
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise ValueError(f"reward_range is {reward_range!r}; it must be (low, high)")
        self.low, self.scale = low, high - low
        least, most = task.reward_range or (0.0, 1.0)
        self.slack = 1e-9 * (most - least)
        self.least, self.most = (least, most) if task.reward is None else (-np.inf, np.inf)
        self.actions = self.actions_for(action_of)

    def actions_for(self, action_of: Any) -> list[Any]:
        """What `step` takes for each action of the task."""
        task = self.task
        names = [task.action_names[a] for a in range(task.n_actions)]
        if action_of is not None:
            return [action_of(a) for a in names]
        space: Any = getattr(self.env, "action_space", None)
        if not hasattr(space, "n"):
            return names
        if space.n != task.n_actions:
            raise ValueError(
                f"the environment has {space.n} actions, the agent's task {task.n_actions}"
            )
        return [int(space.start) + a for a in range(task.n_actions)]

    def read(self, observation: Any) -> int:
        state = observation if self.state_of is None else self.state_of(observation)
        try:
            return self.task.state_names.number(state, "observation")
        except ValueError as error:
            raise ValueError(f"{error}; state_of must map observations to states") from None

    def play(self, policy: Array, seed: int) -> tuple[Episode, float, bool]:
        """(episode, return in the environment's units, whether the environment ended it)."""
        horizon = self.task.horizon
        states = np.empty(horizon + 1, np.int64)
        actions = np.empty(horizon, np.int64)
        rewards = np.empty(horizon)
        observation, _ = self.env.reset(seed=seed)
        states[0] = self.read(observation)
        total, h, ended, stopped = 0.0, 0, False, False
        while h < horizon and not stopped:
            actions[h] = policy[h, states[h]]
            observation, reward, ended, truncated, _ = self.env.step(self.actions[actions[h]])
            stopped = ended or truncated
            total += float(reward)
            rewards[h] = (float(reward) - self.low) / self.scale
            if not self.least - self.slack <= rewards[h] <= self.most + self.slack:
                raise ValueError(
                    f"step {h} paid {reward}, outside reward_range "
                    f"({self.low + self.scale * self.least:g}, "
                    f"{self.low + self.scale * self.most:g}); say the bounds of rewards to the Task"
                )
            h += 1
            states[h] = self.end if ended and self.end is not None else self.read(observation)
        if ended and h < horizon:
            self.check_end(int(states[h]))
        return Episode(states[: h + 1], actions[:h], rewards[:h]), total, bool(ended)

    def check_end(self, s: int) -> None:
        """Refuse an end from where the task would go on, or be paid: plans would be wrong."""
        task = self.task
        first, last = task.indptr[s * task.n_actions], task.indptr[(s + 1) * task.n_actions]
        name = task.state_names[s]
        if (task.successors[first:last] != s).any():
            raise ValueError(
                f"the environment ended in state {name!r}, where the task goes on; give that state "
                "itself as its only successor, or a state of that kind as `end`"
            )
        nothing = -self.low / self.scale
        if task.reward is not None and not self.pays_nothing(s, nothing):
            raise ValueError(
                f"the environment ended in state {name!r}, where the task pays; its reward must be "
                f"{nothing:g}, which stands for 0"
            )

    def pays_nothing(self, s: int, nothing: float) -> bool:
        """Whether the task pays `nothing` for staying in s, whatever is done there."""
        reward, next_state_reward = self.task.user_rewards
        here = slice(s * self.task.n_actions, (s + 1) * self.task.n_actions)
        total = reward[:, here][:, self.task.available[s]]
        if next_state_reward.size:  # one triple for each action that there is
            total = (
                total
                + next_state_reward[:, self.task.indptr[here.start] : self.task.indptr[here.stop]]
            )
        return bool((np.abs(total - nothing) <= 1e-9 * max(self.task.units.unit, 1.0)).all())

    def after_the_end(self, episode: Episode) -> Episode:
        """The episode filled up to H steps: after the end every action pays 0.

        Only for rewards that must be learned, so that no reward is hoped for beyond the end.
        """
        missing, last = self.task.horizon - len(episode.actions), episode.states[-1]
        actions = np.flatnonzero(self.task.available[last])
        nothing = -self.low / self.scale
        return Episode(
            np.append(episode.states, np.full(missing, last)),
            np.append(episode.actions, actions[np.arange(missing) % len(actions)]),
            np.append(episode.rewards, np.full(missing, nothing)),
        )
