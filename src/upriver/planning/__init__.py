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
    draw_word,
    empty_plan,
    policy_type,
    steps_of,
    swept,
)
from upriver.planning.optimum import action_table, check_actions, evaluate, solve, start_value

__all__ = [
    "Clip", "Plan", "action_table", "backward_induction", "check_actions", "clip_nothing", "clip_q",
    "clip_q_above", "clip_v", "clip_v_remaining", "draw_word", "empty_plan", "evaluate",
    "policy_type", "solve", "start_value", "steps_of", "swept",
]  # fmt: skip
