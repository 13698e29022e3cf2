"""Queue: admission control of a queue of finite size.

Three exponential clocks run against each other: the next arrival, the end of the present service,
and an inspection, at rate 1. The state is the number of customers, a step goes to the next event,
and the first of competing clocks is i with probability rate_i / sum of the rates that run:
exactly multinomial-logistic in the log rates. Rejecting keeps out all but emergencies.
"""

from __future__ import annotations

from upriver.checks import check_kinds, positive_integer
from upriver.envs.named import build_mdp, check_listed, normalize
from upriver.mdp import FiniteMDP

ADMIT, REJECT = "admit", "reject"
ARRIVAL, SERVICE = 1.2, 1.0
"""Rates; an inspection has rate 1."""
EMERGENCIES = 0.1
"""Share of arrivals that rejecting does not keep out."""
REFUSAL = 0.3
"""Cost of rejecting."""


@check_kinds
def queue(buffer: int = 20, horizon: int | None = None) -> FiniteMDP:
    """Make a queue that is empty at first; the state is the number of customers.

    The reward of a step is 1 - 0.7 * customers / buffer, less 0.3 where customers are rejected or
    the queue is full. The true support is local.

    Parameters
    ----------
    buffer, horizon : int
        The largest number of customers, at least 2; the default horizon is 4 * buffer.
    """
    buffer = positive_integer("buffer", buffer, 2)
    check_listed(buffer, 2, 3)

    def outcomes(n: int, a: str) -> list[tuple[int, float]]:
        clocks = [(n, 1.0)]
        if n < buffer:
            clocks.append((n + 1, ARRIVAL * (1.0 if a == ADMIT else EMERGENCIES)))
        if n > 0:
            clocks.append((n - 1, SERVICE))
        return normalize(clocks)

    def reward(n: int, a: str) -> float:
        lost = REFUSAL if a == REJECT or n == buffer else 0.0
        return (1.0 - REFUSAL) * (1.0 - n / buffer) + REFUSAL - lost

    name, horizon = f"queue-{buffer}", 4 * buffer if horizon is None else horizon
    return build_mdp(name, range(buffer + 1), (ADMIT, REJECT), outcomes, reward, horizon)
