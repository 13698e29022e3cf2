"""Many episodes of one fixed policy at once, for Monte Carlo and for logs to learn from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from upriver import kernels
from upriver.checks import Array, instance, positive_integer
from upriver.display import Card, displayed, to_frame
from upriver.mdp import FiniteMDP
from upriver.planning import Plan, environment_structure, mixture_or_actions
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

    policy: whole numbers (H, S) or (S,), probabilities of actions (H, S, A) or (S, A), or a
    `Policy` or `Plan`, matched by name. The episodes of a policy without chance are those that
    `simulate` plays with this policy and seed, and the first ones do not depend on how many follow.
    """
    n_episodes = positive_integer("n_episodes", n_episodes, most=10**9)
    task = instance("mdp", mdp, FiniteMDP).true_task
    actions = mixture_or_actions(task, policy)
    if actions.ndim == 3:
        return randomised(mdp, actions, n_episodes, seed)
    environment, _ = streams(seed)
    horizon = task.horizon
    done = Rollouts(
        np.empty((n_episodes, horizon + 1), np.int64),
        np.empty((n_episodes, horizon), np.int64),
        np.empty((n_episodes, horizon)),
    )
    play: Any = kernels.episodes.play_episodes
    for first in range(0, n_episodes, CHUNK):
        part = slice(first, min(first + CHUNK, n_episodes))
        play(
            environment_structure(mdp), actions,
            environment.random((part.stop - first, horizon + 1)), done.states[part],
            done.actions[part], done.rewards[part],
        )  # fmt: skip
    return ended(mdp, done)


def randomised(mdp: FiniteMDP, mixture: Array, n_episodes: int, seed: int) -> Rollouts:
    """Episodes of a policy with chance, all episodes one step at a time; mixture (H, S, A)."""
    task, (environment, agent) = mdp.true_task, streams(seed)
    ends = np.cumsum(mdp.probability, axis=1)
    below = ends - mdp.probability
    reward, pay = task.user_rewards
    upto = np.cumsum(mixture, axis=2)
    upto /= upto[:, :, -1:]  # exactly 1 from the last action that has a chance
    states = np.empty((n_episodes, task.horizon + 1), np.int64)
    actions = np.empty((n_episodes, task.horizon), np.int64)
    rewards = np.empty((n_episodes, task.horizon))
    states[:, 0] = environment.choice(mdp.initial_states, n_episodes, p=mdp.initial_probability)
    for h in range(task.horizon):
        chance, end = upto[h], ends[min(h, len(ends) - 1)]
        u = agent.random(n_episodes)[:, None]
        actions[:, h] = (u >= chance[states[:, h], :-1]).sum(axis=1)
        group = states[:, h] * task.n_actions + actions[:, h]
        first, last = task.indptr[group], task.indptr[group + 1] - 1
        low = below[min(h, len(below) - 1)][first]
        at = np.searchsorted(end, low + environment.random(n_episodes) * (end[last] - low), "right")
        at = np.clip(at, first, last)
        states[:, h + 1] = task.successors[at]
        rewards[:, h] = reward[min(h, len(reward) - 1)][group]
        if pay.size:
            rewards[:, h] += pay[min(h, len(pay) - 1)][at]
    return ended(mdp, Rollouts(states, actions, rewards))


def ended(mdp: FiniteMDP, done: Rollouts) -> Rollouts:
    """The last reward has what the last state is worth."""
    if mdp.terminal.any():
        done.rewards[:, -1] += mdp.terminal[done.states[:, -1]]
    return done
