"""Tuning: the whole grid, on seeds of its own, and a choice that `run` accepts."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import upriver as up
from tests.experiments.sweeping import stored, sweep
from upriver.experiments import execute, load
from upriver.experiments.spec import TUNING_SEEDS, parse
from upriver.tuning import Point, grid_points, list_doubts, tune

TWO = parse(
    {
        "name": "two",
        "episodes": 6,
        "seeds": {"count": 3},
        "environments": [{"name": "riverswim-3"}, {"name": "riverswim-4", "episodes": 8}],
        "agents": [
            {
                "agent": "ucrl-mnl",
                "support": "local",
                "grid": {"radius": [0.0, 0.003, 0.1], "regularization": [1.0]},
            },
            {
                "agent": "ucrl-mnl",
                "label": "greedy",
                "radius": 0.0,
                "grid": {"regularization": [1]},
            },
            {"agent": "random"},
        ],
    }
)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    return folder, tune(TWO, folder, runs=4, jobs=1)


def by_hand(n_states: int, episodes: int, radius: float) -> np.ndarray:
    """Cumulative exact values over the tuning seeds, straight from `simulate`."""
    mdp = up.envs.riverswim(n_states)
    task = mdp.task("local")
    agent = up.agents.UCRLMNL(task, radius=radius, regularization=1.0)
    seeds = range(TUNING_SEEDS, TUNING_SEEDS + 4)
    return np.array([up.simulate(mdp, agent, episodes, s).values.sum() for s in seeds])


def test_the_best_mean_value_is_chosen_for_each_environment(tuned):
    _, result = tuned
    for n_states, episodes in ((3, 6), (4, 8)):
        place = f"riverswim-{n_states}"
        points = [p for p in result.points if (p.env, p.agent) == (place, "ucrl-mnl")]
        means = {r: by_hand(n_states, episodes, r).mean() for r in (0.0, 0.003, 0.1)}
        assert {p.settings["radius"]: p.mean for p in points} == pytest.approx(means)
        (best,) = [p for p in points if p.chosen]
        assert means[best.settings["radius"]] == max(means.values())
        assert all(p.low <= p.mean <= p.high and p.runs == 4 for p in points)
    assert not [p for p in result.points if p.agent == "random"]  # nothing to tune


def test_tuning_seeds_are_no_evaluation_seeds(tuned):
    folder, _ = tuned
    seeds = {int(p.stem.rpartition("-")[2]) for p in stored(folder)}
    assert seeds == set(range(TUNING_SEEDS, TUNING_SEEDS + 4))
    with pytest.raises(ValueError, match=r"seeds reach 1000000; .* for tuning"):
        TWO.with_seeds(1, first=TUNING_SEEDS)


def test_the_choice_is_an_experiment_that_run_accepts(tuned, tmp_path):
    folder, result = tuned
    experiment = load(folder / "tuned.toml")
    assert experiment.to_data() == result.experiment.to_data()
    assert {r.seed for r in experiment.runs()} == {0, 1, 2}
    chosen = {(p.env, p.agent): p.settings for p in result.points if p.chosen}
    for run in experiment.runs():
        for key, value in chosen.get((run.env, run.label), {}).items():
            assert run.settings[key] == value
    assert {r.settings["radius"] for r in experiment.runs() if r.label == "greedy"} == {0.0}
    assert execute(experiment, tmp_path, jobs=1).complete


def test_every_grid_point_is_kept_with_its_interval(tuned):
    folder, result = tuned
    with open(folder / "grid.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(result.points) == 2 * (3 + 1)
    for row, point in zip(rows, result.points, strict=True):
        assert json.loads(row["settings"]) == point.settings
        assert (float(row["mean"]), float(row["ci_low"])) == (point.mean, point.low)


def test_tuning_resumes(tuned):
    folder, result = tuned
    again = tune(TWO, folder, runs=4, jobs=1)
    assert again.outcome.ran == 0 and again.points == result.points
    more = tune(TWO, folder, runs=5, jobs=1)
    assert more.outcome.ran == len(result.points)


def test_the_declared_grid_is_taken_unless_the_entry_says_otherwise():
    plain, narrowed, fixed = sweep(
        [
            {"agent": "ucrl-mnl"},
            {"agent": "ucrl-mnl", "label": "narrowed", "grid": {"radius": [0.5]}},
            {"agent": "ucrl-mnl", "label": "fixed", "radius": 0.5},
        ],
        seeds=1,
    ).agents
    grid = up.agents.UCRLMNL.GRID
    assert len(grid_points(plain)) == len(grid["radius"]) * len(grid["regularization"])
    assert len(grid_points(narrowed)) == len(grid["regularization"])
    assert {p["radius"] for p in grid_points(narrowed)} == {0.5}
    assert [set(p) for p in grid_points(fixed)] == [{"regularization"}] * len(
        grid["regularization"]
    )


def points(best: float, axis=(0.0, 0.1, 1.0), tied=()) -> list[Point]:
    return [
        Point("river", "a", {"radius": r}, 4, 1.0, 0.9, 1.1, r == best, r in tied) for r in axis
    ]


def test_edges_and_ties_are_reported():
    assert list_doubts(points(0.1)) == []
    assert list_doubts(points(1.0)) == [
        "a on river: radius = 1 is the highest value tried: extend the grid"
    ]
    harmless, _ = list_doubts(points(1.0, tied=(0.1,)))
    assert (
        harmless == "a on river: radius = 1 is the highest value tried, and ties with 0.1 beside it"
    )
    (edge,) = list_doubts(points(0.0))
    assert "radius = 0 is the lowest value tried, which cannot be lowered" in edge
    (tie,) = list_doubts(points(0.1, tied=(1.0,)))
    assert tie.startswith("a on river: 1 of the 2 other points tie with the best")
    assert list_doubts(points(1.0, axis=(1.0,))) == []


def test_an_edge_that_matters_is_reported(tmp_path):
    """Radii far too large: the smaller one is better."""
    entry = {"agent": "ucrl-mnl", "support": "local", "regularization": 1.0}
    entry |= {"grid": {"radius": [0.1, 0.03]}}
    data = {**TWO.to_data(), "episodes": 40, "agents": [entry]}
    data["environments"] = [{"name": "riverswim-4"}]
    narrow = tune(parse(data), tmp_path, runs=6, jobs=1)
    assert any(
        "radius = 0.03 is the lowest value tried: extend the grid" in w for w in narrow.warnings
    )


def test_points_that_play_alike_tie(tmp_path):
    """Radii too small to change any plan give the same runs."""
    entry = {"agent": "ucrl-mnl", "grid": {"radius": [1e-12, 1e-11], "regularization": [1.0]}}
    result = tune(sweep([entry], seeds=1), tmp_path, runs=3, jobs=1)
    first, second = result.points
    assert first.chosen and second.tied and first.mean == second.mean
    assert any("1 of the 1 other points tie" in w for w in result.warnings)


def test_mistakes_are_sentences(tmp_path):
    with pytest.raises(ValueError, match="has a grid with a setting left to tune"):
        tune(sweep([{"agent": "random"}], seeds=1), tmp_path)
    with pytest.raises(ValueError, match="runs is 1; it must be a whole number of at least 2"):
        tune(TWO, tmp_path, runs=1)
    with pytest.raises(ValueError, match=r"grid.radius is \[\]; it should have at least 1 item"):
        tune(sweep([{"agent": "ucrl-mnl", "grid": {"radius": []}}], seeds=1), tmp_path)


def choice(scores: dict[float, np.ndarray]):
    """`choose` over radii with the scores of common seeds given."""
    from upriver.experiments.build import RunSpec
    from upriver.results.runs import Sample
    from upriver.tuning import GridPoint, choose

    candidates, samples = [], {}
    for radius, values in scores.items():
        seeds = np.arange(len(values))
        own = "e", "a", {}, "x", {"radius": radius}, None, None, None, 1
        runs = [RunSpec(*own, int(seed)) for seed in seeds]
        candidates.append(GridPoint("e", "a", {"radius": radius}, runs))
        column = np.asarray(values, float)[:, None]
        samples["e", "a", runs[0].setting] = Sample(
            "e", "a", runs[0].setting, seeds, column, column, np.ones_like(column)
        )
    return choose(candidates, samples)


def test_seeds_and_settings_of_an_earlier_search_do_not_count():
    """The folder has ten seeds of two points and a third point; the search has four seeds."""
    from upriver.experiments.build import RunSpec
    from upriver.results.runs import Sample
    from upriver.tuning import GridPoint, choose

    def point(radius: float, values: list[float]):
        own = "e", "a", {}, "x", {"radius": radius}, None, None, None, 1
        runs = [RunSpec(*own, seed) for seed in range(4)]
        column = np.array(values)[:, None]
        key = "e", "a", runs[0].setting
        sample = Sample(*key, np.arange(10), column, column, np.full((10, 1), 2.0))
        return GridPoint("e", "a", {"radius": radius}, runs), {key: sample}

    first, stored = point(0.1, [1.0] * 4 + [0.0] * 6)
    second, more = point(0.2, [0.9] * 4 + [9.0] * 6)
    _, unused = point(0.3, [50.0] * 10)
    points, _ = choose([first, second], stored | more | unused)
    assert [(p.settings["radius"], p.mean) for p in points if p.chosen] == [(0.1, 1.0)]
    assert len(points) == 2


def test_points_are_compared_on_common_seeds():
    """The seeds differ more than the points do: a difference seed by seed is still seen."""
    noise = np.random.default_rng(0).normal(0.0, 100.0, 30)
    wobble = np.random.default_rng(1).normal(0.0, 0.5, 30)
    points, _ = choice({0.1: noise + 1.0 + wobble, 0.2: noise, 0.3: noise + 1.0 + wobble[::-1]})
    by = {p.settings["radius"]: p for p in points}
    assert by[0.1].chosen or by[0.3].chosen
    assert not by[0.2].tied and by[0.2].high > by[0.1].low  # apart, though their intervals overlap
    assert by[0.1].tied != by[0.1].chosen  # wobble alone tells nothing


def test_a_better_mean_that_rests_on_one_seed_is_a_tie():
    scores = np.zeros(20)
    lucky = scores.copy()
    lucky[3] = 50.0
    points, warnings = choice({0.1: lucky, 0.2: scores})
    assert points[0].chosen and points[1].tied
    assert any("1 of the 1 other points tie" in w for w in warnings)
    assert points[0].low <= points[0].mean <= points[0].high


def test_an_agent_with_an_empty_grid_is_not_tuned(tmp_path):
    fixed = {"agent": "ucrl-mnl", "label": "fixed", "grid": {}}
    tuned = {"agent": "ucrl-mnl", "grid": {"radius": [0.0, 0.1], "regularization": [1.0]}}
    result = tune(sweep([fixed, tuned], seeds=1), tmp_path, runs=2, jobs=1)
    assert {p.agent for p in result.points} == {"ucrl-mnl"}


def test_what_at_fixes_is_not_tuned(tmp_path):
    entry = {"agent": "ucrl-mnl", "at": {"riverswim-3": {"radius": 5.0}}}
    entry |= {"grid": {"radius": [0.0, 0.003], "regularization": [1.0, 2.0]}}
    result = tune(parse({**TWO.to_data(), "agents": [entry]}), tmp_path, runs=2, jobs=1)
    tried = {(p.env, *p.settings) for p in result.points}
    assert tried == {("riverswim-3", "regularization"),
                     ("riverswim-4", "radius", "regularization")}  # fmt: skip
    at = {r.env: r.settings["radius"] for r in result.experiment.runs()}
    assert at["riverswim-3"] == 5.0 and at["riverswim-4"] < 1.0


def test_a_discounted_stream_is_tuned_by_regret():
    """The values of the steps are those of the states reached, which the better agent may leave."""
    from upriver.experiments.build import RunSpec
    from upriver.results.runs import Sample
    from upriver.tuning import GridPoint, choose

    candidates, samples = [], {}
    for radius, best, regret in ((0.1, 9.0, 2.0), (0.2, 4.0, 0.0)):
        runs = [RunSpec("e", "a", {}, "x", {"radius": radius}, None, None, None, 5, s)
                for s in range(3)]  # fmt: skip
        optimal = np.full((3, 5), best)
        optimal[:, 0] = 6.0
        key = "e", "a", runs[0].setting
        values = optimal - regret
        samples[key] = Sample(*key, np.arange(3), values, values, optimal, "step", 1.0)
        candidates.append(GridPoint("e", "a", {"radius": radius}, runs))
    points, _ = choose(candidates, samples)
    assert [p.settings["radius"] for p in points if p.chosen] == [0.2]
    assert [p.mean for p in points] == [-10.0, 0.0]
