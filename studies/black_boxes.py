"""What must be declared of an environment, and what it buys: episodes until the policy is good.

Each environment is a black box with `reset` and `step`, played with nothing declared, with rewards
declared, and with rewards and successors declared, by `up.learn`; beside UCRL2 and PSRL, which are
given states, successors and rewards, and three learners that are given nothing: Q-learning with an
optimistic start, and DQN and PPO of stable-baselines3. `up.learn`, UCRL2 and PSRL have their
default settings. Q-learning has the best of five step sizes and three discounts for each
environment, DQN and PPO the best of three learning rates, chosen on one or two
seeds that are not reported.

The policy that a user would take away, without exploration, is evaluated exactly on the table of
the environment. It is good once it is, three times in a row, at most 5% of the optimum below it; in
Blackjack, where the optimum is -.046, once it is worth at least -.06.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from numba import njit

import upriver as up
from studies.problems import PROBLEMS
from upriver.envs.named import build_mdp
from upriver.mdp import FiniteMDP
from upriver.mdp.writing import write_file
from upriver.planning import evaluate, solve, start_value
from upriver.play.discovery import Declared
from upriver.play.greedy import greedy_plan
from upriver.play.players import AgentPlayer, DiscoveringPlayer
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


CARDS = dict.fromkeys(range(1, 10), 1 / 13) | {10: 4 / 13}
"""The chance of each card, drawn with replacement; 1 is an ace."""


def blackjack() -> FiniteMDP:
    """Return the table of Gymnasium's Blackjack, with the states won, drawn and lost at its end.

    A state is (worth of the hand, card of the dealer, whether an ace counts 11).
    """
    pays = {"won": 1.0, "drawn": 0.0, "lost": -1.0}

    def worth(points: int, ace: bool) -> int:
        return points + 10 if ace and points <= 11 else points

    def see(points: int, ace: bool, card: int) -> tuple[int, int, int]:
        return worth(points, ace), card, int(ace and points <= 11)

    @cache
    def dealt(points: int, ace: bool) -> dict[int, float]:
        """The chances of what the dealer ends with; 0 is bust."""
        if worth(points, ace) >= 17:
            return {worth(points, ace) % 22 if points <= 21 else 0: 1.0}
        ends = [(dealt(points + card, ace or card == 1), p) for card, p in CARDS.items()]
        return {k: sum(p * end.get(k, 0.0) for end, p in ends) for k in (0, *range(17, 22))}

    @cache
    def outcomes(s: Any, a: str) -> dict[Any, float]:
        if s in pays:
            return {s: 1.0}
        total, card, ace = s
        chances: dict[Any, float] = {}
        if a == "stick":
            for end, p in dealt(card, card == 1).items():
                name = "won" if total > end else "drawn" if total == end else "lost"
                chances[name] = chances.get(name, 0.0) + p
        else:
            points = total - 10 if ace else total
            for drawn, p in CARDS.items():
                hand = points + drawn, bool(ace) or drawn == 1
                name = "lost" if hand[0] > 21 else see(*hand, card)
                chances[name] = chances.get(name, 0.0) + p
        return {name: p for name, p in chances.items() if p > 0}

    start: dict[Any, float] = {}
    for a, b, card in product(CARDS, repeat=3):
        s = see(a + b, a == 1 or b == 1, card)
        start[s] = start.get(s, 0.0) + CARDS[a] * CARDS[b] * CARDS[card]
    return FiniteMDP.from_functions(
        start, ["stick", "hit"], lambda s, a: list(outcomes(s, a)),
        lambda s, a, s2: outcomes(s, a)[s2],
        lambda s, a, s2: pays[s2] if s2 in pays and s not in pays else 0.0, 12, name="Blackjack",
    )  # fmt: skip


class World(NamedTuple):
    """An environment, and for how long it is played."""

    make: Callable[[], FiniteMDP]
    episodes: int
    every: int
    """After how many episodes the policy is evaluated."""
    good: float | None = None
    """The value of a good policy; None for the optimum less 5%."""
    seconds: float = 1.0
    """What is expected of a run before one was played; dear ones come later."""


def gym(name: str, **options: Any) -> Callable[[], FiniteMDP]:
    return lambda: up.envs.from_gymnasium(name, horizon=200, **options)


def cliff_cells() -> FiniteMDP:
    """Return the slippery cliff with states (row, column)."""
    mdp = gym("CliffWalking-v1", is_slippery=True)()
    task = replace(mdp.true_task, states=[divmod(s, 12) for s in range(mdp.n_states)])
    return replace(mdp, true_task=task)


WORLDS = {
    "help desk": World(PROBLEMS["desk"].make, 60, 1),
    "inventory": World(PROBLEMS["inventory"].make, 60, 1),
    "river of 20": World(lambda: up.envs.riverswim(20), 100, 1),
    "key and door": World(key_and_door, 200, 2),
    "frozen lake": World(lambda: up.envs.from_gymnasium("FrozenLake-v1"), 400, 4),
    "slippery cliff": World(gym("CliffWalking-v1", is_slippery=True), 1000, 10),
    "cliff, rows and columns": World(cliff_cells, 1000, 10),
    "dry taxi": World(gym("Taxi-v4"), 400, 10, seconds=6.0),
    "rainy taxi": World(gym("Taxi-v4", is_rainy=True), 400, 10, seconds=8.0),
    "Blackjack": World(blackjack, 20_000, 500, -0.06, seconds=10.0),
}
"""Gymnasium's grids number their cells; what the numbers stand for can be declared, too."""


STEP_SIZES: dict[str, Callable[[Any, int], Any]] = {
    "1 / sqrt(visits)": lambda visits, horizon: visits**-0.5,
    "(H + 1) / (H + visits)": lambda visits, horizon: (horizon + 1) / (horizon + visits),
    ".5": lambda visits, horizon: np.full_like(visits, 0.5),
    ".1": lambda visits, horizon: np.full_like(visits, 0.1),
    ".02": lambda visits, horizon: np.full_like(visits, 0.02),
}
DISCOUNTS = ".95", ".99", "1"


@njit(cache=True)
def play_q(
    indptr: Any, successors: Any, below: Any, rewards: Any, ends: Any, q: Any, visits: Any,
    sizes: Any, discount: float, s: int, uniforms: Any,
) -> tuple[float, int]:  # fmt: skip
    """Play one episode of Q-learning from state s; return its return and its length.

    An outcome is drawn by `below` (n,), the sum of the probabilities of a pair up to it, and ties
    of actions are broken at random. q, visits: (S, A), in place; sizes: step size by visits.
    """
    total, n_actions = 0.0, q.shape[1]
    for h in range(len(uniforms)):
        a, ties = 0, 0
        for other in range(n_actions):
            if q[s, other] > q[s, a]:
                a, ties = other, 1
            elif q[s, other] == q[s, a]:
                ties += 1
        chosen, nth = q[s, a], int(uniforms[h, 0] * ties)
        for other in range(n_actions):
            if q[s, other] == chosen:
                a = other
                nth -= 1
                if nth < 0:
                    break
        row, last = indptr[s * n_actions + a], indptr[s * n_actions + a + 1] - 1
        while row < last and uniforms[h, 1] >= below[row]:
            row += 1
        s2 = successors[row]
        future = 0.0
        if not ends[s2]:
            future = discount * q[s2].max()
        visits[s, a] += 1
        size = sizes[min(visits[s, a], len(sizes)) - 1]
        q[s, a] += size * (rewards[row] + future - q[s, a])
        total += rewards[row]
        s = s2
        if ends[s]:
            return total, h + 1
    return total, len(uniforms)


class QLearning:
    """Q-learning with an optimistic start, as a player.

    It receives two numbers that `up.learn` does not: Q begins with the largest value of any state,
    or with 0 where rewards are costs, and at most with the largest reward / (1 - discount).
    A setting is a step size and a discount.
    """

    def __init__(self, mdp: FiniteMDP, seed: int, setting: str) -> None:
        step_size, discount = setting.split(", ")
        env, task = up.envs.to_gymnasium(mdp), mdp.true_task
        self.mdp, self.task, self.rng = mdp, task, np.random.default_rng(seed)
        shape = task.n_states, task.n_actions
        self.discount = float(discount)
        best = solve(mdp).v[0].max()
        if self.discount < 1.0:
            best = min(best, env.rewards.max() / (1.0 - self.discount))
        self.q = np.full(shape, max(best, 0.0))
        self.q[~task.available] = -np.inf
        total = np.cumsum(mdp.probability[0])
        first = np.append(0.0, total)[task.indptr[:-1]]
        below = total - np.repeat(first, task.sizes)
        self.data = task.indptr, task.successors, below, env.rewards[0], env.ends
        self.visits, self.starts = np.zeros(shape, np.int64), np.cumsum(mdp.initial_probability)
        self.sizes = STEP_SIZES[step_size](np.arange(1.0, 1e6), task.horizon)

    def play_one(self, k: int) -> tuple[float, int]:
        drawn = min(np.searchsorted(self.starts, self.rng.random()), len(self.starts) - 1)
        s, uniforms = self.mdp.initial_states[drawn], self.rng.random((self.task.horizon, 2))
        return play_q(
            *self.data, self.q, self.visits, self.sizes, self.discount, s, uniforms
        )  # fmt: skip

    def policy(self) -> Any:
        return np.tile(self.q.argmax(axis=1), (self.task.horizon, 1))


class Deep:
    """DQN or PPO of stable-baselines3, as a player: it trains until an episode is over.

    States are numbers, which the library makes one-hot.
    """

    def __init__(self, mdp: FiniteMDP, seed: int, kind: str, rate: float, episodes: int) -> None:
        import stable_baselines3  # pyright: ignore[reportMissingImports]
        import torch  # pyright: ignore[reportMissingImports]

        torch.set_num_threads(1)
        self.task, more = mdp.true_task, {}
        if kind == "DQN":
            more = {"learning_starts": 200, "target_update_interval": 500}
        else:
            more = {"n_steps": 256}
        self.model = getattr(stable_baselines3, kind)(
            "MlpPolicy", up.envs.to_gymnasium(mdp), learning_rate=rate, seed=seed, device="cpu",
            **more,
        )  # fmt: skip
        self.most, self.watch = episodes * self.task.horizon, None

    def train(self, until: Callable[[int, int], bool]) -> None:
        """Train; `until` gets the episodes and steps so far after every episode."""
        from stable_baselines3.common.callbacks import (  # pyright: ignore[reportMissingImports]
            BaseCallback,
        )

        class Watch(BaseCallback):
            episodes = 0

            def _on_step(self) -> bool:
                if not self.locals["dones"][0]:
                    return True
                self.episodes += 1
                return not until(self.episodes, self.num_timesteps)

        self.model.learn(self.most, callback=Watch())

    def policy(self) -> Any:
        actions, _ = self.model.predict(np.arange(self.task.n_states), deterministic=True)
        return np.tile(actions, (self.task.horizon, 1))


class Found:
    """`up.learn` without an agent, as a player; `declared` are its arguments."""

    def __init__(self, mdp: FiniteMDP, seed: int, **declared: Any) -> None:
        self.task, env = mdp.true_task, up.envs.to_gymnasium(mdp)
        state_of = self.task.state_names.__getitem__
        self.player = DiscoveringPlayer(env, state_of, None, seed, Declared(**declared))
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
        learner = self.player.learner
        return greedy_plan(learner.agent, learner.state).policy


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
}
Q_LEARNING = "Q-learning, nothing declared"
DEEP = {"DQN, nothing declared": "DQN", "PPO, nothing declared": "PPO"}
RATES = "1e-4", "1e-3", "1e-2"
SETTINGS: dict[str, Iterable[str]] = {
    Q_LEARNING: [", ".join(x) for x in product(STEP_SIZES, DISCOUNTS)],
    **dict.fromkeys(DEEP, RATES),
}
"""What is tuned: step sizes and discounts, and learning rates."""
LEAST_RUNS, DEEP_RUNS, TUNING_SEED = 3, 5, 1000
BUDGET = 180.0
"""Seconds of one processor that the runs of a learner on an environment may take in all; three runs
are played in any case."""
DEEP_WORLDS = "help desk", "inventory", "key and door", "frozen lake"
"""Where DQN and PPO are played; the other environments take them minutes for each run."""
LONGER = {Q_LEARNING: 10} | dict.fromkeys(DEEP, 2)
"""These learners get so many times as many episodes."""


def length_of(world: str, learner: str) -> int:
    """Return how many episodes a learner plays at most."""
    return WORLDS[world].episodes * LONGER.get(learner, 1)


Key = tuple[str, str, int, str]
"""Environment, learner, seed and setting of a run."""


class Row(NamedTuple):
    """One run."""

    environment: str
    learner: str
    seed: int
    setting: str
    """What was tuned."""
    episodes: float
    """Episodes until the policy is good; infinite where it never was."""
    steps: float
    end: float
    """How far the last policy is below the optimum, as a share of it."""
    seconds: float
    """Of one processor, compilation and evaluation included."""


class Judge:
    """Evaluates the policies of a player now and then, until they are good."""

    def __init__(self, name: str, learner: str) -> None:
        self.world, self.began = WORLDS[name], process_time()
        self.most = length_of(name, learner)
        self.mdp = self.world.make()
        self.best = start_value(self.mdp, solve(self.mdp).v)
        good = self.world.good
        self.least = self.best - GOOD * abs(self.best) if good is None else good
        self.values: list[float] = []
        self.done: list[tuple[int, int]] = []

    def is_over(self, player: Any, episodes: int, steps: int) -> bool:
        """Return whether the run ends after so many episodes and steps."""
        if episodes % self.world.every == 0:
            self.values.append(start_value(self.mdp, evaluate(self.mdp, player.policy())))
            self.done.append((episodes, steps))
        return self.is_good() or episodes >= self.most

    def is_good(self) -> bool:
        return len(self.values) >= 3 and min(self.values[-3:]) >= self.least

    def row(self, name: str, learner: str, seed: int, setting: str) -> Row:
        episodes, steps = self.done[-3] if self.is_good() else (NEVER, NEVER)
        end = (self.best - self.values[-1]) / abs(self.best)
        return Row(
            name, learner, seed, setting, episodes, steps, end, process_time() - self.began
        )  # fmt: skip


def play(name: str, learner: str, seed: int, setting: str = "") -> Row:
    """Play one run."""
    judge = Judge(name, learner)
    if learner in DEEP:
        deep = Deep(judge.mdp, seed, DEEP[learner], float(setting), judge.most)
        deep.train(lambda episodes, steps: judge.is_over(deep, episodes, steps))
        return judge.row(name, learner, seed, setting)
    if learner == Q_LEARNING:
        player = QLearning(judge.mdp, seed, setting)
    else:
        player = LEARNERS[learner](judge.mdp, seed)
    k = steps = 0
    over = False
    while not over:
        steps += player.play_one(k)[1]
        k += 1
        over = judge.is_over(player, k, steps)
    return judge.row(name, learner, seed, setting)


class Table:
    """All runs played so far, which a file holds, so that an interrupted study goes on."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.rows = folder / "runs.csv", list[Row]()
        if self.path.exists():
            with self.path.open(newline="") as file:
                for x in csv.DictReader(file):
                    numbers = [float(x[name]) for name in Row._fields[4:]]
                    key = x["environment"], x["learner"], int(x["seed"]), x["setting"]
                    self.rows.append(Row(*key, *numbers))

    def play(self, keys: Iterable[Key], pool: ProcessPoolExecutor) -> None:
        """Play some runs, one in each worker process."""
        for each in as_completed([pool.submit(play, *key) for key in keys]):
            self.rows.append(each.result())
            self.write()

    def write(self) -> None:
        write_file(self.path, to_csv(Row._fields, self.rows))

    def of(self, world: str, learner: str) -> list[Row]:
        """Return the runs of a learner on an environment, those for tuning left out."""
        found = [r for r in self.rows if (r.environment, r.learner) == (world, learner)]
        return [r for r in found if r.seed < TUNING_SEED]

    def best_setting(self, world: str, learner: str) -> str:
        """Return the setting that is good after the fewest steps, or ends nearest the optimum."""

        def loss(setting: str) -> tuple[float, float]:
            rows = [r for r in self.rows if (r.environment, r.learner, r.setting)
                    == (world, learner, setting) and r.seed >= TUNING_SEED]  # fmt: skip
            return max(r.steps for r in rows), sum(r.end for r in rows)

        return min(SETTINGS[learner], key=loss)

    def next_run(self, world: str, learner: str, runs: int) -> tuple[float, Key] | None:
        """Return the next run of a cell, and the seconds that the cell will then have taken; None
        if it has all its runs. Runs for tuning come first."""
        seeds = range(TUNING_SEED, TUNING_SEED + 1 + (learner not in DEEP))
        played, setting = {row[:4] for row in self.rows}, ""
        for key in product([world], [learner], seeds, SETTINGS.get(learner, ())):
            if key not in played:
                return WORLDS[world].seconds, key
        if learner in SETTINGS:
            setting = self.best_setting(world, learner)
        done = [r.seconds for r in self.of(world, learner)]
        expected = sum(done) / len(done) if done else WORLDS[world].seconds
        n, after = len(done), sum(done) + expected
        most = min(runs, DEEP_RUNS) if learner in DEEP else runs
        is_over = n >= most or (n >= LEAST_RUNS and after > BUDGET)
        return None if is_over else (after, (world, learner, n, setting))


def play_all(table: Table, runs: int, jobs: int) -> None:
    """Play every run that is missing, next always of the cell that has taken the least time."""
    found = find_spec("stable_baselines3") is not None
    cells = [(world, x) for world in WORLDS for x in (*LEARNERS, *SETTINGS)
             if x not in DEEP or (found and world in DEEP_WORLDS)]  # fmt: skip
    with ProcessPoolExecutor(jobs) as pool:
        while waiting := [x for cell in cells if (x := table.next_run(*cell, runs))]:
            table.play([key for _, key in sorted(waiting)[:jobs]], pool)


PEERS = "UCRL2, all declared", "PSRL, all declared", *DEEP


def summary(table: Table, learners: Collection[str]) -> str:
    """Return the medians of episodes, and steps, until the policy is good, and the number of runs
    where others have more."""
    lines = [["environment", *learners]]
    most = max(len(table.of(world, x)) for world in WORLDS for x in learners)
    for world in WORLDS:
        cells = []
        for learner in learners:
            here = table.of(world, learner)
            if not here:
                cells.append("-")
                continue
            episodes, steps, end = np.median([(r.episodes, r.steps, r.end) for r in here], axis=0)
            never = f"never in {length_of(world, learner):,} ({end:.2f})"
            text = f"{episodes:,g} ({steps:,.0f})" if np.isfinite(episodes) else never
            cells.append(text if len(here) == most else f"{text} [{len(here)}]")
        lines.append([world, *cells])
    return to_markdown(lines)


SHOWN = "all declared", "rewards declared", "nothing declared", Q_LEARNING


def study(folder: Path, runs: int, jobs: int | None) -> str:
    """Play the runs that the folder does not hold; write two tables and return them."""
    table = Table(folder)
    play_all(table, runs, jobs or os.cpu_count() or 1)
    tables = {"declared": SHOWN, "peers": PEERS}
    for name, learners in tables.items():
        write_file(folder / f"{name}.md", summary(table, learners))
    what = "Median episodes (steps) until the policy is good; [n] runs where others have more."
    return "\n".join([*(summary(table, x) for x in tables.values()), what])
