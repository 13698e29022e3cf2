"""One thread or several: not a bit of a run changes, whoever learns."""

from functools import partial

import numpy as np
import pytest

import upriver as up
from tests.building import build_agent
from upriver import kernels
from upriver.agents.table import AGENTS
from upriver.features import Features
from upriver.planning import optimism


def leaves(value):
    """The bytes of every array and number in a tree of tuples."""
    if isinstance(value, tuple):
        return [x for part in value for x in leaves(part)]
    return [np.asarray(value).tobytes()] if isinstance(value, np.ndarray | float | int) else []


def played(mdp, agent, threads, monkeypatch):
    """Everything a run leaves, with every sweep in so many parts."""
    parts = []
    each = kernels.compiled.parallel_ranges
    monkeypatch.setattr(kernels, "LARGE", 0)
    monkeypatch.setattr(kernels.compiled, "thread_count", lambda: threads)
    monkeypatch.setattr(
        kernels.compiled, "parallel_ranges", lambda *x: parts.append(len(y := each(*x))) or y
    )
    run = up.simulate(mdp, agent, 6, seed=2)
    monkeypatch.undo()
    return leaves((run.returns, run.values, run.plan.policy, run.plan.v, run.state)), parts


@pytest.mark.parametrize("name", AGENTS)
def test_any_number_of_threads_gives_the_same_bytes(name, monkeypatch):
    mdp = up.envs.river_grid(3, horizon=8)
    agent = build_agent(name, mdp)
    one, _ = played(mdp, agent, 1, monkeypatch)
    for threads in (2, 3):
        several, parts = played(mdp, agent, threads, monkeypatch)
        assert several == one
        assert not parts or max(parts) >= threads


@pytest.mark.parametrize("plan", optimism.OPTIMISMS.values(), ids=list(optimism.OPTIMISMS))
@pytest.mark.parametrize("pooled", [False, True])
def test_the_plans_and_the_model_of_one_large_block(plan, pooled, rng, monkeypatch):
    mdp = up.envs.river_grid(3, horizon=8)
    task = mdp.task("local")
    shared = Features(task, rng.normal(size=(task.n_triples, 3)))
    phi = up.features.pooled(shared) if pooled else shared
    agent = up.agents.UCRLMNL(task, phi, radius=0.05, optimism=plan)
    one, _ = played(mdp, agent, 1, monkeypatch)
    several, parts = played(mdp, agent, 3, monkeypatch)
    assert several == one
    assert {3, 16} <= set(parts)
    small = up.simulate(mdp, agent, 6, seed=2)
    assert leaves((small.returns, small.values, small.plan.v)) == one[:2] + one[3:4]


def test_what_goes_wrong_in_a_thread_reaches_the_caller(monkeypatch):
    monkeypatch.setattr(kernels.compiled, "thread_count", lambda: 3)

    def work(first, last):
        if first == 40:
            raise ArithmeticError("part 4")
        return last - first

    with pytest.raises(ArithmeticError, match="part 4"):
        kernels.compiled.parallel_ranges(work, 100, 10)
    assert kernels.compiled.parallel_ranges(lambda first, last: last - first, 100, 10) == [10] * 10


def test_a_part_may_be_handed_out_itself(monkeypatch):
    """A part that waits for threads that wait for it would never end."""
    monkeypatch.setattr(kernels.compiled, "thread_count", lambda: 2)
    inside = partial(kernels.compiled.parallel_ranges, lambda first, last: last - first)
    assert kernels.compiled.parallel_ranges(lambda first, last: sum(inside(last - first)), 8) == [
        4,
        4,
    ]
