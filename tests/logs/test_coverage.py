"""Do 95% intervals hold the truth in 95% of logs? Coefficients and predictions."""

import numpy as np
import pytest
from scipy import stats

import upriver as up

from . import clinic

LOGS = 500
PAIRS = [(s, a) for s, actions in clinic.ACTIONS.items() for a in actions]
AGES = (-1.0, 0.0, 1.0)


def visits(rng, n_patients, n_rows, correlation):
    """Rows of patients whose fates are tied: whoever got worse once tends to get worse again.

    The fate of a row is a quantile of the true chances, and the quantiles of a patient share a
    normal factor. So every row follows the model, and the rows of a patient depend on each other.
    """
    patient = np.repeat(np.arange(n_patients), n_rows)
    age = rng.choice(AGES, n_patients)[patient]
    pair = rng.integers(len(PAIRS), size=len(patient))
    shared = np.sqrt(correlation) * rng.normal(size=n_patients)[patient]
    fate = stats.norm.cdf(shared + np.sqrt(1 - correlation) * rng.normal(size=len(patient)))
    following = np.empty(len(patient), object)
    for i, (state, action) in enumerate(PAIRS):
        for years in AGES:
            mine = (pair == i) & (age == years)
            edges = np.cumsum(clinic.chances(state, action, years))[:-1]
            reached = np.searchsorted(edges, fate[mine])
            following[mine] = np.array(clinic.REACH[state], object)[reached]
    state, action = (np.array([p[k] for p in PAIRS], object)[pair] for k in (0, 1))
    return {
        "patient": patient,
        "state": state,
        "action": action,
        "next_state": following,
        "age": age,
    }


def covered(rng, correlation, errors):
    """Whether each interval of one log holds the truth: (coefficients, predictions)."""
    log = visits(rng, 150, 10, correlation)
    model = up.fit_transitions(
        clinic.FORMULA,
        log,
        states=clinic.moves(),
        successors=lambda s, a: clinic.REACH[s] if a in clinic.ACTIONS.get(s, ()) else (),
        cluster="patient",
    ).with_errors(errors)
    theta = np.array([clinic.TRUTH[name] for name in model.fitted.names])
    half = 1.959964 * model.fitted.standard_errors
    coefficients = np.abs(model.fitted.theta - theta) <= half
    new = {
        "state": [s for s, _ in PAIRS],
        "action": [a for _, a in PAIRS],
        "age": [-1.0, 0.0, 1.0, 0.5, 0.0, 1.0],
    }
    shown = model.predict(new)
    chances = []
    for s, a, age, following in shown[["state", "action", "row", "next_state"]].to_numpy():
        at = clinic.REACH[s].index(following)
        chances.append(clinic.chances(s, a, new["age"][age])[at])
    predictions = (shown["low"] <= chances) & (chances <= shown["high"])
    return coefficients, predictions.to_numpy()


@pytest.mark.slow
@pytest.mark.parametrize(("correlation", "errors"), [(0.0, "classical"), (0.5, "cluster")])
def test_intervals_cover(correlation, errors):
    """In 93 to 97% of 500 logs, on average over what is covered; none far from it."""
    rng = np.random.default_rng(18)
    logs = [covered(rng, correlation, errors) for _ in range(LOGS)]
    for i, kind in enumerate(("coefficients", "predictions")):
        share = np.mean([found[i] for found in logs], axis=0)
        print(f"{errors}, {kind}: {share.mean():.3f}, from {share.min():.3f} to {share.max():.3f}")
        assert 0.93 <= share.mean() <= 0.97, (kind, share)
        assert share.min() > 0.91 and share.max() < 0.99, (kind, share)  # four standard errors


@pytest.mark.slow
def test_intervals_that_ignore_clusters_do_not_cover():
    """The dependence above is one that matters: classical intervals are much too short."""
    rng = np.random.default_rng(19)
    found = [covered(rng, 0.5, "classical")[0] for _ in range(60)]
    assert np.mean(found, axis=0).min() < 0.85
