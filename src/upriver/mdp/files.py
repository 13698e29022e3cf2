"""MDPs as files: an npz archive, or a TOML file with a CSV table of its transitions beside it.

A TOML file has the MDP's name, horizon, initial distribution and the name of a .csv file:

    name = "corridor"
    horizon = 12
    transitions = "corridor.csv"
    [[initial]]
    state = "door"
    probability = 1.0

The .csv has the columns state, action, next_state, probability and reward, one line per reachable
triple, and `step` (from 0) where the MDP changes with the step. States and actions are numbers, or
names; a state has the actions that it has lines for. The reward may differ between the lines of one
(s, a), where it depends on the next state. `[[terminal]]` entries, a state and its value, say what
it is worth to be somewhere after the last step. With `reward_range = [low, high]`, which version
0.1 wrote, 0 and 1 in the table stand for low and high; `bounds = [low, high]` is
`Task.reward_range` where it is not that of the rewards themselves.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.checks import Array, Support, support_from_sets
from upriver.mdp.building import assemble
from upriver.mdp.tables import csv_text, literal, lookup, number, read_csv, written
from upriver.mdp.units import checked_range
from upriver.mdp.writing import write_files

if TYPE_CHECKING:
    from upriver.mdp import FiniteMDP

KEYS = {
    "name", "horizon", "discount", "transitions", "local", "reward_range", "states", "actions",
    "initial", "terminal", "bounds",
}  # fmt: skip


def save_mdp(self: FiniteMDP, path: Any) -> None:
    """Write the MDP to a file: .npz, or .toml with a .csv of its transitions beside it."""
    if suffix_of(path) == ".toml":
        return write_mdp(self, Path(path))
    from upriver.mdp.archive import save_object

    save_object(path, "mdp", self)


def load_mdp(path: Any) -> FiniteMDP:
    """Read what `save` wrote, or what a person wrote in the same .toml and .csv form."""
    if suffix_of(path) == ".toml":
        return read_mdp(Path(path))
    from upriver.mdp import FiniteMDP
    from upriver.mdp.archive import load_object

    return load_object(path, "mdp", FiniteMDP)


def suffix_of(path: Any) -> str:
    if (suffix := Path(path).suffix) not in (".npz", ".toml"):
        raise ValueError(f"path is {str(path)!r}; it must end in .npz or .toml")
    return suffix


def write_mdp(mdp: FiniteMDP, path: Path) -> None:
    """The .toml file, and beside it the .csv of transitions (and one of the local support)."""
    task = mdp.true_task
    states, actions = written(task.states, task.n_states), written(task.actions, task.n_actions)
    table = own_file(path, "transitions", ".csv")
    head = [
        f"name = {json.dumps(mdp.name)}",
        f"horizon = {mdp.horizon}" if mdp.horizon else f"discount = {mdp.discount!r}",
        f"transitions = {json.dumps(table.name)}",
    ]
    if task.reward_range != checked_range(task, None):
        head.append(f"bounds = {literal(list(task.reward_range or ()))}")
    for key, names in (("states", task.states), ("actions", task.actions)):
        if names is not None:
            head.append(f"{key} = {literal(list(names))}")
    s, a, s2 = task.triples
    files = {}
    if mdp.local is not None:
        local = own_file(path, "local", ".local.csv")
        head.append(f"local = {json.dumps(local.name)}")
        group = np.repeat(np.arange(len(task.sizes)), np.diff(mdp.local[0]))
        lines = zip(group // task.n_actions, group % task.n_actions, mdp.local[1], strict=True)
        rows = [(states[i], actions[j], states[k]) for i, j, k in lines]
        files[local] = csv_text(["state", "action", "next_state"], rows)
    for start, p in zip(mdp.initial_states, mdp.initial_probability, strict=True):
        head += [
            "",
            "[[initial]]",
            f"state = {literal(states[start])}",
            f"probability = {float(p)!r}",
        ]
    for state in np.flatnonzero(mdp.terminal):
        value = float(mdp.terminal[state])
        head += ["", "[[terminal]]", f"state = {literal(states[state])}", f"value = {value!r}"]
    paid, next_state_reward = task.paid_rows
    paid = paid.repeat(task.sizes, axis=1)
    paid = paid + next_state_reward if next_state_reward.size else paid
    steps = max(len(mdp.probability), len(paid))
    probability = np.broadcast_to(mdp.probability, (steps, task.n_triples))
    paid = np.broadcast_to(paid, (steps, task.n_triples))
    rows = [
        ((h,) if steps > 1 else ())
        + (states[i], actions[j], states[k], repr(float(p)), repr(float(r)))
        for h in range(steps)
        for i, j, k, p, r in zip(s, a, s2, probability[h], paid[h], strict=True)
    ]
    columns = ["state", "action", "next_state", "probability", "reward"]
    files[table] = csv_text((["step"] if steps > 1 else []) + columns, rows)
    write_files({**files, path: "\n".join(head) + "\n"})


def own_file(path: Path, key: str, suffix: str) -> Path:
    """The .csv beside a .toml file; one that is there must be named by it, or it is another's."""
    table = path.with_suffix(suffix)
    if table.exists():
        try:
            named = tomllib.loads(path.read_text("utf-8")).get(key)
        except (OSError, ValueError):
            named = None
        if named != table.name:
            raise FileExistsError(
                f"{table} exists, and {path} does not name it as its own; save the MDP under "
                "another name, or as .npz"
            )
    return table


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
    if "horizon" not in head and "discount" not in head:
        raise ValueError(f"{path}: key 'horizon' is missing, or 'discount', 1 for the average")
    if "transitions" not in head:
        raise ValueError(f"{path}: key 'transitions' is missing")
    horizon, discount = head.get("horizon"), head.get("discount")
    table = path.parent / str(head["transitions"])
    rows = read_csv(table, ["state", "action", "next_state", "probability", "reward"])
    state_of, states = lookup([r["state"] for _, r in rows], head.get("states"), "state", table)
    action_of, actions = lookup(
        [r["action"] for _, r in rows], head.get("actions"), "action", table
    )
    n_states, n_actions = len(states), len(actions)
    stepwise = bool(rows) and "step" in rows[0][1]
    n_steps = horizon if stepwise and isinstance(horizon, int) else 1
    weights: dict[tuple[int, int], dict[int, float]] = {}
    paid: dict[tuple[int, int], dict[int, float]] = {}
    low, high = range_of(head.get("reward_range", [0.0, 1.0]), path)
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
        given = number(r, "reward", table, line)
        paid.setdefault((s * n_actions + a, s2), {})[h] = (
            given if (low, high) == (0.0, 1.0) else low + (high - low) * given
        )
    triples = sorted(weights)
    reward, next_state_reward = split(paid, triples, n_steps, n_states * n_actions)
    probability = np.array([[weights[t].get(h, 0.0) for t in triples] for h in range(n_steps)])
    group = np.array([g for g, _ in triples], np.int64)
    acts = np.bincount(group // n_actions, minlength=n_states) > 0
    if not acts.all():
        raise ValueError(
            f"{table} has no line for state {states[int(np.argmin(acts))]!r}; every state needs an "
            "action, if only to stay where it is"
        )
    reward = reward.reshape(n_steps, n_states, n_actions)
    local = None
    if "local" in head:
        local = read_local(path.parent / str(head["local"]), state_of, action_of, reward.shape[1:])
    return assemble(
        group, np.array([s2 for _, s2 in triples], np.int64), probability, n_states, n_actions,
        reward if stepwise else reward[0], horizon,
        read_initial(head.get("initial"), state_of, n_states, path),
        {
            "local": local,
            "name": str(head.get("name", path.stem)),
            "reward_range": head.get("bounds"),
            "terminal": read_terminal(head.get("terminal"), state_of, n_states, path),
            "discount": None if discount == 1 and horizon is None else discount,
            "states": None if isinstance(states, range) else states,
            "actions": None if isinstance(actions, range) else actions,
        },
        next_state_reward if stepwise or next_state_reward is None else next_state_reward[:1],
    )  # fmt: skip


def split(
    paid: dict[tuple[int, int], dict[int, float]], triples: list[tuple[int, int]], n_steps: int,
    n_pairs: int,
) -> tuple[Array, Array | None]:  # fmt: skip
    """(reward (H, S*A), next_state_reward (H, n) or None) of what each triple pays at each step.

    Where all triples of every pair pay the same there is no need of the second.
    """
    group = np.array([g for g, _ in triples], np.int64)
    rows = np.array([[paid[t].get(h, 0.0) for t in triples] for h in range(n_steps)])
    reward = np.zeros((n_steps, n_pairs))
    reward[:, group] = rows
    if (reward[:, group] == rows).all():
        return reward, None
    return np.zeros_like(reward), rows


def range_of(given: Any, path: Path) -> tuple[float, float]:
    """(low, high), what 0 and 1 stand for in a file."""
    try:
        low, high = map(float, given)
    except (TypeError, ValueError):
        low = high = 0.0
    if not low < high:
        raise ValueError(f"{path}: reward_range is {given!r}; it must be [low, high]")
    return low, high


def read_terminal(given: Any, state_of: Any, n_states: int, path: Path) -> Array | None:
    """(S,) from the [[terminal]] entries."""
    if given is None:
        return None
    values = np.zeros(n_states)
    for entry in given if isinstance(given, list) else [None]:
        if not isinstance(entry, dict) or set(entry) != {"state", "value"}:
            raise ValueError(f"{path}: each [[terminal]] needs a state and a value")
        values[state_of(str(entry["state"]), None)] = entry["value"]
    return values


def read_initial(given: Any, state_of: Any, n_states: int, path: Path) -> int | Array:
    """The initial state, or the distribution of the [[initial]] entries."""
    if not isinstance(given, list):
        return 0 if given is None else state_of(str(given), None)
    weights = np.zeros(n_states)
    for entry in given:
        if not isinstance(entry, dict) or set(entry) != {"state", "probability"}:
            raise ValueError(f"{path}: each [[initial]] needs a state and a probability")
        weights[state_of(str(entry["state"]), None)] = entry["probability"]
    return weights


def read_local(path: Path, state_of: Any, action_of: Any, shape: tuple[int, ...]) -> Support:
    sets: list[set[int]] = [set() for _ in range(shape[0] * shape[1])]
    for line, r in read_csv(path, ["state", "action", "next_state"]):
        g = state_of(r["state"], line) * shape[1] + action_of(r["action"], line)
        sets[g].add(state_of(r["next_state"], line))
    return support_from_sets(sets, shape[0], shape[1])
