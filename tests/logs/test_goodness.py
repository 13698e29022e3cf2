"""Pearson's test against logs of the fitted model: by hand, its level, its power, its words."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import upriver as up
from tests.building import fit_counts, fit_features
from upriver.logs import goodness

from .test_logs import MDP, TASK, draw, named


def logged(mdp, rng, per_pair, pairs=None):
    """{triples: counts}: `per_pair` transitions of every pair, or of the chosen ones."""
    task = mdp.true_task
    counts = np.zeros(task.n_triples)
    for g in range(len(task.sizes)) if pairs is None else pairs:
        at = slice(task.indptr[g], task.indptr[g + 1])
        counts[at] = rng.multinomial(per_pair, mdp.probability[0, at])
    return counts


def fit(task, phi, counts, regularization=0.0):
    return fit_counts(phi, counts, regularization, task)


def test_by_hand():
    task = up.Task(2, 1, 1, [0, 2, 4], [0, 1, 0, 1], np.zeros((2, 1)))
    phi = up.Features(task, [[0.0], [1.0], [0.0], [1.0]])
    log = ([0] * 10 + [1] * 10, [0] * 20, [0] * 3 + [1] * 7 + [0] * 5 + [1] * 5)
    result = fit_features(phi, log).goodness_of_fit(replicates=4000)
    # pooled: P(1) = 12/20, so 4 and 6 expected in each state
    assert [r["statistic"] for r in result.rows] == pytest.approx([1 / 4 + 1 / 6] * 2)
    assert result.degrees == 1 and result.statistic == pytest.approx(2 * (1 / 4 + 1 / 6))
    # The 121 logs that the estimate can write, each with its exact fit.
    x, y = np.meshgrid(np.arange(11), np.arange(11))
    p = (x + y) / 20
    with np.errstate(invalid="ignore"):
        badness = np.nan_to_num(((x - 10 * p) ** 2 + (y - 10 * p) ** 2) / (10 * p * (1 - p)))
    chance = stats.binom.pmf(x, 10, 0.6) * stats.binom.pmf(y, 10, 0.6)
    exact = chance[badness >= result.statistic * (1 - 1e-9)].sum()
    assert result.p_value == pytest.approx(exact, abs=0.03)
    assert all(r["p_value"] is None for r in result.rows)  # 4 rows expected off the mode
    assert "  –  " in result.summary() and "parametric bootstrap of 4000 logs" in result.summary()


def test_finds_the_state_that_does_not_fit(rng):
    phi = up.features.shared(TASK)
    model = fit_features(phi, named(draw(rng, 3000)))
    assert model.goodness_of_fit().p_value > 1e-2
    assert model.goodness_of_fit().degrees == 2 * 2 + 2 - 4  # interior pairs, both ends, features
    probability = MDP.probability.copy()
    probability[0, MDP.true_task.rows(2, 1)] = [0.5, 0.3, 0.2]  # state 2 is not like state 1
    odd = up.FiniteMDP(MDP.true_task, probability, MDP.initial_states, MDP.initial_probability)
    bad = fit_features(phi, named(draw(rng, 3000, mdp=odd))).goodness_of_fit()
    assert bad.p_value == 1 / 1000  # worse than every drawn log
    worst = min(bad.rows, key=lambda r: r["p_value"])
    assert worst["action"] == "right" and worst["state"] in (1, 2)


def test_degrees_count_what_the_log_identifies(rng):
    """Features without data, redundant columns and one-hot columns are not counted."""
    mdp = up.envs.riverswim(8, 10)
    task = mdp.true_task
    shared = up.features.shared(task)
    right = np.arange(8) * 2 + 1
    free = (task.sizes[right] - 1).sum()
    three = up.Features(task, shared.matrix[:, :3])  # without that of the last state
    unpaid = replace(three, task=replace(task, reward=None))
    half = fit(unpaid.task, unpaid, logged(mdp, rng, 200, right[:6]), 1e-6).goodness_of_fit(19)
    assert half.degrees == (task.sizes[right[:6]] - 1).sum() - 3  # the last state was not met
    doubled = up.Features(task, np.hstack([shared.matrix, shared.matrix @ np.ones((4, 1))]))
    full = logged(mdp, rng, 200)
    assert fit(task, doubled, full, 1e-6).goodness_of_fit(19).degrees == free - 4
    saturated = fit(task, up.features.one_hot(task), full, 1e-6).goodness_of_fit(19)
    assert saturated.degrees == 0 and np.isnan(saturated.p_value)
    assert "nothing is left to test" in saturated.summary()


def test_rows_count_whole_numbers_of_times():
    counts = np.full(TASK.n_triples, 2.5)
    with pytest.raises(ValueError, match=r"weight 2\.5; goodness_of_fit needs whole numbers"):
        fit(TASK, up.features.shared(TASK), counts).goodness_of_fit()


def rejections(mdp, per_pair, n_logs, pairs=None, regularization=1e-4):
    rng = np.random.default_rng(11)
    task = mdp.true_task
    phi = up.features.shared(task)
    if pairs is not None:  # a formula names only what differs between next states in the log
        rows = [task.rows(g // task.n_actions, g % task.n_actions) for g in pairs]
        varies = [(phi.matrix[r] != phi.matrix[r][0]).any(axis=0) for r in rows]
        phi = up.Features(task, phi.matrix[:, np.any(varies, axis=0)])
    total = []
    for i in range(n_logs):
        model = fit(task, phi, logged(mdp, rng, per_pair, pairs), regularization)
        total.append(model.goodness_of_fit(99, seed=i).p_value)
    return np.mean(np.array(total) <= 0.05)


def test_the_level_of_a_sparse_log():
    """At five rows per pair the chi-squared distribution rejected two true models in five."""
    assert rejections(up.envs.riverswim(12, 10), 5, 150) < 0.12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_states", "per_pair", "half"),
    [(6, 10, 0), (12, 5, 0), (12, 50, 0), (12, 900, 0), (30, 5, 0), (12, 9, 1)],
)  # fmt: skip
def test_the_level_is_right_for_sparse_and_rich_logs(n_states, per_pair, half):
    mdp = up.envs.riverswim(n_states, 10)
    pairs = range(n_states) if half else None  # one-sided: the far bank was never seen
    share = rejections(mdp, per_pair, 1500, pairs)
    print(f"{n_states} states, {per_pair} rows per pair: rejected {share:.3f} of true models")
    assert 0.03 <= share <= 0.07


def test_rows_of_a_cluster_are_refused(rng):
    moves = {"state": [0, 0], "next_state": [0, 1], "on": [0, 1]}
    log = {"who": np.arange(40) % 4, "state": [0] * 40, "action": rng.integers(2, size=40),
           "next_state": rng.integers(2, size=40)}  # fmt: skip
    model = up.fit_transitions("on", log, states=moves, cluster="who")
    with pytest.raises(ValueError, match="goodness_of_fit needs independent rows, and those of a"):
        model.goodness_of_fit()
    alone = model.with_errors("classical").goodness_of_fit(19)
    assert "parametric bootstrap of 19 logs" in alone.summary()


def test_rows_of_pairs_do_not_depend_on_the_order_of_the_log():
    """Without covariates each pair is one situation, in the order in which the log meets them."""
    counts = {("b", "x"): (30, 10), ("a", "y"): (5, 15), ("c", "x"): (12, 12), ("a", "x"): (9, 27)}
    rows = [(s, a, t) for (s, a), n in counts.items() for t, k in zip("ac", n, strict=True)
            for _ in range(k)]  # fmt: skip
    found = []
    for order in (rows, sorted(rows), rows[::-1]):
        frame = dict(zip(("state", "action", "next_state"), zip(*order, strict=True), strict=True))
        frame, states = {k: list(x) for k, x in frame.items()}, {"state": ["c", "a", "b"]}
        model = up.fit_transitions("C(next_state)", frame, states=states)
        fit = model.goodness_of_fit(49)
        found.append({(r["state"], r["action"]): r for r in fit.rows})
        assert fit.statistic == pytest.approx(sum(r["statistic"] for r in fit.rows))
    p = sum(n[0] for n in counts.values()) / sum(map(sum, counts.values()))
    for pair, n in counts.items():
        total = sum(n)
        pearson = (n[0] - total * p) ** 2 / (total * p * (1 - p))
        for each in found:
            assert each[pair]["n"] == total
            assert each[pair]["statistic"] == pytest.approx(pearson)


def patients(rng, n, interaction):
    """Rows in which two numbers of a patient count; with or without an interaction."""
    state, action = rng.choice(["ill", "worse"], n), rng.choice(["drug", "none"], n)
    age, dose = rng.normal(size=n), rng.normal(size=n)
    odds = 0.4 * age - 0.3 * dose + 0.5 * (state == "ill") + 0.7 * (action == "drug")
    odds += interaction * ((state == "ill") == (action == "drug"))
    well = rng.random(n) < 1 / (1 + np.exp(-odds))
    after = np.where(well, "well", rng.choice(["ill", "worse"], n))
    names = {"state": state, "action": action, "next_state": after, "age": age, "dose": dose}
    return pd.DataFrame(names)


FORMULA = "C(next_state):state + C(next_state):action + C(next_state):age + C(next_state):dose"


def test_covariates_take_no_degrees_from_frequencies_that_they_do_not_fix(rng):
    """4 pairs have 8 free frequencies. State and action fix 6 of them whatever else is in the
    model: the rest of any fit lies in 2 dimensions, as differences of two fits show."""
    log = patients(rng, 400, 0.0)
    for formula, left in ((FORMULA, 2), (FORMULA.split(" + C(next_state):age")[0], 2),
                          (FORMULA + " + C(next_state):state:action", 0)):  # fmt: skip
        model = up.fit_transitions(formula, log)
        assert model.goodness_of_fit(replicates=20).degrees == left
    cells, seen = up.fit_transitions(FORMULA, log).cells(), []
    for seed in range(12):  # what a fit leaves of the frequencies, in other logs of these people
        again = log.assign(next_state=patients(np.random.default_rng(seed), 400, 0.0)["next_state"])
        found = up.fit_transitions(FORMULA, again).cells()
        assert list(found.names) == list(cells.names) and len(found.pair) == 12
        seen.append(goodness.sum_cells(found, found.data.counts - found.expected))
    assert np.linalg.matrix_rank(np.array(seen), tol=1e-3) == 2


def test_a_missing_interaction_is_found_beside_covariates():
    found = [
        up.fit_transitions(FORMULA, patients(np.random.default_rng(k), 500, size))
        .goodness_of_fit(replicates=99)
        .p_value
        for size in (0.0, 1.5)
        for k in range(25)
    ]
    assert np.mean(found[:25]) == pytest.approx(0.5, abs=0.2) and min(found[:25]) < 0.3
    assert np.mean(np.array(found[25:]) <= 0.02) > 0.9
