"""Build the release and try it as a user would: `make release`.

It builds sdist and wheel into `dist`, checks what the wheel holds, and installs it outside of the
checkout: first without the extra, where the README example, a fit of a data frame, the code of
the pages, `upriver run quick` and `upriver reproduce` run, and then with the extra `cluster`, where
a sweep runs on Dask.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.environment import ROOT, executables, python_of

MOST_BYTES = 500_000
PAGES = "start", "tutorials", "howto"
"""Folders of pages whose code must run on what the wheel installs."""

TRY_FRAMES = """
import pandas as pd, upriver as up
log = pd.DataFrame({"state": ["a", "b"] * 50, "action": ["go", "stay"] * 50,
                    "next_state": ["b", "a", "a", "b"] * 25})
print(up.fit_transitions("next_state", log).summary())
"""
TRY_PAGE = """
import sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests import pages
with tempfile.TemporaryDirectory() as folder:
    pages.run(Path(sys.argv[2]), Path(folder))
"""
"""Run the examples of a page; the package is that of the environment, not that of the checkout."""
TRY_CLUSTER = """
import subprocess, sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=1, dashboard_address=None) as cluster:
        command = [sys.argv[1], "run", "quick", "--out", "on-dask", "--cluster"]
        sys.exit(subprocess.run([*command, cluster.scheduler_address]).returncode)
"""


def run(command: list[str | Path], folder: Path, **options: object) -> None:
    """Run a command away from the checkout, and stop with its message where it fails."""
    print("$", *(Path(x).name if i == 0 else x for i, x in enumerate(command)), flush=True)
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, env=clean, check=False, **options)  # type: ignore
    if done.returncode:
        sys.exit(f"the release is not ready: {command[1:]} ended with {done.returncode}")


def check_wheel(path: Path) -> None:
    """Stop where the wheel is too large or holds anything but the package."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        sys.exit(f"{path.name} has {size} bytes; it may have {MOST_BYTES}")
    with zipfile.ZipFile(path) as wheel:
        others = [x for x in wheel.namelist() if not re.match(r"upriver(/|-[\w.]+dist-info/)", x)]
    if others:
        sys.exit(f"{path.name} holds {others[0]}; it may hold only the package")
    print(f"{path.name}: {size} bytes")


def folder_megabytes(folder: Path) -> float:
    return sum(x.stat().st_size for x in folder.rglob("*") if x.is_file()) / 2**20


def install(wheel: Path, folder: Path, extra: str = "") -> Path:
    """Install the wheel with one extra into a new environment, and return its interpreter."""
    python = python_of(folder)
    what = f"{wheel}[{extra}]" if extra else str(wheel)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "-c", ROOT / "constraints.txt", what], folder)
    print(f"environment with {extra or 'no extra'}: {folder_megabytes(folder):.0f} MiB")
    return python


def main() -> None:
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    run([sys.executable, "-m", "build", "--outdir", dist, ROOT], ROOT)
    (wheel,) = dist.glob("*.whl")
    check_wheel(wheel)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    with tempfile.TemporaryDirectory() as name:
        outside = Path(name)
        python = install(wheel, outside / "core")
        upriver = executables(outside / "core") / "upriver"
        run([python, "-c", example], outside)
        run([python, "-c", TRY_FRAMES], outside)
        for page in sorted(page for part in PAGES for page in (ROOT / "docs" / part).glob("*.md")):
            if not re.search(r"`pip install [\w-]+`", page.read_text(encoding="utf-8")):
                run([python, "-c", TRY_PAGE, ROOT, page], outside)
        run([upriver, "run", "quick", "--out", "quick"], outside)
        run([upriver, "reproduce", "--out", "paper"], outside)
        python = install(wheel, outside / "cluster", "cluster")
        path = outside / "try_cluster.py"
        path.write_text(TRY_CLUSTER, encoding="utf-8")
        run([python, path, executables(outside / "cluster") / "upriver"], outside)
    print("the release is ready: dist/" + wheel.name)


if __name__ == "__main__":
    main()
