"""What was done: a model of the actions given the state and the covariates, fitted to the log.

In each state the actions are an MNL choice with an intercept and the covariates of the formula, as
the formula codes them: pi(a | s, x) is proportional to exp(b_sa^T z(x)). Without covariates these
are the shares of the actions. There is no ridge, so units of covariates do not matter. A state with
fewer than ROWS_EACH rows for each coefficient has the shares of its actions; `Behaviour.summary`
names such states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from upriver.checks import Array
from upriver.display import add_repr
from upriver.logs.formula import Factor, evaluate_factor
from upriver.logs.situations import find_distinct
from upriver.logs.tables import listed
from upriver.mnl.clusters import adjust_scores, is_adjusted

ROWS_EACH = 10  # rows for each coefficient of a state
ALIASED = 1e-9  # share of a column's square that the columns before it must leave
STEPS = 60  # of Newton's method
CERTAIN = 1e-3  # information, in rows, below which covariates predict an action perfectly
DECREMENT = 1e-12  # at which it stops, as a share of the number of rows


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class Behaviour:
    """A model of the actions in each state; k numbers z(x) of the covariates, the first is 1."""

    factors: tuple[Factor, ...]  # How covariates become z
    coefficients: Array  # (S, A, k)
    taken: Array  # (S, A) whether the action has a chance
    visits: Array  # (S, A) the weight of the rows of each pair
    root: Any  # (S*A*k, q) sparse R: the covariance of the coefficients is R R^T
    names: Sequence[Any]  # Of the states
    few: Array | None = None  # (S,) whether covariates were left out for lack of rows

    def columns(self, covariates: Mapping[str, Array], n: int) -> Array:
        """Return (n, k) the numbers z of n sets of covariates."""
        made = [evaluate_factor(factor, covariates)[0] for factor in self.factors]
        return np.hstack([np.ones((n, 1)), *made])

    def probabilities(self, z: Array, shift: Array | None = None) -> Array:
        """Return (n, S*A) the probabilities of actions at (n, k) numbers of covariates.

        shift: (S*A*k,) what is added to the coefficients.
        """
        b = self.coefficients if shift is None else self.coefficients + shift.reshape(
            self.coefficients.shape
        )  # fmt: skip
        logits = np.einsum("nk,sak->nsa", z, b)
        logits = np.where(self.taken, logits, -np.inf)
        p = np.exp(logits - logits.max(axis=2, keepdims=True))
        return (p / p.sum(axis=2, keepdims=True)).reshape(len(z), -1)

    def cluster_influence(
        self, z: Array, of: Array, pair: Array, weight: Array, cluster: Array, n_clusters: int
    ) -> Any:
        """Return (C + j, S*A*k) what each cluster adds to the errors of the coefficients.

        z (U, k), of (m,): the covariates of each row; pair, weight, cluster (m,). The scores of a
        state are adjusted for the few clusters that were there, and the last j rows are those of
        what one cluster alone determines, see `mnl.clusters`.
        """
        n_states, n_actions, k = self.coefficients.shape
        p = self.probabilities(z).reshape(len(z), n_states, n_actions)
        order = np.argsort(pair // n_actions, kind="stable")
        edges = np.searchsorted(pair[order] // n_actions, np.arange(n_states + 1))
        n_rows, none = n_clusters, np.zeros(0, np.int64)
        entries, rows, columns = [np.zeros(0)], [none], [none]
        for s in np.flatnonzero((self.visits > 0).sum(axis=1) > 1).tolist():
            mine = order[edges[s] : edges[s + 1]]
            block = np.arange(s * n_actions * k, (s + 1) * n_actions * k)
            root = self.root[block]
            root = root[:, np.unique(root.indices)].toarray()  # information is the identity there
            here, code = np.unique(cluster[mine], return_inverse=True)
            done, chance = np.eye(n_actions)[pair[mine] % n_actions], p[of[mine], s]
            scores = np.zeros((len(here) + 1, len(root)))  # the last is of all other clusters
            np.add.at(scores, code, products(weight[mine, None] * (done - chance), z[of[mine]]))
            scores = scores @ root
            few = range(len(here)) if is_adjusted(*scores.shape) else ()
            parts = ((c, mine[code == c]) for c in few)
            own = (
                (c, root.T @ action_information(z[of[i]], p[of[i], s], weight[i]) @ root)
                for c, i in parts
            )
            adjusted = np.delete(adjust_scores(scores, np.eye(len(root.T)), own), len(here), axis=0)
            at = np.append(here, np.arange(n_rows, n_rows + len(adjusted) - len(here)))
            n_rows += len(adjusted) - len(here)
            entries.append((adjusted @ root.T).ravel())
            rows.append(np.repeat(at, len(block)))
            columns.append(np.tile(block, len(at)))
        places = np.concatenate(rows), np.concatenate(columns)
        return sparse.csr_array((np.concatenate(entries), places), (n_rows, self.coefficients.size))

    def summary(self) -> str:
        """Return a sentence on how the actions were modelled."""
        if not self.factors:
            return "what was done: the shares of the actions in each state"
        uses = listed([factor.text for factor in self.factors], 6).replace("'", "")
        said = f"what was done: an MNL model of the actions in each state, with {uses}"
        few = [] if self.few is None else [self.names[s] for s in np.flatnonzero(self.few).tolist()]
        return f"{said}; shares alone in {listed(few, 6)}, which have few rows" if few else said


def products(each: Array, z: Array) -> Array:
    """Return (m, A*k) the products of (m, A) and (m, k) numbers of the same rows."""
    return (each[:, :, None] * z[:, None, :]).reshape(len(z), -1)


def action_information(z: Array, p: Array, weight: Array) -> Array:
    """Return (A*k, A*k) the information of rows with chances p (m, A) of the actions."""
    mean, (n_actions, k) = products(p, z), (p.shape[1], z.shape[1])
    found = -(mean * weight[:, None]).T @ mean
    for a in range(n_actions):
        at = slice(a * k, (a + 1) * k)
        found[at, at] += (mean[:, at] * weight[:, None]).T @ z
    return found


def fit_behaviour(
    factors: Sequence[Factor], covariates: Mapping[str, Array], pair: Array, weight: Array,
    available: Array, names: Sequence[Any],
) -> Behaviour:  # fmt: skip
    """Fit the model to situations: their covariates (G,), pairs s * A + a and weights.

    available: (S, A) whether the action exists in the state. In a state that the log never saw all
    of them have the same chance.
    """
    visits = np.bincount(pair, weight, available.size).reshape(available.shape)
    total = visits.sum(axis=1, keepdims=True)
    taken = np.where(total > 0, visits > 0, available)
    logs = np.log(np.where(visits > 0, visits / np.maximum(total, 1e-300), 1.0))
    variance = np.divide(1.0, visits, out=np.zeros(visits.shape), where=visits > 0)
    root = sparse.diags_array(np.sqrt(variance.ravel())).tocsr()
    plain = Behaviour((), logs[:, :, None], taken, visits, root, names)  # shares of the actions
    if not factors or not len(pair):
        return plain
    first, of = find_distinct([covariates[c] for c in covariates])
    z = replace(plain, factors=tuple(factors)).columns(
        {c: x[first] for c, x in covariates.items()}, int(of.max()) + 1
    )
    k, (n_states, n_actions) = z.shape[1], available.shape
    b, few = np.zeros((n_states, n_actions, k)), np.zeros(n_states, bool)
    b[:, :, 0] = logs
    order = np.argsort(pair // n_actions, kind="stable")
    edges = np.searchsorted(pair[order] // n_actions, np.arange(n_states + 1))
    roots = []  # of the coefficients of each state
    for s in range(n_states):
        mine = order[edges[s] : edges[s + 1]]
        actions = np.flatnonzero(visits[s])
        if len(actions) > 1:
            seen, row = np.unique(of[mine], return_inverse=True)
            counts = np.zeros((len(seen), n_actions))
            np.add.at(counts, (row, pair[mine] % n_actions), weight[mine])
            used = independent_columns(z[seen], counts.sum(axis=1))
            few[s] = len(used) > 1 and counts.sum() < ROWS_EACH * len(used) * (len(actions) - 1)
            if len(used) > 1 and not few[s]:
                found, root = fit_choices(z[np.ix_(seen, used)], counts[:, actions])
                at = (actions[:, None] * k + used).ravel()
                b[s] = 0.0
                b[s].reshape(-1)[at] = found
                roots.append(np.zeros((n_actions * k, root.shape[1])))
                roots[-1][at] = root
                continue
        roots.append(np.zeros((n_actions * k, len(actions))))
        roots[-1][actions * k, np.arange(len(actions))] = 1.0 / np.sqrt(visits[s, actions])
    root = sparse.block_diag(roots, "csr")
    return replace(plain, factors=tuple(factors), coefficients=b, root=root, few=few)


def independent_columns(z: Array, weight: Array) -> Array:
    """Return the columns that are not combinations of those before them, where rows have weight."""
    rest, kept = z * np.sqrt(weight)[:, None], []
    size = (rest**2).sum(axis=0)
    for j in range(z.shape[1]):
        column = rest[:, j]
        if column @ column > ALIASED * max(float(size[j]), 1e-300):
            kept.append(j)
            column = column / np.linalg.norm(column)
            rest = rest - np.outer(column, column @ rest)
    return np.array(kept)


def fit_choices(z: Array, counts: Array) -> tuple[Array, Array]:
    """Return (A*k,) the maximum-likelihood coefficients, and a root of their covariance.

    z (U, k), counts (U, A). The most frequent action is the reference, with coefficients 0. Where
    covariates predict an action perfectly its chance goes to 0 or 1, and that has no error.
    """
    n_actions, k = counts.shape[1], z.shape[1]
    size = np.abs(z).max(axis=0)
    z, total = z / size, counts.sum(axis=1)
    others = np.delete(np.arange(n_actions), int(counts.sum(axis=0).argmax()))
    at = (others[:, None] * k + np.arange(k)).ravel()
    b = np.zeros((n_actions, k))

    def evaluate(b: Array) -> tuple[float, Array]:
        logits = z @ b.T
        logits -= logits.max(axis=1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return float((counts * logs).sum()), np.exp(logs)

    value, p = evaluate(b)
    for _ in range(STEPS):
        score = ((counts - total[:, None] * p)[:, others].T @ z).ravel()
        information = action_information(z, p, total)[np.ix_(at, at)]
        inverse = np.linalg.pinv(information, 1e-13, hermitian=True)
        move = inverse @ score
        gain, step = float(score @ move), 1.0
        if gain <= DECREMENT * total.sum():
            break
        while step > 1e-6:
            new = b.copy()
            new[others] += step * move.reshape(-1, k)
            better, there = evaluate(new)
            if better >= value:
                b, value, p = new, better, there
                break
            step *= 0.5
        else:
            break
    values, vectors = np.linalg.eigh(information)
    known = values > CERTAIN * counts[counts > 0].min()
    root = np.zeros((n_actions * k, int(known.sum())))
    root[at] = vectors[:, known] / np.sqrt(values[known])
    return (b / size).ravel(), root / np.tile(size, n_actions)[:, None]


def covariate_factors(factors: Sequence[Factor], covariates: Mapping[str, Array],
                      others: Sequence[str]) -> list[Factor]:  # fmt: skip
    """Return the factors of a formula that are made of covariates alone, and covariates that no
    such factor uses as they are.

    others: the columns and attributes of states, actions and moves.
    """
    pure = [x for x in factors if any(map(x.uses, covariates)) and not any(map(x.uses, others))]
    distinct = {factor.text: factor for factor in pure}  # coded in several ways
    for name, cells in covariates.items():
        if not any(factor.uses(name) for factor in pure):
            distinct[name] = evaluate_factor(Factor(name, True, True), {name: cells})[1]
    return list(distinct.values())
