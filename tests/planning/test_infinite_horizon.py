"""Discounted and average reward: against enumeration, closed forms, a programme, and QuantEcon."""

from itertools import product

import numpy as np
import pytest
from benchmarks.planning import draw_mdp as sparse_mdp
from scipy.optimize import linprog
from scipy.sparse.csgraph import connected_components

import upriver as up
from studies import environments
from tests.building import from_rows
from tests.envs.test_queue import threshold_gain
from tests.reference import dense, random_mdp
from upriver import kernels
from upriver.planning import draw_tie_seed, policy_iteration
from upriver.planning.infinite_horizon import plan_model


def plain(mdp):
    p, r = dense(mdp)
    return p[0], r[0]


def chain_value(p, r, policy, discount):
    at = np.arange(len(r))
    return np.linalg.solve(np.eye(len(r)) - discount * p[at, policy], r[at, policy])


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.9, 0.9999])
def test_discounted_optimum_is_the_best_of_all_policies(rng, discount):
    mdp = random_mdp(rng, n_states=4, n_actions=3)
    p, r = plain(mdp)
    best = np.max([chain_value(p, r, x, discount) for x in product(range(3), repeat=4)], axis=0)
    plan = up.solve(mdp, discount=discount)
    # rows sum to 1 only up to rounding, which the dense solution takes at its word
    rounding = 4 * np.finfo(float).eps * best.max() / (1 - discount)
    assert np.abs(plan.v - best).max() <= plan.error + rounding and plan.error <= 2e-8
    np.testing.assert_allclose(chain_value(p, r, plan.policy, discount), best, atol=2e-8 + rounding)


def test_policy_iteration_of_quantecon_agrees_on_fifty_mdps():
    markov = pytest.importorskip("quantecon.markov")
    for seed in range(50):
        rng = np.random.default_rng(seed)
        mdp = random_mdp(rng, n_states=int(rng.integers(2, 30)), n_actions=int(rng.integers(1, 5)))
        p, r = plain(mdp)
        discount = float(rng.choice([0.3, 0.9, 0.99, 0.999]))
        theirs = markov.DiscreteDP(r, p, discount).solve(method="policy_iteration")
        assert np.abs(up.solve(mdp, discount=discount).v - theirs.v).max() < 1e-8


def test_the_error_allows_for_rounding():
    """All changes of a backup are equal, but 0.1 / 0.3 is no floating-point number."""
    mdp = up.FiniteMDP.from_arrays(np.ones((1, 1, 1)), np.full((1, 1), 0.1), 1)
    plan = up.solve(mdp, discount=0.7)
    assert 0.0 < plan.error < 1e-12
    assert abs(plan.v[0] - 1 / 3) <= plan.error


@pytest.mark.parametrize("tolerance", [1.0, 1e-3, 1e-6])
def test_the_error_is_a_bound_and_within_the_tolerance(tolerance):
    mdp = sparse_mdp(60, 3, near=True, seed=3)
    exact = up.solve(mdp, discount=0.99, tolerance=1e-11).v
    plan = up.solve(mdp, discount=0.99, tolerance=tolerance)
    assert np.abs(plan.v - exact).max() <= plan.error + 1e-10
    assert plan.error <= tolerance
    worth = up.evaluate(mdp, plan.policy, discount=0.99, tolerance=1e-11).v
    assert (exact - worth).max() <= 2 * plan.error + 1e-10


@pytest.mark.parametrize("band", [policy_iteration.MAX_BAND_OPERATIONS, 0.0])
def test_bands_are_solved_and_others_followed_to_the_same_end(monkeypatch, band):
    monkeypatch.setattr(policy_iteration, "MAX_BAND_OPERATIONS", band)
    mdp = sparse_mdp(80, 3, near=True, seed=1)
    p, r = plain(mdp)
    plan = up.solve(mdp, discount=0.999)
    assert (plan.sweeps < 300) == (band > 0)
    np.testing.assert_allclose(
        plan.v, chain_value(p, r, plan.policy, 0.999), atol=3 * max(plan.error, 1e-10)
    )
    np.testing.assert_allclose((r + 0.999 * p @ plan.v).max(axis=1), plan.v, atol=1e-8)


def best_gain(mdp):
    """The linear programme over stationary frequencies x(s, a)."""
    p, r = plain(mdp)
    s, a = r.shape
    flow = np.repeat(np.eye(s), a, axis=1) - p.reshape(s * a, s).T
    found = linprog(
        -r.ravel(), A_eq=np.vstack([flow, np.ones(s * a)]), b_eq=[*np.zeros(s), 1.0],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )  # fmt: skip
    return -found.fun


@pytest.mark.parametrize("seed", range(10))
def test_the_gain_is_that_of_a_linear_programme(seed):
    near = sparse_mdp(25, 3, near=True, seed=seed)  # slow to mix
    for mdp in (near, up.envs.random_mnl(6, max_successors=6, seed=seed)):
        plan = up.solve(mdp, average=True)
        assert plan.gain == pytest.approx(best_gain(mdp), abs=3e-8)
        assert plan.error <= 2e-8
        again = up.evaluate(mdp, plan.policy, average=True)
        assert again.gain == pytest.approx(plan.gain, abs=4e-8)
        p, r = plain(mdp)  # the optimality equation of gain and bias
        np.testing.assert_allclose((r + p @ plan.v).max(axis=1), plan.v + plan.gain, atol=5e-8)


def test_two_states_in_closed_form():
    mdp = environments.two_state()
    p, q = 1.0 / (1.0 + 3.0 * np.exp(-0.16)), 0.25
    plan = up.solve(mdp, average=True)
    assert plan.gain == pytest.approx(p / (p + q), abs=1e-8)
    assert np.ptp(plan.v) == pytest.approx(1.0 / (p + q), abs=1e-6)
    assert plan.v.mean() == pytest.approx(0.0, abs=1e-12)
    v = up.solve(mdp, discount=0.9).v
    at_one = 1.0 / ((1 - 0.9 * (1 - q)) - 0.81 * p * q / (1 - 0.9 * (1 - p)))
    assert v == pytest.approx([0.9 * p * at_one / (1 - 0.9 * (1 - p)), at_one], abs=1e-8)
    uniform = up.evaluate(mdp, np.full((2, 8), 1 / 8), average=True).gain
    mean = np.mean(1.0 / (1.0 + 3.0 * np.exp(-0.16 / 3 * np.array([-3, -1, -1, -1, 1, 1, 1, 3]))))
    assert uniform == pytest.approx(mean / (mean + q), abs=1e-8)


def test_admission_to_a_queue_in_closed_form():
    numbers = {"arrival": 1.2, "service": 1.0, "emergencies": 0.1, "refusal": 0.3}
    gains = [threshold_gain(15, t, **numbers) for t in range(16)]
    mdp = up.envs.queue(15)
    plan = up.solve(mdp, average=True)
    assert plan.gain == pytest.approx(max(gains), abs=1e-8)
    assert plan.policy[:15].tolist() == [int(n >= np.argmax(gains)) for n in range(15)]
    shut = up.evaluate(mdp, np.ones(16, int), average=True)
    assert shut.gain == pytest.approx(gains[0], abs=1e-8)


def test_replacement_by_renewal_reward(monkeypatch):
    """A cycle: the month of the replacement, state 0 where that stays, then 1 .. n - 1."""
    stay, wear, upkeep, cost = 0.3, 0.7, 0.02, 0.5
    monkeypatch.setitem(up.envs.bus_engine.__wrapped__.__globals__, "INCREMENTS", (stay, wear, 0.0))
    monkeypatch.setitem(up.envs.bus_engine.__wrapped__.__globals__, "UPKEEP", upkeep)
    mdp = up.envs.bus_engine(40, 10, replacement=cost)
    highest = max(cost, upkeep * 39)
    gains = []
    for n in range(1, 40):
        length = 1.0 + stay / wear + (n - 1) / wear
        paid = cost + sum(upkeep * x / wear for x in range(1, n))
        gains.append(1.0 - paid / length / highest)
    plan = up.solve(mdp, average=True)
    assert plan.gain == pytest.approx(max(gains), abs=1e-8)
    assert int(np.argmax(plan.policy)) == 1 + int(np.argmax(gains))


@pytest.mark.parametrize("band", [policy_iteration.MAX_BAND_OPERATIONS, 0.0])
def test_a_periodic_chain_has_a_gain(monkeypatch, band):
    """Also where its equations are not solved: steps that keep a part of the old value settle."""
    monkeypatch.setattr(policy_iteration, "MAX_BAND_OPERATIONS", band)
    mdp = up.FiniteMDP.from_arrays(np.array([[[0, 1.0]], [[1.0, 0]]]), [[0.0], [1.0]], 5)
    plan = up.solve(mdp, average=True)
    assert plan.gain == pytest.approx(0.5, abs=1e-8)
    assert plan.v[1] - plan.v[0] == pytest.approx(0.5, abs=1e-7)


def test_classes_that_one_can_stay_in():
    stay_or_go = {(0, 0): {0: 1.0}, (0, 1): {1: 1.0}, (1, 0): {2: 1.0}, (1, 1): {2: 1.0},
                  (2, 0): {1: 1.0}, (2, 1): {1: 0.5, 2: 0.5}}  # fmt: skip
    mdp = from_rows(stay_or_go, {(0, 0): 1.0}, 3, name="two")
    with pytest.raises(ValueError, match="two has 2 sets of states that some policy never"):
        up.solve(mdp, average=True)
    leaks = {**stay_or_go, (0, 0): {0: 0.9, 1: 0.1}}  # 0 is left for good whatever one does
    plan = up.solve(from_rows(leaks, {(0, 0): 1.0, (2, 1): 0.3}, 3), average=True)
    assert plan.gain == pytest.approx(0.2, abs=1e-8)  # 2 (two steps, on average) pay 0.3, 1 nothing
    assert up.solve(environments.windy_grid(5), average=True).gain == pytest.approx(1.0, abs=1e-8)


RIVER = up.envs.riverswim(4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: up.solve(RIVER, discount=1.0), r"discount is 1\.0; it must be at least 0"),
        (lambda: up.solve(RIVER, discount=-0.1), r"discount is -0\.1"),
        (lambda: up.solve(RIVER, discount=0.9, average=True), "average is True; it must be one"),
        (lambda: up.solve(RIVER, discount=0.9, tolerance=0), "tolerance is 0"),
        (lambda: up.solve(environments.tidal_river(4), average=True), "tidal-river-4 changes"),
        (lambda: up.solve(up.envs.deep_sea(3), average=True), r"one holds \(2, 0\), another"),
        (lambda: RIVER.infinite_horizon(1.0), r"discount is 1\.0; it must be at least 0"),
        (lambda: environments.tidal_river(4).infinite_horizon(), "tidal-river-4 changes with"),
        (lambda: up.FiniteMDP.from_arrays(np.ones((1, 1, 1)), [[0.0]], 5, discount=0.9),
         r"horizon is 5 and discount is 0\.9; it must be one of them"),
        (lambda: up.FiniteMDP.from_arrays(np.ones((1, 1, 1)), [[0.0]], None, discount=1.5),
         r"discount is 1\.5; it must be at least 0"),
        (lambda: up.evaluate(RIVER, [0, 1], discount=0.9), r"policy has shape \(2,\); it must be"),
        (lambda: up.evaluate(RIVER, [0, 1, 2, 0], discount=0.9), r"policy\[2\] is 2; actions are"),
        (lambda: up.evaluate(RIVER, np.ones((4, 2)), average=True), "that sum to 1"),
    ],
)  # fmt: skip
def test_bad_calls_are_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_long_chain_that_hardly_mixes_is_solved_in_few_sweeps(seed):
    """Left where they are, most states would stay near a poor place for 10^5 steps and more."""
    mdp = sparse_mdp(3_000, 3, near=True, seed=seed)
    plan = up.solve(mdp, average=True)
    assert plan.error <= 1e-8 and plan.sweeps < 300 and np.ptp(plan.v) > 300
    task = mdp.true_task
    q = mdp.reward + np.add.reduceat(
        mdp.probability[0] * plan.v[task.successors], task.indptr[:-1]
    ).reshape(mdp.reward.shape)
    np.testing.assert_allclose(q.max(axis=1) - plan.v, plan.gain, atol=2e-8)
    np.testing.assert_allclose(
        q[np.arange(3_000), plan.policy] - plan.v, plan.gain, atol=2e-8
    )  # the gain is also what the policy earns


@pytest.mark.parametrize("discount", [0.5, 0.999, 1.0])
def test_elimination_solves_the_equations_of_a_chain(rng, discount):
    n, reach = 12, 3
    dense = rng.random((n, n)) * (abs(np.subtract.outer(np.arange(n), np.arange(n))) <= reach)
    dense /= dense.sum(axis=1, keepdims=True)
    s, s2 = np.nonzero(dense)
    start = np.concatenate([[0], np.cumsum(np.bincount(s))])
    c, x = rng.random(n), np.empty(n)
    chain = start.astype(np.uint32), s2.astype(np.uint32), dense[s, s2], np.zeros(n, np.int32)
    assert kernels.stationary.solve_chain(*chain, discount, reach, c.copy(), x)
    level = c + discount * dense @ x - x
    assert np.ptp(level) < 1e-12 * (1.0 + np.ptp(x))
    if discount < 1.0:
        np.testing.assert_allclose(level, 0.0, atol=1e-12)


def test_elimination_tells_two_recurrent_classes(rng):
    for successors, one_class in (([0, 0, 2], False), ([1, 0, 1], True)):
        to, policy = np.array(successors, np.uint32), np.zeros(3, np.int32)
        chain = np.arange(4, dtype=np.uint32), to, np.ones(3), policy
        x = np.empty(3)
        solved = kernels.stationary.solve_chain(*chain, 1.0, 1, np.array([1.0, 5.0, 2.0]), x)
        assert solved == one_class


def test_an_mdp_without_a_last_step_knows_its_discount(tmp_path):
    p, r = plain(RIVER)
    mdp = up.FiniteMDP.from_arrays(p, r, None, discount=0.9)
    assert mdp.horizon is None and mdp.discount == 0.9 and "discount 0.9" in repr(mdp)
    np.testing.assert_array_equal(up.solve(mdp).v, up.solve(RIVER, discount=0.9).v)
    np.testing.assert_array_equal(
        up.evaluate(mdp, up.solve(mdp)).v, up.evaluate(RIVER, [1] * 4, discount=0.9).v
    )
    average = up.FiniteMDP.from_arrays(p, r, None)
    assert "discount 1" in repr(average)
    assert up.solve(average).gain == up.solve(RIVER, average=True).gain
    assert up.solve(RIVER.infinite_horizon(0.9)).v == pytest.approx(up.solve(mdp).v)
    for kept in (mdp, average):
        kept.save(tmp_path / "river.npz")
        assert up.FiniteMDP.load(tmp_path / "river.npz").discount == kept.discount
    line = up.FiniteMDP.from_functions(  # its states are found without a limit of steps
        0, ["on"], lambda s, a: [min(s + 1, 7)], lambda s, a, t: 1.0, lambda s, a: s / 7, None,
        discount=0.5,
    )  # fmt: skip
    assert line.n_states == 8 and up.solve(line).v[7] == pytest.approx(2.0)


def test_stationary_plans_are_matched_by_name():
    rows = {("wet", "go"): {"dry": 1.0}, ("wet", "stay"): {"wet": 1.0},
            ("dry", "go"): {"wet": 1.0}, ("dry", "stay"): {"dry": 1.0}}  # fmt: skip

    def made(states, actions):
        number = {s: i for i, s in enumerate(states)}
        named = {
            (number[s], actions.index(a)): {number[t]: p for t, p in row.items()}
            for (s, a), row in rows.items()
        }
        pays = {(number["dry"], actions.index("stay")): 1.0}
        return from_rows(named, pays, None, states=states, actions=actions)

    one, other = made(["wet", "dry"], ["go", "stay"]), made(["dry", "wet"], ["go", "stay"])
    plan = up.solve(one, discount=0.9)
    assert plan.policy.tolist() == [0, 1]
    assert up.evaluate(other, plan, discount=0.9).v == pytest.approx([10.0, 9.0])
    assert up.evaluate(other, plan.policy, discount=0.9).v == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize("setting", [{"discount": 0.9}, {"average": True}])
def test_plans_for_ever_show_themselves_in_the_users_units(setting):
    p, r = plain(RIVER)
    costly = up.FiniteMDP.from_arrays(p, 100.0 * r - 50.0, 5, actions=["left", "right"])
    plan, scaled = up.solve(costly, **setting), up.solve(RIVER, **setting)
    if "average" in setting:
        assert plan.gain == pytest.approx(100.0 * scaled.gain - 50.0, abs=1e-5)
        np.testing.assert_allclose(plan.v, 100.0 * scaled.v, atol=1e-4)
    else:
        np.testing.assert_allclose(plan.v, 100.0 * scaled.v - 500.0, atol=1e-5)
    frame = plan.to_pandas()
    assert frame["action"].tolist() == ["right"] * 4 and len(frame.columns) == 3
    assert "right" in plan._repr_html_() and "4 states" in repr(plan)
    assert plan.plot().axes
    random = up.evaluate(costly, np.full((4, 2), 0.5), **setting)
    assert random.to_pandas()["P(left)"].tolist() == [0.5] * 4
    with pytest.raises(ValueError, match=r"this policy is random; plot\(\) draws one action"):
        random.plot()


def test_successors_of_probability_zero_connect_nothing():
    """Two states that one stays in, each declared to be a successor of the other."""
    full = up.FiniteMDP.from_arrays(np.full((2, 1, 2), 0.5), [[0.0], [1.0]], 3)

    def made(prob):
        start = full.initial_states, full.initial_probability
        return up.FiniteMDP(full.true_task, np.array([prob]), *start, name="apart")

    mdp = made([1.0, 0.0, 0.0, 1.0])
    for call in (up.solve, lambda mdp, **how: up.evaluate(mdp, [0, 0], **how)):
        with pytest.raises(ValueError, match="apart has 2 sets of states"):
            call(mdp, average=True)
    assert up.solve(made([0.5, 0.5, 0.0, 1.0]), average=True).gain == pytest.approx(1.0, abs=1e-8)
    assert up.solve(mdp, discount=0.9).v == pytest.approx([0.0, 10.0])


def test_discounts_that_rounding_decides_are_refused():
    for call in (up.solve, lambda mdp, **how: up.evaluate(mdp, [1] * 4, **how)):
        with pytest.raises(ValueError, match=r"discount is 0\.99999.*at most 1 - 1e-10.*average"):
            call(RIVER, discount=1.0 - 1e-15)
    best = up.solve(RIVER, discount=1.0 - 1e-9)
    again = up.evaluate(RIVER, best.policy, discount=1.0 - 1e-9)
    assert np.abs(best.v - again.v).max() <= best.error + again.error
    assert best.v[0] * 1e-9 == pytest.approx(up.solve(RIVER, average=True).gain, abs=1e-6)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-7])
def test_the_gain_is_within_its_error_and_the_error_within_the_tolerance(tolerance):
    """The gain of the optimum and that of the policy lie within the bound, and use most of it."""
    used = []
    for seed in range(12):
        mdp = sparse_mdp(30, 3, near=True, seed=seed)
        exact = up.solve(mdp, average=True, tolerance=1e-11)
        plan = up.solve(mdp, average=True, tolerance=tolerance)
        assert plan.error <= tolerance
        assert abs(plan.gain - exact.gain) <= plan.error + exact.error
        own = up.evaluate(mdp, plan.policy, average=True, tolerance=1e-11)
        assert abs(plan.gain - own.gain) <= plan.error + own.error
        used.append(abs(plan.gain - own.gain) / plan.error)
    if tolerance == 1e-2:  # a bound of a quarter of the size would be wrong
        assert max(used) > 0.25


def test_the_bounds_of_a_discounted_backup_by_hand():
    """One state, reward 1: u - w = 1 - 0.1 w exactly, so the first backup is already level."""
    mdp = up.FiniteMDP.from_arrays(np.ones((1, 1, 1)), [[1.0]], 3)
    plan = up.solve(mdp, discount=0.9, tolerance=1e-3)
    assert plan.v[0] == pytest.approx(10.0, abs=1e-12) and plan.sweeps == 1
    # MacQueen: v is between u + 9 min(u - w) and u + 9 max(u - w), half that apart and rounding
    rounding = 8 * np.finfo(float).eps
    assert plan.error == pytest.approx((9.0 + 1.0) * rounding, rel=1e-6)
    assert plan.gain is None


def test_ties_of_stationary_plans_are_uniform_and_independent():
    """A worse action and three equal ones, of which the last state lacks one."""
    n, rng = 6, np.random.default_rng(4)
    rows = {(s, a): {(s + 1) % n: 1.0} for s in range(n) for a in range(4) if (s, a) != (5, 2)}
    reward = {(s, a): 0.5 if a else 0.4 for s, a in rows}
    task = from_rows(rows, reward, None, discount=0.8).task()
    draws, prob = 3000, np.ones(task.n_triples)
    tables = np.stack([
        plan_model(task, prob, task.reward_rows[0], draw_tie_seed(rng)).policy[0]
        for _ in range(draws)
    ])  # fmt: skip
    assert set(tables[:, 5].tolist()) == {1, 3}
    share = np.stack([(tables[:, :5] == a).mean(axis=0) for a in (1, 2, 3)])
    assert np.abs(share - 1 / 3).max() < 4.5 * np.sqrt(2 / 9 / draws)
    same = np.mean(tables[:, 0] == tables[:, 1])
    assert abs(same - 1 / 3) < 4.5 * np.sqrt(2 / 9 / draws)
    np.testing.assert_array_equal(
        plan_model(task, prob, task.reward_rows[0], np.uint64(7)).policy,
        plan_model(task, prob, task.reward_rows[0], np.uint64(7)).policy,
    )


STAY_OR_GO = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])


@pytest.mark.parametrize(
    "reward",
    [
        [[1.0, 0.0], [1.005, 0.0]],
        [[1.0, 0.0], [1.01, 0.0]],
        [[1.0, 0.0], [1.001, 1.0]],
        [[100.0, 0.0], [100.5, 0.0]],
        [[1e-9, 0.0], [1.005e-9, 0.0]],
    ],
)
def test_two_states_that_earn_nearly_the_same_have_a_gain(reward):
    """With a discount it pays to stay in both; the best gain is that of the second."""
    plan = up.solve(up.FiniteMDP.from_arrays(STAY_OR_GO, reward, None))
    assert plan.gain == pytest.approx(reward[1][0], rel=1e-12)
    assert plan.policy.tolist() == [1, 0]


def chain_gains(p, r):
    """The gain of each recurrent class of a chain."""
    n_classes, label = connected_components(p > 0.0, connection="strong")
    gains = []
    for members in (np.flatnonzero(label == c) for c in range(n_classes)):
        inside = p[np.ix_(members, members)]
        if inside.sum() > len(members) - 1e-9:
            equations = np.vstack([np.eye(len(members)) - inside.T, np.ones(len(members))])
            shares = np.linalg.lstsq(equations, np.eye(len(members) + 1)[-1], rcond=None)[0]
            gains.append(shares @ r[members])
    return gains


def draw_sparse_problem(rng):
    """Return p and r of 2 to 4 states, with few successors and rewards that are nearly equal."""
    n_states, n_actions = int(rng.integers(2, 5)), int(rng.integers(2, 4))
    p = np.zeros((n_states, n_actions, n_states))
    most = int(rng.integers(1, 4))
    for s, a in product(range(n_states), range(n_actions)):
        n_successors = min(int(rng.integers(1, most + 1)), n_states)
        successors = rng.choice(n_states, n_successors, replace=False)
        p[s, a, successors] = rng.dirichlet(np.ones(n_successors))
    size, step = (n_states, n_actions), 10.0 ** -rng.integers(0, 7)
    differences = rng.integers(-2, 3, size) if rng.random() < 0.5 else rng.normal(size=size)
    return p, rng.choice([0.0, 1.0, 100.0]) + step * differences


def test_the_gain_of_small_sparse_problems_is_the_best_of_all_policies():
    solved = 0
    for seed in range(400):
        p, r = draw_sparse_problem(np.random.default_rng(seed))
        at, n_actions = np.arange(len(p)), p.shape[1]
        try:
            plan = up.solve(up.FiniteMDP.from_arrays(p, r, None))
        except ValueError as problem:
            assert "sets of states that some policy never leaves" in str(problem)
            continue
        policies = (np.array(x) for x in product(range(n_actions), repeat=len(p)))
        best = max(max(chain_gains(p[at, x], r[at, x])) for x in policies)
        rounding = 1e-13 * (1.0 + np.abs(r).max())
        assert plan.gain == pytest.approx(best, abs=1e-8 * min(1.0, np.ptp(r)) + rounding)
        assert min(chain_gains(p[at, plan.policy], r[at, plan.policy])) > best - 1e-8
        solved += 1
    assert solved > 250


def test_long_cycles_that_earn_nearly_the_same_have_a_gain(rng):
    """The best class is many steps long, and each of the others keeps the states it has."""
    for _ in range(20):
        lengths = rng.integers(35, 90, 4)
        cycle, first = np.repeat(np.arange(4), lengths), np.cumsum(lengths) - lengths
        n, place = int(lengths.sum()), np.arange(lengths.sum()) - np.repeat(first, lengths)
        p = np.zeros((n, 2, n))
        p[np.arange(n), 0, first[cycle] + (place + 1) % lengths[cycle]] = 1.0
        p[np.arange(n), 1, rng.integers(n, size=n)] = 1.0
        earned = 1.0 + 1e-4 * rng.random(4)
        plan = up.solve(
            up.FiniteMDP.from_arrays(p, np.stack([earned[cycle], np.zeros(n)], 1), None)
        )
        assert plan.gain == pytest.approx(earned.max(), abs=1e-8)


SCALES = [1e-300, 1e-12, 1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9, 1e12, 1e100]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("low", [0.0, -0.7])
def test_values_are_in_proportion_to_the_rewards(scale, low):
    p, r = plain(up.envs.riverswim(6))
    reward = (r + low) * scale
    mdp, mixed = up.FiniteMDP.from_arrays(p, reward, 20), np.full((6, 2), 0.5)
    right, start = np.ones(6, int), np.eye(6)[0]
    for discount in (0.9, 0.999):
        exact = chain_value(p, r + low, right, discount)
        uniform = np.linalg.solve(np.eye(6) - discount * p.mean(axis=1), (r + low).mean(axis=1))
        plan = up.solve(mdp, discount=discount)
        assert plan.policy.tolist() == right.tolist() and plan.error / scale < 1e-8
        np.testing.assert_allclose(plan.v / scale, exact, atol=1e-8)
        valued = up.evaluate(mdp, mixed, discount=discount)
        np.testing.assert_allclose(valued.v / scale, uniform, atol=1e-8)
        assert valued.error / scale < 1e-8
    gain, uniform = (
        chain_gains(x, y + low)[0]
        for x, y in ((p[:, 1], r[:, 1]), (p.mean(axis=1), r.mean(axis=1)))
    )
    plan, valued = up.solve(mdp, average=True), up.evaluate(mdp, mixed, average=True)
    assert plan.policy.tolist() == right.tolist() and plan.error / scale < 1e-8
    assert plan.gain / scale == pytest.approx(gain, abs=1e-8)
    assert valued.gain / scale == pytest.approx(uniform, abs=1e-8)
    bias = (plan.v - start @ plan.v) / scale
    level = r[:, 1] + low + p[:, 1] @ bias - bias
    np.testing.assert_allclose(level, gain, atol=5e-8)


@pytest.mark.parametrize("penalty", [1e6, 1e9, 1e15, 1e30])
@pytest.mark.parametrize(
    "setting", [{"discount": 0.95}, {"average": True}, {"discount": 0.95, "temperature": 0.1}]
)
def test_a_penalty_that_forbids_an_action_costs_no_digits(setting, penalty):
    """On the scale of the penalty rounding would decide about all other rewards."""
    mdp = sparse_mdp(30, 3, near=True, seed=5)
    p, r = plain(mdp)
    plans = []
    for loss in (1e3, penalty):
        reward = r.copy()
        reward[5, 1] = reward[9, 0] = -loss
        plans.append(up.solve(up.FiniteMDP.from_arrays(p, reward, 20), **setting))
    assert plans[1].error <= 2e-8
    np.testing.assert_allclose(plans[1].v, plans[0].v, atol=1e-7)
    np.testing.assert_allclose(plans[1].policy, plans[0].policy, atol=1e-7)


def test_tiny_costs_do_not_tie_with_0():
    for cost in (1e-18, 1.0, 1e18):
        mdp = up.FiniteMDP.from_arrays(STAY_OR_GO, [[-cost, 0.0], [-cost, 0.0]], 5)
        for setting in ({"discount": 0.9}, {"average": True}):
            assert up.solve(mdp, **setting).policy.tolist() == [1, 1]


def test_rewards_of_zero_are_worth_nothing():
    mdp = up.FiniteMDP.from_arrays(STAY_OR_GO, np.zeros((2, 2)), 5)
    assert up.solve(mdp, discount=0.9).v.tolist() == [0.0, 0.0]
    assert up.solve(mdp, average=True).gain == 0.0
    assert (up.solve(mdp, discount=0.9, temperature=1e-12).v > 0.0).all()


def test_a_tolerance_is_in_the_users_units_and_its_default_in_proportion():
    ordinary, setting = sparse_mdp(200, 3, near=True, seed=3), {"discount": 0.99}
    p, r = plain(ordinary)
    tiny = up.FiniteMDP.from_arrays(p, 1e-9 * r, 20)
    assert up.solve(tiny, **setting).error <= 1e-17
    assert up.solve(tiny, **setting, tolerance=1e-8).sweeps < up.solve(tiny, **setting).sweeps
    assert 1e-10 < up.solve(tiny, **setting, tolerance=1e-8).error <= 1e-8
    for given in (None, 1e-8 * np.ptp(r)):
        again = up.solve(ordinary, **setting, tolerance=given)
        np.testing.assert_array_equal(again.v, up.solve(ordinary, **setting).v)
    constant = up.FiniteMDP.from_arrays(p, np.full_like(r, 3e-12), 20)
    assert up.solve(constant, average=True).gain == pytest.approx(3e-12, rel=1e-12)


@pytest.mark.parametrize("reward", [1.0, 500.0, 1e6])
def test_discounts_as_near_to_one_as_is_allowed(reward):
    """The first policies differ by 10^7 rewards and more, of which rounding takes some."""
    p, r = plain(up.envs.riverswim(10))
    mdp = up.FiniteMDP.from_arrays(p, reward * r, 20)
    gain = up.solve(mdp, average=True).gain
    for gap in (1e-8, 1e-9, 3e-10, 1e-10):
        plan = up.solve(mdp, discount=1.0 - gap)
        assert plan.policy.tolist() == [1] * 10 and plan.sweeps < 100
        assert plan.v[0] * gap == pytest.approx(gain, rel=1e-6)


def test_two_classes_that_earn_exactly_the_same_have_a_gain():
    """The best policies go to state 1 or stay in state 2; ties keep what a policy does."""
    p = [
        [[0.0, 0.3110685584676266, 0.6889314415323734], [0.8, 0.2, 0.0], [0.5, 0.0, 0.5]],
        [[0.0, 1.0, 0.0], [0.01, 0.83, 0.16], [0.2, 0.4, 0.4]],
        [[0.0, 0.0, 1.0], [0.0, 0.54, 0.46], [0.56, 0.06, 0.38]],
    ]
    reward = [[0.0, 0.0, 1.02], [0.98, 0.0, 0.0], [0.98, 0.0, 0.0]]
    plan = up.solve(up.FiniteMDP.from_arrays(np.array(p), reward, None))
    assert plan.gain == pytest.approx(0.98, abs=1e-8)


def test_a_gain_that_was_not_found_is_refused(monkeypatch):
    """A chain that moves once in 10^6 steps, and sweeps for fewer; its error would be 0.3."""
    monkeypatch.setattr(policy_iteration, "MAX_BAND_OPERATIONS", 0.0)
    monkeypatch.setattr(policy_iteration, "MAX_SWEEPS", 10_000)
    stays = (1.0 - 1e-6) * np.eye(5) + 1e-6 * np.roll(np.eye(5), 1, axis=0)
    mdp = up.FiniteMDP.from_arrays(stays[:, None], np.linspace(0.0, 1.0, 5)[:, None], None)
    with pytest.raises(ValueError, match=r"was not found in \d+ sweeps; use a discount"):
        up.solve(mdp)


@pytest.mark.parametrize("setting", [{"discount": 0.99}, {"average": True}])
def test_a_tolerance_below_rounding_ends_where_no_equations_are_solved(monkeypatch, setting):
    monkeypatch.setattr(policy_iteration, "MAX_BAND_OPERATIONS", 0.0)
    mdp = up.envs.random_mnl(60, max_successors=20, seed=2)
    p, r = plain(mdp)
    ordinary = up.solve(mdp, **setting)
    for low, scale in ((1.0, 1e-7), (1e6, 1.0), (0.0, 1e9)):
        plan = up.solve(up.FiniteMDP.from_arrays(p, low + scale * r, 20), **setting)
        assert plan.sweeps < 20_000
        assert plan.error <= 1e-9 * (low + scale)
        np.testing.assert_allclose(np.ptp(plan.v), scale * np.ptp(ordinary.v), rtol=1e-5)


def test_two_sets_of_states_that_earn_the_same_have_a_gain():
    """Two states that are never left; a third goes to either. Only what they earn tells."""
    p = np.zeros((3, 2, 3))
    p[0, :, 0] = p[1, :, 1] = p[2, 0, 0] = p[2, 1, 1] = 1.0
    reward = np.array([[0.3, 0.2], [0.3, 0.1], [0.0, 0.9]])
    plan = up.solve(up.FiniteMDP.from_arrays(p, reward, None))
    assert plan.gain == pytest.approx(0.3, abs=1e-8) and plan.error <= 1e-8
    assert plan.policy.tolist() == [0, 0, 1]
    reward[1] = 0.31
    with pytest.raises(ValueError, match="depends on the start"):
        up.solve(up.FiniteMDP.from_arrays(p, reward, None))


@pytest.mark.parametrize("exponent", [20, 33, 45])
def test_a_chain_that_nearly_never_moves_has_a_gain(exponent):
    """Two states that are left with probability 2^-exponent: half of the time is spent in each."""
    move = 2.0**-exponent
    p = np.array([[[1.0 - move, move]], [[move, 1.0 - move]]])
    plan = up.solve(up.FiniteMDP.from_arrays(p, [[0.0], [1.0]], None))
    assert abs(plan.gain - 0.5) <= plan.error
    assert np.ptp(plan.v) == pytest.approx(0.5 / move)


@pytest.mark.parametrize("n_states", [20, 300])
def test_a_river_that_hardly_ever_returns_loses_no_digits(n_states):
    """Against the current the first state is reached once in 7^19 steps; values start elsewhere."""
    plan = up.solve(up.envs.riverswim(n_states), average=True)
    p, r = plain(up.envs.riverswim(n_states))
    assert plan.policy.all() and plan.error < 1e-11
    level = r[:, 1] + p[:, 1] @ plan.v - plan.v
    np.testing.assert_allclose(level, plan.gain, atol=1e-11)
