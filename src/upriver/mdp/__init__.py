"""The problem: what is true of it (`FiniteMDP`) and what a learner may see (`Task`).

A `FactoredMDP` has too many states to list, and is its own task where its logits are not known.
"""

from upriver.mdp.factored import FactoredMDP
from upriver.mdp.finite import FiniteMDP
from upriver.mdp.task import Task

__all__ = ["FactoredMDP", "FiniteMDP", "Task"]
