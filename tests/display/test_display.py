"""How objects are displayed: a short line, a card in a notebook, data frames and figures."""

from __future__ import annotations

import dataclasses
import html as markup
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import upriver as up
from studies import environments
from tests import pages
from tests.browser import Browser, needs_browser
from upriver.agents.table import AGENTS
from upriver.display import figures
from upriver.display.card import MAX_LINE, STYLE, Card, add_repr

API = Path(__file__).parents[2] / "docs" / "reference" / "api"


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """Every object that the API page makes, their fields, all agents and their states."""
    memory: dict[str, object] = {}
    for page in sorted(API.glob("*.md")):
        pages.run(page, tmp_path_factory.mktemp("api"), fill=True, memory=memory)
    mdp = up.envs.riverswim(6)
    phi = up.features.shared(mdp.task("local"))
    rules = [
        up.radii.lemma1_radius(0.1, 4.0),
        up.radii.scaled_radius(0.1),
    ]
    made = [*memory.values(), *rules, *(agent_of(name, mdp, phi) for name in AGENTS)]
    made += [a.init() for a in made if hasattr(a, "init")]
    found: dict[int, object] = {}
    for thing in made:
        for each in (thing, *fields_of(thing)):
            if type(each).__module__.startswith("upriver."):
                found[id(each)] = each
    return list(found.values())


def agent_of(name, mdp, phi):
    cls = AGENTS[name]
    names = {f.name for f in dataclasses.fields(cls)}
    given = {"mdp": mdp, "task": phi.task, "features": phi}
    return cls(**{k: v for k, v in given.items() if k in names})


def fields_of(thing):
    if isinstance(thing, type):
        return []
    if dataclasses.is_dataclass(thing):
        return [getattr(thing, f.name) for f in dataclasses.fields(thing)]
    return [getattr(thing, name) for name in getattr(thing, "_fields", ())]


def test_every_public_class_is_among_the_objects(objects):
    public = {x for name in up.__all__ if isinstance(x := getattr(up, name), type)}
    shown = {x for x in public if not issubclass(x, Warning)}
    assert not {x.__name__ for x in shown - {type(thing) for thing in objects}}


def test_a_line_is_short(objects):
    assert len(objects) > 60
    for thing in objects:
        text = repr(thing)
        assert len(text) <= MAX_LINE, text
        assert "\n" not in text and "array(" not in text, text


class Reader(HTMLParser):
    """A reader of the HTML of a card."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], set(), ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(text):
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    return reader


def test_a_card_is_plain_html(objects):
    for thing in objects:
        if not hasattr(thing, "_repr_html_"):
            continue
        found = read(thing._repr_html_())
        assert found.tags <= {"div", "style", "b", "span", "i", "table", "tr", "th", "td"}
        assert type(thing).__name__ in found.text


def test_objects_of_users_have_a_card(objects):
    """Exceptions are functions of radii and what Gymnasium and pydantic display."""
    plain = {type(x).__name__ for x in objects if not hasattr(x, "_repr_html_") and not callable(x)}
    assert plain <= {"FiniteMDPEnv", "Seeds", "EnvironmentSpec", "AgentSpec", "Choices"}


@settings(deadline=None, max_examples=50)
@given(names=st.lists(st.text(max_size=400), min_size=2, max_size=30, unique=True))
def test_names_of_any_kind_are_escaped(names):
    task = up.Task.from_successors(names, ["<b>go</b>", "stay"], lambda s, a: [s], horizon=3)
    policy = up.Policy(np.zeros((3, len(names)), int), 2, task.states, task.actions)
    plan = up.Plan(policy.actions, np.zeros((4, len(names))), None, task)
    for thing in (task, policy, plan, up.features.one_hot_indicator(
        up.Task.from_successors(names, ["go"], lambda s, a: names[:2], horizon=2)
    )):  # fmt: skip
        assert len(repr(thing)) <= MAX_LINE
        assert "<b>go" not in thing._repr_html_()
        read(thing._repr_html_())


def test_a_line_ends_before_it_is_too_long():
    @add_repr
    class Long:
        def card(self):
            return Card({f"fact {i}": "x" * 50 for i in range(20)}, of="y" * 200)

    @add_repr
    class Longer:
        def card(self):
            return Card(of="z" * 1000)

    assert len(repr(Long())) <= MAX_LINE and repr(Long()).endswith("...)")
    assert len(repr(Longer())) == MAX_LINE


def test_a_card_shows_why_it_has_no_table():
    @add_repr
    class Broken:
        def card(self):
            return Card({"x": 1.0}, rows=refuse)

    def refuse():
        raise ValueError("no standard errors")

    assert "no standard errors" in Broken()._repr_html_()


def test_long_tables_show_how_many_rows_are_left_out(river):
    _, run, _ = river
    task = run.task
    fitted = up.fit_mnl(up.features.one_hot(task), np.ones(task.n_triples), regularization=1.0)
    text = markup.unescape(fitted._repr_html_())
    assert text.count("<tr>") == 11
    assert f"and {len(fitted.theta) - 10} more rows" in text


@pytest.fixture(scope="module")
def river():
    mdp = up.envs.riverswim(n_states=4, horizon=16)
    task = mdp.task("local")
    phi = up.features.shared(task)
    return mdp, up.simulate(mdp, up.agents.UCRLMNLSE(task, phi), n_episodes=60, seed=0), phi


def test_frames_have_the_numbers_of_the_objects(river):
    mdp, run, phi = river
    frame = run.to_pandas()
    assert np.array_equal(frame["regret"], run.regret) and len(frame) == 60
    plan = run.plan.to_pandas()
    assert len(plan) == run.plan.policy.size
    row = plan[(plan["step"] == 3) & (plan["state"] == 2)].iloc[0]
    assert row["action"] == ("left", "right")[run.plan.policy[3, 2]]
    assert row["value"] == run.plan.v[3, 2]
    assert run.policy.to_pandas().equals(run.plan.to_pandas().drop(columns="value"))
    played = up.rollouts(mdp, run.plan, 3)
    steps = played.to_pandas()
    assert (
        np.array_equal(steps.groupby("episode")["reward"].sum(), played.returns)
        and len(steps) == 3 * mdp.horizon
    )
    table = phi.to_pandas()
    assert list(table.columns[:3]) == ["state", "action", "next_state"]
    assert np.array_equal(table[phi.names].to_numpy(), phi.matrix)


def test_frames_have_the_names_of_states_and_actions():
    grid = environments.windy_grid(5)
    frame = up.solve(grid).to_pandas()
    assert frame["state"][0] == grid.true_task.states[0]
    assert set(frame["action"]) <= set(grid.true_task.actions)


def test_figures_have_the_numbers_of_the_objects(river):
    _, run, phi = river
    value, regret = run.plot().axes
    assert np.array_equal(value.lines[0].get_ydata(), run.values)
    assert np.array_equal(value.lines[1].get_ydata(), run.optimal_values)
    assert np.allclose(regret.lines[0].get_ydata(), np.cumsum(run.regret))
    fitted = up.fit_mnl(phi, run.state.model.counts[0], regularization=1.0)
    drawn = fitted.plot().axes[0]
    assert [x.get_text() for x in drawn.get_yticklabels()] == list(phi.names)
    centre = np.sort(np.concatenate([x[0].get_xdata() for x in drawn.containers]))
    assert np.allclose(centre, np.sort(fitted.theta))
    assert run.plot()._repr_png_()[:4] == b"\x89PNG"


def colours_of(figure):
    return figure.axes[0].images[0].get_array()


def test_a_policy_is_drawn_over_steps():
    plan = up.solve(up.envs.riverswim(n_states=4, horizon=16))
    board = colours_of(plan.plot())
    assert board.shape[:2] == plan.policy.shape
    ties = np.array([plan.find_ties(h) for h in range(16)])
    assert ties[-1].tolist() == [False, True, True, False], "in the last step only the ends pay"
    same = (plan.policy == plan.policy[0, 0]) & ~ties
    assert np.array_equal((board == board[0, 0]).all(axis=2), same)
    assert (board[ties] == board[-1, 1]).all(), "actions that are equally good have no colour"


def test_names_with_dollar_signs_are_not_formulas():
    """matplotlib reads text between dollar signs as a formula and fails on a wrong one."""
    names = [r"$\frac{", "a $5 b", "$$"]
    policy = up.Policy(np.array([[0, 1, 0]]), 2, names, ["$x^$", "pay $"])
    assert policy.plot()._repr_png_()[:4] == b"\x89PNG"
    labels = policy.plot().axes[0].get_xticklabels()
    assert [x.get_text() for x in labels] == [x.replace("$", r"\$") for x in names]


def test_states_and_steps_are_numbered_from_0_as_in_python():
    plan = up.solve(up.envs.riverswim(n_states=4, horizon=6))
    labels = [x.get_text() for x in plan.plot().axes[0].get_xticklabels()]
    assert labels == ["0", "1", "2", "3"] == [str(s) for s in plan.to_pandas()["state"][:4]]
    assert plan.plot().axes[0].get_ylim() == (5.5, -0.5), "steps 0 to 5"


def test_twenty_actions_have_twenty_colours():
    policy = np.tile(np.arange(20), (2, 1))
    board = colours_of(figures.plot_policy(policy, None, None))
    assert len(np.unique(board[0], axis=0)) == 20


def test_the_probabilities_of_a_pair_have_the_interval_of_predict():
    """Two routes to one number: the features of a task, and the rows of a frame."""
    rng = np.random.default_rng(0)
    frame = {
        "state": rng.choice(["ill", "well"], 400).tolist(),
        "action": rng.choice(["drug", "rest"], 400).tolist(),
        "next_state": rng.choice(["ill", "well"], 400, p=[0.3, 0.7]).tolist(),
    }
    model = up.fit_transitions("next_state + action:next_state", frame)
    at = model.at(horizon=3, reward=lambda s, a: 0.0)
    wanted = model.predict({"state": ["ill"], "action": ["drug"]})
    rows = at.transitions("ill", "drug")
    for key in ("next_state", "probability", "standard_error", "low", "high"):
        mine, theirs = [r[key] for r in rows], wanted[key].tolist()
        assert mine == theirs if key == "next_state" else np.allclose(mine, theirs)
    points = at.plot("ill", "drug").axes[0]
    assert np.allclose([b.get_height() for b in points.patches], wanted["probability"])
    with pytest.raises(ValueError, match="action 'pray' is unknown"):
        at.plot("ill", "pray")
    assert model.plot().axes[0].get_xlabel().startswith("log-odds")


def test_a_choice_model_has_no_transitions_to_plot(river):
    x = np.array([[1.0], [2.0], [1.0], [3.0], [2.0], [1.0]])
    fitted = up.fit_choices(x, [1, 0, 1, 0, 0, 1], [0, 0, 1, 1, 2, 2], regularization=1.0)
    with pytest.raises(ValueError, match="fit of choices"):
        fitted.plot(0, 0)


def test_a_line_does_not_compute_standard_errors(river):
    """They may need a large matrix."""
    _, run, phi = river
    fitted = up.fit_mnl(phi, run.state.model.counts[0], regularization=1.0)
    repr(fitted)
    assert "standard_errors" not in vars(fitted)


PAGE = """<!doctype html><meta charset=utf-8>
<meta name=viewport content="width=device-width">
<style>:root{color-scheme:light dark}body{margin:8px;color:CanvasText;background:Canvas}</style>
"""


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_cards_in_a_browser(objects, tmp_path, width, dark):
    """A card loads and runs nothing, fits the page, and has the colours of the page."""
    cards = [x._repr_html_() for x in objects if hasattr(x, "_repr_html_")]
    file = tmp_path / "cards.html"
    file.write_text(PAGE + "\n".join(cards), encoding="utf-8")
    with Browser() as browser:
        page = browser.open(file.as_uri(), width, 900, dark=dark)
        assert not page.errors and not page.network
        assert page.run("document.querySelectorAll('.upriver').length") == len(cards)
        assert page.run("document.documentElement.scrollWidth") <= width
        colours = page.run(
            "[...new Set([...document.querySelectorAll('.upriver, .upriver *')].map("
            "(e) => getComputedStyle(e).color + getComputedStyle(e).backgroundColor))]"
        )
        ink = "rgb(255, 255, 255)" if dark else "rgb(0, 0, 0)"
        assert colours == [f"{ink}rgba(0, 0, 0, 0)"]
        short = page.run(
            "Math.max(...[...document.querySelectorAll('.upriver')].map((e) => e.offsetHeight))"
        )
        assert short < 1000


def test_the_style_is_scoped():
    """A card must not restyle the notebook around it."""
    rules = STYLE.removeprefix("<style>").removesuffix("</style>").replace("\n", "")
    for selectors in re.findall(r"([^{}]+){[^{}]*}", rules):
        assert all(s.startswith(".upriver") for s in selectors.split(",")), selectors


def test_coefficients_without_data_are_arrows_and_do_not_stretch_the_axis():
    rows = [
        {"name": name, "estimate": x, "low": x - w, "high": x + w}
        for name, x, w in (
            ("a", 1.0, 0.5), ("b", 0.2, 0.4), ("c", -0.7, 0.3), ("d", 14.0, 2000.0),
            ("e", 0.0, float("inf")),
        )
    ]  # fmt: skip
    (axes,) = figures.plot_coefficients(rows).axes
    least, most = axes.get_xlim()
    assert -2.0 < least < -1.0 and 1.5 < most < 2.5
    arrows = {line.get_marker(): list(line.get_ydata()) for line in axes.get_lines()}
    assert arrows["<"] == arrows[">"] == [3, 4]
    assert "arrows: no data" in axes.get_xlabel()
    (plain,) = figures.plot_coefficients(rows[:3]).axes
    assert "arrows" not in plain.get_xlabel()


def test_only_whole_numbers_stand_before_what_they_count():
    """Not "3 shared errors, own errors 1.5"."""
    river = up.envs.riverswim(3, 4)
    agent = up.agents.UCRLMNLSE(river.task(), up.features.one_hot(river.task()))
    assert "shared errors 3, own errors 1.5" in repr(agent)
    assert "3 states" in repr(river)


def test_dir_shows_public_names_and_no_others():
    assert dir(up) == sorted([*up.__all__, "__version__"])
    assert "from_gymnasium" in dir(up.envs) and "riverswim" in dir(up.envs)
    assert not {"annotations", "NamedTuple", "import_module", "Any"} & set(dir(up.envs))
