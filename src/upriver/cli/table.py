"""`upriver table`: print the numbers of a results folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from upriver.results.runs import Sample
    from upriver.results.statistics import Row

Format = Literal["text", "csv", "markdown"]
COLUMNS = (
    "env", "agent", "setting", "runs", "episodes", "mean", "sd", "se", "iqm", "ci_low", "ci_high",
    "episodes_lost", "locked_in", "locked_low", "locked_high",
)  # fmt: skip


def table(
    folder: Path,
    *,
    of: Literal["return", "value", "regret"] = "return",
    format: Format = "text",
    out: Path | None = None,
    against: str | None = None,
) -> int:
    """Print the total over all episodes of each agent: mean, sd, interquartile mean, 95% interval.

    The column *lost* is the regret in episodes of optimal play. The column *locked in* is the
    share of runs whose last tenth is worth less than half of the optimum, with its exact 95%
    interval.

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
    from upriver.results.statistics import summarize
    from upriver.results.tables import to_csv, to_markdown, to_text

    results = runs.read_results(folder)
    samples = sorted(results.samples, key=lambda sample: runs.natural_key(sample.env))
    if against is not None:
        head, *body = compare_with(samples, against, of)
    else:
        rows = summarize(samples, of)
        head, *body = [COLUMNS, *rows] if format == "csv" else to_cells(rows)
    if format == "csv":
        text = to_csv(head, body)
    else:
        text = {"text": to_text, "markdown": to_markdown}[format]([head, *body], words=2)
    if out is None:
        print(text, end="")
    else:
        write_file(out, text)
    for sentence in results.problems:
        print(f"upriver: {sentence}; it was left out", file=sys.stderr)
    failures = runs.read_failures(runs.find_store(folder))
    if failures:
        print(f"upriver: {runs.describe_failures(failures)}; not in the table", file=sys.stderr)
    return 1 if results.problems or failures else 0


def to_cells(rows: list[Row]) -> list[list[str]]:
    """Return rounded rows; the setting only where two rows have the same label."""
    names = [(r.env, r.agent) for r in rows]
    head = ["environment", "agent", "runs", "episodes", "mean ± sd", "95% interval", "IQM", "lost",
            "locked in"]  # fmt: skip
    cells = [head]
    for r in rows:
        label = r.agent if names.count((r.env, r.agent)) == 1 else f"{r.agent} [{r.setting[:6]}]"
        numbers = [f"{r.mean:.2f} ± {r.sd:.2f}", f"{r.low:.2f} to {r.high:.2f}", f"{r.iqm:.2f}"]
        locked = f"{r.locked_in:.0%} [{r.locked_low:.0%}, {r.locked_high:.0%}]"
        lost = f"{r.episodes_lost:.1f}"
        cells.append([r.env, label, str(r.runs), str(r.episodes), *numbers, lost, locked])
    return cells


def compare_with(samples: list[Sample], agent: str, of: str) -> list[list[str]]:
    """Return every sample minus that of one agent on the same environment and seeds."""
    from upriver.experiments.registry import unknown
    from upriver.results.statistics import paired_difference

    names = sorted({s.agent for s in samples})
    if agent not in names:
        raise unknown("agent", agent, names)
    rows = [["environment", "agent", "pairs", f"minus {agent}", "95% interval"]]
    for base in (s for s in samples if s.agent == agent):
        for s in samples:
            if s.env == base.env and s.agent != agent:
                d = paired_difference(s, base, of)
                interval = f"{d.low:.2f} to {d.high:.2f}"
                rows.append([s.env, s.agent, str(d.pairs), f"{d.mean:+.2f}", interval])
    return rows
