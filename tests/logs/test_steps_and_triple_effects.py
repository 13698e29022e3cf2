"""Coefficients that differ by step, and triples that differ from the formula."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import upriver as up

from . import clinic
from .test_coverage import visits

NAMES = ["worse", "better", "death"]
PAYS = {"well": 1.0, "ill": 0.6, "bad": 0.2, "dead": 0.0}


@pytest.fixture(scope="module")
def frame():
    log = pd.DataFrame(visits(np.random.default_rng(2), 300, 10, 0.0))
    return log.assign(week=np.arange(len(log)) % 3)


@pytest.fixture(scope="module")
def weekly(frame):
    formula = "worse + better + death + age:worse"
    return up.fit_transitions(formula, frame, states=clinic.moves(), per_step="week")


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


def test_a_list_of_columns_by_step(frame):
    given = {"states": clinic.moves(), "per_step": "week"}
    formula = up.fit_transitions("worse + better + death", frame, **given)
    listed = up.fit_transitions(NAMES, frame, **given)
    np.testing.assert_allclose(listed.fitted.theta, formula.fitted.theta, rtol=1e-7)
    assert listed.fitted.names[:2] == ["worse:C(week)[0]", "worse:C(week)[1]"]


def test_a_plan_goes_through_the_steps(weekly):
    fixed = weekly.at({"age": 0.0}, horizon=3, reward=lambda s, a: PAYS[s])
    assert len(fixed.steps) == 3
    row = {"state": ["ill"], "action": ["drug"], "age": [0.0]}
    s, a = list(weekly.log.space.states).index("ill"), list(weekly.log.space.actions).index("drug")
    for week in range(3):
        shown = weekly.predict(row | {"week": [week]}).set_index("next_state")["probability"]
        at = fixed.task.rows(s, a)
        names = [weekly.log.space.states[i] for i in fixed.task.successors[at]]
        np.testing.assert_allclose(fixed.prob[week, at], shown[names], rtol=1e-12)
    assert up.plan_from_model(fixed).v.shape == (4, 4)
    with pytest.raises(ValueError, match=r"horizon is 5; the log has 3 steps, .* which 'week'"):
        weekly.at({"age": 0.0}, horizon=5)
    with pytest.raises(ValueError, match=r"column 'week' holds 7, which the log does not"):
        weekly.predict(row | {"week": [7]})


def test_own_effects_are_those_of_pooled_features(frame):
    """Without covariates: the estimate of compiled code on features, the shared part left free."""
    model = up.fit_transitions(
        "worse + better", frame, states=clinic.moves(), successors="state", pooled=True
    )
    pays = lambda s, a: PAYS[s]  # noqa: E731
    model = model.at(horizon=3, reward=pays)
    task, phi = model.task, model.features
    shared = up.features.Features(task, phi.matrix[:, :2], names=["worse", "better"])
    tiny = 1e-6  # a ridge of nothing on the shared part
    made = up.features.pooled(shared, model.fitted.triple_effect_sd * np.sqrt(tiny))
    existing = [tuple(r) for r in frame[["state", "action", "next_state"]].to_numpy()]
    other = up.fit_transitions(
        pd.DataFrame(existing, columns=["state", "action", "next_state"]),
        features=made,
        task=task,
        regularization=tiny,
    )
    np.testing.assert_allclose(other.fitted.theta[:2], model.fitted.theta[:2], rtol=1e-4)
    theirs = {(r["state"], r["action"], r["next_state"]): r for r in other.fitted.triple_effects()}
    ours = model.fitted.triple_effects()
    assert len(ours) == 17 - 6 and ours[0]["z"] ** 2 >= ours[-1]["z"] ** 2
    for r in ours:
        same = theirs[r["state"], r["action"], r["next_state"]]
        assert r["effect"] == pytest.approx(same["effect"], rel=1e-3, abs=1e-6)
        assert r["standard_error"] == pytest.approx(same["standard_error"], rel=1e-3)
        assert r["visits"] == same["visits"]
    assert other.fitted.triple_effect_sd == pytest.approx(model.fitted.triple_effect_sd, rel=0.05)


def test_own_effects_mend_a_wrong_formula_and_leave_a_right_one_alone(frame):
    right = up.fit_transitions(clinic.FORMULA, frame, states=clinic.moves(), pooled=True)
    wrong = up.fit_transitions("age:worse", frame, states=clinic.moves(), pooled=True)
    assert right.fitted.triple_effect_sd < 0.35 < 0.6 < wrong.fitted.triple_effect_sd
    assert all(abs(r["z"]) < 3.0 for r in right.fitted.triple_effects())
    assert "triple effects of 11 triples" in wrong.summary()
    assert [r["name"] for r in wrong.table()] == ["age:worse"]
    alone = up.fit_transitions("age:worse", frame, states=clinic.moves())
    assert wrong.goodness_of_fit(19).statistic < 20.0 < 200.0 < alone.goodness_of_fit(19).statistic
    new = {"state": ["bad"], "action": ["surgery"], "age": [0.0]}
    shown = wrong.predict(new).set_index("next_state")["probability"]
    truth = dict(zip(clinic.REACH["bad"], clinic.chances("bad", "surgery", 0.0), strict=True))
    for following, p in truth.items():
        assert shown[following] == pytest.approx(p, abs=0.06)
    fixed = wrong.at({"age": 0.0}, horizon=4, reward=lambda s, a: PAYS[s])
    worth = up.policy_value(fixed, up.plan_from_model(fixed), start="bad")
    assert worth.low < worth.value < worth.high


def tied_log(rng, n_patients=40, n_rows=60, correlation=0.6):
    """Rows that follow the clinic's model; those of one patient and pair share a normal factor."""
    pairs = [(s, a) for s, actions in clinic.ACTIONS.items() for a in actions]
    shared = rng.normal(size=(n_patients, len(pairs), 1))
    noise = rng.normal(size=(n_patients, len(pairs), n_rows))
    fate = stats.norm.cdf(np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * noise)
    rows = []
    for (patient, pair, _), quantile in np.ndenumerate(fate):
        s, a = pairs[pair]
        reached = np.searchsorted(np.cumsum(clinic.chances(s, a, 0.0))[:-1], quantile)
        rows.append((patient, s, a, clinic.REACH[s][reached]))
    return pd.DataFrame(rows, columns=["patient", "state", "action", "next_state"])


def test_z_values_of_triple_effects_are_sane_where_rows_depend_on_each_other():
    """The formula is right, so z is like a standard normal variable or, being shrunk, smaller.

    Errors that take the rows for independent find effects where there are none.
    """
    z = {"cluster": [], "classical": []}
    for seed in range(8):
        model = up.fit_transitions(
            "worse + better + death + action:better", tied_log(np.random.default_rng(seed)),
            states=clinic.moves(), cluster="patient", pooled=True,
            successors=lambda s, a: clinic.REACH[s] if a in clinic.ACTIONS.get(s, ()) else (),
        )  # fmt: skip
        for kind, found in z.items():
            found += [r["z"] for r in model.fitted.with_errors(kind).triple_effects()]
    ours, naive = np.array(z["cluster"]), np.array(z["classical"])
    assert len(ours) == 8 * 11
    assert np.sqrt(np.mean(ours**2)) < 0.9 and np.abs(ours).max() < 3.5
    assert np.mean(np.abs(ours) > stats.t.ppf(0.975, 39)) <= 0.05
    assert np.sqrt(np.mean(ours**2)) > 0.3  # and no error so large that nothing could be found
    assert np.sqrt(np.mean(naive**2)) > 1.0 and np.mean(np.abs(naive) > 1.96) > 0.05
