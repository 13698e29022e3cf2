"""Lemma 1 on random MNL-MDPs: theta* in the confidence set for all k, printed radius and corrected.

Three families that differ in L_varphi only: 1, below 1, above 1. The radii use L_theta = ||theta*||
and kappa at theta*, the largest value that could be meant, which makes the test as hard as it gets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import upriver as up
from tests.diagnostics.problems import coverage_over, random_problem, softmax_rows
from upriver.agents.mnl_family import evidence
from upriver.diagnostics import Coverage, kappa_at

DELTA = 0.05
EPISODES = 40
NORMS = (0.3, 1.0, 3.0)


def radii_at_the_core(features, theta, agent):
    """Lemma 1 printed and corrected with kappa at theta*."""
    prob = softmax_rows(features.task, np.asarray(features.matrix @ theta.T).T)
    kappa, bound = kappa_at(features.task, prob).value, float(np.linalg.norm(theta))
    return {
        "printed": up.radii.lemma1_radius(kappa, bound, DELTA),
        "corrected": up.radii.corrected_radius(kappa, bound, DELTA),
    }


def family(n_problems: int, norm: float, theory: bool, seed: int = 0):
    """(mdp, features, agent): S = 3..5, U = 2..3, d = 2..3; lambda of the theorem or L_varphi^2."""
    rng = np.random.default_rng([seed, int(norm * 1000)])
    for _ in range(n_problems):
        n_states = int(rng.integers(3, 6))
        mdp, features, _ = random_problem(
            rng,
            n_states=n_states,
            max_successors=int(rng.integers(2, 4)),
            dimension=int(rng.integers(2, 4)),
            norm=norm,
        )
        lam = up.radii.theory_regularization(features) if theory else norm**2
        yield mdp, features, up.agents.UCRLMNL(features.task, features, 0.1, lam)


def measure(n_problems: int, norm: float, theory: bool) -> Coverage:
    return coverage_over(family(n_problems, norm, theory), radii_at_the_core, EPISODES, DELTA)


class Noise(NamedTuple):
    """(R, K) ||sum of noise varphi||_{A_k^-1}, and what the two lemmas allow it to be."""

    norm: Any
    printed: Any
    corrected: Any

    def share(self, allowed) -> float:
        return float((self.norm <= allowed).all(axis=1).mean())


def measure_noise(problems, n_episodes: int = EPISODES) -> Noise:
    """The martingale part of Lemma 1 by itself, without kappa and ||theta*||, which hide it."""
    # kappa -> 1 and L_theta -> 0 leave exactly the noise part of either radius
    printed = up.radii.lemma1_radius(1 - 1e-12, 1e-300, DELTA)
    corrected = up.radii.corrected_radius(1 - 1e-12, 1e-300, DELTA)
    rows = []
    for i, (mdp, features, agent) in enumerate(problems):
        task, rng = features.task, np.random.default_rng([i, 77])
        state = agent.init()
        row = []
        for _ in range(n_episodes):
            counts = state.model.counts[0]
            visits = np.repeat(np.add.reduceat(counts, task.indptr[:-1]), task.sizes)
            s = features.matrix.T @ (counts - visits * mdp.probability[0])
            gram = up.radii.gram_matrix(features, counts, state.model.regularization)
            about = evidence(features, state.k, state.model)
            row.append((np.sqrt(s @ np.linalg.solve(gram, s)), printed(about), corrected(about)))
            plan = agent.plan(state, rng)
            state = agent.update(state, plan, play(mdp, plan.policy, rng))
        rows.append(row)
    return Noise(*np.moveaxis(np.array(rows), 2, 0))


def play(mdp, policy, rng):
    """One episode, drawn the plain way."""
    task, s = mdp.true_task, int(mdp.initial_states[0])
    states, actions, rewards = [s], [], []
    for h in range(task.horizon):
        a = int(policy[h, s])
        rows = task.rows(s, a)
        p = mdp.probability[0, rows]
        s = int(rng.choice(task.successors[rows], p=p / p.sum()))
        states.append(s)
        actions.append(a)
        rewards.append(0.0)
    return up.agents.base.Episode(np.array(states), np.array(actions), np.array(rewards))


@pytest.mark.parametrize("theory", [True, False])
@pytest.mark.parametrize("norm", NORMS)
def test_corrected_radius_covers(norm, theory):
    seen = measure(40, norm, theory)
    assert seen.share("corrected") >= 1 - DELTA


@pytest.mark.parametrize("norm", NORMS)
def test_corrected_noise_bound_covers(norm):
    noise = measure_noise(family(15, norm, theory=False), 15)
    assert noise.share(noise.corrected) >= 1 - DELTA


def test_units_change_nothing_but_the_printed_radius():
    """varphi -> 3 varphi with lambda = L_varphi^2 is a change of units (E4)."""
    act: Any = up.radii.constant_radius(0.1)
    short, long = [], []
    for mdp, features, _ in family(3, 1.0, theory=False):
        scaled = up.Features(features.task, 3.0 * features.matrix)
        short.append((mdp, features, up.agents.UCRLMNL(features.task, features, act, 1.0)))
        long.append((mdp, scaled, up.agents.UCRLMNL(features.task, scaled, act, 9.0)))
    one, three = measure_noise(short, 8), measure_noise(long, 8)
    np.testing.assert_allclose(one.norm, three.norm, atol=1e-9)
    np.testing.assert_allclose(one.corrected, three.corrected)
    assert (np.abs(three.printed / one.printed - 1.0) > 0.1).all()


def wide_family(n_problems: int):
    """d = 30 and L_varphi = sqrt(2e), where the printed radius is least: lambda = L_varphi^2."""
    norm = float(np.sqrt(2 * np.e))
    rng = np.random.default_rng(30)
    for _ in range(n_problems):
        mdp, features, _ = random_problem(rng, n_states=6, dimension=30, norm=norm, reach=2.0)
        yield mdp, features, up.agents.UCRLMNL(features.task, features, 0.1, norm**2)


def test_printed_radius_fails_where_the_features_are_many_and_long():
    """Lemma 1 as printed asks nothing of lambda_k; here its radius is negative at k = 1 (E4)."""
    seen = coverage_over(wide_family(10), radii_at_the_core, 20, DELTA)
    assert (seen.radii["printed"][:, 0] < 0).all()
    assert seen.share("printed") == 0.0
    assert seen.share("corrected") >= 1 - DELTA


@pytest.mark.slow
@pytest.mark.parametrize("theory", [True, False])
@pytest.mark.parametrize("norm", NORMS)
def test_corrected_radius_covers_500_random_problems(norm, theory):
    seen = measure(500, norm, theory)
    ratio = {name: (seen.distance / radius).max() for name, radius in seen.radii.items()}
    print(
        f"L_varphi = {norm:g}, lambda {'of Theorem 1' if theory else '= L_varphi^2'}: "
        f"printed {seen.share('printed'):.1%} (largest ratio {ratio['printed']:.3g}), "
        f"corrected {seen.share('corrected'):.1%} ({ratio['corrected']:.3g})"
    )
    assert seen.share("corrected") >= 1 - DELTA


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_noise_bounds_on_100_random_problems(norm):
    noise = measure_noise(family(100, norm, theory=False))
    print(
        f"L_varphi = {norm:g}: noise within printed {noise.share(noise.printed):.1%}, "
        f"corrected {noise.share(noise.corrected):.1%}; largest norm {noise.norm.max():.3g}, "
        f"smallest allowance printed {noise.printed.min():.3g}, "
        f"corrected {noise.corrected.min():.3g}"
    )
    assert noise.share(noise.corrected) >= 1 - DELTA
