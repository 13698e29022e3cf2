"""Arrows go down only: who may import whom, and what `import upriver` may cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import upriver

ROOT = Path(upriver.__file__).parent
HEAVY = (
    "numba", "matplotlib", "plotly", "pyarrow", "gymnasium", "scipy.stats", "pydantic", "pandas",
    "distributed",
)  # fmt: skip

# What the modules of a room (a module or a package below upriver) must not import.
FORBIDDEN = {
    "agents": {"envs", "simulate", "experiments", "analysis", "plots", "report", "reproduce"},
    "envs": {"agents", "simulate", "experiments", "analysis", "plots", "report"},
    "analysis": {"agents", "simulate", "blackbox", "optimism"},
    "plots": {"agents", "simulate", "blackbox", "optimism", "experiments"},
    "report": {"agents", "simulate", "blackbox", "optimism"},
    "simulate": {"experiments", "analysis", "plots", "report", "envs"},
    "building": {"features", "planning", "mnl", "confidence", "agents", "envs", "simulate"},
    "mdp": {"features", "planning", "mnl", "confidence", "agents", "envs", "simulate"},
    "checks": {"features", "planning", "mnl", "confidence", "agents", "envs", "simulate"},
    "features": {"planning", "mnl", "confidence", "agents", "envs", "simulate", "optimism"},
    "planning": {"features", "mnl", "confidence", "agents", "envs", "simulate", "optimism"},
    "mnl": {"agents", "envs", "simulate", "experiments", "planning", "optimism"},
    "confidence": {"agents", "envs", "simulate", "experiments", "planning", "optimism"},
    "optimism": {"agents", "envs", "simulate", "experiments"},
    "rewards": {"agents", "envs", "simulate", "experiments"},
    "experiments": {"plots", "report"},
}


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path


def imports(path, module):
    """Names below upriver that the file imports at run time, wherever the statement stands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in for_types_only:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "upriver" or alias.name.startswith("upriver."):
                    yield alias.name.removeprefix("upriver").lstrip(".")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            if node.module == "upriver":
                for alias in node.names:
                    yield alias.name
            elif node.module and node.module.startswith("upriver."):
                base = node.module.removeprefix("upriver.")
                yield base
                for alias in node.names:
                    yield f"{base}.{alias.name}"


GRAPH = {module: sorted(set(imports(path, module))) for module, path in modules()}


def room(name):
    return name.split(".")[0]


def test_the_walk_sees_the_house():
    assert "planning" in [room(x) for x in GRAPH["simulate"]]
    assert "kernels" in [room(x) for x in GRAPH["planning"]]
    assert {"agents.ucrl_mnl", "kernels.mnl", "envs.riverswim", "mnl.likelihood"} <= set(GRAPH)


@pytest.mark.parametrize("module", GRAPH)
def test_arrows_go_down_only(module):
    wrong = FORBIDDEN.get(room(module), set())
    for name in GRAPH[module]:
        assert room(name) not in wrong, f"{module} imports {name}"
        if room(module) != "cli" and module != "__main__":
            assert room(name) != "cli", f"{module} imports {name}"
        if room(module) == "kernels":
            assert room(name) == "kernels", f"{module} imports {name}"


def test_importing_the_library_loads_nothing_heavy():
    code = (
        "import sys, upriver; "
        f"print([n for n in {HEAVY!r} if n in sys.modules]); "
        "print('upriver.cli' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "False"]


def test_the_stub_names_what_the_package_loads():
    stub = ast.parse((ROOT / "__init__.pyi").read_text(encoding="utf-8"))
    told = {
        alias.asname: node.module
        for node in ast.walk(stub)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(told) == set(upriver.__all__)
    for name in upriver.__all__:
        value = getattr(upriver, name)
        if name not in upriver.ROOMS:
            assert getattr(sys.modules[told[name]], name) is value
