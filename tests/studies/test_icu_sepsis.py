"""ICU-Sepsis: the package's own baselines, what a state has, the features, a small study."""

from importlib.util import find_spec

import numpy as np
import pytest

import upriver as up

pytestmark = pytest.mark.skipif(
    find_spec("icu_sepsis") is None, reason="the package icu-sepsis is not installed"
)


@pytest.fixture(scope="module")
def mdp():
    from studies import icu

    return icu.icu_sepsis()


def test_the_packages_baselines(mdp):
    """Survival: 0.78 of clinicians and 0.88 at best, as the package's page says."""
    from studies.icu import clinicians

    best, theirs = up.solve(mdp).v[0], up.evaluate(mdp, clinicians())[0]
    start = mdp.initial_states, mdp.initial_probability
    assert best[start[0]] @ start[1] == pytest.approx(0.88, abs=0.006)
    assert theirs[start[0]] @ start[1] == pytest.approx(0.78, abs=0.006)


def test_action_sets_and_states(mdp):
    has = mdp.true_task.available
    assert has[:713].sum(axis=1).min() >= 1 and has[:713].sum(axis=1).mean() == pytest.approx(
        3.14, abs=0.01
    )
    assert mdp.true_task.n_triples == 94_973 and (has[713:].sum(axis=1) == 1).all()
    from studies.icu import clinicians

    given = clinicians()
    assert np.allclose(given.sum(axis=1), 1.0) and (given[~has] == 0).all()
    assert mdp.true_task.actions[7] == (1, 2)


def test_a_log_is_fitted_and_planned_with_quickly(mdp):
    """A thousand rows with pooled features: a plan that beats the clinicians."""
    from studies.icu_sepsis import a_log, maps

    counts = a_log(mdp, 1000, 0)
    assert counts.sum() == 1000
    phi = maps(mdp.true_task)["shared"]
    assert phi.dimension == 14 and np.isfinite(phi.matrix).all()
    plan = up.solve(up.fit_mnl(phi, counts, 1.0).to_mdp())
    worth = up.evaluate(mdp, plan)[0][mdp.initial_states] @ mdp.initial_probability
    assert 0.83 < worth < 0.876
