"""How often 95% intervals of outcomes hold the truth, over simulated logs of a clinic.

`python -m tests.logs.outcomes` prints the table of docs/explanation/intervals.md. The columns of
the log are `cost`, whose noise is ten times the range of its means, `loss`, which depends on the
next state, and `years`, whose noise goes with that of the cost.
"""

import sys

import numpy as np
from scipy import stats

import upriver as up

AGES, HORIZON, POLICY, OTHER = (-1.0, 0.0, 1.0), 5, np.array([1, 0]), np.array([0, 0])
COST, YEARS = np.array([[0.0, 1.0], [2.0, 1.5]]), np.array([[1.0, 0.9], [0.4, 0.6]])
LOSS = np.array([[[0.0, 5.0], [1.0, 3.0]], [[2.0, 4.0], [0.0, 1.0]]])
NOISE = 20.0
REWARDS = {"cost": "cost", "loss": "loss ~ C(state):C(action):C(next_state)", "years": "years"}
FORMULA = "C(next_state):C(action):C(state) + age:C(next_state)"
LATE = 0.9


def chance(state, action, age):
    """The probability of the next state 1."""
    return 1 / (1 + np.exp(-(0.3 * state - 0.8 * action + 0.4 * state * action + 0.5 * age)))


def visits(rng, n_rows, n_who=0):
    """A log; with n_who clinicians who each prefer an action, share luck and have own costs."""
    n = n_rows if n_who == 0 else n_who * n_rows
    who = np.arange(n) // n_rows if n_who else np.arange(n)
    n_shared = int(n_who > 0)
    state, age = rng.integers(2, size=n), rng.choice(AGES, n)
    likes = np.where(rng.random(n) < 0.5, 0.9, 0.1)[who] if n_who else 0.4 + 0.2 * state
    action = (rng.random(n) < likes).astype(int)
    shared = n_shared * rng.normal(size=(2, n))[:, who]
    luck = np.sqrt(1 - 0.3 * n_shared) * rng.normal(size=n) + np.sqrt(0.3) * shared[0]
    p = chance(state, action, age)
    following = (stats.norm.cdf(luck) < p).astype(int)
    noise = rng.normal(size=n) + 0.5 * shared[1]
    return {
        "who": who, "state": state, "action": action, "next_state": following, "age": age,
        "cost": COST[state, action] + NOISE * noise + 3 * (following - p),
        "loss": LOSS[state, action, following] + rng.normal(size=n),
        "years": YEARS[state, action] - 0.05 * noise + 0.1 * rng.normal(size=n),
    }  # fmt: skip


def true_value(policy, reward, age, discount=1.0):
    """From state 0; reward (S, A) or (S, A, S), policy (S,) or (S, A)."""
    policy = np.eye(2)[policy] if policy.ndim == 1 else policy
    v = np.zeros(2)
    for _ in range(HORIZON):
        q = np.zeros((2, 2))
        for s, a in np.ndindex(2, 2):
            p = chance(s, a, age)
            p = np.array([1 - p, p])
            q[s, a] = p @ (reward[s, a] + discount * v)
        v = (policy * q).sum(axis=1)
    return v[0]


def outcomes(rng):
    """{what: whether the interval of one log of 400 rows holds the truth}."""
    log = visits(rng, 400)
    model = up.fit_transitions(FORMULA, log, reward=REWARDS)
    at = model.at(age=0.5, horizon=HORIZON, start=0)
    true = {
        name: true_value(POLICY, table, 0.5) - true_value(OTHER, table, 0.5)
        for name, table in (("cost", COST), ("loss", LOSS), ("years", YEARS))
    }
    found = up.compare_policies(at, POLICY, OTHER, rewards=list(true))
    held = {name: x.low <= true[name] <= x.high for name, x in found.each.items()}
    late = at.at(horizon=HORIZON, discount=LATE, reward="cost")
    one = up.compare_policies(late, POLICY, OTHER)
    new, old = (true_value(x, COST, 0.5, LATE) for x in (POLICY, OTHER))
    held["cost, discounted"] = one.low <= new - old <= one.high
    gap = found.difference("cost", "years")
    held["cost minus years"] = gap.low <= true["cost"] - true["years"] <= gap.high
    pick = [list(found.each).index(name) for name in ("cost", "years")]
    off = found.values[pick] - [true["cost"], true["years"]]
    distance = off @ np.linalg.solve(found.covariance[np.ix_(pick, pick)], off)
    held["ellipse of cost and years"] = distance <= stats.chi2.ppf(0.95, 2)
    share = {age: float(np.mean(log["age"] == age)) for age in AGES}
    for name, table in (("cost", COST), ("loss", LOSS)):
        mean = up.policy_value(model.at(horizon=HORIZON, reward=name).at(start=0), POLICY)
        expected = sum(p * true_value(POLICY, table, age) for age, p in share.items())
        held[f"{name}, averaged over ages"] = mean.low <= expected <= mean.high
    return held


def clusters(rng, n_who, n_rows):
    """The same of clinicians; the behaviour takes each action half of the time."""
    log = visits(rng, n_rows, n_who)
    model = up.fit_transitions(FORMULA, log, reward="cost", cluster="who")
    at, half = model.at(age=0.5, horizon=HORIZON), np.full((2, 2), 0.5)
    one, done = (true_value(x, COST, 0.5) for x in (POLICY, half))
    found = {
        "policy": (up.policy_value(at.at(start=0), POLICY), one),
        "behaviour": (up.policy_value(at.at(start=0), "behaviour"), done),
        "policy minus behaviour": (up.compare_policies(at.at(start=0), POLICY), one - done),
    }
    years = at.at(reward={0: 1.0, 1: 0.5})  # a given reward: all error is that of the model
    of_states = np.array([[1.0, 1.0], [0.5, 0.5]])
    gain = true_value(POLICY, of_states, 0.5) - true_value(half, of_states, 0.5)
    more = up.compare_policies(years.at(start=0), POLICY)
    found["policy minus behaviour, reward given"] = more, gain
    return {name: x.low <= true <= x.high for name, (x, true) in found.items()}


CASES = {
    "400 rows": outcomes,
    "40 clusters of 15 rows": lambda rng: clusters(rng, 40, 15),
    "12 clusters of 50 rows": lambda rng: clusters(rng, 12, 50),
}


def coverage(case, n_logs=500, seed=18):
    """{what: the share of logs whose interval holds the truth}."""
    rng = np.random.default_rng(seed)
    logs = [CASES[case](rng) for _ in range(n_logs)]
    return {name: float(np.mean([x[name] for x in logs])) for name in logs[0]}


if __name__ == "__main__":
    print("| log | interval of | holds |\n|---|---|---:|")
    for case in sys.argv[1:] or CASES:
        for name, share in coverage(case).items():
            print(f"| {case} | {name} | {100 * share:.1f}% |", flush=True)
