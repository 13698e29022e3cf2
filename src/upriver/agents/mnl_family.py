"""What the learners of the MNL model share: their fields and their models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from math import log, nan
from typing import Any, ClassVar

from upriver.agents.base import Episode, Learner, State, add_counts
from upriver.agents.rewards import OptimisticReward
from upriver.checks import Array, new_tuple, nonnegative_number
from upriver.features import Features, automatic, unpooled
from upriver.mnl import model as mnl
from upriver.mnl import online
from upriver.mnl.radii import Evidence, Radius, scaled_radius
from upriver.planning import Plan


@dataclass(frozen=True)
class MNLLearner(Learner):
    """The base of every learner of the MNL model."""

    features: Features = None  # pyright: ignore[reportAssignmentType]
    """varphi(s, a, s'), one row per triple of the task; `features.automatic(task)` if None."""
    _: KW_ONLY
    per_step: bool = False
    """One parameter theta_h for each step h instead of one for all steps."""

    pools: ClassVar = True
    """Whether the estimator supports pooled features."""

    def __post_init__(self) -> None:
        if self.features is None:
            found = automatic(self.task)
            found = found if self.pools or not found.spread else unpooled(found)
            object.__setattr__(self, "features", found)
        super().__post_init__()

    @property
    def n_models(self) -> int:
        """How many parameters theta are estimated: H with `per_step`, else 1."""
        return self.task.horizon if self.per_step else 1

    @property
    def model_features(self) -> Features:
        """The features whose coefficients are estimated; their columns may have another scale."""
        return self.features


class MaximumLikelihoodLearner(MNLLearner):
    """The base of learners for any horizon whose theta_hat minimises (2) over all data."""

    regularization: float

    def start(self) -> mnl.Model:
        return mnl.start(self.features, self.regularization, self.n_models, with_products=False)

    def learn(self, state: State, plan: Plan, episode: Episode) -> mnl.Model:
        return mnl.absorb(self.features, state.model, episode, self.regularization)

    def steps_until_replan(self, state: State, plan: Plan, episode: Episode) -> int:
        """Return the steps until det(lambda I + information at theta_hat) has doubled.

        The number is at most half of the steps before, so that no plan is kept for long where there
        is little to learn.
        """
        longest = int(state.model.counts.sum()) // 2 + 1
        episode = cut_episode(episode, 0, min(len(episode.actions), longest))
        features, model = self.model_features, state.model

        def add(counts: Array, part: Episode) -> Array:
            more = counts.copy()
            add_counts(self.task, more, part)
            return more

        def logdet(counts: Array) -> float:
            return mnl.information(features, model._replace(counts=counts))

        return steps_until_doubled(model.counts, add, logdet, episode)


@dataclass(frozen=True)
class ConfidenceSetLearner(MNLLearner):
    """The base of learners with a confidence set around their estimate."""

    radius: Radius | float = 1e-4
    """beta_k; a number c stands for scaled_radius(c), the practical form, and 0 for no bonus."""
    regularization: float = 1.0
    """lambda."""

    OWN_CHECKS: ClassVar = {
        "radius": lambda name, c: c if callable(c) else scaled_radius(nonnegative_number(name, c))
    }

    def beta(self, state: State) -> float:
        """Return beta_k, the radius used to plan from `state`."""
        radius: Any = self.radius
        beta = radius(evidence(self.features, state.k, state.model, radius))
        return nonnegative_number("what radius returns", beta)


@dataclass(frozen=True)
class OnlineLearner(OptimisticReward, ConfidenceSetLearner):
    """The base of learners whose estimate takes one step per transition and keeps no data."""

    radius: Radius | float = 3e-5
    _: KW_ONLY
    theta_bound: float | None = None
    """L_theta, the radius of the ball that theta is projected to; None is no projection."""
    per_step: bool = True

    pools: ClassVar = False

    def start(self) -> online.Online:
        return online.start(self.features, self.regularization, self.n_models)


@dataclass(frozen=True)
class MirrorDescentLearner(OnlineLearner):
    """The base of learners that estimate theta by online mirror descent."""

    _: KW_ONLY
    step_size: float = 1.0
    """eta."""

    GRID: ClassVar = {
        "radius": (0.0, 1e-5, 1e-4, 1e-3), "step_size": (0.5, 1.0),
        "regularization": (0.1, 1.0, 10.0),
    }  # fmt: skip

    def learn(self, state: State, plan: Plan, episode: Episode) -> online.Online:
        rate, bound = self.step_size, self.theta_bound
        return online.learn(self.features, state.model, episode, rate, bound, mirror=True)


def evidence(features: Features, k: int, model: Any, radius: Any = None) -> Evidence:
    """Return what a radius may depend on before episode k."""
    reads = getattr(radius, "reads_information", True)
    information = mnl.logdet_ratio(features, model) if reads else nan
    task = features.task
    sizes = task.horizon, task.n_states, task.max_successors
    constants = *sizes, features.formal_dimension, features.norm_bound
    observed = model.regularization, information, len(model.theta)
    return new_tuple(Evidence, (k, *constants, *observed))


def steps_until_doubled(
    start: Any, learn: Callable[[Any, Episode], Any], logdet: Callable[[Any], float],
    episode: Episode,
) -> int:  # fmt: skip
    """Return the least number of steps after which the determinant has doubled, or all steps.

    The stride doubles until the determinant has, and is halved from there, so that the number of
    evaluations is the logarithm of the number of steps, and each step is learned from about twice.
    """
    goal, steps = logdet(start) + log(2.0), len(episode.actions)
    here, done, stride, passed = start, 0, 1, False
    while done < steps:
        end = min(done + stride, steps)
        after = learn(here, cut_episode(episode, done, end))
        if logdet(after) <= goal:
            here, done = after, end
            stride = max(stride // 2, 1) if passed else 2 * stride
        elif end == done + 1:
            return end
        else:
            stride, passed = (end - done) // 2, True
    return steps


def cut_episode(episode: Episode, first: int, last: int) -> Episode:
    """Return the steps from `first` up to, but not including, `last`."""
    states, actions, paid = episode
    return Episode(states[first : last + 1], actions[first:last], paid[first:last])
