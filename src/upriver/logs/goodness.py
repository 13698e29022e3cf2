"""Pearson's test of a fitted model, against logs that are drawn from the fitted model.

The chi-squared distribution is right only where every expected count is large. Here the statistic
of the log is compared with those of logs of the same size drawn from the estimate (a parametric
bootstrap), each fitted again by one Newton step, so the level holds for sparse logs too. Rows of
drawn logs are independent, so there is no test where rows of a cluster depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver.checks import Array, check_seed, positive_integer
from upriver.display import Card, add_repr, to_frame
from upriver.mnl.choices import Choices
from upriver.mnl.fitted import FittedMNL

ENOUGH = 5.0  # rows expected anywhere but at the likeliest successor, for a pair to be judged
AT_ONCE = 2_000_000  # numbers per array of drawn logs
MANY = 2_000  # cells of which no covariance is made
IDENTIFIED = 1e-9  # least eigenvalue, of information scaled to a unit diagonal, that counts


@add_repr
class GoodnessOfFit(NamedTuple):
    """Pearson's sum (n - N p)^2 / (N p), judged by a parametric bootstrap."""

    statistic: float
    degrees: int
    """Free frequencies of (state, action, next state), minus those that every fit reproduces; with
    covariates and more than 2,000 frequencies minus the features that the log identifies."""
    p_value: float
    """Share of drawn logs that fit as badly; nan where no degree of freedom is left."""
    rows: list[dict[str, Any]]
    """Each (s, a) with a choice: state, action, n, statistic, degrees, p_value, least_expected.

    p_value is None where no degree of freedom is left, and where the log has too few rows: fewer
    than 5 are expected anywhere but at the likeliest successor.
    """
    replicates: int  #: The number of logs drawn.

    def card(self) -> Card:
        return Card(
            {"statistic": float(self.statistic), "degrees": self.degrees,
             "p-value": float(self.p_value), "logs drawn": self.replicates},
            rows=lambda: self.rows,
        )  # fmt: skip

    def to_pandas(self) -> Any:
        """Return the `rows` as a data frame."""
        return to_frame(self.rows)

    def summary(self, limit: int = 10) -> str:
        """Return the total and the `limit` pairs (s, a) that fit worst, as text."""
        plural = "" if self.degrees == 1 else "s"
        verdict = f"p = {self.p_value:.3g} by a parametric bootstrap of {self.replicates} logs"
        verdict = verdict if self.degrees else "nothing is left to test"
        lines = [
            f"goodness of fit: Pearson's {self.statistic:.2f} with {self.degrees} degree{plural} "
            f"of freedom,\n{verdict}",
            "     n   Pearson's  df        p  least expected  (state, action)",
        ]
        judged = [r for r in self.rows if r["p_value"] is not None]
        others = [r for r in self.rows if r["p_value"] is None]
        for r in [*sorted(judged, key=lambda r: r["p_value"]), *others][:limit]:
            p = "       –" if r["p_value"] is None else f"{r['p_value']:8.3g}"
            lines.append(
                f"{r['n']:6g} {r['statistic']:11.2f} {r['degrees']:3d} {p} "
                f"{r['least_expected']:15.1f}  ({r['state']!r}, {r['action']!r})"
            )
        return "\n".join(lines)


class Cells(NamedTuple):
    """Choice situations of a log and the cells of (s, a, s') that their rows fall into."""

    data: Choices  # The choice data of situations that have a choice, without a ridge
    probability: Array  # (n,) fitted
    cell: Array  # (n,) the cell of each row; several situations may share one
    pair: Array  # (C,) the pair (s, a) of each cell, ascending
    names: Sequence[tuple[Any, Any]]  # (state, action) of each pair

    @property
    def expected(self) -> Array:
        """(n,) how often each row would be chosen."""
        return np.repeat(self.data.visits, np.diff(self.data.indptr)) * self.probability


def goodness_of_fit(
    cells: Cells, fitted: FittedMNL, replicates: int = 999, seed: int = 0
) -> GoodnessOfFit:
    """Return Pearson's test, in total and for each pair; p-values from drawn logs."""
    replicates = positive_integer("replicates", replicates)
    if fitted.errors == "cluster":
        raise ValueError("goodness_of_fit needs independent rows, and those of a cluster are not; "
                         "with_errors('classical') takes them for independent")  # fmt: skip
    counts, n_pairs = cells.data.counts, len(cells.names)
    uneven = counts != np.rint(counts)
    if uneven.any():
        raise ValueError(f"a transition of the log has the weight {counts[uneven][0]:g}; "
                         "goodness_of_fit needs whole numbers")  # fmt: skip
    expected, seen = sum_cells(cells, cells.expected), sum_cells(cells, counts)
    statistic = sum_pairs(cells, pearson(seen, expected))
    free = np.bincount(cells.pair, minlength=n_pairs) - 1
    information = cells.data.hessian(fitted.theta)
    inverse = invert(information, fitted.regularization)
    degrees = count_degrees(cells, information)
    worse, beaten = np.zeros(n_pairs), 0
    rng = np.random.default_rng(check_seed(seed))
    at_once = max(AT_ONCE // len(counts), 1)
    total = statistic.sum()
    for first in range(0, replicates, at_once):
        size = min(at_once, replicates - first)
        drawn = sum_pairs(cells, draw_terms(cells, fitted, inverse, size, rng))
        worse += (drawn >= statistic * (1 - 1e-9)).sum(axis=0)
        beaten += int((drawn.sum(axis=-1) >= total * (1 - 1e-9)).sum())
    n, least = sum_pairs(cells, seen), np.minimum.reduceat(expected, first_cells(cells))
    most = np.maximum.reduceat(expected, first_cells(cells))
    rows = [
        {
            "state": state, "action": action, "n": float(n[g]), "statistic": float(statistic[g]),
            "degrees": int(free[g]), "p_value": float((1 + worse[g]) / (1 + replicates))
            if n[g] - most[g] >= ENOUGH and degrees else None,
            "least_expected": float(least[g]),
        }
        for g, (state, action) in enumerate(cells.names)
    ]  # fmt: skip
    p_value = (1 + beaten) / (1 + replicates) if degrees else float("nan")
    return GoodnessOfFit(float(total), degrees, p_value, rows, replicates)


def pearson(seen: Array, expected: Array) -> Array:
    return (seen - expected) ** 2 / np.maximum(expected, 1e-300)


def first_cells(cells: Cells) -> Array:
    return np.searchsorted(cells.pair, np.arange(len(cells.names)))


def sum_pairs(cells: Cells, values: Array) -> Array:
    """Return (..., P) sums of (..., C) over the cells of each pair."""
    return np.add.reduceat(values, first_cells(cells), axis=-1)


def sum_cells(cells: Cells, values: Array) -> Array:
    """Return (..., C) sums of (..., n) over the rows of each cell."""
    n, n_cells = len(cells.cell), len(cells.pair)
    if (np.diff(cells.cell) == 1).all():  # every row is a cell of its own, in order
        return values
    member = sparse.csr_array((np.ones(n), cells.cell, np.arange(n + 1)), (n, n_cells))
    return values @ member


def draw_terms(
    cells: Cells, fitted: FittedMNL, inverse: Any, size: int, rng: np.random.Generator
) -> Array:
    """Return (size, C) Pearson's terms of drawn logs, each fitted again by a Newton step."""
    data = cells.data
    counts = np.empty((size, len(data.counts)))
    starts, sizes, visits = data.indptr[:-1], np.diff(data.indptr), data.visits
    for u in np.unique(sizes):
        groups = np.flatnonzero(sizes == u)
        at = starts[groups][:, None] + np.arange(u)
        p = cells.probability[at]
        p /= p.sum(axis=1, keepdims=True)  # what exp leaves of a sum of 1
        counts[:, at] = rng.multinomial(visits[groups].astype(np.int64), p, (size, len(groups)))
    score = (counts - cells.expected) @ data.x - fitted.regularization * fitted.theta
    logits = (fitted.theta + score @ inverse) @ data.x.T
    logits -= np.repeat(np.maximum.reduceat(logits, starts, axis=1), sizes, axis=1)
    np.exp(logits, out=logits)
    logits *= np.repeat(visits / np.add.reduceat(logits, starts, axis=1), sizes, axis=1)
    return pearson(sum_cells(cells, counts), sum_cells(cells, logits))


def invert(information: Array, ridge: float = 0.0) -> Array:
    """Return (d, d) the inverse of the information and a ridge.

    Directions that the log does not identify have no variance and no step.
    """
    diagonal = np.diagonal(information)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    even = information * scale[:, None] * scale + ridge * np.diag(scale**2)
    return np.linalg.pinv(even, rcond=IDENTIFIED, hermitian=True) * scale[:, None] * scale


def count_degrees(cells: Cells, information: Array) -> int:
    """Return the rank of the covariance of what a fit leaves of the frequencies of the cells.

    It is J - K I^-1 K^T: J is the covariance of the frequencies, I the information, and K the
    covariance of the frequencies and the score. Where rows and cells are the same it is the rank of
    J less that of I, which is the least that it can be, and is returned where cells are many.
    """
    data, (n, n_cells) = cells.data, (len(cells.cell), len(cells.pair))
    inverse = invert(information)
    if n == n_cells or n_cells > MANY:
        rank = round(float((inverse * information).sum()))
        return max(n_cells - len(cells.names) - rank, 0)
    starts, sizes, expected = data.indptr[:-1], np.diff(data.indptr), cells.expected
    mean = np.add.reduceat(cells.probability[:, None] * data.x, starts)
    member = sparse.csr_array((np.ones(n), cells.cell, np.arange(n + 1)), (n, n_cells))
    chance = sparse.csr_array((cells.probability, cells.cell, data.indptr), (len(sizes), n_cells))
    of_cell = member.T @ expected
    left = np.diag(of_cell) - (chance.T @ sparse.diags_array(data.visits) @ chance).toarray()
    cross = member.T @ (expected[:, None] * (data.x - np.repeat(mean, sizes, axis=0)))
    left -= cross @ inverse @ cross.T
    scale = 1.0 / np.sqrt(np.maximum(of_cell, 1e-300))
    return int((np.linalg.eigvalsh(left * scale[:, None] * scale) > IDENTIFIED).sum())
