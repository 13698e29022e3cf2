"""Signs of life: a sweep says what it plays, an early Ctrl-C says nothing."""

from __future__ import annotations

import json
import time

from tests.experiments.sweeping import TWO_HUNDRED
from upriver import cli
from upriver.experiments import Store, pulse
from upriver.experiments.progress import Reporter


def test_a_sweep_tells_its_folder_what_is_under_way(tmp_path, monkeypatch):
    monkeypatch.setattr(pulse, "BEAT", 0.01)
    run = TWO_HUNDRED.runs()[0]
    with pulse.Pulse(Store.create(tmp_path), Reporter()) as sign:
        sign.running(run)
        deadline = time.monotonic() + 20
        while not (sign.path.exists() and json.loads(sign.path.read_text())):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        env, label, seed, since = json.loads(sign.path.read_text())[0]
    assert (env, label, seed) == (run.env, run.label, run.seed) and since <= time.time()
    assert not sign.path.exists()


def test_an_interrupt_while_a_command_is_being_loaded_is_quiet(monkeypatch, capsys):
    def interrupted(words):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "answer", interrupted)
    assert cli.main(["list"]) == 130
    assert capsys.readouterr() == ("", "")
