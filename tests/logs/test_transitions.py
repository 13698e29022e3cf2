"""Models of a frame: against independent estimators, hand-made expansions and the truth."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import upriver as up

from . import clinic


@pytest.fixture(scope="module")
def frame():
    return pd.DataFrame(clinic.visits(np.random.default_rng(5), 400))


def test_a_pair_with_one_next_state_needs_no_attributes(rng):
    """The log never leaves `end`, so the table of moves says nothing of it."""
    cells = {"state": ["a"] * 60, "action": ["x"] * 60}
    log = {**cells, "next_state": rng.choice(["a", "end"], 60)}
    moves = {"state": ["a", "a"], "next_state": ["a", "end"], "far": [0.0, 1.0]}
    model = up.fit_transitions(
        "far", log, states=moves, horizon=3, reward={"end": 1.0},
        successors=lambda s, a: ["end"] if s == "end" else ["a", "end"],
    )  # fmt: skip
    p = float(np.mean(log["next_state"] == "end"))
    assert model.transitions("end", "x")[0]["probability"] == 1.0
    assert up.policy_value(model.at(start="a"), "x").value == pytest.approx(p + 1 - (1 - p) ** 2)


@pytest.fixture(scope="module")
def model(frame):
    return up.fit_transitions(clinic.FORMULA, frame, states=clinic.moves(), cluster="patient")


def by_hand(frame):
    """The expanded table of the clinic, written out: X, chosen, situation."""
    names = list(clinic.TRUTH)
    rows, chosen, groups = [], [], []
    for i, r in enumerate(frame.itertuples()):
        here = clinic.STATES.index(r.state)
        for following in sorted(clinic.REACH[r.state]):
            jump = clinic.STATES.index(following) - here
            better = float(jump < 0)
            rows.append([
                float(jump > 0), better, float(following == "dead"), better * (r.action == "rest"),
                better * (r.action == "surgery"), r.age * (jump > 0),
            ])  # fmt: skip
            chosen.append(following == r.next_state)
            groups.append(i)
    return np.array(rows), np.array(chosen), np.array(groups), names


def test_the_fit_is_that_of_the_expanded_table(frame, model):
    x, chosen, groups, names = by_hand(frame)
    plain = up.fit_choices(x, chosen, groups, names=names)
    assert list(model.fitted.names) == names
    np.testing.assert_allclose(model.fitted.theta, plain.theta, rtol=1e-7)
    assert model.fitted.log_likelihood == pytest.approx(plain.log_likelihood, rel=1e-10)
    assert model.fitted.null_log_likelihood == pytest.approx(plain.null_log_likelihood, rel=1e-10)
    classical = model.with_errors("classical").fitted
    np.testing.assert_allclose(classical.standard_errors, plain.standard_errors, rtol=1e-6)
    assert len(model.log.data.visits) < len(frame) / 5  # equal rows are counted once


def test_statsmodels_agrees(frame, model):
    """Conditional logit of another package: coefficients, classical errors, log-likelihood."""
    discrete = pytest.importorskip("statsmodels.discrete.conditional_models")
    x, chosen, groups, _ = by_hand(frame)
    other = discrete.ConditionalLogit(chosen.astype(float), x, groups=groups).fit(
        method="newton", maxiter=50, disp=False
    )
    np.testing.assert_allclose(model.fitted.theta, other.params, rtol=1e-5)
    classical = model.with_errors("classical").fitted
    np.testing.assert_allclose(classical.standard_errors, other.bse, rtol=1e-5)
    assert model.fitted.log_likelihood == pytest.approx(other.llf, rel=1e-9)


def test_sandwiches_are_those_of_the_scores(frame, model):
    """Robust and cluster covariances from scores of single rows, written out."""
    x, chosen, groups, _ = by_hand(frame)
    p = np.exp(x @ model.fitted.theta)
    p /= np.bincount(groups, p)[groups]
    scores = np.zeros((len(frame), x.shape[1]))
    np.add.at(scores, groups, (chosen - p)[:, None] * x)
    bread = np.linalg.inv(model.fitted.information)
    robust = bread @ scores.T @ scores @ bread
    np.testing.assert_allclose(model.with_errors("robust").fitted.covariance, robust, rtol=1e-6)
    sums = np.zeros((400, x.shape[1]))
    np.add.at(sums, frame["patient"].to_numpy(), scores)
    clustered = bread @ sums.T @ sums @ bread * 400 / 399
    np.testing.assert_allclose(model.fitted.covariance, clustered, rtol=1e-6)
    assert "400 clusters" in model.summary()
    with pytest.raises(ValueError, match="'classical', 'robust' or 'cluster'"):
        model.with_errors("hc3")


def test_every_kind_of_frame_gives_the_same_fit(frame, model, tmp_path):
    import polars as pl
    import pyarrow as pa
    from pyarrow import parquet

    frame.to_csv(tmp_path / "log.csv", index=False)
    table = pa.Table.from_pandas(frame)
    parquet.write_table(table, tmp_path / "log.parquet")
    files = [tmp_path / "log.csv", str(tmp_path / "log.parquet")]
    for given in [pl.from_pandas(frame), table, dict(frame), *files]:
        again = up.fit_transitions(clinic.FORMULA, given, states=pd.DataFrame(clinic.moves()))
        np.testing.assert_allclose(again.fitted.theta, model.fitted.theta, rtol=1e-9)


def test_factors_of_situations_moves_and_rows_are_multiplied(frame):
    """Products of factors of situations, of moves and of rows are the columns of the formula."""
    wards = frame.assign(
        ward=np.where(frame["patient"] % 2, "east", "west"), mood=frame["patient"] % 5 / 3
    )
    formula = (
        "worse + better + action:better + bs(mood, df=4):ward:worse + C(age):better + 2:death"
        " + I(mood > age * worse)"
    )
    given = {"states": clinic.moves(), "cluster": "patient"}
    made = up.fit_transitions(formula, wards, **given)
    # the rows of the fit are those that predict makes of the expanded table
    from upriver.logs.situations import expand

    x = made.log.design.rows(expand(made.log.space, made.log.situations, lambda name: True))
    np.testing.assert_allclose(made.log.data.x[:], x, rtol=1e-12, atol=1e-15)
    smaller = up.fit_transitions("worse + better", wards, states=clinic.moves())
    larger = up.fit_transitions(formula, wards, states=clinic.moves())
    assert larger.likelihood_ratio(smaller).degrees == len(larger.fitted.theta) - 2


def test_the_columns_are_those_of_formulaic(frame):
    """Factor by factor as on the whole expanded table, in names, order and values."""
    import formulaic

    from upriver.logs.situations import expand

    wards = frame.assign(ward=np.where(frame["patient"] % 3, "east", "west"))
    for formula in (
        "next_state + next_state:action",
        "action:ward:next_state",
        "C(age):worse + worse + ward:worse",
        "0 + ward:better + {age**2}:worse + I(worse > 0):age",
        "poly(age, 2):worse + 3:better:age",
    ):
        model = up.fit_transitions(formula, wards, states=clinic.moves(), regularization=1.0)
        table = expand(model.log.space, model.log.situations, lambda name: True)
        whole = formulaic.model_matrix(formula, pd.DataFrame(table), output="pandas")
        names = [c.name for c in model.log.design.recipe.columns]
        assert names == list(whole.columns)
        if "poly" in formula:  # which learns from what it sees: situations, not candidates
            continue
        every = model.log.design.recipe.rows(table, np.arange(len(names)))
        np.testing.assert_allclose(every, whole.to_numpy(float), rtol=1e-12)


def test_weights_columns_and_other_names(frame, model):
    counted = frame.groupby(["state", "action", "next_state", "age"], as_index=False).size()
    short = up.fit_transitions(clinic.FORMULA, counted, states=clinic.moves(), weights="size")
    np.testing.assert_allclose(short.fitted.theta, model.fitted.theta, rtol=1e-8)
    names = {"state": "von", "action": "tat", "next_state": "nach"}
    told = {names.get(k, k): v for k, v in clinic.moves().items()}
    other = up.fit_transitions(
        clinic.FORMULA.replace("action", "tat"), frame.rename(columns=names), states=told,
        columns=("von", "tat", "nach"),
    )  # fmt: skip
    np.testing.assert_allclose(other.fitted.theta, model.fitted.theta, rtol=1e-9)


def test_attributes_of_states_and_of_candidates(frame):
    """From a table of states: under their names for the state, with _next for the candidate."""
    table = pd.DataFrame({"state": clinic.STATES, "level": [0, 1, 2, 3]})
    formula = "I(level_next > level) + I(level_next < level) + I(level_next == 3)"
    by_level = up.fit_transitions(formula, frame, states=table)
    plain = up.fit_transitions("worse + better + death", frame, states=clinic.moves())
    np.testing.assert_allclose(by_level.fitted.theta, plain.fitted.theta, rtol=1e-8)
    assert list(by_level.log.space.states) == clinic.STATES  # in the order of the table


def test_reference_categories_are_left_out_and_named(frame):
    """One next state of each kind is the reference; a plain multinomial model is saturated."""
    model = up.fit_transitions("next_state", frame[frame["state"] == "ill"])
    assert model.fitted.names == ["next_state[T.ill]", "next_state[T.well]"]
    n = frame[frame["state"] == "ill"]["next_state"].value_counts()
    odds = np.array([n["ill"], n["well"]]) / n["bad"]
    np.testing.assert_allclose(model.fitted.theta, np.log(odds), rtol=1e-7)
    crossed = up.fit_transitions("action:next_state", frame[frame["state"] == "ill"])
    assert len(crossed.fitted.theta) == 4 and len(crossed.log.design.dropped) == 1
    assert "reference (no coefficient)" in crossed.summary()


def test_predictions_and_their_intervals(frame, model):
    rows = frame.head(7)
    table = model.predict(rows, confidence=0.9)
    np.testing.assert_allclose(table.groupby("row")["probability"].sum(), 1.0)
    assert ((table["low"] < table["probability"]) & (table["probability"] < table["high"])).all()
    # the standard error by finite differences in every coefficient
    shift = 1e-6
    from dataclasses import replace

    columns = []
    for j in range(len(model.fitted.theta)):
        theta = model.fitted.theta.copy()
        theta[j] += shift
        moved = replace(model, fitted=replace(model.fitted, theta=theta))
        columns.append((moved.predict(rows)["probability"] - table["probability"]) / shift)
    gradient = np.array(columns).T
    expected = np.sqrt(np.einsum("ij,jk,ik->i", gradient, model.fitted.covariance, gradient))
    np.testing.assert_allclose(table["standard_error"], expected, rtol=1e-4)


def test_tests_of_terms(frame, model):
    smaller = up.fit_transitions("worse + better + death + age:worse", frame, states=clinic.moves())
    ratio = model.likelihood_ratio(smaller)
    difference = 2 * (model.fitted.log_likelihood - smaller.fitted.log_likelihood)
    assert ratio == pytest.approx((difference, 2, stats.chi2.sf(difference, 2)))
    wald = model.with_errors("classical").wald("action:better")
    assert wald.degrees == 2 and wald.statistic == pytest.approx(ratio.statistic, rel=0.2)
    one = model.wald("age:worse")
    row = next(r for r in model.table() if r["name"] == "age:worse")
    assert one.statistic == pytest.approx(row["z"] ** 2)
    assert one.p_value == pytest.approx(row["p_value"])
    with pytest.raises(ValueError, match="no coefficient or term 'wards'"):
        model.wald("wards")


def test_a_true_model_fits_and_a_wrong_one_does_not(frame, model):
    fine = model.with_errors("classical").goodness_of_fit(199)
    assert fine.p_value > 0.01 and fine.degrees == 17 - 6 - 5  # that of age fixes no cell
    wrong = up.fit_transitions("worse + better", frame, states=clinic.moves()).goodness_of_fit(199)
    assert wrong.p_value == 1 / 200


def test_a_plan_at_fixed_covariates(frame, model):
    pays = {"well": 1.0, "ill": 0.6, "bad": 0.2, "dead": 0.0}
    values = []
    for age in (-1.0, 0.0, 1.0):
        at = model.at(age=age, horizon=12, reward=lambda s, a: pays[s])
        mdp = at.at(start="ill").to_mdp()
        plan = up.plan_from_model(model.at({"age": age}, horizon=12, reward=lambda s, a: pays[s]))
        np.testing.assert_allclose(plan.v, up.solve(mdp).v, rtol=1e-12)
        values.append(plan.v[0, list(model.log.space.states).index("ill")])
        # the same chances as predict
        row = pd.DataFrame({"state": ["bad"], "action": ["surgery"], "age": [age]})
        shown = model.predict(row).set_index("next_state")["probability"]
        s, a = (
            list(model.log.space.states).index("bad"),
            list(model.log.space.actions).index("surgery"),
        )
        at = mdp.true_task.rows(s, a)
        names = [model.log.space.states[i] for i in mdp.true_task.successors[at]]
        np.testing.assert_allclose(mdp.probability[0, at], shown[names], rtol=1e-12)
    assert values[0] > values[1] > values[2]  # the old die sooner
    ageing = model.at({"age": np.linspace(-1, 1, 12)}, horizon=12, reward=lambda s, a: pays[s])
    ill = list(model.log.space.states).index("ill")
    assert values[0] > up.plan_from_model(ageing).v[0, ill] > values[2]
    careful = up.plan_from_model(ageing.at(start="ill"), "cautious")
    assert careful.v[0, ill] < up.plan_from_model(ageing).v[0, ill]


def test_an_absorbing_state_stays_and_features_match_the_fit(model):
    at = model.at(age=0.0, horizon=5)
    task, phi = at.task, at.steps[0]
    dead = list(task.states).index("dead")
    for a in range(task.n_actions):
        successors = task.successors[task.rows(dead, a)]
        assert successors.tolist() in ([dead], [])
    from upriver.mnl.likelihood import probabilities

    np.testing.assert_allclose(probabilities(phi, model.fitted.theta), at.prob[0], rtol=1e-12)


MOVES = clinic.moves()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"formula": "worse + age"}, "'age' is the same for every next state .* interact it"),
        ({"formula": "worse + better + I(2 * worse)"}, r"'I\(2 \* worse\)' is a combination of 'w"),
        ({"formula": "worse + nosuch"}, "nosuch.*The columns are"),
        ({"formula": "worse +* better"}, "cannot be used"),
        ({"formula": "np.log(age - 1):worse"}, "must be finite"),
        ({"columns": ("state", "next_state")}, "must name the state, the action and the next"),
        ({"successors": "near"}, "successors is 'near'; as a word it must be 'all'"),
        ({"successors": lambda s, a: ["well"]}, "of the frame goes .* declared successors 'well'"),
        ({"cluster": "ward"}, "frame has no column 'ward'"),
        ({"weights": "times"}, "frame has no column 'times'"),
        ({"regularization": -1.0}, "regularization is -1.0"),
        ({"states": {"state": ["well"], "level": [1]}}, "row 21 of the frame has the state 'bad'"),
    ],
)  # fmt: skip
def test_mistakes_are_named(change, message):
    frame = clinic.visits(np.random.default_rng(1), 120)
    given = {"formula": clinic.FORMULA, "frame": frame, "states": MOVES, **change}
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=message):
        up.fit_transitions(**given)


def test_gaps_and_unknown_words_are_named(frame, model, tmp_path):
    gaps = frame.head(50).copy()
    gaps.loc[7, "age"] = np.nan
    with pytest.raises(ValueError, match="row 7 of the frame has no 'age'; fill it in"):
        up.fit_transitions(clinic.FORMULA, gaps, states=MOVES)
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    with pytest.raises(ValueError, match=r"gaps\.csv:9 has no 'age'"):
        up.fit_transitions(clinic.FORMULA, tmp_path / "gaps.csv", states=MOVES)
    wards = frame.assign(ward=np.where(frame["patient"] % 2, "east", "west"))
    by_ward = up.fit_transitions("worse + better + death + ward:worse", wards, states=MOVES)
    with pytest.raises(ValueError, match=r"column 'ward' holds 'north'.* 'east', 'west'"):
        by_ward.predict(wards.head(2).assign(ward="north"))
    by_east = up.fit_transitions("worse + better + I(ward == 'east'):worse", wards, states=MOVES)
    for unknown in ("north", 1):
        with pytest.raises(ValueError, match=f"column 'ward' holds {unknown!r}.* 'east', 'west'"):
            by_east.at(ward=unknown, horizon=3)
    for call in (
        lambda: model.predict(frame.head(1).assign(age="old")),
        lambda: model.at(age="old"),
    ):
        with pytest.raises(ValueError, match=r"column 'age' holds 'old'.* must be a number"):
            call()
    with pytest.raises(ValueError, match="the state 'gone'"):
        model.predict(frame.head(1).assign(state="gone"))
    with pytest.raises(
        ValueError, match="at names 'weight'; the covariates of the model are 'age'"
    ):
        model.at({"age": 1.0, "weight": 2.0}, horizon=3)
    with pytest.raises(ValueError, match=r"at\['age'\] has 2 values.* or 3, one for each step"):
        model.at({"age": [1.0, 2.0]}, horizon=3)
    for given in ({0: 1.0}, {1, 2, 3}, [[1.0], [2.0, 3.0], [4.0]], np.ones((3, 2)), [{}, {}, {}]):
        with pytest.raises(ValueError, match=r"at\['age'\] is .* one value, or one for each step"):
            model.at(age=given, horizon=3)


def test_any_sequence_may_hold_the_values_of_the_steps(model):
    """A range, array, iterator or series with any index; an array of no dimension is one value."""
    expected = model.at(age=[60, 61, 62], horizon=3).prob
    series = pd.Series([60, 61, 62], index=[7, 8, 9])
    for given in (range(60, 63), series, np.arange(60, 63), (60, 61, 62), iter([60, 61, 62])):
        np.testing.assert_array_equal(model.at(age=given, horizon=3).prob, expected)
    one = model.at(age=np.array(60), horizon=3)
    np.testing.assert_array_equal(one.prob, model.at(age=60, horizon=3).prob)


def test_a_function_may_return_any_sequence_of_successors(frame):
    states = sorted({*frame["state"], *frame["next_state"]})
    fits = [
        up.fit_transitions("next_state", frame, successors=successors).params
        for successors in ("all", lambda s, a: np.array(states), lambda s, a: pd.Series(states))
    ]
    assert fits[0].equals(fits[1]) and fits[0].equals(fits[2])
    for nothing in ([], None, np.empty(0)):
        with pytest.raises(ValueError, match=r"not among the declared successors \(none\)"):
            up.fit_transitions("next_state", frame, successors=lambda s, a, x=nothing: x)


def test_nothing_of_it_is_imported_before_it_is_used():
    import subprocess
    import sys

    code = "import sys, upriver; print({'formulaic', 'pandas', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_statsmodels_names(frame, model):
    """Estimates under the names of statsmodels, equal to its own where it has them."""
    discrete = pytest.importorskip("statsmodels.discrete.conditional_models")
    x, chosen, groups, _ = by_hand(frame)
    other = discrete.ConditionalLogit(chosen.astype(float), x, groups=groups).fit(
        method="newton", maxiter=50, disp=False
    )
    classical = model.with_errors("classical")
    assert list(classical.params.index) == list(clinic.TRUTH)
    for name in ("params", "bse", "tvalues", "pvalues"):
        np.testing.assert_allclose(getattr(classical, name), getattr(other, name), rtol=1e-4)
    np.testing.assert_allclose(classical.conf_int(0.1), other.conf_int(0.1), rtol=1e-4)
    np.testing.assert_allclose(classical.cov_params(), other.cov_params(), rtol=1e-4)
    assert classical.llf == pytest.approx(other.llf) and classical.nobs == len(frame)
    np.testing.assert_allclose(model.cov_params(), model.fitted.covariance)


def test_aic_and_bic_are_those_of_statsmodels(frame):
    """Of a multinomial logit: 2 d - 2 llf, and d log(n) - 2 llf."""
    discrete = pytest.importorskip("statsmodels.discrete.discrete_model")
    ill = frame[frame["state"] == "ill"]
    model = up.fit_transitions(
        "next_state + age:next_state", ill,
        successors=lambda s, a: clinic.REACH[s] if s == "ill" else (),
    )  # fmt: skip
    theirs = discrete.MNLogit(
        pd.Categorical(ill["next_state"]).codes,
        np.column_stack([np.ones(len(ill)), ill["age"]]),
    ).fit(method="newton", disp=False)
    assert model.aic == pytest.approx(theirs.aic, rel=1e-9)
    assert model.bic == pytest.approx(theirs.bic, rel=1e-9)
    assert model.bic - model.aic == pytest.approx(4 * (np.log(len(ill)) - 2))


def test_a_summary_has_lines_of_at_most_80_characters(frame, model):
    crossed = up.fit_transitions(
        "next_state:action + next_state:action:age", frame, regularization=1.0,
        successors=lambda s, a: clinic.REACH[s] if a in clinic.ACTIONS.get(s, ()) else (),
    )  # fmt: skip
    for made in (model, crossed, model.at(age=0.0)):
        assert max(map(len, made.summary().splitlines())) <= 80
    assert "cluster (400 clusters)" in model.summary() and "clustered" not in model.summary()


def test_a_model_without_covariates_has_a_task(frame):
    """It is at its values already; one with covariates says how to get there."""
    pays = {"well": 1.0, "ill": 0.6, "bad": 0.2}
    plain = up.fit_transitions(
        "worse + better + death", frame, states=MOVES, horizon=5, reward=pays
    )
    again = plain.at(horizon=5, reward=lambda s, a: pays.get(s, 0.0))
    assert up.policy_value(plain.at(start="ill"), "behaviour").value == pytest.approx(
        up.policy_value(again.at(start="ill"), "behaviour").value
    )
    assert (
        isinstance(plain.at(horizon=3), up.TransitionModel)
        and plain.at(horizon=3).task.horizon == 3
    )
    aged = up.fit_transitions(clinic.FORMULA, frame, states=MOVES, horizon=5, reward=pays)
    assert aged.task is None and up.plan_from_model(aged.at(age=1.0)).v.shape == (6, 4)
    with pytest.raises(ValueError, match=r"model\.at\(age=\.\.\.\)"):
        aged.transitions("ill", "rest")
    for call in (up.plan_from_model, lambda m: up.policy_value(m, "behaviour")):
        call(aged)  # each individual has an age of its own
        with pytest.raises(TypeError, match="model is an int"):
            call(3)


def test_rewards_are_means_of_a_column(frame):
    paid = frame.assign(cost=np.arange(len(frame)) % 7, times=1 + frame["patient"] % 2)
    model = up.fit_transitions(
        "worse + better", paid, states=MOVES, reward="cost", weights="times", horizon=2
    )
    weighted = paid.assign(total=paid["cost"] * paid["times"])
    sums = weighted.groupby(["state", "action"])[["total", "times"]].sum()
    for (s, a), row in sums.iterrows():
        i, j = list(model.task.states).index(s), list(model.task.actions).index(a)
        assert model.task.reward[i, j] == pytest.approx(row["total"] / row["times"])
