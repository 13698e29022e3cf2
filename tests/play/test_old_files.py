"""Files written by version 0.1, before the modules moved into rooms, still load and go on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import upriver as up

FOLDER = Path(__file__).parent / "saved_by_0_1"
FACTS = json.loads((FOLDER / "facts.json").read_text())
MDP = up.envs.riverswim(n_states=5, horizon=10)


@pytest.mark.parametrize("name", [name for name in FACTS if name != "optimum"])
def test_an_agent_goes_on_where_it_was(name):
    agent, checkpoint = up.load_agent(FOLDER / f"{name}.npz")
    rest = up.simulate(MDP, agent, 4, resume=checkpoint)
    np.testing.assert_allclose(rest.values, FACTS[name]["values"][6:], rtol=1e-12)


@pytest.mark.parametrize("suffix", ["npz", "toml"])
def test_an_mdp_has_the_optimum_it_had(suffix):
    mdp = up.FiniteMDP.load(FOLDER / f"river.{suffix}")
    assert up.solve(mdp).v[0, 0] == pytest.approx(FACTS["optimum"], abs=1e-12)


def test_a_policy_earns_what_it_did():
    policy = up.load_policy(FOLDER / "policy.npz")
    earned = up.evaluate(MDP, policy.actions)[0, 0]
    assert earned == pytest.approx(FACTS["optimum"], abs=1e-12)


def test_a_results_folder_is_read():
    table = up.load_runs(FOLDER / "results")
    assert set(table.column("agent").to_pylist()) == {"psrl", "ucrl-mnl"}
    assert table.num_rows == 2 * 2 * 5
