"""Plans: backward induction, the exact optimum, evaluation; `planning.optimism` for the unsure."""

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
    empty_plan,
    random_actions,
    steps_of,
    swept,
)
from upriver.planning.optimum import evaluate, renew, solve, start_value
from upriver.planning.tables import (
    action_table,
    check_actions,
    check_available,
    mixture_or_actions,
    policy_type,
)

__all__ = [
    "Clip", "Plan", "action_table", "backward_induction", "check_actions",
    "check_available", "clip_nothing", "clip_q", "clip_q_above", "clip_v", "clip_v_remaining",
    "draw_tie_seed", "empty_plan", "evaluate", "mixture_or_actions", "policy_type", "random_actions",
    "renew", "solve", "start_value", "steps_of", "swept",
]  # fmt: skip
