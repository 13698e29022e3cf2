"""A small version of each experiment of the findings page: its numbers and what is claimed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from studies.environments import directions
from studies.pages import over_draws

import upriver as up
from studies import FINDINGS, Cell, find, load_study, measure, slope_of, solved_range
from upriver.experiments import execute
from upriver.experiments.spec import Experiment, parse
from upriver.results import statistics
from upriver.results.runs import Sample, load_runs
from upriver.results.tables import to_csv


def smaller(name: str, environments=None, agents=None, seeds: int = 4, episodes=None) -> Experiment:
    """The catalogue's experiment with some of its environments, agents and seeds."""
    data = load_study(name).to_data()
    places = [e.full_label for e in load_study(name).environments]
    keep = [i for i, place in enumerate(places) if environments is None or place in environments]
    data["environments"] = [data["environments"][i] for i in keep]
    data["agents"] = [a for a in data["agents"] if agents is None or a["label"] in agents]
    for agent in data["agents"]:
        at = agent.get("at", {})
        agent["at"] = {place: at[place] for place in at if places.index(place) in keep}
    data["seeds"] = {"count": seeds}
    for entry in [data, *data["environments"]] if episodes else ():
        entry["episodes"] = episodes
    return parse(data, name)


def found(folder: Path, spec: Experiment):
    assert execute(spec, folder, jobs=1).complete
    result = find(spec, load_runs(folder))
    for figure in result.figures.values():
        assert figure.axes
    return result, {(c.env, c.agent): c for c in result.cells}


SLOW = pytest.mark.slow
LISTED = [pytest.param(x, marks=SLOW) if x == "kappa" else x for x in FINDINGS]  # many problems


@pytest.mark.parametrize("name", LISTED)
def test_every_study_has_a_specification(name):
    spec = load_study(name)
    assert spec.name == name
    assert all(run.support in ("known", "local", "full", None) for run in spec.runs())


TUNED = ("equal-information", "scaling", "unknown-reward", "default-agent")


@pytest.mark.parametrize("name", TUNED)
def test_tuned_numbers_are_of_their_grid_or_steps_beyond_its_edge(name):
    """The grids were extended, step by step, where the best point lay on their edge."""
    for agent in load_study(name).agents:
        for numbers in agent.at.values():
            for key, axis in agent.grid.items():
                assert numbers[key] in walked(sorted(axis)), (agent.full_label, key, numbers[key])


def walked(axis: list[float], steps: int = 6) -> list[float]:
    """The values of a grid, and steps beyond its two ends in the ratio of its last step."""
    found = list(axis)
    for value, beside in (axis[:2], axis[::-1][:2]) if len(axis) > 1 else ():
        for _ in range(steps if value else 0):
            step = value * (value / beside if beside else 2.0)
            value, beside = float(f"{step:.3g}"), value
            found.append(value)
    return found


def test_scaling_the_shared_model_loses_as_little_on_a_longer_river(tmp_path):
    agents = ["UCRL-MNL shared", "UCRL-MNL one-hot", "Greedy shared", "UCRL2"]
    spec = smaller("scaling", ["riverswim-6", "riverswim-20"], agents)
    result, at = found(tmp_path, spec)
    for env in ("riverswim-6", "riverswim-20"):
        assert at[env, "UCRL-MNL shared"].lost <= 3.0
    for agent in ("UCRL-MNL one-hot", "UCRL2"):
        assert at["riverswim-20", agent].lost > 1.5 * at["riverswim-6", agent].lost
        assert at["riverswim-20", agent].lost > 2.0 * at["riverswim-20", "UCRL-MNL shared"].lost
    assert at["riverswim-20", "Greedy shared"].share < 0.1
    assert "S = 20" in result.table and list(result.figures) == ["scaling"]


def test_equal_information_helps_the_baselines(tmp_path):
    agents = [f"{a}-{s}" for a in ("UCBVI", "UCRL-MNL one-hot") for s in ("known", "full")]
    result, at = found(tmp_path, smaller("equal-information", ["riverswim-10"], agents))
    for agent in ("UCBVI", "UCRL-MNL one-hot"):
        assert at["riverswim-10", f"{agent}-known"].lost < at["riverswim-10", f"{agent}-full"].lost
    assert [axes.get_title() for axes in result.figures["equal-information"].axes] == [
        "support known",
        "support full",
    ]


def test_how_much_bonus_the_exact_maximum_bears_more_of_it(tmp_path):
    scales = ("0.0001", "0.01", "0.1")
    agents = ["greedy one-hot"] + [
        f"{o} one-hot {c}" for o in ("closed-form", "exact-maximum") for c in scales
    ]
    result, at = found(tmp_path, smaller("how-much-bonus", ["riverswim-10"], agents, seeds=2))
    share = {agent: cell.share for (_, agent), cell in at.items()}
    assert share["closed-form one-hot 0.0001"] >= 0.9 > share["closed-form one-hot 0.01"]
    assert share["exact-maximum one-hot 0.1"] >= 0.9  # three decades above the closed form's
    assert "| riverswim-10 | one-hot | exact maximum (4) | 1e-04 | 1e-01 | 3.0 |" in result.table
    assert list(result.figures) == ["how-much-bonus-riverswim-10-one-hot"]


def test_how_much_bonus_the_exact_maximum_needs_more_of_it(tmp_path):
    agents = ["greedy shared"] + [
        f"{o} shared {c}" for o in ("closed-form", "exact-maximum") for c in ("0.001", "1")
    ]
    _, at = found(tmp_path, smaller("how-much-bonus", ["deep-sea-10"], agents, seeds=2))
    share = {agent: cell.share for (_, agent), cell in at.items()}
    assert share["closed-form shared 0.001"] >= 0.9 > share["closed-form shared 1"]
    assert share["exact-maximum shared 1"] >= 0.9 > share["exact-maximum shared 0.001"]
    assert share["greedy shared"] < 0.2


def test_misspecification_costs_the_model_with_few_numbers(tmp_path):
    places = [f"distance {d} draw {i}" for d in ("0", "0.8") for i in range(600, 606)]
    agents = ["UCRL-MNL-SE shared", "UCRL-MNL-SE one-hot"]
    result, at = found(tmp_path, smaller("misspecification", places, agents, 1))

    def lost(agent, distance):
        return np.mean(
            [c.lost for (e, a), c in at.items() if a == agent and f"ce {distance} " in e]
        )

    assert lost(agents[0], "0") < lost(agents[1], "0")
    assert lost(agents[0], "0.8") > 1.3 * lost(agents[1], "0.8")
    assert "distance 0.8" in result.table


def test_regret_rate_is_sublinear_and_slower_for_a_smaller_bonus(tmp_path):
    agents = ["UCRL-MNL c 0.001", "UCRL-MNL c 0.03"]
    spec = smaller("regret-rate", None, agents, seeds=3, episodes=3000)
    samples = {m.cell.agent: m.sample for m in run_and_measure(tmp_path, spec)}
    flat, steep = (slope_of(samples[a], 300)[0] for a in agents)
    assert 0.0 <= flat < steep < 1.0


def test_unknown_rewards_cost_little(tmp_path):
    agents = [f"UCRL-MNL {f} {r}" for f in ("shared", "one-hot") for r in ("known", "unknown")]
    result, at = found(tmp_path, smaller("unknown-reward", None, agents, seeds=5))
    for env in ("deep-sea-10", "riverswim-10"):
        assert at[env, "UCRL-MNL shared unknown"].share >= 0.8
        assert at[env, "UCRL-MNL one-hot unknown"].share >= 0.8
    assert "riverswim-10, unknown" in result.table


def test_exploration_is_needed_where_the_greedy_learner_fails(tmp_path):
    agents = ["UCRL-MNL shared", "UCRL-MNL one-hot", "Greedy shared", "Greedy one-hot"]
    _, at = found(tmp_path, smaller("exploration-needed", None, agents, seeds=5))
    for env in ("deep-sea-10", "riverswim-20"):
        for features in ("shared", "one-hot"):
            assert at[env, f"UCRL-MNL {features}"].share >= 0.9
            assert at[env, f"Greedy {features}"].share < 0.2
    assert at["river-grid-6", "Greedy one-hot"].share < 0.6
    assert at["river-grid-6", "Greedy shared"].share > 0.9  # where no bonus is needed


def run_and_measure(folder, spec):
    execute(spec, folder, jobs=1)
    return measure(spec, load_runs(folder))


def test_cells_are_the_samples_own_numbers(tmp_path):
    spec = smaller("exploration-needed", ["riverswim-20"], ["UCRL-MNL shared"], 3, episodes=20)
    execute(spec.with_seeds(5), tmp_path, jobs=1)  # more than is asked for
    (m,) = measure(spec, load_runs(tmp_path))
    assert m.sample.seeds.tolist() == [0, 1, 2]
    assert m.cell.runs == 3 and m.cell.episodes == 20
    best = up.solve(up.envs.riverswim(20)).v[0, 0]
    assert m.cell.lost == pytest.approx((20 * best - m.sample.values.sum(axis=1)).mean() / best)
    assert m.cell.share == pytest.approx(1.0 - m.cell.lost / 20)
    assert m.cell.share_low <= m.cell.share <= m.cell.share_high
    assert to_csv(Cell._fields, [m.cell]).splitlines()[0].split(",") == list(Cell._fields)
    with pytest.raises(ValueError, match="UCRL-MNL shared on riverswim-20 lacks seed 5"):
        measure(spec.with_seeds(6), load_runs(tmp_path))


def test_a_known_power_of_k_is_found():
    k = np.arange(1, 2001)
    regret = np.diff(np.array([[3.0], [5.0]]) * k**0.5, axis=1, prepend=0.0)
    sample = Sample("e", "a", "s", np.arange(2), -regret, -regret, np.zeros_like(regret))
    slope, low, high = slope_of(sample, 200)
    assert slope == pytest.approx(0.5) and low == pytest.approx(0.5) and high == pytest.approx(0.5)


def test_the_solved_range_is_one_stretch():
    scales = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    assert solved_range(scales, [0.95, 0.2, 0.95, 0.9, 0.3]) == (1e-2, 1e-1)
    assert solved_range(scales, [0.0] * 5) is None


def test_a_river_is_exactly_a_mixture_of_its_directions():
    mdp = up.envs.riverswim(9)
    task = mdp.task("local")
    x = directions(task).matrix
    assert x.shape[1] == 14
    np.testing.assert_array_equal(x.sum(axis=1), 1.0)
    true = dict(zip(zip(*mdp.true_task.triples, strict=True), mdp.probability[0], strict=True))
    prob = [true.get(triple, 0.0) for triple in zip(*task.triples, strict=True)]
    theta = np.linalg.lstsq(x, prob, rcond=None)[0]
    np.testing.assert_allclose(x @ theta, prob, atol=1e-12)


def test_the_interval_of_a_slope_resamples_runs(rng):
    k = np.arange(1, 1001)
    powers = rng.uniform(0.3, 0.7, size=8)
    regret = np.diff(np.array([k**p for p in powers]), axis=1, prepend=0.0)
    sample = Sample("e", "a", "s", np.arange(8), -regret, -regret, np.zeros_like(regret))
    at = np.unique(np.round(np.geomspace(100, 1000, 50)).astype(int))

    def slope(rows):
        total = np.mean([np.cumsum(regret[i])[at - 1] for i in rows], axis=0)
        return np.polyfit(np.log(at), np.log(total), 1)[0]

    resampled = np.array([slope(rows) for rows in statistics.resample_positions(8, 1000)])
    without = np.array([slope([j for j in range(8) if j != i]) for i in range(8)])
    pulls = 7 * (without.mean() - without)
    expected = statistics.bca_interval(resampled, slope(range(8)), pulls)
    found = slope_of(sample, 100)
    assert found[0] == pytest.approx(slope(range(8)))
    assert found[1:] == pytest.approx(expected)
    assert found[1] < found[0] < found[2]


def test_drawn_problems_are_resampled_and_not_their_runs():
    draws = [np.array([1.0, 3.0]), np.array([10.0, 10.0, 10.0])]
    mean, low, high = over_draws(draws)
    assert mean == 6.0  # of the means 2 and 10, not of five runs
    assert (low, high) == statistics.bootstrap_interval(np.array([2.0, 10.0]))
    alone = np.array([1.0, 3.0, 5.0])
    assert over_draws([alone]) == (3.0, *statistics.bootstrap_interval(alone))


def test_learners_of_a_stream_are_measured_by_the_best_tuned_one(tmp_path):
    agents = ["UCRL-MNL-SE", "UCRL2", "UCMNLK (tuned)", "UCRL2 (tuned)"]
    spec = smaller("streams", ["riverswim-6-discount-1"], agents, seeds=3, episodes=400)
    result, at = found(tmp_path, spec)
    best = min(at["riverswim-6-discount-1", a].lost for a in agents[2:])
    close = at["riverswim-6-discount-1", agents[0]].lost <= 1.25 * best
    assert f"| {'yes' if close else 'no'} |" in result.table
    (axes,) = result.figures["streams"].axes
    assert axes.get_xlabel() == "step"
    labels = [line.get_label() for line in axes.get_lines()]
    assert sorted(labels) == sorted([agents[0], *agents[2:]])


def test_pooled_features_lose_little_on_an_uneven_river(tmp_path):
    places = [f"S 20 distance {d} draw 0" for d in ("0", "0.1")]
    agents = ["UCRL-MNL-SE pooled", "UCRL-MNL-SE one-hot"]
    result, at = found(tmp_path, smaller("uneven-rivers", places, agents, seeds=3))
    for place in places:
        assert at[place, "UCRL-MNL-SE pooled"].lost <= 3.0
        assert at[place, "UCRL-MNL-SE one-hot"].lost > 2 * at[place, "UCRL-MNL-SE pooled"].lost
    assert (
        "more than UCRL-MNL-SE pooled" in result.table
        and "Problems of each kind: 1." in result.table
    )
    assert list(result.figures) == ["uneven-rivers"]
