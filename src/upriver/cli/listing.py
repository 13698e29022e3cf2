"""`upriver list`: print what an experiment file can name."""

from __future__ import annotations

import inspect


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
        print(f"  {name:<24}{first_sentence(function)}")
    print(f"  {'shared':<24}The environment's own features; their dimension does not grow with it.")
    print(f"  {'pooled':<24}The shared features, and a random effect for every triple.")
    print("\nagents")
    for name, cls in sorted(AGENTS.items()):
        print(f"  {name:<24}{first_sentence(inspect.getmodule(cls))}")
        for number, values in cls.GRID.items():
            print(f"  {'':<24}  {number}: {', '.join(map(str, values))}")
    print("\nexperiments")
    for name in catalogue():
        print(f"  {name:<24}{load(name).description}")
    return 0


def first_sentence(thing: object) -> str:
    text = " ".join((inspect.getdoc(thing) or "").split())
    return text.partition(". ")[0].rstrip(".") + "." if text else ""
