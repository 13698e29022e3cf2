"""The one table of agents: name in a specification -> module and class.

A new agent adds one line. `upriver.agents.NAME`, `upriver list`, specifications, tuning and the
contract test all read this table. A module is imported when its class is first used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

LOCATIONS = {
    "always": "fixed.Always",
    "epsilon-greedy": "epsilon_greedy.EpsilonGreedy",
    "lsvi-phe": "lsvi.LSVIPHE",
    "lsvi-ucb": "lsvi.LSVIUCB",
    "optimal": "fixed.Optimal",
    "orrl-mnl": "rrl_mnl.ORRLMNL",
    "psrl": "psrl.PSRL",
    "psrl-mnl": "psrl_mnl.PSRLMNL",
    "random": "fixed.Random",
    "rlsvi": "rlsvi.RLSVI",
    "rrl-mnl": "rrl_mnl.RRLMNL",
    "uc-matrix-rl": "uc_matrix_rl.UCMatrixRL",
    "ucmnlk": "ucmnlk.UCMNLK",
    "ucbvi": "ucbvi.UCBVI",
    "ucbvi-bf": "ucbvi.UCBVIBF",
    "ucrl-mnl": "ucrl_mnl.UCRLMNL",
    "ucrl-mnl-l1": "ucmnlk.UCRLMNLL1",
    "ucrl-mnl-ll": "ucrl_mnl_plus.UCRLMNLLL",
    "ucrl-mnl-lr": "ucrl_mnl_lr.UCRLMNLLR",
    "ucrl-mnl-ol": "ucrl_mnl_plus.UCRLMNLOL",
    "ucrl-mnl-plus": "ucrl_mnl_plus.UCRLMNLPlus",
    "ucrl-mnl-se": "ucrl_mnl_se.UCRLMNLSE",
    "ucrl-vtr": "ucrl_vtr.UCRLVTR",
    "ucrl2": "ucrl2.UCRL2",
}

NAMES_BY_CLASS = {location.split(".")[1]: name for name, location in LOCATIONS.items()}
"""Class name -> name in a specification."""


class AgentTable(Mapping[str, type[Any]]):
    """Name in a specification -> class, imported at the first look-up."""

    def __getitem__(self, name: str) -> type[Any]:
        module, class_name = LOCATIONS[name].split(".")
        return getattr(import_module(f"upriver.agents.{module}"), class_name)

    def __iter__(self) -> Iterator[str]:
        return iter(LOCATIONS)

    def __len__(self) -> int:
        return len(LOCATIONS)


AGENTS = AgentTable()
