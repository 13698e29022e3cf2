"""Large state spaces: memory stays O(triples + H S), and time grows as triples times H."""

import numpy as np
import pytest

import upriver as up
from benchmarks import memory
from upriver.envs.riverswim import VARIANTS

KNOWN = {"shared": up.features.shared, "one_hot": up.features.one_hot}


@pytest.mark.parametrize("features", KNOWN)
def test_an_episode_holds_little_more_than_triples_and_values(features):
    n_states, horizon = 10_000, 50
    seen = memory.measure_episode(features, n_states, horizon, repeats=1)
    assert seen["triples"] == 4 * n_states - 2
    assert seen["policy"] == horizon * n_states  # one byte an action
    assert seen["v"] == 8 * (horizon + 1) * n_states
    one_number_per_action = 8 * horizon * n_states * 2  # what an array (H, S, A) would take
    assert seen["peak"] < seen["v"] + one_number_per_action
    assert seen["peak"] < 4.0 * memory.count_needed_bytes(seen, horizon, n_states)


def test_action_values_are_computed_when_asked_for():
    mdp = up.envs.riverswim(10_000, 50)
    plan = up.solve(mdp)
    held = [x for x in plan if isinstance(x, np.ndarray)]
    assert [x.shape for x in held] == [(50, 10_000), (51, 10_000)]
    q = plan.q(3)
    assert q.shape == (10_000, 2)
    assert np.allclose(q.max(axis=1), plan.v[3])


def test_no_run_keeps_an_array_of_all_steps_but_its_plan():
    """Between two episodes a run holds its own values, the plan's, and no third table."""
    import tracemalloc

    mdp = up.envs.riverswim(2_000, 50)
    agent = up.agents.UCRLMNL(mdp.task(), up.features.shared(mdp.task()))
    up.simulate(mdp, agent, 1)
    tracemalloc.start()
    up.simulate(mdp, agent, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    table = 8 * 51 * 2_000
    assert peak < 5 * table


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_long_river_is_a_short_one_repeated(variant):
    """Built from arrays at once; every interior state has the rows of any other."""
    mdp = up.envs.riverswim(1_000, 5, variant=variant)
    short = up.envs.riverswim(5, 5, variant=variant)
    for long_state, short_state in ((0, 0), (1, 1), (500, 2), (998, 3), (999, 4)):
        for action in (0, 1):
            rows, few = (
                mdp.true_task.rows(long_state, action),
                short.true_task.rows(short_state, action),
            )
            assert np.array_equal(
                mdp.true_task.successors[rows] - long_state,
                short.true_task.successors[few] - short_state,
            )
            assert np.array_equal(mdp.probability[0, rows], short.probability[0, few])


@pytest.mark.slow
def test_a_million_states_with_shared_features():
    seen = memory.measure_episode("shared", 10**6)
    assert seen["dimension"] <= 16
    assert seen["peak"] < 4.0 * memory.count_needed_bytes(seen, memory.HORIZON, 10**6)
    assert (seen["resident"] or 0) < 3 * 2**30
    assert seen["seconds"] < 30


@pytest.mark.slow
def test_a_hundred_thousand_states_one_hot():
    seen = memory.measure_episode("one_hot", 10**5)
    assert seen["dimension"] > 2 * 10**5
    assert seen["peak"] < 4.0 * memory.count_needed_bytes(seen, memory.HORIZON, 10**5)
    assert seen["seconds"] < 10


@pytest.mark.slow
@pytest.mark.parametrize(("features", "most"), [("shared", 6), ("one_hot", 5)])
def test_time_is_linear_in_triples_times_steps(features, most):
    sizes = 10 ** np.arange(3, most + 1)
    seen = [memory.measure_episode(features, int(n), repeats=5 if n < 10**6 else 3) for n in sizes]
    work = [memory.HORIZON * x["triples"] for x in seen]
    slope = np.polyfit(np.log(work), np.log([x["seconds"] for x in seen]), 1)[0]
    assert 0.85 < slope < 1.2, f"time grows as the {slope:.2f}th power of triples x H"


@pytest.mark.slow
def test_own_effects_cost_little_more_than_shared_features():
    """At 10^4 states at most 3 times the time and memory, and 10^5 states can be played."""
    time, space, *larger = memory.measure_pooled_features(quick=False)
    assert "S=10000," in time.case and "S=100000," in larger[0].case and len(larger) == 2
    assert time.ratio is not None and time.ratio < 3
    assert space.ratio is not None and space.ratio < 3
    print(f"pooled, 10^4 states: {time.ratio:.2f} of the time, {space.ratio:.2f} of the memory")
    seen = memory.measure_episode("pooled", 10**3, agent="UCRLMNLSE", support="local")
    assert seen["dimension"] == 8 + seen["triples"] - 2 * 10**3
