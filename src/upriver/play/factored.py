"""Learning in factored problems, whose states are not listed: neither values nor regret are exact.

`simulate` and `learn` call `run_agent` where the agent's task is a `FactoredMDP`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from upriver.agents.base import Episode
from upriver.checks import Array, check_seed, positive_integer
from upriver.display import Card, add_repr, to_frame
from upriver.mdp import FactoredMDP
from upriver.mnl.fitted import FittedMNL
from upriver.planning.rollouts import (
    RolloutPolicy,
    as_policy,
    discounted_sum,
    episode_length,
    simulate_policy,
)
from upriver.play.checkpoints import spawn_generators


@add_repr
class FactoredRun(NamedTuple):
    """K episodes in a factored problem, by a learner or by a fixed policy."""

    returns: Array
    """(K,) the sum of the rewards of each episode, discounted where the problem is."""
    seconds: Array
    """(K,) time of planning, playing and learning: rollouts plan while they play."""
    episodes: list[Episode]
    """States (T + 1, n), actions (T,) and rewards (T,) of each episode."""
    policy: RolloutPolicy
    """The policy of the last episode."""
    greedy_policy: RolloutPolicy
    """The policy that plans with the estimate after the last episode."""
    model: FittedMNL | None
    """The estimate after the last episode; None for a fixed policy."""
    state: Any
    """The agent's state after the last episode."""
    task: FactoredMDP
    """What the agent knows of the problem."""

    def card(self) -> Card:
        mean, last = float(self.returns.mean()), float(self.returns[-1])
        facts = {"episodes": len(self.returns), "mean return": mean, "last return": last}
        more = "model.summary() has the estimate, to_pandas() every episode"
        return Card(facts, of=self.task.name, more=more)

    def to_pandas(self) -> Any:
        """Return a data frame with a row per episode: its return and seconds."""
        number = np.arange(1, len(self.returns) + 1)
        return to_frame({"episode": number, "return": self.returns, "seconds": self.seconds})


def run_agent(
    agent: Any, n_episodes: int | None, seed: int | None, play: Callable[[Any, int], Episode]
) -> FactoredRun:
    """Let an agent learn for some episodes; `play` plays a policy with the seed of an episode."""
    n_episodes = positive_integer("n_episodes", n_episodes, most=10**9)
    environment, randomness = spawn_generators(check_seed(seed or 0))
    state, episodes, seconds = agent.init(), [], np.empty(n_episodes)
    plan: Any = None
    for k in range(n_episodes):
        began = perf_counter()
        plan = agent.plan(state, randomness)
        episodes.append(play(plan, int(environment.integers(2**63))))
        state = agent.update(state, plan, episodes[-1])
        seconds[k] = perf_counter() - began
    returns = [discounted_sum(agent.task, x.rewards[None])[0] for x in episodes]
    fitted = agent.fit(state)
    greedy = agent.make_policy(fitted.theta, randomness)
    found = np.array(returns), seconds, episodes, plan, greedy, fitted, state, agent.task
    return FactoredRun(*found)


def simulate_factored(
    mdp: FactoredMDP, agent: Any, n_episodes: int | None, seed: int | None
) -> FactoredRun:
    """See `simulate`; a policy is played as `evaluate` plays it."""
    mdp.probabilities  # noqa: B018  (raises an error where there are no logits)
    if hasattr(agent, "plan"):
        as_policy(mdp, agent.make_policy(np.zeros(agent.task.dimension), np.random.default_rng(0)))

        def play(plan: RolloutPolicy, episode_seed: int) -> Episode:
            played = simulate_policy(mdp, plan, 1, episode_seed, record=True)
            return Episode(*(x[0] for x in played))

        return run_agent(agent, n_episodes, seed, play)
    n_episodes, policy = positive_integer("n_episodes", n_episodes), as_policy(mdp, agent)
    seed, began = check_seed(seed or 0), perf_counter()
    states, actions, rewards = simulate_policy(mdp, policy, n_episodes, seed, record=True)
    seconds = np.full(n_episodes, (perf_counter() - began) / n_episodes)
    episodes = [Episode(*x) for x in zip(states, actions, rewards, strict=True)]
    returns = discounted_sum(mdp, rewards)
    return FactoredRun(returns, seconds, episodes, policy, policy, None, None, mdp.task())


def learn_factored(env: Any, agent: Any, n_episodes: int, seed: int | None) -> FactoredRun:
    """See `learn`: an environment whose observations are the vectors of values."""
    task = agent.task

    def play(plan: RolloutPolicy, episode_seed: int) -> Episode:
        x, _ = env.reset(seed=episode_seed % 2**31)
        states, actions, rewards, over = [x], [], [], False
        while not over and len(actions) < episode_length(task):
            actions.append(task.action_names.number(plan.act(x, len(actions))))
            x, reward, ended, truncated, _ = env.step(actions[-1])
            states.append(x)
            rewards.append(float(reward))
            over = ended or truncated
        visited = task.as_states("observation", states)
        return Episode(visited, np.array(actions), np.array(rewards))

    return run_agent(agent, n_episodes, seed, play)
