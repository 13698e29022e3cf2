"""Reinforcement learning with multinomial-logistic transition models: UCRL-MNL and its peers."""

from upriver import envs, features, optimism
from upriver.agents import Always, Optimal, Random
from upriver.agents.epsilon_greedy import EpsilonGreedy
from upriver.agents.lsvi_phe import LSVIPHE
from upriver.agents.lsvi_ucb import LSVIUCB
from upriver.agents.psrl import PSRL
from upriver.agents.rlsvi import RLSVI
from upriver.agents.uc_matrix_rl import UCMatrixRL
from upriver.agents.orrl_mnl import ORRLMNL
from upriver.agents.rrl_mnl import RRLMNL
from upriver.agents.ucbvi import UCBVI, UCBVIBF
from upriver.agents.ucrl2 import UCRL2
from upriver.agents.ucrl_mnl import UCRLMNL
from upriver.agents.ucrl_mnl_l1 import UCRLMNLL1
from upriver.agents.ucrl_mnl_ll import UCRLMNLLL
from upriver.agents.ucrl_mnl_plus import UCRLMNLOL, UCRLMNLPlus
from upriver.agents.ucrl_vtr import UCRLVTR
from upriver.analysis import load_runs
from upriver.confidence import (
    constant_radius,
    corrected_radius,
    elliptical_norms,
    gram_matrix,
    lemma1_radius,
    scaled_radius,
    theory_regularization,
)
from upriver.diagnostics import calibrated_radius, coverage, diagnose
from upriver.features import Features
from upriver.learn import Learning, learn
from upriver.logs import fit_from_log, plan_with
from upriver.mdp import FiniteMDP, Task
from upriver.mnl.fit import FittedMNL, fit_choices, fit_mnl
from upriver.planning import Plan, evaluate, solve
from upriver.policy import Policy, load_policy
from upriver.rollouts import Rollouts, rollouts
from upriver.saving import load_agent, save_agent
from upriver.simulate import Run, simulate

__version__ = "0.1.0"
