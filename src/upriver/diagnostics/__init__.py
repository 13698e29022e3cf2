"""The paper's assumptions and lemmas as measurements: kappa, bounds, realizability, coverage."""

from upriver.diagnostics.bounds import Bounds, theorem1
from upriver.diagnostics.coverage import Coverage, coverage
from upriver.diagnostics.kappa import certify_kappa, kappa_at
from upriver.diagnostics.realizability import find_core, theta_star, true_probabilities
from upriver.diagnostics.report import Diagnosis, diagnose
