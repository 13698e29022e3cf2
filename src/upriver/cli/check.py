"""`upriver check`: verify that a results folder is what it was when it was written."""

from __future__ import annotations

from pathlib import Path


def check(folder: Path) -> int:
    """Verify every file of a results folder and name those that are not as they were written.

    A file may be damaged, moved, unreadable or not written by upriver. Nothing is changed. The exit
    code is 1 if anything is wrong; missing runs are only counted, because they can be played.

    **Example:** `upriver check results/quick`

    Parameters
    ----------
    folder
        A results folder, as `upriver run` or `upriver tune` writes it.
    """
    from upriver.experiments import check as check_folder
    from upriver.results.runs import find_store
    from upriver.results.tables import escape_controls

    found = check_folder(find_store(folder))
    for problem in found.problems:
        print(escape_controls(problem))
    missing = f", {found.missing} runs missing" if found.missing else ""
    bad = len(found.problems)
    print(f"{found.whole} run files whole{missing}, {bad} problem{'s' * (bad != 1)}")
    return 1 if bad else 0
