"""The house as it is drawn, and what `import upriver` may cost; `make lint` keeps the arrows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from tools.rooms import PAGE, drawn

import upriver

ROOT = Path(upriver.__file__).parent
LONGEST, MOST_FILES = 350, 20
HEAVY = (
    "numba", "matplotlib", "plotly", "pyarrow", "gymnasium", "scipy.sparse", "pydantic", "pandas",
    "distributed",
)  # fmt: skip


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_the_drawing_is_what_the_imports_say():
    page = PAGE.read_text(encoding="utf-8")
    assert drawn(page) == page, "run `make rooms`"


def test_no_file_is_long_and_no_room_is_crowded():
    """What has grown over a screen or ten has two jobs; agents and specs are one file each."""
    files = [p for p in ROOT.rglob("*") if p.suffix in (".py", ".pyi")]
    long = {str(p.relative_to(ROOT)): n for p in files if (n := lines_of(p)) > LONGEST}
    assert not long, f"more than {LONGEST} lines: {long}"
    rooms = {p for p in ROOT.rglob("*") if p.is_dir() and p.name != "__pycache__"}
    held = {str(p.relative_to(ROOT)): sum(x.is_file() for x in p.iterdir()) for p in rooms}
    many = {"agents", str(Path("experiments", "catalogue"))}
    crowded = {name: n for name, n in held.items() if n > MOST_FILES and name not in many}
    assert not crowded, f"more than {MOST_FILES} files: {crowded}"


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


def room_of(name: str) -> str:
    """The room whose code a public name is."""
    home = upriver.WHERE.get(name) or upriver.ROOMS.get(name)
    return (home or getattr(upriver, name).__module__.removeprefix("upriver.")).partition(".")[0]


def test_the_reference_has_the_rooms_of_the_house():
    """A name stands under the heading of its room, and each room has one heading."""
    page = (PAGE.parent / "docs" / "api.md").read_text(encoding="utf-8")
    under, room, seen = {}, "", []
    for marks, word in re.findall(r"^(##+) (\w+)", page, re.M):
        if marks == "##":
            room = word
            seen.append(room)
        else:
            under[word] = room
    assert under == {name: room_of(name) for name in upriver.__all__}
    assert len(seen) == len(set(seen))
