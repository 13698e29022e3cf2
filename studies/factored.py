"""Factored problems: planning and learning where states cannot be listed.

python -m studies factored [--out DIR] [--runs N]

The instances of SysAdmin and of the game of life are those of the international planning
competition of 2011; their graphs are read from the package rddlrepository when the study runs.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np

import upriver as up
from studies.factored_problems import joint_inventory, maintenance, switches
from upriver.mdp.writing import write_file
from upriver.results.plots import save_figure
from upriver.results.tables import to_csv, to_markdown

INSTANCES = tuple(str(i) for i in range(1, 11))
LISTED = ("1", "2")
"""Instances with 1,024 states, whose optimum is exact."""
RING_SIZES = (10, 20, 50)
LEARNING_EPISODES = 5


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


def format_value(value: Any) -> str:
    """Return a mean with the half-width of its 95% interval."""
    return f"{value.mean:.1f} ± {1.96 * value.standard_error:.1f}"


def planning(n_runs: int) -> list[list[Any]]:
    """Return a row per instance: nothing, the heuristic, rollouts, their difference, the time."""
    rows = []
    for number in INSTANCES:
        net = read_sysadmin(number)
        n_episodes = n_runs * {10: 14, 20: 7}.get(net.n_components, 2)  # large ones take long
        policy, heuristic = up.rollout_policy(net, base="nothing"), most_dependants(net)
        up.evaluate(net, policy, 1, seed=0)  # compiles
        began = time.process_time()
        rollouts = up.evaluate(net, policy, n_episodes, seed=0)
        spent = (time.process_time() - began) / (n_episodes * episode_steps(net))
        nothing = up.evaluate(net, "nothing", n_episodes, seed=0)
        rule = up.evaluate(net, heuristic, n_episodes, seed=0)
        best = ""
        if number in LISTED:
            mdp = net.to_finite()
            best = f"{up.solve(mdp).v[0, -1]:.3f}"
        gain = rollouts - rule
        rows.append([
            number, net.n_components, best, *map(format_value, (nothing, rule, rollouts, gain)),
            f"{1e3 * spent:.2f}",
        ])  # fmt: skip
        print("planning", *rows[-1], flush=True)
    return rows


def episode_steps(net: up.FactoredMDP) -> int:
    return int(net.horizon or 0)


def learning(n_runs: int) -> tuple[list[list[Any]], dict[str, Any]]:
    """Return the table of returns by episode and learner, and the curves."""
    rows, curves = [], {}
    nets = {"SysAdmin 3": read_sysadmin("3")}
    nets |= {f"{n} machines": random_network(n) for n in RING_SIZES}
    for name, net in nets.items():
        runs = n_runs if net.n_components < 50 else max(n_runs // 3, 2)
        known = up.evaluate(net, up.rollout_policy(net, base="nothing"), 4 * runs, seed=10_000)
        rows.append([name, "known model", format_value(known), *[""] * (LEARNING_EPISODES - 1)])
        panel = {"known model": np.full((1, LEARNING_EPISODES), known.mean)}
        for label, kind in (
            ("draws", up.agents.FactoredPSRL),
            ("greedy", up.agents.FactoredGreedy),
        ):
            agent = kind(net.task(), base="nothing")
            returns = np.array([
                up.simulate(net, agent, n_episodes=LEARNING_EPISODES, seed=seed).returns
                for seed in range(runs)
            ])  # fmt: skip
            panel[label] = returns
            mean, error = returns.mean(axis=0), returns.std(axis=0, ddof=1) / np.sqrt(runs)
            cells = [f"{m:.0f} ± {1.96 * e:.0f}" for m, e in zip(mean, error, strict=True)]
            rows.append([name, label, *cells])
            print("learning", *rows[-1], flush=True)
        curves[name] = panel
    return rows, curves


def press_first(x, h):
    """Press the first switch that is off: the base policy that knows where the goal is."""
    for i in range(x.shape[0]):
        if x[i] == 0:
            return i + 1
    return 0


def far_goal() -> list[list[Any]]:
    """Return how rollouts do on rows of switches, whose reward is far away, by base policy."""
    rows = []
    for n in (1, 2, 3, 4, 5):
        net = switches(n)
        best = float(up.solve(net.to_finite()).v[0, 0])
        values = [
            up.evaluate(net, up.rollout_policy(net, base=base), 400, seed=0)
            for base in (None, press_first)
        ]
        rows.append([n, f"{best:.2f}", *map(format_value, values)])
    return rows


def others(n_episodes: int) -> list[list[Any]]:
    """Return the values on the other problems: best constant action and rollouts."""
    from upriver.planning.rollouts import RolloutPolicy

    ring = np.roll(np.eye(20), 1, axis=1) + np.roll(np.eye(20), 2, axis=1)
    nets = [
        maintenance(ring), joint_inventory((1.0,) * 5 + (2.0,) * 5), read_game_of_life("1"),
        read_game_of_life("4"),
    ]  # fmt: skip
    rows = []
    for net in nets:
        policy = up.rollout_policy(net)
        base = RolloutPolicy(net, 0, base=net.action_names[policy.constant])
        values = [up.evaluate(net, each, n_episodes, seed=0) for each in (base, policy)]
        gain = values[1] - values[0]
        states = f"{np.prod(net.n_values.astype(float)):.1g}"
        rows.append([net.name, states, *map(format_value, (*values, gain))])
        print("others", *rows[-1], flush=True)
    return rows


def draw_curves(curves: dict[str, Any]) -> Any:
    """Return a figure of the return of each episode of learning, a panel for each problem."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(curves), figsize=(2.6 * len(curves), 2.8), layout="constrained"
    )
    colours = {"known model": "#767676", "draws": "#D55E00", "greedy": "#0072B2"}
    for ax, (name, panel) in zip(axes, curves.items(), strict=True):
        for label, returns in panel.items():
            episodes, mean = np.arange(1, returns.shape[1] + 1), returns.mean(axis=0)
            ax.plot(episodes, mean, color=colours[label], label=label, lw=1.6)
            if len(returns) > 1:
                reach = 1.96 * returns.std(axis=0, ddof=1) / np.sqrt(len(returns))
                ax.fill_between(
                    episodes, mean - reach, mean + reach, color=colours[label], alpha=0.2, lw=0
                )
        ax.set_title(name, fontsize=9)
        ax.set_xlabel("episode")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("return")
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def study(folder: Path, n_runs: int) -> str:
    """Write the tables and the figure into the folder, and return the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    learned, curves = learning(n_runs)
    head = ["", "learner", *(f"episode {k}" for k in range(1, LEARNING_EPISODES + 1))]
    tables = {
        "planning": [
            ["instance", "machines", "optimum", "nothing", "most dependants", "rollouts",
             "rollouts - most dependants", "ms a step"],
            *planning(n_runs),
        ],
        "learning": [head, *learned],
        "far-goal": [
            ["switches", "optimum", "base: best action", "base: press first"], *far_goal()
        ],
        "others": [
            ["problem", "states", "best action", "rollouts", "difference"], *others(2 * n_runs)
        ],
    }  # fmt: skip
    for name, rows in tables.items():
        write_file(folder / f"{name}.csv", to_csv(rows[0], rows[1:]))
        write_file(folder / f"{name}.md", to_markdown([[str(x) for x in row] for row in rows]))
    save_figure(draw_curves(curves), folder / "learning")
    return "\n\n".join(f"{name}\n\n{(folder / f'{name}.md').read_text()}" for name in tables)
