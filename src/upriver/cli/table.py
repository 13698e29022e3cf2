"""`upriver table`: the numbers of a results folder."""

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
    """Print totals over all episodes: mean, sd, interquartile mean, 95% interval.

    *lost* is regret in episodes of optimal play; *locked in* the share of the runs whose last
    tenth is worth under half of the optimum, with its exact 95% interval.

    **Example:** `upriver table results/quick --of regret --format markdown`

    Parameters
    ----------
    folder
        A results folder.
    of
        What is summed: rewards received, exact values, or exact regret.
    format
        text, csv (every digit) or markdown.
    out
        A file instead of the terminal.
    against
        An agent: every other is compared with it by the mean difference over common seeds and its
        95% interval, instead of by its own mean.
    """
    from upriver.mdp.writing import write_file
    from upriver.results.runs import (
        describe_failures,
        find_store,
        natural_key,
        read_failures,
        read_results,
    )
    from upriver.results.statistics import summarize
    from upriver.results.tables import to_csv, to_markdown, to_text

    results = read_results(folder)
    samples = sorted(results.samples, key=lambda sample: natural_key(sample.env))
    if against is not None:
        head, *body = differences(samples, against, of)
    else:
        rows = summarize(samples, of)
        head, *body = [COLUMNS, *rows] if format == "csv" else as_cells(rows)
    if format == "csv":
        text = to_csv(head, body)
    else:
        text = {"text": to_text, "markdown": to_markdown}[format]([head, *body], words=2)
    if out is None:
        print(text, end="")
    else:
        write_file(out, text)
    for sentence in results.problems:
        print(f"upriver: {sentence}; it was left alone and left out", file=sys.stderr)
    failures = read_failures(find_store(folder))
    if failures:
        print(f"upriver: {describe_failures(failures)}; not in the table", file=sys.stderr)
    return 1 if results.problems or failures else 0


def as_cells(rows: list[Row]) -> list[list[str]]:
    """Rounded for reading; the setting only where it is needed to tell two rows apart."""
    names = [(r.env, r.agent) for r in rows]
    head = ["environment", "agent", "runs", "episodes", "mean ± sd", "95% interval", "IQM", "lost",
            "locked in"]  # fmt: skip
    body = [
        [
            r.env,
            r.agent if names.count((r.env, r.agent)) == 1 else f"{r.agent} [{r.setting[:6]}]",
            str(r.runs),
            str(r.episodes),
            f"{r.mean:.2f} ± {r.sd:.2f}",
            f"{r.low:.2f} to {r.high:.2f}",
            f"{r.iqm:.2f}",
            f"{r.episodes_lost:.1f}",
            f"{r.locked_in:.0%} [{r.locked_low:.0%}, {r.locked_high:.0%}]",
        ]
        for r in rows
    ]
    return [head, *body]


def differences(samples: list[Sample], agent: str, of: str) -> list[list[str]]:
    """Every sample minus that of one agent on the same environment and seeds."""
    from upriver.experiments.names import unknown
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
