"""Small cases by hand of what a log says about a policy; a wrong sign or factor changes them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import special

import upriver as up
from tests.building import fit_counts, fit_features
from upriver.logs import offpolicy, planning
from upriver.logs.goodness import Cells, count_degrees, draw_terms, invert
from upriver.logs.value_function import PolicyValueFunction, ValueGradient, build_value_function
from upriver.mnl.choices import Choices


class TestSearch:
    """The search over the ellipsoid |x| <= radius, of functions whose extremes are known."""

    @staticmethod
    def search(value, gradient, radius, sign):
        def at(x):
            return ValueGradient(float(value(x)), gradient(x), np.empty(0), np.empty(0))

        origin = np.zeros(2)
        function = SimpleNamespace(origin=origin, image=lambda slope: slope, at=at)
        search = PolicyValueFunction.optimize_in_ellipsoid
        return search(function, at(origin), radius, sign).value  # type: ignore[arg-type]

    @pytest.mark.parametrize("sign", [-1.0, 1.0])
    def test_a_linear_function_ends_at_the_border(self, sign):
        slope = np.array([3.0, 4.0])
        found = self.search(lambda x: slope @ x, lambda x: slope, 2.0, sign)
        assert found == pytest.approx(sign * 10.0)

    def test_steps_that_overshoot_are_halved(self):
        """The maximum of -(x - 0.5)^2 - y^2 is inside of the ball, at a quarter of the radius."""
        centre = np.array([0.5, 0.0])
        found = self.search(
            lambda x: -np.sum((x - centre) ** 2), lambda x: 2 * (centre - x), 2.0, 1.0
        )
        assert found == pytest.approx(0.0, abs=1e-3)

    def test_steps_are_towards_the_border_not_beyond(self):
        """Saturating in x, the larger slope at first, and linear in y: both must be found."""

        def value(x):
            return 3.0 * np.tanh(3.0 * x[0]) + 2.0 * x[1]

        def gradient(x):
            return np.array([9.0 / np.cosh(3.0 * x[0]) ** 2, 2.0])

        angle = np.linspace(0.0, np.pi, 100_001)
        best = value([np.cos(angle), np.sin(angle)]).max()
        found = self.search(value, gradient, 1.0, 1.0)
        assert 0.98 * best <= found <= best + 1e-9


def two_step_log():
    """Six episodes of two steps: a state "s" with two actions, then "g" or "b" with two."""
    episodes = [
        ("s", "l", "g", "l"), ("s", "l", "g", "r"), ("s", "r", "g", "l"),
        ("s", "r", "b", "r"), ("s", "r", "b", "l"), ("s", "l", "b", "r"),
    ]  # fmt: skip
    rows = []
    for i, (s, a, s2, a2) in enumerate(episodes):
        rows += [(i, 0, s, a, s2, 1.0 + i), (i, 1, s2, a2, "s", 2.0 * i)]
    names = ("episode", "step", "state", "action", "next_state", "paid")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def two_step_model(log):
    task = up.Task.from_successors(
        ["s", "g", "b"], ["l", "r"], lambda s, a: ["g", "b"] if s == "s" else ["s"], 2,
        lambda s, a: 0.0, reward_range=(0.0, 10.0),
    )  # fmt: skip
    return fit_features(
        up.features.one_hot(task), log, regularization=1.0, individual="episode", step="step"
    )


class TestTwoSteps:
    """Importance sampling and the doubly robust estimate of two steps, written out in loops."""

    log = two_step_log()
    policy = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    behaviour = np.array([[0.5, 0.5], [2 / 3, 1 / 3], [1 / 3, 2 / 3]])

    def episodes(self):
        number, action = {"s": 0, "g": 1, "b": 2}, {"l": 0, "r": 1}
        s = np.array([number[x] for x in self.log["state"]]).reshape(6, 2)
        a = np.array([action[x] for x in self.log["action"]]).reshape(6, 2)
        return s, a, np.array(self.log["paid"]).reshape(6, 2)

    @pytest.fixture
    def found(self):
        model = two_step_model(self.log)
        data = offpolicy.build_episodes(model)
        data = data._replace(rewards=np.reshape(self.log["paid"], (6, 2)))
        checks = offpolicy.check_episodes(model, self.policy, data, 0.95)
        return model, {r["name"]: r for r in checks.rows}

    def weights(self):
        s, a, paid = self.episodes()
        ratio = np.cumprod(self.policy[s, a] / self.behaviour[s, a], axis=1)
        return s, a, paid, ratio, ratio / ratio.mean(axis=0)

    def test_importance_sampling(self, found):
        row = found[1]["weighted importance sampling"]
        *_, paid, ratio, weight = self.weights()
        means = [np.mean(weight[:, h] * paid[:, h]) for h in range(2)]
        assert row["value"] == pytest.approx(sum(means))
        each = [
            sum(weight[i, h] * (paid[i, h] - means[h]) / np.sqrt(1 - weight[i, h] / 6)
                for h in range(2))
            for i in range(6)
        ]  # fmt: skip
        assert row["standard_error"] == pytest.approx(np.sqrt(np.square(each).sum()) / 6)
        last = ratio[:, 1]
        assert row["effective"] == pytest.approx(last.sum() ** 2 / np.square(last).sum())

    def test_doubly_robust(self, found):
        model, rows = found
        *_, paid, _, weight = self.weights()
        # the rewards of the task are 0, so the model's values are 0: only the log's part is left
        each = (weight * paid).sum(axis=1)
        assert rows["doubly robust"]["value"] == pytest.approx(each.mean())
        error = np.std(each, ddof=1) / np.sqrt(6)
        assert rows["doubly robust"]["standard_error"] == pytest.approx(error)
        assert model.task.horizon == 2

    def test_the_models_values_enter_before_the_step(self):
        """sum_h w_(h-1) V_h + w_h (r_h - Q_h), with any V and Q."""
        model = two_step_model(self.log)
        data = offpolicy.build_episodes(model)
        data = data._replace(rewards=np.reshape(self.log["paid"], (-1, 2)))
        s, a, paid, _, weight = self.weights()
        q, v = np.arange(12.0).reshape(2, 6), np.arange(9.0).reshape(3, 3) ** 2
        each = []
        for i in range(6):
            total, before = 0.0, 1.0
            for h in range(2):
                of_pair = q[h, 2 * s[i, h] + a[i, h]]
                total += before * v[h, s[i, h]] + weight[i, h] * (paid[i, h] - of_pair)
                before = weight[i, h]
            each.append(total)
        parts = offpolicy.robust_parts(model.task, data, weight, q, v)
        value, error = offpolicy.mean_and_error(parts, data)
        assert value == pytest.approx(np.mean(each))
        assert error == pytest.approx(np.std(each, ddof=1) / np.sqrt(6))


def test_the_verdict_counts_both_errors_and_two_comparisons(monkeypatch):
    def rows(*values):
        return [
            {"name": str(i), "value": x, "standard_error": 1.0, "effective": 100.0}
            for i, x in enumerate(values)
        ]

    # distances are in units of the root of 1 + 1
    assert "agree with it" in offpolicy.compare_estimates(rows(0.0, 2.5, 0.0), 2.0)
    assert "disagrees with 1:" in offpolicy.compare_estimates(rows(0.0, 2.9, 0.0), 2.0)
    seen = []
    monkeypatch.setattr(offpolicy, "compare_estimates", lambda rows, z: seen.append(z))
    up.check_policy_value(two_step_model(two_step_log()), "l", confidence=0.9)
    # six episodes leave five degrees of freedom
    assert seen == [pytest.approx(special.stdtrit(5, 1.0 - 0.1 / 4.0))]


class TestGoodnessOfFit:
    """One drawn log of two pairs and one feature, fitted again by one Newton step with a ridge."""

    theta, lam = np.array([0.4]), 2.0
    x, drawn = np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([[7.0, 3.0], [4.0, 6.0]])

    def probabilities(self, theta):
        p = np.exp(self.x * theta)
        return p / p.sum(axis=1, keepdims=True)

    def test_a_drawn_log(self):
        p = self.probabilities(self.theta)
        cells = Cells(
            Choices(np.array([0, 2, 4]), self.x.reshape(-1, 1), np.array([6.0, 4.0, 5.0, 5.0]),
                    np.full(2, 10.0), 0.0), p.ravel(),
            np.arange(4), np.array([0, 0, 1, 1]), [("s", "a"), ("t", "a")],
        )  # fmt: skip
        fitted: Any = SimpleNamespace(theta=self.theta, regularization=self.lam)
        rng: Any = SimpleNamespace(multinomial=lambda n, p, size: self.drawn[None])
        information = cells.data.hessian(fitted.theta)
        inverse = invert(information, self.lam)
        found = draw_terms(cells, fitted, inverse, 1, rng)
        score = (self.x * (self.drawn - 10.0 * p)).sum() - self.lam * self.theta[0]
        spread = (p * self.x**2).sum(axis=1) - (p * self.x).sum(axis=1) ** 2
        expected = 10.0 * self.probabilities(self.theta + score / (10.0 * spread.sum() + self.lam))
        assert count_degrees(cells, information) == len(cells.cell) - len(cells.names) - 1
        np.testing.assert_allclose(found[0], ((self.drawn - expected) ** 2 / expected).ravel())


def clustered_model(n_clusters=6, ridge=0.0, cluster: str | None = "who"):
    """One state, one action, two next states, of which "g" pays 1; clusters of unequal shares."""
    rows = [
        (c, "s", "go", "g" if i < 1 + c % 3 else "b") for c in range(n_clusters) for i in range(6)
    ]
    names = ("who", "state", "action", "next_state")
    log = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    model = up.fit_transitions(
        "C(next_state)", log, cluster=cluster, regularization=ridge,
        successors=lambda s, a: ["g", "b"] if s == "s" else [s],
    )  # fmt: skip
    return model.at(horizon=1, reward=lambda s, a, s2: float(s2 == "g"))


def test_values_of_clusters_have_the_quantiles_of_t():
    model = clustered_model()
    each = np.array([(1 + c % 3) / 6 for c in range(6)])
    value = up.policy_value(model.at(start="s"), "go")
    assert value.value == pytest.approx(each.mean())
    # the clusters are equally large: CR2 enlarges what each adds by the root of 6 / 5
    error = np.sqrt(np.square(each - each.mean()).sum() * 6 / 5) / 6
    assert value.standard_error == pytest.approx(error)
    reach = special.stdtrit(5, 0.975) * error / (each.mean() * (1 - each.mean()))
    centre = special.logit(each.mean())
    assert value.low == pytest.approx(special.expit(centre - reach))
    assert value.high == pytest.approx(special.expit(centre + reach))


def test_the_bound_of_the_only_plan_is_one_end_of_its_interval():
    """Nothing was chosen, so the bound of 95% is the lower end of the interval of 90%."""
    model = clustered_model()
    plan = up.plan_from_model(model.at(start="s"), "cautious", 0.95)
    two_sided = up.policy_value(model.at(start="s"), "go", 0.9)
    assert plan.v[0, list(model.task.states).index("s")] == pytest.approx(two_sided.low)


class TestStandardError:
    """A coin chooses between two pairs of 10 and 40 rows, with probabilities of 1/2 and 1/5."""

    counts = np.array([[5.0, 5.0], [8.0, 32.0]])

    def variances(self):
        p = self.counts[:, 0] / self.counts.sum(axis=1)
        return 0.25 * p * (1 - p) / self.counts.sum(axis=1)

    def check(self, found):
        assert found.standard_error == pytest.approx(np.sqrt(self.variances().sum()), rel=1e-6)

    def log(self):
        rows = [("s", a, s2) for a in "lr" for s2 in "gb"]
        names = ("state", "action", "next_state")
        made = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        return made | {"n": self.counts.ravel()}

    def test_of_counts(self):
        task = up.Task.from_successors(
            ["s", "g", "b"], ["l", "r"], lambda s, a: ["g", "b"] if s == "s" else [s], 2,
            lambda s, a, s2: float(s == "s" and s2 == "g"),
        )  # fmt: skip
        phi = up.features.one_hot(task)
        model = fit_features(phi, self.log(), weights="n", regularization=1e-9)
        found = up.policy_value(model.at(start="s"), np.full((3, 2), 0.5))
        self.check(found)
        assert found.unseen == 0.0  # the pairs of "g" and "b" have no rows, but one next state

    def test_of_rows(self):
        model = up.fit_transitions(
            "action:C(next_state)", self.log(), weights="n",
            successors=lambda s, a: ["g", "b"] if s == "s" else [s],
        ).at(horizon=1, reward=lambda s, a, s2: float(s2 == "g"))  # fmt: skip
        self.check(up.policy_value(model.at(start="s"), np.full((3, 2), 0.5)))


class TestRewardsFromColumns:
    """Values of one step, which are means of a column."""

    def value(self, action, log, formula, **options):
        log = {"state": ["s"] * len(log["action"]), **log}
        model = up.fit_transitions(
            "C(next_state)", log, reward=formula, **options,
            successors=lambda s, a: ["g", "b"] if s == "s" else [s],
        ).at(horizon=1)  # fmt: skip
        return up.policy_value(model.at(start="s"), action)

    def test_a_mean_of_one_row_has_the_variance_of_the_others(self):
        paid = [1.0, 2.0, 6.0, 4.0]
        log = {"action": list("lllr"), "next_state": list("gbbg"), "paid": paid}
        one, three = (self.value(a, log, "paid") for a in "rl")
        assert (one.value, three.value) == (4.0, 3.0)
        variance = np.var(paid[:3], ddof=1)
        assert one.standard_error == pytest.approx(np.sqrt(variance))
        assert three.standard_error == pytest.approx(np.sqrt(variance / 3))

    @pytest.mark.parametrize("formula", ["paid", "paid ~ 1"])
    def test_few_clusters(self, formula):
        """A cluster's sum of residuals is divided by the root of 1 minus its share of the rows."""
        paid, who = np.array([1.0, 4.0, 2.0, 8.0, 6.0, 9.0]), np.array([0, 0, 0, 1, 1, 2])
        log = {"action": ["go"] * 6, "next_state": list("gbgbgb"), "paid": paid, "who": who}
        found = self.value("go", log, formula, cluster="who")
        assert found.value == pytest.approx(paid.mean())
        sums = np.bincount(who, paid - paid.mean())
        variance = (sums**2 / (1 - np.bincount(who) / 6)).sum() / 36
        assert found.standard_error == pytest.approx(np.sqrt(variance))


class TestClusters:
    """One log-odds ratio of clusters of six rows, with a ridge."""

    @pytest.mark.parametrize(("n", "ridge"), [(6, 0.0), (6, 2.0), (102, 2.0)])
    def test_errors(self, n, ridge):
        model = clustered_model(n, ridge)
        (theta,), each = model.fitted.theta, np.array([1.0 + c % 3 for c in range(n)])
        p = special.expit(theta)
        scores = each - 6 * p
        assert scores.sum() == pytest.approx(ridge * theta, abs=1e-6)
        information = 6 * n * p * (1 - p) + ridge
        # CR2 divides by the root of 1 minus the cluster's share; of more than 100 clusters all
        # are enlarged alike
        grown = 1 / (1 - 6 * p * (1 - p) / information) if n <= 100 else n / (n - 1)
        variance = (np.square(scores).sum() * grown + ridge) / information**2
        assert model.fitted.covariance == pytest.approx(np.array([[variance]]))
        reach = special.stdtrit(n - 1, 0.95) * np.sqrt(variance)
        assert np.asarray(model.conf_int(0.1))[0] == pytest.approx([theta - reach, theta + reach])
        value = up.policy_value(model.at(start="s"), "go")
        assert value.standard_error == pytest.approx(p * (1 - p) * np.sqrt(variance))

    def test_a_prediction_has_the_interval_of_its_log_odds(self):
        model = clustered_model(cluster=None)
        table = model.predict({"state": ["s"], "action": ["go"]}, confidence=0.9)
        row = table.set_index("next_state").loc["g"]
        # 12 of 36 rows
        reach = special.ndtri(0.95) / np.sqrt(36 * (1 / 3) * (2 / 3))
        ends = special.expit(special.logit(1 / 3) + np.array([-reach, reach]))
        assert [row["low"], row["high"]] == pytest.approx(list(ends))

    def test_a_prediction_of_few_clusters_has_t_quantiles(self):
        model = clustered_model()
        row = model.predict({"state": ["s"], "action": ["go"]}, confidence=0.9).iloc[0]
        p = row["probability"]
        reach = (special.logit(row["high"]) - special.logit(p)) * p * (1 - p)
        assert reach / row["standard_error"] == pytest.approx(
            special.stdtrit(5, 0.95)
        )  # 6 clusters


class TestCautiousPlan:
    """The parts of the cautious plan, with errors that are given instead of drawn."""

    @staticmethod
    def draw(monkeypatch, *theta):
        def given(self, rng):
            return np.concatenate([theta, self.origin[len(theta) :]])

        monkeypatch.setattr(PolicyValueFunction, "draw", given)

    @staticmethod
    def fit(good, rows, ridge):
        """Fit arms that lead from "s" to "g", which pays 1, in some of their rows, or to "b"."""
        names = [str(a) for a in range(len(good))]
        task = up.Task.from_successors(
            ["s", "g", "b"], names, lambda s, a: ["g", "b"] if s == "s" else [s], 1,
            lambda s, a, s2: float(s == "s" and s2 == "g"),
        )  # fmt: skip
        s, a, s2 = task.triples
        log_odds = (s == 0) & (s2 == 1)
        x = log_odds[:, None] * (a[:, None] == np.arange(len(good))).astype(float)
        counts = np.where(log_odds, np.array(good)[a], (np.array(rows) - good)[a]) * (s == 0)
        return fit_counts(up.Features(task, x), counts, ridge, task)

    @pytest.mark.parametrize("w", [-0.3, 0.0, 0.4])
    def test_the_bound_of_the_other_half(self, monkeypatch, w):
        """theta - w minus z errors: that of the ellipsoid, and that of w."""
        model, ridge = self.fit([12.0], [20.0], 2.0), 2.0
        self.draw(monkeypatch, w)
        monkeypatch.setattr(planning, "is_chosen", lambda *_: True)
        plan = up.plan_from_model(model.at(start="s"), "cautious", 0.9)
        (theta,) = model.fitted.theta
        p = special.expit(theta)
        assert 12 - 20 * p == pytest.approx(ridge * theta)
        c = 1 / (20 * p * (1 - p) + ridge)
        below = w + special.ndtri(0.9) * np.sqrt(c + c)
        assert plan.v[0, 0] == pytest.approx(special.expit(theta - below))

    @pytest.mark.parametrize(
        ("good", "chosen"), [(5000.0, True), (4850.0, True), (4757.0, True), (4730.0, False)]
    )
    def test_a_plan_is_chosen_where_errors_three_times_as_large_change_it(
        self, monkeypatch, good, chosen
    ):
        """The error is 0.005: 3 * 1.645 of them are 0.0247, between 243 and 270 rows of 10,000."""
        model = self.fit([5000.0, good], [10_000.0, 10_000.0], 1e-3)
        self.draw(monkeypatch, 0.0, 0.0)
        function = build_value_function(model.at(start="s"), [])
        best = planning.build_candidate(function, function.origin)
        rng = np.random.default_rng(0)
        assert planning.is_chosen(best, 1.645, rng) == chosen

    @pytest.mark.parametrize(("w", "arm"), [(-0.1, 0), (0.0, 0), (2.5, 1)])
    def test_the_half_that_chooses_weighs_errors(self, monkeypatch, w, arm):
        """An arm with 6 of 10 rows has an error of 0.15; known only with the error w, of 0.22."""
        model = self.fit([500.0, 6.0], [1000.0, 10.0], 1e-3)
        self.draw(monkeypatch, 0.0, -2.0)  # so that the other arm is tried in every case
        function = build_value_function(model.at(start="s"), [])
        point = np.concatenate([[0.0, w], function.origin[2:]])
        rng = np.random.default_rng(0)
        best = planning.choose_candidate(point, function, 1.645, rng)
        assert best.plan.policy[0, 0] == arm
