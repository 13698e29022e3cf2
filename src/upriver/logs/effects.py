"""What a statistician asks of a transition model: predictions and tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from upriver.checks import Array, check_kinds
from upriver.display import add_repr
from upriver.logs.situations import build_situations, expand
from upriver.logs.tables import Table, listed
from upriver.mnl.choices import softmax
from upriver.mnl.fitted import log_odds_intervals

if TYPE_CHECKING:
    from upriver.logs.model import TransitionModel


@add_repr
class TestResult(NamedTuple):
    """A test whose statistic is compared with a chi-squared distribution."""

    __test__ = False  # it is no test of pytest

    statistic: float
    degrees: int
    p_value: float


@check_kinds
def predict(model: TransitionModel, frame: Any, confidence: float = 0.95) -> Any:
    """Return probabilities of every candidate for new rows, with delta-method intervals.

    The data frame has one row per row of `frame` and candidate: row, state, action, next_state,
    probability, standard_error, low, high.

    Parameters
    ----------
    frame
        A table with the columns of state and action, and the covariates.
    confidence
        Of the intervals, which are made on the scale of log-odds, so they lie between 0 and 1.
    """
    z, space = model.fitted.quantile(confidence), model.log.space
    covariates, (state, action, _) = list(model.log.situations.covariates), space.columns
    table = Table(frame)
    rows = table.read([state, action, *covariates])
    s = rows.numbers(state, space.states, "state")
    a = rows.numbers(action, space.actions, "action")
    pair = s * len(space.actions) + a
    none = space.sizes[pair] == 0
    if none.any():
        i = int(np.argmax(none))
        names = space.names(int(pair[i]))
        raise ValueError(f"{table.name_rows([i])} has {names!r}, from which no next state is known")
    of = build_situations(space, pair, {c: rows.values(c) for c in covariates})
    sizes, x = np.diff(of.indptr), model.log.design.rows(expand(space, of, lambda name: True))
    p = softmax(of.indptr, x @ model.theta)
    mean = np.add.reduceat(x * p[:, None], of.indptr[:-1])
    scores = x - np.repeat(mean, sizes, axis=0)  # the gradients of log-probabilities
    error, low, high = log_odds_intervals(sizes, p, scores, model.fitted.covariance, z)
    return pd.DataFrame({
        "row": np.repeat(np.arange(len(pair)), sizes),
        **expand(space, of, space.columns.__contains__),
        "probability": p, "standard_error": error, "low": low, "high": high,
    })  # fmt: skip


def likelihood_ratio(model: Any, smaller: Any) -> TestResult:
    """Return the test of a nested model: does it lose more than chance would explain?

    Both must be fitted to the same log without penalty, and every column of the smaller model must
    be a combination of columns of this one. That is not checked, but a smaller model that fits
    better is refused. Rows of one cluster that depend on each other make the test too sharp: then
    use `wald` with clustered errors.
    """
    if type(smaller) is not type(model):
        raise TypeError(
            f"smaller is a {type(smaller).__name__}; it must be a {type(model).__name__}"
        )
    for name, one in (("the larger model", model), ("smaller", smaller)):
        if one.fitted.regularization > 0:
            raise ValueError(f"{name} was fitted with regularization "
                             f"{one.fitted.regularization:g}; the likelihood-ratio test needs "
                             "regularization=0")  # fmt: skip

    def equal(a: Array, b: Array) -> bool:  # up to the order of sums
        return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=0.0)

    (names, *large), (others, *small) = model.comparable(), smaller.comparable()
    if names != others or not all(map(equal, large, small)):
        raise ValueError("smaller was fitted to another log or setting; both models need the same")
    if len(smaller.theta) >= len(model.theta):
        raise ValueError(f"smaller has {len(smaller.theta)} coefficients, the larger model "
                         f"{len(model.theta)}; it must have fewer")  # fmt: skip
    if smaller.llf - model.llf > 1e-3 + 1e-9 * abs(model.llf):  # more than a fit stops short by
        raise ValueError(f"smaller is not nested: its log-likelihood is {smaller.llf:.9g}, that of "
                         f"the larger model {model.llf:.9g}; it cannot be higher")  # fmt: skip
    degrees = len(model.theta) - len(smaller.theta)
    statistic = max(2.0 * (model.llf - smaller.llf), 0.0)
    return TestResult(statistic, degrees, float(special.chdtrc(degrees, statistic)))


@check_kinds
def wald(model: Any, names: str | Sequence[str]) -> TestResult:
    """Return the test that the named coefficients or terms are all 0, with the model's errors.

    With errors of G clusters the statistic of k coefficients is Hotelling's, so the p-value is that
    of (G - k) / (k (G - 1)) times it, with the F distribution of k and G - k degrees of freedom.
    """
    names = [names] if isinstance(names, str) else list(names)
    columns, terms = model.coefficient_names, model.terms
    chosen: list[int] = []
    for name in names:
        found = [i for i, pair in enumerate(zip(columns, terms, strict=True)) if name in pair]
        if not found:
            raise ValueError(f"the model has no coefficient or term {name!r}; it has "
                             f"{listed(dict.fromkeys([*terms, *columns]))}")  # fmt: skip
        chosen += [i for i in found if i not in chosen]
    theta, covariance = model.theta[chosen], model.fitted.covariance[np.ix_(chosen, chosen)]
    n, k = model.fitted.degrees + 1.0, len(chosen)
    if k >= n:
        raise ValueError(f"the errors are those of {n:g} clusters; a test of {k} coefficients "
                         f"needs more than {k}")  # fmt: skip
    statistic = float(theta @ np.linalg.solve(covariance, theta))
    if np.isinf(n):
        return TestResult(statistic, k, float(special.chdtrc(k, statistic)))
    scaled = statistic * (n - k) / (k * (n - 1.0))
    return TestResult(statistic, k, float(special.fdtrc(k, n - k, scaled)))
