"""The cache of compiled functions, and what is said when it is empty."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba.core.errors import TypingError
from numba.core.registry import CPUDispatcher

from upriver import kernels
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
    compiled.prune_cache(tmp_path / "kernels-0")
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
    compiled.announce_compilation(tmp_path)
    out, err = capsys.readouterr()
    assert out == "" and ("compiling, once" in err) == (terminal and empty)


@pytest.mark.parametrize("module", kernels.MODULES)
def test_functions_that_python_calls_take_few_arguments(module):
    """Functions that are only written into others, `njit_inline` and `njit_inline_ir`, may have
    more."""
    for name, kernel in vars(getattr(kernels, module)).items():
        if isinstance(kernel, CPUDispatcher) and kernel.targetoptions.get("inline") != "always":
            assert len(inspect.signature(kernel.py_func).parameters) <= 10, name


@pytest.mark.parametrize("module", kernels.MODULES)
def test_a_kernel_file_opens_with_what_it_computes(module):
    text = inspect.getdoc(getattr(kernels, module))
    assert text is not None and len(text) > 80


@pytest.mark.parametrize(
    "module, formulas",
    [("likelihood", "(1) (2)"), ("newton", "(3)"), ("ellipsoid", "(4)"), ("gram", "(5)"),
     ("planning", "(6)"), ("model", "(1) (3) (5)")],
)  # fmt: skip
def test_the_formulas_of_the_paper_are_found_by_their_numbers(module, formulas):
    text = inspect.getdoc(getattr(kernels, module))
    assert text is not None and all(number in text for number in formulas.split())


class Inner(NamedTuple):
    matrix: Any
    column: Any


class Outer(NamedTuple):
    inner: Inner
    whole: int
    number: float
    records: Any
    nothing: None = None


def test_constants_hand_a_named_tuple_to_a_kernel():
    @compiled.njit_without_refcounts
    def total(constants, nothing):
        inner = constants.inner
        result = constants.whole + constants.number + constants.records[1].b
        for i in range(inner.column.shape[0]):
            result += inner.matrix[i, 1] * inner.column[i]
        return result if nothing is None else -result

    matrix = np.arange(6.0).reshape(3, 2)
    records = np.array([(1, 2.0), (3, 4.0)], dtype=[("a", np.int32), ("b", np.float64)])
    constants = compiled.Constants(Outer(Inner(matrix, matrix[:, 0]), 7, 0.5, records))
    expected = 7 + 0.5 + 4.0 + matrix[:, 1] @ matrix[:, 0]
    assert total(constants, None) == expected
    assert total(pickle.loads(pickle.dumps(constants)), None) == expected
    matrix[0, 0] = 100.0  # the arrays are not copied
    assert total(constants, None) == expected + 100.0 * matrix[0, 1]


class Arrays(NamedTuple):
    first: Any
    second: Any = None


@compiled.njit_without_refcounts
def sum_of(constants):
    total = 0.0
    for x in constants.first:
        total += x
    return total


@compiled.njit_without_refcounts
def set_first(constants):
    constants.first[0] = 5.0


def test_arrays_of_constants_may_be_slices_or_of_another_type_or_empty():
    backwards = np.arange(12.0).reshape(3, 4)[::-1, 1]
    read_only = np.arange(4.0)
    read_only.flags.writeable = False
    kinds = (np.int32, np.int64, np.float32, np.float64, np.bool_, np.uint8)
    arrays = [backwards, read_only, np.empty(0), *(np.arange(3).astype(k) for k in kinds)]
    for array in arrays:
        assert sum_of(compiled.Constants(Arrays(array))) == array.sum()
    constants = compiled.Constants(Arrays(read_only))
    with pytest.raises(TypingError):  # as with the array itself
        set_first(constants)
    assert read_only[0] == 0.0


def test_constants_keep_their_arrays_alive():
    many = [compiled.Constants(Arrays(np.full(1000, float(i)))) for i in range(200)]
    gc.collect()
    others = [np.full(1000, -1.0) for _ in range(200)]
    assert [sum_of(x) for x in many] == [1000.0 * i for i in range(200)]
    assert len(others) == 200
    inner = compiled.Constants(Arrays(Arrays(np.ones(3)))).values.first
    assert inner.first.sum() == 3.0
    with pytest.raises(AttributeError):
        many[0].values.first = np.zeros(1000)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_copy_of_constants_outlives_the_original(copied):
    constants = compiled.Constants(Arrays(np.arange(1000.0)))
    other = copied(constants)
    del constants
    gc.collect()
    others = [np.full(1000, -1.0) for _ in range(50)]
    assert sum_of(other) == np.arange(1000.0).sum() and len(others) == 50


def test_constants_of_other_types_are_compiled_anew_in_threads():
    """Each thread makes, uses and drops structures of its own, of several types."""

    def work(seed):
        kind = (np.float64, np.int32, np.int64)[seed % 3]
        found = []
        for i in range(200):
            found.append(sum_of(compiled.Constants(Arrays(np.full(50 + seed, i, kind)))))
        return found == [(50 + seed) * i for i in range(200)]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(12)))


@pytest.mark.parametrize("value", [True, "word", np.float32(1.0), np.int32(1), 1j, 2**70, [1.0]])
def test_constants_take_no_other_values(value):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        compiled.Constants(Arrays(np.ones(2), value))


def test_a_field_that_constants_lack_is_an_error_when_compiling():
    @compiled.njit_without_refcounts
    def wrong(constants):
        return constants.third

    with pytest.raises(TypingError, match="third"):
        wrong(compiled.Constants(Arrays(np.ones(2))))
