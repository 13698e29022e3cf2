"""Own effects of a transition model: each triple may differ from the formula, as far as data say.

log-odds = x theta + u(s, a, s'), u normal around 0. Its standard deviation is the one of the
largest marginal likelihood (Laplace's approximation), so own effects vanish where the formula is
right. They are columns of the triple, so they are shared by all situations of a pair (s, a).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log
from typing import Any

import numpy as np

from upriver.checks import Array
from upriver.logs.columns import Table
from upriver.logs.expansion import Situations, World
from upriver.logs.frames import codes
from upriver.mnl.choices import Choices, Products
from upriver.mnl.newton import LARGE, maximise
from upriver.mnl.pooled import LARGEST, SMALLEST

Triple = tuple[Any, Any, Any]


def own_triples(world: World, of_pairs: Situations) -> dict[Triple, int]:
    """{(state, action, next state): its column}, of all but the first candidate of each pair."""
    others = np.delete(np.arange(len(of_pairs.successor)), of_pairs.indptr[:-1])
    group = np.repeat(of_pairs.group, np.diff(of_pairs.indptr))[others]
    s, a = group // len(world.actions), group % len(world.actions)
    triples = zip(s.tolist(), a.tolist(), of_pairs.successor[others].tolist(), strict=True)
    return {
        (world.states[i], world.actions[j], world.states[k]): c
        for c, (i, j, k) in enumerate(triples)
    }


def with_own(x: Products, of_pairs: Situations) -> Products:
    """The columns of x and those of the own effects."""
    others = np.delete(np.arange(len(of_pairs.successor)), of_pairs.indptr[:-1])
    if x.shape[1] + len(others) > LARGE:
        raise ValueError(
            f"pooled=True makes {len(others)} own effects; up to {LARGE - x.shape[1]} can be "
            "fitted beside the formula"
        )
    own = np.zeros((len(x.right), len(others)))
    own[others, np.arange(len(others))] = 1.0
    ones = np.zeros(len(others), np.int64)  # the first column of `left`
    return Products(
        x.indptr, x.start, x.left, np.r_[x.left_of, ones], np.hstack([x.right, own]), x.whole,
        x.whole_at,
    )  # fmt: skip


def own_rows(own: Mapping[Triple, int], table: Table, columns: tuple[str, str, str]) -> Array:
    """(n, K) the own effects of an expanded table; a triple that the log does not have has none."""
    coded = [codes(table[c]) for c in columns]
    key = np.zeros(len(coded[0][0]), np.int64)
    for code, words in coded:
        key = key * len(words) + code
    found, at = np.unique(key, return_inverse=True)
    place = np.full(len(found), -1)
    for i, number in enumerate(found.tolist()):
        names = []
        for _, words in reversed(coded):
            number, k = divmod(number, len(words))
            names.append(words[k])
        place[i] = own.get(tuple(reversed(names)), -1)
    rows = np.zeros((len(key), len(own)))
    has = np.flatnonzero(place[at] >= 0)
    rows[has, place[at][has]] = 1.0
    return rows


def best_deviation(data: Choices, n_own: int) -> float:
    """The standard deviation of own effects that maximises the marginal likelihood."""
    from scipy.optimize import minimize_scalar

    def cost(log_deviation: float) -> float:
        lam = exp(-2.0 * log_deviation)
        made = penalised(data, n_own, lam)
        theta, loss = maximise(made, None)
        logdet = np.linalg.slogdet(made.hessian(theta))[1]
        return loss + 0.5 * (float(logdet) - n_own * log(lam))

    bounds = log(SMALLEST), log(LARGEST)
    found: Any = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 0.02})
    return float(exp(found.x))


def penalised(data: Choices, n_own: int, lam: float) -> Choices:
    """The same data with a ridge on the last `n_own` coefficients."""
    ridge = np.full(data.x.shape[1], float(np.min(data.lam)))
    ridge[len(ridge) - n_own :] = lam
    return Choices(data.indptr, data.x, data.counts, data.visits, ridge, data.offset)
