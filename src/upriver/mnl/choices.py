"""Eq. (2), the penalised negative log-likelihood, of dense rows, evaluated chunk by chunk."""

from __future__ import annotations

from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.linalg.blas import dsyrk  # pyright: ignore[reportAttributeAccessIssue]

from upriver import kernels
from upriver.checks import Array

CHUNK_NUMBERS = 32_768  # features per chunk of rows, so that a chunk stays in the cache
SHARE = 8  # a sample holds every 8th situation
PER_FEATURE = 200  # but at least this many situations for each feature
PIECES = 16  # from at least this many places, since data may come sorted


class Choices:
    """Situations of dense rows: x (n, d), indptr (G + 1,), counts (n,), visits (G,) their sums.

    offset (n,): what the logits have besides x theta.
    """

    def __init__(
        self, indptr: Array, x: Array, counts: Array, visits: Array, lam: float, offset: Any = None
    ) -> None:
        self.indptr, self.x, self.counts, self.visits, self.lam = indptr, x, counts, visits, lam
        self.offset = offset
        rows = max(CHUNK_NUMBERS // x.shape[1], int(np.diff(indptr).max()))
        edges = [0]
        while edges[-1] < len(visits):
            edges.append(self.reach(edges[-1], rows))
        self.chunks = list(pairwise(edges))
        self.residual = np.empty(rows)
        self.totals = np.empty(max(last - first for first, last in self.chunks))
        self.rows: Any = None

    def reach(self, first: int, rows: int) -> int:
        """The last situation, plus one, up to which `rows` rows from `first` on suffice."""
        return int(np.searchsorted(self.indptr, self.indptr[first] + rows, side="right")) - 1

    def sample(self) -> tuple[Choices, float] | None:
        """(evenly spread situations on the same arrays, how many times they make up the whole).

        The ridge is divided by that number. None where there is too little to take a sample of.
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
        part.chunks = [(g, min(g + size, self.reach(g, rows), n_groups)) for g in starts]
        times = n_groups / sum(last - first for first, last in part.chunks)
        part.lam = self.lam / times
        return part, times

    def evaluate(self, theta: Array, with_hessian: bool) -> tuple[float, Array, Any]:
        """(loss, gradient (d,), Hessian (d, d) in its lower triangle, or None)."""
        loss = 0.5 * self.lam * float(theta @ theta)
        gradient = self.lam * theta
        hessian = np.asfortranarray(np.diag(np.full(len(theta), self.lam)))
        for chunk in self.chunks:
            loss += self.centre(theta, chunk, with_hessian)
            low, high = self.indptr[chunk[0]], self.indptr[chunk[1]]
            gradient += self.residual[: high - low] @ self.x[low:high]
            if with_hessian:
                # rows is C-ordered, so its transpose is a Fortran view and nothing is copied.
                rows = self.rows[: high - low].T
                hessian = dsyrk(1.0, rows, beta=1.0, c=hessian, overwrite_c=1, lower=1)
        return loss, gradient, hessian if with_hessian else None

    def centre(self, theta: Array, chunk: tuple[int, int], with_rows: bool) -> float:
        """The loss of a chunk; leaves its residuals in `residual`, and its centred `rows`."""
        first, last = chunk
        low, high = self.indptr[first], self.indptr[last]
        if with_rows and self.rows is None:
            self.rows = np.empty((len(self.residual), self.x.shape[1]))
        residual, totals = self.residual[: high - low], self.totals[: last - first]
        np.dot(self.x[low:high], theta, out=residual)
        if self.offset is not None:
            residual += self.offset[low:high]
        kernels.choices.shift_chunk(self.indptr, first, last, residual)
        loss = -float(self.counts[low:high] @ residual)
        np.exp(residual, out=residual)  # NumPy's is vectorised, a compiled loop's is not
        kernels.choices.centre_chunk(
            self.indptr, first, last, self.x, self.counts, self.visits, residual, totals,
            self.rows if with_rows else self.x, with_rows,
        )  # fmt: skip
        return loss + float(self.visits[first:last] @ np.log(totals))

    def hessian(self, theta: Array) -> Array:
        """(d, d), both triangles."""
        half = self.evaluate(theta, True)[2]
        return np.tril(half) + np.tril(half, -1).T

    def product(self, theta: Array, vector: Array) -> Array:
        """Hessian times a vector, without the Hessian."""
        result = self.lam * vector
        for chunk in self.chunks:
            self.centre(theta, chunk, True)
            rows = self.rows[: self.indptr[chunk[1]] - self.indptr[chunk[0]]]
            result += (rows @ vector) @ rows
        return result
