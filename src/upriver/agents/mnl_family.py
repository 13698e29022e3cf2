"""What the learners of the MNL model share: their state, and how an episode changes it."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any, NamedTuple

from upriver.agents import rewards
from upriver.agents.protocol import Episode
from upriver.checks import Array, positive_number
from upriver.display import displayed
from upriver.features import Features
from upriver.mnl import model as mnl
from upriver.mnl.confidence import Evidence


@displayed
class State(NamedTuple):
    k: int
    """Number of the next episode, from 1."""
    model: Any
    """The transition cores: a `mnl.model.Model` or a `mnl.online.Online`."""
    rewards: rewards.RewardSums | None
    """Only where the task's reward is unknown."""


def begin(agent: Any, start: Callable[..., Any], **options: Any) -> State:
    """theta = 0 and a matrix of lambda I, for one core or one for each step."""
    cores = agent.task.horizon if getattr(agent, "per_step", False) else 1
    model = start(agent.features, lam(agent, 1), cores, **options)
    return State(1, model, rewards.start(agent.task))


def lam(agent: Any, k: int) -> float:
    """lambda_k."""
    rule = agent.regularization
    return positive_number("regularization", rule(k)) if callable(rule) else rule


def advance(agent: Any, state: State, model: Any, episode: Episode) -> State:
    """The state after an episode, from which `model` was learned."""
    return State(state.k + 1, model, rewards.observe(agent.task, state.rewards, episode))


def reward(agent: Any, state: State) -> Array:
    """(1 | H, S*A) the reward to plan with."""
    return rewards.optimistic_reward(agent.task, state.rewards, agent.reward_bonus)


def beta(agent: Any, state: State) -> float:
    """The agent's radius before episode k."""
    return agent.radius(evidence(agent.features, state.k, state.model, agent.radius))


def evidence(features: Features, k: int, model: Any, radius: Any = None) -> Evidence:
    """What a radius may look at before episode k."""
    task = features.task
    reads = getattr(radius, "reads_information", True)
    assert features.formal_dimension is not None
    return Evidence(
        k, task.horizon, task.n_states, task.max_successors, features.formal_dimension,
        features.norm_bound, model.regularization,
        mnl.logdet_ratio(features, model) if reads else nan, len(model.theta),
    )  # fmt: skip
