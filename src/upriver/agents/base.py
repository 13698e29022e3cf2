"""What an agent is, and what all agents share: checked fields, checked arguments, one state.

An agent is a frozen dataclass of the paper's inputs, with three functions of its state. A field of
one name means the same in every agent, so `CHECKS` says once what it may hold.

The compiled loops trust the arrays that they are given. So `plan` and `update` refuse whatever does
not fit with one sentence, before a loop reads past the end of an array. `simulate` and `learn` make
these arrays themselves and call what these two call after their checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from math import inf
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from upriver import kernels
from upriver.agents import rewards
from upriver.checks import (
    NUMBER,
    Array,
    as_float,
    check_instance,
    format_value,
    new_tuple,
    nonnegative_number,
    open_fraction,
    positive_integer,
    positive_number,
)
from upriver.display import add_repr
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task
from upriver.planning import Clip, Plan, backward_induction, draw_tie_seed, run_backward_pass

Check = Callable[[str, Any], Any]
"""(name, value) -> the value in canonical form, or an error of one sentence."""

SLACK = 1e-6
"""How far beyond [0, 1] a reward may lie by rounding."""


@add_repr
class Episode(NamedTuple):
    """What happened in T steps; T = H unless the environment ended early."""

    states: Array
    """(T + 1,)"""
    actions: Array
    """(T,)"""
    rewards: Array
    """(T,) on the unit scale where an agent learns from them."""


class Agent(Protocol):
    """A learner. No method changes the agent, the state or the plan it is given.

    An agent works on the unit scale throughout: `update` receives rewards in [0, 1], and `plan`
    returns values on that scale, or says that they are in the user's units:
    `Plan.in_user_units`. `simulate` and `learn` convert (`Task.units`), so an agent that wraps
    another one passes everything on as it is. `plan` goes back to `update` because some learners
    regress on the values they planned with. Randomness comes only from `rng`.

    For an infinite horizon an agent also has `steps_until_replan(state, plan, episode)`, which says
    for how many steps of an episode, a stretch of the stream, the plan is kept; at most all.
    """

    @property
    def task(self) -> Task:
        """What the agent knows of the problem."""
        ...

    def init(self) -> Any:
        """Return the state before the first episode."""
        ...

    def plan(self, state: Any, rng: np.random.Generator) -> Plan:
        """Return the policy of the next episode."""
        ...

    def update(self, state: Any, plan: Plan, episode: Episode) -> Any:
        """Return the state after an episode."""
        ...


def number_or_function(name: str, value: Any) -> Any:
    """Check a number of at least 0; a function stays as it is."""
    return value if callable(value) else nonnegative_number(name, value)


def check_rule(name: str, values: Any, *shapes: tuple[int, ...]) -> Array:
    """Return what the function of a field gave: finite numbers of at least 0, of a shape given."""
    found = as_float(what := f"what {name} returns", values, shapes=shapes)
    if not (np.isfinite(found) & (found >= 0.0)).all():
        raise ValueError(
            f"{what} is {format_value(values)}; it must be finite numbers of at least 0"
        )
    return found


POSITIVE = "regularization kappa step_size inflation diameter prior"
NONNEGATIVE = "bonus noise reward_bonus epsilon decay shared_errors own_errors"
CHECKS: dict[str, Check] = {
    "task": partial(check_instance, kind=Task), "mdp": partial(check_instance, kind=FiniteMDP),
    "features": partial(check_instance, kind=Features),
    "delta": open_fraction, "theta_bound": positive_number,
    **dict.fromkeys(("n_episodes", "n_steps", "n_samples", "ensemble"), positive_integer),
    **dict.fromkeys(POSITIVE.split(), positive_number),
    **dict.fromkeys(NONNEGATIVE.split(), nonnegative_number),
}  # fmt: skip
"""What a field of each name may hold, apart from None where that is its default."""


class Validated:
    """The base of agents, and of bonus rules, whose fields are their constants."""

    OWN_CHECKS: ClassVar[dict[str, Check]] = {}
    """Checks of fields that `CHECKS` names otherwise."""

    def __post_init__(self) -> None:
        """Check the fields and keep them in canonical form."""
        checks = CHECKS | self.OWN_CHECKS
        for field in fields(self):  # type: ignore
            name, value = field.name, getattr(self, field.name)
            if name in checks and (value is not None or field.default is not None):
                object.__setattr__(self, name, checks[name](name, value))
        task, features = getattr(self, "task", None), getattr(self, "features", None)
        if features is not None:
            features.check_task(task)
        if task is not None and task.infinite_horizon and not hasattr(self, "steps_until_replan"):
            raise ValueError(
                f"{type(self).__name__} plans for a number of steps, and the task has an infinite "
                "horizon; use an agent with steps_until_replan, such as UCRLMNLSE"
            )


class CheckedAgent(Validated):
    """The base of agents: `plan` and `update` check their arguments, `make_plan` and `advance` act.

    Whoever made the arguments calls the latter.
    """

    task: Any

    def __init_subclass__(cls) -> None:
        add_repr(cls)

    def plan(self: Any, state: Any, rng: np.random.Generator) -> Plan:
        """Return the policy of the next episode."""
        check_state(self, state)
        return self.make_plan(state, check_instance("rng", rng, np.random.Generator))

    def update(self: Any, state: Any, plan: Plan, episode: Episode) -> Any:
        """Return the state after an episode."""
        check_state(self, state)
        return self.advance(state, plan, checked_episode(self.task, episode))


@add_repr
class State(NamedTuple):
    """What a learner keeps between episodes."""

    k: int
    """Number of the next episode, from 1; of the next step where the horizon is infinite."""
    model: Any
    """What it has learned about transitions: an estimate, or counts of transitions."""
    rewards: rewards.RewardSums | None
    """Sums of rewards, only where the task's reward is unknown."""


@dataclass(frozen=True)
class Learner(CheckedAgent):
    """The base of agents that learn: `start` and `learn` make the model of their state.

    `make_plan` plans with it.
    """

    task: Task

    n_models = 1
    """How many models are kept: one for all steps, or H."""

    def start(self) -> Any:
        """Return the model before the first episode."""
        raise NotImplementedError

    def learn(self, state: State, plan: Plan, episode: Episode) -> Any:
        """Return the model after an episode."""
        raise NotImplementedError

    def init(self) -> State:
        """Return the state before the first episode."""
        return State(1, self.start(), rewards.start(self.task))

    def advance(self, state: State, plan: Plan, episode: Episode) -> State:
        """Return the state after an episode."""
        k, sums = self.next_k(state, episode), rewards.observe(self.task, state.rewards, episode)
        return new_tuple(State, (k, self.learn(state, plan, episode), sums))

    def next_k(self, state: State, episode: Episode) -> int:
        """Return the number of the episode, or step, after this one."""
        return state.k + (len(episode.actions) if self.task.infinite_horizon else 1)

    def induce(
        self, prob: Array, reward: Array, clip: Callable[[Task], Clip], rng: np.random.Generator,
        bonus: Array | None = None, scale: float | Array = 1.0, **options: Any,
    ) -> Plan:  # fmt: skip
        """Return the plan with Q_h = clip(r + P V_{h+1} + scale_h * bonus), or without a bonus.

        It is `planning.backward_induction`, with its shapes and options.
        """
        task = self.task
        bonus = np.zeros((1, len(task.sizes))) if bonus is None else bonus
        scale, tie_seed = np.full(task.horizon, scale), draw_tie_seed(rng)
        return backward_induction(task, prob, reward, bonus, scale, clip(task), tie_seed, **options)

    def run_pass(
        self, rule: Any, data: tuple[Any, ...], clip: Callable[[Task], Clip],
        rng: np.random.Generator, **options: Any,
    ) -> Plan:  # fmt: skip
        """Return the plan of the backward pass of a rule, see `planning.run_backward_pass`."""
        seed = draw_tie_seed(rng)
        return run_backward_pass(self.task, rule, data, clip(self.task), seed, **options)


def check_agent(agent: Any) -> None:
    """Raise TypeError if an object lacks a method of an agent, or its task is not a Task."""
    needed = ["init", "plan", "update"]
    if getattr(getattr(agent, "task", None), "infinite_horizon", False):
        needed.append("steps_until_replan")
    for name in needed:
        if not callable(getattr(agent, name, None)) or isinstance(agent, type):
            raise TypeError(f"agent is {format_value(agent)}; it has no {name}")
    check_instance("agent.task", getattr(agent, "task", None), Task)


def check_state(agent: Any, state: Any, finite: bool = False) -> None:
    """Raise ValueError if a state is not laid out as the agent's first one.

    What is a number above 0 there, such as k and lambda, must be one; what is 0 may grow.
    """
    known, name = vars(agent), type(agent).__name__
    if "first_layout" not in known:
        object.__setattr__(agent, "first_layout", layout(agent.init()))
    if not same_layout(layout(state), known["first_layout"]):
        raise ValueError(f"the state is not one of this {name} and its task")
    if finite and not is_finite(state):
        raise ValueError(f"the state of the {name} holds numbers that are not finite")


def layout(value: Any) -> Any:
    """Return the types and shapes of a tree of arrays, and whether its numbers are above 0."""
    if isinstance(value, tuple):
        return type(value), *map(layout, value)
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.flags.c_contiguous
    if isinstance(value, NUMBER) and not isinstance(value, bool):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return type(value)  # no number for a compiled loop
        return bool(0 < value < inf)
    return type(value)


def same_layout(found: Any, first: Any) -> bool:
    """Return whether layouts agree, apart from numbers that were 0 at first."""
    if isinstance(found, tuple) and isinstance(first, tuple):
        return len(found) == len(first) and all(map(same_layout, found, first))
    return found == first or (found is True and first is False)


def is_finite(value: Any) -> bool:
    """Return whether all numbers of a tree of arrays are finite."""
    if isinstance(value, tuple):
        return all(map(is_finite, value))
    return np.asarray(value).dtype.kind != "f" or bool(np.isfinite(value).all())


def add_counts(task: Task, counts: Array, episode: Episode) -> Array:
    """Add the transitions of an episode to counts (C, n) in place; return (T,) their pairs.

    With counts (1, 0) the transitions are only checked against the support.
    """
    states, actions = episode.states, episode.actions
    bad = kernels.episodes.count_transitions(
        task.indptr, task.successors, task.n_actions, states, actions, counts
    )
    if bad >= 0:
        task.refuse_step(bad, states, actions)
    return states[:-1] * task.n_actions + actions


def checked_episode(task: Task, episode: Any) -> Episode:
    """Return the episode in the types of compiled loops; raise ValueError if it does not fit."""
    try:
        states, actions, rewards = (as_float("episode", x) for x in episode)
    except (TypeError, ValueError):
        raise ValueError(
            f"episode is {format_value(episode)}; it must be (states, actions, rewards), rows of "
            "numbers"
        ) from None
    n, longest = len(rewards), inf if task.infinite_horizon else task.horizon
    if n > longest or (states.shape, actions.shape, rewards.shape) != ((n + 1,), (n,), (n,)):
        raise ValueError(
            f"the episode has {states.size} states, {actions.size} actions and {rewards.size} "
            f"rewards; it must have T + 1, T and T, T at most {longest}"
        )

    def check(name: str, values: Array, fits: Array, allowed: str) -> None:
        if not fits.all():
            h = int(np.argmin(fits))
            raise ValueError(f"{name}[{h}] of the episode is {values[h]:.15g}; {name} {allowed}")

    many = ("states", states, task.n_states), ("actions", actions, task.n_actions)
    for name, values, size in many:
        check(name, values, np.isin(values, np.arange(size)), f"are 0 to {size - 1}")
    states, actions = states.astype(np.int64), actions.astype(np.int64)
    check("actions", actions, task.available[states[:-1], actions], "must be those of the state")
    # only rewards that are learned from must be in range
    low, high = (-inf, inf) if task.reward is not None else (-SLACK, 1.0 + SLACK)
    fits = np.isfinite(rewards) & (rewards >= low) & (rewards <= high)
    allowed = "are finite numbers on the unit scale, 0 to 1 (task.units converts)"
    check("rewards", rewards, fits, allowed)
    return Episode(states, actions, rewards)
