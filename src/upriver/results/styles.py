"""The look of an agent, the same in every figure and page: a colour, a marker and a dash.

Colours are those of Okabe and Ito, which people with any of the usual colour deficiencies can tell
apart, without the yellow, which is too pale for a line; each has a lighter twin for dark pages. A
family shares a colour, and no two agents have both colour and marker in common, so that a print in
grey can be read too. Only the optimum is black. An agent with other features or another setting
keeps its colour and has a marker that no other agent of that colour has.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from itertools import cycle
from typing import NamedTuple


class Style(NamedTuple):
    light: str
    """Colour on a white page."""
    dark: str
    """Colour on a black page."""
    dash: str
    """solid, dash, dot or dashdot."""
    marker: str
    """A marker that matplotlib knows."""


BLUE = "#0072b2", "#56a8e0"
VERMILION = "#d55e00", "#ff8a3d"
GREEN = "#009e73", "#2fc99b"
PURPLE = "#b5578e", "#e08fc0"
ORANGE = "#c98500", "#f0b429"
SKY = "#3a9fd8", "#8fd0f5"
BROWN = "#7a5230", "#c49a6c"
OLIVE = "#6b7d1e", "#b9cc6a"
GREY = "#767676", "#a3a3a3"
INK = "#1a1a1a", "#f2f2f2"
COLOURS = VERMILION, GREEN, ORANGE, BLUE, PURPLE, SKY, BROWN, OLIVE, GREY
DASHES = "solid", "dash", "dashdot", "dot"
MARKERS = "o", "s", "^", "D", "v", "X", "P", "*"

KNOWN: dict[str, Style] = {
    "optimal": Style(*INK, "dash", ""),
    # agents that do not explore on purpose
    "greedy": Style(*GREY, "dash", "v"),
    "epsilon-greedy": Style(*GREY, "solid", "*"),
    "random": Style(*GREY, "dot", "X"),
    "always": Style(*GREY, "dashdot", "P"),
    # a bonus in standard errors
    "ucrl-mnl-se": Style(*VERMILION, "solid", "D"),
    # an ellipsoid around the maximum-likelihood estimate
    "ucrl-mnl": Style(*BLUE, "solid", "o"),
    "ucrl-mnl-ll": Style(*BLUE, "dot", "v"),
    "ucrl-mnl-lr": Style(*BLUE, "dash", "P"),
    # an ellipsoid around an online estimate
    "ucrl-mnl-plus": Style(*SKY, "dash", "^"),
    "ucrl-mnl-ol": Style(*SKY, "dashdot", "s"),
    "ucrl-mnl-l1": Style(*SKY, "solid", "D"),
    "ucmnlk": Style(*SKY, "dot", "P"),
    # random draws around an estimate
    "rrl-mnl": Style(*GREEN, "dash", "^"),
    "orrl-mnl": Style(*GREEN, "dashdot", "X"),
    "psrl-mnl": Style(*GREEN, "solid", "o"),
    # linear models of transitions, linear values
    "uc-matrix-rl": Style(*ORANGE, "solid", "s"),
    "ucrl-vtr": Style(*ORANGE, "dash", "^"),
    "lsvi-ucb": Style(*PURPLE, "solid", "P"),
    "lsvi-phe": Style(*PURPLE, "dash", "X"),
    # tables of counts: optimistic, random
    "ucbvi": Style(*BROWN, "solid", "s"),
    "ucbvi-bf": Style(*BROWN, "dot", "D"),
    "ucrl2": Style(*BROWN, "dashdot", "v"),
    "psrl": Style(*OLIVE, "dash", "o"),
    "rlsvi": Style(*OLIVE, "dot", "^"),
}
"""Styles by agent; labels are compared in lower case, without hyphens and spaces."""

TUNED = " (tuned)"
"""The ending of the label of an agent whose regularisation was tuned too."""
VARIANTS = "shared", "pooled", "onehot", "eachstep"
"""What labels add for an agent with other features: each has a marker of its own."""


def normalize_label(label: str) -> str:
    """Return a label in the form in which known agents are looked up."""
    return re.sub(r"[^a-z0-9+]+", "", label.lower()).replace("mnl+", "mnlplus")


BY_LABEL = {normalize_label(name): style for name, style in KNOWN.items()}


def list_styles(label: str) -> list[Style]:
    """Return the styles that a label may have, the first choice first.

    That of a label outside of the table follows from its letters.
    """
    words = [normalize_label(word) for word in label.removesuffix(TUNED).split(" ")]
    # the longest beginning that is a known name; the rest is what features it has
    n = next((n for n in range(len(words), 0, -1) if "".join(words[:n]) in BY_LABEL), 0)
    own, variant = BY_LABEL.get("".join(words[:n])), "".join(words[n:])
    letters = int.from_bytes(hashlib.sha256("".join(words).encode()).digest()[:8], "big")
    first = VARIANTS.index(variant) if own and variant in VARIANTS else letters
    rows = zip(*map(free_styles, [own[:2]] if own else COLOURS), strict=False)
    free = [style for row in rows for style in row]
    free = free[first % len(free) :] + free[: first % len(free)]
    return free if own is None else [*free, own] if variant else [own, *free]


def free_styles(colour: tuple[str, str]) -> list[Style]:
    """Return the styles of a colour whose markers belong to no known agent."""
    taken = {style.marker for style in KNOWN.values() if style.light == colour[0]}
    free = (marker for marker in MARKERS if marker not in taken)
    return [Style(*colour, dash, m) for m, dash in zip(free, cycle(DASHES[1:]), strict=False)]


def assign_styles(labels: Iterable[str]) -> dict[str, Style]:
    """Assign a style to each label; two labels share one only when all its styles are in use.

    Where two labels of a figure would share a style, the later in the alphabet takes the next free
    one, for an agent outside of the table one of an unused colour if there is one.
    """
    labels = list(dict.fromkeys(labels))
    found: dict[str, Style] = {}
    for label in sorted(labels, key=lambda label: (normalize_label(label) not in BY_LABEL, label)):
        options = list_styles(label)
        if len({style.light for style in options}) > 1:
            colours = {style.light for style in found.values()}
            options.sort(key=lambda style: style.light in colours)  # an unused colour first
        found[label] = next((s for s in options if s not in found.values()), options[0])
    return {label: found[label] for label in labels}
