"""`upriver list`, `new` and `schema`: what helps to write an experiment file."""

from __future__ import annotations

import inspect
import json
from importlib import resources
from pathlib import Path


def list_names() -> int:
    """List environments, features, agents with the grids that `tune` tries, and experiments.

    **Example:** `upriver list`
    """
    from upriver.agents.table import AGENTS
    from upriver.envs import ENVIRONMENTS
    from upriver.experiments import catalogue, load
    from upriver.features import FEATURES

    print("environments")
    for name, entry in sorted(ENVIRONMENTS.items()):
        arguments = inspect.signature(entry.make).parameters.values()
        print(f"  {name:<24}{', '.join(f'{a.name}={a.default!r}' for a in arguments)}")
    print("\nfeatures")
    for name, function in FEATURES.items():
        print(f"  {name:<24}{first_line(function)}")
    print(f"  {'shared':<24}The environment's own features; their dimension does not grow with it.")
    print(f"  {'pooled':<24}The shared features, and a random effect for every triple.")
    print("\nagents")
    for name, cls in sorted(AGENTS.items()):
        print(f"  {name:<24}{first_line(cls)}")
        for number, values in cls.GRID.items():
            print(f"  {'':<24}  {number}: {', '.join(map(str, values))}")
    print("\nexperiments")
    for name in catalogue():
        print(f"  {name:<24}{load(name).description}")
    return 0


def first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def new(name: str) -> int:
    """Write NAME.toml, a commented experiment to start from. An existing file is not changed.

    **Example:** `upriver new rivers`, then `upriver run rivers.toml`

    Parameters
    ----------
    name
        The name of the experiment, which may begin with a folder.
    """
    file = Path(f"{name.removesuffix('.toml')}.toml")
    text = make_template(file.name.removesuffix(".toml"))
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise ValueError(f"{file} exists and was not changed; give another name") from None
    except OSError as error:
        raise ValueError(f"cannot write {file}: {error.strerror}") from error
    print(f"{file} written; run it with: upriver run {file}")
    return 0


def make_template(name: str) -> str:
    from upriver.experiments.spec import loads

    text = (resources.files("upriver.cli") / "start.toml").read_text(encoding="utf-8")
    text = text.replace('"NAME"', json.dumps(name))  # TOML has the strings of JSON
    loads(text)  # refuses a name that labels cannot have
    return text


def schema() -> int:
    """Print the JSON schema of experiment files, with which an editor completes and checks names.

    An experiment file names it in its first line: #:schema FILE

    **Example:** `upriver schema`, with `> upriver.schema.json` to keep it
    """
    from upriver.experiments.spec import schema as make_schema

    print(json.dumps(make_schema(), indent=1))
    return 0
