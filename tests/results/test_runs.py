"""A results folder read into samples: grouping, totals, times and units."""

from __future__ import annotations

import json

import numpy as np
import pytest
from studies.measured import to_samples

import upriver as up
from tests.results.conftest import make_sample
from upriver.experiments import execute
from upriver.experiments.spec import parse
from upriver.results.runs import (
    Sample,
    find_optimal_values,
    label_samples,
    natural_key,
    order_agents,
    read_results,
)


def test_samples_come_out_of_a_shuffled_table(rng):
    import pyarrow as pa

    rows = [
        (env, agent, "h", seed, k, 100.0 * seed + k)
        for env in ("x", "y")
        for agent in ("b", "a")
        for seed in (4, 2)
        for k in (1, 2, 3)
    ]
    rng.shuffle(rows)
    env, agent, setting, seed, episode, number = zip(*rows, strict=True)
    columns = {
        "env": env,
        "agent": agent,
        "setting": setting,
        "seed": np.array(seed, dtype=int),
        "episode": np.array(episode, dtype=int),
        "return": np.array(number, dtype=float),
        "value": np.array(number, dtype=float) - 1,
        "optimal_value": np.full(len(rows), 500.0),
        "uniform_value": np.full(len(rows), 7.0),
    }
    table = pa.table(columns)
    found = to_samples(table)
    assert [(s.env, s.agent) for s in found] == [("x", "a"), ("x", "b"), ("y", "a"), ("y", "b")]
    for s in found:
        assert list(s.seeds) == [2, 4]
        np.testing.assert_array_equal(s.returns, [[201, 202, 203], [401, 402, 403]])
        np.testing.assert_array_equal(s.regret, 501.0 - s.returns)
        assert s.uniform_value == 7.0
    with pytest.raises(ValueError, match="is incomplete"):
        to_samples(table.slice(1))


def test_both_ways_to_samples_agree(sweep):
    """Environments of different lengths, so that a wrong order of groups mixes runs."""
    direct, from_table = read_results(sweep).samples, to_samples(up.load_runs(sweep))
    assert [s[:3] for s in direct] == [s[:3] for s in from_table]
    for a, b in zip(direct, from_table, strict=True):
        for x, y in zip(a[3:7], b[3:7], strict=True):
            np.testing.assert_array_equal(x, y)


def test_episodes_lost_are_counted_in_mean_optimal_values():
    # the initial state is random: some episodes are worth 1 at best, some 3
    best = np.array([[1.0, 3.0, 3.0, 1.0]])
    values = np.array([[1.0, 1.0, 3.0, 0.0]])
    one = Sample("river", "a", "s", np.arange(1), values, values, best)
    assert one.totals("regret") == pytest.approx([3.0])
    assert one.totals("episodes lost") == pytest.approx([1.5])
    assert one.value_shares() == pytest.approx([5 / 8])
    with pytest.raises(ValueError, match="quantity is 'gain'"):
        one.totals("gain")


def test_more_regret_is_more_loss_also_where_values_are_negative():
    good, bad = make_sample([[-12.0] * 4], best=-10.0), make_sample([[-40.0] * 4], best=-10.0)
    assert good.totals("episodes lost") == pytest.approx([0.8])  # in episodes of size 10
    assert bad.totals("episodes lost") == pytest.approx([12.0])
    assert (good.value_shares(), bad.value_shares()) == (pytest.approx([0.8]), pytest.approx([-2]))
    assert make_sample([[-10.0]], best=-10.0).value_shares() == [1.0]
    assert order_agents([bad, good], ["bad", "good"]) == ["good", "bad"]


@pytest.mark.parametrize("best", [[[0.0, 0.0]] * 2, [[3.0, 1.0], [-3.0, -1.0]], [[5e-16] * 2] * 2])
def test_where_the_optimum_is_zero_regret_is_measured_by_the_way_from_uniform_play(best):
    """Also where it is zero but for rounding, and positive in one run and negative in another."""
    best = np.array(best)
    runs = Sample("river", "a", "s", np.arange(2), best, best - [[1.0], [4.0]], best)
    runs = runs._replace(uniform_value=-2.0)
    assert runs.totals("episodes lost") == pytest.approx([1.0, 4.0])
    assert runs.value_shares() == pytest.approx([0.5, -1.0])


def test_regret_has_no_scale_where_uniform_play_attains_an_optimum_of_zero():
    """All policies are worth the same there, so that the order is that of the other problems."""
    idle = make_sample([[0.0, 0.0]], best=0.0)
    with np.errstate(all="raise"):
        assert np.isnan(idle.totals("episodes lost")).all() and np.isnan(idle.value_shares()).all()
    assert not idle.stuck().any()
    others = [make_sample([[v]], agent=a) for a, v in (("x", 3.0), ("y", 9.0))]
    samples = [idle._replace(agent="x"), idle._replace(agent="y"), *others]
    assert order_agents(samples, [s.agent for s in samples]) == ["y", "x"]


def test_a_stuck_run_ends_below_its_fellows():
    """Uniform play is worth 4 and the optimum 10, so that 0.95 is 9.7 and 0.02 is 0.12."""
    values = np.full((7, 20), 9.9)
    values[1, :18] = 4.0  # a late start
    values[2, -2:] = [9.5, 9.91]  # a mean of 9.705
    values[3, -2:] = [9.5, 9.89]  # 9.695
    values[4, -2:] = 4.0
    runs = make_sample(values)._replace(uniform_value=4.0)
    assert runs.stuck().tolist() == [False, False, False, True, True, False, False]
    # an agent that always ends at 9.4 is not stuck, nor is its run at 9.3, but one at 9.27 is
    low = np.full((5, 1), 9.4)
    low[3:, 0] = 9.3, 9.27
    low = make_sample(low)._replace(uniform_value=4.0)
    assert low.stuck().tolist() == [False, False, False, False, True]
    # with uniform play worth nothing, 9.6 is above 95% of the optimum
    assert not make_sample([[10.0], [10.0], [9.6]]).stuck().any()
    assert make_sample([[10.0], [10.0], [9.6]])._replace(uniform_value=4.0).stuck()[2]


def test_a_discounted_stream_is_measured_at_its_start():
    """The states that it reaches may all be worth less than uniform play is at the start."""
    best = np.full((3, 20), 1.0)
    best[:, 0] = 5.0
    values = best - 0.01
    values[2] -= 0.2  # more than 0.05 of the way from 3 to 5
    runs = Sample("river", "a", "s", np.arange(3), values, values, best, "step", 3.0)
    assert runs.stuck().tolist() == [False, False, True]
    runs.values[2] += 0.15
    assert not runs.stuck().any()


def test_rounding_is_no_way_from_uniform_play_to_the_optimum():
    runs = make_sample([[0.3], [0.3], [0.3 - 5e-17]], best=0.1 + 0.2)
    assert not runs._replace(uniform_value=0.3).stuck().any()


def test_stuck_runs_do_not_depend_on_the_units_of_rewards(rng):
    values = 10.0 - rng.exponential(0.5, size=(40, 20))
    runs = make_sample(values)._replace(uniform_value=4.0)
    assert 0 < runs.stuck().sum() < 20
    for factor, shift in ((1.0, -50.0), (0.01, 3.0), (100.0, -1e4)):
        other = make_sample(factor * values + shift, best=factor * 10.0 + shift)
        other = other._replace(uniform_value=factor * 4.0 + shift)
        assert (other.stuck() == runs.stuck()).all()
    assert not runs._replace(uniform_value=10.0).stuck().any()  # uniform play is optimal


def test_the_value_of_uniform_play_is_stored(sweep, tmp_path):
    """It is the mean value of the random agent; with an infinite horizon, of its one policy."""
    found = {(s.env, s.agent): s for s in read_results(sweep).samples}
    sample = found["river-10", "random"]
    assert sample.uniform_value == found["river-10", "optimal"].uniform_value
    table = up.envs.riverswim(10, 12)
    exact = up.evaluate(table, np.full((10, 2), 0.5))[0, table.initial_states]
    assert sample.uniform_value == pytest.approx(table.initial_probability @ exact)
    assert sample.uniform_value == pytest.approx(sample.values.mean(), rel=0.2)
    spec = {
        "name": "streams", "episodes": 2, "seeds": {"count": 1},
        "environments": [{"name": "riverswim-4", "discount": d} for d in (0.9, 1)],
        "agents": [{"agent": "random"}],
    }  # fmt: skip
    assert execute(parse(spec), tmp_path, jobs=1).complete
    discounted, average = (s.uniform_value for s in read_results(tmp_path).samples)
    river, even = up.envs.riverswim(4), np.full((4, 2), 0.5)
    assert average == pytest.approx(up.evaluate(river, even, average=True).gain)
    start = up.evaluate(river, even, discount=0.9).v[river.initial_states]
    assert discounted == pytest.approx(river.initial_probability @ start)


def test_seeds_can_be_selected():
    runs = make_sample([[1.0], [2.0], [3.0]])._replace(unit="step")
    kept = runs.select_seeds([2, 0, 99])
    assert kept.seeds.tolist() == [0, 2] and kept.values.tolist() == [[1.0], [3.0]]
    assert kept.unit == "step"


def test_infinite_horizon_runs_are_known_by_their_file_not_by_their_name(tmp_path):
    """A label hides the discount, and a saved MDP has no discount in its specification."""
    up.envs.riverswim(4).infinite_horizon(0.9).save(tmp_path / "saved.npz")
    spec = {
        "name": "units",
        "episodes": 20,
        "seeds": {"count": 1},
        "environments": [
            {"name": "riverswim-4", "discount": 0.9, "label": "river"},
            {"path": str(tmp_path / "saved.npz"), "label": "file"},
            {"name": "riverswim-4", "label": "river-discount-0.9"},
        ],
        "agents": [{"agent": "random"}],
    }
    assert execute(parse(spec), tmp_path / "out", jobs=1).complete
    units = {s.env: s.unit for s in read_results(tmp_path / "out").samples}
    assert units == {"river": "step", "file": "step", "river-discount-0.9": "episode"}


def test_names_are_ordered_by_their_numbers():
    names = ["river-10", "river-6", "grid", "river-6-2"]
    assert sorted(names, key=natural_key) == ["grid", "river-6", "river-6-2", "river-10"]


def test_settings_of_one_agent_are_told_apart():
    samples = [make_sample([[float(i)]], setting=f"{i}") for i in range(8)]
    assert label_samples(samples)[2] == "a [2]"
    assert label_samples([samples[0]]) == ["a"]


def test_agents_are_ordered_by_regret_and_the_optimum_is_first():
    samples = [make_sample([[v]], agent=a) for a, v in (("x", 3.0), ("Optimal", 1.0), ("y", 9.0))]
    assert order_agents(samples, [s.agent for s in samples]) == ["Optimal", "y", "x"]


def test_failures_and_damaged_records_are_listed(tmp_path):
    from upriver.results.runs import describe_failures, read_failures

    (tmp_path / "_failed").mkdir()
    run = {"env": "river", "label": "mine", "seed": 7}
    (tmp_path / "_failed" / "a.json").write_text(json.dumps({"error": "no", "run": run}))
    (tmp_path / "_failed" / "b.json").write_text("{")
    failures = read_failures(tmp_path)
    assert failures[0] == {"env": "river", "agent": "mine", "seed": 7, "error": "no"}
    assert "b.json is damaged" in failures[1]["error"]
    assert describe_failures(failures) == "2 runs failed, first river, mine, seed 7: no"


def discounted(values, best, agent="a"):
    """A stream of 4 steps: its start is worth 6 and the states after it `best`."""
    optimal = np.full((1, 4), best)
    optimal[:, 0] = 6.0
    values = optimal - values
    return Sample("river", agent, f"{best}", np.arange(1), values, values, optimal, "step", 1.0)


def test_what_a_stream_loses_is_measured_by_its_start():
    poor, rich = discounted(1.5, best=0.5), discounted(1.5, best=50.0)
    assert poor.totals("episodes lost") == rich.totals("episodes lost") == pytest.approx([1.0])


def test_a_discounted_stream_has_no_line_of_the_optimum():
    """Its optimal values are those of the states that one agent has reached."""
    episodes = make_sample(np.ones((2, 3)), env="episodes")
    average = make_sample(np.ones((2, 3)), env="average")._replace(unit="step")
    found = find_optimal_values([discounted(1.0, 4.0), discounted(1.0, 8.0), episodes, average])
    assert found == {"episodes": 10.0, "average": 10.0}


def test_a_name_of_two_problems_has_no_line_of_the_optimum():
    short, long = (
        make_sample(np.ones((2, k)), env="river", best=best)._replace(about={"run": {"digest": d}})
        for k, best, d in ((3, 5.0, "a" * 32), (4, 6.4, "b" * 32))
    )
    assert find_optimal_values([short]) == {"river": 5.0}
    assert find_optimal_values([short, long]) == {}


def test_rounding_is_no_regret():
    runs = make_sample([[10.0 - 2e-15, 10.0 + 2e-15, 9.0]])
    assert runs.regret.tolist() == [[0.0, 0.0, 1.0]]
