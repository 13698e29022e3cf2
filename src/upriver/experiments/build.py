"""One run as plain data, its identity, and the run itself: `run_one` is a pure function."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.display import add_repr
from upriver.experiments import registry
from upriver.features import Features, unpooled
from upriver.mdp import FiniteMDP
from upriver.mdp.archive import digest
from upriver.planning import evaluate
from upriver.play.simulate import Run, simulate

if TYPE_CHECKING:
    import pyarrow as pa


MAX_BUILT = 64
"""MDPs, features and agents that a process keeps; runs of one setting share them."""
DIGEST_OF_MDP = 16
"""Characters of the digest of a run that tell MDPs apart; the others are of features and code."""
MAX_ERROR = 500
"""Characters of an error that are shown and kept; its traceback is kept too."""


@add_repr
@dataclass(frozen=True, repr=False)
class RunSpec:
    """One run: an agent on an environment with one seed. Plain data, equal to its JSON."""

    env: str
    """The environment's label; the name of a folder of the store is made from it."""
    label: str
    """The agent's label, used in the same way."""
    environment: dict[str, Any]
    """{"name", "settings"} or {"path"}, with "discount" for an infinite horizon."""
    agent: str
    settings: dict[str, Any]
    """All settings of the agent, defaults included."""
    support: str | None
    features: str | None
    """A name, or file:name."""
    reward: str | None
    episodes: int
    seed: int
    digest: str = ""
    """What these names and files stand for; `build` computes it."""

    @cached_property
    def setting(self) -> str:
        """Short digest of everything but the seed that influences the result.

        Labels do not, and where a file lies does not: the digest covers what it holds.
        """
        parts = ("agent", "settings", "support", "reward", "episodes", "digest")
        return hash_data([getattr(self, name) for name in parts])[:12]

    @property
    def key(self) -> str:
        """The name of the run's file, without its ending."""
        return f"{self.setting}-{self.seed}"

    def to_data(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def to_json(self) -> str:
        return json.dumps(self.to_data(), sort_keys=True, separators=(",", ":"))


def hash_data(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def get_code(name: str | None) -> str | None:
    """Return the text of the file that defines a name of the form `file:name`.

    The code of the package itself belongs to its version, which a results folder has one of.
    """
    code = registry.IMPORTED.get(name.partition(":")[0]) if name and ":" in name else None
    return code and code.text


def get_mdp(environment: dict[str, Any]) -> tuple[FiniteMDP, str]:
    """Return the MDP of an environment, and a digest of all that influences a run."""
    name = environment.get("path", environment.get("name"))
    state: Any = get_code(name)  # says whether the file or the code behind the name has changed
    if name is not None and os.path.exists(name):
        found = os.stat(name)
        state = found.st_mtime_ns, found.st_size, found.st_ino
    return make_mdp(json.dumps(environment, sort_keys=True), state)


@lru_cache(maxsize=MAX_BUILT)  # the agents of an experiment share it
def make_mdp(environment_json: str, state: Any) -> tuple[FiniteMDP, str]:
    environment = json.loads(environment_json)
    if "path" in environment:
        mdp = FiniteMDP.load(environment["path"])
    else:
        name = environment["name"]
        made = registry.environment_function(name)(**environment["settings"])
        mdp = check_type(made, FiniteMDP, f"environment {name!r}")
    if (discount := environment.get("discount")) is not None:
        mdp = mdp.infinite_horizon(None if discount == 1.0 else discount)
    parts = mdp.true_task, mdp.probability, mdp.initial_states, mdp.initial_probability, mdp.local
    return mdp, digest(list(parts))[:DIGEST_OF_MDP]  # without its name


@lru_cache(maxsize=MAX_BUILT)
def make_features(
    name: str, place: str | None, mdp: FiniteMDP, support: str, state: Any, pools: bool
) -> tuple[Features, str]:
    made = registry.feature_function(name, place)(mdp.task(support))
    check_type(made, Features, f"features {name!r}")
    if name == "automatic" and made.spread and not pools:
        made = unpooled(made)  # as where an agent finds them itself
    return made, digest([getattr(made, f.name) for f in fields(made) if f.name != "task"])


@lru_cache(maxsize=MAX_BUILT)
def evaluate_uniform_play(mdp: FiniteMDP) -> float:
    """Return the exact value of uniform play from the start: the gain for the average reward.

    It is the zero of the scale on which `Sample.stuck` measures how far a run is from the optimum.
    """
    available = mdp.true_task.available
    valued: Any = evaluate(mdp, available / available.sum(axis=1, keepdims=True))
    if mdp.discount == 1.0:
        return float(valued.gain)
    v = valued.v if mdp.true_task.infinite_horizon else valued[0]
    return float(mdp.initial_probability @ v[mdp.initial_states])


@lru_cache(maxsize=MAX_BUILT)
def make_agent(run_json: str, mdp: FiniteMDP, features: Features | None, code: Any) -> Any:
    """Return the agent of a run; `code` says whether the code that it names has changed."""
    run = RunSpec(**json.loads(run_json))
    cls = registry.agent_class(run.agent)
    given: dict[str, Any] = {}
    if "mdp" in cls.__dataclass_fields__:
        given["mdp"] = mdp
    else:
        task = mdp.task(run.support or "known") if features is None else features.task
        given["task"] = task.with_unknown_reward() if run.reward == "unknown" else task
        given |= {} if features is None else {"features": features}
    return cls(**given, **registry.make_settings(cls, run.settings, features))


def build(run: RunSpec) -> tuple[FiniteMDP, Any, str]:
    """Return the MDP, the agent and the digest of a run; they are built once in a process.

    A run that has another digest is refused.
    """
    try:
        mdp, found = get_mdp(run.environment)
        features, of_features = None, None
        if run.features is not None:
            place = run.environment.get("name"), mdp, run.support or "known"
            state = get_code(run.features)
            pools = getattr(registry.agent_class(run.agent), "pools", True)
            features, of_features = make_features(run.features, *place, state, pools)
        code = [get_code(name) for name in (run.agent, *registry.list_own_names(run.settings))]
        agent = make_agent(replace(run, seed=0, digest="").to_json(), mdp, features, tuple(code))
        found += hash_data([of_features, *code])
    except (Exception, SystemExit) as error:  # also of code of the user, or too large
        ours = isinstance(error, ValueError | TypeError)
        sentence = error if ours else describe_error(error)
        raise ValueError(f"{run.label} on {run.env}: {sentence}") from error
    if run.digest not in ("", found):
        what = run.environment.get("path") or "what the names of the run stand for"
        raise ValueError(
            f"{what} was changed after the experiment "
            "was read; restore it, or read the experiment again"
        )
    return mdp, agent, found


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an error in one line."""
    text = " ".join(f"{type(error).__name__}: {str(error)[: 2 * MAX_ERROR]}".split())
    return text.removesuffix(":") if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]} ..."


def check_type(made: Any, kind: type[Any], source: str) -> Any:
    """Return what code of the user returned, if it has the right type."""
    if not isinstance(made, kind):
        raise ValueError(f"{source} returned a {type(made).__name__}; it must be a {kind.__name__}")
    return made


def simulate_run(run: RunSpec, mdp: FiniteMDP, agent: Any) -> Run:
    """Return the `Run` of a run that was built, with its last plan and state."""
    if mdp.true_task.infinite_horizon:
        return simulate(mdp, agent, n_steps=run.episodes, seed=run.seed)
    return simulate(mdp, agent, run.episodes, run.seed)


def run_one(run: RunSpec) -> pa.Table:
    """Play one run and return its rows, one per episode, or per step for an infinite horizon.

    Columns: setting and seed (the same in every row), episode (from 1), return (rewards received),
    value (exact value of the policy played), optimal_value, uniform_value (of uniform play, the
    same in every row), seconds (planning and learning). All but seconds depend on `run` alone.
    """
    mdp, agent, _ = build(run)
    unit = "step" if agent.task.infinite_horizon else "episode"
    played = simulate_run(run, mdp, agent)
    return to_table(run, mdp, played).replace_schema_metadata({"unit": unit})


def to_table(run: RunSpec, mdp: FiniteMDP, played: Run) -> pa.Table:
    """Return a row per episode. From buffers, since `pa.array` would import pandas."""
    import pyarrow as pa

    setting, k = run.setting.encode(), len(played.returns)
    numbers = {
        "seed": np.full(k, run.seed),
        "episode": np.arange(1, k + 1, dtype=np.int32),
        "return": played.returns,
        "value": played.values,
        "optimal_value": played.optimal_values,
        "seconds": played.seconds,
        "uniform_value": np.full(k, evaluate_uniform_play(mdp)),
    }

    def column(kind: Any, size: int, *buffers: Any) -> Any:
        return pa.Array.from_buffers(kind, size, [None, *map(pa.py_buffer, buffers)])

    name = column(pa.string(), 1, np.array([0, len(setting)], np.int32), setting)
    places = column(pa.int32(), k, np.zeros(k, np.int32))
    columns = {n: column(pa.from_numpy_dtype(x.dtype), k, x) for n, x in numbers.items()}
    return pa.table({"setting": pa.DictionaryArray.from_arrays(places, name)} | columns)
