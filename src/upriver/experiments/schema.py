"""The JSON schema of experiment files: an editor completes and checks a spec while it is typed.

pydantic makes the outer form. What it cannot know is added from the tables that `names` reads:
which agents and environments there are, and which numbers each takes.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable
from dataclasses import MISSING
from itertools import pairwise
from typing import Any

from upriver.experiments import names
from upriver.experiments.entries import AgentSpec, EnvironmentSpec
from upriver.experiments.spec import Experiment
from upriver.experiments.trust import offered

DRAFT = "http://json-schema.org/draft-07/schema#"
OWN_CODE = {"pattern": "^[A-Za-z_][\\w.]*:\\w+$", "description": "Your own, as module:name."}


def schema() -> dict[str, Any]:
    """The schema as plain data, for `json.dumps`."""
    made = Experiment.model_json_schema()
    definitions = made["$defs"]
    definitions.update({f"{field} rule": rule_table(field) for field in names.RULES})
    agents, places = definitions[AgentSpec.__name__], definitions[EnvironmentSpec.__name__]
    agents["properties"]["agent"] |= word("agent", names.AGENTS)
    agents["allOf"] = [agent_rule(name, agents["properties"]) for name in names.AGENTS]
    sizes = f"^({'|'.join(names.ENVIRONMENTS)})-[0-9]+$"
    with_size = {"pattern": sizes, "description": "The number is the size."}
    places["properties"]["name"] |= word("environment", names.ENVIRONMENTS, with_size)
    places["allOf"] = [place_rule(name, places["properties"]) for name in names.ENVIRONMENTS]
    places["oneOf"] = [{"required": ["name"]}, {"required": ["path"]}]
    file = {"pattern": "\\.csv$", "description": "A table, one row per triple."}
    spread = {"pattern": "^pooled [0-9.eE+-]+$", "description": "The number is the spread."}
    features = word("features", [*names.FEATURES, *names.OWN], file, spread)
    agents["properties"]["features"].update(one_or_each(features))
    return {"$schema": DRAFT, **made, "title": "Experiment file of Upriver"}


def word(kind: str, ours: Iterable[str], *others: dict[str, Any]) -> dict[str, Any]:
    """A name of ours, of an installed package, of the user's code, or in another form."""
    listed = {"enum": sorted({*ours, *offered(kind)})}
    return {"type": "string", "anyOf": [listed, *others, OWN_CODE]}


def agent_rule(name: str, common: dict[str, Any]) -> dict[str, Any]:
    """If the entry names this agent, its numbers and no others."""
    cls = names.AGENTS[name]
    said = field_docs(cls)
    numbers = {
        key: {**number(key, default), **described(said.get(key), key, default)}
        for key, default in names.agent_numbers(cls).items()
    }
    own: dict[str, Any] = {key: one_or_each(each) for key, each in numbers.items()}
    closed = {"properties": numbers, "additionalProperties": False}
    own["at"] = {"additionalProperties": closed}
    lists = {key: {"type": "array", "items": each} for key, each in numbers.items()}
    own["grid"] = {"properties": lists, "additionalProperties": False}
    taken = [key for key in common if key != "features" or names.takes(cls, "features")]
    return rule("agent", {"const": name}, own, taken)


def place_rule(name: str, common: dict[str, Any]) -> dict[str, Any]:
    """If the entry names this environment, with or without a size, its arguments and no others."""
    defaults = names.environment_numbers(names.ENVIRONMENTS[name].make)
    own = {
        key: {**one_or_each(number(key, default)), **described(None, key, default)}
        for key, default in defaults.items()
    }
    return rule("name", {"pattern": f"^{name}(-[0-9]+)?$"}, own, common)


def rule(
    key: str, value: dict[str, Any], own: dict[str, Any], common: Iterable[str]
) -> dict[str, Any]:
    allowed = {**dict.fromkeys(common, True), **own}
    return {
        "if": {"properties": {key: value}, "required": [key]},
        "then": {"properties": allowed, "additionalProperties": False},
    }


def one_or_each(value: dict[str, Any]) -> dict[str, Any]:
    """A value, or a list of them, which stands for one entry each."""
    if value.get("type") == "array":  # already a list: it cannot stand for several
        return value
    said = {k: value[k] for k in ("description", "default") if k in value}
    return {**said, "anyOf": [value, {"type": "array", "items": value}]}


def number(field: str, default: Any) -> dict[str, Any]:
    """What `names.canonical` takes for a field."""
    if field in names.FUNCTIONS:
        return {"enum": sorted(names.FUNCTIONS[field])}
    if isinstance(default, bool):
        return {"type": "boolean"}
    if isinstance(default, str):
        return {"type": "string"}
    if isinstance(default, list | tuple):
        return {"type": "array", "items": {"type": "number"}}
    if default is None or default is MISSING:
        plain: dict[str, Any] = {"type": ["number", "boolean", "string"]}
    else:
        plain = {"type": "integer" if isinstance(default, int) else "number"}
    if field not in names.RULES:
        return plain
    return {"anyOf": [plain, {"$ref": f"#/$defs/{field} rule"}]}


def rule_table(field: str) -> dict[str, Any]:
    """The one rule, with its constants, that a number may be instead."""
    rules = {name: constants(rule) for name, rule in names.RULES[field].items()}
    table = {"type": "object", "properties": rules, "additionalProperties": False}
    return {**table, "minProperties": 1, "maxProperties": 1}


def constants(rule: type[Any]) -> dict[str, Any]:
    """The table of a rule's constants."""
    defaults = names.agent_numbers(rule)
    return {
        "type": "object",
        "description": (inspect.getdoc(rule) or "").partition("\n\n")[0],
        "properties": {key: {"type": "number"} for key in defaults},
        "required": [key for key, default in defaults.items() if default is MISSING],
        "additionalProperties": False,
    }


def described(text: str | None, field: str, default: Any) -> dict[str, Any]:
    """What an editor shows beside a key."""
    found: dict[str, Any] = {"description": text} if text else {}
    if default not in (None, MISSING):
        found["default"] = names.described(field, default)
    return found


def field_docs(cls: type[Any]) -> dict[str, str]:
    """{field: the string under it} of a dataclass and those it inherits from."""
    found: dict[str, str] = {}
    for each in cls.__mro__[:-1]:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for field, text in pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                found.setdefault(field.target.id, inspect.cleandoc(text.value.value))
    return found
