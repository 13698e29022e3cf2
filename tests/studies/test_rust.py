"""The study of Rust's buses, on a simulated log in the form of the public one."""

import csv

import numpy as np
import pandas as pd
import pytest
from studies.__main__ import main

import upriver as up
from studies import rust


def simulate(path, n_buses=40, n_months=100):
    """Write a log of buses that are replaced as RC = 8 and theta11 = 40 imply at discount .9999."""
    moves, costs = rust.describe_moves(), rust.describe_pairs()
    p = np.zeros((rust.STATES, 2, rust.STATES))
    for row in moves.itertuples():
        jump = 1 if row.one else 2 if row.two else 0
        p[row.state, rust.ACTIONS.index(row.action), row.next_state] = (0.4, 0.5, 0.1)[jump]
    reward = (8.0 * costs["RC"] + 40.0 * costs["theta11"]).to_numpy().reshape(-1, 2)
    mdp = up.FiniteMDP.from_arrays(p, reward, n_months)
    plan = up.solve(mdp, discount=0.9999, temperature=1.0)
    done = up.rollouts(mdp, plan.policy, n_buses, seed=0)
    state = done.states[:, :-1]
    start = np.where(done.actions == 1, 0, np.minimum(state, rust.LAST))
    usage = np.full(state.shape, np.nan)
    usage[:, 1:] = (done.states[:, 1:] - start)[:, :-1]
    log = pd.DataFrame({
        "Bus_ID": np.repeat(range(n_buses), n_months),
        "period": np.tile(range(n_months), n_buses), "state": state.ravel(),
        "usage": usage.ravel(), "decision": done.actions.ravel(),
    })  # fmt: skip
    log.to_csv(path, index=False)


def test_the_table_is_made_from_a_log(tmp_path, capsys):
    simulate(tmp_path / "log.csv")
    assert main(["rust", "--log", str(tmp_path / "log.csv"), "--out", str(tmp_path / "out")]) == 0
    with open(tmp_path / "out" / "table.csv", encoding="utf-8") as file:
        lines = {(x["discount"], x["quantity"]): x for x in csv.DictReader(file)}
    assert len(lines) == 8 and "| 0.9999 | RC | 10.0750 |" in capsys.readouterr().out
    for name, truth in (("RC", 8.0), ("theta11", 40.0)):
        line = lines["0.9999", name]
        for kind in ("outer_product", "classical", "robust", "cluster"):
            assert abs(float(line["estimate"]) - truth) < 4 * float(line[f"{kind}_error"])
    far, near = (float(lines[x, "log-likelihood"]["estimate"]) for x in ("0.9999", "0.0"))
    assert far > near, "who looks ahead explains the log better"


def test_the_study_needs_a_log(capsys):
    with pytest.raises(SystemExit):
        main(["rust"])
    assert "the study rust needs --log FILE" in capsys.readouterr().err
