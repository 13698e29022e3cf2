"""Feature maps: their meaning, their packing for the kernels, their refusals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tests.building import from_rows
from tests.reference import groups, matrix, mnl_log_probabilities, random_mdp
from upriver import FiniteMDP, envs, features, fit_mnl, simulate
from upriver.agents import UCRLMNL
from upriver.features import Features
from upriver.mnl.likelihood import probabilities


def formal_one_hot(task, difference):
    """(n, S*A*S) the textbook map e_(s,a) (x) (e_s' - e_ref), ref the first successor."""
    size = task.n_states * task.n_actions * task.n_states
    out = np.zeros((task.n_triples, size))
    for s, a, rows in groups(task):
        block = (s * task.n_actions + a) * task.n_states
        for i in rows:
            if i != rows[0]:
                out[i, block + task.successors[i]] = 1.0
                if difference:
                    out[i, block + task.successors[rows[0]]] = -1.0
    return out


@pytest.mark.parametrize("support", ["known", "local", "full"])
def test_one_hot_is_the_textbook_map_without_idle_coordinates(rng, support):
    task = random_mdp(rng).task(support)
    for made, difference, bound in (
        (features.one_hot(task), True, np.sqrt(2)),
        (features.one_hot_indicator(task), False, 1.0),
    ):
        formal = formal_one_hot(task, difference)
        used = formal.any(axis=0)
        np.testing.assert_array_equal(matrix(made), formal[:, used])
        assert made.formal_dimension == 5 * 2 * 5
        assert made.norm_bound == pytest.approx(bound)
        assert len(made.names) == made.dimension == used.sum()


def test_nothing_to_learn_leaves_one_idle_coordinate():
    task = FiniteMDP.from_arrays(np.eye(3)[:, None], np.zeros((3, 1)), 2).task()
    for made in (features.one_hot(task), features.one_hot_indicator(task), features.shared(task)):
        assert made.dimension == 1 and not matrix(made).any() and made.norm_bound == 0.0
        np.testing.assert_array_equal(probabilities(made, np.array([3.0])), np.ones(3))


@pytest.mark.parametrize("support", ["known", "local", "full"])
def test_shared_features_do_not_grow_with_the_river(support):
    small, large = (features.shared(envs.riverswim(n_states=n).task(support)) for n in (6, 40))
    assert small.dimension == large.dimension
    assert list(small.names) == list(large.names)
    if support == "local":
        assert small.dimension == 8
    task = large.task
    seen = {}
    for s, a, rows in groups(task):
        where = "first" if s == 0 else "last" if s == 39 else "interior"
        for i in rows:
            offset = int(task.successors[i]) - s
            kind = (a, where, offset if abs(offset) <= 1 else "elsewhere", len(rows) == 1)
            row = tuple(matrix(large)[i])
            assert seen.setdefault(kind, row) == row
            assert sum(row) in (0.0, 1.0)
        assert any(not matrix(large)[i].any() for i in rows)  # Remark 1: one zero vector
    # Otherwise different kinds have different vectors, within an action and a place.
    used = [k for k, v in seen.items() if any(v)]
    assert len({seen[k] for k in used}) == len(used) == large.dimension


def test_shared_needs_a_line():
    mdp = from_rows({(0, 0): {0: 1.0}}, [[0.0]], 2, states=["shore"])
    with pytest.raises(ValueError, match="states on a line"):
        features.shared(mdp.task())


def test_from_function_is_called_with_the_users_names():
    mdp = from_rows(
        {(0, 0): {0: 0.5, 1: 0.5}, (1, 0): {1: 1.0}}, [[0.0], [0.0]], 2,
        states=["x", "yy"], actions=["go"],
    )  # fmt: skip
    made = features.from_function(mdp.task(), lambda s, a, t: [len(s), len(a), len(t)])
    np.testing.assert_array_equal(made.matrix, [[1, 2, 1], [1, 2, 2], [2, 2, 2]])
    plain = features.from_function(envs.riverswim(3).task(), lambda s, a, t: t - s)
    assert plain.matrix.shape == (plain.task.n_triples, 1)
    with pytest.raises(ValueError, match=r"\(s='x', a='go', s'='yy'\) have shape"):
        features.from_function(mdp.task(), lambda s, a, t: [1.0] * len(t))
    with pytest.raises(ValueError, match="not a vector of numbers"):
        features.from_function(mdp.task(), lambda s, a, t: ["north"])


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_recentring_gives_a_zero_vector_and_the_same_model(rng, make):
    task = random_mdp(rng).task()
    given = Features(task, make(rng.standard_normal((task.n_triples, 4))))
    theta = rng.standard_normal(4)
    made = features.recentre(given)
    assert not matrix(made)[task.indptr[:-1]].any()
    np.testing.assert_allclose(
        probabilities(made, theta),
        np.exp(mnl_log_probabilities(task, matrix(given), theta)),
        rtol=1e-12,
    )


def random_sparse(rng, task, d=9):
    values = rng.standard_normal((task.n_triples, d))
    keep = np.zeros_like(values, dtype=bool)
    for _, _, rows in groups(task):  # each group uses few features, so that blocks exist
        keep[np.ix_(rows, rng.choice(d, rng.integers(0, 3), replace=False))] = True
    return values * keep * (rng.random(values.shape) < 0.8)


def test_the_layout_holds_exactly_the_matrix(rng):
    task = random_mdp(rng, 6, 3).task()
    for dense_matrix in (random_sparse(rng, task), rng.standard_normal((task.n_triples, 3))):
        for given in (dense_matrix, sparse.csr_array(dense_matrix)):
            layout = Features(task, given).layout
            rebuilt = np.zeros_like(dense_matrix)
            for g, (_, _, rows) in enumerate(groups(task)):
                pair = layout.pairs[g]
                w = pair["n_columns"]
                for u, row in enumerate(rows):
                    for j in range(w):
                        slot = layout.slots[pair["first_column"] + j]
                        first = layout.blocks["first_feature"][pair["block"]]
                        column = layout.features[first + slot]
                        rebuilt[row, column] = layout.values[pair["first_value"] + u * w + j]
            np.testing.assert_array_equal(rebuilt, dense_matrix)


def test_blocks_are_the_components_of_features_that_meet(rng):
    task = random_mdp(rng, 6, 3).task()
    for _ in range(5):
        given = random_sparse(rng, task)
        features = Features(task, sparse.csr_array(given)).rescaled(np.ones(given.shape[1]))
        layout = features.layout
        label = list(range(given.shape[1]))  # plain merging, to a fixed point
        for _ in label:
            for _, _, rows in groups(task):
                used = np.flatnonzero(given[rows].any(axis=0))
                low = min((label[j] for j in used), default=0)
                for j in used:
                    label[j] = low
        block_of = np.empty(given.shape[1], int)
        for b in range(len(layout.size)):
            members = layout.features[slice(*layout.blocks["first_feature"][b : b + 2])]
            block_of[members] = b
            is_shared = ~features.packed[1].is_own[members]  # own columns come first
            assert list(members) == [members[i] for i in np.lexsort((members, is_shared))]
            assert len(members) == layout.size[b]
            assert layout.blocks["n_own"][b] == (~is_shared).sum()
        same = block_of[:, None] == block_of[None, :]
        np.testing.assert_array_equal(same, np.equal.outer(label, label))
        for g, (_, _, rows) in enumerate(groups(task)):
            used = np.flatnonzero(given[rows].any(axis=0))
            assert layout.pairs["block"][g] == (block_of[used[0]] if len(used) else -1)


def test_wrong_features_get_one_clear_sentence(rng):
    task = random_mdp(rng).task()
    n = task.n_triples
    good = rng.standard_normal((n, 2))
    bad = good.copy()
    bad[3, 1] = np.nan
    s, a, s2 = (int(x[3]) for x in task.triples)
    where = rf"features of row 3 \(s={s}, a={a}, s'={s2}\) hold nan"
    for given, sentence in (
        (bad, where),
        (sparse.csr_array(bad), where),
        (good[1:], rf"shape \({n - 1}, 2\); with {n} reachable triples they must be \({n}, d\)"),
        (good[:, 0], "one row per triple"),
        (good[:, :0], "d at least 1"),
        ([["a"]] * n, "array of numbers"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Features(task, given)
    with pytest.raises(ValueError, match="it must be a list of 2 texts"):
        Features(task, good, names=["a", "b", "c"])
    other = random_mdp(rng).task("full")
    with pytest.raises(ValueError, match="build the features from the task that the agent gets"):
        Features(task, good).check_task(other)


def test_norm_bound_is_the_longest_row(rng):
    task = random_mdp(rng).task()
    given = rng.standard_normal((task.n_triples, 3))
    longest = max(float(np.sqrt(row @ row)) for row in given)
    for made in (Features(task, given), Features(task, sparse.csr_array(given))):
        assert made.norm_bound == pytest.approx(longest, rel=1e-14)


def test_float32_stays_and_what_cannot_be_written_to_is_borrowed(rng):
    """Half the memory, or none: and the same model, since sums are in float64."""
    mdp = envs.riverswim(5, 8)
    task = mdp.task("local")
    single = rng.normal(size=(task.n_triples, 3)).astype(np.float32)
    double = Features(task, single.astype(np.float64))
    copied = Features(task, single)
    assert copied.matrix.dtype == np.float32 and not np.shares_memory(copied.matrix, single)
    single.flags.writeable = False
    borrowed = Features(task, single)
    assert np.shares_memory(borrowed.matrix, single)
    assert borrowed.norm_bound == copied.norm_bound == double.norm_bound
    runs = [simulate(mdp, UCRLMNL(task, made), 20, seed=1) for made in (double, copied, borrowed)]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.values, runs[0].values)
        np.testing.assert_array_equal(run.state.model.theta, runs[0].state.model.theta)
    counts = rng.integers(1, 5, task.n_triples).astype(float)
    np.testing.assert_allclose(
        fit_mnl(copied, counts, 1.0).theta, fit_mnl(double, counts, 1.0).theta, rtol=1e-9
    )


def test_the_formal_dimension_of_many_states_is_larger_than_any_matrix():
    task = envs.riverswim(100_000, horizon=1).task("local")
    assert features.one_hot(task).formal_dimension == 2 * 10**10
