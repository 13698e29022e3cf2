"""The problems that choose and judge the default agent: they are what they say."""

from __future__ import annotations

import numpy as np
import pytest
from studies.problems import CHOOSING, JUDGING, PROBLEMS, columns_times, noisy, problem, shared

import upriver as up


@pytest.mark.parametrize("which", PROBLEMS)
def test_exact_features_give_the_true_probabilities_and_the_others_cannot(which):
    mdp = problem(which)
    found = up.diagnose(mdp, shared(mdp.task("local"))).core
    # with more successors than the true ones the probabilities are a limit of the model
    assert found.error < 1e-6 if PROBLEMS[which].exact else found.error > 0.05


def test_no_problem_both_chooses_and_judges():
    assert len(JUDGING) >= 12
    assert {entry.exact for entry in JUDGING.values()} == {True, False}
    chose, judges = ({problem(name).probability.tobytes() for name in names}
                     for names in (CHOOSING, JUDGING))  # fmt: skip
    assert not chose & judges


def row(which, state, action):
    """{next state: probability} of a pair, by the problem's own names."""
    mdp = problem(which)
    task = mdp.true_task
    s = [name.state for name in task.states].index(state)
    rows = task.rows(s, list(task.action_names).index(action))
    names = [task.states[s2].state for s2 in task.successors[rows]]
    return dict(zip(names, mdp.probability[0, rows], strict=True))


def test_the_desk_is_that_of_the_tutorial():
    three = row("desk", 3, "two")  # calls .6 .3 .1, helped .65
    assert three == pytest.approx(
        {2: 0.6 * 0.65, 3: 0.6 * 0.35 + 0.3 * 0.65, 4: 0.3 * 0.35 + 0.1 * 0.65, 5: 0.1 * 0.35}
    )
    assert row("desk", 10, "one") == pytest.approx({9: 0.6 * 0.3, 10: 1.0 - 0.6 * 0.3})


def test_rows_by_hand():
    assert row("inventory", 1, 2) == pytest.approx({3: 0.15, 2: 0.25, 1: 0.3, 0: 0.3})
    worn = np.exp([0.0, -0.4])  # a machine that is nearly worn out
    assert row("machine", 8, "run") == pytest.approx(
        dict(zip((8, 9), worn / worn.sum(), strict=True))
    )
    assert row("machine", 8, "replace") == {0: 1.0}
    ill = np.exp([0.0, 0.5 - 0.5, -0.9 + 0.2])
    assert row("clinic", 2, "drug") == pytest.approx(
        dict(zip((2, 1, 3), ill / ill.sum(), strict=True))
    )
    assert row("slippery cliff", 25, 1) == pytest.approx({13: 1 / 3, 26: 1 / 3, 36: 1 / 3})


def test_columns_are_multiplied_in_turn():
    task = problem("clinic").task("local")
    plain, scaled = shared(task).matrix, columns_times(task, (2.0, 10.0)).matrix
    np.testing.assert_array_equal(scaled[:, ::2], 2.0 * plain[:, ::2])
    np.testing.assert_array_equal(scaled[:, 1::2], 10.0 * plain[:, 1::2])


def test_noise_leaves_the_features_and_takes_the_randomness():
    loud, quiet = noisy(0.5, 3), noisy(0.01, 3)
    np.testing.assert_array_equal(*(shared(m.task()).matrix for m in (loud, quiet)))
    assert np.median(loud.probability.reshape(-1, 3).max(axis=1)) < 0.9
    assert np.median(quiet.probability.reshape(-1, 3).max(axis=1)) > 0.999
