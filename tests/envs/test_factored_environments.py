"""The built-in factored problems against their definitions, and against pyRDDLGym."""

import numpy as np
import pytest
from studies.factored import read_game_of_life, read_sysadmin
from studies.factored_problems import joint_inventory, maintenance

import upriver as up

GRAPH = np.array([[0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 0]])
"""Machines with 1, 2, 3 and no sources."""


def component_table(net, x, a):
    return net.probabilities[net.kinds([x], [a])[0]]


def test_sysadmin_follows_its_definition():
    net = up.envs.sysadmin(GRAPH, reboot_probability=0.03, penalty=0.6)
    rng = np.random.default_rng(0)
    for _ in range(50):
        x, a = rng.integers(2, size=4), int(rng.integers(5))
        found = component_table(net, x, a)[:, 1]
        for i in range(4):
            sources = np.flatnonzero(GRAPH[:, i])
            up_now = 0.45 + 0.5 * (1 + x[sources].sum()) / (1 + len(sources))
            expected = 1.0 if a == i + 1 else up_now if x[i] else 0.03
            assert found[i] == pytest.approx(expected, abs=1e-12)
        assert net.reward(x, a) == pytest.approx(x.sum() - 0.6 * (a > 0))


def test_game_of_life_follows_its_definition():
    start = np.array([[1, 0, 1, 0], [1, 1, 0, 0], [0, 1, 1, 1]])
    noise = np.linspace(0.01, 0.05, 12).reshape(3, 4)
    net = up.envs.game_of_life(start, noise)
    rng = np.random.default_rng(0)
    for _ in range(50):
        cells, a = rng.integers(2, size=(3, 4)), int(rng.integers(13))
        found = component_table(net, cells.ravel(), a)[:, 1]
        around = np.pad(cells, 1)
        for i in range(12):
            r, c = divmod(i, 4)
            n = around[r : r + 3, c : c + 3].sum() - cells[r, c]
            lives = n == 3 or (cells[r, c] and n == 2) or a == i + 1
            chance = 1 - noise[r, c] if lives else noise[r, c]
            assert found[i] == pytest.approx(chance, abs=1e-12)


def test_joint_inventory_loses_what_is_not_on_the_shelf():
    net = joint_inventory((1.0, 2.0), shelf=3)
    x = np.array([1, 2])
    from scipy.stats import poisson

    filled = component_table(net, x, 2)  # the first item is below 2 and is filled up
    np.testing.assert_allclose(filled[0], [poisson.sf(2, 1.0), *poisson.pmf([2, 1, 0], 1.0)])
    np.testing.assert_allclose(filled[1], [poisson.sf(1, 2.0), *poisson.pmf([1, 0], 2.0), 0.0])
    expected = -6 - 1 - 2 * 2 + 5 * (3 - 1) - 0.1 * 1 + 5 * (2 - 0)
    assert net.reward(x, 2, np.array([1, 0])) == pytest.approx(expected)


def test_maintenance_wears_faster_under_load():
    net = maintenance(np.array([[0, 1], [0, 0]]))
    idle, loaded = (component_table(net, [x, 0], 0)[1] for x in (0, 2))
    assert loaded[0] < idle[0] and loaded[2] > idle[2]
    assert component_table(net, [1, 1], 1)[0].tolist() == [1.0, 0.0, 0.0]
    assert not net.allowed(np.array([0, 1]), 1) and net.allowed(np.array([0, 1]), 2)


def test_exact_optimum_of_a_listed_network():
    """A network of one machine by hand: two states, reboot when down pays from two steps on."""
    net = up.envs.sysadmin([[0]], reboot_probability=0.0, horizon=2)
    mdp = net.to_finite()
    v = up.solve(mdp).v  # a machine without sources stays up with probability .95
    assert v[0].tolist() == pytest.approx([0.25, 1.95])


def test_wrong_graphs_and_noises_get_one_sentence():
    with pytest.raises(ValueError, match=r"graph has shape \(1, 2\)"):
        up.envs.sysadmin([[0, 1]])
    with pytest.raises(ValueError, match="reboot_probability is 2"):
        up.envs.sysadmin(GRAPH, reboot_probability=2.0)
    with pytest.raises(ValueError, match="noise"):
        up.envs.game_of_life([[1, 0]], noise=-0.1)
    with pytest.raises(ValueError, match=r"noise has shape \(3,\); it must be one number or"):
        up.envs.game_of_life([[1, 0]], noise=[0.1, 0.1, 0.1])
    with pytest.raises(ValueError, match="cost is nan"):
        up.envs.game_of_life([[1, 0]], cost=np.nan)
    with pytest.raises(ValueError, match=r"start has shape \(2,\)"):
        up.envs.game_of_life([1, 0])


@pytest.mark.parametrize("number", ["1", "3", "10"])
def test_sysadmin_equals_pyrddlgym(number):
    """Transition probabilities and rewards of the IPPC 2011, from the RDDL text itself."""
    check_against_rddl("SysAdmin_MDP_ippc2011", number)


@pytest.mark.parametrize("number", ["1", "4"])
def test_game_of_life_equals_pyrddlgym(number):
    check_against_rddl("GameOfLife_MDP_ippc2011", number)


def check_against_rddl(problem, number):
    """Compare the arguments of the Bernoulli draws and the rewards, for random (x, a)."""
    rddl = pytest.importorskip("pyRDDLGym")
    pytest.importorskip("rddlrepository")
    net = (read_sysadmin if problem.startswith("SysAdmin") else read_game_of_life)(number)
    env, rng = rddl.make(problem, number), np.random.default_rng(0)
    assert env.horizon == net.horizon
    sampler, model = env.sampler, env.model
    sampler.reset()
    sampler._sample_bernoulli = lambda expr, subs: sampler._sample(expr.args[0], subs)
    (state,), (action,) = model.state_fluents, model.action_fluents
    shape = sampler.subs[state].shape
    assert net.start.tolist() == sampler.subs[state].astype(int).ravel().tolist()
    for _ in range(40):
        x, a = rng.integers(2, size=shape).astype(bool), int(rng.integers(net.n_actions))
        chosen = np.zeros(shape, bool)
        chosen.ravel()[: net.n_actions][a - 1 : a] = True  # nothing where a is 0
        sampler.subs.update({state: x, action: chosen})
        (_, expression, _) = next(iter(sampler.cpfs))
        expected = np.broadcast_to(sampler._sample(expression, sampler.subs), shape).ravel()
        found = component_table(net, x.ravel(), a)[:, 1]
        np.testing.assert_allclose(found, expected.astype(float), atol=1e-12)
        reward = net.reward(x.ravel().astype(int), a)
        assert reward == pytest.approx(float(sampler.sample_reward()), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "optimum"), [("1", 342.68046), ("2", 312.82927)])
def test_rollouts_reach_the_optimum_of_the_listed_instances(number, optimum):
    """Within 1% of the exact optimum, up to the noise of 400 episodes."""
    pytest.importorskip("rddlrepository")
    net = read_sysadmin(number)
    value = up.evaluate(net, up.rollout_policy(net, base="nothing"), 400, seed=0)
    assert abs(value.mean - optimum) < 0.01 * optimum + 1.96 * value.standard_error
