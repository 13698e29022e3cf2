"""Eq. (2), the regularised negative log-likelihood, of choice data, evaluated chunk by chunk.

A situation is a set of alternatives, one row each, of which one or more were chosen. The rows of a
few situations, a chunk, stay in the processor's cache between BLAS and the compiled loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg.blas import dsyrk  # pyright: ignore[reportAttributeAccessIssue]

from upriver import kernels
from upriver.checks import Array

CHUNK_NUMBERS = 32_768  # numbers of a chunk of rows
BLOCK_ROWS = 65_536  # rows of a chunk where no rows are made
SHARE = 8  # a sample holds every 8th situation
PER_FEATURE = 200  # but at least this many situations for each feature
PIECES = 16  # taken at this many places or more, since data may come sorted
PIECE = 4_000_000  # choices whose scores are summed by cluster at once
PARTS = 16  # of large data, whatever the number of threads: their sum is always the same
NO_ROWS = np.empty((0, 0))


class Choices:
    """Choice data and their loss (2).

    indptr (G + 1,): where the rows of each situation begin; x: rows (n, d), or Products; counts
    (n,): how often each alternative was chosen; visits (G,): the sum of the counts of each
    situation; lam: the ridge, a number or (d,); offset (n,): what the logits have besides x theta.
    """

    def __init__(
        self, indptr: Array, x: Any, counts: Array, visits: Array, lam: Any, offset: Any = None
    ) -> None:
        self.indptr, self.x, self.counts, self.visits, self.lam = indptr, x, counts, visits, lam
        self.offset = offset
        self.chunks = list(in_chunks(indptr, max(CHUNK_NUMBERS // x.shape[1], 1)))
        self.blocks = list(in_chunks(indptr, BLOCK_ROWS))
        self.allocate()

    def allocate(self) -> None:
        """Make the work arrays for one chunk at a time."""
        at = self.indptr
        sizes = np.array([(at[last] - at[first], last - first) for first, last in self.chunks])
        self.n_rows = int(sizes[:, 0].sum())
        self.residual, self.totals = map(np.empty, sizes.max(axis=0))
        self.rows: Any = None

    def sample(self) -> tuple[Choices, float] | None:
        """Return evenly spread situations on the same arrays, and their share's inverse.

        The ridge is divided by that number. None where there are too few situations.
        """
        n_groups = len(self.visits)
        wanted = max(n_groups // SHARE, PER_FEATURE * self.x.shape[1])
        if wanted > n_groups // 4:
            return None
        part = copy(self)
        rows = len(self.residual)
        n_pieces = max(PIECES, len(self.chunks) // SHARE)
        starts = [i * n_groups // n_pieces for i in range(n_pieces)]
        size = min(-(-wanted // n_pieces), len(self.totals))
        part.chunks = [(g, min(g + size, reach(self.indptr, g, rows), n_groups)) for g in starts]
        part.blocks = part.chunks
        times = n_groups / sum(last - first for first, last in part.chunks)
        part.lam = self.lam / times
        part.allocate()
        vars(part).pop("portions", None)
        return part, times

    @cached_property
    def portions(self) -> list[Choices]:
        """The same data in up to PARTS parts, each with its own work arrays."""
        found, n = [], min(PARTS, len(self.blocks), len(self.chunks))
        for i in range(n):
            part = copy(self)
            part.chunks, part.blocks = (
                x[i * len(x) // n : (i + 1) * len(x) // n] for x in (self.chunks, self.blocks)
            )
            part.allocate()
            found.append(part)
        return found

    def evaluate(self, theta: Array, with_hessian: bool) -> tuple[float, Array, Any]:
        """Return the loss (2), its gradient (d,), its Hessian (d, d), lower triangle, or None."""
        gradient = self.lam * theta
        loss = 0.5 * float(gradient @ theta)
        hessian: Any = None
        if with_hessian:
            hessian = np.asfortranarray(np.diag(np.broadcast_to(self.lam, len(theta))))
        if self.n_rows < kernels.LARGE:
            return loss + self.add(theta, gradient, hessian), gradient, hessian

        def part(i: int, _: int) -> tuple[float, Array, Any]:
            more = np.zeros_like(gradient), None if hessian is None else np.zeros_like(hessian)
            return self.portions[i].add(theta, *more), *more

        n = len(self.portions)
        for more, slope, bend in kernels.compiled.parallel_ranges(part, n, n):
            loss += more
            gradient += slope
            hessian = hessian if bend is None else hessian + bend
        return loss, gradient, hessian

    def add(self, theta: Array, gradient: Array, hessian: Any) -> float:
        """Return the loss without ridge; add its derivatives to gradient and hessian if given."""
        if hessian is None and isinstance(self.x, Products) and not len(self.x.whole_at):
            return self.x.gradient(self, theta, gradient)
        loss = 0.0
        for chunk in self.chunks:
            x = self.part(*chunk)
            loss += self.centre(theta, chunk, x, hessian is not None)
            gradient += self.residual[: len(x)] @ x
            if hessian is not None:
                add_scatter(hessian, self.rows[: len(x)])
        return loss

    def part(self, first: int, last: int) -> Array:
        """Return the rows of situations [first, last), read-only so that kernels compile once."""
        if isinstance(self.x, Products):
            rows = self.x.part(first, last)
        else:
            rows = np.asarray(self.x[self.indptr[first] : self.indptr[last]], np.float64)
        rows.flags.writeable = False
        return rows

    def centre(self, theta: Array, chunk: tuple[int, int], x: Array, with_rows: bool) -> float:
        """Return the loss of a chunk; leave its residuals and its centred rows in work arrays."""
        first, last = chunk
        low, high = self.indptr[first], self.indptr[last]
        if with_rows and self.rows is None:
            self.rows = np.empty((len(self.residual), self.x.shape[1]))
        residual, totals = self.residual[: high - low], self.totals[: last - first]
        self.write_logits(theta, chunk, x, residual)
        loss = -float(self.counts[low:high] @ residual)
        np.exp(residual, out=residual)  # NumPy's is vectorised, a compiled loop's is not
        kernels.likelihood.centre_chunk(
            self.indptr, first, last, x, self.counts, self.visits, residual, totals,
            self.rows if with_rows else NO_ROWS,
        )  # fmt: skip
        return loss + float(self.visits[first:last] @ np.log(totals))

    def write_logits(self, theta: Array, chunk: tuple[int, int], x: Array, out: Array) -> None:
        """Write the logits of a chunk, minus the largest of each situation, into out."""
        np.dot(x, theta, out=out)
        if self.offset is not None:
            out += self.offset[self.indptr[chunk[0]] : self.indptr[chunk[1]]]
        kernels.likelihood.shift_chunk(self.indptr, *chunk, out)

    def hessian(self, theta: Array) -> Array:
        """Return the Hessian (d, d) of (2), both triangles."""
        return both_triangles(self.evaluate(theta, True)[2])

    def separating(self) -> Array:
        """Return the columns of which every choice has the largest, or smallest, value."""
        largest, smallest = np.ones((2, self.x.shape[1]), bool)
        for first, last in self.chunks:
            low, high = self.indptr[first], self.indptr[last]
            x, chosen = self.part(first, last), self.counts[low:high] > 0
            starts, sizes = self.indptr[first:last] - low, np.diff(self.indptr[first : last + 1])
            for kept, extreme in ((largest, np.maximum), (smallest, np.minimum)):
                ends = np.repeat(extreme.reduceat(x, starts), sizes, axis=0)
                kept &= (x == ends)[chosen].all(axis=0)
        return np.flatnonzero(largest ^ smallest)

    def probabilities(self, theta: Array) -> Array:
        """Return (n,) the probability (1) of every row."""
        result = np.empty(len(self.counts))
        for first, last in self.chunks:
            low, high = self.indptr[first], self.indptr[last]
            logits = result[low:high]
            self.write_logits(theta, (first, last), self.part(first, last), logits)
            np.exp(logits, out=logits)
            starts, sizes = self.indptr[first:last] - low, np.diff(self.indptr[first : last + 1])
            logits /= np.repeat(np.add.reduceat(logits, starts), sizes)
        return result

    def scores(self, probability: Array) -> Iterator[tuple[int, int, Array]]:
        """Yield (low, high, rows minus the mean of their situation) for each chunk.

        A centred row is what a choice adds to the gradient of the log-likelihood.
        """
        for first, last in self.chunks:
            low, high = self.indptr[first], self.indptr[last]
            x, sizes = self.part(first, last), np.diff(self.indptr[first : last + 1])
            weighted = x * probability[low:high, None]
            mean = np.add.reduceat(weighted, self.indptr[first:last] - low)
            yield low, high, x - np.repeat(mean, sizes, axis=0)

    def scatter(self, theta: Array) -> Array:
        """Return (d, d) the sum over choices of the outer products of their scores."""
        total = np.asfortranarray(np.zeros((len(theta), len(theta))))
        for low, high, score in self.scores(self.probabilities(theta)):
            total = add_scatter(total, score * np.sqrt(self.counts[low:high, None]))
        return both_triangles(total)

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
        self.left_of = left_of.astype(np.uint64)  # unsigned: see kernels.ProductColumns
        self.right, self.whole, self.whole_at = right, whole, whole_at
        self.factors = kernels.ProductColumns(start, left, self.left_of, right)
        self.shape = int(indptr[-1]), right.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        """Return the rows of whole situations as an array."""
        first, last = (int(i) for i in np.searchsorted(self.indptr, rows.indices(len(self))[:2]))
        return self.part(first, last)

    def part(self, first: int, last: int) -> Array:
        """Return the rows of situations [first, last)."""
        low, high = self.indptr[first], self.indptr[last]
        made = np.empty((high - low, self.shape[1]))
        kernels.likelihood.multiply(self.indptr, first, last, self.factors, made)
        if len(self.whole_at):
            made[:, self.whole_at] *= self.whole[low:high]
        return made

    def gradient(self, data: Choices, theta: Array, gradient: Array) -> float:
        """Return the loss and add its gradient to `gradient`, without making rows."""
        rows, groups = (
            max(x[last] - x[first] for first, last in data.blocks)
            for x in (self.indptr, range(len(self.indptr)))
        )
        residual, totals, loss = np.empty(rows), np.empty(groups), 0.0
        for first, last in data.blocks:
            low, high = self.indptr[first], self.indptr[last]
            logits, total = residual[: high - low], totals[: last - first]
            where = self.indptr, first, last
            kernels.likelihood.product_logits(*where, self.factors, theta, logits)
            if data.offset is not None:
                logits += data.offset[low:high]
            kernels.likelihood.shift_chunk(*where, logits)
            loss -= float(data.counts[low:high] @ logits)
            np.exp(logits, out=logits)
            kernels.likelihood.product_gradient(
                *where, self.factors, data.counts, data.visits, logits, total, gradient
            )
            loss += float(data.visits[first:last] @ np.log(total))
        return loss

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


def reach(indptr: Array, first: int, rows: int) -> int:
    """Return the last situation, plus one, that fits into `rows` rows from `first` on."""
    return int(np.searchsorted(indptr, indptr[first] + rows, side="right")) - 1


def add_scatter(total: Array, rows: Array) -> Array:
    """total += rows^T rows in the lower triangle of total (Fortran-ordered), in place."""
    # rows are C-ordered, so their transpose is a Fortran view and nothing is copied
    return dsyrk(1.0, rows.T, beta=1.0, c=total, overwrite_c=1, lower=1)


def both_triangles(half: Array) -> Array:
    """Return a symmetric matrix given by its lower triangle."""
    return np.tril(half) + np.tril(half, -1).T
