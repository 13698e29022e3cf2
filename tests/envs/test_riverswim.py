"""RiverSwim: its numbers, its variants, and the exact values they imply."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference import dense, optimal_q, policy_value
from upriver import FiniteMDP, envs, evaluate, solve
from upriver.envs.riverswim import VARIANTS, riverswim
from upriver.planning import start_value

OPTIMA = {
    (6, 24): 5.005797, (8, 32): 5.642100, (10, 40): 6.262199, (20, 80): 9.230224,
    (4, 12): 2.662712, (8, 24): 2.622621, (6, 20): 3.397264,
}  # fmt: skip
SPREAD = {(6, 24): 3.169, (8, 32): 3.730, (10, 40): 4.224, (20, 80): 6.211}
LEFT = {(6, 24): 0.12, (8, 32): 0.16, (10, 40): 0.20, (20, 80): 0.40}
RANDOM = {(6, 24): 5.47, (8, 32): 4.83, (10, 40): 5.68, (20, 80): 11.04}  # of 100 episodes


@pytest.mark.parametrize(("size", "value"), OPTIMA.items())
def test_the_optimum_to_six_digits(size, value):
    mdp = riverswim(*size)
    assert start_value(mdp, solve(mdp).v) == pytest.approx(value, abs=5e-7)
    assert optimal_q(*dense(mdp))[0, 0].max() == pytest.approx(value, abs=5e-7)


@pytest.mark.parametrize("size", SPREAD)
def test_always_left_random_and_the_spread_of_an_optimal_episode(size):
    mdp = riverswim(*size)
    left = np.zeros(size[0], int)
    assert evaluate(mdp, left)[0, 0] == pytest.approx(LEFT[size], abs=1e-12)
    uniform = np.full((size[0], 2), 0.5)
    assert 100 * evaluate(mdp, uniform)[0, 0] == pytest.approx(RANDOM[size], abs=5e-3)
    # Second moment of the return by its own recursion: M = E[r^2 + 2 r V' + M'].
    p, r = dense(mdp)
    plan = solve(mdp)
    v, second = plan.v, np.zeros(size[0])
    for h in reversed(range(size[1])):
        new = np.empty(size[0])
        for s in range(size[0]):
            a = plan.policy[h, s]
            reward, row = r[h, s, a], p[h, s, a]
            new[s] = reward**2 + 2 * reward * row @ v[h + 1] + row @ second
        second = new
    assert np.sqrt(second[0] - v[0, 0] ** 2) == pytest.approx(SPREAD[size], abs=2e-3)


def test_the_papers_numbers_row_by_row():
    p, r = dense(riverswim(5, 3))
    for s in range(5):
        assert p[0, s, 0, max(s - 1, 0)] == 1.0
    np.testing.assert_allclose(p[0, 0, 1], [0.4, 0.6, 0, 0, 0])
    np.testing.assert_allclose(p[0, 2, 1], [0, 0.05, 0.6, 0.35, 0])
    np.testing.assert_allclose(p[0, 4, 1], [0, 0, 0, 0.4, 0.6])
    expected = np.zeros((5, 2))
    expected[0, 0], expected[4, 1] = 0.005, 1.0
    np.testing.assert_array_equal(r[0], expected)


# (first, middle, last) as left / stay / right when swimming right; (small, large) rewards
TABLE = {
    "paper": ((0, 0.4, 0.6), (0.05, 0.6, 0.35), (0.4, 0.6, 0), (0.005, 1.0)),
    "paper-text": ((0, 0.4, 0.6), (0.05, 0.6, 0.35), (0.4, 0.6, 0), (0.05, 1.0)),
    "strehl": ((0, 0.7, 0.3), (0.1, 0.6, 0.3), (0.7, 0.3, 0), (0.0005, 1.0)),
    "ayoub": ((0, 0.3, 0.7), (0.1, 0.6, 0.3), (0.1, 0.9, 0), (0.005, 1.0)),
}


@pytest.mark.parametrize("name", TABLE)
def test_every_variant_has_its_published_rows(name):
    first, middle, last, (small, large) = TABLE[name]
    p, r = dense(riverswim(6, 5, variant=name))
    for s, (left, stay, right) in enumerate([first, *[middle] * 4, last]):
        row = np.zeros(6)
        row[max(s - 1, 0)] += left
        row[s] += stay
        row[min(s + 1, 5)] += right
        np.testing.assert_allclose(p[0, s, 1], row, atol=1e-15)
        assert p[0, s, 0, max(s - 1, 0)] == 1.0
    assert (r[0, 0, 0], r[0, 5, 1]) == (small, large)
    assert np.count_nonzero(r[0]) == 2


def test_strehl_starts_in_the_second_or_third_state():
    mdp = riverswim(6, variant="strehl")
    assert mdp.initial_states.tolist() == [1, 2]
    assert mdp.initial_probability.tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="starts in state 2"):
        riverswim(2, variant="strehl")


def test_ayoub_matches_its_published_optima():
    for n, value in ((3, 5.719919), (4, 5.650886), (5, 5.585129)):
        mdp = riverswim(n, variant="ayoub")
        assert mdp.horizon == 4 * n
        assert start_value(mdp, solve(mdp).v) == pytest.approx(value, abs=5e-7)


@pytest.mark.parametrize("name", VARIANTS)
def test_local_support_is_the_neighbourhood(name):
    mdp = riverswim(6, variant=name)
    task = mdp.task("local")
    for s in range(6):
        for a in (0, 1):
            expected = [x for x in (s - 1, s, s + 1) if 0 <= x < 6]
            assert task.successors[task.rows(s, a)].tolist() == expected
    p, r = dense(mdp)
    mixture = np.full((mdp.horizon, 6, 2), 0.5)
    np.testing.assert_allclose(
        evaluate(mdp, np.full((6, 2), 0.5)), policy_value(p, r, mixture), atol=1e-13
    )


def test_sizes_names_and_refusals():
    assert riverswim(7).horizon == 28 and riverswim(7).name == "riverswim-7"
    made = envs.make("riverswim-9", horizon=5)
    assert isinstance(made, FiniteMDP) and (made.n_states, made.horizon) == (9, 5)
    assert envs.make("riverswim", variant="ayoub").name.endswith("ayoub")
    for call, sentence in (
        (lambda: riverswim(1), "n_states is 1; it must be a whole number of at least 2"),
        (lambda: riverswim(0), "n_states is 0"),
        (lambda: riverswim(6, 0), "horizon is 0"),
        (lambda: riverswim(variant="amazon"), "variant is 'amazon'; it must be one of"),
        (lambda: envs.make("riverswin-6"), "did you mean 'riverswim'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()


def test_theta_star_has_the_known_norm():
    """Minimum-norm log-odds: one-hot differences and indicators, several lengths."""
    from upriver import features

    for n, difference, first in (
        (4, 2.6456, 4.5002), (6, 3.7193, 6.3383), (8, 4.5462, 7.7522),
        (10, 5.2443, 8.9454), (20, 7.8534, 13.4027),
    ):  # fmt: skip
        mdp = riverswim(n)
        task = mdp.task("known")
        start = np.repeat(task.indptr[:-1], task.sizes)
        log_p = np.log(mdp.probability[0])
        for made, norm in (
            (features.one_hot(task), difference),
            (features.one_hot_indicator(task), first),
        ):
            phi = made.matrix.toarray()
            theta = np.linalg.lstsq(phi - phi[start], log_p - log_p[start], rcond=None)[0]
            assert np.linalg.norm(theta) == pytest.approx(norm, abs=5e-5)
