"""`upriver table`: the numbers of a results folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from upriver.results.analysis import Row

Format = Literal["text", "csv", "markdown"]
COLUMNS = (
    "env", "agent", "setting", "runs", "episodes", "mean", "sd", "se", "iqm", "ci_low", "ci_high",
    "episodes_lost",
)  # fmt: skip


def table(
    folder: Path,
    *,
    of: Literal["return", "value", "regret"] = "return",
    format: Format = "text",
    out: Path | None = None,
) -> int:
    """Print totals over all episodes: mean, sd, interquartile mean, 95% interval.

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
    """
    from upriver.results.analysis import load_runs, natural, samples_of, summary
    from upriver.results.tables import as_csv, as_markdown, as_text

    problems: list[str] = []
    rows = summary(samples_of(load_runs(folder, problems=problems)), of)
    rows.sort(key=lambda row: natural(row.env))
    if format == "csv":
        text = as_csv(COLUMNS, rows)
    else:
        text = {"text": as_text, "markdown": as_markdown}[format](as_cells(rows), words=2)
    if out is None:
        print(text, end="")
    else:
        out.write_text(text, encoding="utf-8")
    for sentence in problems:
        print(f"upriver: {sentence}; it was left alone and left out", file=sys.stderr)
    return 1 if problems else 0


def as_cells(rows: list[Row]) -> list[list[str]]:
    """Rounded for reading; the setting only where it is needed to tell two rows apart."""
    names = [(r.env, r.agent) for r in rows]
    head = ["environment", "agent", "runs", "episodes", "mean ± sd", "95% interval", "IQM", "lost"]
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
        ]
        for r in rows
    ]
    return [head, *body]
