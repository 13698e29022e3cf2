"""Posterior sampling of the transition core: theta ~ N(theta_hat, B^-1), the Laplace posterior."""

from __future__ import annotations

import numpy as np

from upriver import kernels
from upriver.checks import Array
from upriver.features import Features
from upriver.mnl.model import Model


def sample(features: Features, model: Model, rng: np.random.Generator) -> Array:
    """(C, d) one core for each of the model's, drawn from N(theta_hat, B^-1).

    B is the Hessian of (2) at theta_hat, whichever matrix the model keeps: with the ridge as a
    normal prior this is the Laplace approximation of the posterior.
    """
    cores = rng.standard_normal(model.theta.shape)
    for c, core in enumerate(cores):
        failed = kernels.covariance.draw(
            features.problem, model.counts[c], model.theta[c], model.regularization, core
        )
        if failed >= 0:
            raise RuntimeError(
                f"the information of feature block {failed} is not positive definite; "
                "a larger regularization makes it better conditioned"
            )
    return cores
