"""What is said twice because tools want it so is said alike."""

import re
from pathlib import Path

from tools.environment import floors

import upriver

ROOT = Path(__file__).parents[1]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def as_numbers(version):
    return [int(x) for x in re.findall(r"\d+", version)]


PINS = dict(
    (name.lower(), version)
    for name, version in re.findall(r"^([\w-]+)==(.+)$", text("constraints.txt"), re.M)
)


def test_no_floor_is_above_the_version_we_test_with():
    lowest = dict(x.split("==") for x in floors(text("pyproject.toml")))
    assert {"numpy", "numba", "gymnasium", "pytest"} <= set(lowest)
    for name in lowest.keys() - {"hatchling"}:  # builds the package, and is not installed
        assert as_numbers(lowest[name]) <= as_numbers(PINS[name]), name


def test_floors_are_read_from_every_list_of_dependencies():
    assert floors('a = ["x>=1.2", "y-z>=3"]\nb = [\n    "x>=1.2",\n]') == ["x==1.2", "y-z==3"]


def test_a_commit_is_formatted_by_the_ruff_that_checks_it():
    used = re.findall(r"ruff==([\d.]+)", text(".pre-commit-config.yaml"))
    assert used == [PINS["ruff"]] * 2


def test_the_version_has_its_place_in_the_changelog():
    version, changes = upriver.__version__, text("CHANGELOG.md")
    if version.endswith(".dev0"):
        assert "\n## Unreleased\n" in changes
    else:
        assert f"\n## {version}\n" in changes
        assert f"\nversion: {version}\n" in text("CITATION.cff")
