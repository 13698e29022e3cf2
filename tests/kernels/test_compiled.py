"""A cached kernel is used as long as nothing that it calls has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

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


def answer(folder: Path) -> int:
    words = [sys.executable, "-c", "from caller import g; print(g(10))"]
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    return int(subprocess.run(words, cwd=folder, env=environment, capture_output=True).stdout)


def test_a_kernel_is_compiled_again_when_its_callee_changes(tmp_path):
    shutil.copy(compiled.__file__, tmp_path)
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "callee.py").write_text(CALLEE.format(1))
    assert answer(tmp_path) == 11
    (tmp_path / "callee.py").write_text(CALLEE.format(2))
    assert answer(tmp_path) == 21
