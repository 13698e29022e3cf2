from dataclasses import replace

import numpy as np
import pytest

import upriver as up
from tests.diagnostics.problems import random_features
from upriver.diagnostics import bounds, theorem1


@pytest.mark.parametrize(
    ("n_states", "n_episodes", "lam", "beta"), [(6, 100, 1379, 1.35e4), (20, 200, 1.8e4, 4.9e4)]
)
def test_known_magnitudes_on_riverswim(n_states, n_episodes, lam, beta):
    features = up.features.one_hot(up.envs.riverswim(n_states).task())
    found = theorem1(features, 0.0175, 6.0, n_episodes, 0.05)
    assert found.regularization == pytest.approx(lam, rel=0.02)
    assert found.radius_printed == pytest.approx(beta, rel=0.02)
    assert found.vacuous and found.trivial == n_episodes * features.task.horizon


def test_printed_bound_by_hand():
    features = up.features.one_hot(up.envs.riverswim(6).task())
    kappa, big, k, delta = 0.0175, 3.7193, 100, 0.05
    h, u, d, l2 = 24, 3, 72, 2.0
    t, lam = k * h, l2 * d * np.log(k * h * u * l2)
    spread = d * np.log(2 / l2) + d / 2 * np.log(1 + k * h * u * l2 / (d * lam))
    beta = (np.sqrt(l2) / 4 + big) * np.sqrt(lam)
    beta += 4 / np.sqrt(l2 * lam) * (spread + np.log(2 * k / delta))
    value = 2 * h * beta / kappa * np.sqrt(2 * t * h * d * np.log(1 + k * h * u * l2))
    value += h * np.sqrt(2 * t * np.log(2 / delta))
    assert theorem1(features, kappa, big, k, delta).regret_printed == pytest.approx(value)


def test_bound_grows_like_the_square_root_of_the_episodes(rng):
    features = random_features(rng)
    many = np.array([2**40, 2**60, 2**80], dtype=object)
    values = [bounds.corrected_regret(features, 0.1, 1.0, int(k), 0.05) for k in many]
    slopes = np.diff(np.log(values)) / (20 * np.log(2.0))
    assert (slopes > 0.5).all() and slopes[1] < slopes[0] < 0.56  # the rest is logarithms


def test_bound_scales_with_kappa_and_horizon(rng):
    features = random_features(rng)
    base = bounds.corrected_regret(features, 0.1, 1.0, 1000, 0.05)
    assert bounds.corrected_regret(features, 0.01, 1.0, 1000, 0.05) > 9 * base
    longer = up.Features(replace(features.task, horizon=10), features.matrix)
    assert bounds.corrected_regret(longer, 0.1, 1.0, 1000, 0.05) > 4 * base


def test_delta_is_checked(rng):
    with pytest.raises(ValueError, match=r"delta is 1\.5; it must lie strictly between 0 and 1"):
        theorem1(random_features(rng), 0.1, 1.0, 10, 1.5)


def test_corrected_bound_by_hand(rng):
    """L_varphi = 1: the largest beta_k along the way, three widths, the range form of Azuma."""
    features = random_features(rng, dimension=3, horizon=5, max_successors=3)
    kappa, big, k, delta = 0.1, 1.2, 64, 0.1
    h, u, d = 5, features.task.max_successors, 3

    def beta(i):
        lam = max(1.0, d * np.log(i * h * u))
        spread = d * np.log(2) + d / 2 * np.log(1 + (i - 1) * h * u / (d * lam)) + np.log(2 / delta)
        return ((1 / 4 + big) * np.sqrt(lam) + 4 / np.sqrt(lam) * spread) / kappa

    potential = 2 * h * d * np.log(1 + k * h * u / (d * max(1.0, d * np.log(h * u))))
    value = 3 * h * max(beta(i) for i in (1, 2, 4, 8, 16, 32, 64)) * np.sqrt(k * h * potential)
    value += h * np.sqrt(2 * k * h * np.log(2 / delta))
    assert bounds.corrected_regret(features, kappa, big, k, delta) == pytest.approx(value)


def test_the_corrected_bound_takes_the_largest_radius_of_all_episodes():
    """Where lambda_k begins to grow the radius has a peak, which powers of two miss."""
    task = up.envs.riverswim(6).task()
    matrix = 0.0316 * up.features.one_hot(task).matrix
    features = up.Features(task, matrix, formal_dimension=10)
    k, kappa, bound, delta = 500, 0.1, 0.1, 0.01
    radius = bounds.corrected_radius(kappa, bound, delta / 2)
    along = [radius(bounds.worst_evidence(features, i)) for i in range(1, k + 1)]
    largest = max(along)
    assert max(along[i - 1] for i in (1, 2, 4, 8, 16, 32, 64, 128, 256, 500)) < 0.9 * largest
    h, d = task.horizon, features.dimension
    lam = bounds.theory_regularization(features)(1)
    potential = 2 * h * d * np.log(1 + k * h * 3 * features.norm_bound**2 / (d * lam))
    value = h * (3 * largest * np.sqrt(k * h * potential) + np.sqrt(2 * k * h * np.log(2 / delta)))
    assert bounds.corrected_regret(features, kappa, bound, k, delta) == pytest.approx(value)


@pytest.mark.parametrize("unit", [1.0, 250.0])
def test_no_regret_exceeds_the_trivial_bound(unit):
    """A wrong turn costs the terminal value, which is 40 times the reward of all steps."""
    p = np.zeros((3, 2, 3))
    p[0, :, 1:] = [[0.9, 0.1], [0.1, 0.9]]
    p[1, :, 1] = p[2, :, 2] = 1.0
    reward = unit * np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    mdp = up.FiniteMDP.from_arrays(p, reward, 5, terminal=[0.0, 200.0 * unit, 0.0])
    found = up.diagnose(mdp, n_episodes=10)
    worst = up.simulate(mdp, up.agents.Always(mdp.task(), 1), 10, seed=0).regret.sum()
    assert worst == pytest.approx(10 * 0.8 * 204 * unit)
    assert worst < found.bounds.trivial == pytest.approx(10 * 205 * unit)
    one = up.FiniteMDP.from_arrays(p, reward / unit, 5, terminal=[0.0, 200.0, 0.0])
    assert found.bounds.regret_corrected == pytest.approx(
        unit * up.diagnose(one, n_episodes=10).bounds.regret_corrected
    )
    assert found.bounds.regret_corrected > 40 * bounds.corrected_regret(
        up.features.one_hot(up.FiniteMDP.from_arrays(p, reward / unit, 5).task()),
        found.certified, found.theta_bound, 10, 0.05,
    )  # fmt: skip
