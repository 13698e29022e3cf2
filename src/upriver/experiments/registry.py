"""The names that an experiment file may use, and the objects that they stand for.

A name belongs to one of the tables of this package, or has the form `file:name`: an object that is
defined in a Python file which the caller imported with `import_code` (on the command line:
`--import FILE`). Nothing else is ever imported, so that an experiment file or a results folder of a
stranger runs no code.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from upriver.agents.table import AGENTS
from upriver.agents.ucrl2 import original_l1
from upriver.envs import ENVIRONMENTS
from upriver.features import FEATURES, OWN, Features
from upriver.mdp import FiniteMDP, Task
from upriver.mnl import online, radii
from upriver.planning.optimism import OPTIMISMS

FUNCTIONS: dict[str, Mapping[str, Any]] = {"optimism": OPTIMISMS}
"""Agent fields whose value is a function, given by its name: optimism = "gradient"."""

RULES: dict[str, Mapping[str, Any]] = {
    "radius": {
        "scaled": radii.scaled_radius,
        "constant": radii.constant_radius,
        "lemma1": radii.lemma1_radius,
        "corrected": radii.corrected_radius,
        "newton": online.newton_radius,
        "mirror": online.mirror_radius,
        "original": original_l1,
    },
    "regularization": {"theory": radii.theory_regularization},
}
"""Agent fields whose value may be a rule with constants: radius = {constant = {beta = 0.1}}.

A rule of one's own is a function, "file:name", or a class and its arguments: {"file:name" = {...}}.
"""

BUILT_BY_EXPERIMENT = ("task", "features", "mdp", "phi", "psi")
"""Agent fields that are not settings: the experiment builds them, or they keep their default."""


class ImportedFile(NamedTuple):
    """A Python file that the caller imported; workers execute the same text."""

    path: str
    text: str


IMPORTED: dict[str, ImportedFile] = {}
"""File name without .py -> the file, for every file that `import_code` executed."""


def import_code(path: str | Path, text: str | None = None) -> ModuleType:
    """Execute the Python file `path`, so that experiments may name what it defines as `file:name`.

    `agents.py` makes its class `Curious` available as `agents:Curious`. `text` is the contents,
    where the file itself is on another machine. The module that is returned is kept apart from
    other modules of the same name.
    """
    path = Path(path).absolute()
    if path.suffix != ".py":
        raise ValueError(f"cannot import {str(path)!r}; it must be a Python file (.py)")
    if text is None:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ValueError(f"cannot import {str(path)!r}: {reason}") from error
    known = IMPORTED.get(path.stem)
    if known == (str(path), text):
        return sys.modules[module_name(path.stem)]
    if known is not None and known.path != str(path):
        other = f"{known.path!r} was imported under the same name"
        raise ValueError(f"cannot import {str(path)!r}: {other}")
    if str(path.parent) not in sys.path:  # last, so that a file hides no installed module
        sys.path.append(str(path.parent))
    module = ModuleType(module_name(path.stem))
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise ValueError(f"cannot import {str(path)!r}: {type(error).__name__}: {error}") from error
    IMPORTED[path.stem] = ImportedFile(str(path), text)
    return module


def module_name(stem: str) -> str:
    return f"imported_file_{stem}"


def unknown(kind: str, name: str, allowed: Iterable[str]) -> ValueError:
    """Return the error about a name that is not allowed, with the nearest one that is."""
    known = sorted(allowed)
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return ValueError(f"{kind} {name!r} is unknown{hint} (allowed: {', '.join(known) or 'none'})")


def find_object(kind: str, name: str, own: Mapping[str, Any]) -> Any:
    """Return the object of a name, of the package or of an imported file."""
    if name in own:
        return own[name]
    stem, colon, attribute = name.partition(":")
    if not colon:
        raise unknown(kind, name, own)
    if stem not in IMPORTED:
        raise ValueError(
            f"{kind} {name!r} is defined in a file that was not imported; if you trust it, import "
            "that file with --import or import_code"
        )
    found = getattr(sys.modules[module_name(stem)], attribute, None)
    # what the file merely imports, such as os.system, is not offered to experiment files
    if getattr(found, "__module__", None) != module_name(stem):
        raise ValueError(f"{kind} {name!r} is not defined in {IMPORTED[stem].path}")
    return found


def agent_class(name: str) -> type[Any]:
    found = find_object("agent", name, AGENTS)
    has_methods = all(callable(getattr(found, m, None)) for m in ("init", "plan", "update"))
    if not (isinstance(found, type) and is_dataclass(found) and has_methods):
        raise ValueError(f"agent {name!r} is not a dataclass with init, plan and update")
    return found


def environment_function(name: str) -> Callable[..., FiniteMDP]:
    return find_object("environment", name, {k: entry.make for k, entry in ENVIRONMENTS.items()})


def feature_function(name: str, environment: str | None) -> Callable[[Task], Features]:
    """Return the feature map of a name, on an environment whose own features it may need."""
    if name in OWN:
        if environment not in ENVIRONMENTS:
            raise ValueError(
                f"features {name!r} need an environment of the catalogue; "
                '"automatic" features need none'
            )
        return lambda task: OWN[name](ENVIRONMENTS[environment].shared(task))
    return find_object("features", name, {**FEATURES, **dict.fromkeys(OWN)})


def agent_settings(cls: type[Any]) -> dict[str, Any]:
    """Return {field: default} of an agent's or rule's settings; MISSING if it must be given."""
    return {f.name: f.default for f in fields(cls) if f.name not in BUILT_BY_EXPERIMENT and f.init}


def environment_settings(make: Callable[..., Any]) -> dict[str, Any]:
    """Return {argument: default} of an environment's function; MISSING if it must be given."""
    return {
        name: MISSING if p.default is inspect.Parameter.empty else p.default
        for name, p in inspect.signature(make).parameters.items()
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    }


def takes_rule(cls: type[Any], field: str) -> bool:
    """Return whether the value of an agent's field may be a function."""
    annotation = str(cls.__dataclass_fields__[field].type)
    return any(word in annotation for word in ("Callable", "Radius", "Optimism"))


def find_rule(field: str, name: str) -> Any:
    found = find_object(field, name, {**FUNCTIONS.get(field, {}), **RULES.get(field, {})})
    if not callable(found):
        raise ValueError(f"{field} {name!r} must be a function, or a class with __call__")
    return found


def to_plain(field: str, value: Any) -> Any:
    """Return the default of an agent's field as an experiment file would write it."""
    for name, function in FUNCTIONS.get(field, {}).items():
        if value is function:
            return name
    for name, rule in RULES.get(field, {}).items():
        if isinstance(value, rule):
            return {name: {key: getattr(value, key) for key in agent_settings(rule)}}
    if callable(value):
        return f"{value.__module__}:{getattr(value, '__qualname__', type(value).__qualname__)}"
    return list(value) if isinstance(value, tuple) else value


def from_plain(cls: type[Any], field: str, value: Any, features: Features | None) -> Any:
    """Return the object that an agent is built with, from its plain form."""
    if isinstance(value, dict):
        ((name, constants),) = value.items()
        rule = find_rule(field, name)
        own = "features" in getattr(rule, "__dataclass_fields__", ())
        return rule(**({"features": features} if own else {}), **constants)
    if isinstance(value, str) and takes_rule(cls, field):
        rule = find_rule(field, value)
        return rule() if isinstance(rule, type) else rule
    return value


def make_settings(
    cls: type[Any], settings: Mapping[str, Any], features: Features | None
) -> dict[str, Any]:
    """Return the arguments of an agent for its settings; those at their defaults are left out."""
    defaults = {name: to_plain(name, x) for name, x in agent_settings(cls).items()}
    return {
        name: from_plain(cls, name, value, features)
        for name, value in settings.items()
        if name not in defaults or value != defaults[name]
    }


def list_own_names(settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the form `file:name` among the settings of an agent."""
    given = [[x] if isinstance(x, str) else x for x in settings.values()]
    return [word for x in given if isinstance(x, list | dict) for word in x if ":" in str(word)]
