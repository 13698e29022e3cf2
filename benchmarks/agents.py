"""Episodes through `simulate`: microseconds for each agent, and whether they grow with k."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import upriver as up
from benchmarks.report import GROWTH_FAMILY, SIMULATE_ALONE
from benchmarks.timing import Measurement, measure_interleaved
from upriver.agents.table import AGENTS

HORIZON = 24
LEARNERS = sorted(set(AGENTS) - {"always", "optimal", "random"})


def build_agent(name: str, mdp: up.FiniteMDP, **numbers: Any) -> Any:
    """Return an agent with default settings, one-hot features and known support."""
    task = mdp.task("known")
    accepted = {field.name for field in fields(AGENTS[name])}
    given = {"features": up.features.one_hot(task)} if "features" in accepted else {}
    return AGENTS[name](task, **given, **numbers)


def measure_episodes(quick: bool, _: bool = False) -> Iterator[Measurement]:
    """Time the recommended agent beside UCRL-MNL, then each agent beside one that does nothing.

    The latter is the cost of `simulate` itself, which samples and evaluates the same policy.
    """
    yield from measure_recommended_agent(quick)
    for n_states in (6,) if quick else (6, 20, 100):
        mdp = up.envs.riverswim(n_states, HORIZON)
        count = 20 if quick else 2000 // n_states
        idle = build_agent("always", mdp, action=0)
        for name in LEARNERS:
            agent = build_agent(name, mdp)
            seconds = measure_interleaved(
                {
                    "agent": lambda: up.simulate(mdp, agent, count),  # noqa: B023
                    "idle": lambda: up.simulate(mdp, idle, count),  # noqa: B023
                },
                1 if quick else 3,
            )
            yield Measurement(
                "episodes",
                f"{name}, S={n_states}, H={HORIZON}",
                1e6 * seconds["agent"] / count,
                "us",
                SIMULATE_ALONE,
                1e6 * seconds["idle"] / count,
            )


def measure_recommended_agent(quick: bool) -> Iterator[Measurement]:
    """Time UCRL-MNL-SE beside UCRL-MNL: few successors one-hot, and 100 that share 8 features."""
    short, river = up.envs.riverswim(8, HORIZON), up.envs.riverswim(20)
    wide = up.envs.random_mnl(100, 2, 8, max_successors=100)
    cases = {
        "S=8, H=24, one-hot": (short, up.features.one_hot(short.task()), 2000),
        "S=20, one-hot, local": (river, up.features.one_hot(river.task("local")), 200),
        "S=100, U=100, d=8": (wide, up.envs.random_mnl_features(wide.task()), 5),
    }
    for case, (mdp, phi, count) in cases.items():
        count = min(count, 20) if quick else count
        agents = {name: AGENTS[name](phi.task, phi) for name in ("ucrl-mnl-se", "ucrl-mnl")}
        seconds = measure_interleaved(
            {
                name: lambda agent=agent: up.simulate(mdp, agent, count)  # noqa: B023
                for name, agent in agents.items()
            },
            1 if quick else 9,
        )
        ours, theirs = (1e6 * seconds[name] / count for name in agents)
        yield Measurement("episodes", f"ucrl-mnl-se: {case}", ours, "us", "ucrl-mnl", theirs)


def measure_growth(quick: bool, _: bool = False) -> Iterator[Measurement]:
    """Time late episodes beside early ones, resumed from a checkpoint: 1 means flat in k."""
    mdp = up.envs.riverswim(6, HORIZON)
    first, last, count = (20, 100, 20) if quick else (200, 5000, 200)
    for name in LEARNERS[:2] if quick else LEARNERS:
        agent = build_agent(name, mdp)
        early = up.simulate(mdp, agent, first).checkpoint
        late = up.simulate(mdp, agent, last - first, resume=early).checkpoint
        seconds = measure_interleaved(
            {
                "early": lambda: up.simulate(mdp, agent, count, resume=early),  # noqa: B023
                "late": lambda: up.simulate(mdp, agent, count, resume=late),  # noqa: B023
            },
            1 if quick else 7,
        )
        yield Measurement(
            GROWTH_FAMILY,
            f"{name}, S=6, k={last}",
            1e6 * seconds["late"] / count,
            "us",
            f"the same agent at k={first}",
            1e6 * seconds["early"] / count,
        )
