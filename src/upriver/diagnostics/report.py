"""`diagnose`: measure everything that the theory asks of one MDP and one feature map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from upriver.checks import check_kinds, open_fraction, positive_integer, positive_number
from upriver.diagnostics import realizability
from upriver.diagnostics.bounds import Bounds, theorem1
from upriver.diagnostics.coverage import Coverage
from upriver.diagnostics.kappa import Kappa, certify_kappa, kappa_at
from upriver.diagnostics.realizability import Core, Shape
from upriver.display import Card, add_repr, to_frame
from upriver.features import Features, one_hot, recentre
from upriver.mdp import FiniteMDP, Task

SCHEMA = 2
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
    certified: float | None
    """A lower bound of kappa over ||theta|| <= L_theta."""
    bounds: Bounds | None
    """With the certified kappa of the ball, which the proofs need; for features without a zero
    successor, after the best recentring."""

    def card(self) -> Card:
        """Return what the display shows."""
        facts = {"columns": self.shape.dimension, "realizable": bool(self.core.realizable)}
        return Card(facts, of=self.name, rows=self.table, most=50)

    def table(self) -> list[dict[str, Any]]:
        """Return a row per finding: what, value and a note."""
        return [
            {"what": what, "value": format_value(value), "note": note}
            for what, value, note in describe(self)
        ]

    def to_pandas(self) -> Any:
        """Return the `table` as a data frame."""
        return to_frame(self.table())

    def as_dict(self) -> dict[str, Any]:
        """Return plain types for JSON; infinite numbers become None."""
        features, core = self.shape._asdict(), self.core._asdict()
        del features["best_reference"], core["theta"]
        norm = self.core.norm if self.core.realizable else None
        names = ("n_states", "n_actions", "horizon", "n_triples", "support")
        return to_plain({
            "schema": SCHEMA,
            "environment": {"name": self.name} | {x: getattr(self.task, x) for x in names},
            "n_episodes": self.n_episodes,
            "delta": self.delta,
            "features": features,
            "core": core | {"norm": norm, "theta_bound": self.theta_bound},
            "kappa": {"at_core": self.kappa and self.kappa.value, "certified": self.certified},
            "theorem1": self.bounds and self.bounds._asdict(),
        })  # fmt: skip


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
    open_fraction("delta", delta)
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
    certified = None if theta_bound is None else certify_kappa(features, theta_bound)
    shape = realizability.shape_of(features)
    bounds = None
    if theta_bound and certified is not None and shape.best_norm_bound > 0.0:
        used = features if shape.zero_successor else recentre(features, shape.best_reference)
        bounds = theorem1(used, certified, theta_bound, n_episodes, delta)
    return Diagnosis(
        mdp.name, task, n_episodes, delta, shape, core, theta_bound, kappa, certified, bounds
    )


def format_value(x: Any) -> str:
    """Write four digits; text as it is, and None as a dash."""
    if isinstance(x, bool):
        return "yes" if x else "no"
    if x is None or isinstance(x, str):
        return x or "-"
    return f"{x:.4g}" if x == 0 or 1e-3 <= abs(x) < 1e5 else f"{x:.2e}"


def describe(found: Diagnosis, measured: Coverage | None = None) -> list[tuple[str, Any, str]]:
    """Return (what, value, note) of each finding, and of what runs measured."""
    shape, core, kappa, bounds = found.shape, found.core, found.kappa, found.bounds
    h, s, a = core.where
    rows = [
        ("U", shape.max_successors, "largest reachable set"),
        ("d", shape.dimension, f"columns kept, of {shape.formal_dimension}"),
        ("rank", shape.rank, "directions that data can identify"),
        ("L_varphi", shape.norm_bound, "largest norm of a feature row"),
        ("L_varphi, recentred", shape.best_norm_bound, "after features.recentre"),
        ("zero successor", shape.zero_successor, "needed by Lemma 1 in every (s, a)"),
        ("realizable", core.realizable, "Assumption 1"),
    ]
    if core.forbidden is not None:
        s0, a0, s2 = core.forbidden
        never = f"successor {s2} of (s={s0}, a={a0}) is declared and never occurs"
        rows.append(("theta*", "infinite", never))
    if core.realizable:
        rows.append(("||theta*||", core.norm, "minimum norm"))
    else:
        rows.append(
            ("largest TV error", core.error, f"of the projection, at (h={h}, s={s}, a={a})")
        )
    rows.append(("L_theta", found.theta_bound, "radius of the ball"))
    if kappa is None:
        rows.append(("kappa", None, "every (s, a) has one successor: nothing to learn"))
    else:
        s, a, x, y = kappa.where
        rows.append(("kappa", kappa.value, f"P({x})P({y}) at (s={s}, a={a})"))
        if found.certified is not None:
            rows.append(("kappa, certified", found.certified, "lower bound in the ball"))
    if bounds is not None:
        useful = f"useful from K = {format_value(bounds.first_useful)} on"
        as_printed = bounds.radius_printed, bounds.regret_printed
        printed = [f"printed {format_value(x)}" for x in as_printed]
        rows += [
            ("lambda_K", bounds.regularization, f"K = {found.n_episodes}"),
            ("beta_K", bounds.radius_corrected, printed[0]),
            ("regret bound", bounds.regret_corrected, printed[1]),
            ("trivial bound", bounds.trivial, "K H"),
            ("verdict", "vacuous" if bounds.vacuous else "informative", useful),
        ]  # fmt: skip
    if measured is None:
        return rows
    numbers = measured.summary()
    rows += [
        (f"covers, {name}", f"{share:.1%}", f"of runs, for all k; goal {1.0 - measured.delta:.0%}")
        for name, share in numbers["covered"].items()
    ]
    return [*rows, ("optimism rate", f"{numbers['optimism_rate']:.1%}", "planned V_1 >= V*_1")]
