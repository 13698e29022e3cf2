"""Draw the animation of the README: a greedy learner and the default agent on a river.

python docs/figures/draw_learning.py
"""

from pathlib import Path

import upriver as up


def main():
    mdp = up.envs.riverswim(n_states=20)
    task = mdp.task(support="local")
    agents = {
        "without a bonus": up.agents.UCRLMNLSE(task, shared_errors=0.0, own_errors=0.0),
        "default agent": up.agents.UCRLMNLSE(task),
    }
    path = Path(__file__).parent / "river.gif"
    print(up.animate(mdp, agents, n_episodes=12, path=path, seconds=0.7))


if __name__ == "__main__":
    main()
