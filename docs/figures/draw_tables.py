"""Draw the figures of the results pages from their tables.

python docs/figures/draw_tables.py [NAME ...]

The tables in docs/results/tables are written by the studies. An agent has the look that it has in
every figure of the package. Names stand at the ends of lines, and figures can be read on a phone.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullLocator

from upriver.results.plots import DASHES
from upriver.results.styles import assign_styles

HERE = Path(__file__).parent
TABLES = HERE.parent / "results" / "tables"
WIDTH = 5.4
"""Inches; a phone shows 65 pixels of each."""
NUMBER = r"([+-]?[\d.]+)%?"
CELL = re.compile(rf"{NUMBER} \[{NUMBER}, {NUMBER}\]")
LOST = "episodes lost"
FLOOR = 0.1
"""Smaller losses are drawn here on a log axis: nobody cares which part of nothing was lost."""


def read_tables(name):
    """Return the tables of a file, each as {row: {column: (mean, low, high)}}."""
    tables, head = [], None
    for line in (TABLES / f"{name}.txt").read_text().splitlines():
        if not line.startswith("|"):
            head = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if head is None:
            head = cells
            tables.append({})
        elif not cells[0].startswith("---"):
            found = {h: CELL.match(c) for h, c in zip(head[1:], cells[1:], strict=True)}
            tables[-1][cells[0]] = {h: tuple(map(float, m.groups())) for h, m in found.items() if m}
    return tables


def value_of(column):
    """Return the number in a heading such as `S = 20` or `distance 0.1`."""
    return float(re.findall(r"[\d.]+(?:e-?\d+)?", column)[-1])


def set_look():
    plt.rcdefaults()
    plt.rcParams.update(
        {"font.size": 9.5, "axes.titlesize": 10, "axes.spines.top": False, "axes.grid": True,
         "axes.spines.right": False, "grid.color": "#e4e4e4", "grid.linewidth": 0.6,
         "axes.axisbelow": True, "legend.frameon": False, "savefig.dpi": 200}
    )  # fmt: skip


def save(figure, name):
    figure.savefig(HERE / f"{name}.png", facecolor="white")
    plt.close(figure)


def label_ends(ax, ends, gap=0.075):
    """Write names to the right of the axes at the heights of their last points, kept apart."""
    transform = ax.transData + ax.transAxes.inverted()
    names = sorted(ends, key=lambda name: ends[name][1])
    at = [transform.transform(ends[name][:2])[1] for name in names]
    lines = [name.count("\n") + 1 for name in names]
    for i in range(1, len(at)):  # upwards from the lowest, then down from the top
        at[i] = max(at[i], at[i - 1] + gap * (lines[i] + lines[i - 1]) / 2)
    over = max(0.0, at[-1] + gap * lines[-1] / 2 - 1.06)
    for i in range(len(at) - 1, -1, -1):
        at[i] -= over
        if i and at[i] - at[i - 1] > gap * (lines[i] + lines[i - 1]) / 2 + over:
            break
    for name, y in zip(names, at, strict=True):
        ax.annotate(
            name, (1.0, y), xycoords="axes fraction", xytext=(6, 0), textcoords="offset points",
            color=ends[name][2], va="center", annotation_clip=False,
        )  # fmt: skip


def draw_curves(
    name, panels, xlabel, ylabel=LOST, logx=False, ticks=None, names=None, height=2.9, ylim=None,
    yticks=(0.1, 1, 10, 100), gap=0.075, logy=True, xticks=None, optimum=None,
):  # fmt: skip
    """Draw {title: {agent: {column: (mean, low, high)}}}: one panel below the other."""
    set_look()
    agents = list(dict.fromkeys(agent for panel in panels.values() for agent in panel))
    look, names = assign_styles(agents), names or {}
    figure, every = plt.subplots(
        len(panels), figsize=(WIDTH, height * len(panels) + 0.3), layout="constrained",
        squeeze=False, sharex=True, sharey=True,
    )  # fmt: skip
    for ax, (title, panel) in zip(every[:, 0], panels.items(), strict=True):
        ends = {}
        for agent, row in panel.items():
            row = dict(sorted(row.items(), key=lambda item: value_of(item[0])))
            x = np.array([value_of(column) for column in row])
            mean, low, high = np.array(list(row.values())).T
            if logy:
                mean, low, high = (np.maximum(y, FLOOR) for y in (mean, low, high))
            style = look[agent]
            ax.fill_between(x, low, high, color=style.light, alpha=0.15, linewidth=0)
            ax.plot(
                x, mean, color=style.light, linestyle=DASHES[style.dash], marker=style.marker,
                markersize=5, linewidth=1.8,
            )  # fmt: skip
            ends[names.get(agent, agent)] = x[-1], mean[-1], style.light
        if optimum is not None:
            ax.axhline(optimum, color="#1a1a1a", linewidth=1.0, linestyle=DASHES["dash"])
            ends["optimum"] = x[-1], optimum, "#1a1a1a"
        ax.set(title=title, ylabel=ylabel)
        if logx:
            ax.set_xscale("log")
        if logy:
            ax.set_yscale("log")
            ax.set_yticks(yticks, [f"{y:g}" for y in yticks])
            ax.yaxis.set_minor_locator(NullLocator())
        if ylim:
            ax.set_ylim(*ylim)
        if xticks:
            ax.set_xticks(list(xticks), list(xticks.values()))
        elif ticks:
            ax.set_xticks(ticks, [f"{x:g}" for x in ticks])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.margins(x=0.02)
        ax.ends = ends
    every[-1, 0].set_xlabel(xlabel)
    figure.canvas.draw()
    for ax in every[:, 0]:
        label_ends(ax, ax.ends, gap)
    save(figure, name)


MARKS = (("#767676", "s"), ("#0072b2", "o"), ("#d55e00", "D"), ("#009e73", "^"))


def draw_dots(name, panels, xlabel, log=True, columns=1, row=0.235, xlim=None, mark=None):
    """Draw {title: {row: {group: (mean, low, high)}}}: a line per row and a mark per group."""
    set_look()
    rows = list(dict.fromkeys(r for panel in panels.values() for r in panel))
    groups = list(dict.fromkeys(g for p in panels.values() for r in p.values() for g in r))
    lines = -(-len(panels) // columns)
    figure, every = plt.subplots(
        lines, columns, figsize=(WIDTH, lines * (row * len(rows) + 0.55) + 0.5),
        layout="constrained", squeeze=False, sharey=True, sharex=columns == 1,
    )  # fmt: skip
    handles = {}
    for ax, (title, panel) in zip(every.ravel(), panels.items(), strict=True):
        for g, group in enumerate(groups):
            here = [(rows.index(r), x[group]) for r, x in panel.items() if group in x]
            y = np.array([i for i, _ in here]) + 0.22 * (g - (len(groups) - 1) / 2)
            mean, low, high = np.array([x for _, x in here]).T
            if log:
                mean, low, high = (
                    np.maximum(v, xlim[0] if xlim else 0.01) for v in (mean, low, high)
                )
            colour, marker = MARKS[g]
            bars = [mean - low, high - mean]
            handles[group] = ax.errorbar(
                mean, y, xerr=bars, fmt=marker, color=colour, markersize=4.2, linewidth=1.2
            )
        ax.set(title=title, ylim=(len(rows) - 0.5, -0.5))
        ax.set_yticks(range(len(rows)), rows)
        ax.tick_params(axis="y", length=0)
        if log:
            ax.set_xscale("log")
        if xlim:
            ax.set_xlim(*xlim)
        if mark is not None:
            ax.axvline(mark, color="#1a1a1a", linewidth=0.9, linestyle=(0, (5, 1.6)))
            ax.set_xticks([0, mark / 2, mark])
        if log:
            low, high = ax.get_xlim()
            at = [x for x in 10.0 ** np.arange(-3, 5) if low <= x <= high]
            ax.set_xticks(at, [f"{x:g}" for x in at])
            ax.xaxis.set_minor_locator(NullLocator())
    for ax in every[-1]:
        ax.set_xlabel(xlabel)
    if len(groups) > 1:
        figure.legend(
            list(handles.values()), groups, loc="outside upper center", ncols=len(groups),
            handletextpad=0.3, columnspacing=1.2,
        )  # fmt: skip
    save(figure, name)


def pick(table, agents):
    """Return the rows of a table under other names: {name: row}."""
    return {new: table[old] for old, new in agents.items()}


def same(*agents):
    return {agent: agent for agent in agents}


SE = "UCRL-MNL-SE"


def rivers():
    """The figure of the home page."""
    (table,) = read_tables("scaling")[:1]
    agents = same(f"{SE} shared", f"{SE} one-hot", "UCRL2", "PSRL", "Greedy shared")
    names = {f"{SE} shared": f"{SE},\n8 shared features", f"{SE} one-hot": f"{SE},\none-hot",
             "UCRL2": "UCRL2, tuned", "PSRL": "PSRL, tuned",
             "Greedy shared": "8 shared features,\nno bonus"}  # fmt: skip
    draw_curves(
        "rivers", {"": pick(table, agents)}, "number of states of the river",
        "episodes lost, of 100", logx=True, ticks=(6, 10, 20, 40, 80), names=names, height=3.5,
        yticks=(2, 5, 10, 20, 50, 100), ylim=(1.4, 130), gap=0.06,
    )  # fmt: skip


def equal_information():
    tables = read_tables("equal-information")
    agents = same("UCRL-MNL shared", "UCRL-MNL one-hot", "UCRL2", "PSRL", "Greedy one-hot")
    panels = {
        f"support {support}": pick(table, agents)
        for support, table in zip(("known", "local", "full"), tables, strict=False)
    }
    draw_curves(
        "equal-information", panels, "number of states of the river", logx=True,
        ticks=(6, 8, 10, 20), height=2.3, gap=0.1, ylim=(0.08, 250),
        names={"Greedy one-hot": "one-hot, no bonus"},
    )  # fmt: skip


def misspecification():
    table = read_tables("misspecification")[0]
    draw_curves(
        "misspecification", {"": table}, "distance from the MNL family", "episodes lost, of 200",
        yticks=(0.5, 1, 2, 5, 10), ylim=(0.5, 20),
        names={f"{SE} {x}": f"{x} features" for x in ("shared", "pooled", "one-hot")},
    )  # fmt: skip


def uneven_rivers():
    tables = read_tables("uneven-rivers")[::2]
    draw_curves(
        "uneven-rivers",
        {f"{n} states": table for n, table in zip((20, 40, 80), tables, strict=True)},
        "distance from the even river", yticks=(1, 2, 5, 10, 20, 50, 100), ylim=(1, 130),
        height=2.3, gap=0.1, ticks=(0, 0.05, 0.1, 0.2, 0.3),
    )  # fmt: skip


def variance():
    (table,) = read_tables("variance")
    agents = same(f"{SE} shared", f"{SE} one-hot", "UCRL-MNL shared", "UCRL2", "UCBVI")
    draw_curves(
        "variance", {"": pick(table, agents)}, "noise of the transitions", "episodes lost, of 500",
        logx=True, ticks=(0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1), yticks=(0.1, 0.2, 0.5, 1, 2, 5),
        ylim=(0.08, 9), height=3.3,
    )  # fmt: skip


def kappa():
    tables = {"1/kappa": read_tables("kappa")[3], "U": read_tables("kappa")[4]}
    agents = {f"{a} scaled": a for a in ("UCRL-MNL", "RRL-MNL", "ORRL-MNL", "UCRL-MNL+")}
    agents |= same(SE, "Greedy")
    wide = pick(tables["1/kappa"], agents)
    inverse = {
        agent: {f"{1 / value_of(column):g}": x for column, x in row.items()}
        for agent, row in wide.items()
    }
    for name, xlabel, panel, xticks in (
        ("kappa", "1/kappa", inverse, {10: "10", 100: "100", 1000: "1,000", 100000: "100,000"}),
        ("successors-u", "number of successors U", pick(tables["U"], agents),
         {2: "2", 10: "10", 50: "50"}),
    ):  # fmt: skip
        draw_curves(
            name, {"": panel}, xlabel, "regret", logx=True, xticks=xticks, height=3.2,
            ylim=(0.09, 400), 
        )  # fmt: skip


def icu_sepsis():
    panel = {}
    for line in (TABLES / "icu-sepsis.txt").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) > 5 and cells[1] in ("shared", "one-hot", "pooled"):
            mean, half = map(float, re.findall(r"[\d.]+", cells[2])[:2])
            row = panel.setdefault(f"{SE} {cells[1]}", {})
            row[cells[0].replace(",", "")] = mean, mean - half, mean + half
    draw_curves(
        "icu-sepsis", {"": panel}, "rows of the log", "true survival, %", logx=True, logy=False,
        xticks={1000: "1,000", 10000: "10,000", 100000: "100,000"}, ylim=(85.0, 87.8),
        optimum=87.5,
        names={f"{SE} {x}": x for x in ("shared", "one-hot", "pooled")},
    )  # fmt: skip


def changing():
    (table, *_) = read_tables("changing")
    groups = ("each step", "one theta", "pooled")
    panels = {}
    for current, title in (("current 0", "the same at every step"), ("current 1.5", "a tide")):
        panel = panels[title] = {}
        for agent in (SE, "RRL-MNL", "ORRL-MNL", "UCRL-MNL+", "UCRL-MNL-LL"):
            panel[agent] = {g: table[f"{agent} {g}"][current] for g in groups}
    draw_dots("changing", panels, LOST, log=False, columns=2, row=0.34)


def unknown_reward():
    (table,) = read_tables("unknown-reward")
    panels = {
        title: {
            agent: {f"rewards {x}": row[f"{env}, {x}"] for x in ("known", "unknown")}
            for agent, row in table.items()
        }
        for env, title in (("deep-sea-10", "deep sea"), ("riverswim-10", "river of 10"))
    }
    draw_dots("unknown-reward", panels, LOST, columns=2, row=0.28, xlim=(0.7, 350))


def exploration_needed():
    (table,) = read_tables("exploration-needed")
    panels = {
        title: {agent: {"": row[env]} for agent, row in table.items()}
        for env, title in (
            ("deep-sea-10", "deep sea"), ("riverswim-20", "river of 20"),
            ("river-grid-6", "river grid"),
        )
    }  # fmt: skip
    draw_dots(
        "exploration-needed", panels, "% of the optimum", log=False, columns=3, xlim=(-4, 104),
        mark=90,
    )  # fmt: skip


def streams():
    table = read_tables("streams")[0]
    envs = {
        "two-state-3-discount-1": "two states", "riverswim-6-discount-1": "river of 6",
        "queue-20-discount-1": "queue", "bus-engine-90-discount-0.9999": "bus engine",
    }  # fmt: skip
    panels = {}
    for env, title in envs.items():
        panel = panels[title] = {}
        for agent, row in table.items():
            plain = agent.removesuffix(" (tuned)")
            panel.setdefault(plain, {})["tuned" if plain != agent else "default settings"] = row[
                env
            ]
    draw_dots("streams", panels, "steps lost, of 10,000", columns=2, row=0.3, xlim=(0.8, 2000))


def default_agent():
    """Draw episodes lost by problem and learner: the paler, the closer to the best of the row."""
    table = read_tables("default-agent")[0]
    text = (TABLES / "default-agent.txt").read_text()
    set_look()
    learners = list(next(iter(table.values())))
    lost = np.array([[row[learner][0] for learner in learners] for row in table.values()])
    floored = np.maximum(lost, FLOOR)
    shade = np.log10(floored / floored.min(axis=1)[:, None])
    figure, ax = plt.subplots(figsize=(WIDTH, 0.31 * len(table) + 0.6), layout="constrained")
    ax.imshow(shade, cmap="Blues", vmin=0.0, vmax=2.5, aspect="auto")
    for i, problem in enumerate(table):
        cells = re.search(rf"^\| {re.escape(problem)} \|(.*)\|$", text, re.M)[1].split("|")
        for j, cell in enumerate(cells):
            stuck = re.search(r"\(([\d.]+)% stuck", cell)
            mark = "•" if stuck and float(stuck[1]) > 5 else ""
            x = lost[i, j]
            written = f"{x:.2f}" if x < 0.995 else f"{x:.1f}" if x < 9.95 else f"{x:.0f}"
            ink = "white" if shade[i, j] > 1.5 else "#1a1a1a"
            ax.text(j, i, written + mark, ha="center", va="center", color=ink)
    names = {f"{SE} {x}": f"SE\n{x}" for x in ("shared", "pooled", "one-hot")}
    names["Greedy shared"] = "greedy\nshared"
    ax.set_xticks(range(len(learners)), [names.get(x, x) for x in learners])
    ax.set_yticks(range(len(table)), list(table))
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.grid(visible=False)
    save(figure, "default-agent")


def automatic():
    (table, *_) = read_tables("automatic")
    groups = ("made by hand", "automatic", "one-hot")
    panel = {problem: {g: row[g] for g in groups} for problem, row in table.items() if len(row) > 2}
    draw_dots("automatic", {"": panel}, LOST, row=0.27, xlim=(0.01, 30))


def declared():
    """Draw episodes until the policy is good, or with an open mark how long the runs were."""
    text = (TABLES / "declared.md").read_text().splitlines()
    _, _, *lines = [[x.strip() for x in line.strip("|").split("|")] for line in text]
    names = ["successors and rewards", "rewards", "nothing", "Q-learning, nothing"]
    set_look()
    figure, ax = plt.subplots(figsize=(WIDTH, 0.37 * len(lines) + 1.1), layout="constrained")
    handles = []
    for g, (colour, marker) in enumerate([*MARKS[1:], MARKS[0]]):
        form = {"marker": marker, "color": colour, "linestyle": "", "markersize": 6.5}
        handles += ax.plot([], [], **form)
        for i, (_, *cells) in enumerate(lines):
            found = re.match(r"(never in )?([\d,.]+)", cells[g])
            x = float(found[2].replace(",", ""))
            face = "white" if found[1] else colour
            ax.plot(x, i + 0.2 * (g - 1.5), **form, markerfacecolor=face, markeredgewidth=1.3)
    ax.set(xscale="log", xlabel="episodes until the policy is good (open: not within the run)")
    worlds = [line[0].replace("rows and", "rows\nand") for line in lines]
    ax.set_yticks(range(len(lines)), worlds)
    ax.set_ylim(len(lines) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    at = [10**k for k in range(6)]
    ax.set_xticks(at, [f"{x:,}" for x in at])
    ax.xaxis.set_minor_locator(NullLocator())
    figure.legend(
        handles, names, loc="outside upper center", ncols=2, title="declared",
        handletextpad=0.3, columnspacing=1.2,
    )  # fmt: skip
    save(figure, "declared")


DRAW = {
    "rivers": rivers, "equal-information": equal_information, "misspecification": misspecification,
    "uneven-rivers": uneven_rivers, "variance": variance, "kappa": kappa,
    "icu-sepsis": icu_sepsis, "changing": changing, "unknown-reward": unknown_reward,
    "exploration-needed": exploration_needed, "default-agent": default_agent, "streams": streams,
    "automatic": automatic, "declared": declared,
}  # fmt: skip

if __name__ == "__main__":
    for chosen in sys.argv[1:] or DRAW:
        DRAW[chosen]()
