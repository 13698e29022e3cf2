"""Measure Lemmas 1 and 2 over runs: whether theta* was in the confidence set, and optimism.

`coverage` plays UCRL-MNL many times on a known MDP and compares its confidence set with the truth
before each episode. Lemma 1 (theta* in C_k for all k) holds for any way of acting, so several radii
are measured on the same runs. An agent plans on the unit scale, so nothing here depends on the
units of the rewards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from upriver import checks
from upriver.agents.base import Episode
from upriver.agents.mnl_family import evidence
from upriver.agents.ucrl_mnl import UCRLMNL
from upriver.checks import Array, check_kinds
from upriver.diagnostics.bounds import clip_kappa
from upriver.diagnostics.kappa import certify_kappa
from upriver.diagnostics.realizability import check_finite_horizon, theta_star
from upriver.display import Card, add_repr
from upriver.features import Features
from upriver.mdp import FiniteMDP
from upriver.mnl.radii import corrected_radius, lemma1_radius
from upriver.play.episodes import play_episodes
from upriver.play.learner import Learner


@add_repr
class Coverage(NamedTuple):
    """Measurements of R runs of K episodes before each episode; arrays are (R, K)."""

    delta: float
    distance: Array
    """||theta_hat_k - theta*||_{A_k}; the largest over the steps where theta* changes with them."""
    radii: Mapping[str, Array]
    """beta_k of each radius."""
    optimistic: Array
    """Whether the planned V_1(s_1) is at least V*_1(s_1)."""

    def card(self) -> Card:
        n_runs, n_episodes = self.distance.shape
        facts = {"runs": n_runs, "episodes": n_episodes, "delta": self.delta}
        return Card(facts, rows=self.table)

    def table(self) -> list[dict[str, str]]:
        """Return a row per radius and one of optimism: what, value and a note."""
        note = f"of runs, for all k; goal {1.0 - self.delta:.0%}"
        rows = [
            {"what": f"covers, {name}", "value": f"{self.share(name):.1%}", "note": note}
            for name in self.radii
        ]
        rate = f"{self.optimistic.mean():.1%}"
        return [*rows, {"what": "optimism rate", "value": rate, "note": "planned V_1 >= V*_1"}]

    def share(self, name: str) -> float:
        """Return the share of runs with theta* in C_k for all k; Lemma 1: at least 1 - delta."""
        radius = self.radii[checks.check_choice("name", name, self.radii)]
        return float((self.distance <= radius).all(axis=1).mean())


def distance(features: Features, model: Any, theta: Array) -> float:
    """Return ||theta_hat - theta||_A, A = lambda I + sum over visits and successors of x x^T.

    With g = theta_hat - theta it is sqrt(lambda |g|^2 + sum N(s, a) (varphi^T g)^2).
    """
    task = features.task
    gap = model.theta - theta
    along = np.asarray(features.matrix @ gap.T).T
    visits = np.repeat(task.by_pair(model.counts), task.sizes, axis=1)
    square = model.regularization * np.sum(gap**2, axis=1) + np.sum(visits * along**2, axis=1)
    return float(np.sqrt(square.max()))


@check_kinds
def coverage(
    mdp: FiniteMDP,
    features: Features,
    agent: UCRLMNL | None = None,
    radii: Mapping[str, Any] | None = None,
    n_episodes: int = 100,
    n_runs: int = 100,
    delta: float = 0.05,
    seed: int = 0,
) -> Coverage:
    """Play `n_runs` runs of `n_episodes` on `mdp`; measure how often C_k has theta*, and optimism.

    Parameters
    ----------
    features
        The feature map; theta* must exist.
    agent
        How to act; UCRL-MNL with default settings unless given.
    radii
        {name: radius} to measure; unless given, Lemma 1 as printed and corrected, with
        L_theta = ||theta*|| and the certified kappa of that ball, and the agent's own ("acting").
    delta
        The level of Lemma 1.
    seed
        The seed of the first run; the others follow.
    """
    n_runs = checks.positive_integer("n_runs", n_runs)
    n_episodes = checks.positive_integer("n_episodes", n_episodes)
    checks.open_fraction("delta", delta)
    check_finite_horizon(mdp, "coverage")
    agent = UCRLMNL(features.task, features) if agent is None else agent
    own, given = agent.features.matrix, features.matrix
    if own is not given and (own.shape != given.shape or abs(own - given).max() > 0.0):
        raise ValueError("agent has other features than those given; build it with the same")
    theta = theta_star(mdp, features)
    if len(theta) > 1 and not agent.per_step:
        raise ValueError("theta* changes with the step; use an agent with per_step=True")
    radii = lemma_radii(features, theta, agent, delta) if radii is None else radii
    for name, radius in radii.items():
        checks.check_function(f"radii[{name!r}]", radius, "evidence")
    runs = [
        measure_run(mdp, agent, theta, radii.values(), n_episodes, seed + i) for i in range(n_runs)
    ]
    distances, optimistic, *found = np.moveaxis(np.array(runs), 2, 0)
    return Coverage(delta, distances, dict(zip(radii, found, strict=True)), optimistic > 0.5)


def measure_run(
    mdp: FiniteMDP, agent: UCRLMNL, theta: Array, radii: Collection[Any], n_episodes: int, seed: int
) -> Array:
    """Return (K, 2 + number of radii) before each episode of a run, which is that of `simulate`:
    the distance to theta*, whether V_1 is optimistic, and each beta_k."""
    task, features, rows = agent.task, agent.features, []
    learner = Learner(agent, mdp, seed, None, draws=task.horizon + 1)

    def measure(episode: Episode, optimal: float) -> None:
        model, plan = learner.state.model, learner.last_plan.to_user_units(task)
        optimistic = plan.v[0, episode.states[0]] >= optimal - 1e-9 * task.units.unit
        known = evidence(features, len(rows) + 1, model)
        rows.append([
            distance(features, model, theta), optimistic, *(radius(known) for radius in radii)
        ])  # fmt: skip

    play_episodes(mdp, learner, n_episodes, measure)
    return np.array(rows, np.float64)


def lemma_radii(features: Features, theta: Array, agent: UCRLMNL, delta: float) -> dict[str, Any]:
    """Return Lemma 1 as printed and corrected with the constants of theta*, and the agent's own."""
    bound = max(float(np.linalg.norm(theta, axis=1).max()), 1e-12)
    certified = certify_kappa(features, bound)
    given = clip_kappa(0.25 if certified is None else certified), bound, delta
    lemmas = {"printed": lemma1_radius(*given), "corrected": corrected_radius(*given)}
    return {**lemmas, "acting": agent.radius}
