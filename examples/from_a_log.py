"""From a log file: fit the transition core, test it, and plan with what the log can support.

The log is of swimmers who fight the current three times in four. Few of them come near the top of
the river, so the log knows little about it, and a careful plan knows that it does.
"""

import csv
import tempfile
from pathlib import Path

import numpy as np

import upriver as up
from upriver.planning import start_value


def write_log(mdp, path, episodes=120, seed=0):
    """What a log file looks like: state, action, next_state."""
    rng = np.random.default_rng(seed)
    task = mdp.known
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["state", "action", "next_state"])
        for _ in range(episodes):
            s = 0
            for _ in range(mdp.horizon):
                a = int(rng.random() < 0.75)
                at = task.rows(s, a)
                s2 = int(rng.choice(task.successors[at], p=mdp.probability[0, at]))
                writer.writerow([s, task.actions[a], s2])
                s = s2


def main():
    mdp = up.envs.riverswim(n_states=8, horizon=32)
    task = mdp.task()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        write_log(mdp, path)

        shared = up.features.shared(task)
        model = up.fit_from_log(task, shared, path)
        print(model.summary())
        print()
        print(model.goodness_of_fit().summary(limit=3))

        # Is going back really a thing? Leave it out and ask the log.
        keep = [i for i, name in enumerate(shared.names) if "interior left" not in name]
        smaller = up.Features(task, shared.matrix[:, keep], [shared.names[i] for i in keep])
        test = model.likelihood_ratio(up.fit_from_log(task, smaller, path))
        print(
            f"\nwithout 'interior left': likelihood ratio {test.statistic:.1f} with "
            f"{test.degrees} degree of freedom, p = {test.p_value:.2g}"
        )

    print(f"\nbest possible value {start_value(mdp, up.solve(mdp).v):.3f}")
    for how in ("pessimistic", "greedy", "optimistic"):
        plan = up.plan_with(model, how)
        promised = start_value(mdp, plan.v)
        earned = start_value(mdp, up.evaluate(mdp, plan.policy))
        print(f"  {how:<12} promises {promised:6.3f}, earns {earned:.3f}")


if __name__ == "__main__":
    main()
