"""How often 95% intervals for a population hold the truth, over simulated logs.

`python -m tests.logs.populations` prints what docs/explanation/intervals.md says. In these logs two
groups start in different shares of the states, are treated by different habits, and are followed
for unequal times. The truth of a log is the mean over its own individuals, by a loop over them.
With the name of a file, each log is kept there, and the command goes on where it was stopped.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import upriver as up

STATES, ACTIONS, HORIZON = ("ill", "well", "gone"), ("drug", "rest"), 6
START = {"f": 0.9, "m": 0.3}  # the chance to start ill
HABIT = {"f": (0.8, 0.3), "m": (0.3, 0.6)}  # the chance of the drug when ill, when well
GAIN = {"ill": 0.2, "well": 1.0, "gone": 0.0}  # what a step in each state is worth
FORMULA = "C(next_state):C(state) + action:C(next_state):C(state) + sex:C(next_state):C(state)"
WHAT = ("plan", "what was done", "difference")
PLAN = {"ill": "drug", "well": "rest", "gone": "rest"}


def chances(state, action, sex):
    """The probabilities of the next states; nobody comes back."""
    if state == "gone":
        return np.array([0.0, 0.0, 1.0])
    ill = (state == "ill") * 1.2 - (action == "drug") * 1.0 + (sex == "m") * 0.4
    gone = -2.5 + (state == "ill") * 1.0 + (sex == "m") * 0.5 - (action == "drug") * 0.3
    p = np.exp([ill, 0.5, gone])
    return p / p.sum()


def visits(rng, n, n_clusters=0, until=HORIZON):
    """A log of n individuals; with clusters, each clinic has a habit of its own.

    until: the shortest time for which somebody is followed, if nobody leaves.
    """
    rows, worth = [], rng.normal(size=n_clusters + 1) * (n_clusters > 0)
    for i in range(n):
        sex = "fm"[i % 3 == 0]
        clinic = i % n_clusters if n_clusters else 0
        state = "ill" if rng.random() < START[sex] else "well"
        for step in range(int(rng.integers(until, HORIZON + 1))):
            chance = HABIT[sex][state == "well"]
            if n_clusters:  # half of the clinics often, half seldom
                chance = chance * (1.15 if clinic % 2 else 0.85)
            action = ACTIONS[rng.random() > chance]
            after = STATES[rng.choice(3, p=chances(state, action, sex))]
            paid = GAIN[state] + rng.normal() + 0.3 * worth[clinic]
            rows.append((i, clinic, step, sex, state, action, after, paid))
            state = after
            if state == "gone":
                break
    columns = ["who", "clinic", "step", "sex", "state", "action", "next_state", "paid"]
    return pd.DataFrame(rows, columns=columns)


def habit(state, sex, n_clusters=0):
    """The probabilities of the actions, on average over clinics."""
    drug = HABIT[sex][state == "well"]
    return {"drug": drug, "rest": 1 - drug}


def true_value(policy, state, sex, horizon=HORIZON):
    """The value of {state: action}, or of what is done where it is None, by recursion."""
    if horizon == 0:
        return 0.0
    did = habit(state, sex) if policy is None else {policy[state]: 1.0}
    total = GAIN[state]
    for action, share in did.items():
        p = chances(state, action, sex)
        total += share * sum(
            x * true_value(policy, s, sex, horizon - 1)
            for s, x in zip(STATES, p, strict=True) if x > 0
        )  # fmt: skip
    return total


TRUE = {
    (name, state, sex): true_value(policy, state, sex)
    for name, policy in (("plan", PLAN), ("done", None))
    for state in STATES[:2] for sex in "fm"
}  # fmt: skip


def truth(log, name, sex=None):
    """The mean over the individuals of a log, or those of one sex."""
    first = log[log["step"] == 0]
    first = first if sex is None else first[first["sex"] == sex]
    return np.mean([TRUE[name, s, x] for s, x in zip(first["state"], first["sex"], strict=True)])


def held(found, true):
    return found.low <= true <= found.high


def judge(log, reward, **options):
    """{what: whether the interval of one log holds the truth}."""
    model = up.fit_transitions(
        FORMULA, log, individual="who", step="step", horizon=HORIZON, reward=reward, **options
    )
    at, result = model.at(sex="f"), {}
    by = [f(model, x, by="sex")["m"] for f, x in (
        (up.policy_value, PLAN), (up.policy_value, "behaviour"), (up.compare_policies, PLAN)
    )]  # fmt: skip
    one = [
        [up.policy_value(m, PLAN), up.policy_value(m, "behaviour"), up.compare_policies(m, PLAN)]
        for m in (model, at)
    ]
    for whose, found, sex in (
        ("everybody", one[0], None), ("women, as fixed covariates", one[1], "f"),
        ("men, by group", by, "m"),
    ):  # fmt: skip
        plan, done = truth(log, "plan", sex), truth(log, "done", sex)
        for what, x, true in zip(WHAT, found, (plan, done, plan - done), strict=True):
            result[f"{whose}: {what}"] = held(x, true)
    return result


def check(log, **options):
    """Whether the checks hold the truth of everybody that the log could have had.

    Their errors allow for who got into the log.
    """
    model = up.fit_transitions(
        FORMULA, log, individual="who", step="step", horizon=HORIZON, reward="paid", **options
    )
    found, result = up.check_policy_value(model, PLAN), {}
    share = {"f": 2 / 3, "m": 1 / 3}
    expected = sum(
        share[x] * (START[x] * TRUE["plan", "ill", x] + (1 - START[x]) * TRUE["plan", "well", x])
        for x in "fm"
    )
    for row in found.rows[1:3]:
        name = row["name"].split(",")[0]
        result[name] = row["low"] <= expected <= row["high"]
    return result


CASES = {
    "300 individuals, followed for 2 to 6 steps":
        lambda rng: judge(visits(rng, 300, until=2), GAIN),
    "300 individuals, a noisy reward column":
        lambda rng: judge(visits(rng, 300, until=2), "paid"),
    "360 individuals in 40 clinics":
        lambda rng: judge(visits(rng, 360, 40), GAIN, cluster="clinic"),
    "360 individuals in 40 clinics, a noisy reward column":
        lambda rng: judge(visits(rng, 360, 40), "paid", cluster="clinic"),
    "300 individuals, the column": lambda rng: check(visits(rng, 300)),
    "360 individuals in 8 clinics, the column":
        lambda rng: check(visits(rng, 360, 8), cluster="clinic"),
}  # fmt: skip


def coverage(case, n_logs=500, seed=45, kept=None):
    """{what: the share of logs whose interval holds the truth}.

    kept: a file to which each log adds a line, so that a run that was stopped goes on.
    """
    done = {}
    if kept is not None and kept.exists():
        lines = [json.loads(x) for x in kept.read_text().splitlines()]
        done = {i: found for name, i, found in lines if name == case}
    for i in range(n_logs):
        if i not in done:
            rng = np.random.default_rng([seed, list(CASES).index(case), i])
            done[i] = {name: bool(x) for name, x in CASES[case](rng).items()}
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps([case, i, done[i]]) + "\n")
    return {name: float(np.mean([done[i][name] for i in range(n_logs)])) for name in done[0]}


if __name__ == "__main__":
    print(f"| log | interval of | {' | '.join(WHAT)} |\n|---|---|---:|---:|---:|")
    for case in CASES:
        found = coverage(case, kept=Path(sys.argv[1]) if len(sys.argv) > 1 else None)
        shares = [f"{100 * x:.1f}%" for x in found.values()]
        for i, name in enumerate(found):
            if ":" not in name:  # a check values the plan alone
                print(f"| {case} | {name} | {shares[i]} | | |", flush=True)
            elif i % len(WHAT) == 0:
                row = " | ".join(shares[i : i + len(WHAT)])
                print(f"| {case} | {name.split(':')[0]} | {row} |", flush=True)
