"""What a statistician asks of a transition model: predictions, effects and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse, special

from upriver.checks import Array, check_kinds, open_fraction
from upriver.display import add_repr
from upriver.logs.design import mean_matrix
from upriver.logs.situations import Situations, build_situations, expand
from upriver.logs.tables import Table, array_of, import_packages, listed, sort_distinct
from upriver.mnl.choices import in_chunks

if TYPE_CHECKING:
    from upriver.logs.model import FittedLog, TransitionModel


AT_ONCE = 100_000  # expanded rows


@add_repr
class TestResult(NamedTuple):
    """A test whose statistic is compared with a chi-squared distribution."""

    __test__ = False  # it is no test of pytest

    statistic: float
    degrees: int
    p_value: float


def normal_quantile(confidence: float) -> float:
    """Return z such that a normal variable lies within z deviations with this probability."""
    return float(special.ndtri(0.5 + open_fraction("confidence", confidence) / 2.0))


def softmax(indptr: Array, logits: Array) -> Array:
    """Return (n,) probabilities, eq. (1), of the rows of situations; all have some rows."""
    starts = indptr[:-1][np.diff(indptr) > 0]
    sizes = np.diff(np.append(starts, indptr[-1]))
    p = np.exp(logits - np.repeat(np.maximum.reduceat(logits, starts), sizes))
    return p / np.repeat(np.add.reduceat(p, starts), sizes)


def formula_log(model: TransitionModel, what: str) -> FittedLog:
    """Return the log of a model that has a formula; features cannot be evaluated at new rows."""
    if model.log is None:
        raise ValueError(f"{what} needs a model of a formula; this one was fitted with features")
    return model.log


def predicted_probabilities(model: TransitionModel, of: Situations) -> tuple[Array, Array]:
    """Return (n,) probabilities of candidates and (n, d) their gradients in theta."""
    log = formula_log(model, "a prediction")
    x, offset = log.design.rows(expand(log.space, of, lambda name: True))
    p = softmax(of.indptr, x @ model.theta + offset)
    x -= np.repeat(mean_matrix(p, of.indptr) @ x, np.diff(of.indptr), axis=0)
    return p, x * p[:, None]


def standard_errors(model: TransitionModel, gradient: Array) -> Array:
    """Return (n,) standard errors of functions of theta with gradients (n, d): delta method."""
    return np.sqrt(np.einsum("ij,ij->i", gradient @ model.fitted.covariance, gradient))


@check_kinds
def predict(model: TransitionModel, frame: Any, confidence: float = 0.95) -> Any:
    """Return probabilities of every candidate for new rows, with delta-method intervals.

    Parameters
    ----------
    frame
        A table with the columns of state and action, and the covariates.
    confidence
        Of the intervals, which are made on the scale of log-odds, so they lie between 0 and 1.

    Returns
    -------
    A data frame with one row per row of `frame` and candidate: row, state, action, next_state,
    probability, standard_error, low, high.
    """
    (pd,) = import_packages("a table of predictions", "pandas")
    z, log = normal_quantile(confidence), formula_log(model, "predict")
    space, covariates = log.space, list(log.situations.covariates)
    state, action, following = space.columns
    table = Table(frame)
    rows = table.read([state, action, *covariates], group=False)
    s = rows.numbers(state, space.states, "state")
    a = rows.numbers(action, space.actions, "action")
    pair = s * len(space.actions) + a
    none = space.sizes[pair] == 0
    if none.any():
        i = int(np.argmax(none))
        names = space.names(int(pair[i]))
        raise ValueError(f"{table.name_rows([i])} has {names!r}, from which no next state is known")
    of = build_situations(space, pair, {c: rows.values(c) for c in covariates})
    p, gradient = predicted_probabilities(model, of)
    error = standard_errors(model, gradient)
    spread = z * error / np.maximum(p * (1.0 - p), 1e-300)
    sizes = np.diff(of.indptr)
    single = np.repeat(sizes == 1, sizes)
    logit = special.logit(p)
    low, high = (np.where(single, 1.0, special.expit(logit + x)) for x in (-spread, spread))
    names = array_of(space.states)
    return pd.DataFrame({
        "row": np.repeat(np.arange(len(pair)), sizes),
        state: np.repeat(names[s], sizes),
        action: np.repeat(array_of(space.actions)[a], sizes),
        following: names[of.successor],
        "probability": p, "standard_error": error, "low": low, "high": high,
    })  # fmt: skip


@check_kinds
def marginal_effects(model: TransitionModel, name: str, confidence: float = 0.95) -> Any:
    """Return average marginal effects of a covariate, or of the action, on each next state.

    Of numbers it is the mean over the log of the derivative of the probability; of words, of the
    difference to the first word. The columns are next_state, to, effect, standard_error, low and
    high.
    """
    (pd,) = import_packages("a table of effects", "pandas")
    z, log = normal_quantile(confidence), formula_log(model, "marginal_effects")
    space, of = log.space, log.situations
    action = space.columns[1]
    if name != action and name not in of.covariates:
        raise ValueError(f"{name!r} is no covariate of the model; it must be one of "
                         f"{listed([action, *of.covariates])}")  # fmt: skip
    if name == action:
        values = {word: np.full(len(of.pair), i) for i, word in enumerate(space.actions)}
        pairs = contrasts(model, log, values, None)
    elif of.covariates[name].dtype.kind in "OUSb":
        words = sort_distinct(of.covariates[name].tolist())
        values = {word: array_of([word] * len(of.pair)) for word in words}
        pairs = contrasts(model, log, values, name)
    else:
        pairs = [("+1", *slope(model, log, name))]
    rows = []
    for word, effect, gradient in pairs:
        error = standard_errors(model, gradient)
        for i in np.flatnonzero((np.abs(effect) > 0) | (error > 0)).tolist():
            low, high = effect[i] - z * error[i], effect[i] + z * error[i]
            rows.append((space.states[i], word, effect[i], error[i], low, high))
    return pd.DataFrame(
        rows, columns=[space.columns[2], "to", "effect", "standard_error", "low", "high"]
    )


def slope(model: TransitionModel, log: FittedLog, name: str) -> tuple[Array, Array]:
    """Return (S,) the mean derivative in a covariate and its gradient (S, d).

    The derivative is a central difference; at the last value of a spline a one-sided one.
    """
    of, share = log.situations, log.data.visits / log.data.visits.sum()
    cells = np.asarray(of.covariates[name], np.float64)
    unit = max(float(cells.std()), 1e-3 * float(np.abs(cells).max()), 1e-4)

    def difference(high: Array, low: Array) -> tuple[Array, Array]:
        up, down = (
            averages(model, log, of._replace(covariates={**of.covariates, name: x}), weights)
            for x, weights in ((high, share / (high - low)), (low, share / (high - low)))
        )
        return up[0] - down[0], up[1] - down[1]

    try:
        return difference(cells + 1e-4 * unit, cells - 1e-4 * unit)
    except ValueError:  # a spline ends at the last value
        high = np.minimum(cells + 1e-6 * unit, cells.max())
        return difference(high, np.maximum(cells - 1e-6 * unit, cells.min()))


def contrasts(
    model: TransitionModel, log: FittedLog, values: Mapping[Any, Array], name: str | None
) -> list[tuple[Any, Array, Array]]:
    """Return the average change from the first value to each other; name None: of the action."""
    of, n_actions = log.situations, len(log.space.actions)
    usable, changed = np.ones(len(of.pair), bool), {}
    for word, cells in values.items():
        if name is not None:
            changed[word] = of._replace(covariates={**of.covariates, name: cells})
        else:
            pair = of.pair // n_actions * n_actions + cells
            usable &= log.space.sizes[pair] > 0  # only where every action exists
            changed[word] = of._replace(pair=pair)
    if not usable.any():
        raise ValueError("no state has all actions, so their effects cannot be compared")
    share = log.data.visits[usable] / log.data.visits[usable].sum()
    found = [
        (word, averages(model, log, made.select(log.space, usable), share))
        for word, made in changed.items()
    ]
    (_, first), *others = found
    return [(word, p - first[0], g - first[1]) for word, (p, g) in others]


def averages(
    model: TransitionModel, log: FittedLog, of: Situations, weights: Array
) -> tuple[Array, Array]:
    """Return (S,) the weighted sum of the probabilities of each next state, and its gradient."""
    n = len(log.space.states)
    mean, total = np.zeros(n), np.zeros((n, len(model.theta)))
    for first, last in in_chunks(of.indptr, AT_ONCE):  # the expanded rows of a part at a time
        part = of.select(log.space, slice(first, last))
        p, gradient = predicted_probabilities(model, part)
        weight = np.repeat(weights[first:last], np.diff(part.indptr))
        entries = weight, (part.successor, np.arange(len(weight)))
        member = sparse.csr_array(entries, (n, len(weight)))
        mean += member @ p
        total += member @ gradient
    return mean, total


@check_kinds
def likelihood_ratio(model: TransitionModel, smaller: TransitionModel) -> TestResult:
    """Return the test of a nested model: does it lose more than chance would explain?

    Both must be fitted to the same log without penalty, and every column of the smaller model must
    be a combination of columns of this one. That is not checked, but a smaller model that fits
    better is refused. Rows of one cluster that depend on each other make the test too sharp: then
    use `wald` with clustered errors.
    """
    check_nested(model, smaller)
    degrees = len(model.theta) - len(smaller.theta)
    statistic = max(2.0 * (model.llf - smaller.llf), 0.0)
    return TestResult(statistic, degrees, float(special.chdtrc(degrees, statistic)))


@check_kinds
def wald(model: Any, names: str | Sequence[str]) -> TestResult:
    """Return the test that the named coefficients or terms are all 0, with the model's errors."""
    names = [names] if isinstance(names, str) else list(names)
    columns, terms = model.coefficient_names, model.terms
    chosen: list[int] = []
    for name in names:
        found = [i for i, pair in enumerate(zip(columns, terms, strict=True)) if name in pair]
        if not found:
            raise ValueError(f"the model has no coefficient or term {name!r}; it has "
                             f"{listed(dict.fromkeys([*terms, *columns]))}")  # fmt: skip
        chosen += [i for i in found if i not in chosen]
    theta, covariance = model.theta[chosen], model.fitted.covariance
    statistic = float(theta @ np.linalg.solve(covariance[np.ix_(chosen, chosen)], theta))
    return TestResult(statistic, len(chosen), float(special.chdtrc(len(chosen), statistic)))


def check_nested(larger: TransitionModel, smaller: TransitionModel) -> None:
    """Refuse models whose likelihoods cannot be compared."""
    if type(smaller) is not type(larger):
        raise TypeError(f"smaller is a {type(smaller).__name__}; it must come from fit_transitions")
    for name, model in (("the larger model", larger), ("smaller", smaller)):
        if model.fitted.regularization > 0:
            raise ValueError(f"{name} was fitted with regularization "
                             f"{model.fitted.regularization:g}; the likelihood-ratio test needs "
                             "regularization=0")  # fmt: skip

    def triple_counts(model: TransitionModel) -> tuple[Any, Array, Array]:
        """Return the names of states and actions, and the numbers and weights of all triples."""
        if model.log is not None:
            space = model.log.space
            return (list(space.states), list(space.actions)), *model.log.triple_counts()
        task = model.features.task
        return (task.states, task.actions), task.indptr, model.counts

    def equal(a: Array, b: Array) -> bool:  # up to the order of sums
        return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=0.0)

    (names, *large), (others, *small) = triple_counts(larger), triple_counts(smaller)
    if names != others or not all(map(equal, large, small)):
        raise ValueError("smaller was fitted to another log; both models need the same one")
    if len(smaller.theta) >= len(larger.theta):
        raise ValueError(f"smaller has {len(smaller.theta)} coefficients, the larger model "
                         f"{len(larger.theta)}; it must have fewer")  # fmt: skip
    if smaller.llf - larger.llf > 1e-3 + 1e-9 * abs(larger.llf):  # more than a fit stops short by
        raise ValueError(f"smaller is not nested: its log-likelihood is {smaller.llf:.9g}, that of "
                         f"the larger model {larger.llf:.9g}; it cannot be higher")  # fmt: skip
