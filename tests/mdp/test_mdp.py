"""Tasks and MDPs: every way to build one agrees, and every broken input gets one clear sentence."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from tests.building import from_rows
from tests.reference import dense, random_mdp
from upriver import FiniteMDP, Task, envs, evaluate, solve

TWO = np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.25, 0.75]]])
PAY = np.array([[0.0, 0.5], [1.0, 0.0]])


def test_triples_are_listed_by_state_action_and_successor():
    task = FiniteMDP.from_arrays(TWO, PAY, 3).true_task
    assert task.indptr.tolist() == [0, 2, 3, 4, 6]
    assert task.successors.tolist() == [0, 1, 0, 1, 0, 1]
    s, a, s2 = task.triples
    assert list(zip(s.tolist(), a.tolist(), s2.tolist(), strict=True)) == [
        (0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1),
    ]  # fmt: skip
    assert task.sizes.tolist() == [2, 1, 1, 2]
    assert task.max_successors == 2
    assert task.square_start.tolist() == [0, 4, 5, 6, 10]
    assert task.rows(1, 1) == slice(4, 6)


@pytest.mark.parametrize("random_start", [False, True])
def test_every_way_of_building_gives_the_same_mdp(rng, random_start):
    made = random_mdp(rng, 6, 3, 5, random_start=random_start)
    p, r = dense(made)
    start = np.zeros(6)
    start[made.initial_states] = made.initial_probability
    given = start if random_start else int(made.initial_states[0])
    flat = sparse.csr_array(p[0].reshape(18, 6))
    # coo with the order of entries shuffled and one entry given in two parts
    coo = sparse.coo_array(flat)
    order = rng.permutation(coo.nnz)
    row, col, data = coo.row[order], coo.col[order], coo.data[order]
    parts = sparse.coo_array(
        (np.append(data, data[0] / 2), (np.append(row, row[0]), np.append(col, col[0]))),
        shape=flat.shape,
    )
    parts.data[0] /= 2
    rows = {
        (s, a): {t: p[0, s, a, t] for t in range(6) if p[0, s, a, t] > 0}
        for s in range(6)
        for a in range(3)
    }
    by_function = FiniteMDP.from_functions(
        dict(enumerate(start)) if random_start else given,
        actions=[0, 1, 2],
        successors=lambda s, a: list(rows[s, a]),
        probability=lambda s, a, t: rows[s, a][t],
        reward=lambda s, a: r[0, s, a],
        horizon=5,
    )
    for mdp in (
        FiniteMDP.from_arrays(p[0], r[0], 5, given),
        FiniteMDP.from_arrays(p, r, 5, given),
        FiniteMDP.from_arrays(flat, r[0], 5, given),
        FiniteMDP.from_arrays(parts, r[0], 5, given),
    ):
        again = dense(mdp)
        np.testing.assert_allclose(again[0], p, atol=1e-15)
        np.testing.assert_array_equal(again[1], r)
        np.testing.assert_array_equal(mdp.initial_states, made.initial_states)
        np.testing.assert_array_equal(mdp.initial_probability, made.initial_probability)
    # The closure numbers states by when it meets them; compare by name, for those that act.
    names = list(by_function.true_task.states)
    q, pay = dense(by_function)
    if len(names) == 6 and random_start:
        to = np.array(names)
        np.testing.assert_allclose(q[0], p[0][np.ix_(to, range(3), to)], atol=1e-15)
        np.testing.assert_array_equal(pay[0], r[0][to])


def test_per_step_probabilities_share_the_union_of_their_supports():
    later = TWO.copy()
    later[0, 1] = [0.0, 1.0]
    prob, reward = np.stack([TWO, later, TWO]), np.stack([PAY, 1 - PAY, PAY])
    p, r = dense(mdp := FiniteMDP.from_arrays(prob, reward, 3))
    np.testing.assert_array_equal(p, prob)
    np.testing.assert_array_equal(r, reward)
    assert mdp.true_task.sizes.tolist() == [2, 2, 1, 2]


def test_supports_of_a_task(rng):
    mdp = random_mdp(rng, 4, 2, 3)
    known, full, local = (mdp.task(x) for x in ("known", "full", "local"))
    assert [t.support for t in (known, full, local)] == ["known", "full", "local"]
    assert full.sizes.tolist() == [4] * 8
    np.testing.assert_array_equal(full.successors, np.tile(np.arange(4), 8))
    np.testing.assert_array_equal(local.successors, full.successors)
    assert known.same_support(mdp.task("known")) and not full.same_support(known)


def test_a_task_does_not_contain_the_probabilities(rng):
    mdp = random_mdp(rng, 4, 2, 3)
    for support in ("known", "full", "local"):
        task = mdp.task(support)
        names = {f.name for f in dataclasses.fields(task)} | set(vars(task))
        assert not any("prob" in name or "mdp" in name for name in names)
        for value in vars(task).values():
            assert not isinstance(value, FiniteMDP)
            if isinstance(value, np.ndarray):
                assert not np.shares_memory(value, mdp.probability)


def test_unknown_reward_is_hidden(rng):
    task = random_mdp(rng).task().with_unknown_reward()
    assert task.reward is None
    with pytest.raises(ValueError, match="no known reward"):
        _ = task.reward_rows


def river_functions(length):
    def successors(s, a):
        return [max(s - 1, 0)] if a == "left" else sorted({max(s - 1, 0), s, min(s + 1, length)})

    def probability(s, a, t):
        return 1.0 / len(successors(s, a))

    return dict(
        actions=["left", "right"], successors=successors, probability=probability,
        reward=lambda s, a: 0.25 * (a == "left" and s == 0),
    )  # fmt: skip


def test_only_81_states_of_a_river_of_10_to_the_12_are_reachable():
    mdp = FiniteMDP.from_functions(0, horizon=80, **river_functions(10**12))
    assert mdp.n_states == 81
    assert list(mdp.true_task.states) == list(range(81))
    assert mdp.true_task.n_triples <= 81 * 4
    p, r = dense(mdp)
    np.testing.assert_allclose(p.sum(axis=-1), 1.0)
    np.testing.assert_allclose(p[0, 40, 1, 39:42], 1 / 3)
    assert r[0, 0, 0] == 0.25 and r.sum() == 80 * 0.25
    middle = FiniteMDP.from_functions(10**11, horizon=80, **river_functions(10**12))
    assert middle.n_states == 161  # both ways from the middle of the river


def test_reachable_states_have_the_values_of_the_whole_river():
    from upriver import solve
    from upriver.planning import start_value

    functions = river_functions(9)
    whole = FiniteMDP.from_functions(3, horizon=30, **functions)
    assert whole.n_states == 10  # closed long before the horizon
    short = FiniteMDP.from_functions(3, horizon=4, **functions)
    assert sorted(short.true_task.states) == list(range(8))
    lasting = FiniteMDP.from_functions({3: 0.5, 5: 0.5}, horizon=4, **functions)
    direct = 0.5 * start_value(short, solve(short).v) + 0.5 * start_value(
        FiniteMDP.from_functions(5, horizon=4, **functions),
        solve(FiniteMDP.from_functions(5, horizon=4, **functions)).v,
    )
    assert start_value(lasting, solve(lasting).v) == pytest.approx(direct, abs=1e-14)


def test_more_than_max_states_is_refused():
    calls = []
    functions = river_functions(10**12)
    reach = functions.pop("successors")
    counted = lambda s, a: calls.append(1) or reach(s, a)  # noqa: E731
    with pytest.raises(ValueError, match="max_states=50 states within 80 steps"):
        FiniteMDP.from_functions(0, horizon=80, max_states=50, successors=counted, **functions)
    assert len(calls) <= 2 * 51  # it stops where it fails
    assert FiniteMDP.from_functions(
        0, horizon=80, max_states=81, successors=reach, **functions
    ).n_states == 81  # fmt: skip


def declare(sets):
    """Return the MDP of TWO that declares sets of states, one for each pair, as its support."""
    local = np.cumsum([0, *map(len, sets)]), [s for each in sets for s in each]
    return FiniteMDP.from_arrays(TWO, PAY, 3, local=local)


def broken(change):
    p = TWO.copy()
    change(p)
    return p


def put(index, value):
    return lambda p: p.__setitem__(index, value)


WRONG = {
    "row sum": (lambda: FiniteMDP.from_arrays(broken(put((1, 1, 0), 0.3)), PAY, 3),
                r"transition row \(s=1, a=1\) sums to 1\.05; it must sum to 1"),
    "row sum at a step": (
        lambda: FiniteMDP.from_arrays(np.stack([TWO, broken(put((0, 0, 0), 0.6))]), PAY, 2),
        r"transition row \(h=1, s=0, a=0\) sums to 1\.1"),
    "zero rows": (lambda: FiniteMDP.from_arrays(broken(put(1, 0.0)), PAY, 3),
                  "state 1 has no action; it needs one"),
    "zero row at a step": (
        lambda: FiniteMDP.from_arrays(np.stack([TWO, broken(put((1, 0), 0.0))]), PAY, 2),
        r"\(h=1, s=1, a=0\) sums to 0"),
    "negative": (lambda: FiniteMDP.from_arrays(broken(put((0, 1), [1.5, -0.5])), PAY, 3),
                 r"\(s=0, a=1\) holds -0\.5; probabilities must be"),
    "nan": (lambda: FiniteMDP.from_arrays(broken(put((1, 0, 0), np.nan)), PAY, 3),
            r"\(s=1, a=0\) holds nan"),
    "nan sparse": (
        lambda: FiniteMDP.from_arrays(
            sparse.csr_array(broken(put((1, 0, 0), np.nan)).reshape(4, 2)), PAY, 3),
        r"\(s=1, a=0\) holds nan"),
    "reward infinite": (lambda: FiniteMDP.from_arrays(TWO, PAY + np.inf, 3),
                        r"reward of \(s=0, a=0\) is inf; it must be a finite number"),
    "reward nan": (lambda: FiniteMDP.from_arrays(TWO, PAY * np.nan, 3),
                   r"reward of \(s=0, a=0\) is nan"),
    "reward shape": (lambda: FiniteMDP.from_arrays(TWO, PAY[:1], 3),
                     r"reward has shape \(1, 2\); it must be \(2, 2\) or \(3, 2, 2\)"),
    "reward text": (lambda: FiniteMDP.from_arrays(TWO, [["a", 1], [0, 0]], 3), "reward must be"),
    "horizon": (lambda: FiniteMDP.from_arrays(TWO, PAY, 0), "horizon is 0; it must be"),
    "horizon type": (lambda: FiniteMDP.from_arrays(TWO, PAY, 2.5), r"horizon is 2\.5"),
    "horizon and steps": (lambda: FiniteMDP.from_arrays(np.stack([TWO, TWO]), PAY, 3),
                          "transition has 2 steps; with horizon 3"),
    "shape": (lambda: FiniteMDP.from_arrays(TWO[:, :, :1], PAY, 3), r"shape \(2, 2, 1\)"),
    "ragged": (lambda: FiniteMDP.from_arrays([[[1], [1, 2]]], PAY, 3), "transition must be"),
    "sparse shape": (lambda: FiniteMDP.from_arrays(sparse.csr_array(np.ones((3, 2))), PAY, 3),
                     r"shape \(3, 2\); a sparse one must be \(S\*A, S\)"),
    "start": (lambda: FiniteMDP.from_arrays(TWO, PAY, 3, 2), "initial_state is 2; it must be"),
    "start kind": (lambda: FiniteMDP.from_arrays(TWO, PAY, 3, 0.5), "initial_state is 0.5"),
    "start sum": (lambda: FiniteMDP.from_arrays(TWO, PAY, 3, [0.5, 0.4]), "sum to 0.9"),
    "start negative": (lambda: FiniteMDP.from_arrays(TWO, PAY, 3, [1.5, -0.5]),
                       r"initial probabilities sum to 1, and the least is -0\.5"),
    "start shape": (lambda: FiniteMDP.from_arrays(TWO, PAY, 3, [1.0]), r"initial_state is \[1.0\]"),
    "missing row": (lambda: from_rows({(0, 0): {1: 1.0}}, [[0.0]], 3),
                    "state 1 has no action"),
    "support": (lambda: FiniteMDP.from_arrays(TWO, PAY, 3).task("all"),
                r"support is 'all'; it must be one of \['known', 'local', 'full'\]"),
    "no local": (lambda: FiniteMDP.from_arrays(TWO, PAY, 3).task("local"),
                 "declares no local support"),
    "support empty": (lambda: declare([{0, 1}] * 3 + [set()]),
                      r"leaves out successor 0 of \(s=1, a=1\)"),
    "support range": (lambda: declare([[0, 1]] * 3 + [[0, 1, 2]]),
                      r"successor 2 of \(s=1, a=1\) is out of range or order"),
    "support repeated": (lambda: declare([[0, 1, 1]] * 4),
                         r"successor 1 of \(s=0, a=0\) is out of range or order"),
    "support fraction": (lambda: declare([[0, 0.5, 1]] * 4),
                         "whole numbers"),
    "local too small": (
        lambda: FiniteMDP.from_arrays(
            TWO, PAY, 3, local=(np.arange(5), np.zeros(4, dtype=int))),
        "local leaves out successor 1"),
    "task indptr": (lambda: Task(2, 1, 3, np.array([0, 1]), np.array([0])), "indptr must have 3"),
    "task order": (lambda: Task(2, 1, 3, np.array([0, 2, 3]), np.array([1, 0, 0])),
                   r"successor 0 of \(s=0, a=0\) is out of range or order"),
    "task names": (lambda: Task(1, 1, 3, np.array([0, 1]), np.array([0]), states=["a", "b"]),
                   "states has 2 names; there must be 1"),
    "rows of": (lambda: FiniteMDP.from_arrays(TWO, PAY, 3).true_task.rows(2, 0), r"\(s=2, a=0\)"),
    "no actions": (
        lambda: FiniteMDP.from_functions(0, [], lambda s, a: [0], max, max, 3),
        "actions is empty"),
    "nowhere": (
        lambda: FiniteMDP.from_functions(0, [0], lambda s, a: [], max, max, 3),
        r"successors\(0, 0\) is empty"),
    "named twice": (
        lambda: FiniteMDP.from_functions(
            0, [0], lambda s, a: [0, 0], lambda s, a, t: 0.5, lambda s, a: 0.0, 3),
        r"successors\(0, 0\) has the name 0 twice"),
    "function sum": (
        lambda: FiniteMDP.from_functions(
            0, [0], lambda s, a: [0], lambda s, a, t: 0.5, lambda s, a: 0.0, 3),
        "sums to 0.5"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_broken_input_gets_one_clear_sentence(name):
    build, sentence = WRONG[name]
    with pytest.raises(ValueError, match=sentence) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_kinds_and_misspelt_arguments_are_type_errors():
    with pytest.raises(TypeError, match="unknown argument 'lokal'"):
        FiniteMDP.from_arrays(TWO, PAY, 3, lokal=None)


def test_building_changes_no_input(rng):
    p, r = TWO.copy(), PAY.copy()
    matrix = sparse.csr_array(p.reshape(4, 2))
    before = matrix.data.copy(), matrix.indices.copy()
    FiniteMDP.from_arrays(p, r, 3)
    FiniteMDP.from_arrays(matrix, r, 3)
    np.testing.assert_array_equal(p, TWO)
    np.testing.assert_array_equal(r, PAY)
    np.testing.assert_array_equal(matrix.data, before[0])
    np.testing.assert_array_equal(matrix.indices, before[1])


def test_a_later_change_of_the_input_does_not_reach_the_mdp():
    p, r = np.stack([TWO, TWO]), PAY.copy()
    mdp = FiniteMDP.from_arrays(p, r, 2)
    p[:] = 0.0
    r[:] = 7.0
    np.testing.assert_array_equal(mdp.reward, PAY)
    np.testing.assert_array_equal(dense(mdp)[0], np.stack([TWO, TWO]))


def test_kernels_read_the_reward_without_a_copy_and_users_cannot_write_to_it():
    """A copy would be 32 MB at a million states; kernels have one type for what they read."""
    task = envs.riverswim(4).task("local")
    rows, _ = task.user_rewards
    assert np.shares_memory(rows, task.reward)
    assert rows.flags.writeable
    assert not task.reward.flags.writeable


def test_one_huge_penalty_does_not_hide_the_rewards_of_next_states():
    frame = {
        "state": list("aaabb"), "action": ["x", "x", "bad", "x", "bad"],
        "next_state": list("ababa"),
        "probability": [0.5, 0.5, 1.0, 1.0, 1.0], "reward": [0.0, 100.0, -1e15, 0.0, 0.0],
    }  # fmt: skip
    assert solve(FiniteMDP.from_frame(frame, 1)).v[0].tolist() == [50.0, 0.0]


def test_states_listed_for_some_steps_have_no_infinite_horizon():
    """The state that the last step reaches stays where it is: that is right for 3 steps alone."""

    def walk(horizon):
        return FiniteMDP.from_functions(
            0, ["go"], lambda s, a: [s + 1] if s < 10 else [0], lambda s, a, s2: 1.0,
            lambda s, a: 1.0, horizon,
        )  # fmt: skip

    short, long = walk(3), walk(50)
    assert solve(short).v[0, 0] == 3.0
    calls = (
        lambda: short.infinite_horizon(0.9),
        lambda: solve(short, discount=0.9),
        lambda: solve(short, discount=0.9, temperature=1.0),
        lambda: evaluate(short, np.zeros(short.n_states, int), average=True),
    )
    for call in calls:
        with pytest.raises(ValueError, match="listed for 3 steps"):
            call()
    assert solve(long, discount=0.9).v[0] == pytest.approx(10.0)
    assert solve(walk(None), discount=0.9).v[0] == pytest.approx(10.0)


def test_rewards_of_steps_that_may_be_those_of_next_states_are_refused():
    with pytest.raises(ValueError, match=r"may be \(H, S, A\) or \(S, A, S\)"):
        FiniteMDP.from_arrays(np.stack([TWO, TWO]), np.stack([PAY, PAY]), 2)


def test_a_frame_refuses_states_that_are_listed_twice():
    frame = FiniteMDP.from_arrays(TWO, PAY, 2).to_frame()
    with pytest.raises(ValueError, match="states has the name 0 twice"):
        FiniteMDP.from_frame(frame, 2, states=[0, 1, 0])


def test_rows_that_nearly_sum_to_one_are_normalised():
    """A reward of 1 at each of 50,000 steps is worth 50,000, although rows sum to 1 - 5e-9."""
    p = np.full((2, 1, 2), 0.5)
    p[:, :, 1] -= 5e-9
    mdp = FiniteMDP.from_arrays(p, np.ones((2, 1)), 50_000)
    assert solve(mdp).v[0] == pytest.approx([50_000.0, 50_000.0], rel=1e-11)
    exact = FiniteMDP.from_arrays(np.full((2, 1, 2), 0.5), np.ones((2, 1)), 5)
    assert (exact.probability == 0.5).all()
