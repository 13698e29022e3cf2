"""A run's data to the run itself: `run_one` is a pure function of its spec."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.experiments import names
from upriver.experiments.detail import Recorded, detail_of, keeps_detail
from upriver.experiments.runspec import RunSpec, fingerprint
from upriver.features import Features
from upriver.mdp import FiniteMDP
from upriver.play.simulate import Run, simulate

if TYPE_CHECKING:
    import pyarrow as pa


def run_one(run: RunSpec) -> pa.Table:
    """Play one run and return its rows, one per episode, or per step where there is no last one.

    Columns: setting and seed (the same in every row), episode (from 1), return (rewards received),
    value (exact value of the policy played), optimal_value, seconds (planning and learning). All
    but seconds depend on `run` alone. Some runs keep more, in the table's metadata: see `detail`.
    """
    mdp, agent = build(run)
    if agent.task.infinite_horizon:
        return to_table(run, play(run)).replace_schema_metadata({"unit": "step"})
    if not keeps_detail(run, agent.task):
        return to_table(run, play(run))
    recorded = Recorded.of(agent, run.episodes)
    result = simulate(mdp, recorded, run.episodes, run.seed)
    return to_table(run, result).replace_schema_metadata(
        {"detail": detail_of(mdp, recorded, result)}
    )


def play(run: RunSpec) -> Run:
    """The run with its last plan and state, for those who want more than the rows."""
    mdp, agent = build(run)
    if mdp.true_task.infinite_horizon:
        return simulate(mdp, agent, n_steps=run.episodes, seed=run.seed)
    return simulate(mdp, agent, run.episodes, run.seed)


def build(run: RunSpec) -> tuple[FiniteMDP, Any]:
    """(mdp, agent) of a run; the last few are kept, so that seeds of one setting share them."""
    environment = json.dumps(run.environment, sort_keys=True)
    numbers = json.dumps(run.numbers, sort_keys=True)
    return cached_agent(environment, run.agent, numbers, run.support, run.features, run.reward)


@lru_cache(maxsize=4)
def cached_mdp(environment: str) -> FiniteMDP:
    data = json.loads(environment)
    if (discount := data.pop("discount", None)) is not None:
        mdp = cached_mdp(json.dumps(data, sort_keys=True))
        return mdp.infinite_horizon(None if discount == 1.0 else discount)
    if "path" not in data:
        made = names.environment_word(data["name"]).make(**data["numbers"])
        return of_type(made, FiniteMDP, f"environment {data['name']!r}")
    mdp = FiniteMDP.load(data["path"])
    if fingerprint(mdp) != data["sha256"]:
        raise ValueError(
            f"{data['path']} holds another MDP than when the experiment was read; give the file "
            "back, or read the experiment again"
        )
    return mdp


@lru_cache(maxsize=4)
def cached_agent(
    environment: str,
    agent: str,
    numbers: str,
    support: str | None,
    features: str | None,
    reward: str | None,
) -> tuple[FiniteMDP, Any]:
    mdp = cached_mdp(environment)
    cls = names.agent_class(agent)
    given: dict[str, Any] = {}
    varphi = None
    if names.takes(cls, "mdp"):
        given["mdp"] = mdp
    else:
        task = mdp.task(support or "known")
        if features is not None:
            make = names.feature_function(features, json.loads(environment).get("name"))
            varphi = of_type(make(task), Features, f"features {features!r}")
            given["features"] = varphi
        given["task"] = task.with_unknown_reward() if reward == "unknown" else task
    own = {k: names.resolved(k, v, varphi) for k, v in json.loads(numbers).items()}
    return mdp, cls(**given, **own)


def of_type(made: Any, kind: type[Any], what: str) -> Any:
    """What code of somebody else returned, if it is what it should be."""
    if not isinstance(made, kind):
        raise ValueError(f"{what} returned a {type(made).__name__}; it must be a {kind.__name__}")
    return made


def to_table(run: RunSpec, result: Run) -> pa.Table:
    """A row per episode. From buffers: `pa.array` would import pandas in every worker."""
    import pyarrow as pa

    k, setting = len(result.returns), run.setting.encode()
    numbers = {
        "seed": np.full(k, run.seed, np.int64),
        "episode": np.arange(1, k + 1, dtype=np.int32),
        "return": result.returns,
        "value": result.values,
        "optimal_value": result.optimal_values,
        "seconds": result.seconds,
    }

    def column(kind: Any, size: int, *buffers: Any) -> Any:
        return pa.Array.from_buffers(kind, size, [None, *map(pa.py_buffer, buffers)])

    name = column(pa.string(), 1, np.array([0, len(setting)], np.int32), setting)
    places = column(pa.int32(), k, np.zeros(k, np.int32))
    named = {"setting": pa.DictionaryArray.from_arrays(places, name)}
    return pa.table(
        named | {n: column(pa.from_numpy_dtype(x.dtype), k, x) for n, x in numbers.items()}
    )
