"""Plans: backward induction over the triples, with bonuses, clips and ties."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from upriver import kernels
from upriver.checks import Array, new_tuple
from upriver.display import Card, displayed, to_frame
from upriver.display.card import MOST_ROWS
from upriver.display.frames import named
from upriver.mdp import Task
from upriver.planning.tables import by_name, policy_type

FLOAT = np.dtype(np.float64)


@displayed
class Plan(NamedTuple):
    """One deterministic policy and the values it was planned with; v[h] belongs to step h + 1."""

    policy: Array
    """(H, S) the action at each step and state, in the smallest integer type."""
    v: Array
    """(H + 1, S) planned values; v[H] is 0, or the terminal value."""
    backup: Callable[[int], Array] | None = None
    """h -> (S, A), the planned action values of one step."""
    task: Task | None = None
    """What the plan was made for, where that is known: its names are those of the tables."""
    in_user_units: bool = False
    """Whether `v` and `q` are in the user's units; agents plan on the unit scale, see `Units`."""

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
        steps, n_states = self.policy.shape
        low, high = float(self.v[0].min()), float(self.v[0].max())
        return Card(
            {"steps": steps, "states": n_states, "values at the start": f"{low:.4g} to {high:.4g}"},
            rows=lambda: self.to_pandas(n_steps=1).head(MOST_ROWS).to_dict("records"),
            n_rows=n_states * steps,
            more="to_pandas() has every step and state, plot() draws them",
            brief=f"{steps} steps of {n_states} states",
        )

    def to_pandas(self, n_steps: int | None = None) -> Any:
        """A data frame with a row per step and state: step, state, action, value.

        n_steps: the first steps alone.
        """
        table = self.policy[:n_steps]
        h, s = np.divmod(np.arange(table.size), table.shape[1])
        names = (None, None) if self.task is None else (self.task.states, self.task.actions)
        return to_frame({
            "step": h,
            "state": named(names[0], s),
            "action": named(names[1], table.ravel()),
            "value": self.v[: len(table)].ravel(),
        })  # fmt: skip

    def plot(self, step: int | None = None) -> Any:
        """A figure of the actions by state and step; at one step, of the values too.

        At one step the states lie on a line, or on a grid where they are pairs of numbers.
        """
        from upriver.display import figures

        names = (None, None) if self.task is None else (self.task.states, self.task.actions)
        return figures.policy(self.policy, *names, step, self.v)

    def on(self, task: Task) -> Array:
        """(H, S) the policy in the order of another task's states and actions, matched by name."""
        return by_name(self.policy, self.task, task)


def empty_plan(task: Task) -> tuple[Array, Array, Array]:
    """(policy, v, q) for a sweep to write: (H, S), (H + 1, S) with its last row, (S*A,)."""
    horizon, n_states, n_actions = task.horizon, task.n_states, task.n_actions
    v = np.zeros((horizon + 1, n_states))
    if task.terminal is not None:
        v[horizon] = task.terminal_row
    policy = np.empty((horizon, n_states), policy_type(task))
    return policy, v, np.empty(n_states * n_actions)


def random_actions(task: Task, rng: np.random.Generator) -> Array:
    """(H, S) actions drawn uniformly among those that each state has."""
    shape, kind = (task.horizon, task.n_states), policy_type(task)
    if task.available.all():
        return rng.integers(task.n_actions, size=shape, dtype=kind)
    place = rng.integers(task.available.sum(axis=1), size=shape)
    return first_available(task)[np.arange(task.n_states), place].astype(kind)


@lru_cache(maxsize=64)
def first_available(task: Task) -> Array:
    """(S, A) the actions of each state, those that it has first."""
    return np.argsort(~task.available, axis=1, kind="stable")


def draw_tie_seed(rng: np.random.Generator) -> np.uint64:
    """64 random bits, from which a sweep breaks its ties."""
    return np.uint64(rng.bit_generator.random_raw())  # type: ignore[attr-defined]


def steps_of(array: Array, h: int) -> Array:
    """The part of a (1 | H, ...) array that belongs to step h, still with a leading axis."""
    at = min(h, len(array) - 1)
    return array[at : at + 1]


class Clip(NamedTuple):
    """Where values are cut: Q to [low, q_cap[h]] before the argmax, V to at most v_cap[h]."""

    low: float
    q_cap: Array
    v_cap: Array


@lru_cache(maxsize=64)  # one per task, not one per plan
def clip_v(task: Task) -> Clip:
    """The paper's: V_h is at most H, Q is left alone, so that clipping creates no ties."""
    return clip_nothing(task)._replace(v_cap=np.full(task.horizon, task.units.max_value))


@lru_cache(maxsize=64)
def clip_v_remaining(task: Task) -> Clip:
    """V_h is at most the number of steps left, which no true value exceeds."""
    return clip_nothing(task)._replace(v_cap=task.units.value_range[:-1].copy())


@lru_cache(maxsize=64)
def clip_q(task: Task) -> Clip:
    """Q_h is cut to [0, H] before the argmax, as the linear baselines are published."""
    cap = clip_v(task).v_cap
    return Clip(0.0, cap, cap)


@lru_cache(maxsize=64)
def clip_nothing(task: Task) -> Clip:
    free = np.full(task.horizon, np.inf)
    return Clip(-np.inf, free, free)


@lru_cache(maxsize=64)
def clip_q_above(task: Task) -> Clip:
    """Q_h is at most H before the argmax and may be negative."""
    return clip_q(task)._replace(low=-np.inf)


@lru_cache(maxsize=64)
def whole(horizon: int, n_states: int) -> Array:
    """The span of all steps and states, see `kernels.planning.sweep`."""
    return np.array([0, horizon, 0, n_states])


def swept(
    task: Task, kernel: Callable[..., None], arrays: tuple[Array, ...], constants: tuple[Any, ...],
    by_step: tuple[Array, ...], clip: Clip, word: np.uint64, pay: Array | None = None,
    last: Array | None = None,
) -> Plan:  # fmt: skip
    """The plan of a compiled sweep, and its action values by a sweep over one step.

    The kernel takes the task's rows, what triples pay, `arrays` (1 | H, ...), `constants`,
    `by_step` (H,), the clip, 64 random bits for the ties, and writes v, policy and q. All of it is
    on the scale of [0, 1], as are `pay` (1 | H, n | 0) and `last` (S,), unless they are given.
    """
    policy, v, q = empty_plan(task)
    if last is not None:
        v[-1] = last
    arrays = (task.next_state_reward_rows if pay is None else pay, *arrays)
    given = (
        task.indptr, task.successors, *arrays, *constants, *by_step, *clip, word, v, policy, q
    )  # fmt: skip
    if task.n_triples < kernels.LARGE:
        kernel(*given, whole(task.horizon, task.n_states))
    else:
        for h in reversed(range(task.horizon)):
            kernels.compiled.parallel_ranges(
                lambda s, t, h=h: kernel(*given, np.array([h, h + 1, s, t])), task.n_states
            )
    backup = partial(backed_up, task, kernel, arrays, constants, by_step, clip, v)
    return new_tuple(Plan, (policy, v, backup, task, False))


def backed_up(
    task: Task, kernel: Callable[..., None], arrays: tuple[Array, ...], constants: tuple[Any, ...],
    by_step: tuple[Array, ...], clip: Clip, v: Array, h: int,
) -> Array:  # fmt: skip
    """(S, A) the action values of step h: the sweep of a plan, over that step alone."""
    step, q = slice(h, h + 1), np.empty(len(task.sizes))
    kernel(
        task.indptr, task.successors, *(steps_of(x, h) for x in arrays), *constants,
        *(x[step] for x in by_step), clip.low, clip.q_cap[step], clip.v_cap[step], np.uint64(0),
        v[h : h + 2].copy(), np.empty((1, task.n_states), policy_type(task)), q,
        whole(1, task.n_states),
    )  # fmt: skip
    return q.reshape(task.n_states, task.n_actions)


@lru_cache(maxsize=64)
def model_shapes(task: Task) -> frozenset[tuple[tuple[int, ...], ...]]:
    """The shapes that prob, reward, bonus and scale may have; looked up for every plan."""
    groups, steps = len(task.sizes), {1, task.horizon}
    return frozenset(
        ((i, task.n_triples), (j, groups), (k, groups), (task.horizon,))
        for i, j, k in product(steps, steps, steps)
    )


def check_model(task: Task, prob: Any, reward: Any, bonus: Any, scale: Any) -> None:
    """Refuse arrays of another task: the kernels would read past their ends."""
    try:
        shapes = prob.shape, reward.shape, bonus.shape, scale.shape
        kinds = prob.dtype is reward.dtype is bonus.dtype is scale.dtype is FLOAT or (
            prob.dtype == reward.dtype == bonus.dtype == scale.dtype == FLOAT
        )
    except AttributeError:
        shapes, kinds = (), False
    if not kinds or shapes not in model_shapes(task):
        given = (f"{getattr(x, 'dtype', '')} {np.shape(x)}" for x in (prob, reward, bonus, scale))
        groups = len(task.sizes)
        raise ValueError(
            f"prob, reward, bonus and scale are {', '.join(given)}; with {task.describe()} they "
            f"must be float64 (1 | H, {task.n_triples}), (1 | H, {groups}), (1 | H, {groups}), (H,)"
        )


def backward_induction(
    task: Task, prob: Array, reward: Array, bonus: Array, scale: Array, clip: Clip, word: np.uint64,
    pay: Array | None = None, last: Array | None = None,
) -> Plan:  # fmt: skip
    """Q_h = clip(r + P V_{h+1} + scale_h * bonus), V_h = clip(max_a Q_h), ties at random.

    prob (1 | H, n) on the task's triples, need not sum to one; reward and bonus (1 | H, S*A);
    scale (H,); word: 64 random bits for the ties. On the scale of [0, 1], see `swept`; where the
    reward depends on s' its part of it is added to V_{h+1}(s'). Of a task without a last step the
    stationary optimum, without a bonus.
    """
    check_model(task, prob, reward, bonus, scale)
    if task.infinite_horizon:
        from upriver.planning.infinite_horizon import plan_for

        return plan_for(task, prob[0], reward[0], word)
    arrays = prob, reward, bonus
    return swept(
        task, kernels.planning.sweep, arrays, (1.0,), (scale,), clip, word, pay, last
    )  # fmt: skip
