"""The online estimators in plain dense NumPy, one transition after the other."""

import numpy as np
from scipy import sparse
from scipy.optimize import brentq


def dense(features):
    """(n, d) features as a plain array."""
    return features.matrix.toarray() if sparse.issparse(features.matrix) else features.matrix


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def project(theta, matrix, bound):
    """The nearest point of the ball in the norm of matrix: one eigendecomposition, one root."""
    if np.linalg.norm(theta) <= bound:
        return theta
    size, axes = np.linalg.eigh(matrix)
    along = size * (axes.T @ theta)
    mu = brentq(lambda mu: np.linalg.norm(along / (size + mu)) - bound, 0.0, 1e9, xtol=1e-14)
    return axes @ (along / (size + mu))


def sample_terms(phi, theta, row):
    """(gradient, Hessian) of -log P_theta of the successor `row` of a group with features phi."""
    p = softmax(phi @ theta)
    mean = p @ phi
    return mean - phi[row], (phi - mean).T @ np.diag(p) @ (phi - mean)


def newton(phi, row, theta, matrix, kappa, bound):
    gradient, _ = sample_terms(phi, theta, row)
    matrix = matrix + kappa / 2 * phi.T @ phi
    return project(theta - np.linalg.solve(matrix, gradient), matrix, bound), matrix


def mirror(phi, row, theta, matrix, eta, bound):
    gradient, hessian = sample_terms(phi, theta, row)
    inflated = matrix + eta * hessian
    theta = project(theta - eta * np.linalg.solve(inflated, gradient), inflated, bound)
    return theta, matrix + sample_terms(phi, theta, row)[1]


def run(step, features, episodes, n_parameters, lam, rate, bound):
    """[(theta, matrix)] of each core after the episodes."""
    task, d = features.task, features.dimension
    cores = [(np.zeros(d), lam * np.eye(d)) for _ in range(n_parameters)]
    for episode in episodes:
        for h, a in enumerate(episode.actions):
            rows = task.rows(int(episode.states[h]), int(a))
            row = list(task.successors[rows]).index(episode.states[h + 1])
            c = min(h, n_parameters - 1)
            cores[c] = step(dense(features)[rows], row, *cores[c], rate, bound)
    return cores


def prediction(features, theta):
    """(n,) P_theta of every triple."""
    task, phi = features.task, dense(features)
    return np.concatenate(
        [softmax(phi[a:b] @ theta) for a, b in zip(task.indptr[:-1], task.indptr[1:], strict=True)]
    )


def local_bonus(features, theta, matrix, first, second):
    """(S, A) first * sum_s' P ||varphi - mean|| + second * max_s' ||varphi||^2, by solving."""
    task, phi, prob = features.task, dense(features), prediction(features, theta)
    inverse = np.linalg.inv(matrix)
    out = np.zeros((task.n_states, task.n_actions))
    for s in range(task.n_states):
        for a in range(task.n_actions):
            rows = task.rows(s, a)
            x, p = phi[rows], prob[rows]
            centred = x - p @ x
            spread = p @ np.sqrt(np.einsum("ui,ij,uj->u", centred, inverse, centred))
            out[s, a] = first * spread + second * np.einsum("ui,ij,uj->u", x, inverse, x).max()
    return out


def backup(task, prob, bonus, v):
    """(S, A) r + P v + bonus."""
    q = task.reward + bonus
    for s in range(task.n_states):
        for a in range(task.n_actions):
            rows = task.rows(s, a)
            q[s, a] += prob[rows] @ v[task.successors[rows]]
    return q
