"""The study of automatic features: its problems chose nothing, its bars count right."""

from __future__ import annotations

import numpy as np
from studies.automatic import FOUND, MADE, ONE_HOT, bars
from studies.measured import Cell
from studies.problems import CHOOSING, JUDGING, MEANINGLESS, NEW, problem

from studies import load_study
from upriver import features


def test_it_plays_all_judging_problems_and_the_new_ones():
    places = {place.full_label for place in load_study("automatic").environments}
    assert places == {*JUDGING, *NEW} and not places & {*CHOOSING}
    assert len(NEW) == 6 and {*MEANINGLESS} < places


def test_variables_describe_the_moves_except_where_numbers_mean_nothing():
    for which in NEW:
        made = features.automatic(problem(which).task("local"))
        assert bool(made.spread) == (which != "renumbered river")


def make_cells(found):
    """Cells where hand-made features lose 3, one-hot ones 8 and automatic ones what is given."""
    lost = {MADE: dict.fromkeys(found, 3.0), FOUND: found, ONE_HOT: dict.fromkeys(found, 8.0)}
    return {
        (env, kind): Cell(*[""] * 6, 1, 1, *np.zeros(3), x, *np.zeros(5))
        for kind, each in lost.items() for env, x in each.items()
    }  # fmt: skip


def test_bars():
    good = {"queue-10": 2.0, "clinic": 3.9, "drawn 1": 8.0}
    assert [bar.kept for bar in bars(make_cells(good), list(good))] == [True] * 4
    bad = {"queue-10": 4.6, "clinic": 3.9, "drawn 1": 10.1}
    assert [bar.kept for bar in bars(make_cells(bad), list(bad))] == [False, False, False, True]
