"""The default agent on problems that did not choose its constants, beside untuned and tuned others.

The bars are what the project promises of it. `default_agent` computes each of them from the runs
and prints the numbers, whether it is passed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import le
from typing import Any, NamedTuple

import numpy as np

from studies.figures import heat_figure, lost_figure
from studies.measured import (
    Cell,
    Measured,
    Page,
    log_spaced,
    lost_text,
    minus,
    pivot,
    runs_text,
)
from studies.problems import PROBLEMS, noisy
from upriver import kernels
from upriver.agents.base import State
from upriver.agents.ucrl_mnl_se import UCRLMNLSE
from upriver.features import Features
from upriver.mdp import FiniteMDP
from upriver.mnl import model as mnl
from upriver.mnl.pooled import FIRST_SPREAD
from upriver.planning import Plan, clip_v_remaining, draw_tie_seed, run_backward_pass, solve
from upriver.results import plots
from upriver.results.statistics import bootstrap_interval, compute_curve
from upriver.results.styles import TUNED
from upriver.results.tables import to_markdown

SE = "UCRL-MNL-SE"
SHARED, POOLED, ONE_HOT = (f"{SE} {x}" for x in ("shared", "pooled", "one-hot"))
TABULAR = "UCRL2", "UCBVI", "PSRL"
USELESS = "drawn 1"
"""The problem whose shared features say nothing."""


class Bar(NamedTuple):
    """A promise, what was measured, and whether it is kept."""

    promise: str
    measured: str
    kept: bool


Cells = dict[tuple[str, str], Cell]
"""By environment and agent."""


def default_agent(measured: Sequence[Measured]) -> Page:
    """What to use with which knowledge, the numbers with their intervals, and the bars."""
    cells = {(m.cell.env, m.cell.agent): m.cell for m in measured}
    envs = list(dict.fromkeys(env for env, _ in cells))
    plain = [c for c in cells.values() if not c.agent.endswith(TUNED)]
    parts = {
        "lost": pivot(plain, lambda c: (c.env, c.agent), lost_text, "problem"),
        "tuned": tuned_table(cells, envs),
        "bars": bars_table(bars(cells, envs)),
    }
    text = "".join(f"<!-- {name} -->\n\n{part}\n" for name, part in parts.items())
    figure = heat_figure({(c.env, c.agent): c for c in plain})
    text = f"{text}<!-- end -->\n\n{runs_text(list(cells.values()))}"
    return text, {"default-agent": figure}


def short_text(cell: Cell) -> str:
    """Episodes lost and, where there are any, the share of stuck runs."""
    digits = 2 if cell.lost < 9.995 else 0
    stuck = f" ({100 * cell.stuck:.0f}%)" if cell.stuck > 0 else ""
    return f"{cell.lost:.{digits}f}{stuck}"


def tuned_table(cells: Cells, envs: Sequence[str]) -> str:
    """The best tuned learner with shared features on each problem, beside the default agent."""
    rows = [["problem", "best tuned learner", "loses", f"{SHARED} loses", "close"]]
    for env in envs:
        best, mine = best_tuned(cells, env), cells[env, SHARED]
        close = "yes" if is_close(mine.lost, best.lost) else "no"
        rows.append([env, best.agent.split()[0], lost_text(best), lost_text(mine), close])
    return to_markdown(rows, words=2)


def best_tuned(cells: Cells, env: str) -> Cell:
    here = (c for (e, agent), c in cells.items() if e == env and agent.endswith(TUNED))
    return min(here, key=lambda c: c.lost)


def is_close(lost: float, best: float, factor: float = 1.25, more: float = 1.0) -> bool:
    """Whether at most `factor` times the best was lost, or `more` episodes more."""
    return lost <= max(factor * best, best + more)


def bars(cells: Cells, envs: Sequence[str]) -> list[Bar]:
    """Return the promises about the judging set at its own number of episodes."""

    def best(*agents: str) -> dict[str, float]:
        return {env: min(cells[env, agent].lost for agent in agents) for env in envs}

    share = best(SHARED)
    tuned = {env: best_tuned(cells, env).lost for env in envs}
    exact = [env for env in envs if PROBLEMS[env].exact]
    stuck = {env: cells[env, SHARED].stuck for env in envs}
    few = {env: 0.01 for env in envs}
    limit = "Pooled features: at most"
    return [
        check("Shared features: at most 1% of the runs are stuck", stuck, few, envs, le),
        check("Shared features: at most 1.25 times the best tuned learner, or one episode more, on "
              "90% of the problems", share, tuned, envs, is_close, 0.9),
        check(f"{limit} twice what shared ones lose, or one episode more, where these are exact",
              best(POOLED), share, exact, lambda x, y: is_close(x, y, 2.0)),
        check(f"{limit} 1.1 times what one-hot ones lose where shared ones are useless",
              best(POOLED), best(ONE_HOT), [USELESS], lambda x, y: x <= 1.1 * y),
        check(f"{limit} a twentieth of what UCRL2 loses on the slippery cliff", best(POOLED),
              best("UCRL2"), ["slippery cliff"], lambda x, y: x <= y / 20),
        check("One-hot features: at most 1.1 times the best of untuned UCRL2, UCBVI and PSRL",
              best(ONE_HOT), best(*TABULAR), envs, lambda x, y: x <= 1.1 * y),
        check("One-hot features: a third less than these, on a quarter of the problems",
              best(ONE_HOT), best(*TABULAR), envs, lambda x, y: x <= y * 2 / 3, 0.25),
    ]  # fmt: skip


def check(
    promise: str, mine: dict[str, float], other: dict[str, float], envs: Sequence[str],
    holds: Callable[[float, float], bool], share: float = 1.0,
) -> Bar:  # fmt: skip
    """Return whether `holds(mine, other)` on a share of the problems, and where it does not."""
    missed = [env for env in envs if not holds(mine[env], other[env])]
    kept = len(envs) - len(missed)
    pairs = "; ".join(f"{env} ({mine[env]:.2f} against {other[env]:.2f})" for env in missed)
    listed = missed and share > 0.5  # a promise about a few problems does not list the others
    said = f"on {kept} of {len(envs)}" + (f"; not on {pairs}" if listed else "")
    return Bar(promise, said, kept >= share * len(envs))


def bars_table(found: Sequence[Bar]) -> str:
    rows = [[bar.promise, bar.measured, "yes" if bar.kept else "no"] for bar in found]
    return to_markdown([["promise", "measured", "kept"], *rows], words=2)


def default_agent_long(measured: Sequence[Measured]) -> Page:
    """Whether a run is stuck after many episodes."""
    cells = [m.cell for m in measured]
    table = pivot(cells, lambda c: (f"{c.env}, {c.episodes:,} episodes", c.agent), lost_text,
                  "problem")  # fmt: skip
    stuck = [f"{c.agent} on {c.env}" for c in cells if c.stuck > 0 and c.agent == SHARED]
    promise = "Shared features: no run of 20 is stuck after 1,000 episodes"
    bar = Bar(promise, ", ".join(stuck) or "none is", not stuck)
    return f"{table}\n{bars_table([bar])}\n{runs_text(cells)}", {}


def stuck(measured: Sequence[Measured]) -> Page:
    """How often runs are stuck, by the number of standard errors in what is shared."""
    cells = [m.cell for m in measured]
    table = pivot(cells, lambda c: (c.env, c.agent), lost_text, "problem")
    return f"{table}\n{runs_text(cells)}", {}


def ablation(measured: Sequence[Measured]) -> Page:
    """Episodes lost with each part of the rule switched off."""
    tables = []
    for kind in ("shared", "pooled", "one-hot"):
        cells = [m.cell for m in measured if m.cell.agent.split(",")[0] == kind]
        table = pivot(cells, part_of_rule, short_text, "problem")
        tables.append(f"{kind.capitalize()} features\n\n{table}")
    return "\n".join([*tables, f"Means over {measured[0].cell.runs} runs.\n"]), {}


def part_of_rule(cell: Cell) -> tuple[str, str]:
    return cell.env, cell.agent.partition(", ")[2] or "the rule"


def feature_scale(measured: Sequence[Measured]) -> Page:
    """Episodes lost with columns of the features multiplied by numbers from 0.01 to 100."""
    cells = [m.cell for m in measured]
    table = pivot(cells, lambda c: (c.env, c.agent), lost_text, "problem")
    first = {c.env: c.lost for c in reversed(cells)}  # of the first agent of each problem
    scaled = [c for c in cells if not c.agent.endswith("no scaling")]
    change = max(abs(c.lost / first[c.env] - 1.0) for c in scaled)
    promise = "Multiplying columns by 0.01 to 100 changes the loss by at most 10%"
    bar = Bar(promise, f"by {100 * change:.1f}% at most", change <= 0.1)
    return f"{table}\n{bars_table([bar])}\n{runs_text(cells)}", {}


def variance(measured: Sequence[Measured]) -> Page:
    """Episodes lost against the noise, and how much the return of optimal play varies."""
    by: dict[str, dict[float, list[float]]] = {}
    deviation: dict[float, list[float]] = {}
    for m in measured:
        numbers = m.run.environment["settings"]
        by.setdefault(m.cell.agent, {}).setdefault(numbers["noise"], []).append(m.cell.lost)
        if m.cell.agent == measured[0].cell.agent:
            deviation.setdefault(numbers["noise"], []).append(relative_deviation(noisy(**numbers)))
    rows = [["agent", *(f"noise {noise:g}" for noise in deviation)]]
    rows.append(["sd / mean of the optimal return",
                 *(f"{np.mean(d):.3f}" for d in deviation.values())])  # fmt: skip
    panel = {}
    for agent, at in by.items():
        found = [(np.mean(lost), *bootstrap_interval(np.array(lost))) for lost in at.values()]
        if "," not in agent:  # variants of the rule are in the table only
            panel[agent] = plots.Band(list(at), *zip(*found, strict=True))
        rows.append([agent, *("{:.2f} [{:.2f}, {:.2f}]".format(*y) for y in found)])
    figure = lost_figure({"": panel}, "noise", True, "one")
    draws = f"Problems of each kind: {len(next(iter(deviation.values())))}. "
    return f"{to_markdown(rows)}\n{draws}{runs_text([m.cell for m in measured])}", {
        "variance": figure
    }


def relative_deviation(mdp: FiniteMDP) -> float:
    """Return the standard deviation of the return of optimal play, divided by its mean.

    By the law of total variance its square is the sum over steps of the expected variance of the
    next value, which is what the bounds of variance-adaptive algorithms contain.
    """
    task, best = mdp.true_task, solve(mdp)
    total = np.zeros(task.n_states)
    for h in range(task.horizon - 1, -1, -1):
        p = mdp.probability[min(h, len(mdp.probability) - 1)]
        pairs = np.arange(task.n_states) * task.n_actions + best.policy[h]
        v = best.v[h + 1][task.successors]
        mean, square, later = (
            np.add.reduceat(p * y, task.indptr[:-1])[pairs]
            for y in (v, v**2, total[task.successors])
        )
        total = np.maximum(square - mean**2, 0.0) + later
    start = mdp.initial_states[0]
    return float(np.sqrt(total[start]) / best.v[0, start])


# -- the rule without one of its parts ------------------------------------------------------------


@dataclass(frozen=True)
class Linear(UCRLMNLSE):
    """The rule with a linear bonus, P V and its weighted standard errors, instead of the tilt."""

    def start(self) -> mnl.Model:
        return mnl.start(
            self.model_features, self.regularization, 1, True, True,
            weights=self.choose_weights(0.0), spread=FIRST_SPREAD if self.learns_spread else None,
        )  # fmt: skip

    def plan(self, state: State, rng: np.random.Generator) -> Plan:
        reward = self.task.reward_rows
        # Q_h = r + P V + ||grad PV||_{A^-1}: `optimism.gradient` without its remainder.
        task, model = self.task, state.model
        data = (
            model.prob, model.max_norm, model.inverse_products, task.square_start, reward, 1.0,
            np.zeros(task.horizon), task.max_successors,
        )  # fmt: skip
        rule, clip = kernels.optimism.gradient_rule, clip_v_remaining(task)
        return run_backward_pass(task, rule, data, clip, draw_tie_seed(rng))


@dataclass(frozen=True)
class Unscaled(UCRLMNLSE):
    """The rule with the ridge in the units of the features."""

    @cached_property
    def model_features(self) -> Features:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.features.rescaled(np.ones(self.features.dimension))


# -- one stream ------------------------------------------------------------------------------------


def streams(measured: Sequence[Measured]) -> Page:
    """Steps lost in one stream, and the cumulative regret of the first learner and tuned ones."""
    cells = [m.cell for m in measured]
    first = measured[0]
    lost = pivot(cells, lambda c: (c.agent, c.env), lost_text)
    rows = [
        [
            "environment",
            "best tuned",
            "loses",
            f"{first.cell.agent} loses",
            "more",
            "close",
        ]
    ]
    for m in measured:
        if m.cell.agent == first.cell.agent:
            here = [x for x in measured if x.cell.env == m.cell.env and is_tuned(x)]
            best = min(here, key=lambda x: x.cell.lost)
            close = "yes" if is_close(m.cell.lost, best.cell.lost, more=0.0) else "no"
            rows.append(
                [m.cell.env, best.cell.agent, lost_text(best.cell), lost_text(m.cell),
                 minus(m, best), close]
            )  # fmt: skip
    table = to_markdown(rows)
    drawn = [m for m in measured if m.cell.agent == first.cell.agent or is_tuned(m)]
    return f"Steps lost\n\n{lost}\n{table}\n{runs_text(cells)}", {"streams": regret_figure(drawn)}


def regret_figure(measured: Sequence[Measured]) -> Any:
    """Cumulative regret on log axes, a panel for each environment."""
    panels: dict[str, dict[str, Any]] = {}
    for m in measured:
        curve = compute_curve(m.sample, "regret")
        at = log_spaced(1, len(curve.x), 80) - 1
        panels.setdefault(m.cell.env, {})[m.cell.agent] = curve.at(at)
    return plots.plot_curves(panels, log=True, unit="step")


def is_tuned(m: Measured) -> bool:
    return m.cell.agent.endswith(TUNED)
