"""What a run has learned: its policy, and without optimism its greedy policy and its model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from upriver.agents import rewards
from upriver.agents.counts import CountLearner, frequencies
from upriver.agents.ucrl_mnl_lr import UCRLMNLLR
from upriver.checks import Array
from upriver.features import pooled, unpooled
from upriver.mnl.fit import fit_mnl, fit_standardized
from upriver.mnl.fitted import FittedMNL
from upriver.planning import Plan, backward_induction, clip_nothing
from upriver.play.policy import Policy

NEW = "new"
"""The name of the state that stands for all that was not seen yet, the last of its task."""


def estimated_probabilities(agent: Any, state: Any) -> Array:
    """Return the transition probabilities (1 | H, n) that an agent has learned."""
    model: Any = getattr(state, "model", None)
    if hasattr(model, "prob"):
        return model.prob
    if isinstance(agent, UCRLMNLLR):
        return agent.sets(state)[0]
    counts = getattr(model, "counts", model)
    if isinstance(agent, CountLearner) and isinstance(counts, np.ndarray):
        return np.array([frequencies(agent.task, x)[0] for x in counts])
    raise ValueError(f"{type(agent).__name__} estimates no transition probabilities")


def greedy_plan(agent: Any, state: Any, *, new_pays_least: bool = True) -> Plan:
    """Return the best plan for an agent's estimates, without bonus and without randomness.

    An action that was never tried is taken to pay the least where rewards are unknown. So is NEW,
    from then on, where nothing else is known to follow, unless `new_pays_least` is False.
    """
    task, prob = agent.task, estimated_probabilities(agent, state)
    if task.support == "discovered":  # without NEW, where a pair has led anywhere else
        kept = np.where(task.successors == task.n_states - 1, 0.0, prob)
        total = np.repeat(task.by_pair(kept), task.sizes, axis=1)
        prob = np.where(total > 1e-12, kept / np.maximum(total, 1e-300), prob)
    reward = task.reward_rows if task.reward is not None else None
    if reward is None:
        mean = rewards.mean_rewards(task, state.rewards)
        if task.support == "discovered" and new_pays_least:
            mean = np.where(task.successors == task.n_states - 1, 0.0, mean)
        reward = task.by_pair(prob * mean)
    bonus, scale = np.zeros((1, len(task.sizes))), np.zeros(task.horizon)
    return backward_induction(
        task, np.ascontiguousarray(prob), reward, bonus, scale, clip_nothing(task), np.uint64(0)
    )


@property
def model(run: Any) -> FittedMNL:
    """The transition model that was learned, with `summary()`.

    It is the MNL model of the agent's counts; the ridge is the agent's last one, in the agent's
    units of the columns.
    """
    agent, state = learner_of(run), run.state
    counts = getattr(getattr(state, "model", None), "counts", None)
    features = getattr(agent, "features", None)
    if counts is None or features is None:
        raise ValueError(f"{type(agent).__name__} keeps no counts for an MNL model of features")
    if features.spread:
        features = pooled(unpooled(features), state.model.spread)
    total, lam = counts.sum(axis=0), state.model.regularization
    if agent.model_features is agent.features:
        return fit_mnl(features, total, lam)
    return fit_standardized(features, total, lam)


def learner_of(run: Any) -> Any:
    """Return the agent of a run, which its checkpoint holds unless it was read from a file."""
    fingerprint = getattr(run.checkpoint, "fingerprint", None)
    if not isinstance(fingerprint, tuple):
        raise ValueError("the agent of this run is unknown; its checkpoint was read from a file")
    return fingerprint[0]


@property
def policy(run: Any) -> Policy:
    """The policy of the last episode, to keep, save and use."""
    return policy_of(run.plan, run.task)


@property
def greedy_policy(run: Any) -> Policy:
    """The best policy for what was learned, without the optimism of the agent."""
    return policy_of(greedy_plan(learner_of(run), run.state), run.task)


def policy_of(plan: Any, task: Any) -> Policy:
    """Return the policy of a plan, without NEW, a state that nobody can meet."""
    found = Policy.from_plan(plan, task)
    if task.support != "discovered":
        return found
    return replace(found, actions=found.actions[:, :-1], state_names=task.states[:-1])
