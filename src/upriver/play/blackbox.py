"""Learning in a black box: an environment that can only be reset and stepped.

Only the agent's Task is known of it, so neither the value of a policy nor its regret is known: a
`LearningRun` holds the returns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from upriver.agents.base import Agent, Episode, check_agent, find_methods
from upriver.checks import (
    Array,
    check_function,
    check_instance,
    check_kinds,
    finite_number,
    format_value,
    is_hashable,
    positive_integer,
    positive_number,
    refuse_given,
)
from upriver.display import Card, add_repr, to_frame
from upriver.mdp import FactoredMDP, Task
from upriver.mdp.names import to_tuples
from upriver.planning import Plan, check_available
from upriver.play import greedy
from upriver.play.checkpoints import Checkpoint, begin, spawn_generators
from upriver.play.checks import check_table
from upriver.play.discovery import Declared, Discovery
from upriver.play.factored import FactoredRun, learn_factored
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

    greedy_policy, model = greedy.greedy_policy, greedy.model

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
    env: Any, agent: Agent | None = None, n_episodes: int | None = None, seed: int | None = None, *,
    state_of: Callable[[Any], Any] | None = None, end: Any = None, resume: Any = None,
    horizon: int | None = None, discount: float | None = None,
    actions: Sequence[Any] | None = None, successors: Callable[[Any, Any], Any] | None = None,
    reward: Callable[..., Any] | None = None, features: Callable[[Task], Any] | None = None,
    states: Sequence[Any] | None = None, reward_range: tuple[float, float] | None = None,
    callback: Callable[[int, float], Any] | None = None, max_seconds: float | None = None,
) -> LearningRun | FactoredRun:  # fmt: skip
    """Learn a policy through `reset` and `step` alone; nothing else has to be declared.

    Without an agent the states, where actions may lead, the rewards and the features are found
    while playing, and UCRL-MNL-SE learns; what is known can be declared part by part. With an agent
    its task says what is known. Each episode is reset with its own seed, drawn from `seed`, so that
    a run depends on these arguments alone where the environment honours its seed. On a terminal a
    line shows how it goes. Ctrl-C ends the run, which is returned.

    Parameters
    ----------
    env : Gymnasium environment or its id, or an object with the same `reset` and `step`
        A Discrete action space gets the numbers of actions, others their names.
    agent : Agent, optional
        A learner of a task with a finite horizon, in the environment's own units of reward. Rewards
        that are to be learned must lie within `task.reward_range`.
    state_of : function, optional
        Maps an observation to a state, by name where the states have names. By default the
        observation itself is the state, arrays as tuples of numbers.
    end : state, optional
        Of an agent's task: the state that stands for "the episode has ended"; by default the last
        observation does. It must be its own only successor in the task.
    resume : LearningRun or Checkpoint, optional
        An earlier run, which goes on.
    horizon : int, optional
        The largest number of steps of an episode; by default the time limit of the environment.
    discount : float, optional
        Plan for an infinite horizon with this discount. An episode then is a stretch of `horizon`
        steps, 100 by default, and the environment is reset only where it has ended.
    actions : list, optional
        The names of the actions, where the environment has no Discrete action space.
    successors : function of (s, a), optional
        The states that can follow.
    reward : function of (s, a) or (s, a, s'), optional
        None is returned where the reward is unknown.
    features : function of a task, optional
        Such as `up.features.one_hot`; `up.features.automatic` by default.
    states : list, optional
        States that are known to exist.
    reward_range : (low, high), optional
        Bounds of one reward. By default those seen so far, with 0, and with 1 unless the rewards
        seen are costs.
    callback : function, optional
        Called after each episode with its number, from 1, and its return; True ends the run.
    max_seconds : float, optional
        No episode begins after this time.

    Raises
    ------
    EnvironmentFailure
        If the environment does what no agent can learn from. Its `run` has what was learned.
    """
    n_episodes = positive_integer("n_episodes", n_episodes, most=10**9)
    if max_seconds is not None:
        positive_number("max_seconds", max_seconds)
    if isinstance(env, str):
        from upriver.envs.gymnasium import make_environment

        env = make_environment(env)
    for method in ("reset", "step"):
        if not callable(getattr(env, method, None)):
            raise TypeError(f"env is a {type(env).__name__}, which has no method {method}")
    if isinstance(getattr(agent, "task", None), FactoredMDP):
        refuse_given(
            "agents of factored problems", state_of=state_of, end=end, resume=resume,
            horizon=horizon, discount=discount, actions=actions, successors=successors,
            reward=reward, features=features, states=states, reward_range=reward_range,
            callback=callback, max_seconds=max_seconds,
        )  # fmt: skip
        return learn_factored(env, agent, n_episodes, seed)
    resume = resume.checkpoint if isinstance(resume, LearningRun) else resume
    declared = {
        "horizon": horizon, "discount": discount, "actions": actions, "successors": successors,
        "reward": reward, "features": features, "states": states, "reward_range": reward_range,
    }  # fmt: skip
    player: Any
    if agent is None:
        player = DiscoveringPlayer(env, state_of, resume, seed, declared)
    else:
        given = next((name for name, value in declared.items() if value is not None), None)
        if given is not None:
            raise ValueError(f"{given} is for learning without an agent; give it to agent.task")
        player = AgentPlayer(env, agent, state_of, end, resume, seed)
    return play_episodes(player, n_episodes, callback, max_seconds)


class EnvironmentFailure(ValueError):
    """The environment did what no agent can learn from."""

    run: LearningRun | None = None
    """What was learned before; None where nothing was."""


def play_episodes(
    player: Any, n_episodes: int, callback: Callable[[int, float], Any] | None,
    max_seconds: float | None,
) -> LearningRun:  # fmt: skip
    """Play the episodes and return the run; errors and interruptions keep what was learned."""
    rows: list[tuple[float, int, bool, float]] = []
    before, began = player.before, perf_counter()
    progress = Progress(n_episodes)
    failure: Exception | None = None
    try:
        while len(rows) < n_episodes:
            if max_seconds is not None and perf_counter() - began >= max_seconds and rows:
                break
            rows.append(player.play_one(before + len(rows)))
            progress.show(rows)
            if callback is not None and callback(before + len(rows), rows[-1][0]) is True:
                break
    except KeyboardInterrupt:
        if not rows:
            raise
    except (ValueError, TypeError) as error:
        failure = error
    finally:
        progress.end()
    if failure is not None and not rows:
        raise failure
    columns = [np.array(x) for x in zip(*rows, strict=True)]
    run = player.finish(*columns)
    if failure is not None:
        kept = EnvironmentFailure(
            f"{failure} (in episode {before + len(rows) + 1}; the episodes before are in the `run` "
            "of this error)"
        )
        kept.run = run
        raise kept from failure
    return run


class Progress:
    """A line on a terminal: the episode, the mean return of the last ten, and the time left."""

    def __init__(self, n_episodes: int) -> None:
        self.n_episodes, self.began = n_episodes, perf_counter()
        self.last, self.visible = self.began, sys.stderr.isatty()

    def show(self, rows: list[Any]) -> None:
        now = perf_counter()
        if not self.visible or now - self.last < 0.2:
            return
        self.last, done = now, len(rows)
        recent = np.mean([row[0] for row in rows[-10:]])
        left = (now - self.began) / done * (self.n_episodes - done)
        text = f"episode {done}/{self.n_episodes}, last ten {recent:.4g}, {left:.0f} s left"
        print(f"\r{text:<70}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.visible and self.last > self.began:
            print(file=sys.stderr)


class AgentPlayer:
    """Plays the episodes of a given agent."""

    def __init__(
        self, env: Any, agent: Any, state_of: Any, end: Any, resume: Any, seed: int | None
    ) -> None:
        check_agent(agent)
        self.agent, self.task = agent, agent.task
        if self.task.infinite_horizon:
            raise ValueError("agent.task has an infinite horizon; learn plays episodes of H steps")
        self.adapter = Adapter(self.task, env, state_of, end)
        self.start = begin(agent, None, seed, resume, draws=1)
        self.before = self.start.checkpoint.episodes
        self.make_plan, self.update = find_methods(agent)
        self.to_unit_scale = episode_converter(self.task)
        self.state, self.plan = self.start.state, None

    def play_one(self, k: int) -> tuple[float, int, bool, float]:
        """Play episode k; return its return, its length, whether it ended early, and seconds."""
        start, task, began = self.start, self.task, perf_counter()
        randomness = start.randomness.bit_generator.state
        plan: Any = self.make_plan(self.state, start.randomness)
        planned = perf_counter()
        # One double per episode, so that a resumed run continues with the same seeds.
        episode_seed = int(start.environment.random() * 2**31)
        check_table(plan.policy, task)
        check_available("the agent's policy", plan.policy, task)
        try:
            episode, total, ended = self.adapter.play(plan.policy, episode_seed)
        except BaseException:  # the run stops as it was before this episode
            start.randomness.bit_generator.state = randomness
            raise
        length = len(episode.actions)
        if ended and task.reward is None:
            episode = self.adapter.extend_after_end(episode, k)
        played = perf_counter()
        self.state = self.update(self.state, plan, self.to_unit_scale(episode))
        self.plan = plan
        return total, length, ended, perf_counter() - played + planned - began

    def finish(self, returns: Array, lengths: Array, ended: Array, seconds: Array) -> LearningRun:
        plan: Any = final_plan(self.plan, self.task)
        stopped = self.start.stop(self.agent, None, self.state, len(returns))
        return LearningRun(returns, lengths, ended, seconds, plan, self.state, self.task, stopped)


class Box:
    """An environment, and its observations and actions as those of the states of a learner."""

    env: Any
    actions: list[Any]
    """What `step` takes for each action."""
    state_of: Any
    task: Any = None

    def reset(self, seed: int) -> tuple[Any, Mapping[Any, Any]]:
        """Reset the environment and return the first observation and info."""
        try:
            found = self.env.reset(seed=seed)
        except TypeError as error:
            if "seed" not in str(error):
                raise
            raise TypeError(
                "env.reset takes no seed; give it the signature reset(self, seed=None)"
            ) from error
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping)):
            raise TypeError(
                f"env.reset returned {format_value(found)}; it must return (observation, info), as "
                "Gymnasium's environments do"
            )
        return found

    def step(self, action: int) -> tuple[Any, float, float, bool, bool, Any]:
        """Take one step; return observation, reward, terminal value, terminated, truncated, info.

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
        if self.task is not None and self.task.terminal is not None and isinstance(info, Mapping):
            known = info.get("terminal_value", 0.0)
        paid, known = (finite_number("a reward of env.step", x, -np.inf) for x in (reward, known))
        return observation, paid, known, bool(terminated), bool(truncated), info


class Adapter(Box):
    """Translates the observations, actions and rewards of an environment to those of a task."""

    def __init__(self, task: Task, env: Any, state_of: Any, end: Any) -> None:
        self.task, self.env, self.state_of = task, env, state_of
        self.end = None if end is None else task.state_names.number(end, "end")
        least, most = task.reward_range or (0.0, 1.0)
        self.slack = 1e-9 * (most - least)
        self.least, self.most = (least, most) if task.reward is None else (-np.inf, np.inf)
        self.actions, space = list(task.action_names), getattr(env, "action_space", None)
        if state_of is not None:
            check_function("state_of", state_of, "observation")
        if space is not None and hasattr(space, "n"):
            if space.n != task.n_actions:
                raise ValueError(f"env has {space.n} actions, the agent's task {task.n_actions}")
            self.actions = [int(space.start) + a for a in range(task.n_actions)]

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
        states[0] = self.read(self.reset(seed)[0])
        total, h, ended, stopped = 0.0, 0, False, False
        while h < horizon and not stopped:
            actions[h] = policy[h, states[h]]
            observation, reward, known, ended, truncated, _ = self.step(actions[h])
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

    def extend_after_end(self, episode: Episode, k: int) -> Episode:
        """Return episode number k filled up to H steps in which actions take turns and pay 0, so
        that an agent that learns rewards expects none after the end."""
        missing, last = self.task.horizon - len(episode.actions), episode.states[-1]
        if missing:
            self.check_range(0.0, "steps after the end of an episode pay 0")
        actions = np.flatnonzero(self.task.available[last])
        return Episode(
            np.append(episode.states, np.full(missing, last)),
            np.append(episode.actions, actions[(k + np.arange(missing)) % len(actions)]),
            np.append(episode.rewards, np.zeros(missing)),
        )


REPEATS = 4
"""How often a new action that changes nothing is repeated within an episode."""
NONE: set[int] = set()


class DiscoveringPlayer(Box):
    """Plays episodes of an environment of which nothing, or only a part, is declared."""

    def __init__(
        self, env: Any, state_of: Any, resume: Any, seed: int | None, declared: dict[str, Any]
    ) -> None:
        self.env, self.state_of = env, state_of
        space, actions = getattr(env, "action_space", None), declared["actions"]
        if actions is None and not hasattr(space, "n"):
            raise ValueError("env has no Discrete action space; give the names of its `actions`")
        if actions is None:
            actions = np.arange(space.n) + getattr(space, "start", 0)  # pyright: ignore
        self.actions = [a.item() if isinstance(a, np.generic) else a for a in actions]
        if resume is not None:
            check_instance("resume", resume, Checkpoint)
            if not isinstance(resume.state, Discovery):
                raise ValueError("resume is a run of an agent; give that agent")
            self.found = resume.state.fork()
        else:
            self.found = Discovery(self.actions, *horizon_of(env, declared), declared_of(declared))
        if resume is not None and seed not in (None, resume.seed):
            raise ValueError(f"seed is {seed}; the run to resume has seed {resume.seed}")
        self.seed = int(seed or 0) if resume is None else int(resume.seed)
        self.before = self.found.episodes
        self.environment, self.randomness = spawn_generators(self.seed)
        self.environment.bit_generator.advance(self.before)  # type: ignore[attr-defined]
        if resume is not None:
            self.randomness.bit_generator.state = resume.generator
        self.present: int | None = None
        """With a discount: the state where the next stretch goes on."""

    def read(self, observation: Any, info: Any, ended: bool = False) -> int:
        """Return the number of the state of an observation."""
        name = observation if self.state_of is None else self.state_of(observation)
        if isinstance(name, np.ndarray | np.generic):
            name = name.tolist()
        name = to_tuples(name)
        if not is_hashable(name):
            raise TypeError(
                f"an observation is {format_value(name)}, which is not hashable; let `state_of` "
                "return a number, a text or a tuple of these"
            )
        node = self.found.node(name, ended)
        mask = info.get("action_mask") if isinstance(info, Mapping) else None
        if mask is not None and not ended and len(mask) == len(self.actions) and np.any(mask):
            self.found.masks[node] = np.flatnonzero(mask).tolist()
        return node

    def choose(self, plan: Any, h: int, node: int, tired: set[int]) -> int:
        """Return the action of the plan; a random one in a state that is not in the task yet.

        tired: actions that have been repeated in vain; the next best is taken in their place.
        """
        found = self.found
        if node >= len(found.place):
            return int(self.randomness.choice(found.actions_of(node)))
        state = found.place[node]
        a = int(plan.policy[min(h, len(plan.policy) - 1), state])
        if a in tired and plan.backup is not None:
            rest = [b for b in found.actions_of(node) if b not in tired]
            return max(rest, key=plan.q(h)[state].__getitem__) if rest else a
        return a

    def play_one(self, k: int) -> tuple[float, int, bool, float]:
        """Play episode k; return its return, its length, whether it ended early, and seconds."""
        found, began = self.found, perf_counter()
        state = self.randomness.bit_generator.state
        seed = int(self.environment.random() * 2**31)
        try:
            if self.present is None:
                self.present = self.read(*self.reset(seed))
            if found.episodes == 0:
                found.rebuild()
            plan = found.plan(self.randomness)
            planned = perf_counter()
            total, h, ended, stopped = 0.0, 0, False, False
            tired: dict[int, set[int]] = {}
            before: dict[Any, int] = {}
            while h < found.length and not stopped:
                a = self.choose(plan, h, self.present, tired.get(self.present, NONE))
                observation, reward, _, ended, truncated, info = self.step(a)
                following = self.read(observation, info, ended)
                pair = self.present, a
                known = before.setdefault(pair, found.tries.get(pair, 0))
                found.see(self.present, a, following, reward)
                # A plan is kept for an episode: what it tries for the sake of learning, and what
                # leads nowhere, is not tried much more often than ever before.
                if following == self.present and found.tries[pair] >= 2 * known + REPEATS:
                    tired.setdefault(self.present, set()).add(a)
                stopped, total, h = ended or truncated, total + reward, h + 1
                self.present = following
        except BaseException:
            self.randomness.bit_generator.state = state
            raise
        if stopped or found.discount is None:
            self.present = None
        played = perf_counter()
        found.learn()
        return total, h, ended, perf_counter() - played + planned - began

    def finish(self, returns: Array, lengths: Array, ended: Array, seconds: Array) -> LearningRun:
        found = self.found
        generator = self.randomness.bit_generator.state
        plan: Any = final_plan(found.new_plan(np.random.default_rng(self.seed)), found.task)
        checkpoint = Checkpoint(
            found.fork(), found.episodes, self.seed, generator, (found.agent, None)
        )
        return LearningRun(
            returns, lengths, ended, seconds, plan, found.state, found.task, checkpoint
        )


def declared_of(given: dict[str, Any]) -> Declared:
    return Declared(**{name: given[name] for name in Declared._fields})


def horizon_of(env: Any, given: dict[str, Any]) -> tuple[int, float | None]:
    """Return the number of steps of an episode, or stretch, and the discount to plan with."""
    horizon, discount = given["horizon"], given["discount"]
    if discount is not None:
        return positive_integer("horizon", 100 if horizon is None else horizon), discount
    if horizon is None:
        spec, inner = getattr(env, "spec", None), getattr(env, "unwrapped", env)
        horizon = getattr(spec, "max_episode_steps", None)
        if horizon is None:
            horizon = getattr(getattr(inner, "mdp", None), "horizon", None)
        if horizon is None:
            raise ValueError("env has no time limit; give the `horizon`, or a `discount`")
    return positive_integer("horizon", horizon), None
