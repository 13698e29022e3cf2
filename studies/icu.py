"""ICU-Sepsis: treating sepsis in intensive care, a benchmark built from the records of MIMIC-III.

The numbers are those of the package `icu-sepsis` (MIT licence; Choudhary, Gupta and Thomas,
"ICU-Sepsis: A benchmark MDP built from real medical data", 2024), read from its files: 713 clusters
of patients' conditions, death, survival and an end; 25 treatments, five levels of fluids by five of
vasopressors, of which a condition has those that clinicians gave often enough. It needs the package
`icu-sepsis`. It is a benchmark and says nothing about the treatment of a patient.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from upriver.checks import Array
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task

LEVELS = 5
DEAD, SURVIVED, ENDED = 713, 714, 715


class Records(NamedTuple):
    """The arrays of the package."""

    transition: Array
    """(S, A, S)"""
    first: Array
    """(S,) distribution of the first condition."""
    clinicians: Array
    """(S, A) how often clinicians gave each treatment, among those a condition has."""
    covariates: Array
    """(S, 47) the centre of each cluster, standardised."""
    sofa: Array
    """(S,) the mean SOFA score of each cluster."""
    admissible: Array
    """(S, A) which treatments a condition has."""


@lru_cache(maxsize=1)
def read_records() -> Records:
    """Read the files of the package."""
    found = find_spec("icu_sepsis")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("icu_sepsis needs the package icu-sepsis: pip install icu-sepsis")
    folder = Path(found.submodule_search_locations[0]) / "envs" / "assets"
    with np.load(folder / "dynamics.npz", allow_pickle=False) as data:
        keys = "tx_mat", "d_0", "expert_policy", "state_cluster_centers", "sofa_scores"
        transition, first, clinicians, covariates, sofa = (data[k] for k in keys)
    admissible = np.zeros(clinicians.shape, bool)
    lines = (folder / "admissible_actions.txt").read_text().splitlines()[1:]
    for s, line in enumerate(lines):
        admissible[s, [int(a) for a in line.split()]] = True
    admissible[DEAD:] = False
    admissible[DEAD:, 0] = True  # nothing is left to choose
    given = np.where(admissible, np.maximum(clinicians, 1e-300), 0.0)
    given /= given.sum(axis=1, keepdims=True)
    return Records(transition, first, given, covariates, sofa, admissible)


def icu_sepsis(horizon: int = 100) -> FiniteMDP:
    """Make the sepsis benchmark: the return is 1 for a patient who survives, else 0.

    It has 716 states and 25 actions, named (fluids, vasopressors), of which a state has 3 on
    average. A step is four hours; after 100 steps fewer than one patient in 3,000 is still treated.
    The reward of 1 is paid once, in the state of survival.
    """
    found = read_records()
    n_states, n_actions = found.clinicians.shape
    s, a, s2 = np.nonzero(found.transition * found.admissible[:, :, None])
    pairs = np.bincount(s * n_actions + a, minlength=n_states * n_actions)
    reward = np.zeros((n_states, n_actions))
    reward[SURVIVED] = 1.0
    task = Task(
        n_states, n_actions, horizon, np.concatenate([[0], np.cumsum(pairs)]), s2,
        reward * found.admissible, support="known",
        actions=[(i, j) for i in range(LEVELS) for j in range(LEVELS)],
    )  # fmt: skip
    start = np.flatnonzero(found.first)
    return FiniteMDP(
        task, found.transition[s, a, s2], start, found.first[start] / found.first.sum(),
        name="icu-sepsis",
    )  # fmt: skip


def clinicians() -> Array:
    """Return (S, A) the frequency with which clinicians gave each treatment in each condition."""
    return read_records().clinicians.copy()


def icu_sepsis_features(task: Task) -> Features:
    """Make features of the transitions of patients: d = 14.

    They are staying, minus the mean squared distance of the two conditions over the 47 covariates,
    the change of the SOFA score, alone and times the doses, and death and survival, alone and times
    the score and the doses.
    """
    found = read_records()
    if task.n_states != len(found.sofa):
        raise ValueError(f"the features are made for {len(found.sofa)} states; not {task.n_states}")
    s, a, s2 = task.triples
    x, sofa = found.covariates, found.sofa / 10.0
    fluids, pressors = a // LEVELS / 4.0, a % LEVELS / 4.0
    alive = (s2 < DEAD).astype(float)
    near = -((x[s] - x[s2]) ** 2).mean(axis=1) * alive
    change = (sofa[s2] - sofa[s]) * alive
    named = {
        "stays": (s == s2) * 1.0, "near": near, "SOFA": change,
        "SOFA, fluids": change * fluids, "SOFA, pressors": change * pressors,
        "ends": (s2 == ENDED) * 1.0,
    }  # fmt: skip
    for word, at in (("dies", DEAD), ("survives", SURVIVED)):
        here = (s2 == at) * 1.0
        named |= {
            word: here, f"{word}, SOFA": here * sofa[s], f"{word}, fluids": here * fluids,
            f"{word}, pressors": here * pressors,
        }  # fmt: skip
    return Features(task, np.column_stack(list(named.values())), names=list(named))
