"""One stream of steps without an end: what `simulate` does for problems that have no last step.

An episode of the learner is what it plays of one plan, and its `steps_until_replan` says where that stops: when
a count has doubled (Jaksch, Ortner and Auer 2010) or a determinant (Park, Kwon and Lee 2024). A
stretch is rolled out, twice as long a one where the plan goes on; what was played is learned from.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from upriver import kernels
from upriver.agents.guard import to_unit_scale, unguarded
from upriver.agents.protocol import Episode
from upriver.checks import Array
from upriver.mdp import FiniteMDP, Task
from upriver.planning import check_available, environment_structure, evaluate, solve
from upriver.planning.tables import check_mixture

SHORT = 64
"""Steps that are rolled out at first."""


class Uniforms:
    """The environment's numbers from the beginning of the present plan on, three for a step."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator, self.drawn = generator, np.empty((0, 3))

    def next(self, steps: int) -> Array:
        more = steps - len(self.drawn)
        if more > 0:
            self.drawn = np.concatenate([self.drawn, self.generator.random((more, 3))])
        return self.drawn[:steps]

    def drop(self, steps: int) -> None:
        self.drawn = self.drawn[steps:]


def mixture_of(policy: Any, task: Task) -> Array:
    """(S*A,) the chance of each action, from a table (1, S) or (1, S, A)."""
    shape = task.n_states, task.n_actions
    kind = policy.dtype.kind if isinstance(policy, np.ndarray) else ""
    if kind and kind in "iu" and policy.shape == (1, shape[0]):
        check_available("the agent's policy", policy, task)
        return np.eye(shape[1])[policy[0]].ravel()
    if kind == "f" and policy.shape == (1, *shape) and (policy >= 0).all():
        check_mixture(policy, task)
        if np.allclose(policy.sum(axis=2), 1.0, atol=1e-8):
            return policy[0].ravel()
    raise ValueError(
        f"the agent's policy has shape {np.shape(policy)}; without a last step it must be whole "
        f"numbers of shape (1, {shape[0]}), or probabilities (1, {shape[0]}, {shape[1]})"
    )


def play_stream(
    mdp: FiniteMDP, agent: Any, state: Any, place: int, environment: np.random.Generator,
    randomness: np.random.Generator, n_steps: int, ahead: int, restart: float,
) -> tuple[list[Array], Any, Any, tuple[Any, int, int, Any]]:  # fmt: skip
    """(returns, values, optimal values and seconds of each step, the last plan, the state after
    it, and where the last plan began: state, steps before it, place, generator).

    ahead: steps of the first plan that were reported before. They are played again and left out.
    """
    task = mdp.true_task
    best: Any = solve(mdp)
    make_plan, update = unguarded(agent)
    truth = environment_structure(mdp)
    # of an action: the gain less what it loses of gain and bias together
    worth = best.gain - gaps(mdp, best) if mdp.discount == 1.0 else np.empty(0)
    uniforms, total = Uniforms(environment), n_steps + ahead
    returns, values, optimal, seconds = records = np.empty((4, total))
    done, known = 0, {}
    while True:
        before = state, done, place, randomness.bit_generator.state
        began = perf_counter()
        plan = make_plan(state, randomness)
        planned = perf_counter()
        mixture = mixture_of(getattr(plan, "policy", None), task)
        steps = min(SHORT, total - done)
        while True:
            episode = Episode(
                np.empty(steps + 1, np.int64), np.empty(steps, np.int64), np.empty(steps)
            )
            played, after = kernels.episodes.play_stream(
                truth, mixture, restart, uniforms.next(steps), place, *episode
            )
            episode = cut(episode, played)
            asked = perf_counter()
            kept = (
                agent.steps_until_replan(state, plan, episode)
                if hasattr(agent, "steps_until_replan")
                else played
            )
            planned += perf_counter() - asked
            if kept < steps or steps == total - done:
                break
            steps = min(2 * steps, total - done)
        if kept < played:
            episode, after = cut(episode, kept), int(episode.states[kept])
        now = slice(done, done + kept)
        pairs = episode.states[:-1] * task.n_actions + episode.actions
        returns[now] = episode.rewards
        if mdp.discount == 1.0:
            values[now], optimal[now] = worth[pairs], best.gain
        else:
            key = mixture.tobytes()
            if key not in known:
                valued: Any = evaluate(mdp, mixture.reshape(task.n_states, -1))
                known = {key: valued.v}
            values[now], optimal[now] = known[key][episode.states[:-1]], best.v[episode.states[:-1]]
        resumed = perf_counter()
        state = update(state, plan, to_unit_scale(agent.task, episode))
        seconds[now] = (perf_counter() - resumed + planned - began) / kept
        uniforms.drop(kept)
        place, done = after, done + kept
        if done == total:
            return [x[ahead:] for x in records], plan, state, before


def gaps(mdp: FiniteMDP, best: Any) -> Array:
    """(S*A,) gain + bias(s) - r - P bias, at least 0 and 0 where the action is optimal.

    Summed over a stream this is T times the gain less the rewards, but for the bias of where it
    ends and for luck, whose mean is 0: the regret without its noise.
    """
    task = mdp.true_task
    ahead = task.by_pair(mdp.probability[0] * best.bias[task.successors])
    here = np.repeat(best.bias, task.n_actions)
    return np.maximum(best.gain + here - mdp.reward_rows[0] - ahead, 0.0)


def cut(episode: Episode, steps: int) -> Episode:
    return Episode(episode.states[: steps + 1], episode.actions[:steps], episode.rewards[:steps])


def first_place(mdp: FiniteMDP, environment: np.random.Generator) -> int:
    """Where a stream starts."""
    at = np.searchsorted(np.cumsum(mdp.initial_probability), environment.random(), side="right")
    return int(mdp.initial_states[min(at, len(mdp.initial_states) - 1)])
