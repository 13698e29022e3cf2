"""Logs larger than memory: clusters against a plain loop, and the time and memory of a fit."""

import json
import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import pytest
from scipy import linalg

import upriver as up

from . import clinic

MOVES = clinic.moves()


def sandwich(frame, model, cluster, weights, adjusted):
    """The clustered standard errors of a model of `worse` and `age:worse`, row by row.

    Those adjusted for few clusters take (I - H_c H^-1)^(-1/2) times the score of cluster c.
    """
    theta, scores, own = np.asarray(model.params), {}, {}
    columns = list(zip(MOVES["state"], MOVES["next_state"], MOVES["worse"], strict=True))
    for row, who, times in zip(
        frame.to_dict("records"), frame[cluster], frame[weights], strict=True
    ):
        reach = set(frame.query("state == @row['state'] and action == @row['action']").next_state)
        x = {t: np.array([w, w * row["age"]]) for s, t, w in columns
             if s == row["state"] and t in reach}  # fmt: skip
        p = {t: np.exp(z @ theta) for t, z in x.items()}
        total = sum(p.values())
        mean = sum(p[t] / total * x[t] for t in x)
        for t in x:
            part = times * p[t] / total * np.outer(x[t] - mean, x[t] - mean)
            own[who] = own.get(who, 0.0) + part
        scores[who] = scores.get(who, 0.0) + times * (x[row["next_state"]] - mean)
    n, inverse = len(scores), np.linalg.inv(sum(own.values()))
    for who in scores:
        rest = np.eye(2) - own[who] @ inverse
        scores[who] = (
            linalg.fractional_matrix_power(rest, -0.5) @ scores[who]
            if adjusted
            else scores[who] * np.sqrt(n / (n - 1))
        )
    meat = sum(np.outer(s, s) for s in scores.values())
    return np.sqrt(np.diag(inverse @ meat @ inverse))


@pytest.mark.parametrize("adjusted", [True, False])
@pytest.mark.parametrize("names", [["number", "times"], ["name", "key_0"]])
def test_clusters_of_grouped_rows_are_those_of_a_plain_loop(tmp_path, monkeypatch, names, adjusted):
    """Words as clusters, weights, gaps, and columns with the names that the queries use."""
    who, times = names
    if not adjusted:
        monkeypatch.setattr("upriver.mnl.clusters.MANY", 0)
    frame = pd.DataFrame(clinic.visits(np.random.default_rng(7), 30))
    frame[who] = ["p" + str(i % 11) for i in frame["patient"]]
    frame[times] = 1.0 + frame.index % 3 / 2
    holes = frame.copy()
    holes.loc[[4, 9], who] = None
    holes.to_parquet(tmp_path / "log.parquet")
    given = {"states": MOVES, "cluster": who, "weights": times, "missing": "drop"}
    kept = frame.drop(index=[4, 9])
    expected = None
    for source in (tmp_path / "log.parquet", holes):
        model = up.fit_transitions("worse + age:worse", source, **given)
        assert model.dropped == {who: 2} and model.nobs == pytest.approx(kept[times].sum())
        expected = sandwich(kept, model, who, times, adjusted) if expected is None else expected
        np.testing.assert_allclose(model.bse, expected, rtol=1e-8)
        assert model.log.clusters == sorted(set(kept[who]))


def test_every_kind_of_row_counts_once(tmp_path):
    """Rows that differ are not grouped; rows that are equal are; both give one fit."""
    frame = pd.DataFrame(clinic.visits(np.random.default_rng(3), 200))
    frame["dose"] = np.random.default_rng(4).normal(size=len(frame))
    frame.to_parquet(tmp_path / "log.parquet")
    given = {"states": MOVES, "cluster": "patient"}
    for formula in ("worse + age:worse", "worse + dose:worse"):
        fits = [up.fit_transitions(formula, x, **given) for x in (tmp_path / "log.parquet", frame)]
        np.testing.assert_allclose(fits[0].bse, fits[1].bse, rtol=1e-9)
        assert len(fits[0].log.chosen) == len(frame) and fits[0].fitted.n_clusters == 200


FIT = """
import json, re, sys, time
import upriver as up
path, options = sys.argv[1], json.loads(sys.argv[2])
steps = [(s, t) for s in range(50) for t in (max(s - 1, 0), min(s + 1, 49))]
moves = {"state": [s for s, _ in steps], "next_state": [t for _, t in steps], "up": [0, 1] * 50}
up.fit_transitions("up", {"state": [0, 0], "action": [0, 0], "next_state": [0, 1]}, states=moves)
begun = time.time(), time.process_time()
model = up.fit_transitions("up + action:up + age:up", path, states=moves, **options)
found = {"params": list(model.params), "bse": list(model.bse)}
found |= {"wall": time.time() - begun[0], "cpu": time.process_time() - begun[1]}
# ru_maxrss is at least the memory of the process that started this one
high = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
found |= {"peak": int(high) / 1024}
print(json.dumps(found))
"""


def write_log(path, n_rows):
    """50 states, 3 actions, ages of ten values, 100,000 persons."""
    duckdb.sql(f"""COPY (
        SELECT s AS state, a AS action, age, person, CASE WHEN chance < 1 / (1 + exp(0.5 - 0.3 * a
        + 0.1 * age)) THEN greatest(s - 1, 0) ELSE least(s + 1, 49) END AS next_state FROM (
            SELECT floor(random() * 50)::INTEGER AS s, floor(random() * 3)::INTEGER AS a,
            floor(random() * 10)::INTEGER AS age, random() AS chance,
            (i % 100000)::INTEGER AS person FROM range({n_rows}) AS rows(i)
        )) TO '{path}' (FORMAT parquet)""")


def measure(path, **options):
    command = [sys.executable, "-c", FIT, str(path), json.dumps(options)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(found.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_rows", "cluster", "peak"),
    [(2e7, None, 600), (1e7, "person", 2560), (1e8, None, 2048)],
)
def test_time_and_memory(tmp_path, n_rows, cluster, peak):
    """At most 4 s of CPU time and 600 MB for 2x10^7 rows, and 2 GB for 10^8.

    With clusters each row is kept, so 10^7 rows need 2.5 GB.
    """
    write_log(tmp_path / "log.parquet", int(n_rows))
    options = {} if cluster is None else {"cluster": cluster}
    found = measure(tmp_path / "log.parquet", **options)
    print(f"{n_rows:.0e} rows, cluster {cluster}: {found['cpu']:.1f} s of CPU time, "
          f"{found['wall']:.1f} s by the clock, {found['peak']:.0f} MB")  # fmt: skip
    assert found["peak"] <= peak
    np.testing.assert_allclose(found["params"], [0.5, -0.3, 0.1], atol=0.01)
    if n_rows == 2e7 and cluster is None:
        assert found["cpu"] <= 4.0
        import pyarrow.parquet as pq

        steps = [(s, t) for s in range(50) for t in (max(s - 1, 0), min(s + 1, 49))]
        moves = {"state": [s for s, _ in steps], "next_state": [t for _, t in steps],
                 "up": [0, 1] * 50}  # fmt: skip
        frame = pq.read_table(tmp_path / "log.parquet")
        model = up.fit_transitions("up + action:up + age:up", frame, states=moves)
        np.testing.assert_allclose(found["params"], model.params, rtol=1e-9)
        np.testing.assert_allclose(found["bse"], model.bse, rtol=1e-9)
