"""`upriver table`: print the numbers of a results folder."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from upriver.results.runs import Sample
    from upriver.results.statistics import Row

Format = Literal["text", "csv", "markdown"]
CSV_NAMES = {"low": "ci_low", "high": "ci_high"}
"""Columns of the CSV file that have another name than the field of `Row`."""


def table(
    folder: Path,
    *,
    of: Literal["return", "value", "regret"] = "return",
    format: Format = "text",
    out: Path | None = None,
    against: str | None = None,
) -> int:
    """Print the total over all episodes of each agent: mean, standard deviation, 95% interval.

    The column *lost* is the regret in episodes of optimal play, with a dash where the optimum is 0
    and uniform play is optimal. The column *locked in* is the share of runs whose last tenth is
    worth less than half of the optimum, with its exact 95% interval. The column *stuck* is the
    share of runs that end below 95% of the way from uniform play to the optimum, and more than 2%
    of that way below the median run.

    **Example:** `upriver table results/quick --of regret --format markdown`

    Parameters
    ----------
    folder
        A results folder, as `upriver run` or `upriver tune` writes it.
    of
        What is summed: rewards received, exact values, or exact regret.
    format
        text, csv (with all digits) or markdown.
    out
        The file to write; without it the table is printed.
    against
        The label of an agent. Every other agent is then compared with it by the mean difference
        over common seeds, with a 95% interval.
    """
    from upriver.mdp.writing import write_file
    from upriver.results import runs
    from upriver.results.statistics import Row, summarize
    from upriver.results.tables import to_csv, to_markdown, to_text

    results = runs.read_results(folder)
    samples = sorted(results.samples, key=lambda sample: runs.natural_key(sample.env))
    write = to_markdown if format == "markdown" else to_text
    if against is not None:
        head, *body = compare_with(samples, against, of)
        text = to_csv(head, body) if format == "csv" else write([head, *body], words=2)
    elif format == "csv":
        head = [CSV_NAMES.get(name, name) for name in Row._fields]
        text = to_csv(head, summarize(samples, of))
    else:
        groups = groupby(summarize(samples, of), key=lambda row: row.env)
        units = {sample.env: sample.unit for sample in samples}
        blocks = (make_block(list(rows), units[env]) for env, rows in groups)
        text = "\n".join(f"{title}\n\n{write(cells)}" for title, cells in blocks)
    if out is None:
        print(text, end="")
    else:
        write_file(out, text)
    return report_omissions(results.problems, runs.read_failures(runs.find_store(folder)))


def report_omissions(problems: list[str], failures: list[dict[str, Any]]) -> int:
    """Print which files and runs are not shown, and return the exit code."""
    from upriver.results.runs import describe_failures

    sentences = [f"{sentence}; it was left out" for sentence in problems]
    sentences += [f"{describe_failures(failures)}; they are not shown"] if failures else []
    for sentence in sentences:
        print(f"upriver: {sentence}", file=sys.stderr)
    return 1 if sentences else 0


def make_block(rows: list[Row], unit: str) -> tuple[str, list[list[str]]]:
    """Return a title and the rounded rows of one environment, which fit 80 columns.

    unit: what an entry of a run is, "episode" or "step".
    """
    runs, episodes = (sorted({row[i] for row in rows}) for i in (3, 4))
    many = " to ".join(map(str, dict.fromkeys([runs[0], runs[-1]])))
    title = f"{rows[0].env}: {many} run{'s' * (many != '1')} of "
    title += f"{' or '.join(map(str, episodes))} {unit}s"
    agents = [row.agent for row in rows]
    cells = [["agent", "mean ± sd [95% interval]", "lost", "locked in", "stuck"]]
    for r in rows:
        label = r.agent if agents.count(r.agent) == 1 else f"{r.agent} [{r.setting[:6]}]"
        numbers = (r.mean, r.sd, r.low, r.high)
        digits = 2 - int(np.log10(max(1.0, float(np.nanmax(np.abs(numbers))))))
        mean, sd, low, high = (f"{x:.{max(digits, 0)}f}" for x in numbers)
        interval = "–" if np.isnan(r.low) else f"[{low}, {high}]"  # of one run there is none
        shares = (r.locked_in, r.locked_low, r.locked_high), (r.stuck, r.stuck_low, r.stuck_high)
        ends = [f"{p:.0%} [{100 * low:.0f}, {100 * high:.0f}]" for p, low, high in shares]
        lost = "–" if np.isnan(r.episodes_lost) else f"{r.episodes_lost:.1f}"
        cells.append([label, f"{mean} ± {sd} {interval}", lost, *ends])
    return title, cells


def compare_with(samples: list[Sample], agent: str, of: str) -> list[list[str]]:
    """Return every sample minus that of one agent on the same environment and seeds."""
    from upriver.experiments.registry import unknown
    from upriver.results.runs import label_samples
    from upriver.results.statistics import paired_difference

    names = sorted({s.agent for s in samples})
    if agent not in names:
        raise unknown("agent", agent, names)
    rows = [["environment", "agent", "pairs", f"minus {agent}", "95% interval"]]
    labelled = list(zip(label_samples(samples), samples, strict=True))
    for name, base in labelled:
        for label, s in labelled if base.agent == agent else ():
            same = s.env == base.env and s.returns.shape[1] == base.returns.shape[1]
            if same and s.agent != agent:
                d = paired_difference(s, base, of)
                interval = "–" if np.isnan(d.low) else f"{d.low:.2f} to {d.high:.2f}"
                label = label if name == agent else f"{label}, minus {name}"
                rows.append([s.env, label, str(d.pairs), f"{d.mean:+.2f}", interval])
    return rows
