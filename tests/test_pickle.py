"""What is data survives `pickle` and `copy.deepcopy`: a computation with the copy is the same."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import upriver as up
from tests.gate import cases
from upriver.agents.table import NAMES_BY_CLASS

COPIES = {"pickle": lambda x: pickle.loads(pickle.dumps(x)), "deepcopy": copy.deepcopy}


def leaves(value: Any) -> list[bytes]:
    """Return the bytes of every array and number in a tree of tuples and lists."""
    if isinstance(value, tuple | list):
        return [x for part in value for x in leaves(part)]
    if isinstance(value, np.ndarray | float | int):
        return [np.asarray(value).tobytes()]
    return []


@cache
def problem() -> up.FiniteMDP:
    return cases.draw_problem(7, units=True, named=True, missing=True, by_next=True, terminal=True)


@cache
def stream() -> up.FiniteMDP:
    return cases.draw_problem(7, units=True, named=True, discount=0.9)


def agent_of(name: str, features: str = "shared", mdp: up.FiniteMDP | None = None) -> Any:
    return cases.build(name, mdp or problem(), features, "local", False)


def play(agent: Any) -> Any:
    run = up.simulate(problem(), agent, 4, seed=1)
    return run.returns, run.values, run.plan.v, run.state


def play_stream(agent: Any) -> Any:
    run = up.simulate(stream(), agent, n_steps=30, seed=1)
    return run.returns, run.values, run.plan.v, run.state


@cache
def run_of(name: str = "UCRLMNLSE") -> Any:
    return up.simulate(problem(), agent_of(name), 5, seed=2)


def resume(checkpoint: Any) -> Any:
    run = up.simulate(problem(), agent_of("UCRLMNLSE"), 4, resume=checkpoint)
    return run.returns, run.values, run.state


def draw_counts(phi: up.Features) -> Any:
    return np.arange(phi.task.n_triples) % 5.0


def fit(features: str) -> Any:
    phi = cases.make_features(features, problem().task("local"))
    return up.fit_mnl(phi, draw_counts(phi), 1.0)


def use_fitted(fitted: Any) -> Any:
    return fitted.theta, fitted.standard_errors, fitted.aic, fitted.to_mdp().probability


def use_features(phi: up.Features) -> Any:
    fitted = up.fit_mnl(phi, draw_counts(phi), 1.0)
    return fitted.theta, fitted.standard_errors


def use_task(task: up.Task) -> Any:
    return use_features(cases.make_features("shared", task)), task.available, task.sizes


def use_mdp(mdp: up.FiniteMDP) -> Any:
    plan = up.solve(mdp)
    return plan.policy, plan.v, up.evaluate(mdp, plan)


def use_plan(plan: Any) -> Any:
    of = up.evaluate(problem(), plan)
    return plan.policy, plan.v, of, up.simulate(problem(), plan, 4, seed=1).returns


def use_policy(policy: Any) -> Any:
    return up.evaluate(problem(), policy), up.rollouts(problem(), policy, 5, seed=2).rewards


def use_run(run: Any) -> Any:
    state = getattr(run.state.model, "theta", run.state)
    return run.returns, run.regret, state, use_policy(run.policy), run.plan.q(1)


def use_model(model: Any) -> Any:
    value = up.policy_value(model.at(start="weir"), np.zeros(cases.STATES, int))
    plan = up.plan_from_model(model.at(start="weir"), "cautious")
    return model.fitted.theta, value.value, value.standard_error, value.low, plan.v, plan.policy


def use_clinic(model: Any) -> Any:
    at = model.at(age=0.5, horizon=3, reward=cases.clinic_reward)
    value = up.policy_value(at.at(start="ill"), "behaviour")
    return model.fitted.theta, model.fitted.standard_errors, value.value, value.low


def fit_choices() -> Any:
    rng = np.random.default_rng(1)
    chosen = np.tile([True, False, False], 60)
    return up.fit_choices(rng.normal(size=(180, 2)), chosen, np.repeat(np.arange(60), 3), 0.1)


def use_choices(fitted: Any) -> Any:
    return fitted.theta, fitted.standard_errors, fitted.with_errors("robust").standard_errors


def fit_rewards() -> Any:
    rng = np.random.default_rng(3)
    log = {
        "state": [cases.STATE_NAMES[i] for i in rng.integers(cases.STATES, size=200)],
        "action": [cases.ACTION_NAMES[i] for i in rng.integers(cases.CHOICES, size=200)],
    }
    return up.fit_rewards("0 + C(action)", log, cases.logged_problem(), 0.9)


def use_rewards(model: Any) -> Any:
    return model.theta, np.asarray(model.bse), model.llf, model.summary().encode()


def log_value() -> Any:
    return up.policy_value(cases.log_model("shared").at(start="weir"), np.zeros(cases.STATES, int))


@cache
def decide() -> Any:
    model = cases.clinic_model("clusters")
    return up.decide(model.at(age=0.5, reward=cases.clinic_reward, horizon=4, start="ill"))


@cache
def learned() -> Any:
    cells = list(range(5))
    task = up.Task.from_successors(
        cells, ["back", "on"], lambda s, a: {s, min(s + 1, 4), max(s - 1, 0)}, 6,
        lambda s, a: s / 5 - 0.1 * (a == "on"),
    )  # fmt: skip

    class Line:
        def reset(self, seed: int | None = None) -> Any:
            self.cell = 0
            return 0, {}

        def step(self, action: str) -> Any:
            reward = self.cell / 5 - 0.1 * (action == "on")
            self.cell = min(self.cell + 1, 4) if action == "on" else max(self.cell - 1, 0)
            return self.cell, reward, False, False, {}

    return up.learn(Line(), up.agents.PSRL(task), 5, seed=1)


def use_value(value: Any) -> Any:
    return value.value, value.standard_error, value.low, value.high


DATA: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "Task": (lambda: problem().task("local"), use_task),
    "Task of a stream": (lambda: stream().task(), lambda t: play_stream(up.agents.PSRL(t))),
    "FiniteMDP": (problem, use_mdp),
    "FiniteMDP of a stream": (stream, lambda mdp: up.solve(mdp).v),
    **{
        f"Features {name}": (
            lambda name=name: cases.make_features(name, problem().task("local")), use_features,
        )
        for name in ("one-hot", "shared", "pooled 0.7", "pooled")
    },
    "Plan": (lambda: up.solve(problem()), use_plan),
    "Plan, soft": (lambda: up.solve(problem(), temperature=3.0), use_plan),
    "StationaryPlan": (
        lambda: up.solve(stream()), lambda p: (p.policy, p.v, up.evaluate(stream(), p).v),
    ),
    "Policy": (lambda: run_of().policy, use_policy),
    "Run": (run_of, use_run),
    "Run of UCBVI": (lambda: run_of("UCBVI"), use_run),
    "Checkpoint": (lambda: run_of().checkpoint, resume),
    "Rollouts": (
        lambda: up.rollouts(problem(), up.solve(problem()), 5, seed=1),
        lambda x: (x.states, x.actions, x.rewards),
    ),
    **{
        f"FittedMNL {name}": (lambda name=name: fit(name), use_fitted)
        for name in ("one-hot", "shared", "pooled 0.7")
    },
    "FittedMNL of choices": (fit_choices, use_choices),
    **{
        f"TransitionModel {name}": (lambda name=name: cases.log_model(name), use_model)
        for name in ("shared", "weights")
    },
    "TransitionModel of a formula": (lambda: cases.clinic_model("clusters"), use_clinic),
    "RewardModel": (fit_rewards, use_rewards),
    "PolicyValue": (log_value, use_value),
    "check_policy_value": (
        lambda: up.check_policy_value(cases.episodes_model(), np.zeros(cases.STATES, int)),
        lambda checks: [row["value"] for row in checks.rows],
    ),
    "Decision": (decide, lambda x: (use_value(x.value), use_value(x.gain), use_clinic(x.model))),
    "LearningRun": (learned, lambda run: (run.returns, run.lengths, run.plan.v, run.state)),
    "Radius": (
        lambda: up.radii.scaled_radius(1e-3),
        lambda r: play(up.agents.UCRLMNL(agent_of("UCRLMNL").task,
                                         agent_of("UCRLMNL").features, radius=r)),
    ),
    **{
        f"agent {name}": (lambda name=name: agent_of(name), play)
        for name in NAMES_BY_CLASS if name != "UCMNLK"
    },
    **{
        f"agent {name} pooled": (lambda name=name: agent_of(name, "pooled 0.7"), play)
        for name in cases.POOLED
    },
    **{
        f"agent {name} of a stream": (
            lambda name=name: agent_of(name, "shared", stream()), play_stream,
        )
        for name in cases.INFINITE_HORIZON
    },
}  # fmt: skip
"""What is copied, and what is computed with it."""


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", DATA)
def test_a_copy_gives_the_same(name: str, how: str) -> None:
    make, use = DATA[name]
    original = make()
    expected = leaves(use(original))
    assert expected
    assert leaves(use(COPIES[how](original))) == expected
    assert leaves(use(original)) == expected


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", ["Features shared", "Features pooled 0.7", "agent UCRLMNL"])
def test_a_copy_shares_no_arrays_with_the_original(name: str, how: str) -> None:
    """Computing with one does not change what the other gives, in any order."""
    make, use = DATA[name]
    original = make()
    other = COPIES[how](original)
    first, second = leaves(use(other)), leaves(use(original))
    assert first == second == leaves(use(other))
