"""Errors by cluster where clusters are few, or where one determines a coefficient alone."""

import numpy as np
import pandas as pd
import pytest

import upriver as up

from .test_by_hand import clustered_model


class TestWaldOfFewClusters:
    def test_one_coefficient_has_the_p_value_of_its_t_ratio(self):
        model = clustered_model(6)
        name = model.coefficient_names[0]
        assert model.wald(name).p_value == pytest.approx(float(model.pvalues.iloc[0]), rel=1e-9)

    def test_several_coefficients_are_those_of_hotelling(self):
        """(G - k) / (k (G - 1)) times the statistic is F with k and G - k degrees."""
        from scipy import stats

        rng = np.random.default_rng(3)
        n = 240
        frame = {"state": np.zeros(n, int), "action": rng.integers(0, 2, n),
                 "next_state": rng.integers(0, 3, n), "who": np.arange(n) % 8}  # fmt: skip
        model = up.fit_transitions("C(next_state)", frame, cluster="who")
        test = model.wald("C(next_state)")
        scaled = test.statistic * (8 - 2) / (2 * (8 - 1))
        assert test.p_value == pytest.approx(stats.f.sf(scaled, 2, 6))
        classical = model.with_errors("classical").wald("C(next_state)")
        assert classical.p_value == pytest.approx(stats.chi2.sf(classical.statistic, 2))
        few = up.fit_transitions("C(next_state)", {**frame, "who": np.arange(n) % 2}, cluster="who")
        with pytest.raises(ValueError, match=r"2 clusters.*more than 2"):
            few.wald("C(next_state)")


class TestWhatOneClusterDetermines:
    """An error of 0 would say that the estimate of one cluster is exact."""

    frame = pd.DataFrame([
        {"state": s, "action": "go", "next_state": t, "who": who, "cost": cost}
        for s, t, who, cost in [
            *(("a", "b", w, 5.0 + w) for w in (0, 0, 1, 2, 3, 4)),
            *(("a", "c", w, 6.0 - w) for w in (0, 1, 2, 5, 5, 5)),
            *(("b", "c", 2, c) for c in (6.0, 7.0, 6.25)),
            *(("b", "a", 2, c) for c in (6.5, 7.0, 7.0)),
            *(("c", "a", w, 1.0) for w in range(3)), *(("c", "b", w, 2.0 * w) for w in range(6)),
        ]
    ])  # fmt: skip

    @pytest.mark.parametrize("times", [1, 30])
    def test_coefficients(self, times):
        parts = [self.frame.assign(who=self.frame.who + 6 * i) for i in range(times)]
        # only the first copy has rows of b, which one cluster determines
        log = pd.concat([parts[0], *(x[x.state != "b"] for x in parts[1:])])
        model = up.fit_transitions("C(state):C(next_state)", log, cluster="who")
        error = dict(zip(model.coefficient_names, model.fitted.standard_errors, strict=True))
        classical = model.with_errors("classical").fitted.standard_errors
        assert (model.fitted.standard_errors > 0.3 * classical).all(), error
        assert np.isfinite(model.pvalues).all()

    def test_means_of_rewards(self):
        model = up.fit_transitions(
            "C(state):C(next_state)", self.frame, cluster="who", reward="cost", horizon=1
        )
        value = up.policy_value(model.at(start="b"), "go")
        assert value.value == pytest.approx(6.625)
        # the spread of cluster means of other pairs: 5 + w and 6 - w cancel in a, not in c
        assert 0.2 < value.standard_error < 5.0
        assert value.low < 6.3 and value.high > 6.95

    def test_a_reward_that_never_varies_has_no_error(self):
        log = self.frame.assign(cost=self.frame.state.map({"a": 1.0, "b": 2.0, "c": 0.5}))
        model = up.fit_transitions(
            "C(state):C(next_state)", log, cluster="who", reward="cost", horizon=1
        )
        value = up.policy_value(model.at(start="b"), "go")
        assert value.value == pytest.approx(2.0) and value.standard_error < 1e-12
        alone = log.assign(who=[{"a": 0, "b": 1, "c": 2}[s] for s in log.state])
        model = up.fit_transitions("C(next_state)", alone, cluster="who", reward="cost", horizon=1)
        with pytest.raises(ValueError, match="one cluster for each mean of 'cost'"):
            up.policy_value(model.at(start="b"), "go")


class TestWhatWasDoneByFewClusters:
    """The model of the actions is adjusted for few clusters as the transitions are."""

    def value(self, log, **fixed):
        model = up.fit_transitions(
            "next_state + sex:next_state", log, cluster="clinic", individual="who", horizon=1,
            reward=lambda state, action: float(action == "go"),
        )  # fmt: skip
        return up.policy_value(model.at(fixed, start="b"), "behaviour")

    def log(self, clinics):
        """Of each clinic its sex, and how often it went and stayed in state b."""
        rng = np.random.default_rng(0)
        log = pd.DataFrame([
            {"state": "b", "action": action, "sex": sex, "clinic": i}
            for i, (sex, *times) in enumerate(clinics)
            for action, n in zip(("go", "stay"), times, strict=True) for _ in range(n)
        ])  # fmt: skip
        return log.assign(who=range(len(log)), next_state=rng.choice(["a", "b"], len(log)))

    def test_a_covariate_that_is_the_same_in_a_cluster(self):
        """Of a share in three clinics: sum (n_c (p_c - p))^2 / (1 - n_c / n), divided by n^2."""
        women = np.array([(12, 8), (5, 25), (9, 6)])
        clinics = [("f", *x) for x in women.tolist()] + [("m", 20, 10), ("m", 4, 16), ("m", 15, 9)]
        n, share = women.sum(axis=1), women[:, 0].sum() / women.sum()
        square = (women[:, 0] - n * share) ** 2 / (1.0 - n / n.sum())
        found = self.value(self.log(clinics), sex="f")
        assert found.value == pytest.approx(share, rel=1e-5)
        assert found.standard_error == pytest.approx(np.sqrt(square.sum()) / n.sum(), rel=1e-5)

    def test_what_one_cluster_alone_did_is_not_exact(self):
        clinics = [("f", 12, 18), ("m", 20, 10), ("m", 4, 16), ("m", 15, 9)]
        found = self.value(self.log(clinics), sex="f")
        assert found.value == pytest.approx(0.4, rel=1e-5)
        assert found.standard_error >= np.sqrt(0.4 * 0.6 / 30) * (1 - 1e-5)

    def test_a_state_of_one_cluster(self):
        log = self.log([("f", 12, 18)])
        others = self.log([("f", 0, 0), ("f", 9, 8), ("f", 7, 9), ("m", 8, 8)]).assign(state="a")
        others["who"] += len(log)
        log = pd.concat([log, others], ignore_index=True)
        model = up.fit_transitions(
            "next_state", log, cluster="clinic", horizon=1,
            reward=lambda state, action: float(action == "go"),
        )  # fmt: skip
        found = up.policy_value(model.at(start="b"), "behaviour")
        assert found.value == pytest.approx(0.4, rel=1e-5)
        assert found.standard_error == pytest.approx(np.sqrt(0.4 * 0.6 / 30))
