# ruff: noqa: E501  (a table reads best with one line per case)
"""Wrong kinds, shapes and ranges in every public call: `python -m tests.fuzz SEED CALLS`.

Each call has good arguments, of which one is spoiled. It must return, or be refused: the innermost
frame of the traceback is a `raise` of this package, and its error has one line of text. An error
that comes from inside a library, an AttributeError or TypeError of Python itself, or a call of more
than half a minute of processor time is printed and ends the process with 1; a signal ends it by
itself, with the traceback that faulthandler prints.
"""

from __future__ import annotations

import faulthandler
import linecache
import os
import signal
import sys
import tempfile
import traceback
import warnings
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

import upriver as up
from tests.building import build_agent
from tests.reference import random_mdp
from upriver import envs, experiments, features, radii
from upriver.agents.base import Episode
from upriver.agents.table import AGENTS
from upriver.mdp.archive import read_archive, write_archive
from upriver.planning import backward_induction, clip_v

PACKAGE = Path(up.__file__).parent
ALLOWED = (ValueError, TypeError, FileNotFoundError, ImportError, RuntimeError)
SECONDS = 30
POSITIONAL = ("model.at",)
"""Calls whose arguments have no name."""

RIVER = envs.riverswim(4, 5)
TASK = RIVER.task("local")
PHI = features.shared(TASK)
AGENT = up.agents.UCRLMNLSE(TASK, PHI)
OTHER = random_mdp(np.random.default_rng(3), 5, 3, 4)
LONG = envs.riverswim(9, 7)
GAPS = np.random.default_rng(4).dirichlet(np.ones(4), (4, 3))
GAPS[[0, 1, 2, 2], [2, 1, 1, 2]] = 0.0  # all have action 0, for the agent that plays it always
SPARE = up.FiniteMDP.from_arrays(GAPS, np.full((4, 3), 0.5), 5)
"""States lack actions: what they have not must not be played, learned or planned with."""
STREAM = RIVER.infinite_horizon(0.9)
PLAN = up.solve(RIVER)
POLICY = up.Policy.from_plan(PLAN)
RUN = up.simulate(RIVER, AGENT, 3)
LOG = up.rollouts(RIVER, np.full((5, 4, 2), 0.5), 40).to_pandas()
MOVES = {s: [max(s - 1, 0), s, min(s + 1, 3)] for s in range(4)}
REWARD = {0: 0.1, 3: 1.0}
MODEL = up.fit_transitions(
    "next_state", LOG, successors=lambda s, a: sorted(set(MOVES[s])), individual="episode",
    step="step", horizon=5, reward=REWARD,
)  # fmt: skip
FITTED = up.fit_mnl(PHI, np.ones(TASK.n_triples))
SPEC = {
    "name": "small", "episodes": 2, "seeds": {"first": 0, "count": 1},
    "environments": [{"name": "riverswim-4"}], "agents": [{"agent": "ucrl-mnl", "radius": 0.1}],
}  # fmt: skip

ODD: list[Any] = [
    None, True, -1, 0, 2**40, 10**30, 0.5, -0.5, 1e300, 1e-320, np.nan, np.inf, -np.inf, "x", "",
    "next_state", b"x", (), [], {}, set(), object(), [[1], [1, 2]], ["a", "a"], [None], [-1], 1 + 1j,
    np.zeros(0), np.zeros((0, 3)), np.zeros((2, 2)), np.array("x"), np.arange(3) * 1j,
    np.array([None, 1]), np.full((5, 4), 99), np.full((5, 4), -1), np.int64(7), np.float32(2.5),
    np.full((5, 4, 2), np.nan), np.array([2**62]), np.array(["a", "b"]), np.datetime64("2020-01-01"),
    range(3), range(0), RIVER, OTHER, TASK, OTHER.true_task, PHI, AGENT, PLAN, POLICY, RUN,
    RUN.checkpoint, MODEL, FITTED, LOG, LOG[:0], pd.Series([1.0, None]), STREAM,
    up.agents.UCRLMNL, up, lambda *given: 1, lambda: None, lambda s, a, s2: "x",
    Decimal("0.3"), Fraction(1, 3), Path("missing.npz"), np.random.default_rng(0),
    sparse.csr_array(np.eye(3)), {"a": 1}, {0: np.nan}, {"x": [1, 2]}, {(0, 0): {0: 1.0}},
]  # fmt: skip
GENERATORS: list[Any] = [lambda: iter(()), lambda: (i for i in range(3)), lambda: iter("ab")]
WRITABLE = [x for x in ODD if x is None or type(x) in (bool, int, float, str, list, tuple)]


def public_calls(folder: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return {name: (function, good arguments by name)} of the public functions and methods."""
    good = folder / "good.npz"
    POLICY.save(good)
    RIVER.save(folder / "mdp.npz")
    up.save_agent(folder / "agent.npz", RUN)
    experiments.execute(experiments.parse(SPEC), folder / "results", jobs=1)
    frame = RIVER.to_frame()
    table = np.full((3, 2, 3), 1 / 3)
    log = {"formula": "next_state", "frame": LOG, "successors": lambda s, a: sorted({*MOVES[s]})}
    names = {"states": ["a", "b", "c", "d"], "actions": ["l", "r"]}
    functions = {
        "start": 0, "actions": ["l", "r"], "successors": lambda s, a: [s, min(s + 1, 3)][: 1 + (s < 3)],
        "probability": lambda s, a, s2: 1.0 if s == 3 else 0.5, "reward": lambda s, a: 0.5,
        "horizon": 4, "max_states": 100, "terminal": lambda s: 0.0,
    }  # fmt: skip
    calls: dict[str, tuple[Any, dict[str, Any]]] = {
        "simulate": (up.simulate, {"mdp": RIVER, "agent": AGENT, "n_episodes": 2, "seed": 0, "resume": None, "n_steps": None, "restart": 0.0}),
        "simulate a stream": (up.simulate, {"mdp": STREAM, "agent": up.agents.UCRL2(STREAM.task()), "n_steps": 5, "seed": 0, "restart": 0.1}),
        "learn": (up.learn, {"env": envs.to_gymnasium(RIVER), "agent": AGENT, "n_episodes": 2, "seed": 0, "state_of": None, "end": None, "resume": None}),
        "rollouts": (up.rollouts, {"mdp": RIVER, "policy": PLAN, "n_episodes": 2, "seed": 0}),
        "solve": (up.solve, {"mdp": RIVER}),
        "solve discounted": (up.solve, {"mdp": STREAM, "discount": 0.9, "average": False, "temperature": None, "tolerance": 1e-6}),
        "solve soft": (up.solve, {"mdp": RIVER, "discount": 0.9, "temperature": 1.0, "tolerance": 1e-6}),
        "evaluate": (up.evaluate, {"mdp": RIVER, "policy": PLAN.policy}),
        "evaluate discounted": (up.evaluate, {"mdp": RIVER, "policy": PLAN.policy[0], "discount": 0.9, "average": False, "tolerance": 1e-6}),
        "diagnose": (up.diagnose, {"mdp": RIVER, "features": features.shared(RIVER.task()), "n_episodes": 10, "delta": 0.1, "theta_bound": 3.0}),
        "coverage": (up.coverage, {"mdp": RIVER, "features": features.shared(RIVER.task()), "agent": None, "radii": None, "n_episodes": 2, "n_runs": 1, "delta": 0.1, "seed": 0}),
        "load_policy": (up.load_policy, {"path": good}),
        "load_agent": (up.load_agent, {"path": folder / "agent.npz", "agent": AGENT}),
        "save_agent": (up.save_agent, {"path": folder / "saved.npz", "run": RUN}),
        "load_runs": (up.load_runs, {"folder": folder / "results", "timing": False}),
        "fit_mnl": (up.fit_mnl, {"features": PHI, "counts": np.ones(TASK.n_triples), "regularization": 1.0}),
        "fit_choices": (up.fit_choices, {"X": np.array([[0.0], [1.0], [0.5], [2.0]]), "chosen": [1, 0, 0, 1], "groups": [0, 0, 1, 1], "regularization": 0.1, "names": ["x"]}),
        "fit_transitions": (up.fit_transitions, log | {"states": None, "columns": ("state", "action", "next_state"), "cluster": "episode", "weights": None, "regularization": 0.1, "missing": "refuse"}),
        "plan_from_model": (up.plan_from_model, {"model": MODEL, "how": "cautious", "confidence": 0.9}),
        "policy_value": (up.policy_value, {"model": MODEL, "policy": "behaviour", "confidence": 0.9}),
        "compare_policies": (up.compare_policies, {"model": MODEL, "new": PLAN.policy, "old": "behaviour", "confidence": 0.9}),
        "check_policy_value": (up.check_policy_value, {"model": MODEL, "policy": PLAN.policy, "confidence": 0.9}),
        "decide": (up.decide, {"model": MODEL, "plan": "greedy", "by": None, "confidence": 0.9}),
        "model.at": (MODEL.at, {"values": {}}),
        "model.conf_int": (MODEL.conf_int, {"alpha": 0.1}),
        "model.summary": (MODEL.summary, {"limit": 5}),
        "model.goodness_of_fit": (MODEL.goodness_of_fit, {"replicates": 9, "seed": 0}),
        "model.predict": (MODEL.predict, {"frame": LOG, "confidence": 0.9}),
        "model.wald": (MODEL.wald, {"names": ["next_state"]}),
        "model.with_errors": (MODEL.with_errors, {"kind": "classical"}),
        "model.likelihood_ratio": (MODEL.likelihood_ratio, {"smaller": MODEL}),
        "model.transitions": (MODEL.transitions, {"state": 1, "action": 0, "confidence": 0.9, "step": 0}),
        "fitted.conf_int": (FITTED.conf_int, {"alpha": 0.1}),
        "fitted.summary": (FITTED.summary, {"limit": 5}),
        "fitted.transitions": (FITTED.transitions, {"state": 1, "action": "left", "confidence": 0.9}),
        "fitted.to_mdp": (FITTED.to_mdp, {"reward": None, "horizon": 5, "start": 0}),
        "fitted.with_errors": (FITTED.with_errors, {"kind": "classical"}),
        "mdp.task": (RIVER.task, {"support": "local"}),
        "mdp.infinite_horizon": (RIVER.infinite_horizon, {"discount": 0.9}),
        "mdp.save": (RIVER.save, {"path": folder / "again.npz"}),
        "FiniteMDP.load": (up.FiniteMDP.load, {"path": folder / "mdp.npz"}),
        "task.rows": (TASK.rows, {"state": 0, "action": 1}),
        "task.same_support": (TASK.same_support, {"other": TASK}),
        "policy.act": (POLICY.act, {"state": 1, "h": 2, "rng": None}),
        "policy.on": (POLICY.on, {"task": TASK}),
        "Policy": (up.Policy, {"actions": PLAN.policy, "n_actions": 2, "state_names": names["states"], "action_names": names["actions"], "stationary": False}),
        "Policy.from_plan": (up.Policy.from_plan, {"plan": PLAN, "task": TASK}),
        "plan.q": (PLAN.q, {"h": 1}),
        "Features": (up.Features, {"task": TASK, "matrix": PHI.matrix, "names": list(PHI.names), "formal_dimension": 0, "spread": 0.0}),
        "Task": (up.Task, {f.name: getattr(OTHER.true_task, f.name) for f in fields(up.Task)}),
        "FiniteMDP": (up.FiniteMDP, {f.name: getattr(OTHER, f.name) for f in fields(up.FiniteMDP)}),
        "from_arrays": (up.FiniteMDP.from_arrays, {"transition": table, "reward": np.full((3, 2), 0.5), "horizon": 4, "initial_state": 0, "states": ["a", "b", "c"], "actions": ["l", "r"], "local": None, "terminal": None, "reward_range": None, "discount": None, "name": "x"}),
        "from_arrays of sparse": (up.FiniteMDP.from_arrays, {"transition": sparse.csr_array(table.reshape(6, 3)), "reward": np.full((3, 2), 0.5), "horizon": 4, "initial_state": 0}),
        "from_functions": (up.FiniteMDP.from_functions, functions),
        "from_frame": (up.FiniteMDP.from_frame, {"frame": frame, "horizon": 4, "initial_state": 0, "columns": tuple(frame.columns), "missing": "refuse"}),
        "from_successors": (up.Task.from_successors, {"states": range(4)} | {k: x for k, x in functions.items() if k in ("actions", "successors", "horizon", "reward", "terminal")} | {"reward_range": None, "discount": None}),
        "from_gymnasium": (envs.from_gymnasium, {"env": "FrozenLake-v1", "horizon": 5, "initial_state": 0}),
        "to_gymnasium": (envs.to_gymnasium, {"mdp": RIVER}),
        "envs.make": (envs.make, {"name": "riverswim-4"}),
        "bus_engine": (envs.bus_engine, {"n_bins": 4, "horizon": 3, "replacement": 2.0}),
        "deep_sea": (envs.deep_sea, {"size": 3}),
        "queue": (envs.queue, {"buffer": 3, "horizon": 4}),
        "random_mnl": (envs.random_mnl, {"n_states": 4, "n_actions": 2, "dimension": 2, "max_successors": 2, "seed": 0, "theta_norm": 1.0, "horizon": 3, "distance": 0.0}),
        "river_grid": (envs.river_grid, {"length": 3, "width": 2, "horizon": 3}),
        "riverswim": (envs.riverswim, {"n_states": 4, "horizon": 3, "variant": "paper"}),
        "features.from_function": (features.from_function, {"task": TASK, "function": lambda s, a, s2: [1.0, 0.0], "names": ["a", "b"]}),
        "features.pooled": (features.pooled, {"shared": PHI, "spread": 1.0}),
        "features.recentre": (features.recentre, {"features": PHI}),
        "parse": (experiments.parse, {"data": SPEC}),
        "load": (experiments.load, {"name": "quick"}),
        "check": (experiments.check, {"folder": folder / "results"}),
        "execute": (experiments.execute, {"experiment": experiments.parse(SPEC), "out": folder / "results", "jobs": 1, "run_timeout": None}),
    }  # fmt: skip
    for name, entry in envs.ENVIRONMENTS.items():
        calls[f"features of {name}"] = entry.shared, {"task": entry.make().task()}
    for name in ("one_hot", "shared", "changes", "automatic", "one_hot_indicator", "unpooled"):
        make = getattr(features, name)
        calls[f"features.{name}"] = make, {next(iter(signature(make).parameters)): TASK}
    for name in ("lemma1_radius", "corrected_radius"):
        calls[name] = getattr(radii, name), {"kappa": 0.1, "theta_bound": 1.0, "delta": 0.1}
    calls["scaled_radius"] = radii.scaled_radius, {"scale": 1.0}
    calls["constant_radius"] = radii.constant_radius, {"beta": 1.0}
    for name, kind in AGENTS.items():
        made = build_agent(kind, RIVER)
        calls[f"agent {name}"] = (
            kind,
            {f.name: getattr(made, f.name) for f in fields(kind) if f.init},
        )
    return calls


class Fuzzer:
    """Good arguments made once, and ways to spoil them."""

    def __init__(self, rng: np.random.Generator, folder: Path) -> None:
        self.rng, self.folder = rng, folder
        self.calls = public_calls(folder)
        self.played: list[tuple[Any, Any, Any]] = []
        for mdp in (RIVER, OTHER, SPARE):
            for kind in AGENTS.values():
                for task in (mdp.true_task, mdp.true_task.with_unknown_reward()):
                    agent = build_agent(kind, mdp, task)
                    self.played.append((mdp, agent, up.simulate(mdp, agent, 2)))
        self.special = [getattr(self, name) for name in dir(self) if name.startswith("call_")]

    def draw(self) -> tuple[str, Any, tuple[Any, ...], dict[str, Any]]:
        """Return the name of a call, the function, and its arguments, of which one is spoiled."""
        if self.rng.random() < 0.4:
            make = self.one(self.special)
            function, given = make()
            return make.__name__, function, tuple(given), {}
        name = self.one(list(self.calls))
        function, good = self.calls[name]
        spoiled = self.one(list(good))
        changed = good | {spoiled: self.spoil(good[spoiled])}
        if name in POSITIONAL:
            return f"{name}({spoiled})", function, tuple(changed.values()), {}
        return f"{name}({spoiled})", function, (), changed

    def one(self, things: Any) -> Any:
        return things[int(self.rng.integers(len(things)))]

    def other(self) -> Any:
        """Return something of another kind altogether."""
        return self.one(GENERATORS)() if self.rng.random() < 0.05 else self.one(ODD)

    def array(self, good: Any) -> Any:
        """Return an array that is nearly the good one."""
        x = np.array(good, copy=True)
        how = int(self.rng.integers(9))
        if how == 0 and x.size:
            wrong = [np.nan, np.inf, -1.0, 1e300] if x.dtype.kind == "f" else [-1, 126, -2]
            if x.dtype.kind in "fiu":
                x.flat[int(self.rng.integers(x.size))] = x.dtype.type(self.one(wrong))
        elif how == 1:
            x = x[..., :-1]
        elif how == 2:
            x = np.concatenate([x, x], axis=-1) if x.ndim else x[None]
        elif how == 3:
            x = x.astype(self.one([np.float32, np.int8, np.uint64, complex, object, str]))
        elif how == 4:
            x = x[None]
        elif how == 5:
            x = np.asfortranarray(x)[..., ::-1]
        elif how == 6:
            x = x[:0]
        elif how == 7:
            x = x.T
        else:
            return self.other()
        return x

    def spoil(self, value: Any) -> Any:
        """Return the same tree with one leaf changed, or another thing altogether."""
        if self.rng.random() < 0.1:
            return self.other()
        if isinstance(value, tuple) and len(value):
            i = int(self.rng.integers(len(value)))
            parts = [*value[:i], self.spoil(value[i]), *value[i + 1 :]]
            return type(value)._make(parts) if hasattr(value, "_make") else tuple(parts)
        if isinstance(value, dict) and len(value):
            key = self.one(list(value))
            return value | {key: self.spoil(value[key])}
        if isinstance(value, list) and value:
            i = int(self.rng.integers(len(value)))
            return [*value[:i], self.spoil(value[i]), *value[i + 1 :]]
        return self.array(value) if isinstance(value, np.ndarray) else self.other()

    def spoiled(self, *given: Any) -> list[Any]:
        """Return the arguments with one of them spoiled."""
        i = int(self.rng.integers(len(given)))
        return [*given[:i], self.spoil(given[i]), *given[i + 1 :]]

    def episode(self, mdp: Any) -> Episode:
        played = up.rollouts(mdp, mdp.true_task.available.argmax(axis=1), 1)
        return Episode(played.states[0], played.actions[0], played.rewards[0])

    def call_plan(self):
        _, agent, run = self.one(self.played)
        state, rng = self.spoiled(run.state, np.random.default_rng(0))
        return agent.plan, (state, rng)

    def call_plan_with_a_strange_state(self):
        _, agent, _ = self.one(self.played)
        return agent.plan, (self.one(self.played)[2].state, np.random.default_rng(0))

    def call_update(self):
        mdp, agent, run = self.one(self.played)
        return agent.update, self.spoiled(run.state, run.plan, self.episode(mdp))

    def call_update_from_elsewhere(self):
        _, agent, run = self.one(self.played)
        mdp, _, other = self.one(self.played)
        if self.rng.random() < 0.5:
            return agent.update, (run.state, other.plan, self.episode(LONG))
        return agent.update, (other.state, run.plan, self.episode(mdp))

    def call_simulate(self):
        mdp, agent, run = self.one(self.played)
        return up.simulate, self.spoiled(mdp, agent, 2, None, run.checkpoint)

    def call_resume_elsewhere(self):
        mdp, agent, _ = self.one(self.played)
        return up.simulate, (mdp, agent, 2, None, self.one(self.played)[2].checkpoint)

    def call_load_agent(self):
        _, agent, run = self.one(self.played)
        path = self.folder / "agent.npz"
        up.save_agent(path, self.one(self.played)[2] if self.rng.random() < 0.3 else run)
        use = partial(go_on, agent)
        return self.crafted(path, "agent", *read_archive(path, "agent"), use)

    def call_load_policy(self):
        path = self.folder / "policy.npz"
        up.Policy.from_plan(up.solve(RIVER)).save(path)
        return self.crafted(path, "policy", *read_archive(path, "policy"), load_and_use)

    def call_load_mdp(self):
        path = self.folder / "mdp.npz"
        self.one([OTHER, SPARE]).save(path)
        return self.crafted(path, "mdp", *read_archive(path, "mdp"), load_and_solve)

    def crafted(self, path, kind, body, arrays, use):
        """A file with a digest that is right, and something else that is not."""
        if arrays and self.rng.random() < 0.6:
            name = self.one(sorted(arrays))
            spoiled = self.array(arrays[name])
            fits = isinstance(spoiled, np.ndarray) and not spoiled.dtype.hasobject
            arrays[name] = spoiled if fits else np.zeros(3)
        else:
            node, key = self.one(list(leaves(body)))
            node[key] = self.one(WRITABLE)
        write_archive(path, kind, body, arrays)
        return use, (path,)

    def call_feature_matrix(self):
        task = OTHER.true_task
        matrix = self.rng.standard_normal((task.n_triples, 3))
        if self.rng.random() < 0.3:
            matrix = sparse.csr_array(matrix)
            spoiled = self.array(matrix.indices)
            if isinstance(spoiled, np.ndarray) and spoiled.shape == matrix.indices.shape:
                matrix.indices = spoiled
        return up.Features, self.spoiled(task, matrix)

    def call_update_with_an_action_that_is_not_there(self):
        _, agent, run = self.one([x for x in self.played if x[0] is SPARE])
        episode = self.episode(SPARE)
        actions = self.rng.integers(-1, 4, size=len(episode.actions))
        return agent.update, (run.state, run.plan, episode._replace(actions=actions))

    def call_play_an_action_that_is_not_there(self):
        policy = self.rng.integers(-1, 4, size=(5, 4))
        return self.one([(up.evaluate, (SPARE, policy)), (up.rollouts, (SPARE, policy, 2))])

    def call_evaluate_another_plan(self):
        plan = self.one(self.played)[2].plan
        return self.one([(up.evaluate, (RIVER, plan)), (up.rollouts, (RIVER, plan, 2))])

    def call_induction(self):
        mdp = self.one([RIVER, SPARE])
        task = mdp.true_task
        groups = len(task.sizes)
        prob, reward, bonus, scale = self.spoiled(
            mdp.probability.copy(),
            task.reward_rows,
            np.zeros((1, groups)),
            np.zeros(task.horizon),
        )
        return backward_induction, (task, prob, reward, bonus, scale, clip_v(task), np.uint64(1))


def leaves(tree):
    """(container, key) of everything in a JSON tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield tree, key
        if isinstance(value, dict | list):
            yield from leaves(value)


def go_on(agent, path):
    checkpoint = up.load_agent(path, agent)
    task = agent.task
    mdp = OTHER if task.n_states == 5 else SPARE if task.n_actions == 3 else RIVER
    return up.simulate(mdp, agent, 2, resume=checkpoint)


def load_and_use(path):
    return up.rollouts(RIVER, up.load_policy(path), 3)


def load_and_solve(path):
    return up.solve(up.FiniteMDP.load(path))


def judge(error: BaseException) -> str:
    """Return what is wrong with an error in words; the empty string where it is one of ours."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(frame.filename, frame.lineno or 0).strip()
    if (
        Path(frame.filename) == Path(__file__) and frame.name != "main"
    ):  # a function that the user gave
        return ""
    if not isinstance(error, ALLOWED) or isinstance(error, RecursionError | NotImplementedError):
        return "the type"
    if PACKAGE not in Path(frame.filename).parents or not line.startswith("raise"):
        return "raised elsewhere"
    return "" if str(error) and "\n" not in str(error) else "the text"


def show(value: Any) -> str:
    """Return the text of a value; a spoiled one may have none."""
    try:
        return repr(value)
    except Exception as error:
        return f"{type(value).__name__} ({error})"


def stop(*_: Any) -> None:
    raise TimeoutError(f"the call takes more than {SECONDS} seconds")


def main(seed: int, calls: int) -> int:
    faulthandler.enable()
    signal.signal(signal.SIGPROF, stop)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    wrong: set[str] = set()
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # some paths are relative
        fuzzer = Fuzzer(np.random.default_rng(seed), Path(folder))
        for i in range(calls):
            name, function, given, by_name = fuzzer.draw()
            (Path(folder) / "call").write_text(f"{i} {name}")
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                function(*given, **by_name)
            except BaseException as error:
                refused += 1
                if fault := judge(error):
                    frames = traceback.extract_tb(error.__traceback__)[-3:]
                    at = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames[::-1])
                    odd = by_name.get(name[name.find("(") + 1 : -1], given)
                    text = f"{fault}: {type(error).__name__}: {error!s:.150}  [{show(odd):.100}]"
                    if f"{name} {at}" not in wrong:
                        wrong.add(f"{name} {at}")
                        print(f"{name} {at}: {' '.join(text.split())}", flush=True)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
    print(f"{calls} calls, {refused} refused, {len(wrong)} places without a sentence of ours")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
