"""Experiments from files: the folder `catalogue`, which comes with the package, or your own."""

from __future__ import annotations

import os
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from upriver.experiments import names
from upriver.experiments.spec import Experiment, parse
from upriver.experiments.trust import vet_entry


def catalogue() -> list[str]:
    """Names of the experiments that come with the package."""
    folder = resources.files("upriver.experiments") / "catalogue"
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def load(name: str | Path, trust: bool = False) -> Experiment:
    """The experiment of a catalogue name, or of a TOML file.

    trust: let the file name code that lies anywhere, see `trust`.
    """
    if str(name) in catalogue():
        file = resources.files("upriver.experiments") / "catalogue" / f"{name}.toml"
        return loads(file.read_text(encoding="utf-8"), f"catalogue {name}")
    if str(name).endswith(".toml") or Path(name).exists():
        return read(name, trust)
    raise names.unknown("experiment", str(name), catalogue())


def read(path: str | Path, trust: bool = False) -> Experiment:
    """The experiment of a TOML file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot read the experiment {str(path)!r}: {reason}") from error
    return loads(text, str(path), Path(path).parent, trust)


def loads(
    text: str, source: str = "experiment", folder: Path | None = None, trust: bool = False
) -> Experiment:
    """The experiment of a TOML text; `source` names it in errors, files start at `folder`."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"{source} is not TOML: {error}") from error
    here = Path() if folder is None else folder
    for kind, key in (("environments", "path"), ("agents", "features")):
        entries = data.get(kind)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict):
                if not trust:
                    vet_entry(entry, here, source)
                if folder and key in entry:
                    entry[key] = placed(entry[key], here, always=key == "path")
    return parse(data, source)


def placed(value: Any, folder: Path, always: bool) -> Any:
    """A path under `folder`; features are one only if they are a file."""
    if isinstance(value, list):
        return [placed(x, folder, always) for x in value]
    is_path = isinstance(value, str) and (always or names.is_file(value))
    return os.path.abspath(folder / value) if is_path else value
