"""Your own Gymnasium environment: FrozenLake, learned from its table's shape and as a black box.

The ice carries you where you want with probability 0.8, else to either side. The learner is told
the map, not these numbers. It learns two log-odds, the same on every field, against "as intended":

    slip      to one side
    pressed   as intended or one slip, where a wall makes them one outcome: the odds of "either"
              are no product, so without a feature of its own the model is wrong beside walls
"""

import gymnasium
import numpy as np

import upriver as up

HORIZON, EPISODES = 100, 300
STEPS = [(0, -1), (1, 0), (0, 1), (-1, 0)]  # left, down, right, up, as FrozenLake numbers them


def target(field, action):
    """Where a move from `field` leads on the 4 x 4 map; walls hold you back."""
    row, column = divmod(field, 4)
    down, right = STEPS[action % 4]
    return 4 * min(max(row + down, 0), 3) + min(max(column + right, 0), 3)


def outcomes(field, action):
    """(one side, as intended, other side); at a hole or the goal the episode is over."""
    if field in (5, 7, 11, 12, 15):
        return (field,)
    return tuple(target(field, action + turn) for turn in (-1, 0, 1))


def varphi(field, action, following):
    reached = [where == following for where in outcomes(field, action)]
    if len(reached) == 1:
        return [0.0, 0.0]
    slips, intended = reached[0] + reached[2], reached[1]
    return [float(slips == 1 and not intended), float(slips == 1 and intended)]


def learner(task):
    """Rewards are hidden too: E[r | s, a] beside the goal would give the odds away."""
    phi = up.features.from_function(task, varphi, names=["slip", "pressed"])
    return up.UCRLMNL(
        task.with_unknown_reward(), phi, radius=1e-4, regularization=1.0, reward_bonus=0.01
    )


def report(title, mdp, run, agent):
    best = up.solve(mdp).v[0, 0]
    value = up.evaluate(mdp, run.plan.policy)[0, 0]
    print(f"\n{title}: {value / best:.1%} of the best possible {best:.4f}")
    truth = {"slip": np.log(0.1 / 0.8), "pressed": np.log(0.9 / 0.8)}
    fitted = up.fit_mnl(agent.features, run.state.model.counts.sum(axis=0), regularization=1e-6)
    for row in fitted.table():
        print(
            f"  {row['name']:<8} log-odds {row['estimate']:7.3f}  "
            f"95% [{row['low']:.3f}, {row['high']:.3f}]  truth {truth[row['name']]:.3f}"
        )


def main():
    env = gymnasium.make("FrozenLake-v1", success_rate=0.8)
    mdp = up.envs.from_gymnasium(env, horizon=HORIZON)

    agent = learner(mdp.task())
    run = up.simulate(mdp, agent, EPISODES, seed=0)
    report("From the table P", mdp, run, agent)
    print(f"  regret in all: {run.regret.sum() / up.solve(mdp).v[0, 0]:.1f} episodes lost")

    agent = learner(up.Task.from_successors(range(16), range(4), outcomes, HORIZON))
    run = up.learn(env, agent, EPISODES, seed=0)
    report("As a black box", mdp, run, agent)
    print(f"  {run.summary()}")


if __name__ == "__main__":
    main()
