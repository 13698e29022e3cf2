"""Triple effects of a transition model: each triple may differ from the formula.

log-odds = x theta + u(s, a, s') with u normal around 0. Its standard deviation maximises the
marginal likelihood (Laplace's approximation), so the effects vanish where the formula is right.
They are columns of the triple, so all situations of a pair (s, a) share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log
from typing import Any

import numpy as np

from upriver.checks import Array
from upriver.logs.formula import Columns
from upriver.logs.situations import Situations, StateSpace
from upriver.mnl.choices import Choices, Products
from upriver.mnl.newton import LARGE, maximise
from upriver.mnl.pooled import LARGEST, SMALLEST, TripleEffects

Triple = tuple[Any, Any, Any]


def other_candidates(of_pairs: Situations) -> Array:
    """Return the rows of all but the first candidate of each pair."""
    return np.delete(np.arange(len(of_pairs.successor)), of_pairs.indptr[:-1])


def list_triples(space: StateSpace, of_pairs: Situations) -> dict[Triple, int]:
    """Return {(state, action, next state): its column} of all but each pair's first candidate."""
    others = other_candidates(of_pairs)
    pairs = np.repeat(of_pairs.pair, np.diff(of_pairs.indptr))[others].tolist()
    following = of_pairs.successor[others].tolist()
    return {
        (*space.names(pair), space.states[s2]): column
        for column, (pair, s2) in enumerate(zip(pairs, following, strict=True))
    }


def add_triple_columns(x: Products, of_pairs: Situations) -> Products:
    """Return the columns of x followed by those of the triple effects."""
    others = other_candidates(of_pairs)
    if x.shape[1] + len(others) > LARGE:
        raise ValueError(f"pooled=True makes {len(others)} triple effects; up to "
                         f"{LARGE - x.shape[1]} can be fitted beside the formula")  # fmt: skip
    effects = np.zeros((len(x.right), len(others)))
    effects[others, np.arange(len(others))] = 1.0
    ones = np.zeros(len(others), np.int64)  # the first column of `left`
    return Products(
        x.indptr, x.start, x.left, np.r_[x.left_of, ones], np.hstack([x.right, effects]), x.whole,
        x.whole_at,
    )  # fmt: skip


def triple_rows(
    triples: Mapping[Triple, int], table: Columns, columns: tuple[str, str, str]
) -> Array:
    """Return (n, K) the columns of an expanded table; a triple without an effect has zeros."""
    cells = (table[c].tolist() for c in columns)
    at = np.array([triples.get(triple, -1) for triple in zip(*cells, strict=True)])
    rows = np.zeros((len(at), len(triples)))
    has = np.flatnonzero(at >= 0)
    rows[has, at[has]] = 1.0
    return rows


def pool(
    data: Choices, triples: Mapping[Triple, int], space: StateSpace, of: Situations
) -> tuple[Choices, TripleEffects]:
    """Return the data with the ridge of the triple effects, and a description of the effects."""
    n = len(triples)
    deviation = estimate_deviation(data, n)
    visits = np.bincount(of.pair, data.visits, len(space.sizes))
    pairs = [
        space.states.index(s) * len(space.actions) + space.actions.index(a) for s, a, _ in triples
    ]
    return penalize(data, n, deviation**-2), TripleEffects(list(triples), visits[pairs], deviation)


def estimate_deviation(data: Choices, n_effects: int) -> float:
    """Return the standard deviation of triple effects that maximises the marginal likelihood."""
    from scipy.optimize import minimize_scalar

    def cost(log_deviation: float) -> float:
        lam = exp(-2.0 * log_deviation)
        made = penalize(data, n_effects, lam)
        theta, loss, *_ = maximise(made, None)
        logdet = np.linalg.slogdet(made.hessian(theta))[1]
        return loss + 0.5 * (float(logdet) - n_effects * log(lam))

    bounds = log(SMALLEST), log(LARGEST)
    found: Any = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 0.02})
    return float(exp(found.x))


def penalize(data: Choices, n_effects: int, lam: float) -> Choices:
    """Return the same data with a ridge on the last `n_effects` coefficients."""
    ridge = np.full(data.x.shape[1], float(np.min(data.lam)))
    ridge[len(ridge) - n_effects :] = lam
    return Choices(data.indptr, data.x, data.counts, data.visits, ridge, data.offset)
