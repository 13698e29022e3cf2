"""Run by the Python of an environment with rlberry-scool; reads a river, prints CPU seconds.

Imports nothing of ours: that environment does not have us.
"""

import json
import sys
from time import process_time


def main() -> None:
    import numpy as np
    import rlberry  # pyright: ignore
    from rlberry_scool.agents.features import FeatureMap  # pyright: ignore
    from rlberry_scool.agents.linear.lsvi_ucb import LSVIUCBAgent  # pyright: ignore
    from rlberry_scool.agents.ucbvi.ucbvi import UCBVIAgent  # pyright: ignore

    try:
        from rlberry_research.envs.finite import FiniteMDP  # pyright: ignore
    except ImportError:
        from rlberry.envs import FiniteMDP  # pyright: ignore

    rlberry.logger.setLevel("ERROR")
    given = json.load(sys.stdin)
    transition, reward = np.array(given["transition"]), np.array(given["reward"])
    horizon = given["horizon"]
    n_states, n_actions = reward.shape

    class OneHot(FeatureMap):
        def __init__(self):
            super().__init__()
            self.shape = (n_states * n_actions,)

        def map(self, observation, action):
            feature = np.zeros(n_states * n_actions)
            feature[observation * n_actions + action] = 1.0
            return feature

    def timed(agent, episodes):
        began = process_time()
        agent.fit(budget=episodes)
        return process_time() - began

    def river():
        return FiniteMDP(reward, transition, initial_state_distribution=0)

    timed(UCBVIAgent(river(), gamma=1.0, horizon=horizon), 2)  # compile
    taken = {
        "ucbvi": timed(UCBVIAgent(river(), gamma=1.0, horizon=horizon), given["ucbvi"]),
        "lsvi-ucb": timed(
            LSVIUCBAgent(river(), horizon, lambda env: OneHot(), gamma=1.0), given["lsvi"]
        ),
    }
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
