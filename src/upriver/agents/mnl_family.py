"""What the learners of the MNL model share: their state, and how an episode changes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import log, nan
from typing import Any, NamedTuple

from upriver import kernels
from upriver.agents import rewards
from upriver.agents.protocol import Episode
from upriver.checks import Array, new_tuple, positive_number
from upriver.display import displayed
from upriver.features import Features
from upriver.mnl import model as mnl
from upriver.mnl.radii import Evidence


@displayed
class State(NamedTuple):
    k: int
    """Number of the next episode, from 1; of the next step, where there is no last one."""
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
    k = state.k + (len(episode.actions) if agent.task.infinite_horizon else 1)
    sums = rewards.observe(agent.task, state.rewards, episode)
    return new_tuple(State, (k, model, sums))


def until_informed(agent: Any, state: State, episode: Episode) -> int:
    """Steps until the determinant of lambda I and the information at theta_hat has doubled.

    At most half as many as came before, so that it does not stay for long where little is to learn.
    """
    most = int(state.model.counts.sum()) // 2 + 1
    episode = stretch(episode, 0, min(len(episode.actions), most))
    features, theta, lam = agent.features, state.model.theta[0], state.model.regularization

    def learn(counts: Array, part: Episode) -> Array:
        more = counts[None].copy()
        mnl.add_counts(features, more, part)
        return more[0]

    def size(counts: Array) -> float:
        return kernels.model.information(features.problem, counts, theta, lam)

    return until_doubled(state.model.counts[0], learn, size, episode)


def until_doubled(
    start: Any, learn: Callable[[Any, Episode], Any], size: Callable[[Any], float], episode: Episode
) -> int:
    """The least number of steps after which `size`, a logarithm that grows, has doubled; or all.

    Strides double until it has, and are halved from there: as many evaluations as the logarithm of
    the steps, and each step is learned from about twice.
    """
    goal, steps = size(start) + log(2.0), len(episode.actions)
    here, done, stride, passed = start, 0, 1, False
    while done < steps:
        ahead = min(done + stride, steps)
        after = learn(here, stretch(episode, done, ahead))
        if size(after) <= goal:
            here, done = after, ahead
            stride = max(stride // 2, 1) if passed else 2 * stride
        elif ahead == done + 1:
            return ahead
        else:
            stride, passed = (ahead - done) // 2, True
    return steps


def stretch(episode: Episode, first: int, last: int) -> Episode:
    """Steps `first` to `last`, which is left out."""
    states, actions, paid = episode
    return Episode(states[first : last + 1], actions[first:last], paid[first:last])


def reward(agent: Any, state: State) -> Array:
    """(1 | H, S*A) the reward to plan with."""
    return rewards.optimistic_reward(agent.task, state.rewards, agent.reward_bonus)


def beta(agent: Any, state: State) -> float:
    """The agent's radius before episode k."""
    return agent.radius(evidence(agent.features, state.k, state.model, agent.radius))


def evidence(features: Features, k: int, model: Any, radius: Any = None) -> Evidence:
    """What a radius may look at before episode k."""
    reads = getattr(radius, "reads_information", True)
    information = mnl.logdet_ratio(features, model) if reads else nan
    seen = model.regularization, information, len(model.theta)
    return new_tuple(Evidence, (k, *sizes(features), *seen))


@lru_cache(maxsize=64)
def sizes(features: Features) -> tuple[Any, ...]:
    """The part of `Evidence` that stays the same."""
    task = features.task
    return (
        task.horizon, task.n_states, task.max_successors, features.formal_dimension,
        features.norm_bound,
    )  # fmt: skip
