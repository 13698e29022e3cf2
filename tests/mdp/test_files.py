"""MDPs in files: an error while a file is written leaves the old file as it was."""

from __future__ import annotations

import os
import signal

import pytest

import upriver as up


@pytest.mark.skipif(os.name != "posix", reason="limits of a process are POSIX")
def test_a_full_disk_leaves_the_saved_mdp_as_it_was(tmp_path):
    """A limit of 2,000 bytes for each file gives the error of a full disk."""
    import resource

    path = tmp_path / "river.npz"
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
