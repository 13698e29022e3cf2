"""Episodes of a known MDP: each policy is evaluated exactly, then played once."""

from __future__ import annotations

from typing import Any

import numpy as np

from upriver import kernels
from upriver.agents.base import Episode
from upriver.checks import Array, new_tuple
from upriver.mdp import FiniteMDP
from upriver.planning import check_available, environment_structure, reevaluate, solve
from upriver.play.learner import check_table

CHUNK = 256
"""Episodes that share one allocation of memory and one draw of uniforms."""


class EpisodePlayer:
    """Plays the policies of a run one by one and records what they earn and are worth.

    `returns`, `values` and `optimal_values` (K,) are the figures of `Run`; `visits` (S, A) is
    complete after the last `count_visits`.
    """

    def __init__(self, mdp: FiniteMDP, n_episodes: int, environment: np.random.Generator) -> None:
        task = mdp.true_task
        self.mdp, self.n_episodes, self.environment = mdp, n_episodes, environment
        self.figures = np.empty((3, n_episodes))
        self.returns, self.values, self.optimal_values = self.figures
        self.visits = np.zeros((task.n_states, task.n_actions), np.int64)
        self.v = np.zeros((task.horizon + 1, task.n_states))
        """V^pi of the policy played last; steps after the last change are not evaluated again."""
        self.v[-1] = mdp.terminal
        self.evaluated: Array = np.empty(0)
        """(H, S) the policy that `v` belongs to, updated in place."""
        self.truth = environment_structure(mdp)
        self.best = solve(mdp).v[0].copy()  # a view would keep all H + 1 rows in memory
        self.in_parallel = task.n_triples >= kernels.LARGE
        self.chunk: tuple[Array, ...] = ()
        """States, actions, rewards and uniforms of a chunk of episodes."""

    def start_chunk(self, k: int) -> None:
        """Allocate the episodes from k on, and count the visits of those before."""
        self.count_visits()
        size, horizon = min(CHUNK, self.n_episodes - k), self.mdp.true_task.horizon
        states = np.empty((size, horizon + 1), np.int64)
        actions, rewards = np.empty((size, horizon), np.int64), np.empty((size, horizon))
        self.chunk = states, actions, rewards, self.environment.random(states.shape)

    def evaluate_and_play(self, k: int, plan: Any) -> Episode:
        """Evaluate the policy of a plan exactly, and play it in episode k."""
        if k % CHUNK == 0:
            self.start_chunk(k)
        policy: Any = getattr(plan, "policy", None)
        evaluated = self.evaluated
        kind = getattr(policy, "shape", None), getattr(policy, "dtype", None)
        if kind != (evaluated.shape, evaluated.dtype):
            check_table(policy, self.mdp.true_task)
            # It differs everywhere, so that every step is evaluated.
            self.evaluated = evaluated = ~policy
        # A large problem is evaluated on all cores first; the kernel then finds nothing to do.
        exists = not self.in_parallel or reevaluate(self.mdp, policy, evaluated, self.v)
        states, actions, rewards, uniforms = self.chunk
        i = k % CHUNK
        if not exists or not kernels.episodes.play_episode(
            self.truth, self.best, policy, evaluated, self.v, uniforms, i, k, states, actions,
            rewards, self.figures,
        ):  # fmt: skip
            check_available("the agent's policy", policy, self.mdp.true_task)
        return new_tuple(Episode, (states[i], actions[i], rewards[i]))

    def count_visits(self) -> None:
        if self.chunk:
            states, actions, _, _ = self.chunk
            np.add.at(self.visits, (states[:, :-1], actions), 1)
