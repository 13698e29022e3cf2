"""A run file is what was written, or it is named: every bit, every place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import upriver as up
from tests.experiments.sweeping import environment, stored, sweep
from upriver.cli import main
from upriver.experiments import Store, check, execute
from upriver.experiments.store import (
    BadFile,
    StorageFailed,
    make_folder_name,
    read_run,
    to_bytes,
)

SMALL = sweep([{"agent": "ucrl-mnl"}, {"agent": "random"}], seeds=2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    execute(SMALL, folder, jobs=1)
    return folder


@pytest.fixture
def folder(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def test_a_run_is_played_and_kept_without_pandas(tmp_path):
    """Arrow imports it on the way to NumPy and back; every worker of a sweep would pay for it."""
    code = (
        "import sys; from pathlib import Path; from upriver.experiments import execute; "
        "from tests.experiments.sweeping import sweep; "
        "spec = sweep([{'agent': 'ucrl-mnl'}], seeds=1); "
        f"execute(spec, Path({str(tmp_path)!r}), jobs=1); print('pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout.split()[-1] == "False"
    assert len(stored(tmp_path)) == 1


def flipped(path: Path, rng: np.random.Generator) -> bytes:
    """The bytes of a file with one bit changed."""
    data = bytearray(path.read_bytes())
    data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    return bytes(data)


def find_flips(folder: Path, count: int, rng: np.random.Generator) -> None:
    files = stored(folder)
    for _ in range(count):
        path = files[rng.integers(len(files))]
        before = path.read_bytes()
        path.write_bytes(flipped(path, rng))
        (problem,) = check(folder).problems
        assert "damaged" in problem and str(path) in problem
        path.write_bytes(before)
    assert check(folder).problems == []


def test_a_changed_bit_is_found_wherever_it_is(folder, rng):
    find_flips(folder, 60, rng)


@pytest.mark.slow
def test_a_thousand_changed_bits_are_found(folder, rng):
    find_flips(folder, 1000, rng)


def test_every_reader_refuses_or_marks_a_changed_bit(folder, rng, capsys):
    path = stored(folder)[0]
    path.write_bytes(flipped(path, rng))
    with pytest.raises(ValueError, match=str(path)):
        up.load_runs(folder)
    for command in ("table", "report", "check", "plot"):
        assert main([command, str(folder)]) == 1
        out, err = capsys.readouterr()
        assert str(path) in out + err, command
    outcome = execute(SMALL, folder, jobs=1)
    assert len(outcome.broken) == 1 and not outcome.complete


def test_pages_carry_checksums(folder):
    """What other readers can verify: damage inside a page, and the footer as it was."""
    path = stored(folder)[0]
    column = pq.ParquetFile(path).metadata.row_group(0).column(3)
    start = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(path.read_bytes())
    data[start + column.total_compressed_size - 1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(OSError, match=r"(?i)crc|corrupt|checksum"):
        pq.ParquetFile(path, page_checksum_verification=True).read()


def test_what_is_foreign_moved_or_copied_is_named(whole, folder, capsys):
    assert main(["check", str(folder)]) == 0
    assert capsys.readouterr().out == "4 run files whole, 0 problems\n"
    first, second, third, fourth = stored(folder)
    other = third.parent / first.name
    shutil.copy(first, other)
    renamed = second.with_name("0" * 12 + "-7.parquet")
    second.rename(renamed)
    fourth.write_bytes(fourth.read_bytes()[:-9])
    pq.write_table(up.load_runs(whole), third.parent / "table.parquet")
    found = {Path(p.split(" ")[0]): p for p in check(folder).problems}
    said = {
        other: "moved or copied",
        renamed: "moved or copied",
        fourth: "damaged",
        third.parent / "table.parquet": "not a run file of this version",
    }
    assert set(found) == set(said) and all(said[path] in found[path] for path in said)
    assert main(["check", str(folder)]) == 1
    assert "2 run files whole, 4 problems" in capsys.readouterr().out
    assert main(["table", str(folder)]) == 1
    assert str(other) in capsys.readouterr().err


def test_a_copied_run_is_no_stored_run(folder, capsys):
    """The file is whole, but it is that of another seed."""
    first, second = stored(folder)[:2]
    shutil.copy(first, second)
    (problem,) = check(folder).problems
    outcome = execute(SMALL, folder, jobs=1)
    assert outcome.broken == [problem] and "moved or copied" in problem
    assert not outcome.complete
    second.unlink()
    assert execute(SMALL, folder, jobs=1).ran == 1 and check(folder).problems == []


def test_a_folder_in_the_place_of_a_run_is_no_run(folder, capsys):
    path = stored(folder)[0]
    path.unlink()
    path.mkdir()
    assert check(folder).whole == 3
    with pytest.raises(StorageFailed, match=f"cannot write {path}: Is a directory; finished"):
        execute(SMALL, folder, jobs=1)
    path.rmdir()
    assert execute(SMALL, folder, jobs=1).ran == 1 and check(folder).whole == 4


def test_a_folder_that_cannot_be_read_does_not_vanish(folder, monkeypatch, capsys):
    scandir = os.scandir

    def locked(path):
        if str(path).endswith("agent=random"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", locked)
    assert main(["table", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert "agent=random cannot be read: Permission denied" in err and "ucrl-mnl" in out
    with pytest.raises(ValueError, match="agent=random cannot be read"):
        up.load_runs(folder)
    (problem,) = check(folder).problems
    assert "agent=random cannot be read" in problem


LABELS = st.one_of(
    st.text(max_size=120),
    st.text(alphabet="./\\~:=\0", min_size=1, max_size=20),
    st.text(alphabet="東京都河川", min_size=1, max_size=100),
    st.sampled_from(["..", ".", "/etc", "a/../../b", "CON", "a.", "a ", "A" * 300, "~", ""]),
)


@settings(max_examples=300, deadline=None)
@given(env=LABELS, label=LABELS, other=LABELS)
def test_the_store_stays_inside_its_root_whatever_the_labels(tmp_path_factory, env, label, other):
    """Also short enough for any file system, and different labels in different folders."""
    import dataclasses

    root = Store(Path(tmp_path_factory.getbasetemp()) / "root")
    run = dataclasses.replace(SMALL.runs()[0], env=env, label=label)
    for path in (root.path(run), root.failure_path(run)):
        inside = Path(os.path.realpath(path)).relative_to(os.path.realpath(root.root))
        assert len(inside.parts) in (2, 3)
        assert all(len(os.fsencode(part)) <= 200 for part in inside.parts)
        assert all(part.isascii() and part.isprintable() for part in inside.parts)
    assert (make_folder_name(label) == make_folder_name(other)) == (label == other)


def test_two_commands_that_start_together_on_a_new_folder(tmp_path, monkeypatch):
    """The second finds the first at work, whatever that has written by then."""
    folder = tmp_path / "new"
    first = Store(folder)
    with first.lock():
        path = first.path(SMALL.runs()[0])
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")  # before the marker is seen
        with pytest.raises(ValueError, match="is being written by another process; wait for it"):
            execute(SMALL, folder, jobs=1)


def test_plain_labels_are_the_names_of_their_folders():
    for label in ("UCRL-MNL (tuned)", "riverswim-6", "c 0.001", "UCRL-MNL+", "a@b,c"):
        assert make_folder_name(label) == label


def test_a_file_is_read_back_as_it_was_written(whole):
    record = read_run(stored(whole)[0])
    assert record.about["format"] == 6 and record.about["run"] == record.run.to_data()
    assert len(record.table) == record.run.episodes and record.unit == "episode"


def test_a_changed_bit_beside_the_runs_is_found_too(folder, rng):
    """In the experiments."""
    (path,) = folder.glob("_specs/*")
    before = path.read_bytes()
    for _ in range(20):
        path.write_bytes(flipped(path, rng))
        (problem,) = check(folder).problems
        assert "damaged" in problem and str(path) in problem
        assert main(["check", str(folder)]) == 1
    path.write_bytes(before)
    assert main(["check", str(folder)]) == 0


def test_a_damaged_marker_is_a_failure_and_no_wrong_call(folder, capsys):
    (folder / "_upriver.json").write_bytes(b"[" * 100_000)
    for command in ("check", "table", "report", "plot"):
        assert main([command, str(folder)]) == 1
        assert "_upriver.json is damaged" in "".join(capsys.readouterr())
    assert main(["check", str(folder.parent / "nowhere")]) == 2


def test_a_folder_has_one_writer_at_a_time(folder):
    """A second command is refused, and the temporary file of the first is not touched."""
    store = Store.create(folder)
    with store.lock():
        part = folder / "_tmp" / "living.parquet"
        part.parent.mkdir()
        part.write_bytes(b"x")
        with pytest.raises(ValueError, match="is being written by another process"):
            execute(SMALL.with_seeds(3), folder, jobs=1)
        assert part.exists()
    assert execute(SMALL.with_seeds(3), folder, jobs=1).ran == 2
    assert not part.exists()


def test_devices_and_pipes_are_not_read(folder):
    """They may have no end, or never begin."""
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        for kind in ("env=*/*/*.parquet", "_specs/*"):
            path = next(folder.glob(kind))
            before = path.read_bytes()
            path.unlink()
            make(path)
            (problem,) = check(folder).problems
            assert problem.startswith(str(path)) and "no regular file" in problem
            if kind.startswith("env="):
                assert len(execute(SMALL, folder, jobs=1).broken) == 1
            path.unlink()
            path.write_bytes(before)
    assert check(folder).problems == []


def test_files_beyond_any_use_are_not_read(folder, capsys):
    """A marker of gigabytes, and a run of three episodes in a file of a hundred megabytes."""
    marker, run = folder / "_upriver.json", stored(folder)[0]
    for path in (run, marker):
        before = path.read_bytes()
        with open(path, "r+b" if path == marker else "wb") as file:
            if path == marker:
                file.truncate(2**33)
            else:  # Parquet reads the end of a file
                file.seek(2**27)
                file.write(before)
        (problem,) = check(folder).problems
        assert str(path) in problem and ("bytes" in problem or "damaged" in problem)
        assert main(["table", str(folder)]) == 1
        capsys.readouterr()
        path.write_bytes(before)
    assert check(folder).problems == []


def test_rows_are_counted_before_they_are_read(folder, monkeypatch):
    record = read_run(stored(folder)[0])
    path = stored(folder)[0]
    path.write_bytes(to_bytes(record.run, pa.concat_tables([record.table] * 1000)))
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_: pytest.fail("rows were read"))
    monkeypatch.setattr(Path, "read_bytes", lambda *_: pytest.fail("the file was read"))
    with pytest.raises(BadFile, match="it has 3000 rows; the run has 3 episodes"):
        read_run(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e308])
def test_numbers_that_no_table_can_sum_are_not_stored(folder, value):
    """A run that returns them fails with a sentence; their squares would overflow."""
    record = read_run(stored(folder)[0])
    column = pa.array([value] * len(record.table))
    table = record.table.set_column(record.table.column_names.index("value"), "value", column)
    with pytest.raises(ValueError, match="column 'value' holds a number that is not below 1e"):
        to_bytes(record.run, table)


@pytest.mark.parametrize(
    "change",
    [{"seed": [0]}, {"label": 7}, {"episodes": 0}, {"settings": None}, {"environment": "x"}],
)
def test_a_run_that_is_none_is_a_problem(folder, capsys, change):
    path = stored(folder)[0]
    record = read_run(path)
    path.write_bytes(to_bytes(replace(record.run, **change), record.table))
    for command in ("check", "table", "report", "plot"):
        assert main([command, str(folder)]) == 1
        printed = "".join(capsys.readouterr())
        assert f"{path} is damaged, or not a run file of this version" in printed
