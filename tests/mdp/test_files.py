"""MDPs in files: nothing is lost, whatever happens while they are written."""

from __future__ import annotations

import os
import signal

import pytest

import upriver as up


def test_saving_overwrites_its_own_tables_and_nobody_elses(tmp_path):
    river, longer = up.envs.riverswim(4, 8), up.envs.riverswim(5, 9)
    for name in ("log.csv", "log.local.csv"):
        (tmp_path / name).write_text("what was measured")
        with pytest.raises(FileExistsError, match=rf"{name} exists, and .*log\.toml does not name"):
            river.save(tmp_path / "log.toml")
        assert [p.name for p in tmp_path.iterdir()] == [name]
        assert (tmp_path / name).read_text() == "what was measured"
        # nor where the .toml is there, of somebody else too
        (tmp_path / "log.toml").write_text('transitions = "other.csv"')
        with pytest.raises(FileExistsError, match="does not name it as its own"):
            river.save(tmp_path / "log.toml")
        (tmp_path / "log.toml").unlink()
        (tmp_path / name).unlink()
    river.save(tmp_path / "log.toml")
    longer.save(tmp_path / "log.toml")
    assert up.FiniteMDP.load(tmp_path / "log.toml").horizon == 9
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.csv", "log.local.csv", "log.toml"]


@pytest.mark.skipif(os.name != "posix", reason="limits of a process are POSIX")
@pytest.mark.parametrize("suffix", [".npz", ".toml"])
def test_a_full_disk_leaves_the_saved_mdp_as_it_was(tmp_path, suffix):
    """A process that may write no file of more than 2,000 bytes meets the error of a full disk."""
    import resource

    path = tmp_path / f"river{suffix}"
    up.envs.riverswim(3, 4).save(path)
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    large = up.envs.riverswim(60, 4)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
        with pytest.raises(OSError):
            large.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before
