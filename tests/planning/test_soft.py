"""Soft Bellman equations against plain value iteration, limits and known choice probabilities."""

import decimal

import numpy as np
import pytest

import upriver as up


def draw_mdp(rng, n_states=5, n_actions=3, horizon=4, missing=True, scale=10.0):
    """Return a dense random MDP; some states lack an action."""
    p = rng.dirichlet(np.ones(n_states), (n_states, n_actions))
    r = scale * rng.normal(size=(n_states, n_actions))
    if missing:
        p[1, 0] = 0.0
        p[3, 2] = 0.0
    return up.FiniteMDP.from_arrays(p, r, horizon), p, r


def iterate_softly(p, r, discount, temperature, n_iterations):
    """Return (v, probabilities) by value iteration as one writes it in NumPy."""
    exists, v = p.sum(axis=2) > 0, np.zeros(len(p))
    for _ in range(n_iterations):
        q = np.where(exists, r + discount * p @ v, -np.inf)
        top = q.max(axis=1)
        weights = np.exp((q - top[:, None]) / temperature)
        v = top + temperature * np.log(weights.sum(axis=1))
    return v, weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(50))
def test_discounted_values_are_those_of_value_iteration(seed):
    rng = np.random.default_rng(seed)
    discount, temperature = rng.uniform(0.5, 0.97), rng.uniform(0.2, 5.0)
    mdp, p, r = draw_mdp(rng)
    plan = up.solve(mdp, discount=discount, temperature=temperature, tolerance=1e-11)
    v, chances = iterate_softly(p, r, discount, temperature, 2000)
    np.testing.assert_allclose(plan.v, v, rtol=0, atol=1e-10 * max(1.0, abs(v).max()))
    np.testing.assert_allclose(plan.policy, chances, atol=1e-10)
    assert plan.policy[1, 0] == plan.policy[3, 2] == 0.0


def test_a_slow_chain_with_a_discount_near_one_is_solved_by_newton_steps():
    mdp = up.envs.riverswim(30, 10)
    plan = up.solve(mdp, discount=0.9999, temperature=0.5, tolerance=1e-8)
    task = mdp.task()
    q = mdp.reward_rows[0] + 0.9999 * task.by_pair(mdp.probability[0] * plan.v[task.successors])
    top = 0.5 * np.log(np.exp(q.reshape(30, 2) / 0.5 - q.max() / 0.5).sum(axis=1)) + q.max()
    np.testing.assert_allclose(top, plan.v, atol=1e-8)
    assert plan.error <= 1e-8


def test_finite_horizon_is_one_backward_pass():
    mdp, p, r = draw_mdp(np.random.default_rng(3))
    plan = up.solve(mdp, temperature=2.0)
    for steps in range(1, 5):
        v, chances = iterate_softly(p, r, 1.0, 2.0, steps)
        np.testing.assert_allclose(plan.v[4 - steps], v, atol=1e-12)
        np.testing.assert_allclose(plan.policy[4 - steps], chances, atol=1e-12)
    assert plan.policy.shape == (4, 5, 3) and "4 steps, 5 states" in repr(plan)
    assert list(plan.to_pandas().columns) == ["step", "state", "P(0)", "P(1)", "P(2)", "value"]


@pytest.mark.parametrize("setting", [{}, {"discount": 0.9}])
def test_a_low_temperature_gives_the_plain_optimum(setting):
    mdp, *_ = draw_mdp(np.random.default_rng(7))
    plain, soft = up.solve(mdp, **setting), up.solve(mdp, **setting, temperature=1e-4)
    np.testing.assert_allclose(soft.v, plain.v, atol=1e-2)
    np.testing.assert_array_equal(soft.policy.argmax(axis=-1), plain.policy)


def test_the_policy_is_evaluated_saved_and_played(tmp_path):
    """Rewards and shocks together are worth v; rewards alone less, by the entropy of choices."""
    mdp, *_ = draw_mdp(np.random.default_rng(11))
    plan = up.solve(mdp, temperature=3.0)
    policy = up.Policy.from_plan(plan)
    policy.save(tmp_path / "soft.npz")
    again = up.load_policy(tmp_path / "soft.npz")
    value = up.evaluate(mdp, again)
    assert (value[0] < plan.v[0]).all() and (value[0] <= up.solve(mdp).v[0] + 1e-12).all()
    entropy = -np.sum(plan.policy * np.log(np.where(plan.policy > 0, plan.policy, 1.0)), axis=2)
    np.testing.assert_allclose(value[3], plan.v[3] - 3.0 * entropy[3], atol=1e-10)
    assert len(up.simulate(mdp, again, 3).returns) == 3


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": "warm"}, "temperature is 'warm'"),
        ({"temperature": 1.0, "discount": 1.0}, "discount is 1.0"),
        ({"temperature": 1.0, "discount": -0.5}, "discount is -0.5"),
        ({"temperature": 1.0, "average": True}, "average is True"),
        ({"temperature": 1.0, "discount": 1.0 - 1e-15}, "discount is 0.99.*at most 1 - 1e-10"),
        ({"temperature": 1.0, "discount": 0.5, "tolerance": -1.0}, "tolerance is -1.0"),
        ({"temperature": 1e-307, "discount": 0.5}, "largest reward / temperature is inf"),
    ],
)
def test_bad_settings_are_one_sentence(setting, names):
    mdp, *_ = draw_mdp(np.random.default_rng(0))
    with pytest.raises(ValueError, match=names):
        up.solve(mdp, **setting)


def test_terminal_values_and_a_discount_are_refused_as_without_a_temperature():
    _, p, r = draw_mdp(np.random.default_rng(0), missing=False)
    ending = up.FiniteMDP.from_arrays(p, r, 4, terminal=np.arange(5.0))
    for setting in ({}, {"temperature": 0.1}):
        with pytest.raises(ValueError, match="no terminal value"):
            up.solve(ending, discount=0.5, **setting)
    assert up.solve(ending, temperature=0.1).v[-1].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e-9, 1e-4, 1e4, 1e9, 1e100])
@pytest.mark.parametrize("discount", [0.9, 0.9999])
def test_values_are_in_proportion_to_rewards_and_temperature(scale, discount):
    _, p, r = draw_mdp(np.random.default_rng(5), scale=1.0)
    v, chances = iterate_softly(p, r, 0.9, 0.3, 500)
    mdp = up.FiniteMDP.from_arrays(p, scale * r, 4)
    plan = up.solve(mdp, discount=discount, temperature=0.3 * scale)
    assert plan.error / scale <= 1e-8 * np.ptp(r)
    if discount == 0.9:
        np.testing.assert_allclose(plan.v / scale, v, atol=2e-8)
        np.testing.assert_allclose(plan.policy, chances, atol=1e-7)
    q = np.where(p.sum(axis=2) > 0, r + discount * p @ (plan.v / scale), -np.inf) / 0.3
    top = 0.3 * (np.log(np.exp(q - q.max()).sum(axis=1)) + q.max())
    np.testing.assert_allclose(top, plan.v / scale, atol=4e-8)


def test_shocks_that_are_larger_than_tiny_rewards_set_the_tolerance():
    mdp, *_ = draw_mdp(np.random.default_rng(2), scale=1e-12)
    for temperature in (1.0, 1e-3):
        plan = up.solve(mdp, discount=0.9999, temperature=temperature)
        assert plan.error <= 1e-8 * temperature


@pytest.mark.parametrize("discount", [0.9, 0.9999, 1 - 1e-8])
@pytest.mark.parametrize("temperature", [1.0, 300.0])
def test_the_bound_of_the_error_holds_in_exact_arithmetic(discount, temperature):
    """Against the fixed point with 50 digits, of probabilities that sum to exactly 1."""
    for seed in range(3):
        mdp, p, r = draw_mdp(np.random.default_rng(seed), missing=False)
        plan = up.solve(mdp, discount=discount, temperature=temperature, tolerance=1e-300)
        with decimal.localcontext(prec=50):
            exact, power = (
                np.vectorize(decimal.Decimal, otypes=[object]),
                np.vectorize(lambda x: x.exp()),
            )
            gamma, sigma = decimal.Decimal(discount), decimal.Decimal(temperature)
            rows, reward, v = exact(p), exact(r), exact(plan.v)
            rows /= rows.sum(axis=2, keepdims=True)
            for _ in range(200):  # a dense chain mixes fast
                q = reward + gamma * rows @ v
                top = q.max(axis=1)
                total = power((q - top[:, None]) / sigma).sum(axis=1)
                change = top + sigma * np.array([x.ln() for x in total]) - v
                v = v + change - change[0]
            v = v + change[0] / (1 - gamma)
            assert max(change) - min(change) < 1e-25
            true = float(max(abs(exact(plan.v) - v)))
        assert 0.0 < true <= plan.error <= 1e-13 / (1 - discount) * abs(plan.v).max()
