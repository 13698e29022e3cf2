"""One run of an agent on a known MDP, where regret is exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from upriver.agents.base import Agent, check_agent
from upriver.agents.fixed import Fixed
from upriver.checks import check_kinds, positive_integer, refuse_given
from upriver.mdp import FactoredMDP, FiniteMDP
from upriver.planning import Plan
from upriver.play.checkpoints import Checkpoint
from upriver.play.checks import check_same_problem
from upriver.play.episodes import EpisodePlayer
from upriver.play.factored import simulate_factored
from upriver.play.learner import Learner, final_plan
from upriver.play.policy import Policy
from upriver.play.run import Run
from upriver.play.streams import simulate_stream


@check_kinds
def simulate(
    mdp: FiniteMDP | FactoredMDP, agent: Agent | Policy | Plan | Any, n_episodes: int | None = None,
    seed: int | None = None, resume: Checkpoint | None = None, *, n_steps: int | None = None,
    restart: float | None = None,
) -> Any:  # fmt: skip
    """Play `n_episodes` episodes on `mdp`; every policy is evaluated exactly.

    The result depends on `mdp`, `agent` and `seed` alone, and its first episodes do not depend on
    how many follow.

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
    played: Any = Fixed(task, agent) if hasattr(agent, "on") else agent
    check_agent(played)
    check_same_problem(played.task, task)
    if task.infinite_horizon:
        return simulate_stream(mdp, played, n_episodes, seed, resume, n_steps, restart)
    if n_steps is not None or restart:
        raise ValueError(
            f"n_steps and restart are for an infinite horizon; {mdp.name} has horizon "
            f"{mdp.horizon}, give n_episodes, or use mdp.infinite_horizon(discount)"
        )
    n_episodes = positive_integer("n_episodes", n_episodes, most=10**9)

    learner = Learner(played, mdp, seed, resume, draws=task.horizon + 1)
    player = EpisodePlayer(mdp, n_episodes, learner.environment)
    seconds = np.empty(n_episodes)
    for k in range(n_episodes):
        plan = learner.plan()
        episode = player.evaluate_and_play(k, plan)
        learner.learn(episode)
        seconds[k] = learner.seconds
    player.finish()

    return Run(
        player.returns, player.values, player.optimal_values, seconds,
        final_plan(learner.last_plan, learner.task), learner.state, learner.task,
        learner.checkpoint(n_episodes), player.visits,
    )  # fmt: skip
