"""One run of an agent on a known MDP, where regret is exact."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from upriver.agents.base import Agent, check_agent, find_methods
from upriver.agents.fixed import Fixed
from upriver.checks import check_kinds, positive_integer, refuse_given
from upriver.mdp import FactoredMDP, FiniteMDP
from upriver.planning import Plan
from upriver.play.checkpoints import Checkpoint, begin
from upriver.play.checks import check_same_problem
from upriver.play.episodes import EpisodePlayer
from upriver.play.factored import simulate_factored
from upriver.play.policy import Policy
from upriver.play.run import Run
from upriver.play.streams import simulate_stream
from upriver.play.units import episode_converter, final_plan


@check_kinds
def simulate(
    mdp: FiniteMDP | FactoredMDP, agent: Agent | Policy | Plan | Any, n_episodes: int | None = None,
    seed: int | None = None, resume: Checkpoint | None = None, *, n_steps: int | None = None,
    restart: float | None = None,
) -> Any:  # fmt: skip
    """Play `n_episodes` episodes; every policy is evaluated exactly on the true MDP.

    The result depends on (mdp, agent, seed) alone, and its first episodes do not depend on how many
    follow.

    Parameters
    ----------
    agent : Agent, Policy or Plan
        A learner, or a policy to play as it is, matched by name.
    resume : Checkpoint, optional
        Of an earlier run of the same agent; its episodes and these together are, byte for byte, one
        uninterrupted run.
    n_steps, restart : int, float
        For an infinite horizon, in place of n_episodes: the length of the stream, and the
        probability that after a step it starts again: 0, or that of the run to resume, unless
        given.
    """
    if isinstance(mdp, FactoredMDP):
        refuse_given("factored problems", resume=resume, n_steps=n_steps, restart=restart)
        return simulate_factored(mdp, agent, n_episodes, seed)
    task = mdp.true_task
    learner: Any = Fixed(task, agent) if hasattr(agent, "on") else agent
    check_agent(learner)
    check_same_problem(learner.task, task)
    if task.infinite_horizon:
        return simulate_stream(mdp, learner, n_episodes, seed, resume, n_steps, restart)
    if n_steps is not None or restart:
        raise ValueError(
            f"n_steps and restart are for an infinite horizon; {mdp.name} has horizon "
            f"{mdp.horizon}, give n_episodes, or use mdp.infinite_horizon(discount)"
        )
    n_episodes = positive_integer("n_episodes", n_episodes, most=10**9)

    start = begin(learner, mdp, seed, resume, draws=task.horizon + 1)
    make_plan, update = find_methods(learner)
    to_unit_scale = episode_converter(learner.task)
    player = EpisodePlayer(mdp, n_episodes, start.environment)
    state, plan, seconds = start.state, None, np.empty(n_episodes)
    for k in range(n_episodes):
        plan = None  # a large plan is not held twice
        began = perf_counter()
        plan = make_plan(state, start.randomness)
        planned = perf_counter()
        episode = player.evaluate_and_play(k, plan)
        played = perf_counter()
        state = update(state, plan, to_unit_scale(episode))
        seconds[k] = perf_counter() - played + planned - began
    player.finish()

    return Run(
        player.returns, player.values, player.optimal_values, seconds,
        final_plan(plan, learner.task), state, learner.task,
        start.stop(learner, mdp, state, n_episodes), player.visits,
    )  # fmt: skip
