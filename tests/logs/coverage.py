"""How often a 95% interval holds the truth, over simulated logs. `python -m tests.logs.coverage`
prints the table of docs/explanation/intervals.md; with `--one-hot` that of one-hot features."""

import sys
from typing import Any, NamedTuple

import numpy as np

import upriver as up
from tests.building import fit_counts, from_rows
from upriver.envs.random_mnl import random_mnl_features


class Problem(NamedTuple):
    mdp: Any
    phi: Any
    """Its features."""
    behaviour: Any
    """(S, A) what the log does."""
    policies: dict
    """A deterministic and a randomised one."""
    sizes: tuple
    """Episodes of a small and of a large log."""


def spread_out(mdp):
    """The MDP with episodes that start anywhere."""
    n = mdp.n_states
    return up.FiniteMDP(mdp.true_task, mdp.probability, np.arange(n), np.full(n, 1 / n))


def river():
    mdp = spread_out(up.envs.riverswim(6, 12))
    n = mdp.n_states
    policies = {"deterministic": np.ones(n, int), "randomised": np.tile([0.3, 0.7], (n, 1))}
    return Problem(
        mdp, up.features.shared(mdp.true_task), np.full((n, 2), 0.5), policies, (60, 600)
    )


def drawn():
    mdp = spread_out(up.envs.random_mnl(10, 2, seed=3, horizon=12))
    rng = np.random.default_rng(5)
    policies = {
        "deterministic": up.solve(mdp).policy,
        "randomised": rng.dirichlet(np.ones(2), size=(12, 10)),
    }
    behaviour = np.tile([0.4, 0.6], (10, 1))
    return Problem(mdp, random_mnl_features(mdp.true_task), behaviour, policies, (60, 600))


def inventory():
    """A store with room for 5: it orders what fits, and sells up to 3 of what is there.

    Demands have weights 1, 2, 2, 1, cut at the stock: the model with their log-odds is exact.
    """
    room, weights = 5, np.array([1.0, 2.0, 2.0, 1.0])
    rows, reward = {}, np.zeros((room + 1, room + 1))
    for s in range(room + 1):
        for a in range(room + 1 - s):
            w = weights[: s + a + 1]
            rows[s, a] = {s + a - d: p for d, p in enumerate(w / w.sum())}
            sold = float(np.arange(len(w)) @ w / w.sum())
            reward[s, a] = sold / 2 - 0.02 * (s + a) - 0.05 * (a > 0)
    low, high = reward.min(), reward.max()
    made = np.array([[(s, a) in rows for a in range(room + 1)] for s in range(room + 1)])
    reward = np.where(made, (reward - low) / (high - low), 0.0)
    mdp = spread_out(from_rows(rows, reward, 12))
    s, a, s2 = mdp.true_task.triples
    phi = up.Features(mdp.true_task, (s + a - s2)[:, None] == [1, 2, 3], names=["1", "2", "3"])
    even = made / made.sum(axis=1, keepdims=True)
    often = np.where(made, [3.0, 1, 1, 1, 1, 1], 0.0)
    policies = {
        "deterministic": up.solve(mdp).policy,
        "randomised": often / often.sum(axis=1, keepdims=True),
    }
    return Problem(mdp, phi, even, policies, (60, 600))


PROBLEMS = {"river": river, "inventory": inventory, "drawn": drawn}


def a_log(problem, n_episodes, seed):
    """(n,) counts of the triples of n episodes."""
    task = problem.mdp.true_task
    done = up.rollouts(problem.mdp, problem.behaviour, n_episodes, seed=seed)
    group = (done.states[:, :-1] * task.n_actions + done.actions).ravel()
    key = np.repeat(np.arange(len(task.sizes)), task.sizes) * task.n_states + task.successors
    row = np.searchsorted(key, group * task.n_states + done.states[:, 1:].ravel())
    return np.bincount(row, minlength=task.n_triples).astype(float)


def true_value(mdp, policy, **setting):
    if setting.get("discount") == 1.0:
        setting = {"average": True}
    found = up.evaluate(mdp, policy, **setting)
    if "average" in setting:
        return found.gain
    return float((found.v if setting else found[0]).mean())


def coverage(problem, n_episodes, n_logs=1000, ridge=1e-6, **setting):
    """{policy, or difference: share of logs whose 95% interval holds the truth}.

    setting: a discount instead of the horizon, 1 for the average reward.
    """
    mdp, task = problem.mdp, problem.mdp.true_task
    start = {s: 1 / task.n_states for s in task.states or range(task.n_states)}
    tables = {**problem.policies, "behaviour": problem.behaviour}
    truth = {(k,): true_value(mdp, p, **setting) for k, p in tables.items()}
    truth |= {(k, "behaviour"): truth[k,] - truth["behaviour",] for k in problem.policies}
    held = dict.fromkeys(truth, 0)
    for seed in range(n_logs):
        counts = a_log(problem, n_episodes, seed)
        model = fit_counts(problem.phi, counts, ridge, task).at(start=start, **setting)
        for names, true in truth.items():
            policies = [problem.policies.get(k, k) for k in names]
            of = up.policy_value if len(names) == 1 else up.compare_policies
            found = of(model, *policies)
            held[names] += found.low <= true <= found.high
    return {" minus ".join(names): n / n_logs for names, n in held.items()}


def table(n_logs=1000, own=False):
    """The coverage of all problems as markdown; own: one-hot features and a ridge of 1."""
    lines, head = [], None
    for name, make in PROBLEMS.items():
        problem = make()
        if own:
            problem = problem._replace(phi=up.features.one_hot(problem.mdp.true_task))
        for n in problem.sizes:
            found = coverage(problem, n, n_logs, 1.0 if own else 1e-6)
            if head is None:
                head = ["log", *found]
                lines += [" | ".join(head), "---|" + "---:|" * len(found)]
            rows = f"{name}, {n} episodes"
            lines.append(" | ".join([rows, *(f"{100 * x:.1f}%" for x in found.values())]))
    return "\n".join(f"| {line} |" if not line.startswith("---") else f"|{line}" for line in lines)


if __name__ == "__main__":
    print(table(own="--one-hot" in sys.argv))
