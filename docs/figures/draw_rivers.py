"""Draw the figure of the home page from the table of the scaling study.

python docs/figures/draw_rivers.py

The table, docs/results/tables/scaling.md, is written by `python -m studies scaling`.
"""

import re
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
CURVES = {  # row of the table: (label, colour, marker)
    "UCRL-MNL-SE shared": ("UCRL-MNL-SE,\n8 shared features", "#D55E00", "o"),
    "UCRL-MNL-SE one-hot": ("UCRL-MNL-SE,\none-hot", "#A86F00", "s"),
    "UCRL2": ("UCRL2, tuned", "#0072B2", "^"),
    "PSRL": ("PSRL, tuned", "#009E73", "D"),
    "Greedy shared": ("8 shared features,\nno bonus", "#767676", "v"),
}
SHIFT = {"PSRL": 0.66, "Greedy shared": 1.15, "UCRL2": 0.78, "UCRL-MNL-SE one-hot": 1.25}
"""Factors that keep labels at the right edge apart."""


def read_table(path):
    """Return the number of states and, for each row, mean, low and high of the episodes lost."""
    lines = [line.strip("| ").split(" | ") for line in path.read_text().splitlines() if "|" in line]
    sizes = [int(re.search(r"\d+", cell)[0]) for cell in lines[0][1:]]
    number = r"(-?[\d.]+) \[(-?[\d.]+), (-?[\d.]+)\]"
    rows = {
        cells[0]: [tuple(map(float, re.match(number, cell).groups())) for cell in cells[1:]]
        for cells in lines[2:]
        if re.match(number, cells[-1])
    }
    return sizes, rows


def main():
    sizes, rows = read_table(HERE.parent / "results" / "tables" / "scaling.md")
    figure, axes = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    for name, (label, colour, marker) in CURVES.items():
        mean, low, high = zip(*rows[name], strict=True)
        axes.fill_between(sizes, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(sizes, mean, color=colour, marker=marker, markersize=4.5, linewidth=1.8)
        axes.annotate(
            label, (sizes[-1], mean[-1] * SHIFT.get(name, 1.0)), xytext=(8, 0),
            textcoords="offset points", color=colour, fontsize=9, va="center",
            annotation_clip=False,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(s) for s in sizes])
    axes.set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    axes.minorticks_off()
    axes.set_ylim(1.2, 140)
    axes.set_xlim(sizes[0] * 0.93, sizes[-1] * 1.03)
    axes.set_xlabel("number of states of the river")
    axes.set_ylabel("episodes lost, of 100")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    figure.savefig(HERE / "rivers.png", dpi=260, facecolor="white")


if __name__ == "__main__":
    main()
