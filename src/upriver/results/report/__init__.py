"""A results folder as one HTML page, which needs no network and no server."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any


def page(data: Mapping[str, Any]) -> str:
    """Return the report of what `collect` returned, with style, scripts and plotly.js inside."""
    from plotly.offline import get_plotlyjs

    def read(name: str) -> str:
        return (resources.files("upriver.results.report") / name).read_text(encoding="utf-8")

    parts = {"title": html.escape(str(data["title"])), "data": embed_json(data)}
    parts |= {"style": read("style.css"), "charts": read("charts.js"), "page": read("page.js")}
    return fill_template(read("template.html"), parts | {"plotly": get_plotlyjs()})


def fill_template(template: str, parts: Mapping[str, str]) -> str:
    """Replace each {{name}} of a template in one pass; the parts are not searched themselves."""
    return re.sub("{{(.*?)}}", lambda found: parts[found[1]], template)


def embed_json(data: Mapping[str, Any]) -> str:
    """Write JSON that may stand inside a script element, whatever names it holds."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
