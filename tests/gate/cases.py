"""The cases of the numerical gate: what the library computes on small problems, by name.

`CASES` maps a name to a function without arguments that returns arrays and numbers by name. They
cover every agent and every family of compiled loops, through public functions where there are
some. Rewards, terminal values and features are drawn, so that no two actions are equally good.

`perturbed` changes these inputs by a relative error of about 1e-13, as much as another order of
sums does. A case whose results then differ says nothing about a rewritten loop, because rounding
decides it; `python -m tests.gate.test_gate` raises an error for such a case.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import cache, partial
from typing import Any

import numpy as np
from scipy import sparse

import upriver as up
from tests.building import fit_features
from tests.mnl.clustered import fit_clusters
from upriver import kernels
from upriver.agents.table import NAMES_BY_CLASS
from upriver.agents.ucbvi import theory_bernstein, theory_hoeffding
from upriver.agents.ucrl2 import original_l1
from upriver.mnl import likelihood, pooled
from upriver.mnl.online import mirror_radius, newton_radius
from upriver.mnl.radii import Evidence

Outputs = dict[str, Any]

HORIZON, STATES, CHOICES = 4, 6, 3
STATE_NAMES = ["mouth", "reed", "ford", "weir", "pool", "spring"]
ACTION_NAMES = ["drift", "row", "sail"]
LOW, HIGH = -43.0, 118.0
ENTRIES = 24
"""Of a long vector of coefficients or probabilities the gate keeps about as many entries."""

_errors: tuple[float, int] | None = None


@contextmanager
def perturbed(relative_error: float, seed: int) -> Iterator[None]:
    """Draw all problems and features with errors of this size."""
    global _errors
    _errors = relative_error, seed
    forget()
    try:
        yield
    finally:
        _errors = None
        forget()


def forget() -> None:
    """Forget the models that several cases share."""
    for function in (transition_log, log_model, clinic_log, clinic_model):
        function.cache_clear()


def with_errors(x: Any) -> Any:
    """Return x with the relative errors of `perturbed`."""
    if _errors is None:
        return x
    size, seed = _errors
    return np.asarray(x) * (1.0 + np.random.default_rng(seed).uniform(-size, size, np.shape(x)))


def some_of(x: Any) -> Any:
    """Return about ENTRIES entries of an array, evenly spaced."""
    flat = np.asarray(x, float).ravel()
    return flat[:: max(len(flat) // ENTRIES, 1)]


# ------------------------------------------------------------------------------------------------
# Problems and features
# ------------------------------------------------------------------------------------------------


def draw_problem(
    seed: int,
    horizon: int | None = HORIZON,
    discount: float | None = None,
    units: bool = False,
    named: bool = False,
    missing: bool = False,
    by_step: bool = False,
    by_next: bool = False,
    transitions_by_step: bool = False,
    terminal: bool = False,
) -> up.FiniteMDP:
    """Draw an MDP; from every state each action may lead to the next one, so all are reached.

    The local support of a pair (s, a) is that of all actions in s. discount: an infinite horizon;
    1 is the average reward.
    """
    rng = np.random.default_rng(seed)
    steps = HORIZON if transitions_by_step else 1
    p = np.zeros((steps, STATES, CHOICES, STATES))
    for s in range(STATES):
        for a in range(CHOICES):
            others = rng.choice(STATES, int(rng.integers(1, 4)), replace=False)
            reached = np.union1d(others, [(s + 1) % STATES])
            p[:, s, a, reached] = rng.dirichlet(np.ones(len(reached)), steps)
    shape = (*((HORIZON,) if by_step else ()), STATES, CHOICES, *((STATES,) if by_next else ()))
    reward = with_errors(rng.random(shape) ** 3)
    start = rng.dirichlet(np.ones(STATES))
    last = with_errors(40.0 * rng.random(STATES) - 15.0)
    gone = rng.random((STATES, CHOICES)) < 0.4
    gone[:, 0] = False
    if units:
        reward = LOW + (HIGH - LOW) * reward
    if missing:
        p[:, gone] = 0.0
        reward = np.where(gone[..., None] if by_next else gone, 0.0, reward)
    more: dict[str, Any] = {}
    if named:
        more |= {"states": STATE_NAMES, "actions": ACTION_NAMES}
    if terminal:
        more["terminal"] = last if units else (last + 15.0) / 40.0
    if units:
        more["reward_range"] = (LOW, HIGH)
    reached = [np.flatnonzero(p[:, s].any(axis=(0, 1))) for s in range(STATES)]
    exists = p.any(axis=(0, 3))
    rows = [reached[s] if exists[s, a] else [] for s in range(STATES) for a in range(CHOICES)]
    local = np.cumsum([0, *map(len, rows)]), np.concatenate(rows).astype(int)
    mdp = up.FiniteMDP.from_arrays(
        p if transitions_by_step else p[0], reward, horizon, start, local=local, **more
    )
    return mdp if discount is None else mdp.infinite_horizon(None if discount == 1.0 else discount)


def make_features(name: str, task: up.Task) -> up.Features:
    """Return one-hot features, four smooth dense ones ("shared"), or these pooled."""
    if name == "one-hot":
        return up.features.one_hot(task)
    s, a = np.divmod(np.repeat(np.arange(len(task.sizes)), task.sizes), task.n_actions)
    t = np.asarray(task.successors)
    columns = [1.0 + 3 * t + a, 2.0 * t - s + 5 * a, 0.7 * s * t + a, 1.3 * t * (a + 1)]
    phi = up.Features(task, with_errors(np.sin(np.stack(columns, axis=1))))
    word, _, spread = name.partition(" ")
    if word == "pooled":
        return up.features.pooled(phi, float(spread) if spread else "estimate")
    return phi


# ------------------------------------------------------------------------------------------------
# Every agent
# ------------------------------------------------------------------------------------------------

EVERYTHING = {
    "transitions_by_step": True, "by_step": True, "by_next": True, "units": True, "named": True,
    "missing": True, "terminal": True,
}  # fmt: skip

KINDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "plain": ({}, "one-hot", "known"),
    "everything": (EVERYTHING, "shared", "known"),
    "unknown-reward": ({"units": True}, "one-hot", "local"),
    "unknown-next-state-reward": ({"by_next": True, "missing": True}, "shared", "full"),
    "parameters": ({"terminal": True, "by_next": True}, "shared", "local"),
    "pooled": ({"units": True, "terminal": True}, "pooled 0.7", "known"),
    "pooled-estimated": ({"by_step": True}, "pooled", "local"),
}
"""Kinds of problems: arguments of `draw_problem`, features and support.

With "parameters" an agent has one theta where its default is one for each step, and conversely.
"""

FIXED = ("Always", "Optimal", "Random")
POOLED = ("EpsilonGreedy", "PSRLMNL", "UCRLMNL", "UCRLMNLLL", "UCRLMNLLR", "UCRLMNLSE")
INFINITE_HORIZON = (
    "Always", "EpsilonGreedy", "Optimal", "PSRL", "PSRLMNL", "Random", "UCMNLK", "UCRL2",
    "UCRLMNLSE",
)  # fmt: skip
STREAMS: dict[str, tuple[dict[str, Any], str, str]] = {
    "discounted": ({"discount": 0.9, "units": True, "by_next": True}, "shared", "full"),
    "average": ({"discount": 1.0, "missing": True, "named": True}, "one-hot", "known"),
}

SETTINGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gradient": ("UCRLMNL", "everything", {"optimism": up.optimism.gradient, "radius": 0.02}),
    "half-range": ("UCRLMNL", "plain", {"optimism": up.optimism.half_range, "radius": 0.1}),
    "exact-maximum": (
        "UCRLMNL", "parameters", {"optimism": up.optimism.exact_maximum, "radius": 0.1},
    ),
    "gradient-pooled": ("UCRLMNL", "pooled", {"optimism": up.optimism.gradient, "radius": 0.1}),
    "exact-maximum-pooled": (
        "UCRLMNL", "pooled", {"optimism": up.optimism.exact_maximum, "radius": 0.1},
    ),
    "scaled-radius": ("UCRLMNL", "everything", {"radius": up.radii.scaled_radius(1e-3)}),
    "exact": ("UCRLMNLLL", "everything", {"exact": True, "radius": 0.05}),
    "newton-radius": ("UCRLMNLLL", "plain", {"radius": newton_radius(0.05, 2.0)}),
    "hoeffding": ("UCBVI", "everything", {"bonus": theory_hoeffding(10)}),
    "bernstein": ("UCBVIBF", "everything", {"bonus": theory_bernstein(10)}),
    "original-radius": ("UCRL2", "everything", {"radius": original_l1(0.05)}),
    "regressed-reward": ("LSVIUCB", "plain", {"regress_reward": True}),
}  # fmt: skip
"""Settings that use other code than the default: agent, kind of problem, fields."""


def seed_of(name: str) -> int:
    """Return a seed that depends on the name alone."""
    return zlib.crc32(name.encode())


def field_names(agent: str) -> dict[str, Any]:
    return {f.name: f.default for f in fields(getattr(up.agents, agent))}


def build(agent: str, mdp: Any, features: str, support: str, unknown: bool, **given: Any) -> Any:
    """Return an agent by the name of its class; only `Optimal` sees the MDP."""
    taken, task = field_names(agent), mdp.task(support)
    if "mdp" in taken:
        return getattr(up.agents, agent)(mdp)
    if "features" in taken:
        given["features"] = make_features(features, task)
    if unknown:
        task = task.with_unknown_reward()
    return getattr(up.agents, agent)(task=task, **given)


def play(mdp: up.FiniteMDP, agent: Any, length: int, seed: int = 3) -> Outputs:
    """Play `length` episodes, or steps where the horizon is infinite; return what a run holds."""
    if mdp.horizon is None:
        run = up.simulate(mdp, agent, n_steps=length, seed=seed)
    else:
        run = up.simulate(mdp, agent, length, seed=seed)
    found = {
        "returns": some_of(run.returns),
        "values": some_of(run.values),
        "optimal_value": float(run.optimal_values.mean()),
        "policy": run.plan.policy,
        "planned_values": run.plan.v[0],
    }
    theta = getattr(getattr(run.state, "model", run.state), "theta", None)
    return found if theta is None else found | {"theta": some_of(theta)}


def run_kind(kind: str, agent: str, seed: int = 3, **given: Any) -> Outputs:
    arguments, features, support = KINDS[kind]
    mdp = draw_problem(seed_of(kind), **arguments)
    if kind == "parameters":
        given["per_step"] = not field_names(agent)["per_step"]
    return play(mdp, build(agent, mdp, features, support, "unknown" in kind, **given), 10, seed)


def run_stream(kind: str, agent: str, seed: int = 3) -> Outputs:
    arguments, features, support = STREAMS[kind]
    mdp = draw_problem(seed_of(kind), **arguments)
    unknown = kind == "average" and agent in ("UCRL2", "PSRL")
    return play(mdp, build(agent, mdp, features, support, unknown), 150, seed)


def run_linear(agent: str, *given: str) -> Outputs:
    """Play a linear learner with features of (s, a) or of the next state that are drawn."""
    mdp = draw_problem(20, units=True)
    rng = np.random.default_rng(21)
    drawn = {
        "phi": with_errors(rng.standard_normal((STATES * CHOICES, 7))),
        "psi": with_errors(rng.standard_normal((STATES, 4))),
    }
    kept = {name: drawn[name] for name in given}
    made = getattr(up.agents, agent)(task=mdp.task(), regularization=0.1, **kept)
    return play(mdp, made, 10)


def run_large(agent: str, features: str, **given: Any) -> Outputs:
    """Play with every loop divided among threads, as for a problem with many triples."""
    large, kernels.LARGE = kernels.LARGE, 0
    try:
        mdp = draw_problem(22, units=True, by_next=True)
        return play(mdp, build(agent, mdp, features, "local", False, **given), 6)
    finally:
        kernels.LARGE = large


def run_resumed() -> Outputs:
    """Stop a run and go on from its checkpoint."""
    mdp = draw_problem(19, units=True)
    agent = build("UCRLMNLSE", mdp, "one-hot", "known", False)
    first = up.simulate(mdp, agent, 5, seed=6)
    rest = up.simulate(mdp, agent, 5, resume=first.checkpoint)
    return {"first": first.values, "rest": rest.values, "returns": rest.returns}


def run_rollouts() -> Outputs:
    """Play fixed policies, deterministic and randomised, through `rollouts` and `simulate`."""
    mdp = draw_problem(17, units=True, terminal=True, named=True)
    mixture = np.random.default_rng(18).dirichlet(np.ones(CHOICES), STATES)
    done = up.rollouts(mdp, mixture, 12, seed=5)
    found: Outputs = {"states": done.states, "actions": done.actions, "rewards": done.rewards}
    run = up.simulate(mdp, up.solve(mdp), 10, seed=6)
    return found | {"returns": run.returns, "values": run.values}


class Walk:
    """A line of cells: stepping beyond the last one ends the episode and pays."""

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        self.cell, self.rng = 0, np.random.default_rng(seed)
        return np.array([self.cell, -self.cell]), {}

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.rng.random() < 0.7:
            self.cell = max(self.cell + (1 if action == "on" else -1), 0)
        done = self.cell == 4
        reward = 9.0 if done else -1.0 if action == "on" else 0.0
        return np.array([self.cell, -self.cell]), reward, done, False, {}


def learn_walk(agent: str, known: bool) -> Outputs:
    """Learn in a simulator."""
    cells = [(i, -i) for i in range(5)]

    def successors(cell: Any, action: str) -> Any:
        i = cell[0]
        return [cell] if i == 4 else {cell, cells[i + 1 if action == "on" else max(i - 1, 0)]}

    def reward(cell: Any, action: str, following: Any) -> float:
        arrived = cell[0] == 3 and following[0] == 4
        step = -1.0 - 0.01 * cell[0] if action == "on" else 0.001 * cell[0]
        return float(with_errors(9.0 if arrived else 0.0 if cell[0] == 4 else step))

    task = up.Task.from_successors(
        cells, ["back", "on"], successors, 12, reward if known else None,
        **({} if known else {"reward_range": (-1.0, 9.0)}),
    )  # fmt: skip
    given = {"features": up.features.one_hot(task)} if "features" in field_names(agent) else {}
    run = up.learn(Walk(), getattr(up.agents, agent)(task=task, **given), 12, seed=8)
    return {
        "returns": run.returns,
        "lengths": run.lengths,
        "ended": run.ended,
        "planned_values": run.plan.v[0],
    }


# ------------------------------------------------------------------------------------------------
# Exact solutions
# ------------------------------------------------------------------------------------------------


def uniform_policy(mdp: up.FiniteMDP) -> Any:
    mixture = np.where(mdp.task().available, 1.0, 0.0)
    return mixture / mixture.sum(axis=1, keepdims=True)


def solve_finite(**given: Any) -> Outputs:
    mdp = draw_problem(31, **given)
    plan = up.solve(mdp)
    return {
        "policy": plan.policy,
        "values": plan.v,
        "action_values": plan.q(1),
        "of_actions": up.evaluate(mdp, np.zeros(STATES, int)),
        "of_mixture": up.evaluate(mdp, uniform_policy(mdp)),
        "of_plan": up.evaluate(mdp, plan)[0],
    }


def solve_infinite(setting: dict[str, Any], **given: Any) -> Outputs:
    mdp = draw_problem(37, **given)
    tight = {**setting, "tolerance": 1e-10}
    found: Outputs = {}
    for name, plan in (
        ("optimum", up.solve(mdp, **tight)),
        ("actions", up.evaluate(mdp, np.zeros(STATES, int), **tight)),
        ("mixture", up.evaluate(mdp, uniform_policy(mdp), **tight)),
    ):
        if "average" in setting:
            found |= {f"{name}_gain": plan.gain, f"{name}_bias": plan.v - plan.v[0]}
        else:
            found[f"{name}_values"] = plan.v
        if name == "optimum":
            found["policy"] = plan.policy
    return found


def solve_soft(**setting: Any) -> Outputs:
    mdp = draw_problem(38, units=True, missing=True, by_next=True)
    plan = up.solve(mdp, temperature=5.0, **setting)
    return {"probabilities": plan.policy, "values": plan.v}


def solve_environment(name: str) -> Outputs:
    """Solve an environment of the library, which also keeps its numbers."""
    mdp = up.envs.make(name)
    values = up.solve(mdp).v
    return {
        "probability": some_of(mdp.probability),
        "reward": some_of(mdp.reward),
        "values": some_of(values),
        "sums": np.array([np.sum(mdp.probability**2), np.sum(mdp.reward), values.sum()]),
    }


# ------------------------------------------------------------------------------------------------
# Estimation: likelihood, fits, choices
# ------------------------------------------------------------------------------------------------


def draw_counts(phi: up.Features) -> Any:
    rng = np.random.default_rng(43)
    return rng.poisson(rng.choice([0.0, 1.0, 8.0], phi.task.n_triples)).astype(float)


def evaluate_likelihood(features: str) -> Outputs:
    """Return (1), the loss (2) with its gradient and Hessian, and the Gram matrix (5)."""
    phi = make_features(features, draw_problem(39).task("local"))
    theta = np.random.default_rng(40).normal(size=phi.dimension)
    counts = draw_counts(phi)
    hessian = likelihood.hessian(phi, theta, counts, 0.3)
    gram = up.radii.gram_matrix(phi, counts, 0.3)
    dense = [x.toarray() if sparse.issparse(x) else x for x in (hessian, gram)]
    return {
        "probabilities": some_of(likelihood.probabilities(phi, theta)),
        "loss": likelihood.loss(phi, theta, counts, 0.3),
        "gradient": some_of(likelihood.gradient(phi, theta, counts, 0.3)),
        "hessian": some_of(np.diag(dense[0])),
        "gram": some_of(np.diag(dense[1])),
        "sums": np.array([x.sum() for x in dense]),
    }


def describe_fit(fitted: Any) -> Outputs:
    return {
        "theta": some_of(fitted.theta),
        "standard_errors": some_of(fitted.standard_errors),
        "log_likelihood": fitted.log_likelihood,
        "null_log_likelihood": fitted.null_log_likelihood,
        "criteria": np.array([fitted.aic, fitted.bic, fitted.pseudo_r2]),
    }


def fit_counts(features: str, regularization: float) -> Outputs:
    """Fit drawn counts of a task with local support, many of them 0."""
    phi = make_features(features, draw_problem(41).task("local"))
    fitted = up.fit_mnl(phi, draw_counts(phi), regularization)
    found = describe_fit(fitted)
    return found if features != "pooled" else found | {"spread": fitted.features.spread}


def evaluate_evidence() -> Outputs:
    """The log marginal likelihood of pooled features, and variances given the data."""
    phi = make_features("pooled 0.7", draw_problem(42).task("local"))
    counts, effects = draw_counts(phi), np.zeros(phi.dimension)
    evidence = [
        pooled.log_evidence(phi, effects[None], counts[None], 1.0, x) for x in (0.05, 0.3, 2.0)
    ]
    theta = up.fit_mnl(phi, counts, 1.0).theta
    unit = np.eye(1, phi.dimension, 2).ravel()
    return {
        "evidence": np.array(evidence),
        "variances": pooled.shared_variances(phi, theta, counts, 1.0),
        "covariance": some_of(pooled.covariance(phi, theta, counts, 1.0) @ unit),
    }


def fit_choice_data(clustered: bool) -> Outputs:
    rng = np.random.default_rng(61)
    sizes = rng.integers(2, 6, 200)
    groups = np.repeat(np.arange(200), sizes)
    x = with_errors(rng.standard_normal((len(groups), 3)))
    utility = x @ [0.8, -0.5, 0.2] + rng.gumbel(size=len(groups))
    best = np.array([utility[groups == g].max() for g in range(200)])
    given = x, utility == best[groups], groups
    fitted = up.fit_choices(*given, 0.1)
    fitted = fit_clusters(*given, groups // 5, 0.1) if clustered else fitted
    return describe_fit(fitted) | {"robust": fitted.with_errors("robust").standard_errors}


def fit_bus_rewards() -> Outputs:
    """Fit the rewards behind the choices of whoever replaces an engine (dynamic choice)."""
    import pandas as pd

    n, rng = 6, np.random.default_rng(62)
    p = np.zeros((n, 2, n))
    for s in range(n):
        for jump, chance in enumerate((0.3, 0.5, 0.2)):
            p[s, 0, min(s + jump, n - 1)] += chance
            p[s, 1, jump] += chance
    mdp = up.FiniteMDP.from_arrays(p, np.zeros((n, 2)), None, discount=0.9, actions=["go", "new"])
    rows = [
        (s, a, float(a == "new"), s * (a == "go") / 2.0) for s in range(n) for a in ("go", "new")
    ]
    table = pd.DataFrame(rows, columns=["state", "action", "replaced", "mileage"])
    table["mileage"] = with_errors(table["mileage"])
    state = rng.integers(n, size=300)
    action = np.where(rng.random(300) < 0.1 + 0.1 * state, "new", "go")
    log = pd.DataFrame({"state": state, "action": action})
    model = up.fit_rewards("0 + replaced + mileage", log, mdp, 0.9, states=table)
    return {
        "theta": model.theta,
        "standard_errors": np.asarray(model.bse),
        "log_likelihood": model.llf,
    }


# ------------------------------------------------------------------------------------------------
# From a log to a decision
# ------------------------------------------------------------------------------------------------


def logged_problem() -> up.FiniteMDP:
    return draw_problem(41, units=True, named=True, by_next=True)


@cache
def transition_log() -> dict[str, Any]:
    """Return the rows of 120 episodes of a randomised policy, with weights 0 to 3."""
    mixture = np.random.default_rng(42).dirichlet(np.full(CHOICES, 4.0), STATES)
    done = up.rollouts(logged_problem(), mixture, 120, seed=7)
    episode = np.repeat(np.arange(120), HORIZON)
    return {
        "state": [STATE_NAMES[s] for s in done.states[:, :-1].ravel()],
        "action": [ACTION_NAMES[a] for a in done.actions.ravel()],
        "next_state": [STATE_NAMES[s] for s in done.states[:, 1:].ravel()],
        "episode": episode,
        "step": np.tile(np.arange(HORIZON), 120),
        "reward": done.rewards.ravel(),
        "times": (episode % 4).astype(float),
    }


LOG_MODELS: dict[str, tuple[str, float, str | None]] = {
    "shared": ("shared", 0.0, None),
    "weights": ("shared", 0.3, "times"),
    "one-hot": ("one-hot", 1.0, None),
}
"""Models of the log: features, regularization and the column of weights."""


@cache
def log_model(name: str) -> Any:
    features, regularization, weights = LOG_MODELS[name]
    return fit_features(
        make_features(features, logged_problem().task()), transition_log(), weights=weights,
        regularization=regularization,
    )  # fmt: skip


def columns_of(rows: Any, *names: str) -> Any:
    """Return (rows, names) the numbers of a list of dictionaries or of a data frame."""
    if isinstance(rows, list):
        return np.array([[row[name] for name in names] for row in rows], float)
    return np.array(rows[list(names)], float)


def fit_log(name: str) -> Outputs:
    model = log_model(name)
    rows = [row for action in ACTION_NAMES for row in model.transitions("weir", action)]
    return describe_fit(model.fitted) | {
        "transitions": columns_of(rows, "probability", "standard_error", "low", "high"),
    }


def value_policies(name: str, **setting: Any) -> Outputs:
    """Values of policies, whose standard errors come from the gradients of the values."""
    model, found = log_model(name).at(**setting), {}
    start = {"mouth": 0.5, "weir": 0.3, "pool": 0.2}
    actions, mixture = np.arange(STATES) % CHOICES, np.full((STATES, CHOICES), 1.0 / CHOICES)
    values = {
        "actions": up.policy_value(model.at(start=start), actions),
        "mixture": up.policy_value(model.at(start=start), mixture),
        "behaviour": up.policy_value(model.at(start=start), "behaviour"),
        "difference": up.compare_policies(model.at(start=start), actions, "behaviour"),
    }
    for label, value in values.items():
        found[label] = np.array([value.value, value.standard_error])
        found[f"{label}_interval"] = np.array([value.low, value.high])
    return found


def plan_log(name: str, how: str, **setting: Any) -> Outputs:
    plan = up.plan_from_model(log_model(name).at(**setting).at(start="weir"), how)
    if setting.get("discount") == 1.0:
        return {"policy": plan.policy, "gain": plan.gain}
    return {"policy": plan.policy, "values": plan.v}


def episodes_model() -> Any:
    """Return a model that knows the episodes of its log."""
    phi = make_features("shared", logged_problem().task())
    return fit_features(phi, transition_log(), individual="episode", step="step")


def check_log() -> Outputs:
    """Check a value by the episodes of the log."""
    mixture = np.random.default_rng(44).dirichlet(np.ones(CHOICES), STATES)
    checks = up.check_policy_value(episodes_model(), 0.5 * mixture + 0.5 / CHOICES)
    rows = {row["name"].split(",")[0]: row for row in checks.rows}
    return {
        name: columns_of([rows[name]], "value", "standard_error", "low", "high")
        for name in ("fitted model", "weighted importance sampling", "doubly robust")
    }


HEALTH = ["well", "ill", "bad", "dead"]
TREATMENTS = {"well": ["rest"], "ill": ["drug", "rest"], "bad": ["drug", "rest", "surgery"]}
REACHED = {"well": HEALTH[:2], "ill": HEALTH[:3], "bad": HEALTH[1:]}
FORMULA = "worse + better + death + action:better + age:worse"
CLINIC: dict[str, dict[str, Any]] = {
    "plain": {},
    "clusters": {"cluster": "patient"},
    "weights": {"weights": "times", "regularization": 0.5},
}
"""Arguments of the fit of the clinic's log."""


@cache
def clinic_log() -> dict[str, Any]:
    """Return visits of 150 patients, who differ by age and by an effect that no column holds."""
    rng = np.random.default_rng(51)
    names = ("patient", "state", "action", "next_state", "age", "times")
    rows: dict[str, list[Any]] = {name: [] for name in names}
    for i in range(150):
        state, age, frailty = "ill", float(rng.integers(-1, 2)), 0.4 * rng.normal()
        for _ in range(8):
            if state == "dead":
                break
            action = TREATMENTS[state][rng.integers(len(TREATMENTS[state]))]
            jumps = np.array([HEALTH.index(t) - HEALTH.index(state) for t in REACHED[state]])
            help_ = {"rest": -0.3, "drug": 0.7, "surgery": 1.3}[action]
            logits = (jumps > 0) * (-1.0 + 0.4 * age + frailty) + (jumps < 0) * help_
            logits -= 1.5 * np.array([t == "dead" for t in REACHED[state]])
            chance = np.exp(logits) / np.exp(logits).sum()
            following = REACHED[state][rng.choice(len(chance), p=chance)]
            cells = (i, state, action, following, age, 1.0 + i % 3)
            for name, cell in zip(names, cells, strict=True):
                rows[name].append(cell)
            state = following
    return rows


def clinic_moves() -> dict[str, Any]:
    pairs = [(s, t) for s in HEALTH for t in HEALTH]
    jump = [HEALTH.index(t) - HEALTH.index(s) for s, t in pairs]
    return {
        "state": [s for s, _ in pairs],
        "next_state": [t for _, t in pairs],
        "worse": [int(x > 0) for x in jump],
        "better": [int(x < 0) for x in jump],
        "death": [int(t == "dead") for _, t in pairs],
    }


@cache
def clinic_model(name: str) -> Any:
    return up.fit_transitions(FORMULA, clinic_log(), states=clinic_moves(), **CLINIC[name])


def clinic_reward(state: Any, action: Any) -> float:
    of_state = {"well": 30.0, "ill": 10.0, "bad": -5.0, "dead": 0.0}[state]
    return float(with_errors(of_state - 4.0 * (action == "surgery")))


def fit_clinic(name: str) -> Outputs:
    """Fit a formula; plan at one age, value the plan and compare it with what was done."""
    model = clinic_model(name)
    new = {"state": ["ill", "bad"], "action": ["rest", "surgery"], "age": [0.5, -1.0]}
    new |= {"times": [1.0, 1.0]} if name == "weights" else {}
    at = model.at(age=0.5, horizon=6, reward=clinic_reward)
    plan = up.plan_from_model(at.at(start="ill"), "cautious")
    value = up.policy_value(at.at(start="ill"), plan)
    return describe_fit(model.fitted) | {
        "prediction": columns_of(
            model.predict(new), "probability", "standard_error", "low", "high"
        ),
        "policy": plan.policy,
        "plan": np.array([value.value, value.standard_error]),
        "optimum": up.solve(at.at(start="ill").to_mdp()).v,
    }


def compute_clinic_errors(kind: str) -> Outputs:
    model = clinic_model("clusters").with_errors(kind)
    tested = model.wald(["age:worse", "worse"])
    return {
        "standard_errors": model.fitted.standard_errors,
        "wald": np.array([tested.statistic, tested.p_value]),
    }


def describe_clinic() -> Outputs:
    model = clinic_model("plain")
    smaller = up.fit_transitions(
        "worse + better + death + action:better", clinic_log(), states=clinic_moves()
    )
    ratio, fit = model.likelihood_ratio(smaller), model.goodness_of_fit(99)
    return {
        "ratio": np.array([ratio.statistic, ratio.p_value, ratio.degrees]),
        "goodness": np.array([fit.statistic, fit.p_value]),
    }


# ------------------------------------------------------------------------------------------------
# Diagnostics and radii
# ------------------------------------------------------------------------------------------------


def flatten(value: Any, path: str = "") -> Outputs:
    """Return the numbers of nested dictionaries by their path."""
    if isinstance(value, dict):
        return {k: x for key, v in value.items() for k, x in flatten(v, f"{path}{key}.").items()}
    number = isinstance(value, bool | int | float | np.number)
    return {path.rstrip("."): value} if number else {}


def diagnose(environment: str, kind: str, n_states: int) -> Outputs:
    mdp = up.envs.make(environment, n_states=n_states)
    maps = {"one-hot": up.features.one_hot, "shared": up.features.shared}
    found = up.diagnose(mdp, maps[kind](mdp.task()))
    core, bounds = (x and x._asdict() for x in (found.core, found.bounds))
    features, names = found.features, ("dimension", "formal_dimension", "norm_bound")
    shape = {name: getattr(features, name) for name in names} | {"rank": core.pop("rank")}
    shape["best_norm_bound"] = found.recentred.norm_bound
    shape["zero_successor"] = found.recentred is features
    shape["max_successors"] = features.task.max_successors
    core |= {x: round(core[x], 12) for x in ("error", "residual")}  # 0 but for rounding
    return flatten({
        "shape": shape, "core": core | {"norm": found.core.norm, "bound": found.theta_bound},
        "kappa": {"at_core": found.kappa and found.kappa.value, "certified": found.certified},
        "bounds": bounds,
    })  # fmt: skip


def cover(**fields: Any) -> Outputs:
    mdp = up.envs.riverswim(4)
    task = mdp.task()
    phi = up.features.shared(task)
    agent = up.agents.UCRLMNL(task, phi, **fields)
    seen = up.coverage(mdp, phi, agent, n_episodes=8, n_runs=3, seed=2)
    radii = {f"radius_{name}": some_of(radius) for name, radius in seen.radii.items()}
    return radii | {"distance": some_of(seen.distance)}


def evaluate_radii() -> Outputs:
    found: Outputs = {}
    for name, rule in {
        "scaled": up.radii.scaled_radius(0.3),
        "constant": up.radii.constant_radius(0.7),
        "lemma1": up.radii.lemma1_radius(0.05, 2.0),
        "corrected": up.radii.corrected_radius(0.05, 2.0),
        "newton": newton_radius(0.05, 2.0),
        "mirror": mirror_radius(2.0),
    }.items():
        found[name] = np.array(
            [float(rule(Evidence(k, 12, 8, 3, 6, 1.5, 2.0, np.log(k)))) for k in (1, 7, 300)]
        )
    rule = up.radii.theory_regularization(up.features.shared(up.envs.riverswim(6).task("local")))
    found["regularization"] = np.array([float(rule(k)) for k in (1, 10, 1000)])
    return found


# ------------------------------------------------------------------------------------------------
# The table
# ------------------------------------------------------------------------------------------------


def all_cases() -> dict[str, Callable[[], Outputs]]:
    made: dict[str, Callable[[], Outputs]] = {}
    for agent in NAMES_BY_CLASS:
        kinds = ["everything"] if agent in FIXED else ["everything", "unknown-reward"]
        taken = field_names(agent)
        if "features" in taken and agent not in FIXED:
            kinds += ["parameters"] if "per_step" in taken else ["unknown-next-state-reward"]
        if agent in POOLED:
            kinds.append("pooled")
        for kind in kinds if agent != "UCMNLK" else []:
            made[f"{kind}_{agent}"] = partial(run_kind, kind, agent)
    for agent in ("UCRLMNLSE", "UCRLMNL", "PSRLMNL"):
        for kind in ("pooled-estimated", "unknown-next-state-reward"):
            made[f"{kind}_{agent}"] = partial(run_kind, kind, agent)
    for name, (agent, kind, given) in SETTINGS.items():
        made[f"{kind}_{agent}_{name}"] = partial(run_kind, kind, agent, **given)
    for kind in STREAMS:
        for agent in INFINITE_HORIZON:
            made[f"{kind}_{agent}"] = partial(run_stream, kind, agent)
    made["linear_LSVIUCB"] = partial(run_linear, "LSVIUCB", "phi")
    made["linear_LSVIPHE"] = partial(run_linear, "LSVIPHE", "phi")
    made["linear_UCMatrixRL"] = partial(run_linear, "UCMatrixRL", "phi", "psi")
    for agent, features, given in (
        ("UCRLMNLSE", "shared", {}), ("UCRLMNL", "pooled 0.7", {"radius": 0.1}),
        ("UCRLMNL", "one-hot", {"optimism": up.optimism.gradient}), ("UCBVI", "one-hot", {}),
    ):  # fmt: skip
        made[f"threads_{agent}_{features}"] = partial(run_large, agent, features, **given)
    made["resumed"], made["rollouts"] = run_resumed, run_rollouts
    for agent in ("UCRLMNLSE", "UCBVI"):
        made[f"learn_{agent}_known"] = partial(learn_walk, agent, True)
        made[f"learn_{agent}_unknown"] = partial(learn_walk, agent, False)

    made["solve_plain"] = solve_finite
    made["solve_everything"] = partial(solve_finite, **EVERYTHING)
    for name, setting in {
        "discount-0.9": {"discount": 0.9},
        "discount-0.999": {"discount": 0.999},
        "average": {"average": True},
    }.items():
        made[f"solve_{name}"] = partial(
            solve_infinite, setting, units=True, missing=True, by_next=True
        )
    made["solve_soft"] = solve_soft
    made["solve_soft_discounted"] = partial(solve_soft, discount=0.9)
    for name in ("bus-engine", "queue", "random-mnl", "river-grid"):
        made[f"environment_{name}"] = partial(solve_environment, name)

    for features in ("one-hot", "shared", "pooled 0.7"):
        made[f"likelihood_{features}"] = partial(evaluate_likelihood, features)
    for features, regularization in (
        ("one-hot", 1.0), ("shared", 0.01), ("pooled 0.7", 0.5), ("pooled", 1.0),
    ):  # fmt: skip
        made[f"fit_mnl_{features}"] = partial(fit_counts, features, regularization)
    made["evidence"] = evaluate_evidence
    made["fit_choices"] = partial(fit_choice_data, False)
    made["fit_choices_clusters"] = partial(fit_choice_data, True)
    made["fit_rewards"] = fit_bus_rewards

    for name in LOG_MODELS:
        made[f"log_fit_{name}"] = partial(fit_log, name)
    made["log_value_shared"] = partial(value_policies, "shared")
    made["log_plan_cautious_shared"] = partial(plan_log, "shared", "cautious")
    made["log_value_discounted"] = partial(value_policies, "shared", discount=0.9)
    made["log_value_average"] = partial(value_policies, "one-hot", discount=1.0)
    made["log_plan_discounted"] = partial(plan_log, "one-hot", "greedy", discount=0.9)
    made["log_plan_average"] = partial(plan_log, "shared", "cautious", discount=1.0)
    made["log_check"] = check_log
    for name in CLINIC:
        made[f"clinic_{name}"] = partial(fit_clinic, name)
    for kind in ("classical", "robust", "cluster"):
        made[f"clinic_errors_{kind}"] = partial(compute_clinic_errors, kind)
    made["clinic_tests"] = describe_clinic
    made["diagnose_shared"] = partial(diagnose, "riverswim", "shared", 5)
    made["diagnose_one-hot"] = partial(diagnose, "riverswim", "one-hot", 4)
    made["coverage"] = partial(cover, radius=0.05, optimism=up.optimism.gradient)
    made["radii"] = evaluate_radii
    return made


CASES = all_cases()

TOLERANCES: tuple[tuple[str, float, str], ...] = (
    ("*exact-maximum*", 1e-6, "the maximum over an ellipsoid is found by an iterative search"),
    ("*_UCRLMNLLR/*", 1e-6, "the bound of each value is found by an interval search"),
    ("discounted_*", 1e-6, "policy iteration stops within a tolerance"),
    ("average_*", 1e-6, "policy iteration stops within a tolerance"),
    ("solve_discount*", 1e-6, "policy iteration stops within a tolerance"),
    ("solve_average*", 1e-6, "policy iteration stops within a tolerance"),
    ("solve_soft_discounted/*", 1e-6, "Newton's method stops within a tolerance"),
    ("log_value_*/*_interval", 1e-6, "the ends of an interval are found by a search"),
    ("log_plan_*", 1e-6, "the lower bound of the plan is found by a search"),
    ("log_value_discounted/*", 1e-6, "policy iteration stops within a tolerance"),
    ("log_value_average/*", 1e-6, "policy iteration stops within a tolerance"),
    ("fit_mnl_pooled/*", 1e-6, "the spread maximises a marginal likelihood by a search"),
    ("fit_rewards*", 1e-6, "Newton's method stops within a tolerance"),
)
"""(pattern of "case/output", relative tolerance, reason); others are compared to 1e-9."""
