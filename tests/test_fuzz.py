"""Wrong kinds, shapes and ranges in every public call: a sentence of ours, never a signal."""

import os
import subprocess
import sys

import pytest

from upriver.agents.base import CheckedAgent
from upriver.agents.table import AGENTS


def drive(seed, calls):
    command = [sys.executable, "-m", "tests.fuzz", str(seed), str(calls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=os.environ)
    assert done.returncode == 0, (
        f"ended with {done.returncode}: {done.stdout[-3000:]}{done.stderr[-2000:]}"
    )


def test_a_few_hundred_calls():
    drive(0, 400)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_twenty_thousand_calls(seed):
    drive(seed, 4400)


def test_every_agent_checks_what_it_is_given():
    """Their own methods are `make_plan` and `advance`; those of the base check and call them."""
    replaced = [x for x, kind in AGENTS.items() if {"plan", "update"} & kind.__dict__.keys()]
    assert replaced == [] and all(issubclass(kind, CheckedAgent) for kind in AGENTS.values())
