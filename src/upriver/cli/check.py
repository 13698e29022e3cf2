"""`upriver check`: whether a results folder is what it was when it was written."""

from __future__ import annotations

from pathlib import Path


def check(folder: Path) -> int:
    """Look at every file of a results folder: damaged, foreign, moved, duplicate, unreadable.

    Nothing is changed. The exit code is 1 if anything is wrong; runs that are missing are only
    counted, for they can be played.

    **Example:** `upriver check results/quick`

    Parameters
    ----------
    folder
        A results folder, as `upriver run` or `upriver tune` writes it.
    """
    from upriver.experiments.check import check as look
    from upriver.results.runs import find_store

    found = look(find_store(folder))
    for kind, sentence in found.problems:
        print(f"{kind}: {sentence}")
    old = f", {found.unsealed} of version 0.1 without a seal" if found.unsealed else ""
    missing = f", {found.missing} runs missing" if found.missing else ""
    bad = len(found.problems)
    print(f"{found.whole} run files whole{old}{missing}, {bad} problem{'s' * (bad != 1)}")
    return 1 if bad else 0
