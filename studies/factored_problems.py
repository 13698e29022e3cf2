"""Factored problems of the study and of the tests, written as a user would write them.

The functions of a problem see its constants as closures. Problems with the same structure share
their functions, so that numba compiles them once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import poisson

import upriver as up
from upriver.envs.factored import as_graph, log_odds

GOOD, WORN, FAILED = range(3)
REPLACED, BROKEN, FIRST_GOOD, FIRST_WORN, MAX_LOAD = 0, 1, 2, 5, 2
"""Kinds of `maintenance`; machines that work have one for each load, 0 to MAX_LOAD."""


@lru_cache(maxsize=32)
def maintenance_functions(graph: tuple[tuple[int, ...], tuple[int, ...]], cost: float) -> Any:
    """Return kind, reward and allowed of `maintenance`."""
    indptr, sources = (np.array(x, np.int64) for x in graph)

    def kind(x, a, i):
        if a == i + 1:
            return REPLACED
        if x[i] == FAILED:
            return BROKEN
        load = 0
        for j in range(indptr[i], indptr[i + 1]):
            load += x[sources[j]] == FAILED
        return (FIRST_GOOD if x[i] == GOOD else FIRST_WORN) + min(load, MAX_LOAD)

    def reward(x, a):
        total = -cost if a > 0 else 0.0
        for i in range(x.shape[0]):
            total += 1.0 if x[i] == GOOD else 0.8 if x[i] == WORN else 0.0
        return total

    def allowed(x, a):
        return a == 0 or x[a - 1] != GOOD

    return kind, reward, allowed


def maintenance(graph: ArrayLike, cost: float = 2.0, horizon: int = 40) -> up.FactoredMDP:
    """Make a network of machines that wear out faster while their neighbours have failed.

    A machine is good (0, worth 1 a step), worn (1, worth .8) or failed (2). In a step one machine
    that is not good may be replaced, for `cost`. The log-odds are linear in the load, the number of
    machines with an influence that have failed, at most 2: four parameters for all machines.

    Parameters
    ----------
    graph : (n, n) array
        graph[i, j] is 1 where a failure of machine i is a load on machine j.
    """
    links = as_graph(graph)
    n = len(links[0]) - 1
    features = np.zeros((FIRST_WORN + MAX_LOAD + 1, 3, 4))
    possible = np.zeros(features.shape[:2], bool)
    possible[REPLACED, GOOD] = possible[BROKEN, FAILED] = True
    for load in range(MAX_LOAD + 1):
        for first, worse in ((FIRST_GOOD, (WORN, FAILED)), (FIRST_WORN, (FAILED,))):
            possible[first + load, first == FIRST_WORN :] = True
            for value in worse:
                features[first + load, value, [value - 1 if first == FIRST_GOOD else 2, 3]] = (
                    1,
                    load,
                )
    logits = np.where(possible, features @ [-2.5, -4.5, -2.5, 0.8], -np.inf)
    kind, reward, allowed = maintenance_functions(links, float(cost))
    return up.FactoredMDP(
        np.zeros(n), 3, ["nothing", *range(n)], kind, len(logits), reward, horizon, logits,
        features, f"maintenance-{n}", allowed=allowed,
        names=["good to worn", "good to failed", "worn to failed", "load"],
    )  # fmt: skip


@lru_cache(maxsize=32)
def inventory_functions(shelf: int, classes: tuple[int, ...]) -> Any:
    """Return kind and reward of `joint_inventory`."""
    class_of = np.array(classes)

    def kind(x, a, i):
        level = shelf if x[i] < a else x[i]
        return class_of[i] * (shelf + 1) + level

    def reward(x, a, x2):
        total, ordered = 0.0, False
        for i in range(x.shape[0]):
            level = x[i]
            if x[i] < a:
                total -= 1.0 + 2.0 * (shelf - x[i])
                ordered, level = True, shelf
            total += 5.0 * (level - x2[i]) - 0.1 * x2[i]
        return total - 6.0 if ordered else total

    return kind, reward


def joint_inventory(
    demand: ArrayLike = (1.0, 1.0, 2.0, 2.0), shelf: int = 6, horizon: int = 30
) -> up.FactoredMDP:
    """Make an inventory of several items that are ordered together; demand that is not met is lost.

    An action is a level: all items below it are filled up to the shelf, and 0 orders nothing. An
    item sells for 5, costs 2, and .1 for each night; an order costs 6, and 1 for each item in it.
    The demand of a day is Poisson, cut off at the stock.

    Parameters
    ----------
    demand : (n,) array
        The mean demand of each item. Items with the same mean share their log-odds.
    shelf : int
        The largest stock of an item, with which all begin.
    """
    means, classes = np.unique(demand, return_inverse=True)
    level, left = np.indices((shelf + 1, shelf + 1))
    sold = level - left
    rows = [np.where(left == 0, poisson.sf(sold - 1, m), poisson.pmf(sold, m)) for m in means]
    kind, reward = inventory_functions(shelf, tuple(classes.tolist()))
    with np.errstate(divide="ignore"):
        logits = np.log(np.vstack(rows))
    return up.FactoredMDP(
        np.full(len(classes), shelf), shelf + 1, shelf + 1, kind, len(logits), reward, horizon,
        logits, name=f"joint-inventory-{len(classes)}",
    )  # fmt: skip


OFF, PRESSED, HELD = range(3)


@lru_cache(maxsize=32)
def switch_functions(rest: float) -> Any:
    """Return kind and reward of `switches`."""

    def kind(x, a, i):
        for j in range(i):
            if x[j] == 0:
                return OFF
        return HELD if x[i] == 1 else PRESSED if a == i + 1 else OFF

    def reward(x, a):
        for i in range(x.shape[0]):
            if x[i] == 0:
                return rest if a == 0 else 0.0
        return 1.0

    return kind, reward


def switches(
    n: int = 4, press: float = 0.8, hold: float = 0.95, rest: float = 0.1, horizon: int = 20
) -> up.FactoredMDP:
    """Make a row of switches that pays when all are on; exploration matters here.

    A switch can be pressed on, with probability `press`, and stays on with probability `hold`, as
    long as all before it are on; otherwise it is off. A step with all switches on earns 1, resting
    (action 0) earns `rest` in other steps. Somebody who believes that switches hold as often as not
    rests at every step, and learns nothing.
    """
    kind, reward = switch_functions(float(rest))
    return up.FactoredMDP(
        np.zeros(n), 2, n + 1, kind, 3, reward, horizon,
        log_odds([0.0, press, hold]), name=f"switches-{n}", names=["press", "hold"],
    )  # fmt: skip
