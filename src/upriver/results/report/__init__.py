"""A results folder as one HTML page: `collect` makes the numbers, `page` the page."""

from __future__ import annotations

import os
from pathlib import Path

from upriver.results.report.data import collect
from upriver.results.report.page import page

__all__ = ["collect", "page", "write_page", "write_report"]


def write_report(folder: str | Path, file: str | Path | None = None) -> Path:
    """Collect the numbers of a folder and write its page; report.html in the folder if absent."""
    return write_page(page(collect(folder)), Path(file or Path(folder) / "report.html"))


def write_page(text: str, file: Path) -> Path:
    """Under another name first, so that somebody who has the page open never reads half of it."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)
    return file
