"""The lemmas, measured: is theta* in the confidence set, are plans optimistic, what clips and ties.

`coverage` plays UCRL-MNL many times on a known MDP and looks on. Lemma 1 (theta* in C_k for all k)
and the elliptical potential hold for any way of acting, so several radii are judged on the same
runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from upriver.agents.mnl_family import State, evidence
from upriver.agents.protocol import Episode
from upriver.agents.ucrl_mnl import UCRLMNL
from upriver.checks import Array, positive_integer
from upriver.diagnostics.bounds import potential_bound, usable
from upriver.diagnostics.curvature import kappa_over_ball
from upriver.diagnostics.realizability import theta_star
from upriver.display import Card, displayed
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task
from upriver.mnl.radii import corrected_radius, lemma1_radius
from upriver.planning import Plan, clip_v, clip_v_remaining, solve
from upriver.planning import optimism as optimistic
from upriver.play.simulate import simulate

AT_THE_STEPS_LEFT = frozenset(
    {optimistic.half_range, optimistic.gradient, optimistic.pessimistic}
)  # plans that clip V at the steps left; the others clip it at H


@displayed
@dataclass(frozen=True, eq=False, repr=False)
class Coverage:
    """R runs of K episodes, looked at before each episode; arrays are (R, K)."""

    delta: float
    distance: Array
    """||theta_hat_k - theta*||_{A_k}; the largest over the cores where there are several."""
    radii: Mapping[str, Array]
    """beta_k of each radius judged."""
    optimistic: Array
    """Whether the planned V_1(s_1) is at least V*_1(s_1)."""
    clipped: Array
    """Share of (h, s) whose V is at the cap."""
    tied: Array
    """Share of s where two actions have exactly the same, largest Q; episode k looks at one step,
    each in its turn."""
    potential: Array
    """Sum over the steps so far of max ||varphi||^2_{A_k^-1}."""
    potential_bound: Array
    """2 H d log(1 + k H U L_varphi^2 / (d lambda_1)), valid where lambda_k >= L_varphi^2."""

    def card(self) -> Card:
        found = self.summary()
        facts = {"runs": found["n_runs"], "episodes": found["n_episodes"], "delta": self.delta}
        facts |= {f"covered by {name}": x for name, x in found["covered"].items()}
        facts |= {k.replace("_", " "): found[k] for k in ("optimism_rate", "clip_rate", "tie_rate")}
        return Card(facts, more="plot() draws what was measured, by episode")

    def plot(self) -> Any:
        """A figure of distances and radii, optimism, clips and ties, and the potential."""
        from upriver.diagnostics.figures import coverage_figure

        return coverage_figure(self)

    def ratio(self, name: str) -> Array:
        """(R,) max over k of distance / radius; at most 1 where theta* was inside all the time."""
        radius = self.radius(name)
        nowhere = np.where(self.distance <= 0.0, 0.0, np.inf)  # what a radius of 0 holds
        return np.divide(self.distance, radius, out=nowhere, where=radius > 0.0).max(axis=1)

    def share(self, name: str) -> float:
        """Share of the runs with theta* in C_k for all k; Lemma 1 claims at least 1 - delta."""
        return float((self.distance <= self.radius(name)).all(axis=1).mean())

    def scale(self, name: str) -> float:
        """The factor on the radius at which one more run is covered with probability 1 - delta.

        An order statistic of the runs' ratios, so the claim holds for exchangeable runs whatever
        their distribution.
        """
        ratios = np.sort(self.ratio(name))
        rank = ceil((len(ratios) + 1) * (1.0 - self.delta) - 1e-9)
        if rank > len(ratios):
            raise ValueError(
                f"n_runs is {len(ratios)}; level 1 - {self.delta:g} needs at least "
                f"{ceil(1.0 / self.delta - 1e-9) - 1} runs"
            )
        return float(ratios[rank - 1])

    def radius(self, name: str) -> Array:
        if name not in self.radii:
            raise ValueError(f"radius {name!r} was not judged; there are {sorted(self.radii)}")
        return self.radii[name]

    def summary(self) -> dict[str, Any]:
        """The numbers of a table, in plain types."""
        return {
            "n_runs": self.distance.shape[0],
            "n_episodes": self.distance.shape[1],
            "delta": self.delta,
            "covered": {name: self.share(name) for name in self.radii},
            "largest_ratio": {name: float(self.ratio(name).max()) for name in self.radii},
            "optimism_rate": float(self.optimistic.mean()),
            "clip_rate": float(self.clipped.mean()),
            "tie_rate": float(self.tied.mean()),
            "potential": float(self.potential[:, -1].max()),
            "potential_bound": float(self.potential_bound[:, -1].min()),
        }


class Sight(NamedTuple):
    """A learner's state, and the chain of what was seen of it before each episode."""

    inner: State
    seen: tuple[Any, tuple[float, ...]] | None


@dataclass(frozen=True)
class Watched:
    """An agent that plays as UCRL-MNL does while its ellipsoid is compared with the truth."""

    agent: UCRLMNL
    theta: Array
    best: Array
    """(S,) V*_1."""
    radii: tuple[Any, ...]

    @property
    def task(self) -> Task:
        return self.agent.task

    def init(self) -> Sight:
        return Sight(self.agent.init(), None)

    def plan(self, state: Sight, rng: np.random.Generator) -> Plan:
        return self.agent.plan(state.inner, rng)

    def update(self, state: Sight, plan: Plan, episode: Episode) -> Sight:
        inner = self.agent.update(state.inner, plan, episode)
        return Sight(inner, (state.seen, self.look(state.inner, plan, episode)))

    def look(self, state: State, plan: Plan, episode: Episode) -> tuple[float, ...]:
        """(distance, optimistic, clipped, tied, potential added, lambda, *radii)."""
        task, model = self.task, state.model
        remaining = self.agent.optimism in AT_THE_STEPS_LEFT
        cap = (clip_v_remaining if remaining else clip_v)(task).v_cap
        values = plan.v[:-1]
        first = int(episode.states[0])
        steps = np.minimum(np.arange(len(episode.actions)), len(model.max_norm) - 1)
        group = episode.states[:-1] * task.n_actions + episode.actions
        about = evidence(self.agent.features, state.k, model)
        return (
            distance(self.agent.features, model, self.theta),
            float(plan.v[0, first] >= self.best[first] - 1e-9),
            float((values >= cap[:, None]).mean()),
            tie_share(plan, (state.k - 1) % task.horizon),
            float(np.sum(model.max_norm[steps, group] ** 2)),
            model.regularization,
            *(radius(about) for radius in self.radii),
        )


def distance(features: Features, model: Any, theta: Array) -> float:
    """||theta_hat - theta||_A, A = lambda I + sum over visits and successors of varphi varphi^T.

    Computed as lambda |x|^2 + sum N(s, a) (varphi^T x)^2 with x the difference.
    """
    task = features.task
    gap = model.theta - theta
    along = np.asarray(features.matrix @ gap.T).T
    visits = np.repeat(task.by_pair(model.counts), task.sizes, axis=1)
    square = model.regularization * np.sum(gap**2, axis=1) + np.sum(visits * along**2, axis=1)
    return float(np.sqrt(square.max()))


def tie_share(plan: Plan, h: int) -> float:
    """Share of the states where, at step h, the largest Q belongs to more than one action."""
    q = plan.q(h)
    return float(((q == q.max(axis=1, keepdims=True)).sum(axis=1) > 1).mean())


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
    """Play `n_runs` runs and see how often theta* was in the confidence set, and the rest.

    agent: how to act, UCRL-MNL with its defaults unless given. radii: the radii to judge; unless
    given, Lemma 1 as printed and corrected, with L_theta = ||theta*|| and the certified kappa of
    that ball, and the radius that the agent acts with ("acting").
    """
    problem = mdp, features, agent
    return coverage_over(
        [problem] * positive_integer("n_runs", n_runs), radii, n_episodes, delta, seed
    )


def coverage_over(
    problems: Iterable[tuple[FiniteMDP, Features, UCRLMNL | None]],
    radii: Mapping[str, Any] | Callable[..., Mapping[str, Any]] | None = None,
    n_episodes: int = 100,
    delta: float = 0.05,
    seed: int = 0,
) -> Coverage:
    """`coverage` with one run for each problem (mdp, features, agent).

    radii may be a function (features, theta*, agent) -> {name: radius}; they must have one set of
    names.
    """
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta is {delta!r}; it must lie strictly between 0 and 1")
    positive_integer("n_episodes", n_episodes)
    rows, bounds = [], []
    before: Any = None
    judged: Mapping[str, Any] = {}
    watched: Any = None
    for i, problem in enumerate(problems):
        mdp, features, _ = problem
        if problem is not before:  # they are all different, or one many times
            before, (judged, watched) = problem, look_on(*problem, radii, delta)
        rows.append(unroll(simulate(mdp, watched, n_episodes, seed + i).state.seen))
        lam = rows[-1][0, 5]
        bounds.append([potential_bound(features, k, lam) for k in range(1, n_episodes + 1)])
    if not rows:
        raise ValueError("there are no problems; coverage needs at least one run")
    distances, hopeful, clipped, tied, added, _, *radius = np.moveaxis(np.array(rows), 2, 0)
    return Coverage(
        delta, distances, dict(zip(judged, radius, strict=True)), hopeful > 0.5, clipped, tied,
        np.cumsum(added, axis=1), np.array(bounds),
    )  # fmt: skip


def look_on(
    mdp: FiniteMDP, features: Features, agent: UCRLMNL | None, radii: Any, delta: float
) -> tuple[Mapping[str, Any], Watched]:
    """The radii to judge, and the agent that is watched."""
    agent = UCRLMNL(features.task, features) if agent is None else agent
    theta = theta_star(mdp, features)
    if len(theta) > 1 and not agent.per_step:
        raise ValueError(
            "the transitions change with the step, so there is no single theta*; "
            "use an agent with per_step=True"
        )
    if radii is None:
        radii = lemma_radii(features, theta, agent, delta)
    elif callable(radii):
        radii = radii(features, theta, agent)
    return radii, Watched(agent, theta, solve(mdp).v[0], tuple(radii.values()))


def unroll(seen: Any) -> Array:
    """(K, ...) the rows of a chain, first one first."""
    rows = []
    while seen is not None:
        seen, row = seen
        rows.append(row)
    return np.array(rows[::-1])


def lemma_radii(features: Features, theta: Array, agent: UCRLMNL, delta: float) -> dict[str, Any]:
    """Lemma 1 as printed and corrected with what is true of theta*, and the agent's own radius."""
    bound = max(float(np.linalg.norm(theta, axis=1).max()), 1e-12)
    ball = kappa_over_ball(features, bound)
    kappa = usable(ball.certified if ball else 0.25)
    return {
        "printed": lemma1_radius(kappa, bound, delta),
        "corrected": corrected_radius(kappa, bound, delta),
        "acting": agent.radius,
    }
