"""The entries of an experiment: an environment or an agent with its numbers, or a list of them.

A number given as a list stands for one entry each, and so do several supports or features. The
label tells them apart: it names numbers in braces, or has the values added.
"""

from __future__ import annotations

import os
import re
from dataclasses import MISSING
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictInt, field_validator, model_validator

from upriver.experiments import names
from upriver.experiments.runspec import fingerprint
from upriver.features import own_map
from upriver.mdp import FiniteMDP

Label = Annotated[str, Field(pattern=r"^[\w{][\w .+()@,:{}-]*$", max_length=100)]
MOST = 1_000_000_000
"""Episodes of a run, at most."""
Support = Literal["known", "local", "full"]


class Entry(BaseModel):
    """Keys beyond the fields are numbers: arguments of a function, or fields of a dataclass."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    label: Label | None = None
    """Its name in tables and figures, where numbers in braces are filled in; made if absent."""

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers that the entry gives."""
        return self.model_extra or {}

    def listed(self, defaults: dict[str, Any]) -> dict[str, Any]:
        """The numbers that are lists where one number is wanted."""
        return {
            key: value
            for key, value in self.numbers.items()
            if isinstance(value, list) and not isinstance(defaults.get(key), list | tuple)
        }

    def spread(self, lists: dict[str, Any], label: str | None) -> list[Self]:
        """One entry for each combination of what is listed."""
        found = []
        for chosen in combinations(lists):
            own = label
            if label is not None and "{" in label:
                own = filled(label, {**self.model_dump(exclude={"label"}), **chosen})
            elif label is not None:
                own = "-".join([label, *map(shown, chosen.values())])
            found.append(self.model_copy(update={**chosen, "label": own}))
        return found


def combinations(lists: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(lists, values, strict=True)) for values in product(*lists.values())]


def filled(label: str, values: dict[str, Any]) -> str:
    """The label with numbers for the names in braces."""

    def value(match: re.Match[str]) -> str:
        if values.get(match[1]) is None:
            raise names.unknown("label: number", match[1], values)
        return shown(values[match[1]])

    return re.sub(r"\{(\w+)\}", value, label)


def shown(value: Any) -> str:
    """A value as labels have it: a file by its name alone, a rule by its own."""
    if isinstance(value, str):
        return Path(value).stem if names.is_file(value) else value
    return next(iter(value)) if isinstance(value, dict) else f"{value:g}"


class EnvironmentSpec(Entry):
    """One environment; keys beyond these are arguments of its function."""

    name: str | None = None
    """A name of the catalogue, with its size or without: riverswim-6, or riverswim and n_states."""
    path: str | None = None
    """A saved MDP, instead of a name."""
    episodes: StrictInt | None = Field(None, ge=1, le=MOST)
    """Instead of the experiment's own; of a problem without a last step the number of steps."""
    discount: float | None = Field(None, ge=0, le=1)
    """Makes it a problem without a last step; 1 is the average reward."""

    @model_validator(mode="after")
    def known_numbers(self) -> EnvironmentSpec:
        if (self.name is None) == (self.path is None):
            raise ValueError("an environment needs either a name or a path")
        if self.path is not None:
            for key in self.numbers:
                raise names.unknown("key", key, type(self).model_fields)
            return self
        for key in self.numbers:
            if key not in self.defaults:
                raise names.unknown("key", key, {*self.defaults, *type(self).model_fields})
            if key in self.word.numbers:
                raise ValueError(f"{key} is given twice: by the name {self.name!r} and as a key")
            for one in self.listed(self.defaults).get(key, [self.numbers[key]]):
                names.canonical(key, one, self.defaults[key])
        for key, default in self.defaults.items():
            if default is MISSING and key not in self.numbers and key not in self.word.numbers:
                raise ValueError(f"environment {self.name!r} lacks its argument {key!r}")
        return self

    @property
    def word(self) -> names.EnvironmentWord:
        assert self.name is not None
        return names.environment_word(self.name)

    @property
    def defaults(self) -> dict[str, Any]:
        return names.environment_numbers(self.word.make)

    def variants(self) -> list[Self]:
        lists = self.listed(self.defaults) if self.path is None else {}
        return self.spread(lists, self.label)

    @property
    def full_label(self) -> str:
        """The label, or the name with its size and whatever else was given."""
        if self.label is not None:
            return self.label
        if self.path is not None:
            stem = re.sub(r"[^\w .+()@,:-]", "_", Path(self.path).stem)
            return stem.lstrip(" .+()@,:-")[:100] or "mdp"
        word = self.word
        given = {**word.numbers, **self.numbers}
        size = given.pop(word.size, self.defaults.get(word.size)) if word.size else None
        parts = [word.base.rpartition(":")[2]]
        parts += [f"{size:g}" if isinstance(size, float) else str(size)] if size else []
        ends = [] if self.discount is None else [f"discount-{self.discount:g}"]
        return "-".join(parts + [f"{key}-{number}" for key, number in given.items()] + ends)

    @cached_property
    def identity(self) -> dict[str, Any]:
        if self.path is not None:
            # the place of now: whoever plays the run may be somewhere else
            found = fingerprint(FiniteMDP.load(self.path))
            return {"path": os.path.abspath(self.path), "sha256": found, **self.infinite_horizon}
        given = {**self.word.numbers, **self.numbers}
        numbers = {
            key: names.canonical(key, given[key], default) if key in given else default
            for key, default in self.defaults.items()
        }
        return {"name": self.word.base, "numbers": numbers, **self.infinite_horizon}

    @property
    def infinite_horizon(self) -> dict[str, float]:
        """Nothing where episodes end: such runs are called what they always were."""
        return {} if self.discount is None else {"discount": self.discount}


class AgentSpec(Entry):
    """One agent; keys beyond these are fields of its dataclass."""

    agent: str
    support: Support | tuple[Support, ...] = "known"
    """Which next states the learner is told of; a list stands for one entry each."""
    features: str | tuple[str, ...] | None = None
    """Only for agents that take features; "one-hot" if absent. A list stands for one entry each."""
    reward: Literal["known", "unknown"] = "known"
    """Whether the agent is told the rewards or must learn them."""
    at: dict[str, dict[str, Any]] = {}
    """Numbers for single environments, by the environment's label."""
    grid: dict[str, list[Any]] = {}
    """What `tune` tries, instead of the values that the agent declares."""

    @field_validator("features")
    @classmethod
    def by_their_names(cls, given: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        """Features that had another name once."""
        if isinstance(given, tuple):
            return tuple(names.RENAMED.get(x, x) for x in given)
        return names.RENAMED.get(given, given) if given else given

    @model_validator(mode="after")
    def known_numbers(self) -> AgentSpec:
        defaults = names.agent_numbers(self.cls)
        lists = self.listed(defaults)
        for key, value in self.numbers.items():
            if key not in defaults:
                raise names.unknown("key", key, {*defaults, *type(self).model_fields})
            for one in lists.get(key, [value]):
                names.canonical(key, one, defaults[key])
        for place, table in [*self.at.items(), ("grid", self.grid)]:
            for key, value in table.items():
                if key not in defaults:
                    raise names.unknown(f"{place}: key", key, defaults)
                for one in value if place == "grid" else [value]:
                    names.canonical(key, one, defaults[key])
        if self.features is not None and not names.takes(self.cls, "features"):
            raise ValueError(f"agent {self.agent!r} takes no features; remove the key")
        for name in self.features if isinstance(self.features, tuple) else [self.features]:
            if name is not None and own_map(name) is None:
                names.feature_function(name, None)
        return self

    @property
    def cls(self) -> type[Any]:
        return names.agent_class(self.agent)

    @property
    def full_label(self) -> str:
        return self.label or self.agent.rpartition(":")[2]

    def variants(self) -> list[Self]:
        several = {
            k: v for k in ("support", "features") if isinstance(v := getattr(self, k), tuple)
        }
        lists = {**several, **self.listed(names.agent_numbers(self.cls))}
        return self.spread(lists, self.full_label) if lists or self.label else [self]

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
