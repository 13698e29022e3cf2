"""Features that are found, beside features that an expert made and one-hot features.

The problems are those that judge the default agent and six that came later; none of them chose a
rule or a constant of `up.features.automatic`.
"""

from __future__ import annotations

from collections.abc import Sequence

from studies.default_agent import Bar, Cells, bars_table, check, is_close
from studies.measured import Measured, Page, lost_text, pivot, runs_text
from studies.problems import MEANINGLESS, problem
from upriver import features
from upriver.results.tables import to_markdown

MADE, FOUND, ONE_HOT = "made by hand", "automatic", "one-hot"


def automatic(measured: Sequence[Measured]) -> Page:
    """Episodes lost with each kind of features, what was shared, and what is promised."""
    cells: Cells = {(m.cell.env, m.cell.agent): m.cell for m in measured}
    envs = list(dict.fromkeys(env for env, _ in cells))
    rows = [["problem", "indicators", "triples", MADE, FOUND, ONE_HOT]]
    for env in envs:
        task = problem(env).task("local")
        made = features.automatic(task)
        shared = str(made.n_shared) if made.spread else "one-hot"
        lost = [lost_text(cells[env, kind]) for kind in (MADE, FOUND, ONE_HOT)]
        rows.append([env, shared, f"{task.n_triples:,}", *lost])
    table = (
        f"{to_markdown(rows)}\n{bars_table(bars(cells, envs))}\n{runs_text(list(cells.values()))}"
    )
    return table, {}


def bars(cells: Cells, envs: Sequence[str]) -> list[Bar]:
    """Return what is promised of automatic features."""
    made, found, one_hot = (
        {env: cells[env, kind].lost for env in envs} for kind in (MADE, FOUND, ONE_HOT)
    )
    stuck, few = {env: cells[env, FOUND].stuck for env in envs}, dict.fromkeys(envs, 0.02)
    say_nothing = [env for env in envs if env in MEANINGLESS]
    hard = [env for env in envs if env not in MEANINGLESS and one_hot[env] > 4.0]
    return [
        check("At most 1.5 times what features made by hand lose, or one episode more, on two "
              "thirds of the problems", found, made, envs,
              lambda x, y: is_close(x, y, 1.5), 2 / 3),
        check("At most half of what one-hot features lose, where these lose more than 4 and the "
              "variables have a meaning", found, one_hot, hard, lambda x, y: x <= 0.5 * y),
        check("At most 1.25 times what one-hot features lose, or 0.3 more, where they have none",
              found, one_hot, say_nothing, lambda x, y: is_close(x, y, 1.25, 0.3)),
        check("At most 2% of the runs are stuck", stuck, few, envs, lambda x, y: x <= y),
    ]  # fmt: skip


def automatic_long(measured: Sequence[Measured]) -> Page:
    """Whether a run is stuck after many episodes."""
    cells = [m.cell for m in measured]
    table = pivot(cells, lambda c: (f"{c.env}, {c.episodes:,} episodes", c.agent), lost_text,
                  "problem")  # fmt: skip
    return f"{table}\n{runs_text(cells)}", {}
