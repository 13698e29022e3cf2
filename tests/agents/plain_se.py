"""The rule of UCRL-MNL-SE in dense NumPy, from its formulas alone; nothing is imported from it."""

import numpy as np


def pairs(task):
    """Yield (pair, its rows) of every pair that exists."""
    for pair in range(task.n_states * task.n_actions):
        rows = np.arange(task.indptr[pair], task.indptr[pair + 1])
        if len(rows):
            yield pair, rows


def softmax(logits):
    e = np.exp(logits - logits.max())
    return e / e.sum()


def prepare(task, x):
    """(n, d) the columns on a common scale, and (d,) whether they vary within one pair only."""
    x = x.copy()
    ranges = np.array([np.ptp(x[rows], axis=0) for _, rows in pairs(task)])
    own = (ranges > 0).sum(axis=0) == 1
    for j in range(x.shape[1]):
        if own[j]:
            where = next(rows for _, rows in pairs(task) if np.ptp(x[rows, j]) > 0)
            x[:, j] /= np.abs(x[where, j]).max()
        elif ranges[:, j].max() > 0:
            x[:, j] /= ranges[:, j].max()
    return x, own


def add_effects(task, x, own, spread):
    """The columns and a triple effect of size `spread` for each triple but its pair's first."""
    effects = [np.eye(task.n_triples)[:, r] for _, rows in pairs(task) for r in rows[1:]]
    effects = spread * np.array(effects).T
    return np.hstack([x, effects]), np.r_[own, np.ones(effects.shape[1], bool)]


def fit(task, x, counts, lam):
    """theta, loss and Hessian of (2) by Newton's method with step halving."""

    def evaluate(theta):
        loss, slope = 0.5 * lam * theta @ theta, lam * theta
        hessian = lam * np.eye(len(theta))
        for _, rows in pairs(task):
            p, n = softmax(x[rows] @ theta), counts[rows].sum()
            loss = loss - counts[rows] @ np.log(p)
            slope = slope + x[rows].T @ (n * p - counts[rows])
            hessian = hessian + n * x[rows].T @ (np.diag(p) - np.outer(p, p)) @ x[rows]
        return loss, slope, hessian

    theta = np.zeros(x.shape[1])
    for _ in range(200):
        loss, slope, hessian = evaluate(theta)
        step = np.linalg.solve(hessian, slope)
        if step @ slope < 1e-26:
            break
        size = 1.0
        while evaluate(theta - size * step)[0] > loss + 1e-13 * abs(loss) and size > 1e-8:
            size /= 2
        theta = theta - size * step
    return theta, *evaluate(theta)[::2]


def log_evidence(task, x, counts, lam):
    """Laplace's approximation of the log of the integral of exp(-loss) with the normal prior."""
    theta, loss, hessian = fit(task, x, counts, lam)
    return 0.5 * len(theta) * np.log(lam) - 0.5 * np.linalg.slogdet(hessian)[1] - loss


def likely_spread(task, x, own, counts, lam):
    """The best of nine spreads, by evidence and a log-normal prior of median 0.1."""
    score = {}
    for spread in 0.03 * 100 ** (np.arange(9) / 8):
        made, _ = add_effects(task, x, own, spread)
        total = sum(log_evidence(task, made, n, lam) for n in counts)
        score[spread] = total - np.log(spread / 0.1) ** 2 / 2
    return max(score, key=score.get)


def tilted_values(task, x, own, counts, lam, shared_errors, own_errors, reward, following, extra):
    """(S, A) Q of one step; reward (S*A,), following (S,), extra (n,) the next-state reward."""
    theta, _, hessian = fit(task, x, counts, lam)
    inverse = np.linalg.inv(hessian)
    q = np.full(task.n_states * task.n_actions, -np.inf)
    for pair, rows in pairs(task):
        phi, n = x[rows], counts[rows].sum()
        p = softmax(phi @ theta)
        values = following[task.successors[rows]] + extra[rows]
        everything = phi @ inverse @ phi.T
        prior = phi[:, own] @ phi[:, own].T / lam
        information = n * (np.diag(p) - np.outer(p, p))
        alone = np.linalg.solve(np.eye(len(rows)) + prior @ information, prior)
        weighted = shared_errors**2 * (everything - alone) + own_errors**2 * alone
        slope = p * (values - p @ values)
        norm = np.sqrt(max(slope @ weighted @ slope, 0.0))
        tilted = p * np.exp(weighted @ slope / norm) if norm > 1e-13 else p
        q[pair] = reward[pair] + tilted @ values / tilted.sum()
    return q.reshape(task.n_states, task.n_actions)
