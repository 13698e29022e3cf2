"""What `upriver` exports, for type checkers and editors; __init__.py loads it on demand."""

from upriver import agents as agents
from upriver import envs as envs
from upriver import experiments as experiments
from upriver import features as features
from upriver.diagnostics import coverage as coverage
from upriver.diagnostics import diagnose as diagnose
from upriver.features import Features as Features
from upriver.logs.decision import decide as decide
from upriver.logs.fit import fit_transitions as fit_transitions
from upriver.logs.model import TransitionModel as TransitionModel
from upriver.logs.offpolicy import check_policy_value as check_policy_value
from upriver.logs.planning import plan_from_model as plan_from_model
from upriver.logs.reward_model import RewardModel as RewardModel
from upriver.logs.reward_model import fit_rewards as fit_rewards
from upriver.logs.value import cohort_trace as cohort_trace
from upriver.logs.value import compare_policies as compare_policies
from upriver.logs.value import policy_value as policy_value
from upriver.mdp import FactoredMDP as FactoredMDP
from upriver.mdp import FiniteMDP as FiniteMDP
from upriver.mdp import Task as Task
from upriver.mnl import radii as radii
from upriver.mnl.fit import fit_choices as fit_choices
from upriver.mnl.fit import fit_mnl as fit_mnl
from upriver.mnl.fitted import FittedMNL as FittedMNL
from upriver.mnl.newton import ConvergenceWarning as ConvergenceWarning
from upriver.planning import Plan as Plan
from upriver.planning import StationaryPlan as StationaryPlan
from upriver.planning import evaluate as evaluate
from upriver.planning import optimism as optimism
from upriver.planning import solve as solve
from upriver.planning.rollouts import rollout_policy as rollout_policy
from upriver.play.animation import animate as animate
from upriver.play.blackbox import LearningRun as LearningRun
from upriver.play.blackbox import learn as learn
from upriver.play.checkpoints import load_agent as load_agent
from upriver.play.checkpoints import save_agent as save_agent
from upriver.play.policy import Policy as Policy
from upriver.play.policy import load_policy as load_policy
from upriver.play.rollouts import Rollouts as Rollouts
from upriver.play.rollouts import rollouts as rollouts
from upriver.play.simulate import Run as Run
from upriver.play.simulate import simulate as simulate
from upriver.results.runs import load_runs as load_runs

__version__: str
__all__: list[str]
