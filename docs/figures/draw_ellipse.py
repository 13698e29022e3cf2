"""Draw how the confidence ellipse of two log-odds shrinks while an agent plays.

python docs/figures/draw_ellipse.py

The problem is Gymnasium's frozen lake, whose ice has two parameters.
"""

from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np

import upriver as up

HERE = Path(__file__).parent
EPISODES = (1, 3, 10, 30, 100)
RADIUS = 2.447
"""Square root of the 95% quantile of chi-square with two degrees of freedom."""
STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))


def move(field, action):
    row, column = np.add(divmod(field, 4), STEPS[action % 4]).clip(0, 3)
    return int(4 * row + column)


def ice(field, action, after):
    """Return whether a step went as intended; at a wall this may be where a slip leads as well."""
    intended = move(field, action) == after
    sides = sum(move(field, action + turn) == after for turn in (-1, 1))
    return [intended and not sides, intended and sides > 0]


def main():
    mdp = up.envs.from_gymnasium("FrozenLake-v1", horizon=100, success_rate=0.8)
    task = mdp.task()
    names = ["in the open", "at a wall"]
    phi = up.features.from_function(task, ice, names)
    truth = np.log([0.8 / 0.1, 0.9 / 0.1])
    agent = up.agents.UCRLMNLSE(task, phi)
    figure, axes = plt.subplots(figsize=(4.4, 3.4), layout="constrained")
    circle = np.exp(1j * np.linspace(0.0, 2.0 * np.pi, 200))
    for k, shade in zip(EPISODES, np.linspace(0.25, 1.0, len(EPISODES)), strict=True):
        counts = up.simulate(mdp, agent, n_episodes=k, seed=0).state.model.counts[0]
        fitted = up.fit_mnl(phi, counts, regularization=1.0)
        root = np.linalg.cholesky(np.asarray(fitted.cov_params()))
        x, y = fitted.theta[:, None] + RADIUS * root @ np.stack([circle.real, circle.imag])
        colour = plt.get_cmap("Blues")(shade)
        axes.plot(x, y, color=colour, linewidth=1.6, label=str(k))
    axes.plot(*truth, "*", color="#d55e00", markersize=11)
    axes.annotate("truth", truth, xytext=(12, 6), textcoords="offset points", color="#d55e00")
    axes.set(xlabel=f"log-odds of the intended step, {names[0]}", ylabel=f"{names[1]}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title="episodes", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.grid(alpha=0.25, linewidth=0.6)
    figure.savefig(HERE / "ellipse.png", dpi=220, facecolor="white")


if __name__ == "__main__":
    main()
