"""Maximum-likelihood fits of choices, at one and the same gradient norm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.timing import Line, Skipped, interleaved
from upriver.checks import Array
from upriver.mnl.fit import fit_choices

SIZES = ((10_000, 3, 10), (100_000, 3, 10), (1_000_000, 3, 10), (100_000, 10, 50))
"""(situations, alternatives, features)"""
DECADES = 6.0


def choices(n: int, j: int, d: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """(X, chosen, groups) drawn from a conditional logit with standard normal features."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n * j, d))
    theta = rng.standard_normal(d) / np.sqrt(d)
    utility = (x @ theta).reshape(n, j) + rng.gumbel(size=(n, j))
    chosen = np.zeros((n, j), bool)
    chosen[np.arange(n), utility.argmax(axis=1)] = True
    return x, chosen.reshape(-1), np.repeat(np.arange(n), j)


def plain_loss(x: Array, chosen: Array, j: int) -> Callable[[Array], tuple[float, Array]]:
    """Mean negative log-likelihood and gradient as one writes them in NumPy for equal groups."""
    taken = np.flatnonzero(chosen)
    counts = chosen.astype(np.float64)
    n = len(taken)

    def evaluate(theta: Array) -> tuple[float, Array]:
        z = (x @ theta).reshape(n, j)
        z -= z.max(axis=1, keepdims=True)
        first = z.reshape(-1)[taken].sum()
        np.exp(z, out=z)
        total = z.sum(axis=1, keepdims=True)
        z /= total
        return (np.log(total).sum() - first) / n, (z.reshape(-1) - counts) @ x / n

    return evaluate


def lbfgs(x: Array, chosen: Array, j: int, gradient_norm: float) -> Any:
    """SciPy's L-BFGS-B until the largest entry of the mean gradient is `gradient_norm`."""
    from scipy import optimize

    return optimize.minimize(
        plain_loss(x, chosen, j), np.zeros(x.shape[1]), jac=True, method="L-BFGS-B",
        options={"gtol": gradient_norm, "ftol": 0.0, "maxiter": 10_000, "maxfun": 20_000},
    )  # fmt: skip


def fits(quick: bool, with_peers: bool) -> Iterator[Line | Skipped]:
    """Ours first; the others are asked for the gradient norm that it reached, and no more."""
    for n, j, d in ((2_000, 3, 10),) if quick else SIZES:
        x, chosen, groups = choices(n, j, d)
        scaled = x * 10.0 ** np.linspace(-DECADES / 2, DECADES / 2, d)
        reached = fit_choices(x, chosen, groups).theta
        norm = float(np.abs(plain_loss(x, chosen, j)(reached)[1]).max())
        works: dict[str, Callable[[], Any]] = {
            "ours": lambda: fit_choices(x, chosen, groups),  # noqa: B023
            "scaled": lambda: fit_choices(scaled, chosen, groups),  # noqa: B023
            "SciPy L-BFGS": lambda: lbfgs(x, chosen, j, norm),  # noqa: B023
        }
        case = f"{n} situations x {j} x {d}"
        if with_peers and peers.missing("xlogit"):
            yield Skipped("fit_choices", case, peers.missing("xlogit"))
        elif with_peers:
            works["xlogit"] = peers.xlogit_fit(x, chosen, groups, j, norm)
        taken = interleaved(works, 3 if quick or n * j * d > 10**7 else 7)
        asked = {"SciPy L-BFGS": 0.8, "xlogit": 0.5}
        for name in asked.keys() & works.keys():
            yield Line(
                "fit_choices", case, 1e3 * taken["ours"], "ms", name, 1e3 * taken[name],
                most=None if quick else asked[name], note=f"gradient norm {norm:.0e} a situation",
            )  # fmt: skip
        yield Line(
            "fit_choices", f"{case}, scales over {DECADES:g} decades", 1e3 * taken["scaled"], "ms",
            "well scaled", 1e3 * taken["ours"], most=None if quick else 1.5,
        )  # fmt: skip
