"""Automatic features: labels and names by hand, what is shared, and what they cost."""

from __future__ import annotations

import pickle
import time
from collections import namedtuple
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

import upriver as up
from studies import problems
from tests.reference import groups
from upriver import features
from upriver.agents.ucrl_mnl_se import LARGE_SPREAD
from upriver.experiments import Experiment
from upriver.features import automatic
from upriver.features.automatic import MAX_NUMBER
from upriver.mnl.model import change_spread

Cell = namedtuple("Cell", "x y")


@dataclass(frozen=True)
class Order:
    status: str
    days: int
    urgent: bool = False


def make_task(successors, horizon=5):
    """A task from {state: {action: [next states]}}."""
    return up.Task.from_successors(
        list(successors), lambda s: list(successors[s]), lambda s, a: successors[s][a], horizon
    )


def labels_of(made):
    """{(state, action, next state): the names of the indicators that are 1}."""
    task, matrix = made.task, np.asarray(sparse.csr_array(made.matrix).todense())
    s, a, s2 = task.triples
    return {
        (task.state_names[i], task.action_names[j], task.state_names[k]): [
            name for name, x in zip(made.names, row, strict=True) if x
        ]
        for i, j, k, row in zip(s, a, s2, matrix, strict=True)
    }


def plain_labels(task, parts):
    """What `changes` should say, by a dictionary: change, or next state where it is common."""
    triples = [tuple(int(x) for x in t) for t in zip(*task.triples, strict=True)]
    names = task.state_names

    def change(t):
        moves = []
        for i, (old, new) in enumerate(zip(parts(names[t[0]]), parts(names[t[2]]), strict=True)):
            number = isinstance(old, (int, float)) and not isinstance(old, bool)
            moves.append((i, new - old) if number else (i, (old, new) if old != new else None))
        return t[1], tuple(moves)

    count_change, count_target = {}, {}
    for t in triples:
        count_change[change(t)] = count_change.get(change(t), 0) + 1
        count_target[t[1:]] = count_target.get(t[1:], 0) + 1
    label = {
        t: t[1:] if count_target[t[1:]] > 2 * count_change[change(t)] else change(t)
        for t in triples
    }
    varying = {
        label[triples[i]] for _, _, rows in groups(task) for i in rows
        if sum(label[triples[j]] == label[triples[i]] for j in rows) < len(rows)
    }  # fmt: skip
    return [label[t] if label[t] in varying else None for t in triples]


def same_partition(made, plain):
    """Whether two triples share an indicator of `made` exactly if they have the same label."""
    matrix = sparse.csr_array(made.matrix)
    code = np.full(matrix.shape[0], -1)
    rows, columns = matrix.nonzero()
    code[rows] = columns
    assert len(rows) == len(set(rows))  # one label each
    found = {}
    for c, x in zip(code, plain, strict=True):
        assert (c == -1) == (x is None)
        found.setdefault(x, set()).add(int(c))
    assert all(len(each) == 1 for each in found.values())
    assert len({next(iter(each)) for each in found.values()}) == len(found)


def test_numbers_are_labelled_by_their_difference():
    made = features.changes(up.envs.riverswim(5).task("local"))
    assert made.names == [
        "left: -1", "left: no change", "left: +1", "right: -1", "right: no change", "right: +1"
    ]  # fmt: skip
    found = labels_of(made)
    assert found[3, "right", 4] == ["right: +1"] and found[0, "left", 0] == ["left: no change"]


def test_a_column_that_is_the_same_for_all_successors_of_every_pair_is_left_out():
    made = features.changes(up.envs.riverswim(5).task("known"))  # left has one successor
    assert made.names == ["right: -1", "right: no change", "right: +1"]
    alone = make_task({0: {"a": [1]}, 1: {"a": [0]}})
    assert features.changes(alone).names == ["nothing to learn"]
    assert features.changes(alone).dimension == 1


def test_named_tuples_and_tuples_of_tuples_name_their_variables():
    cells = {Cell(x, y): {"go": [Cell(x, y), Cell(min(x + 1, 3), y), Cell(x, min(y + 1, 3))]}
             for x in range(4) for y in range(4)}  # fmt: skip
    cells = {s: {"go": list(dict.fromkeys(row["go"]))} for s, row in cells.items()}
    assert features.changes(make_task(cells)).names == ["go: no change", "go: y +1", "go: x +1"]
    nested = {(s, "red"): {"go": [(x, "red") for x in row["go"]]} for s, row in cells.items()}
    assert features.changes(make_task(nested)).names == [
        "go: no change", "go: [0].y +1", "go: [0].x +1"
    ]  # fmt: skip


def test_records_have_values_that_are_no_numbers():
    days = range(6)
    waits = {
        Order("open", d): {"wait": [Order("open", min(d + 1, 5)), Order("sent", d, d > 3)]}
        for d in days
    }
    sent = {Order("sent", d, d > 3): {"wait": [Order("sent", d, d > 3)]} for d in days}
    found = labels_of(features.changes(make_task(waits | sent)))
    assert found[Order("open", 1), "wait", Order("open", 2)] == ["wait: days +1"]
    assert found[Order("open", 1), "wait", Order("sent", 1)] == ["wait: status open -> sent"]
    urgent = "wait: status open -> sent, urgent False -> True"
    assert found[Order("open", 4), "wait", Order("sent", 4, True)] == [urgent]
    assert found[Order("sent", 1), "wait", Order("sent", 1)] == ["wait: no change"]


def test_variables_are_a_function_of_the_state():
    task = up.envs.from_gymnasium("FrozenLake-v1", 50).task("known")
    rows = features.changes(task, lambda s: {"row": s // 4, "column": s % 4})
    assert "0: row +1" in rows.names and "0: column -1" in rows.names
    arrays = features.changes(task, lambda s: np.array([s // 4, s % 4]))
    assert (rows.matrix != arrays.matrix).nnz == 0
    lists = features.changes(task, lambda s: [s // 4, s % 4])
    assert (rows.matrix != lists.matrix).nnz == 0


def test_texts_have_no_variables():
    task = make_task({"idle": {"go": ["idle", "busy"]}, "busy": {"go": ["idle", "busy"]}})
    with pytest.raises(ValueError, match="state 'idle' has no variables; pass `variables`"):
        features.changes(task)
    made = automatic(task)
    assert made.sharing == "none: the states have no variables"
    assert (made.matrix != features.one_hot(task).matrix).nnz == 0
    with pytest.raises(ValueError, match=r"variable '\[0\]' is \{1\}; it must be hashable"):
        automatic(task, lambda s: ({1}, 2))
    lengths = automatic(task, len)
    assert lengths.spread == "estimate"  # both words have four letters, so nothing changes
    assert lengths.names == ["nothing to learn"]


def test_a_common_target_is_a_label_where_the_change_is_rare():
    """A reset leads to 0 from everywhere: ten different changes, one target."""
    states = range(10)
    task = make_task({s: {"run": [s, min(s + 1, 9)] if s < 9 else [9],
                          "reset": sorted({0, s})} for s in states})  # fmt: skip
    found = labels_of(features.changes(task))
    assert found[7, "reset", 0] == found[2, "reset", 0] == ["reset: to 0"]
    assert found[7, "reset", 7] == ["reset: no change"] and found[7, "run", 8] == ["run: +1"]


def test_a_state_of_another_kind_is_a_target():
    grid = {(x, 0): {"go": [(x, 0), (x + 1, 0), "done"]} for x in range(5)}
    task = make_task(grid | {(5, 0): {"go": ["done"]}, "done": {"go": ["done"]}})
    found = labels_of(features.changes(task))
    assert found[(2, 0), "go", "done"] == ["go: to done"]
    assert found[(2, 0), "go", (3, 0)] == ["go: [0] +1"]


@pytest.mark.parametrize("value", [10**400, MAX_NUMBER, float("nan"), True, Fraction(1, 3), 0.1])
def test_numbers_that_cannot_be_subtracted_are_values(value):
    task = make_task({(i, value if i % 2 else 0): {"go": [(0, 0)]} for i in range(4)})
    assert automatic(task).task is task


def test_differences_that_are_equal_up_to_rounding_are_equal():
    levels = [0.1 * i for i in range(11)]  # 0.3 - 0.2 != 0.1 - 0
    task = make_task({s: {"go": levels[max(i - 1, 0) : i + 2]} for i, s in enumerate(levels)})
    assert features.changes(task).dimension == 3


@pytest.mark.parametrize("seed", range(4))
def test_labels_agree_with_a_dictionary(seed):
    rng = np.random.default_rng(seed)
    states = [(int(i), "ab"[j], bool(k)) for i in range(4) for j in range(2) for k in range(2)]
    successors = {
        s: {a: [states[i] for i in rng.choice(len(states), rng.integers(1, 6), replace=False)]
            for a in ("x", "y", "z") if rng.random() < 0.8 or a == "x"}
        for s in states
    }  # fmt: skip
    task = make_task(successors)  # some actions are missing
    same_partition(features.changes(task), plain_labels(task, lambda s: s))


@pytest.mark.parametrize("name", ["riverswim-7", "river-grid-4", "queue-6", "bus-engine-12"])
def test_labels_of_environments_agree_with_a_dictionary(name):
    task = up.envs.make(name).task("local")
    same_partition(
        features.changes(task),
        plain_labels(task, lambda s: s if isinstance(s, tuple) else (s,)),
    )


def test_the_order_of_states_does_not_matter(rng):
    task = up.envs.river_grid(4, 3).task("local")
    order = rng.permutation(task.n_states)
    states = [task.state_names[i] for i in order]
    mixed = make_task({s: {a: [task.state_names[i] for i in task.successors[task.rows_of(s, a)]]
                           for a in task.action_names} for s in states})  # fmt: skip
    assert labels_of(features.changes(mixed)) == labels_of(features.changes(task))
    assert automatic(mixed).spread == "estimate" == automatic(task).spread


# -- what is shared --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["riverswim-6", "river-grid-6", "queue-10", "deep-sea-10"])
def test_numbers_that_describe_the_moves_are_pooled(name):
    task = up.envs.make(name).task("local")
    made, by_hand = automatic(task), features.pooled(features.changes(task))
    assert made.spread == "estimate" and made.names == by_hand.names
    assert (made.matrix != by_hand.matrix).nnz == 0
    assert f"{made.n_shared} indicators for {task.n_triples} triples" in repr(made)


@pytest.mark.parametrize("seed", range(8))
def test_numbers_that_say_nothing_are_not(seed):
    assert not automatic(up.envs.random_mnl(10, seed=seed).task()).spread
    river = up.envs.riverswim(12)
    order = np.random.default_rng(seed).permutation(12).tolist()
    renumbered = replace(river, true_task=replace(river.true_task, states=order)).task("local")
    made = automatic(renumbered)
    assert made.sharing == "none: the variables are unrelated to the transitions"
    assert (made.matrix != features.one_hot(renumbered).matrix).nnz == 0
    place = dict(zip(order, range(12), strict=True))
    declared = automatic(renumbered, place.get)  # declared variables are used as they are
    assert declared.spread == "estimate" and declared.n_shared == 6


def test_full_support_cannot_tell_so_it_is_pooled():
    made = automatic(up.envs.riverswim(6).task("full"))
    assert made.spread == "estimate" and made.n_shared == 2 * 11


def test_one_state():
    task = make_task({0: {"stay": [0], "wait": [0]}}, horizon=3)
    for made in (automatic(task), features.changes(task)):
        assert not made.matrix.nnz
    mdp = up.FiniteMDP.from_arrays(np.ones((1, 2, 1)), np.ones((1, 2)), 3)
    assert up.simulate(mdp, up.agents.UCRLMNLSE(mdp.task()), 2, seed=0).returns.tolist() == [3, 3]


def test_features_are_pickled_with_what_they_share():
    made = automatic(up.envs.queue(6).task("local"))
    again = pickle.loads(pickle.dumps(made))
    assert again.sharing == made.sharing and (again.matrix != made.matrix).nnz == 0


# -- learners --------------------------------------------------------------------------------------


def test_a_learner_without_features_finds_them():
    mdp = up.envs.riverswim(6)
    task = mdp.task("local")
    made = automatic(task)
    for cls in (up.agents.UCRLMNLSE, up.agents.UCRLMNL, up.agents.PSRLMNL, up.agents.UCRLMNLLL):
        found, given = (
            up.simulate(mdp, agent, 5, seed=3) for agent in (cls(task), cls(task, made))
        )
        np.testing.assert_array_equal(found.returns, given.returns)
        np.testing.assert_array_equal(found.values, given.values)


def test_online_learners_take_the_shared_columns_alone():
    task = up.envs.riverswim(6).task("local")
    for cls in (up.agents.RRLMNL, up.agents.ORRLMNL, up.agents.UCRLMNLPlus):
        agent = cls(task)
        assert agent.features.names == features.changes(task).names and not agent.features.spread


def test_specifications_mean_automatic_features_where_they_name_none():
    experiment = Experiment.model_validate({
        "name": "x", "episodes": 2, "seeds": {"count": 1},
        "environments": [{"name": "riverswim-4"}],
        "agents": [
            {"agent": "ucrl-mnl-se"},
            {"agent": "ucrl-mnl-se", "label": "y", "features": "one-hot"},
        ],
    })  # fmt: skip
    assert [run.features for run in experiment.runs()] == ["automatic", "one-hot"]


@pytest.mark.parametrize("name", ["machine", "rough desk"])
def test_they_are_the_features_made_by_hand_where_these_are_the_same_map(name):
    """Both span the same functions of the successors of a pair, so they are the same model."""
    task = problems.problem(name).task("local")
    found, by_hand = (
        np.asarray(features.recentre(x).matrix @ np.eye(x.dimension))
        for x in (features.changes(task), problems.shared(task))
    )
    ranks = [np.linalg.matrix_rank(x) for x in (found, by_hand, np.hstack([found, by_hand]))]
    assert ranks[0] == ranks[1] == ranks[2]


@pytest.mark.parametrize("name", ["riverswim-20", "queue-10", "deep-sea-10"])
def test_they_lose_no_more_than_features_made_by_hand(name):
    mdp = problems.problem(name)
    task, best = mdp.task("local"), up.solve(mdp).v[0, 0]
    lost = [
        np.mean([up.simulate(mdp, agent, 40, seed=i).regret.sum() for i in range(5)]) / best
        for agent in (up.agents.UCRLMNLSE(task), up.agents.UCRLMNLSE(task, problems.shared(task)))
    ]
    assert lost[0] <= lost[1] + 0.3


# -- size ------------------------------------------------------------------------------------------


def test_ten_thousand_states_are_labelled_in_time():
    task = up.envs.riverswim(20_000, 100).task("local")  # 120,000 triples
    start = time.process_time()
    made = automatic(task)
    assert time.process_time() - start < 8.0
    assert made.n_shared == 6 and task.n_triples > 10**5


def test_a_large_spread_counts_shared_errors_as_own_ones():
    mdp = up.envs.riverswim(8)
    task = mdp.task("full")
    agent = up.agents.UCRLMNLSE(task)
    model = up.simulate(mdp, agent, 30, seed=1).state.model
    assert model.spread > LARGE_SPREAD
    few, many = (
        change_spread(
            agent.model_features,
            model._replace(
                theta=model.theta.copy(), inverse_products=np.zeros_like(model.inverse_products)
            ),
            model.spread,
            up.agents.UCRLMNLSE(task, shared_errors=errors).choose_weights(0.0),
        ).inverse_products
        for errors in (1.5, 3.0)
    )
    np.testing.assert_allclose(model.inverse_products, few, rtol=1e-6, atol=1e-9)
    assert np.abs(few - many).max() > 0.1
