"""Players: they play the episodes of `learn` through `reset` and `step`, and let a learner learn.

Both kinds share one loop. An agent of the user has its own task; without one, what is found while
playing is kept by a `Discovery`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sized
from time import perf_counter
from typing import Any

import numpy as np

from upriver.agents.base import Episode
from upriver.checks import (
    check_function,
    check_instance,
    finite_number,
    format_value,
    positive_integer,
    refuse_given,
)
from upriver.play.checkpoints import Checkpoint, restore_generators
from upriver.play.discovery import Declared, Discovery, as_name
from upriver.play.learner import Learner, check_table, final_plan

MAX_REWARD = 1e100
"""Squares of rewards are finite."""


class Player:
    """Plays episodes in an environment that can only be reset and stepped."""

    actions: list[Any]
    """What `step` takes for each action."""
    horizon: int
    """The largest number of steps of an episode."""
    before: int
    """Episodes of the run that goes on."""
    environment: np.random.Generator
    randomness: np.random.Generator
    present: int | None = None
    """The state where the next episode begins; None where the environment is to be reset."""
    is_stream = False
    """Whether an episode begins where the one before stopped."""
    known_terminal = False
    """Whether the task knows `info["terminal_value"]`, a part of the last reward."""

    read: Callable[..., int]
    """The number of the state of (observation, info, whether the episode ended with it)."""
    plan_episode: Callable[[], None]
    choose: Callable[[int, int], int]
    """The action of the plan in step h and state s."""
    see: Callable[[int, int, int, float], None]
    """Receives each step (s, a, s', reward)."""
    learn: Callable[[int, Episode, bool], None]
    """Receives each episode, its number, and whether the environment ended it."""
    result: Callable[[int], tuple[Any, ...]]
    """The plan, the learner's state, its task and the checkpoint after n episodes."""

    def __init__(self, env: Any, state_of: Any) -> None:
        if state_of is not None:
            check_function("state_of", state_of, "observation")
        self.env, self.state_of = env, state_of

    def play_one(self, k: int) -> tuple[float, int, bool, float]:
        """Play episode k; return its return, its length, whether it ended early, and the seconds of
        planning and learning. After an error nothing was drawn and no agent has learned."""
        before = self.randomness.bit_generator.state
        # One double per episode, so that a resumed run continues with the same seeds.
        seed = int(self.environment.random() * 2**31)
        try:
            states = [self.read(*self.reset(seed)) if self.present is None else self.present]
            actions, rewards, total, ended, stopped = [], [], 0.0, False, False
            began = perf_counter()
            self.plan_episode()
            seconds = perf_counter() - began
            while len(actions) < self.horizon and not stopped:
                a = self.choose(len(actions), states[-1])
                observation, reward, known, ended, truncated, info = self.step(a)
                stopped, total = ended or truncated, total + reward
                states.append(self.read(observation, info, ended))
                self.see(states[-2], a, states[-1], reward - known)
                actions.append(a)
                rewards.append(reward - known)
            began = perf_counter()
            episode = Episode(np.array(states), np.array(actions), np.array(rewards))
            self.learn(k, episode, ended)
        except BaseException:
            self.randomness.bit_generator.state = before
            self.present = None
            raise
        self.present = states[-1] if self.is_stream and not stopped else None
        return total, len(actions), ended, seconds + perf_counter() - began

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
        """Take one step; return observation, reward, the part of it that the task knows as terminal
        value, terminated, truncated, info."""
        found = self.env.step(self.actions[action])
        if not (isinstance(found, tuple) and len(found) == 5):
            count = f"{len(found)} values" if isinstance(found, tuple) else format_value(found)
            raise TypeError(
                f"env.step returned {count}; it must return 5, (observation, reward, terminated, "
                "truncated, info), as Gymnasium's environments do"
            )
        observation, reward, terminated, truncated, info = found
        known = 0.0
        if self.known_terminal and isinstance(info, Mapping):
            known = info.get("terminal_value", 0.0)
        paid, known = (finite_number("a reward of env.step", x, -np.inf) for x in (reward, known))
        if abs(paid) > MAX_REWARD:
            raise ValueError(f"a reward of env.step is {paid}; give rewards in a larger unit")
        return observation, paid, known, bool(terminated), bool(truncated), info


class AgentPlayer(Player):
    """Plays the episodes of a given agent."""

    def __init__(
        self, env: Any, agent: Any, state_of: Any, end: Any, resume: Any, seed: int | None
    ) -> None:
        super().__init__(env, state_of)
        self.learner = Learner(agent, None, seed, resume, draws=1)
        self.environment, self.randomness = self.learner.environment, self.learner.randomness
        self.before, self.plan = self.learner.before.episodes, None
        task = self.task = agent.task
        self.horizon = task.horizon
        self.known_terminal = task.terminal is not None
        if task.infinite_horizon:
            raise ValueError("agent.task has an infinite horizon; learn plays episodes of H steps")
        self.actions, space = list(task.action_names), getattr(env, "action_space", None)
        if space is not None and hasattr(space, "n"):
            if space.n != task.n_actions:
                raise ValueError(f"env has {space.n} actions, the agent's task {task.n_actions}")
            self.actions = [int(space.start) + a for a in range(task.n_actions)]
        self.end = None if end is None else task.state_names.number(end, "end")

    def read(self, observation: Any, info: Any, ended: bool = False) -> int:
        if ended and self.end is not None:
            return self.end
        state = observation if self.state_of is None else self.state_of(observation)
        try:
            return self.task.state_names.number(state, "observation")
        except ValueError as error:
            raise ValueError(f"{error}; state_of must map observations to states") from None

    def plan_episode(self) -> None:
        check_table(self.learner.plan().policy, self.task)

    def choose(self, h: int, s: int) -> int:
        return int(self.learner.last_plan.policy[h, s])

    def see(self, s: int, a: int, s2: int, reward: float) -> None:
        self.check_range(reward, "a step of env paid {}")

    def learn(self, k: int, episode: Episode, ended: bool) -> None:
        if ended:
            if len(episode.actions) < self.horizon:
                self.check_end(int(episode.states[-1]))
            if self.task.reward is None:
                episode = self.extend_after_end(episode, k)
        self.learner.learn(episode)
        self.plan = self.learner.last_plan

    def check_range(self, reward: float, what: str) -> None:
        """Refuse a reward outside the range on which an agent that learns rewards relies."""
        if self.task.reward is not None:
            return
        least, most = self.task.reward_range or (0.0, 1.0)
        slack = 1e-9 * (most - least)
        if not least - slack <= reward <= most + slack:
            raise ValueError(
                f"{what.format(reward)}, outside reward_range ({least:g}, {most:g}); give the Task "
                "the bounds of rewards"
            )

    def check_end(self, s: int) -> None:
        """Refuse an end where the task goes on or pays: plans would be wrong."""
        task = self.task
        rows = slice(*task.indptr[[s * task.n_actions, (s + 1) * task.n_actions]])
        goes_on = (task.successors[rows] != s).any()
        if goes_on or (task.reward is not None and not task.ends[s]):
            raise ValueError(
                f"the environment ended in state {task.state_names[s]!r}, where the task "
                f"{'goes on' if goes_on else 'pays'}; make that state its own only successor, with "
                "rewards of 0, or give a state of that kind as `end`"
            )

    def extend_after_end(self, episode: Episode, k: int) -> Episode:
        """Return episode number k filled up to H steps in which actions take turns and pay 0, so
        that an agent that learns rewards expects none after the end."""
        missing, last = self.horizon - len(episode.actions), episode.states[-1]
        if missing:
            self.check_range(0.0, "steps after the end of an episode pay 0")
        actions = np.flatnonzero(self.task.available[last])
        turns = actions[(k + np.arange(missing)) % len(actions)]
        more = np.full(missing, last), turns, np.zeros(missing)
        return Episode(*map(np.append, episode, more))

    def result(self, n_episodes: int) -> tuple[Any, ...]:
        plan, stopped = final_plan(self.plan, self.task), self.learner.checkpoint(n_episodes)
        return plan, self.learner.state, self.task, stopped


REPEATS = 4
"""How often a new action that changes nothing is repeated within an episode."""
NEGLECT = 50
"""Visits of a state after which actions that were never tried there are tried."""


class DiscoveringPlayer(Player):
    """Plays episodes of an environment of which nothing, or only a part, is declared."""

    def __init__(
        self, env: Any, state_of: Any, resume: Any, seed: int | None, declared: Declared
    ) -> None:
        super().__init__(env, state_of)
        n_actions = getattr(getattr(env, "action_space", None), "n", None)
        if resume is None:
            self.found = Discovery(complete(declared, env, n_actions))
        else:
            check_instance("resume", resume, Checkpoint)
            if not isinstance(resume.state, Discovery):
                raise ValueError("resume is a run of an agent; give that agent")
            self.found = resume.state.fork()
            refuse_given("a run to resume, which has its own", **declared._asdict())
            if n_actions not in (None, len(self.found.actions)):
                raise ValueError(
                    f"env has {n_actions} actions, the run to resume {len(self.found.actions)}"
                )
        self.actions, self.horizon = self.found.actions, int(self.found.declared.horizon or 0)
        self.before = self.found.episodes
        self.is_stream = self.found.declared.discount is not None
        self.seed, self.environment, self.randomness = restore_generators(resume, seed, draws=1)
        self.plan: Any = None
        self.tired: set[tuple[int, int]] = set()
        """Pairs that were repeated in vain in this episode; other actions are taken there."""
        self.tries: Counter[tuple[int, int]] = Counter()
        """The visits of pairs in this episode."""

    def read(self, observation: Any, info: Any, ended: bool = False) -> int:
        name = observation if self.state_of is None else self.state_of(observation)
        node = self.found.node(as_name("an observation", name), ended)
        mask = info.get("action_mask") if isinstance(info, Mapping) else None
        if mask is not None and not ended and np.size(mask) == len(self.actions) and np.any(mask):
            self.found.masks[node] = np.flatnonzero(mask).tolist()
        return node

    def plan_episode(self) -> None:
        if self.found.episodes == 0:
            self.found.rebuild()
        self.plan = self.found.plan(self.randomness)
        self.tired, self.tries = set(), Counter()

    def choose(self, h: int, s: int) -> int:
        """Return the action of the plan; a random one in a state that is not in the task yet, and
        one that was never tried in a state that was visited often."""
        found, plan = self.found, self.plan
        if s >= len(found.place):
            return int(self.randomness.choice(found.actions_of(s)))
        if found.declared.successors is None:
            actions = found.actions_of(s)
            tried = [found.tries[s, b] for b in actions]
            # the plan may value what was tried higher than anything new, in every episode
            if sum(tried) >= NEGLECT and 0 in tried:
                return int(actions[tried.index(0)])
        state = found.place[s]
        a = int(plan.policy[min(h, len(plan.policy) - 1), state])
        if (s, a) in self.tired and plan.backup is not None:
            rest = [b for b in found.actions_of(s) if (s, b) not in self.tired]
            return max(rest, key=plan.q(h)[state].__getitem__) if rest else a
        return a

    def see(self, s: int, a: int, s2: int, reward: float) -> None:
        """Remember a step. A plan is kept for an episode: what it tries for the sake of learning,
        and what leads nowhere, is not tried much more often than ever before."""
        self.found.see(s, a, s2, reward)
        self.tries[s, a] += 1
        if s2 == s and 2 * self.tries[s, a] >= self.found.tries[s, a] + REPEATS:
            self.tired.add((s, a))

    def learn(self, k: int, episode: Episode, ended: bool) -> None:
        self.found.learn()

    def result(self, n_episodes: int) -> tuple[Any, ...]:
        # a run that goes on is not fitted and planned with here, or it would be another one
        found, now = self.found.fork(), self.randomness.bit_generator.state
        fingerprint = found.agent, None
        checkpoint = Checkpoint(self.found.fork(), found.episodes, self.seed, now, fingerprint)
        if found.steps[1]:
            found.refit(found.episodes, found.state.k)
        found.present_plan = None
        plan = final_plan(found.plan(np.random.default_rng(self.seed)), found.task)
        return plan, found.state, found.task, checkpoint


def complete(declared: Declared, env: Any, n_actions: int | None) -> Declared:
    """Return what is declared with the actions and the number of steps of an episode, or stretch,
    that the environment says."""
    actions, horizon = declared.actions, declared.horizon
    for name in ("actions", "states"):
        given = getattr(declared, name)
        is_list = isinstance(given, Sized) and not isinstance(given, str)
        if given is not None and not (is_list and len(given)):
            raise ValueError(f"{name} is {format_value(given)}; it must be a list of names")
    bounds = declared.reward_range
    if bounds is not None and np.shape(bounds) != (2,):
        raise ValueError(f"reward_range is {format_value(bounds)}; it must be (low, high)")
    if actions is None:
        if n_actions is None:
            raise ValueError("env has no Discrete action space; give the names of its `actions`")
        actions = [int(getattr(env.action_space, "start", 0)) + a for a in range(n_actions)]
    if horizon is None and declared.discount is not None:
        horizon = 100
    mdp = getattr(getattr(env, "unwrapped", env), "mdp", None)
    for owner, name in ((getattr(env, "spec", None), "max_episode_steps"), (mdp, "horizon")):
        horizon = getattr(owner, name, None) if horizon is None else horizon
    if horizon is None:
        raise ValueError("env has no time limit; give the `horizon`, or a `discount`")
    return declared._replace(actions=actions, horizon=positive_integer("horizon", horizon))
