"""Draws of the core: the map from normals to cores is linear, so its covariance is exact."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from tests.reference import random_mdp
from upriver import features
from upriver.features import Features
from upriver.mnl import likelihood, model
from upriver.mnl.model import sample


def play(rng, task, made, n_parameters, episodes=6, lam=0.4, local=True):
    """A running model after a few random episodes."""
    running = model.start(made, lam, n_parameters, with_products=True, local=local)
    for _ in range(episodes):
        states, actions = [0], rng.integers(0, task.n_actions, task.horizon)
        for a in actions:
            reached = task.successors[task.rows(states[-1], int(a))]
            states.append(int(rng.choice(reached)))
        episode = SimpleNamespace(states=np.array(states), actions=actions.astype(np.int64))
        running = model.absorb(made, running, episode, lam, local=local)
    return running


class Chosen:
    """A generator whose normals are given."""

    def __init__(self, normals):
        self.normals = normals

    def standard_normal(self, shape):
        return np.broadcast_to(self.normals, shape).copy()


@pytest.mark.parametrize("kind", ["dense", "one-hot", "sparse", "pooled"])
@pytest.mark.parametrize("n_parameters", [1, 5])
def test_the_covariance_of_a_draw_is_the_inverse_information(rng, kind, n_parameters):
    task = random_mdp(rng, 4, 2, horizon=5).task()
    raw = rng.standard_normal((task.n_triples, 4))
    made = {
        "dense": lambda: Features(task, raw),
        "pooled": lambda: features.pooled(Features(task, raw), spread=0.7),
        "one-hot": lambda: features.one_hot(task),
        "sparse": lambda: Features(task, sparse.csr_array(raw * (rng.random(raw.shape) < 0.4))),
    }[kind]()
    running = play(rng, task, made, n_parameters)
    np.testing.assert_array_equal(sample(made, running, Chosen(0.0)), running.theta)
    moves = [sample(made, running, Chosen(e)) - running.theta for e in np.eye(made.dimension)]
    for c in range(n_parameters):
        root = np.array([move[c] for move in moves]).T
        information = likelihood.hessian(made, running.theta[c], running.counts[c], 0.4)
        dense = information.toarray() if sparse.issparse(information) else information
        np.testing.assert_allclose(root @ root.T, np.linalg.inv(dense), atol=1e-9)
