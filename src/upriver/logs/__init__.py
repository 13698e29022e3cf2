"""Logged transitions: reading them, fitting them, planning with what was fitted."""
