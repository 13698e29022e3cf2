"""The problem: what is true of it (`FiniteMDP`) and what a learner may see (`Task`)."""

from upriver.mdp.finite import FiniteMDP
from upriver.mdp.task import Task

__all__ = ["FiniteMDP", "Task"]
