"""The cache of compiled functions, and what is said when it is empty."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from upriver.kernels import compiled

CALLER = """
from compiled import njit_cached
from callee import f
@njit_cached
def g(x):
    return f(x) + 1
"""
CALLEE = """
from compiled import njit_cached
@njit_cached
def f(x):
    return {} * x
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A package of kernels with a caller and a callee."""
    package = tmp_path / "package"
    package.mkdir()
    shutil.copy(compiled.__file__, package)
    (package / "caller.py").write_text(CALLER)
    (package / "callee.py").write_text(CALLEE.format(1))
    return package


def call(folder: Path, **variables: str) -> int:
    """Call g(10) of the package in a new process."""
    command = [sys.executable, "-c", "from caller import g; print(g(10))"]
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | variables
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
    assert done.stderr == b""  # nothing is announced without a terminal
    return int(done.stdout)


def cached(parent: Path) -> list[Path]:
    """The folders of compiled functions, which must not be empty."""
    folders = sorted(parent.glob("kernels-*"))
    assert all(any(folder.rglob("*.nbi")) for folder in folders)
    return folders


def test_a_changed_callee_is_compiled_again(folder):
    assert call(folder) == 11
    assert len(cached(folder / "__pycache__")) == 1
    (folder / "callee.py").write_text(CALLEE.format(2))
    assert call(folder) == 21
    assert len(cached(folder / "__pycache__")) == 2


def test_the_cache_is_used_again(folder):
    assert call(folder) == 11
    [kept] = cached(folder / "__pycache__")
    files = {path: path.stat().st_mtime_ns for path in kept.rglob("*.nb?")}
    assert call(folder) == 11
    assert files == {path: path.stat().st_mtime_ns for path in kept.rglob("*.nb?")}


def test_an_install_that_cannot_be_written_to_caches_for_the_user(folder):
    (folder / "__pycache__").write_text("a file where a folder would be")
    assert call(folder, XDG_CACHE_HOME=str(folder / "user")) == 11
    assert len(cached(folder / "user" / "upriver")) == 1


def test_without_any_folder_functions_are_compiled_and_not_cached(folder):
    (folder / "__pycache__").write_text("a file where a folder would be")
    assert call(folder, XDG_CACHE_HOME=str(folder / "caller.py")) == 11
    assert not list(folder.rglob("*.nbi"))


def test_a_chosen_folder_is_used(folder):
    assert call(folder, NUMBA_CACHE_DIR=str(folder / "chosen")) == 11
    assert len(cached(folder / "chosen")) == 1


def test_old_digests_are_deleted(tmp_path):
    for i in range(6):
        (tmp_path / f"kernels-{i}").mkdir()
        os.utime(tmp_path / f"kernels-{i}", (i, i))
    (tmp_path / "other").mkdir()
    compiled.prepare_cache(tmp_path / "kernels-0")
    kept = {"kernels-0", "kernels-3", "kernels-4", "kernels-5", "other"}
    assert {path.name for path in tmp_path.iterdir()} == kept


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("empty", [True, False])
def test_the_first_compilation_announces_itself_on_a_terminal(
    terminal, empty, tmp_path, capsys, monkeypatch
):
    if not empty:
        (tmp_path / "f.nbi").touch()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    compiled.prepare_cache(tmp_path)
    out, err = capsys.readouterr()
    assert out == "" and ("compiling, once" in err) == (terminal and empty)
