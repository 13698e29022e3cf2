"""Tabular learners in plain loops, as slow as they are easy to read."""

import numpy as np

import upriver as up
from upriver.agents.base import Episode


def frequencies(task, episodes):
    """(N(s, a, s') (S, A, S), N(s, a) (S, A), P (S, A, S)) by counting; P uniform where N = 0."""
    counts = np.zeros((task.n_states, task.n_actions, task.n_states))
    for episode in episodes:
        for h, a in enumerate(episode.actions):
            counts[episode.states[h], a, episode.states[h + 1]] += 1
    visits = counts.sum(axis=2)
    allowed = np.zeros_like(counts)
    allowed[task.triples] = 1.0
    prob = np.where(
        visits[..., None] > 0, counts / np.maximum(visits, 1)[..., None],
        allowed / allowed.sum(axis=2, keepdims=True),
    )  # fmt: skip
    return counts, visits, prob


def play(agent, mdp, n_episodes, seed=0):
    """Yields (episodes so far, state, plan) before each episode is played on the MDP."""
    rng, world = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    state, episodes = agent.init(), []
    for _ in range(n_episodes):
        plan = agent.plan(state, rng)
        yield list(episodes), state, plan
        s = int(world.choice(mdp.initial_states, p=mdp.initial_probability))
        states, actions, rewards = [s], [], []
        for h in range(mdp.horizon):
            a = int(plan.policy[h, s])
            rows = mdp.true_task.rows(s, a)
            rewards.append(mdp.reward[s, a])
            s = int(world.choice(mdp.true_task.successors[rows], p=mdp.probability[0, rows]))
            states.append(s)
            actions.append(a)
        episodes.append(Episode(np.array(states), np.array(actions), np.array(rewards)))
        state = agent.update(state, plan, episodes[-1])


def check_plan(plan, action_values, v_cap, exact=True):
    """The plan is backward induction with action_values(h, v) -> (S, A), V cut at v_cap[h].

    The reference is followed step by step with the plan's own v, so that ties may be broken in
    any way.
    """
    horizon, n_states = plan.policy.shape
    assert (plan.v[horizon] == 0).all()
    for h in range(horizon - 1, -1, -1):
        q = action_values(h, plan.v[h + 1])
        np.testing.assert_allclose(plan.q(h), q, atol=1e-9)
        np.testing.assert_allclose(plan.v[h], np.minimum(q.max(axis=1), v_cap[h]), atol=1e-9)
        chosen = q[np.arange(n_states), plan.policy[h]]
        np.testing.assert_allclose(chosen, q.max(axis=1), atol=1e-9)


def steps_left(horizon):
    """H - h + 1 with h from 1."""
    return np.arange(horizon, 0, -1.0)


def random_mdp(seed, n_states=3, horizon=4):
    """A small dense MDP with drawn rewards."""
    rng = np.random.default_rng(seed)
    prob = rng.dirichlet(np.ones(n_states), (n_states, 2))
    return up.FiniteMDP.from_arrays(prob, rng.random((n_states, 2)), horizon)
