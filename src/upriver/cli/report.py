"""`upriver report`: write a results folder as one HTML page."""

from __future__ import annotations

import sys
from pathlib import Path


def report(folder: Path, *, out: Path | None = None) -> int:
    """Write one self-contained, interactive HTML page about a results folder.

    It has tables, learning and regret curves, what was learned, tuning, run time and the
    experiments that made it. The file needs no network.

    **Example:** `upriver report results/quick`

    Parameters
    ----------
    folder
        A results folder, as `upriver run` or `upriver tune` writes it.
    out
        The file to write. The default is report.html in the folder.
    """
    from upriver.mdp.writing import write_file
    from upriver.results.report import collect, page
    from upriver.results.runs import describe_failures

    data = collect(folder)
    file = write_file(out or folder / "report.html", page(data))
    print(f"{file} ({file.stat().st_size / 1e6:.1f} MB, {data['runs']} runs)")
    for sentence in data["problems"]:
        print(f"upriver: {sentence}; it was left out", file=sys.stderr)
    if failures := data["failures"]:
        print(f"upriver: {describe_failures(failures)}; the page lists them", file=sys.stderr)
    return 1 if data["problems"] or failures else 0
