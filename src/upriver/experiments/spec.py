"""What an experiment is: environments x agents x seeds, as data, from TOML and back.

The file that `upriver new` writes shows the keys. A number may be a list, which stands for one
entry each: n_states = [6, 10]. `Experiment.runs()` lists the single runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    ValidationError,
    field_validator,
    model_validator,
)

from upriver.display import Card, displayed
from upriver.experiments import names, toml
from upriver.experiments.entries import MOST, AgentSpec, EnvironmentSpec, Label
from upriver.experiments.runspec import RunSpec
from upriver.mdp.names import few

TUNING_SEEDS = 1_000_000
"""Seeds from here on are for tuning; an experiment's own must lie below."""


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Seeds(Frozen):
    """One run of every agent on every environment for each seed."""

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


@displayed
class Experiment(Frozen):
    """A list of runs, as data."""

    name: Label
    """Results go to results/NAME if no folder is given."""
    description: str = ""
    episodes: StrictInt = Field(ge=1, le=MOST)
    """Episodes of a run."""
    seeds: Seeds
    environments: tuple[EnvironmentSpec, ...] = Field(min_length=1)
    agents: tuple[AgentSpec, ...] = Field(min_length=1)

    @field_validator("environments", "agents")
    @classmethod
    def each_by_itself(cls, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(v for entry in entries for v in entry.variants())

    @model_validator(mode="after")
    def distinct(self) -> Experiment:
        places = [e.full_label for e in self.environments]
        labels = [a.full_label for a in self.agents]
        for kind, words in (("environment", places), ("agent", labels)):
            folded = [w.casefold() for w in words]  # some file systems do not tell A from a
            twice = [w for w in words if folded.count(w.casefold()) > 1]
            if twice:
                raise ValueError(f"two entries have the {kind} label {twice[0]!r}; give a label")
        for agent in self.agents:
            for place in agent.at:
                if place not in places:
                    raise names.unknown(f"agent {agent.full_label!r}: at", place, places)
        return self

    def card(self) -> Card:
        pairs = len(self.environments) * len(self.agents)
        return Card(
            {"runs": pairs * self.seeds.count, "episodes": self.episodes,
             "environments": few([e.full_label for e in self.environments]),
             "agents": few([a.full_label for a in self.agents]), "seeds": self.seeds.count},
            of=self.name,
        )  # fmt: skip

    def runs(self) -> list[RunSpec]:
        """Every run, ordered by environment, agent and seed."""
        seeds = range(self.seeds.first, self.seeds.first + self.seeds.count)
        pairs = ((e, a) for e in self.environments for a in self.agents)
        return [run for e, a in pairs for run in self.runs_of(e, a, seeds)]

    def runs_of(
        self, environment: EnvironmentSpec, agent: AgentSpec, seeds: range
    ) -> list[RunSpec]:
        """The runs of one agent on one environment."""
        sees_task = not names.takes(agent.cls, "mdp")
        assert agent.features is None or isinstance(agent.features, str)
        first = RunSpec(
            env=environment.full_label,
            label=agent.full_label,
            environment=environment.identity,
            agent=agent.agent,
            numbers=agent.numbers_at(environment.full_label),
            support=str(agent.support) if sees_task else None,
            features=names.with_digest(agent.features) or names.default_features(agent.cls),
            reward=agent.reward if sees_task else None,
            episodes=environment.episodes or self.episodes,
            seed=seeds.start,
        )
        return [replace(first, seed=seed) for seed in seeds]

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

    def to_toml(self, folder: Path | None = None) -> str:
        """The text of a spec; one that will lie in `folder` names its files from there."""
        found = self if folder is None else self.placed(lambda file: relative(file, folder))
        return toml.dumps(found.to_data())

    def placed(self, move: Callable[[Path], Path]) -> Experiment:
        """The same experiment, its MDPs and features in other files."""
        data = self.to_data()
        for entry, plain in zip(self.environments, data["environments"], strict=True):
            if entry.path is not None:
                moved = str(move(Path(os.path.abspath(entry.path))))
                plain.update(path=moved, label=entry.full_label)
        for agent, plain in zip(self.agents, data["agents"], strict=True):
            if isinstance(agent.features, str) and names.is_file(agent.features):
                plain["features"] = str(move(Path(os.path.abspath(agent.features))))
        return parse(data, self.name)


def relative(file: Path, folder: Path) -> Path:
    """A file as a spec in `folder` names it."""
    try:
        return Path(os.path.relpath(file, folder))
    except ValueError:  # on another drive
        return file


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
    if first["type"] == "string_pattern_mismatch":
        return f"{where} is {given!r}; it must be letters, digits, spaces and .+()@,:{{}}-"
    if first["type"] == "model_type" and where == "seeds":
        return f"seeds is {given!r}; it must be a table such as {{ first = 0, count = 10 }}"
    text = first["msg"].removeprefix("Input ")
    return f"{where} is {given!r}; it {text}"
