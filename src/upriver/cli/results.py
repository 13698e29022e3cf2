"""`upriver table`, `plot`, `report` and `check`: what is done with a results folder."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np

from upriver.results import runs
from upriver.results.runs import Sample, label_samples
from upriver.results.statistics import Row, compute_curve, paired_difference, summarize
from upriver.results.tables import escape_controls, format_numbers, to_csv, to_markdown, to_text


def table(
    folder: Path,
    *,
    of: Literal["return", "value", "regret"] = "return",
    format: Literal["text", "csv", "markdown"] = "text",
    against: str | None = None,
) -> int:
    """Print the total over all episodes of each agent: mean, standard deviation, 95% interval.

    The column *lost* is the regret in episodes of optimal play. The column *stuck* is the share of
    runs, with its exact 95% interval, that end clearly below the optimum and the agent's other
    runs: by more than 5% and 2% of the difference between optimal and uniformly random play. A
    dash stands where uniform play is optimal.

    **Example:** `upriver table results/quick --of regret --format markdown`

    Parameters
    ----------
    folder
        A results folder, as `upriver run` or `upriver tune` writes it.
    of
        What is summed: rewards received, exact values, or exact regret.
    format
        text, csv (with all digits) or markdown.
    against
        The label of an agent. Every other agent is then compared with it by the mean difference
        over common seeds, with a 95% interval.
    """
    results = runs.read_results(folder)
    samples = sorted(results.samples, key=lambda sample: runs.natural_key(sample.env))
    write = to_markdown if format == "markdown" else to_text
    if against is not None:
        rows = compare_with(samples, against, of)
        head = ["environment", "agent", "pairs", f"minus {against}"]
        if format == "csv":
            text = to_csv([*head, "ci_low", "ci_high"], rows)
        else:
            body = [[*head, "95% interval"]]
            for env, label, pairs, *numbers in rows:
                mean, low, high = format_numbers(numbers)
                sign = "" if mean.startswith(("-", "–")) else "+"
                interval = low if low == "–" else f"{low} to {high}"
                body.append([env, label, str(pairs), f"{sign}{mean}", interval])
            text = write(body, words=2)
    elif format == "csv":
        head = [f"ci_{name}" if name in ("low", "high") else name for name in Row._fields]
        text = to_csv(head, summarize(samples, of))
    else:
        groups = groupby(summarize(samples, of), key=lambda row: row.env)
        units = {sample.env: sample.unit for sample in samples}
        blocks = (make_block(list(rows), units[env]) for env, rows in groups)
        text = "\n".join(f"{title}\n\n{write(cells)}" for title, cells in blocks)
    print(text, end="")
    return report_omissions(results.problems, runs.read_failures(folder))


def make_block(rows: list[Row], unit: str) -> tuple[str, list[list[str]]]:
    """Return a title and the rounded rows of one environment, which fit 80 columns.

    unit: what an entry of a run is, "episode" or "step".
    """
    runs, episodes = (sorted({row[i] for row in rows}) for i in (3, 4))
    many = " to ".join(map(str, dict.fromkeys([runs[0], runs[-1]])))
    title = f"{rows[0].env}: {many} run{'s' * (many != '1')} of "
    title += f"{' or '.join(map(str, episodes))} {unit}s"
    agents = [row.agent for row in rows]
    cells = [["agent", "mean ± sd [95% interval]", "lost", "stuck"]]
    for r in rows:
        label = r.agent if agents.count(r.agent) == 1 else f"{r.agent} [{r.setting[:6]}]"
        mean, sd, low, high = format_numbers([r.mean, r.sd, r.low, r.high])
        interval = "–" if np.isnan(r.low) else f"[{low}, {high}]"  # of one run there is none
        stuck = f"{r.stuck:.0%} [{100 * r.stuck_low:.0f}, {100 * r.stuck_high:.0f}]"
        stuck = "–" if np.isnan(r.stuck) else stuck
        cells.append(
            [label, f"{mean} ± {sd} {interval}", *format_numbers([r.episodes_lost]), stuck]
        )
    return title, cells


def compare_with(samples: list[Sample], agent: str, of: str) -> list[list[Any]]:
    """Return every sample minus that of one agent on the same problem and seeds.

    A row has the environment, the agent, the number of pairs, the mean and both limits.
    """
    from upriver.experiments.registry import unknown

    names = sorted({s.agent for s in samples})
    if agent not in names:
        raise unknown("against", agent, names)
    rows = []
    labelled = list(zip(label_samples(samples), samples, strict=True))
    for name, base in labelled:
        for label, s in labelled if base.agent == agent else ():
            if s.agent == agent or s.problem != base.problem:
                continue
            label = label if name == agent else f"{label}, minus {name}"
            row = [s.env, label, 0, np.nan, np.nan, np.nan]
            if np.isin(s.seeds, base.seeds).any():
                d = paired_difference(s, base, of)
                row[2:] = d.pairs, d.mean, d.low, d.high
            rows.append(row)
    return rows


def plot(
    folder: Path,
    *kinds: Literal["learning", "regret", "regret-log"],
    out: Path | None = None,
    columns: Literal["one", "two"] = "two",
) -> int:
    """Draw figures as PNG and PDF, with embedded fonts and one colour for each agent.

    **Example:** `upriver plot results/quick learning regret --columns one`

    Parameters
    ----------
    folder
        A results folder, as `upriver run` or `upriver tune` writes it.
    kinds
        learning (the exact value of the policy played), regret or regret-log. The default is all
        of them.
    out
        The folder to write to. The default is `figures` inside the results folder.
    columns
        Draw for one column of a paper or for two.
    """
    from upriver.results import plots

    results = runs.read_results(folder)
    samples = results.samples
    unit = " or ".join(sorted({s.unit for s in samples}))
    for kind in kinds or ("learning", "regret", "regret-log"):
        options: dict[str, Any] = {"log": kind == "regret-log", "width": columns, "unit": unit}
        if kind == "learning":
            options["ylabel"] = f"exact value of each {unit}"
            options["optimal"] = runs.find_optimal_values(samples)
        figure = plots.plot_curves(make_panels(samples, kind != "learning"), **options)
        for file in plots.save_figure(figure, (out or folder / "figures") / kind):
            print(file)
    return report_omissions(results.problems, [])


def make_panels(samples: list[Sample], regret: bool) -> dict[str, dict[str, Any]]:
    """Return {environment: {agent: band}}, thinned to what a page can show, in a fixed order."""
    from upriver.results.report.data import choose_positions

    labels = label_samples(samples)
    order = runs.order_agents(samples, labels)
    labelled = sorted(zip(labels, samples, strict=True), key=lambda pair: order.index(pair[0]))
    panels: dict[str, dict[str, Any]] = {}
    for label, sample in sorted(labelled, key=lambda pair: runs.natural_key(pair[1].env)):
        curve = compute_curve(sample, "regret" if regret else "value", cumulative=regret)
        at = choose_positions(len(curve.x), 400)
        panels.setdefault(sample.env, {})[label] = curve.at(at)
    return panels


def report(folder: Path, *, out: Path | None = None) -> int:
    """Write one self-contained, interactive HTML page about a results folder.

    It has tables, learning and regret curves and the experiments that made it. The file needs no
    network.

    **Example:** `upriver report results/quick`

    Parameters
    ----------
    folder
        A results folder, as `upriver run` or `upriver tune` writes it.
    out
        The file to write. The default is report.html in the folder.
    """
    from upriver.mdp.writing import write_file
    from upriver.results.report import page
    from upriver.results.report.data import collect

    data = collect(folder)
    file = write_file(out or folder / "report.html", page(data))
    print(f"{file} ({file.stat().st_size / 1e6:.1f} MB, {data['runs']} runs)")
    return report_omissions(data["problems"], data["failures"])


def check(folder: Path) -> int:
    """Verify every file of a results folder and name those that are not as they were written.

    A file may be damaged, moved, unreadable or not written by upriver. Nothing is changed. The exit
    code is 1 if anything is wrong.

    **Example:** `upriver check results/quick`

    Parameters
    ----------
    folder
        A results folder, as `upriver run` or `upriver tune` writes it.
    """
    from upriver.experiments import check as check_folder

    found = check_folder(folder)
    for problem in found.problems:
        print(escape_controls(problem))
    bad = len(found.problems)
    print(f"{found.whole} run files whole, {bad} problem{'s' * (bad != 1)}")
    return 1 if bad else 0


def report_omissions(problems: list[str], failures: list[dict[str, Any]]) -> int:
    """Print which files and runs are not shown, and return the exit code."""
    sentences = [f"{sentence}; it was left out" for sentence in problems]
    sentences += [f"{runs.describe_failures(failures)}; they are not shown"] if failures else []
    for sentence in sentences:
        print(f"upriver: {escape_controls(sentence)}", file=sys.stderr)
    return 1 if sentences else 0
