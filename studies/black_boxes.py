"""What must be declared of an environment, and what it buys: episodes until the policy is good.

Each environment is a black box with `reset` and `step`, played with nothing declared, with rewards
declared, and with rewards and successors declared, by `up.learn`; beside UCRL2 and PSRL, which are
given states, successors and rewards, and three learners that are given nothing: Q-learning with an
optimistic start, and DQN and PPO of stable-baselines3. `up.learn`, UCRL2 and PSRL have their
default settings. Q-learning has the best of four step sizes for each environment, DQN and PPO the
best of three learning rates, chosen on seeds that are not reported.

The policy that a user would take away, without exploration, is evaluated exactly on the table of
the environment. It is good once it is, three times in a row, at most 5% of the optimum below it; in
Blackjack, where the optimum is -.046, once it is worth at least -.06.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.util import find_spec
from itertools import product
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
    "Blackjack": World(blackjack, 20_000, 500, -0.06),
}


STEP_SIZES: dict[str, Callable[[float, int], float]] = {
    "1 / sqrt(visits)": lambda visits, horizon: visits**-0.5,
    "(H + 1) / (H + visits)": lambda visits, horizon: (horizon + 1) / (horizon + visits),
    ".1": lambda visits, horizon: 0.1,
    ".5": lambda visits, horizon: 0.5,
}


class QLearning:
    """Q-learning with an optimistic start, as a player.

    It receives one number that `up.learn` does not: Q begins with the largest value of any state,
    or with 0 where rewards are costs.
    """

    def __init__(self, mdp: FiniteMDP, seed: int, step_size: str) -> None:
        self.mdp, self.env = mdp, up.envs.to_gymnasium(mdp)
        self.task, self.seeds = mdp.true_task, np.random.default_rng(seed)
        shape = self.task.n_states, self.task.n_actions
        self.q = np.full(shape, max(solve(mdp).v[0].max(), 0.0))
        self.q[~self.task.available] = -np.inf
        self.visits, self.step_size = np.zeros(shape), STEP_SIZES[step_size]

    def play_one(self, k: int) -> tuple[float, int]:
        s, _ = self.env.reset(seed=int(self.seeds.random() * 2**31))
        total, steps, done = 0.0, 0, False
        while not done:
            best = np.flatnonzero(self.q[s] == self.q[s].max())
            a = int(self.seeds.choice(best))
            s2, reward, ended, truncated, _ = self.env.step(a)
            self.visits[s, a] += 1.0
            target = reward + (0.0 if ended else self.q[s2].max())
            size = self.step_size(self.visits[s, a], self.task.horizon)
            self.q[s, a] += (target - self.q[s, a]) * size
            s, total, steps, done = s2, total + reward, steps + 1, ended or truncated
        return total, steps

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
}
Q_LEARNING = "Q-learning, nothing declared"
DEEP = {"DQN, nothing declared": "DQN", "PPO, nothing declared": "PPO"}
RATES = 1e-4, 1e-3, 1e-2
DEEP_RUNS, TUNING_SEED, TUNING_RUNS = 5, 1000, 2
DEEP_WORLDS = "help desk", "inventory", "key and door", "frozen lake", "dry taxi", "Blackjack"
"""Where DQN and PPO are played; the other environments only take longer."""


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


class Judge:
    """Evaluates the policies of a player now and then, until they are good."""

    def __init__(self, name: str) -> None:
        self.world, self.began = WORLDS[name], perf_counter()
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
        return self.is_good() or episodes >= self.world.episodes

    def is_good(self) -> bool:
        return len(self.values) >= 3 and min(self.values[-3:]) >= self.least

    def row(self, name: str, learner: str, seed: int, setting: str) -> Row:
        episodes, steps = self.done[-3] if self.is_good() else (NEVER, NEVER)
        end = (self.best - self.values[-1]) / abs(self.best)
        return Row(
            name, learner, seed, setting, episodes, steps, end, perf_counter() - self.began
        )  # fmt: skip


def play(name: str, learner: str, seed: int, setting: str = "") -> Row:
    """Play one run."""
    judge = Judge(name)
    if learner in DEEP:
        world = judge.world
        deep = Deep(judge.mdp, seed, DEEP[learner], float(setting), world.episodes)
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


def tune(name: str, learner: str) -> str:
    """Return the setting that is good after the fewest steps, or ends nearest to the optimum."""
    settings = STEP_SIZES if learner == Q_LEARNING else map(str, RATES)

    def loss(setting: str) -> tuple[float, float]:
        seeds = range(TUNING_SEED, TUNING_SEED + TUNING_RUNS)
        rows = [play(name, learner, seed, setting) for seed in seeds]
        return max(row.steps for row in rows), sum(row.end for row in rows)

    return min(settings, key=loss)


def play_tuned(name: str, learner: str, runs: int) -> list[Row]:
    """Tune a learner for an environment and play its runs."""
    setting = tune(name, learner)
    return [play(name, learner, seed, setting) for seed in range(runs)]


def all_rows(runs: int, jobs: int | None) -> Iterator[Row]:
    """Play every run, in worker processes."""
    with ProcessPoolExecutor(jobs) as pool:
        tuned = [(world, Q_LEARNING, runs) for world in WORLDS]
        if find_spec("stable_baselines3"):
            tuned += [(world, x, min(runs, DEEP_RUNS)) for world in DEEP_WORLDS for x in DEEP]
        what = [(world, x, seed) for world in WORLDS for x in LEARNERS for seed in range(runs)]
        later = [pool.submit(play_tuned, *each) for each in tuned]
        yield from pool.map(play, *zip(*what, strict=True))
        for each in later:
            yield from each.result()


def summary(rows: list[Row]) -> str:
    """Return the table: median episodes, and steps, until the policy is good."""
    learners = list(dict.fromkeys(row.learner for row in rows))
    lines = [["environment", *learners]]
    for world in WORLDS:
        cells = []
        for learner in learners:
            here = [r for r in rows if (r.environment, r.learner) == (world, learner)]
            if not here:
                cells.append("-")
                continue
            episodes, steps = (np.median([getattr(r, n) for r in here]) for n in Row._fields[4:6])
            never = f"never in {WORLDS[world].episodes:,} ({np.median([r.end for r in here]):.2f})"
            cells.append(f"{episodes:,.0f} ({steps:,.0f})" if np.isfinite(episodes) else never)
        lines.append([world, *cells])
    return to_markdown(lines)


def figure(rows: list[Row]) -> Any:
    """Return the figure: episodes until the policy is good, a line of marks per environment."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = made.subplots()
    shown = ("all declared", "rewards declared", "nothing declared", Q_LEARNING)
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
