"""Agents at work: on a known MDP, on an environment that only steps, and what they leave behind."""
