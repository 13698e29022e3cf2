"""Plans by backward induction over the triples, with bonuses, clips and random ties.

`run_backward_pass` runs the backward pass of any local rule, see `kernels.planning`, and makes a
`Plan` of it; `backward_induction` has a bonus for each pair, of which (6) is a case. Everything
here is on the scale of [0, 1], see `Task.units`, unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

import numpy as np

from upriver import kernels
from upriver.checks import Array, as_float, check_kinds, new_tuple
from upriver.display import Card, add_repr, to_frame
from upriver.display.card import MAX_ROWS
from upriver.mdp import Task
from upriver.mdp.units import Units
from upriver.planning.tables import by_name, names_of, policy_columns, policy_type

Rule = Callable[..., None]
"""A local rule of a backward pass, see `kernels.planning`."""


class Clip(NamedTuple):
    """Where values are clipped: Q to [low, q_cap[h]] before the argmax, V to at most v_cap[h].

    A cap that is the same at all steps has one entry.
    """

    low: float
    q_cap: Array
    v_cap: Array


@add_repr
class Backup(NamedTuple):
    """What the action values of a plan are computed from when they are asked for."""

    task: Task
    rule: Rule
    data: tuple[Any, ...]
    """The rule's own arrays and numbers."""
    memory: int
    clip: Clip
    next_state_reward: bool | Array
    v: Array
    """(H + 1, S) the planned values on the unit scale."""
    units: Units | None = None
    """The units of the action values; None is the unit scale."""

    def action_values(self, h: int) -> Array:
        """Return Q_h (S, A): the backward pass over step h alone, into arrays of its own."""
        task, v = self.task, np.empty_like(self.v)  # rows that are not used cost no memory
        v[h + 1] = self.v[h + 1]
        policy, q = np.empty(self.v[1:].shape, policy_type(task)), np.empty(len(task.sizes))
        run = prepare_pass(self, v, policy, q, np.uint64(0))
        run(h, h + 1, 0, task.n_states)
        q = q.reshape(task.n_states, task.n_actions)
        if self.clip.v_cap[0] < inf:  # an end is worth what is known, whatever the rule says
            known = task.ends[:, None] & task.available
            q = np.where(known, self.v[h, :, None], q)
        return q if self.units is None else self.units.floor[h] + self.units.unit * q


@add_repr
class Plan(NamedTuple):
    """A policy and the values it was planned with; v[h] belongs to step h + 1."""

    policy: Array
    """(H, S) the action at each step and state, in the smallest integer type; or (H, S, A) action
    probabilities, of a soft optimum."""
    v: Array
    """(H + 1, S) planned values; v[H] is 0, or the terminal value."""
    backup: Backup | None = None
    """What `q` computes the planned action values from."""
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
        return self.backup.action_values(h)

    def to_user_units(self, task: Task) -> Plan:
        """Return the plan with its values in the user's units."""
        units, backup = task.units, self.backup
        if self.in_user_units or units.is_identity:
            return self._replace(in_user_units=True)
        v = units.floor[:, None] + units.unit * self.v
        if backup is not None:
            backup = backup._replace(units=units)
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
        steps, values = np.arange(len(table)).repeat(self.v.shape[1]), self.v[: len(table)].ravel()
        columns = policy_columns(*names_of(self.task), table)
        return to_frame({"step": steps, **columns, "value": values})

    def plot(self) -> Any:
        """A figure of the actions by state and step, grey where several are equally good.

        Of probabilities it has the likeliest actions.
        """
        from upriver.display import figures

        table, ties = self.policy, None
        if table.ndim == 3:
            table = table.argmax(axis=2)
        elif self.backup is not None:
            ties = np.array([self.find_ties(h) for h in range(len(table))])
        return figures.plot_policy(table, *names_of(self.task), ties)

    def find_ties(self, h: int) -> Array:
        """(S,) whether several actions are best at step h, up to rounding."""
        q = self.q(h)
        best = q.max(axis=1, keepdims=True)
        return (q >= best - 1e-9 * np.abs(best)).sum(axis=1) > 1

    def on(self, task: Task) -> Array:
        """(H, S) the policy in the order of another task's states and actions, matched by name."""
        return by_name(self.policy, self.task, task)


def random_actions(task: Task, rng: np.random.Generator) -> Array:
    """Return actions (H, S) drawn uniformly among those that each state has."""
    shape, kind = (task.horizon, task.n_states), policy_type(task)
    if task.available.all():
        return rng.integers(task.n_actions, size=shape, dtype=kind)
    rank = rng.integers(task.available.sum(axis=1), size=shape)
    ordered = np.argsort(~task.available, axis=1, kind="stable")  # those that a state has first
    return ordered[np.arange(task.n_states), rank].astype(kind)


def draw_tie_seed(rng: np.random.Generator) -> np.uint64:
    """Return 64 random bits, from which a backward pass breaks its ties."""
    return np.uint64(rng.bit_generator.random_raw())  # type: ignore[attr-defined]


def steps_of(array: Array, h: int) -> Array:
    """Return the part of a (1 | H, ...) array that belongs to step h, with a leading axis."""
    at = min(h, len(array) - 1)
    return array[at : at + 1]


NO_CAP = np.array([np.inf])


def clip_nothing(task: Task) -> Clip:
    """Leave Q and V as they are."""
    return Clip(-np.inf, NO_CAP, NO_CAP)


def clip_v(task: Task) -> Clip:
    """Clip V_h at H, as the paper does; Q is left alone, so that clipping creates no ties."""
    return Clip(-np.inf, NO_CAP, np.array([task.units.max_value]))


def clip_v_remaining(task: Task) -> Clip:
    """Clip V_h at the number of steps left, which no true value exceeds."""
    return Clip(-np.inf, NO_CAP, task.units.value_range)


def clip_q(task: Task) -> Clip:
    """Clip Q_h to [0, H] before the argmax, as the linear baselines are published."""
    cap = np.array([task.units.max_value])
    return Clip(0.0, cap, cap)


def clip_q_above(task: Task) -> Clip:
    """Clip Q_h at H before the argmax; it may be negative."""
    return clip_q(task)._replace(low=-np.inf)


def prepare_pass(
    backup: Backup, v: Array, policy: Array, q: Array, tie_seed: np.uint64
) -> Callable[[int, int, int, int], None]:
    """Return a function that runs the pass from a step to another, from a state to another."""
    task, extra = backup.task, backup.next_state_reward
    if isinstance(extra, bool):
        extra = task.next_state_reward_rows if extra else NO_REWARD
    data = (*backup.data, np.zeros(backup.memory)) if backup.memory else backup.data
    kernel = kernels.planning.compile_backward_pass(backup.rule)
    # A pass that clips nothing has no bonus, and may be in the user's units.
    ends = np.flatnonzero(task.ends) if backup.clip.v_cap[0] < inf else NO_ENDS
    known = ends, float(task.units.to_unit_scale(np.zeros(1))[0]), tie_seed
    is_partial = len(task.first_rows) < len(task.sizes)
    arguments = *task.kernel_rows, extra, is_partial, *backup.clip, *known, v, policy, q
    return lambda *span: kernel(*arguments, *span, data)


NO_REWARD = np.empty((1, 0))
NO_ENDS = np.empty(0, np.int64)


def run_backward_pass(
    task: Task, rule: Rule, data: tuple[Any, ...], clip: Clip, tie_seed: np.uint64, *,
    next_state_reward: bool | Array = True, terminal: Array | None = None, memory: int = 0,
) -> Plan:  # fmt: skip
    """Return the plan of the backward pass of a local rule; large problems use all cores.

    data are the rule's own arrays and numbers, see `kernels.planning`. The reward of next states is
    added to V_{h+1} unless `next_state_reward` is False, because `data` contain it, or an array
    (1 | H, n) that takes its place; `terminal` (S,) takes the place of the task's terminal values.
    A rule that keeps numbers from one step to the next gets so many zeros, `memory`, at the end of
    its data; those of a pair must be its own, or results would depend on the number of threads.
    q(h) of the plan runs the rule over that step alone, with a new memory.
    """
    v = np.zeros((task.horizon + 1, task.n_states))
    if terminal is not None or task.terminal is not None:
        v[-1] = task.terminal_row if terminal is None else terminal
    policy, q = np.empty(v[1:].shape, policy_type(task)), np.empty(len(task.sizes))
    backup = new_tuple(Backup, (task, rule, data, memory, clip, next_state_reward, v, None))
    run = prepare_pass(backup, v, policy, q, tie_seed)
    if task.n_triples < kernels.LARGE:
        run(0, task.horizon, 0, task.n_states)
    else:
        for h in reversed(range(task.horizon)):
            kernels.compiled.parallel_ranges(
                lambda first, end, h=h: run(h, h + 1, first, end), task.n_states
            )
    return new_tuple(Plan, (policy, v, backup, task, False))


def backward_induction(
    task: Task, prob: Array, reward: Array, bonus: Array, scale: Array, clip: Clip,
    tie_seed: np.uint64, *, next_state_reward: bool = True,
) -> Plan:  # fmt: skip
    """Plan with Q_h = clip(r + P V_{h+1} + scale_h * bonus), V_h = clip(max_a Q_h).

    prob (1 | H, n) need not sum to one; reward and bonus (1 | H, S*A) and scale (H,) are on the
    scale of [0, 1]. Ties are broken at random. With an infinite horizon this is the stationary
    optimum, and neither bonus nor clip is used. next_state_reward: see `run_backward_pass`.
    """
    steps, n_pairs = (1, task.horizon), len(task.sizes)  # kernels read as far as these shapes say
    prob = as_float("prob", prob, shapes=[(n, task.n_triples) for n in steps])
    reward = as_float("reward", reward, shapes=[(n, n_pairs) for n in steps])
    bonus = as_float("bonus", bonus, shapes=[(n, n_pairs) for n in steps])
    scale = as_float("scale", scale, shapes=[(task.horizon,)])
    if task.infinite_horizon:
        from upriver.planning.infinite_horizon import plan_model

        return plan_model(task, prob[0], reward[0], tie_seed)
    return run_backward_pass(
        task, kernels.planning.bonus_rule, (prob, reward, bonus, scale), clip, tie_seed,
        next_state_reward=next_state_reward,
    )  # fmt: skip
