"""UCRL-MNL-SE: its standard error by finite differences, a bootstrap, and the one-hot limit."""

import numpy as np
import pytest

import upriver as up
from tests.agents.plain import check_plan, play, steps_left
from tests.mnl import plain_online as plain
from upriver.agents.mnl_family import State
from upriver.agents.protocol import Episode
from upriver.mnl import model as mnl
from upriver.planning import optimism


def fitted(features, counts, lam=1.0):
    """The local model of given counts (n,)."""
    model = mnl.start(features, lam, 1, with_products=True, local=True)
    model.counts[0] = counts
    none = np.empty(0, np.int64)
    mnl.bring_up_to_date(features, model, none, none, everything=True, local=True)
    return model


def gradients(features, theta, v, step=1e-6):
    """(S*A, d) the gradient of P_theta v in theta, by central differences."""
    task = features.task

    def expected(x):
        weighted = plain.prediction(features, x) * v[task.successors]
        return np.add.reduceat(weighted, task.indptr[:-1])

    moves = step * np.eye(len(theta))
    return np.array([expected(theta + m) - expected(theta - m) for m in moves]).T / (2 * step)


@pytest.mark.parametrize("kind", ["one_hot", "shared"])
@pytest.mark.parametrize("per_step", [False, True])
def test_the_plan_adds_standard_errors_by_finite_differences(kind, per_step):
    mdp = up.envs.riverswim(4, horizon=5)
    task = mdp.task("local")
    features = getattr(up.features, kind)(task)
    agent = up.agents.UCRLMNLSE(task, features, radius=1.3, regularization=0.5, per_step=per_step)
    d = features.dimension
    for _, state, plan in play(agent, mdp, 5):
        inverses = []
        for counts, theta in zip(state.model.counts, state.model.theta, strict=True):
            hessian = 0.5 * np.eye(d)
            for s in range(task.n_states):
                for a in range(task.n_actions):
                    rows = task.rows(s, a)
                    x, p = plain.dense(features)[rows], plain.prediction(features, theta)[rows]
                    centred = x - p @ x
                    hessian += counts[rows].sum() * centred.T @ np.diag(p) @ centred
            inverses.append(np.linalg.inv(hessian))

        def action_values(h, v, state=state, inverses=inverses):
            c = min(h, len(inverses) - 1)
            theta = state.model.theta[c]
            slope = gradients(features, theta, v)
            error = np.sqrt(np.einsum("gi,ij,gj->g", slope, inverses[c], slope))
            prob = plain.prediction(features, theta)
            return plain.backup(task, prob, 1.3 * error.reshape(task.n_states, -1), v)

        for h in range(5):
            q = action_values(h, plan.v[h + 1])
            assert plan.q(h) == pytest.approx(q, abs=1e-6)
        check_plan(plan, lambda h, v, plan=plan: plan.q(h), steps_left(5))


@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("per_step", [False, True])
def test_a_factor_of_the_geometry_plans_as_the_products_do(spread, per_step):
    """Twenty successors and three features: rows of a factor are kept instead of 20 x 20."""
    mdp = up.envs.random_mnl(25, 2, 3, 20, horizon=6)
    task = mdp.task()
    shared = up.envs.random_mnl_features(task)
    features = up.features.pooled(shared, spread) if spread else shared
    agent = up.agents.UCRLMNLSE(task, features, per_step=per_step)
    whole = mnl.start(features, 1.0, 6 if per_step else 1, with_products=True, local=True)
    assert agent.init().model.inverse_products.size < 0.3 * whole.inverse_products.size
    for episode, state, plan in play(agent, mdp, 4):
        model, none = whole._replace(counts=state.model.counts), np.empty(0, np.int64)
        mnl.bring_up_to_date(features, model, none, none, everything=True, local=True)
        beta, word = agent.beta(state), np.uint64(3)
        expected = optimism.standard_error(task, model, task.reward_rows, beta, word)
        assert plan.v == pytest.approx(expected.v, abs=1e-9), episode
        assert plan.q(2) == pytest.approx(expected.q(2), abs=1e-9)


def last_but_one(task, model, v, beta):
    """(S, A) Q of the last step but one where the last step pays v whatever is done."""
    reward = np.zeros((task.horizon, len(task.sizes)))
    reward[-1] = np.repeat(v, task.n_actions)
    plan = optimism.standard_error(task, model, reward, beta, np.uint64(3))
    assert plan.v[-2] == pytest.approx(v)
    return plan.q(task.horizon - 2)


def test_the_standard_error_is_that_of_a_parametric_bootstrap():
    """Refitted to logs drawn from the fitted model, P V scatters by what the bonus says."""
    mdp = up.envs.riverswim(4, horizon=3)
    task = mdp.task("known")
    features = up.features.shared(task)
    rng = np.random.default_rng(5)
    visits = np.full(len(task.sizes), 400)
    v = np.array([0.1, 0.9, 0.3, 0.6])

    def drawn(prob):
        pairs = zip(task.indptr[:-1], task.indptr[1:], visits, strict=True)
        return np.concatenate([rng.multinomial(n, prob[i:j]) for i, j, n in pairs]).astype(float)

    model = fitted(features, drawn(mdp.probability[0]), lam=1e-3)
    error = last_but_one(task, model, v, 1.0) - last_but_one(task, model, v, 0.0)
    again = [
        last_but_one(task, fitted(features, drawn(model.prob[0]), lam=1e-3), v, 0.0)
        for _ in range(400)
    ]
    scatter = np.std(again, axis=0)
    assert (scatter[error > 1e-6] > 0).all() and (error > 1e-6).sum() == 4  # "right", 4 states
    assert error == pytest.approx(scatter, rel=0.12, abs=1e-9)  # 400 draws know it to 3.5%


def test_one_hot_features_give_the_root_of_the_variance_over_n():
    mdp = up.envs.riverswim(5, horizon=3)
    task = mdp.task("local")
    counts = 1e6 * np.random.default_rng(2).dirichlet(np.full(task.n_triples, 5.0)).round(6)
    for features in (up.features.one_hot(task), up.features.one_hot_indicator(task)):
        model = fitted(features, counts)
        v = np.array([0.0, 0.5, 0.2, 0.9, 1.0])
        error = last_but_one(task, model, v, 1.0) - last_but_one(task, model, v, 0.0)
        for s in range(5):
            for a in range(2):
                rows = task.rows(s, a)
                p, values = model.prob[0, rows], v[task.successors[rows]]
                variance = p @ (values - p @ values) ** 2
                expected = np.sqrt(variance / counts[rows].sum())
                assert error[s, a] == pytest.approx(expected, rel=1e-3)


def test_the_schedule():
    task = up.envs.riverswim(4, horizon=5).task()
    agent = up.agents.UCRLMNLSE(task, up.features.one_hot(task))
    model = agent.init().model
    for k, beta in [(1, 1.5), (89, 1.5), (89_999, np.sqrt(np.log(90_000) / 2))]:
        assert agent.beta(State(k, model, None)) == pytest.approx(beta)
    rule = up.radii.standard_errors(least=2.0, scale=0.5)
    doubled = up.agents.UCRLMNLSE(task, agent.features, radius=rule)
    assert doubled.beta(State(1, model, None)) == pytest.approx(1.0)
    bare = up.agents.UCRLMNLSE(task, agent.features, radius=up.radii.standard_errors(0.0))
    assert bare.beta(State(1, model, None)) == pytest.approx(np.sqrt(np.log(2) / 2))
    constant = up.agents.UCRLMNLSE(task, agent.features, radius=3)
    assert constant.beta(State(10**9, model, None)) == 3.0


def test_unknown_rewards_get_the_same_number_of_standard_errors():
    """One state, one step, drawn rewards: what is planned is the mean and beta errors of it."""
    mdp = up.FiniteMDP.from_arrays(np.ones((1, 2, 1)), [[0.25, 0.75]], 1)
    task = mdp.true_task.with_unknown_reward()
    agent = up.agents.UCRLMNLSE(task, up.features.one_hot(task), radius=0.7)
    rng = np.random.default_rng(4)
    state, paid = agent.init(), {0: [], 1: []}
    assert agent.plan(state, rng).q(0)[0].tolist() == [1.0, 1.0]
    for a in [0] * 6 + [1] * 3:
        paid[a].append(0.2 + 0.3 * rng.random() if a else 0.25)
        episode = Episode(np.zeros(2, int), np.array([a]), np.array(paid[a][-1:]))
        state = agent.update(state, None, episode)
    scatter = {a: len(x) * np.var(x) for a, x in paid.items()}
    pooled = (0.25 + sum(scatter.values())) / (1 + 5 + 2)
    q = agent.plan(state, rng).q(0)[0]
    for a, x in paid.items():
        variance = (pooled + scatter[a]) / (1 + len(x) - 1)
        assert q[a] == pytest.approx(np.mean(x) + 0.7 * np.sqrt(variance / len(x)))
    run = up.simulate(mdp, agent, 40, seed=0)
    assert run.values[-10:].mean() > 0.7 and 0.25 in run.values


def test_bad_inputs_are_named():
    task = up.envs.riverswim(4, horizon=5).task()
    features = up.features.one_hot(task)
    with pytest.raises(ValueError, match="regularization is 0"):
        up.agents.UCRLMNLSE(task, features, regularization=0)
    with pytest.raises(ValueError, match="radius is -1"):
        up.agents.UCRLMNLSE(task, features, radius=-1)
    with pytest.raises(ValueError, match="least is -1"):
        up.radii.standard_errors(-1)


LOST = {
    "riverswim-6": (3.5, 2.1),
    "riverswim-20": (10.5, 2.1),
    "deep-sea-10": (16.0, 1.5),
    "river-grid-6": (20.0, 1.5),
}
"""Episodes of 200 that may be lost, with one-hot and with shared features, support local."""


def lost(mdp, agent, n_seeds):
    """(n_seeds,) regret of 200 episodes in episodes of the optimum."""
    runs = [up.simulate(mdp, agent, 200, seed=seed) for seed in range(n_seeds)]
    return np.array([run.regret.sum() / run.optimal_values[0] for run in runs])


@pytest.mark.slow
@pytest.mark.parametrize("name", LOST)
def test_untuned_it_loses_few_episodes(name):
    mdp = up.envs.make(name)
    task = mdp.task("local")
    maps = up.features.one_hot, up.envs.find(name).shared
    for features, most in zip(maps, LOST[name], strict=True):
        assert lost(mdp, up.agents.UCRLMNLSE(task, features(task)), 20).mean() <= most


@pytest.mark.slow
@pytest.mark.parametrize("name", LOST)
def test_no_run_locks_in(name):
    """With the least number of standard errors, 1.5: none of 200 runs ends under half the best."""
    mdp = up.envs.make(name)
    task = mdp.task("local")
    agent = up.agents.UCRLMNLSE(task, up.envs.find(name).shared(task))
    for seed in range(200):
        run = up.simulate(mdp, agent, 200, seed=seed)
        assert run.values[-20:].mean() > 0.5 * run.optimal_values[0], seed


@pytest.mark.parametrize(("size", "least", "dives"), [(10, 1.5, 1), (20, 1.5, 0), (20, 2.0, 1),
                                                      (40, 2.0, 0)])  # fmt: skip
def test_one_dive_that_slips_decides_over_a_long_chain(size, least, dives):
    """After one failure in one trial: whether the deep sea of this size is tried again."""
    task = up.envs.deep_sea(size).task("local")
    features = up.envs.find("deep-sea").shared(task)
    agent = up.agents.UCRLMNLSE(task, features, radius=up.radii.standard_errors(least))
    down = size * np.minimum(np.arange(size + 1), size - 1)  # along the left bank
    state = agent.init()
    for first in (0, 1):  # an episode of left, and one whose dive slips at once
        actions = np.r_[first, np.zeros(size - 1, int)]
        state = agent.update(state, None, Episode(down, actions, np.zeros(size)))
    assert state.model.prob[0, task.rows(0, 1)][1] == pytest.approx(0.401, abs=1e-3)
    assert agent.plan(state, np.random.default_rng(0)).policy[0, 0] == dives


@pytest.mark.slow
def test_locked_in_runs_of_the_deep_sea_of_20_slipped_when_they_first_dove():
    """The page's runs: 8 of 200; 7 made one dive, which slipped at once, the eighth two."""
    mdp = up.envs.make("deep-sea-20")
    task = mdp.task("local")
    agent = up.agents.UCRLMNLSE(task, up.envs.find("deep-sea").shared(task))
    dives = []
    for seed in range(500_000, 500_200):
        run = up.simulate(mdp, agent, 200, seed=seed)
        if run.values[-20:].mean() < 0.5 * run.optimal_values[0]:
            tried = run.state.model.counts[0, task.rows(0, 1)].astype(int).tolist()
            dives.append(tried)
    assert sorted(dives) == 7 * [[1, 0]] + [[1, 1]]  # [slipped, went right]


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.5, 2.0])
@pytest.mark.parametrize("name", LOST)
def test_half_or_twice_the_bonus_keeps_most_of_the_optimum(name, scale):
    mdp = up.envs.make(name)
    task = mdp.task("local")
    agent = up.agents.UCRLMNLSE(
        task, up.envs.find(name).shared(task), radius=up.radii.standard_errors(scale=scale)
    )
    assert 1.0 - lost(mdp, agent, 50).mean() / 200 >= 0.85


@pytest.mark.parametrize("steps", [50, 500, 5_000])
def test_what_never_happens_on_a_stream_is_given_up_at_the_right_pace(steps, rng):
    """1 / t, and 2.4 / t with its standard errors; with a fixed ridge it is log(t) / t."""
    support, pays = (np.arange(3) * 2, np.tile([0, 1], 2)), np.array([[0.0], [1.0]])
    stayed = Episode(np.zeros(steps + 1, np.int64), np.zeros(steps, np.int64), np.zeros(steps))

    def learned(task, episode):
        agent = up.agents.UCRLMNLSE(task, up.Features(task, [[0.0], [1.0], [0.0], [1.0]]), 1.5)
        plan = agent.plan(agent.init(), rng)
        return agent, agent.update(agent.init(), plan, episode)

    agent, state = learned(up.Task(2, 1, None, *support, pays, discount=0.9), stayed)
    assert 0.75 < steps * state.model.prob[0, 1] < 1.25
    v = agent.plan(state, rng).v[0]
    chance = (v[0] / 0.9 - v[0]) / (v[1] - v[0])  # V(0) = 0.9 (V(0) + chance (V(1) - V(0)))
    assert 2.0 < steps * chance < 3.0
    episode = Episode(stayed.states[:10], stayed.actions[:9], stayed.rewards[:9])
    assert learned(up.Task(2, 1, 9, *support, pays), episode)[1].model.regularization == 1.0
