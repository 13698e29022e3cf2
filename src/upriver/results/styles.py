"""The look of an agent, the same in every figure and page: a colour, a marker and a dash.

Colours are those of Okabe and Ito, which people with any of the usual colour deficiencies can tell
apart, without the yellow, which is too pale for a line; each has a lighter twin for dark pages. A
family shares a colour and its members differ in marker and dash, so that a print in grey can be
read too. An agent with other features, or with another setting, keeps its colour and marker.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
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
DASHES = "solid", "dash", "dashdot", "dot"

KNOWN: dict[str, Style] = {
    "optimal": Style(*INK, "dash", ""),
    # agents that do not explore on purpose
    "greedy": Style(*GREY, "dash", "v"),
    "epsilon-greedy": Style(*GREY, "solid", "*"),
    "random": Style(*GREY, "dot", "x"),
    "always": Style(*GREY, "dashdot", "+"),
    # a bonus in standard errors
    "ucrl-mnl-se": Style(*VERMILION, "solid", "D"),
    # an ellipsoid around the maximum-likelihood estimate
    "ucrl-mnl": Style(*BLUE, "solid", "o"),
    "ucrl-mnl-ll": Style(*BLUE, "dot", "<"),
    # an ellipsoid around an online estimate
    "ucrl-mnl-plus": Style(*SKY, "dash", ">"),
    "ucrl-mnl-ol": Style(*SKY, "dashdot", "p"),
    "ucrl-mnl-l1": Style(*SKY, "solid", "d"),
    "ucmnlk": Style(*SKY, "dot", "P"),
    # random draws around an estimate
    "rrl-mnl": Style(*GREEN, "dash", "h"),
    "orrl-mnl": Style(*GREEN, "dashdot", "H"),
    "psrl-mnl": Style(*GREEN, "solid", "8"),
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

SPARE = tuple(
    Style(*colour, dash, marker)
    for dash, marker in (("dash", "D"), ("dashdot", "v"), ("dot", "<"), ("solid", "*"))
    for colour in (VERMILION, GREEN, ORANGE, BLUE, PURPLE, SKY, BROWN, OLIVE, GREY)
    if (*colour, dash) not in {style[:3] for style in KNOWN.values()}
)
"""Styles for labels that are not in the table."""


def normalize_label(label: str) -> str:
    """Return a label in the form in which known agents are looked up."""
    return re.sub(r"[^a-z0-9+]+", "", label.lower()).replace("mnl+", "mnlplus")


BY_LABEL = {normalize_label(name): style for name, style in KNOWN.items()}


def assign_styles(labels: Iterable[str]) -> dict[str, Style]:
    """Assign a style to each label; two labels share one only when all its styles are in use.

    Labels of one agent (with several features or settings) share its colour and marker, and differ
    in their dashes as long as there are any. The style of a label outside the table follows from
    its letters; where two of these would share a style in one figure, the later in the alphabet
    takes the next free one, of an unused colour if there is one.
    """
    labels = list(dict.fromkeys(labels))
    found: dict[str, Style] = {}
    for label in sorted(labels, key=lambda label: (normalize_label(label) not in BY_LABEL, label)):
        words = [normalize_label(word) for word in label.split(" ")]
        names = ("".join(words[:n]) for n in range(len(words), 0, -1))  # the longest that is known
        own = next((BY_LABEL[name] for name in names if name in BY_LABEL), None)
        if own is not None:
            options = [own, *(own._replace(dash=dash) for dash in DASHES)]
        else:
            digest = hashlib.sha256(normalize_label(label).encode()).digest()
            first = int.from_bytes(digest[:8], "big") % len(SPARE)
            options = [*SPARE[first:], *SPARE[:first], *list(KNOWN.values())[1:]]  # not optimal
            colours = {style.light for style in found.values()}
            options.sort(key=lambda style: style.light in colours)  # an unused colour first
        found[label] = next((s for s in options if s not in found.values()), options[0])
    return {label: found[label] for label in labels}
