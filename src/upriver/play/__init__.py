"""Agents at work: on a known MDP, in a black box; policies, checkpoints, conversion of units."""
