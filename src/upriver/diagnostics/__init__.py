"""The paper's assumptions and lemmas as measurements: kappa, bounds, realizability, coverage."""

from upriver.diagnostics.bounds import Bounds, potential_bound, theorem1
from upriver.diagnostics.calibration import calibrated_radius, draw_core, mnl_mdp
from upriver.diagnostics.coverage import Coverage, coverage, coverage_over
from upriver.diagnostics.curvature import curvature_at, kappa_at, kappa_over_ball
from upriver.diagnostics.linear_models import (
    COUNTEREXAMPLES,
    bilinear_model,
    linear_model,
    matrix_rl_constant,
    mean_features,
    represent,
    with_constant,
)
from upriver.diagnostics.realizability import find_core, theta_star, true_probabilities
from upriver.diagnostics.report import Diagnosis, diagnose
from upriver.diagnostics.shape import shape_of
