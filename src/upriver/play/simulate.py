"""One run of an agent on a known MDP, where regret is exact."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from upriver.agents.base import Agent
from upriver.agents.fixed import Always
from upriver.checks import Array, check_kinds, positive_integer, refuse_given
from upriver.display import Card, add_repr, to_frame
from upriver.mdp import FactoredMDP, FiniteMDP, Task
from upriver.planning import Plan
from upriver.play import greedy
from upriver.play.checkpoints import Checkpoint
from upriver.play.episodes import play_episodes
from upriver.play.factored import simulate_factored
from upriver.play.learner import Learner
from upriver.play.policy import Policy
from upriver.play.streams import simulate_stream


@add_repr
class Run(NamedTuple):
    """K episodes of one agent, or K steps where the horizon is infinite.

    `returns`, `values`, `optimal_values` and `seconds` have length K, in the user's units.
    """

    returns: Array
    """Sum of rewards received in each episode, and the terminal value where it ended."""
    values: Array
    """Exact value V^{pi_k}_1(s_{k,1}) of the policy played. With a discount: of the policy in the
    state of each step. For the average reward: the optimal gain minus what the action loses."""
    optimal_values: Array
    """V*_1(s_{k,1}), the best possible from where the episode began. With a discount: V*(s_t). For
    the average reward: the optimal gain."""
    seconds: Array
    """Time of planning and learning, without the environment and the evaluation."""
    plan: Plan
    """The plan of the last episode, in the user's units."""
    state: Any
    """The agent's state after the last episode."""
    task: Task
    """The agent's view of the MDP, which has the names of states and actions."""
    checkpoint: Checkpoint
    """Where to go on, see `simulate`."""
    visits: Array
    """(S, A) how often each pair was visited in these episodes."""

    @property
    def regret(self) -> Array:
        """V*_1 - V^{pi_k}_1 at the start of each episode, exact; of a stream at each step."""
        return self.optimal_values - self.values

    policy, greedy_policy, model = greedy.policy, greedy.greedy_policy, greedy.model

    def card(self) -> Card:
        discount = self.task.discount
        unit = "episodes" if discount is None else "steps"
        facts: dict[str, Any] = {
            unit: len(self.returns),
            "return": float(self.returns.sum()),
            "regret": float(self.regret.sum()),
        }
        value, best = float(self.values[-1]), float(self.optimal_values[-1])
        if discount == 1.0:  # one value belongs to one action, so only their mean says something
            facts |= {"mean value": float(self.values.mean()), "optimal gain": best}
        else:
            facts |= {"last value": value, "optimal value": best}
        more = f"plot() draws value and regret, to_pandas() has all {unit}"
        return Card(facts, more=more, brief=f"{len(self.returns)} {unit}")

    def to_pandas(self) -> Any:
        """Return a data frame with a row per episode: its return, value, regret and seconds."""
        return to_frame({
            "episode": np.arange(1, len(self.returns) + 1), "return": self.returns,
            "value": self.values, "optimal_value": self.optimal_values, "regret": self.regret,
            "seconds": self.seconds,
        })  # fmt: skip

    def plot(self) -> Any:
        """Return a figure of the value of each policy and of the cumulative regret."""
        from upriver.display import figures

        return figures.plot_learning({
            "value of the policy": {"played": self.values, "optimal": self.optimal_values},
            "cumulative regret": {"regret": np.cumsum(self.regret)},
        })  # fmt: skip


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
    played: Any = Always(task, agent) if hasattr(agent, "on") else agent
    if task.infinite_horizon:
        return Run(*simulate_stream(mdp, played, n_episodes, seed, resume, n_steps, restart))
    if n_steps is not None or restart:
        raise ValueError(
            f"n_steps and restart are for an infinite horizon; {mdp.name} has horizon "
            f"{mdp.horizon}, give n_episodes, or use mdp.infinite_horizon(discount)"
        )
    n_episodes = positive_integer("n_episodes", n_episodes, most=10**9)
    learner = Learner(played, mdp, seed, resume, draws=task.horizon + 1)
    figures, visits = play_episodes(mdp, learner, n_episodes)
    return Run(*figures, *learner.result(learner.checkpoint(n_episodes)), visits=visits)
