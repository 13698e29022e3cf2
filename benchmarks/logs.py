"""A large log: a fit, plans with it and the worth of a policy, beside the optimum of an MDP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.planning import draw_mdp
from benchmarks.timing import Measurement, SkippedComparison, measure_interleaved
from upriver.features import Features
from upriver.logs.fit import fit_transitions
from upriver.logs.model import TransitionModel
from upriver.logs.planning import plan_from_model
from upriver.logs.value import policy_value
from upriver.mdp import FiniteMDP
from upriver.mnl import likelihood
from upriver.mnl.fit import fit_mnl
from upriver.planning import solve

N_SUCCESSORS, DIMENSION, ROWS = 5, 20, 1_000_000
PLANS = ("greedy", "cautious")


def large_log(n_states: int, n_rows: int, seed: int = 0) -> tuple[FiniteMDP, TransitionModel]:
    """An MNL model with attributes of moves, and a log that visits all pairs alike, fitted."""
    mdp, rng = draw_mdp(n_states, N_SUCCESSORS, near=False), np.random.default_rng(seed)
    task = mdp.task()
    phi = Features(task, rng.standard_normal((task.n_triples, DIMENSION)))
    prob = likelihood.probabilities(phi, rng.standard_normal(DIMENSION) / DIMENSION**0.5)
    visits = rng.multinomial(n_rows, np.full(len(task.sizes), 1 / len(task.sizes)))
    counts = rng.multinomial(visits, prob.reshape(-1, N_SUCCESSORS)).ravel().astype(float)
    cells = dict(zip(("state", "action", "next_state"), task.triples, strict=True))
    attributes = {f"x{i}": column for i, column in enumerate(phi.matrix.T)}
    model = fit_transitions(
        " + ".join(attributes), cells, states=cells | attributes, successors=cells, weights=counts,
        regularization=1.0, horizon=task.horizon, reward=task.reward,
    )  # fmt: skip
    return replace(mdp, probability=prob), model


def measure_log_decisions(
    quick: bool, with_peers: bool
) -> Iterator[Measurement | SkippedComparison]:
    n_states = 2_000 if quick else 50_000
    n_rows = ROWS * n_states // 50_000
    mdp, model = large_log(n_states, n_rows)
    x = model.steps[0].matrix
    works: dict[str, Callable[[], Any]] = {
        "fit": lambda: fit_mnl(model.steps[0], model.counts, 1.0),
        "products": lambda: x.T @ x,
        "solve": lambda: solve(mdp),
    }
    for how in PLANS:
        works[how] = lambda how=how: plan_from_model(model, how)
    policy = solve(mdp).policy
    works["policy_value"] = lambda: policy_value(model, policy)
    taken = measure_interleaved(works, 1 if quick else 3)
    case = f"S={n_states}, U={N_SUCCESSORS}, d={DIMENSION}, {n_rows} rows"
    yield Measurement(
        "fit of a log", case, taken["fit"], "s", "one product of its features", taken["products"]
    )
    for how in PLANS:
        yield Measurement(
            f"{how} plan of a log",
            case,
            taken[how],
            "s",
            "solve",
            taken["solve"],
        )
    yield Measurement(
        "policy value of a log", case, taken["policy_value"], "s", "solve", taken["solve"]
    )
