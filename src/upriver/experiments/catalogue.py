"""The experiments that come with the package: one TOML file each, in the folder `catalogue`."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from upriver.experiments import names
from upriver.experiments.spec import Experiment, loads, read


def catalogue() -> list[str]:
    """Names of the experiments that come with the package."""
    folder = resources.files("upriver.experiments") / "catalogue"
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def load(name: str | Path) -> Experiment:
    """The experiment of a catalogue name, or of a TOML file."""
    if str(name) in catalogue():
        file = resources.files("upriver.experiments") / "catalogue" / f"{name}.toml"
        return loads(file.read_text(encoding="utf-8"), f"catalogue {name}")
    if str(name).endswith(".toml") or Path(name).exists():
        return read(name)
    raise names.unknown("experiment", str(name), catalogue())
