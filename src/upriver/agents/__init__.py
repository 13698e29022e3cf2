"""One file per algorithm; `AGENTS` is the plain table of those that a spec can name."""

from typing import Any

from upriver.agents.fixed import Always, Optimal, Random
from upriver.agents.ucrl_mnl import UCRLMNL

AGENTS: dict[str, type[Any]] = {
    "always": Always,
    "optimal": Optimal,
    "random": Random,
    "ucrl-mnl": UCRLMNL,
}
