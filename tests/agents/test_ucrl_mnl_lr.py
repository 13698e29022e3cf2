"""UCRL-MNL-LR: its maximum by brute force, its sets by hand, its coverage and its optimism."""

from math import comb, log

import numpy as np
import pytest

import upriver as up
from tests.agents.plain import play, random_mdp
from upriver import kernels


def divergence(p, q):
    some = p > 0
    with np.errstate(divide="ignore"):
        return float((p[some] * np.log(p[some] / q[some])).sum())


def test_the_maximum_against_brute_force():
    """No drawn distribution of the ball has more, and the edge of a fine grid has as much."""
    rng = np.random.default_rng(1)
    for case in range(60):
        p, values = rng.dirichlet(np.full(3, 0.7)), rng.random(3)
        if case % 3 == 0:
            p[rng.integers(3)] = 0.0
            p /= p.sum()
        size = 10.0 ** rng.uniform(-3, 0.5)
        got = kernels.tabular.maximize_in_kl_ball(values, p, len(p), size)
        a, b = np.meshgrid(np.linspace(0, 1, 401), np.linspace(0, 1, 401))
        grid = np.stack([a, b, 1 - a - b], axis=-1)[a + b <= 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(p > 0, p * np.log(p / grid), 0.0)
        inside = grid[terms.sum(axis=1) <= size]
        best = max((inside @ values).max(initial=-1.0), p @ values)
        assert best - 1e-9 <= got <= best + 0.02
        assert p @ values <= got <= values.max()


def test_the_maximum_at_its_limits():
    largest = lambda values, p, size: kernels.tabular.maximize_in_kl_ball(values, p, 2, size)  # noqa: E731
    values = np.array([0.2, 0.9])
    assert largest(values, np.array([0.5, 0.5]), 0.0) == pytest.approx(0.55)
    assert largest(values, np.array([0.5, 0.5]), np.inf) == 0.9
    assert largest(values, np.array([0.0, 1.0]), 0.1) == 0.9
    # One successor seen only: -log q = size, and the other takes the rest.
    q = np.exp(-0.1)
    assert largest(values, np.array([1.0, 0.0]), 0.1) == pytest.approx(q * 0.2 + (1 - q) * 0.9)
    # Two successors, both seen: p log(p/q) + (1-p) log((1-p)/(1-q)) = size at the answer.
    q = (largest(values, np.array([0.7, 0.3]), 0.05) - 0.2) / 0.7
    assert divergence(np.array([0.7, 0.3]), np.array([1 - q, q])) == pytest.approx(0.05)
    assert q > 0.3


def test_pairs_with_the_same_rows_share_their_counts():
    mdp = up.envs.riverswim(6)
    task = mdp.task("local")
    slot = up.agents.UCRLMNLLR(task, up.features.shared(task)).class_rows
    right = [slot[task.rows(s, 1)].tolist() for s in range(6)]
    assert right[1] == right[2] == right[3] == right[4]
    assert right[0] != right[1] and right[5] != right[1]
    separate = up.agents.UCRLMNLLR(task, up.features.one_hot(task))
    assert (separate.class_rows == np.arange(task.n_triples)).all()


def test_the_sets_by_hand():
    task = random_mdp(1, n_states=3).task("full")
    agent = up.agents.UCRLMNLLR(task, up.features.one_hot(task), delta=0.1)
    state = agent.init()
    state.model[0, :3] = 4, 1, 0
    prob, size = agent.sets(state)
    assert prob[0, :3] == pytest.approx([0.8, 0.2, 0.0]) and prob[0, 3:] == pytest.approx(1 / 3)
    # six pairs; (n + U - 1)! / ((U - 1)! prod n_u!) = 7! / (2! 4!) and prod p^n = 0.8^4 0.2
    bound = log(6 / 0.1) + log(5040 / 48 * 0.8**4 * 0.2)
    assert size[0, 0] == pytest.approx(bound / 5)
    assert bound < log(6 / 0.1) + log(comb(7, 2))
    assert np.isinf(size[0, 1:]).all()
    per_step = up.agents.UCRLMNLLR(task, agent.features, delta=0.1, per_step=True)
    state = per_step.init()
    state.model[1, :3] = 4, 1, 0
    assert per_step.sets(state)[1][1, 0] == pytest.approx((bound + log(4)) / 5)


@pytest.mark.parametrize("kind", ["one_hot", "shared"])
def test_it_is_optimistic_whenever_its_sets_hold_the_truth(kind):
    mdp = up.envs.riverswim(4, horizon=8)
    task = mdp.task("local")
    best = up.solve(mdp)
    truth = np.zeros(task.n_triples)
    for s in range(4):
        for a in range(2):
            known = mdp.true_task.rows(s, a)
            to = np.isin(task.successors[task.rows(s, a)], mdp.true_task.successors[known])
            truth[np.arange(task.n_triples)[task.rows(s, a)][to]] = mdp.probability[0, known]
    held = 0
    for delta in (0.05, 0.9):
        agent = up.agents.UCRLMNLLR(task, getattr(up.features, kind)(task), delta=delta)
        for _, state, plan in play(agent, mdp, 40, seed=3):
            prob, size = agent.sets(state)
            pairs = [slice(a, b) for a, b in zip(task.indptr[:-1], task.indptr[1:], strict=True)]
            apart = [divergence(prob[0, g], truth[g]) for g in pairs]
            if (np.array(apart) <= size[0]).all():
                held += 1
                assert (plan.v >= best.v - 1e-9).all()
    assert held >= 60


@pytest.mark.slow
def test_the_sets_hold_the_truth_as_often_as_promised():
    """500 sequences of 2,000 draws, delta = 0.2: at most a fifth ever leave, and some do."""
    rng = np.random.default_rng(8)
    left = 0
    for _ in range(500):
        truth = rng.dirichlet(np.ones(3))
        counts = rng.multinomial(1, truth, 2000).cumsum(axis=0).astype(float)
        left += leaves(counts, truth, 0.2)
    assert 5 <= left <= 100


def leaves(counts, truth, delta):
    """Whether one of the sets of counts (T, U) misses the truth."""
    from scipy.special import gammaln, xlogy

    n, u = counts.sum(axis=1), counts.shape[1]
    p = counts / n[:, None]
    bound = gammaln(n + u) - gammaln(u) + (xlogy(counts, p) - gammaln(counts + 1)).sum(axis=1)
    ratio = (xlogy(counts, p) - counts * np.log(truth)).sum(axis=1)
    return bool((ratio > bound - np.log(delta)).any())


def test_bad_inputs_are_named():
    task = up.envs.riverswim(4, horizon=5).task()
    with pytest.raises(ValueError, match="delta is 1"):
        up.agents.UCRLMNLLR(task, up.features.one_hot(task), delta=1.0)
