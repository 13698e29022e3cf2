"""Read a results folder: its runs as a table or as samples, and what is wrong with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from upriver.checks import Array, check_choice, check_kinds
from upriver.results.tables import escape_controls

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS = ["return", "value", "optimal_value", "uniform_value"]
ROUNDING = 1e-9
"""Values that differ by less than this share of their size are equal but for rounding errors."""

Key = tuple[str, str, str]
"""(environment, agent, setting)."""


class Sample(NamedTuple):
    """Runs of one agent on one environment with one setting: R seeds, K episodes.

    For an infinite-horizon problem the K columns are steps, and `unit` says so.
    """

    env: str
    agent: str
    setting: str
    seeds: Array
    """(R,) ascending."""
    returns: Array
    """(R, K) the rewards received."""
    values: Array
    """(R, K) the exact values of the policies played."""
    optimal_values: Array
    """(R, K) the optimal values from the same initial states."""
    unit: Literal["episode", "step"] = "episode"
    uniform_value: float = 0.0
    """The exact value of uniform play on the environment."""
    about: Mapping[str, Any] = {}
    """The metadata of the first run file."""

    @property
    def regret(self) -> Array:
        """(R, K) exact regret of each episode; 0 where values differ by rounding alone."""
        regret = self.optimal_values - self.values
        rounding = np.maximum(ROUNDING * abs(self.optimal_values), self.zero)
        return np.where(abs(regret) > rounding, regret, 0.0)

    @property
    def best(self) -> Array:
        """(R, 1 or K) the optimal values by which regret is measured.

        In a stream it is that of the start: those of later steps belong to the states that the
        agent has reached, which differ between agents.
        """
        return self.optimal_values[:, :1] if self.unit == "step" else self.optimal_values

    @property
    def gap(self) -> float:
        """How much the optimum exceeds uniform play from the start; nan where it does not."""
        gap = float(self.best.mean()) - self.uniform_value
        return gap if gap > self.zero else float("nan")

    @property
    def zero(self) -> float:
        """What a value must exceed to be more than the rounding error of a value of 0."""
        return ROUNDING * abs(self.uniform_value)

    @property
    def scale(self) -> Array:
        """(R,) the value of one episode of optimal play, in which regret is counted.

        It is the absolute value of the mean of `best` in the run. Where that is 0, or positive in
        some runs and negative in others, it is `gap` for all runs, which may be nan.
        """
        best = self.best.mean(axis=1)
        if (best > self.zero).all() or (best < -self.zero).all():
            return abs(best)
        return np.full(len(best), self.gap)

    def per_episode(self, quantity: str) -> Array:
        """Return "return", "value" or "regret" of each episode, an array (R, K)."""
        by_name = {"return": self.returns, "value": self.values, "regret": self.regret}
        return by_name[check_choice("quantity", quantity, by_name)]

    def totals(self, quantity: str) -> Array:
        """Return the sum over the episodes of a quantity, an array (R,).

        The quantity is "return", "value", "regret" or "episodes lost". Episodes lost is regret
        divided by `scale`: the number of episodes of optimal play that were forgone.
        """
        if quantity == "episodes lost":
            return self.regret.sum(axis=1) / self.scale
        return self.per_episode(quantity).sum(axis=1)

    def value_shares(self) -> Array:
        """Return the share of the optimum that the policies played are worth, an array (R,).

        It is 1 minus the mean regret divided by `scale`: value divided by optimal value where the
        latter is positive. More is better, and 1 is optimal, whatever the sign of the values.
        """
        return 1.0 - self.regret.mean(axis=1) / self.scale

    def stuck(self) -> Array:
        """Return for each run whether it ends clearly below the optimum and its fellow runs.

        The policies of its last tenth fall short of the optimum by more than 5%, and of the agent's
        median run by more than 2%, of the difference between optimal and uniform play. An agent
        that is as bad in most of its runs is therefore not stuck: its regret shows that. No run
        counts if uniform play is optimal.
        """
        regret, gap = self.regret, self.gap
        shortfall = regret[:, -max(1, regret.shape[1] // 10) :].mean(axis=1)
        return (shortfall > 0.05 * gap) & (shortfall > np.median(shortfall) + 0.02 * gap)

    @property
    def problem(self) -> tuple[str, str, int]:
        """What two samples share if they are on one MDP and equally long."""
        from upriver.experiments.build import DIGEST_OF_MDP

        digest = str(self.about.get("run", {}).get("digest", ""))
        return self.env, digest[:DIGEST_OF_MDP], self.values.shape[1]

    def select_seeds(self, seeds: Iterable[int]) -> Sample:
        """Return the sample with the runs of these seeds only."""
        keep = np.isin(self.seeds, list(seeds))
        names = ("seeds", "returns", "values", "optimal_values")
        return self._replace(**{name: getattr(self, name)[keep] for name in names})


class Results(NamedTuple):
    """The content of a results folder."""

    samples: list[Sample]
    """One for each environment, agent and setting, in this order."""
    problems: list[str]
    """One sentence for each file that was left out."""


@check_kinds
def load_runs(folder: str | Path, timing: bool = False) -> pa.Table:
    """Read every run of the results folder `folder` into one table, one row per episode.

    Parameters
    ----------
    timing
        Add the column `seconds`, which differs between any two executions of a run.

    Returns
    -------
    pyarrow.Table
        The columns env, agent, setting (hash of everything but the seed), seed, episode (from 1;
        the step for an infinite horizon), return, value, optimal_value, regret and uniform_value
        (the value of uniform play), ordered by the first five.

    Raises
    ------
    ValueError
        The folder is not a results folder, it holds no runs, or a file is damaged.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from upriver.experiments.store import read_records

    columns = ["setting", "seed", "episode", *NUMBERS, *(["seconds"] if timing else [])]
    parts = []
    for record in read_records(folder):
        rows = record.table.select(columns)
        rows = rows.set_column(0, "setting", rows["setting"].cast(pa.string()))
        rows = rows.add_column(0, "agent", pa.repeat(record.run.label, len(rows)))
        parts.append(rows.add_column(0, "env", pa.repeat(record.run.env, len(rows))))
    if not parts:
        raise ValueError(f"{folder} holds no runs")
    parts.sort(key=lambda p: [p[name][0].as_py() for name in ("env", "agent", "setting", "seed")])
    table = pa.concat_tables(parts)
    regret = pc.subtract(table["optimal_value"], table["value"])  # type: ignore[attr-defined]
    return table.add_column(table.column_names.index("optimal_value") + 1, "regret", regret)


def read_results(folder: str | Path) -> Results:
    """Read a results folder, complete or not; damaged files are left out and named in `problems`.

    A folder that holds no readable run, or that is no results folder, is a ValueError.
    """
    from upriver.experiments.store import BadFile, Record, read_records

    groups: dict[Key, list[Record]] = {}
    problems: list[str] = []
    for record in read_records(folder, problems):
        names = escape_controls(record.run.env), escape_controls(record.run.label)
        groups.setdefault((*names, record.run.setting), []).append(record)
    if not groups:
        kind = BadFile if problems else ValueError
        raise kind("; ".join([f"{folder} holds no runs", *problems[:1]]))
    samples = []
    for key, records in sorted(groups.items()):
        columns = [(r.run.seed, [r.table[name].to_numpy() for name in NUMBERS]) for r in records]
        first = {"unit": records[0].unit, "about": records[0].about}
        samples.append(stack_runs(key, columns)._replace(**first))
    return Results(samples, problems)


def stack_runs(key: Key, runs: list[tuple[int, list[Array]]]) -> Sample:
    """Stack runs (seed, arrays of the columns NUMBERS) of one key, ordered by seed."""
    seeds, arrays = zip(*sorted(runs, key=lambda run: run[0]), strict=True)
    lengths = [len(x[0]) for x in arrays]
    if min(lengths) != max(lengths):
        incomplete = seeds[int(np.argmin(lengths))]
        raise ValueError(f"{key[1]} on {key[0]}: seed {incomplete} is incomplete")
    *columns, uniform = (np.stack(x) for x in zip(*arrays, strict=True))
    given: Any = *key, np.array(seeds), *columns
    return Sample(*given, uniform_value=float(uniform[0, 0]))


def read_failures(root: Path) -> list[dict[str, Any]]:
    """Return the runs that raised and have not succeeded since: env, agent, seed and error."""
    from upriver.experiments.store import read_bytes

    failures = []
    for path in sorted((root / "_failed").rglob("*.json")):
        try:
            record = json.loads(read_bytes(path))
            row = *(record["run"][key] for key in ("env", "label", "seed")), record["error"]
        except (ValueError, KeyError, TypeError, RecursionError):
            row = "", "", "", f"{path} is damaged"
        failures.append(dict(zip(("env", "agent", "seed", "error"), row, strict=True)))
    return failures


def describe_failures(failures: list[dict[str, Any]]) -> str:
    """Say how many runs failed, and which was the first."""
    first = failures[0]
    where = f"{first['env']}, {first['agent']}, seed {first['seed']}: {first['error']}"
    return f"{len(failures)} runs failed, first {where}"


def natural_key(name: str) -> list[tuple[int, str]]:
    """Return a sorting key by which river-6 comes before river-10."""
    parts = name.replace("-", " ").split()
    return [(int(p), "") if p.isdigit() else (-1, p) for p in parts]


def find_optimal_values(samples: Sequence[Sample]) -> dict[str, float]:
    """Return {environment: mean optimal value}, which figures draw as a line.

    A discounted stream has none: its optimal values are those of the states that an agent reached.
    Nor has a name that stands for several problems.
    """
    found = {}
    for env in dict.fromkeys(s.env for s in samples):
        group = [s for s in samples if s.env == env]
        values = np.concatenate([s.optimal_values.ravel() for s in group])
        differ = np.ptp(values) > ROUNDING * np.abs(values).max()
        one = len({s.problem[1] for s in group}) == 1
        if not differ or (one and all(s.unit == "episode" for s in group)):
            found[env] = float(np.mean([s.optimal_values.mean() for s in group]))
    return found


def label_samples(samples: Sequence[Sample]) -> list[str]:
    """Return the agent of each sample, with its setting where one agent has several."""
    seen = Counter((s.env, s.agent) for s in samples)
    repeated = {agent for (_, agent), n in seen.items() if n > 1}
    return [f"{s.agent} [{s.setting[:6]}]" if s.agent in repeated else s.agent for s in samples]


def order_agents(samples: Sequence[Sample], labels: Sequence[str]) -> list[str]:
    """Order labels by mean regret over environments, least first; the optimum precedes all.

    Environments on which regret has no scale do not count.
    """
    lost: dict[str, list[float]] = {}
    for sample, label in zip(samples, labels, strict=True):
        share = np.nan_to_num(sample.value_shares().mean(), nan=1.0)
        lost.setdefault(label, []).append(float(1.0 - share))
    mean_lost = {name: round(float(np.mean(shares)), 9) for name, shares in lost.items()}
    return sorted(lost, key=lambda name: (name.lower() != "optimal", mean_lost[name], name))
