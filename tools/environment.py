"""Make or update a virtual environment, the same way on every system: the Makefile's first step.

    python tools/environment.py .venv            what users need, at the versions of constraints.txt
    python tools/environment.py .venv dev        what developers need as well
    python tools/environment.py FOLDER floors    that, at the lowest versions pyproject.toml allows
    python tools/environment.py FOLDER newest    that, at the newest versions that there are

A file in the folder says when it was last done, so that make knows.
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]


def executables(folder: Path) -> Path:
    return folder / ("Scripts" if sys.platform == "win32" else "bin")


def python_of(folder: Path) -> Path:
    """Return the interpreter of a virtual environment, which is made if it does not exist."""
    python = executables(folder) / ("python.exe" if sys.platform == "win32" else "python")
    if not python.exists():
        venv.create(folder, with_pip=True)
    return python


def floors(declared: str) -> list[str]:
    """Return every `name>=version` of a pyproject.toml as `name==version`."""
    return sorted({f"{name}=={low}" for name, low in re.findall(r'"([\w-]+)>=([\w.]+)"', declared)})


def main(folder: Path, kind: str = "runtime") -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 (this runs before anything is checked)
        sys.exit(f"Upriver needs Python 3.11 or newer, this is {sys.version.partition(' ')[0]}")
    import tomllib

    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(declared)
    python, pins, wanted = python_of(folder), ROOT / "constraints.txt", ["-e", str(ROOT)]
    if kind != "runtime":
        extras = ",".join(project["project"]["optional-dependencies"])
        wanted = ["-e", f"{ROOT}[{extras}]", *project["dependency-groups"]["dev"]]
    if kind == "floors":
        pins = folder / "floors.txt"
        pins.write_text("\n".join(floors(declared)) + "\n", encoding="utf-8")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    chosen = ["--upgrade"] if kind == "newest" else ["-c", str(pins)]
    done = subprocess.run([*pip, *chosen, *wanted], check=False)
    if done.returncode:
        sys.exit(done.returncode)
    (folder / f".{kind}").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
