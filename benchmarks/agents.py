"""Episodes through `simulate`: microseconds of each agent, and whether they grow with k."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from benchmarks.timing import Line, interleaved
from upriver import envs, features
from upriver.agents.table import AGENTS
from upriver.mdp import FiniteMDP
from upriver.play.simulate import simulate

HORIZON = 24
ALONE = "simulate alone"
LEARNERS = sorted(set(AGENTS) - {"always", "optimal", "random"})
MOST = {"ucrl-mnl": 22.0, "ucrl-mnl-se": 30.0}  # microseconds an episode at S = 8, H = 24


def build(name: str, mdp: FiniteMDP, **numbers: Any) -> Any:
    """An agent with its defaults; one-hot features and known support where it takes them."""
    task = mdp.task("known")
    taken = {field.name for field in fields(AGENTS[name])}
    if "mdp" in taken:
        return AGENTS[name](mdp, **numbers)
    given = {"features": features.one_hot(task)} if "features" in taken else {}
    return AGENTS[name](task, **given, **numbers)


def episodes(quick: bool, _: bool = False) -> Iterator[Line]:
    """UCRL-MNL against what is allowed, then each agent against an agent that does nothing.

    That is `simulate` itself: it samples and evaluates the same policy every time.
    """
    yield from paper(quick)
    yield from untuned(quick)
    for n_states in (6,) if quick else (6, 20, 100):
        mdp = envs.riverswim(n_states, HORIZON)
        count = 20 if quick else 2000 // n_states
        idle = build("always", mdp, action=0)
        for name in LEARNERS:
            agent = build(name, mdp)
            taken = interleaved(
                {
                    "agent": lambda: simulate(mdp, agent, count),  # noqa: B023
                    "loop": lambda: simulate(mdp, idle, count),  # noqa: B023
                },
                1 if quick else 3,
            )
            yield Line(
                "episodes", f"{name}, S={n_states}, H={HORIZON}", 1e6 * taken["agent"] / count,
                "us", ALONE, 1e6 * taken["loop"] / count,
                note=f"{count / taken['agent']:,.0f} episodes/s",
            )  # fmt: skip


def paper(quick: bool) -> Iterator[Line]:
    """Agents at S = 8, H = 24, one-hot, support known, against the microseconds allowed."""
    mdp = envs.riverswim(8, HORIZON)
    count = 50 if quick else 10_000
    pair = {name: build(name, mdp) for name in MOST}
    taken = interleaved(
        {name: lambda agent=agent: simulate(mdp, agent, count) for name, agent in pair.items()},
        1 if quick else 5,
    )
    for name, allowed in MOST.items():
        yield Line(
            "episodes", f"{name}, S=8, H={HORIZON}", 1e6 * taken[name] / count, "us",
            "what is allowed", allowed, most=None if quick else 1.0,
            note=f"{count / taken[name]:,.0f} episodes/s",
        )  # fmt: skip


def untuned(quick: bool) -> Iterator[Line]:
    """UCRL-MNL-SE against UCRL-MNL with (6): at S = 20, one-hot, support local; and where each pair
    has 100 successors that share 8 features, of whose geometry it keeps a factor."""
    river = envs.riverswim(20)
    task = river.task("local")
    wide = envs.random_mnl(100, 2, 8, max_successors=100)
    cases = {
        "S=20, one-hot, local": (river, features.one_hot(task), 200, 1.6),
        "S=100, U=100, d=8": (wide, envs.random_mnl_features(wide.task()), 5, None),
    }
    for case, (mdp, phi, count, most) in cases.items():
        count = min(count, 20) if quick else count
        pair = {name: AGENTS[name](phi.task, phi) for name in ("ucrl-mnl-se", "ucrl-mnl")}
        taken = interleaved(
            {
                name: lambda agent=agent: simulate(mdp, agent, count)  # noqa: B023
                for name, agent in pair.items()
            },
            1 if quick else 9,
        )
        us = {name: 1e6 * x / count for name, x in taken.items()}
        yield Line(
            "episodes", f"ucrl-mnl-se, {case}", us["ucrl-mnl-se"], "us", "ucrl-mnl",
            us["ucrl-mnl"], most=None if quick else most,
        )  # fmt: skip


def against_k(quick: bool, _: bool = False) -> Iterator[Line]:
    """Late episodes against early ones, gone on with from a checkpoint: 1 means flat in k."""
    mdp = envs.riverswim(6, HORIZON)
    first, last, count = (20, 100, 20) if quick else (200, 5000, 200)
    for name in LEARNERS[:2] if quick else LEARNERS:
        agent = build(name, mdp)
        early = simulate(mdp, agent, first).checkpoint
        late = simulate(mdp, agent, last - first, resume=early).checkpoint
        taken = interleaved(
            {
                "early": lambda: simulate(mdp, agent, count, resume=early),  # noqa: B023
                "late": lambda: simulate(mdp, agent, count, resume=late),  # noqa: B023
            },
            1 if quick else 7,
        )
        yield Line(
            "time against k", f"{name}, S=6, k={last}", 1e6 * taken["late"] / count, "us",
            f"the same, k={first}", 1e6 * taken["early"] / count,
        )  # fmt: skip
