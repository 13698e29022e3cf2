"""Other people's code, where it is installed; a peer that is missing is skipped with a line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import upriver as up
from benchmarks.agents import HORIZON, build_agent
from benchmarks.timing import Measurement, SkippedComparison, measure_interleaved
from upriver import FiniteMDP

Array = np.ndarray[Any, np.dtype[Any]]

LSVI_EPISODES = 80


def explain_missing(module: str) -> str:
    """Why a peer cannot be compared with, or nothing."""
    return "" if find_spec(module) else f"{module} is not installed here"


def quantecon_solver(mdp: FiniteMDP) -> Callable[[], Any]:
    """QuantEcon's backward induction on the same sparse matrix, built before it is timed."""
    from quantecon.markov import DiscreteDP, backward_induction  # pyright: ignore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that beta = 1 has no infinite horizon
        ddp = DiscreteDP(*as_pairs(mdp, 1.0))
    return lambda: backward_induction(ddp, mdp.task().horizon)


def quantecon_discounted(
    mdp: FiniteMDP, discount: float, tolerance: float | None
) -> Callable[[], Any]:
    """QuantEcon's modified policy iteration to a bound of the error, or policy iteration if None.

    Its epsilon bounds twice the error of the value.
    """
    from quantecon.markov import DiscreteDP  # pyright: ignore

    ddp = DiscreteDP(*as_pairs(mdp, discount))
    if tolerance is None:
        return lambda: ddp.solve(method="policy_iteration")
    return lambda: ddp.solve(
        method="modified_policy_iteration", epsilon=2.0 * tolerance, max_iter=10**6
    )


def as_pairs(mdp: FiniteMDP, discount: float) -> tuple[Any, ...]:
    """The arguments of a DiscreteDP on the same sparse matrix."""
    from scipy import sparse

    task = mdp.task()
    groups = np.flatnonzero(task.sizes)
    shape = len(task.sizes), task.n_states
    matrix = sparse.csr_matrix((mdp.probability[0], task.successors, task.indptr), shape=shape)
    reward = mdp.reward.reshape(-1)
    if len(groups) < len(task.sizes):
        matrix, reward = matrix[groups], reward[groups]
    return reward, matrix, discount, groups // task.n_actions, groups % task.n_actions


def xlogit_fit(x: Array, chosen: Array, groups: Array, j: int, norm: float) -> Callable[[], Any]:
    """xlogit's conditional logit without standard errors, stopped at the same gradient norm."""
    from xlogit import MultinomialLogit  # pyright: ignore

    names = [f"x{i}" for i in range(x.shape[1])]
    alternatives = np.tile(np.arange(j), len(x) // j)

    def fit() -> Any:
        model = MultinomialLogit()
        with contextlib.redirect_stdout(io.StringIO()):
            model.fit(
                X=x,
                y=chosen,
                varnames=names,
                alts=alternatives,
                ids=groups,
                verbose=0,
                skip_std_errs=True,
                tol_opts={"ftol": norm * len(x) / j},
            )
        return model

    return fit


def measure_rlberry(quick: bool, with_peers: bool) -> Iterator[Measurement | SkippedComparison]:
    """rlberry-scool's UCBVI and LSVI-UCB on the same river, in its own environment.

    It pins old packages, so it runs as another process, right after ours.
    """
    named = os.environ.get("UPRIVER_RLBERRY_PYTHON")
    python = Path(named) if named else None
    if not with_peers:
        return
    if python is None:
        yield SkippedComparison(
            "rlberry-scool",
            "UCBVI, LSVI-UCB",
            "it needs an environment of its own, named by the variable UPRIVER_RLBERRY_PYTHON",
        )
        return
    mdp = up.envs.riverswim(6, HORIZON)
    count = 50 if quick else 500
    lsvi_count = 5 if quick else LSVI_EPISODES
    taken = measure_interleaved(
        {
            "ucbvi": lambda: up.simulate(mdp, build_agent("ucbvi", mdp), count),
            "lsvi-ucb": lambda: up.simulate(mdp, build_agent("lsvi-ucb", mdp), lsvi_count),
        },
        5,
    )
    script = Path(__file__).with_name("rlberry_script.py")
    river = json.dumps(
        {
            "transition": dense(mdp).tolist(),
            "reward": mdp.reward.tolist(),
            "horizon": HORIZON,
            "ucbvi": count,
            "lsvi": lsvi_count,
        }
    )
    done = subprocess.run(
        [str(python), str(script)], input=river, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        yield SkippedComparison("rlberry-scool", "UCBVI, LSVI-UCB", f"{python} failed: {last}")
        return
    theirs = json.loads(done.stdout.splitlines()[-1])
    for name, label, many in (("ucbvi", "UCBVI", count), ("lsvi-ucb", "LSVI-UCB", lsvi_count)):
        yield Measurement(
            "episodes against peers",
            f"{label}, S=6, H={HORIZON}, K={many}",
            many / taken[name],
            "episodes/s",
            f"rlberry-scool {label}",
            many / theirs[name],
        )


def dense(mdp: FiniteMDP) -> Array:
    """(S, A, S) probabilities."""
    s, a, s2 = mdp.task().triples
    table = np.zeros((mdp.n_states, mdp.n_actions, mdp.n_states))
    table[s, a, s2] = mdp.probability[0]
    return table
