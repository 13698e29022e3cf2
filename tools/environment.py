"""Make or update a virtual environment, the same way on every system: the Makefile's first step.

    python tools/environment.py .venv            what users need, at the versions of constraints.txt
    python tools/environment.py .venv dev        what developers need as well
    python tools/environment.py FOLDER floors    that, at the lowest versions pyproject.toml allows

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


def floors(declared: str) -> list[str]:
    """Every `name>=version` of a pyproject.toml as `name==version`."""
    return sorted({f"{name}=={low}" for name, low in re.findall(r'"([\w-]+)>=([\w.]+)"', declared)})


def main(folder: Path, extra: str = "runtime") -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 (this runs before anything is checked)
        sys.exit(f"Upriver needs Python 3.11 or newer, this is {sys.version.partition(' ')[0]}")
    python = executables(folder) / ("python.exe" if sys.platform == "win32" else "python")
    if not python.exists():
        venv.create(folder, with_pip=True)
    pins = ROOT / "constraints.txt"
    if extra == "floors":
        pins = folder / "floors.txt"
        declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        pins.write_text("\n".join(floors(declared)) + "\n", encoding="utf-8")
    what = str(ROOT) if extra == "runtime" else f"{ROOT}[dev]"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "-c", str(pins), "-e", what], check=False)
    if done.returncode:
        sys.exit(done.returncode)
    (folder / f".{extra}").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
