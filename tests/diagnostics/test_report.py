import numpy as np
import pytest

import upriver as up
from upriver.cli import main
from upriver.experiments.registry import feature_function


def test_diagnosis_of_riverswim():
    found = up.diagnose(up.envs.riverswim(6))
    assert found.core.realizable and found.core.norm == pytest.approx(3.7193, abs=5e-5)
    assert found.kappa.value == pytest.approx(0.0175)
    assert found.certified <= found.kappa.value
    assert (found.features.task.max_successors, found.core.rank) == (3, 10)
    assert [row["value"] for row in found.table()[:3]] == ["3", "16", "10"]
    assert found.bounds.vacuous and found.bounds.regret_corrected > found.bounds.trivial == 2400


def test_theta_bound_replaces_the_norm():
    mdp = up.envs.riverswim(6)
    wide = up.diagnose(mdp, theta_bound=6.0)
    assert wide.theta_bound == 6.0 and wide.certified < up.diagnose(mdp).certified


def test_every_support_and_feature_map_gives_an_answer():
    mdp = up.envs.riverswim(4)
    for support in ("known", "local", "full"):
        for make in (up.features.one_hot, up.features.one_hot_indicator, up.features.shared):
            found = up.diagnose(mdp, make(mdp.task(support)))
            assert (found.core.forbidden is None) == (support == "known")
            assert len(found.table()) > 8


def test_features_without_a_zero_successor_are_recentred_for_the_bounds(rng):
    mdp = up.envs.riverswim(4)
    features = up.features.one_hot(mdp.task())
    shifted = up.Features(
        mdp.task(), features.matrix.toarray() + 3.0, formal_dimension=features.formal_dimension
    )
    plain, moved = up.diagnose(mdp, features), up.diagnose(mdp, shifted)
    assert moved.recentred is not shifted and plain.recentred is features
    assert moved.bounds.radius_corrected == pytest.approx(plain.bounds.radius_corrected)


def test_a_deterministic_problem_has_nothing_to_learn():
    transition = np.zeros((2, 1, 2))
    transition[:, 0, 1] = 1.0
    found = up.diagnose(up.FiniteMDP.from_arrays(transition, np.zeros((2, 1)), 3))
    assert found.kappa is None and found.bounds is None
    assert "nothing to learn" in str(found.table())


def test_an_unrealizable_problem_is_located(rng):
    mdp = up.envs.riverswim(4)
    shifted = up.Features(mdp.task(), 1.0 + rng.random((mdp.true_task.n_triples, 1)))
    found = up.diagnose(mdp, shifted, theta_bound=2.0)
    lines = {row["what"]: (row["value"], row["note"]) for row in found.table()}
    h, s, a = found.core.where
    assert lines["realizable"][0] == "no" and lines["L_theta"][0] == "2"
    assert f"at (h={h}, s={s}, a={a})" in lines["largest TV error"][1]
    assert lines["zero successor"][0] == "no"


def test_the_screen_shows_what_runs_measured(capsys):
    words = ["riverswim-4", "--runs", "3", "--episodes", "5", "--delta", "0.3"]
    assert main(["diagnose", *words]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "covers, corrected 100.0% of runs, for all k; goal 70%" in text
    assert "covers, acting 0.0%" in text and "optimism rate" in text


def test_triple_effects_realise_what_shared_features_cannot(capsys):
    """Rows at a distance from the MNL family; with one successor a pair has no own effect."""
    mdp = up.envs.make("misspecified-mnl-6")
    maps = [feature_function(name, "misspecified-mnl")(mdp.task()) for name in ("shared", "pooled")]
    maps.append(up.features.pooled(maps[0], 0.5))
    found = [up.diagnose(mdp, x) for x in maps]
    assert [x.core.realizable for x in found] == [False, True, True]
    assert found[2].core.norm > 1.2 * found[1].core.norm
    assert found[1].features.dimension == maps[0].dimension + mdp.true_task.n_triples - 12
    assert main(["diagnose", "riverswim-6", "--features", "pooled"]) == 0
    assert "features pooled" in " ".join(capsys.readouterr().out.split())


def test_screen_is_one_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["diagnose", "riverswim-6"]) == 0
    text = capsys.readouterr().out
    assert "3.719" in text and "0.0175" in text and "vacuous" in text
    assert len(text.splitlines()) <= 40


def test_screen_with_an_impossible_successor(capsys):
    assert main(["diagnose", "riverswim-6", "--support", "local"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "infinite successor 1 of (s=0, a=0)" in text and "of the projection" in text


def test_saved_and_gymnasium_environments(tmp_path, capsys):
    up.envs.riverswim(4).save(tmp_path / "river.npz")
    assert main(["diagnose", str(tmp_path / "river.npz")]) == 0
    assert "2.646" in capsys.readouterr().out
    assert main(["diagnose", "gym:FrozenLake-v1"]) == 0
    assert "16 states, 4 actions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["riverswam-6"], "did you mean 'riverswim'"),
        (["riverswim-6", "--features", "onehot"], "did you mean 'one-hot'"),
        (["riverswim-6", "--support", "some"], "support is 'some'"),
        (["riverswim-6", "--delta", "2"], "strictly between 0 and 1"),
        (["riverswim-6", "--episodes", "0"], "at least 1"),
        (["riverswim-6", "--theta-bound", "-1"], "finite number above 0"),
        (["missing.npz"], "missing.npz"),
    ],
)
def test_wrong_input_is_one_sentence(capsys, words, sentence):
    assert main(["diagnose", *words]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


def test_invalid_probabilities_are_refused():
    with pytest.raises(ValueError, match=r"transition row \(s=0, a=0\) sums to 0.9"):
        up.diagnose(up.FiniteMDP.from_arrays([[[0.9]]], [[0.0]], 1))
    with pytest.raises(ValueError, match="holds nan"):
        up.diagnose(up.FiniteMDP.from_arrays([[[np.nan]]], [[0.0]], 1))


def test_an_infinite_horizon_has_no_regret_bound_of_episodes():
    with pytest.raises(ValueError, match="infinite horizon"):
        up.diagnose(up.envs.riverswim(3).infinite_horizon(0.9))
