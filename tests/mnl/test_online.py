"""Online Newton and mirror descent: against plain NumPy, a convex solver, and what is proved."""

import tracemalloc
from functools import partial

import numba
import numpy as np
import pytest
from scipy.optimize import minimize

import upriver as up
from tests.mnl import plain_online as plain
from upriver import kernels
from upriver.agents.base import Episode
from upriver.kernels.online import project as project_in_kernel
from upriver.mnl import likelihood, online
from upriver.mnl.radii import Evidence


def settings():
    """A task with sparse blocks, and one with all features in one block."""
    task = up.envs.riverswim(4, horizon=6).task("local")
    rng = np.random.default_rng(5)
    return {
        "one-hot": up.features.one_hot(task),
        "dense": up.features.Features(task, rng.normal(size=(task.n_triples, 3))),
    }


def draw_episodes(features, theta, n, rng):
    """Episodes of uniform play under the core theta."""
    task, prob = features.task, plain.prediction(features, theta)
    for _ in range(n):
        states, actions = [int(rng.integers(task.n_states))], []
        for _ in range(task.horizon):
            actions.append(int(rng.integers(task.n_actions)))
            rows = task.rows(states[-1], actions[-1])
            states.append(int(rng.choice(task.successors[rows], p=prob[rows])))
        yield Episode(np.array(states), np.array(actions), np.zeros(task.horizon))


def take_newton_steps(features, model, episode, kappa, bound=None):
    return online.learn(features, model, episode, kappa / 2, bound, mirror=False)


STEPS = {
    "newton": (take_newton_steps, plain.newton, 0.3),
    "mirror": (partial(online.learn, mirror=True), plain.mirror, 0.7),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_long_episode_takes_no_array_of_steps_by_triples(name):
    river = up.envs.riverswim(200, horizon=500)
    task = river.task("local")
    features, (learn, _, rate) = up.features.shared(task), STEPS[name]
    states = np.zeros(501, np.int64)
    episode = Episode(states, np.zeros(500, np.int64), np.zeros(500))
    model = learn(features, online.start(features, 1.0, 1), episode, rate)  # compiled before
    tracemalloc.start()
    learn(features, model, episode, rate)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * 8 * task.n_triples  # 500 times 8 n before


@pytest.mark.parametrize("bound", [np.inf, 0.8])
@pytest.mark.parametrize("n_parameters", [1, 6])
@pytest.mark.parametrize("kind", ["one-hot", "dense"])
@pytest.mark.parametrize("name", STEPS)
def test_agrees_with_plain_numpy(name, kind, n_parameters, bound, rng):
    features = settings()[kind]
    task, phi = features.task, plain.dense(features)
    learn, step, rate = STEPS[name]
    episodes = list(draw_episodes(features, rng.normal(size=features.dimension), 8, rng))
    model = online.start(features, 0.5, n_parameters)
    for episode in episodes:
        model = learn(features, model, episode, rate, bound)
    expected = plain.run(step, features, episodes, n_parameters, 0.5, rate, bound)
    active = any(np.linalg.norm(theta) > bound * (1 - 1e-9) for theta, _ in expected)
    assert active == np.isfinite(bound)
    for c, (theta, matrix) in enumerate(expected):
        assert model.theta[c] == pytest.approx(theta, abs=1e-9)
        ours = likelihood.from_blocks(features, model.matrix[c])
        ours = ours if isinstance(ours, np.ndarray) else ours.toarray()
        assert ours == pytest.approx(matrix, abs=1e-9)
        assert model.prob[c] == pytest.approx(plain.prediction(features, theta), abs=1e-9)
        assert model.logdet[c].sum() == pytest.approx(np.linalg.slogdet(matrix)[1])
        inner = phi @ np.linalg.solve(matrix, phi.T)
        for g, (a, b) in enumerate(zip(task.indptr[:-1], task.indptr[1:], strict=True)):
            square = model.inverse_products[c, task.square_start[g] : task.square_start[g + 1]]
            assert square == pytest.approx(inner[a:b, a:b].ravel(), abs=1e-9)
            assert model.max_norm[c, g] ** 2 == pytest.approx(np.diag(inner[a:b, a:b]).max())


@numba.njit
def project(layout, matrix, c, bound, theta):
    """Call the function, which only kernels can call."""
    return project_in_kernel(layout, matrix, c, bound, theta)


def test_projection_agrees_with_a_convex_solver(rng):
    features = settings()["one-hot"]
    layout, d = features.layout, features.dimension
    for bound in (0.3, 1.0, 2.5):
        flat = np.empty(layout.matrix_start[-1])
        for b, m in enumerate(layout.size):
            root = rng.normal(size=(m, m)) * 10.0 ** rng.uniform(-0.5, 0.5)
            at = layout.matrix_start[b]
            flat[at : at + m * m] = (root @ root.T + 0.1 * np.eye(m)).ravel()
        matrix = likelihood.from_blocks(features, flat).toarray()
        start = rng.normal(size=d)
        theta = start.copy()
        assert project(features.compiled, flat[None], 0, bound, theta[None])
        assert np.linalg.norm(theta) == pytest.approx(bound, rel=1e-12)
        # Optimality on the ball: M (start - theta) points outwards along theta.
        pull = matrix @ (start - theta)
        assert pull == pytest.approx((pull @ theta / bound**2) * theta, abs=1e-7 * abs(pull).max())
        assert pull @ theta > 0
        solved = minimize(
            lambda x, at=start, m=matrix: (x - at) @ m @ (x - at), np.zeros(d),
            jac=lambda x, at=start, m=matrix: 2 * m @ (x - at), method="SLSQP",
            constraints={"type": "ineq", "fun": lambda x, b=bound: b**2 - x @ x,
                         "jac": lambda x: -2 * x},
            options={"maxiter": 2000, "ftol": 1e-14},
        )  # fmt: skip
        assert solved.fun == pytest.approx((theta - start) @ matrix @ (theta - start), rel=1e-5)
        assert solved.x == pytest.approx(theta, abs=1e-3)


def test_a_point_inside_the_ball_stays(rng):
    features = settings()["one-hot"]
    theta = rng.normal(size=features.dimension)
    before = theta.copy()
    model = online.start(features, 1.0, 1)
    bound = float(np.linalg.norm(theta)) * (1 + 1e-9)
    assert not project(features.compiled, model.matrix, 0, bound, theta[None])
    assert np.array_equal(theta, before)


def test_hessian_is_the_centred_outer_products_and_mirror_descent_a_damped_newton_step(rng):
    """theta' = theta - eta (B + eta H)^-1 g where nothing is projected, and B' = B + H(theta')."""
    features = settings()["dense"]
    task, eta = features.task, 0.7
    counts = np.zeros(task.n_triples)
    row = int(task.indptr[3]) + 1
    s, a, s2 = (int(x[row]) for x in task.triples)
    counts[row] = 1.0
    episode = Episode(np.array([s, s2]), np.array([a]), np.zeros(1))
    model = online.start(features, 2.0, 1)
    for _ in range(3):
        theta, matrix = model.theta[0], likelihood.from_blocks(features, model.matrix[0])
        gradient = likelihood.gradient(features, theta, counts, 0.0)
        hessian = likelihood.hessian(features, theta, counts, 0.0)
        rows = task.rows(s, a)
        p, phi = model.prob[0, rows], plain.dense(features)[rows]
        centred = phi - p @ phi
        assert p @ centred == pytest.approx(np.zeros(3), abs=1e-14)
        assert hessian == pytest.approx(centred.T @ np.diag(p) @ centred)
        expected = theta - eta * np.linalg.solve(matrix + eta * hessian, gradient)
        model = online.learn(features, model, episode, eta, mirror=True)
        assert model.theta[0] == pytest.approx(expected)
        grown = matrix + likelihood.hessian(features, expected, counts, 0.0)
        assert likelihood.from_blocks(features, model.matrix[0]) == pytest.approx(grown)


@pytest.mark.parametrize(("name", "rate"), [("newton", 0.2), ("mirror", 1.0)])
def test_the_estimate_approaches_the_truth(name, rate, rng):
    """The root mean square error over five runs falls about as 1 / sqrt(n), here tenfold."""
    features = settings()["dense"]
    truth = np.array([0.5, -0.8, 0.3])
    early, late = [], []
    for _ in range(5):
        model = online.start(features, 1.0, 1)
        for k, episode in enumerate(draw_episodes(features, truth, 1000, rng), start=1):
            model = STEPS[name][0](features, model, episode, rate, np.inf)
            if k == 10:
                early.append(model.theta[0] - truth)
        late.append(model.theta[0] - truth)
    assert np.linalg.norm(late) < np.linalg.norm(early) / 4


@pytest.mark.parametrize("name", STEPS)
def test_confidence_sets_cover(name, rng):
    """With the constants of the theory the truth is inside for all k, in 1 - delta of the runs."""
    task = up.envs.riverswim(3, horizon=4).task("local")
    features = up.features.one_hot(task)
    bound, delta, outside = 2.0, 0.05, 0
    if name == "newton":
        kappa = 0.5 * (np.exp(-2 * np.sqrt(2.0) * bound) / 3) ** 2  # below P P' on the ball
        radius, lam, rate = online.newton_radius(kappa, bound, delta), 2.0, kappa
    else:
        radius = online.mirror_radius(bound, delta)
        lam = online.mirror_regularization(features, bound)
        rate = online.theory_step(features, bound)
    for _ in range(10):
        # Features of a group are e_u - e_ref, so differences of theta within it are what counts.
        truth = rng.normal(size=features.dimension)
        for b in range(len(features.layout.size)):
            at = slice(*features.layout.blocks["first_feature"][b : b + 2])
            truth[features.layout.features[at]] -= truth[features.layout.features[at]].mean()
        truth *= bound / np.linalg.norm(truth)
        model, worst = online.start(features, lam, task.horizon), 0.0
        for k, episode in enumerate(draw_episodes(features, truth, 60, rng), start=2):
            model = STEPS[name][0](features, model, episode, rate, bound)
            evidence = Evidence(k, 4, 3, 3, 18, features.norm_bound, lam, 0.0)
            for c in range(task.horizon):
                matrix = likelihood.from_blocks(features, model.matrix[c])
                gap = model.theta[c] - truth
                worst = max(worst, np.sqrt(gap @ (matrix @ gap)) / radius(evidence))
        outside += worst > 1.0
        assert worst > 0.0
    assert outside == 0


def test_one_sample_leaves_the_centred_noise_at_zero(rng):
    for features in settings().values():
        model = online.start(features, 0.5, 6)
        for episode in draw_episodes(features, np.zeros(features.dimension), 5, rng):
            model = online.learn(features, model, episode, 1.0, mirror=True)
        assert online.noise(features, model, 1, rng, centred=True) == pytest.approx(0.0, abs=1e-14)
        several = online.noise(features, model, 5, rng, centred=True)
        assert (several[:, features.task.sizes > 1] > 0).all()


@pytest.mark.parametrize("n_parameters", [1, 6])
def test_noise_agrees_with_plain_numpy(n_parameters, rng):
    """Samples shared by all (s, a) of a step; the maximum over them for each s' by itself."""
    features = settings()["dense"]
    task, phi, n_samples = features.task, plain.dense(features), 4
    model = online.start(features, 0.5, n_parameters)
    for episode in draw_episodes(features, np.zeros(3), 5, rng):
        model = online.learn(features, model, episode, 1.0, mirror=True)
    draws = np.random.default_rng(3).standard_normal((task.horizon, 3, n_samples))
    centred = online.noise(features, model, n_samples, np.random.default_rng(3), centred=True)
    peak = online.noise(features, model, n_samples, np.random.default_rng(3), centred=False)
    for h in range(task.horizon):
        c = min(h, n_parameters - 1)
        matrix = likelihood.from_blocks(features, model.matrix[c])
        xi = np.linalg.solve(np.linalg.cholesky(matrix).T, draws[h])
        for g, (a, b) in enumerate(zip(task.indptr[:-1], task.indptr[1:], strict=True)):
            x, p = phi[a:b], model.prob[c, a:b]
            assert centred[h, g] == pytest.approx(p @ ((x - p @ x) @ xi).max(axis=1))
            norms = np.einsum("ui,ui->u", x, np.linalg.solve(matrix, x.T).T)
            assert peak[h, g] == pytest.approx((x[norms.argmax()] @ xi).max())


@pytest.mark.parametrize("kind", ["one-hot", "dense"])
def test_noise_has_the_covariance_of_the_inverse(kind, rng):
    """One sample is N(0, width^2), and pairs covary as their features do."""
    features = settings()[kind]
    task, phi = features.task, plain.dense(features)
    model = online.start(features, 0.5, 1)
    for episode in draw_episodes(features, np.zeros(features.dimension), 3, rng):
        model = online.learn(features, model, episode, 1.0, mirror=True)
    draws = np.concatenate(
        [online.noise(features, model, 1, rng, centred=False) for _ in range(3000)]
    )
    matrix = likelihood.from_blocks(features, model.matrix[0])
    inverse = np.linalg.inv(matrix if isinstance(matrix, np.ndarray) else matrix.toarray())
    peaks = []
    for a, b in zip(task.indptr[:-1], task.indptr[1:], strict=True):
        norms = np.einsum("ui,ij,uj->u", phi[a:b], inverse, phi[a:b])
        peaks.append(phi[a + norms.argmax()])
    covariance = np.array(peaks) @ inverse @ np.array(peaks).T
    error = 5 * np.abs(covariance).max() * np.sqrt(2 / len(draws))
    assert np.cov(draws.T) == pytest.approx(covariance, abs=error)
    assert draws.mean(axis=0) == pytest.approx(0.0, abs=error)


@pytest.mark.parametrize("n_samples", [1, 2, 20])
def test_the_largest_normal_is_drawn_as_one_number(n_samples, rng):
    """Its first two moments and a tail, against the largest of that many normals."""
    n = 40_000
    drawn = online.largest_normal(rng.standard_exponential(n), n_samples)
    plain = rng.standard_normal((n, n_samples)).max(axis=1)
    for f in (lambda x: x, lambda x: x**2, lambda x: x > 2.5):
        a, b = f(drawn), f(plain)
        assert a.mean() == pytest.approx(b.mean(), abs=4 * np.sqrt((a.var() + b.var()) / n))


@pytest.mark.parametrize("centred", [False, True])
def test_a_pair_of_its_own_needs_one_number(centred, rng):
    """The moments are those of as many normals as the block has features."""
    features = settings()["one-hot"]
    model = online.start(features, 0.5, 1)
    for episode in draw_episodes(features, np.zeros(features.dimension), 3, rng):
        model = online.learn(features, model, episode, 1.0, mirror=True)
    layout, n_samples, n = features.layout, 5, 3000
    normals = rng.standard_normal((n, int(layout.size.sum()), n_samples))
    expected, none = np.zeros((n, len(features.task.sizes))), np.zeros(len(layout.size), bool)
    arrays = model.matrix, model.prob, model.inverse_products
    kernels.online.random_bonus(features.compiled, *arrays, 0, normals, none, centred, expected)
    draws = np.concatenate(
        [online.noise(features, model, n_samples, rng, centred) for _ in range(n // 6)]
    )
    for f in (lambda x: x, lambda x: x**2):
        a, b = f(draws), f(expected)
        error = 5 * np.sqrt((a.var(axis=0) + b.var(axis=0)).max() / n)
        assert a.mean(axis=0) == pytest.approx(b.mean(axis=0), abs=error)
    assert (b.mean(axis=0) > 0).any()


@pytest.mark.parametrize("per_step", [1, 6])
def test_steps_drawn_apart_have_the_same_noise(per_step, rng, monkeypatch):
    """Few steps at a time need less memory and draw the same numbers."""
    features = settings()["one-hot"]
    model = online.start(features, 0.5, per_step)
    for episode in draw_episodes(features, np.zeros(features.dimension), 3, rng):
        model = online.learn(features, model, episode, 1.0, mirror=True)
    together = online.noise(features, model, 5, np.random.default_rng(2), True)
    monkeypatch.setattr(online, "AT_ONCE", 4 * int(features.layout.size.sum()) * 5)
    apart = online.noise(features, model, 5, np.random.default_rng(2), True)
    np.testing.assert_array_equal(apart, together)


def test_local_bonus_agrees_with_plain_numpy(rng):
    for features in settings().values():
        model = online.start(features, 0.5, 6)
        for episode in draw_episodes(features, np.zeros(features.dimension), 5, rng):
            model = online.learn(features, model, episode, 1.0, mirror=True)
        bonus = online.local_bonus(features.task, model, 0.7, 0.2)
        for c in range(6):
            matrix = likelihood.from_blocks(features, model.matrix[c])
            matrix = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
            expected = plain.local_bonus(features, model.theta[c], matrix, 0.7, 0.2)
            assert bonus[c] == pytest.approx(expected.ravel(), abs=1e-7)


def test_numbers_of_the_theory():
    task = up.envs.riverswim(4, horizon=12).task("local")
    assert [online.theory_samples(n) for n in (12, 12 * task.max_successors)] == [16, 22]
    long = up.envs.riverswim(8, horizon=24).task("local")
    assert [online.theory_samples(n) for n in (24, 24 * long.max_successors)] == [20, 26]
    features = up.features.one_hot(task)
    assert online.theory_step(features, 6.0) == pytest.approx(10.03, abs=0.01)
    lam = online.mirror_regularization(features, 6.0)
    assert lam == pytest.approx(6.2e4, rel=0.01)
    evidence = Evidence(10_000, 12, 4, 3, 32, features.norm_bound, lam, 0.0)
    assert online.mirror_radius(6.0)(evidence) == pytest.approx(8e3, rel=0.05)
    assert online.newton_radius(0.0175, 6.0)(evidence) > online.newton_radius(0.1, 6.0)(evidence)
    assert online.mirror_radius(6.0, rounds=12)(evidence) > online.mirror_radius(6.0)(evidence)


def test_learning_changes_no_input_and_keeps_its_size(rng):
    features = settings()["one-hot"]
    first = online.start(features, 0.5, 6)
    copies = [np.copy(x) for x in first]
    model = first
    for episode in draw_episodes(features, np.zeros(features.dimension), 30, rng):
        model = online.learn(features, model, episode, 1.0, mirror=True)
    assert all(np.array_equal(x, y) for x, y in zip(first, copies, strict=True))
    assert [np.shape(x) for x in model] == [np.shape(x) for x in first]


def test_bad_inputs_are_named(rng):
    features = settings()["one-hot"]
    model = online.start(features, 0.5, 1)
    jump = Episode(np.array([0, 1, 3]), np.array([1, 1]), np.zeros(2))
    with pytest.raises(
        ValueError, match=r"step 1 of the episode went from \(s=1, a=.right.\) to 3"
    ):
        take_newton_steps(features, model, jump, 0.1)
    with pytest.raises(ValueError, match="kappa is 2"):
        online.newton_radius(2, 1.0)
    with pytest.raises(ValueError, match="delta is 0"):
        online.mirror_radius(1.0, delta=0)
    with pytest.raises(ValueError, match="theta_bound is -1"):
        online.mirror_radius(-1)
    with pytest.raises(ValueError, match="rounds is 0"):
        online.mirror_radius(1.0, rounds=0)


def told(k, regularization=0.7, norm_bound=1.3):
    """H = 12, S = 4, U = 3, d = 32."""
    return Evidence(k, 12, 4, 3, 32, norm_bound, regularization, 0.0)


@pytest.mark.parametrize("k, rounds", [(1, 1), (7, 1), (50, 12), (10_000, 12)])
def test_the_newton_radius_is_the_published_one(k, rounds):
    """alpha_k^2 of RRL-MNL term by term, t = k * rounds transitions of a core."""
    t, big, bound, kappa, lam, delta = k * rounds, 1.3, 2.0, 0.05, 0.7, 0.1
    gathered = 8 * 32 / kappa * np.log(1 + t * 3 * big**2 / (32 * lam))
    covers = 1 + np.ceil(2 * np.log2(t * 3 * big * bound))
    chance = (32 * big * bound / 3 + 16 / kappa) * np.log(covers * t**2 / delta)
    expected = gathered + chance + 2 * np.sqrt(2) + 2 * lam * bound**2
    radius = online.newton_radius(kappa, bound, delta, rounds=rounds)
    assert radius(told(k)) == pytest.approx(np.sqrt(expected), rel=1e-12)


@pytest.mark.parametrize("k, rounds", [(1, 1), (7, 1), (50, 12), (10_000, 12)])
def test_the_mirror_radius_is_the_published_one(k, rounds):
    """beta_k^2 = alpha (G_A + G_B) + lambda L_theta^2, each part by itself; H cores at once."""
    t, size, lam, delta = k * rounds, 1.3 * 2.0, 0.7, 0.1
    alpha = np.log(3) + 2 * (1 + size)
    spread = 3 * np.log(3 * t) + size
    g_a = 1.25 * spread * lam + 4 * spread * np.log(12 * np.sqrt(1 + 2 * t) / delta) + 2
    g_b = np.sqrt(6) * 2 * alpha / 3 * 32 * np.log(1 + 2 * t * 1.3**2 / (32 * lam))
    expected = alpha * g_a + alpha * g_b + lam * 2.0**2
    radius = online.mirror_radius(2.0, delta, rounds=rounds)
    assert radius(told(k)) == pytest.approx(np.sqrt(expected), rel=1e-12)


def test_constants_of_mirror_descent():
    features = settings()["one-hot"]
    big, d, u = features.norm_bound, features.formal_dimension, features.task.max_successors
    alpha = np.log(u) + 2 * (1 + big * 3.0)
    assert online.theory_step(features, 3.0) == pytest.approx(alpha / 2)
    expected = alpha * max(12 * np.sqrt(2) * big**3, 48 * big**2 * d)
    assert online.mirror_regularization(features, 3.0) == pytest.approx(expected)


def test_nothing_to_learn_needs_no_radius():
    """Every pair has one successor: the model is known, whatever k."""
    prob = np.zeros((2, 2, 2))
    prob[:, 0, 0] = prob[:, 1, 1] = 1.0
    mdp = up.FiniteMDP.from_arrays(prob, np.full((2, 2), 0.5), 3)
    features = up.features.one_hot(mdp.true_task)
    assert online.mirror_regularization(features, 2.0) > 0
    for radius in (online.newton_radius(0.1, 2.0), online.mirror_radius(2.0)):
        assert radius(told(5, norm_bound=0.0)) == 0.0
    agent = up.agents.RRLMNL(mdp.true_task, features, radius=online.newton_radius(0.1, 2.0))
    assert up.simulate(mdp, agent, 3).regret.sum() == pytest.approx(0.0)
