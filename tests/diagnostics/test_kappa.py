import numpy as np
import pytest

import upriver as up
from tests.diagnostics.problems import random_features, random_problem
from upriver.diagnostics import certify_kappa, kappa_at
from upriver.diagnostics.kappa import CERTIFY_UP_TO
from upriver.mnl import likelihood


def test_kappa_of_riverswim():
    mdp = up.envs.riverswim(6)
    found = kappa_at(mdp.true_task, mdp.probability)
    assert found.value == pytest.approx(0.05 * 0.35)
    assert found.where == (1, 1, 0, 2)


def test_kappa_is_the_smallest_product_of_any_pair(rng):
    mdp, features, _ = random_problem(rng)
    task, prob = features.task, mdp.probability[0]
    pairs = [
        prob[i] * prob[j]
        for g in range(len(task.sizes))
        for i in range(task.indptr[g], task.indptr[g + 1])
        for j in range(i)
        if j >= task.indptr[g]
    ]
    assert kappa_at(task, mdp.probability).value == pytest.approx(min(pairs))


def test_kappa_is_the_smallest_of_all_steps():
    task = up.envs.riverswim(3, 3).task()
    uniform = 1.0 / np.repeat(task.sizes, task.sizes)
    rows = task.rows(1, 1)
    prob = np.tile(uniform, (3, 1))
    prob[1, rows] = [0.1, 0.1, 0.8]
    found = kappa_at(task, prob)
    assert found.value == pytest.approx(0.01) and found.where == (1, 1, 0, 1)


@pytest.mark.parametrize("radius", [0.3, 1.0, 3.0])
def test_no_parameter_of_the_ball_is_below_the_certificate(rng, radius):
    features = random_features(rng, n_states=5, max_successors=4, dimension=3, zero=False)
    draws = rng.standard_normal((4000, features.dimension))
    draws *= radius / np.linalg.norm(draws, axis=1, keepdims=True)
    values = [
        kappa_at(features.task, likelihood.probabilities(features, theta)[None]).value
        for theta in draws
    ]
    certified = certify_kappa(features, radius)
    assert certified <= min(values)
    textbook = (features.task.max_successors * np.exp(2.0 * features.norm_bound * radius)) ** -2.0
    assert certified >= textbook


def test_a_zero_ball_is_the_uniform_model():
    features = up.features.one_hot(up.envs.riverswim(5).task())
    assert certify_kappa(features, 0.0) == pytest.approx(1 / 9)


def test_nothing_to_learn():
    sets = [[0], [0], [1], [1]]
    task = up.Task(2, 2, 3, np.arange(5), np.array([x[0] for x in sets]), np.zeros((2, 2)))
    features = up.features.one_hot(task)
    assert kappa_at(task, np.ones((1, 4))) is None
    assert certify_kappa(features, 1.0) is None


def wide_features(rng, n_states):
    """Two pairs from which every state can be reached; the first has the longer features."""
    task = up.Task.from_successors(
        list(range(n_states)), ["go", "run"], lambda s, a: range(1 if s else n_states), horizon=2
    )
    matrix = np.zeros((task.n_triples, 2))
    matrix[:n_states] = rng.standard_normal((n_states, 2))
    matrix[n_states : 2 * n_states] = 0.5 * matrix[:n_states]
    return up.Features(task, matrix)


@pytest.mark.parametrize("n_states", [CERTIFY_UP_TO, CERTIFY_UP_TO + 1])
def test_the_certificate_of_very_many_successors(rng, n_states):
    """By pairs up to a size, and one successor at a time beyond; both are bounds, and attained
    where all rows are equal."""
    features = wide_features(rng, n_states)
    x = features.matrix[:n_states]
    apart = np.linalg.norm(x[:, None] - x, axis=2)
    single = np.sort(1.0 / np.exp(0.7 * apart).sum(axis=1))
    certified = certify_kappa(features, 0.7)
    if n_states > CERTIFY_UP_TO:
        assert certified == pytest.approx(single[0] * single[1])
    else:
        middle = 0.5 * (x[:, None] + x)[:, :, None]
        total = np.exp(0.7 * np.linalg.norm(x - middle, axis=3)).sum(axis=2)
        off = ~np.eye(n_states, dtype=bool)
        assert certified == pytest.approx((total[off] ** -2.0).min())
    assert certify_kappa(features, 0.0) == pytest.approx(n_states**-2.0)


def test_the_certificate_does_not_depend_on_the_units_of_features():
    """Small inner products are different ones, too."""
    task = up.envs.riverswim(5).task()
    x = np.random.default_rng(1).normal(size=(task.n_triples, 3))
    for unit in (1e-7, 1e5):
        scaled = certify_kappa(up.Features(task, x * unit), 2.0 / unit)
        assert scaled == pytest.approx(certify_kappa(up.Features(task, x), 2.0), rel=1e-9)
