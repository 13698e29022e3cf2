"""Factored problems: planning and learning where states cannot be listed.

python -m studies factored [--out DIR] [--runs N]

The instances of SysAdmin and of the game of life are those of the international planning
competition of 2011; their graphs are read from the package rddlrepository when the study runs.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

import upriver as up
from studies.factored_problems import joint_inventory, maintenance, switches
from upriver.mdp.writing import write_file
from upriver.results.plots import (
    DASHES,
    Band,
    draw_bands,
    figure_style,
    make_axes,
    save_figure,
)
from upriver.results.styles import assign_styles
from upriver.results.tables import to_csv, to_markdown

INSTANCES = tuple(str(i) for i in range(1, 11))
RING_SIZES = (10, 20, 50)
LEARNING_EPISODES, SWITCH_EPISODES = 4, 40
LEARNERS = {"draws": up.agents.FactoredPSRL, "greedy": up.agents.FactoredGreedy}


def read_instance(problem: str, number: str) -> str:
    """Return the text of an instance of the package rddlrepository."""
    from rddlrepository.core.manager import RDDLRepoManager  # pyright: ignore[reportMissingImports]

    path = RDDLRepoManager().get_problem(problem).get_instance(number)
    return Path(path).read_text(encoding="utf-8")


def read_sysadmin(number: str) -> up.FactoredMDP:
    """Return an instance of SysAdmin; machine c1 is number 0."""
    text = read_instance("SysAdmin_MDP_ippc2011", number)
    machines = re.findall(r"c\d+", find(r"computer : {(.*?)}", text))
    graph = np.zeros((len(machines), len(machines)))
    for a, b in re.findall(r"CONNECTED\(c(\d+),c(\d+)\)", text):
        graph[int(a) - 1, int(b) - 1] = 1
    return up.envs.sysadmin(graph, float(find(r"REBOOT-PROB = ([\d.]+)", text)))


def read_game_of_life(number: str) -> up.FactoredMDP:
    """Return an instance of the game of life."""
    text = read_instance("GameOfLife_MDP_ippc2011", number)
    shape = tuple(len(find(rf"{axis}_pos : {{(.*?)}}", text).split(",")) for axis in "xy")
    start, noise = np.zeros(shape), np.full(shape, 0.1)
    for x, y, value in re.findall(r"NOISE-PROB\(x(\d+),y(\d+)\) = ([\d.]+)", text):
        noise[int(x) - 1, int(y) - 1] = float(value)
    for x, y in re.findall(r"alive\(x(\d+),y(\d+)\)", text):
        start[int(x) - 1, int(y) - 1] = 1
    return up.envs.game_of_life(start, noise)


def find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, pattern
    return found[1]


def most_dependants(net: up.FactoredMDP) -> Any:
    """Return the heuristic that reboots the machine that is down and has most dependants."""
    n = net.n_components
    alone = np.ones((n, n), int) - np.eye(n, dtype=int)
    # a machine with an influence changes the kind of another one when it goes down
    up_kinds = net.kinds([np.ones(n)], [0])[0]
    influences = (net.kinds(alone, np.zeros(n)) != up_kinds) & (alone == 1)
    dependants = influences.sum(axis=1)

    def heuristic(x, h):
        best, most = 0, -1
        for i in range(x.shape[0]):
            if x[i] == 0 and dependants[i] > most:
                best, most = i + 1, dependants[i]
        return best

    return heuristic


def random_network(n: int, seed: int = 0) -> up.FactoredMDP:
    """Return SysAdmin on a drawn graph: each machine influences two others."""
    rng, graph = np.random.default_rng(seed), np.zeros((n, n))
    for i in range(n):
        graph[i, rng.choice(np.delete(np.arange(n), i), 2, replace=False)] = 1
    return up.envs.sysadmin(graph, 0.02)


def measure(folder: Path, name: str, function: Any, *arguments: Any) -> dict[str, Any]:
    """Return what a function finds, as arrays; from the folder where an earlier run has kept it."""
    path = folder / "cells" / f"{name}.json"
    if not path.exists():
        began = time.process_time()
        found = {key: np.asarray(value).tolist() for key, value in function(*arguments).items()}
        found["cpu_seconds"] = round(time.process_time() - began, 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(found))
        print(name, found["cpu_seconds"], "seconds", flush=True)
    return {key: np.array(value) for key, value in json.loads(path.read_text()).items()}


def format_mean(returns: Any, digits: int = 1) -> str:
    """Return the mean of the last axis but one with the half-width of its 95% interval."""
    reach = 1.96 * returns.std(ddof=1) / np.sqrt(len(returns))
    return f"{returns.mean():.{digits}f} ± {reach:.{digits}f}"


def compare_policies(net: up.FactoredMDP, n_episodes: int) -> dict[str, Any]:
    """Return the returns of policies on common random numbers, and the CPU time of a rollout."""
    found: dict[str, Any] = {}
    if net.n_components == 10:  # it can be listed
        mdp = net.to_finite()
        plan = up.solve(mdp)
        found["optimum"] = plan.v[0, number_start(mdp)]
        optimal = follow_table(np.ascontiguousarray(plan.policy))
        found["optimal"] = up.evaluate(net, optimal, n_episodes, seed=0).returns
    policy = up.rollout_policy(net, base="nothing")
    up.evaluate(net, policy, 1, seed=0)  # compiles
    began = time.process_time()
    found["rollouts"] = up.evaluate(net, policy, n_episodes, seed=0).returns
    spent = time.process_time() - began
    found["milliseconds"] = 1e3 * spent / (n_episodes * count_steps(net))
    for label, rule in (("nothing", "nothing"), ("heuristic", most_dependants(net))):
        found[label] = up.evaluate(net, rule, n_episodes, seed=0).returns
    return found


def number_start(mdp: up.FiniteMDP) -> int:
    """Return the number of the state in which episodes begin."""
    return int(mdp.initial_states[0])


def follow_table(table: Any) -> Any:
    """Return the policy of a table (H, S) of actions, for states of components of two values."""

    def policy(x, h):
        s = 0
        for i in range(x.shape[0]):
            s = 2 * s + x[i]
        return table[h, s]

    return policy


def count_steps(net: up.FactoredMDP) -> int:
    return int(net.horizon or 0)


def planning(folder: Path, n_runs: int) -> list[list[Any]]:
    """Return a row per instance: the optimum, policies, differences, the time of a step."""
    rows = []
    for number in INSTANCES:
        net = read_sysadmin(number)
        n_episodes = max({10: 40, 20: 6}.get(net.n_components, 2) * n_runs // 3, 4)
        found = measure(
            folder, f"planning-{number}-{n_episodes}", compare_policies, net, n_episodes
        )
        rollouts, listed = found["rollouts"], "optimum" in found
        rows.append([
            number, net.n_components, n_episodes,
            *(format_mean(found[x]) for x in ("nothing", "heuristic", "rollouts")),
            format_mean(rollouts - found["heuristic"]),
            f"{found['optimum']:.3f}" if listed else "",
            format_mean(rollouts - found["optimal"], 2) if listed else "",
            f"{found['milliseconds']:.2f}",
        ])  # fmt: skip
    return rows


def learn_often(net: up.FactoredMDP, agent: Any, n_episodes: int, n_runs: int) -> dict[str, Any]:
    """Return the returns (runs, episodes) of a learner."""
    runs = (up.simulate(net, agent, n_episodes, seed=seed) for seed in range(n_runs))
    return {"returns": [run.returns for run in runs]}


def compare_times(net: up.FactoredMDP) -> dict[str, Any]:
    """Return the CPU seconds of episodes with the known model and of learning, in turn."""
    task, seconds = net.task(), {"known model": [], "draws": []}
    known, learner = (
        KnownModel(task, base="nothing", net=net),
        LEARNERS["draws"](task, base="nothing"),
    )
    for seed in range(5):
        for label, agent in (("known model", known), ("draws", learner)):
            began = time.process_time()
            up.simulate(net, agent, 3, seed=seed)
            seconds[label].append((time.process_time() - began) / 3)
    return {label: np.median(each[1:]) for label, each in seconds.items()}  # the first compiles


@dataclass(frozen=True)
class KnownModel(up.agents.FactoredGreedy):
    """Plans with the truth; runs of one seed meet the same random numbers as those of learners."""

    net: Any = None

    def make_policy(self, theta: Any, rng: np.random.Generator) -> Any:
        seed = int(rng.integers(2**63))
        return up.rollout_policy(self.net, self.scenarios, self.depth, self.base, seed=seed)


def learning(folder: Path, n_runs: int) -> tuple[list[list[Any]], dict[str, Any]]:
    """Return the table of returns by episode and learner, and the curves."""
    rows, curves = [], {}
    nets = {"SysAdmin 3": read_sysadmin("3")}
    nets |= {f"{n} machines": random_network(n) for n in RING_SIZES}
    for name, net in nets.items():
        runs = n_runs if net.n_components < 50 else max(n_runs // 3, 2)
        agents = {"known model": KnownModel(net.task(), base="nothing", net=net)}
        agents |= {label: kind(net.task(), base="nothing") for label, kind in LEARNERS.items()}
        cells = {}
        for label, agent in agents.items():
            cell = f"learning-{name}-{label}-{runs}".replace(" ", "-").lower()
            steps = net, agent, LEARNING_EPISODES, runs
            cells[label] = measure(folder, cell, learn_often, *steps)
        known = cells["known model"]
        for label, found in cells.items():
            means = [format_mean(returns, 0) for returns in found["returns"].T]
            rows.append([name, label, *means])
        for label in LEARNERS:
            difference = cells[label]["returns"] - known["returns"]
            means = [format_mean(x, 0) for x in difference.T]
            rows.append([name, f"{label} - known model", *means])
        curves[name] = {label: found["returns"] for label, found in cells.items()}
    return rows, curves


def explore(kind: Any, n_runs: int) -> dict[str, Any]:
    """Return the returns of a learner on four switches, and the exact values of its policies."""
    net = switches(4)
    mdp, values, returns = net.to_finite(), [], []
    states, number = mdp.true_task.states or (), number_start(mdp)
    for seed in range(n_runs):
        agent = kind(net.task(), base=press_first, depth=12, regularization=0.25)
        run = up.simulate(net, agent, SWITCH_EPISODES, seed=seed)
        steps = range(count_steps(net))
        table = np.array([[run.greedy_policy.act(x, h) for x in states] for h in steps])
        values.append(up.evaluate(mdp, table)[0, number])
        returns.append(run.returns)
    best = up.solve(mdp).v[0, number]
    return {"returns": returns, "values": values, "optimum": best}


def exploration(folder: Path, n_runs: int) -> tuple[list[list[Any]], dict[str, Any]]:
    """Return how many runs on four switches end at the optimum, and the curves of their returns."""
    rows, panel = [], {}
    for label, kind in LEARNERS.items():
        found = measure(folder, f"exploration-{label}-{n_runs}", explore, kind, n_runs)
        solved = int((found["values"] > 0.99 * found["optimum"]).sum())
        rows.append([label, f"{solved} of {n_runs}", f"{found['values'].mean():.2f}"])
        panel["known model"] = found["optimum"]
        panel[label] = found["returns"]
    return rows, panel


def press_first(x, h):
    """Press the first switch that is off: the base policy that knows where the goal is."""
    for i in range(x.shape[0]):
        if x[i] == 0:
            return i + 1
    return 0


def compare_bases(net: up.FactoredMDP) -> dict[str, Any]:
    """Return the optimum, and the returns of rollouts with two base policies."""
    mdp = net.to_finite()
    optimum = up.solve(mdp).v[0, number_start(mdp)]
    bases = {"constant": None, "press_first": press_first}
    return {"optimum": optimum} | {
        label: up.evaluate(net, up.rollout_policy(net, base=base), 400, seed=0).returns
        for label, base in bases.items()
    }


def far_goal(folder: Path) -> list[list[Any]]:
    """Return how rollouts do on rows of switches, whose reward is far away, by base policy."""
    rows = []
    for n in range(1, 6):
        found = measure(folder, f"far-goal-{n}", compare_bases, switches(n))
        means = [format_mean(found[label]) for label in ("constant", "press_first")]
        rows.append([n, f"{found['optimum']:.2f}", *means])
    return rows


def compare_with_constant(net: up.FactoredMDP, n_episodes: int) -> dict[str, Any]:
    """Return the returns of the best constant action and of rollouts that continue with it."""
    policy = up.rollout_policy(net)
    base = net.action_names[policy.constant]
    return {
        label: up.evaluate(net, each, n_episodes, seed=0).returns
        for label, each in (("constant", base), ("rollouts", policy))
    }


def others(folder: Path, n_episodes: int) -> list[list[Any]]:
    """Return the values on the other problems: best constant action and rollouts."""
    ring = np.roll(np.eye(20), 1, axis=1) + np.roll(np.eye(20), 2, axis=1)
    nets = {
        "maintenance": maintenance(ring),
        "joint inventory": joint_inventory((1.0,) * 5 + (2.0,) * 5),
        "game of life 1": read_game_of_life("1"), "game of life 4": read_game_of_life("4"),
    }  # fmt: skip
    rows = []
    for name, net in nets.items():
        cell = f"others-{name.replace(' ', '-')}-{n_episodes}"
        found = measure(folder, cell, compare_with_constant, net, n_episodes)
        gain = found["rollouts"] - found["constant"]
        states = f"{np.prod(net.n_values.astype(float)):.1g}"
        values = found["constant"], found["rollouts"], gain
        rows.append([name, net.n_components, states, *map(format_mean, values)])
    return rows


def fit_base(net: up.FactoredMDP, policy: Any, n_episodes: int) -> Any:
    """Return the linear policy that predicts the decisions of another one best.

    The score of an action is linear in the values of the components, one-hot, and the likelihood is
    that of a multinomial logit with a ridge of 1.
    """
    episodes = up.simulate(net, policy, n_episodes, seed=20_000).episodes
    states = np.concatenate([e.states[:-1] for e in episodes])
    taken = np.concatenate([e.actions for e in episodes])
    ones = np.concatenate(
        [np.ones((len(states), 1)), *np.eye(net.n_values.max())[states].swapaxes(0, 1)], axis=1
    )
    shape = ones.shape[1], net.n_actions

    def loss(flat: Any) -> Any:
        weights = flat.reshape(shape)
        scores = ones @ weights
        gradient = ones.T @ (softmax(scores, axis=1) - np.eye(net.n_actions)[taken]) + weights
        total: Any = logsumexp(scores, axis=1)
        fit = total.sum() - scores[np.arange(len(taken)), taken].sum()
        return fit + 0.5 * (weights**2).sum(), gradient.ravel()

    found = minimize(
        loss, np.zeros(np.prod(shape)), jac=True, method="L-BFGS-B", options={"maxiter": 100}
    )
    table, m = found.x.reshape(shape), int(net.n_values.max())

    def base(x, h):
        best, most = 0, -np.inf
        for a in range(table.shape[1]):
            score = table[0, a]
            for i in range(x.shape[0]):
                score += table[1 + i * m + x[i], a]
            if score > most:
                best, most = a, score
        return best

    return base


def compare_stages(net: up.FactoredMDP, n_episodes: int) -> dict[str, Any]:
    """Return the returns and CPU milliseconds of rollouts with a fitted base and without."""
    first = up.rollout_policy(net, base="nothing")
    base = fit_base(net, first, 50)
    policies = {
        "first": first, "base": base, "second": up.rollout_policy(net, base=base),
        "heuristic": up.rollout_policy(net, base=most_dependants(net)),
    }  # fmt: skip
    found: dict[str, Any] = {}
    for label, policy in policies.items():
        up.evaluate(net, policy, 1, seed=0)  # compiles
        began = time.process_time()
        found[label] = up.evaluate(net, policy, n_episodes, seed=0).returns
        spent = 1e3 * (time.process_time() - began) / (n_episodes * count_steps(net))
        found[f"{label}_milliseconds"] = spent
    return found


def second_stage(folder: Path, n_runs: int) -> list[list[Any]]:
    """Return what a base policy that is fitted to the decisions of rollouts adds to them."""
    rows = []
    for number in ("3",):
        net = read_sysadmin(number)
        n_episodes = max(2 * n_runs, 4)
        found = measure(
            folder, f"second-stage-{number}-{n_episodes}", compare_stages, net, n_episodes
        )
        gains = (format_mean(found[x] - found["first"]) for x in ("second", "heuristic"))
        times = (f"{found[f'{x}_milliseconds']:.2f}" for x in ("first", "second", "heuristic"))
        rows.append([number, *(format_mean(found[x]) for x in ("first", "base")), *gains, *times])
    return rows


def draw_curves(curves: dict[str, Any]) -> Any:
    """Return a figure of the return of each episode of learning, a panel for each problem."""
    look = assign_styles(["optimal", *LEARNERS])
    form: Any = {"color": look["optimal"].light, "linestyle": DASHES[look["optimal"].dash]}
    with figure_style():
        figure, every = make_axes(len(curves), "two")
        for axes, (title, panel) in zip(every, curves.items(), strict=True):
            bands = {}
            for label in LEARNERS:
                returns = panel[label]
                mean, n = returns.mean(axis=0), len(returns)
                reach = 1.96 * returns.std(axis=0, ddof=1) / np.sqrt(n)
                number = np.arange(1, returns.shape[1] + 1)
                bands[label] = Band(number, mean, mean - reach, mean + reach)
            lines = draw_bands(axes, bands, look, markers=len(number) <= LEARNING_EPISODES)
            lines["known model"] = axes.axhline(panel["known model"].mean(), **form)
            axes.set(title=title, xlabel="episode", ylabel="return")
            axes.set_xticks([1, *number[9::10]] if len(number) > LEARNING_EPISODES else number)
        figure.legend(lines.values(), lines, loc="outside lower center", ncols=3)
    return figure


def study(folder: Path, n_runs: int) -> str:
    """Write the tables and the figure into the folder, and return the tables.

    What a cell found is kept in the folder, and a run that was interrupted goes on from there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    learned, curves = learning(folder, n_runs)
    explored, curves["4 switches"] = exploration(folder, max(2 * n_runs // 3, 2))
    del curves["SysAdmin 3"]
    times = measure(folder, "times", compare_times, random_network(50))
    tables = {
        "planning": [
            ["instance", "machines", "episodes", "nothing", "most dependants", "rollouts",
             "rollouts - most dependants", "optimum", "rollouts - optimal policy", "ms a step"],
            *planning(folder, n_runs),
        ],
        "learning": [
            ["problem", "learner", *(f"episode {k + 1}" for k in range(LEARNING_EPISODES))],
            *learned,
        ],
        "times": [
            ["50 machines", "CPU seconds an episode"],
            *([label, f"{times[label]:.2f}"] for label in ("known model", "draws")),
        ],
        "exploration": [["learner", "at the optimum", "mean value"], *explored],
        "far-goal": [
            ["switches", "optimum", "base: best action", "base: press first"], *far_goal(folder)
        ],
        "others": [
            ["problem", "components", "states", "best action", "rollouts", "difference"],
            *others(folder, n_runs),
        ],
        "second-stage": [
            ["instance", "rollouts", "fitted base alone", "gain of the fitted base",
             "gain of most dependants as base", "ms", "ms, fitted", "ms, most dependants"],
            *second_stage(folder, n_runs),
        ],
    }  # fmt: skip
    for name, rows in tables.items():
        write_file(folder / f"{name}.csv", to_csv(rows[0], rows[1:]))
        write_file(folder / f"{name}.md", to_markdown([[str(x) for x in row] for row in rows]))
    save_figure(draw_curves(curves), folder / "learning")
    return "\n\n".join(f"{name}\n\n{(folder / f'{name}.md').read_text()}" for name in tables)
