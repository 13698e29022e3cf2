"""The learning algorithms, one file each; `up.agents.NAME` is the class of an algorithm.

`table.AGENTS` lists the agents that an experiment file can name.
"""

from importlib import import_module
from typing import Any

MODULES = {
    "EpsilonGreedy": "epsilon_greedy",
    "Always": "fixed",
    "Optimal": "fixed",
    "Random": "fixed",
    "LSVIPHE": "lsvi_phe",
    "LSVIUCB": "lsvi_ucb",
    "ORRLMNL": "orrl_mnl",
    "PSRL": "psrl",
    "PSRLMNL": "psrl_mnl",
    "RLSVI": "rlsvi",
    "RRLMNL": "rrl_mnl",
    "UCMatrixRL": "uc_matrix_rl",
    "UCBVI": "ucbvi",
    "UCBVIBF": "ucbvi",
    "UCMNLK": "ucmnlk",
    "UCRL2": "ucrl2",
    "UCRLMNL": "ucrl_mnl",
    "UCRLMNLL1": "ucrl_mnl_l1",
    "UCRLMNLLL": "ucrl_mnl_ll",
    "UCRLMNLLR": "ucrl_mnl_lr",
    "UCRLMNLOL": "ucrl_mnl_plus",
    "UCRLMNLPlus": "ucrl_mnl_plus",
    "UCRLMNLSE": "ucrl_mnl_se",
    "UCRLVTR": "ucrl_vtr",
}
"""The module of each class; a module is imported when its class is first used."""


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return getattr(import_module(f"upriver.agents.{MODULES[name]}"), name)
    raise AttributeError(f"module 'upriver.agents' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *MODULES})
