"""The estimate (3) and its standard errors, against an independent minimiser and closed forms."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import optimize, sparse

import upriver as up
from tests.mnl.clustered import fit_clusters
from upriver.mnl import choices as choice_data
from upriver.mnl import likelihood
from upriver.mnl import newton as fitting


def choices(n_situations: int, most: int, d: int, seed: int, scale: float | np.ndarray = 1.0):
    """Choice data with 2 to `most` alternatives, drawn from a conditional logit."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, most + 1, n_situations)
    groups = np.repeat(np.arange(n_situations), sizes)
    x = rng.standard_normal((len(groups), d)) * scale
    utility = x @ (rng.standard_normal(d) / scale) * 0.7 + rng.gumbel(size=len(groups))
    starts = np.r_[0, np.cumsum(sizes)[:-1]]
    best = np.maximum.reduceat(utility, starts)[groups]
    return x, utility == best, groups


def plain_loss(x, chosen, groups, lam):
    """Loss and gradient of the conditional logit, written out with NumPy."""
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
    place = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(groups)]))

    def evaluate(theta):
        z = x @ theta
        z = z - np.maximum.reduceat(z, starts)[place]
        total = np.add.reduceat(np.exp(z), starts)
        p = np.exp(z) / total[place]
        loss = np.log(total).sum() - z[chosen].sum() + 0.5 * lam * theta @ theta
        return loss, x.T @ (p - chosen) + lam * theta

    return evaluate


@pytest.mark.parametrize("lam", [0.0, 2.5])
def test_choices_agree_with_an_independent_minimiser(lam):
    x, chosen, groups = choices(100_000, 10, 6, seed=1)
    ours = up.fit_choices(x, chosen, groups, regularization=lam)
    evaluate = plain_loss(x, chosen, groups, lam)
    theirs = optimize.minimize(
        evaluate, np.zeros(6), jac=True, method="BFGS", options={"gtol": 1e-6}
    )
    assert np.abs(evaluate(ours.theta)[1]).max() < 1e-6
    np.testing.assert_allclose(ours.theta, theirs.x, atol=1e-6)
    assert ours.log_likelihood == pytest.approx(
        0.5 * lam * ours.theta @ ours.theta - evaluate(ours.theta)[0], rel=1e-10
    )


def test_standard_errors_are_those_of_the_observed_information():
    x, chosen, groups = choices(2_000, 5, 4, seed=2)
    ours = up.fit_choices(x, chosen, groups)
    evaluate = plain_loss(x, chosen, groups, 0.0)
    step = 1e-5
    information = np.array(
        [
            (evaluate(ours.theta + step * e)[1] - evaluate(ours.theta - step * e)[1]) / (2 * step)
            for e in np.eye(4)
        ]
    )
    np.testing.assert_allclose(ours.information, information, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        ours.standard_errors, np.sqrt(np.diag(np.linalg.inv(information))), rtol=1e-6
    )


def test_badly_scaled_columns_change_nothing_but_units():
    scale = 10.0 ** np.linspace(-3, 3, 5)
    x, chosen, groups = choices(3_000, 4, 5, seed=3)
    plain = up.fit_choices(x, chosen, groups)
    scaled = up.fit_choices(x * scale, chosen, groups)
    np.testing.assert_allclose(scaled.theta * scale, plain.theta, rtol=1e-7)
    np.testing.assert_allclose(scaled.standard_errors * scale, plain.standard_errors, rtol=1e-6)


def test_the_order_of_rows_and_the_names_of_situations_do_not_matter():
    x, chosen, groups = choices(500, 4, 3, seed=4)
    plain = up.fit_choices(x, chosen, groups)
    order = np.random.default_rng(0).permutation(len(x))
    words = np.array([f"person {g}" for g in groups])
    mixed = up.fit_choices(x[order], chosen[order], words[order])
    np.testing.assert_allclose(mixed.theta, plain.theta, atol=1e-9)


def test_two_alternatives_by_hand():
    """One feature, 30 choices of it against 10 of the other: the log-odds, se^2 = 1/30 + 1/10."""
    x = np.tile([[1.0], [0.0]], (40, 1))
    chosen = np.concatenate([[True, False]] * 30 + [[False, True]] * 10)
    fitted = up.fit_choices(x, chosen, np.repeat(np.arange(40), 2))
    assert fitted.theta[0] == pytest.approx(np.log(3.0), abs=1e-9)
    assert fitted.standard_errors[0] == pytest.approx(np.sqrt(1 / 30 + 1 / 10), rel=1e-9)
    assert fitted.null_log_likelihood == pytest.approx(-40 * np.log(2))


@pytest.mark.parametrize("make", [up.features.one_hot, up.features.one_hot_indicator])
def test_blocks_and_dense_features_give_one_answer(make, rng):
    task = up.envs.riverswim(5).task("local")
    features = make(task)
    counts = rng.integers(0, 30, task.n_triples)
    dense = up.Features(task, features.matrix.toarray(), names=features.names)
    a, b = up.fit_mnl(features, counts, 0.3), up.fit_mnl(dense, counts, 0.3)
    np.testing.assert_allclose(a.theta, b.theta, atol=1e-8)
    np.testing.assert_allclose(a.standard_errors, b.standard_errors, rtol=1e-7)
    assert sparse.issparse(a.covariance)
    np.testing.assert_allclose(a.covariance.toarray(), b.covariance, atol=1e-9)
    assert np.abs(likelihood.gradient(features, a.theta, counts, 0.3)).max() < 1e-7
    assert a.log_likelihood == pytest.approx(b.log_likelihood)


def test_summary_reads_as_a_table():
    x, chosen, groups = choices(200, 3, 2, seed=6)
    fitted = up.fit_choices(x, chosen, groups, names=["price", "time"])
    text = fitted.summary()
    assert "price" in text and "time" in text and "200 observations" in text
    row = fitted.table()[0]
    assert row["low"] < row["estimate"] < row["high"]
    assert row["z"] == pytest.approx(row["estimate"] / row["standard_error"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d | {"X": [[1.0], [np.nan], [0.0], [1.0]]}, r"X\[1, 0\] is nan"),
        (lambda d: d | {"chosen": [1, 1, 1, 0]}, "exactly one"),
        (lambda d: d | {"chosen": [1, 0, 2, 0]}, r"chosen\[2\]"),
        (lambda d: d | {"groups": [0, 0, 1]}, "groups has shape"),
        (lambda d: d | {"regularization": -1.0}, "regularization is -1.0"),
        (lambda d: d | {"X": [[1.0], [1.0], [2.0], [2.0]]}, "singular"),
        (lambda d: d | {"names": ["a", "b"]}, "names has 2"),
    ],
)
def test_wrong_input_is_one_sentence(change, words):
    data = {"X": [[1.0], [0.0], [0.0], [1.0]], "chosen": [1, 0, 1, 0], "groups": [0, 0, 1, 1]}
    with pytest.raises(ValueError, match=words):
        up.fit_choices(**change(data))


def test_a_perfectly_predicted_choice_is_an_error_and_ridge_mends_it():
    x, chosen = np.array([[1.0], [0.0]] * 5), np.array([1, 0] * 5, bool)
    groups = np.repeat(np.arange(5), 2)
    sentence = "predicted perfectly by 'price', .* drop or merge .* positive regularization"
    with pytest.raises(ValueError, match=sentence):
        up.fit_choices(x, chosen, groups, names=["price"])
    noise = np.random.default_rng(1).normal(size=(10, 1))  # another column does not hide it
    with pytest.raises(ValueError, match="predicted perfectly by number 1,"):
        up.fit_choices(np.hstack([noise, x]), chosen, groups)
    assert up.fit_choices(x, chosen, groups, regularization=0.1).theta[0] > 0


@pytest.mark.parametrize("lam", [0.0, 40.0])
def test_a_sample_changes_the_way_and_not_the_answer(lam, monkeypatch):
    x, chosen, groups = choices(20_000, 5, 4, seed=7)
    sampled = up.fit_choices(x, chosen, groups, regularization=lam)
    monkeypatch.setattr(choice_data, "PER_FEATURE", len(x))
    whole = up.fit_choices(x, chosen, groups, regularization=lam)
    # A fit stops where the last step is at most the root of DECREMENT standard errors long.
    apart = np.abs(sampled.theta - whole.theta) / whole.standard_errors
    assert apart.max() < np.sqrt(fitting.DECREMENT)
    assert sampled.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-12)


def test_a_sample_makes_up_the_whole(monkeypatch):
    """The Hessian of a sample, times its share, is near that of all; the ridge scales too."""
    x, chosen, groups = choices(400, 4, 3, seed=8)
    indptr = np.append(fitting_rows(groups), len(x))
    data = choice_data.Choices(indptr, x, chosen.astype(float), np.ones(400), 2.0)
    monkeypatch.setattr(choice_data, "PER_FEATURE", 1)
    part, times = data.sample()
    assert times == pytest.approx(1 / choice_data.SHARE, rel=0.3)
    assert part.lam * times == pytest.approx(2.0)
    theta = np.array([0.3, -0.2, 0.1])
    estimate = times * part.evaluate(theta, True)[2]
    np.testing.assert_allclose(np.diag(estimate), np.diag(data.evaluate(theta, True)[2]), rtol=0.5)


def test_a_feature_that_the_sample_never_meets_is_still_estimated():
    x, chosen, groups = choices(20_000, 3, 3, seed=9)
    rare = np.zeros(len(x))
    rows = np.flatnonzero((groups > 2_000) & (groups < 2_040))  # between two pieces of the sample
    rare[rows] = np.random.default_rng(0).standard_normal(len(rows))
    x = np.column_stack([x, rare])
    fitted = up.fit_choices(x, chosen, groups)
    assert np.abs(plain_loss(x, chosen, groups, 0.0)(fitted.theta)[1]).max() < 1e-6


def test_data_sorted_by_what_was_chosen_are_fitted_all_the_same():
    x, chosen, groups = choices(20_000, 3, 3, seed=10)
    order = np.argsort(x[chosen][:, 0][groups], kind="stable")
    fitted = up.fit_choices(x[order], chosen[order], groups[order])
    np.testing.assert_allclose(fitted.theta, up.fit_choices(x, chosen, groups).theta, atol=1e-9)


def fitting_rows(groups):
    return np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])


@pytest.mark.parametrize("lam", [1e-3, 1e-9, 1e-14])
def test_a_ridge_always_has_an_estimate(lam):
    """Declared successors that never occur in a long log, in dense and in sparse columns alike."""
    mdp = up.envs.riverswim(10)
    task = mdp.task("local")
    made = up.features.shared(task)
    counts = np.zeros(task.n_triples)
    for s in range(10):
        for a in range(2):
            known, rows = mdp.true_task.rows(s, a), task.rows(s, a)
            place = np.searchsorted(task.successors[rows], mdp.true_task.successors[known])
            counts[np.arange(rows.start, rows.stop)[place]] = 1e4 * mdp.probability[0][known]
    dense = up.fit_mnl(made, counts, lam)
    blocks = up.fit_mnl(up.Features(task, sparse.csr_array(made.matrix)), counts, lam)
    p = likelihood.probabilities(made, dense.theta)
    np.testing.assert_allclose(p, likelihood.probabilities(made, blocks.theta), atol=1e-6)
    assert np.isfinite(dense.standard_errors).all() and np.isfinite(blocks.standard_errors).all()
    assert np.abs(likelihood.gradient(made, dense.theta, counts, lam)).max() < 1e-5
    twice = up.Features(task, np.hstack([made.matrix, made.matrix]))  # collinear: a ridge decides
    both = up.fit_mnl(twice, counts, lam)
    np.testing.assert_allclose(likelihood.probabilities(twice, both.theta), p, atol=1e-4)
    assert np.isfinite(both.standard_errors).all()


def test_choices_that_are_predicted_perfectly_have_an_estimate_with_any_ridge():
    x, chosen = np.array([[1.0, 1.0], [0.0, 0.0]] * 50), np.array([1, 0] * 50, bool)
    groups = np.repeat(np.arange(50), 2)
    for lam in (1.0, 1e-5, 1e-12):
        theta = up.fit_choices(x, chosen, groups, regularization=lam).theta
        assert theta[0] == pytest.approx(theta[1], rel=1e-6) and theta[0] > 0
        z = theta.sum()  # stationarity: 50 (1 - p) = lam theta
        assert 50 / (1 + np.exp(z)) == pytest.approx(lam * theta[0], rel=1e-3)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("weight", [1e-15, 1e-8, 1.0])
def test_the_weight_of_the_data_does_not_change_the_estimate(make, weight):
    """Six to one is log 6, however little the seven observations weigh."""
    mdp = up.FiniteMDP.from_arrays([[[0.5, 0.5]], [[0.5, 0.5]]], [[0.0], [0.0]], 1)
    features = up.Features(mdp.task(), make([[0.0], [1.0], [0.0], [1.0]]))
    fitted = up.fit_mnl(features, weight * np.array([1.0, 6.0, 0.0, 0.0]), 0.0)
    assert fitted.theta[0] == pytest.approx(np.log(6.0), rel=1e-9)
    assert fitted.log_likelihood == pytest.approx(weight * (np.log(1 / 7) + 6 * np.log(6 / 7)))


@pytest.mark.parametrize("lam", [1e-5, 1e-9])
def test_the_summary_says_that_a_column_separates(lam):
    """A column that is never chosen: -13 with a standard error of hundreds is no finding."""
    x, chosen, groups = choices(300, 3, 2, seed=11)
    never = np.where(chosen, 0.0, 1.0)
    plain = up.fit_choices(x, chosen, groups, regularization=lam, names=["price", "time"])
    assert plain.warnings == [] and "warning" not in plain.summary()
    data = np.column_stack([x[:, 0], 7.0 * never])
    fitted = up.fit_choices(data, chosen, groups, regularization=lam, names=["price", "never"])
    assert fitted.standard_errors[1] * 7 > 20
    assert "predicted perfectly or nearly so by never: " in fitted.summary()
    assert "larger regularization" in fitted.summary()
    collinear = np.column_stack([x[:, 0], x[:, 1], x[:, 1]])
    both = up.fit_choices(collinear, chosen, groups, regularization=lam)
    assert "the data leave open theta[1], theta[2]: only the ridge" in both.summary()
    assert up.fit_choices(data, chosen, groups, regularization=50.0).warnings == []


def test_near_separation_without_a_ridge_is_said_too():
    """One choice in 10,000 against a column is a finding; one that weighs 1e-5 of one is not."""
    task = up.FiniteMDP.from_arrays([[[0.5, 0.5]], [[0.5, 0.5]]], [[0.0], [0.0]], 1).task()
    for make in (np.asarray, sparse.csr_array):
        features = up.Features(task, make([[0.0], [1.0], [0.0], [1.0]]), names=["leap"])
        rare = up.fit_mnl(features, [10_000.0, 1.0, 0.0, 0.0], 0.0)
        assert rare.theta[0] == pytest.approx(-np.log(10_000), rel=1e-9) and rare.warnings == []
        near = up.fit_mnl(features, [100.0, 1e-3, 0.0, 0.0], 0.0)
        assert near.standard_errors[0] > 30
        assert "predicted perfectly or nearly so by leap: " in near.summary()


def test_clusters_of_choices_whatever_their_order(monkeypatch):
    """A cluster of every choice is the robust sandwich times G / (G - 1); order changes nothing."""
    rng = np.random.default_rng(3)
    x, groups = rng.normal(size=(90, 2)), np.repeat(np.arange(30), 3)
    chosen = np.tile([True, False, False], 30)
    monkeypatch.setattr("upriver.mnl.clusters.MANY", 0)  # no adjustment for few clusters
    alone = fit_clusters(x, chosen, groups, groups)
    robust = alone.with_errors("robust").covariance
    np.testing.assert_allclose(alone.covariance, robust * 30 / 29, rtol=1e-9)
    order = (rng.permutation(30)[:, None] * 3 + np.arange(3)).ravel()
    cluster = groups % 7
    plain = fit_clusters(x, chosen, groups, cluster)
    mixed = fit_clusters(x[order], chosen[order], groups[order], cluster[order])
    np.testing.assert_allclose(mixed.covariance, plain.covariance, rtol=1e-7)
    assert "standard errors: cluster (7 clusters); 40 or more are needed" in plain.summary()
    with pytest.raises(ValueError, match="without cluster="):
        up.fit_choices(x, chosen, groups).with_errors("cluster")


def test_data_that_weigh_less_than_one_have_the_same_estimate(rng):
    """Counts and lambda of a thousandth: the same theta, and a thousandth of the loss."""
    rows, ends = rng.standard_normal((120, 3)), np.arange(0, 121, 3)
    counts = np.zeros(120)
    counts[ends[:-1] + rng.integers(3, size=40)] = 1.0
    visits = np.ones(40)
    data = choice_data.Choices(ends, rows, counts, visits, 0.7)
    theta, loss, *_ = fitting.fit_newton(data, None)
    light = choice_data.Choices(ends, rows, 1e-3 * counts, 1e-3 * visits, 7e-4)
    again, less, *_ = fitting.fit_newton(light, None)
    np.testing.assert_allclose(again, theta, atol=1e-8)
    assert less == pytest.approx(1e-3 * loss, rel=1e-9)


def test_a_fit_that_stops_early_warns_and_says_so(monkeypatch):
    X, chosen, groups = choices(400, 4, 5, seed=3)
    monkeypatch.setattr(fitting, "ITERATIONS", 1)
    with pytest.warns(up.ConvergenceWarning, match="did not converge in 1 iterations"):
        short = up.fit_choices(X, chosen, groups, regularization=1e-9)
    monkeypatch.setattr(fitting, "ITERATIONS", 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        full = up.fit_choices(X, chosen, groups, regularization=1e-9)
    assert full.converged and not short.converged and short.llf < full.llf


def test_a_fit_without_a_choice_can_be_shown():
    fitted = up.fit_choices(np.ones((3, 1)), [1, 1, 1], [0, 1, 2], 1.0)
    assert np.isnan(fitted.pseudo_r2) and "nan" in fitted.summary() and "nan" in repr(fitted)


def test_sparse_features_refuse_an_infinite_estimate_as_dense_ones_do():
    task = up.envs.riverswim(4).task(support="local")
    phi, counts = up.features.one_hot_indicator(task), np.full(task.n_triples, 3.0)
    assert np.isfinite(up.fit_mnl(phi, counts, 0.0).theta).all()
    counts[3] = 0.0
    for matrix in (phi.matrix, phi.matrix.toarray()):
        with pytest.raises(ValueError, match=r"predicted perfectly by .*no finite estimate"):
            up.fit_mnl(up.Features(task, matrix, phi.names), counts, 0.0)
    assert np.isfinite(up.fit_mnl(phi, counts, 0.1).theta).all()


def test_missing_labels_of_choices_are_refused():
    x, groups = np.random.default_rng(0).normal(size=(8, 1)), np.repeat(np.arange(4.0), 2)
    groups[2] = np.nan
    with pytest.raises(ValueError, match=r"groups\[2\] is missing"):
        up.fit_choices(x, np.tile([1, 0], 4), groups)


def two_successors() -> up.Task:
    """Pairs (0, go), (1, go) with next states 0 and 1."""
    return up.FiniteMDP.from_arrays([[[0.5, 0.5]], [[0.5, 0.5]]], [[0.0], [0.0]], 1).task()


def test_an_interval_beyond_rounding_of_probabilities_is_that_of_the_log_odds():
    """With log-odds of 40 the larger probability is 1 to rounding; its interval is not."""
    from scipy import special

    features = up.Features(two_successors(), [[0.0], [0.01], [0.0], [0.0]], names=["far"])
    fitted = up.fit_mnl(features, [0.0, 1e6, 0.0, 0.0], 1e-3)
    log_odds, error = 0.01 * fitted.theta[0], 0.01 * fitted.standard_errors[0]
    assert 5 < log_odds < 15
    for ridge in (1e-3, 1e-9, 1e-16):
        fitted = up.fit_mnl(features, [0.0, 1e6, 0.0, 0.0], ridge)
        log_odds, error = 0.01 * fitted.theta[0], 0.01 * fitted.standard_errors[0]
        row = fitted.transitions(0, 0)
        reach = special.ndtri(0.975) * error
        ends = special.expit([log_odds - reach, log_odds + reach])
        assert [row[1]["low"], row[1]["high"]] == pytest.approx(list(ends), rel=1e-9)
        assert [row[0]["low"], row[0]["high"]] == pytest.approx(
            list(special.expit([-log_odds - reach, -log_odds + reach])), rel=1e-9
        )
        p = special.expit(-log_odds)
        assert row[1]["standard_error"] == pytest.approx(p * (1 - p) * error, rel=1e-6)
    assert log_odds > 35 and row[1]["low"] < 0.5


def test_intervals_are_made_from_the_gradient_of_the_log_odds(rng):
    """Against finite differences, with up to five successors of unequal probabilities."""
    from scipy import special

    from upriver.mnl.fitted import log_odds_intervals

    sizes = np.array([3, 1, 5, 2])
    of, covariance = np.repeat(np.arange(4), sizes), np.diag([0.3, 0.01, 2.0])
    x, theta = rng.standard_normal((11, 3)), np.array([1.0, -3.0, 2.0])

    def log_odds(theta):
        z = np.exp(x @ theta)
        others = np.array([z[(of == of[i]) & (np.arange(11) != i)].sum() for i in range(11)])
        return np.log(z) - np.log(np.where(others > 0, others, 1e-300))

    p = special.expit(log_odds(theta))
    score = x - np.array([(p[of == g, None] * x[of == g]).sum(axis=0) for g in of])
    error, low, high = log_odds_intervals(sizes, p, score, covariance, 1.7)
    step = 1e-6 * np.eye(3)
    slope = np.array([log_odds(theta + e) - log_odds(theta - e) for e in step]).T / 2e-6
    spread = np.sqrt(np.einsum("ij,jk,ik->i", slope, covariance, slope))
    some = np.repeat(sizes > 1, sizes)
    np.testing.assert_allclose(error[some], (p * (1 - p) * spread)[some], rtol=1e-6)
    for end, sign in ((low, -1.7), (high, 1.7)):
        expected = special.expit(log_odds(theta) + sign * spread)
        np.testing.assert_allclose(end[some], expected[some], rtol=1e-6)
    assert (error[3], low[3], high[3]) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_a_summary_where_the_last_pair_does_not_exist(make):
    """State 1 has one action of two, so that the last pair has no triple."""
    mdp = up.FiniteMDP.from_arrays(
        [[[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.0, 0.0]]], [[0.0] * 2] * 2, 1
    )
    features = up.Features(mdp.task(), make([[0.0], [1.0], [0.0], [1.0], [0.0], [1.0]]))
    assert "theta[0]" in up.fit_mnl(features, [5, 3, 2, 2, 4, 7], 0.1).summary()


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_pairs_that_were_never_visited_cause_no_warning(make):
    """The span of a column among pairs that the data do not have says nothing about the fit."""
    features = up.Features(two_successors(), make([[0.0], [1.0], [0.0], [1e4]]), names=["size"])
    plain = up.fit_mnl(features, [60.0, 40.0, 0.0, 0.0], 1e-6)
    assert plain.theta[0] == pytest.approx(np.log(40 / 60), abs=1e-6)
    assert plain.warnings == []
