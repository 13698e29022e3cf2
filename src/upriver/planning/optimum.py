"""The exact optimum of a known MDP, and the exact value of a policy on it."""

from __future__ import annotations

from typing import Any

import numpy as np

from upriver import kernels
from upriver.checks import Array, check_kinds, kernel_view, refuse_given
from upriver.mdp import FactoredMDP, FiniteMDP
from upriver.planning.induction import clip_nothing, run_backward_pass
from upriver.planning.rollouts import evaluate_by_simulation
from upriver.planning.stationary import solve_stationary
from upriver.planning.tables import mixture_or_actions


@check_kinds
def solve(
    mdp: FiniteMDP,
    *,
    discount: float | None = None,
    average: bool = False,
    temperature: float | None = None,
    tolerance: float | None = None,
) -> Any:
    """Return the exact optimum; among equally good actions the choice is fixed but arbitrary.

    Parameters
    ----------
    mdp : FiniteMDP
        With a horizon, or with an infinite one; then its own discount is the default.
    discount : float, optional
        Maximise the sum of discount^t times the reward of step t over an infinite horizon.
    average : bool
        Maximise the reward per step over an infinite horizon.
    temperature : float, optional
        Solve the soft Bellman equation of a decision maker whose rewards have extreme-value shocks
        of this scale, see `planning.soft`. The policy of the plan is then action probabilities,
        and the plain optimum is its limit as the temperature goes to 0.
    tolerance : float, optional
        The largest error with an infinite horizon, in the user's units. The default is 1e-8, times
        the range of the expected rewards of the pairs (s, a), max - min, where that is below 1 and
        not 0; with a temperature times the larger of both, where that is below 1.

    Returns
    -------
    Plan or StationaryPlan
        Over the MDP's horizon a `Plan`; with an infinite horizon a `StationaryPlan`, whose `error`
        bounds its error.

    Raises
    ------
    ValueError
        With an infinite horizon, where the MDP changes with the step; for the average reward,
        where it depends on the start.
    """
    task = mdp.true_task
    if temperature is not None:
        if average:
            raise ValueError(f"temperature is {temperature!r} and average is True; use a discount")
        from upriver.planning.soft import solve_soft  # imports the sparse solvers of scipy

        return solve_soft(mdp, discount, temperature, tolerance)
    if task.infinite_horizon or discount is not None or average:
        return solve_stationary(mdp, discount, average, tolerance)
    no_bonus = np.zeros((1, len(task.sizes)))
    data = kernel_view(mdp.probability), mdp.reward_rows, no_bonus, np.zeros(1)
    return run_backward_pass(
        task, kernels.planning.bonus_rule, data, clip_nothing(task), np.uint64(0),
        next_state_reward=False, terminal=mdp.terminal,
    )._replace(in_user_units=True)  # fmt: skip


@check_kinds
def evaluate(
    mdp: FiniteMDP | FactoredMDP,
    policy: Any,
    n_episodes: int | None = None,
    seed: int = 0,
    *,
    discount: float | None = None,
    average: bool = False,
    tolerance: float | None = None,
) -> Any:
    """Return the exact value of a policy on the true MDP, in the user's units.

    The value in a factored problem is simulated, with a standard error.

    Parameters
    ----------
    mdp : FiniteMDP or FactoredMDP
        The MDP that the policy is followed on.
    policy : Policy, Plan, StationaryPlan or array
        A policy with names is matched by name. An array is in the order of the MDP's states and
        actions: whole numbers (H, S) or (S,), or action probabilities (H, S, A) or (S, A). With an
        infinite horizon (S,) or (S, A).
    discount, average, tolerance
        See `solve`.
    n_episodes, seed : int
        For a factored problem, whose policy is an action, a function of (x, h) or a
        `rollout_policy`. Policies with one seed meet the same random numbers, so the difference of
        two values, `value - other`, is paired.

    Returns
    -------
    array (H + 1, S), StationaryPlan or SimulatedValue
        The value at each step and state; with an infinite horizon what `solve` returns; for a
        factored problem the returns, their mean and its standard error.

    Raises
    ------
    ValueError
        Where the policy has another shape or plays an action that a state does not have, and
        where `solve` does.
    """
    if isinstance(mdp, FactoredMDP):
        refuse_given(
            "factored problems", discount=discount, average=average or None, tolerance=tolerance
        )
        return evaluate_by_simulation(mdp, policy, n_episodes, seed)
    refuse_given("problems whose values are exact", n_episodes=n_episodes)
    task = mdp.true_task
    if task.infinite_horizon or discount is not None or average:
        return solve_stationary(mdp, discount, average, tolerance, policy)
    table = mixture_or_actions(task, policy)
    v = np.zeros((task.horizon + 1, task.n_states))
    v[-1] = mdp.terminal
    if table.ndim == 2:
        reevaluate(mdp, table, np.full_like(table, -1), v)
    else:
        kernels.planning.value_policy(
            task.indptr, task.successors, mdp.probability, mdp.reward_rows, np.empty((1, 0)),
            table.reshape(-1, len(task.sizes)), True, v,
        )  # fmt: skip
    return v


def environment_structure(mdp: FiniteMDP) -> Any:
    """Return the `kernels.episodes.Dynamics` of an MDP, as the structure that kernels take."""
    task = mdp.true_task
    return kernels.episodes.make_dynamics(
        task.indptr, task.successors, mdp.probability, mdp.reward_rows, *task.user_rewards,
        mdp.initial_states, mdp.initial_probability[None], mdp.terminal,
    )  # fmt: skip


def reevaluate(mdp: FiniteMDP, policy: Array, previous: Array, v: Array) -> bool:
    """Turn v (H + 1, S), the value of `previous` (H, S), into that of `policy`, in place.

    `previous` becomes `policy`. Steps after the last one where they differ stay as they are. Large
    problems use all cores. Returns False where an action does not exist; then v is void.
    """
    task, kernel = mdp.true_task, kernels.planning.update_values
    given = environment_structure(mdp), policy, previous, v
    if task.n_triples < kernels.LARGE:
        return kernel(*given, 0, task.horizon, 0, task.n_states)
    end = np.flatnonzero((policy != previous).any(axis=1)).max(initial=-1) + 1
    previous[:end] = ~policy[:end]  # parts compute all states, as they do not see each other
    return all(
        all(
            kernels.compiled.parallel_ranges(
                lambda s, t, h=h: kernel(*given, h, h + 1, s, t), task.n_states
            )
        )
        for h in range(end - 1, -1, -1)
    )


def start_value(mdp: FiniteMDP, v: Array) -> float:
    """Return E[v_1(s_1)] under the initial distribution; v is (S,) or (H + 1, S)."""
    first: Any = v if v.ndim == 1 else v[0]
    return float(first[mdp.initial_states] @ mdp.initial_probability)
