"""Factored problems, whose states are vectors and are not listed.

The functions of a problem are closures over its constants. Problems with the same structure share
them, so that numba compiles them once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from upriver.checks import Array, as_float, check_kinds, finite_number, format_value
from upriver.mdp import FactoredMDP
from upriver.mdp.factored import as_whole

DOWN, REBOOTED = 0, 1
"""Kinds of `sysadmin`; a running machine has one for each number of machines that it hears from and
of those that run."""


def log_odds(probability: Any, name: str = "probability") -> Array:
    """Return (K, 2) log-odds of the values 0 and 1, the latter with these probabilities (K,)."""
    p = as_float(name, probability)
    if not ((p >= 0.0) & (p <= 1.0)).all():
        raise ValueError(f"{name} is {format_value(probability)}; it must lie between 0 and 1")
    with np.errstate(divide="ignore"):
        return np.stack([np.log1p(-p), np.log(p)], axis=1)


def as_graph(graph: ArrayLike) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return (indptr, sources): sources[indptr[j] : indptr[j + 1]] are those that influence j."""
    links = as_whole("graph", graph)
    if links.ndim != 2 or links.shape[0] != links.shape[1] or not links.size:
        raise ValueError(
            f"graph has shape {links.shape}; it must be (n, n), graph[i, j] = 1 where i "
            "influences j"
        )
    targets, sources = np.nonzero(links.T)
    indptr = np.searchsorted(targets, np.arange(len(links) + 1))
    return tuple(indptr.tolist()), tuple(sources.tolist())


@lru_cache(maxsize=32)
def count_less_cost(cost: float) -> Any:
    """Return the reward of components at 1, less a cost of every action but the first."""

    def reward(x, a):
        total = -cost if a > 0 else 0.0
        for i in range(x.shape[0]):
            total += x[i]
        return total

    return reward


@lru_cache(maxsize=32)
def sysadmin_kinds(graph: tuple[tuple[int, ...], tuple[int, ...]]) -> Any:
    """Return the kind of `sysadmin`, and the (sources, running) of the kinds from 2 on."""
    indptr, sources = (np.array(x, np.int64) for x in graph)
    degree = np.diff(indptr)
    states = [(int(d), r) for d in np.unique(degree) for r in range(int(d) + 1)]
    first_kind = np.array([2 + states.index((int(d), 0)) for d in degree])

    def kind(x, a, i):
        if a == i + 1:
            return REBOOTED
        if x[i] == 0:
            return DOWN
        k = first_kind[i]
        for j in range(indptr[i], indptr[i + 1]):
            k += x[sources[j]]
        return k

    return kind, states


@check_kinds
def sysadmin(
    graph: ArrayLike, reboot_probability: float = 0.05, penalty: float = 0.75, horizon: int = 40
) -> FactoredMDP:
    """Make the network of machines of Guestrin, Koller and Parr (2001), as in the IPPC of 2011.

    A machine runs (1) or is down (0). One that runs goes on with probability .45 + .5 (1 + r) /
    (1 + d), where r of the d machines that influence it run. One that is down comes back by itself
    with `reboot_probability`. In a step one machine may be rebooted, which costs `penalty` and
    always works. The reward is the number of machines that run, less that cost.

    Parameters
    ----------
    graph : (n, n) array
        graph[i, j] is 1 where machine i influences machine j.
    """
    links = as_graph(graph)
    n, reward = len(links[0]) - 1, count_less_cost(finite_number("penalty", penalty, -np.inf))
    kind, states = sysadmin_kinds(links)
    log_odds(reboot_probability, "reboot_probability")
    chances = [reboot_probability, 1.0] + [0.45 + 0.5 * (1 + r) / (1 + d) for d, r in states]
    return FactoredMDP(
        np.ones(n), 2, ["nothing", *range(n)], kind, len(chances), reward, horizon,
        log_odds(chances), name=f"sysadmin-{n}",
        names=["down"][: 0 < reboot_probability < 1] + [f"{r} of {d} run" for d, r in states],
    )  # fmt: skip


@lru_cache(maxsize=32)
def game_of_life_kinds(rows: int, columns: int, levels: tuple[int, ...]) -> Any:
    """Return the kind of `game_of_life`; levels are the numbers of the cells' noises."""
    level = np.array(levels)

    def kind(x, a, i):
        row, column, neighbours = i // columns, i % columns, 0
        for r in range(max(row - 1, 0), min(row + 2, rows)):
            for c in range(max(column - 1, 0), min(column + 2, columns)):
                neighbours += x[r * columns + c]
        neighbours -= x[i]
        lives = neighbours == 3 or (x[i] == 1 and neighbours == 2) or a == i + 1
        return 2 * level[i] + lives

    return kind


@check_kinds
def game_of_life(
    start: ArrayLike, noise: ArrayLike = 0.02, cost: float = 1.0, horizon: int = 40
) -> FactoredMDP:
    """Make Conway's game of life with noise, as in the IPPC of 2011.

    A cell follows the rules of the game, and does the opposite with probability `noise`. In a step
    one cell may be set, which makes it live for the price of `cost`, up to the noise. The reward is
    the number of cells that live, less that cost.

    Parameters
    ----------
    start : (rows, columns) array of 0 and 1
    noise : float or (rows, columns) array
    """
    cells = as_whole("start", start)
    if cells.ndim != 2:
        raise ValueError(f"start has shape {cells.shape}; it must be (rows, columns)")
    given = as_float("noise", noise)
    if given.size != 1 and given.shape != cells.shape:
        raise ValueError(f"noise has shape {given.shape}; it must be one number or {cells.shape}")
    flips, level = np.unique(np.broadcast_to(given, cells.shape), return_inverse=True)
    kind = game_of_life_kinds(*cells.shape, tuple(level.ravel().tolist()))
    reward = count_less_cost(finite_number("cost", cost, -np.inf))
    log_odds(flips, "noise")
    chances = np.stack([flips, 1.0 - flips], axis=1).ravel()
    return FactoredMDP(
        cells.ravel(), 2, ["nothing", *range(cells.size)], kind, len(chances), reward, horizon,
        log_odds(chances), name="game-of-life",
    )  # fmt: skip
