"""Reinforcement learning with multinomial-logistic transition models: UCRL-MNL and its peers.

The public names, each loaded when it is first used; `__init__.pyi` tells type checkers the same.
"""

from importlib import import_module
from typing import Any

__version__ = "0.2.0.dev0"

HOMES = {
    "agents.epsilon_greedy": ("EpsilonGreedy",),
    "agents.fixed": ("Always", "Optimal", "Random"),
    "agents.lsvi_phe": ("LSVIPHE",),
    "agents.lsvi_ucb": ("LSVIUCB",),
    "agents.orrl_mnl": ("ORRLMNL",),
    "agents.psrl": ("PSRL",),
    "agents.psrl_mnl": ("PSRLMNL",),
    "agents.rlsvi": ("RLSVI",),
    "agents.rrl_mnl": ("RRLMNL",),
    "agents.uc_matrix_rl": ("UCMatrixRL",),
    "agents.ucbvi": ("UCBVI", "UCBVIBF"),
    "agents.ucmnlk": ("UCMNLK",),
    "agents.ucrl2": ("UCRL2",),
    "agents.ucrl_mnl": ("UCRLMNL",),
    "agents.ucrl_mnl_l1": ("UCRLMNLL1",),
    "agents.ucrl_mnl_ll": ("UCRLMNLLL",),
    "agents.ucrl_mnl_lr": ("UCRLMNLLR",),
    "agents.ucrl_mnl_plus": ("UCRLMNLOL", "UCRLMNLPlus"),
    "agents.ucrl_mnl_se": ("UCRLMNLSE",),
    "agents.ucrl_vtr": ("UCRLVTR",),
    "mdp": ("FiniteMDP", "Task"),
    "planning": ("Plan", "evaluate", "solve"),
    "play.rollouts": ("Rollouts", "rollouts"),
    "play.simulate": ("Run", "simulate"),
    "results.analysis": ("load_runs",),
    "play.blackbox": ("Learning", "learn"),
    "mnl.confidence": (
        "constant_radius", "corrected_radius", "elliptical_norms", "gram_matrix", "lemma1_radius",
        "scaled_radius", "standard_errors", "theory_regularization",
    ),
    "diagnostics": ("calibrated_radius", "coverage", "diagnose"),
    "features": ("Features",),
    "logs.fit": ("fit_from_log",),
    "logs.planning": ("plan_with",),
    "logs.transitions": ("TransitionModel", "fit_transitions"),
    "logs.offpolicy": ("ValueChecks", "check_value"),
    "logs.value": ("PolicyValue", "compare_policies", "policy_value"),
    "mnl.fit": ("fit_choices", "fit_mnl"),
    "mnl.fitted": ("FittedMNL",),
    "play.policy": ("Policy", "load_policy"),
    "play.checkpoints": ("load_agent", "save_agent"),
}  # fmt: skip
WHERE = {name: home for home, names in HOMES.items() for name in names}
ROOMS = {"envs": "envs", "features": "features", "optimism": "planning.optimism"}
"""Rooms that are public as they are: up.envs, up.features, up.optimism."""
FORMERLY = {
    "analysis": "results.analysis", "plots": "results.plots", "mdp": "mdp", "planning": "planning",
    "play": "play",
}  # fmt: skip
"""Modules that pages of version 0.1 imported from here, or found here without asking."""

__all__ = [*WHERE, *ROOMS]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in WHERE:
        value = getattr(import_module(f"upriver.{WHERE[name]}"), name)
        globals()[name] = value
        return value
    if name in ROOMS:
        return import_module(f"upriver.{ROOMS[name]}")
    if name in FORMERLY:
        return import_module(f"upriver.{FORMERLY[name]}")
    raise AttributeError(f"module 'upriver' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
