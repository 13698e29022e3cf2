"""MDPs as data frames: one row per transition, in pandas, polars or Arrow."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from upriver.checks import Array, as_float, check_kinds, positive_integer, with_article
from upriver.display import name_column, to_frame
from upriver.mdp.building import from_triples, read_start
from upriver.mdp.names import Names, as_names, check_names, to_tuples

if TYPE_CHECKING:
    from upriver.mdp.finite import FiniteMDP

COLUMNS = ("state", "action", "next_state", "probability", "reward")


@check_kinds
def from_frame(
    frame: Any, horizon: int | None, initial_state: Hashable | Mapping[Any, float] = None,
    **names: Any,
) -> FiniteMDP:  # fmt: skip
    """Make an MDP from a table with one row per transition.

    Parameters
    ----------
    frame : pandas, polars or Arrow table, or mapping of columns
        Its columns are state, action, next_state, probability and reward. States and actions are
        any values, numbered in the order in which they appear; a state has the actions for which
        there are rows. Empty cells (null, NaN or blank text) are refused.
    initial_state : state, or {state: probability}
        The default is the state of the first row.
    horizon, **names
        As in `from_arrays`; `states` and `actions` set another order.
    """
    horizon = None if horizon is None else positive_integer("horizon", horizon)
    cells = read_columns(frame)
    s, a, s2 = (cells[c] for c in COLUMNS[:3])
    p, r = (as_float(c, cells[c]) for c in COLUMNS[3:])
    states = order_names("state", [*s, *s2], names.get("states"))
    actions = order_names("action", a, names.get("actions"))
    names |= {"states": states.given, "actions": actions.given}
    shape = states.size, actions.size
    pair = number_cells(states, s) * shape[1] + number_cells(actions, a)
    following = number_cells(states, s2, "next state")
    starts, weights = read_start(states, s[0] if initial_state is None else initial_state)
    initial = np.bincount(starts, weights, minlength=shape[0])
    key, first = np.unique(pair * shape[0] + following, return_index=True)
    if len(key) < len(pair):
        i = int(np.delete(np.arange(len(pair)), first)[0])
        raise ValueError(f"row {i} names {(s[i], a[i], s2[i])} again; each triple has one row")
    return from_triples(pair, following, p, r, shape, horizon, initial, names)


def order_names(what: str, given: list[Any], listed: Any) -> Names:
    """Return the names that are listed, or those given in the order of their first appearance.

    The numbers 0, 1, 2, ... have their own order.
    """
    found = list(dict.fromkeys(given)) if listed is None else as_names(f"{what}s", listed)
    if all(isinstance(x, int) for x in found) and sorted(found) == list(range(len(found))):
        return Names(what, len(found), None)
    return Names(what, len(found), check_names(f"{what}s", found, len(found)))


def number_cells(names: Names, cells: list[Any], called: str = "") -> Array:
    """Return the number of each cell; errors call it `called`."""
    number = {name: names.number(name, called) for name in dict.fromkeys(cells)}
    return np.array([number[name] for name in cells])


def read_columns(frame: Any) -> dict[str, list[Any]]:
    """Return the columns of a table as lists of hashable values, none empty."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        to_pandas = getattr(frame, "to_pandas", None)
        if to_pandas is None and not isinstance(frame, Mapping):
            allowed = "a table of pandas, polars or pyarrow, or a mapping of columns"
            given = with_article(type(frame).__name__)
            raise TypeError(f"frame is {given}; it must be {allowed}")
        try:
            frame = pd.DataFrame(dict(frame)) if to_pandas is None else to_pandas()
        except ValueError as error:
            raise ValueError(f"the frame is no table of columns: {error}") from None
    present, cells = list(frame.columns), {}
    for name in COLUMNS:
        if present.count(name) != 1:
            problem = f"two columns {name!r}" if name in present else f"no column {name!r}"
            raise ValueError(f"the frame has {problem}; it has {present}")
        cells[name] = list(map(to_tuples, frame[name].tolist()))
        column = pd.Series(cells[name], dtype=object)
        empty = column.isna() | column.map(lambda x: isinstance(x, str) and not x.strip())
        if empty.any():
            row = int(np.argmax(empty))
            raise ValueError(f"column {name!r} of the frame is empty in row {row} (from 0)")
    if "step" in present:
        remedy = "from_arrays takes probabilities and rewards of each step"
        raise ValueError(f"the frame has a column 'step'; {remedy}")
    if not len(frame):
        raise ValueError("the frame has no rows")
    return cells


def mdp_frame(mdp: FiniteMDP) -> Any:
    """Return a pandas data frame of every transition, as `from_frame` reads it.

    A column "step" is added where probabilities or rewards depend on it; `from_frame` refuses it.
    """
    task = mdp.true_task
    s, a, s2 = task.triples
    reward, next_state_reward = task.user_rewards
    reward = reward[:, s * task.n_actions + a]
    if next_state_reward.size:
        reward = reward + next_state_reward
    n_steps = max(len(mdp.probability), len(reward))
    named = name_column(task.states, s), name_column(task.actions, a), name_column(task.states, s2)
    by_step = (np.broadcast_to(x, (n_steps, task.n_triples)) for x in (mdp.probability, reward))
    cells = [*(np.tile(x, n_steps) for x in named), *(x.ravel() for x in by_step)]
    steps = {"step": np.repeat(np.arange(n_steps), task.n_triples)} if n_steps > 1 else {}
    return to_frame(steps | dict(zip(COLUMNS, cells, strict=True)))
