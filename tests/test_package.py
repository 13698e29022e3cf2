"""The public names, what `import upriver` costs, and what is written down in two places."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tools.environment import floors

import upriver

ROOT = Path(__file__).parents[1]
PACKAGE = Path(upriver.__file__).parent
HEAVY = (
    "numba", "matplotlib", "plotly", "pyarrow", "gymnasium", "scipy.sparse", "pydantic", "pandas",
    "duckdb", "distributed",
)  # fmt: skip


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def version_numbers(version: str) -> list[int]:
    return [int(x) for x in re.findall(r"\d+", version)]


def pinned_versions() -> dict[str, str]:
    pins = re.findall(r"^([\w-]+)==(.+)$", read("constraints.txt"), re.M)
    return {name.lower(): version for name, version in pins}


def test_importing_the_library_loads_nothing_heavy():
    code = (
        f"import sys, upriver; print([n for n in {(*HEAVY, 'upriver.cli')!r} if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_each_public_name_can_be_loaded():
    for name in upriver.__all__:
        assert getattr(upriver, name) is not None


def test_every_layer_is_described_for_contributors():
    contract = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"][0]
    layers = {name for layer in contract["layers"] for name in layer.replace("|", " ").split()}
    described = set(re.findall(r"^\| `(\w+)` \|", read("CONTRIBUTING.md"), re.M))
    assert described == layers


def test_no_lowest_version_is_above_the_one_that_is_tested():
    lowest = dict(x.split("==") for x in floors(read("pyproject.toml")))
    pins = pinned_versions()
    assert {"numpy", "numba", "gymnasium", "pytest"} <= set(lowest)
    for name in lowest.keys() - {"hatchling"}:  # it builds the package and is not installed
        assert version_numbers(lowest[name]) <= version_numbers(pins[name]), name


def test_lowest_versions_are_read_from_every_list_of_dependencies():
    assert floors('a = ["x>=1.2", "y-z>=3"]\nb = [\n    "x>=1.2",\n]') == ["x==1.2", "y-z==3"]


def test_the_commit_hook_uses_the_ruff_that_make_lint_uses():
    used = re.findall(r"ruff==([\d.]+)", read(".pre-commit-config.yaml"))
    assert used == [pinned_versions()["ruff"]] * 2


def test_the_version_has_its_section_in_the_changelog():
    version, changes = upriver.__version__, read("CHANGELOG.md")
    assert f"\n## {version.removesuffix('.dev0')}" in changes
    if not version.endswith(".dev0"):
        assert f"\nversion: {version}\n" in read("CITATION.cff")


def test_every_change_of_the_mutation_run_can_be_made():
    """Otherwise a change of the source would take a check of the tests with it, unnoticed."""
    lists = [x for x in ast.walk(ast.parse(read("tests/mutants.py"))) if isinstance(x, ast.Tuple)]
    changes = [x for x in map(ast.literal_eval, filter(is_literal, lists)) if len(x) == 3]
    assert len(changes) > 150
    for file, old, _ in changes:
        assert (PACKAGE / file).read_text(encoding="utf-8").count(old) == 1, (file, old)


def is_literal(node: ast.Tuple) -> bool:
    return all(isinstance(x, ast.Constant) and isinstance(x.value, str) for x in node.elts)
