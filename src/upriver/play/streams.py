"""Infinite horizons: one stream of steps, which the agent divides into episodes of one plan each.

The agent's `steps_until_replan` says for how long a plan is kept: until a count has doubled
(Jaksch, Ortner and Auer 2010) or a determinant (Park, Kwon and Lee 2024). A stretch of the stream
is played, twice as long a one where the plan is kept beyond it, and the agent learns from the part
that it keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from upriver import kernels
from upriver.agents.base import Episode
from upriver.agents.mnl_family import cut_episode
from upriver.checks import Array, nonnegative_number, positive_integer
from upriver.mdp import FiniteMDP
from upriver.planning import environment_structure, evaluate, mixture_or_actions, solve
from upriver.play.checkpoints import Checkpoint
from upriver.play.learner import Learner, final_plan

FIRST_STRETCH = 64
"""Steps that are played of a plan before its agent is asked for the first time."""


def simulate_stream(
    mdp: FiniteMDP, agent: Any, n_episodes: int | None, seed: int | None,
    resume: Checkpoint | None, n_steps: int | None, restart: float | None,
) -> tuple[Any, ...]:  # fmt: skip
    """Play `n_steps` steps and return the fields of a `Run`; see `simulate`.

    A checkpoint is of where the last plan began; a resumed run plays the steps of that plan again
    and leaves them out of its result.
    """
    if n_episodes is not None:
        raise ValueError(f"{mdp.name} has an infinite horizon; give n_steps, not n_episodes")
    n_steps = positive_integer("n_steps", n_steps, most=10**9)
    learner = Learner(agent, mdp, seed, resume, draws=3)
    before = learner.before
    if resume is not None and restart not in (None, before.restart):
        raise ValueError(f"restart is {restart!r}; the run to resume has {before.restart!r}")
    restart = nonnegative_number("restart", before.restart if restart is None else restart)
    if not restart < 1.0:
        raise ValueError(f"restart is {restart!r}; it must be at least 0 and less than 1")
    stream = Stream(mdp, restart, learner, before.stream_state)
    figures_of = stream_evaluator(mdp)
    replayed = before.steps_played
    total, done, stopped = n_steps + replayed, 0, before
    returns, values, optimal_values, seconds = figures = np.empty((4, total))
    visits = np.zeros((mdp.n_states, mdp.n_actions), np.int64)
    while done < total:
        stopped = learner.checkpoint(done, stream.state, total - done, restart)
        plan = learner.plan()
        policy = mixture_or_actions(mdp.true_task, getattr(plan, "policy", None))[0]
        if policy.ndim == 1:
            policy = np.eye(mdp.n_actions)[policy]
        episode = stream.play(policy.ravel(), total - done)
        now = slice(done, done + len(episode.actions))
        returns[now] = episode.rewards
        values[now], optimal_values[now] = figures_of(policy, episode)
        new = slice(max(replayed - done, 0), None)
        np.add.at(visits, (episode.states[:-1][new], episode.actions[new]), 1)
        learner.learn(episode)
        seconds[now] = learner.seconds / len(episode.actions)
        done = now.stop
    plan = final_plan(learner.last_plan, agent.task)
    return *figures[:, replayed:], plan, learner.state, agent.task, stopped, visits


class Stream:
    """The true MDP as one stream of steps, and its present state."""

    def __init__(self, mdp: FiniteMDP, restart: float, learner: Learner, state: int) -> None:
        self.truth, self.restart, self.learner = environment_structure(mdp), restart, learner
        self.generator = learner.environment
        below = np.cumsum(mdp.initial_probability)
        # Drawn also where a run goes on: the first state costs one uniform.
        first = min(np.searchsorted(below, self.generator.random(), side="right"), len(below) - 1)
        self.state = state if state >= 0 else int(mdp.initial_states[first])
        self.uniforms = np.empty((0, 3))
        """Uniforms from the present state on, three for a step."""

    def play(self, policy: Array, most: int) -> Episode:
        """Play one plan, probabilities of actions (S*A,), from the present state on, for as many of
        the `most` steps left as the agent keeps it."""
        steps, learner = min(FIRST_STRETCH, most), self.learner
        while True:
            if steps > len(self.uniforms):
                more = self.generator.random((steps - len(self.uniforms), 3))
                self.uniforms = np.concatenate([self.uniforms, more])
            states, actions = np.empty(steps + 1, np.int64), np.empty(steps, np.int64)
            episode = Episode(states, actions, np.empty(steps))
            played, after = kernels.episodes.play_stream(
                self.truth, policy[None], self.restart, self.uniforms[:steps], self.state, *episode
            )
            episode = cut_episode(episode, 0, played)
            kept = learner.steps_kept(episode)
            if kept < steps or steps == most:  # a restart ends the plan, too
                break
            steps = min(2 * steps, most)
        self.state = after if kept == played else int(episode.states[kept])
        self.uniforms = self.uniforms[kept:]
        return cut_episode(episode, 0, kept)


def stream_evaluator(mdp: FiniteMDP) -> Callable[[Array, Episode], tuple[Any, Any]]:
    """Return the function from policy (S, A) and episode to values and optimal values (T,): the
    optimal gain minus the `gaps` of actions, or with a discount the values of the states."""
    best: Any = solve(mdp)
    if mdp.discount == 1.0:
        worth = (best.gain - gaps(mdp, best)).reshape(mdp.n_states, mdp.n_actions)
        return lambda policy, e: (worth[e.states[:-1], e.actions], best.gain)

    def evaluate_steps(policy: Array, episode: Episode) -> tuple[Array, Array]:
        valued: Any = evaluate(mdp, policy)
        return valued.v[episode.states[:-1]], best.v[episode.states[:-1]]

    return evaluate_steps


def gaps(mdp: FiniteMDP, best: Any) -> Array:
    """Return gain + bias(s) - r - P bias (S*A,), at least 0 and 0 where the action is optimal.

    Summed over a stream this is T times the gain minus the rewards, up to the bias of the last
    state and noise of mean 0: the regret without its noise.
    """
    task = mdp.true_task
    next_bias = task.by_pair(mdp.probability[0] * best.v[task.successors])
    bias = np.repeat(best.v, task.n_actions)
    return np.maximum(best.gain + bias - mdp.reward_rows[0] - next_bias, 0.0)
