"""Eq. (2), the regularised negative log-likelihood, of choice data, evaluated chunk by chunk.

A situation is a set of alternatives, one row each, of which one or more were chosen. The rows of a
few situations, a chunk, stay in the processor's cache between BLAS and the compiled loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
from scipy import sparse

from upriver import kernels
from upriver.checks import Array

CHUNK_NUMBERS = 65_536  # numbers of a chunk of rows
SHARE = 1 / 8  # of the situations are in a sample
PER_FEATURE = 200  # but at least this many situations for each feature
PIECES = 16  # taken at this many places or more, since data may come sorted
PIECE = 4_000_000  # choices whose scores are summed by cluster at once
PARTS = 16  # of large data, whatever the number of threads: their sum is always the same
NO_ROWS = np.empty((0, 0))


class Choices:
    """Choice data and their loss (2).

    indptr (G + 1,): where the rows of each situation begin; x: rows (n, d), or Products; counts
    (n,): how often each alternative was chosen; visits (G,): the sum of the counts of each
    situation; lam: the ridge; offset (n,): what the logits have besides x theta.
    """

    def __init__(
        self, indptr: Array, x: Any, counts: Array, visits: Array, lam: float, offset: Any = None
    ) -> None:
        self.indptr, self.x, self.counts, self.visits, self.lam = indptr, x, counts, visits, lam
        self.offset = offset
        self.chunks = list(in_chunks(indptr, max(CHUNK_NUMBERS // x.shape[1], 1)))
        self.blocks = self.chunks  # the chunks of a gradient, larger where it needs no rows
        if isinstance(x, Products) and not len(x.whole_at):
            self.blocks = list(in_chunks(indptr, CHUNK_NUMBERS))

    def sample(self) -> tuple[Choices, float] | None:
        """Return a share of the situations of many chunks, and that share's inverse.

        The ridge is divided by that number. None where there are too few situations.
        """
        n_groups = len(self.visits)
        share = max(SHARE, PER_FEATURE * self.x.shape[1] / n_groups)
        if share > 0.25:
            return None
        part = copy(self)
        every = min(max(len(self.chunks) // PIECES, 1), int(1.0 / share))
        part.chunks = [
            (first, first + ceil((last - first) * every * share))
            for first, last in self.chunks[::every]
        ]
        part.blocks = part.chunks
        times = n_groups / sum(last - first for first, last in part.chunks)
        part.lam = self.lam / times
        return part, times

    def evaluate(self, theta: Array, with_hessian: bool) -> tuple[float, Array, Any]:
        """Return the loss (2), its gradient (d,) and its Hessian (d, d), or None."""
        chunks = self.chunks if with_hessian else self.blocks

        def part(first: int, last: int) -> tuple[float, Array, Any]:
            return self.evaluate_chunks(theta, chunks[first:last], with_hessian)

        n = len(chunks)
        if len(self.counts) < kernels.LARGE:
            parts = [part(0, n)]
        else:
            parts = kernels.compiled.parallel_ranges(part, n, PARTS)
        gradient = self.lam * theta
        loss = 0.5 * float(gradient @ theta)
        hessian: Any = self.lam * np.eye(len(theta)) if with_hessian else None
        for more, slope, bend in parts:
            loss += more
            gradient += slope
            hessian = hessian + bend if with_hessian else None
        return loss, gradient, hessian

    def evaluate_chunks(
        self, theta: Array, chunks: list[tuple[int, int]], with_hessian: bool
    ) -> tuple[float, Array, Any]:
        """Return the same for some chunks, without the ridge."""
        if not with_hessian and isinstance(self.x, Products) and not len(self.x.whole_at):
            return *self.evaluate_products(theta, chunks, self.x), None
        loss, gradient = 0.0, np.zeros(len(theta))
        hessian = np.zeros((len(theta), len(theta))) if with_hessian else None
        for first, last in chunks:
            x, counts = self.rows(first, last), self.counts[self.rows_of(first, last)]
            residual, totals = self.logits(theta, first, last, x), np.empty(last - first)
            kernels.choices.shift_chunk(self.indptr, first, last, residual)
            loss -= float(counts @ residual)
            np.exp(residual, out=residual)  # NumPy's is vectorised, a compiled loop's is not
            centred = np.empty(x.shape) if with_hessian else NO_ROWS
            kernels.choices.centre_chunk(
                self.indptr, first, last, x, self.counts, self.visits, residual, totals, centred
            )
            loss += float(self.visits[first:last] @ np.log(totals))
            gradient += residual @ x
            if hessian is not None:
                hessian += centred.T @ centred
        return loss, gradient, hessian

    def evaluate_products(
        self, theta: Array, chunks: list[tuple[int, int]], x: Products
    ) -> tuple[float, Array]:
        """Return the loss of some chunks and its gradient, without making their rows."""
        loss, gradient = 0.0, np.zeros(len(theta))
        for first, last in chunks:
            rows, where = self.rows_of(first, last), (self.indptr, first, last)
            residual, totals = np.empty(rows.stop - rows.start), np.empty(last - first)
            kernels.choices.product_logits(*where, *x.factors, theta, residual)
            if self.offset is not None:
                residual += self.offset[rows]
            kernels.choices.shift_chunk(*where, residual)
            loss -= float(self.counts[rows] @ residual)
            np.exp(residual, out=residual)
            kernels.choices.product_gradient(
                *where, *x.factors, self.counts, self.visits, residual, totals, gradient
            )
            loss += float(self.visits[first:last] @ np.log(totals))
        return loss, gradient

    def rows_of(self, first: int, last: int) -> slice:
        """Return where the rows of situations [first, last) are."""
        return slice(self.indptr[first], self.indptr[last])

    def rows(self, first: int, last: int) -> Array:
        """Return the rows of situations [first, last), read-only so that kernels compile once."""
        if isinstance(self.x, Products):
            rows = self.x.rows(first, last)
        else:
            rows = np.asarray(self.x[self.rows_of(first, last)], np.float64)
        rows.flags.writeable = False
        return rows

    def logits(self, theta: Array, first: int, last: int, x: Array) -> Array:
        """Return the logits of situations [first, last), whose rows are x."""
        logits = x @ theta
        if self.offset is not None:
            logits += self.offset[self.rows_of(first, last)]
        return logits

    def hessian(self, theta: Array) -> Array:
        """Return the Hessian (d, d) of (2)."""
        return self.evaluate(theta, True)[2]

    def separating(self) -> Array:
        """Return the columns of which every choice has the largest, or smallest, value."""
        largest, smallest = np.ones((2, self.x.shape[1]), bool)
        for first, last in self.chunks:
            x, chosen = self.rows(first, last), self.counts[self.rows_of(first, last)] > 0
            bounds = self.indptr[first : last + 1] - self.indptr[first]
            for kept, extreme in ((largest, np.maximum), (smallest, np.minimum)):
                ends = np.repeat(extreme.reduceat(x, bounds[:-1]), np.diff(bounds), axis=0)
                kept &= (x == ends)[chosen].all(axis=0)
        return np.flatnonzero(largest ^ smallest)

    def probabilities(self, theta: Array) -> Array:
        """Return (n,) the probability (1) of every row."""
        parts = [self.logits(theta, *chunk, self.rows(*chunk)) for chunk in self.chunks]
        return softmax(self.indptr, np.concatenate(parts))

    def scores(self, probability: Array) -> Iterator[tuple[int, int, Array]]:
        """Yield (low, high, rows minus the mean of their situation) for each chunk.

        A centred row is what a choice adds to the gradient of the log-likelihood.
        """
        for first, last in self.chunks:
            low, high = self.indptr[first], self.indptr[last]
            x, sizes = self.rows(first, last), np.diff(self.indptr[first : last + 1])
            weighted = x * probability[low:high, None]
            mean = np.add.reduceat(weighted, self.indptr[first:last] - low)
            yield low, high, x - np.repeat(mean, sizes, axis=0)

    def scatter(self, theta: Array) -> Array:
        """Return (d, d) the sum over choices of the outer products of their scores."""
        total = np.zeros((len(theta), len(theta)))
        for low, high, score in self.scores(self.probabilities(theta)):
            weighted = score * np.sqrt(self.counts[low:high, None])
            total += weighted.T @ weighted
        return total

    def cluster_scores(
        self, theta: Array, cluster: Array, chosen: Array, weights: Array | None = None
    ) -> Array:
        """Return (C, d) the sums of the scores of each cluster, made from pieces of the choices.

        cluster, chosen, weights (m,): the cluster of each choice, its row and how often it counts.
        """
        sums = np.zeros((int(cluster.max()) + 1, len(theta)))
        probability = self.probabilities(theta)
        for at in range(0, len(cluster), PIECE):
            some = slice(at, at + PIECE)
            of, rows = cluster[some], chosen[some]
            times = np.ones(len(of)) if weights is None else weights[some]
            least, most = int(of.min()), int(of.max()) + 1  # few where choices come by cluster
            shape = most - least, len(self.counts)
            times = sparse.csc_array((times, (of - least, rows)), shape)
            for low, high, score in self.scores(probability):
                sums[least:most] += times[:, low:high] @ score
        return sums


class Products:
    """Rows that are products of a number of the situation and a number of the triple.

    x[r, j] = left[g, left_of[j]] * right[start[g] + u, j], r the u-th row of situation g: for
    example "age" times "is it worse". left is (G, k), right is (T, d). No array of n rows is kept
    except `whole` (n, w), which multiplies the columns `whole_at` that are no such products.
    """

    def __init__(
        self, indptr: Array, start: Array, left: Array, left_of: Array, right: Array,
        whole: Array, whole_at: Array,
    ) -> None:  # fmt: skip
        self.indptr, self.start, self.left = indptr, start, left
        self.left_of = left_of.astype(np.int64)
        self.right, self.whole, self.whole_at = right, whole, whole_at
        self.factors = start, left, self.left_of, right
        self.shape = int(indptr[-1]), right.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        """Return the rows of whole situations as an array."""
        first, last = np.searchsorted(self.indptr, rows.indices(len(self))[:2]).tolist()
        return self.rows(first, last)

    def rows(self, first: int, last: int) -> Array:
        """Return the rows of situations [first, last)."""
        low, high = self.indptr[first], self.indptr[last]
        made = np.empty((high - low, self.shape[1]))
        kernels.choices.multiply(self.indptr, first, last, *self.factors, made)
        if len(self.whole_at):
            made[:, self.whole_at] *= self.whole[low:high]
        return made

    def sizes(self) -> Array:
        """Return (d,) roughly the largest entry of each column."""
        some = self.left[:: len(self.left) // 1000 + 1], self.right, self.whole
        left, right, whole = (np.abs(x).max(axis=0) for x in some)
        most = left[self.left_of] * right
        most[self.whole_at] *= whole
        return most

    def columns(self, keep: Array) -> Products:
        """Return some of the columns, on the same arrays."""
        kept = np.isin(self.whole_at, keep)
        return Products(
            self.indptr, self.start, self.left, self.left_of[keep],
            np.ascontiguousarray(self.right[:, keep]),
            self.whole if kept.all() else self.whole[:, kept],
            np.searchsorted(keep, self.whole_at[kept]),
        )  # fmt: skip


def in_chunks(indptr: Array, rows: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of consecutive situations that have about `rows` rows."""
    edges = np.searchsorted(indptr, np.arange(0, indptr[-1], rows))
    return pairwise([*np.unique(edges).tolist(), len(indptr) - 1])


def softmax(indptr: Array, logits: Array) -> Array:
    """Return (n,) probabilities, eq. (1), of the rows of situations; those without rows are left
    out.
    """
    starts = indptr[:-1][np.diff(indptr) > 0]
    sizes = np.diff(np.append(starts, indptr[-1]))
    p = np.exp(logits - np.repeat(np.maximum.reduceat(logits, starts), sizes))
    return p / np.repeat(np.add.reduceat(p, starts), sizes)
