"""Infinite horizons: discounted reward beside QuantEcon, average reward in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

import upriver as up
from benchmarks import peers
from benchmarks.planning import draw_mdp
from benchmarks.timing import Measurement, SkippedComparison, measure_interleaved

TOLERANCE = 1e-8


def measure_infinite_horizon(
    quick: bool, with_peers: bool
) -> Iterator[Measurement | SkippedComparison]:
    """Use neighbouring successors, which mix slowly, and distant ones, outside the cache."""
    sizes = (1_000,) if quick else (1_000, 10_000, 100_000)
    for n_states, n_successors, near in product(sizes, (3, 10), (True, False)):
        mdp = draw_mdp(n_states, n_successors, near)
        case = f"S={n_states}, U={n_successors}, {'neighbours' if near else 'anywhere'}"
        for discount in (0.9, 0.99, 0.9999) if with_peers else ():
            yield from measure_discounted(mdp, discount, near, f"{case}, {discount:g}", quick)
        works = {"ours": lambda mdp=mdp: up.solve(mdp, average=True)}
        seconds = measure_interleaved(works, 1 if quick else 3)
        yield Measurement("average reward", case, seconds["ours"], "s")


def measure_discounted(
    mdp: up.FiniteMDP, discount: float, near: bool, case: str, quick: bool
) -> Iterator[Measurement | SkippedComparison]:
    """Compare with each of QuantEcon's methods at the same bound of the error."""
    if reason := peers.explain_missing("quantecon"):
        yield SkippedComparison("discounted reward", case, reason)
        return
    large = mdp.n_states > 1_000
    methods: dict[str, Callable[[], Any]] = {}
    if not (near and (large or quick) and discount > 0.99):  # takes minutes: it hardly mixes
        solver = peers.quantecon_discounted(mdp, discount, TOLERANCE)
        methods["QuantEcon modified policy iteration"] = solver
    if near or not large:  # takes minutes otherwise: sparse elimination fills in
        methods["QuantEcon policy iteration"] = peers.quantecon_discounted(mdp, discount, None)
    ours = {"ours": lambda: up.solve(mdp, discount=discount, tolerance=TOLERANCE)}
    v = ours["ours"]().v
    for name, work in methods.items():
        error = float(np.abs(work().v - v).max())
        if error > 3 * TOLERANCE:
            raise ArithmeticError(f"{name} differs by {error:.3g} at {case}")
    seconds = measure_interleaved(ours | methods, 1 if quick else 3)
    for name in methods:
        figures = 1e3 * seconds["ours"], "ms", name, 1e3 * seconds[name]
        yield Measurement("discounted reward", case, *figures)
