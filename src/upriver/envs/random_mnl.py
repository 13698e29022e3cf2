"""A drawn MNL-MDP, exactly realizable, and one that leaves the family by a chosen distance.

Everything about it is a function of a seed. The features of a triple are drawn from the names of
its states, which carry the dimension and a key, so that they can be drawn again from a task. The
key is a digest of the seed: the features follow from it, the seed and so the core do not.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from upriver.checks import Array, nonnegative_number, positive_integer
from upriver.envs.named import check_named
from upriver.features import Features, from_function
from upriver.mdp import FiniteMDP, Task

CORE, SUPPORT, REWARD, NOISE = range(4)  # the streams of one seed


class Drawn(NamedTuple):
    """The name of a drawn state: which one, of which draw."""

    number: int
    dimension: int
    key: int


def random_mnl(
    n_states: int = 10,
    n_actions: int = 2,
    dimension: int = 5,
    max_successors: int = 3,
    seed: int = 0,
    theta_norm: float = 8.0,
    horizon: int = 20,
    distance: float = 0.0,
) -> FiniteMDP:
    """An MDP whose transitions are (1) with drawn features of norm 1 and a drawn core theta*.

    Each (s, a) has max_successors successors, drawn without repetition. theta* is uniform on the
    sphere of radius theta_norm, see `core`. Rewards are cubes of uniform numbers, so few pairs pay
    well. It declares no local support: nothing about a drawn set is natural.

    distance: how far each row is mixed with drawn R on the same set, (1 - distance) P + distance R
    with R uniform on the simplex; so the total variation from the MNL family is at most that.
    """
    n_states = positive_integer("n_states", n_states)
    n_actions = positive_integer("n_actions", n_actions)
    dimension = positive_integer("dimension", dimension)
    size = positive_integer("max_successors", max_successors)
    if size > n_states:
        raise ValueError(f"max_successors is {size}; there are {n_states} states")
    if not 0.0 <= distance <= 1.0:
        raise ValueError(f"distance is {distance!r}; it must lie between 0 and 1")
    groups = n_states * n_actions
    key = int.from_bytes(sha256(f"features of random_mnl, seed {seed}".encode()).digest()[:7])
    order = stream(seed, SUPPORT).permuted(np.tile(np.arange(n_states), (groups, 1)), axis=1)
    task = Task(
        n_states,
        n_actions,
        horizon,
        indptr=np.arange(groups + 1) * size,
        successors=np.sort(order[:, :size], axis=1).ravel(),
        reward=stream(seed, REWARD).random((n_states, n_actions)) ** 3,
        support="known",
        states=[Drawn(s, dimension, key) for s in range(n_states)],
    )
    logits = random_mnl_features(task).matrix @ core(dimension, theta_norm, seed)
    logits = logits.reshape(groups, size)
    prob = np.exp(logits - logits.max(axis=1, keepdims=True))
    prob /= prob.sum(axis=1, keepdims=True)
    other = stream(seed, NOISE).dirichlet(np.ones(size), groups)
    prob = (1.0 - distance) * prob + distance * other
    name = f"misspecified-mnl-{n_states}" if distance else f"random-mnl-{n_states}"
    return FiniteMDP(task, prob.reshape(1, -1), np.zeros(1, np.int64), np.ones(1), name=name)


misspecified_mnl = partial(random_mnl, distance=0.1)
"""`random_mnl` that is not quite of its family."""


def core(dimension: int, theta_norm: float, seed: int) -> Array:
    """(d,) theta* of `random_mnl`, uniform on the sphere of radius theta_norm."""
    direction = stream(seed, CORE).standard_normal(dimension)
    return nonnegative_number("theta_norm", theta_norm) * direction / np.linalg.norm(direction)


def random_mnl_features(task: Task) -> Features:
    """The drawn features of norm 1 of every triple of a task of `random_mnl`, with any support."""
    check_named(task, Drawn, "random_mnl")

    def draw(s: Drawn, a: int, s2: Drawn) -> Array:
        x = np.random.default_rng([s.key, s.number, a, s2.number]).standard_normal(s.dimension)
        return x / np.linalg.norm(x)

    return from_function(task, draw)


def stream(seed: int, which: int) -> np.random.Generator:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed is {seed!r}; it must be a whole number of at least 0")
    return np.random.default_rng([int(seed), which])
