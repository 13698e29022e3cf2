# ruff: noqa: F401  (the names that other subpackages import)
"""Plans: backward induction, exact solution and evaluation, finite and infinite horizons.

Plans over a confidence set are in `planning.optimism`.
"""

from upriver.planning.induction import (
    Clip,
    Plan,
    backward_induction,
    clip_nothing,
    clip_q,
    clip_q_above,
    clip_v,
    clip_v_remaining,
    draw_tie_seed,
    random_actions,
    run_backward_pass,
    steps_of,
)
from upriver.planning.optimum import environment_structure, evaluate, reevaluate, solve, start_value
from upriver.planning.stationary import StationaryPlan
from upriver.planning.tables import (
    check_actions,
    check_available,
    mixture_or_actions,
    policy_type,
)
