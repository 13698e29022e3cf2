"""A results folder as one HTML page: `collect` makes the numbers, `page` the page."""

from __future__ import annotations

from pathlib import Path

from upriver.mdp.writing import write_file
from upriver.results.report.data import collect
from upriver.results.report.page import page

__all__ = ["collect", "page", "write_report"]


def write_report(folder: str | Path, file: str | Path | None = None) -> Path:
    """Collect the numbers of a folder and write its page; report.html in the folder if absent."""
    return write_file(file or Path(folder) / "report.html", page(collect(folder)))
