"""Frames, functions of arrays, QuantEcon and fitted models as MDPs."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv
from scipy import sparse

import upriver as up
from studies import environments
from tests.building import fit_counts
from upriver.mdp import validation

WALK = {
    "state": ["home", "home", "work", "work"],
    "action": ["go", "go", "go", "stay"],
    "next_state": ["work", "home", "home", "work"],
    "probability": [0.75, 0.25, 1.0, 1.0],
    "reward": [0.5, 0.5, 0.0, 1.0],
}


def same(mdp, other):
    """The same problem by name: every probability and every expected reward."""
    columns = ["state", "action", "next_state", "probability", "reward"]
    keys = columns[:3]
    mine, theirs = (x.to_frame().sort_values(keys, key=lambda c: c.map(str)) for x in (mdp, other))
    assert mine[keys].map(str).to_numpy().tolist() == theirs[keys].map(str).to_numpy().tolist()
    assert np.allclose(mine["probability"], theirs["probability"], atol=1e-14)
    assert np.allclose(mine["reward"], theirs["reward"], atol=1e-12)


@pytest.mark.parametrize(
    "make", [dict, pd.DataFrame, pl.DataFrame, pa.table], ids=lambda f: f.__name__
)
def test_a_frame_of_any_kind(make):
    mdp = up.FiniteMDP.from_frame(make(WALK), horizon=4)
    task = mdp.true_task
    assert task.states == ("home", "work") and task.actions == ("go", "stay")
    assert mdp.initial_states.tolist() == [0]
    assert task.rows_of("home", "stay").start == task.rows_of("home", "stay").stop, "no such action"
    # by hand: go to work once, then stay there
    v = {"home": 0.0, "work": 0.0}
    for _ in range(4):
        v = {
            "home": 0.5 + 0.75 * v["work"] + 0.25 * v["home"],
            "work": max(v["home"], 1.0 + v["work"]),
        }
    assert np.allclose(up.solve(mdp).v[0], [v["home"], v["work"]])


def test_other_names():
    frame = pd.DataFrame(WALK)
    mdp = up.FiniteMDP.from_frame(frame, 4)
    start = {"home": 0.25, "work": 0.75}
    other = up.FiniteMDP.from_frame(frame, 4, initial_state=start, name="w")
    same(other, mdp)
    assert other.name == "w" and other.initial_probability.tolist() == [0.25, 0.75]
    turned = up.FiniteMDP.from_frame(frame, 4, states=["work", "home"])
    assert turned.true_task.states == ("work", "home") and turned.initial_states.tolist() == [1]
    same(turned, mdp)


def test_a_table_by_step_is_refused_and_not_read_without_its_steps():
    for frame in (environments.make("tidal-river-4").to_frame(), {**WALK, "step": [0, 0, 1, 1]}):
        with pytest.raises(ValueError, match=r"the frame has a column 'step'.* from_arrays takes"):
            up.FiniteMDP.from_frame(frame, 4)


@pytest.mark.parametrize("name", ["riverswim-5", "windy-grid-5", "deep-sea-4"])
def test_to_frame_and_from_frame_are_inverse(name):
    mdp = environments.make(name)
    again = up.FiniteMDP.from_frame(
        mdp.to_frame().sample(frac=1.0, random_state=0), mdp.horizon,
        initial_state=mdp.true_task.state_names[int(mdp.initial_states[0])],
    )  # fmt: skip
    same(again, mdp)
    assert np.isclose(
        up.solve(again).v[0, again.initial_states[0]], up.solve(mdp).v[0, mdp.initial_states[0]]
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"probability": [0.75, 0.25, 1.0, 0.5]}, "sums to 0.5"),
        ({"next_state": ["work", "work", "home", "work"]}, r"row 1 names \('home', 'go', 'work'\)"),
        ({"reward": ["a"] * 4}, "reward"),
        ({"probability": [0.75, 0.25]}, "the frame is no table of columns: .*same length"),
    ],
)
def test_wrong_frames(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        up.FiniteMDP.from_frame({**WALK, **change}, 4)


NULLS = {**WALK, "state": ["home", None, "work", "work"], "action": ["go", "go", None, None]}
SENTENCE = r"column 'state' of .* is empty in row 1 "


@pytest.mark.parametrize("text", ["object", "str", "string", "category"])
def test_empty_cells_of_pandas_are_refused(text):
    if text == "str" and pd.__version__ < "3":
        pytest.skip("before pandas 3 a missing cell becomes the word None")
    frame = pd.DataFrame(NULLS).astype({"state": text, "action": text})
    with pytest.raises(ValueError, match=SENTENCE):
        up.FiniteMDP.from_frame(frame, 4)


@pytest.mark.parametrize("make", [dict, pl.DataFrame, pa.table], ids=lambda f: f.__name__)
def test_empty_cells_of_other_frames_are_refused(make):
    with pytest.raises(ValueError, match=SENTENCE):
        up.FiniteMDP.from_frame(make(NULLS), 4)


BLANK = """state,action,next_state,probability,reward
home,go,work,0.75,0.5
,go,work,1,0
home,go,home,0.25,0.5
work,go,home,1,0
work,stay,work,1,1
work, ,work,1,1
"""


@pytest.mark.parametrize("read", [pd.read_csv, pl.read_csv, csv.read_csv])
def test_blank_cells_of_a_file_are_refused(read):
    """A blank cell of a CSV file must not become a state or an action named ''."""
    with pytest.raises(ValueError, match=SENTENCE):
        up.FiniteMDP.from_frame(read(io.BytesIO(BLANK.encode())), 4)
    with pytest.raises(ValueError, match=r"column 'action' of .* is empty in row 5"):
        up.FiniteMDP.from_frame(pd.read_csv(io.StringIO(BLANK)).iloc[[0, 2, 3, 4, 3, 5]], 4)


def test_a_missing_probability_is_refused():
    frame = pd.DataFrame(WALK)
    frame.loc[[2, 3], "probability"] = np.nan
    with pytest.raises(ValueError, match="'probability' of the frame is empty in row 2 "):
        up.FiniteMDP.from_frame(frame, 4)


def test_frames_without_rows_or_with_a_column_twice_are_refused():
    with pytest.raises(ValueError, match="the frame has no rows"):
        up.FiniteMDP.from_frame(pd.DataFrame(WALK).head(0), 4)
    twice = pd.DataFrame(WALK)
    twice.columns = ["state", "state", "next_state", "probability", "reward"]
    with pytest.raises(ValueError, match="the frame has two columns 'state'"):
        up.FiniteMDP.from_frame(twice, 4)


def machines(s, a):
    """Each of 16 machines breaks or not: 2^16 successors of every state and action."""
    return range(2**16)


def test_problems_too_large_to_list_are_refused_before_they_are_listed(monkeypatch):
    """The message names the number of states and triples and the limit."""
    calls = []

    def successors(s, a):
        calls.append(s)
        return [(64 * s + i) % 4096 for i in range(64)]

    monkeypatch.setattr(validation, "MAX_TRIPLES", 100_000)
    sentence = r"1,\d+ states have about 10\d,\d+ triples .*at most 100,000 are listed"
    with pytest.raises(ValueError, match=sentence):
        up.FiniteMDP.from_functions(
            0, ["go"], successors, lambda s, a, t: 1 / 64, lambda s, a: 0.0, None, discount=0.9
        )
    assert len(calls) < 100
    with pytest.raises(ValueError, match=r"65,536 states have about 4,294,967,296 triples"):
        up.Task.from_successors(range(2**16), ["go"], machines, 5)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="has no column 'reward'"):
        up.FiniteMDP.from_frame({k: v for k, v in WALK.items() if k != "reward"}, 4)
    with pytest.raises(TypeError, match="frame is an int"):
        up.FiniteMDP.from_frame(3, 4)
    with pytest.raises(ValueError, match="start 'pub' is unknown"):
        up.FiniteMDP.from_frame(WALK, 4, initial_state="pub")
    with pytest.raises(ValueError, match=r"probabilities of start sum to 1, and the least is -0.5"):
        up.FiniteMDP.from_frame(WALK, 4, initial_state={"home": -0.5, "work": 1.5})
    with pytest.raises(ValueError, match=r"probabilities of start sum to 0; they must"):
        up.FiniteMDP.from_frame(WALK, 4, initial_state={})
    with pytest.raises(ValueError, match="state 'home' is unknown"):
        up.FiniteMDP.from_frame(WALK, 4, states=["work", "pub"])


@pytest.mark.parametrize("change", [1.0, -7.5, 0.0])
def test_rewards_of_the_next_state_are_kept(change):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), (3, 2))
    r = rng.normal(size=(3, 2, 1)) + change * rng.normal(size=(3, 2, 3))
    mine = up.FiniteMDP.from_arrays(p, r, horizon=4)
    again = up.FiniteMDP.from_frame(mine.to_frame(), horizon=4)
    same(again, mine)
    assert (again.true_task.next_state_reward is None) == (change == 0.0), "r(s, a) stays r(s, a)"
    assert np.allclose(up.solve(again).v, up.solve(mine).v)


def test_only_what_can_be_reached_is_listed_and_late_states_stay():
    def walk(horizon, **limits):
        return up.FiniteMDP.from_functions(
            0, ["go"], lambda s, a: [s, s + 1], lambda s, a, t: 0.5, lambda s, a: 0.1, horizon,
            **limits,
        )  # fmt: skip

    mdp = walk(3)
    assert mdp.true_task.states == (0, 1, 2, 3)
    rows = mdp.true_task.rows_of(3, "go")
    assert mdp.true_task.successors[rows].tolist() == [3] and mdp.reward[3, 0] == 0.0
    with pytest.raises(ValueError, match="more than max_states=50"):
        walk(100, max_states=50)


@st.composite
def problems(draw):
    n, m = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    p = rng.random((n, m, n)) * (rng.random((n, m, n)) < 0.7)
    p[:, :, 0] += 0.1
    return p / p.sum(axis=2, keepdims=True), rng.random((n, m))


@settings(deadline=None, max_examples=30)
@given(problems())
def test_quantecon_finds_the_same_optimum(problem):
    p, r = problem
    ddp = pytest.importorskip("quantecon.markov").DiscreteDP(r, p, 0.9)
    mdp = up.FiniteMDP.from_arrays(ddp.Q, ddp.R, horizon=5)
    theirs = ddp.solve(method="policy_iteration").v
    assert np.allclose(up.solve(mdp, discount=0.9).v, theirs)


def test_every_fitted_model_is_an_mdp():
    """Planning with the model and solving its MDP agree."""
    mdp = up.envs.riverswim(4, horizon=16)
    task = mdp.task("local")
    phi = up.features.shared(task)
    run = up.simulate(mdp, up.agents.UCRLMNLSE(task, phi), 60)
    counts = run.state.model.counts[0]
    fitted = up.fit_mnl(phi, counts, regularization=1.0)
    model = fit_counts(phi, counts + 1e-9, 1.0)  # every pair has a row
    plan = up.plan_from_model(model)
    for made in (fitted.to_mdp(), model.at(start={0: 0.5, 2: 0.5}).to_mdp()):
        assert np.allclose(up.solve(made).v, plan.v)
    assert model.at(start=2).to_mdp().initial_states.tolist() == [2]
    assert fitted.to_mdp(reward=np.ones((4, 2)), horizon=3).horizon == 3
    assert np.allclose(up.solve(fitted.to_mdp(reward=np.ones((4, 2)), horizon=3)).v[0], 3.0)
    with pytest.raises(ValueError, match="start 9 is unknown"):
        fitted.to_mdp(start=9)
    hidden = up.Features(task.with_unknown_reward(), phi.matrix, phi.names)
    with pytest.raises(ValueError, match="no known reward"):
        up.fit_mnl(hidden, counts, 1.0).to_mdp()
    choices = up.fit_choices([[1.0], [2.0]], [1, 0], [0, 0], regularization=1.0)
    with pytest.raises(ValueError, match="fit of choices"):
        choices.to_mdp()


def sparse_cycle(n: int, width: int):
    """n states with `width` successors each, as a sparse matrix."""
    following = np.sort((np.arange(n)[:, None] + np.arange(width)) % n, axis=1)
    starts = np.arange(n + 1) * width
    return sparse.csr_array((np.full(n * width, 1 / width), following.ravel(), starts), (n, n))


def test_one_limit_of_triples_for_every_builder(monkeypatch):
    """All name the limit, an estimate of memory and a way forward; 64 bytes for each triple."""
    monkeypatch.setattr(validation, "MAX_TRIPLES", 10_000)
    n, width = 1_000, 11
    dense = sparse_cycle(n, width).toarray()[:, None]
    frame = {
        "state": np.repeat(np.arange(n), width), "action": np.zeros(n * width, int),
        "next_state": dense[:, 0].nonzero()[1], "probability": np.full(n * width, 1 / width),
        "reward": np.zeros(n * width),
    }  # fmt: skip

    def successors(s, a):
        return [(s + i) % n for i in range(width)]

    builders = [
        lambda: up.FiniteMDP.from_arrays(dense, np.zeros((n, 1)), 3),
        lambda: up.FiniteMDP.from_arrays(sparse_cycle(n, width), np.zeros((n, 1)), 3),
        lambda: up.FiniteMDP.from_frame(frame, 3),
        lambda: up.Task.from_successors(range(n), ["go"], successors, 3),
        lambda: up.FiniteMDP.from_functions(
            0, ["go"], successors, lambda s, a, t: 1 / width, lambda s, a: 0.0, None, discount=0.9
        ),
        lambda: up.envs.riverswim(200).task("full"),
    ]
    for build in builders:
        with pytest.raises(
            ValueError, match=r"states have .*triples \(s, a, s'\).* GB .*at most 10,000.*fewer"
        ):
            build()


@pytest.mark.parametrize("many", [range(2**30), iter(range(2**30))])
def test_lists_without_an_end_are_refused_before_they_are_made(many, monkeypatch):
    """States, actions and next states that are far too many are not listed first."""
    monkeypatch.setattr(validation, "MAX_TRIPLES", 10_000)
    with pytest.raises(ValueError, match=r"states .* more than 10,000 names"):
        up.Task.from_successors(many, ["go"], lambda s, a: [s], 3)


def test_actions_and_successors_without_an_end_are_refused(monkeypatch):
    monkeypatch.setattr(validation, "MAX_TRIPLES", 10_000)
    with pytest.raises(ValueError, match=r"actions .* more than 10,000 names"):
        up.Task.from_successors([0], range(2**30), lambda s, a: [s], 3)
    with pytest.raises(ValueError, match=r"successors\(0, 'go'\) .* more than 10,000 names"):
        up.Task.from_successors([0], ["go"], lambda s, a: range(2**30), 3)
