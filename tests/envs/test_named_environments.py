"""Properties of every environment that has a name."""

import numpy as np
import pytest

import upriver as up
from upriver.envs import ENVIRONMENTS

SIZES = {"bus-engine": (11, 30), "deep-sea": (4, 9)}
EXACT = ["queue", "random-mnl", "river-grid"]


def supports(mdp):
    return ("known", "full") if mdp.local is None else ("known", "local", "full")


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_natural_features_do_not_grow_with_the_states(name):
    small, large = (up.envs.make(f"{name}-{n}") for n in SIZES.get(name, (5, 11)))
    for support in supports(small):
        shared = ENVIRONMENTS[name].shared
        if shared is up.features.changes and support == "full":
            continue  # every difference of two states is declared possible
        assert shared(small.task(support)).names == shared(large.task(support)).names
    assert small.name == f"{name}-{SIZES.get(name, (5, 11))[0]}"


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("support", ["known", "local"])
def test_natural_features_realise_it_exactly(name, support):
    mdp = up.envs.make(name)
    if support in supports(mdp):
        found = up.diagnose(mdp, ENVIRONMENTS[name].shared(mdp.task(support)))
        assert found.core.realizable and found.core.error < 1e-12


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_optimum_beats_chance_and_the_best_single_action(name):
    mdp = up.envs.make(name)
    shape = mdp.n_states, mdp.n_actions
    start = mdp.initial_states[0]
    best = up.solve(mdp).v[0, start]
    constant = [up.evaluate(mdp, np.full(shape[0], a))[0, start] for a in range(shape[1])]
    assert best >= max(constant) - 1e-12
    assert best > up.evaluate(mdp, np.full(shape, 1.0 / shape[1]))[0, start] + 1e-3


@pytest.mark.parametrize("name", ["deep-sea", "random-mnl", "river-grid"])
def test_features_refuse_the_states_of_another_environment(name):
    made_for = f"made for the states of {name.replace('-', '_')}; the task's are numbers"
    with pytest.raises(ValueError, match=made_for):
        ENVIRONMENTS[name].shared(up.envs.riverswim(4).true_task)
