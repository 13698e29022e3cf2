"""Many episodes of one fixed policy at once, for Monte Carlo and for logs to learn from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from upriver import kernels
from upriver.checks import Array, check_kinds, positive_integer
from upriver.display import Card, add_repr, to_frame
from upriver.mdp import FiniteMDP
from upriver.planning import Plan, environment_structure, mixture_or_actions
from upriver.play.checkpoints import spawn_generators
from upriver.play.policy import Policy


@add_repr
class Rollouts(NamedTuple):
    """n episodes of H steps, one per row, in the user's units."""

    states: Array
    """(n, H + 1)"""
    actions: Array
    """(n, H)"""
    rewards: Array
    """(n, H); the last reward includes the terminal value of the last state."""

    @property
    def returns(self) -> Array:
        """(n,) the sum of each episode's rewards."""
        return self.rewards.sum(axis=1)

    def card(self) -> Card:
        n, steps = self.rewards.shape
        error = float(self.returns.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
        facts = {
            "episodes": n, "steps": steps, "mean return": float(self.returns.mean()),
            "standard error": error,
        }  # fmt: skip
        return Card(facts, more="to_pandas() has every step")

    def to_pandas(self) -> Any:
        """Return a data frame with a row per step and its episode, state, action and reward."""
        episode, step = np.divmod(np.arange(self.actions.size), self.actions.shape[1])
        return to_frame({
            "episode": episode, "step": step, "state": self.states[:, :-1].ravel(),
            "action": self.actions.ravel(), "reward": self.rewards.ravel(),
            "next_state": self.states[:, 1:].ravel(),
        })  # fmt: skip


@check_kinds
def rollouts(
    mdp: FiniteMDP, policy: Policy | Plan | ArrayLike, n_episodes: int, seed: int = 0
) -> Rollouts:
    """Play a fixed policy for `n_episodes` episodes.

    The episodes of a deterministic policy are those that `simulate` plays with this policy and
    `seed`, and the first ones do not depend on how many follow.

    Parameters
    ----------
    mdp : FiniteMDP
        With a finite horizon.
    policy : Policy, Plan or array
        Actions (H, S) or (S,), or probabilities of actions (H, S, A) or (S, A); a `Policy` or
        `Plan` is matched by name.
    """
    n_episodes = positive_integer("n_episodes", n_episodes, most=10**9)
    task = mdp.true_task
    if task.infinite_horizon:
        raise ValueError(
            f"{mdp.name} has an infinite horizon; rollouts needs a finite one, simulate plays "
            "streams of steps"
        )
    actions = mixture_or_actions(task, policy)
    states = np.empty((n_episodes, task.horizon + 1), np.int64)
    done = Rollouts(states, np.empty_like(states[:, 1:]), np.empty((n_episodes, task.horizon)))
    generators = spawn_generators(seed)
    if actions.ndim == 3:
        play_randomised(mdp, actions, done, *generators)
    else:
        uniforms = generators[0].random(states.shape)
        kernels.episodes.draw_episodes(environment_structure(mdp), actions, uniforms, *done)
    if mdp.terminal.any():
        done.rewards[:, -1] += mdp.terminal[states[:, -1]]
    return done


def play_randomised(
    mdp: FiniteMDP, mixture: Array, done: Rollouts, environment: Any, agent: Any
) -> None:
    """Play a randomised policy (H, S, A), all episodes one step at a time."""
    task, n_episodes = mdp.true_task, len(done.states)
    ends = np.cumsum(mdp.probability, axis=1)
    below = ends - mdp.probability
    by_pair, by_triple = task.user_rewards
    paid = np.repeat(by_pair, task.sizes, axis=1) + (by_triple if by_triple.size else 0.0)
    cumulative = np.cumsum(mixture, axis=2)
    cumulative /= cumulative[:, :, -1:]  # exactly 1 from the last possible action on
    states, actions, rewards = done
    states[:, 0] = environment.choice(mdp.initial_states, n_episodes, p=mdp.initial_probability)
    for h in range(task.horizon):
        cumulative_h, end = cumulative[h], ends[min(h, len(ends) - 1)]
        u = agent.random(n_episodes)[:, None]
        actions[:, h] = (u >= cumulative_h[states[:, h], :-1]).sum(axis=1)
        pair = states[:, h] * task.n_actions + actions[:, h]
        first, last = task.indptr[pair], task.indptr[pair + 1] - 1
        low = below[min(h, len(below) - 1)][first]
        at = np.searchsorted(end, low + environment.random(n_episodes) * (end[last] - low), "right")
        at = np.clip(at, first, last)
        states[:, h + 1] = task.successors[at]
        rewards[:, h] = paid[min(h, len(paid) - 1)][at]
