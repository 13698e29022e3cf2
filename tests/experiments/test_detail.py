"""What every tenth seed keeps for the report."""

import json

import numpy as np
import pytest

from upriver.experiments import run_one
from upriver.experiments.build import build, simulate_run
from upriver.experiments.detail import has_detail
from upriver.experiments.spec import TUNING_SEEDS, parse
from upriver.experiments.store import to_bytes


def one_run(agent="ucrl-mnl", seed=0, episodes=60, **numbers):
    experiment = parse(
        {
            "name": "one",
            "episodes": episodes,
            "seeds": {"first": 0, "count": 1},
            "environments": [{"name": "riverswim-4", "horizon": 9}],
            "agents": [{"agent": agent, **numbers}],
        }
    )
    (environment,), (agent,) = experiment.environments, experiment.agents
    return experiment.runs_of(environment, agent, range(seed, seed + 1))[0]


def detail(run):
    return json.loads(run_one(run).schema.metadata[b"detail"])


def test_the_detail_is_that_of_the_undisturbed_run():
    run = one_run()
    plain = simulate_run(run, *build(run)[:2])
    table, kept = run_one(run), detail(run)
    assert np.array_equal(table["return"], plain.returns)
    assert np.array_equal(kept["policy"], plain.plan.policy)
    assert np.allclose(kept["planned"], plain.plan.v[:-1], rtol=1e-3, atol=1e-12)
    assert np.allclose(kept["best"][0][0], plain.optimal_values[0], rtol=1e-3)


@pytest.mark.parametrize("agent", ["ucrl-mnl", "uc-matrix-rl", "psrl-mnl"])
def test_estimates_come_with_the_truth(agent):
    rows = detail(one_run(agent, support="local"))["triples"]
    by_pair: dict = {}
    for s, a, truth in zip(rows["s"], rows["a"], rows["truth"], strict=True):
        by_pair[s, a] = by_pair.get((s, a), 0.0) + truth
    assert all(abs(total - 1) < 1e-3 for total in by_pair.values())
    assert len(by_pair) == 8
    # swimming left goes one to the left, and the support named three places
    left = [
        (s, t, truth)
        for s, a, t, truth in zip(rows["s"], rows["a"], rows["next"], rows["truth"], strict=True)
        if a == 0 and s == 2
    ]
    assert left == [(2, 1, 1.0), (2, 2, 0.0), (2, 3, 0.0)]


@pytest.mark.parametrize(("agent", "settings"), [("ucrl-mnl", {"per_step": True}), ("rrl-mnl", {})])
def test_an_estimate_for_each_step_stands_beside_the_visits_of_that_step(agent, settings):
    """The estimates of the first step beside the visits of all steps would look far worse."""
    run = one_run(agent, support="local", episodes=30, **settings)
    rows = detail(run)["triples"]
    mdp, learner, _ = build(run)
    played = simulate_run(run, mdp, learner)
    prob = played.state.model.prob
    assert prob.shape[0] == 9 and rows["h"] == np.repeat(np.arange(9), prob.shape[1]).tolist()
    np.testing.assert_allclose(rows["estimate"], prob.ravel(), rtol=1e-3, atol=1e-6)
    count = np.array(rows["count"]).reshape(9, -1)
    indptr = learner.task.indptr[:-1]
    assert count[:, indptr].sum(axis=1).tolist() == [30] * 9  # each step once in each episode
    np.testing.assert_array_equal(count[:, indptr].sum(axis=0), np.ravel(played.visits))


def test_a_learner_without_an_estimate_has_none():
    assert detail(one_run("random"))["triples"] is None


def test_which_runs_keep_it_follows_from_the_run_alone():
    for seed, kept in ((0, True), (10, True), (3, False), (TUNING_SEEDS, False)):
        run = one_run(seed=seed)
        assert has_detail(run.seed, build(run)[1].task) is kept
        assert (b"detail" in (run_one(run).schema.metadata or {})) is kept


def test_the_file_holds_both_the_detail_and_the_spec(tmp_path):
    import pyarrow.parquet as pq

    run = one_run()
    path = tmp_path / "run.parquet"
    path.write_bytes(to_bytes(run, run_one(run)))
    found = pq.read_schema(path).metadata
    assert json.loads(found[b"upriver"])["run"]["agent"] == "ucrl-mnl"
    assert json.loads(found[b"detail"])["horizon"] == 9


@pytest.mark.parametrize("agent", ["ucbvi", "ucrl-mnl-se"])
def test_a_run_with_detail_is_what_simulate_plays_in_other_units(tmp_path, agent):
    """Rewards far outside [0, 1] that must be learned: they are converted once."""
    import upriver as up

    river = up.envs.riverswim(4, horizon=9)
    mdp = up.FiniteMDP.from_arrays(
        np.stack([[row_of(river, s, a) for a in range(2)] for s in range(4)]),
        161.0 * river.reward - 43.0,
        9,
        reward_range=(-43.0, 118.0),
    )
    mdp.save(tmp_path / "river.npz")
    spec = {
        "name": "units", "episodes": 40, "seeds": {"count": 2},
        "environments": [{"path": str(tmp_path / "river.npz")}],
        "agents": [{"agent": agent, "reward": "unknown"}],
    }  # fmt: skip
    for run in parse(spec).runs():
        built, learner, _ = build(run)
        whole = up.simulate(built, learner, 40, seed=run.seed)
        stored = run_one(run)
        assert np.array_equal(stored["return"].to_numpy(), whole.returns)
        assert np.array_equal(stored["value"].to_numpy(), whole.values)
        if has_detail(run.seed, learner.task):
            planned = np.array(detail(run)["planned"])
            assert np.allclose(planned, whole.plan.v[:-1], rtol=1e-3)
            assert planned.max() <= 118.0 * 9 + 1e-6


def row_of(mdp, s: int, a: int) -> np.ndarray:
    """(S,) the transition probabilities of a pair."""
    rows = mdp.true_task.rows_of(s, ("left", "right")[a])
    found = np.zeros(mdp.n_states)
    found[mdp.true_task.successors[rows]] = mdp.probability[0, rows]
    return found
