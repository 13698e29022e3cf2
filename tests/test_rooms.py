"""The house as it is drawn, and what `import upriver` may cost; `make lint` keeps the arrows."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tools.rooms import PAGE, drawn

import upriver

ROOT = Path(upriver.__file__).parent
HEAVY = (
    "numba", "matplotlib", "plotly", "pyarrow", "gymnasium", "scipy.stats", "pydantic", "pandas",
    "distributed",
)  # fmt: skip


def test_the_drawing_is_what_the_imports_say():
    page = PAGE.read_text(encoding="utf-8")
    assert drawn(page) == page, "run `make rooms`"


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
