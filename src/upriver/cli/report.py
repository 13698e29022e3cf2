"""`upriver report`: a results folder as one HTML page."""

from __future__ import annotations

import sys
from pathlib import Path


def report(folder: Path, *, out: Path | None = None) -> int:
    """Write one self-contained, interactive HTML page about a results folder.

    Tables, learning and regret curves, what was learned, tuning, run time and the specs that made
    it. The file needs no network; send it to anybody.

    **Example:** `upriver report results/quick`

    Parameters
    ----------
    folder
        A results folder, as `upriver run` or `upriver tune` writes it.
    out
        The file to write; report.html in the folder if absent.
    """
    from upriver.mdp.writing import write_file
    from upriver.results.report import collect, page
    from upriver.results.runs import describe_failures

    data = collect(folder)
    file = write_file(out or folder / "report.html", page(data))
    print(f"{file} ({file.stat().st_size / 1e6:.1f} MB, {data['runs']} runs)")
    for sentence in data["problems"]:
        print(f"upriver: {sentence}; it was left alone and left out", file=sys.stderr)
    if data["failures"]:
        print(
            f"upriver: {describe_failures(data['failures'])}; the page lists them", file=sys.stderr
        )
    return 1 if data["problems"] or data["failures"] else 0
