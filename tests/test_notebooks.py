"""The notebooks run, and what their sentences claim is true of what they compute.

Here their cells run as plain Python; the build of the site executes them in a Jupyter kernel.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import poisson

import upriver as up
from tests import pages

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = {
    p.stem: p for p in DOCS.rglob("*.md") if p.read_text().startswith("---\nfile_format: mystnb\n")
}
CELL = "```{code-cell}\n"


def played(name, folder):
    """What the cells of a notebook leave behind."""
    memory: dict = {}
    pages.run(NOTEBOOKS[name], folder, memory=memory)
    return memory


def test_every_notebook_has_cells_and_a_download():
    wanted = {"first-hour", "inventory", "gymnasium", "log", "write-an-agent", "bus-engine",
              "cohort", "credit", "fifty-machines",
              "icu-sepsis"}  # fmt: skip
    assert set(NOTEBOOKS) == wanted
    for name, path in NOTEBOOKS.items():
        text = path.read_text()
        assert text.count(CELL) > 4, path
        assert f"{{nb-download}}`{name}.ipynb`" in text, path


@pytest.mark.parametrize("name", sorted(NOTEBOOKS))
def test_downloaded_notebooks_have_no_roles(name, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "")  # conf.py extends it
    text = NOTEBOOKS[name].read_text()
    plain = runpy.run_path(str(DOCS / "conf.py"))["replace_roles"](text)
    assert not re.findall(r"\{[\w-]+\}`", plain.replace("{code-cell}", ""))
    for title, word in re.findall(
        r"\{term\}`(?:([^`<]*) <)?([^`>]*)>?`", NOTEBOOKS[name].read_text()
    ):
        assert (title or word) in plain


def test_fifty_machines(tmp_path):
    m = played("fifty-machines", tmp_path)
    gain, left_alone = (m["values"]["rollouts"] - m["values"][x] for x in ("rule", "nothing"))
    assert gain.mean > 3 * gain.standard_error and left_alone.mean > gain.mean
    assert m["within"].all()
    learned = up.evaluate(m["net"], m["run"].greedy_policy, 12, seed=1)
    assert learned.mean > 0.95 * m["values"]["rollouts"].mean
    assert (m["fitted"].standard_errors < 1.0).all()


def test_a_cell_that_fails_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"{CELL}x = 1\n```\n\n{CELL}x / 0\n```\n")
    with pytest.raises(ZeroDivisionError):
        pages.run(page, tmp_path)


def test_first_hour(tmp_path):
    m = played("first-hour", tmp_path)
    regret = {name: x.mean() for name, x in m["totals"].items()}
    assert regret["UCRL-MNL-SE"] < regret["UCBVI"] < regret["greedy"]
    assert m["gain"].mean() > 3 * m["error"](m["gain"])
    assert not up.diagnose(m["mdp"], m["rough"]).core.realizable
    assert m["found"].core.realizable and m["features"].dimension == 14
    best = m["best"].v[0, 0]
    assert m["careful"].v[0, 0] <= m["worth"] <= best
    assert m["model"].goodness_of_fit().p_value > 0.05 > 0.01 > m["wrong"].goodness_of_fit().p_value
    assert m["run"].values[-20:].min() > 0.98 * best
    first = m["best"].policy[0]
    assert first[0] == first[10] == 0 and (first[1:10] == 1).all(), "two while somebody waits"
    assert (m["best"].policy[-1] == 0).all(), "one at the end"
    assert np.array_equal(m["whole"].returns[100:], m["more"].returns)


def test_gymnasium(tmp_path):
    """95% of the optimum by both roads, and the ice as it is."""
    m = played("gymnasium", tmp_path)
    best = up.solve(m["mdp"]).v[0, 0]
    assert up.diagnose(m["mdp"], m["phi"]).core.realizable
    assert m["run"].values[-1] >= 0.95 * best
    assert up.evaluate(m["mdp"], m["learning"].policy.actions)[0, 0] >= 0.95 * best
    fitted = up.fit_mnl(m["phi"], m["run"].state.model.counts[0], regularization=1.0)
    for row, truth in zip(fitted.table(), np.log([0.8 / 0.1, 0.9 / 0.1]), strict=True):
        assert abs(row["estimate"] - truth) < 4 * row["standard_error"]


def test_log(tmp_path):
    m = played("log", tmp_path)
    model, careful = m["model"], m["careful"]
    low = m["low"]
    promised = [up.plan_from_model(model, how).v[0, low] for how in ("cautious", "greedy")]
    assert promised == sorted(promised)
    assert model.likelihood_ratio(m["smaller"]).p_value < 0.01
    assert model.goodness_of_fit().p_value > 0.05 > m["smaller"].goodness_of_fit().p_value
    assert careful.v[0, low] <= up.policy_value(model, careful).value
    assert m["gain"].low > 0, "better than what was done"


def test_agent(tmp_path):
    m = played("write-an-agent", tmp_path)
    lost = m["lost"].groupby("agent", observed=True).mean()
    assert set(lost.index) == {
        "Curious-1", "Curious-3", "greedy", "ucrl-mnl-se-one-hot", "ucrl-mnl-se-pooled",
    }  # fmt: skip
    assert lost["ucrl-mnl-se-pooled"] < lost.min() + 0.5
    assert m["run"].values[-1] > 0.9 * m["run"].optimal_values[-1]


def test_inventory(tmp_path):
    """Defined in 25 lines, learned within 1% of the optimum, and the optimum is right."""
    m = played("inventory", tmp_path)
    mdp, best, run = m["mdp"], m["best"], m["run"]
    text = NOTEBOOKS["inventory"].read_text()
    cell = text.partition(CELL)[2].partition("```")[0]
    assert sum(bool(line.strip()) for line in cell.splitlines()) <= 25
    # an independent backward induction, by the stock
    demand = poisson.pmf(np.arange(200), 6.0)
    v = np.arange(21.0)  # what is left is worth 1 a piece
    for h in reversed(range(30)):
        q = np.full((21, 21), -np.inf)
        for stock in range(21):
            for order in range(21 - stock):
                after = np.maximum(stock + order - np.arange(200), 0)
                sold = stock + order - after
                paid = 5.0 * sold - 2.0 * order - 3.0 * (order > 0) - 0.1 * after
                q[stock, order] = demand @ (paid + v[after])
        v = q.max(axis=1)
        for stock in range(21):
            i = mdp.true_task.state_names.number(stock)
            assert np.isclose(best.v[h, i], v[stock], rtol=1e-10)
            order = mdp.true_task.action_names[best.policy[h, i]]
            assert np.isclose(q[stock, order], v[stock], rtol=1e-10)
    start = mdp.true_task.state_names.number(0)
    assert run.values[-1] >= 0.995 * best.v[0, start]
    assert m["months"][-1] < 3 and m["months"][9] < m["months"][-1] / 2
    room = np.array([20 - mdp.true_task.state_names[s] for s in range(21)])
    orders = np.array([mdp.true_task.action_names[a] for a in range(21)])
    assert (orders[run.plan.policy] <= room).all(), "nobody orders more than there is room for"


def test_bus_engine(tmp_path):
    m = played("bus-engine", tmp_path)
    interval, truth = m["model"].conf_int().to_numpy(), list(m["truth"].values())
    assert (interval[:, 0] < truth).all() and (truth < interval[:, 1]).all()
    demand, myopic = m["demand"], m["myopic"]
    assert (np.diff(demand["engines a year"]) < 0).all(), "a dearer engine is bought less often"
    assert (demand["low"] < demand["engines a year"]).all()
    assert (demand["engines a year"] < demand["high"]).all()
    assert myopic.params["mileage"] < 2 * m["model"].params["mileage"]
    assert myopic.llf < m["model"].llf


def test_cohort(tmp_path):
    m = played("cohort", tmp_path)
    loop = m["simulate_cohort"]("new") - m["simulate_cohort"]("standard")
    assert loop == pytest.approx(m["gain"]["qaly"].value, rel=1e-9)
    assert m["full"].llf == pytest.approx(m["total"], abs=1e-4)
    assert 0 < m["icer"].low < m["icer"].value < m["icer"].high


def test_credit(tmp_path):
    m = played("credit", tmp_path)
    both = m["both"]["clustered"] / m["both"]["classical"]
    assert both.filter(like="sector").min() > 1.1, "a sector stays with its borrower"
    assert m["model"].params["worse:sector[T.retail]"] > 0
    close = m["first"][m["first"]["rating"] != "D"].groupby("rating")["close"].mean()
    assert 0 < close.min() < close.max(), "a close review pays for some, not for all"
