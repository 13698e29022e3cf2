"""Coefficients that differ by step."""

import numpy as np
import pandas as pd
import pytest

import upriver as up

from . import clinic
from .test_coverage import visits

PAYS = {"well": 1.0, "ill": 0.6, "bad": 0.2, "dead": 0.0}


@pytest.fixture(scope="module")
def frame():
    log = pd.DataFrame(visits(np.random.default_rng(2), 300, 10, 0.0))
    return log.assign(week=np.arange(len(log)) % 3)


@pytest.fixture(scope="module")
def weekly(frame):
    formula = "(worse + better + death + age:worse):C(week)"
    return up.fit_transitions(formula, frame, states=clinic.moves())


def test_every_step_is_a_fit_of_its_own(frame, weekly):
    total = 0.0
    for week in (0, 1, 2):
        alone = up.fit_transitions(
            "worse + better + death + age:worse",
            frame[frame["week"] == week],
            states=clinic.moves(),
            successors=lambda s, a: clinic.REACH[s] if a in clinic.ACTIONS.get(s, ()) else (),
        )
        at = [weekly.fitted.names.index(f"{c}:C(week)[{week}]") for c in alone.fitted.names]
        np.testing.assert_allclose(weekly.fitted.theta[at], alone.fitted.theta, rtol=1e-6)
        errors = weekly.fitted.standard_errors[at]
        np.testing.assert_allclose(errors, alone.fitted.standard_errors, rtol=1e-5)
        total += alone.fitted.log_likelihood
    assert weekly.fitted.log_likelihood == pytest.approx(total, rel=1e-9)


def test_a_plan_goes_through_the_steps(weekly):
    fixed = weekly.at(age=0.0, week=[0, 1, 2], horizon=3, reward=lambda s, a: PAYS[s])
    assert len(fixed.steps) == 3
    row = {"state": ["ill"], "action": ["drug"], "age": [0.0]}
    s, a = list(weekly.log.space.states).index("ill"), list(weekly.log.space.actions).index("drug")
    for week in range(3):
        shown = weekly.predict(row | {"week": [week]}).set_index("next_state")["probability"]
        at = fixed.task.rows(s, a)
        names = [weekly.log.space.states[i] for i in fixed.task.successors[at]]
        np.testing.assert_allclose(fixed.prob[week, at], shown[names], rtol=1e-12)
    assert up.plan_from_model(fixed).v.shape == (4, 4)
    with pytest.raises(ValueError, match=r"at\['week'\] has 3 values; there must be one, or 5"):
        weekly.at(age=0.0, week=[0, 1, 2], horizon=5)
    with pytest.raises(ValueError, match=r"C\(week\) holds 7, which the log does not"):
        weekly.predict(row | {"week": [7]})
