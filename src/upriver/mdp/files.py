"""MDPs as files: an npz archive, or a TOML file with a CSV table of its transitions beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from upriver.checks import Array
from upriver.mdp.archive import decode_from, encode, read_archive, write_archive
from upriver.mdp.finite import FiniteMDP


def save_mdp(mdp: FiniteMDP, path: Any) -> None:
    """The work of `FiniteMDP.save`."""
    suffix = Path(path).suffix
    if suffix == ".toml":
        from upriver.mdp.textfiles import write_mdp

        write_mdp(mdp, Path(path))
    elif suffix == ".npz":
        arrays: dict[str, Array] = {}
        write_archive(path, "mdp", encode(mdp, arrays), arrays)
    else:
        raise ValueError(f"path is {str(path)!r}; it must end in .npz or .toml")


def load_mdp(path: Any) -> FiniteMDP:
    """The work of `FiniteMDP.load`."""
    suffix = Path(path).suffix
    if suffix == ".toml":
        from upriver.mdp.textfiles import read_mdp

        return read_mdp(Path(path))
    if suffix != ".npz":
        raise ValueError(f"path is {str(path)!r}; it must end in .npz or .toml")
    return decode_from(path, *read_archive(path, "mdp"))
