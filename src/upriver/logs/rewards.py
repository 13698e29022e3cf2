"""Rewards of a model made from a log: given by the user, or estimated from columns of the log.

A reward from a column is an estimate as well: the mean of each pair (s, a), or a linear model
`cost ~ state + action:age`. `RewardEstimates` keeps what each row of the log adds to the errors of
its coefficients, so that they enter the intervals of values together with the errors of theta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from upriver.checks import Array, as_float
from upriver.logs.formula import Recipe, mentions, parse_recipe
from upriver.logs.situations import Situations, StateSpace, expand
from upriver.logs.tables import Rows, listed
from upriver.mdp import Task
from upriver.mdp.declaring import tabulate_calls, takes_next_state
from upriver.mnl import clusters
from upriver.mnl.choices import Choices

ALIASED = 1e-10  # share of the variation of columns below which a combination of them is constant 0
FEW = 10  # rows below which the summary says that a mean is poorly known


class RewardFormula(NamedTuple):
    """Which column a reward comes from, and its linear model; None: a mean for each pair."""

    column: str
    formula: str | None

    def uses(self, name: str) -> bool:
        """Whether the linear model uses a column of this name."""
        return self.formula is not None and mentions(self.formula)(name)


def parse_reward(text: str, columns: Sequence[str]) -> RewardFormula:
    """Return what `cost` or `cost ~ state + action:age` stands for."""
    if text in columns or "~" not in text:
        return RewardFormula(text, None)
    column, formula = (part.strip() for part in text.split("~", 1))
    return RewardFormula(column.strip("`"), formula)


def parse_outcomes(reward: Any, columns: Sequence[str]) -> dict[str, RewardFormula]:
    """Return {outcome: formula} of the rewards that come from columns; see `fit_transitions`."""
    if isinstance(reward, str):
        found = parse_reward(reward, columns)
        return {found.column: found}
    if not is_outcomes(reward):
        return {}
    return {k: parse_reward(x, columns) for k, x in reward.items() if isinstance(x, str)}


def is_outcomes(reward: Any) -> bool:
    """Whether a mapping names outcomes, {name: reward}, and not states, {state: number}."""
    return isinstance(reward, Mapping) and any(
        isinstance(x, str | Mapping | list | np.ndarray) or callable(x) for x in reward.values()
    )


class Outcome(NamedTuple):
    """A reward that was estimated from a column."""

    source: RewardFormula
    recipe: Recipe | None  # How the formula makes columns; None where pairs have means
    pairs: Array  # The numbers of the pairs that the log has; each of them may have a mean
    basis: Array
    """(J, R) combinations of the formula's columns that the log tells apart, orthogonal there."""
    rows: Any  # (U, R) those combinations, or sparse indicators of pairs, in the rows of the log
    bread: Any  # (R, R) inverse of rows^T W rows; sparse for means
    coefficients: Array  # (R,)

    def columns(self, space: StateSpace, of: Situations) -> Any:
        """Return (n, R) the columns of the candidates of some situations.

        A state that the log never left and that only leads to itself pays 0, as if it had not been
        declared.
        """
        n_actions, sizes = len(space.actions), np.diff(of.indptr)
        state, pair = of.pair // n_actions, np.repeat(of.pair, sizes)
        ended = (sizes == 1) & (of.successor[of.indptr[:-1]] == state)
        ended &= ~np.isin(state, self.pairs // n_actions)
        over = np.repeat(ended, sizes)
        if self.recipe is None:
            at = np.minimum(np.searchsorted(self.pairs, pair), len(self.pairs) - 1)
            has = self.pairs[at] == pair
            if (unknown := ~has & ~over).any():
                where = space.names(int(pair[unknown][0]))
                name, (state_column, action, _) = self.source.column, space.columns
                raise ValueError(f"the log does not say what {name!r} is for {where!r}: it has no "
                                 f"row of that pair; use a formula, such as \"{name} ~ "
                                 f"{state_column} + {action}\", or successors that leave the pair "
                                 "out")  # fmt: skip
            entries = np.ones(int(has.sum())), (np.flatnonzero(has), at[has])
            return sparse.csr_array(entries, (len(pair), len(self.pairs)))
        table = expand(space, of, self.source.uses) or {"": pair}  # an intercept uses no column
        x = self.recipe.rows(table, np.arange(len(self.recipe.columns)))
        found = x @ self.basis
        found[over] = 0.0
        off = np.abs(x - found @ np.linalg.pinv(self.basis)) > 1e-6 * (1.0 + np.abs(x))
        off &= ~over[:, None]
        if off.any():  # a combination that is 0 in all rows of the log is not 0 here
            i = int(np.argmax(off.any(axis=1)))
            where = (*space.names(int(pair[i])), space.states[of.successor[i]])
            raise ValueError(f"the log does not say what {self.source.column!r} is for {where!r} "
                             f"with the formula {self.source.formula!r}; use fewer "
                             "terms")  # fmt: skip
        return found


@dataclass(frozen=True, eq=False)
class RewardEstimates:
    """All rewards that were estimated from columns, and the errors of their coefficients."""

    outcomes: dict[str, Outcome]
    chosen: Array  # (U,) the rows of the choice data that the log chose
    place: Array  # (m,) the row in `chosen` of each set of equal rows of the log
    weight: Array  # (U,) the weights of the chosen rows
    residual: Array  # (m, k) weighted sums of what rewards exceed the fitted ones by
    products: Array  # (U, k, k) weighted sums of products of residuals of k outcomes
    weights: Array  # (m,) the weights of the sets of equal rows
    cluster: Array | None  # (m,) their clusters

    @cached_property
    def coefficients(self) -> Array:
        """(R,) the coefficients of all outcomes."""
        return np.concatenate([x.coefficients for x in self.outcomes.values()])

    @cached_property
    def influence(self) -> list[Any]:
        """(U, R_k) rows^T times the bread of each outcome: the effect of one unit of residual."""
        return [x.rows @ x.bread for x in self.outcomes.values()]

    @cached_property
    def covariance(self) -> Any:
        """(R, R) the covariance of all coefficients for independent rows (HC2).

        A residual is divided by the root of 1 minus the leverage of its row. A row that alone
        determines a coefficient has no residual, and gets the mean square of the others.
        """
        each = list(self.outcomes.values())
        pairs = zip(each, self.influence, strict=True)
        leverage = np.stack([np.asarray((x.rows * f).sum(axis=1)).ravel() for x, f in pairs])
        free = 1.0 - leverage > 1e-9
        root = np.sqrt(np.where(free, 1.0 - leverage, 1.0))
        blocks = []
        for (k, name), l in product(enumerate(self.outcomes), range(len(each))):
            square = self.products[:, k, l] / (root[k] * root[l])
            some = free[k] & free[l]
            degrees = float((self.weight * root[k] * root[l])[some].sum())
            if degrees == 0.0:
                raise ValueError(f"the log has one row for each coefficient of {name!r}; its "
                                 "error needs more rows, or fewer terms")  # fmt: skip
            typical = float(self.products[some, k, l].sum()) / degrees
            square = np.where(some, square, self.weight * typical)
            left, right = self.influence[k], self.influence[l]
            blocks.append(sparse.csr_array(left.T @ (right * square[:, None])))
        n = len(each)
        return sparse.block_array([blocks[k * n : (k + 1) * n] for k in range(n)]).tocsr()

    def degrees(self, slope: Array, variance: float) -> float:
        """Return the degrees of freedom of the error of a value (Satterthwaite).

        slope: (R,) the gradient of the value; variance: of the whole value. A mean of n rows has
        n - 1; one of a single row borrows its error from all others.
        """
        total, parts, at = float(self.weight.sum()), 0.0, 0
        spread = self.covariance.diagonal()
        for x in self.outcomes.values():
            k = len(x.coefficients)
            mine, free = slice(at, at + k), max(total - k, 1.0)
            share, at = slope[mine] ** 2 * spread[mine], at + k
            if x.recipe is not None:
                share = np.array([slope[mine] @ self.covariance[mine, mine] @ slope[mine]])
                parts += float((share**2 / free).sum())
                continue
            rows = np.asarray(x.rows.T @ self.weight).ravel() - 1.0
            parts += float((share**2 / np.where(rows > 0.0, rows, free)).sum())
        return variance**2 / parts if parts > 0.0 else np.inf

    def cross(self, data: Choices, theta: Array) -> Array:
        """Return (d, R) the sums of scores of theta times what rows add to the coefficients."""
        residuals = (np.bincount(self.place, x)[:, None] for x in self.residual.T)
        parts = [f * x for f, x in zip(self.influence, residuals, strict=True)]
        errors = sparse.csr_array(sparse.hstack([sparse.csr_array(x) for x in parts]))
        total = np.zeros((len(theta), len(self.coefficients)))
        for low, high, score in data.scores(data.probabilities(theta)):
            first, last = np.searchsorted(self.chosen, (low, high))
            total += (errors[first:last].T @ score[self.chosen[first:last] - low]).T
        return total

    @cached_property
    def cluster_influence(self) -> Any:
        """(C + k, R) what each cluster adds to the errors, adjusted for few clusters (CR2).

        The last k rows are those of coefficients that one cluster alone determines. The error of
        such a mean is what the means of clusters differ by elsewhere.
        """
        cluster, found = self.cluster, []
        assert cluster is not None
        shape = int(cluster.max()) + 1, len(self.chosen)
        weights: Any = sparse.csr_array((self.weights, (cluster, self.place)), shape)
        for k, (name, outcome) in enumerate(self.outcomes.items()):
            entries = self.residual[:, k], (cluster, self.place)
            scores = sparse.csr_array(entries, shape) @ outcome.rows
            if outcome.recipe is None:  # means: the leverage of a cluster is its share of rows
                share = ((weights @ outcome.rows) @ outcome.bread).tocsc()
                whole = np.flatnonzero(share.max(axis=0).toarray() >= clusters.WHOLE)
                apart = share.copy()
                apart.data = np.where(share.data < clusters.WHOLE, 1.0 / share.data, 0.0)
                share.data = clusters.adjust_means(share.data)
                adjusted = (scores @ outcome.bread).multiply(share)
                if not (n := apart.count_nonzero()):
                    raise ValueError(f"the log has one cluster for each mean of {name!r}; its "
                                     "error by cluster needs more, or a formula")  # fmt: skip
                square = adjusted.multiply(apart).power(2).sum() / n
                entries = np.full(len(whole), np.sqrt(square)), (np.arange(len(whole)), whole)
                alone = sparse.csr_array(entries, (len(whole), share.shape[1]))
                found.append(sparse.vstack([adjusted, alone]))
                continue

            def information(c: int, rows: Any = outcome.rows) -> Array:
                at = slice(*weights.indptr[c : c + 2])
                mine = rows[weights.indices[at]]
                return (mine * weights.data[at][:, None]).T @ mine

            few = range(shape[0]) if clusters.is_adjusted(*scores.shape) else ()
            own = ((c, information(c)) for c in few)
            found.append(clusters.adjust_scores(scores, outcome.bread, own, 0.0) @ outcome.bread)
        return clusters.stack_influence(found, shape[0])

    def summary(self) -> list[str]:
        """Return a sentence about each outcome."""
        lines = []
        for name, x in self.outcomes.items():
            what = f"{name}: " if name != x.source.column else ""
            how = f" ~ {x.source.formula}, {len(x.coefficients)} coefficients"
            if x.recipe is None:
                n = np.asarray(x.rows.T @ self.weight)
                how = f", its mean in each of {len(n)} pairs"
                few = int((n < FEW).sum())
                how += f"; {few} have fewer than {FEW} rows" if few else ""
            lines.append(f"reward {what}{x.source.column}{how}")
        return lines


def estimate_rewards(
    wanted: Mapping[str, RewardFormula], space: StateSpace, of: Situations, rows: Rows,
    chosen: Array, cluster: Array | None, known: Sequence[str],
) -> RewardEstimates | None:  # fmt: skip
    """Return the rewards that columns of a log give.

    chosen, cluster (m,): the row of the choice data and the cluster of each set of equal rows;
    known: the columns that a formula could use.
    """
    if not wanted:
        return None
    at, place = np.unique(chosen, return_inverse=True)
    weight = np.bincount(place, rows.weight)
    situation = np.searchsorted(of.indptr, at, side="right") - 1
    covariates = {c: x[situation] for c, x in of.covariates.items()}
    seen = Situations(of.pair[situation], covariates, np.arange(len(at) + 1), of.successor[at])
    outcomes, errors = {}, []
    for name, source in wanted.items():
        paid = np.asarray(rows.values(source.column), np.float64)
        total = np.bincount(place, rows.weight * paid)
        made = outcomes[name] = fit_outcome(source, space, seen, weight, total, known)
        errors.append(paid - np.asarray(made.rows @ made.coefficients)[place])
    each = [[np.bincount(place, rows.weight * e * f) for f in errors] for e in errors]
    residual = rows.weight[:, None] * np.stack(errors, 1)
    products = np.array(each).transpose(2, 0, 1)
    return RewardEstimates(outcomes, at, place, weight, residual, products, rows.weight, cluster)


def fit_outcome(
    source: RewardFormula, space: StateSpace, seen: Situations, weight: Array, total: Array,
    known: Sequence[str],
) -> Outcome:  # fmt: skip
    """Return the least-squares fit of a reward; total (U,): the weighted sums of the column."""
    if source.formula is None:
        pairs, at = np.unique(seen.pair, return_inverse=True)
        x = sparse.csr_array((np.ones(len(at)), (np.arange(len(at)), at)))
        n = np.asarray(x.T @ weight).ravel()
        bread, means = sparse.diags_array(1.0 / n).tocsr(), np.asarray(x.T @ total) / n
        return Outcome(source, None, pairs, np.empty((0, 0)), x, bread, means)
    table = expand(space, seen, source.uses) or {"": seen.pair}
    recipe = parse_recipe(source.formula, table, known)
    x = recipe.rows(table, np.arange(len(recipe.columns)))
    size = np.sqrt(np.maximum(weight @ x**2, 1e-300))
    even = x / size
    values, axes = np.linalg.eigh((even * weight[:, None]).T @ even)
    known_axes = values > ALIASED
    basis = axes[:, known_axes] / size[:, None]
    rows, bread = x @ basis, np.diag(1.0 / values[known_axes])
    return Outcome(
        source, recipe, np.unique(seen.pair), basis, rows, bread, bread @ (rows.T @ total)
    )


class RewardRows(NamedTuple):
    """How the rewards of a task depend on the coefficients that were estimated."""

    columns: tuple[Any, ...]  # (n, R) sparse: one for all steps, or one for each
    discounts: Array  # (1 | H,) what a reward of each step counts

    def gradient(self, prob: Array, occupancy: Array, sizes: Array) -> Array:
        """Return (R,) the derivative of a value; prob (1 | H, n), occupancy (1 | H, S*A)."""
        total = np.zeros(self.columns[0].shape[1])
        for h, steps in enumerate(occupancy):
            at = [min(h, len(x) - 1) for x in (self.columns, self.discounts, prob)]
            weight = self.discounts[at[1]] * np.repeat(steps, sizes) * prob[at[2]]
            total += self.columns[at[0]].T @ weight
        return total

    def change(self, shift: Array) -> Array:
        """Return (1 | H, n) the change of the reward of each triple."""
        each = np.array([np.asarray(x @ shift) for x in self.columns])
        return each * self.discounts[:, None]


def tabulate(
    task: Task, reward: Any, n_segments: int, states: Sequence[Any]
) -> tuple[Array, Array | None]:
    """Return rewards that were given: (1 | H, S, A), and (1, n) of triples or None.

    states: the names of the states of one segment.
    """
    actions, shape = list(task.action_names), (len(states), task.n_actions)
    table = np.zeros(shape)
    if isinstance(reward, Mapping):
        reward = function_of(reward, list(states), actions)
    if not callable(reward):
        table = as_float("reward", reward)
        if table.shape not in {shape, (len(table), *shape)}:
            wanted = f"{shape} or (H, {shape[0]}, {shape[1]})"
            raise ValueError(f"reward has shape {table.shape}; it must be {wanted}")
    elif takes_next_state(reward):
        triples = np.stack(task.triples, axis=1)[: task.n_triples // n_segments]
        names = [(states[s], actions[a], states[t]) for s, a, t in triples.tolist()]
        paid = tabulate_calls("reward", reward, names)
        return np.zeros((1, *task.available.shape)), np.tile(paid, n_segments)[None]
    else:
        available = task.available[: len(states)]
        names = [(states[s], actions[a]) for s, a in np.argwhere(available)]
        table[available] = tabulate_calls("reward", reward, names)
    return np.tile(table[None] if table.ndim == 2 else table, (n_segments, 1)), None


def function_of(reward: Mapping[Any, float], states: list[Any], actions: list[Any]) -> Any:
    """Return the function of a mapping of states, or of pairs."""
    if not reward:
        raise ValueError("reward is {}; it must name at least one state, or pair")
    known = {*states, *((s, a) for s in states for a in actions)}
    for key in reward:
        if key not in known:
            raise ValueError(f"reward names {key!r}; the states are {listed(states)}")
    return lambda s, a: reward.get((s, a), reward.get(s, 0.0))
