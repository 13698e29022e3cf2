"""`diagnose`: measure everything that the theory asks of one MDP and one feature map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from upriver.checks import check_kinds, positive_integer, positive_number
from upriver.diagnostics import realizability
from upriver.diagnostics.bounds import Bounds, check_delta, theorem1
from upriver.diagnostics.coverage import Coverage
from upriver.diagnostics.curvature import BallKappa, Kappa, curvature_at, kappa_at, kappa_over_ball
from upriver.diagnostics.realizability import Core, Shape
from upriver.display import Card, add_repr, to_frame
from upriver.features import Features, one_hot, recentre
from upriver.mdp import FiniteMDP, Task

SCHEMA = 1
"""The version of the JSON of `Diagnosis.as_dict`."""


@add_repr
@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """The measurements of `diagnose`. `as_dict` is the documented JSON."""

    name: str
    task: Task
    n_episodes: int
    delta: float
    shape: Shape
    core: Core
    theta_bound: float | None
    """L_theta: ||theta*|| unless given; None where theta* is infinite and none was given."""
    kappa: Kappa | None
    """At theta*, or at the true probabilities without theta*; None where nothing is to learn."""
    ball: BallKappa | None
    """Over ||theta|| <= L_theta."""
    curvature: Kappa | None
    """The effective constant at the same point as `kappa`."""
    bounds: Bounds | None
    """With the certified kappa of the ball, which the proofs need; for features without a zero
    successor, after the best recentring."""
    bounds_at_core: Bounds | None
    """With kappa at theta*, the best that could be hoped for."""

    def card(self) -> Card:
        """Return what the display shows."""
        facts: dict[str, Any] = {
            "columns": self.shape.dimension,
            "realizable": bool(self.core.realizable),
            "largest reachable set": self.shape.max_successors,
            "kappa": None if self.kappa is None else float(self.kappa.value),
            "theta bound": self.theta_bound,
        }
        known = {label: value for label, value in facts.items() if value is not None}
        return Card(known, of=self.name, rows=self.table, most=50)

    def table(self) -> list[dict[str, Any]]:
        """Return a row per finding: part, what, value, and its meaning or what to do."""
        return [
            {"part": part, "what": what.strip(), "value": format_value(value), "meaning": meaning}
            for part, lines in describe(self).items()
            for what, value, meaning, _ in lines
        ]

    def to_pandas(self) -> Any:
        """Return the `table` as a data frame."""
        return to_frame(self.table())

    def as_dict(self) -> dict[str, Any]:
        """Return plain types for JSON; infinite numbers become None."""
        shape, core, ball, task = self.shape, self.core, self.ball, self.task
        names = ("n_states", "n_actions", "horizon", "n_triples", "support")
        columns = ("max_successors", "dimension", "formal_dimension", "rank", "norm_bound")
        features = {x: getattr(shape, x) for x in columns}
        features |= {"norm_bound_recentred": shape.best_norm_bound}
        found = {
            "schema": SCHEMA,
            "environment": {"name": self.name} | {x: getattr(task, x) for x in names},
            "n_episodes": self.n_episodes,
            "delta": self.delta,
            "features": features | {"zero_successor": shape.zero_successor},
            "core": {
                "realizable": core.realizable,
                "residual": core.residual,
                "norm": core.norm if core.realizable else None,
                "theta_bound": self.theta_bound,
                "total_variation": core.error,
                "where": dict(zip("hsa", core.where, strict=True)),
                "forbidden_successor": core.forbidden
                and dict(zip(("s", "a", "next"), core.forbidden, strict=True)),
            },
            "kappa": {
                "at_core": self.kappa and self.kappa.value,
                **{f"ball_{x}": getattr(ball, x, None) for x in ("found", "certified", "crude")},
                "curvature": self.curvature and self.curvature.value,
            },
            "theorem1": self.bounds and self.bounds._asdict(),
            "theorem1_at_core": self.bounds_at_core and self.bounds_at_core._asdict(),
        }
        return to_plain(found)


def to_plain(value: Any) -> Any:
    """Replace NumPy scalars by plain numbers and infinite numbers by None."""
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


@check_kinds
def diagnose(
    mdp: FiniteMDP,
    features: Features | None = None,
    n_episodes: int = 100,
    delta: float = 0.05,
    theta_bound: float | None = None,
) -> Diagnosis:
    """Measure the assumptions of the theory on an MDP and a feature map.

    Parameters
    ----------
    mdp
        The true MDP.
    features
        One-hot on the true support unless given; their task may declare more successors.
    n_episodes, delta
        K and the level of Theorem 1.
    theta_bound
        L_theta; ||theta*|| unless given.
    """
    features = one_hot(mdp.task()) if features is None else features
    n_episodes = positive_integer("n_episodes", n_episodes)
    check_delta(delta)
    task = features.task
    core = realizability.find_core(mdp, features)
    if theta_bound is not None:
        theta_bound = positive_number("theta_bound", theta_bound)
    elif core.realizable or core.forbidden is None:
        theta_bound = core.norm
    prob = realizability.true_probabilities(mdp, task)
    if core.forbidden is None and not core.realizable:
        prob = realizability.softmax_rows(task, np.asarray(features.matrix @ core.theta.T).T)
    kappa = kappa_at(task, prob)
    ball = kappa_over_ball(features, theta_bound) if theta_bound is not None else None
    shape = realizability.shape_of(features)
    bounds = at_core = None
    if theta_bound and ball is not None and shape.best_norm_bound > 0.0:
        used = features if shape.zero_successor else recentre(features, shape.best_reference)
        bounds = theorem1(used, ball.certified, theta_bound, n_episodes, delta)
        if kappa is not None and kappa.value > 0.0:
            at_core = theorem1(used, kappa.value, theta_bound, n_episodes, delta)
    given = mdp.name, task, n_episodes, delta
    measured = shape, core, theta_bound, kappa, ball, curvature_at(features, prob)
    return Diagnosis(*given, *measured, bounds, at_core)


class Line(NamedTuple):
    """One finding in words."""

    what: str
    value: str | float | None
    meaning: str
    status: Literal["good", "warn", "bad", ""] = ""


def format_value(x: str | float | None) -> str:
    """Write four digits; text as it is, and None as a dash."""
    if x is None or isinstance(x, str):
        return x or "-"
    return f"{x:.4g}" if x == 0 or 1e-3 <= abs(x) < 1e5 else f"{x:.2e}"


def describe(found: Diagnosis, measured: Coverage | None = None) -> dict[str, list[Line]]:
    """Describe a diagnosis, and what runs measured: {title: lines}, in the order of the theory."""
    parts = {
        "features": describe_features(found.shape),
        "transition parameter (Assumption 1)": describe_parameter(found),
        "curvature (Assumption 3)": describe_curvature(found),
        f"Theorem 1, K = {found.n_episodes}, delta = {found.delta:g}": describe_bounds(found),
    }
    if measured is not None:
        parts["measured over runs (Lemmas 1, 2)"] = describe_coverage(measured)
    return parts


def describe_features(shape: Shape) -> list[Line]:
    """Describe U, d, rank, L_varphi and the zero successor."""
    gain = shape.best_norm_bound < 0.999 * shape.norm_bound
    shorter = "smaller: use features.recentre" if gain else "recentring does not shorten features"
    zero = Line("zero successor", "yes", "every (s, a) has one, as Lemma 1 needs", "good")
    if not shape.zero_successor:
        zero = Line("zero successor", "no", "Lemma 1 needs one: use features.recentre", "bad")
    rank = "unknown" if shape.rank is None else shape.rank
    return [
        Line("U", shape.max_successors, "largest reachable set"),
        Line("d", f"{shape.dimension} of {shape.formal_dimension}", "columns kept, of formal d"),
        Line("rank", rank, "number of directions that data can identify"),
        Line("L_varphi", shape.norm_bound, "largest norm of a feature row"),
        Line("  recentred", shape.best_norm_bound, shorter, "warn" if gain else ""),
        zero,
    ]


def describe_parameter(found: Diagnosis) -> list[Line]:
    """Describe theta*, or its projection."""
    core = found.core
    h, s, a = core.where
    if core.forbidden is not None:
        fs, fa, f2 = core.forbidden
        why = f"because successor {f2} of (s={fs}, a={fa}) is declared and never occurs; "
        place = f"of the projection, at (s={s}, a={a}); it vanishes as theta grows"
        return [
            Line("theta*", "infinite", why + "KL projection instead", "warn"),
            Line("largest TV error", core.error, place, "good" if core.error < 1e-3 else "bad"),
        ]
    if core.realizable:
        lines = [
            Line("realizable", "yes", f"log-odds solved to {core.residual:.1g}", "good"),
            Line("||theta*||", core.norm, "minimum norm, used as L_theta"),
        ]
    else:
        why = "no theta gives these transitions; the KL projection follows"
        cure = f"at (h={h}, s={s}, a={a}): add features there, or use one-hot"
        lines = [
            Line("realizable", "no", why, "bad"),
            Line("largest TV error", core.error, cure, "bad"),
        ]
    if found.theta_bound != core.norm:
        lines.append(Line("L_theta", found.theta_bound, "as given: the ball used below"))
    return lines


def describe_curvature(found: Diagnosis) -> list[Line]:
    """Describe kappa at theta* and over the ball, and the effective constant."""
    if found.kappa is None:
        return [Line("kappa", None, "every (s, a) has one successor: nothing to learn", "good")]
    s, a, x, y = found.kappa.where
    product = f"P({x})P({y}) at (s={s}, a={a})"
    if found.kappa.value <= 0.0:
        return [Line("kappa", "0", f"{product}: no bound holds; use --support known", "bad")]
    label = "kappa at theta*" if found.core.realizable else "kappa at projection"
    lines = [Line(label, found.kappa.value, product)]
    if found.ball is not None:
        lines.append(Line("  over the ball", found.ball.found, "smallest found, which proofs need"))
        lines.append(Line("  certified", found.ball.certified, "no theta of the ball is below it"))
    if found.curvature is not None:
        least, what = found.curvature.value, "smallest eigenvalue of Hessian against Gram"
        lines.append(Line("effective", least, what, "bad" if least <= 0.0 else ""))
    return lines


def describe_bounds(found: Diagnosis) -> list[Line]:
    """Describe the radius, the regret bound and whether it says anything."""
    if found.bounds is None:
        why = "needs a finite theta*, or give --theta-bound" if found.theta_bound is None else "-"
        return [Line("bound", None, why)]
    bounds, best = found.bounds, found.bounds_at_core
    regret = f"corrected {format_value(bounds.regret_corrected)}"
    if best:
        regret += f", with kappa at theta* {format_value(best.regret_corrected)}"
    verdict = Line("verdict", "informative", "smaller than the trivial bound", "good")
    if bounds.vacuous:
        useful, at_best = (format_value(x.first_useful) for x in (bounds, best or bounds))
        cure = f"no information before K = {useful} (at best {at_best}): tune scaled_radius(c)"
        verdict = Line("verdict", "vacuous", cure, "bad")
    radius = f"Lemma 1; corrected {format_value(bounds.radius_corrected)}"
    return [
        Line("lambda_K", bounds.regularization, "regularisation, constant C = 1"),
        Line("beta_K printed", bounds.radius_printed, radius),
        Line("regret printed", bounds.regret_printed, regret),
        Line("trivial bound", bounds.trivial, "K H: no learner loses more"),
        verdict,
    ]


def describe_coverage(measured: Coverage) -> list[Line]:
    """Describe coverage, optimism, clips, ties and the elliptical potential."""
    numbers, goal = measured.summary(), 1.0 - measured.delta
    inside = f"of runs had theta* inside for all k; goal {goal:.0%}"
    bound = f"elliptical sum; bound {format_value(numbers['potential_bound'])}"
    clips = "values at the cap: the bonus hides the transitions"
    covers = [
        Line(f"covers, {name}", f"{share:.1%}", inside, "good" if share >= goal else "warn")
        for name, share in numbers["covered"].items()
    ]
    return [
        *covers,
        Line("optimism rate", f"{numbers['optimism_rate']:.1%}", "planned V_1 >= V*_1"),
        Line("clip rate", f"{numbers['clip_rate']:.1%}", clips),
        Line("tie rate", f"{numbers['tie_rate']:.1%}", "states whose best action is not unique"),
        Line("potential", numbers["potential"], bound),
    ]
