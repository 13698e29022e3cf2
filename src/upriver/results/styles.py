"""How an agent looks, the same in every figure and page: a colour, a dash and a marker.

Colours are those of Okabe and Ito, which people with any of the usual colour deficiencies can tell
apart, without the yellow, which is too pale for a line; each has a lighter twin for dark pages.
Agents of one colour differ in their dashes, so that print in grey can be read too.
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
GREY = "#767676", "#a3a3a3"
INK = "#1a1a1a", "#f2f2f2"

KNOWN: dict[str, Style] = {
    "optimal": Style(*INK, "dash", ""),
    "random": Style(*GREY, "dot", "x"),
    "always": Style(*GREY, "dashdot", "+"),
    "greedy": Style(*SKY, "dash", "v"),
    "ucrl-mnl": Style(*BLUE, "solid", "o"),
    "ucrl-mnl-one-hot": Style(*BLUE, "solid", "o"),
    "ucrl-mnl-shared": Style(*BLUE, "dashdot", "*"),
    "ucrl-mnl-l1": Style(*BLUE, "dash", "D"),
    "ucrl-mnl-ll": Style(*BLUE, "dot", "<"),
    "ucrl-mnl-plus": Style(*PURPLE, "dash", ">"),
    "ucrl-mnl-ol": Style(*PURPLE, "dashdot", "p"),
    "rrl-mnl": Style(*GREEN, "dash", "h"),
    "orrl-mnl": Style(*ORANGE, "dash", "d"),
    "uc-matrix-rl": Style(*VERMILION, "solid", "s"),
    "ucrl-vtr": Style(*GREEN, "solid", "^"),
    "lsvi-ucb": Style(*PURPLE, "solid", "P"),
    "lsvi-phe": Style(*ORANGE, "solid", "X"),
    "ucbvi": Style(*BROWN, "solid", "s"),
    "psrl": Style(*BROWN, "dash", "o"),
    "rlsvi": Style(*BROWN, "dot", "^"),
    "ucrl2": Style(*BROWN, "dashdot", "v"),
    "epsilon-greedy": Style(*GREY, "solid", "*"),
}
"""Agents by name; labels are compared in small letters, without hyphens and spaces."""

TUNED = " (tuned)"
"""A label that ends so has the colour of the agent before it and a dash of its own."""

SPARE = tuple(
    Style(*colour, dash, marker)
    for dash, marker in (("dash", "D"), ("dashdot", "v"), ("dot", "<"), ("solid", "*"))
    for colour in (VERMILION, GREEN, ORANGE, BLUE, PURPLE, SKY, BROWN, GREY)
    if (*colour, dash) not in {style[:3] for style in KNOWN.values()}
)
"""What is left for labels that are not in the table."""

LENT = tuple(style for name, style in KNOWN.items() if name != "optimal")
"""Looks of known agents, for a figure with more strangers than there are spare ones."""


def plain(label: str) -> str:
    """A label as the table of known agents is looked up."""
    return re.sub(r"[^a-z0-9+]+", "", label.lower()).replace("mnl+", "mnlplus")


BY_PLAIN = {plain(name): style for name, style in KNOWN.items()}


def known(label: str) -> Style | None:
    """The style of an agent of the table, or of its tuned form."""
    style = BY_PLAIN.get(plain(label.removesuffix(TUNED)))
    if style is not None and label.endswith(TUNED):
        return style._replace(dash="dash" if style.dash == "solid" else "dot")
    return style


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """The style of each label; two labels get one style only when all styles are taken.

    A label outside the table has a style of its own that follows from its letters; where two of
    them meet in one figure the later in the alphabet moves on to the next free one, of a colour
    that nobody has if there is one.
    """
    labels = list(labels)
    found = {label: style for label in labels if (style := known(label)) is not None}
    taken = set(found.values())
    for label in sorted(set(labels) - set(found)):
        digest = hashlib.sha256(plain(label).encode()).digest()
        first = int.from_bytes(digest[:8], "big") % len(SPARE)
        order = SPARE[first:] + SPARE[:first] + LENT
        free = [s for s in order if s not in taken] or order
        colours = {s.light for s in taken}
        found[label] = next((s for s in free if s.light not in colours), free[0])
        taken.add(found[label])
    return {label: found[label] for label in labels}
