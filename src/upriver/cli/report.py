"""`upriver report`: write a results folder as one HTML page."""

from __future__ import annotations

from pathlib import Path

from upriver.cli.table import report_omissions


def report(folder: Path, *, out: Path | None = None) -> int:
    """Write one self-contained, interactive HTML page about a results folder.

    It has tables, learning and regret curves, tuning, run time and the experiments that made
    it. The file needs no network.

    **Example:** `upriver report results/quick`

    Parameters
    ----------
    folder
        A results folder, as `upriver run` or `upriver tune` writes it.
    out
        The file to write. The default is report.html in the folder.
    """
    from upriver.mdp.writing import write_file
    from upriver.results.report import page
    from upriver.results.report.data import collect

    data = collect(folder)
    file = write_file(out or folder / "report.html", page(data))
    print(f"{file} ({file.stat().st_size / 1e6:.1f} MB, {data['runs']} runs)")
    return report_omissions(data["problems"], data["failures"])
