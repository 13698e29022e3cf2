"""Reinforcement learning with multinomial-logistic transition models: UCRL-MNL and its peers.

The public names, each loaded when it is first used; `__init__.pyi` tells type checkers the same.
"""

from importlib import import_module
from typing import Any

from upriver.mdp import FiniteMDP, Task
from upriver.planning import Plan, evaluate, solve
from upriver.rollouts import Rollouts, rollouts
from upriver.simulate import Run, simulate

__version__ = "0.1.0"

HOMES = {
    "agents.epsilon_greedy": ("EpsilonGreedy",),
    "agents.fixed": ("Always", "Optimal", "Random"),
    "agents.lsvi_phe": ("LSVIPHE",),
    "agents.lsvi_ucb": ("LSVIUCB",),
    "agents.orrl_mnl": ("ORRLMNL",),
    "agents.psrl": ("PSRL",),
    "agents.rlsvi": ("RLSVI",),
    "agents.rrl_mnl": ("RRLMNL",),
    "agents.uc_matrix_rl": ("UCMatrixRL",),
    "agents.ucbvi": ("UCBVI", "UCBVIBF"),
    "agents.ucrl2": ("UCRL2",),
    "agents.ucrl_mnl": ("UCRLMNL",),
    "agents.ucrl_mnl_l1": ("UCRLMNLL1",),
    "agents.ucrl_mnl_ll": ("UCRLMNLLL",),
    "agents.ucrl_mnl_plus": ("UCRLMNLOL", "UCRLMNLPlus"),
    "agents.ucrl_vtr": ("UCRLVTR",),
    "analysis": ("load_runs",),
    "blackbox": ("Learning", "learn"),
    "confidence": (
        "constant_radius", "corrected_radius", "elliptical_norms", "gram_matrix", "lemma1_radius",
        "scaled_radius", "theory_regularization",
    ),
    "diagnostics": ("calibrated_radius", "coverage", "diagnose"),
    "features": ("Features",),
    "logs": ("fit_from_log", "plan_with"),
    "mnl.fit": ("FittedMNL", "fit_choices", "fit_mnl"),
    "policy": ("Policy", "load_policy"),
    "saving": ("load_agent", "save_agent"),
}  # fmt: skip
WHERE = {name: home for home, names in HOMES.items() for name in names}
ROOMS = ("envs", "features", "optimism")
"""Modules that are public as they are: up.envs, up.features, up.optimism."""

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "FiniteMDP", "Plan", "Rollouts", "Run", "Task", "evaluate", "rollouts", "simulate", "solve",
    *WHERE, *ROOMS,
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in WHERE:
        value = getattr(import_module(f"upriver.{WHERE[name]}"), name)
        globals()[name] = value
        return value
    if name in ROOMS:
        return import_module(f"upriver.{name}")
    raise AttributeError(f"module 'upriver' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
