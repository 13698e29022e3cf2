"""Problems without a last step: discounted reward beside QuantEcon, average reward in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.planning import random_mdp
from benchmarks.timing import Line, Skipped, interleaved
from upriver.mdp import FiniteMDP
from upriver.planning import solve

ALLOWED = 0.5
TOLERANCE = 1e-8
SECONDS = 10.0
"""What an average reward may take, at any size here."""


def infinite_horizon(quick: bool, with_peers: bool) -> Iterator[Line | Skipped]:
    """Successors next door, which mix slowly, and anywhere, which strain the cache."""
    sizes = (1_000,) if quick else (1_000, 10_000, 100_000)
    for n_states, n_successors, near in product(sizes, (3, 10), (True, False)):
        mdp = random_mdp(n_states, n_successors, near)
        case = f"S={n_states}, U={n_successors}, {'next door' if near else 'anywhere'}"
        for discount in (0.9, 0.99, 0.9999) if with_peers else ():
            yield from discounted(mdp, discount, near, f"{case}, discount {discount:g}", quick)
        taken = interleaved({"ours": lambda mdp=mdp: solve(mdp, average=True)}, 1 if quick else 3)
        yield Line(
            "average reward", case, taken["ours"], "s", f"{SECONDS:g} seconds", SECONDS,
            most=None if quick else 1.0, note=f"gain within {solve(mdp, average=True).error:.0e}",
        )  # fmt: skip


def discounted(
    mdp: FiniteMDP, discount: float, near: bool, case: str, quick: bool
) -> Iterator[Line | Skipped]:
    """Each of QuantEcon's methods to the same bound of the error, where it ends in time."""
    if reason := peers.missing("quantecon"):
        yield Skipped("discounted reward", case, reason)
        return
    large = mdp.n_states > 1_000
    methods = {}
    if not (near and (large or quick) and discount > 0.99):  # minutes: it hardly mixes
        methods["modified_policy_iteration"] = peers.quantecon_discounted(mdp, discount, TOLERANCE)
    if near or not large:  # minutes: what its sparse elimination fills in
        methods["policy_iteration"] = peers.quantecon_discounted(mdp, discount, None)
    works: dict[str, Callable[[], Any]] = {
        "ours": lambda: solve(mdp, discount=discount, tolerance=TOLERANCE), **methods,
    }  # fmt: skip
    v = works["ours"]().v
    for name, work in methods.items():
        error = float(np.abs(work().v - v).max())
        if error > 3 * TOLERANCE:
            raise ArithmeticError(f"QuantEcon's {name} differs by {error:.3g} at {case}")
    taken = interleaved(works, 1 if quick else 3)
    for name in methods:
        yield Line(
            "discounted reward", case, 1e3 * taken["ours"], "ms",
            f"QuantEcon {name.replace('_', ' ')}", 1e3 * taken[name],
            most=None if quick else ALLOWED,
        )  # fmt: skip
