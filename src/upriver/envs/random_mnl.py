"""A random MNL MDP, exactly realizable, and one at a chosen distance from the MNL family.

Everything is a function of a seed. The features of a triple are drawn from the names of its states,
which contain the dimension and a key, so that they can be drawn again from a task. The key is a
digest of the seed: it gives the features, but neither the seed nor the true parameter.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from upriver.checks import Array, check_kinds, check_seed, nonnegative_number, positive_integer
from upriver.envs.named import check_state_names
from upriver.features import Features, from_function
from upriver.mdp import FiniteMDP, Task
from upriver.mdp.validation import check_size

THETA, SUPPORT, REWARD, NOISE = range(4)  # the random streams of one seed


class Drawn(NamedTuple):
    """The name of a random state: its number, and what its features are drawn from."""

    number: int
    dimension: int
    key: int


@check_kinds
def random_mnl(
    n_states: int = 10, n_actions: int = 2, dimension: int = 5, max_successors: int = 3,
    seed: int = 0, theta_norm: float = 8.0, horizon: int = 20, distance: float = 0.0,
) -> FiniteMDP:  # fmt: skip
    """Make an MDP whose transitions are eq. (1) with random features of norm 1 and a random theta*.

    Rewards are cubes of uniform numbers, so few pairs have a large one. It starts in state 0 and
    declares no local support.

    Parameters
    ----------
    max_successors : int
        Successors of each pair, drawn without repetition.
    theta_norm : float
        theta* is uniform on the sphere of this radius.
    distance : float
        Each row P becomes (1 - distance) P + distance R with R uniform on the simplex, so the total
        variation from the MNL family is at most `distance`.
    """
    n_states = positive_integer("n_states", n_states)
    n_actions = positive_integer("n_actions", n_actions)
    dimension = positive_integer("dimension", dimension)
    size = positive_integer("max_successors", max_successors)
    if size > n_states:
        raise ValueError(f"max_successors is {size}; there are {n_states} states")
    if not 0.0 <= distance <= 1.0:
        raise ValueError(f"distance is {distance!r}; it must lie between 0 and 1")
    n_pairs = n_states * n_actions
    check_size(n_states, n_pairs * n_states)  # the states are permuted for each pair
    key = int.from_bytes(sha256(f"features of random_mnl, seed {seed}".encode()).digest()[:7])
    order = stream(seed, SUPPORT).permuted(np.tile(np.arange(n_states), (n_pairs, 1)), axis=1)
    task = Task(
        n_states, n_actions, horizon, indptr=np.arange(n_pairs + 1) * size,
        successors=np.sort(order[:, :size], axis=1).ravel(),
        reward=stream(seed, REWARD).random((n_states, n_actions)) ** 3, support="known",
        states=[Drawn(s, dimension, key) for s in range(n_states)],
    )  # fmt: skip
    logits = random_mnl_features(task).matrix @ true_parameter(dimension, theta_norm, seed)
    logits = logits.reshape(n_pairs, size)
    prob = np.exp(logits - logits.max(axis=1, keepdims=True))
    prob /= prob.sum(axis=1, keepdims=True)
    other = stream(seed, NOISE).dirichlet(np.ones(size), n_pairs)
    prob = (1.0 - distance) * prob + distance * other
    name = f"misspecified-mnl-{n_states}" if distance else f"random-mnl-{n_states}"
    return FiniteMDP(task, prob.reshape(1, -1), np.zeros(1, np.int64), np.ones(1), name=name)


misspecified_mnl = partial(random_mnl, distance=0.1)
"""`random_mnl` at a distance of 0.1 from the MNL family."""


def true_parameter(dimension: int, theta_norm: float, seed: int) -> Array:
    """Return theta* (d,) of `random_mnl`, uniform on the sphere of radius theta_norm."""
    direction = stream(seed, THETA).standard_normal(dimension)
    return nonnegative_number("theta_norm", theta_norm) * direction / np.linalg.norm(direction)


@check_kinds
def random_mnl_features(task: Task) -> Features:
    """Make the random features of norm 1 of every triple of a task of `random_mnl`."""
    check_state_names(task, Drawn, "random_mnl")

    def draw(s: Drawn, a: int, s2: Drawn) -> Array:
        x = np.random.default_rng([s.key, s.number, a, s2.number]).standard_normal(s.dimension)
        return x / np.linalg.norm(x)

    return from_function(task, draw)


def stream(seed: int, which: int) -> np.random.Generator:
    """Return one of the random streams of a seed."""
    return np.random.default_rng([check_seed(seed), which])
