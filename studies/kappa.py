"""Regret against kappa, U, d and H, one at a time, of learners that are told what theory asks for.

The problems are those of `random_mnl` with the norm of theta* chosen so that kappa, the smallest
P(s')P(s'') at theta*, is a given number. Theory tells its learners kappa and a bound of the norm,
so here the task does: the name of each state carries both. `Published` reads them and builds a
learner with the constants of its paper; every other learner ignores them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import log, sqrt
from typing import Any, NamedTuple

import numpy as np

from studies.figures import lost_figure
from studies.measured import Measured, Page, power
from upriver.agents.base import Agent, Episode
from upriver.agents.table import AGENTS
from upriver.checks import Array, positive_number
from upriver.envs.named import check_state_names
from upriver.envs.random_mnl import Drawn, random_mnl, random_mnl_features
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task
from upriver.mnl import online, radii
from upriver.planning import Plan
from upriver.results.plots import Band
from upriver.results.statistics import bootstrap_interval
from upriver.results.tables import to_markdown

BASE = {"kappa": 0.01, "max_successors": 2, "dimension": 8, "horizon": 20}
"""The problem that all factors start from: one number changes, and with U also kappa, as U^-2."""
FACTORS: dict[str, Callable[[dict[str, Any]], float]] = {
    "1/kappa": lambda n: 1.0 / n["kappa"],
    "U": lambda n: n["max_successors"],
    "d": lambda n: n["dimension"],
    "H": lambda n: n["horizon"],
}
MODES = {
    " published": "As published: radius, lambda and step size of the paper",
    " scaled": "The radius of the paper times a constant of the first problem",
    "": "Without the radius of a paper",
}
"""What the label of a learner ends with, and what that means."""
CONTROL = "Greedy"
"""Without a bonus: how much harder the problems themselves become. It stands in every table."""
PROVED = {
    "UCRL-MNL": "1, 2, 1, 2",
    "RRL-MNL": "1, 2, 3/2, 2",
    "ORRL-MNL": "0, 0, 3/2, 2",
    "UCRL-MNL+": "0, 0, 1, 2",
    "UCRL-MNL-OL": "0, 0, 1, 2",
    "UCRL-MNL-LL": "0, 0, 1, 2",
    "UCRL-MNL-LL exact": "0, 0, 1, 2",
}
"""Exponents of the leading terms, in the order of FACTORS; that of U is by kappa alone."""


class Told(NamedTuple):
    """The name of a drawn state, and what theory tells its learners."""

    number: int
    dimension: int
    key: int
    kappa: float
    """At theta*, which is more than theory's, the smallest over a ball."""
    theta_bound: float
    """The norm of theta*."""


def drawn(
    kappa: float = 0.01,
    n_states: int = 50,
    n_actions: int = 2,
    dimension: int = 8,
    max_successors: int = 2,
    horizon: int = 20,
    seed: int = 0,
) -> FiniteMDP:
    """`random_mnl` with theta* of such a norm that kappa at theta* is `kappa`."""
    size = n_states, n_actions, dimension, max_successors, seed
    # P is proportional to exp(norm x.theta), so another norm is a power of the P of norm 1
    logits = np.log(random_mnl(*size, 1.0, horizon).probability).reshape(-1, max_successors)
    norm = norm_of(logits, positive_number("kappa", kappa))
    mdp = random_mnl(*size, norm, horizon)
    plain: Any = mdp.true_task.states
    names = [Told(*name[:3], kappa=kappa, theta_bound=norm) for name in plain]
    return replace(
        mdp, true_task=replace(mdp.true_task, states=names), name=f"drawn-mnl-{n_states}"
    )


def norm_of(logits: Array, kappa: float) -> float:
    """The factor of (groups, U) logits that makes the smallest product of two shares `kappa`."""
    most = logits.shape[1] ** -2.0
    if kappa >= most:
        raise ValueError(
            f"kappa is {kappa!r}; with {logits.shape[1]} successors it is below {most}"
        )
    ordered = np.sort(logits, axis=1)

    def log_kappa(norm: float) -> float:
        x = norm * (ordered - ordered[:, -1:])
        return float((x[:, 0] + x[:, 1] - 2.0 * np.log(np.exp(x).sum(axis=1))).min())

    low, high = 0.0, 1.0
    while log_kappa(high) > np.log(kappa):
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if log_kappa(middle) > np.log(kappa) else (low, middle)
    return high


def drawn_features(task: Task) -> Features:
    """The features of `random_mnl` on a task of `drawn`."""
    return drawn_once(task)


@lru_cache(maxsize=4)
def drawn_once(task: Task) -> Features:
    """Every learner of a problem asks for its features, and drawing them takes long."""
    plain = replace(task, states=[Drawn(*name[:3]) for name in told_by(task)])
    return Features(task, random_mnl_features(plain).matrix)


def told_by(task: Task) -> Any:
    """The names of a task of `drawn`."""
    check_state_names(task, Told, "drawn")
    return task.states


@dataclass(frozen=True)
class times:
    """A radius times a constant."""

    radius: Callable[[radii.Evidence], float]
    scale: float

    def __call__(self, e: radii.Evidence) -> float:
        return self.scale * self.radius(e)


@dataclass(frozen=True)
class additive_radius:
    """sqrt(d log(1 + t)) + L_theta after t transitions: the form that Lee and Oh announce.

    Its abstract gives the order and no constants ("Improved Online Confidence Bounds for
    Multinomial Logistic Bandits", 2025), and we have not seen more.
    """

    theta_bound: float
    rounds: int

    def __call__(self, e: radii.Evidence) -> float:
        return sqrt(e.dimension * log(1.0 + e.k * self.rounds)) + self.theta_bound


@dataclass(frozen=True)
class Published:
    """A learner with the radius of its paper, told kappa at theta* and the norm of theta*.

    One core for all steps, so a core sees H transitions an episode. UCRL-MNL-OL and -LL, whose
    constants we do not have, take those of UCRL-MNL+.
    """

    task: Task
    features: Features
    learner: str = "ucrl-mnl"
    scale: float = 1.0
    """Factor of the radius."""
    as_printed: bool = True
    """lambda, eta and the ball of the paper too, instead of the learner's defaults."""
    exact: bool = False
    """For UCRL-MNL-LL: the maximum over its set instead of the closed bonus."""
    additive: bool = False
    """For the learners by mirror descent: the radius of Lee and Oh, whose constant is `scale`."""

    @cached_property
    def agent(self) -> Agent:
        told: Told = told_by(self.task)[0]
        norm, rounds = told.theta_bound, self.task.horizon
        given: dict[str, Any] = {}
        if self.learner == "ucrl-mnl":
            radius = radii.lemma1_radius(told.kappa, norm)
            given["regularization"] = radii.theory_regularization(self.features)
        elif self.learner == "rrl-mnl":
            radius = online.newton_radius(told.kappa, norm, rounds=rounds)
            given |= {"regularization": self.features.norm_bound**2, "theta_bound": norm}
        else:
            radius = online.mirror_radius(norm, rounds=rounds)
            if self.additive:
                radius = additive_radius(norm, rounds)
            given["regularization"] = online.mirror_regularization(self.features, norm)
            if self.learner != "ucrl-mnl-ll":
                given |= {"step_size": online.theory_step(self.features, norm), "theta_bound": norm}
        if not self.as_printed:
            given = {}
        given["radius"] = times(radius, self.scale)
        if self.learner != "ucrl-mnl":
            given["per_step"] = False
        if self.learner == "rrl-mnl":
            given["kappa"] = told.kappa
        if self.exact:
            given["exact"] = True
        return AGENTS[self.learner](self.task, self.features, **given)

    def init(self) -> Any:
        return self.agent.init()

    def plan(self, state: Any, rng: np.random.Generator) -> Plan:
        return self.agent.plan(state, rng)

    def update(self, state: Any, plan: Plan, episode: Episode) -> Any:
        return self.agent.update(state, plan, episode)


def kappa(measured: Sequence[Measured]) -> Page:
    """Exponents of regret in each factor, regret at each kappa and U, and lines of all factors."""
    by: dict[str, dict[tuple[float, ...], list[Array]]] = {}
    for m in measured:
        numbers = m.run.environment["settings"]
        at = tuple(value(numbers) for value in FACTORS.values())
        by.setdefault(m.cell.agent, {}).setdefault(at, []).append(m.sample.totals("regret"))
    problems = {  # (draws,) the mean regret of each problem that was drawn
        agent: {at: np.array([x.mean() for x in runs]) for at, runs in points.items()}
        for agent, points in by.items()
    }
    tables, figures = [], {}
    for ending, title in MODES.items():
        here = {a: p for a, p in problems.items() if mode_of(a) == ending}
        if not here:
            continue
        here |= {a: problems[a] for a in (CONTROL,) if a in problems}
        rows = [["learner", *FACTORS, "proved"]]
        panels: dict[str, dict[str, Band]] = {f"against {factor}": {} for factor in FACTORS}
        for agent, points in here.items():
            name = agent.removesuffix(ending).removesuffix(" tuned")
            cells = []
            for i, factor in enumerate(FACTORS):
                x, totals = along(points, i)
                if len(x) < 2:
                    cells.append("")
                    continue
                cells.append("{:.2f} [{:.2f}, {:.2f}]".format(*power(x, totals)))
                ends = np.array([bootstrap_interval(column) for column in totals.T]).T
                panels[f"against {factor}"][name] = Band(x, totals.mean(axis=0), *ends)
            rows.append([name, *cells, PROVED.get(name, "")])
        tables.append(f"{title}: exponents of regret\n\n{to_markdown(rows)}")
        name = f"kappa{ending.replace(' ', '-') or '-tuned'}"
        figures[name] = lost_figure(
            {k: p for k, p in panels.items() if p}, "", log_x=True, ylabel="regret"
        )
    runs = max(len(m.sample.seeds) for m in measured)
    first = problems[measured[0].cell.agent]
    many = min(len(totals) for i in range(len(FACTORS)) for _, totals in [along(first, i)])
    tables.append(regret_against("kappa", problems, 0, lambda x: f"{1 / x:g}"))
    tables.append(regret_against("U", problems, 1, lambda x: f"{x:g}"))
    tables.append(
        f"Means over {many} drawn problems for each value, runs on each: {runs}; intervals "
        "resample the problems.\n"
    )
    return "\n".join(tables), figures


def regret_against(
    name: str,
    problems: dict[str, dict[tuple[float, ...], Array]],
    factor: int,
    text: Callable[[float], str],
) -> str:
    """Mean regret of every learner at each value of a factor, which `text` writes."""
    rows = []
    for agent, points in problems.items():
        x, totals = along(points, factor)
        rows = rows or [["learner", *(f"{name} {text(a)}" for a in x)]]
        spread = (
            "{:.1f} [{:.1f}, {:.1f}]".format(c.mean(), *bootstrap_interval(c)) for c in totals.T
        )
        rows.append([agent, *spread])
    return f"Regret against {name}\n\n{to_markdown(rows)}"


def mode_of(agent: str) -> str:
    return next(ending for ending in MODES if agent.endswith(ending))


def along(points: dict[tuple[float, ...], Array], factor: int) -> tuple[Array, Array]:
    """(values, (draws, values) regret) of the problems that differ from BASE in one factor.

    Of draws that all of them have.
    """
    base = tuple(value(BASE) for value in FACTORS.values())
    free = {factor, 0} if factor == 1 else {factor}  # kappa falls with U
    found = {
        at[factor]: regret
        for at, regret in points.items()
        if all(i in free or np.isclose(x, base[i]) for i, x in enumerate(at))
        and (factor != 1 or np.isclose(at[0] / base[0], (at[1] / base[1]) ** 2))
    }
    x = np.array(sorted(found))
    draws = min(len(regret) for regret in found.values())
    return x, np.stack([found[i][:draws] for i in x], axis=1)
