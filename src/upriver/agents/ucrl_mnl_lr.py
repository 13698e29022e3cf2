"""UCRL-MNL-LR: optimism over likelihood-ratio sets, with a proof and without a tuned number.

Pairs (s, a) with the same feature rows have the same distribution under the MNL model, so their
counts are added up. For such a class of pairs with counts n_u, n in total, over U successors, let
the prior be uniform over the distributions. The marginal likelihood divided by that of the truth is
a martingale, so by Ville's inequality, with probability 1 - delta for all n,

    n KL(p_hat || p*) <= log(1/delta) + log(prod p_hat_u^n_u (n + U - 1)! / ((U - 1)! prod n_u!)),

which is at most log(1/delta) + log C(n + U - 1, U - 1). It needs no kappa, no bound of theta* and
no ridge.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from upriver import kernels
from upriver.agents.base import State
from upriver.agents.counts import CountLearner
from upriver.agents.mnl_family import MNLLearner
from upriver.agents.rewards import OptimisticReward
from upriver.checks import Array
from upriver.features.maps import recentre
from upriver.planning import Plan, clip_v_remaining


@dataclass(frozen=True)
class UCRLMNLLR(OptimisticReward, CountLearner, MNLLearner):
    """Optimism over likelihood-ratio sets, with a proof and without a tuned number.

    Q_h = r + max of q V_{h+1} over the likelihood-ratio set of (s, a), and V_h = max_a Q_h.

    The set holds the distributions q on the successors of (s, a) that satisfy the bound above, with
    delta shared by all classes of pairs. With known rewards every plan is optimistic with
    probability 1 - delta.

    Parameters
    ----------
    features : Features
        varphi, of which only matters which pairs have the same rows: one-hot features share
        nothing, and pairs whose rows differ are learned separately even where they have features in
        common.
    delta : float
        The probability that the sets may fail.
    reward_bonus : float
        Width of unknown rewards, see `OptimisticReward.reward`; delta does not cover it.
    """

    delta: float = 0.05

    GRID: ClassVar = {"delta": (0.01, 0.05, 0.2, 0.8)}

    def make_plan(self, state: State, rng: np.random.Generator) -> Plan:
        """Return the largest values over the likelihood-ratio sets."""
        prob, size = self.sets(state)
        data = prob, self.reward(state), size, self.task.max_successors, False
        return self.run_pass(kernels.tabular.ball_rule, data, clip_v_remaining, rng)

    @cached_property
    def class_rows(self) -> Array:
        """(n,) the row that counts for each triple: of the first pair of its class.

        Only differences within a pair matter, so rows are compared relative to the pair's first.
        """
        task = self.task
        rows = csr_array(recentre(self.features).matrix, copy=True)
        rows.eliminate_zeros()
        rows.sort_indices()
        first_row: dict[tuple[bytes, ...], int] = {}
        row = np.arange(task.n_triples)
        for start, stop in zip(task.indptr[:-1], task.indptr[1:], strict=True):
            low, high = rows.indptr[start], rows.indptr[stop]
            parts = rows.indptr[start : stop + 1] - low, rows.indices[low:high], rows.data[low:high]
            key = tuple(part.tobytes() for part in parts)
            row[start:stop] = first_row.setdefault(key, int(start)) + np.arange(stop - start)
        return row

    def sets(self, state: State) -> tuple[Array, Array]:
        """Return p_hat (C, n), the frequencies of each pair's class, and the bound / n (C, S*A)."""
        from scipy.special import gammaln, xlogy

        task, counts = self.task, state.model
        row, n_successors = self.class_rows, np.maximum(task.sizes, 1)
        n_classes = len(np.unique(row[task.indptr[:-1][task.sizes > 1]]))
        pooled = np.zeros_like(counts)
        for total, observed in zip(pooled, counts, strict=True):
            np.add.at(total, row, observed)
        pooled = pooled[:, row]
        n = task.by_pair(pooled)
        n_triple = np.repeat(n, task.sizes, axis=1)
        uniform = 1.0 / np.repeat(task.sizes, task.sizes)
        prob = np.where(n_triple > 0, pooled / np.maximum(n_triple, 1.0), uniform)
        bound = (
            log(max(n_classes, 1) * len(counts) / self.delta)
            + task.by_pair(xlogy(pooled, prob) - gammaln(pooled + 1.0))
            + gammaln(n + n_successors)
            - gammaln(n_successors)
        )
        return prob, np.where(n > 0, bound / np.maximum(n, 1.0), np.inf)
