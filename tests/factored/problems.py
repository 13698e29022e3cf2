"""Small factored problems; those of one structure share their functions, which compile once."""

import numpy as np

import upriver as up


def ring_kind(x, a, i):
    """Three kinds: chosen by the action, with a neighbour at 0, and others."""
    n = x.shape[0]
    if a == i + 1:
        return 0
    return 1 if x[(i + 1) % n] == 0 else 2


def own_kind(x, a, i):
    """Kinds by the own value, 0 to 2, and 3 where the action is at work."""
    if (a + i) % 3 == 1:
        return 3
    return min(x[i], 2)


def sum_reward(x, a):
    total = -0.4 * (a > 0)
    for i in range(x.shape[0]):
        total += x[i]
    return total


def change_reward(x, a, x2):
    total = -0.1 * a
    for i in range(x.shape[0]):
        total += (i + 1) * (x2[i] > x[i]) + 0.2 * x2[i]
    return total


def not_twice(x, a):
    """Component a - 1 cannot be chosen where it is at 1."""
    return a == 0 or x[(a - 1) % x.shape[0]] != 1


def ring(n, n_values, features=False, horizon=12):
    """Return components in a ring, the same for every call with the same arguments."""
    rng = np.random.default_rng(n * 10 + n_values)
    shape, table = (3, n_values), None
    logits = rng.normal(size=shape)
    if features:
        table = rng.normal(size=(*shape, 3))
        logits = table @ rng.normal(size=3)
    return up.FactoredMDP(
        np.zeros(n), n_values, n + 1, ring_kind, 3, sum_reward, horizon, logits, table
    )


def random_problem(seed):
    """Return one of many small problems: values, kinds, rewards, horizon and actions vary."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    n_values = np.full(n, rng.integers(2, 4))
    if seed % 3 == 0:
        n_values = np.append(3, np.full(n - 1, 2))
    kind, n_kinds = (ring_kind, 3) if seed % 2 else (own_kind, 4)
    logits = rng.normal(scale=1.5, size=(n_kinds, int(n_values.max())))
    if seed % 3 == 0:  # every kind applies to every component, also to those of two values
        logits[:, 2] = -np.inf
        logits[rng.integers(n_kinds), rng.integers(2)] = -np.inf
    return up.FactoredMDP(
        np.zeros(n), n_values, n + 1, kind, n_kinds, change_reward if seed % 5 else sum_reward,
        int(rng.integers(5, 25)), logits, allowed=not_twice if seed % 4 == 0 else None,
        name=f"random-{seed}",
    )  # fmt: skip
