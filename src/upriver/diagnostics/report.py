"""`diagnose`: everything the theory asks of one MDP and one feature map, measured at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from upriver.checks import positive_integer, positive_number
from upriver.diagnostics.bounds import Bounds, theorem1
from upriver.diagnostics.curvature import (
    BallKappa,
    Kappa,
    curvature_at,
    kappa_at,
    kappa_over_ball,
)
from upriver.diagnostics.linear_models import (
    ProperBilinear,
    ProperModel,
    Representation,
    bilinear_model,
    linear_model,
    matrix_rl_constant,
    mean_features,
    represent,
)
from upriver.diagnostics.realizability import (
    Core,
    Shape,
    find_core,
    shape_of,
    softmax_rows,
    true_probabilities,
)
from upriver.features import Features, one_hot, recentre
from upriver.mdp import FiniteMDP, Task

SCHEMA = 1


class LinearModels(NamedTuple):
    """Propositions 1 and 2 for phi(s, a) and psi(s')."""

    derived: bool
    """Whether phi is the mean of varphi over the successors, since none was given."""
    linear: ProperModel
    bilinear: ProperBilinear | None
    """Only where next-state features were given."""
    representation: Representation
    """The given P as Phi mu, or as Phi M Psi^T."""
    matrix_rl_constant: float
    """C_psi of Proposition 2; 1 for one-hot psi, which is meant where none is given."""
    worst_constant: float
    """S, which C_psi reaches with a feature of size 1 in every state."""


@dataclass(frozen=True, eq=False)
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

    def as_dict(self) -> dict[str, Any]:
        """Plain types for JSON; infinite numbers become null."""
        shape, core, models = self.shape, self.core, self.linear_models
        answer = {
            "schema": SCHEMA,
            "environment": {
                "name": self.name,
                "n_states": self.task.n_states,
                "n_actions": self.task.n_actions,
                "horizon": self.task.horizon,
                "n_triples": self.task.n_triples,
                "support": self.task.support,
            },
            "n_episodes": self.n_episodes,
            "delta": self.delta,
            "features": {
                "max_successors": shape.max_successors,
                "dimension": shape.dimension,
                "formal_dimension": shape.formal_dimension,
                "rank": shape.rank,
                "norm_bound": shape.norm_bound,
                "norm_bound_recentred": shape.best_norm_bound,
                "zero_successor": shape.zero_successor,
            },
            "core": {
                "realizable": core.realizable,
                "residual": core.residual,
                "norm": core.norm if core.realizable else None,
                "theta_bound": self.theta_bound,
                "total_variation": core.error,
                "where": dict(zip(("h", "s", "a"), core.where, strict=True)),
                "forbidden_successor": None
                if core.forbidden is None
                else dict(zip(("s", "a", "next"), core.forbidden, strict=True)),
            },
            "kappa": {
                "at_core": self.kappa.value if self.kappa else None,
                "ball_found": self.ball.found if self.ball else None,
                "ball_certified": self.ball.certified if self.ball else None,
                "ball_crude": self.ball.crude if self.ball else None,
                "curvature": self.curvature.value if self.curvature else None,
            },
            "theorem1": self.bounds._asdict() if self.bounds else None,
            "theorem1_at_core": self.bounds_at_core._asdict() if self.bounds_at_core else None,
            "linear_models": {
                "derived_features": models.derived,
                "linear_possible": models.linear.possible,
                "linear_residual": models.linear.residual,
                "bilinear_possible": models.bilinear.possible if models.bilinear else None,
                "transition_representable": models.representation.exact,
                "transition_residual": models.representation.residual,
                "matrix_rl_constant": models.matrix_rl_constant,
                "matrix_rl_worst": models.worst_constant,
            },
        }
        return finite(answer)


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
        linear_models=examine_linear(mdp, features, state_action_features, next_state_features),
    )


def examine_linear(mdp: FiniteMDP, features: Features, phi: Any, psi: Any) -> LinearModels:
    given = phi is not None
    table = phi if given else mean_features(features)
    return LinearModels(
        derived=not given,
        linear=linear_model(table),
        bilinear=None if psi is None else bilinear_model(table, psi),
        representation=represent(mdp, table, psi),
        matrix_rl_constant=1.0 if psi is None else matrix_rl_constant(psi),
        worst_constant=float(mdp.n_states),
    )
