"""Episodes of a known MDP: each policy is evaluated exactly, then played once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from upriver import kernels
from upriver.agents.base import Episode
from upriver.checks import Array, new_tuple
from upriver.mdp import FiniteMDP
from upriver.planning import environment_structure, reevaluate, solve
from upriver.play.learner import Learner, check_table

CHUNK = 256
"""Episodes that share one allocation of memory and one draw of uniforms."""


def play_episodes(
    mdp: FiniteMDP, learner: Learner, n_episodes: int,
    observe: Callable[[Episode, float], None] | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """Play the policies of a learner one by one and let it learn.

    Returns (4, K) the returns, values, optimal values and seconds of `Run`, and the visits (S, A).
    Before the learner learns from an episode, `observe` gets it and its optimal value.
    """
    task = mdp.true_task
    figures = np.empty((4, n_episodes))
    visits = np.zeros((task.n_states, task.n_actions), np.int64)
    # V^pi of the policy played last; steps after the last change are not evaluated again.
    v = np.zeros((task.horizon + 1, task.n_states))
    v[-1] = mdp.terminal
    evaluated: Array = np.empty(0)  # (H, S) the policy that v belongs to, updated in place
    truth = environment_structure(mdp)
    best = solve(mdp).v[0].copy()  # a view would keep all H + 1 rows in memory
    in_parallel = task.n_triples >= kernels.LARGE
    for first in range(0, n_episodes, CHUNK):
        size = min(CHUNK, n_episodes - first)
        states = np.empty((size, task.horizon + 1), np.int64)
        actions, rewards = np.empty_like(states[:, 1:]), np.empty((size, task.horizon))
        uniforms = learner.environment.random(states.shape)
        for i, k in enumerate(range(first, first + size)):
            policy: Any = getattr(learner.plan(), "policy", None)
            kind = getattr(policy, "shape", None), getattr(policy, "dtype", None)
            if kind != (evaluated.shape, evaluated.dtype):
                check_table(policy, task)
                # It differs everywhere, so that every step is evaluated.
                evaluated = ~policy
            # A large problem is evaluated on all cores first; the kernel then finds nothing to do.
            exists = not in_parallel or reevaluate(mdp, policy, evaluated, v)
            if not exists or not kernels.episodes.play_episode(
                truth, best, policy, evaluated, v, uniforms, i, k, states, actions, rewards,
                figures[:3],
            ):  # fmt: skip
                check_table(policy, task)
            episode = new_tuple(Episode, (states[i], actions[i], rewards[i]))
            if observe is not None:
                observe(episode, figures[2, k])
            learner.learn(episode)
            figures[3, k] = learner.seconds
        np.add.at(visits, (states[:, :-1], actions), 1)
    return figures, visits
