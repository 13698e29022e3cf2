"""What some runs keep beyond their rows, for the report: the last plan and the estimate.

Every tenth seed keeps it, if the problem is small, as JSON in the metadata of its file. Which runs
do follows from the run alone, so that its bytes do not depend on the sweep it was part of.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from upriver.checks import Array
from upriver.mdp import FiniteMDP, Task
from upriver.planning import solve
from upriver.play.simulate import Run

EVERY = 10
"""Seeds 0, 10, 20, ... keep their detail; seeds for tuning, from a million on, do not."""
LIMIT = 4096
"""How many (h, s), and how many reachable triples, a detail may have."""


def has_detail(seed: int, task: Task) -> bool:
    """Whether the run of this seed keeps a detail."""
    chosen = seed % EVERY == 0 and seed < 1_000_000
    return chosen and not task.infinite_horizon and task.horizon * task.n_states <= LIMIT


class StepCounter:
    """An agent as it is, which also counts the visits N_h(s, a) of its episodes."""

    def __init__(self, agent: Any) -> None:
        self.agent, self.task, self.init = agent, agent.task, agent.init
        self.visits = np.zeros((self.task.horizon, self.task.n_states, self.task.n_actions), int)

    def plan(self, state: Any, rng: np.random.Generator) -> Any:
        return self.agent.plan(state, rng)

    def update(self, state: Any, plan: Any, episode: Any) -> Any:
        steps = np.arange(len(episode.actions))
        self.visits[steps, episode.states[steps], episode.actions] += 1
        return self.agent.update(state, plan, episode)


def make_detail(mdp: FiniteMDP, task: Task, run: Run, visits: Array) -> str:
    """Return the detail as JSON, in the user's units, numbers to four digits.

    Keys: horizon, n_states, n_actions, states and actions (names or None); policy and planned
    (H, S), best (H, S) the true V*; and, for agents that estimate the transitions, triples: s, a,
    next, estimate, truth and count N(s, a); of an agent with one estimate for each step also h, and
    count N_h(s, a).
    """
    found = {name: getattr(task, name) for name in ("horizon", "n_states", "n_actions")}
    for kind, names in (("states", task.states), ("actions", task.actions)):
        found[kind] = None if names is None else [str(name) for name in names]
    found |= {
        "policy": run.plan.policy.tolist(),
        "planned": round_digits(run.plan.v[:-1]),
        "best": round_digits(solve(mdp).v[:-1]),
        "triples": list_triples(mdp, task, run.state, visits),
    }
    return json.dumps(found, separators=(",", ":"))


def list_triples(mdp: FiniteMDP, task: Task, state: Any, visits: Array) -> dict[str, Any] | None:
    """Return the estimated transitions beside the true ones, None if there are none.

    An agent with one estimate for each step is compared step by step, with the visits (H, S, A) of
    each step.
    """
    estimate = find_estimate(task, state)
    if estimate is None or estimate.size > LIMIT:
        return None
    steps = len(estimate)
    shape = task.n_states, task.n_actions, task.n_states
    ours, true = (np.ravel_multi_index(x.triples, shape) for x in (task, mdp.true_task))
    truth = np.zeros(estimate.shape)
    truth[:, np.searchsorted(ours, true)] = mdp.probability[:steps]
    s, a, s2 = (np.tile(x, steps) for x in task.triples)
    h = np.repeat(np.arange(steps), task.n_triples)
    count = visits[h, s, a] if steps > 1 else visits.sum(axis=0)[s, a]
    found = {"s": s, "a": a, "next": s2, "count": count} | ({"h": h} if steps > 1 else {})
    numbers = {"estimate": round_digits(estimate.ravel()), "truth": round_digits(truth.ravel())}
    return {name: x.tolist() for name, x in found.items()} | numbers


def find_estimate(task: Task, state: Any) -> Array | None:
    """Return (1 or H, n) the estimate of the agent's model, or frequencies if it keeps counts."""
    n = task.n_triples
    model = getattr(state, "model", None)
    prob = getattr(model, "prob", None)
    if isinstance(prob, np.ndarray) and prob.shape[-1:] == (n,):
        return prob.reshape(-1, n)
    counts = getattr(model, "counts", model)
    if isinstance(counts, np.ndarray) and counts.shape[-1:] == (n,):
        total = counts.reshape(-1, n).sum(axis=0, keepdims=True)
        visits = np.repeat(task.by_pair(total), task.sizes, axis=1)
        return np.where(visits > 0, total / np.maximum(visits, 1), np.nan)
    return None


def round_digits(x: Array) -> list[Any]:
    """Return nested lists of four significant digits; None where there is no finite number."""
    flat = [float(f"{v:.4g}") if np.isfinite(v) else None for v in np.ravel(x)]
    width = x.shape[-1]
    return flat if x.ndim == 1 else [flat[i : i + width] for i in range(0, len(flat), width)]
