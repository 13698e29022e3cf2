import numpy as np
import pytest
from scipy import optimize

import upriver as up
from upriver.mnl.likelihood import probabilities
from upriver.planning import start_value

MDP = up.envs.riverswim(4, 10)
TASK = MDP.task("known")


def draw(rng, m, task=TASK, mdp=MDP):
    """m logged transitions of uniform play from uniform states."""
    s, a = rng.integers(task.n_states, size=m), rng.integers(task.n_actions, size=m)
    dense = np.zeros((task.n_states * task.n_actions, task.n_states))
    i, j, k = mdp.known.triples
    dense[i * task.n_actions + j, k] = mdp.probability[0]
    below = np.cumsum(dense, axis=1)[s * task.n_actions + a] < rng.random(m)[:, None]
    s2 = np.minimum(below.sum(axis=1), task.n_states - 1)
    return s, a, s2


def named(log):
    s, a, s2 = log
    return {"state": s, "action": np.array(["left", "right"])[a], "next_state": s2}


@pytest.fixture
def log(rng):
    return named(draw(rng, 3000))


@pytest.fixture
def model(log):
    return up.fit_from_log(TASK, up.features.shared(TASK), log)


def test_every_form_of_a_log_gives_the_same_fit(log, model, tmp_path):
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyarrow import parquet

    frame = pd.DataFrame(log)
    frame.to_csv(tmp_path / "log.csv", index=False)
    parquet.write_table(pa.table(log), tmp_path / "log.parquet")
    phi = up.features.shared(TASK)
    forms = [
        frame, pl.DataFrame(log), str(tmp_path / "log.csv"), tmp_path / "log.parquet",
        tuple(log.values()), np.array(list(zip(*log.values(), strict=True)), object),
    ]  # fmt: skip
    for form in forms:
        np.testing.assert_array_equal(up.fit_from_log(TASK, phi, form).counts, model.counts)
    renamed = frame.set_axis(["from", "by", "to"], axis=1)
    again = up.fit_from_log(TASK, phi, renamed, columns=("from", "by", "to"))
    np.testing.assert_array_equal(again.counts, model.counts)


def test_weights_count_rows(log, rng):
    phi = up.features.shared(TASK)
    weights = rng.integers(0, 4, size=len(log["state"]))
    repeated = {k: np.repeat(v, weights) for k, v in log.items()}
    expected = up.fit_from_log(TASK, phi, repeated)
    given = up.fit_from_log(TASK, phi, log, weights=weights)
    by_name = up.fit_from_log(TASK, phi, {**log, "times": weights}, weights="times")
    for other in (given, by_name):
        np.testing.assert_array_equal(other.counts, expected.counts)


def test_the_estimate_is_the_maximum_and_covers_the_truth(model):
    phi = model.features

    def loss(theta):
        return -float(model.counts @ np.log(probabilities(phi, theta)))

    best = optimize.minimize(loss, np.zeros(phi.dimension), method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(model.fitted.theta, best.x, atol=1e-5)
    truth = {  # log-odds against staying
        "a=1 first right": np.log(0.6 / 0.4),
        "a=1 interior left": np.log(0.05 / 0.6),
        "a=1 interior right": np.log(0.35 / 0.6),
        "a=1 last left": np.log(0.4 / 0.6),
    }
    rows = {r["name"]: r for r in model.table()}
    assert set(rows) == set(truth)
    for name, value in truth.items():
        # 3.5 standard errors, so that the fixed seed is no accident
        assert abs(rows[name]["estimate"] - value) < 3.5 * rows[name]["standard_error"]


def test_likelihood_ratio_is_calibrated_and_has_power(rng):
    """Under a true smaller model p-values are uniform; under a false one they vanish."""
    small = up.features.shared(TASK)
    s, a, s2 = TASK.triples
    extra = ((a == 1) & (s == 1) & (s2 == 2)).astype(float)[:, None]  # state 1 is not special
    large = up.Features(TASK, np.hstack([small.matrix, extra]), [*small.names, "extra"])
    p_values = []
    for _ in range(150):
        logged = named(draw(rng, 1000))
        models = [up.fit_from_log(TASK, phi, logged) for phi in (small, large)]
        test = models[1].likelihood_ratio(models[0])
        assert test.degrees == 1
        p_values.append(test.p_value)
    # Kolmogorov-Smirnov at about one in a thousand
    gap = np.abs(np.sort(p_values) - (np.arange(150) + 0.5) / 150).max()
    assert gap < 1.95 / np.sqrt(150)
    false = up.Features(TASK, small.matrix[:, [0, 2, 3]])  # that going back is as likely as staying
    logged = named(draw(rng, 1000))
    right, wrong = (up.fit_from_log(TASK, phi, logged) for phi in (small, false))
    assert right.likelihood_ratio(wrong).p_value < 1e-3


def test_models_that_cannot_be_compared(model, log, rng):
    with pytest.raises(ValueError, match="another log"):
        model.likelihood_ratio(up.fit_from_log(TASK, model.features, named(draw(rng, 3000))))
    other = up.Features(TASK, rng.normal(size=(TASK.n_triples, 2)))
    with pytest.raises(ValueError, match="not nested"):
        model.likelihood_ratio(up.fit_from_log(TASK, other, log))
    with pytest.raises(ValueError, match="must have fewer"):
        model.likelihood_ratio(model)
    with pytest.raises(ValueError, match="needs regularization=0"):
        model.likelihood_ratio(up.fit_from_log(TASK, model.features, log, regularization=1.0))


def test_goodness_of_fit_finds_the_state_that_does_not_fit(rng, model):
    assert model.goodness_of_fit().p_value > 1e-3
    assert model.goodness_of_fit().degrees == 2 * 2 + 2 - 4  # interior pairs, both ends, features
    probability = MDP.probability.copy()
    at = MDP.known.rows(2, 1)
    probability[0, at] = [0.5, 0.3, 0.2]  # state 2 is not like state 1
    odd = up.FiniteMDP(MDP.known, probability, MDP.initial_states, MDP.initial_probability)
    bad = up.fit_from_log(TASK, model.features, named(draw(rng, 3000, mdp=odd))).goodness_of_fit()
    assert bad.p_value < 1e-6
    worst = min(bad.rows, key=lambda r: r["p_value"])
    assert worst["action"] == "right" and worst["state"] in (1, 2)
    assert "chi-squared" in bad.summary()


def test_goodness_of_fit_by_hand():
    task = up.Task(2, 1, 1, [0, 2, 4], [0, 1, 0, 1], np.zeros((2, 1)))
    phi = up.Features(task, [[0.0], [1.0], [0.0], [1.0]])
    log = ([0] * 10 + [1] * 10, [0] * 20, [0] * 3 + [1] * 7 + [0] * 5 + [1] * 5)
    fit = up.fit_from_log(task, phi, log).goodness_of_fit()
    # pooled: P(1) = 12/20, so 4 and 6 expected in each state
    assert [r["statistic"] for r in fit.rows] == pytest.approx([1 / 4 + 1 / 6] * 2)
    assert fit.degrees == 1 and fit.statistic == pytest.approx(2 * (1 / 4 + 1 / 6))


def test_plans_are_ordered_and_pessimism_is_honest(rng):
    """pessimistic <= greedy <= optimistic, and a pessimistic value is a promise that is kept."""
    kept = 0
    for _ in range(60):
        model = up.fit_from_log(
            TASK, up.features.shared(TASK), named(draw(rng, 300)), regularization=1e-3
        )
        low, middle, high = (
            up.plan_with(model, how) for how in ("pessimistic", "greedy", "optimistic")
        )
        assert (low.v <= middle.v + 1e-12).all() and (middle.v <= high.v + 1e-12).all()
        kept += (low.v <= up.evaluate(MDP, low.policy) + 1e-9).all()
        kept += (high.v >= up.solve(MDP).v - 1e-9).all()
    assert kept >= 0.95 * 120


def test_greedy_plan_of_a_large_log_is_nearly_optimal(model):
    plan = up.plan_with(model)
    best = start_value(MDP, up.solve(MDP).v)
    assert start_value(MDP, up.evaluate(MDP, plan.policy)) > 0.98 * best
    assert up.Policy.from_plan(plan, TASK).act(0, 0) == "right"


def test_one_hot_and_dense_give_one_plan(log):
    sparse = up.features.one_hot(TASK)
    dense = up.Features(TASK, sparse.matrix.toarray())
    plans = [
        up.plan_with(up.fit_from_log(TASK, phi, log, regularization=0.1), "optimistic")
        for phi in (sparse, dense)
    ]
    np.testing.assert_allclose(plans[0].v, plans[1].v, rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"next_state": 3}, r"row 5 of the log goes from \(0, right\) to 3.*\[0, 1\]"),
        ({"next_state": 9}, "row 5 of the log has the next state 9; it must be 0 to 3"),
        ({"state": -1}, "row 5 of the log has the state -1"),
        ({"action": "up"}, "row 5 of the log has the action up; it must be 'left' to 'right'"),
    ],
)
def test_a_bad_row_is_named(change, message, tmp_path):
    import pandas as pd

    log = {"state": [0] * 8, "action": ["right"] * 8, "next_state": [0] * 8}
    for column, value in change.items():
        log[column][5] = value
    phi = up.features.shared(TASK)
    with pytest.raises(ValueError, match=message):
        up.fit_from_log(TASK, phi, log)
    pd.DataFrame(log).to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(ValueError, match=r"log\.csv:7 "):  # the line of the file, below the head
        up.fit_from_log(TASK, phi, tmp_path / "log.csv")
