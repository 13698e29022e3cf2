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
from upriver.play.learner import Learner

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
    truth, figures_of = environment_structure(mdp), stream_evaluator(mdp)
    below = np.cumsum(mdp.initial_probability)
    # Drawn also where a run goes on: the first state costs one uniform, a step three.
    first = np.searchsorted(below, learner.environment.random(), side="right")
    state = before.stream_state
    if state < 0:
        state = int(mdp.initial_states[min(first, len(below) - 1)])
    replayed = before.steps_played
    total, done, stopped = n_steps + replayed, 0, before
    uniforms = learner.environment.random((total, 3))
    returns, values, optimal_values, seconds = figures = np.empty((4, total))
    visits = np.zeros((mdp.n_states, mdp.n_actions), np.int64)
    while done < total:
        stopped = learner.checkpoint(done, state, total - done, restart)
        plan = learner.plan()
        policy = mixture_or_actions(mdp.true_task, getattr(plan, "policy", None))[0]
        if policy.ndim == 1:
            policy = np.eye(mdp.n_actions)[policy]
        weights = policy.reshape(1, -1)
        episode, state = play_plan(truth, weights, restart, uniforms[done:], state, learner)
        now = slice(done, done + len(episode.actions))
        returns[now] = episode.rewards
        values[now], optimal_values[now] = figures_of(policy, episode)
        new = slice(max(replayed - done, 0), None)
        np.add.at(visits, (episode.states[:-1][new], episode.actions[new]), 1)
        learner.learn(episode)
        seconds[now] = learner.seconds / len(episode.actions)
        done = now.stop
    return *figures[:, replayed:], *learner.result(stopped), visits


def play_plan(
    truth: Any, policy: Array, restart: float, uniforms: Array, state: int, learner: Learner
) -> tuple[Episode, int]:
    """Play one plan, probabilities of actions (1, S*A), from a state on, for as many of the steps
    left, which have uniforms (T, 3), as the agent keeps it; return also the state after them."""
    steps = FIRST_STRETCH
    while True:
        steps = min(steps, len(uniforms))
        episode = Episode(np.empty(steps + 1, np.int64), np.empty(steps, np.int64), np.empty(steps))
        played, after = kernels.episodes.play_stream(
            truth, policy, restart, uniforms[:steps], state, *episode
        )
        episode = cut_episode(episode, 0, played)
        kept = learner.steps_kept(episode)
        if kept < steps or steps == len(uniforms):  # a restart ends the plan, too
            after = after if kept == played else int(episode.states[kept])
            return cut_episode(episode, 0, kept), after
        steps *= 2


def stream_evaluator(mdp: FiniteMDP) -> Callable[[Array, Episode], tuple[Any, Any]]:
    """Return the function from policy (S, A) and episode to values and optimal values (T,).

    With a discount these are the values of the states. For the average reward they are the optimal
    gain, less what each action loses: gain + bias(s) - r - P bias, at least 0 and 0 where the
    action is optimal. Summed over a stream that loss is T times the gain minus the rewards, up to
    the bias of the last state and noise of mean 0: the regret without its noise.
    """
    best: Any = solve(mdp)
    if mdp.discount == 1.0:
        next_bias = mdp.true_task.by_pair(mdp.probability[0] * best.v[mdp.true_task.successors])
        bias = np.repeat(best.v, mdp.n_actions)
        lost = np.maximum(best.gain + bias - mdp.reward_rows[0] - next_bias, 0.0)
        worth = (best.gain - lost).reshape(mdp.n_states, mdp.n_actions)
        return lambda policy, e: (worth[e.states[:-1], e.actions], best.gain)

    def evaluate_steps(policy: Array, episode: Episode) -> tuple[Array, Array]:
        valued: Any = evaluate(mdp, policy)
        return valued.v[episode.states[:-1]], best.v[episode.states[:-1]]

    return evaluate_steps
