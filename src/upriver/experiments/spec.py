"""What an experiment is: environments x agents x seeds, as data, from TOML and back.

    name = "example"
    episodes = 100
    seeds = { first = 0, count = 10 }

    [[environments]]
    name = "riverswim-6"             # or "riverswim" and n_states = 6, or path = "river.toml"
    horizon = 24                     # any argument of the environment's function
    episodes = 50                    # instead of the experiment's own

    [[agents]]
    agent = "ucrl-mnl"
    label = "UCRL-MNL"               # how tables call it; the agent's name if absent
    support = "known"                # or "local", "full", or a list of them
    features = "one-hot"             # or "one-hot-indicator", "shared", "module:function",
                                     # "file.csv", or a list of them
    reward = "known"                 # or "unknown": the agent must learn it
    radius = 1e-3                    # any field of the agent's dataclass
    [agents.at."riverswim-6"]        # numbers for one environment only
    radius = 1e-4

`Experiment.runs()` lists the single runs. A run's identity is everything that can change its
result, defaults included, and not the label.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError, model_validator

from upriver.experiments import names, toml
from upriver.mdp import FiniteMDP

TUNING_SEEDS = 1_000_000
"""Seeds from here on are for tuning; an experiment's own must lie below."""

Label = Annotated[str, Field(pattern=r"^\w[\w .+()@,:-]*$", max_length=100)]
Support = Literal["known", "local", "full"]


@dataclass(frozen=True)
class RunSpec:
    """One run: an agent on an environment with one seed. Plain data, equal to its JSON."""

    env: str
    """The environment's label, a folder of the store."""
    label: str
    """The agent's label, a folder of the store."""
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
        if self.features is not None and names.is_file(self.features):
            identity["features"] = self.features.partition("#")[2]
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


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Seeds(Frozen):
    first: StrictInt = Field(0, ge=0)
    count: StrictInt = Field(ge=1)

    @model_validator(mode="after")
    def apart_from_tuning(self) -> Seeds:
        if self.first + self.count > TUNING_SEEDS:
            raise ValueError(
                f"seeds reach {self.first + self.count - 1}; seeds from {TUNING_SEEDS} on are "
                "kept for tuning"
            )
        return self


class EnvironmentSpec(BaseModel):
    """One environment; keys beyond these are arguments of its function."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str | None = None
    path: str | None = None
    """A saved MDP, instead of a name."""
    label: Label | None = None
    episodes: StrictInt | None = Field(None, ge=1)

    @model_validator(mode="after")
    def known_numbers(self) -> EnvironmentSpec:
        if (self.name is None) == (self.path is None):
            raise ValueError("an environment needs either a name or a path")
        given = self.model_extra or {}
        if self.path is not None:
            for key in given:
                raise names.unknown("key", key, type(self).model_fields)
            return self
        assert self.name is not None
        word = names.environment_word(self.name)
        defaults = names.environment_numbers(word.make)
        for key in given:
            if key not in defaults:
                raise names.unknown("key", key, {*defaults, *type(self).model_fields})
            if key in word.numbers:
                raise ValueError(f"{key} is given twice: by the name {self.name!r} and as a key")
        for key, default in defaults.items():
            if default is MISSING and key not in given and key not in word.numbers:
                raise ValueError(f"environment {self.name!r} lacks its argument {key!r}")
        return self

    @cached_property
    def full_label(self) -> str:
        """The label, or the name with its size and whatever else was given."""
        if self.label is not None:
            return self.label
        if self.path is not None:
            return Path(self.path).stem
        assert self.name is not None
        word = names.environment_word(self.name)
        given = {**word.numbers, **(self.model_extra or {})}
        size = names.environment_numbers(word.make).get(word.size) if word.size else None
        size = given.pop(word.size, size) if word.size else None
        parts = [word.base.rpartition(":")[2]]
        parts += [f"{size:g}" if isinstance(size, float) else str(size)] if size else []
        parts += [f"{key}-{number}" for key, number in given.items()]
        return "-".join(parts)

    def identity(self) -> dict[str, Any]:
        if self.path is not None:
            return {"path": self.path, "sha256": fingerprint(FiniteMDP.load(self.path))}
        assert self.name is not None
        word = names.environment_word(self.name)
        defaults = names.environment_numbers(word.make)
        given = {**word.numbers, **(self.model_extra or {})}
        numbers = {
            key: names.canonical(key, given[key], default) if key in given else default
            for key, default in defaults.items()
        }
        return {"name": word.base, "numbers": numbers}


class AgentSpec(BaseModel):
    """One agent; keys beyond these are fields of its dataclass."""

    model_config = ConfigDict(frozen=True, extra="allow")

    agent: str
    label: Label | None = None
    support: Support | tuple[Support, ...] = "known"
    features: str | tuple[str, ...] | None = None
    """Only for agents that take features; "one-hot" if absent."""
    reward: Literal["known", "unknown"] = "known"
    at: dict[str, dict[str, Any]] = {}
    """Numbers for single environments, by the environment's label."""
    grid: dict[str, list[Any]] = {}
    """What `tune` tries, instead of the values that the agent declares."""

    @model_validator(mode="after")
    def known_numbers(self) -> AgentSpec:
        defaults = names.agent_numbers(self.cls)
        own = {*defaults, *type(self).model_fields}
        for key, value in self.numbers.items():
            if key not in defaults:
                raise names.unknown("key", key, own)
            names.canonical(key, value, defaults[key])
        for place, table in [*self.at.items(), ("grid", self.grid)]:
            for key, value in table.items():
                if key not in defaults:
                    raise names.unknown(f"{place}: key", key, defaults)
                for one in value if place == "grid" else [value]:
                    names.canonical(key, one, defaults[key])
        if self.features is not None and not names.takes(self.cls, "features"):
            raise ValueError(f"agent {self.agent!r} takes no features; remove the key")
        for name in listed(self.features):
            if name != "shared":
                names.feature_function(name, None)
        return self

    @property
    def cls(self) -> type[Any]:
        return names.agent_class(self.agent)

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers that the entry gives."""
        return self.model_extra or {}

    @property
    def full_label(self) -> str:
        return self.label or self.agent.rpartition(":")[2]

    def variants(self) -> list[AgentSpec]:
        """One entry for each support and features, with labels that tell them apart."""
        supports, maps = listed(self.support), listed(self.features) or [None]
        if len(supports) * len(maps) == 1:
            return [self]
        return [
            self.model_copy(
                update={
                    "support": support,
                    "features": features,
                    "label": "-".join(
                        [
                            self.full_label,
                            *([support] if len(supports) > 1 else []),
                            *([names.features_label(features)] if len(maps) > 1 else []),
                        ]
                    ),
                }
            )
            for support in supports
            for features in maps
        ]

    def numbers_at(self, env: str) -> dict[str, Any]:
        """All numbers on one environment, defaults included, as they enter the identity."""
        given = {**self.numbers, **self.at.get(env, {})}
        full = {}
        for key, default in names.agent_numbers(self.cls).items():
            if key in given:
                full[key] = names.canonical(key, given[key], default)
            elif default is not MISSING:
                full[key] = names.described(key, default)
            else:
                raise ValueError(f"agent {self.full_label!r} lacks its number {key!r}")
        return full


class Experiment(Frozen):
    """A list of runs, as data."""

    name: Label
    description: str = ""
    episodes: StrictInt = Field(ge=1)
    seeds: Seeds
    environments: tuple[EnvironmentSpec, ...] = Field(min_length=1)
    agents: tuple[AgentSpec, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def distinct(self) -> Experiment:
        places = [e.full_label for e in self.environments]
        labels = [v.full_label for a in self.agents for v in a.variants()]
        for kind, words in (("environment", places), ("agent", labels)):
            twice = [w for w in words if words.count(w) > 1]
            if twice:
                raise ValueError(f"two entries have the {kind} label {twice[0]!r}; give a label")
        for agent in self.agents:
            for place in agent.at:
                if place not in places:
                    raise names.unknown(f"agent {agent.full_label!r}: at", place, places)
        return self

    def runs(self) -> list[RunSpec]:
        """Every run, ordered by environment, agent and seed."""
        seeds = range(self.seeds.first, self.seeds.first + self.seeds.count)
        return self.runs_with(seeds)

    def runs_with(self, seeds: range) -> list[RunSpec]:
        runs = []
        for environment in self.environments:
            env, identity = environment.full_label, environment.identity()
            for agent in (v for a in self.agents for v in a.variants()):
                sees_task = not names.takes(agent.cls, "mdp")
                numbers = agent.numbers_at(env)
                features = names.with_digest(one(agent.features))
                runs += [
                    RunSpec(
                        env=env,
                        label=agent.full_label,
                        environment=identity,
                        agent=agent.agent,
                        numbers=numbers,
                        support=one(agent.support) if sees_task else None,
                        features=features or names.default_features(agent.cls),
                        reward=agent.reward if sees_task else None,
                        episodes=environment.episodes or self.episodes,
                        seed=seed,
                    )
                    for seed in seeds
                ]
        return runs

    def with_seeds(self, count: int, first: int = 0) -> Experiment:
        """The same experiment with other seeds."""
        return parse({**self.to_data(), "seeds": {"first": first, "count": count}}, self.name)

    def with_episodes(self, episodes: int) -> Experiment:
        """The same experiment, shorter or longer, everywhere."""
        data = {**self.to_data(), "episodes": episodes}
        for environment in data["environments"]:
            environment.pop("episodes", None)
        return parse(data, self.name)

    def to_data(self) -> dict[str, Any]:
        """Plain tables and lists, as TOML has them."""
        return self.model_dump(mode="json", exclude_none=True, exclude_defaults=True)

    def to_toml(self) -> str:
        return toml.dumps(self.to_data())


def fingerprint(mdp: FiniteMDP) -> str:
    """Hash of the numbers of an MDP."""
    task, digest = mdp.known, hashlib.sha256()
    local = mdp.local or ()
    shape = np.array([task.n_states, task.n_actions, task.horizon])
    for array in (
        shape, task.indptr, task.successors, mdp.reward, mdp.probability, mdp.initial_states,
        mdp.initial_probability, *local,
    ):  # fmt: skip
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, tuple | list) else [value]


def one(value: Any) -> Any:
    """The only entry of a list of one, and anything else as it is."""
    return value[0] if isinstance(value, tuple | list) else value


def read(path: str | Path) -> Experiment:
    """The experiment of a TOML file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot read the experiment {str(path)!r}: {reason}") from error
    return loads(text, str(path), Path(path).parent)


def loads(text: str, source: str = "experiment", folder: Path | None = None) -> Experiment:
    """The experiment of a TOML text; `source` names it in errors, files start at `folder`."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{source} is not TOML: {error}") from error
    entries = data.get("environments")
    for entry in entries if folder and isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("path"), str):
            entry["path"] = str(folder / entry["path"])
    agents = data.get("agents")
    for entry in agents if folder and isinstance(agents, list) else ():
        if folder and isinstance(entry, dict) and "features" in entry:
            entry["features"] = placed(entry["features"], folder)
    return parse(data, source)


def placed(features: Any, folder: Path) -> Any:
    """Features with the files among them under `folder`."""
    if isinstance(features, list):
        return [placed(x, folder) for x in features]
    is_file = isinstance(features, str) and names.is_file(features)
    return str(folder / features) if is_file else features


def parse(data: Mapping[str, Any], source: str = "experiment") -> Experiment:
    """The experiment of plain tables and lists; one sentence for the first thing wrong."""
    try:
        return Experiment.model_validate(dict(data))
    except ValidationError as error:
        raise ValueError(f"{source}: {sentence(error)}") from error


def sentence(error: ValidationError) -> str:
    """The first problem as one sentence: where, what, and what is allowed.

    A misspelt key comes first: it may be why another one is missing.
    """
    problems = error.errors(include_url=False)
    first = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    where = ""
    for part in first["loc"]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    where = where.removesuffix(".literal['known','local','full']")
    given = first.get("input")
    if first["type"] == "extra_forbidden":
        place, _, key = where.rpartition(".")
        model = Seeds if place == "seeds" else Experiment
        prefix = f"{place}: " if place else ""
        return f"{prefix}{names.unknown('key', key, model.model_fields)}"
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] == "value_error":
        text = first["msg"].removeprefix("Value error, ")
        return f"{where}: {text}" if where else text
    if first["type"] == "model_type" and where == "seeds":
        return f"seeds is {given!r}; it must be a table such as {{ first = 0, count = 10 }}"
    text = first["msg"].removeprefix("Input ")
    return f"{where} is {given!r}; it {text}"
