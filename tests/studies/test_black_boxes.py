"""The study of environments: its peers, what counts as good, and runs that are kept."""

import numpy as np
import pytest

import upriver as up
from studies import black_boxes as study
from upriver.planning import start_value


def test_blackjack_is_worth_what_is_known_of_it():
    """Drawing with replacement, without doubling: -.0465 (Sutton and Barto's game)."""
    mdp = study.blackjack()
    assert start_value(mdp, up.solve(mdp).v) == pytest.approx(-0.0465, abs=5e-4)
    assert mdp.initial_probability.sum() == pytest.approx(1.0)


def test_a_compiled_episode_of_q_learning_is_one_of_the_environment():
    """Where everything is certain, Q is what the rule says by hand; an end has no future."""
    mdp = up.FiniteMDP.from_arrays([[[0, 1, 0]], [[0, 0, 1]], [[0, 0, 1]]], [[1.0], [3.0], [0]], 5)
    player = study.QLearning(mdp, 0, ".5, 1")
    assert player.q[:, 0].tolist() == [4.0, 4.0, 4.0]
    assert player.play_one(0) == (4.0, 2)
    assert player.q[:2, 0].tolist() == [4.5, 3.5]
    assert player.play_one(1) == (4.0, 2)
    assert player.q[:2, 0].tolist() == [4.5, 3.25]


def test_runs_are_kept_and_the_next_one_follows(tmp_path):
    table, cell = study.Table(tmp_path), ("inventory", "PSRL, all declared")
    assert table.next_run(*cell, runs=2) == (1.0, (*cell, 0, ""))
    table.rows.append(study.play(*cell, 0))
    table.write()
    again = study.Table(tmp_path)
    assert again.rows == table.rows and np.isfinite(again.rows[0].episodes)
    assert again.next_run(*cell, runs=2)[1] == (*cell, 1, "")
    assert again.next_run(*cell, runs=1) is None
    assert "| inventory | - |" in study.summary(again, study.SHOWN)


def test_settings_are_tuned_on_other_seeds_before_the_first_run(tmp_path):
    table, cell = study.Table(tmp_path), ("inventory", study.Q_LEARNING)
    settings = list(study.SETTINGS[study.Q_LEARNING])
    keys = []
    while (key := table.next_run(*cell, runs=1)[1])[2] >= study.TUNING_SEED:
        keys.append(key)
        good = 7.0 if key[3] == settings[3] else study.NEVER
        table.rows.append(study.Row(*key, good, good, 0.5, 0.1))
    assert len(keys) == 2 * len(settings) and key == (*cell, 0, settings[3])


@pytest.mark.parametrize("learner", [*study.LEARNERS, study.Q_LEARNING])
def test_every_learner_has_a_policy_that_can_be_evaluated(learner):
    row = study.play("key and door", learner, 0, "(H + 1) / (H + visits), .95")
    assert row.episodes < 200 and row.end <= study.GOOD
