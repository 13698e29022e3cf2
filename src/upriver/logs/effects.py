"""What a statistician asks of a fitted transition model: predictions, effects, tests, residuals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse, special

from upriver.checks import Array
from upriver.logs.design import means
from upriver.logs.expansion import Situations, expanded, situations
from upriver.logs.fit import LikelihoodRatio
from upriver.logs.frames import codes, numbered, read_frame, take
from upriver.logs.reading import column, listed
from upriver.mnl.choices import in_chunks

if TYPE_CHECKING:
    from upriver.logs.transitions import TransitionModel


AT_ONCE = 100_000  # expanded rows


def quantile(confidence: float) -> float:
    if not (isinstance(confidence, float) and 0.0 < confidence < 1.0):
        raise ValueError(f"confidence is {confidence!r}; it must lie between 0 and 1")
    return float(special.ndtri(0.5 + confidence / 2.0))


def softmax(indptr: Array, logits: Array) -> Array:
    sizes = np.diff(indptr)
    p = np.exp(logits - np.repeat(np.maximum.reduceat(logits, indptr[:-1]), sizes))
    return p / np.repeat(np.add.reduceat(p, indptr[:-1]), sizes)


def believed(model: TransitionModel, of: Situations) -> tuple[Array, Array]:
    """(n,) probabilities of the candidates of situations, and (n, d) their gradients in theta."""
    x, offset = model.design.rows(expanded(model.world, of, lambda name: True))
    p = softmax(of.indptr, x @ model.fitted.theta + offset)
    x -= np.repeat(means(p, of.indptr) @ x, np.diff(of.indptr), axis=0)
    return p, x * p[:, None]


def deviation(model: TransitionModel, gradient: Array) -> Array:
    """(n,) standard errors of functions of theta with gradients (n, d): the delta method."""
    return np.sqrt(np.einsum("ij,ij->i", gradient @ model.fitted.covariance, gradient))


def predict(model: TransitionModel, frame: Any, confidence: float) -> Any:
    """See `TransitionModel.predict`."""
    import pandas as pd

    z, world = quantile(confidence), model.world
    read = read_frame(frame)
    state, action, following = world.columns
    s = numbered(read, state, world.states, "state")
    a = numbered(read, action, world.actions, "action")
    group = s * len(world.actions) + a
    none = world.sizes[group] == 0
    if none.any():
        i = int(np.argmax(none))
        raise ValueError(
            f"{read.place(i)} has ({world.states[s[i]]!r}, {world.actions[a[i]]!r}), from which no "
            "next state is known"
        )
    of = situations(world, group, {c: take(read, c) for c in model.situations.covariates})
    p, gradient = believed(model, of)
    error = deviation(model, gradient)
    spread = z * error / np.maximum(p * (1.0 - p), 1e-300)
    sizes = np.diff(of.indptr)
    single = np.repeat(sizes == 1, sizes)
    logit = special.logit(p)
    low, high = (np.where(single, 1.0, special.expit(logit + x)) for x in (-spread, spread))
    names = column(list(world.states))
    return pd.DataFrame({
        "row": np.repeat(np.arange(len(group)), sizes),
        state: np.repeat(names[s], sizes),
        action: np.repeat(column(list(world.actions))[a], sizes),
        following: names[of.successor],
        "probability": p,
        "standard_error": error,
        "low": low,
        "high": high,
    })  # fmt: skip


def marginal_effects(model: TransitionModel, name: str, confidence: float) -> Any:
    """See `TransitionModel.marginal_effects`."""
    import pandas as pd

    z, world, of = quantile(confidence), model.world, model.situations
    action = world.columns[1]
    if name != action and name not in of.covariates:
        raise ValueError(
            f"{name!r} is no covariate of the model; it must be one of "
            f"{listed([action, *of.covariates])}"
        )
    if name == action:
        pairs = contrasts(model, {
            word: np.full(len(of.group), i) for i, word in enumerate(world.actions)
        })  # fmt: skip
    elif of.covariates[name].dtype.kind in "OUSb":
        pairs = contrasts(model, {
            word: column([word] * len(of.group)) for word in codes(of.covariates[name])[1]
        }, name)  # fmt: skip
    else:
        pairs = [("+1", *slope(model, name))]
    rows = []
    for word, effect, gradient in pairs:
        error = deviation(model, gradient)
        for i in np.flatnonzero((np.abs(effect) > 0) | (error > 0)).tolist():
            rows.append((
                world.states[i], word, effect[i], error[i], effect[i] - z * error[i],
                effect[i] + z * error[i],
            ))  # fmt: skip
    return pd.DataFrame(
        rows, columns=[world.columns[2], "to", "effect", "standard_error", "low", "high"]
    )


def slope(model: TransitionModel, name: str) -> tuple[Array, Array]:
    """(S,) the mean derivative in a covariate, by central differences, and its gradient (S, d)."""
    of, share = model.situations, model.data.visits / model.data.visits.sum()
    cells = np.asarray(of.covariates[name], np.float64)
    unit = max(float(cells.std()), 1e-3 * float(np.abs(cells).max()), 1e-4)
    try:
        high, low = cells + 1e-4 * unit, cells - 1e-4 * unit
        up, down = (averages(model, moved(of, name, x), share / (high - low)) for x in (high, low))
    except ValueError:  # a spline ends at the last value: differences to the inner side there
        high = np.minimum(cells + 1e-6 * unit, cells.max())
        low = np.maximum(cells - 1e-6 * unit, cells.min())
        up, down = (averages(model, moved(of, name, x), share / (high - low)) for x in (high, low))
    return up[0] - down[0], up[1] - down[1]


def contrasts(
    model: TransitionModel, values: Mapping[Any, Array], name: str | None = None
) -> list[tuple[Any, Array, Array]]:
    """The average change from the first value to each other; name None: of the action."""
    of, n_actions = model.situations, len(model.world.actions)
    usable = np.ones(len(of.group), bool)
    changed = {}
    for word, cells in values.items():
        if name is not None:
            changed[word] = moved(of, name, cells)
            continue
        group = of.group // n_actions * n_actions + cells
        usable &= model.world.sizes[group] > 0  # only where every action exists
        changed[word] = (group, of.covariates)
    if not usable.any():
        raise ValueError("no state has all actions, so their effects cannot be compared")
    found = []
    for word, made in changed.items():
        if name is None:
            made = situations(
                model.world, made[0][usable], {c: x[usable] for c, x in made[1].items()}
            )
        share = model.data.visits[usable]
        found.append((word, averages(model, made, share / share.sum())))
    (_, first), *others = found
    return [(word, p - first[0], g - first[1]) for word, (p, g) in others]


def moved(of: Situations, name: str, cells: Array) -> Situations:
    return of._replace(covariates={**of.covariates, name: cells})


def averages(model: TransitionModel, of: Situations, weights: Array) -> tuple[Array, Array]:
    """(S,) weighted sum of the probabilities of each next state, and its gradient (S, d)."""
    n = len(model.world.states)
    mean, total = np.zeros(n), np.zeros((n, len(model.fitted.theta)))
    for first, last in in_chunks(of.indptr, AT_ONCE):  # the expanded rows of a part at a time
        part = situations(
            model.world, of.group[first:last], {c: x[first:last] for c, x in of.covariates.items()}
        )
        p, gradient = believed(model, part)
        weight = np.repeat(weights[first:last], np.diff(part.indptr))
        entries = weight, (part.successor, np.arange(len(weight)))
        member = sparse.csr_array(entries, (n, len(weight)))
        mean += member @ p
        total += member @ gradient
    return mean, total


def wald(model: TransitionModel, names: Sequence[str]) -> LikelihoodRatio:
    """See `TransitionModel.wald`."""
    chosen: list[int] = []
    for name in names:
        found = [
            i
            for i, (column, term) in enumerate(
                zip(model.design.names, model.design.terms, strict=True)
            )
            if name in (column, term)
        ]
        if not found:
            raise ValueError(
                f"the model has no coefficient or term {name!r}; it has "
                f"{listed(list(dict.fromkeys([*model.design.terms, *model.design.names])))}"
            )
        chosen += [i for i in found if i not in chosen]
    theta, covariance = model.fitted.theta[chosen], model.fitted.covariance
    statistic = float(theta @ np.linalg.solve(covariance[np.ix_(chosen, chosen)], theta))
    return LikelihoodRatio(statistic, len(chosen), float(special.chdtrc(len(chosen), statistic)))


def check_nested(larger: TransitionModel, smaller: TransitionModel) -> None:
    """Refuse models whose likelihoods cannot be compared."""
    if type(smaller) is not type(larger):
        raise TypeError(f"smaller is a {type(smaller).__name__}; it must come from fit_transitions")
    for name, model in (("the larger model", larger), ("smaller", smaller)):
        if model.fitted.regularization > 0:
            raise ValueError(
                f"{name} was fitted with regularization {model.fitted.regularization:g}; the "
                "likelihood-ratio test needs regularization=0"
            )
    large, small = (m.situations.successor[m.chosen] for m in (larger, smaller))
    same = [
        list(larger.world.states) == list(smaller.world.states),
        np.array_equal(larger.world.successors, smaller.world.successors),
        np.array_equal(large, small),
        np.array_equal(larger.weights, smaller.weights),
    ]
    if not all(same):
        raise ValueError("smaller was fitted to another log; both models need the same one")
    if len(smaller.fitted.theta) >= len(larger.fitted.theta):
        raise ValueError(
            f"smaller has {len(smaller.fitted.theta)} coefficients, the larger model "
            f"{len(larger.fitted.theta)}; it must have fewer"
        )
    new = [c for c in smaller.situations.covariates if c not in larger.situations.covariates]
    if new or not nested(larger, smaller):
        raise ValueError(
            "smaller is not nested: some of its columns are no combination of the larger model's"
        )


def nested(larger: TransitionModel, smaller: TransitionModel) -> bool:
    """Whether the rows of the smaller model are combinations of those of the larger one."""
    of = larger.situations
    some = np.unique(np.linspace(0, len(of.group) - 1, 20_000).astype(np.int64))
    part = situations(larger.world, of.group[some], {c: x[some] for c, x in of.covariates.items()})
    table = expanded(larger.world, part, lambda name: True)
    mean = means(1.0 / np.repeat(np.diff(part.indptr), np.diff(part.indptr)), part.indptr)
    wide, narrow = (model.design.rows(table)[0] for model in (larger, smaller))
    for x in (wide, narrow):
        x -= np.repeat(mean @ x, np.diff(part.indptr), axis=0)
    rest = narrow - wide @ np.linalg.lstsq(wide, narrow, rcond=None)[0]
    return bool(np.abs(rest).max() <= 1e-7 * max(np.abs(narrow).max(), 1e-300))


def residuals(model: TransitionModel) -> Any:
    """See `TransitionModel.residuals`."""
    import pandas as pd

    of, world = model.situations, model.world
    sizes, n = np.diff(of.indptr), len(world.states)
    key, cell = np.unique(np.repeat(of.group, sizes) * n + of.successor, return_inverse=True)
    expected = np.repeat(model.data.visits, sizes) * model.probability
    seen, mean, var = (
        np.bincount(cell, x)
        for x in (model.data.counts, expected, expected * (1.0 - model.probability))
    )
    names, actions = column(list(world.states)), column(list(world.actions))
    state, action, following = world.columns
    return pd.DataFrame({
        state: names[key // n // len(world.actions)],
        action: actions[key // n % len(world.actions)],
        following: names[key % n],
        "observed": seen,
        "expected": mean,
        "residual": (seen - mean) / np.sqrt(np.maximum(var, 1e-300)),
    })  # fmt: skip


def calibration(model: TransitionModel, bins: int) -> Any:
    """See `TransitionModel.calibration`."""
    import pandas as pd

    sizes = np.diff(model.data.indptr)
    weight = np.repeat(model.data.visits, sizes)
    open_ = (weight > 0) & np.repeat(sizes > 1, sizes)
    p, n, seen = model.probability[open_], weight[open_], model.data.counts[open_]
    order = np.argsort(p)
    share = (np.cumsum(n[order]) - 0.5 * n[order]) / n.sum()
    part = np.minimum((share * bins).astype(np.int64), bins - 1)
    total, predicted, came = (np.bincount(part, x[order], bins) for x in (n, n * p, seen))
    some = total > 0
    rate = came[some] / total[some]
    return pd.DataFrame({
        "predicted": predicted[some] / total[some],
        "observed": rate,
        "standard_error": np.sqrt(rate * (1 - rate) / total[some]),
        "n": total[some],
    })  # fmt: skip


def plot_calibration(table: Any) -> Any:
    """A figure of `calibration`: points on the diagonal are right."""
    from upriver.display import figures

    with figures.styled():
        figure, axes = figures.blank(figures.WIDTHS["one"], figures.WIDTHS["one"])
        axes[0, 0].plot([0, 1], [0, 1], color=figures.PALE, linewidth=1)
        axes[0, 0].errorbar(
            table["predicted"], table["observed"], 1.96 * table["standard_error"],
            fmt="o", color=figures.BLUE, markersize=4, linewidth=1,
        )  # fmt: skip
        axes[0, 0].set(xlabel="predicted probability", ylabel="how often it came true")
        axes[0, 0].set(xlim=(0, 1), ylim=(0, 1))
    return figure


def compare(models: Sequence[TransitionModel]) -> Any:
    """See `TransitionModel.compare`."""
    import pandas as pd

    columns = {}
    for i, model in enumerate(models, start=1):
        rows = {
            r["name"]: f"{r['estimate']:.4f} ({r['standard_error']:.4f})" for r in model.table()
        }
        fitted = model.fitted
        columns[f"model {i}"] = {
            **rows,
            "observations": f"{fitted.n_observations:g}",
            "log-likelihood": f"{fitted.log_likelihood:.3f}",
            "AIC": f"{fitted.aic:.2f}",
            "BIC": f"{fitted.bic:.2f}",
            "McFadden's R2": f"{fitted.pseudo_r2:.4f}",
        }
    order = list(dict.fromkeys(row["name"] for model in models for row in model.table()))
    order += ["observations", "log-likelihood", "AIC", "BIC", "McFadden's R2"]
    return pd.DataFrame(columns).reindex(order).fillna("")
