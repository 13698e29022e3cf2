"""Maximum-likelihood fits of choice data, all to the same gradient norm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import optimize

import upriver as up
from benchmarks import peers
from benchmarks.timing import Measurement, SkippedComparison, measure_interleaved

Array = np.ndarray[Any, np.dtype[Any]]
SIZES = ((10_000, 3, 10), (100_000, 3, 10), (1_000_000, 3, 10), (100_000, 10, 50))
"""(situations, alternatives, features)"""
DECADES = 6.0
"""How far apart the scales of the columns are in the badly scaled case."""


def draw_choices(n: int, j: int, d: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return (features, chosen, situation) of a conditional logit with normal features."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n * j, d))
    theta = rng.standard_normal(d) / np.sqrt(d)
    utility = (x @ theta).reshape(n, j) + rng.gumbel(size=(n, j))
    chosen = np.zeros((n, j), bool)
    chosen[np.arange(n), utility.argmax(axis=1)] = True
    return x, chosen.reshape(-1), np.repeat(np.arange(n), j)


def make_mean_loss(x: Array, chosen: Array, j: int) -> Callable[[Array], tuple[float, Array]]:
    """Return theta -> (mean negative log-likelihood, gradient), as written in plain NumPy."""
    indices, counts = np.flatnonzero(chosen), chosen.astype(np.float64)
    n = len(indices)

    def evaluate(theta: Array) -> tuple[float, Array]:
        logits = (x @ theta).reshape(n, j)
        logits -= logits.max(axis=1, keepdims=True)
        first = logits.reshape(-1)[indices].sum()
        np.exp(logits, out=logits)
        total = logits.sum(axis=1, keepdims=True)
        logits /= total
        return (np.log(total).sum() - first) / n, (logits.reshape(-1) - counts) @ x / n

    return evaluate


def fit_with_lbfgs(x: Array, chosen: Array, j: int, gradient_norm: float) -> Any:
    """Run SciPy's L-BFGS-B until the largest entry of the mean gradient is `gradient_norm`."""
    options = {"gtol": gradient_norm, "ftol": 0.0, "maxiter": 10_000, "maxfun": 20_000}
    loss = make_mean_loss(x, chosen, j)
    return optimize.minimize(
        loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", options=options
    )


def measure_choice_fits(quick: bool, with_peers: bool) -> Iterator[Measurement | SkippedComparison]:
    """Fit with ours first; the others stop at the gradient norm that ours reached."""
    for n, j, d in ((2_000, 3, 10),) if quick else SIZES:
        x, chosen, groups = draw_choices(n, j, d)
        scaled = x * 10.0 ** np.linspace(-DECADES / 2, DECADES / 2, d)
        theta = up.fit_choices(x, chosen, groups).theta
        norm = float(np.abs(make_mean_loss(x, chosen, j)(theta)[1]).max())
        case = f"{n} situations x {j} x {d}"
        works: dict[str, Callable[[], Any]] = {
            "ours": lambda: up.fit_choices(x, chosen, groups),  # noqa: B023
            "scaled": lambda: up.fit_choices(scaled, chosen, groups),  # noqa: B023
            "SciPy L-BFGS": lambda: fit_with_lbfgs(x, chosen, j, norm),  # noqa: B023
        }
        if with_peers and (reason := peers.explain_missing("xlogit")):
            yield SkippedComparison("fit_choices", case, reason)
        elif with_peers:
            works["xlogit"] = peers.xlogit_fit(x, chosen, groups, j, norm)
        milliseconds = {
            name: 1e3 * seconds
            for name, seconds in measure_interleaved(works, 3 if quick or n > 10**5 else 7).items()
        }
        ours = milliseconds["ours"]
        for name in milliseconds.keys() - {"ours", "scaled"}:
            yield Measurement("fit_choices", case, ours, "ms", name, milliseconds[name])
        case = f"{case}, scales over {DECADES:g} decades"
        yield Measurement("fit_choices", case, milliseconds["scaled"], "ms", "well scaled", ours)
