"""An experiment as data: environments x agents x seeds, from TOML to a list of runs and back.

`upriver new` writes a file that shows the keys. pydantic validates an experiment once: the models
of its entries are made from the arguments of the environment's function and from the fields of the
agent's dataclass, and the key `name` or `agent` says which model an entry has. A setting may be a
list, which stands for one entry each: n_states = [6, 10]. `Experiment.runs()` lists the runs.
"""

from __future__ import annotations

import inspect
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, replace
from functools import cache, lru_cache
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic as pd
import tomli_w
from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator
from pydantic.json_schema import models_json_schema

from upriver.agents.mnl_family import MNLLearner
from upriver.checks import check_kinds, format_value
from upriver.display import Card, add_repr
from upriver.envs import split_name
from upriver.experiments import registry
from upriver.experiments.build import RunSpec, build, describe_error, get_mdp
from upriver.experiments.registry import unknown
from upriver.mdp import FiniteMDP
from upriver.mdp.names import abbreviate

TUNING_SEEDS = 1_000_000
"""Seeds from here on are for tuning; an experiment's own must lie below."""
CATALOGUE = resources.files("upriver.experiments") / "catalogue"

Label = Annotated[str, Field(pattern=r"^[\w{][\w .+()@,:{}-]*$", max_length=100)]
Episodes = Annotated[pd.StrictInt, Field(ge=1, le=1_000_000_000)]
Whole = Annotated[pd.StrictInt, Field(ge=-(2**63), lt=2**63)]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e300, le=1e300)]


def check_scalar(value: Any) -> Any:
    """Accept any single value, for a setting whose default does not say its type."""
    finite = isinstance(value, int | float) and abs(value) <= 1e300  # false for nan
    if finite or value is None or isinstance(value, bool | str):
        return value
    raise ValueError(f"it is {str(value)[:40]}; it must be a finite number, true, false or a name")


Scalar = Annotated[
    Any, AfterValidator(check_scalar), pd.WithJsonSchema({"type": ["number", "boolean", "string"]})
]


def make_absolute(name: str, info: pd.ValidationInfo) -> str:
    """Return the absolute name of a file, which is relative to the folder of the experiment."""
    return os.path.abspath(os.path.join(info.context or "", name))


def check_features(name: str) -> str:
    if name not in registry.OWN:
        registry.feature_function(name, None)
    return name


FEATURE_NAMES = {"enum": [*registry.FEATURES, *registry.OWN]}
FEATURE_SCHEMA = {"type": "string", "anyOf": [FEATURE_NAMES, {"pattern": r"^\w+:\w+$"}]}
FeatureName = Annotated[str, AfterValidator(check_features), pd.WithJsonSchema(FEATURE_SCHEMA)]


def make_model(name: str, base: Any, fields: dict[str, Any], doc: str | None = None) -> Any:
    """Make a model at run time, whose source pydantic need not search."""
    options = {"use_attribute_docstrings": False}
    return pd.create_model(name, __base__=base, __doc__=doc, __cls_kwargs__=options, **fields)


class Strict(pd.BaseModel):
    """A table without unknown keys."""

    model_config = pd.ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def check_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                raise unknown("key", str(key), cls.model_fields)
        return data

    def to_data(self) -> dict[str, Any]:
        """Return what was given, as plain tables and lists, as TOML has them."""
        # warnings would say that rules, `at` and `grid` are plain tables by now
        options: Any = {"exclude_unset": True, "exclude_none": True, "warnings": False}
        return self.model_dump(mode="json", **options)


class Entry(Strict):
    """An environment or an agent; the keys beyond the fields of these classes are its settings."""

    label: Label | None = None
    """Its name in tables and figures; settings in braces are filled in. Made if absent."""

    @property
    def given(self) -> dict[str, Any]:
        common = {*AgentEntry.model_fields, *EnvironmentEntry.model_fields, "path"}
        return {k: v for k, v in self.to_data().items() if k not in common}


def combinations(lists: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(lists, values, strict=True)) for values in product(*lists.values())]


def expand_lists(
    entry: dict[str, Any], defaults: dict[str, Any], name: str | None
) -> list[dict[str, Any]]:
    """Return one entry for each combination of the listed values, with a label of its own.

    defaults: the settings and their defaults; a setting whose default is a list is no such list.
    name: what begins the label where there is none; None for entries that make their own.
    """
    takes_list = {key for key, default in defaults.items() if isinstance(default, list | tuple)}
    lists = {k: v for k, v in entry.items() if isinstance(v, list) and k not in takes_list}
    if empty := [key for key, values in lists.items() if not values]:
        raise ValueError(f"{empty[0]} is an empty list; it must have at least one value")
    label = entry.get("label", name if lists else None)
    found = []
    for chosen in combinations(lists):
        one = {**entry, **chosen}
        if isinstance(label, str) and "{" in label:
            values = {key: to_label(x) for key, x in {**defaults, **one}.items() if x is not None}
            one["label"] = label
            for word in re.findall(r"{(\w+)}", label):
                if word not in values:
                    raise unknown("label: setting", word, values)
                one["label"] = one["label"].replace(f"{{{word}}}", values[word])
        elif isinstance(label, str):
            one["label"] = "-".join([label, *map(to_label, chosen.values())])
        found.append(one)
    return found


def to_label(value: Any) -> str:
    """Return a value as labels have it: a rule by its own name."""
    if isinstance(value, dict) and value:
        value = next(iter(value))
    if isinstance(value, str) and ":" in value:
        return value.rpartition(":")[2]
    return f"{value:g}" if isinstance(value, int | float) else str(value)


class EnvironmentEntry(Entry):
    name: str = ""
    """A name of the catalogue: riverswim-6, or riverswim and the argument n_states."""
    episodes: Episodes | None = None
    """Instead of the experiment's own; steps if the horizon is infinite."""
    discount: Annotated[float, Field(ge=0, le=1)] | None = None
    """Makes the horizon infinite; 1 stands for the average reward."""

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the environment's function, with their defaults."""
        return registry.environment_settings(registry.environment_function(self.name))

    @property
    def full_label(self) -> str:
        if self.label is not None:
            return self.label
        given, parts = self.given, [self.name]
        if ":" in self.name:  # of an own function the MDP's name, if it has been given one
            try:
                own = get_mdp(self.run_data)[0].name
            except Exception as error:  # of the user's code
                raise ValueError(f"environment {self.name!r}: {describe_error(error)}") from error
            parts = [self.name.rpartition(":")[2] if own == FiniteMDP.name else own]
        if entry := registry.ENVIRONMENTS.get(self.name):
            parts.append(str(given.pop(entry.size, self.settings[entry.size])))
        parts += [f"{key}-{number}" for key, number in given.items()]
        parts += [] if self.discount is None else [f"discount-{self.discount:g}"]
        return "-".join(parts)

    @property
    def run_data(self) -> dict[str, Any]:
        """The environment as runs have it, with all arguments."""
        discount = {} if self.discount is None else {"discount": self.discount}
        if isinstance(self, FileEntry):
            return {"path": self.path, **discount}
        return {"name": self.name, "settings": self.settings | self.given, **discount}


class FileEntry(EnvironmentEntry):
    """An environment that was saved with `mdp.save`."""

    name: Literal[""] = ""
    path: Annotated[str, AfterValidator(make_absolute)]
    """A saved MDP, relative to the experiment file."""

    @property
    def full_label(self) -> str:
        stem = re.sub(r"[^\w .+()@,:-]", "_", Path(self.path).stem)
        return self.label or stem.lstrip(" .+()@,:-")[:100] or "mdp"


class AgentEntry(Entry):
    agent: str
    support: Literal["known", "local", "full"] = "known"
    """Which next states the learner knows of."""
    features: FeatureName | None = None
    """For agents that take features; "automatic" if absent."""
    reward: Literal["known", "unknown"] = "known"
    """Whether the agent knows the rewards or must learn them."""
    at: dict[str, dict[str, Any]] = {}
    """Settings for single environments, by the environment's label."""
    grid: dict[str, list[Any]] = {}
    """What `tune` tries, instead of the values that the agent declares; {} for nothing."""

    @property
    def cls(self) -> type[Any]:
        return registry.agent_class(self.agent)

    @property
    def full_label(self) -> str:
        return self.label or self.agent.rpartition(":")[2]

    def settings_at(self, env: str) -> dict[str, Any]:
        """Return all settings on one environment, defaults included, in their plain form."""
        settings = registry.agent_settings(self.cls)
        given = {**self.given, **self.at.get(env, {})}
        for key, default in settings.items():
            if given.setdefault(key, registry.to_plain(key, default)) is MISSING:
                raise ValueError(f"agent {self.full_label!r} lacks its setting {key!r}")
        return {key: given[key] for key in settings}


def setting_type(field: str, default: Any, takes_rule: bool = False) -> Any:
    if field in registry.FUNCTIONS:
        return rule_name(field)
    if isinstance(default, bool):
        return pd.StrictBool
    if isinstance(default, str):
        return pd.StrictStr
    if isinstance(default, list | tuple):
        return list[Finite]
    if takes_rule or field in registry.RULES:
        return rule_type(field)
    if default is None or default is MISSING:
        return Scalar
    return Whole if isinstance(default, int) else Finite


def rule_name(field: str) -> Any:
    """Return the type of the name of a function, of this package or the caller's own."""

    def check(name: str) -> str:
        registry.find_rule(field, name)
        return name

    names = {"enum": sorted(registry.FUNCTIONS.get(field, ()))}
    allowed = [*([names] if names["enum"] else ()), {"pattern": r"^\w+:\w+$"}]
    shown = pd.WithJsonSchema({"type": "string", "anyOf": allowed})
    return Annotated[pd.StrictStr, AfterValidator(check), shown]


@cache
def rule_type(field: str) -> Any:
    """Return the type of a number, a rule's name, or a table of one rule and its constants."""
    tables = {}
    for name, rule in registry.RULES.get(field, {}).items():
        defaults = registry.agent_settings(rule).items()
        constants = {key: (Finite, ... if x is MISSING else x) for key, x in defaults}
        said = (inspect.getdoc(rule) or "").partition("\n\n")[0]
        tables[name] = make_model(f"{field} {name}", Strict, constants, said), None
    rules = make_model(f"{field} rule", Strict, tables)
    rules.model_config["json_schema_extra"] = {"minProperties": 1, "maxProperties": 1}

    def to_plain(found: Any) -> dict[str, Any]:
        given = found.model_dump(include=found.model_fields_set)
        if len(given) != 1:
            raise ValueError("a table must name exactly one rule")
        return given

    def choose(value: Any) -> str:
        if isinstance(value, dict):
            return "@own" if any(":" in str(key) for key in value) else "@rule"
        return "@name" if isinstance(value, str) and ":" in value else "@number"

    table = Annotated[rules, AfterValidator(to_plain), Tag("@rule")]
    constants: Any = dict[rule_name(field), dict[str, Scalar]]
    own = Annotated[constants, Field(min_length=1, max_length=1), Tag("@own")]
    name: Any = Annotated[rule_name(field), Tag("@name")]
    number: Any = Annotated[Finite, Tag("@number")]
    return Annotated[number | table | own | name, Discriminator(choose)]


@lru_cache(maxsize=256)
def agent_model(name: str, cls: type[Any]) -> type[AgentEntry]:
    settings = registry.agent_settings(cls).items()
    kinds = {k: setting_type(k, x, registry.takes_rule(cls, k)) for k, x in settings}
    given: dict[str, Any] = {key: (kind, None) for key, kind in kinds.items()}
    at = make_model(f"{name} at", Strict, given)
    lists = {k: (Annotated[list[t], Field(min_length=1)], None) for k, t in kinds.items()}
    grid = make_model(f"{name} grid", Strict, lists)
    plain = AfterValidator(lambda found: found.to_data())
    common: dict[str, Any] = {"at": dict[str, Annotated[at, plain]], "grid": Annotated[grid, plain]}
    if "features" not in cls.__dataclass_fields__:
        common["features"] = None
    given |= {key: (kind, AgentEntry.model_fields[key]) for key, kind in common.items()}
    return make_model(name, AgentEntry, {"agent": (Literal[name], ...), **given})


@lru_cache(maxsize=256)
def environment_model(name: str, make: Callable[..., Any]) -> type[EnvironmentEntry]:
    defaults = registry.environment_settings(make)
    kinds = {key: setting_type(key, x) for key, x in defaults.items()}
    given: Any = {k: (t, ... if defaults[k] is MISSING else None) for k, t in kinds.items()}
    size = "(-[0-9]+)?" if name in registry.ENVIRONMENTS else ""
    word = Annotated[str, Field(pattern=f"^{re.escape(name)}{size}$")]
    return make_model(name, EnvironmentEntry, {"name": (word, ...), **given})


def read_environment(entry: Any, info: pd.ValidationInfo) -> list[EnvironmentEntry]:
    """Validate an environment by the model of its name; riverswim-6 becomes n_states = 6."""
    if not isinstance(entry, dict) or ("name" in entry) == ("path" in entry):
        raise ValueError("an environment needs either a name or a path")
    if "path" in entry:
        return [FileEntry.model_validate(entry, context=info.context)]
    name, size = split_name(entry["name"])
    for key in size:
        if key in entry:
            raise ValueError(f"{key} is given twice: by the name {entry['name']!r} and as a key")
    make = registry.environment_function(name)
    entries = expand_lists(
        {**entry, **size, "name": name}, registry.environment_settings(make), None
    )
    return [environment_model(name, make).model_validate(one) for one in entries]


def read_agent(entry: Any, info: pd.ValidationInfo) -> list[AgentEntry]:
    if not isinstance(entry, dict) or not isinstance(entry.get("agent"), str):
        raise ValueError(f"it is {format_value(entry)}; it must be a table with the key agent")
    name, cls = entry["agent"], registry.agent_class(entry["agent"])
    entries = expand_lists(entry, registry.agent_settings(cls), name.rpartition(":")[2])
    model = agent_model(name, cls)
    return [model.model_validate(one, context=info.context) for one in entries]


def list_of(read: Any) -> Any:
    """Return the type of a list of tables, of which each becomes one entry or several."""
    one = Annotated[Any, pd.PlainValidator(read, json_schema_input_type=Any)]
    flatten = AfterValidator(lambda lists: tuple(entry for each in lists for entry in each))
    return Annotated[tuple[one, ...], Field(min_length=1), flatten]


class Seeds(Strict):
    """One run of every agent on every environment for each seed."""

    first: pd.StrictInt = Field(0, ge=0)
    count: pd.StrictInt = Field(ge=1)

    @model_validator(mode="after")
    def check_apart_from_tuning(self) -> Seeds:
        last = self.first + self.count - 1
        if last >= TUNING_SEEDS:
            raise ValueError(f"seeds reach {last}; seeds from {TUNING_SEEDS} on are for tuning")
        return self


@add_repr
class Experiment(Strict):
    """A list of runs, as data."""

    name: Label
    """Results go to results/NAME if no folder is given."""
    description: str = ""
    episodes: Episodes
    """Episodes of a run."""
    seeds: Seeds
    environments: list_of(read_environment)  # type: ignore[valid-type]
    agents: list_of(read_agent)  # type: ignore[valid-type]

    @model_validator(mode="after")
    def check_labels(self) -> Experiment:
        places = [e.full_label for e in self.environments]
        labels = [a.full_label for a in self.agents]
        for kind, words in (("environment", places), ("agent", labels)):
            folded = [w.casefold() for w in words]  # some file systems do not distinguish A from a
            for word in words:
                if folded.count(word.casefold()) > 1:
                    raise ValueError(f"two entries have the {kind} label {word!r}; give a label")
        for agent in self.agents:
            for place in agent.at:
                if place not in places:
                    raise unknown(f"agent {agent.full_label!r}: at", place, places)
        return self

    def card(self) -> Card:
        places, agents = self.environments, self.agents
        facts = {
            "runs": len(places) * len(agents) * self.seeds.count, "episodes": self.episodes,
            "environments": abbreviate([entry.full_label for entry in places]),
            "agents": abbreviate([entry.full_label for entry in agents]),
            "seeds": self.seeds.count,
        }  # fmt: skip
        return Card(facts, of=self.name)

    def runs(self) -> list[RunSpec]:
        """Return every run, ordered by environment, agent and seed."""
        seeds = range(self.seeds.first, self.seeds.first + self.seeds.count)
        pairs = ((e, a) for e in self.environments for a in self.agents)
        return [run for e, a in pairs for run in self.runs_of(e, a, seeds)]

    def runs_of(self, place: EnvironmentEntry, agent: AgentEntry, seeds: range) -> list[RunSpec]:
        """Return the runs of one agent on one environment."""
        env, label, support = place.full_label, agent.full_label, str(agent.support)
        fields = agent.cls.__dataclass_fields__
        given = fields["features"].default if "features" in fields else None
        needs = given is MISSING or issubclass(agent.cls, MNLLearner)
        features = agent.features or ("automatic" if needs else None)
        knows = (support, features, agent.reward) if "mdp" not in fields else (None, features, None)
        given: Any = env, label, place.run_data, agent.agent, agent.settings_at(env), *knows
        run = RunSpec(*given, episodes=place.episodes or self.episodes, seed=seeds.start)
        digest = build(run)[2]
        return [replace(run, seed=seed, digest=digest) for seed in seeds]

    def with_seeds(self, count: int, first: int = 0) -> Experiment:
        return parse(self.to_data() | {"seeds": {"first": first, "count": count}}, self.name)

    def to_toml(self) -> str:
        """Return the text of an experiment file, in which names of files are absolute."""
        return tomli_w.dumps(self.to_data())


@check_kinds
def parse(
    data: Mapping[str, Any], source: str = "experiment", folder: str | Path = ""
) -> Experiment:
    """Return the experiment of plain tables and lists, or one sentence about the first mistake.

    data: what a TOML file holds. source: what error messages call it. folder: what names of files
    are relative to; by default the current folder.
    """
    try:
        return Experiment.model_validate(dict(data), context=folder)
    except pd.ValidationError as error:
        raise ValueError(f"{source}: {describe_mistake(error)}") from error


def describe_mistake(error: pd.ValidationError) -> str:
    """Return the first problem as one sentence: where, what, and what is allowed."""
    first = error.errors(include_url=False)[0]
    path = (f"[{x}]" if isinstance(x, int) else f".{x}" for x in first["loc"] if str(x)[0] != "@")
    where, given = "".join(path).removeprefix("."), format_value(first.get("input"))
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] == "value_error":
        text = first["msg"].removeprefix("Value error, ")
        if text.startswith("it is ") and where:
            return f"{where} is {text.removeprefix('it is ')}"
        return f"{where}: {text}" if where else text
    if first["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'", first["msg"])
        return str(unknown(where, str(first["input"]), allowed))
    if first["type"] == "string_pattern_mismatch":
        return f"{where} is {given}; it must be letters, digits, spaces and .+()@,:{{}}-"
    return f"{where} is {given}; it {re.sub('^[A-Z][a-z]+ ', '', first['msg'])}"


def schema() -> dict[str, Any]:
    """Return the JSON schema of experiment files, with which editors complete and check them."""
    agent_models = [agent_model(name, registry.AGENTS[name]) for name in sorted(registry.AGENTS)]
    places = sorted(registry.ENVIRONMENTS.items())
    place_models = [environment_model(name, entry.make) for name, entry in places]
    made = Experiment.model_json_schema()
    own = {"type": "string", "pattern": r"^\w+:\w+$", "description": "Your own, as file:name."}
    for kind, key, models in (
        ("agents", "agent", agent_models), ("environments", "name", [FileEntry, *place_models]),
    ):  # fmt: skip
        refs, found = models_json_schema([(model, "validation") for model in models])
        for ref in refs.values():  # a list stands for one entry each
            fields = found["$defs"][ref["$ref"].rpartition("/")[2]]["properties"]
            for name in fields.keys() - {key, "label", "path", "at", "grid"}:
                each = {"type": "array", "items": fields[name]}
                fields[name] = {"anyOf": [fields[name], each]}
        entry = {"type": "object", "properties": {key: own}, "required": [key]}
        made["properties"][kind]["items"] = {"oneOf": [*refs.values(), entry]}
        made["$defs"] |= found["$defs"]
    draft = "http://json-schema.org/draft-07/schema#"
    return {"$schema": draft, **made, "title": "Experiment file of Upriver"}


def catalogue() -> list[str]:
    """Return the names of the experiments that come with the package."""
    return sorted(f.name.removesuffix(".toml") for f in CATALOGUE.iterdir())


@check_kinds
def load(name: str | Path) -> Experiment:
    """Return the experiment `name` of the catalogue, or of a TOML file.

    An experiment that names code of your own needs `import_code(FILE)` before.
    """
    if str(name) in catalogue():
        return loads((CATALOGUE / f"{name}.toml").read_text(encoding="utf-8"), str(name))
    if not str(name).endswith(".toml") and not Path(name).exists():
        raise unknown("experiment", str(name), catalogue())
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot read the experiment {str(name)!r}: {reason}") from error
    return loads(text, str(name), Path(name).parent)


def loads(text: str, source: str = "experiment", folder: str | Path = "") -> Experiment:
    """Return the experiment of a TOML text, whose files are relative to `folder`."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"{source} is not TOML: {error}") from error

    return parse(data, source, folder)
