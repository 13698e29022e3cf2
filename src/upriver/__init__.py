"""Reinforcement learning with multinomial-logistic transition models: UCRL-MNL and its peers.

The public names, each loaded when it is first used; `__init__.pyi` tells type checkers the same.
"""

from importlib import import_module
from typing import Any

__version__ = "1.1.0.dev0"

HOMES = {
    "mdp": ("FactoredMDP", "FiniteMDP", "Task"),
    "features": ("Features",),
    "planning": ("Plan", "StationaryPlan", "evaluate", "solve"),
    "planning.rollouts": ("rollout_policy",),
    "play.policy": ("Policy", "load_policy"),
    "play.rollouts": ("Rollouts", "rollouts"),
    "play.run": ("Run",),
    "play.animation": ("animate",),
    "play.simulate": ("simulate",),
    "play.blackbox": ("LearningRun", "learn"),
    "play.checkpoints": ("load_agent", "save_agent"),
    "results.runs": ("load_runs",),
    "diagnostics": ("coverage", "diagnose"),
    "mnl.fit": ("fit_choices", "fit_mnl"),
    "mnl.fitted": ("FittedMNL",),
    "mnl.newton": ("ConvergenceWarning",),
    "logs.decision": ("decide",),
    "logs.fit": ("fit_transitions",),
    "logs.model": ("TransitionModel",),
    "logs.planning": ("plan_from_model",),
    "logs.offpolicy": ("check_policy_value",),
    "logs.reward_model": ("RewardModel", "fit_rewards"),
    "logs.value": ("cohort_trace", "compare_policies", "policy_value"),
}
WHERE = {name: home for home, names in HOMES.items() for name in names}
SUBPACKAGES = {
    "agents": "agents",
    "envs": "envs",
    "experiments": "experiments",
    "features": "features",
    "optimism": "planning.optimism",
    "radii": "mnl.radii",
}
"""Modules that are public under a short name: up.agents, up.radii and so on."""

__all__ = [*WHERE, *SUBPACKAGES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in WHERE:
        value = getattr(import_module(f"upriver.{WHERE[name]}"), name)
        globals()[name] = value
        return value
    if name in SUBPACKAGES:
        return import_module(f"upriver.{SUBPACKAGES[name]}")
    raise AttributeError(f"module 'upriver' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
