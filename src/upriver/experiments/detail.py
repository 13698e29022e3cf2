"""What some runs keep beyond their rows, for the report: the last plan, visits, the estimate.

Every tenth seed keeps it, if the problem is small, as JSON in the metadata of its file. Which runs
do follows from the run alone, so that its bytes do not depend on the sweep it was part of.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from upriver.agents.protocol import Agent, Episode
from upriver.checks import Array
from upriver.experiments.runspec import RunSpec
from upriver.experiments.spec import TUNING_SEEDS
from upriver.mdp import FiniteMDP, Task
from upriver.planning import Plan, solve
from upriver.play.simulate import Run

EVERY = 10
"""Seeds 0, 10, 20, ... keep their detail; seeds for tuning do not."""
LIMIT = 4096
"""How many (h, s), and how many reachable triples, a detail may have."""
BLOCKS = 25
"""Into how many stretches of episodes the visits are divided."""
FLUSH = 256


def keeps_detail(run: RunSpec, task: Task) -> bool:
    chosen = run.seed % EVERY == 0 and run.seed < TUNING_SEEDS
    return chosen and not task.infinite_horizon and task.horizon * task.n_states <= LIMIT


@dataclass(frozen=True)
class Recorded:
    """An agent that plans and learns as the one inside; which (s, a) it visits is counted.

    Episodes are kept and counted many at a time, so that the time of an episode stays its own.
    """

    agent: Agent
    n_episodes: int
    visits: Array
    """(blocks, S*A), filled as the run goes on."""
    waiting: list[Episode] = field(default_factory=list)
    played: list[int] = field(default_factory=lambda: [0])

    @staticmethod
    def of(agent: Agent, n_episodes: int) -> Recorded:
        blocks = min(BLOCKS, n_episodes)
        size = agent.task.n_states * agent.task.n_actions
        return Recorded(agent, n_episodes, np.zeros((blocks, size), np.int64))

    @property
    def task(self) -> Task:
        return self.agent.task

    def init(self) -> Any:
        return self.agent.init()

    def plan(self, state: Any, rng: np.random.Generator) -> Plan:
        return self.agent.plan(state, rng)

    def update(self, state: Any, plan: Plan, episode: Episode) -> Any:
        self.waiting.append(episode)
        if len(self.waiting) == FLUSH:
            self.count()
        return self.agent.update(state, plan, episode)

    def count(self) -> None:
        """Add the waiting episodes to their blocks."""
        blocks, size = self.visits.shape
        for episode in self.waiting:
            block = self.played[0] * blocks // self.n_episodes
            group = episode.states[:-1] * self.task.n_actions + episode.actions
            self.visits[block] += np.bincount(group, minlength=size)
            self.played[0] += 1
        self.waiting.clear()


def detail_of(mdp: FiniteMDP, recorded: Recorded, result: Run) -> str:
    """The detail as JSON, numbers to four digits.

    Keys: horizon, n_states, n_actions, actions (names); policy and planned (H, S), best (H, S) the
    true V*; visits (blocks, S) and until, the last episode of each block; and, of agents that have
    an estimate of the transitions, triples: s, a, next, estimate, truth and count N(s, a).
    """
    recorded.count()
    task = recorded.task
    blocks = len(recorded.visits)
    ends = -(-np.arange(1, blocks + 1) * recorded.n_episodes // blocks)
    by_state = recorded.visits.reshape(blocks, task.n_states, task.n_actions).sum(axis=2)
    found = {
        "horizon": task.horizon,
        "n_states": task.n_states,
        "n_actions": task.n_actions,
        "actions": [str(a) for a in task.actions] if task.actions is not None else None,
        "policy": result.plan.policy.tolist(),
        "planned": rounded(result.plan.v[:-1]),
        "best": rounded(solve(mdp).v[:-1]),
        "visits": by_state.tolist(),
        "until": ends.tolist(),
        "triples": triples(mdp, recorded, result.state),
    }
    return json.dumps(found, separators=(",", ":"))


def triples(mdp: FiniteMDP, recorded: Recorded, state: Any) -> dict[str, Any] | None:
    """Estimated transitions of the first step beside the true ones, None where there are none."""
    task = recorded.task
    estimate = estimated(task, state)
    if estimate is None or task.n_triples > LIMIT:
        return None
    group = np.repeat(np.arange(len(task.sizes)), task.sizes)
    known = mdp.true_task
    keys = np.repeat(np.arange(len(known.sizes)), known.sizes) * task.n_states + known.successors
    wanted = group * task.n_states + task.successors
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    truth = np.where(keys[at] == wanted, mdp.probability[0][at], 0.0)
    return {
        "s": (group // task.n_actions).tolist(),
        "a": (group % task.n_actions).tolist(),
        "next": task.successors.tolist(),
        "estimate": rounded(estimate),
        "truth": rounded(truth),
        "count": recorded.visits.sum(axis=0)[group].tolist(),
    }


def estimated(task: Task, state: Any) -> Array | None:
    """(n,) the agent's estimate: that of its model, or frequencies where it keeps counts."""
    for part in ("model", "counts"):
        prob = getattr(getattr(state, part, None), "prob", None)
        if isinstance(prob, np.ndarray) and prob.shape[-1:] == (task.n_triples,):
            return prob.reshape(-1, task.n_triples)[0]
    counts = getattr(state, "counts", None)
    if isinstance(counts, np.ndarray) and counts.shape[-1:] == (task.n_triples,):
        total = counts.reshape(-1, task.n_triples).sum(axis=0)
        visits = np.repeat(task.by_pair(total), task.sizes)
        return np.where(visits > 0, total / np.maximum(visits, 1), np.nan)
    return None


def rounded(x: Array) -> list[Any]:
    """Nested lists of four significant digits; None where there is no number."""
    flat = [float(f"{v:.4g}") if np.isfinite(v) else None for v in np.ravel(x)]
    width = x.shape[-1]
    return flat if x.ndim == 1 else [flat[i : i + width] for i in range(0, len(flat), width)]
