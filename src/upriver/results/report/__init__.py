"""A results folder as one HTML page: `collect` computes the numbers, `page` writes the page."""

from __future__ import annotations

from pathlib import Path

from upriver.mdp.writing import write_file
from upriver.results.report.data import collect
from upriver.results.report.page import page

__all__ = ["collect", "page", "write_report"]


def write_report(folder: str | Path, file: str | Path | None = None) -> Path:
    """Write the page of a results folder; without `file`, as report.html inside the folder."""
    return write_file(file or Path(folder) / "report.html", page(collect(folder)))
