"""What must be declared of an environment, and what it buys: episodes until the policy is good.

Each environment is a black box with `reset` and `step`, played with nothing declared, with rewards
declared, and with rewards and successors declared, by `up.learn`; beside UCRL2 and PSRL, which are
given states and successors, and Q-learning with an optimistic start, which is given nothing. All
have their default settings. The policy that a user would take away, without exploration, is
evaluated exactly on the table of the environment. It is good once it is, three times in a row, at
most 5% of the optimum below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import upriver as up
from studies.problems import PROBLEMS
from upriver.envs.named import build_mdp
from upriver.mdp import FiniteMDP
from upriver.mdp.writing import write_file
from upriver.planning import evaluate, solve, start_value
from upriver.play.blackbox import AgentPlayer, DiscoveringPlayer
from upriver.play.greedy import greedy_plan
from upriver.results.plots import save_figure
from upriver.results.tables import to_csv, to_markdown

GOOD = 0.05
"""How far below the optimum, as a share of it, a good policy is at most."""
NEVER = float("inf")


def key_and_door(size: int = 5) -> FiniteMDP:
    """Make a grid with a key in one corner and a door in another, which opens with the key.

    Going through the door ends the episode and pays 10, each step costs 0.1, and one step in ten
    fails. States are (x, y, key), key 0, 1, or 2 after the door.
    """
    last = size - 1
    moves = {"east": (1, 0), "west": (-1, 0), "north": (0, 1), "south": (0, -1)}

    def outcomes(cell: tuple[int, int, int], action: str) -> list[tuple[Any, float]]:
        x, y, key = cell
        if key == 2:
            return [(cell, 1.0)]
        there = tuple(min(max(i + d, 0), last) for i, d in zip((x, y), moves[action], strict=True))
        if there == (last, last) and not key:
            there = x, y
        key = 1 if there == (0, last) else 2 if there == (last, last) else key
        return [((*there, key), 0.9), (cell, 0.1)]

    cells = [(x, y, k) for x in range(size) for y in range(size) for k in (0, 1)]
    left_out = {(last, last, 0), (last, last, 1), (0, last, 0)}
    cells = [cell for cell in cells if cell not in left_out] + [(last, last, 2)]
    cost = lambda s, a: 0.0 if s[2] == 2 else -0.1 + (10.0 * 0.9 if opens(s, a) else 0.0)  # noqa: E731

    def opens(cell: tuple[int, int, int], action: str) -> bool:
        return any(s[2] == 2 for s, _ in outcomes(cell, action)) and cell[2] == 1

    return build_mdp("key and door", cells, tuple(moves), outcomes, cost, 6 * size)


class World(NamedTuple):
    """An environment, and for how long it is played."""

    make: Callable[[], FiniteMDP]
    episodes: int
    every: int
    """After how many episodes the policy is evaluated."""


def gym(name: str, **options: Any) -> Callable[[], FiniteMDP]:
    return lambda: up.envs.from_gymnasium(name, horizon=200, **options)


WORLDS = {
    "help desk": World(PROBLEMS["desk"].make, 60, 1),
    "inventory": World(PROBLEMS["inventory"].make, 60, 1),
    "river of 20": World(lambda: up.envs.riverswim(20), 100, 1),
    "key and door": World(key_and_door, 200, 2),
    "frozen lake": World(lambda: up.envs.from_gymnasium("FrozenLake-v1"), 400, 4),
    "slippery cliff": World(gym("CliffWalking-v1", is_slippery=True), 400, 10),
    "dry taxi": World(gym("Taxi-v4"), 400, 10),
    "rainy taxi": World(gym("Taxi-v4", is_rainy=True), 400, 10),
}


class QLearning:
    """Q-learning with an optimistic start and a step size of 1 / sqrt(visits), as a player.

    It receives one number that `up.learn` does not: Q begins with the largest value of any state,
    or with 0 where rewards are costs.
    """

    def __init__(self, mdp: FiniteMDP, seed: int) -> None:
        self.mdp, self.env = mdp, up.envs.to_gymnasium(mdp)
        self.task, self.seeds = mdp.true_task, np.random.default_rng(seed)
        shape = self.task.n_states, self.task.n_actions
        self.q = np.full(shape, max(solve(mdp).v[0].max(), 0.0))
        self.q[~self.task.available] = -np.inf
        self.visits = np.zeros(shape)

    def play_one(self, k: int) -> tuple[float, int]:
        s, _ = self.env.reset(seed=int(self.seeds.random() * 2**31))
        total, steps, done = 0.0, 0, False
        while not done:
            best = np.flatnonzero(self.q[s] == self.q[s].max())
            a = int(self.seeds.choice(best))
            s2, reward, ended, truncated, _ = self.env.step(a)
            self.visits[s, a] += 1.0
            target = reward + (0.0 if ended else self.q[s2].max())
            self.q[s, a] += (target - self.q[s, a]) / np.sqrt(self.visits[s, a])
            s, total, steps, done = s2, total + reward, steps + 1, ended or truncated
        return total, steps

    def policy(self) -> Any:
        return np.tile(self.q.argmax(axis=1), (self.task.horizon, 1))


class Found:
    """`up.learn` without an agent, as a player; `declared` are its arguments."""

    def __init__(self, mdp: FiniteMDP, seed: int, **declared: Any) -> None:
        names = "horizon", "discount", "actions", "successors", "reward", "features", "states"
        given = dict.fromkeys((*names, "reward_range")) | declared
        self.task, env = mdp.true_task, up.envs.to_gymnasium(mdp)
        state_of = self.task.state_names.__getitem__
        self.player = DiscoveringPlayer(env, state_of, None, seed, given)
        self.play_one = self.player.play_one

    def policy(self) -> Any:
        found, task = self.player.found, self.task
        plan = greedy_plan(found.agent, found.state).policy
        table = np.repeat(task.available.argmax(axis=1)[None], task.horizon, axis=0)
        for name, place in zip((name for name, _ in found.nodes), found.place, strict=False):
            table[:, task.state_names.number(name)] = plan[:, place]
        return np.where(np.take_along_axis(task.available, table.T, 1).T, table, 0)


class Given:
    """An agent of `up.agents` with the task declared, as a player."""

    def __init__(self, mdp: FiniteMDP, seed: int, agent: Any, reward: bool) -> None:
        task = mdp.true_task if reward else mdp.true_task.with_unknown_reward()
        env, names = up.envs.to_gymnasium(mdp), mdp.true_task.state_names
        self.player = AgentPlayer(env, agent(task), names.__getitem__, None, None, seed)
        self.play_one = self.player.play_one

    def policy(self) -> Any:
        return greedy_plan(self.player.agent, self.player.state).policy


def declared_reward(mdp: FiniteMDP) -> Callable[[Any, Any, Any], Any]:
    """Return the reward of a triple by name; None where the table has no such triple."""
    task = mdp.true_task
    by_pair, by_triple = task.user_rewards
    total = np.repeat(by_pair[0], task.sizes) + (by_triple[0] if by_triple.size else 0.0)
    s, a, s2 = task.triples
    names, actions = task.state_names, range(task.n_actions)
    table = {(names[i], actions[j], names[k]): r for i, j, k, r in zip(s, a, s2, total.tolist(),
                                                                       strict=True)}  # fmt: skip
    return lambda s, a, s2: table.get((s, a, s2))


def declared_successors(mdp: FiniteMDP) -> Callable[[Any, Any], list[Any]]:
    task = mdp.true_task
    names = task.state_names
    return lambda s, a: [names[i] for i in task.successors[task.rows(names.number(s), a)]]


LEARNERS: dict[str, Callable[[FiniteMDP, int], Any]] = {
    "nothing declared": Found,
    "rewards declared": lambda mdp, seed: Found(mdp, seed, reward=declared_reward(mdp)),
    "all declared": lambda mdp, seed: Found(
        mdp, seed, reward=declared_reward(mdp), successors=declared_successors(mdp)
    ),
    "UCRL2, all declared": lambda mdp, seed: Given(mdp, seed, up.agents.UCRL2, True),
    "PSRL, all declared": lambda mdp, seed: Given(mdp, seed, up.agents.PSRL, True),
    "Q-learning, nothing declared": QLearning,
}


class Row(NamedTuple):
    """One run."""

    environment: str
    learner: str
    seed: int
    episodes: float
    """Episodes until the policy is good; infinite where it never was."""
    steps: float
    end: float
    """The share of the optimum that the last policy is below it."""
    seconds: float


def play(name: str, learner: str, seed: int) -> Row:
    """Play one run."""
    world, began = WORLDS[name], perf_counter()
    mdp = world.make()
    best = start_value(mdp, solve(mdp).v)
    player, steps, done, shares = LEARNERS[learner](mdp, seed), 0, [], []
    for k in range(world.episodes):
        steps += player.play_one(k)[1]
        if (k + 1) % world.every == 0:
            value = start_value(mdp, evaluate(mdp, player.policy()))
            shares.append((best - value) / abs(best))
            done.append((k + 1, steps))
            if len(shares) >= 3 and max(shares[-3:]) <= GOOD:
                break
    good = max(shares[-3:]) <= GOOD
    episodes, steps = done[-3] if good else (NEVER, NEVER)
    return Row(name, learner, seed, episodes, steps, shares[-1], perf_counter() - began)


def all_rows(runs: int, jobs: int | None) -> Iterator[Row]:
    """Play every run, in worker processes."""
    from concurrent.futures import ProcessPoolExecutor

    what = [(w, x, s) for w in WORLDS for x in LEARNERS for s in range(runs)]
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(play, *zip(*what, strict=True))


def summary(rows: list[Row]) -> str:
    """Return the table: median episodes, and steps, until the policy is good."""
    lines = [["environment", *LEARNERS]]
    for world in WORLDS:
        cells = []
        for learner in LEARNERS:
            here = [r for r in rows if (r.environment, r.learner) == (world, learner)]
            episodes, steps = (np.median([getattr(r, n) for r in here]) for n in Row._fields[3:5])
            never = f"never in {WORLDS[world].episodes} ({np.median([r.end for r in here]):.2f})"
            cells.append(f"{episodes:.0f} ({steps:,.0f})" if np.isfinite(episodes) else never)
        lines.append([world, *cells])
    return to_markdown(lines)


def figure(rows: list[Row]) -> Any:
    """Return the figure: episodes until the policy is good, a line of marks per environment."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = made.subplots()
    shown = ("all declared", "rewards declared", "nothing declared", "Q-learning, nothing declared")
    colours = ("#0b6e8c", "#3a9ab8", "#8ac6d6", "#999999")
    for i, world in enumerate(reversed(WORLDS)):
        for learner, colour in zip(shown, colours, strict=True):
            here = [r.episodes for r in rows if (r.environment, r.learner) == (world, learner)]
            middle, most = np.median(here), WORLDS[world].episodes
            is_open = not np.isfinite(middle)
            axes.scatter(
                most if is_open else middle, i, s=60, color="none" if is_open else colour,
                edgecolors=colour, marker=">" if is_open else "o",
                label=learner if i == 0 else None, zorder=3,
            )  # fmt: skip
    axes.set_yticks(range(len(WORLDS)), list(reversed(WORLDS)))
    axes.set_xscale("log")
    axes.set_xlabel("episodes until the policy is good (an open mark: not within the run)")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, 1.17), ncols=2, frameon=False)
    return made


def study(folder: Path, runs: int, jobs: int | None) -> str:
    """Play all runs, write table.csv, table.md and the figure, and return the table."""
    rows = []
    for row in all_rows(runs, jobs):
        rows.append(row)
        write_file(folder / "table.csv", to_csv(Row._fields, rows))
    table = summary(rows)
    write_file(folder / "table.md", table)
    save_figure(figure(rows), folder / "declared")
    return f"{table}\nMedians over {runs} runs: episodes (steps) until the policy is good."
