"""Draw the thumbnails of the examples page: run each page and draw what it has computed.

python docs/figures/draw_examples.py [NAME ...]
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from PIL import Image

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from tests import pages  # noqa: E402

SIZE = 560, 340
"""Pixels; the page shows them at half of this."""
DRAW = {
    "start/first-hour": lambda m: m["best"].plot(),
    "tutorials/inventory": lambda m: m["figure"],
    "tutorials/fifty-machines": lambda m: m["figure"],
    "tutorials/log": lambda m: m["model"].plot(),
    "tutorials/trial": lambda m: draw_arms(m),
    "tutorials/cohort": lambda m: m["gain"].plot(m["np"].linspace(0, 100_000, 101)),
    "tutorials/credit": lambda m: m["model"].plot(),
    "tutorials/catsup": lambda m: m["better"].plot(),
    "tutorials/bus-engine": lambda m: m["model"].plot(),
    "howto/write-an-agent": lambda m: m["run"].plot(),
}
COPIES = {"gymnasium": "ellipse", "reproduction": "figure2", "icu-sepsis": "icu-sepsis"}


def draw_arms(m):
    """Draw the mean of each arm of the trial, with the model and without."""
    figure, ax = plt.subplots(figsize=(4.2, 2.5), layout="constrained")
    for i, arm in enumerate(("drug", "placebo")):
        visits = m["log"][m["log"]["action"] == arm].groupby("patient")["good"].sum()
        error = 1.96 * visits.std() / len(visits) ** 0.5
        value = m["up"].policy_value(m["model"], arm)
        low, high = value.value - value.low, value.high - value.value
        ax.errorbar(value.value, i - 0.12, xerr=[[low], [high]], fmt="o", color="#0072b2")
        ax.errorbar(visits.mean(), i + 0.12, xerr=error, fmt="s", color="#767676")
    ax.set(yticks=[0, 1], yticklabels=["drug", "placebo"], ylim=(1.5, -0.5))
    ax.set_xlabel("visits in good status, of 4")
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def save(picture, name):
    """Write a thumbnail: as wide as its frame, and cut below."""
    width, height = SIZE
    picture = picture.convert("RGB")
    picture.thumbnail((width - 16, height - 16), Image.Resampling.LANCZOS)
    frame = Image.new("RGB", SIZE, "white")
    frame.paste(picture, ((width - picture.width) // 2, (height - picture.height) // 2))
    frame.quantize(64).save(HERE / "examples" / f"{name}.png", optimize=True)


def main(names):
    for name, source in COPIES.items():
        if not names or name in names:
            picture = Image.open(HERE / f"{source}.png")
            first = picture.width * 0.56 if picture.height > 2 * picture.width else picture.height
            save(picture.crop((0, 0, picture.width, round(first))), name)  # of panels the first
    for page, draw in DRAW.items():
        name = Path(page).name
        if names and name not in names:
            continue
        memory: dict = {}
        with tempfile.TemporaryDirectory() as folder:
            pages.run(HERE.parent / f"{page}.md", Path(folder), memory=memory)
        file = io.BytesIO()
        draw(memory).savefig(file, format="png", dpi=170, facecolor="white")
        save(Image.open(file), name)
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
