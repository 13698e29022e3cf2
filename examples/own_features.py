"""Your own features: what you know about the world, in a few columns.

A river of 20 states. One-hot features learn each state by itself; five columns of our own say
that the current is the same everywhere, and the learner needs no more than a few episodes.
"""

import numpy as np

import upriver as up

LENGTH, EPISODES = 20, 100


def current(s, action, s2):
    """Swimming left succeeds or not; swimming right goes forward or back, or stays: zero."""
    if action == "left":
        return [float(s2 == max(s - 1, 0)), 0.0, 0.0, 0.0, 0.0]
    bank = s in (0, LENGTH - 1)
    return [
        0.0,
        float(s2 > s and not bank),
        float(s2 < s and not bank),
        float(s2 > s and bank),
        float(s2 < s and bank),
    ]


def main():
    mdp = up.envs.riverswim(LENGTH)
    task = mdp.task("local")  # only the neighbours are known, not that swimming left is sure
    names = ["left succeeds", "forward", "back", "forward from the bank", "back from the bank"]
    own = up.features.from_function(task, current, names)
    best = up.solve(mdp).v[0, 0]

    print(f"river of {LENGTH} states, {EPISODES} episodes, episodes lost:")
    for title, phi in {"one-hot": up.features.one_hot(task), "our own": own}.items():
        agent = up.agents.UCRLMNLSE(task, phi)
        lost = [up.simulate(mdp, agent, EPISODES, seed).regret.sum() / best for seed in range(3)]
        print(f"  {title:<8} {phi.dimension:3d} columns: {np.mean(lost):5.1f}")

    run = up.simulate(mdp, up.agents.UCRLMNLSE(task, own), EPISODES)
    print("\nthe current, as learned (log-odds against staying):")
    fitted = up.fit_mnl(own, run.state.model.counts[0], regularization=1e-3)
    for row in fitted.table()[1:]:
        print(f"  {row['name']:<22} {row['estimate']:6.2f} ± {row['standard_error']:.2f}")
    print(f"  truth in mid-river: forward {np.log(0.35 / 0.6):.2f}, back {np.log(0.05 / 0.6):.2f}")


if __name__ == "__main__":
    main()
