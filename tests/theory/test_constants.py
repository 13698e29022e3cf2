"""Constants that nothing but a second hand would miss: radii, bonuses, schedules and streams.

Each formula is written here again from the pages, with other letters and in another order, at
numbers that are no round ones. A power of k, a factor of d or a union that is lost shows.
"""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

import upriver as up
from tests.building import fit_counts
from upriver.mnl import model, online
from upriver.mnl.radii import Evidence
from upriver.play.checkpoints import spawn_generators
from upriver.tuning import choose

ln = np.log


def seen(k, h=7, s=11, u=4, d=13, big=1.3, lam=2.7):
    return Evidence(k, h, s, u, d, big, lam, np.nan)


@pytest.mark.parametrize("k, d, u, rounds", [*product([1, 9, 640], [5, 13], [2, 4], [1, 7])])
def test_the_radius_of_the_online_newton_step(k, d, u, rounds):
    kappa, length, delta, big, lam = 0.06, 1.9, 0.04, 1.3, 2.7
    t = k * rounds
    pieces = {
        "gathered": 8 * d / kappa * ln(1 + t * u * big**2 / (d * lam)),
        "peeled": (32 / 3 * big * length + 16 / kappa)
        * (ln(1 + np.ceil(2 * np.log2(t * u * big * length))) + 2 * ln(t) - ln(delta)),
        "rounding": 8**0.5,
        "start": 2 * lam * length**2,
    }
    radius = online.newton_radius(kappa, length, delta, rounds)
    assert radius(seen(k, u=u, d=d)) ** 2 == pytest.approx(sum(pieces.values()), rel=1e-12)


@pytest.mark.parametrize("k, d, h, rounds", [*product([1, 9, 640], [5, 13], [7, 24], [1, 7])])
def test_the_radius_of_online_mirror_descent(k, d, h, rounds):
    length, delta, big, lam, u = 1.9, 0.04, 1.3, 2.7, 4
    t = k * rounds
    alpha = ln(u) + 2 + 2 * big * length
    union = ln(h) + 0.5 * ln(1 + 2 * t) - ln(delta)  # over the H cores and all k
    chance = (3 * ln(u * t) + big * length) * (5 * lam / 4 + 4 * union) + 2
    gathered = 6**0.5 * 2 / 3 * alpha * d * ln(1 + 2 * t * big**2 / (d * lam))
    radius = online.mirror_radius(length, delta, rounds)
    expected = alpha * (chance + gathered) + lam * length**2
    assert radius(seen(k, h=h, d=d)) ** 2 == pytest.approx(expected, rel=1e-12)


def test_the_determinant_of_several_cores_is_the_largest():
    mdp = up.envs.riverswim(3, 2)
    phi = up.features.one_hot(mdp.task())
    begun = model.start(phi, 1.7, 2, with_products=False)
    assert model.logdet_ratio(phi, begun) == pytest.approx(0.0, abs=1e-12)
    more = begun.logdet.copy()
    more[1, 0] += 3.0
    assert model.logdet_ratio(phi, begun._replace(logdet=more)) == pytest.approx(3.0)
    assert model.logdet_ratio(phi, begun._replace(logdet=more[::-1].copy())) == pytest.approx(3.0)


def test_the_first_episode_of_epsilon_greedy_explores_with_epsilon():
    """epsilon k^-decay is epsilon at k = 1: with a steep decay it is all, and then nothing."""
    task = up.envs.riverswim(6, 40).task()
    agent, calm = (
        up.agents.EpsilonGreedy(task, up.features.one_hot(task), e, 60.0) for e in (1.0, 0.0)
    )
    for k, share in ((1, 0.5), (2, 0.0)):
        state = agent.init()._replace(k=k)
        tables = [x.plan(state, np.random.default_rng(0)).policy for x in (agent, calm)]
        assert np.mean(tables[0] != tables[1]) == pytest.approx(share, abs=0.15)


def test_the_environment_and_the_agent_draw_from_streams_of_their_own():
    for seed in (0, 1, 12345):
        environment, agent = spawn_generators(seed)
        theirs, ours = environment.random(2000), agent.random(2000)
        assert not np.intersect1d(theirs, ours).size
        assert abs(np.corrcoef(theirs, ours)[0, 1]) < 0.1
        again, _ = spawn_generators(seed)
        np.testing.assert_array_equal(again.random(2000), theirs)
    first, second = (spawn_generators(seed)[0].random(2000) for seed in (3, 4))
    assert not np.intersect1d(first, second).size


def test_a_p_value_by_simulation_counts_the_log_itself():
    """(1 + as bad) / (1 + drawn): never 0, so the level is kept however few logs are drawn."""
    mdp = up.envs.riverswim(8, 4)
    task = mdp.true_task
    counts = np.rint(400.0 * mdp.probability[0])
    counts[task.rows(3, 1)] = [300.0, 50.0, 50.0]  # one pair against the stream
    fitted = fit_counts(up.features.shared(task), counts)
    found = fitted.goodness_of_fit(replicates=49)
    judged = {(row["state"], row["action"]): row["p_value"] for row in found.rows}
    assert found.p_value == judged[3, task.actions[1]] == min(judged.values()) == 1 / 50
    counts[task.rows(3, 1)] = [36.0, 224.0, 140.0]  # nearly with it: now chance has a say
    fitted = fit_counts(up.features.shared(task), counts)
    found = [fitted.goodness_of_fit(49, seed).p_value for seed in (0, 0, 1, 2, 3)]
    assert found[0] == found[1] and len(set(found)) > 1


def test_a_point_ties_with_the_best_by_the_paired_difference(rng):
    """Runs of one seed share their luck: a steady loss of 0.1 is no tie, noise around 0 is one."""
    luck, noise = rng.standard_normal((2, 30))
    shifts = {0.0: np.zeros(30), 1.0: np.full(30, -0.1), 2.0: noise - noise.mean() - 0.05}
    candidates, samples = [], {}
    for radius, shift in shifts.items():
        runs = [SimpleNamespace(seed=i, setting=str(radius)) for i in range(30)]
        candidates.append(
            SimpleNamespace(env="e", agent="a", settings={"radius": radius}, runs=runs)
        )
        totals = 10.0 + luck + shift
        stored = SimpleNamespace(unit="episode", seeds=np.arange(30), totals=lambda _, x=totals: x)
        stored.select_seeds = lambda _, stored=stored: stored
        samples["e", "a", str(radius)] = stored
    points, _ = choose(candidates, samples)
    assert [(p.chosen, p.tied) for p in points] == [(True, False), (False, False), (False, True)]
