"""The folder is always true: written whole or not at all, never twice, readable by anybody."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
from pathlib import Path

import numpy as np
import pytest

import upriver as up
from tests.experiments.sweep_agents import word_of
from tests.experiments.sweeping import (
    AGENTS,
    AGENTS_FILE,
    command,
    environment,
    stored,
    sweep,
    table_bytes,
)
from upriver.cli import main
from upriver.experiments import Store, execute, import_code, parse, run_one
from upriver.experiments.store import StorageFailed, to_bytes

SMALL = sweep([{"agent": "ucrl-mnl"}, {"agent": "random"}], seeds=3)


@pytest.fixture
def spec(tmp_path) -> Path:
    path = tmp_path / "spec.toml"
    path.write_text(SMALL.to_toml())
    return path


def test_a_run_file_says_where_it_comes_from(tmp_path):
    import pyarrow.parquet as pq

    execute(SMALL, tmp_path / "r", jobs=1)
    run = SMALL.runs()[0]
    path = tmp_path / "r" / "env=riverswim-3-horizon-5" / "agent=ucrl-mnl" / f"{run.key}.parquet"
    about = json.loads(pq.read_schema(path).metadata[b"upriver"])
    assert about["run"] == json.loads(run.to_json())
    assert about["upriver"] == up.__version__
    assert about["platform"] and about["python"] and about["seconds"] > 0
    assert (tmp_path / "r" / "_specs").is_dir()
    assert not any((tmp_path / "r" / "_tmp").iterdir())


def test_another_experiment_in_the_same_folder_adds_its_runs(tmp_path):
    execute(SMALL, tmp_path, jobs=1)
    before = {p: p.stat().st_mtime_ns for p in stored(tmp_path)}
    outcome = execute(SMALL.with_seeds(5), tmp_path, jobs=1)
    assert (outcome.stored, outcome.ran) == (6, 4)
    outcome = execute(parse({**SMALL.to_data(), "episodes": 4}), tmp_path, jobs=1)
    assert (outcome.stored, outcome.ran) == (0, 6)
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert len(list((tmp_path / "_specs").iterdir())) == 3


def test_a_file_that_exists_is_never_written_again(tmp_path):
    store = Store.create(tmp_path)
    run = SMALL.runs()[0]
    table = run_one(run)
    store.save(run, to_bytes(run, table))
    content = store.path(run).read_bytes()
    store.save(run, to_bytes(run, table) + b"more")
    assert store.path(run).read_bytes() == content


def test_a_failed_run_is_tried_again_and_its_record_goes(tmp_path, monkeypatch, capsys):
    experiment = sweep([{"agent": f"{AGENTS}:Raises"}], seeds=6)
    odd = sum(word_of(s) % 2 for s in range(6))
    outcome = execute(experiment, tmp_path, jobs=1)
    assert (outcome.ran, len(outcome.failed)) == (6 - odd, odd)
    assert main(["table", str(tmp_path)]) == 1  # failed runs are not in it
    assert "they are not shown" in capsys.readouterr().err
    outcome = execute(experiment, tmp_path, jobs=1)
    assert (outcome.stored, outcome.ran, len(outcome.failed)) == (6 - odd, 0, odd)
    from upriver.agents.fixed import Random

    monkeypatch.setattr(import_code(AGENTS_FILE).Raises, "plan", Random.plan)
    outcome = execute(experiment, tmp_path, jobs=1)
    assert (outcome.ran, outcome.failed) == (odd, [])
    assert not any((tmp_path / "_failed").iterdir())
    assert main(["table", str(tmp_path)]) == 0


def test_pandas_polars_and_duckdb_read_the_folder(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    pd = pytest.importorskip("pandas")
    pl = pytest.importorskip("polars")
    execute(SMALL, tmp_path, jobs=1)
    ours = up.load_runs(tmp_path)
    total = ours["return"].to_numpy().sum()
    by_pandas = pd.read_parquet(tmp_path)
    by_polars = pl.read_parquet(f"{tmp_path}/*/*/*.parquet", hive_partitioning=True)
    by_duckdb = duckdb.sql(
        f"select env, agent, sum(\"return\") from '{tmp_path}/*/*/*.parquet' group by all"
    ).fetchall()
    assert len(by_pandas) == len(by_polars) == len(ours) == 18
    assert {"env", "agent", "setting", "seed", "episode", "value"} <= set(by_pandas.columns)
    assert set(by_polars["agent"]) == set(by_pandas["agent"]) == {"ucrl-mnl", "random"}
    for found in (
        by_pandas["return"].sum(),
        by_polars["return"].sum(),
        sum(x[2] for x in by_duckdb),
    ):
        assert found == pytest.approx(total)


def test_loading_gives_every_row_in_one_order(tmp_path):
    execute(SMALL, tmp_path / "a", jobs=1)
    execute(SMALL.runs()[::-1], tmp_path / "b", jobs=1)
    assert table_bytes(tmp_path / "a") == table_bytes(tmp_path / "b")
    table = up.load_runs(tmp_path / "a", timing=True)
    assert table.column_names == [
        "env", "agent", "setting", "seed", "episode", "return", "value", "optimal_value", "regret",
        "uniform_value", "seconds",
    ]  # fmt: skip
    np.testing.assert_array_equal(
        table["regret"].to_numpy(), table["optimal_value"].to_numpy() - table["value"].to_numpy()
    )


def test_truncated_and_foreign_files_are_named_and_left_alone(tmp_path, spec, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "r"
    execute(SMALL, folder, jobs=1)
    torn = stored(folder)[0]
    torn.write_bytes(torn.read_bytes()[:-100])
    content = torn.read_bytes()
    foreign = torn.parent / "foreign.parquet"
    pq.write_table(pa.table({"x": [1]}), foreign)
    assert main(["run", str(spec), "--out", str(folder), "--jobs", "1"]) == 1
    err = capsys.readouterr().err
    assert f"{torn} is damaged" in err and "move the file away" in err
    assert torn.read_bytes() == content
    assert main(["table", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert str(torn) in err and f"{foreign} is damaged, or not a run file of this version" in err
    assert "ucrl-mnl" in out
    with pytest.raises(ValueError, match=str(torn)):
        up.load_runs(folder)
    torn.unlink()
    assert main(["run", str(spec), "--out", str(folder), "--jobs", "1"]) == 0
    assert foreign.exists()


def test_a_folder_of_another_version_is_refused_and_untouched(tmp_path, spec, capsys):
    folder = tmp_path / "r"
    execute(SMALL, folder, jobs=1)
    marker = folder / "_upriver.json"
    before = {p: p.read_bytes() for p in stored(folder)}
    marker.write_text(json.dumps({"format": 6, "upriver": "0.0.1"}))
    assert main(["run", str(spec), "--out", str(folder)]) == 2
    assert "holds runs of upriver 0.0.1, and this is" in capsys.readouterr().err
    assert main(["table", str(folder)]) == 0  # the format is the same: it can be read
    marker.write_text(json.dumps({"format": 99, "upriver": "9.0"}))
    for words in (["run", str(spec), "--out", str(folder)], ["table", str(folder)]):
        assert main(words) == 2
        assert "was written by upriver 9.0 in format 99" in capsys.readouterr().err
    marker.write_text("{")
    assert main(["table", str(folder)]) == 1
    assert "_upriver.json is damaged" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in stored(folder)} == before


def test_a_folder_with_something_else_in_it_is_no_results_folder(tmp_path, capsys):
    assert main(["table", str(tmp_path)]) == 2
    assert "has no _upriver.json" in capsys.readouterr().err
    assert main(["table", str(tmp_path / "nowhere")]) == 2
    assert "nowhere does not exist; it must be a folder of results" in capsys.readouterr().err
    Store.create(tmp_path)
    assert main(["table", str(tmp_path)]) == 2
    assert "holds no runs" in capsys.readouterr().err


def test_a_full_disk_is_one_sentence_and_nothing_is_lost(tmp_path, spec):
    """The file system refuses to grow files: what a full disk does, without filling one."""
    folder = tmp_path / "r"
    execute(SMALL.with_seeds(1), folder, jobs=1)
    before = {p: p.read_bytes() for p in stored(folder)}

    def no_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    for jobs in (1, 2):
        found = subprocess.run(
            command("run", spec, "--out", folder, "--jobs", jobs),
            env=environment(), preexec_fn=no_room, capture_output=True, text=True,
        )  # fmt: skip
        last = found.stderr.strip().splitlines()[-1]
        assert found.returncode == 1, found.stderr
        assert last.startswith("upriver: cannot write ") and "File too large" in last
        assert "the same command continues" in last
        assert "Traceback" not in found.stderr
    assert {p: p.read_bytes() for p in stored(folder)} == before
    assert not any((folder / "_tmp").iterdir())
    assert execute(SMALL, folder, jobs=1).complete


def test_no_space_left_is_said_as_the_system_says_it(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = Store.create(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFailed, match="No space left on device; finished runs are kept"):
        execute(SMALL, tmp_path, jobs=1)
    assert not store.files()


def test_a_read_only_folder_is_one_sentence(tmp_path, spec, capsys):
    folder = tmp_path / "r"
    folder.mkdir()
    folder.chmod(0o555)
    if os.access(folder, os.W_OK):  # root may write everywhere but into the kernel's own files
        folder = Path("/proc/upriver")
    assert main(["run", str(spec), "--out", str(folder), "--jobs", "1"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"upriver: cannot write {folder}") and err.count("\n") == 1


def test_a_list_of_something_else_than_runs_is_one_sentence(tmp_path):
    with pytest.raises(TypeError, match="a run of the experiment is"):
        execute(["quick"], tmp_path, jobs=1)
