"""One run as plain data, and its identity: everything that can change its result, and no more."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from upriver.display import displayed
from upriver.experiments import names
from upriver.mdp import FiniteMDP

FILED_UNDER = {"directions": "upriver.findings:directions"}
"""Features -> the word that identities have for them: what a run is called stays as it was."""


@displayed
@dataclass(frozen=True, repr=False)
class RunSpec:
    """One run: an agent on an environment with one seed. Plain data, equal to its JSON."""

    env: str
    """The environment's label; the name of a folder of the store is made from it."""
    label: str
    """The agent's label, the same."""
    environment: dict[str, Any]
    """{"name": ..., "numbers": {...}} or {"path": ..., "sha256": ...}."""
    agent: str
    numbers: dict[str, Any]
    """All of the agent's numbers, defaults included."""
    support: str | None
    features: str | None
    reward: str | None
    episodes: int
    seed: int

    @cached_property
    def setting(self) -> str:
        """Short hash of everything but the seed that can change the result."""
        identity = self.to_data()
        for key in ("env", "label", "seed"):
            del identity[key]
        # a file is what it holds, not where it lies
        identity["environment"] = {k: v for k, v in self.environment.items() if k != "path"}
        if self.features is not None:
            named = FILED_UNDER.get(self.features, self.features)
            identity["features"] = named.partition("#")[2] if names.is_file(named) else named
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def key(self) -> str:
        return f"{self.setting}-{self.seed}"

    def to_data(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def to_json(self) -> str:
        return json.dumps(self.to_data(), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> RunSpec:
        return RunSpec(**json.loads(text))


def fingerprint(mdp: FiniteMDP) -> str:
    """Hash of the numbers of an MDP."""
    task, digest = mdp.true_task, hashlib.sha256()
    shape = np.array([task.n_states, task.n_actions, task.horizon])
    for array in (
        shape, task.indptr, task.successors, mdp.reward, mdp.probability, mdp.initial_states,
        mdp.initial_probability, *(mdp.local or ()),
        *(x for x in (task.next_state_reward, task.terminal) if x is not None),
    ):  # fmt: skip
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
