"""A decision from a log as one HTML page: what a plan is worth, against what was done."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from upriver.results.report.page import fill_template, read_asset


def decision_page(data: Mapping[str, Any]) -> str:
    """The page of the numbers that `upriver decide` found; it needs no script and no network."""
    parts = {k: v for k, v in data.items() if isinstance(v, str)}
    text = {k: html.escape(v) for k, v in parts.items()}
    return fill_template(
        read_asset("decision.html"),
        text
        | {
            "style": read_asset("style.css"),
            "intervals": intervals(data["values"][:2]),
            "worth": table(("", "value", "std. error", "low", "high"), map(told, data["values"])),
            "policy": table(("state", "do", "was done"), data["policy"]),
            "missing": table(("state", "action", data["counted"], "rows"), data["missing"]),
            "checks": checks(data["checks"], text["verdict"]),
        },
    )


def told(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["name"], *(f"{row[k]:.4g}" for k in ("value", "standard_error", "low", "high"))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = "".join(
        f"<tr><th scope='row'>{html.escape(str(first))}</th>"
        f"{''.join(f'<td>{html.escape(str(x))}</td>' for x in rest)}</tr>"
        for first, *rest in rows
    )
    titles = "".join(f"<th scope='col'>{html.escape(x)}</th>" for x in head)
    body = f"<table><thead><tr>{titles}</tr></thead><tbody>{cells}</tbody></table>"
    return f"<div class='scroll' tabindex='0'>{body}</div>"


def checks(rows: Sequence[Mapping[str, Any]], verdict: str) -> str:
    if not rows:
        return f"<p>{verdict}</p>"
    head = "estimate", "value", "std. error", "low", "high", "effective episodes"
    body = table(head, [(*told(r), f"{r['effective']:.1f}") for r in rows])
    return f"<p>{verdict}.</p>{intervals(rows)}{body}"


def intervals(rows: Sequence[Mapping[str, Any]]) -> str:
    """The values and their intervals as lines, one below the other."""
    low, high = min(r["low"] for r in rows), max(r["high"] for r in rows)
    span = (high - low) or 1.0
    left, width, step = 230, 440, 34

    def x(value: float) -> float:
        return left + width * (value - low) / span

    lines = []
    for i, r in enumerate(rows):
        y = step * (i + 0.5)
        said = f"{r['name']}: {r['value']:.4g}, from {r['low']:.4g} to {r['high']:.4g}"
        lines.append(
            f"<g><title>{html.escape(said)}</title>"
            f"<text x='0' y='{y + 5:.1f}'>{html.escape(r['name'])}</text>"
            f"<line x1='{x(r['low']):.1f}' x2='{x(r['high']):.1f}' y1='{y:.1f}' y2='{y:.1f}' "
            "stroke='currentColor' stroke-width='3'/>"
            f"<circle cx='{x(r['value']):.1f}' cy='{y:.1f}' r='6' fill='#d55e00'/></g>"
        )
    bottom = step * len(rows)
    for value, anchor in ((low, "start"), (high, "end")):
        lines.append(
            f"<text x='{x(value):.1f}' y='{bottom + 14}' text-anchor='{anchor}'>{value:.4g}</text>"
        )
    size = f"viewBox='0 0 {left + width + 10} {bottom + 20}'"
    return f"<svg {size} role='img' width='100%' style='max-width:680px'>{''.join(lines)}</svg>"
