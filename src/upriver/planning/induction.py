"""Plans by backward induction over the triples, with bonuses, clips and random ties.

`run_backward_pass` runs any compiled backward pass, see `kernels.planning`, and makes a `Plan` of
it; `backward_induction` is the one with a bonus for each pair, of which (6) is a case. Everything
here is on the scale of [0, 1], see `Task.units`, unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from upriver import kernels
from upriver.checks import Array, check_kinds, new_tuple
from upriver.display import Card, add_repr, to_frame
from upriver.display.card import MAX_ROWS
from upriver.display.frames import name_column
from upriver.mdp import Task
from upriver.planning.tables import action_columns, by_name, policy_type

FLOAT = np.dtype(np.float64)


@add_repr
class Plan(NamedTuple):
    """A policy and the values it was planned with; v[h] belongs to step h + 1."""

    policy: Array
    """(H, S) the action at each step and state, in the smallest integer type; or (H, S, A) action
    probabilities, of a soft optimum."""
    v: Array
    """(H + 1, S) planned values; v[H] is 0, or the terminal value."""
    backup: Callable[[int], Array] | None = None
    """h -> (S, A), the planned action values of one step."""
    task: Task | None = None
    """What the plan was made for, where that is known: its names are those of the tables."""
    in_user_units: bool = False
    """Whether `v` and `q` are in the user's units; agents plan on the unit scale, see `Units`."""

    @check_kinds
    def q(self, h: int) -> Array:
        """(S, A) planned action values at step h, counted from 0; computed when asked for."""
        if self.backup is None:
            raise ValueError("this plan keeps no action values")
        if not 0 <= h < len(self.policy):
            raise ValueError(f"h is {h}; it must be between 0 and {len(self.policy) - 1}")
        return self.backup(h)

    def to_user_units(self, task: Task) -> Plan:
        """Return the plan with its values in the user's units."""
        units, backup = task.units, self.backup
        if self.in_user_units or units.is_identity:
            return self._replace(in_user_units=True)
        v = units.floor[:, None] + units.unit * self.v
        if backup is not None:
            unit_scale, backup = backup, lambda h: units.floor[h] + units.unit * unit_scale(h)
        return self._replace(v=v, backup=backup, in_user_units=True)

    def without_closures(self) -> Plan:
        """What a file holds: the tables, which are what was played."""
        return self._replace(backup=None, task=None)

    def card(self) -> Card:
        steps, n_states = self.policy.shape[:2]
        low, high = float(self.v[0].min()), float(self.v[0].max())
        return Card(
            {"steps": steps, "states": n_states, "values at the start": f"{low:.4g} to {high:.4g}"},
            rows=lambda: self.to_pandas(n_steps=1).head(MAX_ROWS).to_dict("records"),
            more="to_pandas() has every step and state, plot() draws them",
            brief=f"{steps} steps of {n_states} states",
        )

    def to_pandas(self, n_steps: int | None = None) -> Any:
        """A data frame with a row per step and state: step, state, action, value.

        n_steps: the first steps alone.
        """
        table = self.policy[:n_steps]
        h, s = np.divmod(np.arange(table.shape[0] * table.shape[1]), table.shape[1])
        states = name_column(None if self.task is None else self.task.states, s)
        actions, values = action_columns(self.task, table), self.v[: len(table)].ravel()
        return to_frame({"step": h, "state": states, **actions, "value": values})

    def plot(self) -> Any:
        """A figure of the actions by state and step; of probabilities, the likeliest actions."""
        from upriver.display import figures

        names = (None, None) if self.task is None else (self.task.states, self.task.actions)
        table = self.policy if self.policy.ndim == 2 else self.policy.argmax(axis=2)
        return figures.plot_policy(table, *names)

    def on(self, task: Task) -> Array:
        """(H, S) the policy in the order of another task's states and actions, matched by name."""
        return by_name(self.policy, self.task, task)


def empty_plan(task: Task) -> tuple[Array, Array, Array]:
    """Return (policy, v, q) for a backward pass to write: (H, S), (H + 1, S) and (S*A,).

    The last row of v is the terminal value of each state.
    """
    horizon, n_states, n_actions = task.horizon, task.n_states, task.n_actions
    v = np.zeros((horizon + 1, n_states))
    if task.terminal is not None:
        v[horizon] = task.terminal_row
    policy = np.empty((horizon, n_states), policy_type(task))
    return policy, v, np.empty(n_states * n_actions)


def random_actions(task: Task, rng: np.random.Generator) -> Array:
    """Return actions (H, S) drawn uniformly among those that each state has."""
    shape, kind = (task.horizon, task.n_states), policy_type(task)
    if task.available.all():
        return rng.integers(task.n_actions, size=shape, dtype=kind)
    rank = rng.integers(task.available.sum(axis=1), size=shape)
    return actions_by_availability(task)[np.arange(task.n_states), rank].astype(kind)


@lru_cache(maxsize=64)
def actions_by_availability(task: Task) -> Array:
    """Return (S, A), the actions of each state, those that it has first."""
    return np.argsort(~task.available, axis=1, kind="stable")


def draw_tie_seed(rng: np.random.Generator) -> np.uint64:
    """Return 64 random bits, from which a backward pass breaks its ties."""
    return np.uint64(rng.bit_generator.random_raw())  # type: ignore[attr-defined]


def steps_of(array: Array, h: int) -> Array:
    """Return the part of a (1 | H, ...) array that belongs to step h, with a leading axis."""
    at = min(h, len(array) - 1)
    return array[at : at + 1]


@dataclass(frozen=True, eq=False)
class Clip:
    """Where values are clipped: Q to [low, q_cap[h]] before the argmax, V to at most v_cap[h].

    Make one for each task, not one for each plan: what kernels read of it is kept by identity.
    """

    low: float
    q_cap: Array
    v_cap: Array


@lru_cache(maxsize=64)
def clip_nothing(task: Task) -> Clip:
    """Leave Q and V as they are."""
    free = np.full(task.horizon, np.inf)
    return Clip(-np.inf, free, free)


@lru_cache(maxsize=64)
def clip_v(task: Task) -> Clip:
    """Clip V_h at H, as the paper does; Q is left alone, so that clipping creates no ties."""
    return Clip(-np.inf, clip_nothing(task).q_cap, np.full(task.horizon, task.units.max_value))


@lru_cache(maxsize=64)
def clip_v_remaining(task: Task) -> Clip:
    """Clip V_h at the number of steps left, which no true value exceeds."""
    return Clip(-np.inf, clip_nothing(task).q_cap, task.units.value_range[:-1].copy())


@lru_cache(maxsize=64)
def clip_q(task: Task) -> Clip:
    """Clip Q_h to [0, H] before the argmax, as the linear baselines are published."""
    cap = clip_v(task).v_cap
    return Clip(0.0, cap, cap)


@lru_cache(maxsize=64)
def clip_q_above(task: Task) -> Clip:
    """Clip Q_h at H before the argmax; it may be negative."""
    cap = clip_v(task).v_cap
    return Clip(-np.inf, cap, cap)


@lru_cache(maxsize=64)
def problem_structure(task: Task, clip: Clip, next_state_reward: bool) -> Any:
    """Return the `kernels.planning.Problem` of a task, as the structure that kernels take."""
    return describe_problem(
        task, clip, task.next_state_reward_rows if next_state_reward else np.empty((1, 0))
    )


def describe_problem(task: Task, clip: Clip, extra: Array) -> Any:
    """Return the same with `extra` (1 | H, n) as the next-state reward."""
    caps = float(clip.low), clip.q_cap, clip.v_cap
    # A pass that clips nothing has no bonus, and may be in the user's units.
    known = task.ends & np.isfinite(clip.v_cap[0])
    end_reward = np.where(known, task.units.to_unit_scale(np.zeros(1)), np.nan)
    problem = kernels.planning.Problem(task.indptr, task.successors, extra, *caps, end_reward)
    return kernels.compiled.Constants(problem)


@lru_cache(maxsize=64)
def whole_span(horizon: int, n_states: int) -> Array:
    """Return the span of all steps and states, see `kernels.planning`."""
    return np.array([0, horizon, 0, n_states])


def run_backward_pass(
    task: Task, kernel: Callable[..., None], arguments: tuple[Any, ...], clip: Clip,
    tie_seed: np.uint64, *, next_state_reward: bool | Array = True,
    terminal: Array | None = None, memory: int = 0,
) -> Plan:  # fmt: skip
    """Return the plan of a compiled backward pass; problems that are large use all cores.

    The pass is called as kernel(problem, *arguments, tie_seed, v, policy, q, span), see
    `kernels.planning`. The reward of next states is added to V_{h+1} unless `next_state_reward` is
    False, because `arguments` contain it, or an array (1 | H, n) that takes its place; `terminal`
    (S,) takes the place of the task's terminal values. A pass that keeps numbers from one step to
    the next gets so many zeros, `memory`, after its arguments; those of a pair must be its own, or
    results would depend on the number of threads. q(h) of the plan runs the pass over that step
    alone, with a new memory.
    """
    policy, v, q = empty_plan(task)
    if terminal is not None:
        v[-1] = terminal
    is_flag = isinstance(next_state_reward, bool)
    describe: Any = problem_structure if is_flag else describe_problem
    inputs = (describe(task, clip, next_state_reward), *arguments)
    given = (*inputs, *zeros(memory), tie_seed, v, policy, q)
    if task.n_triples < kernels.LARGE:
        kernel(*given, whole_span(task.horizon, task.n_states))
    else:
        for h in reversed(range(task.horizon)):
            kernels.compiled.parallel_ranges(
                lambda s, t, h=h: kernel(*given, np.array([h, h + 1, s, t])), task.n_states
            )
    backup = partial(action_values, task, kernel, inputs, memory, v)
    return new_tuple(Plan, (policy, v, backup, task, False))


def zeros(memory: int) -> tuple[Array, ...]:
    """Return an array of so many zeros in a tuple, which is empty for none."""
    return (np.zeros(memory),) if memory else ()


def action_values(
    task: Task, kernel: Callable[..., None], given: tuple[Any, ...], memory: int, v: Array, h: int
) -> Array:
    """Return Q_h (S, A) of a plan: its backward pass over step h alone, into arrays of its own."""
    scratch, q = np.empty_like(v), np.empty(len(task.sizes))  # rows that are not used cost none
    scratch[h + 1] = v[h + 1]
    policy = np.empty((task.horizon, task.n_states), policy_type(task))
    span = np.array([h, h + 1, 0, task.n_states])
    kernel(*given, *zeros(memory), np.uint64(0), scratch, policy, q, span)
    return q.reshape(task.n_states, task.n_actions)


def check_model(task: Task, *arrays: Any) -> None:
    """Refuse prob, reward, bonus and scale of another task: kernels would read past their ends."""
    shapes = [getattr(x, "shape", ()) for x in arrays]
    kinds = {getattr(x, "dtype", None) for x in arrays}
    columns = [task.n_triples, len(task.sizes), len(task.sizes)]
    allowed = [{(1, n), (task.horizon, n)} for n in columns] + [{(task.horizon,)}]
    if kinds != {FLOAT} or any(x not in y for x, y in zip(shapes, allowed, strict=True)):
        raise ValueError(
            f"prob, reward, bonus and scale have shapes {shapes} and types {kinds}; with "
            f"{task.describe()} they must be float64 (1 | H, {task.n_triples}), "
            f"(1 | H, {len(task.sizes)}), (1 | H, {len(task.sizes)}), (H,)"
        )


def backward_induction(
    task: Task, prob: Array, reward: Array, bonus: Array, scale: Array, clip: Clip,
    tie_seed: np.uint64, *, next_state_reward: bool = True, terminal: Array | None = None,
) -> Plan:  # fmt: skip
    """Plan with Q_h = clip(r + P V_{h+1} + scale_h * bonus), V_h = clip(max_a Q_h).

    prob (1 | H, n) need not sum to one; reward and bonus (1 | H, S*A), on the scale of [0, 1], and
    scale (H,) must be float64. Ties are broken at random. With an infinite horizon this is the
    stationary optimum, and neither bonus nor clip is used. Otherwise as `run_backward_pass`.
    """
    check_model(task, prob, reward, bonus, scale)
    if task.infinite_horizon:
        from upriver.planning.infinite_horizon import plan_model

        return plan_model(task, prob[0], reward[0], tie_seed)
    return run_backward_pass(
        task, kernels.planning.backward_pass, (prob, reward, bonus, scale), clip, tie_seed,
        next_state_reward=next_state_reward, terminal=terminal,
    )  # fmt: skip
