"""The exact optimum of a known MDP, and the exact value of a policy on it."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from upriver import kernels
from upriver.checks import Array, instance, readable
from upriver.mdp import FiniteMDP
from upriver.planning.average import AveragePlan, solve_average
from upriver.planning.discounted import DiscountedPlan, solve_discounted
from upriver.planning.induction import Plan, backward_induction, clip_nothing
from upriver.planning.tables import mixture_or_actions

NO_ARRIVAL = np.empty((1, 0))  # the expected reward has it already


@overload
def solve(mdp: FiniteMDP) -> Plan: ...
@overload
def solve(mdp: FiniteMDP, *, discount: float, tolerance: float = ...) -> DiscountedPlan: ...
@overload
def solve(mdp: FiniteMDP, *, average: Literal[True], tolerance: float = ...) -> AveragePlan: ...
def solve(
    mdp: FiniteMDP,
    *,
    discount: float | None = None,
    average: bool = False,
    tolerance: float = 1e-8,
) -> Any:
    """The exact optimum; among equally good actions the choice is fixed but arbitrary.

    Over the MDP's horizon a `Plan`. With a discount, or for the average reward of a process that
    never ends, one action for each state, within `tolerance`: a `DiscountedPlan` with `v` (S,), or
    an `AveragePlan` with `gain` and `bias` (S,), both with a bound of their `error`. An MDP without
    a last step says which itself.
    """
    task = instance("mdp", mdp, FiniteMDP).true_task
    if task.infinite_horizon or discount is not None or average:
        return solve_infinite_horizon(mdp, discount, average, tolerance)
    nothing = np.zeros((1, task.n_states * task.n_actions))
    return backward_induction(
        task, readable(mdp.probability), mdp.reward_rows, nothing, np.zeros(task.horizon),
        clip_nothing(task), np.uint64(0), NO_ARRIVAL, mdp.terminal,
    )._replace(in_user_units=True)  # fmt: skip


def solve_infinite_horizon(
    mdp: FiniteMDP, discount: float | None, average: bool, tolerance: float, policy: Any = None
) -> DiscountedPlan | AveragePlan:
    if discount is not None and average:
        raise ValueError(f"discount is {discount!r} and average is True; it must be one of them")
    if discount is None and not average and mdp.discount != 1.0:
        discount = mdp.discount
    if discount is None:
        return solve_average(mdp, tolerance, policy)
    return solve_discounted(mdp, discount, tolerance, policy)


@overload
def evaluate(mdp: FiniteMDP, policy: Any) -> Array: ...
@overload
def evaluate(
    mdp: FiniteMDP, policy: Any, *, discount: float, tolerance: float = ...
) -> DiscountedPlan: ...
@overload
def evaluate(
    mdp: FiniteMDP, policy: Any, *, average: Literal[True], tolerance: float = ...
) -> AveragePlan: ...
def evaluate(
    mdp: FiniteMDP,
    policy: Any,
    *,
    discount: float | None = None,
    average: bool = False,
    tolerance: float = 1e-8,
) -> Any:
    """(H + 1, S) the exact value of a policy on the true MDP.

    policy: a `Policy` or a `Plan`, matched by name; (H, S) or (S,) whole numbers, or action
    probabilities (H, S, A) or (S, A), in the order of the MDP's states and actions. With a discount
    or for the average, a policy of one step, (S,) or (S, A), and what `solve` returns.
    """
    task = instance("mdp", mdp, FiniteMDP).true_task
    if task.infinite_horizon or discount is not None or average:
        return solve_infinite_horizon(mdp, discount, average, tolerance, policy)
    table = mixture_or_actions(task, policy)
    v = np.zeros((task.horizon + 1, task.n_states))
    v[-1] = mdp.terminal
    model = task.indptr, task.successors, mdp.probability, mdp.reward_rows
    if table.ndim == 2:
        renew(mdp, table, np.full_like(table, -1), v)
    else:
        kernels.planning.evaluate_mixed(*model, table.reshape(-1, len(task.sizes)), v)
    return v


def renew(mdp: FiniteMDP, policy: Array, previous: Array, v: Array) -> bool:
    """V^pi (H + 1, S) in place of that of `previous` (H, S), which becomes `policy`.

    Steps after the last one where they differ stand. Large problems use all cores. False where an
    action does not exist; then v is void.
    """
    task, kernel = mdp.true_task, kernels.planning.evaluate
    last = kernels.planning.last_change(policy, previous)
    given = task.indptr, task.successors, mdp.probability, mdp.reward_rows, policy, previous, v
    if task.n_triples < kernels.LARGE:
        return kernel(*given, last, 0, 0, task.n_states)
    return all(
        all(
            kernels.compiled.parallel_ranges(
                lambda s, t, h=h: kernel(*given, h, h, s, t), task.n_states
            )
        )
        for h in range(last, -1, -1)
    )


def start_value(mdp: FiniteMDP, v: Array) -> float:
    """E[v_1(s_1)] under the initial distribution; v is (S,) or (H + 1, S)."""
    first: Any = v if v.ndim == 1 else v[0]
    return float(first[mdp.initial_states] @ mdp.initial_probability)
