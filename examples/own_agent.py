"""Your own agent, complete: explore for some episodes, then trust the estimate for ever.

An agent is a frozen dataclass of its inputs with `init`, `plan` and `update`. This one joins any
comparison by name: `agent = "own_agent:ExploreThenCommit"` in a spec for `upriver run`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import upriver as up
from upriver.mnl import model as mnl
from upriver.planning import draw_word


@dataclass(frozen=True)
class ExploreThenCommit:
    task: up.Task
    features: up.Features
    exploration: int = 20
    """Episodes of uniform play."""
    regularization: float = 1.0

    GRID: ClassVar[dict[str, tuple[Any, ...]]] = {"exploration": (0, 5, 10, 20, 40)}

    def init(self):
        return 0, mnl.start(self.features, self.regularization, 1, with_geometry=False)

    def plan(self, state, rng):
        k, model = state
        if k < self.exploration:
            return up.Random(self.task).plan(None, rng)
        return up.optimism.closed_form(self.task, model, self.task.reward_rows, 0.0, draw_word(rng))

    def update(self, state, plan, episode):
        k, model = state
        return k + 1, mnl.absorb(self.features, model, episode, self.regularization)


def main(episodes=150, seeds=10):
    mdp = up.envs.riverswim(n_states=8)
    task = mdp.task("local")
    phi = up.features.shared(task)
    best = up.solve(mdp).v[0, 0]
    print(f"episodes lost in {episodes} (mean ± standard error over {seeds} seeds)")
    for name, agent in {
        "explore, then commit": ExploreThenCommit(task, phi),
        "UCRL-MNL": up.UCRLMNL(task, phi, radius=1e-3),
        "uniform play": up.Random(task),
    }.items():
        lost = [up.simulate(mdp, agent, episodes, s).regret.sum() / best for s in range(seeds)]
        print(f"  {name:<22} {np.mean(lost):6.1f} ± {np.std(lost, ddof=1) / seeds**0.5:.1f}")


if __name__ == "__main__":
    main()
