"""`diagnose`: everything the theory asks of one MDP and one feature map, measured at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from upriver.checks import positive_integer, positive_number
from upriver.diagnostics.bounds import Bounds, theorem1
from upriver.diagnostics.curvature import BallKappa, Kappa, curvature_at, kappa_at, kappa_over_ball
from upriver.diagnostics.linear_models import LinearModels, examine
from upriver.diagnostics.realizability import Core, find_core, softmax_rows, true_probabilities
from upriver.diagnostics.shape import Shape, shape_of
from upriver.display import Card, displayed, to_frame
from upriver.features import Features, one_hot, recentre
from upriver.mdp import FiniteMDP, Task

SCHEMA = 1


@displayed
@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """What `diagnose` found. `as_dict` is the documented JSON."""

    name: str
    task: Task
    n_episodes: int
    delta: float
    shape: Shape
    core: Core
    theta_bound: float | None
    """L_theta: ||theta*|| unless given; None where theta* is infinite and none was given."""
    kappa: Kappa | None
    """At theta*, or at the true probabilities where there is no theta*; None: nothing to learn."""
    ball: BallKappa | None
    """Over ||theta|| <= L_theta."""
    curvature: Kappa | None
    """The effective constant at the same point as `kappa`."""
    bounds: Bounds | None
    """With the certified kappa of the ball, which is what the proofs need; for features without a
    zero successor, after the best recentring."""
    bounds_at_core: Bounds | None
    """With kappa at theta*, which is the best that could be hoped for."""
    linear_models: LinearModels

    def card(self) -> Card:
        facts: dict[str, Any] = {
            "columns": self.shape.dimension,
            "realizable": bool(self.core.realizable),
            "largest reachable set": self.shape.max_successors,
            "kappa": None if self.kappa is None else float(self.kappa.value),
            "theta bound": self.theta_bound,
            "linear model possible": bool(self.linear_models.linear.possible),
        }
        known = {label: value for label, value in facts.items() if value is not None}
        return Card(known, of=self.name, rows=self.table, most=50)

    def table(self) -> list[dict[str, Any]]:
        """A row per finding: part, what, value, and what it means or what to do about it."""
        from upriver.diagnostics.advice import number, sections

        return [
            {"part": part, "what": line.what.strip(), "value": number(line.value),
             "meaning": line.advice}
            for part, lines in sections(self).items()
            for line in lines
        ]  # fmt: skip

    def to_pandas(self) -> Any:
        """The `table` as a data frame."""
        return to_frame(self.table())

    def as_dict(self) -> dict[str, Any]:
        """Plain types for JSON; infinite numbers become null."""
        shape, core, models = self.shape, self.core, self.linear_models
        forbidden, ball = core.forbidden, self.ball
        return finite(
            {
                "schema": SCHEMA,
                "environment": {"name": self.name}
                | some(self.task, "n_states", "n_actions", "horizon", "n_triples", "support"),
                **some(self, "n_episodes", "delta"),
                "features": some(
                    shape, "max_successors", "dimension", "formal_dimension", "rank", "norm_bound"
                )
                | {"norm_bound_recentred": shape.best_norm_bound}
                | some(shape, "zero_successor"),
                "core": {
                    **some(core, "realizable", "residual"),
                    "norm": core.norm if core.realizable else None,
                    "theta_bound": self.theta_bound,
                    "total_variation": core.error,
                    "where": dict(zip("hsa", core.where, strict=True)),
                    "forbidden_successor": forbidden
                    and dict(zip(("s", "a", "next"), forbidden, strict=True)),
                },
                "kappa": {
                    "at_core": self.kappa and self.kappa.value,
                    "ball_found": ball and ball.found,
                    "ball_certified": ball and ball.certified,
                    "ball_crude": ball and ball.crude,
                    "curvature": self.curvature and self.curvature.value,
                },
                "theorem1": self.bounds and self.bounds._asdict(),
                "theorem1_at_core": self.bounds_at_core and self.bounds_at_core._asdict(),
                "linear_models": {
                    "derived_features": models.derived,
                    "linear_possible": models.linear.possible,
                    "linear_residual": models.linear.residual,
                    "bilinear_possible": models.bilinear and models.bilinear.possible,
                    "transition_representable": models.representation.exact,
                    "transition_residual": models.representation.residual,
                    "matrix_rl_constant": models.matrix_rl_constant,
                    "matrix_rl_worst": models.worst_constant,
                },
            }
        )


def some(thing: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def finite(value: Any) -> Any:
    """The same with NumPy scalars made plain and infinities made None."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def diagnose(
    mdp: FiniteMDP,
    features: Features | None = None,
    n_episodes: int = 100,
    delta: float = 0.05,
    theta_bound: float | None = None,
    state_action_features: Any = None,
    next_state_features: Any = None,
) -> Diagnosis:
    """Measure the assumptions of the theory on an MDP and a feature map.

    features: one-hot on the true support unless given; their task may declare more successors than
    there are. theta_bound: L_theta, ||theta*|| unless given. n_episodes and delta: the K and the
    level of Theorem 1. state_action_features (S*A, m) and next_state_features (S, m') are what the
    linear models of Proposition 1 would use; unless given, phi(s, a) is the mean of varphi(s, a, .)
    and psi is one-hot.
    """
    features = one_hot(mdp.task()) if features is None else features
    n_episodes = positive_integer("n_episodes", n_episodes)
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta is {delta!r}; it must lie strictly between 0 and 1")
    task = features.task
    core = find_core(mdp, features)
    if theta_bound is not None:
        theta_bound = positive_number("theta_bound", theta_bound)
    elif core.realizable or core.forbidden is None:
        theta_bound = core.norm
    prob = true_probabilities(mdp, task)
    if core.forbidden is None and not core.realizable:
        prob = softmax_rows(task, np.asarray(features.matrix @ core.theta.T).T)
    kappa = kappa_at(task, prob)
    ball = kappa_over_ball(features, theta_bound) if theta_bound is not None else None
    shape = shape_of(features)
    bounds = at_core = None
    if theta_bound and ball is not None and shape.best_norm_bound > 0.0:
        used = features if shape.zero_successor else recentre(features, shape.best_reference)
        bounds = theorem1(used, ball.certified, theta_bound, n_episodes, delta)
        if kappa is not None and kappa.value > 0.0:
            at_core = theorem1(used, kappa.value, theta_bound, n_episodes, delta)
    return Diagnosis(
        name=mdp.name,
        task=task,
        n_episodes=n_episodes,
        delta=delta,
        shape=shape,
        core=core,
        theta_bound=theta_bound,
        kappa=kappa,
        ball=ball,
        curvature=curvature_at(features, prob),
        bounds=bounds,
        bounds_at_core=at_core,
        linear_models=examine(mdp, features, state_action_features, next_state_features),
    )
