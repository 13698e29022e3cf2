"""Many episodes of one fixed policy at once, for Monte Carlo and for logs to learn from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from upriver import kernels
from upriver.checks import Array, instance, positive_integer
from upriver.display import Card, displayed, to_frame
from upriver.mdp import FiniteMDP
from upriver.planning import Plan, action_table
from upriver.play.policy import Policy
from upriver.play.simulate import CHUNK, streams


@displayed
class Rollouts(NamedTuple):
    """n episodes of H steps, one a row."""

    states: Array
    """(n, H + 1)"""
    actions: Array
    """(n, H)"""
    rewards: Array
    """(n, H); the last one has the terminal value of the state where the episode ended in it."""

    @property
    def returns(self) -> Array:
        """(n,) the sum of each episode's rewards."""
        return self.rewards.sum(axis=1)

    def card(self) -> Card:
        n, steps = self.rewards.shape
        error = float(self.returns.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
        facts = {
            "episodes": n,
            "steps": steps,
            "mean return": float(self.returns.mean()),
            "standard error": error,
        }
        return Card(facts, more="to_pandas() has every step")

    def to_pandas(self) -> Any:
        """A data frame with a row per step: episode, step, state, action, reward, next_state."""
        episode, step = np.divmod(np.arange(self.actions.size), self.actions.shape[1])
        return to_frame({
            "episode": episode,
            "step": step,
            "state": self.states[:, :-1].ravel(),
            "action": self.actions.ravel(),
            "reward": self.rewards.ravel(),
            "next_state": self.states[:, 1:].ravel(),
        })  # fmt: skip


def rollouts(
    mdp: FiniteMDP, policy: Policy | Plan | ArrayLike, n_episodes: int, seed: int = 0
) -> Rollouts:
    """Play a fixed policy for `n_episodes` episodes on the environment stream of `seed`.

    policy: whole numbers (H, S) or (S,), or a `Policy` or `Plan`, matched by name. The episodes
    are those that `simulate` plays with this policy and seed, and the first ones do not depend on
    how many follow.
    """
    n_episodes = positive_integer("n_episodes", n_episodes, most=10**9)
    task = instance("mdp", mdp, FiniteMDP).known
    actions = action_table(task, policy)
    environment, _ = streams(seed)
    horizon = task.horizon
    done = Rollouts(
        np.empty((n_episodes, horizon + 1), np.int64),
        np.empty((n_episodes, horizon), np.int64),
        np.empty((n_episodes, horizon)),
    )
    play: Any = kernels.planning.rollout_batch
    for first in range(0, n_episodes, CHUNK):
        part = slice(first, min(first + CHUNK, n_episodes))
        play(
            task.indptr, task.successors, mdp.probability, *task.paid_rows, mdp.initial_states,
            mdp.initial_probability, actions, environment.random((part.stop - first, horizon + 1)),
            done.states[part], done.actions[part], done.rewards[part],
        )  # fmt: skip
    if mdp.terminal.any():
        done.rewards[:, -1] += mdp.terminal[done.states[:, -1]]
    return done
