"""Environments: functions that return a FiniteMDP."""

from upriver.envs.riverswim import riverswim

__all__ = ["riverswim"]
