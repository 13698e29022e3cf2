"""The agents that a spec can name: a plain table; a new agent adds one line."""

from typing import Any

from upriver.agents.epsilon_greedy import EpsilonGreedy
from upriver.agents.fixed import Always, Optimal, Random
from upriver.agents.lsvi_phe import LSVIPHE
from upriver.agents.lsvi_ucb import LSVIUCB
from upriver.agents.orrl_mnl import ORRLMNL
from upriver.agents.psrl import PSRL
from upriver.agents.psrl_mnl import PSRLMNL
from upriver.agents.rlsvi import RLSVI
from upriver.agents.rrl_mnl import RRLMNL
from upriver.agents.uc_matrix_rl import UCMatrixRL
from upriver.agents.ucbvi import UCBVI, UCBVIBF
from upriver.agents.ucmnlk import UCMNLK
from upriver.agents.ucrl2 import UCRL2
from upriver.agents.ucrl_mnl import UCRLMNL
from upriver.agents.ucrl_mnl_l1 import UCRLMNLL1
from upriver.agents.ucrl_mnl_ll import UCRLMNLLL
from upriver.agents.ucrl_mnl_lr import UCRLMNLLR
from upriver.agents.ucrl_mnl_plus import UCRLMNLOL, UCRLMNLPlus
from upriver.agents.ucrl_mnl_se import UCRLMNLSE
from upriver.agents.ucrl_vtr import UCRLVTR

AGENTS: dict[str, type[Any]] = {
    "always": Always,
    "epsilon-greedy": EpsilonGreedy,
    "lsvi-phe": LSVIPHE,
    "lsvi-ucb": LSVIUCB,
    "optimal": Optimal,
    "orrl-mnl": ORRLMNL,
    "psrl": PSRL,
    "psrl-mnl": PSRLMNL,
    "random": Random,
    "rlsvi": RLSVI,
    "rrl-mnl": RRLMNL,
    "uc-matrix-rl": UCMatrixRL,
    "ucmnlk": UCMNLK,
    "ucbvi": UCBVI,
    "ucbvi-bf": UCBVIBF,
    "ucrl-mnl": UCRLMNL,
    "ucrl-mnl-l1": UCRLMNLL1,
    "ucrl-mnl-ll": UCRLMNLLL,
    "ucrl-mnl-lr": UCRLMNLLR,
    "ucrl-mnl-ol": UCRLMNLOL,
    "ucrl-mnl-plus": UCRLMNLPlus,
    "ucrl-mnl-se": UCRLMNLSE,
    "ucrl-vtr": UCRLVTR,
    "ucrl2": UCRL2,
}
