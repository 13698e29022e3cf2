"""Slow, plain versions of what the library computes, written from the formulas alone.

Dense arrays, Python loops over (h, s, a), no kernels: what a reader can check by eye.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from upriver import FiniteMDP
from upriver.mdp import Task


def random_mdp(
    rng: np.random.Generator,
    n_states: int = 5,
    n_actions: int = 2,
    horizon: int = 4,
    per_step: bool = False,
    random_start: bool = False,
) -> FiniteMDP:
    """Each (s, a) reaches a random subset; the subset is the same at every step."""
    steps = horizon if per_step else 1
    p = np.zeros((steps, n_states, n_actions, n_states))
    for s in range(n_states):
        for a in range(n_actions):
            size = rng.integers(1, n_states + 1)
            reached = rng.choice(n_states, size, replace=False)
            p[:, s, a, reached] = rng.dirichlet(np.ones(size), steps)
    reward = rng.random((horizon, n_states, n_actions) if per_step else (n_states, n_actions))
    start: Any = rng.dirichlet(np.ones(n_states)) if random_start else int(rng.integers(n_states))
    local = [list(range(n_states))] * (n_states * n_actions)
    indptr = np.arange(n_states * n_actions + 1) * n_states
    return FiniteMDP.from_arrays(
        p if per_step else p[0], reward, horizon, start, local=(indptr, np.concatenate(local))
    )


def dense(mdp: FiniteMDP) -> tuple[np.ndarray, np.ndarray]:
    """(P (H, S, A, S), R (H, S, A))."""
    task = mdp.true_task
    p = np.zeros((task.horizon, task.n_states, task.n_actions, task.n_states))
    r = np.zeros((task.horizon, task.n_states, task.n_actions))
    for h in range(task.horizon):
        row_of_step = mdp.probability[h if len(mdp.probability) > 1 else 0]
        for s in range(task.n_states):
            for a in range(task.n_actions):
                r[h, s, a] = mdp.reward[h, s, a] if mdp.reward.ndim == 3 else mdp.reward[s, a]
                for i in range(*task.rows(s, a).indices(task.n_triples)):
                    p[h, s, a, task.successors[i]] = row_of_step[i]
    return p, r


def optimal_q(p: np.ndarray, r: np.ndarray) -> np.ndarray:
    """(H, S, A) Q* by the Bellman equation."""
    horizon, n_states, n_actions = r.shape
    q = np.zeros_like(r)
    following = np.zeros(n_states)
    for h in reversed(range(horizon)):
        for s in range(n_states):
            for a in range(n_actions):
                q[h, s, a] = r[h, s, a] + sum(p[h, s, a, t] * following[t] for t in range(n_states))
        following = q[h].max(axis=1)
    return q


def policy_value(p: np.ndarray, r: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """(H + 1, S) value of action probabilities (H, S, A)."""
    horizon, n_states, _ = r.shape
    v = np.zeros((horizon + 1, n_states))
    for h in reversed(range(horizon)):
        for s in range(n_states):
            v[h, s] = policy[h, s] @ (r[h, s] + p[h, s] @ v[h + 1])
    return v


def as_mixture(policy: np.ndarray, n_actions: int) -> np.ndarray:
    return np.eye(n_actions)[np.asarray(policy, dtype=int)]


def matrix(features: Any) -> np.ndarray:
    """(n, d) the feature matrix, dense whatever it was."""
    return features.matrix if isinstance(features.matrix, np.ndarray) else features.matrix.toarray()


def groups(task: Task) -> list[tuple[int, int, list[int]]]:
    """(s, a, row numbers) of every pair."""
    return [
        (s, a, list(range(*task.rows(s, a).indices(task.n_triples))))
        for s in range(task.n_states)
        for a in range(task.n_actions)
    ]


def mnl_log_probabilities(task: Task, phi: np.ndarray, theta: np.ndarray) -> np.ndarray:
    out = np.empty(task.n_triples)
    for _, _, rows in groups(task):
        logits = phi[rows] @ theta
        out[rows] = logits - logsumexp(logits)
    return out


def mnl_loss(task: Task, phi: np.ndarray, theta: np.ndarray, counts: np.ndarray, lam: float):
    """Eq. (2), one observed transition at a time in spirit: -sum n log p + lam/2 |theta|^2."""
    log_p = mnl_log_probabilities(task, phi, theta)
    seen = counts > 0
    return -(counts[seen] @ log_p[seen]) + 0.5 * lam * theta @ theta


def mnl_gradient(task: Task, phi: np.ndarray, theta: np.ndarray, counts: np.ndarray, lam: float):
    """sum over samples of sum_u (p_u - y_u) varphi_u, plus lam theta."""
    p = np.exp(mnl_log_probabilities(task, phi, theta))
    out = lam * theta
    for _, _, rows in groups(task):
        for y in rows:
            for u in rows:
                out = out + counts[y] * (p[u] - (u == y)) * phi[u]
    return out


def mnl_fit(task: Task, phi: np.ndarray, counts: np.ndarray, lam: float) -> np.ndarray:
    """Eq. (3) by a general-purpose minimiser."""
    result = minimize(
        lambda t: mnl_loss(task, phi, t, counts, lam),
        np.zeros(phi.shape[1]),
        jac=lambda t: mnl_gradient(task, phi, t, counts, lam),
        method="BFGS",
        options={"gtol": 1e-9, "maxiter": 10_000},
    )
    return result.x


def gram(task: Task, phi: np.ndarray, counts: np.ndarray, lam: float) -> np.ndarray:
    """Eq. (5): lam I plus, for each visit of (s, a), all its successors' outer products."""
    out = lam * np.eye(phi.shape[1])
    for _, _, rows in groups(task):
        for u in rows:
            out += counts[rows].sum() * np.outer(phi[u], phi[u])
    return out


def expectation(logits: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean of values under softmax(logits), logits (..., n)."""
    weight = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weight @ values / weight.sum(axis=-1)


def brute_force_maximum(
    logits: np.ndarray,
    geometry: np.ndarray,
    values: np.ndarray,
    beta: float,
    rng: np.random.Generator,
    points: int = 4000,
    polish: int = 3,
) -> float:
    """max of E[values] over the shifts {L w : |w| <= beta}, L L^T = geometry: search, polish."""
    eigenvalues, vectors = np.linalg.eigh(geometry)
    keep = eigenvalues > 1e-13 * max(eigenvalues.max(), 1e-300)
    root = vectors[:, keep] * np.sqrt(eigenvalues[keep])
    rank = root.shape[1]
    if rank == 0:
        return float(expectation(logits, values))
    if rank == 1:
        w = np.linspace(-1.0, 1.0, points)[:, None]
    elif rank == 2:
        angle = np.linspace(0.0, 2.0 * np.pi, points)
        w = np.column_stack([np.cos(angle), np.sin(angle)])
    else:
        w = rng.standard_normal((points, rank))
        w /= np.linalg.norm(w, axis=1, keepdims=True)
    inside = w[: points // 4] * rng.random((points // 4, 1))
    w = beta * np.concatenate([w, inside])
    found = expectation(logits + w @ root.T, values)
    best = found.max()

    def downhill(x):
        z = logits + root @ x
        p = np.exp(z - logsumexp(z))
        mean = p @ values
        return -mean, -(root.T @ (p * (values - mean)))

    for i in np.argsort(found)[-polish:]:
        end = minimize(
            downhill,
            w[i],
            jac=True,
            method="SLSQP",
            constraints={
                "type": "ineq",
                "fun": lambda x: beta**2 - x @ x,
                "jac": lambda x: -2.0 * x,
            },
            options={"ftol": 1e-16, "maxiter": 200},
        ).x
        end *= min(1.0, beta / max(np.linalg.norm(end), 1e-300))
        best = max(best, expectation(logits + root @ end, values))
    return float(best)
