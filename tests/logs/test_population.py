"""Values for a population: by loops over individuals, and logs whose right numbers are known."""

import numpy as np
import pandas as pd
import pytest

import upriver as up

from . import clinic, populations

PAYS = {"well": 1.0, "ill": 0.6, "bad": 0.2}
POLICY = {"well": "rest", "ill": "drug", "bad": "surgery", "dead": "rest"}


def aged(rng, n=240):
    """Patients of three ages, one of them a year older in each visit, some followed for longer."""
    log = pd.DataFrame(clinic.visits(rng, n))
    log["visit"] = log.groupby("patient").cumcount()
    kept = log["visit"] < 2 + log["patient"] % 7
    return log[kept].reset_index(drop=True)


def fit(log, **options):
    named = {"individual": "patient", "step": "visit"} | options
    return up.fit_transitions(
        clinic.FORMULA, log, states=clinic.moves(), horizon=6, reward=PAYS,
        successors=lambda s, a: clinic.REACH[s] if a in clinic.ACTIONS.get(s, ()) else (), **named
    )  # fmt: skip


def loop(model, policy, state, ages):
    """The value from a state with an age for each step, by recursion over `predict`."""
    chance = {}
    for age in set(ages):
        pairs = [(s, a) for s, actions in clinic.ACTIONS.items() for a in actions]
        table = {"state": [s for s, _ in pairs], "action": [a for _, a in pairs],
                 "age": [age] * len(pairs)}  # fmt: skip
        for row in model.predict(table).to_dict("records"):
            key = age, row["state"], row["action"]
            chance.setdefault(key, []).append((row["next_state"], row["probability"]))
    v = dict.fromkeys(clinic.STATES, 0.0)
    for age in reversed(ages):
        after = {"dead": 0.0}
        for s in clinic.ACTIONS:
            share = {policy[s]: 1.0} if isinstance(policy, dict) else policy(s, age)
            after[s] = PAYS[s] + sum(
                p * x * v[t] for a, p in share.items() for t, x in chance[age, s, a]
            )
        v = after
    return v[state]


@pytest.mark.parametrize("changes", [False, True])
def test_values_are_those_of_a_loop_over_individuals(rng, changes):
    """To 1e-9, of a policy and of what was done, also where the age changes with the step."""
    log = aged(rng)
    if changes:
        log["age"] = log["age"] + 0.1 * log["visit"]
    model = fit(log)
    behaviour = model.behaviour

    def done(s, age):
        p = behaviour.probabilities(behaviour.columns({"age": np.array([age])}, 1))
        table = p.reshape(len(model.log.space.states), -1)[model.log.space.states.index(s)]
        return {a: x for a, x in zip(model.log.space.actions, table, strict=True) if x > 0}

    expected, of_done = [], []
    for _, mine in log.groupby("patient"):
        ages = mine["age"].tolist()
        ages = (ages + [ages[-1]] * 6)[:6]
        expected.append(loop(model, POLICY, mine["state"].iloc[0], ages))
        of_done.append(loop(model, done, mine["state"].iloc[0], ages))
    found = up.policy_value(model, POLICY).value
    assert found == pytest.approx(np.mean(expected), rel=1e-9)
    found = up.policy_value(model, "behaviour").value
    assert found == pytest.approx(np.mean(of_done), rel=1e-9)
    if not changes:
        first = log.groupby("patient").first()
        for age, value in up.policy_value(model, POLICY, by="age").each.items():
            mine = (first["age"] == age).to_numpy()
            assert value.value == pytest.approx(np.array(expected)[mine].mean(), rel=1e-9)
            alone = up.policy_value(model.at(age=age), POLICY)
            assert alone.value == pytest.approx(value.value, rel=1e-9)
            assert alone.standard_error == pytest.approx(value.standard_error, rel=1e-6)


def test_weights_are_repeated_individuals(rng):
    log = aged(rng, 240)
    times = 1 + log["patient"] % 3
    row = np.repeat(np.arange(len(log)), times)
    copy = np.concatenate([np.arange(n) for n in times])
    again = log.iloc[row].assign(patient=log["patient"].to_numpy()[row] * 3 + copy)
    one, other = fit(log.assign(times=times), weights="times"), fit(again)
    for policy in (POLICY, "behaviour"):
        a, b = (up.policy_value(m, policy) for m in (one, other))
        for key in ("value", "standard_error", "low", "high"):
            assert getattr(a, key) == pytest.approx(getattr(b, key), rel=1e-6), key
    assert one.population.starts() == pytest.approx(other.population.starts())
    assert "individuals: 480, each a patient" in one.population.summary()


def test_the_population_can_be_looked_at_restricted_and_replaced(rng):
    log = aged(rng)
    model = fit(log)
    text = model.population.summary()
    for words in ("240, each a patient", "first state: ill 100%", "median", "age: mean",
                  "ended in a state without return"):  # fmt: skip
        assert words in text
    old = model.at(age=1.0)
    n = (log.groupby("patient")["age"].first() == 1.0).sum()
    assert len(old.population.weight) == n
    nobody = model.at(age=0.5)
    assert "Nobody has age = 0.5: the starts are those of all 240" in nobody.population.summary()
    others = pd.DataFrame({"state": ["well", "bad"], "age": [0.0, 0.7]})
    found = up.policy_value(model.at(population=others), POLICY).value
    expected = [loop(model, POLICY, "well", [0.0] * 6), loop(model, POLICY, "bad", [0.7] * 6)]
    assert found == pytest.approx(np.mean(expected), rel=1e-9)
    given = up.policy_value(model.at(start={"well": 0.5, "bad": 0.5}, age=0.0), POLICY).value
    expected = [loop(model, POLICY, s, [0.0] * 6) for s in ("well", "bad")]
    assert given == pytest.approx(np.mean(expected), rel=1e-9)
    trace = up.cohort_trace(model.at(population=others), POLICY)
    np.testing.assert_allclose(trace.loc[0, ["well", "bad"]], 0.5)
    with pytest.raises(ValueError, match="changes with the step, and an infinite horizon"):
        moving = fit(log.assign(age=log["age"] + 0.1 * log["visit"]))
        moving.at(discount=0.9)


def test_an_individual_is_an_episode_else_a_cluster_else_a_row(rng):
    log = aged(rng)
    by = {
        "patient": fit(log), "cluster": fit(log, individual=None, step=None, cluster="patient"),
        "row": fit(log, individual=None, step=None),
    }  # fmt: skip
    values = {k: up.policy_value(m, POLICY).value for k, m in by.items()}
    assert values["patient"] == pytest.approx(values["cluster"], rel=1e-12)
    rows = [loop(by["row"], POLICY, s, [a] * 6)
            for s, a in zip(log["state"], log["age"], strict=True)]  # fmt: skip
    assert values["row"] == pytest.approx(np.mean(rows), rel=1e-9)
    shuffled = fit(log.sample(frac=1.0, random_state=1))
    assert up.policy_value(shuffled, POLICY).value == pytest.approx(values["patient"])
    many = fit(log.assign(times=1 + log["visit"]), individual=None, step=None, weights="times",
               cluster="patient")  # fmt: skip
    with pytest.raises(ValueError, match=r"holds 1 and .* so a patient is not one individual"):
        many.population.summary()


def test_what_was_done_follows_the_covariates(rng):
    """Shares of a group where it has habits of its own; units of a covariate change nothing."""
    log = populations.visits(rng, 400)
    model = up.fit_transitions(populations.FORMULA, log, individual="who", horizon=6)
    for sex in "fm":
        z = model.behaviour.columns({"sex": np.array([sex], object)}, 1)
        table = model.behaviour.probabilities(z).reshape(3, 2)
        for state in ("ill", "well"):
            mine = log[(log["sex"] == sex) & (log["state"] == state)]
            share = table[model.log.space.states.index(state), 0]
            assert share == pytest.approx((mine["action"] == "drug").mean(), abs=1e-6)
    aged = log.assign(age=rng.normal(size=len(log)))
    formula = "C(next_state):C(state) + action:C(next_state) + age:C(next_state)"
    found = []
    for unit in (1.0, 1000.0):
        frame = aged.assign(age=aged["age"] * unit)
        model = up.fit_transitions(formula, frame, individual="who", horizon=6,
                                   reward=populations.GAIN)  # fmt: skip
        found.append(up.policy_value(model, "behaviour"))
    for key in ("value", "standard_error"):
        assert getattr(found[0], key) == pytest.approx(getattr(found[1], key), rel=1e-6)


def test_the_model_of_the_actions_is_that_of_statsmodels(rng):
    """A multinomial logit of three actions, its coefficients and their errors."""
    from statsmodels.discrete.discrete_model import MNLogit

    from upriver.logs.behaviour import fit_choices

    z = np.column_stack([np.ones(500), rng.normal(size=500)])
    p = np.exp(z @ np.array([[0.0, 0.5, -0.3], [0.0, 1.0, -1.0]]))
    action = np.array([rng.choice(3, p=x) for x in p / p.sum(axis=1, keepdims=True)])
    b, root = fit_choices(z, np.eye(3)[action])
    b, covariance = b.reshape(3, 2), root @ root.T
    usual = int(np.bincount(action).argmax())
    order = [usual, *(a for a in range(3) if a != usual)]
    known = MNLogit(np.array([order.index(a) for a in action]), z).fit(disp=0, tol=1e-12)
    np.testing.assert_allclose(b[order[1:]].T, known.params, rtol=1e-5)
    errors = np.sqrt(np.diag(covariance)).reshape(3, 2)[order[1:]].T
    np.testing.assert_allclose(errors, known.bse, rtol=1e-5)


def test_people_who_live_long_do_not_count_more():
    """Half of the people are frail and live for 1.9 years, the others for 8.6 of the next 22.

    That is 5.28 years on average. Rows are of the frail in 17%, and averages over rows are 7.49.
    """
    rows, who = [], 0
    for frail, dies, n in ((1, 0.518, 5000), (0, 0.1062, 5000)):
        alive = n
        lifetimes = []
        while alive > 0:  # deaths as expected, so that nothing is left to chance
            dead = max(round(alive * dies), 1)
            lifetimes += [dead]
            alive -= dead
        for years, count in enumerate(lifetimes):
            for _ in range(count):
                rows += [(who, frail, y, "alive", "rest", "dead" if y == years else "alive")
                         for y in range(years + 1)]  # fmt: skip
                who += 1
    columns = ["who", "frail", "year", "state", "action", "next_state"]
    log = pd.DataFrame(rows, columns=columns)
    options = {"horizon": 22, "reward": {"alive": 1.0}}
    formula = "C(next_state) + frail:C(next_state)"
    model = up.fit_transitions(formula, log, individual="who", step="year", **options)
    death = log.groupby("frail")["next_state"].apply(lambda x: (x == "dead").mean())
    years = (1 - (1 - death) ** 22) / death
    assert years.mean() == pytest.approx(5.28, abs=0.01)
    assert log["frail"].mean() == pytest.approx(0.17, abs=0.002)
    assert up.policy_value(model, "behaviour").value == pytest.approx(years.mean(), rel=1e-9)
    rows = up.fit_transitions(formula, log, **options)
    assert up.policy_value(rows, "behaviour").value == pytest.approx(7.49, abs=0.02)
    # with time enough it is the realised mean as well, which needs no model
    long = up.policy_value(model.at(horizon=200), "behaviour").value
    assert long == pytest.approx(len(log) / who, rel=1e-3)
    by = up.policy_value(model, "behaviour", by="frail")
    for frail in (0, 1):
        assert by[frail].value == pytest.approx(years[frail], rel=1e-9)


def habits(n=3600):
    """One visit each: two groups with opposite habits. The drug cures 60%, resting 20%.

    Group a has the drug in 95% of visits, so that giving it always gains 4.5 (0.6 - 0.2) 0.05 =
    0.09; group b in 580 of 3,600, so that it gains 1.51.
    """
    rows = []
    for group, drugs in (("a", 3420), ("b", 580)):
        for i in range(n):
            first, count, cured = (i, drugs, 0.6) if i < drugs else (i - drugs, n - drugs, 0.2)
            well = first < cured * count - 1e-9
            action = "drug" if i < drugs else "rest"
            rows.append((group, "ill", action, "well" if well else "still"))
    return pd.DataFrame(rows, columns=["group", "state", "action", "next_state"])


def test_the_gain_of_a_group_is_over_what_was_done_to_it():
    """By their own shares .09 and 1.51; with the habit of everybody both were .80."""
    model = up.fit_transitions("next_state:action + group:next_state:action", habits(), horizon=2,
                               reward={"well": 4.5})  # fmt: skip
    by = up.compare_policies(model, "drug", by="group")
    for group, gain in (("a", 0.09), ("b", 1.51)):
        assert by[group].value == pytest.approx(gain, abs=1e-6)
        found = up.compare_policies(model.at(group=group), "drug")
        assert found.value == pytest.approx(gain, abs=1e-6)
    assert up.compare_policies(model, "drug").value == pytest.approx(0.80, abs=1e-6)


def test_starts_do_not_depend_on_whether_checks_can_be_made():
    """Everybody starts ill and is worth 3.85 well years of six; five of them were followed.

    Where the checks could not be made the starts were the shares of all rows, and the value 4.81.
    """
    rows, state = [], np.zeros(9000, int)  # transitions as expected, so nothing is left to chance
    for year in range(5):
        after = state.copy()
        for s, chance in ((0, 0.5429), (1, 0.9240)):
            mine = np.flatnonzero(state == s)
            after[mine] = np.arange(len(mine)) < round(chance * len(mine))
        names = np.array(["ill", "well"])
        rows.append(pd.DataFrame({"who": np.arange(9000), "year": year, "state": names[state],
                                  "action": "rest", "next_state": names[after]}))  # fmt: skip
        state = after
    log = pd.concat(rows)
    options = {"horizon": 6, "reward": {"well": 1.0}}
    made = up.decide(up.fit_transitions("C(next_state):C(state)", log, individual="who",
                                        step="year", **options))  # fmt: skip
    assert made.value.value == pytest.approx(3.85, abs=0.005)
    assert "followed beyond step 5; the horizon is 6" in made.checks
    of_rows = up.fit_transitions("C(next_state):C(state)", log, **options)
    assert up.policy_value(of_rows, "rest").value == pytest.approx(4.81, abs=0.01)


def test_starts_are_joint_with_covariates(rng):
    """Group f starts ill in 90%, group m in 9%, with the same transitions; all of them in 46%."""
    rows = []
    for i in range(10000):
        sex = "f" if i < 4570 else "m"
        ill = i < 4113 or 4570 <= i < 4570 + 489
        rows.append((i, sex, "ill" if ill else "well", "rest",
                     "ill" if ill and i % 20 < 14 else "well"))  # fmt: skip
    log = pd.DataFrame(rows, columns=["who", "sex", "state", "action", "next_state"])
    model = up.fit_transitions(
        "C(next_state) + sex:C(next_state)", log, individual="who", horizon=1,
        reward={"ill": 1.0},
    )  # fmt: skip
    by = up.policy_value(model, "rest", by="sex")
    assert by["f"].value == pytest.approx(0.9) and by["m"].value == pytest.approx(0.09, abs=1e-4)
    for sex, share in (("f", 0.9), ("m", 0.09)):
        at = model.at(sex=sex)
        assert at.population.starts()["ill"] == pytest.approx(share, abs=1e-4)
        assert up.policy_value(at, "rest").value == pytest.approx(share, abs=1e-4)
    assert up.policy_value(model, "rest").value == pytest.approx(0.46, abs=1e-3)


def test_a_gain_of_rounding_is_no_gain():
    """Actions that change nothing: it was 1.11e-16 more."""
    log = {"who": [0, 0, 1, 1], "state": list("uvuu"), "action": list("abba"),
           "next_state": list("vuuv")}  # fmt: skip
    made = up.decide(up.fit_transitions("C(next_state)", log, individual="who", horizon=3,
                                        successors="all", reward={"v": 1.0}))  # fmt: skip
    assert (made.gain.value, made.gain.low, made.gain.high) == (0.0, 0.0, 0.0)
    assert f"earns what was earned before, {made.value.value:.4g} per who." in made.headline


def test_a_longer_horizon_is_never_worth_less(rng):
    """With rewards of at least 0, also where covariates change with the step."""
    log = aged(rng)
    for frame in (log, log.assign(age=log["age"] + 0.1 * log["visit"])):
        model, values = fit(frame), []
        for horizon in (1, 2, 3, 5, 8, 12, 40):
            values.append(up.policy_value(model.at(horizon=horizon), POLICY).value)
            assert up.decide(model.at(horizon=horizon), POLICY).value.value == values[-1]
        assert (np.diff(values) >= 0).all(), values


def test_checks_with_averaged_covariates_use_the_column(rng):
    """Importance sampling by a loop over individuals, with shares by sex and state."""
    log = populations.visits(rng, 400)
    model = up.fit_transitions(populations.FORMULA, log, individual="who", step="step", horizon=6,
                               reward="paid")  # fmt: skip
    found = {r["name"]: r for r in up.check_policy_value(model, populations.PLAN).rows}
    assert "doubly robust, 5 folds" in found
    share = log.groupby(["sex", "state"])["action"].value_counts(normalize=True)
    ratio, paid = np.ones((400, 6)), np.zeros((400, 6))
    for who, mine in log.groupby("who"):
        weight = 1.0
        for h in range(6):
            if h < len(mine):
                row = mine.iloc[h]
                took = row["action"] == populations.PLAN[row["state"]]
                weight *= took / share[row["sex"], row["state"], row["action"]]
                paid[who, h] = row["paid"]
            ratio[who, h] = weight
    expected = ((ratio * paid).mean(axis=0) / ratio.mean(axis=0)).sum()
    assert found["weighted importance sampling"]["value"] == pytest.approx(expected, rel=1e-6)
    done = up.check_policy_value(model, "behaviour").rows
    assert done[1]["value"] == pytest.approx(paid.sum() / 400)
    made = up.decide(model)
    assert made.realised["value"] == pytest.approx(paid.sum() / 400)


@pytest.mark.slow
@pytest.mark.parametrize("case", populations.CASES)
def test_intervals_cover(case):
    """95% intervals hold the truth in 95% of 200 logs, within four binomial standard errors.

    The table of 500 logs is on the page; this sees what is wrong by more than chance.
    """
    found = populations.coverage(case, 200)
    for what, share in found.items():
        print(f"{case}, {what}: {share:.3f}")
        assert share >= 0.95 - 0.062, (case, what, share)
    assert 0.925 <= np.mean(list(found.values())) <= 0.98


def test_the_advice_for_a_group_counts_its_own_rows():
    """It counted the rows of everybody in each group."""
    from upriver.logs.page import advise

    log = populations.visits(np.random.default_rng(3), 60)
    model = up.fit_transitions(
        populations.FORMULA, log, individual="who", step="step", horizon=5,
        reward=lambda s, a: populations.GAIN[s] - 0.3 * (a == "drug"),
    )  # fmt: skip
    rows = {(x.where, x.who): x.rows for x in advise(up.decide(model, "greedy"))}
    counts = log.groupby(["state", "sex"]).size()
    assert rows["ill", "sex f"] == counts["ill", "f"] != rows["ill", "sex m"] == counts["ill", "m"]
