"""Reinforcement learning with multinomial-logistic transition models: UCRL-MNL and its peers."""

from upriver import envs, features, optimism
from upriver.agents import Always, Optimal, Random
from upriver.agents.ucrl_mnl import UCRLMNL
from upriver.confidence import (
    constant_radius,
    corrected_radius,
    elliptical_norms,
    gram_matrix,
    lemma1_radius,
    scaled_radius,
    theory_regularization,
)
from upriver.features import Features
from upriver.mdp import FiniteMDP, Task
from upriver.planning import Plan, evaluate, solve
from upriver.simulate import Run, simulate

__version__ = "0.1.0"
