"""A clinic whose transition model is known: words, an absorbing state, differing actions."""

import numpy as np

STATES = ["well", "ill", "bad", "dead"]
ACTIONS = {"well": ["rest"], "ill": ["drug", "rest"], "bad": ["drug", "rest", "surgery"]}
REACH = {"well": ["well", "ill"], "ill": ["well", "ill", "bad"], "bad": ["ill", "bad", "dead"]}
TRUTH = {
    "worse": -1.0,
    "better": 0.7,
    "death": -1.5,
    "action[T.rest]:better": -1.0,
    "action[T.surgery]:better": 0.6,
    "age:worse": 0.4,
}
FORMULA = "worse + better + death + action:better + age:worse"


def moves():
    """A table of moves: is it worse, better, death?"""
    pairs = [(s, t) for s in STATES for t in STATES]
    jump = [STATES.index(t) - STATES.index(s) for s, t in pairs]
    return {
        "state": [s for s, _ in pairs],
        "next_state": [t for _, t in pairs],
        "worse": [int(x > 0) for x in jump],
        "better": [int(x < 0) for x in jump],
        "death": [int(t == "dead") for _, t in pairs],
    }


def chances(state, action, age, frailty=0.0):
    """P(next state) over REACH[state]; age in decades over 60."""
    here = STATES.index(state)
    logits = []
    for following in REACH[state]:
        jump = STATES.index(following) - here
        x = (jump > 0) * (TRUTH["worse"] + TRUTH["age:worse"] * age + frailty)
        effect = TRUTH.get(f"action[T.{action}]:better", 0.0)
        x += (jump < 0) * (TRUTH["better"] + effect) + (following == "dead") * TRUTH["death"]
        logits.append(x)
    p = np.exp(logits)
    return p / p.sum()


def visits(rng, n_patients, n_steps=10, frail=0.0, ages=(-1.0, 0.0, 1.0)):
    """A frame of patients followed until they die; frail: sd of an unseen effect of the patient."""
    rows = {"patient": [], "state": [], "action": [], "next_state": [], "age": []}
    for i in range(n_patients):
        state, age, frailty = "ill", float(rng.choice(ages)), frail * rng.normal()
        for _ in range(n_steps):
            if state == "dead":
                break
            action = ACTIONS[state][rng.integers(len(ACTIONS[state]))]
            p = chances(state, action, age, frailty)
            following = REACH[state][int(rng.choice(len(p), p=p))]
            for name, value in zip(rows, (i, state, action, following, age), strict=True):
                rows[name].append(value)
            state = following
    return rows
