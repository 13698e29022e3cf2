"""Data frames in and out: pandas, polars and pyarrow alike, mappings of columns, files of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.checks import Array, as_float, positive_integer
from upriver.display import to_frame
from upriver.display.frames import named
from upriver.mdp.building import assemble
from upriver.mdp.formats import from_triples

if TYPE_CHECKING:
    from upriver.mdp.finite import FiniteMDP

COLUMNS = ("state", "action", "next_state", "probability", "reward")


def column_names(frame: Any) -> list[str] | None:
    """The names of the columns of a mapping or a pandas, polars or pyarrow frame, or None."""
    if isinstance(frame, Mapping):
        return list(frame)
    # pyarrow's `columns` are the columns themselves
    names = getattr(frame, "column_names", getattr(frame, "columns", None))
    return None if names is None else list(names)


def column(values: Any) -> Array:
    """(m,) one entry per row; entries that are tuples stay tuples."""
    if isinstance(values, list | tuple) and any(isinstance(x, tuple) for x in values):
        cells = np.empty(len(values), object)
        cells[:] = values  # asarray would make a table of a list of tuples
        return cells
    return np.asarray(values)


def read_table(
    path: Path, wanted: Callable[[str], object] = bool, what: str = "transitions"
) -> tuple[Any, list[str]]:
    """(an arrow table of the wanted columns of a .csv or .parquet file, the names of all).

    Arrow reads files in blocks and row groups; what is not wanted is not kept, and of words each
    is held once.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise ValueError(f"{what} is {str(path)!r}; it must end in .csv or .parquet")
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist, or is not a file")
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        if path.suffix == ".csv":
            with csv.open_csv(path) as opened:
                names = opened.schema.names
            used = [c for c in names if wanted(c)]
            options = csv.ConvertOptions(
                include_columns=used, auto_dict_encode=True, auto_dict_max_cardinality=100_000
            )
            return csv.read_csv(path, convert_options=options), names
        schema = parquet.read_schema(path)
        words = [f.name for f in schema if pa.types.is_string(f.type)]
        used = [c for c in schema.names if wanted(c)]
        return parquet.read_table(path, columns=used, read_dictionary=words), schema.names
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} cannot be read as {path.suffix}: {first}") from None


def from_frame(
    frame: Any,
    horizon: int | None,
    initial_state: Any = None,
    columns: Sequence[str] = COLUMNS,
    **names: Any,
) -> FiniteMDP:
    """From a frame with one row per transition: state, action, next_state, probability, reward.

    frame: pandas, polars or pyarrow, a mapping of columns, or a .csv or .parquet file; other names
    of the columns go into `columns`. States and actions are any values, in the order in which they
    come; a state has the actions for which there are rows. A column "step", counted from 0, makes
    both numbers depend on it. initial_state: a state, or {state: probability}; that of the first
    row unless given. `names` are further fields, such as `name`, or `states` for another order.
    """
    horizon = None if horizon is None else positive_integer("horizon", horizon)
    if len(columns) != 5:
        raise ValueError(f"columns is {tuple(columns)!r}; it must name five, as {COLUMNS}")
    cells = read_cells(frame, columns)
    s, a, s2 = (cells[c].tolist() for c in columns[:3])
    p, r = (as_float(c, cells[c]) for c in columns[3:])
    states, actions = names.pop("states", None), names.pop("actions", None)
    states = in_order([*s, *s2] if states is None else states)
    actions = in_order(a if actions is None else actions)
    pair = numbers(s, states, "state") * len(actions) + numbers(a, actions, "action")
    following = numbers(s2, states, "next state")
    initial = np.zeros(len(states))
    chances = initial_state if isinstance(initial_state, Mapping) else {
        s[0] if initial_state is None else initial_state: 1.0
    }  # fmt: skip
    initial[numbers(list(chances), states, "initial state")] = list(chances.values())
    plain = list(range(len(states))) == list(states), list(range(len(actions))) == list(actions)
    names |= {"states": None if plain[0] else list(states)}
    names |= {"actions": None if plain[1] else list(actions)}
    sizes = len(states), len(actions)
    key = pair * len(states) + following
    step = cells["step"] if "step" in cells else np.zeros(len(key), np.int64)
    check_distinct(key, step, (s, a, s2))
    if "step" not in cells:
        return from_triples(pair, following, p, r, sizes, horizon, initial, names)
    if horizon is None:
        raise ValueError("the frame has a column 'step'; with horizon=None all steps are alike")
    return by_step(key, step, p, r, sizes, horizon, initial, names)


def by_step(
    key: Array, step: Array, p: Array, r: Array, sizes: tuple[int, int], horizon: int,
    initial: Array, names: dict[str, Any],
) -> FiniteMDP:  # fmt: skip
    """From rows of all steps; a triple that a step does not name has no probability there."""
    if step.dtype.kind not in "iu" or set(np.unique(step)) != set(range(horizon)):
        raise ValueError(
            f"step must hold each of the whole numbers 0 to {horizon - 1}, with horizon {horizon}"
        )
    triples, row = np.unique(key, return_inverse=True)
    prob, paid = np.zeros((2, horizon, len(triples)))
    prob[step, row], paid[step, row] = p, r
    pair, following = np.divmod(triples, sizes[0])
    return assemble(pair, following, prob, *sizes, np.zeros(sizes), horizon, initial, names, paid)


def read_cells(frame: Any, columns: Sequence[str]) -> dict[str, Array]:
    source = "the frame"
    if isinstance(frame, str | Path):
        source, (frame, _) = str(frame), read_table(Path(frame), what="frame")
    present = column_names(frame)
    if present is None:
        raise TypeError(
            f"frame is a {type(frame).__name__}; it must be a pandas, polars or pyarrow frame, a "
            "mapping of columns, or the path of a .csv or .parquet file"
        )
    for name in columns:
        if name not in present:
            raise ValueError(f"{source} has no column {name!r}; it has {present}")
    wanted = [*columns, "step"] if "step" in present else columns
    cells = {name: column(frame[name]) for name in wanted}
    if len({x.shape for x in cells.values()}) != 1 or not len(cells[columns[0]]):
        shapes = {name: x.shape for name, x in cells.items()}
        raise ValueError(f"the columns of {source} have shapes {shapes}; they must be one length")
    return cells


def in_order(names: Any) -> dict[Any, int]:
    """{name: number}: by appearance; whole numbers from 0 on are themselves."""
    found = list(dict.fromkeys(tuple(x) if isinstance(x, list) else x for x in names))
    if all(isinstance(x, int) for x in found) and sorted(found) == list(range(len(found))):
        found = sorted(found)
    return {x: i for i, x in enumerate(found)}


def numbers(cells: list[Any], known: dict[Any, int], what: str) -> Array:
    try:
        return np.array([known[tuple(x) if isinstance(x, list) else x] for x in cells], np.int64)
    except (KeyError, TypeError):
        listed = list(known)
        bad = next(x for x in cells if not (isinstance(x, list) or x in known))
        raise ValueError(
            f"{what} {bad!r} is unknown; there are {len(listed)}, from {listed[0]!r} to "
            f"{listed[-1]!r}"
        ) from None


def check_distinct(key: Array, step: Array, cells: tuple[list[Any], ...]) -> None:
    order = np.lexsort((key, step))
    twice = (np.diff(key[order]) == 0) & (np.diff(step[order]) == 0)
    if twice.any():
        i = int(order[1:][twice].min())
        s, a, s2 = (x[i] for x in cells)
        raise ValueError(f"row {i} names ({s!r}, {a!r}, {s2!r}) again; each triple has one row")


def mdp_frame(mdp: FiniteMDP) -> Any:
    """A data frame of every transition: state, action, next_state, probability, reward.

    With a column "step" where the probabilities or rewards depend on it. `from_frame` reads it.
    """
    task = mdp.true_task
    s, a, s2 = task.triples
    pays, next_state_reward = task.paid_rows
    reward = pays[:, s * task.n_actions + a] + (
        next_state_reward if next_state_reward.size else 0.0
    )
    steps = max(len(mdp.probability), len(reward))
    every = {
        "step": np.repeat(np.arange(steps), task.n_triples),
        "state": np.tile(named(task.states, s), steps),
        "action": np.tile(named(task.actions, a), steps),
        "next_state": np.tile(named(task.states, s2), steps),
        "probability": np.broadcast_to(mdp.probability, (steps, task.n_triples)).ravel(),
        "reward": np.broadcast_to(reward, (steps, task.n_triples)).ravel(),
    }
    if steps == 1:
        del every["step"]
    return to_frame(every)
