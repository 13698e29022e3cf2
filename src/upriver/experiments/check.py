"""Is a results folder what it was when it was written? Every file is looked at, none is changed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from upriver.display import displayed
from upriver.experiments.runfile import Damaged, Foreign, Moved, digest_of, place_of, read_run
from upriver.experiments.store import Store, listing


class Problem(NamedTuple):
    kind: str
    """damaged, foreign, moved, duplicate or unreadable."""
    sentence: str
    """Begins with the file or folder."""


@displayed
class Checked(NamedTuple):
    """What became of looking at every file of a folder."""

    whole: int
    """Run files that are as they were written."""
    unsealed: int
    """Run files of version 0.1, which can be read but have nothing to be compared with."""
    missing: int
    """Runs that were asked for and are not there."""
    problems: list[Problem]


def check(folder: str | Path) -> Checked:
    """Look at every file of a results folder."""
    store = Store.open(folder)
    found = [Problem("unreadable", sentence) for sentence in unreadable(store)]
    kinds: Counter[bool] = Counter()
    for path in store.files(problems=[]):
        try:
            _, about, table = read_run(path)
            sealed = about["format"] > 1
            if sealed and digest_of(table) != about["digest"]:
                raise Damaged(f"{path} is damaged: its columns are not those of its digest")
            kinds[sealed] += 1
        except Moved as error:
            twin = store.root / error.place
            kind = "duplicate" if twin.exists() and twin != path else "moved"
            found.append(Problem(kind, str(error)))
        except Foreign as error:
            found.append(Problem("foreign", str(error)))
        except ValueError as error:
            found.append(Problem("damaged", str(error)))
    found += [Problem("foreign", f"{path} is not a run file") for path in strangers(store)]
    wanted, lists = asked_for(store)
    found += [Problem("damaged", sentence) for sentence in lists]
    missing = sum(not (store.root / place).exists() for place in wanted)
    return Checked(kinds[True], kinds[False], missing, found)


def unreadable(store: Store) -> list[str]:
    problems: list[str] = []
    store.files(problems)
    return problems


def strangers(store: Store) -> list[Path]:
    """What lies among the run files and is none."""
    places = store.folders(store.root, "env=", [])
    agents = [agent for place in places for agent in store.folders(place, "agent=", [])]
    inside = [p for agent in agents for p in listing(agent, []) if p.suffix != ".parquet"]
    beside = [p for place in places for p in listing(place, []) if p not in agents]
    return sorted(inside + beside)


def asked_for(store: Store) -> tuple[dict[Path, tuple[str, str]], list[str]]:
    """({place: (env, label)} of all runs ever asked for, sentences about damaged lists)."""
    places: dict[Path, tuple[str, str]] = {}
    problems = []
    for path in sorted((store.root / "_runs").glob("*.json")):
        try:
            for env, label, setting, seeds in json.loads(path.read_text(encoding="utf-8")):
                keys = (f"{str(setting)[:64]}-{int(seed)}" for seed in seeds)
                places |= {place_of(env, label, key): (env, label) for key in keys}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            problems.append(f"{path} is not a list of runs")
    return places, problems
