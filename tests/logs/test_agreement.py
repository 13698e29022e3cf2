"""The same numbers as statsmodels and xlogit on public choice data, to 1e-5."""

import numpy as np
import pandas as pd
import pytest

import upriver as up
from tests.mnl.clustered import fit_clusters
from upriver.mnl import clusters

from . import public

CLOSE = 1e-5


@pytest.mark.parametrize("name", public.DATA)
def test_statsmodels_agrees_on_public_data(name, monkeypatch):
    """Coefficients, log-likelihood, classical errors, and its cluster sandwich of its scores."""
    discrete = pytest.importorskip("statsmodels.discrete.conditional_models")
    from statsmodels.stats.sandwich_covariance import S_crosssection

    x, chosen, groups, cluster = map(np.asarray, public.DATA[name]())
    monkeypatch.setattr(clusters, "MANY", 0)  # without the adjustment for few clusters
    ours = fit_clusters(x, chosen, groups, cluster)
    classical = ours.with_errors("classical")
    model = discrete.ConditionalLogit(chosen.astype(float), x, groups=groups)
    theirs = model.fit(method="newton", maxiter=50, disp=False)
    np.testing.assert_allclose(ours.theta, theirs.params, rtol=CLOSE)
    np.testing.assert_allclose(ours.log_likelihood, theirs.llf, rtol=CLOSE)
    np.testing.assert_allclose(classical.standard_errors, theirs.bse, rtol=CLOSE)
    scores = np.array([model.score_grp(g, theirs.params) for g in range(model._n_groups)])
    of_group = cluster[np.unique(groups, return_index=True)[1]]
    bread, n = theirs.cov_params(), len(np.unique(cluster))
    meat = S_crosssection(scores, np.unique(of_group, return_inverse=True)[1])
    expected = np.sqrt(np.diag(bread @ meat @ bread) * n / (n - 1))
    np.testing.assert_allclose(ours.standard_errors, expected, rtol=CLOSE)


@pytest.mark.parametrize("name", public.DATA)
def test_xlogit_agrees_on_public_data(name):
    """Coefficients, log-likelihood, classical and robust errors; its robust ones have N / (N - 1)
    and are of centred scores, which changes nothing at the maximum."""
    xlogit = pytest.importorskip("xlogit")
    x, chosen, groups, _ = map(np.asarray, public.DATA[name]())
    ours = up.fit_choices(x, chosen, groups)
    n = len(np.unique(groups))
    alternatives = np.tile(np.arange(len(x) // n), n)
    names = [f"x{i}" for i in range(x.shape[1])]
    theirs = xlogit.MultinomialLogit()
    for kind, factor in (("classical", 1.0), ("robust", n / (n - 1))):
        theirs.fit(
            x, chosen, names, alternatives, groups, verbose=0, robust=kind == "robust",
            tol_opts={"ftol": 1e-12}, init_coeff=ours.theta * 1.01,
        )  # fmt: skip
        np.testing.assert_allclose(ours.theta, theirs.coeff_, rtol=CLOSE)
        np.testing.assert_allclose(ours.log_likelihood, theirs.loglikelihood, rtol=CLOSE)
        expected = theirs.stderr / np.sqrt(factor)
        np.testing.assert_allclose(ours.with_errors(kind).standard_errors, expected, rtol=CLOSE)


def test_a_multinomial_logit_with_clusters_is_that_of_statsmodels():
    """Brands on prices and displays, households as clusters: `fit_transitions` as MNLogit.

    statsmodels corrects by C / (C - 1) (N - 1) / (N - d), we by the first as Stata does.
    """
    discrete = pytest.importorskip("statsmodels.discrete.discrete_model")
    data = public.ecdat("Catsup").rename(columns=lambda c: c.replace(".", "_"))
    causes = ["price_heinz32", "price_hunts32", "disp_heinz28"]
    log = data.assign(state="shop", action="buy")
    ours = up.fit_transitions(
        " + ".join(["choice", *(f"choice:{c}" for c in causes)]),
        log,
        columns=("state", "action", "choice"),
        cluster="id",
    )
    brands = ["heinz28", "heinz32", "heinz41", "hunts32"]
    y = pd.Categorical(data["choice"], brands).codes
    causal = np.column_stack([np.ones(len(data)), data[causes]])
    model = discrete.MNLogit(y, causal)
    settings = {"method": "newton", "maxiter": 50, "disp": False}
    theirs = model.fit(**settings)
    grouped = {"groups": data["id"].to_numpy(), "use_correction": False}
    clustered = model.fit(**settings, cov_type="cluster", cov_kwds=grouped)
    n = data["id"].nunique()
    order = [f"choice[T.{b}]" for b in brands[1:]]
    order += [f"choice[{b}]:{c}" for c in causes for b in brands[1:]]
    at = [list(ours.fitted.names).index(name) for name in order]
    np.testing.assert_allclose(ours.fitted.theta[at], theirs.params.ravel(), rtol=CLOSE)
    assert ours.fitted.log_likelihood == pytest.approx(theirs.llf, rel=1e-9)
    classical = ours.with_errors("classical").fitted.standard_errors[at]
    np.testing.assert_allclose(classical, theirs.bse.ravel(), rtol=CLOSE)
    expected = clustered.bse.ravel() * np.sqrt(n / (n - 1))
    np.testing.assert_allclose(ours.fitted.standard_errors[at], expected, rtol=CLOSE)
