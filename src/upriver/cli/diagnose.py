"""`upriver diagnose`: the assumptions of the theory, measured on one problem, on one screen."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from upriver.diagnostics import Coverage, Diagnosis
    from upriver.features import Features
    from upriver.mdp import FiniteMDP, Task


class Line(NamedTuple):
    """One finding: its name, its value, and what it means or what to do about it."""

    what: str
    value: str
    advice: str
    mood: Literal["good", "warn", "bad", ""] = ""


Section = tuple[str, list[Line]]
WIDTHS = 20, 11  # columns of names and of values


def diagnose(
    environment: str,
    *,
    features: str = "one-hot",
    support: str = "known",
    horizon: int | None = None,
    episodes: int = 100,
    delta: float = 0.05,
    theta_bound: float | None = None,
    runs: int = 0,
    figure: Path | None = None,
    json: bool = False,
) -> int:
    """Measure whether the assumptions hold, the constants, and what the bounds are worth.

    **Example:** `upriver diagnose riverswim-6 --support local`

    Parameters
    ----------
    environment
        A name of the catalogue such as riverswim-6, a saved MDP (.npz or .toml), or gym:ID.
    features
        one-hot, one-hot-indicator, or shared for the environment's own.
    support
        What the learner is told: known, local or full reachable sets.
    horizon
        Steps of an episode; the environment's own if absent.
    episodes
        K of the regret bound, and of the runs.
    delta
        The bounds hold with probability 1 - delta.
    theta_bound
        L_theta; the norm of theta* if absent.
    runs
        Also play this many runs of UCRL-MNL and measure coverage, optimism, clips and ties.
    figure
        Draw what the runs measured into this file (.png or .pdf).
    json
        Print JSON instead of the screen.
    """
    from upriver import diagnostics

    if figure is not None and runs < 1:
        raise ValueError("--figure draws what runs measure; give --runs as well, such as --runs 50")
    mdp = find_mdp(environment, horizon)
    varphi = find_features(features, environment, mdp.task(support))
    found = diagnostics.diagnose(mdp, varphi, episodes, delta, theta_bound)
    measured = None
    if runs > 0:
        measured = diagnostics.coverage(mdp, varphi, n_episodes=episodes, n_runs=runs, delta=delta)
    if figure is not None and measured is not None:
        from upriver.diagnostics.figures import coverage_figure

        coverage_figure(measured).savefig(figure)
    if json:
        answer = found.as_dict()
        answer["measured"] = measured.summary() if measured else None
        print(jsonlib.dumps(answer, indent=2, allow_nan=False))
    else:
        show(found, measured, features)
    return 0


def find_mdp(name: str, horizon: int | None) -> FiniteMDP:
    """An MDP from a saved file, from Gymnasium or from the catalogue."""
    from upriver import envs
    from upriver.mdp import FiniteMDP

    if name.endswith((".npz", ".toml")):
        if horizon is not None:
            raise ValueError("--horizon is for environments by name; a saved MDP has its own")
        return FiniteMDP.load(name)
    if name.startswith("gym:"):
        return envs.from_gymnasium(name.removeprefix("gym:"), horizon)
    return envs.make(name) if horizon is None else envs.make(name, horizon=horizon)


def find_features(name: str, environment: str, task: Task) -> Features:
    from upriver import envs
    from upriver.features import FEATURES

    if name in FEATURES:
        return FEATURES[name](task)
    if name == "shared" and not environment.startswith("gym:") and "." not in environment:
        return envs.find(environment).shared(task)
    known = ", ".join([*FEATURES, "shared (catalogue environments only)"])
    raise ValueError(f"features {name!r} are unknown for {environment}; use one of {known}")


def show(found: Diagnosis, measured: Coverage | None, features: str) -> None:
    """Print the sections, their columns aligned with each other."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    colours = {"good": "green", "warn": "yellow", "bad": "red", "": "default"}
    console.print(f"[bold]{found.name}[/]: {found.task.describe()}, features {features}")
    for title, lines in sections(found, measured):
        console.print(f"[bold]{title}[/]")
        table = Table.grid(padding=(0, 2))
        table.add_column(width=WIDTHS[0], no_wrap=True)
        table.add_column(width=WIDTHS[1], no_wrap=True, justify="right")
        table.add_column()
        for line in lines:
            value = f"[{colours[line.mood]}]{line.value}[/]"
            table.add_row(f"  {line.what}", value, line.advice)
        console.print(table)


def sections(found: Diagnosis, measured: Coverage | None = None) -> list[Section]:
    """The screen as data."""
    parts = [
        ("features", feature_lines(found)),
        ("transition core (Assumption 1)", core_lines(found)),
        ("curvature (Assumption 3)", curvature_lines(found)),
        (f"Theorem 1, K = {found.n_episodes}, delta = {found.delta:g}", bound_lines(found)),
        ("linear models (Propositions 1, 2)", linear_lines(found)),
    ]
    if measured is not None:
        parts.append(("measured over runs (Lemmas 1, 2)", coverage_lines(measured)))
    return parts


def number(x: float | None) -> str:
    if x is None:
        return "-"
    return f"{x:.4g}" if x == 0 or 1e-3 <= abs(x) < 1e5 else f"{x:.2e}"


def feature_lines(found: Diagnosis) -> list[Line]:
    shape = found.shape
    rank = "?" if shape.rank is None else str(shape.rank)
    gain = shape.best_norm_bound < 0.999 * shape.norm_bound
    zero = shape.zero_successor
    return [
        Line("U", str(shape.max_successors), "largest reachable set"),
        Line("d", f"{shape.dimension} of {shape.formal_dimension}", "columns kept, of formal d"),
        Line("rank", rank, "directions that data can tell apart"),
        Line("L_varphi", number(shape.norm_bound), "largest norm of a feature row"),
        Line(
            "  recentred", number(shape.best_norm_bound),
            "smaller: use features.recentre" if gain
            else "another zero successor gains nothing" if zero
            else "what features.recentre would make of it",
            "warn" if gain else "",
        ),
        Line(
            "zero successor", "yes" if zero else "no",
            "every (s, a) has one, as Lemma 1 needs" if zero
            else "Lemma 1 needs one: use features.recentre",
            "good" if zero else "bad",
        ),
    ]  # fmt: skip


def core_lines(found: Diagnosis) -> list[Line]:
    core = found.core
    h, s, a = core.where
    if core.forbidden is not None:
        fs, fa, f2 = core.forbidden
        return [
            Line(
                "theta*", "infinite",
                f"because successor {f2} of (s={fs}, a={fa}) is declared and never happens; "
                "KL projection instead", "warn",
            ),
            Line(
                "largest TV error", number(core.error),
                f"of the projection, at (s={s}, a={a}); approached as theta grows",
                "good" if core.error < 1e-3 else "bad",
            ),
        ]  # fmt: skip
    if core.realizable:
        lines = [
            Line("realizable", "yes", f"log-odds solved to {core.residual:.1g}", "good"),
            Line("||theta*||", number(core.norm), "minimum norm, taken as L_theta"),
        ]
    else:
        lines = [
            Line(
                "realizable", "no", "no theta gives these transitions; below, the KL projection",
                "bad",
            ),
            Line(
                "largest TV error", number(core.error),
                f"at (h={h}, s={s}, a={a}): add features there, or use one-hot", "bad",
            ),
        ]  # fmt: skip
    if found.theta_bound != core.norm:
        lines.append(Line("L_theta", number(found.theta_bound), "as given: the ball used below"))
    return lines


def curvature_lines(found: Diagnosis) -> list[Line]:
    if found.kappa is None:
        return [Line("kappa", "-", "every (s, a) has one successor: nothing to learn", "good")]
    s, a, x, y = found.kappa.where
    product = f"P({x})P({y}) at (s={s}, a={a})"
    if found.kappa.value <= 0.0:
        return [Line("kappa", "0", f"{product}: no bound holds; use --support known", "bad")]
    label = "kappa at theta*" if found.core.realizable else "kappa at projection"
    lines = [Line(label, number(found.kappa.value), product)]
    if found.ball is not None:
        lines += [
            Line(
                "  over the ball", number(found.ball.found), "smallest found; what the proofs need"
            ),
            Line("  certified", number(found.ball.certified), "no theta of the ball goes below"),
        ]
    if found.curvature is not None:
        lines.append(
            Line(
                "effective", number(found.curvature.value),
                "smallest eigenvalue of Hessian against Gram",
                "bad" if found.curvature.value <= 0.0 else "",
            )
        )  # fmt: skip
    return lines


def bound_lines(found: Diagnosis) -> list[Line]:
    if found.bounds is None:
        why = "needs a finite theta*, or give --theta-bound" if found.theta_bound is None else "-"
        return [Line("bound", "-", why)]
    bounds, best = found.bounds, found.bounds_at_core
    lines = [
        Line("lambda_K", number(bounds.regularization), "regularisation, constant C = 1"),
        Line(
            "beta_K printed", number(bounds.radius_printed),
            f"Lemma 1; corrected {number(bounds.radius_corrected)}",
        ),
        Line(
            "regret printed", number(bounds.regret_printed),
            f"corrected {number(bounds.regret_corrected)}"
            + (f", with kappa at theta* {number(best.regret_corrected)}" if best else ""),
        ),
        Line("trivial bound", number(bounds.trivial), "K H: no learner loses more"),
    ]  # fmt: skip
    if bounds.vacuous:
        hope = best.first_useful if best else bounds.first_useful
        lines.append(
            Line(
                "verdict", "vacuous",
                f"says nothing before K = {number(bounds.first_useful)} (at best {number(hope)}): "
                "tune scaled_radius(c), or take c from calibrated_radius", "bad",
            )
        )  # fmt: skip
    else:
        lines.append(Line("verdict", "informative", "smaller than the trivial bound", "good"))
    return lines


def linear_lines(found: Diagnosis) -> list[Line]:
    models = found.linear_models
    phi = "phi = mean of varphi" if models.derived else "the given phi"
    possible = models.linear.possible
    lines = [
        Line(
            "proper linear P", "possible" if possible else "impossible",
            f"{phi}; |1 - range| = {number(models.linear.residual)}"
            + ("" if possible else ": append a constant feature"),
            "good" if possible else "warn",
        ),
        Line(
            "this P linear", "yes" if models.representation.exact else "no",
            f"residual {number(models.representation.residual)} (Frobenius)",
        ),
        Line(
            "C_psi, MatrixRL", number(models.matrix_rl_constant),
            f"one-hot psi; up to S = {number(models.worst_constant)} for dense ones",
        ),
    ]  # fmt: skip
    return lines


def coverage_lines(measured: Coverage) -> list[Line]:
    numbers: dict[str, Any] = measured.summary()
    goal = 1.0 - measured.delta
    lines = []
    for name, share in numbers["covered"].items():
        text = f"of runs had theta* inside for all k; goal {goal:.0%}"
        mood = "good" if share >= goal else "warn"
        lines.append(Line(f"covers, {name}", f"{share:.1%}", text, mood))  # type: ignore[arg-type]
    lines += [
        Line("optimism rate", f"{numbers['optimism_rate']:.1%}", "planned V_1 >= V*_1"),
        Line("clip rate", f"{numbers['clip_rate']:.1%}", "values at the cap: the bonus drowns P"),
        Line("tie rate", f"{numbers['tie_rate']:.1%}", "argmax left to chance"),
        Line(
            "potential", number(numbers["potential"]),
            f"elliptical sum; bound {number(numbers['potential_bound'])}",
        ),
    ]  # fmt: skip
    return lines
