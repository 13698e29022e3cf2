"""Pictures of problems: what is drawn where, and animations of what simulate plays."""

import numpy as np
import pytest
from PIL import Image

import upriver as up
from upriver.display import figures


def test_only_pairs_of_whole_numbers_are_a_grid():
    assert figures.find_grid([(0, 1), (2, 3)]).tolist() == [[0, 1], [2, 3]]
    for states in (None, [0, 1], [(0, 1), (2,)], [(0.5, 1)], [(0, "a")], ["ab"]):
        assert figures.find_grid(states) is None


def test_expected_moves_of_a_hand_made_grid():
    """(0, 0) goes right with 3/4 and down with 1/4; the other cells stay."""
    mdp = up.FiniteMDP.from_functions(
        start=(0, 0),
        actions=["go"],
        successors=lambda s, a: [(0, 1), (1, 0)] if s == (0, 0) else [s],
        probability=lambda s, a, s2: 1.0 if s == s2 else (0.75 if s2 == (0, 1) else 0.25),
        reward=lambda s, a: 0.0,
        horizon=3,
    )
    here = mdp.true_task.state_names.number((0, 0))
    moves = figures.expected_moves(mdp)
    assert moves[0, here] == pytest.approx([0.25, 0.75])
    assert not np.delete(moves[0], here, axis=0).any()
    assert mdp.plot().axes[0].get_ylabel() == "row"


def test_a_diagram_names_every_transition():
    mdp = up.envs.riverswim(4, horizon=8)
    texts = [t.get_text() for ax in mdp.plot().axes for t in ax.texts]
    p = mdp.probability[0]
    shown = sorted(f"{x:.2g}".removeprefix("0") for x in p if x > 0)
    assert sorted(t for t in texts if t not in {"0", "2", "3"}).count("1") >= shown.count("1")
    assert sorted(t for t in texts if t.startswith(".")) == [t for t in shown if t.startswith(".")]


def test_many_states_are_a_heat_map_and_too_many_an_error():
    heat = up.envs.queue(20).plot().axes[0]
    assert heat.images[0].get_array().shape == (21, 21)
    with pytest.raises(ValueError, match="has 401 states; a picture has at most 400"):
        up.envs.riverswim(401, horizon=2).plot()


def test_a_policy_on_a_grid_is_a_map():
    plan = up.solve(up.envs.river_grid())
    ax = plan.plot().axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("column", "row")
    assert len(ax.collections[0].get_offsets()) == 18


def test_an_animation_has_a_frame_for_each_episode(tmp_path):
    """What is drawn is what simulate plays with this seed."""
    mdp = up.envs.riverswim(5, horizon=10)
    agent = up.agents.PSRL(mdp.task())
    path = up.animate(mdp, {"PSRL": agent}, n_episodes=3, path=tmp_path / "a.gif", seed=4)
    with Image.open(path) as gif:
        assert gif.n_frames == 3
    run = up.simulate(mdp, agent, n_episodes=3, seed=4)
    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "animate_episodes", lambda *args: drawn.append(args))
        up.animate(mdp, {"PSRL": agent}, n_episodes=3, path=tmp_path / "b.gif", seed=4)
    episodes = drawn[0][2]["PSRL"]
    assert sum(share for share, _, _ in episodes) == pytest.approx(run.visits.sum(1) / 10)
    for k, (_, _, text) in enumerate(episodes):
        assert f"value {run.values[k]:.3g} of" in text


def test_what_cannot_be_animated_is_refused(tmp_path):
    mdp = up.envs.riverswim(5).infinite_horizon(discount=0.9)
    with pytest.raises(ValueError, match="cannot be animated; it must have a horizon"):
        up.animate(mdp, {"PSRL": up.agents.PSRL(mdp.task())}, 2, tmp_path / "c.gif")
