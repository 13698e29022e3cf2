"""Infinite horizons: one stream of steps, which the agent divides into episodes of one plan each.

The agent's `steps_until_replan` says for how long a plan is kept: until a count has doubled
(Jaksch, Ortner and Auer 2010) or a determinant (Park, Kwon and Lee 2024). A stretch of the stream
is played, twice as long a one where the plan is kept beyond it, and the agent learns from the part
that it keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np

from upriver import kernels
from upriver.agents.base import Episode, find_methods
from upriver.agents.mnl_family import cut_episode
from upriver.checks import Array, nonnegative_number, positive_integer
from upriver.mdp import FiniteMDP
from upriver.planning import environment_structure, evaluate, mixture_or_actions, solve
from upriver.play.checkpoints import Checkpoint, begin
from upriver.play.run import Run
from upriver.play.units import episode_converter, final_plan

FIRST_STRETCH = 64
"""Steps that are played of a plan before its agent is asked for the first time."""


def simulate_stream(
    mdp: FiniteMDP, agent: Any, n_episodes: int | None, seed: int | None,
    resume: Checkpoint | None, n_steps: int | None, restart: float | None,
) -> Run:  # fmt: skip
    """Play `n_steps` steps; see `simulate`. A checkpoint is of where the last plan began; a resumed
    run plays the steps of that plan again and leaves them out of its result."""
    if n_episodes is not None:
        raise ValueError(f"{mdp.name} has an infinite horizon; give n_steps, not n_episodes")
    n_steps = positive_integer("n_steps", n_steps, most=10**9)
    start = begin(agent, mdp, seed, resume, draws=3)
    make_plan, update = find_methods(agent)
    before, randomness = start.checkpoint, start.randomness
    if resume is not None and restart not in (None, before.restart):
        raise ValueError(f"restart is {restart!r}; the run to resume has {before.restart!r}")
    restart = before.restart if restart is None else restart
    if not nonnegative_number("restart", restart) < 1.0:
        raise ValueError(f"restart is {restart!r}; it must be at least 0 and less than 1")
    stream = Stream(mdp, restart, start.environment, before.stream_state, agent.task)
    figures_of = stream_evaluator(mdp)
    replayed = before.steps_played
    total, done, state, plan = n_steps + replayed, 0, start.state, None
    returns, values, optimal_values, seconds = figures = np.empty((4, total))
    visits = np.zeros((mdp.n_states, mdp.n_actions), np.int64)
    stopped = before
    while done < total:
        stopped = Checkpoint(
            state, before.episodes + done, before.seed, randomness.bit_generator.state,
            (agent, mdp), stream.state, total - done, restart,
        )  # fmt: skip
        began = perf_counter()
        plan = make_plan(state, randomness)
        planned = perf_counter()
        policy = mixture_or_actions(mdp.true_task, getattr(plan, "policy", None))[0]
        if policy.ndim == 1:
            policy = np.eye(mdp.n_actions)[policy]
        keep = lambda part: agent.steps_until_replan(state, plan, part)  # noqa: B023, E731
        episode, learned_from, asking = stream.play(policy.ravel(), total - done, keep)
        now = slice(done, done + len(episode.actions))
        returns[now] = episode.rewards
        values[now], optimal_values[now] = figures_of(policy, episode)
        new = slice(max(replayed - done, 0), None)
        np.add.at(visits, (episode.states[:-1][new], episode.actions[new]), 1)
        played = perf_counter()
        state = update(state, plan, learned_from)
        elapsed = perf_counter() - played + planned - began + asking
        seconds[now] = elapsed / len(episode.actions)
        done = now.stop
    returns, values, optimal_values, seconds = figures[:, replayed:]
    plan = final_plan(plan, agent.task)
    return Run(returns, values, optimal_values, seconds, plan, state, agent.task, stopped, visits)


class Stream:
    """The true MDP as one stream of steps, and its present state."""

    def __init__(
        self, mdp: FiniteMDP, restart: float, generator: np.random.Generator, state: int, task: Any
    ) -> None:
        self.truth = environment_structure(mdp)
        self.restart, self.generator = restart, generator
        self.to_unit_scale = episode_converter(task)
        below = np.cumsum(mdp.initial_probability)
        # Drawn also where a run goes on: the first state costs one uniform.
        first = min(np.searchsorted(below, generator.random(), side="right"), len(below) - 1)
        self.state = state if state >= 0 else int(mdp.initial_states[first])
        self.uniforms = np.empty((0, 3))
        """Uniforms from the present state on, three for a step."""

    def play(
        self, policy: Array, most: int, steps_kept: Callable[[Episode], int]
    ) -> tuple[Episode, Episode, float]:
        """Play one plan, probabilities of actions (S*A,), from the present state on.

        `steps_kept` says for how many steps of an episode on the unit scale the plan is kept, and
        `most` steps are left. Returns the episode, the episode on the unit scale, and the seconds
        that `steps_kept` took.
        """
        steps, seconds = min(FIRST_STRETCH, most), 0.0
        while True:
            if steps > len(self.uniforms):
                more = self.generator.random((steps - len(self.uniforms), 3))
                self.uniforms = np.concatenate([self.uniforms, more])
            states, actions = np.empty(steps + 1, np.int64), np.empty(steps, np.int64)
            episode = Episode(states, actions, np.empty(steps))
            played, after = kernels.episodes.play_stream(
                self.truth, policy, self.restart, self.uniforms[:steps], self.state, *episode
            )
            episode = cut_episode(episode, 0, played)
            learned_from = self.to_unit_scale(episode)
            asked = perf_counter()
            kept = positive_integer("steps_until_replan", steps_kept(learned_from), most=played)
            seconds += perf_counter() - asked
            if kept < steps or steps == most:  # a restart ends the plan, too
                break
            steps = min(2 * steps, most)
        self.state = after if kept == played else int(episode.states[kept])
        self.uniforms = self.uniforms[kept:]
        return cut_episode(episode, 0, kept), cut_episode(learned_from, 0, kept), seconds


def stream_evaluator(mdp: FiniteMDP) -> Callable[[Array, Episode], tuple[Any, Any]]:
    """Return the function from policy (S, A) and episode to values and optimal values (T,): the
    optimal gain minus the `gaps` of actions, or with a discount the values of the states."""
    best: Any = solve(mdp)
    if mdp.discount == 1.0:
        worth = (best.gain - gaps(mdp, best)).reshape(mdp.n_states, mdp.n_actions)
        return lambda policy, e: (worth[e.states[:-1], e.actions], best.gain)

    @lru_cache(maxsize=1)  # several plans in turn often have one policy
    def values_of(policy: bytes) -> Array:
        valued: Any = evaluate(mdp, np.frombuffer(policy).reshape(mdp.n_states, -1))
        return valued.v

    return lambda policy, e: (values_of(policy.tobytes())[e.states[:-1]], best.v[e.states[:-1]])


def gaps(mdp: FiniteMDP, best: Any) -> Array:
    """Return gain + bias(s) - r - P bias (S*A,), at least 0 and 0 where the action is optimal.

    Summed over a stream this is T times the gain minus the rewards, up to the bias of the last
    state and noise of mean 0: the regret without its noise.
    """
    task = mdp.true_task
    next_bias = task.by_pair(mdp.probability[0] * best.v[task.successors])
    bias = np.repeat(best.v, task.n_actions)
    return np.maximum(best.gain + bias - mdp.reward_rows[0] - next_bias, 0.0)
