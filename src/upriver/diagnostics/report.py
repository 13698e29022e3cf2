"""`diagnose`: measure everything that the theory asks of one MDP and one feature map."""

from __future__ import annotations

from typing import Any, NamedTuple

from upriver.checks import check_kinds, open_fraction, positive_integer, positive_number
from upriver.diagnostics import realizability
from upriver.diagnostics.bounds import Bounds, theorem1
from upriver.diagnostics.kappa import Kappa, certify_kappa, kappa_at
from upriver.diagnostics.realizability import Core
from upriver.display import Card, add_repr
from upriver.features import Features, one_hot, recentre
from upriver.mdp import FiniteMDP


@add_repr
class Diagnosis(NamedTuple):
    """The measurements of `diagnose`."""

    name: str
    features: Features
    n_episodes: int
    recentred: Features
    """The same, with the zero vector for the first successor of each pair where one has none."""
    core: Core
    theta_bound: float | None
    """L_theta: ||theta*|| unless given; None where theta* is infinite and none was given."""
    kappa: Kappa | None
    """At theta*, or at the true probabilities without theta*; None where nothing is to learn."""
    certified: float | None
    """A lower bound of kappa over ||theta|| <= L_theta."""
    bounds: Bounds | None
    """With the certified kappa of the ball, which the proofs need, and the recentred features."""

    def card(self) -> Card:
        facts = {"columns": self.features.dimension, "realizable": bool(self.core.realizable)}
        return Card(facts, of=self.name, rows=self.table, most=50)

    def table(self) -> list[dict[str, str]]:
        """Return a row per finding: what, value and a note."""
        features, core, kappa, bounds = self.features, self.core, self.kappa, self.bounds
        rows: list[tuple[str, Any, str]] = [
            ("U", features.task.max_successors, "largest reachable set"),
            ("d", features.dimension, f"columns kept, of {features.formal_dimension}"),
            ("rank", core.rank, "directions that data can identify"),
            ("L_varphi", features.norm_bound, "largest norm of a feature row"),
            ("L_varphi, recentred", self.recentred.norm_bound, "after features.recentre"),
            ("zero successor", self.recentred is features, "needed by Lemma 1 in every (s, a)"),
            ("realizable", core.realizable, "Assumption 1"),
        ]
        if core.forbidden is not None:
            s, a, s2 = core.forbidden
            never = f"successor {s2} of (s={s}, a={a}) is declared and never occurs"
            rows.append(("theta*", "infinite", never))
        if core.realizable:
            rows.append(("||theta*||", core.norm, "minimum norm"))
        else:
            h, s, a = core.where
            place = f"of the projection, at (h={h}, s={s}, a={a})"
            rows.append(("largest TV error", core.error, place))
        rows.append(("L_theta", self.theta_bound, "radius of the ball"))
        if kappa is None:
            rows.append(("kappa", None, "every (s, a) has one successor: nothing to learn"))
        else:
            s, a, x, y = kappa.where
            rows.append(("kappa", kappa.value, f"P({x})P({y}) at (s={s}, a={a})"))
            if self.certified is not None:
                rows.append(("kappa, certified", self.certified, "lower bound in the ball"))
        if bounds is not None:
            verdict = "vacuous" if bounds.vacuous else "informative"
            printed = (f"printed {write_value(x)}" for x in (bounds[2], bounds.regret_printed))
            rows += [
                ("lambda_K", bounds.regularization, f"K = {self.n_episodes}"),
                ("beta_K", bounds.radius_corrected, next(printed)),
                ("regret bound", bounds.regret_corrected, next(printed)),
                ("trivial bound", bounds.trivial, "K times the range of the values"),
                ("verdict", verdict, "regret bound against the trivial one"),
            ]
        return [{"what": what, "value": write_value(x), "note": note} for what, x, note in rows]


def write_value(x: Any) -> str:
    """Write four digits; text as it is, and None as a dash."""
    if isinstance(x, bool):
        return "yes" if x else "no"
    if x is None or isinstance(x, str):
        return x or "-"
    return f"{x:.4g}" if x == 0 or 1e-3 <= abs(x) < 1e5 else f"{x:.2e}"


@check_kinds
def diagnose(
    mdp: FiniteMDP,
    features: Features | None = None,
    n_episodes: int = 100,
    delta: float = 0.05,
    theta_bound: float | None = None,
) -> Diagnosis:
    """Measure the assumptions of the theory on `mdp` and a feature map.

    Parameters
    ----------
    features
        One-hot on the true support unless given; their task may declare more successors.
    n_episodes, delta
        K and the level of Theorem 1.
    theta_bound
        L_theta; ||theta*|| unless given.
    """
    realizability.check_finite_horizon(mdp, "diagnose")
    features = one_hot(mdp.task()) if features is None else features
    n_episodes = positive_integer("n_episodes", n_episodes)
    open_fraction("delta", delta)
    task = features.task
    core = realizability.find_core(mdp, features)
    if theta_bound is not None:
        theta_bound = positive_number("theta_bound", theta_bound)
    elif core.realizable or core.forbidden is None:
        theta_bound = core.norm
    prob = realizability.true_probabilities(mdp, task)
    if core.forbidden is None and not core.realizable:
        prob = realizability.model_probabilities(features, core.theta)
    kappa = kappa_at(task, prob)
    certified = None if theta_bound is None else certify_kappa(features, theta_bound)
    bounds, has_zero = None, realizability.has_zero_successor(features)
    recentred = features if has_zero else recentre(features)
    if theta_bound and certified is not None and recentred.norm_bound > 0.0:
        bounds = theorem1(recentred, certified, theta_bound, n_episodes, delta)
    return Diagnosis(
        mdp.name, features, n_episodes, recentred, core, theta_bound, kappa, certified, bounds
    )
