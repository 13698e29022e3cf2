"""MDPs and features in files that a person can read and write: TOML and CSV.

An MDP is a .toml file with its name, horizon, initial distribution and the name of a .csv file:

    name = "corridor"
    horizon = 12
    transitions = "corridor.csv"
    [[initial]]
    state = "door"
    probability = 1.0

The .csv has the columns state, action, next_state, probability and reward, one line per reachable
triple, and `step` (from 0) where the MDP changes with the step. States and actions are numbers, or
names. A reward that differs between the lines of one (s, a) enters by its expectation.
"""

from __future__ import annotations

import csv
import json
import math
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from upriver.checks import Array, Support, initial_distribution, support_from_sets
from upriver.mdp import FiniteMDP, Task

KEYS = {
    "name", "horizon", "transitions", "local", "reward_range", "states", "actions", "initial",
}  # fmt: skip


def write_mdp(mdp: FiniteMDP, path: Path) -> None:
    """The .toml file, and beside it the .csv of transitions (and one of the local support)."""
    task = mdp.known
    states, actions = written(task.states, task.n_states), written(task.actions, task.n_actions)
    table = path.with_suffix(".csv")
    head = [
        f"name = {json.dumps(mdp.name)}",
        f"horizon = {mdp.horizon}",
        f"reward_range = [{mdp.reward_range[0]!r}, {mdp.reward_range[1]!r}]",
        f"transitions = {json.dumps(table.name)}",
    ]
    for key, names in (("states", task.states), ("actions", task.actions)):
        if names is not None:
            head.append(f"{key} = {toml(list(names))}")
    s, a, s2 = task.triples
    if mdp.local is not None:
        local = path.with_suffix(".local.csv")
        head.append(f"local = {json.dumps(local.name)}")
        group = np.repeat(np.arange(len(task.sizes)), np.diff(mdp.local[0]))
        lines = zip(group // task.n_actions, group % task.n_actions, mdp.local[1], strict=True)
        rows = [(states[i], actions[j], states[k]) for i, j, k in lines]
        write_csv(local, ["state", "action", "next_state"], rows)
    for start, p in zip(mdp.initial_states, mdp.initial_probability, strict=True):
        head += ["", "[[initial]]", f"state = {toml(states[start])}", f"probability = {float(p)!r}"]
    steps = 1 if len(mdp.probability) == 1 and mdp.reward.ndim == 2 else mdp.horizon
    probability = np.broadcast_to(mdp.probability, (steps, task.n_triples))
    reward = np.broadcast_to(mdp.reward, (steps, task.n_states, task.n_actions))
    rows = [
        ((h,) if steps > 1 else ())
        + (states[i], actions[j], states[k], repr(float(p)), repr(float(reward[h, i, j])))
        for h in range(steps)
        for i, j, k, p in zip(s, a, s2, probability[h], strict=True)
    ]
    columns = ["state", "action", "next_state", "probability", "reward"]
    write_csv(table, (["step"] if steps > 1 else []) + columns, rows)
    write_text(path, "\n".join(head) + "\n")


def read_mdp(path: Path) -> FiniteMDP:
    """The MDP of a .toml file and the .csv that it names."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist, or is not a file")
    try:
        head = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    if unknown := sorted(set(head) - KEYS):
        raise ValueError(f"{path}: key {unknown[0]!r} is unknown; keys are {sorted(KEYS)}")
    for key in ("horizon", "transitions"):
        if key not in head:
            raise ValueError(f"{path}: key {key!r} is missing")
    horizon = head["horizon"]
    table = path.parent / str(head["transitions"])
    rows = read_csv(table, ["state", "action", "next_state", "probability", "reward"])
    state_names = unlist(head.get("states"))
    action_names = unlist(head.get("actions"))
    state_of, states = lookup([r["state"] for _, r in rows], state_names, "state", table)
    action_of, actions = lookup([r["action"] for _, r in rows], action_names, "action", table)
    n_states, n_actions = len(states), len(actions)
    stepwise = bool(rows) and "step" in rows[0][1]
    n_steps = horizon if stepwise and isinstance(horizon, int) else 1
    weights: dict[tuple[int, int], dict[int, float]] = {}
    paid: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for line, r in rows:
        h = int(number(r, "step", table, line)) if stepwise else 0
        if not 0 <= h < n_steps:
            raise ValueError(f"{table}:{line}: step is {h}; steps are 0 to {n_steps - 1}")
        s, a = state_of(r["state"], line), action_of(r["action"], line)
        s2 = state_of(r["next_state"], line)
        p = number(r, "probability", table, line)
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"{table}:{line}: probability is {p}; it must lie between 0 and 1")
        triple = weights.setdefault((s * n_actions + a, s2), {})
        if h in triple:
            raise ValueError(f"{table}:{line}: the transition was already given in a line above")
        triple[h] = p
        paid.setdefault((h, s * n_actions + a), []).append((p, number(r, "reward", table, line)))
    reward = np.zeros((n_steps, n_states * n_actions))
    for (h, g), given in paid.items():
        same = all(r == given[0][1] for _, r in given)
        reward[h, g] = given[0][1] if same else sum(p * r for p, r in given)
    triples = sorted(weights)
    probability = np.array([[weights[t].get(h, 0.0) for t in triples] for h in range(n_steps)])
    group = np.array([g for g, _ in triples], np.int64)
    sizes = np.bincount(group, minlength=n_states * n_actions)
    if (sizes == 0).any():
        s, a = divmod(int(np.argmax(sizes == 0)), n_actions)
        raise ValueError(
            f"{table} has no line for state {states[s]!r} and action {actions[a]!r}; every pair "
            "needs one"
        )
    reward = reward.reshape(n_steps, n_states, n_actions)
    task = Task(
        n_states=n_states,
        n_actions=n_actions,
        horizon=horizon,
        indptr=np.concatenate([[0], np.cumsum(sizes)]),
        successors=np.array([s2 for _, s2 in triples], np.int64),
        reward=reward if stepwise else reward[0],
        support="known",
        states=None if isinstance(states, range) else states,
        actions=None if isinstance(actions, range) else actions,
    )
    starts, start_weights = read_initial(head.get("initial"), state_of, n_states, path)
    local = None
    if "local" in head:
        local = read_local(path.parent / str(head["local"]), state_of, action_of, task)
    low_high = head.get("reward_range", [0.0, 1.0])
    if not (isinstance(low_high, list) and len(low_high) == 2):
        raise ValueError(f"{path}: reward_range is {low_high!r}; it must be [low, high]")
    return FiniteMDP(
        task, probability, starts, start_weights, local, str(head.get("name", path.stem)),
        (low_high[0], low_high[1]),
    )  # fmt: skip


def read_initial(given: Any, state_of: Any, n_states: int, path: Path) -> tuple[Array, Array]:
    if given is None:
        return np.array([0]), np.ones(1)
    if not isinstance(given, list):
        return np.array([state_of(str(given), None)]), np.ones(1)
    weights = np.zeros(n_states)
    for entry in given:
        if not isinstance(entry, dict) or set(entry) != {"state", "probability"}:
            raise ValueError(f"{path}: each [[initial]] needs a state and a probability")
        weights[state_of(str(entry["state"]), None)] = entry["probability"]
    return initial_distribution(weights, n_states)


def read_local(path: Path, state_of: Any, action_of: Any, task: Task) -> Support:
    sets: list[set[int]] = [set() for _ in task.sizes]
    for line, r in read_csv(path, ["state", "action", "next_state"]):
        g = state_of(r["state"], line) * task.n_actions + action_of(r["action"], line)
        sets[g].add(state_of(r["next_state"], line))
    return support_from_sets(sets, task.n_states, task.n_actions)


def written(names: Any, size: int) -> Any:
    """How states or actions appear in a .csv: by name if the names are text, else by number."""
    if names is None or not all(isinstance(x, str) for x in names):
        return range(size)
    return names


def unlist(names: Any) -> list[Any] | None:
    """Names read from TOML, whose arrays stand for tuples."""
    if names is None:
        return None

    def tupled(x: Any) -> Any:
        return tuple(map(tupled, x)) if isinstance(x, list) else x

    return [tupled(x) for x in names]


def lookup(
    cells: list[str], names: list[Any] | None, what: str, path: Path
) -> tuple[Any, Sequence[Any]]:
    """(a function from a cell to its number, the names in order)."""
    if names is None and all(c.isdecimal() for c in cells):
        names = list(range(1 + max((int(c) for c in cells), default=-1)))
    elif names is None:
        names = list(dict.fromkeys(cells))
    by_number = not all(isinstance(x, str) for x in names)
    table = {str(i) if by_number else x: i for i, x in enumerate(names)}
    plain = by_number and names == list(range(len(names)))

    def find(cell: str, line: int | None) -> int:
        if cell not in table:
            at = f"{path}:{line}" if line is not None else str(path)
            raise ValueError(
                f"{at}: {what} {cell!r} is unknown; there are {len(names)}, from "
                f"{next(iter(table))!r} to {next(reversed(table))!r}"
            )
        return table[cell]

    return find, range(len(names)) if plain else names


def number(row: dict[str, str], column: str, path: Path, line: int) -> float:
    try:
        x = float(row[column])
    except ValueError:
        x = math.nan
    if not math.isfinite(x):
        raise ValueError(f"{path}:{line}: {column} is {row[column]!r}; it must be a number")
    return x


def read_csv(path: Path, columns: list[str]) -> list[tuple[int, dict[str, str]]]:
    """(line number, row) of every line of a .csv file with at least these columns."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist, or is not a file")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True, skipinitialspace=True)
            missing = [c for c in columns if c not in (reader.fieldnames or [])]
            if missing:
                raise ValueError(f"{path} has no column {missing[0]!r}; it needs {columns}")
            rows = []
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError(
                        f"{path}:{reader.line_num}: the line has too few or too many cells"
                    )
                rows.append((reader.line_num, row))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a readable CSV file: {error}") from None
    if not rows:
        raise ValueError(f"{path} has no lines below its head")
    return rows


def write_csv(path: Path, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    from io import StringIO

    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_text(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def toml(value: Any) -> str:
    """A TOML literal of names: text, whole numbers, truth values, and tuples of them."""
    if type(value) in (list, tuple):  # not a named tuple, which would come back as a plain one
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float):
        return repr(value)
    raise ValueError(f"the name {value!r} cannot be written as TOML; save to .npz instead")
