"""A running MNL model: counts, the estimate (3), and what planning reads of its ellipsoid.

Pure functions over `Model`. Only the blocks whose counts changed are fitted and factored again,
unless lambda_k changed, in which case all are.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple, Protocol

import numpy as np

from upriver import kernels
from upriver.checks import Array, new_tuple
from upriver.display import displayed
from upriver.features import Features

NOTHING = np.empty(0, np.int64)
PARTS = 16  # of a large block, whatever the number of threads: their sum is always the same


class Transitions(Protocol):
    """The part of an episode that a model learns from; the Episode of the agents is one."""

    @property
    def states(self) -> Array: ...
    @property
    def actions(self) -> Array: ...


@displayed
class Model(NamedTuple):
    """One or H transition cores (C = 1 or H) and their ellipsoids."""

    counts: Array
    """(C, n) visits of each triple."""
    theta: Array
    """(C, d) theta_hat, the minimiser of (2)."""
    prob: Array
    """(C, n) P_theta_hat, eq. (1)."""
    max_norm: Array
    """(C, S*A) max over the successors of ||varphi||_{A^-1}."""
    inverse_products: Array
    """(C, sum U^2) inner products of the features of each (s, a) in A^-1; a factor of them where
    that is smaller and the model was started `factored`; (C, 0) if not kept."""
    logdet: Array
    """(C, B) log-determinant of each block of A."""
    regularization: float
    """The lambda that all of these were computed with."""


def start(
    features: Features,
    regularization: float,
    n_cores: int,
    with_products: bool,
    local: bool = False,
    factored: bool = False,
) -> Model:
    """theta = 0 and A = lambda I.

    With `local`, here and in `absorb`, the Hessian of (2) at theta_hat stands in for A. With
    `factored` the geometry of large pairs is a factor, see `Features.product_start`.
    """
    model = unfitted(features, regularization, n_cores, with_products, factored)
    bring_up_to_date(features, model, NOTHING, NOTHING, everything=True, local=local)
    return model


def at_estimate(features: Features, theta: Array, counts: Array, regularization: float) -> Model:
    """The model of a fit, its ellipsoid that of the Hessian there."""
    model = unfitted(features, regularization, 1, with_products=True)
    model.counts[0], model.theta[0] = counts, theta
    bring_up_to_date(features, model, NOTHING, NOTHING, everything=True, local=True)
    return model


def unfitted(
    features: Features, regularization: float, n_cores: int, with_products: bool,
    factored: bool = False,
) -> Model:  # fmt: skip
    task, size = features.task, 0
    if with_products:
        size = int((features.product_start if factored else task.square_start)[-1])
    return Model(
        counts=np.zeros((n_cores, task.n_triples)),
        theta=np.zeros((n_cores, features.dimension)),
        prob=np.tile(1.0 / np.repeat(task.sizes, task.sizes), (n_cores, 1)),
        max_norm=np.zeros((n_cores, len(task.sizes))),
        inverse_products=np.zeros((n_cores, size)),
        logdet=np.zeros((n_cores, len(features.layout.size))),
        regularization=regularization,
    )


def absorb(
    features: Features,
    model: Model,
    episode: Transitions,
    lam: float,
    local: bool = False,
) -> Model:
    """The model after one more episode, with lambda_{k+1} = lam."""
    counts, theta, prob, max_norm, products, logdet, _ = model
    products = products.copy() if products.size else products
    new = new_tuple(
        Model,
        (counts.copy(), theta.copy(), prob.copy(), max_norm.copy(), products, logdet.copy(), lam),
    )
    everything = lam != model.regularization
    bring_up_to_date(features, new, episode.states, episode.actions, everything, local)
    return new


def add_counts(features: Features, counts: Array, episode: Transitions) -> Array:
    """Add the transitions of an episode to counts in place; (H,) the group of each step."""
    task = features.task
    touched = np.empty(len(episode.actions), np.int64)
    bad = kernels.episodes.count_transitions(
        task.indptr, task.successors, task.n_actions, episode.states, episode.actions, counts,
        touched,
    )  # fmt: skip
    if bad >= 0:
        refuse(features, episode.states, episode.actions, bad)
    return touched


def refuse(features: Features, states: Array, actions: Array, h: int) -> None:
    features.task.refuse_step(h, int(states[h]), int(actions[h]), int(states[h + 1]))


def bring_up_to_date(
    features: Features, model: Model, states: Array, actions: Array, everything: bool, local: bool
) -> None:
    """Count an episode and redo the blocks that it touched, or all."""
    task = features.task
    large = task.n_triples >= kernels.LARGE and model.logdet.size == 1
    bad, failed = kernels.model.refresh(
        features.problem, model, states, actions, everything, local, large
    )
    if bad >= 0:
        refuse(features, states, actions, bad)
    if failed >= 0:
        raise RuntimeError(
            f"the maximum-likelihood fit of feature block {failed} did not converge; "
            "a larger regularization makes it better conditioned"
        )
    if large:
        measure_in_parts(features, model, local)


def measure_in_parts(features: Features, model: Model, local: bool) -> None:
    """What planning reads of one large block, on all cores, if the block was redone."""
    stamps = features.work.stamps
    if stamps[0] != stamps[1]:
        return

    def part(first: int, last: int) -> float:
        return kernels.model.measure_part(features.problem, model, local, first, last)

    n_pairs = len(features.layout.block_pairs)
    model.logdet[0, 0] += sum(kernels.compiled.parallel_ranges(part, n_pairs, PARTS))


def logdet_ratio(features: Features, model: Model) -> float:
    """log(det A / lambda^d), the largest over the cores."""
    total = model.logdet.sum() if len(model.logdet) == 1 else model.logdet.sum(axis=1).max()
    return float(total) - features.dimension * log(model.regularization)
