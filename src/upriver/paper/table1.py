"""Table 1 of the paper as data, and the comparison of our runs with it.

Hwang and Oh, "Model-Based Reinforcement Learning with Multinomial Logistic Function
Approximation", Table 1: mean and standard deviation of the cumulative return over 10 runs on
RiverSwim. The number of episodes is not printed; it follows from the row of the optimal policy.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path
from typing import NamedTuple

from upriver.results.runs import Sample
from upriver.results.statistics import summarize
from upriver.results.styles import TUNED
from upriver.results.tables import to_markdown

COLUMNS = {f"riverswim-{n}": (n, 4 * n) for n in (6, 8, 10, 20)}
"""(n_states, horizon) of each column."""

EXPERIMENTS = ("paper", "paper-tuned")
PRINTED_RUNS = 10

DATA = tomllib.loads(Path(__file__).with_name("table1.toml").read_text(encoding="utf-8"))
PRINTED: dict[str, list[list[float]]] = DATA["printed"]
"""(mean, sd) of each method in each column."""
WHY = {method: each["sentence"] for each in DATA["why"] for method in each["methods"]}
"""One sentence for each method whose number may differ from the printed one."""

METHODS = ("Optimal", "UCRL-MNL", "Greedy", "UC-MatrixRL", "UCRL-VTR", "LSVI-UCB", "LSVI-PHE")
TUNED_METHODS = tuple(m + TUNED for m in METHODS if m not in ("Optimal", "Greedy"))


class Line(NamedTuple):
    """One method in one column, ours beside the printed one."""

    method: str
    n_states: int
    horizon: int
    episodes: int
    runs: int
    mean: float
    sd: float
    ci_low: float
    ci_high: float
    paper_mean: float | None
    paper_sd: float | None

    @property
    def ratio(self) -> float | None:
        return None if self.paper_mean is None else self.mean / self.paper_mean

    @property
    def agrees(self) -> bool | None:
        """Whether the means differ by at most two standard errors of their difference."""
        if self.paper_mean is None or self.paper_sd is None:
            return None
        error = sqrt(self.sd**2 / self.runs + self.paper_sd**2 / PRINTED_RUNS)
        return abs(self.mean - self.paper_mean) <= 2.0 * error


def compare(samples: Sequence[Sample]) -> list[Line]:
    """Return a line for each method and column that the samples hold, in the order of the table."""
    found = {(row.env, row.agent): row for row in summarize(samples)}
    lines = []
    for method in (*METHODS, *TUNED_METHODS):
        for column, (env, (n_states, horizon)) in enumerate(COLUMNS.items()):
            row = found.get((env, method))
            if row is None:
                continue
            printed = PRINTED.get(method.removesuffix(TUNED))
            mean, sd = printed[column] if printed else (None, None)
            ours = row.episodes, row.runs, row.mean, row.sd, row.low, row.high
            lines.append(Line(method, n_states, horizon, *ours, mean, sd))
    return lines


def make_rows(
    lines: Sequence[Line], methods: Sequence[str], write: Callable[..., str]
) -> list[list[str]]:
    """Return a table with the rows ours, printed and ratio for each method; the head comes first.

    write: makes a text of a mean and a standard deviation, or of a ratio.
    """
    rows = [["", "", *(f"S = {n}" for n, _ in COLUMNS.values())]]
    for method in methods:
        row = [line for line in lines if line.method == method]
        name = method.removesuffix(TUNED)
        rows.append([name, "ours", *(write(x.mean, x.sd) for x in row)])
        if name in PRINTED:
            words = ("agrees" if x.agrees else "differs" for x in row)
            ratios = (write(x.ratio) for x in row)
            rows.append(["", "printed", *(write(x.paper_mean, x.paper_sd) for x in row)])
            rows.append(["", "ratio", *map(" ".join, zip(ratios, words, strict=True))])
    return rows


def write_markdown(lines: Sequence[Line]) -> str:
    """Return both settings as tables, and one sentence for each number that differs."""

    def write_table(methods: Sequence[str]) -> str:
        rows = make_rows(lines, methods, lambda *numbers: " ± ".join(f"{x:.2f}" for x in numbers))
        return to_markdown(rows, words=2).rstrip()

    parts = [
        "# Table 1, ours beside the printed one",
        f"Cumulative return, mean ± sd over {lines[0].runs} runs; below it, as printed (10 runs). "
        "The ratio is ours / printed; *agrees* means within two standard errors of the "
        "difference.",
        "## As in the paper",
        "UCRL-MNL is told the reachable sets, the linear baselines are not and keep "
        "lambda = 1; the bonus of each was tuned. Greedy is UCRL-MNL without a bonus.",
        write_table(METHODS),
        "## Tuned",
        "The same information, with bonus and regularisation of every learner tuned.",
        write_table(TUNED_METHODS),
        "## Where they differ, and why",
        *explain_differences(lines),
    ]
    return "\n\n".join(parts) + "\n"


def explain_differences(lines: Sequence[Line]) -> list[str]:
    """Return a paragraph for each method that disagrees: by how much, and why."""
    found = []
    for method in (*METHODS, *TUNED_METHODS):
        off = [x for x in lines if x.method == method and x.agrees is False]
        if off:
            why = WHY.get(method, "chance: all of it is exact but the rewards drawn")
            by = ", ".join(f"{x.ratio:.2f} times at S = {x.n_states}" for x in off)
            found.append(f"**{method}** earns {by}: {why}.")
    return found or ["Nowhere by more than two standard errors."]
