"""Numbers to one HTML file that needs nothing else: no network, no server."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any


def page(data: Mapping[str, Any]) -> str:
    """The report of what `collect` found: template, style, scripts, plotly.js and the numbers."""
    from plotly.offline import get_plotlyjs

    return filled(
        read("template.html"),
        {
            "title": html.escape(str(data["title"])),
            "style": read("style.css"),
            "plotly": get_plotlyjs(),
            "charts": read("charts.js"),
            "page": read("page.js"),
            "data": embedded(data),
        },
    )


def read(name: str) -> str:
    return (resources.files("upriver.results.report") / name).read_text(encoding="utf-8")


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with each {{name}} replaced, in one pass: a part is never searched itself."""
    pieces = template.split("{{")
    text = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        text += [parts[name], rest]
    return "".join(text)


def embedded(data: Mapping[str, Any]) -> str:
    """JSON that may stand inside a script element, whatever the names in it are."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
