"""Deep sea: its numbers by hand, and that it needs exploration."""

import numpy as np
import pytest

import upriver as up
from upriver import envs
from upriver.envs.deep_sea import deep_sea, deep_sea_features
from upriver.mnl.likelihood import probabilities


def test_two_by_two_by_hand():
    mdp = deep_sea(2)
    assert mdp.horizon == 2 and mdp.n_states == 4
    # Right twice: half reach the treasure, and half land on the left, where going left pays 0.025.
    assert up.solve(mdp).v[0, 0] == pytest.approx(0.5 + 0.5 * 0.025)
    assert up.evaluate(mdp, np.zeros(4, int))[0, 0] == pytest.approx(0.05)


def test_rows_fall_and_local_support_is_both_cells_below():
    task = deep_sea(5).task("local")
    s, _, s2 = (np.asarray(task.states)[x] if i != 1 else x for i, x in enumerate(task.triples))
    falls = s[:, 0] < 4
    assert (s2[falls, 0] == s[falls, 0] + 1).all() and (s2[~falls] == s[~falls]).all()
    assert (np.abs(s2 - s)[:, 1] <= 1).all()
    assert task.sizes[: 4 * 5 * 2].tolist() == [2] * 40 and task.max_successors == 2


@pytest.mark.parametrize("size", [3, 8])
def test_shared_features_are_exact_at_every_size(size):
    mdp = deep_sea(size)
    phi = deep_sea_features(mdp.task("local"))
    assert phi.dimension == 2
    # Left never goes right: exact in the limit of a large negative weight.
    theta = np.array([-40.0, np.log((1 - 1 / size) * size)])
    expected = np.zeros(phi.task.n_triples)
    rows = {t: i for i, t in enumerate(zip(*map(tuple, phi.task.triples), strict=True))}
    for triple, p in zip(zip(*mdp.true_task.triples, strict=True), mdp.probability[0], strict=True):
        expected[rows[triple]] = p
    assert probabilities(phi, theta) == pytest.approx(expected, abs=1e-12)
    assert deep_sea_features(mdp.task("full")).dimension == 4
    assert deep_sea_features(mdp.task("known")).dimension == 1


def test_greedy_stays_left_and_a_bonus_goes_right():
    mdp = envs.make("deep-sea-10")
    task = mdp.task("local")
    runs = {
        c: up.simulate(mdp, up.agents.UCRLMNL(task, deep_sea_features(task), radius=c), 50, seed=0)
        for c in (0.0, 1e-3)
    }
    best = up.solve(mdp).v[0, 0]
    assert runs[0.0].values.max() == pytest.approx(0.05)
    assert runs[1e-3].values[-25:].mean() > 0.9 * best


def test_bad_numbers_are_named():
    with pytest.raises(ValueError, match="size is 1; it must be a whole number of at least 2"):
        deep_sea(1)
