"""The words of a spec and what they stand for: agents, environments, features, named functions.

Any of the first three may also be `module:name`, or a name that an installed package offers, and
features may be a .csv file. What is named is imported and called: `trust` says whose code it is.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from upriver.agents.table import AGENTS
from upriver.agents.ucrl2 import original_l1
from upriver.envs import ENVIRONMENTS
from upriver.features import FEATURES, OWN, Features, own_map
from upriver.mdp import FiniteMDP, Task
from upriver.mnl import online, radii
from upriver.planning.optimism import OPTIMISMS

GIVEN = ("task", "features", "mdp", "phi", "psi")
"""Fields of an agent that are no numbers: filled in by the experiment, or left at their default."""

FUNCTIONS: dict[str, Mapping[str, Any]] = {"optimism": OPTIMISMS}
"""Fields whose value may be a function, by name: optimism = "gradient"."""

RULES: dict[str, Mapping[str, Any]] = {
    "radius": {
        "scaled": radii.scaled_radius,
        "constant": radii.constant_radius,
        "lemma1": radii.lemma1_radius,
        "corrected": radii.corrected_radius,
        "standard-errors": radii.standard_errors,
        "newton": online.newton_radius,
        "mirror": online.mirror_radius,
        "additive": online.additive_radius,
        "original": original_l1,
    },
    "regularization": {"theory": radii.theory_regularization},
}
"""Fields whose value may be a rule with constants: radius = {constant = {beta = 0.1}}."""

LARGEST = 10**300
"""Beyond this a number of a spec is a mistake, and so are inf and nan."""

RENAMED = {
    "upriver.findings:directions": "directions",
    "studies:directions": "directions",
}
"""Features that specs of earlier versions called otherwise."""


def unknown(kind: str, word: str, allowed: Iterable[str]) -> ValueError:
    """The error for a word that means nothing here, with the nearest one that does."""
    known = sorted(allowed)
    near = get_close_matches(word, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(known) or "none"
    return ValueError(f"{kind} {word!r} is unknown{hint} (allowed: {listed})")


def imported(name: str, kind: str) -> Any:
    """The object that `module:name` stands for."""
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{kind} {name!r} cannot be imported: {error}") from error


def foreign(name: str, kind: str, ours: Iterable[str], makes: type[Any] | None = None) -> Any:
    """What is not ours: `module:name`, or what an installed package offers under that name.

    makes: what a function must say it returns, if it says anything, before it is called.
    """
    from upriver.experiments.trust import offered

    if ":" not in name and name not in offered(kind):
        raise unknown(kind, name, [*ours, *offered(kind)])
    found = imported(name if ":" in name else offered(kind)[name].value, kind)
    if makes is not None:
        says = inspect.signature(found).return_annotation if inspect.isfunction(found) else None
        if says is not inspect.Signature.empty and makes.__name__ not in str(says):
            raise ValueError(f"{kind} {name!r} must be a function that returns {makes.__name__}")
    return found


def agent_class(name: str) -> type[Any]:
    """The dataclass of an agent."""
    if name in AGENTS:
        return AGENTS[name]
    found = foreign(name, "agent", AGENTS)
    methods = all(callable(getattr(found, m, None)) for m in ("init", "plan", "update"))
    if not (isinstance(found, type) and is_dataclass(found) and methods):
        raise ValueError(f"agent {name!r} is not a dataclass with init, plan and update")
    return found


class EnvironmentWord(NamedTuple):
    base: str
    """The name without a size."""
    make: Callable[..., FiniteMDP]
    size: str | None
    """The argument that a number at the end of the name stands for."""
    numbers: dict[str, Any]
    """What the name itself says, such as {"n_states": 6}."""


def environment_word(name: str) -> EnvironmentWord:
    """What an environment's name stands for."""
    base, _, number = name.rpartition("-")
    if base in ENVIRONMENTS and number.isdigit():
        entry = ENVIRONMENTS[base]
        return EnvironmentWord(base, entry.make, entry.size, {entry.size: int(number)})
    if name not in ENVIRONMENTS:
        make = foreign(name, "environment", ENVIRONMENTS, FiniteMDP)
        return EnvironmentWord(name, make, None, {})
    return EnvironmentWord(name, ENVIRONMENTS[name].make, ENVIRONMENTS[name].size, {})


def feature_function(name: str, environment: str | None) -> Callable[[Task], Features]:
    """The feature map of a name; "shared" and "pooled" are made of the environment's own."""
    if is_file(name):
        from upriver.features.files import read_features

        path, _, digest = name.partition("#")
        if digest and str(with_digest(path)).rpartition("#")[2] != digest:
            raise ValueError(f"features {path!r} were changed after the experiment was read")
        return partial(read_features, path=path)
    if (own := own_map(name)) is not None:
        if environment not in ENVIRONMENTS:
            raise ValueError(f"features {name!r} need an environment of the catalogue")
        return lambda task: own(ENVIRONMENTS[environment].shared(task))
    if name in FEATURES:
        return FEATURES[name]
    return foreign(name, "features", [*FEATURES, *OWN], Features)


def is_file(features: str) -> bool:
    """Whether the features of a spec are a .csv file, with or without its digest."""
    return features.partition("#")[0].endswith(".csv")


def with_digest(features: str | None) -> str | None:
    """The features of a run: of a file also what it holds, since that decides the result."""
    if features is None or not is_file(features):
        return features
    try:
        data = Path(features).read_bytes()
    except OSError as error:
        raise ValueError(f"features {features!r} cannot be read: {error.strerror}") from error
    return f"{os.path.abspath(features)}#{hashlib.sha256(data).hexdigest()[:16]}"


def agent_numbers(cls: type[Any]) -> dict[str, Any]:
    """{name: default} of an agent's own numbers; MISSING where it must be given."""
    return {f.name: f.default for f in fields(cls) if f.name not in GIVEN and f.init}


def takes(cls: type[Any], field: str) -> bool:
    return any(f.name == field for f in fields(cls))


def default_features(cls: type[Any]) -> str | None:
    """The features of an agent whose entry names none: one-hot where it cannot do without."""
    needed = any(f.name == "features" and f.default is MISSING for f in fields(cls))
    return "one-hot" if needed else None


def environment_numbers(make: Callable[..., Any]) -> dict[str, Any]:
    """{name: default} of the arguments of an environment's function."""
    return {
        name: MISSING if p.default is inspect.Parameter.empty else p.default
        for name, p in inspect.signature(make).parameters.items()
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    }


def canonical(field: str, value: Any, default: Any) -> Any:
    """A number as it enters the identity of a run, or a ValueError; 1 and 1.0 are one number."""
    if isinstance(value, dict):
        return checked_rule(field, value)
    if isinstance(value, list | tuple) and isinstance(default, list | tuple):
        return [canonical(field, x, 0.0) for x in value]
    if isinstance(value, str):
        if field in FUNCTIONS and value not in FUNCTIONS[field]:
            raise unknown(field, value, FUNCTIONS[field])
        if field not in FUNCTIONS and not (isinstance(default, str | None) or default is MISSING):
            raise ValueError(f"{field} is {value!r}; it must be {wanted(field, default)}")
        return value
    if isinstance(value, bool) != isinstance(default, bool) and default is not None:
        raise ValueError(f"{field} is {value!r}; it must be {wanted(field, default)}")
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        if field in FUNCTIONS or isinstance(default, str):
            raise ValueError(f"{field} is {value!r}; it must be {wanted(field, default)}")
        if not abs(value) < LARGEST:  # nan is not either
            raise ValueError(f"{field} is {str(value)[:20]}; it must be between -1e300 and 1e300")
        if isinstance(default, int):
            if value != int(value):
                raise ValueError(f"{field} is {value!r}; it must be a whole number")
            return int(value)
        # None or a required argument leaves the kind open: keep whole numbers whole
        return value if isinstance(value, int) and default in (None, MISSING) else float(value)
    raise ValueError(f"{field} is {value!r}; it must be {wanted(field, default)}")


def wanted(field: str, default: Any) -> str:
    if field in FUNCTIONS:
        return f"one of {', '.join(sorted(FUNCTIONS[field]))}"
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, str):
        return "a name in quotes"
    rules = f", or a table with one of {', '.join(RULES[field])}" if field in RULES else ""
    return "a whole number" if isinstance(default, int) else f"a number{rules}"


def checked_rule(field: str, value: dict[str, Any]) -> dict[str, Any]:
    """{rule: {constant: number}} with every constant of the rule present."""
    rules = RULES.get(field, {})
    if len(value) != 1:
        raise ValueError(f"{field} has {len(value)} rules; a table must name exactly one")
    (name, constants), *_ = value.items()
    if name not in rules:
        raise unknown(f"{field} rule", name, rules)
    defaults = agent_numbers(rules[name])
    if not isinstance(constants, dict):
        raise ValueError(f"{field}.{name} must be a table of {', '.join(defaults)}")
    for key in constants:
        if key not in defaults:
            raise unknown(f"{field}.{name} constant", key, defaults)
    full = {k: constants.get(k, d) for k, d in defaults.items()}
    for key, number in full.items():
        if number is MISSING:
            raise ValueError(f"{field}.{name} lacks its constant {key!r}")
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"{field}.{name}.{key} is {number!r}; it must be a number")
    return {name: {k: float(x) for k, x in full.items()}}


def described(field: str, value: Any) -> Any:
    """A default of an agent as a spec would write it."""
    for name, function in FUNCTIONS.get(field, {}).items():
        if value is function:
            return name
    for name, rule in RULES.get(field, {}).items():
        if isinstance(value, rule):
            return {name: {key: getattr(value, key) for key in agent_numbers(rule)}}
    if callable(value):
        return f"{value.__module__}:{getattr(value, '__qualname__', type(value).__qualname__)}"
    return list(value) if isinstance(value, tuple) else value


def resolved(field: str, value: Any, features: Features | None) -> Any:
    """The object that an agent is built with."""
    if isinstance(value, dict):
        ((name, constants),) = value.items()
        rule = RULES[field][name]
        own = {"features": features} if takes(rule, "features") else {}
        return rule(**own, **constants)
    if isinstance(value, str) and field in FUNCTIONS:
        return FUNCTIONS[field][value]
    return value
